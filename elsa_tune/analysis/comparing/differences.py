"""Differences between ways that are more than the noise of seeds and evaluation rows, and reruns.

Of the ways, those that are not shown to be worse than the best contain the truly best one (subset
selection: Gupta 1965, Technometrics 7, 225-245; here by Bonferroni). Those that differ from the
full model are found by Holm's procedure. The first has half of the error, to one side, so that the
second, which has all of it, to both sides, finds what the first does of the full model. What it
finds beyond that, and the first leaves open, is not claimed: the two never contradict each other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from elsa_tune.analysis.comparing.ways import Differences, Rerun, Way, WayComparison
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.learnt import judged_quality, rows_counted, spread_of_mean, variance_by_rows
from elsa_tune.analysis.statistics.differences import (
    DifferenceTest,
    corrected_by_holm,
    difference_test,
    fewest_seeds,
    rows_needed,
    seeds_needed,
)
from elsa_tune.analysis.statistics.intervals import SAME_QUALITY, Spread
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.words import VISIBLE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What makes two ways' difference vary, as far as it is known."""

    rows: float | None  # the variance by the evaluation rows, both ways together; None: not known
    of_way: Spread | None  # of the one's mean over seeds
    of_other: Spread | None  # of the other's

    @property
    def all(self) -> tuple[Spread, ...]:
        """All that is known; () where it is the seeds of one way alone, or nothing."""
        if self.rows is None and (self.of_way is None or self.of_other is None):
            return ()
        parts = [part for part in (self.of_way, self.of_other) if part is not None]
        if self.rows is not None:
            parts.append(Spread(variance=self.rows, freedom=float("inf")))
        return tuple(parts)


def differences_of(comparison: WayComparison) -> Differences | None:
    """Return how the ways differ.

    None where neither seeds nor rows tell how far noise goes, before all planned seeds are there,
    and where a search was repeated: who looks each time that seeds have come finds differences too
    often.
    """
    if comparison.best is None or comparison.unfinished or comparison.pools_searches:
        return None
    # By the seeds that are tested, which may be fewer than those of the table's means.
    [best, *_] = _best_first(comparison, comparison.ways)
    others = [way for way in comparison.ways if way.candidate != best.candidate]
    level = comparison.curve.policy.error / 2 / len(others)
    possible: list[Way] = [best]
    untested: list[Way] = []
    counts_rows = True
    for way in _best_first(comparison, others):
        parts = _parts(comparison, best, way)
        if not parts.all:
            untested.append(way)
            continue
        counts_rows = counts_rows and parts.rows is not None
        if _tested(comparison, best, way, parts).p_above >= level:
            possible.append(way)
    if len(untested) == len(others):
        return None
    above, below = _beside_the_full_model(comparison, possible)
    return Differences(
        possible=tuple(possible),
        untested=tuple(untested),
        above_full=above,
        below_full=below,
        counts_rows=counts_rows,
        without_spread=_without_spread(comparison),
        rerun=_rerun(comparison, possible),
    )


def _without_spread(comparison: WayComparison) -> tuple[Way, ...]:
    """Return the ways of which nothing tells how far another seed would move them."""
    ways: list[Way] = []
    for way in comparison.ways:
        if _spread_of_seeds(comparison.curve, way) is None:
            ways.append(way)
    return tuple(ways)


def _quality(comparison: WayComparison, way: Way) -> float:
    """Return the mean over the seeds that the spread is of: the planned ones, where any were."""
    quality = judged_quality(comparison.curve, way.point)
    assert quality is not None  # a measured way has one
    return quality


def _best_first(comparison: WayComparison, ways: Sequence[Way]) -> list[Way]:
    return sorted(ways, key=lambda way: _quality(comparison, way), reverse=True)


def _tested(comparison: WayComparison, way: Way, other: Way, parts: _Parts) -> DifferenceTest:
    """Test two ways' difference.

    The p values pay for Welch's approximation, and for rates that were chosen.
    """
    difference = _quality(comparison, way) - _quality(comparison, other)
    test = difference_test(difference, parts.all)
    paid = _paid_for_welch(comparison, way, other, parts)
    p_above = paid * test.p_above
    p = paid * test.p
    uncertainty = comparison.curve.uncertainty
    is_above = uncertainty.p_value(way.candidate, 1.0, against=other.candidate)
    is_below = uncertainty.p_value(other.candidate, 1.0, against=way.candidate)
    if is_above is not None and is_below is not None:
        # Single runs are tested as certificates are, with what few mistakes or far labels hide.
        p_above = is_above
        p = 2 * min(is_above, is_below)
    # Bonferroni, of the way whose best rate was chosen from more. A way chosen from R rates lies
    # falsely above another only if one of the R does, whatever rate the other was chosen at.
    rates = max(way.point.measured_at_rates, other.point.measured_at_rates)
    return replace(test, p=min(1.0, rates * p), p_above=min(1.0, rates * p_above))


def _paid_for_welch(comparison: WayComparison, way: Way, other: Way, parts: _Parts) -> float:
    """Return by what p values grow for Welch's approximation; 1 where no seeds are counted."""
    counts: list[int] = []
    if parts.of_way is not None:
        counts.append(_seeds_of(comparison, way))
    if parts.of_other is not None:
        counts.append(_seeds_of(comparison, other))
    if not counts:
        return 1.0
    policy = comparison.curve.policy
    return policy.error / policy.test_error(min(counts))


def _parts(comparison: WayComparison, way: Way, other: Way) -> _Parts:
    """Return what makes the difference of two ways vary."""
    curve = comparison.curve
    rows = curve.uncertainty.example_variance_of_difference(way.candidate, other.candidate)
    if rows is None:
        by_way = variance_by_rows(curve, way.point)
        by_other = variance_by_rows(curve, other.point)
        if by_way is not None and by_other is not None:
            # As if they were right on rows of their own, which is too wide rather than too narrow.
            rows = by_way + by_other
    return _Parts(
        rows=rows,
        of_way=_spread_of_seeds(curve, way),
        of_other=_spread_of_seeds(curve, other),
    )


def _spread_of_seeds(curve: FreezeCurve, way: Way) -> Spread | None:
    """Return how far the mean over a way's seeds can be trusted; None where nothing tells.

    Nothing does where all seeds score the same, as a printed deviation of 0.0 says: that is
    rounding, or one result written several times, and no exact knowledge.
    """
    spread = spread_of_mean(curve, way.point)
    if spread is None or curve.uncertainty.is_rounding_alone(way.candidate):
        return None
    if not way.point.std:
        return None
    if spread.variance < SAME_QUALITY**2:
        return None
    return spread


def _beside_the_full_model(
    comparison: WayComparison, possible: Sequence[Way]
) -> tuple[tuple[Way, ...], tuple[Way, ...]]:
    """Return the ways that lie above the full model, and those below it, the cheapest first.

    possible: those of which one is the best. None of them lies below the full model, and where that
    is one of them none lies above it.
    """
    full: Way | None = None
    for way in comparison.ways:
        if way.candidate.is_reference:
            full = way
    if full is None:
        return (), ()
    tests: dict[Candidate, DifferenceTest] = {}
    for way in comparison.ways:
        if way is full:
            continue
        parts = _parts(comparison, way, full)
        if parts.all:
            tests[way.candidate] = _tested(comparison, way, full, parts)
    above, below = _differing(comparison, tests)
    may_be_best = {way.candidate for way in possible}
    below -= may_be_best
    if full.candidate in may_be_best:
        above = set()
    return _of_candidates(comparison, above), _of_candidates(comparison, below)


def _differing(
    comparison: WayComparison, tests: Mapping[Candidate, DifferenceTest]
) -> tuple[set[Candidate], set[Candidate]]:
    """Return what differs significantly from the full model: what lies above, and below."""
    corrected = corrected_by_holm({candidate: test.p for candidate, test in tests.items()})
    above: set[Candidate] = set()
    below: set[Candidate] = set()
    for candidate, p in corrected.items():
        if p >= comparison.curve.policy.error:
            continue
        if tests[candidate].difference > 0:
            above.add(candidate)
        else:
            below.add(candidate)
    return above, below


def _of_candidates(comparison: WayComparison, candidates: Collection[Candidate]) -> tuple[Way, ...]:
    """Return the ways of these candidates, the cheapest first."""
    return tuple(way for way in comparison.ways if way.candidate in candidates)


def _rerun(comparison: WayComparison, possible: list[Way]) -> Rerun | None:
    """Return what would tell the best from the full model, or from the next where that is told.

    None where no other may be the best, or where the two score alike as they are printed.
    """
    best, *rivals = possible
    if not rivals:
        return None
    other = rivals[0]
    for way in rivals:
        if way.candidate.is_reference:
            other = way
    difference = _quality(comparison, best) - _quality(comparison, other)
    if difference < VISIBLE:
        return None
    seeds, rows = _needs(comparison, best, other)
    return Rerun(way=best, other=other, difference=difference, seeds=seeds, rows=rows)


def _needs(comparison: WayComparison, way: Way, other: Way) -> tuple[int | None, int | None]:
    """Return how many seeds of each and how many evaluation rows a rerun of two ways needs.

    The rows are those there are, if these can do. Else the seeds are twice the fewest that can: of
    those, seeds alone would take all that chance may take.
    """
    difference = abs(_quality(comparison, way) - _quality(comparison, other))
    parts = _parts(comparison, way, other)
    counted = rows_counted(comparison.curve)
    if parts.of_way is None or parts.of_other is None:
        if parts.rows is None or counted is None:
            return None, None
        return None, rows_needed(difference, parts.rows * counted)
    variance_of_runs = parts.of_way.variance * _seeds_of(comparison, way)
    variance_of_runs += parts.of_other.variance * _seeds_of(comparison, other)
    fewest = fewest_seeds(difference, variance_of_runs)
    if parts.rows is None or counted is None:
        return fewest, None
    on_these_rows = seeds_needed(difference, variance_of_runs, parts.rows)
    if on_these_rows is not None:
        return on_these_rows, counted
    seeds = 2 * fewest
    rows = rows_needed(difference, parts.rows * counted, variance_of_runs / seeds)
    return seeds, rows


def _seeds_of(comparison: WayComparison, way: Way) -> int:
    """Return the seeds of a way that tell of its spread: those planned, where any were."""
    runs = comparison.curve.uncertainty.runs.get(way.candidate)
    return way.point.seeds if runs is None else runs.count
