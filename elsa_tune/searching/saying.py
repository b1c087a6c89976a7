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
from typing import IO, Any

Say = Callable[[str], None]
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def say(message: str) -> None:
    """One line on stderr."""
    print(message, file=Unfailing(sys.stderr), flush=True)


@contextlib.contextmanager
def results_piped() -> Iterator[None]:
    """While inside, what is printed on stdout goes nowhere once its pipe is broken."""
    stream = Unfailing(sys.stdout, BrokenPipeError)
    try:
        with contextlib.redirect_stdout(stream):
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

    error: what says so; by default whatever goes wrong. is_gone: whether that moment has come.
    """

    def __init__(self, stream: IO[str], error: type[OSError] = OSError) -> None:
        self._stream, self._error = stream, error
        self.is_gone = False

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except self._error:
            self._fall_silent()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._error:
            self._fall_silent()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _fall_silent(self) -> None:
        """Lead it nowhere from now on: other libraries write there too, and so does the exit."""
        self.is_gone = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._stream.fileno())
        finally:
            os.close(nowhere)
