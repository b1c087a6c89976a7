"""Waiting for something outside this process, which may itself be stopped meanwhile."""

import threading
import time

# How much of the time between two looks counts as waiting. Where more has passed, this process was
# stopped (Ctrl-Z, a suspended job, a paused container), and what it waits for had no chance either.
LONGEST_LOOK_S = 1.0


class Waited:
    """The seconds that were spent waiting, of each look at most LONGEST_LOOK_S."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._last_look = time.monotonic()

    def begin_again(self) -> None:
        """Count from now."""
        self._seconds = 0.0
        self._last_look = time.monotonic()

    def look(self) -> float:
        """Return the seconds until now; to be called more often than every LONGEST_LOOK_S."""
        now = time.monotonic()
        self._seconds += min(now - self._last_look, LONGEST_LOOK_S)
        self._last_look = now
        return self._seconds


def join(thread: threading.Thread, seconds: float) -> None:
    """Wait until a thread has ended, at most so many seconds (infinity: as long as it takes)."""
    waited = Waited()
    left = seconds
    while thread.is_alive() and left > 0:
        thread.join(min(left, LONGEST_LOOK_S / 4))
        left = seconds - waited.look()
