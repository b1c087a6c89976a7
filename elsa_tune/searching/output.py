"""What is printed for a person. Work goes on when nobody reads any more.

This module must stay light: whatever prints a line imports it.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from elsa_tune.visible import progress_visible, visible

Say = Callable[[str], None]


def say(message: str) -> None:
    """One line on stderr."""
    print(visible(message), file=PipeSafe(sys.stderr), flush=True)


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """While inside, what is printed on stdout goes nowhere once its pipe is broken, and nothing
    that is printed, by libraries on stderr either, commands the terminal.
    """
    stream = PipeSafe(sys.stdout, BrokenPipeError, visible)
    errors = PipeSafe(sys.stderr, BrokenPipeError, progress_visible)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(errors):
            yield
    finally:
        stream.flush()


class PipeSafe:
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
    while isinstance(stream, PipeSafe):
        stream = stream.stream
    return stream
