"""How much of a session's time has passed."""

import math
import time
from collections.abc import Callable


class TimeLimit:
    """The time that a session has, from now on."""

    def __init__(
        self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin to count. seconds: None for no limit. clock: in seconds, from any beginning."""
        self._seconds = math.inf if seconds is None else seconds
        self._clock = clock
        self._began = clock()
        # Whether it kept anything from being done: some share of it had passed when asked about.
        self.ran_out = False

    def has_passed(self, share: float = 1.0) -> bool:
        """Return whether this share of the time is over."""
        is_over = self._clock() - self._began >= share * self._seconds
        self.ran_out = self.ran_out or is_over
        return is_over
