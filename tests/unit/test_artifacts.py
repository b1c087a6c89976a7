"""A search's record is copied to a store, from which another machine takes it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import Mock

import fsspec
import pytest
from fsspec.implementations.ftp import FTPFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry

from elsa_tune.errors import StorageError, UnknownNameError, UsageError
from elsa_tune.searching.fetched import found_or_fetched
from elsa_tune.tracking.artifacts import contents, copier, lease, places
from elsa_tune.tracking.artifacts.contents import PART_BYTES, part_name, parts
from elsa_tune.tracking.artifacts.copier import Copier
from elsa_tune.tracking.artifacts.fetching import delete_copy, fetch, prepared
from elsa_tune.tracking.artifacts.folder import FolderArtifacts
from elsa_tune.tracking.artifacts.lease import Lease
from elsa_tune.tracking.artifacts.places import artifacts_at, artifacts_url
from elsa_tune.tracking.artifacts.remote import packages_of
from elsa_tune.tracking.artifacts.store import ArtifactStore, read
from elsa_tune.tracking.journal import TakenError
from elsa_tune.tracking.journal_records import Report, SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from tests.artifact_stores import keeps_files
from tests.searching import wait_for

ENDED = SearchEnded(status=SearchStatus.COMPLETED, message="")
LEASE = "s/lease.json"


def emptied_memory() -> None:
    """Forget what other tests have written to fsspec's store in memory."""
    store = fsspec.filesystem("memory")
    for name in store.find("/"):
        store.rm_file(name)


@pytest.mark.parametrize("kind", ["a folder", "a file's URL", "memory"])
def test_every_store_keeps_files(kind: str, tmp_path: Path) -> None:
    emptied_memory()
    top = tmp_path / "kept"
    given = {
        "a folder": str(top),
        "a file's URL": f"file://{top}",
        "memory": "memory://bucket/some/prefix/",
    }
    url = artifacts_url(given[kind], tmp_path)
    keeps_files(artifacts_at(url), tmp_path)
    assert (top / "moods" / "search.json").exists() == (kind != "memory")


def test_the_places_that_are_meant(tmp_path: Path) -> None:
    assert artifacts_url("kept/here", tmp_path) == str(tmp_path / "kept" / "here")
    assert artifacts_url("file:///kept", tmp_path) == "/kept"
    assert artifacts_url("S3://Bucket/A/", tmp_path) == "s3://Bucket/A"
    assert artifacts_url(" none ", tmp_path) == "none"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "names no place"),
        ("s3://", "names no place"),
        ("file://", "names no place"),
        ("s3://key:sesame@bucket/prefix", "may be a secret"),
        ("s3://bucket/prefix?token=sesame", "may be a secret"),
        ("simplecache::s3://bucket", "is a chain"),
    ],
)
def test_what_names_no_place_is_refused(given: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        artifacts_url(given, tmp_path)
    assert "sesame" not in str(refused.value) and "`artifacts`" in str(refused.value)


def test_an_unknown_scheme_and_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="has the unknown scheme 's4'; give a folder, or a URL"):
        artifacts_at("s4://bucket")
    for package in ("s3fs", "gcsfs", "adlfs", "paramiko"):
        monkeypatch.setitem(sys.modules, package, None)
    for scheme in ("s3", "gs", "sftp"):  # another test may have imported them
        monkeypatch.delitem(_registry, scheme, raising=False)
    with pytest.raises(UsageError, match=r"package s3fs.* pip install 'elsa-tune\[artifacts\]'"):
        artifacts_at("s3://bucket")
    with pytest.raises(UsageError, match=r"package gcsfs.* pip install gcsfs"):
        artifacts_at("gs://bucket")
    with pytest.raises(UsageError, match=r"needs a package that is not installed here .*paramiko"):
        artifacts_at("sftp://host/folder")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match=r"package fsspec.* pip install 'elsa-tune\[artifacts\]'"):
        artifacts_at("memory://bucket")


def test_a_package_that_brings_a_file_system_is_one_that_its_store_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "team_files-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: team-files\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[fsspec.specs]\nnas = team_files:NasFiles\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert packages_of("nas://share/x") == {"fsspec", "team-files"}
    assert packages_of("s3://bucket") == {"fsspec", "s3fs"}
    assert packages_of("ftp://host/x") == packages_of("/shared/x") == set()


def test_a_store_is_opened_at_the_host_that_its_url_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def connect(self: FTPFileSystem) -> None:
        self.ftp = Mock()
        asked.append((self.host, self.port))
        if self.port != 2121:
            raise OSError("connection refused")

    monkeypatch.setattr(FTPFileSystem, "_connect", connect)
    artifacts_at("ftp://example:2121/kept")
    with pytest.raises(UsageError, match=r"ftp://other/kept cannot be opened \(connection refused"):
        artifacts_at("ftp://other/kept")
    assert asked == [("example", 2121), ("other", 21)]
    with pytest.raises(UsageError, match="ftp://example:x/kept cannot be opened"):
        artifacts_at("ftp://example:x/kept")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = FolderArtifacts(str(tmp_path / "file" / "kept"))
    with pytest.raises(StorageError, match=r"/kept cannot be written or read \(Not a dir.*choose"):
        places.check(store)


def test_a_check_leaves_no_folder_where_a_store_has_real_ones(tmp_path: Path) -> None:
    store = artifacts_at(f"file://{tmp_path}/shared")
    assert not isinstance(store, FolderArtifacts)
    places.check(store)
    assert list((tmp_path / "shared").iterdir()) == []
    store.write("s/journal/a", b"a")
    store.write("s/b", b"b")
    store.remove("s/journal/a")
    assert [path.name for path in (tmp_path / "shared" / "s").iterdir()] == ["b"]


def test_a_check_and_a_deletion_leave_nothing_in_a_folder(tmp_path: Path) -> None:
    top = tmp_path / "kept"
    store = FolderArtifacts(str(top))
    places.check(store)
    assert list(top.iterdir()) == []
    for name in ("s/search.json", "s/checkpoints/a.safetensors", "t/search.json"):
        store.write(name, b"x")
    delete_copy(store.url, "s")
    assert list(top.iterdir()) == [top / "t"]
    delete_copy(store.url, "t")
    assert list(top.iterdir()) == []


class RealFolders(LocalFileSystem):
    """A server's folders, on this disk: a write may break off, and a move may be refused."""

    protocol = "realfolders"
    breaks_off = False
    refuses_by: type[Exception] | None = None  # a move where there is a file
    refuses_silently = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return LocalFileSystem._strip_protocol(path.removeprefix("realfolders://host"))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **others: Any) -> None:
        with open(path, "wb") as file:
            if self.breaks_off:
                file.write(value[: len(value) // 3])
                raise ConnectionResetError("connection lost")
            file.write(value)

    def put_file(self, lpath: str, rpath: str, callback: Any = None, **others: Any) -> None:
        self.pipe_file(rpath, Path(lpath).read_bytes())

    def rm_file(self, path: str) -> None:
        if self.breaks_off:
            raise ConnectionResetError("connection lost")
        super().rm_file(path)

    def mv(self, path1: str, path2: str, recursive: bool = True, **others: Any) -> None:
        if Path(path2).exists():
            if self.refuses_by is not None:
                raise self.refuses_by("is there already")
            if self.refuses_silently:
                return
        super().mv(path1, path2)


@pytest.fixture
def real_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a class of file system, below whose URL the folder is `kept`."""
    monkeypatch.setitem(_registry, "realfolders", RealFolders)
    for name in ("breaks_off", "refuses_by", "refuses_silently"):
        monkeypatch.setattr(RealFolders, name, getattr(RealFolders, name))
    return RealFolders


@pytest.mark.parametrize("kind", ["bytes", "a file"])
def test_a_write_that_breaks_off_leaves_what_was_there(
    kind: str, real_folders: Any, tmp_path: Path
) -> None:
    store = artifacts_at(f"realfolders://host{tmp_path}/kept")
    name = f"s/{part_name(0)}"
    longer: bytes | Path = lines(1001)
    if kind == "a file":
        longer = tmp_path / "longer"
        longer.write_bytes(lines(1001))
    store.write(name, lines(1000))
    real_folders.breaks_off = True
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            store.write(name, longer)
    assert read(store, name) == lines(1000)
    assert store.sizes("s") == {name: len(lines(1000))}
    real_folders.breaks_off = False
    store.write(name, longer)
    assert read(store, name) == lines(1001)
    assert [file.name for file in (tmp_path / "kept" / name).parent.iterdir()] == [Path(name).name]


@pytest.mark.parametrize("how", [None, FileExistsError, "silently"])
def test_a_file_takes_the_place_of_another_on_every_server(
    how: Any, real_folders: Any, tmp_path: Path
) -> None:
    real_folders.refuses_silently = how == "silently"
    real_folders.refuses_by = None if how == "silently" else how
    keeps_files(artifacts_at(f"realfolders://host{tmp_path}/kept"), tmp_path)
    assert not list((tmp_path / "kept").rglob("*.part"))


class Faulty:
    """A folder that answers once it may, or raises this when it is written."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder)
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.held_up = ""  # how the names of those begin that wait for it
        self.is_asked = threading.Event()  # since the last of those came
        self.written: list[str] = []
        self._folder = FolderArtifacts(str(folder))

    def open_reader(self, name: str) -> BinaryIO:
        return self._folder.open_reader(name)

    def write(self, name: str, content: bytes | Path) -> None:
        if name.startswith(self.held_up):
            self.is_asked.set()
            self.may_answer.wait()
        if self.error is not None:
            raise self.error
        self.written.append(name)
        self._folder.write(name, content)

    def remove(self, name: str) -> None:
        self._folder.remove(name)

    def sizes(self, folder: str) -> dict[str, int]:
        return self._folder.sizes(folder)


class NoCredentialsError(Exception):
    """As botocore calls it."""


class ReadTimeoutError(Exception):
    """Likewise."""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FileNotFoundError("No such bucket"), r"has no bucket or folder 'bucket' \(.*\); make it"),
        (PermissionError("Forbidden"), r"refuses what the environment's .* \(Forbidden\)"),
        (NoCredentialsError("Unable to locate"), r"finds no credentials .*AWS_ACCESS_KEY_ID"),
        (ReadTimeoutError("Read timeout"), r"does not answer \(.*\); see whether"),
        (ValueError("odd"), r"does not do what it is asked for \(odd\)"),
    ],
)
def test_why_a_store_cannot_be_used_is_one_sentence(
    error: Exception, sentence: str, tmp_path: Path
) -> None:
    store = Faulty(tmp_path)
    store.error = error
    store.url = "s3://bucket/prefix"
    with pytest.raises(StorageError, match=f"^`artifacts` s3://bucket/prefix {sentence}"):
        places.check(store)


def test_a_store_that_does_not_answer_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PATIENCE_S", 0.2)
    store = Faulty(tmp_path)
    store.may_answer.clear()
    with pytest.raises(StorageError, match="does not answer"):
        places.check(store)
    store.may_answer.set()


def lines(count: int, length: int = 500) -> bytes:
    """Return so many lines of a journal."""
    written = []
    for number in range(count):
        line = json.dumps({"number": number}).ljust(length - 1)
        written.append(line.encode() + b"\n")
    return b"".join(written)


def test_parts_of_a_journal_stay_what_they_are_as_it_grows() -> None:
    content = lines(3000) + lines(3, PART_BYTES + 7) + lines(100)
    final = dict(parts(content))
    assert b"".join(final.values()) == content and next(iter(final)) == 0
    end = 0
    while end < len(content):
        end = content.index(b"\n", min(end + 70_000, len(content) - 1)) + 1
        *closed, (begin, last) = parts(content[:end])
        assert all(final[start] == part for start, part in closed)
        assert final[begin].startswith(last)
        assert all(len(part) >= PART_BYTES for _, part in closed)


class Searched:
    """A search's folder in the making, and a store of its copy."""

    def __init__(self, folder: Path, name: str = "s") -> None:
        self.paths = SearchPaths(folder / "searches", name)
        self.paths.folder.mkdir(parents=True)
        self.specification("id of s")
        self.store = Faulty(folder / "kept")
        self.said: list[str] = []
        self.is_taken = False  # as the journal finds out
        self.copiers: list[Copier] = []

    def specification(self, search_id: str) -> None:
        self.paths.specification.write_text(json.dumps({"search_id": search_id}))

    def append(self, content: bytes) -> None:
        with self.paths.journal.open("ab") as file:
            file.write(content)

    def keep(self, name: str, content: bytes) -> Path:
        file = self.paths.folder / name
        file.parent.mkdir(exist_ok=True)
        aside = file.with_name(f".{file.name}.1.abc.part")
        aside.write_bytes(content)
        aside.rename(file)
        return file

    def copier(self) -> Copier:
        begun = Copier(self.store, self.paths, self.said.append, lambda: self.is_taken).start()
        self.copiers.append(begun)
        return begun

    def journal(self) -> bytes:
        """Return what the store has of the journal."""
        sizes = contents.stored_sizes(self.store, self.paths.name)
        return contents.stored_journal(self.store, self.paths.name, sizes)


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(copier, "_SHORTEST_S", 0.02)
    monkeypatch.setattr(copier, "_FIRST_PAUSE_S", 0.05)
    searched = Searched(tmp_path)
    yield searched
    searched.store.error = None
    searched.store.may_answer.set()
    for begun in searched.copiers:
        begun.close(patience_s=5)


def test_what_changes_is_copied_and_nothing_else(searched: Searched) -> None:
    searched.append(lines(2))
    searched.keep("predictions/explore-N0-lr1e+00-s0.npz", b"predictions")
    searched.keep("checkpoints/explore-N1.safetensors", b"checkpoint")
    (searched.paths.folder / "predictions" / ".half.npz.part").write_bytes(b"x")
    searched.keep("report/index.html", b"it is drawn again")
    begun = searched.copier()
    wait_for(lambda: searched.journal() == lines(2))
    wait_for(lambda: read(searched.store, "s/checkpoints/explore-N1.safetensors") is not None)
    assert set(searched.store.sizes("s")) == {
        LEASE,
        "s/search.json",
        "s/journal/000000000000.jsonl",
        "s/predictions/explore-N0-lr1e+00-s0.npz",
        "s/checkpoints/explore-N1.safetensors",
    }
    searched.store.written.clear()
    searched.append(lines(3)[len(lines(2)) :])
    searched.keep("checkpoints/explore-N2.safetensors", b"of another trial")
    (searched.paths.checkpoints / "explore-N1.safetensors").unlink()
    begun.offer(ENDED)
    wait_for(lambda: "s/checkpoints/explore-N1.safetensors" not in searched.store.sizes("s"))
    assert searched.journal() == lines(3)
    assert searched.store.written == [
        "s/journal/000000000000.jsonl",
        "s/checkpoints/explore-N2.safetensors",
    ]
    searched.append(b'{"half')  # of a line
    assert begun.close() == ""
    assert searched.journal() == lines(3) and searched.said == []
    assert LEASE not in searched.store.sizes("s")


def test_the_next_session_copies_only_what_is_new(searched: Searched) -> None:
    searched.append(lines(2000))
    searched.keep("predictions/a.npz", b"predictions")
    assert searched.copier().close() == ""
    searched.append(lines(2001)[len(lines(2000)) :])
    searched.store.written.clear()
    assert searched.copier().close() == ""
    assert searched.journal() == lines(2001)
    *_, (last, _) = parts(lines(2001))
    assert last > 0
    assert searched.store.written == [LEASE, "s/search.json", f"s/{part_name(last)}"]


def test_a_report_waits_and_an_end_does_not(searched: Searched) -> None:
    searched.append(lines(1))
    begun = searched.copier()
    wait_for(lambda: searched.journal() == lines(1))
    searched.append(lines(2)[len(lines(1)) :])
    begun.offer(Report(trial="t", evaluation=1, step=1, metrics={}))
    time.sleep(0.3)
    assert searched.journal() == lines(1)
    begun.offer(ENDED)
    wait_for(lambda: searched.journal() == lines(2))


def test_a_store_that_fails_is_told_once_and_gets_all_when_it_is_back(searched: Searched) -> None:
    searched.append(lines(1))
    begun = searched.copier()
    wait_for(lambda: searched.journal() == lines(1))
    searched.store.error = OSError("it is down")
    searched.store.url = "s3://bucket"
    for number in (2, 3, 4):
        searched.append(lines(number)[len(lines(number - 1)) :])
        begun.offer(ENDED)
        wait_for(lambda: bool(searched.said))
        time.sleep(0.2)  # in which it is refused again, and says nothing
    (line,) = searched.said
    assert line == (
        "the artifact store s3://bucket does not do what it is asked for (it is down); the search "
        "goes on and tries again"
    )
    searched.store.error = None
    wait_for(lambda: searched.journal() == lines(4))
    wait_for(lambda: len(searched.said) == 2)
    assert searched.said[1].endswith("has everything again")
    assert begun.close() == ""


def test_what_was_not_copied_is_said_at_the_end_with_what_to_do(searched: Searched) -> None:
    searched.append(lines(1))
    searched.keep("predictions/a.npz", b"predictions")
    searched.store.error = ReadTimeoutError("Read timeout")
    searched.store.url = "s3://bucket"
    begun = searched.copier()
    wait_for(lambda: bool(searched.said))
    left = begun.close(patience_s=0.5)
    assert left.startswith(
        "the copy of search 's' lacks the last records: the artifact store s3://bucket does not "
        "answer (Read timeout)"
    )
    assert left.endswith(
        f"`elsa-tune resume s --storage-path {searched.paths.storage}` copies the rest"
    )


def test_a_slow_store_makes_nobody_wait(searched: Searched) -> None:
    searched.append(lines(1))
    searched.store.may_answer.clear()
    begun = searched.copier()
    for _ in range(1000):
        begun.offer(ENDED)
    assert "did not take it in time" in begun.close(patience_s=0.3)
    begun.close(lambda: True)
    # Whoever had waited for the store would wait for ever: it may answer only now.
    searched.store.may_answer.set()


def test_a_store_that_is_emptied_gets_everything_again(searched: Searched) -> None:
    searched.append(lines(1000))
    searched.keep("predictions/a.npz", b"predictions")
    begun = searched.copier()
    wait_for(lambda: searched.journal() == lines(1000))
    before = searched.store.sizes("s")
    for name in before:
        searched.store.remove(name)
    before.pop(LEASE)  # it has the time, whose digits are not always as many
    begun.offer(ENDED)
    wait_for(lambda: before.items() <= searched.store.sizes("s").items())
    assert searched.said == [] and begun.close() == ""


def test_a_store_that_is_emptied_while_a_file_is_on_its_way_gets_everything_again(
    searched: Searched,
) -> None:
    searched.append(lines(1))
    begun = searched.copier()
    wait_for(lambda: searched.journal() == lines(1))
    searched.store.held_up = "s/checkpoints"
    searched.store.may_answer.clear()
    searched.store.is_asked.clear()
    searched.keep("checkpoints/a.safetensors", b"checkpoint")
    begun.offer(ENDED)
    assert searched.store.is_asked.wait(200)
    for name in searched.store.sizes("s"):
        searched.store.remove(name)
    searched.store.may_answer.set()  # what is left is the checkpoint alone
    begun.offer(ENDED)
    wait_for(lambda: read(searched.store, "s/search.json") is not None)
    wait_for(lambda: searched.journal() == lines(1))
    assert begun.close() == "" and searched.said == []


def another_driver(**changes: Any) -> bytes:
    """Return the note of a driver on another machine."""
    note = {"driver": "theirs", "host": "far-away", "process": 7, "time": time.time()}
    return json.dumps(note | changes).encode()


def test_a_driver_whose_search_was_taken_stops_copying(searched: Searched) -> None:
    searched.append(lines(1))
    begun = searched.copier()
    wait_for(lambda: searched.journal() == lines(1))
    searched.store.write(LEASE, another_driver())
    searched.append(lines(2)[len(lines(1)) :])
    begun.offer(ENDED)
    wait_for(lambda: bool(searched.said))
    sentence = "process 7 on far-away runs search 's' too; nothing more is copied from this machine"
    assert searched.said == [sentence] and begun.close() == sentence
    assert searched.journal() == lines(1)
    assert read(searched.store, LEASE) == another_driver(
        time=json.loads(read(searched.store, LEASE) or b"")["time"]
    )


def test_a_driver_that_comes_back_does_not_write_over_what_another_did(searched: Searched) -> None:
    """It lost sight of the store, another went on with the search, and ended."""
    searched.append(lines(2))
    begun = searched.copier()
    wait_for(lambda: searched.journal() == lines(2))
    other = lines(2) + b"{another record}\n"
    searched.store.write("s/journal/000000000000.jsonl", other)
    searched.store.remove(LEASE)
    searched.append(lines(5)[len(lines(2)) :])
    begun.offer(ENDED)
    wait_for(lambda: bool(searched.said))
    assert "another driver went on with it" in searched.said[0]
    assert "nothing more is copied" in begun.close()
    assert searched.journal() == other


def stored(searched: Searched) -> dict[str, bytes | None]:
    """Return what the store has of the search, but for the note of its driver."""
    names = set(searched.store.sizes("s")) - {LEASE}
    return {name: read(searched.store, name) for name in names}


@pytest.mark.parametrize("way", ["as the journal says", "moved"])
def test_what_another_search_has_in_the_folder_is_not_copied_over_the_own(
    searched: Searched, way: str
) -> None:
    searched.append(lines(2))
    searched.keep("predictions/a.npz", b"predictions")
    searched.keep("checkpoints/a.safetensors", b"checkpoint")
    begun = searched.copier()
    wait_for(lambda: "s/checkpoints/a.safetensors" in searched.store.sizes("s"))
    kept = stored(searched)
    searched.paths.folder.rename(searched.paths.storage / "moved")
    searched.paths.folder.mkdir()
    if way == "as the journal says":
        searched.is_taken = True  # before there is anything of the other search
        begun.offer(ENDED)
        time.sleep(0.3)  # in which it finds out, and leaves it to the session to say it
    else:
        searched.keep("predictions/a.npz", b"the other one's")
        searched.append(b"{another}\n" * 1000)
        searched.specification("another id")
        begun.offer(ENDED)
        wait_for(lambda: bool(searched.said))
    sentence = (
        f"another search has the folder of search 's': its copy in {searched.store.url} stays as "
        "it is, for `resume` with another `storage_path`; nothing more is copied from this machine"
    )
    assert begun.close() == sentence
    assert searched.said == ([] if searched.is_taken else [sentence])
    assert stored(searched) == kept


@pytest.mark.parametrize("next_step", ["a file is copied", "a checkpoint is removed"])
def test_a_folder_may_be_taken_while_a_file_is_on_its_way(
    searched: Searched, next_step: str
) -> None:
    searched.append(lines(2))
    searched.keep("checkpoints/a.safetensors", b"checkpoint")
    begun = searched.copier()
    wait_for(lambda: "s/checkpoints/a.safetensors" in searched.store.sizes("s"))
    kept = stored(searched)
    searched.store.held_up = "s/predictions/a"
    searched.store.may_answer.clear()
    searched.store.is_asked.clear()
    if next_step == "a file is copied":
        searched.keep("predictions/b.npz", b"predictions")
    else:
        (searched.paths.checkpoints / "a.safetensors").unlink()
    searched.keep("predictions/a.npz", b"predictions")
    begun.offer(ENDED)
    assert searched.store.is_asked.wait(200)
    searched.is_taken = True
    searched.store.may_answer.set()
    assert begun.close().startswith("another search has the folder of search 's'")
    assert stored(searched) == kept | {"s/predictions/a.npz": b"predictions"}


@pytest.fixture
def quick_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "WATCHED_S", 0.5)
    monkeypatch.setattr(lease, "_LOOK_S", 0.05)


@pytest.mark.usefixtures("quick_lease")
def test_a_search_that_runs_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "WATCHED_S", 60.0)
    store = FolderArtifacts(str(tmp_path))
    store.write(LEASE, another_driver())
    said: list[str] = []

    def lives(line: str) -> None:
        said.append(line)
        store.write(LEASE, another_driver(time=time.time() + 1))

    with pytest.raises(TakenError, match=r"'s' is running: process 7 on far-away copies it to"):
        Lease(store, "s").claim(lives)
    (line,) = said
    assert "was run by process 7 on far-away" in line and "waiting up to" in line


@pytest.mark.usefixtures("quick_lease")
def test_a_driver_that_is_dead_is_not_waited_for_longer_than_it_takes_to_see(
    tmp_path: Path,
) -> None:
    store = FolderArtifacts(str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for note, waits in (
        (another_driver(), True),
        (another_driver(time=time.time() - 2 * lease.OLD_S), False),
        (another_driver(numbers=lease._process_numbers(), process=dead.pid), False),
        # Two containers may be called alike: a number of one is no process of the other's.
        (another_driver(host=socket.gethostname(), process=dead.pid), True),
        (b"no note", False),
        (b"[" * 100_000, False),
        (b"[1]", False),
        (another_driver(process=2**70, numbers=lease._process_numbers()), False),
        (another_driver(process=-1, numbers=lease._process_numbers()), False),
        (another_driver().replace(b'"process": 7', b'"process": 1e400'), False),
    ):
        store.write(LEASE, note)
        said: list[str] = []
        Lease(store, "s").claim(said.append)
        assert ["waiting up to" in line for line in said] == [True] * waits
        assert json.loads(read(store, LEASE) or b"")["host"] == socket.gethostname()
        Lease(store, "s").claim(pytest.fail)  # it is our own
        Lease(store, "s").release()
        assert read(store, LEASE) is None


def test_a_start_that_fails_gives_the_search_back(searched: Searched) -> None:
    store = searched.store
    with pytest.raises(KeyboardInterrupt), prepared(store.url, searched.paths, pytest.fail):
        assert read(store, LEASE) is not None
        raise KeyboardInterrupt
    assert read(store, LEASE) is None


@pytest.mark.parametrize("name", ["train.tsv", "checkpoints/best.safetensors"])
def test_a_place_that_has_other_files_is_refused(name: str, searched: Searched) -> None:
    store = searched.store
    searched.append(lines(1))
    store.write(f"s/{name}", b"the user's own")
    elsewhere = SearchPaths(searched.paths.storage / "another machine", "s")
    sentence = (
        f"would mix the copy of search 's' with files that are there already, such as {name}; "
        "choose another `name`, or another place there"
    )
    for paths in (searched.paths, elsewhere):
        with pytest.raises(StorageError, match=sentence), prepared(store.url, paths, pytest.fail):
            pytest.fail("it was begun")
    assert sentence in searched.copier().close()
    assert read(store, f"s/{name}") == b"the user's own"
    assert read(store, LEASE) is None


@pytest.fixture
def often_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.1)
    monkeypatch.setattr(lease, "_TICK_S", 0.02)


def wait_until_renewed(store: ArtifactStore) -> None:
    note = read(store, LEASE)
    wait_for(lambda: read(store, LEASE) != note)


@pytest.mark.usefixtures("often_renewed")
def test_a_driver_is_seen_to_live_while_a_file_is_on_its_way(searched: Searched) -> None:
    """Whoever watches a note for two minutes must not take its driver for dead."""
    store = searched.store
    searched.append(lines(1))
    searched.keep("checkpoints/a.safetensors", b"checkpoint")
    store.held_up = "s/checkpoints"
    store.may_answer.clear()
    with prepared(store.url, searched.paths, pytest.fail):
        begun = searched.copier()
        wait_for(lambda: searched.journal() == lines(1))
        for _ in range(2):
            wait_until_renewed(store)
        assert "s/checkpoints/a.safetensors" not in store.sizes("s")
        store.may_answer.set()
        assert begun.close() == ""
    assert read(store, LEASE) is None and searched.said == []


@pytest.mark.usefixtures("often_renewed")
def test_a_driver_is_seen_to_live_before_anything_is_copied(searched: Searched) -> None:
    store = searched.store
    with prepared(store.url, searched.paths, pytest.fail):
        wait_until_renewed(store)
    assert read(store, LEASE) is None


def test_a_note_of_another_driver_is_not_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_S", -1.0)
    store = FolderArtifacts(str(tmp_path))
    ours = Lease(store, "s")
    ours.claim(pytest.fail)
    theirs = another_driver()
    store.write(LEASE, theirs)
    with pytest.raises(TakenError, match="process 7 on far-away runs search 's' too"):
        ours._renew()
    ours.release()
    assert read(store, LEASE) == theirs


def test_a_note_that_is_gone_is_not_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copies must see that the store was emptied; and at the end it is given back."""
    monkeypatch.setattr(lease, "RENEW_S", -1.0)
    store = FolderArtifacts(str(tmp_path))
    ours = Lease(store, "s")
    ours.claim(pytest.fail)
    store.remove(LEASE)
    ours._renew()
    assert read(store, LEASE) is None
    assert not ours.hold()
    ours.release()
    ours._renew()
    assert read(store, LEASE) is None


def fetch_here(searched: Searched, paths: SearchPaths | None = None) -> bool:
    return fetch(searched.store.url, paths or searched.paths, searched.said.append)


def test_a_search_is_fetched_where_there_is_none(searched: Searched, tmp_path: Path) -> None:
    searched.append(lines(2000))
    searched.keep("predictions/a.npz", b"predictions")
    searched.keep("checkpoints/b.safetensors", b"checkpoint")
    assert searched.copier().close() == ""
    searched.store.write("s/../escaped.json", b"x")
    searched.store.write("s/predictions/.hidden.npz", b"x")
    searched.store.write("s/ray/state", b"x")
    there = SearchPaths(tmp_path / "another machine", "s")
    there.folder.mkdir(parents=True)  # it may be there, empty
    assert found_or_fetched(there.storage, "s", searched.store.url, searched.said.append).exists
    copied = {}
    for file in there.storage.rglob("*"):
        if file.is_file():
            copied[file.relative_to(there.folder).as_posix()] = file.read_bytes()
    assert copied == {
        "search.json": searched.paths.specification.read_bytes(),
        "journal.jsonl": lines(2000),
        "predictions/a.npz": b"predictions",
        "checkpoints/b.safetensors": b"checkpoint",
    }
    assert "fetching it from" in searched.said[0] and "2000 records" in searched.said[1]
    with pytest.raises(UnknownNameError, match=r"unknown search 't': neither .* nor .* has it"):
        found_or_fetched(there.storage, "t", searched.store.url, searched.said.append)
    # Nobody waits for a driver that only looked.
    assert read(searched.store, LEASE) is None and read(searched.store, "t/lease.json") is None


def test_a_folder_in_the_way_of_a_search_stays(searched: Searched, tmp_path: Path) -> None:
    searched.append(lines(1))
    assert searched.copier().close() == ""
    there = SearchPaths(tmp_path / "another machine", "s")
    there.folder.mkdir(parents=True)
    (there.folder / "mine").write_text("x")
    with pytest.raises(StorageError, match=r"cannot be written to .*not empty; choose another"):
        fetch_here(searched, there)
    assert [file.name for file in there.storage.rglob("*")] == ["s", "mine"]


def test_a_record_that_is_ahead_of_its_copy_is_gone_on_with(searched: Searched) -> None:
    searched.append(lines(1500))
    assert searched.copier().close() == ""
    searched.append(lines(1501)[len(lines(1500)) :])
    assert not fetch_here(searched)
    assert searched.said == []


def changed_id(searched: Searched) -> None:
    searched.specification("another id")


def cut(searched: Searched) -> None:
    searched.paths.journal.write_bytes(lines(1499))


def diverged(searched: Searched) -> None:
    searched.paths.journal.write_bytes(lines(1499) + lines(1) + lines(5))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (changed_id, "has another search named 's'; choose another `name`"),
        (cut, "lacks: another driver went on with it; move .* away to go on from there"),
        (diverged, "lacks: another driver went on with it"),
    ],
)
def test_a_record_that_is_not_what_its_copy_became_is_refused(
    change: Callable[[Searched], None], sentence: str, searched: Searched
) -> None:
    searched.append(lines(1500))
    assert searched.copier().close() == ""
    before = searched.store.sizes("s")
    change(searched)
    with pytest.raises(StorageError, match=sentence):
        fetch_here(searched)
    assert searched.store.sizes("s") == before


def test_a_copy_without_a_part_of_its_journal_is_refused(
    searched: Searched, tmp_path: Path
) -> None:
    searched.append(lines(2000))
    assert searched.copier().close() == ""
    (first, _), (second, _), *_ = parts(lines(2000))
    searched.store.remove(f"s/{part_name(first)}")
    with pytest.raises(StorageError, match=r"lacks a part of the journal.* begin at byte 0"):
        fetch_here(searched, SearchPaths(tmp_path / "another machine", "s"))
    # The machine that has the record mends the copy.
    assert not fetch_here(searched) and searched.copier().close() == ""
    assert searched.journal() == lines(2000)
    searched.store.remove(f"s/{part_name(second)}")
    with pytest.raises(StorageError, match=f"begin at byte {second:,}"):
        fetch_here(searched, SearchPaths(tmp_path / "another machine", "s"))


def test_a_store_whose_reader_breaks_off_leaves_no_half_of_a_search(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched.append(lines(1))
    searched.keep("predictions/a.npz", b"predictions")
    assert searched.copier().close() == ""

    def broken(store: ArtifactStore, name: str) -> BinaryIO:
        if name.startswith("s/journal"):
            raise ReadTimeoutError("Read timeout")
        return open(Path(store.url) / name, "rb")

    monkeypatch.setattr(FolderArtifacts, "open_reader", broken)
    there = SearchPaths(tmp_path / "another machine", "s")
    with pytest.raises(StorageError, match="does not answer"):
        fetch_here(searched, there)
    assert list(there.storage.iterdir()) == []
