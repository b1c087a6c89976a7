"""A search's journal: records on the driver's own disk, written before anything else hears of them.

A line that a kill cut short is passed over by readers and removed by the next writer. What a full
disk refuses waits elsewhere (`overflow`); a journal that is deleted while it is written is written
anew, unless another search has its place by then.
"""

import contextlib
import dataclasses
import os
import pwd
import shlex
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeVar

from elsa_tune.errors import StorageError
from elsa_tune.files import write_aside
from elsa_tune.locks import is_locked, open_locked
from elsa_tune.tracking.journal_records import Record, SearchStarted, decode, encode
from elsa_tune.tracking.overflow import Overflow
from elsa_tune.tracking.paths import SearchPaths, lock_of, search_names

R = TypeVar("R", bound=Record)


class TakenError(StorageError):
    """Another driver has the search, or another search its place."""


class Journal(contextlib.AbstractContextManager["Journal"]):
    """The one writer of a journal; holds its lock until `close`.

    earlier: the records it had then, the `taken_back` included that an earlier writer had no
    room for. renewed: how often it was deleted and written anew.

    Raises StorageError when another driver holds the lock, or what is there cannot be read or
    written. search_id: the search's, where no record is there yet.
    """

    def __init__(self, path: Path, search_id: str = "") -> None:
        self.path = path
        self.renewed = 0
        self.taken_back = 0
        self._lock = take_lock(path)
        self._search_id = search_id
        self._taken = ""  # why nothing is written any more, in a sentence
        # Records that a full disk refused; they go first as soon as there is room.
        self._unwritten: list[bytes] = []
        self._overflowed = 0  # how many of these are in the overflow, too
        # Reentrant: a signal's handler may record the end while a record is being written.
        self._mutex = threading.RLock()
        self._last_time = 0.0
        # The time when this writer began, and that moment by the monotonic clock.
        self._clock = (0.0, time.monotonic())
        self._descriptor: int | None = None
        try:
            self.earlier, self._good_size = _read(path)
            self._search_id = _search_id(self.earlier) or search_id
            self._overflow = Overflow(path.parent.name, self._search_id)
            self._take_back()
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.ftruncate(self._descriptor, self._good_size)
            if self._unwritten:
                with contextlib.suppress(StorageError):  # there is still no room
                    self._write_out()
            # Force the new file's name to disk, as its content is.
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise _unwritten(path, path, error) from error
            raise

    def now(self) -> float:
        """Return the time by the clock of the records, in seconds since the epoch.

        It is the machine's when a writer begins, and goes on at its pace while that clock is set
        or the machine sleeps: times of records are subtracted from each other, and from this one.
        """
        moment, monotonic = self._clock
        passed = time.monotonic() - monotonic
        return moment + passed

    def stamp(self, record: R) -> R:
        """Return the record with a time, its own or now, a millisecond after every other."""
        if record.time:
            return record
        with self._mutex:
            earliest = self._last_time + 0.001
            self._last_time = round(max(self.now(), earliest), 3)
            return dataclasses.replace(record, time=self._last_time)

    def append(self, record: R) -> R:
        """Write one record and force it to disk; returns it with its time.

        Raises StorageError when that fails (a full disk): it is then written before the next one;
        TakenError where another search has its place: nothing is written any more.
        """
        with self._mutex:
            stamped = self.stamp(record)
            if isinstance(stamped, SearchStarted) and not self._search_id:
                self._search_id = stamped.search_id
                self._overflow = Overflow(self.path.parent.name, self._search_id)
            self._unwritten.append(_line(stamped))
            self.write_out()
        return stamped

    @property
    def missing(self) -> tuple[int, Path | None]:
        """How many records it lacks for want of room, and the file that has them, if any has."""
        return len(self._unwritten), self._overflow.place

    def close(self) -> None:
        """Free the lock; harmless when done twice. Records that were refused get a last chance."""
        with self._mutex:
            try:
                is_open = self._descriptor is not None
                if is_open and self._unwritten:
                    with contextlib.suppress(StorageError):  # it was raised when they came
                        self.write_out()
            finally:
                if self._descriptor is not None:
                    os.close(self._descriptor)
                self._descriptor = None
                self._lock.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _take_back(self) -> None:
        """Have what an earlier writer had no room for."""
        last_time = _last_time(self.earlier)
        waiting = self._overflow.after(last_time)
        self._unwritten = [_line(record) for record in waiting]
        self.earlier += waiting
        self.taken_back = len(waiting)
        self._overflowed = len(waiting)
        self._last_time = _last_time(self.earlier)
        begun = max(time.time(), self._last_time)
        self._clock = (begun, time.monotonic())
        if not waiting:
            self._overflow.drop()

    def is_taken(self) -> bool:
        """Whether another search has the place of this one; it has it from then on.

        Where the place was only deleted, this one takes it back.
        """
        with contextlib.suppress(StorageError):  # a full disk says nothing of it
            self.write_out()
        return bool(self._taken)

    def write_out(self) -> None:
        """Write what waits; StorageError as in `append`."""
        with self._mutex:
            self._write_out()

    def _write_out(self) -> None:
        if self._descriptor is None:
            raise StorageError(f"{self.path} is closed; nothing more can be recorded")
        if self._taken:
            self._give_up(self._taken)
        lines = b"".join(self._unwritten)
        try:
            # Deleted, or another file has its name; or it was moved. Its number may change on some
            # network file systems, and says nothing.
            has_name = os.fstat(self._descriptor).st_nlink > 0
            if not has_name or not self.path.exists():
                self._write_anew()
            written = 0
            while written < len(lines):
                rest = lines[written:]
                place = self._good_size + written
                written += os.pwrite(self._descriptor, rest, place)
            os.fsync(self._descriptor)
        except OSError as error:
            # What came through lies beyond the good size: the next try writes over it.
            # What it has twice is read once.
            others = self._unwritten[self._overflowed :]
            is_safe = self._overflow.add(b"".join(others))
            self._overflowed = len(self._unwritten) if is_safe else 0
            haven = self._overflow.place or "memory"
            raise StorageError(
                f"cannot write {self.path}: {error.strerror}; its records wait for room in {haven}"
            ) from error
        self._good_size += len(lines)
        self._unwritten.clear()
        self._overflowed = 0
        self._overflow.drop()

    def _write_anew(self) -> None:
        """Put the journal, its folder and its lock back where they were deleted.

        Raises OSError, and TakenError where another search has the place.
        """
        assert self._descriptor is not None
        self._hold_lock()
        content = os.pread(self._descriptor, self._good_size, 0)  # it is there while it is open
        write_aside(self.path, content)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        os.close(self._descriptor)
        self._descriptor = descriptor
        self.renewed += 1

    def _hold_lock(self) -> None:
        """Lock the file that has the lock's name now: ours may have been deleted, too."""
        path = lock_of(self.path)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._lock.fileno()), path.lstat()):
                return
        try:
            lock = _open_lock(self.path)
        except TimeoutError:
            self._give_up(f"{_holder(self.path)} records there now")
        if self._is_anothers():
            lock.close()
            self._give_up("another search was recorded there since")
        self._lock.close()
        self._lock = lock

    def _is_anothers(self) -> bool:
        """Whether the file at the path is another search's journal."""
        with contextlib.suppress(StorageError):  # what cannot be read is no journal
            records, _ = _read(self.path)
            return _search_id(records) not in ("", self._search_id)
        return False

    def _give_up(self, why: str) -> NoReturn:
        """Write nothing any more. Raises TakenError."""
        self._taken = why
        self._unwritten.clear()
        raise TakenError(
            f"the folder of search '{self.path.parent.name}' was deleted while it ran, and {why}: "
            f"nothing more of it is written to {self.path.parent}; give searches that run at once "
            "names of their own"
        )


def _line(record: Record) -> bytes:
    """Return a record as it stands in the file."""
    return encode(record).encode() + b"\n"


def _search_id(records: Iterable[Record]) -> str:
    """Return the id of the search that these are of; "" before it has begun."""
    for record in records:
        if isinstance(record, SearchStarted):
            return record.search_id
    return ""


def running_error(journal: Path) -> StorageError:
    """Return the error that a search runs; it names the lock's holder, where that is recorded."""
    holder = _holder(journal)
    what_to_do = "wait for it or end it"
    host = holder.partition(" on ")[2]
    if host not in ("", socket.gethostname()):
        # Nobody here can tell whether it lives: a network file system keeps a dead machine's lock.
        what_to_do = (
            f"wait for it or end it there; if {host} has died, its lock is freed after some "
            f"minutes, or when {host} starts again: if it never will, delete {lock_of(journal)}"
        )
    return StorageError(
        f"search '{journal.parent.name}' is running: {holder} writes {journal}; {what_to_do}"
    )


def _holder(journal: Path) -> str:
    """Return who holds a journal's lock, as far as that is recorded."""
    with contextlib.suppress(OSError, ValueError):
        return lock_of(journal).with_suffix(".holder").read_text() or "another process"
    return "another process"


def read_journal(path: Path) -> list[Record]:
    """All records of a journal, oldest first; [] where there is none.

    Safe while a driver writes. Those that it had no room for and that wait elsewhere are there,
    too.

    Raises StorageError, with the line, for what is no record, but a last line that was cut short.
    """
    records, _ = _read(path)
    overflow = Overflow(path.parent.name, _search_id(records))
    last_time = _last_time(records)
    return records + overflow.after(last_time)


def _last_time(records: Iterable[Record]) -> float:
    return max((record.time for record in records), default=0.0)


def latest_search(storage: Path) -> SearchPaths | None:
    """Return the search under a storage folder that began last; None where none is recorded."""
    searches = [SearchPaths(storage, name) for name in search_names(storage)]
    return max(searches, key=lambda paths: (_began(paths.journal), paths.name), default=None)


def _began(journal: Path) -> float:
    """Return the time of the first record, of which one line is read; 0 where there is none."""
    try:
        with journal.open("rb") as lines:
            first = lines.readline()
        record = decode(first.decode())
        return record.time
    except (OSError, ValueError):
        return 0.0


def _read(path: Path) -> tuple[list[Record], int]:
    """Return the records, and how many bytes of the file they fill."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    records: list[Record] = []
    lines = content.split(b"\n")[:-1]  # what follows the last newline is no whole line
    size = 0
    for number, line in enumerate(lines, start=1):
        try:
            record = decode(line.decode())
        except ValueError as error:
            # A crash of the machine leaves no complete JSON object.
            is_object = line.startswith(b"{") and line.endswith(b"}")
            if number == len(lines) and not is_object:
                break
            raise StorageError(
                f"{path}, line {number} cannot be read: {error}; restore the file from a copy, "
                "or delete the search"
            ) from error
        records.append(record)
        size += len(line) + 1
    return records, size


def take_lock(journal: Path) -> BinaryIO:
    """Lock a journal until what is returned is closed.

    Raises StorageError where another process has the lock, or it cannot be written.
    """
    path = lock_of(journal)
    try:
        return _open_lock(journal)
    except TimeoutError:
        raise running_error(journal) from None
    except OSError as error:
        raise _unwritten(path, journal, error) from error


def _unwritten(file: Path, journal: Path, error: OSError) -> StorageError:
    """Return the error for a journal or its lock that cannot be written, and what to do."""
    refused = f"cannot write {file}: {error.strerror}"
    if not os.path.isfile(journal):
        return StorageError(f"{refused}; choose a place that can be written with `storage_path`")
    if not isinstance(error, PermissionError):
        return StorageError(refused)
    folder = journal.parent
    # A recorded search has its place: who may write there is asked.
    return StorageError(
        f"{refused}; search '{folder.name}' is {_owner(journal)}'s, who may go on with it, or let "
        f"their group do so by `chmod -R g+rwX {shlex.quote(str(folder))}`"
    )


def _owner(file: Path) -> str:
    """Return the name of the user whose file this is; the number of one without a name."""
    number = file.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _open_lock(journal: Path) -> BinaryIO:
    """Lock a journal, and note who did. Raises OSError; TimeoutError where it is locked."""
    path = lock_of(journal)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not at once: whoever looks whether it is held takes it for an instant.
    lock = open_locked(path, "ab", seconds=1.0)
    # Only a courtesy to whoever finds the lock held: a full disk must not make the lock fail.
    with contextlib.suppress(OSError):
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        path.with_suffix(".holder").write_text(holder)
    return lock


def is_held(path: Path) -> bool:
    """Return whether some living process holds a journal's lock."""
    return is_locked(path, count_shared=False)
