"""Locks between processes, on open files; whoever holds one loses it with its process."""

import contextlib
import errno
import fcntl
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

_PAUSE = 0.02  # seconds between two attempts
# What a mount without locks answers; Lustre's says the last.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def open_locked(
    path: Path, mode: str = "rb", *, shared: bool = False, seconds: float = math.inf
) -> BinaryIO:
    """Open a file, never through a link, and lock it until it is closed.

    shared: others may have it shared too. seconds: how long to wait for whoever has the lock.
    Raises TimeoutError where somebody still has it then, other OSErrors as `open` does.
    """
    deadline = time.monotonic() + seconds
    while True:
        file = cast(BinaryIO, open(path, mode, opener=_without_links))  # noqa: SIM115  # its caller's
        try:
            _lock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, deadline)
            if os.fstat(file.fileno()).st_nlink:
                return file
        except BaseException:
            file.close()
            raise
        # It was deleted while we waited: another process may lock a new file of this name.
        file.close()


@contextlib.contextmanager
def alone_at(folder: Path, seconds: float = 0) -> Iterator[None]:
    """Let only one process at a time write a folder, by a lock beside it that goes afterwards.

    seconds: how long to wait for another one. Raises TimeoutError where it still writes then. Where
    no lock is to be had, nobody is kept out.
    """
    place = Path(os.path.realpath(folder))  # whatever link leads there, it is one folder
    path = place.with_name(f".{place.name}.lock")
    around = path.parent
    is_around_new = not around.exists()
    lock = None
    try:
        around.mkdir(parents=True, exist_ok=True)
        lock = open_locked(path, "ab", seconds=seconds)
    except TimeoutError:
        raise
    except OSError:  # whoever cannot write there is told so when it writes
        pass
    try:
        yield
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                path.unlink()  # whoever waits for it meanwhile makes another one
            lock.close()
        if is_around_new:
            with contextlib.suppress(OSError):
                around.rmdir()  # where nothing was written


def is_locked(path: Path, *, count_shared: bool = True) -> bool:
    """Return whether somebody may have locked a file: no where there is none, or only a link.

    count_shared: whether a shared lock counts. Where it does not, who asks is not taken for a
    holder by others who ask at the same time, and where there are no locks nobody is. Any other
    file that cannot be asked may be locked.
    """
    # NFS gives an exclusive lock only to who may write, and a shared one to who may read.
    mode = "rb+" if count_shared else "rb"
    try:
        open_locked(path, mode, shared=not count_shared, seconds=0).close()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        is_link = error.errno == errno.ELOOP  # nobody locks those
        # Where no lock is to be had nobody holds one, and whoever takes one is told why.
        is_without_holder = not count_shared and error.errno in _NO_LOCKS
        return not is_link and not is_without_holder
    return False


def _without_links(name: str, flags: int) -> int:
    # Whoever may write files that others of a group made may lock them: the umask decides.
    return os.open(name, flags | os.O_NOFOLLOW, 0o666)


def _lock(file: BinaryIO, kind: int, deadline: float) -> None:
    """Lock an open file. Raises TimeoutError at the deadline, in seconds of `time.monotonic`."""
    if deadline == math.inf:
        fcntl.flock(file, kind)
        return
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process has locked it") from None
        time.sleep(_PAUSE)
