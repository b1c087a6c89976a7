"""Why a Ray Tune run ends before its plan does: time is up, or somebody said so."""

from collections.abc import Callable
from typing import Any

from ray.tune import Stopper

from elsa_tune.searching.tune.trainable import NeverRestored


class SearchStopper(NeverRestored, Stopper):
    """Ends a Ray Tune run as soon as `is_over` says so; single trials it leaves alone."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._is_over()
