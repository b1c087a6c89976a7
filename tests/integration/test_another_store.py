"""A search that is recorded in a store of one's own: a file, and a line that registers it."""

from __future__ import annotations

import json
import shutil

import pytest

from elsa_tune import testing
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.search import Asha
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.state import read_state
from tests.conftest import Run
from tests.table_store import TableStore


def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
    return 0.9 - 0.02 * depth.frozen_layers - 1000 * abs(learning_rate - 2e-5)


def test_a_search_is_recorded_in_another_store_and_answered_from_it(
    places: StorePaths, ray: Capacity, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places.working_directory)
    before = places.database.read_bytes()
    uri = f"records://{places.root}/records.db"
    spec = testing.example_spec(asha=Asha(), resources=ray.resources(ray.largest_cpus, 0))
    state = testing.search(spec, quality, places.working_directory, uri)
    paths = SearchPaths(places.storage, spec.name)
    assert state.is_complete
    [kept] = TableStore(uri).searches()
    journalled = read_state(paths.journal)
    assert (kept.trials, kept.decisions) == (journalled.trials, journalled.decisions)
    question = ("operating-point", spec.name, "--format", "json")
    from_journal = run(*question)
    from_store = run(*question, "--tracking-uri", uri)
    assert from_store.status == from_journal.status == 0
    assert json.loads(from_store.out) == json.loads(from_journal.out)
    shutil.rmtree(paths.folder)
    [listed] = json.loads(run("searches", "--tracking-uri", uri, "--format", "json").out)
    assert (listed["name"], listed["status"]) == (spec.name, "completed")
    [with_folder] = json.loads(from_store.out)
    [without_folder] = json.loads(run(*question, "--tracking-uri", uri).out)
    for answer in (with_folder, without_folder):
        del answer["recommendation"]  # a search without a folder has no command to export it
    assert without_folder == with_folder
    shown = run("ui", "--port", "1234", "--tracking-uri", uri)
    assert shown.status == 0 and f"http://127.0.0.1:1234/{spec.name}" in shown.err
    monkeypatch.setattr(TableStore, "has_pages", False)
    refused = run("ui", "--tracking-uri", uri)
    assert refused.status == 2 and "has no pages" in refused.err
    assert places.database.read_bytes() == before
