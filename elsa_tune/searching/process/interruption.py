"""Somebody asks a search to end: Ctrl-C, SIGTERM, or a terminal that is closed."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from elsa_tune.signals import handling_signals


class Interruption:
    """A request to end the search, by Ctrl-C or a signal, and how soon.

    Ctrl-C lets Ray end its trials; a second one ends at once. So do SIGTERM (Slurm, Kubernetes
    and systemd send it) and SIGHUP (a terminal that is closed): Ray's own processes are often sent
    them too, and nothing that needs these can be waited for. Whoever sends one to every process
    sends it to this one twice: the second, which the supervisor passes on, changes nothing. While a
    search is being closed further signals end its waits alone: it ends in seconds.
    """

    def __init__(self) -> None:
        self.requested = False
        self.closing = False
        self._ending = False
        self._is_asked_again = False

    @property
    def is_hurried(self) -> bool:
        """Whether a closing search should wait for nothing that may never come."""
        return self.requested or self._is_asked_again

    @property
    def ends_waits(self) -> bool:
        """Whether a signal came while the search was being closed."""
        return self._is_asked_again

    @contextlib.contextmanager
    def caught(self, announce: Callable[[str], None]) -> Iterator[None]:
        """Handle signals as above while inside; an end at once is a KeyboardInterrupt."""

        def handle(number: int, frame: FrameType | None) -> None:
            at_once = number != signal.SIGINT
            if self.closing or (self._ending and at_once):
                self._is_asked_again = True
                return
            if self.requested or at_once:
                self.requested = True
                self._ending = at_once
                raise KeyboardInterrupt
            self.requested = True
            announce("Ctrl-C once more stops at once")

        with handling_signals(handle):
            yield
