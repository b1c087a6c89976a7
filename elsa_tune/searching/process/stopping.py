"""Ends a search that runs on this machine from another shell, as Ctrl-C in its own would."""

import contextlib
import os
import re
import signal
import socket
import time
from pathlib import Path

from elsa_tune.errors import RunError, StorageError
from elsa_tune.searching.output import Say
from elsa_tune.tracking.journal import is_held
from elsa_tune.tracking.paths import SearchPaths, lock_of
from elsa_tune.tracking.state import read_state

# How long a search has for its end, until whoever waits for it is let go.
SECONDS = 120.0
_HOLDER = re.compile(r"process (\d+) on (\S+)")


def stop_here(paths: SearchPaths, say: Say, seconds: float = SECONDS) -> str:
    """Send a running search the signal of Ctrl-C, wait for its end, and return how it stands.

    Raises StorageError where it does not run, or not as a process of this machine, RunError where
    it still runs after so many seconds.
    """
    if not is_held(paths.lock):
        status = read_state(paths.journal).status_text
        raise StorageError(f"search '{paths.name}' is not running (it is {status})")
    pid = driver_of(paths)
    os.kill(pid, signal.SIGINT)
    say(f"stop: search '{paths.name}' (process {pid}) ends its trials; once more stops at once")
    deadline = time.monotonic() + seconds
    while is_held(paths.lock):
        if time.monotonic() >= deadline:
            raise RunError(
                f"search '{paths.name}' still runs after {seconds:g} s (process {pid}); `elsa-tune "
                "stop` once more stops it at once"
            )
        time.sleep(0.2)
    return read_state(paths.journal).status_text


def driver_of(paths: SearchPaths) -> int:
    """Return the process that writes a search's journal; errors as in `stop_here`."""
    holder = ""
    with contextlib.suppress(OSError, ValueError):
        holder = lock_of(paths.journal).with_suffix(".holder").read_text()
    match = _HOLDER.fullmatch(holder.strip())
    where = "elsewhere"
    if match is not None:
        pid = int(match[1])
        host = match[2]
        if host != socket.gethostname():
            where = f"on {host}"
        else:
            try:
                if _has_open(pid, paths.lock):
                    return pid
            except PermissionError as error:
                raise StorageError(
                    f"search '{paths.name}' was begun on this machine by process {pid}, which is "
                    "another user's: they, or root, can stop it"
                ) from error
    raise StorageError(
        f"search '{paths.name}' runs {where}, and no process here writes {paths.journal}; type "
        "this there, or give the `address` of the cluster that it was submitted to"
    )


def _has_open(pid: int, file: Path) -> bool:
    """Return whether a process has a file open: its number may be another's by now.

    Raises PermissionError for a process of another user.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if descriptor.samefile(file):
                    return True
    return False
