"""The factor between the best learning rate of a way and the full model's.

Of the rates that a way explored, those that one run does not show to be worse than the best contain
the truly best of them with a given confidence (subset selection: Gupta 1965, Technometrics 7,
225-245; here by Bonferroni). How far single runs differ is known from the measuring runs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.statistics.uncertainty import student_quantile
from elsa_tune.analysis.ways import RateRatio, Way, WayComparison
from elsa_tune.specs.freeze import FreezeDepth


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """The range in which the best of a way's tried rates lies."""

    low: float
    high: float


def rate_ratios(comparison: WayComparison) -> tuple[RateRatio, ...]:
    """Return the ratio of the best way of each method but freezing, by the methods' names.

    None of them where the full model was not measured at a rate that is known. A way that learnt
    nothing has no best rate, so that it has no ratio.
    """
    reference = None
    best_by_method: dict[str, Way] = {}
    for way in comparison.ways:
        if way.point.learning_rate is None or not way.point.tried.learnt:
            continue
        if way.candidate.is_reference:
            reference = way
        method = way.candidate.method
        best = best_by_method.get(method)
        if best is None or (way.point.quality or 0.0) > (best.point.quality or 0.0):
            best_by_method[method] = way
    best_by_method.pop(FreezeDepth.method, None)
    if reference is None:
        return ()
    ratios: list[RateRatio] = []
    for method in sorted(best_by_method):
        ratio = _ratio(comparison, best_by_method[method], reference)
        ratios.append(ratio)
    return tuple(ratios)


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
    borders = (way.point.tried.at_border, reference.point.tried.at_border)
    return RateRatio(
        way=way,
        factor=rate / reference_rate,
        low=low,
        high=high,
        is_open=any(border is not None for border in borders),
    )


def _best_rates(comparison: WayComparison, point: CurvePoint, error: float) -> _Rates | None:
    """Return the range of the tried rates of which one is the best but for this error.

    None where fewer than two rates ran to their end, where early stopping ended one, of which that
    is no test, or where too few seeds tell of their spread.
    """
    if point.stopped_early:
        return None
    scores: dict[float, float] = {}
    for rate, score in point.tried.explored:
        if score is not None:
            scores[rate] = score
    uncertainty = comparison.curve.uncertainty
    runs = uncertainty.runs.get(point.candidate)
    if len(scores) < 2 or runs is None or runs.count < 2:
        return None
    of_mean = uncertainty.spread(point.candidate)
    variance_of_run = of_mean.variance * runs.count
    others = len(scores) - 1
    quantile = student_quantile(of_mean.freedom, 1 - error / others)
    # Of the difference of two runs.
    margin = quantile * math.sqrt(2 * variance_of_run)
    return _within(scores, margin)


def _within(scores: Mapping[float, float], margin: float) -> _Rates:
    """Return the range of the rates that score at most this margin less than the best."""
    least = max(scores.values()) - margin
    alike = [rate for rate, score in scores.items() if score >= least]
    return _Rates(low=min(alike), high=max(alike))
