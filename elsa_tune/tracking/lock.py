"""A lock that a process holds on a file and that the system frees when the process dies.

Beside it stands the name of its last holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

import filelock

from elsa_tune.errors import StorageError

# Someone who only looks whether a lock is held takes it for an instant: an owner-to-be tries for
# this long.
PATIENCE_S = 1.0


def take_lock(path: Path) -> filelock.BaseFileLock | None:
    """Take the lock, to be freed by its `release`; None when somebody else keeps it.

    Raises StorageError when the file cannot be made.
    """
    lock = filelock.FileLock(path, thread_local=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(PATIENCE_S, poll_interval=0.02)
    except filelock.Timeout:
        return None
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}; choose a place that can be written with "
            "`storage_path`"
        ) from error
    # Only a courtesy to whoever finds the lock held: a full disk must not make the lock fail.
    with contextlib.suppress(OSError):
        _name_beside(path).write_text(f"process {os.getpid()} on {socket.gethostname()}")
    return lock


def is_held(path: Path) -> bool:
    """Whether some living process holds the lock; False when the file does not exist.

    Unlike filelock it asks for a shared lock: who looks disturbs nobody else who looks, and need
    not be allowed to write.
    """
    with contextlib.suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def holder(path: Path) -> str:
    """Who took the lock last: `process 123 on HOST`, or `another process` if unrecorded."""
    try:
        return _name_beside(path).read_text() or "another process"
    except (OSError, ValueError):
        return "another process"


def _name_beside(path: Path) -> Path:
    return path.with_suffix(".holder")
