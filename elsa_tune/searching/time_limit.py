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
        # Why the session ended before its plan, where one of the two was over.
        self.ran_out: str | None = None
        # Why exploring ended before its plan, where it had its share of them.
        self.cut_exploring: str | None = None

    @property
    def seconds_left(self) -> float:
        """How much is left of the session's time: infinite without a limit, 0 once either is over.

        GPU-hours that are left do not count: they do not pass while nothing trains.
        """
        if self.ran_out is not None:
            return 0.0
        passed = self._clock() - self._began
        return max(0.0, self._seconds - passed)

    def has_passed(self) -> bool:
        """Return whether either is over."""
        over = self._over(1.0)
        if over is None:
            return False
        self.ran_out = over
        return True

    def ends_exploring(self, share: float) -> bool:
        """Return whether exploring has had its share of either, in (0, 1]."""
        over = self._over(share)
        if over is None:
            return False
        self.cut_exploring = over
        return True

    def _over(self, share: float) -> str | None:
        """Return which of the two has come to this share, in words; None for neither."""
        if self._clock() - self._began >= share * self._seconds:
            return "time was up"
        if self._gpu_hours is not None and self._used() >= share * self._gpu_hours:
            return f"{self._gpu_hours:g} GPU-hours were used up"
        return None
