"""What a search still has to do: pure functions from its specification and the trials so far.

The same functions answer for a fresh search, a resumed one and a dry run. They must not know Ray or
MLflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elsa_tune.search.sampler import Slot, Tried
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import (
    Phase,
    Selection,
    TrialSpec,
    TrialStatus,
    trial_quality,
    trial_score,
)

# What one trial leaves on disk: journal lines, its MLflow rows, Ray's folder, predictions.
# Measured: see bench/results/footprint.json.
DISK_PER_TRIAL_MB = 0.05

# What a search leaves once: its report, and what was computed from predictions.
DISK_PER_SEARCH_MB = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrial:
    """A trial of this search that was started at least once. qualities, holdout_qualities: of its
    evaluations in order; the latter are () without a holdout.
    """

    trial: TrialSpec
    status: TrialStatus
    qualities: tuple[float, ...]
    attempt: int
    holdout_qualities: tuple[float, ...] = ()

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
    """Exploring trials still to run; unfinished ones first, at the learning rate they had.

    Depths take turns, so that a search that is cut short has looked at all of them alike.
    """
    exploring = [one for one in known if one.trial.phase is Phase.EXPLORE]
    unfinished = [one for one in exploring if not one.status.is_final]
    restarts = [
        Slot(depth=one.trial.depth, learning_rate=one.trial.learning_rate) for one in unfinished
    ]
    had = {depth: sum(one.trial.depth == depth for one in exploring) for depth in spec.explored}
    fresh = [
        Slot(depth=depth)
        for number in range(spec.tries)
        for depth in spec.explored
        if number >= had[depth]
    ]
    return (*restarts, *fresh)


def tried(known: Iterable[KnownTrial]) -> tuple[Tried, ...]:
    """What the sampler should know of exploring trials that will not run again."""
    return tuple(
        Tried(
            depth=one.trial.depth,
            learning_rate=one.trial.learning_rate,
            scores=one.scores,
            completed=one.status is TrialStatus.COMPLETED,
        )
        for one in known
        if one.trial.phase is Phase.EXPLORE and one.status.is_final
    )


def best_rates(spec: SearchSpec, known: Sequence[KnownTrial]) -> dict[FreezeDepth, float]:
    """Each depth's learning rate for measuring; a depth that no trial says anything of is left out.

    The best score (`KnownTrial.scores`) among completed exploring trials; where none completed
    (time was up), among all that reported, compared at the last evaluation they share. Ties go to
    the lower rate. Depths that were not explored take the full model's rate.
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
                chosen[depth] = chosen[FULL_MODEL]
    return chosen


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
    spec: SearchSpec, rates: dict[FreezeDepth, float], known: Iterable[KnownTrial]
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


def exploring_share(spec: SearchSpec) -> float:
    """The part of a time budget that exploring may take: its part of the trials, at most one
    half.
    """
    total = spec.exploring_trials + spec.measuring_trials
    return min(0.5, spec.exploring_trials / total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a search will cost at most: ASHA off, every trial to its end."""

    exploring_trials: int
    measuring_trials: int
    steps_per_trial: int
    evaluations_per_trial: int
    disk_mb: float

    @property
    def trials(self) -> int:
        """All of them."""
        return self.exploring_trials + self.measuring_trials

    @property
    def steps(self) -> int:
        """Optimiser steps in all."""
        return self.trials * self.steps_per_trial


def estimate(spec: SearchSpec) -> Estimate:
    """Trials, optimiser steps and disk of a whole search."""
    per_epoch = math.ceil(spec.train_examples / spec.recipe.batch_size)
    trials = spec.exploring_trials + spec.measuring_trials
    predictions_mb = spec.evaluation_examples * 2 / 2**20
    return Estimate(
        exploring_trials=spec.exploring_trials,
        measuring_trials=spec.measuring_trials,
        steps_per_trial=per_epoch * spec.recipe.epochs,
        evaluations_per_trial=spec.recipe.evaluations,
        disk_mb=DISK_PER_SEARCH_MB + trials * (DISK_PER_TRIAL_MB + predictions_mb),
    )
