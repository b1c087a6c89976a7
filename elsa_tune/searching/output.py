"""Printing for a person; work goes on when nobody reads any more.

This module must stay light: whatever prints a line imports it.
"""

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from elsa_tune.errors import StorageError
from elsa_tune.visible import progress_visible, visible

# What prints a line for the user: `say`, or a program's own.
Say = Callable[[str], None]
# Writes a message's settings as its reader gives them: the command line names options.
_worded: Callable[[str], str] = str


def say(message: str) -> None:
    """Print a line on stderr."""
    print(visible(worded(message)), file=PipeSafe(sys.stderr), flush=True)


def worded(message: str) -> str:
    """Return a message with its settings as whoever reads it gives them."""
    return _worded(message)


@contextlib.contextmanager
def printing(with_settings: Callable[[str], str] = str) -> Iterator[None]:
    """Guard what is printed while inside.

    with_settings: writes the settings of what is said; by default they keep the names of Python.

    On stdout it goes nowhere once its pipe is broken; and nothing that is printed, by libraries on
    stderr either, commands the terminal. What another thread prints on stdout goes to stderr: it is
    a library's, and no result. Files and pipes get UTF-8. Raises StorageError where stdout cannot
    be written.
    """
    global _worded
    _take_every_sign(sys.stdout)
    stdout = _ClosedStdout() if sys.stdout is None else sys.stdout
    stream = Stdout(stdout, visible)
    errors = PipeSafe(sys.stderr, BrokenPipeError, progress_visible)
    before = _worded
    _worded = with_settings
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(errors):
            yield
    finally:
        _worded = before
        stream.flush()


def _take_every_sign(stdout: Any) -> None:
    """Let a program's stdout take any text, whatever encoding the environment names.

    What is read again, such as a task file, is UTF-8. A terminal may not be able to show a sign; a
    question mark stands for it there.
    """
    if not isinstance(stdout, io.TextIOWrapper):
        return
    if stdout.isatty():
        stdout.reconfigure(errors="replace")
    else:
        stdout.reconfigure(encoding="utf-8", errors=stdout.errors)


class _Nowhere(io.TextIOBase):
    """The stream of a program that has none: of a daemon, or after `2>&-`."""

    def write(self, text: str) -> int:
        return len(text)


class _ClosedStdout(io.TextIOBase):
    """The stdout of a program that has none: its results would be lost."""

    def write(self, text: str) -> int:
        raise StorageError("stdout cannot be written: it is closed")


class PipeSafe:
    """A stream, silent from the moment when its reader is gone: a pipe broke, a terminal closed."""

    def __init__(
        self, stream: Any, error: type[OSError] = OSError, shown: Callable[[str], str] = str
    ) -> None:
        """Wrap a stream; None is a program's that has none.

        error: what says that the reader is gone; by default whatever goes wrong. shown: makes the
        text that is written of the one that is given.
        """
        self.stream = _Nowhere() if stream is None else stream
        self._error = error
        self._shown = shown
        self.is_gone = False  # the reader

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
        """Lead the stream nowhere: other libraries write to it too, and so does Python's exit."""
        self.is_gone = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self.stream.fileno())
        finally:
            os.close(nowhere)


class Stdout(PipeSafe):
    """A command's results: where they cannot be written, as to a full disk, that is an error.

    It is raised at the end, too, whatever became of it in another library.
    """

    _refusal: StorageError | None = None

    def __init__(self, stream: Any, shown: Callable[[str], str] = str) -> None:
        super().__init__(stream, BrokenPipeError, shown)
        self._owner = threading.get_ident()

    def write(self, text: str) -> int:
        # Ray's, for one, prints there that a node is lost, whatever it is told of its logs.
        if threading.get_ident() != self._owner:
            return sys.stderr.write(text)
        with self._refusing():
            return super().write(text)

    def flush(self) -> None:
        with self._refusing():
            super().flush()

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        if self._refusal is not None:
            raise self._refusal
        try:
            yield
        except OSError as error:
            # What is left in the stream is not tried again when Python exits.
            self._fall_silent()
            why = error.strerror or error
            self._refusal = StorageError(f"stdout cannot be written: {why}")
            raise self._refusal from error


def unfiltered(stream: Any) -> Any:
    """Return the stream within, for whoever makes its own texts visible."""
    while isinstance(stream, PipeSafe):
        stream = stream.stream
    return stream
