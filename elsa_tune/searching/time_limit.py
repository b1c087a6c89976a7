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
        if self._time_has_come(1.0):
            self.ran_out = "time was up"
        elif self._hours_have_come(1.0):
            self.ran_out = f"{self._gpu_hours:g} GPU-hours were used up"
        else:
            return False
        return True

    def ends_exploring(self, share: float) -> bool:
        """Return whether exploring has had its share of either, in (0, 1]."""
        if self._time_has_come(share):
            self.cut_exploring = "exploring had its share of the time"
        elif self._hours_have_come(share):
            self.cut_exploring = f"exploring had its share of the {self._gpu_hours:g} GPU-hours"
        else:
            return False
        return True

    def _time_has_come(self, share: float) -> bool:
        """Return whether this share of the session's time has passed."""
        return self._clock() - self._began >= share * self._seconds

    def _hours_have_come(self, share: float) -> bool:
        """Return whether this share of the GPU-hours is used up."""
        return self._gpu_hours is not None and self._used() >= share * self._gpu_hours
