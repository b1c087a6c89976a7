"""Words for a person, on stderr, and signals from one. That nobody reads any more never ends any
work; nor does it where results are piped to a reader who has seen enough.

It must stay light: whatever says something imports it.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from elsa_tune.visible import progress_visible, visible

Say = Callable[[str], None]
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def say(message: str) -> None:
    """One line on stderr."""
    print(visible(message), file=Unfailing(sys.stderr), flush=True)


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """While inside, what is printed on stdout goes nowhere once its pipe is broken, and nothing
    that is printed, by libraries on stderr either, commands the terminal.
    """
    stream = Unfailing(sys.stdout, BrokenPipeError, visible)
    errors = Unfailing(sys.stderr, BrokenPipeError, progress_visible)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(errors):
            yield
    finally:
        stream.flush()


@contextlib.contextmanager
def heard(
    handler: Callable[[int, FrameType | None], object], numbers: Sequence[int] = STOPS
) -> Iterator[None]:
    """While inside, the handler takes these signals, which ask a process to end. SIGHUP stays
    ignored where it is: `nohup` means it. In another thread than the main one nothing changes:
    Python takes no signals there, and whoever called from it sees to them.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {
        number: signal.signal(number, handler)
        for number in numbers
        if is_main and (number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN)
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class Unfailing:
    """A stream, silent from the moment when its reader is gone: a pipe broke, a terminal closed.

    error: what says so; by default whatever goes wrong. shown: what a text becomes before. is_gone:
    whether that moment has come.
    """

    def __init__(
        self, stream: Any, error: type[OSError] = OSError, shown: Callable[[str], str] = str
    ) -> None:
        self.stream, self._error, self._shown = stream, error, shown
        self.is_gone = False

    def write(self, text: str) -> int:
        try:
            self.stream.write(self._shown(text))
            return len(text)
        except self._error:
            self._fall_silent()
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except self._error:
            self._fall_silent()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def _fall_silent(self) -> None:
        """Lead it nowhere from now on: other libraries write there too, and so does the exit."""
        self.is_gone = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self.stream.fileno())
        finally:
            os.close(nowhere)


def unfiltered(stream: Any) -> Any:
    """The stream itself, for whoever makes its own texts visible."""
    while isinstance(stream, Unfailing):
        stream = stream.stream
    return stream
