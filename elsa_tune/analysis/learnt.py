"""Whether what was adapted learnt: a quality against guessing, by its seeds and its rows."""

from dataclasses import replace

from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.groups import equal_units
from elsa_tune.analysis.statistics.intervals import Spread, spread_of_printed_mean
from elsa_tune.analysis.statistics.learning import Learnt, learnt
from elsa_tune.specs.task import Metric


def has_surely_learnt(curve: FreezeCurve) -> bool:
    """Whether the full model is above chance with all its seeds, and with the planned ones alone.

    Seeds that were added when an answer was known may take a certificate back and never give one.
    Where the planned ones are too few to tell, they are too few for every test.
    """
    if verdict_on(curve) is not Learnt.YES:
        return False
    planned = None if curve.looks is None else curve.looks.of_full_model()
    if planned is None:
        return True
    return verdict_on(replace(curve, uncertainty=planned)) is not Learnt.NO


def verdict_on(curve: FreezeCurve) -> Learnt | None:
    """Whether the full model learnt; None where it was not measured."""
    full = curve.full
    if full is None:
        return None
    return verdict_on_point(curve, full)


def verdict_on_point(curve: FreezeCurve, point: CurvePoint) -> Learnt | None:
    """Whether what was adapted so learnt; None where it was not measured."""
    if point.quality is None:
        return None
    variance = curve.uncertainty.example_variance(point.candidate)
    if variance is None:
        variance = variance_by_rows(curve, point)
    variance = max(variance or 0.0, 0.0)
    quality = judged_quality(curve, point)
    assert quality is not None
    if curve.chance is None and quality < 0 and Metric.named(curve.metric) is None:
        return Learnt.UNTESTED  # of an error with a minus guessing may score any number below 0
    return learnt(
        quality,
        chance=curve.chance,
        spread=spread_of_mean(curve, point),
        example_variance=variance,
        policy=curve.policy,
    )


def judged_quality(curve: FreezeCurve, point: CurvePoint) -> float | None:
    """Return the mean over the seeds that judge a point: those of the curve's `uncertainty`.

    These are all, or the planned ones (`ways.way_curve`). Of a mean that was given as such it is
    the point's quality; None where it was not measured.
    """
    runs = curve.uncertainty.runs.get(point.candidate)
    if point.quality is None or runs is None:
        return point.quality
    return runs.mean


def spread_of_mean(curve: FreezeCurve, point: CurvePoint) -> Spread | None:
    """Return how far the mean over a point's seeds can be trusted; None where nothing tells."""
    if point.seeds < 2:
        return None
    planned = curve.uncertainty.runs.get(point.candidate)
    if planned is not None:
        return None if planned.count < 2 else curve.uncertainty.spread(point.candidate)
    if point.std is None:
        return None
    return spread_of_printed_mean(point.std, point.seeds, point.rounding)


def variance_by_rows(curve: FreezeCurve, point: CurvePoint) -> float | None:
    """Return the variance of a quality by the number of evaluation rows alone.

    None where that number is not known, and of a metric that is no share of the rows.
    """
    metric = Metric.named(curve.metric)
    is_share = metric is not None and metric.is_share
    counted = rows_counted(curve)
    if point.quality is None or curve.examples is None or counted is None or not is_share:
        return None
    return point.quality * (1 - point.quality) / counted


def rows_counted(curve: FreezeCurve) -> int | None:
    """Return as how many independent rows the evaluation rows count; None where not known."""
    if curve.uncertainty.has_predictions:
        return curve.units or curve.examples
    if curve.examples is None:
        return None
    return equal_units(curve.examples, curve.units)
