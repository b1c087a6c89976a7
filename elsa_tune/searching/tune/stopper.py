"""Why a Ray Tune run ends before its plan does: time is up, or somebody said so."""

from typing import Any

from ray.tune import Stopper

from elsa_tune.searching.interruption import Interruption
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.searching.tune.trainable import NeverRestored
from elsa_tune.searching.tune.watching import LostNodes, Watch


class SearchStopper(NeverRestored, Stopper):
    """Ends a Ray Tune run once time is up or somebody asked for it; single trials go on."""

    def __init__(self, limit: TimeLimit, interruption: Interruption, watch: Watch) -> None:
        self._limit = limit
        self._interruption = interruption
        self._watch = watch

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        """Return whether the run is over.

        Raises LostNodes where Ray Tune must not even try to end its trials.
        """
        if self._watch.lost is not None:
            raise LostNodes
        return self._limit.has_passed() or self._interruption.requested
