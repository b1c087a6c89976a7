"""Whether two qualities differ by more than noise, and what would show that they do."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from elsa_tune.analysis.statistics.intervals import Spread

# (z_.975 + z_.80)^2: what a difference, squared and over its variance, must reach to be found four
# times out of five.
FOUND = 7.849

# Degrees of freedom from which on Student's t is normal.
_MANY = 1e6
# No p value between 0 and .5 is told from this one.
_LEAST_P = 1e-15

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceTest:
    """A difference of two qualities, with what noise alone would make of it."""

    difference: float  # fractions of quality
    error: float  # its standard error
    half: float  # half of its two-sided interval
    p: float  # two-sided, of the hypothesis that it is 0
    p_above: float  # one-sided, of the hypothesis that it is at most 0


def difference_test(
    difference: float, parts: Sequence[Spread], confidence: float = 0.95
) -> DifferenceTest:
    """Test a difference. parts: its independent parts.

    Those that few seeds tell are added by Welch and Satterthwaite. What is known, of infinite
    degrees of freedom, is added at each confidence as independent intervals are: by its square. As
    part of Welch's sum it would let two seeds that agree by luck pass for certain.
    """
    seeds, known = _seeds_and_known(parts)
    beyond = _p_beyond(abs(difference), seeds, known)
    above = beyond if difference > 0 else 1 - beyond
    return DifferenceTest(
        difference=difference,
        error=math.sqrt(seeds.variance + known),
        half=_margin((1 - confidence) / 2, seeds, known),
        p=2 * beyond,
        p_above=above,
    )


def _seeds_and_known(parts: Sequence[Spread]) -> tuple[Spread, float]:
    """Return what seeds tell of the spread, and the variance that is known."""
    by_seeds = [part for part in parts if math.isfinite(part.freedom)]
    known = math.fsum(part.variance for part in parts if math.isinf(part.freedom))
    return added(by_seeds), known


def _margin(p: float, seeds: Spread, known: float) -> float:
    """Return what noise exceeds in a share p of cases. p: in (0, .5]."""
    by_seeds = float(stdtrit(seeds.freedom, p)) * math.sqrt(seeds.variance)
    by_known = float(ndtri(p)) * math.sqrt(known)
    return math.hypot(by_seeds, by_known)


def _p_beyond(size: float, seeds: Spread, known: float) -> float:
    """Return the p whose margin is a difference of this size, 0 or more; at most .5."""
    if seeds.variance == 0 and known == 0:
        return 0.0 if size else 0.5
    if known == 0:
        return float(stdtr(seeds.freedom, -size / math.sqrt(seeds.variance)))
    if seeds.variance == 0:
        return float(ndtr(-size / math.sqrt(known)))
    if size >= _margin(_LEAST_P, seeds, known):
        return _LEAST_P
    p: float = brentq(lambda p: _margin(p, seeds, known) - size, _LEAST_P, 0.5, xtol=_LEAST_P)
    return p


def added(parts: Sequence[Spread]) -> Spread:
    """Return the spread of a sum of independent parts (Welch 1947, Satterthwaite 1946)."""
    variance = math.fsum(part.variance for part in parts)
    by_freedom = math.fsum(part.variance**2 / part.freedom for part in parts if part.variance)
    freedom = _MANY
    if by_freedom > 0:
        freedom = min(_MANY, variance**2 / by_freedom)
    return Spread(variance=variance, freedom=freedom)


def corrected_by_holm(p_values: Mapping[_Key, float]) -> dict[_Key, float]:
    """Return p values with Holm's correction for testing all of them."""
    corrected: dict[_Key, float] = {}
    largest = 0.0
    rising = sorted(p_values, key=lambda key: p_values[key])
    for place, key in enumerate(rising):
        left = len(rising) - place
        largest = max(largest, min(1.0, p_values[key] * left))
        corrected[key] = largest
    return corrected


def fewest_seeds(difference: float, variance_of_runs: float) -> int:
    """Return the fewest seeds of each that find a true difference, with any number of rows.

    variance_of_runs: of one run of the one plus one of the other.
    """
    seeds = seeds_needed(difference, variance_of_runs, 0.0)
    assert seeds is not None  # no rows hide it
    return seeds


def seeds_needed(difference: float, variance_of_runs: float, variance_by_rows: float) -> int | None:
    """Return how many seeds of each find a true difference; None where these rows hide it.

    variance_of_runs: as for `fewest_seeds`. variance_by_rows: of the difference.
    """
    left_for_seeds = difference**2 / FOUND - variance_by_rows
    if left_for_seeds <= 0:
        return None
    seeds = max(2, math.ceil(variance_of_runs / left_for_seeds))
    # With few seeds Student's t asks for more than that. It is normal in the end, so this ends.
    while not _is_found(difference, variance_of_runs / seeds, 2 * (seeds - 1), variance_by_rows):
        seeds += 1
    return seeds


def _is_found(
    difference: float, variance_by_seeds: float, freedom: float, variance_by_rows: float
) -> bool:
    """Return whether a true difference is found four times out of five.

    freedom: degrees of freedom of the variance by seeds.
    """
    by_seeds = Spread(variance=variance_by_seeds, freedom=freedom)
    margins = [_margin(p, by_seeds, variance_by_rows) for p in (0.025, 0.20)]
    return difference >= math.fsum(margins)


def rows_needed(
    difference: float, variance_of_row: float, variance_by_seeds: float = 0.0
) -> int | None:
    """Return how many rows find a true difference; None where so few seeds hide it.

    variance_of_row: of the difference on one row. variance_by_seeds: of the difference of two means
    over seeds.
    """
    left_for_rows = difference**2 / FOUND - variance_by_seeds
    if left_for_rows <= 0:
        return None
    return math.ceil(variance_of_row / left_for_rows)
