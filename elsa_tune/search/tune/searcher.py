"""What Ray Tune asks for exploring trials: it asks the plan, which needs no state of Ray's.

It must not decide anything: the plan names depth and rate from what is recorded, or leaves the rate
to the depth's Optuna study.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ray.tune.search import Searcher

from elsa_tune.search.planning.plan import KnownTrial, exploring_slots, tried
from elsa_tune.search.planning.sampler import Slot, propose
from elsa_tune.search.tune.parameters import FROZEN_LAYERS, LEARNING_RATE, PHASE, SEED
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus

# A trial that failed (a lost node, a full disk) is given one more try before the search goes on
# without it.
ATTEMPTS = 2


class ExploringSearcher(Searcher):
    """Suggests what the plan still lacks, as long as it lacks something.

    known: gives the trials of this search so far. decided: depths whose rate is decided, which
    explore no more.
    """

    def __init__(
        self,
        spec: SearchSpec,
        known: Callable[[], Sequence[KnownTrial]],
        decided: Collection[FreezeDepth],
    ) -> None:
        super().__init__()
        self._spec = spec
        self._known = known
        self._decided = frozenset(decided)
        self._under_way: dict[str, TrialSpec] = {}
        self._attempts: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        # Ray pickles its searchers beside its own state, which we never restore from.
        return {}

    def suggest(self, trial_id: str) -> Any:
        """The next trial's config; None while what comes next waits for trials that run; FINISHED
        where nothing is left.
        """
        known = self._so_far()
        slots = exploring_slots(self._spec, known)
        trials = [self._trial(slot, known) for slot in slots if slot.depth not in self._decided]
        # What failed in this session waits until all else has begun.
        for trial in sorted(trials, key=lambda trial: self._attempts[trial.key]):
            if self._attempts[trial.key] >= ATTEMPTS or self._all_failed(trial, known):
                continue
            self._under_way[trial_id] = trial
            self._attempts[trial.key] += 1
            return {
                PHASE: trial.phase.value,
                FROZEN_LAYERS: trial.depth.label,
                LEARNING_RATE: trial.learning_rate,
                SEED: trial.seed,
            }
        return None if self._under_way else str(Searcher.FINISHED)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """It runs no more; how it ended is in the record."""
        self._under_way.pop(trial_id, None)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Likewise."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the plan follows from the journal."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""

    def _so_far(self) -> list[KnownTrial]:
        """What is recorded, and what was suggested and has not begun."""
        running = {trial.key: trial for trial in self._under_way.values()}
        known = [one for one in self._known() if one.trial.key not in running]
        known += [
            KnownTrial(trial=trial, status=TrialStatus.RUNNING, qualities=(), attempt=1)
            for trial in running.values()
        ]
        return known

    def _trial(self, slot: Slot, known: Sequence[KnownTrial]) -> TrialSpec:
        rate = slot.learning_rate
        if rate is None:
            rate = propose(self._spec, slot.depth, tried(known, slot.depth))
        return self._spec.trial(Phase.EXPLORE, slot.depth, rate, self._spec.seed)

    def _all_failed(self, trial: TrialSpec, known: Sequence[KnownTrial]) -> bool:
        """Whether this would be another try where every trial of this session has failed."""
        ended = [one for one in known if one.trial.key in self._attempts]
        return self._attempts[trial.key] > 0 and all(
            one.status is TrialStatus.FAILED for one in ended
        )
