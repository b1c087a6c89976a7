"""What the plan knows of a recorded trial, of one to come, and of what a trial costs."""

from collections.abc import Iterable
from dataclasses import dataclass

from elsa_tune.errors import StorageError
from elsa_tune.specs.freeze import FreezeDepth
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
from elsa_tune.tracking.state import RecordedTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrial:
    """A trial of this search that was started at least once. Times are seconds since the epoch."""

    trial: TrialSpec
    status: TrialStatus
    qualities: tuple[float, ...]  # of its evaluations, in order
    holdout_qualities: tuple[float, ...] = ()  # likewise; () without a holdout
    started: float = 0.0  # when its last attempt began
    reported: tuple[float, ...] = ()  # when it reported each evaluation
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

    @property
    def is_unfinished(self) -> bool:
        """Whether it runs again as an exploring trial; others that have not ended are under way."""
        return self.status in (TrialStatus.INTERRUPTED, TrialStatus.FAILED)


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
        ended=recorded.ended,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One exploring trial to come; None leaves its learning rate to the depth's study."""

    depth: FreezeDepth
    learning_rate: float | None = None


def tried(known: Iterable[KnownTrial], depth: FreezeDepth) -> tuple[KnownTrial, ...]:
    """A depth's exploring trials, as its study and its way outward see it."""
    return tuple(
        one for one in known if one.trial.phase is Phase.EXPLORE and one.trial.depth == depth
    )


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
