"""What the plan knows of a recorded trial."""

from __future__ import annotations

from dataclasses import dataclass

from elsa_tune.specs.trial import (
    Selection,
    TrialSpec,
    TrialStatus,
    trial_quality,
    trial_score,
)


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

    @property
    def is_unfinished(self) -> bool:
        """Whether it runs again as an exploring trial; others that have not ended are under way."""
        return self.status in (TrialStatus.INTERRUPTED, TrialStatus.FAILED)
