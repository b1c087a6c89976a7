"""Intervals: how far a value can be trusted, by the spread of its seeds and by its examples.

The mean over S seeds moves by Student's t, and the examples by their draws (`resampling.py`). A sum
of such terms is drawn, each term independently.

Letters in shape comments: R draws, S seeds.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elsa_tune.analysis.statistics.resampling import RESAMPLES, Floats

# Below this two printed qualities are the same number.
SAME_QUALITY = 1e-6

# What two ways to write one number may differ by, in the last bits of a float.
_LAST_BITS = 1e-12

# Sets of draws of Student's t that a process keeps, 80 kilobytes each.
STUDENTS_KEPT = 128

# Which shares of what may be lie below an interval's low, high and one-sided lower end.
Ends = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One planned look that was taken."""

    number: int  # 1-based, of `planned` ones
    planned: int  # how many there are at most
    seeds: int  # of the depth, that it uses
    full_seeds: int  # and of the full model
    level: float  # the error that it may spend, one-sided
    half: float  # and that either end of a two-sided interval may


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far a run, or the mean over some seeds, can be trusted."""

    variance: float  # of that run or mean
    freedom: float  # the variance's degrees of freedom


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its two-sided 95 % interval and its lower one-sided 95 % bound."""

    value: float  # the estimate
    low: float  # its lower end
    high: float  # its upper end; of several tasks together at 2.5 % divided by their number
    lower: float  # the one-sided bound
    allowance: float = 0.0  # the part of the way to the lower ends that more seeds leave
    look: Look | None = None  # that it rests on and is widened for; None where none was planned


def student_quantile(freedom: float, share: float) -> float:
    """Return the value of Student's t below which this share of it lies."""
    quantile = student_quantiles(freedom, share)
    return float(quantile)


def welch(tuned: Spread, full: Spread) -> Spread:
    """Return the spread of a sum of two independent means (Welch 1947, Satterthwaite 1946)."""
    variance = tuned.variance + full.variance
    if variance == 0:
        return Spread(
            variance=0.0,
            freedom=tuned.freedom + full.freedom,
        )
    tuned_share = tuned.variance / variance
    full_share = 1 - tuned_share
    tuned_part = tuned_share**2 / tuned.freedom
    full_part = full_share**2 / full.freedom
    inverse_freedom = tuned_part + full_part
    return Spread(variance=variance, freedom=1 / inverse_freedom)


def variance_of_runs(qualities: Sequence[float] | Floats) -> float:
    """Return the unbiased variance of two runs or more."""
    variance = np.var(qualities, ddof=1)
    return float(variance)


def rounding_variance(qualities: Sequence[float], exact_decimals: int) -> float:
    """Return the variance of what rounding hides: .801 may be .8005 to .8015.

    exact_decimals: qualities that need as many were not rounded; then it is 0.
    """
    for decimals in range(2, exact_decimals):
        # 84.4 / 100, as other tools compute it, is .844 but for its last bit.
        are_rounded = all(
            abs(round(quality, decimals) - quality) < _LAST_BITS for quality in qualities
        )
        if are_rounded:
            squared_step = float(10.0 ** (-2 * decimals))
            return squared_step / 12  # of a uniform distribution one step wide
    return 0.0


def spread_of_printed_mean(std: float, count: int, rounding: float) -> Spread:
    """Return how far a mean can be trusted that was printed with its standard deviation.

    count: of runs, two or more. rounding: `rounding_variance` of what is printed. More runs make
    the mean surer, and its last digit no finer.
    """
    variance_of_run = std**2 + rounding
    return Spread(
        variance=variance_of_run / count + rounding,
        freedom=count - 1,
    )


def interval_of(
    value: float,
    moved: Floats | None,
    *,
    seeds: Sequence[Spread],
    ends: Ends,
) -> Interval:
    """Combine seeds and examples. moved: [R], by the examples. seeds: of one mean or more."""
    if moved is None and len(seeds) == 1:
        [spread] = seeds
        standard_error = math.sqrt(spread.variance)
        shares = np.asarray(ends)
        students = student_quantiles(spread.freedom, shares)
        three_ends = value + standard_error * students
    else:
        draws = _draws(value, moved, seeds)
        three_ends = np.quantile(draws, ends)
    low, high, lower = map(float, three_ends)
    return Interval(
        value=value,
        low=low,
        high=high,
        lower=lower,
    )


def share_below(
    least: float,
    value: float,
    moved: Floats | None,
    *,
    seeds: Sequence[Spread],
) -> float:
    """Return the share of what may be that is at most `least`; arguments as of `interval_of`.

    Of draws half of one is added, as an interval's end lies between two of them: no share is 0.
    """
    if moved is None and len(seeds) == 1:
        [spread] = seeds
        standard_error = math.sqrt(spread.variance)
        if standard_error == 0:
            return float(value <= least)
        from scipy.special import stdtr  # scipy.stats takes half a second to import

        distance = (least - value) / standard_error
        return float(stdtr(spread.freedom, distance))
    draws = _draws(value, moved, seeds)
    below = int(np.count_nonzero(draws <= least))
    return (below + 0.5) / len(draws)


def _draws(value: float, moved: Floats | None, seeds: Sequence[Spread]) -> Floats:
    """Return [R] draws of what may be, by examples and seeds; arguments as of `interval_of`."""
    draws = np.full(RESAMPLES, value)
    if moved is not None:
        draws = draws + moved
    for stream, spread in enumerate(seeds):
        standard_error = math.sqrt(spread.variance)
        students = _student(spread.freedom, stream)
        draws = draws + standard_error * students
    return draws


@functools.lru_cache(STUDENTS_KEPT)
def _student(freedom: float, stream: int) -> Floats:
    """Return [R] draws of Student's t, one from each of R equal strata, in a random order."""
    strata = np.arange(RESAMPLES)
    middles = (strata + 0.5) / RESAMPLES
    in_order = student_quantiles(freedom, middles)
    generator = np.random.default_rng(stream + 1)
    draws = generator.permutation(in_order)
    return np.asarray(draws)


def student_quantiles(freedom: float, shares: Floats | float) -> Floats:
    """Return Student's t below which these shares of it lie."""
    from scipy.special import stdtrit  # scipy.stats takes half a second to import

    quantiles = stdtrit(freedom, shares)
    return np.asarray(quantiles)
