"""Copies a search's record to a store in the background; never raises or makes its caller wait.

The journal stays where the driver is. What changed is copied when a trial begins or ends or
something is decided, and twice a minute otherwise. A store that cannot be reached is tried again
for as long as the search runs.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self

from elsa_tune.errors import ElsaTuneError, StorageError
from elsa_tune.tracking.artifacts.contents import (
    PART_BYTES,
    SPECIFICATION,
    check_no_other_files,
    is_checkpoint,
    local_files,
    part_name,
    parts,
    stored_sizes,
    whole_lines,
)
from elsa_tune.tracking.artifacts.fetching import check_not_behind, recorded_id
from elsa_tune.tracking.artifacts.lease import Lease
from elsa_tune.tracking.artifacts.places import artifacts_at
from elsa_tune.tracking.artifacts.store import ArtifactStore
from elsa_tune.tracking.journal import TakenError
from elsa_tune.tracking.journal_records import Record, Report
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.remote_errors import trouble
from elsa_tune.tracking.uris import reason

log = logging.getLogger(__name__)

# Seconds from one round to the next: at least, and at most.
_SHORTEST_S = 2.0
_LONGEST_S = 30.0
_FIRST_PAUSE_S = 1.0
# How long the end waits for a file to arrive before it gives up the rest, beside the time that its
# bytes take at this pace.
PATIENCE_S = 30.0
_BYTES_A_SECOND = 5e6

Say = Callable[[str], None]
# When a file was changed, its bytes, and which file it is.
_Version = tuple[int, int, int]


def _nobody_hurries() -> bool:
    return False


def _is_nobodys() -> bool:
    return False


class Copies(Protocol):
    """What a session tells of its record, for whoever copies it."""

    def offer(self, record: Record) -> None:
        """Take note that the journal has one more record; returns at once and never raises."""
        ...

    def close(
        self, is_hurried: Callable[[], bool] = _nobody_hurries, patience_s: float = PATIENCE_S
    ) -> str:
        """Copy what is left; return what could not be copied and what to do, or ""."""
        ...


class NoCopies:
    """Copies nothing: the record stays on this machine alone."""

    def offer(self, record: Record) -> None:
        """Tell nobody."""

    def close(
        self, is_hurried: Callable[[], bool] = _nobody_hurries, patience_s: float = PATIENCE_S
    ) -> str:
        return ""


def copies_of(
    url: str | None, paths: SearchPaths, say: Say, is_taken: Callable[[], bool] = _is_nobodys
) -> Copies:
    """Return what copies a search's record to a store, which has begun; None copies nothing.

    is_taken: as a Copier's.
    """
    if url is None:
        return NoCopies()
    return Copier(artifacts_at(url), paths, say, is_taken).start()


class Copier:
    """Copies one search; make one per driver, after taking the journal's lock.

    is_taken: whether another search has the folder by now; nothing is copied any more then.
    """

    def __init__(
        self,
        store: ArtifactStore,
        paths: SearchPaths,
        say: Say,
        is_taken: Callable[[], bool] = _is_nobodys,
    ) -> None:
        self._store = store
        self._paths = paths
        self._say = say
        self._is_taken = is_taken
        self._search_id = recorded_id(paths)
        self._lease = Lease(store, paths.name)
        self._wake = threading.Condition()
        self._is_urgent = True  # what earlier sessions left is copied at once
        self._closing = False
        self._is_given_up = False  # another driver has the search, or another search its folder
        self._is_free = False  # whether it is known that no other files have the copy's place
        self._has_begun = False  # whether it is known what the store has
        self._stored: dict[str, int] = {}  # the bytes of each file that it has
        self._versions: dict[str, _Version] = {}  # of the files that were copied by this driver
        self._part = 0  # where in the journal the part begins that may still grow
        self._copied = 0  # how many of the journal's bytes the store has
        self._lacking: set[str] = set()  # files that the store does not have as they are now
        self._arrived = 0.0  # when a file last did, by the monotonic clock
        self._on_its_way = 0  # the bytes of the file that is being written
        self._patience_s = PATIENCE_S
        self._error: Exception | None = None
        self._is_troubled = False  # whether that it fails was said last
        self._thread = threading.Thread(target=self._run, name="copier", daemon=True)

    def start(self) -> Self:
        """Begin to copy; returns itself."""
        self._thread.start()
        return self

    def offer(self, record: Record) -> None:
        """Take note that the journal has one more record; returns at once and never raises."""
        if isinstance(record, Report):
            return
        with self._wake:
            self._is_urgent = True
            self._wake.notify()

    def close(
        self, is_hurried: Callable[[], bool] = _nobody_hurries, patience_s: float = PATIENCE_S
    ) -> str:
        """Copy what is left, unless nothing arrives in time or somebody is in a hurry.

        Returns what could not be copied and what to do, in a sentence, or "".
        """
        with self._wake:
            self._patience_s = patience_s
            self._closing = True
            self._wake.notify()
        # A request that hangs is left behind with its thread.
        self._arrived = time.monotonic()
        while self._thread.is_alive() and not is_hurried() and not self._is_late():
            self._thread.join(0.1)
        return self._uncopied()

    def _is_late(self) -> bool:
        """Whether what is on its way should have arrived."""
        seconds = self._patience_s + self._on_its_way / _BYTES_A_SECOND
        return time.monotonic() > self._arrived + seconds

    def _uncopied(self) -> str:
        if self._is_given_up:
            return str(self._error)
        if not self._thread.is_alive() and self._error is None:
            return ""
        why = "did not take it in time"
        if self._error is not None:
            why = trouble(self._store.url, self._error)
        count = len(self._lacking)
        files = f"{count} files" if count > 1 else "the last records"
        return (
            f"the copy of search '{self._paths.name}' lacks {files}: the artifact store "
            f"{self._store.url} {why}; this machine has all, and `{self._paths.resume}` copies "
            "the rest"
        )

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        is_last = False
        while not is_last:
            is_last = self._wait()
            try:
                self._round()
                self._error = None
                self._say_recovered()
                pause = _FIRST_PAUSE_S
            except TakenError as error:
                self._give_up(error)
                return
            except Exception as error:  # whatever fails is tried again, for as long as it takes
                self._note(error)
                is_last = self._closing and self._is_late()
                self._pause(pause)
                pause = min(pause * 2, _LONGEST_S)
        with contextlib.suppress(Exception):  # it is given up as too old
            self._lease.release()

    def _wait(self) -> bool:
        """Return when it is time for a round; whether that is the last one."""
        with self._wake:
            self._wake.wait_for(lambda: self._is_urgent or self._closing, _LONGEST_S)
            self._wake.wait_for(lambda: self._closing, _SHORTEST_S)
            self._is_urgent = False
            return self._closing

    def _pause(self, seconds: float) -> None:
        """Wait before the next try, which a closing has sooner."""
        with self._wake:
            self._is_urgent = True
            if self._closing:
                self._wake.wait(_FIRST_PAUSE_S)
            else:
                self._wake.wait_for(lambda: self._closing, seconds)

    def _round(self) -> None:
        """Copy what has changed. The journal never names predictions that the store lacks."""
        self._check_place()
        self._check_no_other_files()
        if not self._lease.hold():
            self._has_begun = False  # somebody emptied the store, or it is another one
        if not self._has_begun:
            self._begin()
        # Read ahead of the files: these may be newer than it, and not older.
        content = whole_lines(self._paths.journal, self._part)
        files = local_files(self._paths)
        changed = self._changed(files)
        grown: list[tuple[int, bytes]] = []
        for begin, part in parts(content, self._part):
            if begin + len(part) > self._copied:
                grown.append((begin, part))
        self._lacking = {*changed, *(part_name(begin) for begin, _ in grown)}
        checkpoints = [name for name in changed if is_checkpoint(name)]
        for name in changed:
            if name not in checkpoints:
                self._copy(name, files[name], changed[name])
        for begin, part in grown:
            self._write(part_name(begin), part)
            self._copied = begin + len(part)
            if len(part) >= PART_BYTES:
                self._part = self._copied
        for name in checkpoints:
            self._copy(name, files[name], changed[name])
        self._remove_checkpoints(files)

    def _check_place(self) -> None:
        """Raise TakenError where another search has the folder: the copy may be all that is left.

        Of a folder that was moved the journal, which moved with it, does not know.
        """
        if self._is_taken() or recorded_id(self._paths) not in ("", self._search_id):
            raise TakenError(
                f"another search has the folder of search '{self._paths.name}': its copy in "
                f"{self._store.url} stays as it is, for `resume` with another `storage_path`"
            )

    def _check_no_other_files(self) -> None:
        """Raise TakenError where other files have the copy's place, before anything is written.

        Asked once: of a store that is emptied later, what is left may be a file of this driver.
        """
        if self._is_free:
            return
        try:
            check_no_other_files(self._store, self._paths.name)
        except StorageError as error:
            raise TakenError(str(error)) from error
        self._is_free = True

    def _remove_checkpoints(self, files: Mapping[str, Path]) -> None:
        """Remove from the store the checkpoints of trials that have ended here."""
        for name in list(self._stored):
            if is_checkpoint(name) and name not in files:
                self._check_place()
                self._store.remove(f"{self._paths.name}/{name}")
                self._stored.pop(name)
                self._versions.pop(name, None)

    def _begin(self) -> None:
        """Learn what the store has. Raises TakenError where that is another driver's work."""
        try:
            check_not_behind(self._paths, self._store)
        except StorageError as error:
            raise TakenError(str(error)) from error
        self._stored = stored_sizes(self._store, self._paths.name)
        self._versions = {}
        self._part = 0
        self._copied = 0
        for begin, part in parts(whole_lines(self._paths.journal)):
            is_whole = len(part) >= PART_BYTES
            if not is_whole or self._stored.get(part_name(begin)) != len(part):
                break
            self._part = begin + len(part)
            self._copied = self._part
        self._has_begun = True

    def _changed(self, files: Mapping[str, Path]) -> dict[str, _Version]:
        """Return the files that the store does not have as they are, and what they are."""
        changed: dict[str, _Version] = {}
        for name, file in files.items():
            try:
                status = file.stat()
            except FileNotFoundError:  # its trial has just ended
                continue
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if name in self._versions:
                is_there = self._versions[name] == version
            else:
                # An earlier session's predictions are what they were.
                is_data = name != SPECIFICATION and not is_checkpoint(name)
                is_there = is_data and self._stored.get(name) == status.st_size
            if not is_there:
                changed[name] = version
        return changed

    def _copy(self, name: str, file: Path, version: _Version) -> None:
        _, self._on_its_way, _ = version
        try:
            self._write(name, file)
        except FileNotFoundError:
            if file.exists():
                raise  # the store's place is missing
            self._lacking.discard(name)
            return
        self._versions[name] = version

    def _write(self, name: str, content: bytes | Path) -> None:
        self._check_place()  # what was written before may have taken minutes
        self._store.write(f"{self._paths.name}/{name}", content)
        self._stored[name] = 0  # it is there; its size is asked of earlier sessions' files alone
        self._lacking.discard(name)
        self._arrived = time.monotonic()
        self._on_its_way = 0

    def _note(self, error: Exception) -> None:
        self._error = error
        why = trouble(self._store.url, error)
        log.info("%s: %s", self._store.url, why)
        if not self._is_troubled and not self._closing:
            self._is_troubled = True
            line = f"the artifact store {self._store.url} {why}; the search goes on and tries again"
            self._tell(line)

    def _say_recovered(self) -> None:
        if self._is_troubled:
            self._is_troubled = False
            self._tell(f"the artifact store {self._store.url} has everything again")

    def _give_up(self, error: ElsaTuneError) -> None:
        self._is_given_up = True
        self._error = StorageError(f"{error}; nothing more is copied from this machine")
        # A session that closes, as it does where its place is taken, says what was not copied.
        if not self._closing and not self._is_taken():
            self._tell(str(self._error))

    def _tell(self, line: str) -> None:
        try:
            self._say(line)
        except Exception as error:  # a terminal that is gone
            log.info("%s (%s)", line, reason(error))
