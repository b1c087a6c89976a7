"""How much of a session's time, and of its search's GPU-hours, has passed."""

import math
import time
from collections.abc import Callable


class TimeLimit:
    """The time that a session has, from now on, and the GPU-hours that its search has in all."""

    def __init__(
        self,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        gpu_hours: float | None = None,
        used: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Begin to count.

        seconds, gpu_hours: None for no limit. clock: in seconds, from any beginning. used: gives
        the GPU-hours so far.
        """
        self._seconds = math.inf if seconds is None else seconds
        self._gpu_hours = gpu_hours
        self._used = used
        self._clock = clock
        self._began = clock()
        # What kept anything from being done, where something did: some share of it had passed when
        # asked about.
        self.ran_out: str | None = None

    def has_passed(self, share: float = 1.0) -> bool:
        """Return whether this share of either is over."""
        if self._clock() - self._began >= share * self._seconds:
            self.ran_out = "time was up"
            return True
        if self._gpu_hours is not None and self._used() >= share * self._gpu_hours:
            self.ran_out = f"{self._gpu_hours:g} GPU-hours were used up"
            return True
        return False
