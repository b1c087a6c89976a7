"""`elsa-tune searches --delete`: what goes with a search, and what is not its own to delete."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from elsa_tune.cli.app import main
from elsa_tune.errors import StorageError
from elsa_tune.searching.specification import save_specification
from elsa_tune.tracking.artifacts import lease
from elsa_tune.tracking.artifacts.copier import copies_of
from elsa_tune.tracking.artifacts.fetching import fetch
from elsa_tune.tracking.deletion import delete_search
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from tests.recorded_search import search_started, whole_search
from tests.table_store import TableStore
from tests.unit.search_examples import make_spec

NO_STORE = "sqlite:////nowhere/mlflow.db"


def recorded(
    storage: Path, tracking_uri: str = NO_STORE, artifacts: Path | None = None
) -> SearchPaths:
    """Record a search, and copy it where it is to have a copy."""
    paths = SearchPaths(storage, "mine")
    started = search_started("mine")
    spec = make_spec(
        name="mine",
        search_id=started.search_id,
        tracking_uri=tracking_uri,
        artifacts=None if artifacts is None else str(artifacts),
    )
    save_specification(spec, paths)
    go_on(paths, artifacts)
    return paths


def go_on(paths: SearchPaths, artifacts: Path | None) -> None:
    """Write one more session into a search's journal, and copy that."""
    url = None if artifacts is None else str(artifacts)
    search_id = search_started("mine").search_id
    with Journal(paths.journal, search_id) as journal:
        copies = copies_of(url, paths, print, journal.is_taken)
        for record in (search_started("mine"), SearchEnded(status=SearchStatus.COMPLETED)):
            copies.offer(journal.append(record))
        assert copies.close() == ""


def files_in(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("is_in_environment", [False, True])
def test_the_runs_are_deleted_in_the_store_that_the_search_has(
    is_in_environment: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wherever it was asked to record, as `resume` goes on there."""
    monkeypatch.chdir(tmp_path)
    if is_in_environment:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", NO_STORE)
    store = TableStore(f"records://{tmp_path}/team/records.db")
    (tmp_path / "team").mkdir()
    paths = recorded(StorePaths(tmp_path).storage, store.uri)
    store.sink(paths.journal).send(list(whole_search("mine", 1)))
    assert len(store.searches()) == 1
    monkeypatch.setattr(sys, "argv", ["elsa-tune", "searches", "--delete", "mine"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert store.searches() == [] and not paths.folder.exists()
    assert f" {store.name} runs" in capsys.readouterr().err


def test_the_copy_goes_with_the_search(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    paths = recorded(tmp_path / "here", artifacts=copy)
    assert "mine/search.json" in files_in(copy)
    delete_search(paths.storage, "mine", NO_STORE)
    assert files_in(copy) == set() and not paths.folder.exists()


def test_other_files_in_the_place_of_the_copy_stay(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    paths = recorded(tmp_path / "here", artifacts=copy)
    kept = {"mine/notes/thesis.txt", "mine/journal/readme.md", "mine/train.tsv"}
    for name in kept:
        file = copy / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("the user's own")
    delete_search(paths.storage, "mine", NO_STORE)
    assert files_in(copy) == kept and not paths.folder.exists()


def test_where_a_search_has_no_copy_nothing_is_deleted(tmp_path: Path) -> None:
    """Whoever made its search.json may have named any folder."""
    paths = recorded(tmp_path / "here")
    named = json.loads(paths.specification.read_text()) | {"artifacts": str(tmp_path / "home")}
    paths.specification.write_text(json.dumps(named))
    file = tmp_path / "home" / "mine" / "checkpoints" / "best.safetensors"
    file.parent.mkdir(parents=True)
    file.write_text("the user's own")
    delete_search(paths.storage, "mine", NO_STORE)
    assert file.exists() and not paths.folder.exists()


def test_a_deletion_of_a_copy_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    paths = recorded(tmp_path / "here", artifacts=copy)
    (copy / "mine" / "search.json").unlink()
    assert files_in(copy)
    delete_search(paths.storage, "mine", NO_STORE)
    assert files_in(copy) == set() and not paths.folder.exists()


def test_a_copy_with_records_of_another_machine_stays_and_so_does_the_folder(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "copy"
    here = recorded(tmp_path / "here", artifacts=copy)
    there = SearchPaths(tmp_path / "there", "mine")
    fetch(str(copy), there, print)
    go_on(there, copy)
    before = files_in(copy)
    with pytest.raises(StorageError, match="another driver went on with it; so the copy of"):
        delete_search(here.storage, "mine", NO_STORE)
    assert files_in(copy) == before and here.exists


def test_a_copy_that_a_driver_elsewhere_writes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_LOOK_S", 0.05)
    copy = tmp_path / "copy"
    paths = recorded(tmp_path / "here", artifacts=copy)

    def write_note(_: str = "") -> None:
        note = {"driver": "theirs", "host": "far-away", "process": 7, "time": time.time()}
        (copy / "mine" / "lease.json").write_text(json.dumps(note))

    write_note()
    before = files_in(copy)
    with pytest.raises(StorageError, match="is running: process 7 on far-away"):
        delete_search(paths.storage, "mine", NO_STORE, say=write_note)
    assert files_in(copy) == before and paths.exists


def test_a_copy_of_another_search_stays_and_the_folder_goes(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    paths = recorded(tmp_path / "here", artifacts=copy)
    (copy / "mine" / "search.json").write_text(json.dumps({"search_id": "another"}))
    before = files_in(copy)
    said: list[str] = []
    delete_search(paths.storage, "mine", NO_STORE, said.append)
    assert files_in(copy) == before and not paths.folder.exists()
    assert said == [f"`artifacts` {copy} has another search named 'mine', which stays"]
