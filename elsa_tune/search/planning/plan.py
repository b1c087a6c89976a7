"""What a search still has to do: pure functions from its specification and the trials so far.

The same functions answer for a fresh search, a resumed one and a dry run. They must not know Ray or
MLflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.search.planning.extension import Surroundings, outward, scores_of
from elsa_tune.search.planning.sampler import Slot, Tried
from elsa_tune.specs.border import has_learnt
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import SearchSpec, Strategy
from elsa_tune.specs.trial import (
    Phase,
    PrefixCache,
    Selection,
    TrialSpec,
    TrialStatus,
    canonical_rate,
    trial_quality,
    trial_score,
)

# What one trial leaves on disk: journal lines, its MLflow rows, Ray's folder, predictions.
# Measured: see bench/results/footprint.json.
DISK_PER_TRIAL_MB = 0.05

# Below this share of a full-model trial a depth's trials are run to their end, and more of them.
CHEAP = 0.05

# How many rates beyond its best a cheap depth tries, where others try one.
PATIENCE = 2

# Exploring trials that run again; others that have not ended are under way.
UNFINISHED = (TrialStatus.INTERRUPTED, TrialStatus.FAILED)

# What a search leaves once: its report, and what was computed from predictions.
DISK_PER_SEARCH_MB = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrial:
    """A trial of this search that was started at least once. qualities, holdout_qualities: of its
    evaluations in order; the latter are () without a holdout. started, reported, ended: when its
    last attempt began, reported each evaluation, and ended, seconds since the epoch.
    """

    trial: TrialSpec
    status: TrialStatus
    qualities: tuple[float, ...]
    attempt: int
    holdout_qualities: tuple[float, ...] = ()
    started: float = 0.0
    reported: tuple[float, ...] = ()
    ended: float | None = None

    @property
    def scores(self) -> tuple[float, ...]:
        """What its evaluations, and exploring trials, are compared by."""
        by_holdout = self.trial.recipe.selection is Selection.HOLDOUT
        return self.holdout_qualities if by_holdout else self.qualities

    @property
    def score(self) -> float | None:
        """What it is compared by as an exploring trial, as far as it has come."""
        return trial_score(self.trial.recipe.selection, self.scores) if self.scores else None

    @property
    def quality(self) -> float | None:
        """The quality that it gives, as far as it has come."""
        if not self.qualities:
            return None
        return trial_quality(self.trial.recipe.selection, self.qualities, self.holdout_qualities)


def exploring_slots(spec: SearchSpec, known: Iterable[KnownTrial]) -> tuple[Slot, ...]:
    """Exploring trials that could start now: unfinished ones first, at the learning rate they had;
    then those of the given rates; then, for each depth that has had these, the next rate outward
    from a best one that lies at their border.

    Depths take turns, so that a search that is cut short has looked at all of them alike. Trials
    that run are among the known ones, and a depth does not go outward before they end: no slots may
    mean that there will be some.
    """
    exploring = [one for one in known if one.trial.phase is Phase.EXPLORE]
    restarts = [
        Slot(depth=one.trial.depth, learning_rate=one.trial.learning_rate)
        for one in exploring
        if one.status in UNFINISHED
    ]
    had = {depth: sum(one.trial.depth == depth for one in exploring) for depth in spec.explored}
    fresh = [
        Slot(depth=depth)
        for number in range(spec.tries)
        for depth in spec.explored
        if number >= had[depth]
    ]
    slots = [*restarts, *fresh, *_outward(spec, exploring)]
    if spec.exploring_limit is None:
        return tuple(slots)
    return tuple(slots[: len(restarts) + max(0, spec.exploring_limit - len(exploring))])


def _outward(spec: SearchSpec, exploring: Sequence[KnownTrial]) -> Iterator[Slot]:
    """Each depth's next rate beyond those given, the shallowest and dearest depth first."""
    if spec.extend is None:
        return
    every = {depth: tried(exploring, depth) for depth in spec.explored}
    for place, depth in enumerate(spec.explored):
        here = [one for one in exploring if one.trial.depth == depth]
        if not spec.tries <= len(here) < spec.tries + spec.extend.tries:
            continue
        if not all(one.status.is_final for one in here):
            continue
        shallower = spec.explored[place - 1] if place else None
        full = every.get(FULL_MODEL, ())
        around = Surroundings(
            lent=_best_rate(every[shallower], spec.chance) if shallower else None,
            patience=PATIENCE if is_cheap(spec, depth) else 1,
            may_learn=depth != FULL_MODEL
            and (not full or has_learnt(scores_of(full), spec.chance)),
        )
        rate = outward(every[depth], spec.tries, spec.chance, spec.extend, around)
        if rate is not None:
            yield Slot(depth=depth, learning_rate=rate)


def settled_depths(spec: SearchSpec, known: Iterable[KnownTrial]) -> frozenset[FreezeDepth]:
    """The depths whose exploring has ended, whatever the trials of other depths will say.

    A depth that goes outward heeds the shallower ones and the full model; before these have ended
    it is settled only where it would stop beside any of them.
    """
    exploring = [one for one in known if one.trial.phase is Phase.EXPLORE]
    waiting = {slot.depth for slot in exploring_slots(spec, exploring)}
    limited = spec.exploring_limit is not None and len(exploring) >= spec.exploring_limit
    settled: list[FreezeDepth] = []
    for place, depth in enumerate(spec.explored):
        here = [one for one in exploring if one.trial.depth == depth]
        ended = all(one.status.is_final for one in here) and (limited or len(here) >= spec.tries)
        if depth in waiting or not ended or not here:
            continue
        if len(settled) == place or limited or not _may_go_on(spec, exploring, depth):
            settled.append(depth)
    leading = spec.explored if spec.strategy is Strategy.HUNT else (FULL_MODEL,)
    if set(leading[:2]) <= set(settled) or not spec.explored:
        settled += [depth for depth in spec.depths if depth not in spec.explored]
    return frozenset(settled)


def _may_go_on(spec: SearchSpec, exploring: Sequence[KnownTrial], depth: FreezeDepth) -> bool:
    """Whether some outcome of other depths would send this one further outward."""
    if spec.extend is None:
        return False
    here = tried(exploring, depth)
    if len(here) >= spec.tries + spec.extend.tries:
        return False
    patience = PATIENCE if is_cheap(spec, depth) else 1
    return any(
        outward(
            here,
            spec.tries,
            spec.chance,
            spec.extend,
            Surroundings(lent=lent, patience=patience, may_learn=True),
        )
        is not None
        for lent in (None, spec.extend.high)
    )


def _best_rate(there: Sequence[Tried], chance: float) -> float | None:
    """That of the best score, None where nothing is better than a constant answer."""
    scores = scores_of(there)
    if not has_learnt(scores, chance):
        return None
    return max(scores, key=lambda rate: (scores[rate], -rate))


def is_cheap(spec: SearchSpec, depth: FreezeDepth) -> bool:
    """Whether a whole trial of this depth costs less than a few per cent of the full model's."""
    return relative_cost(spec, depth) < CHEAP


def relative_cost(spec: SearchSpec, depth: FreezeDepth) -> float:
    """What a trial of this depth costs, in trials of the full model.

    With the frozen layers' output kept, fitted to bench/results/step.json, peer_rte.json and
    peer_sst2.json: the last layer works for one token only. Without, a frozen layer costs its
    forward pass, a third of a trained one.
    """
    layers, frozen = spec.layers, depth.frozen_layers
    if frozen == 0:
        return 1.0
    if spec.recipe.frozen_dropout or spec.recipe.prefix_cache is PrefixCache.NONE:
        return (frozen / 3 + layers - frozen) / layers
    return max(0.003, (layers - frozen - 0.8) / (layers - 0.8))


def tried(known: Iterable[KnownTrial], depth: FreezeDepth) -> tuple[Tried, ...]:
    """What a depth has had, as its study and its way outward see it; of trials that are to run
    again only the rate.
    """
    return tuple(
        Tried(
            depth=depth,
            learning_rate=one.trial.learning_rate,
            scores=() if one.status in UNFINISHED else one.scores,
            score=one.score or 0.0,
            completed=one.status is TrialStatus.COMPLETED and bool(one.scores),
            diverged=one.status is TrialStatus.DIVERGED,
        )
        for one in known
        if one.trial.phase is Phase.EXPLORE and one.trial.depth == depth
    )


def best_rates(spec: SearchSpec, known: Sequence[KnownTrial]) -> dict[FreezeDepth, float]:
    """Each depth's learning rate for measuring; a depth that no trial says anything of is left out.

    The best score (`KnownTrial.scores`) among completed exploring trials; where none completed
    (time was up), among all that reported, compared at the last evaluation they share. Ties go to
    the lower rate. Depths that were not explored take the full model's rate,
    those of a hunt's ladder one between it and the next explored depth's.
    """
    if not spec.explored:
        values = spec.rates.values
        assert values is not None  # only a single rate leaves nothing to explore
        return dict.fromkeys(spec.depths, values[0])
    chosen: dict[FreezeDepth, float] = {}
    for depth in spec.explored:
        at_depth = [
            one for one in known if one.trial.phase is Phase.EXPLORE and one.trial.depth == depth
        ]
        diverged = [one for one in at_depth if one.status is TrialStatus.DIVERGED]
        if diverged and len(diverged) == len(at_depth) >= spec.tries:
            # Its measuring seeds will diverge too and count as chance, which is the truth about it.
            chosen[depth] = min(one.trial.learning_rate for one in diverged)
            continue
        reported = [one for one in at_depth if one.scores and one not in diverged]
        completed = [one for one in reported if one.status is TrialStatus.COMPLETED]
        if candidates := completed or reported:
            chosen[depth] = _best(candidates, spec.recipe.selection).trial.learning_rate
    if FULL_MODEL in chosen:
        for depth in spec.depths:
            if depth not in spec.explored:
                chosen[depth] = _between(spec, chosen, depth)
    return chosen


def _between(spec: SearchSpec, chosen: Mapping[FreezeDepth, float], depth: FreezeDepth) -> float:
    """The rate of a depth that was not explored: the full model's, or in a hunt one in proportion
    between it and that of the next deeper depth that was explored.
    """
    full = chosen[FULL_MODEL]
    deeper = next((one for one in spec.explored if one > depth and one in chosen), None)
    if deeper is None or spec.strategy is Strategy.EVEN:
        return full
    share = depth.frozen_layers / deeper.frozen_layers
    return canonical_rate(full * (chosen[deeper] / full) ** share)


def _best(candidates: Sequence[KnownTrial], selection: Selection) -> KnownTrial:
    age = min(len(one.scores) for one in candidates)
    return max(
        candidates,
        key=lambda one: (
            trial_score(selection, one.scores[:age]),
            -one.trial.learning_rate,
        ),
    )


def measuring_trials(
    spec: SearchSpec, rates: Mapping[FreezeDepth, float], known: Iterable[KnownTrial]
) -> tuple[TrialSpec, ...]:
    """Measuring trials still to run: every depth's first seed, then every depth's second, ...

    So that a search that runs out of time has an answer, if a less certain one.
    """
    finished = {one.trial.key for one in known if one.status.is_final}
    wanted = (
        spec.trial(Phase.MEASURE, depth, rates[depth], seed)
        for seed in spec.measuring_seeds
        for depth in spec.depths
        if depth in rates
    )
    return tuple(trial for trial in wanted if trial.key not in finished)


def planned_trials(spec: SearchSpec, known: Sequence[KnownTrial], depth: FreezeDepth) -> int:
    """Trials of a depth, both phases: those of the plan, and beyond the given rates those that have
    begun.
    """
    explored = sum(one.trial.phase is Phase.EXPLORE and one.trial.depth == depth for one in known)
    planned = spec.tries if depth in spec.explored else 0
    measured = spec.seeds
    if spec.strategy is Strategy.HUNT:
        # Its first look's; further ones as they begin.
        begun = sum(one.trial.phase is Phase.MEASURE and one.trial.depth == depth for one in known)
        measured = max(begun, spec.first_seeds(depth))
    return measured + max(planned, explored)


def exploring_share(spec: SearchSpec) -> float:
    """The part of a time budget that exploring may take: its part of the trials, at most one
    half.
    """
    total = spec.exploring_trials + spec.measuring_trials
    return min(0.5, spec.exploring_trials / total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a search will cost: ASHA off, every trial to its end.

    exploring_trials: of the given rates. further_trials: beyond them, at most. second_looks:
    measuring trials of a hunt beyond those of first looks, at most.
    """

    exploring_trials: int
    further_trials: int
    measuring_trials: int
    second_looks: int
    steps_per_trial: int
    evaluations_per_trial: int
    disk_mb: float

    @property
    def steps(self) -> int:
        """Optimiser steps of the trials that are planned."""
        return (self.exploring_trials + self.measuring_trials) * self.steps_per_trial

    @property
    def most_steps(self) -> int:
        """Optimiser steps where every depth takes all the further trials that it may."""
        return self.steps + (self.further_trials + self.second_looks) * self.steps_per_trial


def estimate(spec: SearchSpec) -> Estimate:
    """Trials, optimiser steps and disk of a whole search."""
    per_epoch = math.ceil(spec.train_examples / spec.recipe.batch_size)
    trials = spec.most_exploring_trials + spec.most_measuring_trials
    predictions_mb = spec.evaluation_examples * 2 / 2**20
    return Estimate(
        exploring_trials=spec.exploring_trials,
        further_trials=spec.most_exploring_trials - spec.exploring_trials,
        measuring_trials=spec.measuring_trials,
        second_looks=spec.most_measuring_trials - spec.measuring_trials,
        steps_per_trial=per_epoch * spec.recipe.epochs,
        evaluations_per_trial=spec.recipe.evaluations,
        disk_mb=DISK_PER_SEARCH_MB + trials * (DISK_PER_TRIAL_MB + predictions_mb),
    )
