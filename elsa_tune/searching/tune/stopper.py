"""Why a Ray Tune run ends before its plan does: time, failures, or somebody said so."""

from collections.abc import Callable
from typing import Any

from ray.tune import Stopper

from elsa_tune.searching.cluster.repeats import Repeats
from elsa_tune.searching.cluster.watching import LostNodes, Watch
from elsa_tune.searching.process.interruption import Interruption
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.searching.tune.trainable import NeverRestored


class SearchStopper(NeverRestored, Stopper):
    """Ends a Ray Tune run once time is up, too many failed, a node is unfit, or somebody asks.

    is_taken: whether another search has the place of this one, which ends it, too. Single trials
    go on.
    """

    def __init__(
        self,
        limit: TimeLimit,
        repeats: Repeats,
        interruption: Interruption,
        watch: Watch,
        is_taken: Callable[[], bool],
    ) -> None:
        self._limit = limit
        self._repeats = repeats
        self._interruption = interruption
        self._watch = watch
        self._is_taken = is_taken

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        """Return whether the run is over.

        Raises LostNodes where Ray Tune must not even try to end its trials.
        """
        if self._watch.lost is not None:
            raise LostNodes
        if self._watch.unfit is not None or self._repeats.too_many is not None:
            return True
        return self._is_taken() or self._limit.has_passed() or self._interruption.requested
