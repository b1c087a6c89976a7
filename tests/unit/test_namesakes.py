"""Two people's searches of one name, in one store of records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from elsa_tune.tracking.journal_records import Record, SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.uris import TRACKING_VARIABLE
from tests.conftest import Run
from tests.recorded_search import record, search_started, whole_trial
from tests.table_store import TableStore

ANN = "a" * 32
BOB = "b" * 32
OWNERS = {"ann": ANN, "bob": BOB}
# What the full model has, of each.
QUALITY = {"ann": 0.9, "bob": 0.92}
MODEL_AND_TASK = ("--model", "minilm", "--task", "rte")


def search_of(owner: str, first_seed: int = 0) -> list[Record]:
    """Return the records of a search `two`: the full model and three frozen layers."""
    records: list[Record] = [search_started("two", search_id=OWNERS[owner])]
    quality = QUALITY[owner]
    for frozen, lost in ((0, 0.0), (3, 0.02)):
        for seed in range(first_seed, first_seed + 2):
            records += whole_trial(f"measure-N{frozen}-s{seed}", quality - lost, "two")
    return [*records, SearchEnded(status=SearchStatus.COMPLETED)]


def recorded(store: TableStore, folder: Path, records: list[Record]) -> None:
    """Record a search `two` under the working directory of its owner."""
    paths = SearchPaths(StorePaths(folder).storage, "two")
    assert record(paths, records, store) == 0


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableStore:
    """Return a store of two searches `two` with the same seeds, and work beside it."""
    store = TableStore(f"records://{tmp_path}/records.db")
    for owner in OWNERS:
        recorded(store, tmp_path / owner, search_of(owner))
    monkeypatch.setenv(TRACKING_VARIABLE, store.uri)
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    return store


def full_model(run: Run, *words: object) -> float:
    """Return the full model's quality in the one answer to a command."""
    found = run("answer", *words, "--format", "json")
    assert found.status == 0, found.err
    [answer] = json.loads(found.out)
    curve: list[Mapping[str, float]] = answer["curve"]
    return curve[0]["quality"]


@pytest.mark.parametrize("owner", OWNERS)
def test_in_its_folder_a_name_means_the_folders_own(
    run: Run, store: TableStore, tmp_path: Path, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / owner)
    own = pytest.approx(QUALITY[owner])
    assert full_model(run) == own
    assert full_model(run, "two") == own
    assert full_model(run, "two", "--tracking-uri", store.uri) == own
    # Of tasks that have nothing, too, for which the complete store is read.
    more = (*MODEL_AND_TASK, "--task", "cola", "--tracking-uri", store.uri)
    assert full_model(run, "two", *more) == own
    for command in ("compare", "curve"):
        assert run(command, "two").status == 0
    watched = run("watch", "two", "--tracking-uri", store.uri)
    assert watched.status != 2 and "search 'two': completed" in watched.err
    assert run("report", "two", "--out", tmp_path / "report").status == 0


def test_elsewhere_a_name_that_two_searches_have_is_refused_and_an_id_is_answered(
    run: Run, store: TableStore, tmp_path: Path
) -> None:
    for command in ("answer", "compare", "curve", "watch"):
        refused = run(command, "two")
        assert refused.status == 2
        said = refused.err[refused.err.index("2 searches in the record are named 'two'") :]
        assert "by its id, in place of the name" in said
        lines = said.splitlines()[1:]
        for line, (owner, search_id) in zip(lines, OWNERS.items(), strict=True):
            assert line.startswith(f"  {search_id}: minilm on rte, begun 20")
            assert line.endswith(f", lab3, 2 cores, {StorePaths(tmp_path / owner).storage}/two")
    for owner, search_id in OWNERS.items():
        assert full_model(run, search_id) == pytest.approx(QUALITY[owner])
        assert full_model(run, "--search", search_id) == pytest.approx(QUALITY[owner])
        watched = run("watch", search_id)
        assert watched.status != 2 and "search 'two': completed" in watched.err


def test_asked_by_model_and_task_they_are_told_apart_by_their_ids(
    run: Run, store: TableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "bob")
    refused = run("answer", *MODEL_AND_TASK)
    assert refused.status == 2 and "choose one with --search ID" in refused.err
    for search_id in OWNERS.values():
        assert f"two (ID {search_id}): 4 measuring rows; same recipe, and seeds" in refused.err
    assert full_model(run, *MODEL_AND_TASK, "--search", ANN) == pytest.approx(QUALITY["ann"])


def test_only_unlike_seeds_of_both_are_pooled_and_a_table_keeps_them_apart(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TableStore(f"records://{tmp_path}/records.db")
    recorded(store, tmp_path / "ann", search_of("ann"))
    recorded(store, tmp_path / "bob", search_of("bob", first_seed=7))
    monkeypatch.setenv(TRACKING_VARIABLE, store.uri)
    monkeypatch.chdir(tmp_path / "bob")
    assert full_model(run, "two") == pytest.approx(QUALITY["bob"])
    together = pytest.approx((QUALITY["ann"] + QUALITY["bob"]) / 2)
    assert full_model(run, *MODEL_AND_TASK) == together
    assert run("report", *MODEL_AND_TASK, "--out", tmp_path / "report").status == 0
    table = tmp_path / "report" / "trials.csv"
    for ask in (MODEL_AND_TASK, ("--from", table)):
        found = run("answer", *ask, "--details")
        assert "pooled from 2 searches: two, two" in found.out
        assert "elsa-tune export" not in found.out  # there is no one search of both


def test_a_search_that_has_begun_no_trial_is_not_answered_by_its_namesake(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TableStore(f"records://{tmp_path}/records.db")
    recorded(store, tmp_path / "ann", search_of("ann"))
    recorded(store, tmp_path / "bob", [search_started("two", search_id=BOB)])
    monkeypatch.setenv(TRACKING_VARIABLE, store.uri)
    monkeypatch.chdir(tmp_path / "bob")
    for more in ((), ("--tracking-uri", store.uri)):
        found = run("answer", "two", *more)
        assert found.status != 0 and "Fine-tune" not in found.out


def test_the_list_tells_what_two_of_one_name_are(
    run: Run, store: TableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = run("searches")
    assert listed.status == 0
    header, later, earlier = listed.out.splitlines()
    assert header.split()[:3] == ["name", "search", "id"]
    assert later.split()[:2] == ["two", BOB] and earlier.split()[:2] == ["two", ANN]
    assert "2 searches are named 'two':" in listed.err
    for owner, search_id in OWNERS.items():
        assert f"  {search_id}: minilm on rte, begun 20" in listed.err
        assert f"{StorePaths(tmp_path / owner).storage}/two" in listed.err
    assert f"Next: elsa-tune answer {BOB}" in listed.err
    # In a folder of one of them, its name is enough for that one.
    monkeypatch.chdir(tmp_path / "bob")
    commands = [row["next"] for row in json.loads(run("searches", "--format", "json").out)]
    assert commands == ["elsa-tune answer two", f"elsa-tune answer {ANN}"]


def test_what_is_deleted_is_the_folders_own(
    run: Run, store: TableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [anns, _] = store.searches()
    monkeypatch.chdir(tmp_path / "else")
    assert run("searches", "--delete", "two").status == 2  # of no folder here
    assert run("searches", "--delete", ANN).status == 2
    monkeypatch.chdir(tmp_path / "bob")
    assert run("searches", "--delete", "two").status == 0
    assert store.searches() == [anns]
    assert StorePaths(tmp_path / "ann").storage.joinpath("two", "journal.jsonl").exists()
