"""Paths that are unusual: refused in a sentence or used as they are meant, before any work."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.cli.app import main
from elsa_tune.errors import StorageError, UsageError
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.request import read_request, read_requests
from elsa_tune.tracking.artifacts.fetching import prepared
from elsa_tune.tracking.artifacts.places import artifacts_url, check_apart
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths

# As Python has a name in Latin-1.
LATIN = os.fsdecode(b"d\xe9t")


def asked(**changes: Any) -> SearchOptions:
    options: dict[str, Any] = {"model": "minilm", "task": ["stdlib"], "name": "s", **changes}
    return SearchOptions(**options)


@pytest.mark.parametrize(
    "option", ["model", "space", "data_dir", "storage_path", "tracking_uri", "artifacts"]
)
def test_a_path_that_is_not_utf8_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=rf"^`{option}` .* has a name that is not UTF-8"):
        read_request(asked(**{option: f"/data/{LATIN}"}), "stdlib")


def test_a_task_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^`task` .* has a name that is not UTF-8"):
        read_requests(asked(task=["stdlib", f"{LATIN}/task.yaml"]))


def test_a_working_directory_that_is_not_utf8_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / LATIN
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=r"^the working directory .* is not UTF-8"):
        read_request(asked(), "stdlib")


def test_a_home_is_put_in_for_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell does where the sign begins a word, and not in --storage-path=~/runs."""
    monkeypatch.setenv("HOME", "/home/me")
    places = StorePaths(Path("/home/me/work"))
    assert places.storage_at("~/runs") == Path("/home/me/runs")
    assert places.storage_at("a~/runs") == Path("/home/me/work/a~/runs")
    assert places.tracking_uri("sqlite:///~/x.db") == "sqlite:////home/me/x.db"


@pytest.mark.parametrize(
    ("artifacts", "is_refused"),
    [
        ("runs", True),
        ("runs/copies", True),
        ("linked", True),
        (".", False),
        ("copies", False),
        ("s3://runs", False),
    ],
)
def test_a_copy_among_the_records_is_refused(
    tmp_path: Path, artifacts: str, is_refused: bool
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "runs")
    url = artifacts_url(artifacts, tmp_path)
    paths = SearchPaths(tmp_path / "runs", "s")
    expected: Any = contextlib.nullcontext()
    if is_refused:
        expected = pytest.raises(UsageError, match=r"^`artifacts` .* would mix the copy")
    with expected:
        check_apart(url, paths)
    # A search that is called as the folder of the searches would have its copy there.
    with pytest.raises(UsageError):
        check_apart(str(tmp_path), SearchPaths(tmp_path / "runs", "runs"))


def test_it_is_refused_as_it_is_asked_for_and_as_it_goes_on(tmp_path: Path) -> None:
    place = str(tmp_path)
    with pytest.raises(UsageError, match="mix the copy"):
        read_request(asked(storage_path=place, artifacts=place), "stdlib")
    paths = SearchPaths(tmp_path, "s")
    with pytest.raises(UsageError, match="mix the copy"), prepared(place, paths, print):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["searches"], ["answer", "s"], ["doctor"], ["stop", "s"]])
def test_in_a_folder_that_was_deleted_every_command_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "argv", ["elsa-tune", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == StorageError.exit_status
    assert capsys.readouterr().err == (
        "elsa-tune: the folder that you are in was deleted; go to one that is there by `cd`\n"
    )
