"""The factor between the best learning rate of a way and the full model's.

Of the rates that a way explored, those that one run does not show to be worse than the best contain
the truly best of them with a given confidence (subset selection: Gupta 1965, Technometrics 7,
225-245; here by Bonferroni). How far single runs differ is known from the measuring runs.

A run that early stopping ended shows nothing of its rate, which stays among those that may be the
best. It counts among the comparisons all the same, because it was its score that had it stopped.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.comparing.ways import RateRatio, Way, WayComparison
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.learnt import verdict_on_point
from elsa_tune.analysis.statistics.intervals import student_quantile
from elsa_tune.analysis.statistics.learning import Learnt
from elsa_tune.specs.adapt.freeze import FreezeDepth


@dataclass(frozen=True, slots=True, kw_only=True)
class _BestRateRange:
    """The range in which the best of a way's tried rates lies."""

    low: float  # the lowest rate that may be the best
    high: float  # and the highest


def rate_ratios(comparison: WayComparison) -> tuple[RateRatio, ...]:
    """Return the ratio of the best way of each method but freezing, by the methods' names.

    The best has the highest score, and of equal ones is the cheapest. Ways without a best rate have
    none (`ratios_of_ways`).
    """
    best_by_method: dict[str, RateRatio] = {}
    for ratio in ratios_of_ways(comparison):
        method = ratio.way.candidate.method
        if method == FreezeDepth.method:
            continue
        best = best_by_method.get(method)
        if best is None or (ratio.way.point.quality or 0.0) > (best.way.point.quality or 0.0):
            best_by_method[method] = ratio
    return tuple(best_by_method[method] for method in sorted(best_by_method))


def ratios_of_ways(comparison: WayComparison) -> tuple[RateRatio, ...]:
    """Return the ratio of every way but the full model, in the comparison's order.

    Both must have a best rate: a way tried at one rate alone has none, nor has one that is not
    certain to have learnt anything.
    """
    reference: Way | None = None
    others: list[Way] = []
    for way in comparison.ways:
        if not _has_best_rate(comparison, way):
            continue
        if way.candidate.is_reference:
            reference = way
        else:
            others.append(way)
    if reference is None:
        return ()
    return tuple(_ratio(comparison, way, reference) for way in others)


def _has_best_rate(comparison: WayComparison, way: Way) -> bool:
    """Whether a way learnt, exploring and measured, and was tried at two rates or more."""
    point = way.point
    if point.learning_rate is None or len(point.known_rates.rates) < 2:
        return False
    if not point.known_rates.learnt:
        return False
    return verdict_on_point(comparison.curve, point) is Learnt.YES


def _ratio(comparison: WayComparison, way: Way, reference: Way) -> RateRatio:
    rate = way.point.learning_rate
    reference_rate = reference.point.learning_rate
    assert rate is not None
    assert reference_rate is not None
    # Each of the two has half of the error.
    error = comparison.curve.policy.error / 2
    tried = _best_rates(comparison, way.point, error)
    reference_tried = _best_rates(comparison, reference.point, error)
    low = None
    high = None
    if tried is not None and reference_tried is not None:
        low = tried.low / reference_tried.high
        high = tried.high / reference_tried.low
    return RateRatio(
        way=way,
        factor=rate / reference_rate,
        low=low,
        high=high,
        is_open=_is_open(way.point, tried) or _is_open(reference.point, reference_tried),
    )


def _is_open(point: CurvePoint, possible: _BestRateRange | None) -> bool:
    """Whether the best rate, or one that may be the best, is the lowest or highest that was tried.

    Then rates beyond may be better.
    """
    if point.known_rates.at_border is not None:
        return True
    if possible is None:
        return False
    rates = point.known_rates.rates
    return possible.low <= min(rates) or possible.high >= max(rates)


def _best_rates(
    comparison: WayComparison, point: CurvePoint, error: float
) -> _BestRateRange | None:
    """Return the range of the tried rates of which one is the best but for this error.

    None where exploring runs of fewer than two rates are known, where none of them ran to its end,
    or where too few seeds, or seeds that all score the same, tell of their spread.
    """
    scores: dict[float, float] = {}
    for rate, score in point.known_rates.explored:
        if score is not None:
            scores[rate] = score
    rates = len(point.known_rates.explored)
    uncertainty = comparison.curve.uncertainty
    runs = uncertainty.runs.get(point.candidate)
    if not scores or rates < 2 or runs is None or runs.count < 2:
        return None
    of_mean = uncertainty.spread(point.candidate)
    if uncertainty.is_rounding_alone(point.candidate):
        return None
    variance_of_run = of_mean.variance * runs.count
    others = rates - 1
    quantile = student_quantile(of_mean.freedom, 1 - error / others)
    # Of the difference of two runs.
    margin = quantile * math.sqrt(2 * variance_of_run)
    return _not_excluded(scores, margin, point.known_rates.stopped)


def _not_excluded(
    scores: Mapping[float, float], margin: float, stopped: Sequence[float]
) -> _BestRateRange:
    """Return the range of the rates that may be the best.

    Those are the rates that score at most this margin less than the best, and the stopped ones.
    """
    least = max(scores.values()) - margin
    alike = [rate for rate, score in scores.items() if score >= least]
    possible = [*alike, *stopped]
    return _BestRateRange(low=min(possible), high=max(possible))
