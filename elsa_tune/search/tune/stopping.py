"""Why a search ends before its plan does: somebody said so, or its time is up."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ray.tune import Stopper

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Whether somebody has asked the search to end, and how soon.

    Ctrl-C lets Ray end its trials; a second one ends at once. So do SIGTERM (Slurm, Kubernetes
    and systemd send it) and SIGHUP (a terminal that is closed): Ray's own processes are often sent
    them too, and nothing that needs these can be waited for. Whoever sends one to every process
    sends it to this one twice: the second, which the supervisor passes on, changes nothing. While a
    search is being closed further signals change nothing: it ends in seconds.
    """

    def __init__(self) -> None:
        self.requested = False
        self.closing = False
        self._ending = False

    @contextlib.contextmanager
    def caught(self, announce: Callable[[str], None]) -> Iterator[None]:
        """While inside, signals are handled as above; what ends at once raises
        KeyboardInterrupt.
        """

        def handle(number: int, frame: FrameType | None) -> None:
            at_once = number != signal.SIGINT
            if self.closing or (self._ending and at_once):
                return
            if self.requested or at_once:
                self.requested, self._ending = True, at_once
                raise KeyboardInterrupt
            self.requested = True
            announce("stopping: saving what is done (Ctrl-C once more stops at once)")

        if threading.current_thread() is not threading.main_thread():
            # Python takes signals in the main thread only; whoever called from another sees to
            # them.
            yield
            return
        before = {
            number: signal.signal(number, handle)
            for number in _SIGNALS
            # `nohup` has it ignored, and means it.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class SearchStopper(Stopper):
    """Ends a Ray Tune run on an interruption or at a time; single trials it leaves alone.

    deadline: by `time.monotonic`, None for no limit.
    """

    def __init__(self, interruption: Interruption, deadline: float | None) -> None:
        self._interruption = interruption
        self._deadline = deadline

    def __getstate__(self) -> dict[str, Any]:
        # Ray pickles it beside its own state, which we never restore from.
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No single trial is stopped here."""
        return False

    def stop_all(self) -> bool:
        """Whether the whole run should end now."""
        return self._interruption.requested or self.time_is_up

    @property
    def time_is_up(self) -> bool:
        """Whether the deadline has passed."""
        return self._deadline is not None and time.monotonic() >= self._deadline
