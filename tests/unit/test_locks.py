"""Locks between processes: who has one, who waits, and what a deleted or linked file does."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

from elsa_tune import locks
from elsa_tune.locks import alone_at, is_locked, open_locked

HOLDS = """
import sys, time
from pathlib import Path
from elsa_tune.locks import open_locked
file = open_locked(Path(sys.argv[1]), "ab")
print("locked", flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.lock"


def test_a_lock_lasts_until_the_file_is_closed(path: Path) -> None:
    assert not is_locked(path)  # there is no such file
    with open_locked(path, "ab"):
        assert is_locked(path)
        assert is_locked(path, count_shared=False)
        with pytest.raises(TimeoutError):
            open_locked(path, "ab", seconds=0)
    assert not is_locked(path)
    open_locked(path, "ab", seconds=0).close()


def test_a_lock_ends_with_its_process(path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, path], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == b"locked\n"
        assert is_locked(path)
        holder.kill()
        holder.wait()
    assert not is_locked(path)


def test_several_may_share_a_lock(path: Path) -> None:
    path.touch()
    with open_locked(path, shared=True), open_locked(path, shared=True, seconds=0):
        assert is_locked(path)
        assert not is_locked(path, count_shared=False)
        with pytest.raises(TimeoutError):
            open_locked(path, seconds=0)


@pytest.mark.parametrize("seconds", [30.0, float("inf")])
def test_whoever_waits_gets_the_lock_once_it_is_free(path: Path, seconds: float) -> None:
    first = open_locked(path, "ab")
    order = []

    def free() -> None:
        order.append("freed")
        first.close()

    threading.Timer(0.2, free).start()
    open_locked(path, "ab", seconds=seconds).close()
    order.append("locked")
    assert order == ["freed", "locked"]


def test_a_file_that_was_deleted_meanwhile_is_made_anew(path: Path) -> None:
    first = open_locked(path, "ab")

    def delete() -> None:
        path.unlink()
        first.close()

    threading.Timer(0.2, delete).start()
    with open_locked(path, "ab", seconds=30):
        assert is_locked(path)  # by its name, as others see it


def test_nothing_is_locked_through_a_link(path: Path, tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.touch()
    path.symlink_to(aim)
    with pytest.raises(OSError):
        open_locked(path, "ab")
    assert not is_locked(path)


def test_a_reader_on_nfs_is_seen(path: Path, nfs: None) -> None:
    path.touch()
    with open_locked(path, shared=True):
        assert is_locked(path)
        assert not is_locked(path, count_shared=False)
    assert not is_locked(path)
    with open_locked(path, "ab"):
        assert is_locked(path)
        assert is_locked(path, count_shared=False)
    assert not is_locked(path, count_shared=False)


@pytest.mark.parametrize("count_shared", [True, False])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ESTALE])
def test_a_file_that_cannot_be_opened_may_be_locked(
    path: Path, number: int, count_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch()

    def refuse(*_: Any) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locks, "_without_links", refuse)
    assert is_locked(path, count_shared=count_shared)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_there_are_no_locks_a_file_may_be_read_but_nobody_holds_it(
    path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch()

    def refuse(*_: Any) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert is_locked(path)
    assert not is_locked(path, count_shared=False)


def test_asking_leaves_a_file_as_it_is(path: Path) -> None:
    path.write_bytes(b"content")
    os.utime(path, (1, 1))
    assert not is_locked(path)
    assert path.read_bytes() == b"content" and path.stat().st_mtime == 1


def test_a_folder_is_written_by_one_at_a_time_and_its_lock_goes(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder")
    with alone_at(tmp_path / "folder"):
        with pytest.raises(TimeoutError), alone_at(link):
            pass
        with alone_at(tmp_path / "other"):
            pass
    with alone_at(link):
        pass
    with pytest.raises(ValueError), alone_at(tmp_path / "none" / "folder"):
        raise ValueError
    assert list(tmp_path.iterdir()) == [link]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_there_are_no_locks_a_folder_is_written_all_the_same(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with alone_at(tmp_path / "folder"), alone_at(tmp_path / "folder"):
        (tmp_path / "folder").mkdir()
    assert (tmp_path / "folder").exists()


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o022, 0o644), (0o077, 0o600)])
def test_the_umask_says_who_may_lock_a_file(path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        open_locked(path, "ab").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_below_a_file_nothing_is_locked(path: Path) -> None:
    path.touch()
    assert not is_locked(path / "none")
