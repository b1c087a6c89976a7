"""Checkpoints of running trials: the places that keep them, and when one is written.

It imports nothing that trains: a driver and its actors use it, too.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from elsa_tune.files import write_aside

# What may be lost by default: trials that last no longer write none.
AUTO_SECONDS = 300.0
# The share of a trial's time that writing checkpoints may take.
AUTO_SHARE = 0.01

LEAVING = "its node is being taken away, and the trial left it"

Clock = Callable[[], float]


class Checkpoints(Protocol):
    """Keeps one checkpoint of each running trial, under the trial's key.

    One that is saved takes the place of the one before it, as a whole or not at all. Each method
    raises OSError where the place cannot be reached or has no room.
    """

    def load(self, key: str) -> bytes | None:
        """Return a trial's checkpoint; None where it has none."""
        ...

    def save(self, key: str, write: Callable[[BinaryIO], object]) -> None:
        """Keep what `write` writes to a file that it may seek in."""
        ...

    def delete(self, key: str) -> None:
        """Delete a trial's checkpoint, if it has one."""
        ...


@dataclass(frozen=True, slots=True)
class FolderCheckpoints:
    """Checkpoints as files of a folder, which is made when it is needed."""

    folder: Path

    def load(self, key: str) -> bytes | None:
        try:
            return self._file(key).read_bytes()
        except FileNotFoundError:
            return None

    def save(self, key: str, write: Callable[[BinaryIO], object]) -> None:
        write_aside(self._file(key), write)

    def delete(self, key: str) -> None:
        self._file(key).unlink(missing_ok=True)
        # A process that was killed while it wrote left a part.
        for part in self.folder.glob(f".{key}.safetensors.*.part"):
            part.unlink(missing_ok=True)

    def saved(self, key: str) -> float | None:
        """Return when a trial's checkpoint was written, in seconds; None where it has none."""
        try:
            return self._file(key).stat().st_mtime
        except OSError:
            return None

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"


@dataclass(slots=True)
class TrialCheckpoint:
    """The one checkpoint of a running trial, and when it is written next.

    By default a trial is left alone for five minutes, and writing takes at most one percent of its
    time from then on.
    """

    checkpoints: Checkpoints  # keeps it
    key: str  # the trial's
    every: float | None = None  # seconds from one to the next; None: as above
    version: str = ""  # of the elsa-tune that trains; another one does not continue from it
    clock: Clock = time.monotonic  # gives seconds
    # Whether its node has said that it will end: then it is written at once, and the trial leaves.
    is_leaving: Callable[[], bool] = lambda: False
    _written: float = field(init=False)  # when it was written, or the trial began
    _wait: float = field(init=False)  # seconds from then to the next

    def __post_init__(self) -> None:
        self._written = self.clock()
        self._wait = AUTO_SECONDS if self.every is None else self.every

    @property
    def is_due(self) -> bool:
        """Whether it is time to write it."""
        if self.is_leaving():
            return True
        return self.clock() - self._written >= self._wait

    def load(self) -> bytes | None:
        """Return what was saved last. Raises OSError."""
        return self.checkpoints.load(self.key)

    def save(self, write: Callable[[BinaryIO], object]) -> None:
        """Keep what `write` writes. Raises OSError; the next try is as far away as after success.

        What it took decides how long the default waits.
        """
        began = self.clock()
        try:
            self.checkpoints.save(self.key, write)
        finally:
            self._written = self.clock()
            if self.every is None:
                took = self._written - began
                self._wait = max(AUTO_SECONDS, took / AUTO_SHARE)
