"""What the plan knows of a recorded trial, of one to come, and of what a trial costs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from elsa_tune.errors import StorageError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import (
    HOLDOUT_QUALITY,
    QUALITY,
    Phase,
    PrefixCache,
    Selection,
    TrialSpec,
    TrialStatus,
    trial_quality,
    trial_score,
)
from elsa_tune.tracking.state import RecordedTrial, SearchState


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrial:
    """A trial of this search that was started at least once. Times are seconds since the epoch."""

    trial: TrialSpec  # what it trains, and how
    status: TrialStatus  # that of its last attempt
    qualities: tuple[float, ...]  # of its evaluations, in order
    holdout_qualities: tuple[float, ...] = ()  # likewise; () without a holdout
    started: float = 0.0  # when its last attempt began
    reported: tuple[float, ...] = ()  # when it reported each evaluation
    restored: int = 0  # how many of these an earlier attempt made, before its checkpoint
    ended: float | None = None  # None while it runs

    @property
    def key(self) -> str:
        """What it is called within its search."""
        return self.trial.key

    @property
    def candidate(self) -> Candidate:
        """What it trains."""
        return self.trial.candidate

    @property
    def learning_rate(self) -> float:
        """Its peak learning rate."""
        return self.trial.learning_rate

    @property
    def explores(self) -> bool:
        """Whether it is one that learning rates are chosen by."""
        return self.trial.phase is Phase.EXPLORE

    @property
    def measures(self) -> bool:
        """Whether it is one that the curve is drawn of."""
        return self.trial.phase is Phase.MEASURE

    @property
    def is_final(self) -> bool:
        """Whether it has ended for good, however well."""
        return self.status.is_final

    @property
    def is_completed(self) -> bool:
        """Whether it ran to its end."""
        return self.status is TrialStatus.COMPLETED

    @property
    def is_diverged(self) -> bool:
        """Whether its training diverged."""
        return self.status is TrialStatus.DIVERGED

    @property
    def scores(self) -> tuple[float, ...]:
        """What its evaluations, and exploring trials, are compared by."""
        if self.trial.recipe.selection is Selection.HOLDOUT:
            return self.holdout_qualities
        return self.qualities

    @property
    def score(self) -> float | None:
        """What it is compared by as an exploring trial, as far as it has come."""
        if not self.scores:
            return None
        return trial_score(self.trial.recipe.selection, self.scores)

    @property
    def quality(self) -> float | None:
        """The quality that it gives, as far as it has come."""
        if not self.qualities:
            return None
        return trial_quality(self.trial.recipe.selection, self.qualities, self.holdout_qualities)

    @property
    def is_unfinished(self) -> bool:
        """Whether it runs again as an exploring trial; others that have not ended are under way."""
        return self.status in (TrialStatus.INTERRUPTED, TrialStatus.FAILED)


# Trials of one search, in the order of their start.
Trials = Sequence[KnownTrial]


def known_trial(spec: SearchSpec, recorded: RecordedTrial) -> KnownTrial:
    """Return a recorded trial as the plan knows it.

    Raises StorageError where the record does not say which trial of the plan it is.
    """
    facts = recorded.facts
    if facts.learning_rate is None or facts.seed is None:
        raise StorageError(f"trial {recorded.key} has no learning rate or no seed in the record")
    return KnownTrial(
        trial=spec.trial(facts.phase, facts.candidate, facts.learning_rate, facts.seed),
        status=recorded.status,
        qualities=recorded.reported(QUALITY),
        holdout_qualities=recorded.reported(HOLDOUT_QUALITY),
        started=recorded.start.time,
        reported=tuple(report.time for report in recorded.reports),
        restored=sum(report.restored for report in recorded.reports),
        ended=recorded.ended,
    )


def lacks_probe(spec: SearchSpec, state: SearchState) -> bool:
    """Whether a search has a linear probe that is not recorded to its end yet."""
    if not spec.linear_probe:
        return False
    for trial in state.trials.values():
        if trial.start.params.phase is Phase.PROBE and trial.end is not None:
            return False
    return True


class KnowsTrials(Protocol):
    """Knows the trials of a search so far, as its plan does."""

    @property
    def known(self) -> Sequence[KnownTrial]:
        """The trials that have begun, in the order of their start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One exploring trial to come."""

    candidate: Candidate  # what it trains
    learning_rate: float | None = None  # None: chosen when it begins


def slot_again(trial: KnownTrial) -> Slot:
    """Return the slot of an exploring trial that is to run once more, at the rate it had."""
    return Slot(candidate=trial.candidate, learning_rate=trial.learning_rate)


def exploring_of(known: Iterable[KnownTrial]) -> list[KnownTrial]:
    """Return the exploring trials among these."""
    return [trial for trial in known if trial.explores]


def tries_of(known: Iterable[KnownTrial], candidate: Candidate) -> tuple[KnownTrial, ...]:
    """Return a candidate's exploring trials, by which its rates are chosen."""
    exploring = exploring_of(known)
    return tuple(trial for trial in exploring if trial.candidate == candidate)


def scores_of(tried: Iterable[KnownTrial]) -> dict[float, float]:
    """Return the score of each rate at which a trial ran to its end."""
    scores: dict[float, float] = {}
    for trial in tried:
        score = trial.score
        if trial.is_completed and score is not None:
            scores[trial.learning_rate] = score
    return scores


def failed_slots(known: Iterable[KnownTrial]) -> tuple[Slot, ...]:
    """Return the exploring trials that failed, to be tried again at their rates.

    Diverged ones did not fail.
    """
    slots = []
    for trial in exploring_of(known):
        if trial.status is TrialStatus.FAILED:
            slots.append(slot_again(trial))
    return tuple(slots)


def measured_rates(known: Iterable[KnownTrial]) -> dict[Candidate, float]:
    """Return the learning rates of the candidates whose measuring has begun: they keep them."""
    return {trial.candidate: trial.learning_rate for trial in known if trial.measures}


def relative_cost(spec: SearchSpec, candidate: Candidate) -> float:
    """Return what a trial of this candidate costs, in trials of the full model."""
    keeps_prefix = spec.recipe.prefix_cache is not PrefixCache.NONE
    if spec.recipe.frozen_dropout:
        keeps_prefix = False
    return candidate.relative_cost(spec.layers, keeps_prefix=keeps_prefix)


def is_cheap(spec: SearchSpec, candidate: Candidate) -> bool:
    """Whether its trials cost too little to be worth stopping."""
    return relative_cost(spec, candidate) < spec.policy.cheap_cost
