"""A lock that a process holds on a file and that the system frees when the process dies.

It must not know what the file guards. Unlike a file whose existence is the lock, it cannot be left
behind by a killed process; the file itself stays and names its last holder.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from elsa_tune.errors import StorageError

# Someone who only looks whether a lock is held takes it for an instant: an owner-to-be tries for
# this long.
PATIENCE_S = 1.0
_PAUSE_S = 0.02
_TURN_S = 120.0


class FileLock:
    """An exclusive lock on `path`, freed by `release` or by the process's end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, patience_s: float = PATIENCE_S) -> bool:
        """Take the lock, waiting up to so many seconds; False when somebody else keeps it.

        Raises StorageError when the file cannot be made.
        """
        if self._descriptor is not None:
            return True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(
                f"cannot write {self.path}: {error.strerror}; choose a place that can be written "
                "with --storage-path"
            ) from error
        deadline = time.monotonic() + patience_s
        while not _try_lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return False
            time.sleep(_PAUSE_S)
        self._descriptor = descriptor
        _name_holder(descriptor)
        return True

    def release(self) -> None:
        """Free the lock; harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        # Whoever uses `with` has something short to do and waits for its turn.
        if not self.acquire(patience_s=_TURN_S):
            raise StorageError(
                f"{holder(self.path)} has kept {self.path} locked for {_TURN_S:.0f} s; "
                "end it, or try later"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Whether some living process holds the lock; False when the file does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def holder(path: Path) -> str:
    """Who took the lock last: `process 123 on HOST`, or `another process` if unrecorded."""
    try:
        pid, host = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return "another process"
    return f"process {pid} on {host}"


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name_holder(descriptor: int) -> None:
    # Only a courtesy to whoever finds the lock held: a full disk must not make the lock fail.
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
    except OSError:
        pass
