"""A search's journal: records on the driver's own disk, written before anything else hears of them.

A line that a kill cut short is passed over by readers and removed by the next writer.
"""

import contextlib
import dataclasses
import fcntl
import os
import socket
import threading
import time
from pathlib import Path
from typing import TypeVar

import filelock

from elsa_tune.errors import StorageError
from elsa_tune.tracking.journal_records import Record, decode, encode
from elsa_tune.tracking.paths import lock_of

R = TypeVar("R", bound=Record)


class Journal(contextlib.AbstractContextManager["Journal"]):
    """The one writer of a journal; holds its lock until `close`. earlier: the records it had then.

    Raises StorageError when another driver holds the lock, or what is there cannot be read or
    written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = take_lock(path)
        # Records that a full disk refused; they go first as soon as there is room.
        self._unwritten: list[bytes] = []
        # Reentrant: a signal's handler may record the end while a record is being written.
        self._mutex = threading.RLock()
        self._descriptor: int | None = None
        try:
            self.earlier, self._good_size = _read(path)
            self._last_time = max((record.time for record in self.earlier), default=0.0)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._descriptor, self._good_size)
            # Force the new file's name to disk, as its content is.
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise StorageError(f"cannot write {path}: {error.strerror}") from error
            raise

    def stamp(self, record: R) -> R:
        """The record with a time, its own or now, a millisecond or more after every other."""
        if record.time:
            return record
        with self._mutex:
            self._last_time = max(round(time.time(), 3), round(self._last_time + 0.001, 3))
            return dataclasses.replace(record, time=self._last_time)

    def append(self, record: R) -> R:
        """Write one record and force it to disk; returns it with its time.

        Raises StorageError when that fails (a full disk): it is then written before the next one.
        """
        with self._mutex:
            stamped = self.stamp(record)
            self._unwritten.append(encode(stamped).encode() + b"\n")
            self._write_out()
        return stamped

    def close(self) -> None:
        """Free the lock; harmless when done twice. Records that were refused get a last chance."""
        with self._mutex:
            try:
                if self._descriptor is not None and self._unwritten:
                    self._write_out()
            finally:
                if self._descriptor is not None:
                    os.close(self._descriptor)
                self._descriptor = None
                self._lock.release()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write_out(self) -> None:
        if self._descriptor is None:
            raise StorageError(f"{self.path} is closed; nothing more can be recorded")
        lines = b"".join(self._unwritten)
        try:
            written = 0
            while written < len(lines):
                written += os.pwrite(self._descriptor, lines[written:], self._good_size + written)
            os.fsync(self._descriptor)
        except OSError as error:
            # What came through lies beyond the good size: the next try writes over it.
            raise StorageError(
                f"cannot write {self.path}: {error.strerror}; {len(self._unwritten)} records "
                "wait in memory for room"
            ) from error
        self._good_size += len(lines)
        self._unwritten.clear()


def running(journal: Path) -> StorageError:
    """Names who took the lock last, `process 123 on HOST`, where that is recorded."""
    holder = ""
    with contextlib.suppress(OSError, ValueError):
        holder = lock_of(journal).with_suffix(".holder").read_text()
    return StorageError(
        f"search '{journal.parent.name}' is running: {holder or 'another process'} writes "
        f"{journal}; wait for it or end it"
    )


def read_journal(path: Path) -> list[Record]:
    """All records of a journal, oldest first; [] where there is none. Safe while a driver writes.

    Raises StorageError, with the line, for what is no record, but a last line that was cut short.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[list[Record], int]:
    """The records, and how many bytes of the file they fill."""
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
            records.append(decode(line.decode()))
        except ValueError as error:
            # A crash of the machine leaves no whole JSON object.
            if number == len(lines) and not (line.startswith(b"{") and line.endswith(b"}")):
                break
            raise StorageError(
                f"{path}, line {number} cannot be read: {error}; restore the file from a copy, "
                "or delete the search"
            ) from error
        size += len(line) + 1
    return records, size


def take_lock(journal: Path) -> filelock.BaseFileLock:
    """Take a journal's lock until its `release`; StorageError when taken or not writable."""
    path = lock_of(journal)
    lock = filelock.FileLock(path, thread_local=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not at once: whoever looks whether it is held takes it for an instant.
        lock.acquire(1.0, poll_interval=0.02)
    except filelock.Timeout:
        raise running(journal) from None
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}; choose a place that can be written with "
            "`storage_path`"
        ) from error
    # Only a courtesy to whoever finds the lock held: a full disk must not make the lock fail.
    with contextlib.suppress(OSError):
        path.with_suffix(".holder").write_text(f"process {os.getpid()} on {socket.gethostname()}")
    return lock


def is_held(path: Path) -> bool:
    """Whether some living process holds the lock; asks for a shared one, which disturbs nobody."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
