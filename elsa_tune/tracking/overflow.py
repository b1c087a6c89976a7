"""A file on another disk, for a search's records while the disk of its journal has no room."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from elsa_tune.tracking.journal_records import Record, decode

# Often on another disk than the working directory and the temporary folder; the last is memory.
_LAST = (Path("/var/tmp"), Path("/dev/shm"))


class Overflow:
    """The records that a search's journal does not take for now.

    They lie in the working directory, the temporary folder, or another that is there for everybody.
    `place` is its file, None while it holds nothing. is_named: whether the search's id is known,
    without which nothing is kept.

    Nothing here raises: where there is no room either, the records stay in memory.
    """

    def __init__(self, search: str, search_id: str) -> None:
        # The id, which nobody can guess, makes the name safe in a folder that all may write.
        self._name = f"elsa-tune-{search}-{search_id[:16]}.jsonl"
        self.is_named = bool(search_id)
        self.place: Path | None = None
        for folder in _folders():
            if self.is_named and _is_own(folder / self._name):
                self.place = folder / self._name

    def after(self, time: float) -> list[Record]:
        """Return what it holds of later records, each once.

        A last line that was cut short is left out.
        """
        records: list[Record] = []
        if self.place is None:
            return records
        with contextlib.suppress(OSError, ValueError):
            lines = self.place.read_bytes().split(b"\n")
            for line in lines[:-1]:
                record = decode(line.decode())
                if record.time > time:
                    records.append(record)
                    time = record.time
        return records

    def add(self, lines: bytes) -> bool:
        """Hold these lines too; whether there was room."""
        if not self.is_named:
            return False
        folders = _folders()
        if self.place is not None:
            folders = [self.place.parent]
        for folder in folders:
            file = folder / self._name
            with contextlib.suppress(OSError, ValueError):  # as in `_is_own`
                _append(file, lines)
                self.place = file
                return True
        self.place = None
        return False

    def drop(self) -> None:
        """Forget all records: the journal has them now."""
        if self.place is not None:
            with contextlib.suppress(OSError):
                self.place.unlink()
            self.place = None


def _folders() -> list[Path]:
    """Return the places, the working directory last: whoever resumes may stand elsewhere."""
    folders = [Path(tempfile.gettempdir()), *_LAST]
    with contextlib.suppress(OSError):  # it was deleted
        folders.append(Path.cwd())
    return folders


def _is_own(file: Path) -> bool:
    try:
        status = file.lstat()
    except (OSError, ValueError):  # the latter where the id, as a file says it, can be in no name
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()


def _append(file: Path, lines: bytes) -> None:
    """Append all of the lines, or nothing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o600)
    before = os.fstat(descriptor).st_size
    try:
        while lines:
            written = os.write(descriptor, lines)
            lines = lines[written:]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before)
        if not before:
            file.unlink()
        raise
    finally:
        os.close(descriptor)
