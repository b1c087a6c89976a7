"""A note in a store that says which driver runs a search, so that no second one takes it up.

Stores have no locks. A driver writes the note anew while it lives; whoever finds another's watches
whether it changes. Two who begin within the same second may both find none: the one whose note is
overwritten then stops copying.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from elsa_tune.tracking.artifacts.contents import LEASE
from elsa_tune.tracking.artifacts.store import ArtifactStore, read
from elsa_tune.tracking.journal import TakenError
from elsa_tune.tracking.uris import reason
from elsa_tune.words import duration

log = logging.getLogger(__name__)

# How often a living driver writes its note, and how long one that does not change may be alive.
RENEW_S = 30.0
WATCHED_S = 120.0
# One that is so much older than our clock is dead; so far clocks may differ.
OLD_S = 900.0
_LOOK_S = 2.0
# How often it is looked whether the note is to be written again.
_TICK_S = 5.0
# No process has a number above it.
_LARGEST_PROCESS = 2**31 - 1
# A driver is a process, whatever number it has on whichever machine.
_DRIVER = uuid.uuid4().hex
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROCESS_NAMESPACE = "/proc/self/ns/pid"


class Lease:
    """The note of one search in a store, as this process may write it."""

    def __init__(self, store: ArtifactStore, search: str) -> None:
        self._store = store
        self._search = search
        self._name = f"{search}/{LEASE}"
        self._written: float | None = None  # when we wrote it, by the monotonic clock
        self._using = threading.Lock()  # a store is used by one thread at a time

    def claim(self, say: Callable[[str], None]) -> None:
        """Take the search. Waits while another's note may be alive; raises TakenError if it is."""
        first = self._others()
        if first is not None:
            self._watch(first, say)
        self._write()

    def hold(self) -> bool:
        """Renew the note; whether it was still there. Raises TakenError where it is another's."""
        is_there = self._is_there()
        if not is_there or self._is_due():
            self._write()
        return is_there

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew a claimed note meanwhile, in a thread of its own, unless another writes it.

        One file may be on its way for longer than a note that does not change is believed.
        """
        is_over = threading.Event()

        def renew() -> None:
            while not is_over.wait(_TICK_S):
                try:
                    self._renew()
                except TakenError:
                    return  # whoever copies finds it, too, and stops
                except Exception as error:  # whatever fails is tried again
                    log.info("%s: the lease was not renewed (%s)", self._store.url, reason(error))

        threading.Thread(target=renew, name="lease", daemon=True).start()
        try:
            yield
        finally:
            is_over.set()

    def release(self) -> None:
        """Remove the note, if it is ours, and renew it no more."""
        with self._using:
            self._written = None
            found = self._read()
            if found is not None and not _is_others(found):
                self._store.remove(self._name)

    def _renew(self) -> None:
        """Write the note anew if it is time and it is still there. Raises TakenError."""
        with self._using:
            is_claimed = self._written is not None
            if is_claimed and self._is_due() and self._is_there():
                self._write()

    def _is_due(self) -> bool:
        return self._written is None or time.monotonic() > self._written + RENEW_S

    def _is_there(self) -> bool:
        """Whether the note is there. Raises TakenError where it is another driver's."""
        found = self._read()
        if found is not None and _is_others(found):
            raise TakenError(f"{_holder(found)} runs search '{self._search}' too")
        return found is not None

    def _watch(self, first: dict[str, Any], say: Callable[[str], None]) -> None:
        """Return once the driver that wrote this note seems dead. Raises TakenError if it lives."""
        if abs(time.time() - first["time"]) > OLD_S:
            return
        say(
            f"search '{self._search}' was run by {_holder(first)} when it was last copied to "
            f"{self._store.url}: waiting up to {duration(WATCHED_S)} to see whether that still runs"
        )
        end = time.monotonic() + WATCHED_S
        while time.monotonic() < end:
            time.sleep(_LOOK_S)
            found = self._others()
            if found is None:
                return
            if found != first:
                raise TakenError(
                    f"search '{self._search}' is running: {_holder(found)} copies it to "
                    f"{self._store.url}; wait for it or end it"
                )

    def _others(self) -> dict[str, Any] | None:
        """Return the note of another driver that may be alive; None without any."""
        found = self._read()
        if found is None or not _is_others(found):
            return None
        return found

    def _read(self) -> dict[str, Any] | None:
        content = read(self._store, self._name)
        if content is None:
            return None
        try:
            note = json.loads(content)
            found: dict[str, Any] = {
                "driver": str(note["driver"]),
                "host": str(note["host"]),
                "process": int(note["process"]),
                "numbers": str(note.get("numbers", "")),
                "time": float(note["time"]),
            }
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None  # nobody's
        is_process = 0 < found["process"] <= _LARGEST_PROCESS
        return found if is_process else None

    def _write(self) -> None:
        note = {
            "driver": _DRIVER,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "numbers": _process_numbers(),
            "time": round(time.time(), 3),
        }
        self._store.write(self._name, json.dumps(note).encode())
        self._written = time.monotonic()


def _is_others(note: dict[str, Any]) -> bool:
    """Whether a driver other than this process wrote a note, and may be alive."""
    if note["driver"] == _DRIVER:
        return False
    if note["numbers"] != _process_numbers():
        return True
    try:
        os.kill(note["process"], 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's process
        return True
    return True


def _process_numbers() -> str:
    """Return where this process's number holds: a machine since its start, and a container there.

    Two containers, or two machines that were cloned, may have the same host name.
    """
    try:
        boot_id = _BOOT_ID.read_text().strip()
        namespace = os.readlink(_PROCESS_NAMESPACE)
    except OSError:
        return socket.gethostname()
    return f"{boot_id} {namespace}"


def _holder(note: dict[str, Any]) -> str:
    return f"process {note['process']} on {note['host']}"
