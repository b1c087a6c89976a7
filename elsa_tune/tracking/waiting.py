"""Waiting for something outside this process, which may itself be stopped meanwhile."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

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


def answer(call: Callable[[], T], seconds: float, name: str) -> T:
    """Return what a call returns. Raises what it raises, and TimeoutError where it takes longer.

    A call that hangs is left behind with its thread, of this name.
    """
    answers: list[T] = []
    errors: list[Exception] = []

    def attempt() -> None:
        try:
            answers.append(call())
        except Exception as error:  # raised below, in the thread that asks
            errors.append(error)

    thread = threading.Thread(target=attempt, name=name, daemon=True)
    thread.start()
    join(thread, seconds)
    if answers:
        return answers[0]
    if errors:
        raise errors[0]
    raise TimeoutError(f"nothing came within {seconds:g} s")
