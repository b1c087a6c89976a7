"""How far measuring runs can be trusted: all of them, or those that a planned look may use.

A test is valid however a search was stopped only if it uses the seeds that were planned for it,
and no others. One error is spent over two looks at a depth, of which the second has the seeds of
the first and more. The correlation of both test statistics is sqrt(Var2 / Var1), at least
sqrt(min(s1 / s2, r1 / r2)) with s seeds of the depth and r of the full model; the examples, common
to both, only raise it. The probability that either rejects falls with it (Slepian 1962), so the
least one is the worst case. Pocock 1977 (Biometrika 64) is the case of equal levels.
"""

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elsa_tune.analysis.failures import failed_runs
from elsa_tune.analysis.groups import ResultGroup, equal_units
from elsa_tune.analysis.measured import MeasuredRun, Runs
from elsa_tune.analysis.statistics.intervals import Look
from elsa_tune.analysis.statistics.resampling import ExampleDraws, resample, score
from elsa_tune.analysis.statistics.seeds import CandidateRuns
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import ResultsError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.policy import SeedCounts
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.search import Looks
from elsa_tune.specs.task import Metric

NORMAL = statistics.NormalDist()

# Sets of draws, half a megabyte each, that a process keeps: a hunt asks for them again and again.
DRAWS_KEPT = 32

# What the trial of a row answered; None where it is not known. Hashable.
Evidence = Callable[[ResultRow], Predictions | None]
Taken = Sequence[tuple[Look, Uncertainty]]


def curve_uncertainty(
    group: ResultGroup, measured: Runs, evidence: Evidence | None, warnings: list[AnswerWarning]
) -> Uncertainty:
    """Return the spread of a group's depths whose runs are known one by one.

    By predictions only where every run that counts has them; a warning says where they cannot be
    used. Else by the number of examples, or of units, where the metric is a share of them; else by
    seeds alone.
    """
    failed = failed_runs(measured, group.chance, group.policy)
    runs: dict[Candidate, CandidateRuns] = {}
    for candidate, measured_runs in measured.items():
        runs[candidate] = CandidateRuns(
            candidate=candidate,
            qualities=tuple(run.quality for run in measured_runs),
            failed=failed[candidate],
        )
    draws = _draws(group, measured, evidence, warnings)
    metric = Metric.named(group.first.metric)
    is_share = metric is not None and metric.is_share
    if draws is None and is_share and group.examples is not None:
        means = {candidate: candidate_runs.mean for candidate, candidate_runs in runs.items()}
        units = equal_units(group.examples, group.units)
        draws = ExampleDraws.counted(means, units, group.chance)
    return Uncertainty(runs=runs, chance=group.chance, examples=draws, policy=group.policy)


def _draws(
    group: ResultGroup, measured: Runs, evidence: Evidence | None, warnings: list[AnswerWarning]
) -> ExampleDraws | None:
    """Return how far predictions say that examples move each depth; None without them."""
    metric = group.first.metric
    if evidence is None or metric is None:
        return None
    in_order: list[tuple[Candidate, tuple[MeasuredRun, ...]]] = []
    trials: list[str | None] = []
    for candidate in sorted(measured):
        runs = tuple(measured[candidate])
        in_order.append((candidate, runs))
        trials += [run.row.trial for run in runs if not run.is_diverged]
    if not trials or None in trials:
        return None
    try:
        return _example_draws(evidence, metric, tuple(in_order), group.policy.same_score)
    except ResultsError as error:
        text = f"predictions were not used: {error}"
        warnings.append(AnswerWarning(WarningCode.PREDICTIONS_UNUSED, text))
        return None


@functools.lru_cache(DRAWS_KEPT)
def _example_draws(
    evidence: Evidence,
    metric: str,
    measured: tuple[tuple[Candidate, tuple[MeasuredRun, ...]], ...],
    same_score: float,
) -> ExampleDraws:
    """Return the draws of these runs' predictions.

    Raises ResultsError, which says why, where predictions cannot be used; that is never kept.
    """
    # Where each depth's runs stand among the predictions; None for a run that has none.
    columns: dict[Candidate, list[int | None]] = {}
    predictions: list[Predictions] = []
    doubtful = 0
    for candidate, runs in measured:
        columns[candidate] = []
        for run in runs:
            if run.is_diverged:
                columns[candidate].append(None)
                continue
            answered = evidence(run.row)
            if answered is None:
                # The first is enough: looking for more may cost a server's time each.
                raise ResultsError(f"those of {run.row.trial} are lost or damaged")
            if abs(score(answered, metric) - run.quality) > same_score:
                doubtful += 1
            columns[candidate].append(len(predictions))
            predictions.append(answered)
    if doubtful:
        raise ResultsError(
            f"{doubtful} of {len(predictions)} give another quality than the one recorded"
        )
    return ExampleDraws.of(resample(predictions, metric), columns)


class SeenByLooks:
    """What planned looks see, found when it is first asked for.

    A pickled one holds all that they see, and nothing of where that was found: predictions may lie
    where another process does not reach, and a store's URI may have a password.
    """

    def __init__(
        self,
        group: ResultGroup,
        measured: Runs,
        evidence: Evidence | None,
        looks_by_candidate: Mapping[Candidate, Looks],
    ) -> None:
        given = (group, measured, evidence, looks_by_candidate)
        self._find_taken = functools.partial(_taken, *given)
        self._find_of_full_model = functools.partial(_of_full_model, *given)
        self._candidates = tuple(looks_by_candidate)
        self._taken: dict[Candidate, Taken] = {}

    def taken(self, candidate: Candidate) -> Taken:
        """Return a depth's looks whose seeds are all there, each with what it sees."""
        if candidate not in self._candidates:
            return ()
        if candidate not in self._taken:
            self._taken[candidate] = self._find_taken(candidate)
        return self._taken[candidate]

    @functools.cached_property
    def of_full_model(self) -> Uncertainty | None:
        """What its planned seeds tell of the full model; None where it has none."""
        return self._find_of_full_model()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_candidates": self._candidates,
            "_taken": {candidate: self.taken(candidate) for candidate in self._candidates},
            "of_full_model": self.of_full_model,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLooks:
    """When the depths of a curve are tested, and what each test sees."""

    # The looks of each measured depth; empty where they were planned for other results than these.
    by_candidate: Mapping[Candidate, Looks]
    # Whether the search planned any; where its strategy certifies nothing it did not.
    are_planned: bool = True
    # Whether it planned them, and a table left them out.
    are_lost: bool = False
    # The target that the search was planned for; None where that is not known.
    own_target: float | None = None
    # None where no depth has looks.
    seen: SeenByLooks | None = field(default=None, repr=False, compare=False)

    @property
    def is_walk(self) -> bool:
        """Whether depths were planned to be unlike: each has as many seeds as its tests need."""
        return any(len(looks.counts) > 1 for looks in self.by_candidate.values())

    @property
    def most_seeds(self) -> int:
        """How many seeds of a depth its last look has, at most; 0 where nothing was planned."""
        most = 0
        for looks in self.by_candidate.values():
            most = max(most, *(seeds.depth for seeds in looks.counts))
        return most

    @property
    def has_begun(self) -> bool:
        """Whether the seeds of the first look at the first depth are all there."""
        order = self.order()
        return bool(order) and len(self.taken(order[0])) > 0

    def taken(self, candidate: Candidate) -> Taken:
        """Return a depth's looks whose seeds are all there, each with what it sees."""
        return () if self.seen is None else self.seen.taken(candidate)

    def of_full_model(self) -> Uncertainty | None:
        """Return what is known of the full model without seeds that were added later.

        None where it has no planned ones.
        """
        return None if self.seen is None else self.seen.of_full_model

    def order(self) -> list[Candidate]:
        """Return the depths as they are tested: each follows the one it was planned to follow."""
        followers = {looks.after: candidate for candidate, looks in self.by_candidate.items()}
        order: list[Candidate] = []
        candidate = followers.get(REFERENCE.key)
        while candidate is not None and candidate not in order:
            order.append(candidate)
            candidate = followers.get(candidate.key)
        return order


def planned_looks(
    group: ResultGroup, measured: Runs, evidence: Evidence | None
) -> PlannedLooks | None:
    """Return the looks of measured depths; None where no plan says when to look.

    A look sees its own seeds and other depths' first looks, so that no later seed can change it.
    """
    rows: list[ResultRow] = []
    for runs in measured.values():
        rows += [run.row for run in runs]
    recorded = [row.looks for row in rows if row.looks is not None]
    if not recorded:
        return None
    targets = {row.planned_target for row in rows}
    own_target = targets.pop() if len(targets) == 1 else None
    without_looks = PlannedLooks(by_candidate={}, own_target=own_target)
    if any(looks.are_lost for looks in recorded):
        return replace(without_looks, are_planned=False, are_lost=True)
    searches = {row.search_key for row in rows}
    if len(searches) == 1 and not all(looks.are_planned for looks in recorded):
        return replace(without_looks, are_planned=False)
    looks_by_candidate = _looks_by_candidate(measured)
    if looks_by_candidate is None or len(searches) > 1:
        return without_looks
    return PlannedLooks(
        by_candidate=looks_by_candidate,
        own_target=own_target,
        seen=SeenByLooks(group, measured, evidence, looks_by_candidate),
    )


def _looks_by_candidate(measured: Runs) -> dict[Candidate, Looks] | None:
    """Return each tested depth's looks; None where its rows do not agree, or one has none."""
    by_candidate: dict[Candidate, Looks] = {}
    for candidate, runs in measured.items():
        planned = {run.row.looks for run in runs if run.row.looks is not None}
        if len(planned) != 1:
            return None
        if candidate.is_tested and not candidate.is_reference:
            by_candidate[candidate] = planned.pop()
    return by_candidate


def _taken(
    group: ResultGroup,
    measured: Runs,
    evidence: Evidence | None,
    looks_by_candidate: Mapping[Candidate, Looks],
    candidate: Candidate,
) -> Taken:
    """Return a depth's looks whose seeds are all there, each with what it sees."""
    looks = looks_by_candidate[candidate]
    share = group.policy.first_look_share
    one_sided = levels(looks.counts, looks.error, share)
    two_sided = levels(looks.counts, looks.error / 2, share)
    first_looks: dict[Candidate, Sequence[MeasuredRun]] = {}
    for other, planned in looks_by_candidate.items():
        first_looks[other] = _first_seeds(measured, other, planned, planned.counts[0].depth)
    taken: list[tuple[Look, Uncertainty]] = []
    for index, seeds in enumerate(looks.counts):
        tuned_runs = _first_seeds(measured, candidate, looks, seeds.depth)
        full_runs = _first_seeds(measured, REFERENCE, looks, seeds.full)
        if not tuned_runs or not full_runs:
            break
        look = Look(
            number=index + 1,
            planned=len(looks.counts),
            seeds=seeds.depth,
            full_seeds=seeds.full,
            level=one_sided[index],
            half=two_sided[index],
        )
        used = {**first_looks, candidate: tuned_runs, REFERENCE: full_runs}
        seen = {other: used[other] for other in measured if used.get(other)}
        taken.append((look, curve_uncertainty(group, seen, evidence, [])))
    return tuple(taken)


def _of_full_model(
    group: ResultGroup,
    measured: Runs,
    evidence: Evidence | None,
    looks_by_candidate: Mapping[Candidate, Looks],
) -> Uncertainty | None:
    """Return what the seeds that were planned for looks tell of the full model; None without any.

    Those of other depths, which tell how seeds fail, are the planned ones, too.
    """
    planned: dict[Candidate, set[int]] = {REFERENCE: set()}
    for candidate, looks in looks_by_candidate.items():
        seeds = looks.counts[-1]
        planned[candidate] = set(range(looks.first_seed, looks.first_seed + seeds.depth))
        planned[REFERENCE].update(range(looks.first_seed, looks.first_seed + seeds.full))
    seen: dict[Candidate, Sequence[MeasuredRun]] = {}
    for candidate, runs in measured.items():
        kept = [run for run in runs if run.row.seed in planned.get(candidate, ())]
        if kept:
            seen[candidate] = kept
    if REFERENCE not in seen:
        return None
    return curve_uncertainty(group, seen, evidence, [])


def _first_seeds(
    measured: Runs, candidate: Candidate, looks: Looks, count: int
) -> Sequence[MeasuredRun]:
    """Return a depth's runs of the first planned seeds; none where one is missing."""
    seeds = range(looks.first_seed, looks.first_seed + count)
    runs = [run for run in measured.get(candidate, ()) if run.row.seed in seeds]
    return runs if len(runs) == count else ()


def levels(counts: Sequence[SeedCounts], error: float, share: float) -> tuple[float, ...]:
    """Return one-sided levels of one or two looks: either rejects falsely with at most `error`.

    counts: of each look, both at least as many as before.
    share: of the error, that the first of two looks has.
    """
    if len(counts) == 1:
        return (error,)
    one, two = counts
    correlation = math.sqrt(min(one.depth / two.depth, one.full / two.full))
    first = share * error
    return first, second_level(error, first, correlation)


@functools.cache
def second_level(error: float, first: float, correlation: float) -> float:
    """Return a second look's level: P(Z1 > z(first) or Z2 > z(second)) = error for normal Z."""
    from scipy.integrate import quad
    from scipy.optimize import brentq

    if correlation >= 1:
        return error  # the same seeds once more: the same test
    z1 = -NORMAL.inv_cdf(first)
    scale = math.sqrt(1 - correlation**2)

    def density(z: float, z2: float) -> float:
        return NORMAL.pdf(z) * NORMAL.cdf((z2 - correlation * z) / scale)

    def excess(z2: float) -> float:
        neither, _ = quad(density, -9.0, z1, args=(z2,), epsabs=1e-12)
        return 1 - float(neither) - error

    z2 = float(brentq(excess, 0.0, 6.0, xtol=1e-12))
    return NORMAL.cdf(-z2)
