"""What a search looks like in MLflow, and that the same comes back as rows."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow.entities import ViewType
from mlflow.tracking import MlflowClient

from elsa_tune.errors import ResultsError, StorageError, TrackingError
from elsa_tune.searching.planning.plan import trials_in_all
from elsa_tune.searching.specification import save_specification
from elsa_tune.sources.record import list_searches
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.deletion import delete_search
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    Report,
    SearchEnded,
    SearchStatus,
    TrialEnded,
)
from elsa_tune.tracking.mlflow import reader as mlflow_reader
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.names import TRIALS_DONE_TAG
from elsa_tune.tracking.mlflow.reader import read_overview, read_searches
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.mlflow.writer import MlflowWriter
from elsa_tune.tracking.params import read_params
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from tests.conftest import Run
from tests.recorded_search import (
    answered,
    journal_rows,
    probed,
    record,
    report,
    search_started,
    store_rows,
    store_runs,
    trial_ended,
    trial_started,
    whole_search,
    whole_trial,
)
from tests.unit.search_examples import make_spec
from tests.unit.test_recorded_trial import recorded

A, B, C, D, E = (f"measure-N{depth}-s{depth}" for depth in range(5))


def client_of(places: StorePaths) -> MlflowClient:
    return MlflowClient(places.tracking_uri())


def runs_in(places: StorePaths, task: str = "rte") -> dict[str, object]:
    """MLflow's own view: the trial's key, or the search's name -> run."""
    client = client_of(places)
    experiment = client.get_experiment_by_name(f"elsa-tune/{task}")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    found = {run.data.tags.get("elsa_tune.trial", run.info.run_name): run for run in runs}
    assert len(found) == len({run.info.run_name for run in runs}) == len(runs)
    return found


def every_status() -> list[Record]:
    """Return a search with a trial for every way to end, one of them restarted."""
    return [
        search_started(),
        *whole_trial(A, 0.8),
        trial_started(B),
        report(B, 1, 0.5),
        trial_ended(B, TrialStatus.STOPPED_EARLY, 0.5),
        trial_started(C),
        TrialEnded(trial=C, status=TrialStatus.DIVERGED, message="the loss is not finite"),
        trial_started(D),
        report(D, 1, 0.6),
        report(D, 2, 0.7),
        SearchEnded(status=SearchStatus.INTERRUPTED, message="Ctrl-C"),
        search_started(attempt=2),
        trial_started(D, attempt=2, batch_size=8),
        report(D, 1, 0.4, attempt=2),
        trial_started(E),
        TrialEnded(trial=E, status=TrialStatus.FAILED, message="no memory"),
        Decision(what="learning rate: N=3", value={"rate": 3e-05}),
        SearchEnded(status=SearchStatus.TIME_UP, message="2 h"),
    ]


def test_runs_params_metrics_and_tags(places: StorePaths, store: MlflowStore) -> None:
    paths = SearchPaths(places.storage, "first")
    paths.predictions.mkdir(parents=True)
    np.savez_compressed(paths.predictions / f"{A}.npz", predictions=np.arange(5))
    records = [
        dataclasses.replace(entry, artifact=f"predictions/{A}.npz")
        if isinstance(entry, TrialEnded) and entry.trial == A
        else entry
        for entry in every_status()
    ]
    assert record(paths, records, store) == 0
    runs = runs_in(places)
    assert set(runs) == {"first", A, B, C, D, E}
    parent = runs["first"]
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["status"] == "time_up" and parent.data.tags["attempt"] == "2"
    assert parent.data.tags["decision.learning rate: N_3"] == '{"rate": 3e-05}'
    assert parent.data.params["model"] == "minilm"
    statuses = {name: (run.info.status, run.data.tags["status"]) for name, run in runs.items()}
    assert statuses == {
        "first": ("FINISHED", "time_up"),
        A: ("FINISHED", "completed"),
        B: ("FINISHED", "stopped_early"),
        C: ("FAILED", "diverged"),
        D: ("KILLED", "interrupted"),
        E: ("FAILED", "failed"),
    }
    child = runs[A]
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert child.data.tags["node"] == "node-1"
    assert child.data.tags["notes"] == "micro-batches of 8"
    assert child.data.params["embeddings_frozen"] == "false"
    assert child.data.params["train_size"] == "none"
    assert child.data.params["learning_rate"] == "3e-05"
    assert child.data.metrics["quality"] == 0.8
    # One number has one name, and `epoch` is no chart.
    assert not {"trial_quality", "accuracy", "epoch"} & child.data.metrics.keys()
    names = {name: run.info.run_name for name, run in runs.items()}
    assert names[A] == "N0 3e-5 s0" and names[B] == "N1 3e-5 s1, stopped early"
    assert names[C].endswith(", diverged") and names[E].endswith(", failed")
    history = client_of(places).get_metric_history(child.info.run_id, "quality")
    assert [point.step for point in history] == [100, 200, 300]
    assert child.info.end_time > child.info.start_time
    assert runs[C].data.tags["message"] == "the loss is not finite"
    # A param cannot change in MLflow: the second attempt's stands in a tag.
    assert runs[D].data.params["batch_size"] == "16"
    assert runs[D].data.tags["param.batch_size"] == "8" and runs[D].data.tags["attempt"] == "2"
    # The file is where the artifact root is, and whole.
    found = list(places.artifact_root.rglob("*.npz"))
    assert [file.name for file in found] == [f"{A}.npz"]
    assert np.load(found[0])["predictions"].tolist() == [0, 1, 2, 3, 4]


def test_a_message_of_an_earlier_attempt_does_not_stay(
    places: StorePaths, store: MlflowStore
) -> None:
    records: list[Record] = [
        search_started(),
        trial_started(C),
        TrialEnded(trial=C, status=TrialStatus.FAILED, message="no memory"),
        SearchEnded(status=SearchStatus.FAILED, message="1 trial failed"),
        search_started(attempt=2),
        trial_started(C, attempt=2),
        report(C, 1, 0.4, attempt=2),
        TrialEnded(trial=C, attempt=2, status=TrialStatus.COMPLETED, metrics={"quality": 0.4}),
        SearchEnded(status=SearchStatus.COMPLETED),
    ]
    assert record(SearchPaths(places.storage, "first"), records, store) == 0
    tags = {name: run.data.tags for name, run in runs_in(places).items()}
    assert {tags[name]["status"] for name in ("first", C)} == {"completed"}
    assert not tags["first"].get("message") and not tags[C].get("message")


def test_the_quality_of_an_earlier_attempt_does_not_stay(
    places: StorePaths, store: MlflowStore
) -> None:
    """The selection chose an evaluation before the first attempt's last, and then the last."""
    interrupted, completed = TrialStatus.INTERRUPTED, TrialStatus.COMPLETED
    records: list[Record] = [
        search_started(),
        trial_started(A),
        report(A, 1, 0.7),
        report(A, 2, 0.6),
        TrialEnded(trial=A, status=interrupted, metrics={"quality": 0.7}),
        SearchEnded(status=SearchStatus.INTERRUPTED),
        search_started(attempt=2),
        trial_started(A, attempt=2),
        report(A, 3, 0.8, attempt=2),
        TrialEnded(trial=A, attempt=2, status=completed, metrics={"quality": 0.8}),
        SearchEnded(status=SearchStatus.COMPLETED),
    ]
    assert record(SearchPaths(places.storage, "first"), records, store) == 0
    metrics = runs_in(places)[A].data.metrics
    assert (metrics["quality"], metrics["trial_quality"]) == (0.8, 0.8)


@pytest.mark.parametrize("end", ["ended", "driver lives", "driver died"])
def test_journal_and_store_give_the_same_rows(
    places: StorePaths, store: MlflowStore, end: str
) -> None:
    records = every_status()[: None if end == "ended" else -3]
    paths = SearchPaths(places.storage, "first")
    uri = places.tracking_uri()
    record(paths, records, store)
    if end == "driver lives":
        with Journal(paths.journal):
            rows, written = store_rows(uri), journal_rows(paths.journal)
    else:
        rows, written = store_rows(uri), journal_rows(paths.journal)
    assert rows == written
    by_seed = {row.seed: row for row in rows}
    assert [row.seed for row in rows][:4] == [0, 1, 2, 3]
    expected = TrialStatus.RUNNING if end == "driver lives" else TrialStatus.INTERRUPTED
    assert by_seed[3].status is expected
    # The second attempt's only evaluation, though the first one got further.
    assert by_seed[3].quality == 0.4
    full = by_seed[0]
    assert (full.quality, full.epochs) == (0.8, 3)
    assert (full.layers, full.candidate.label, full.train_size) == (6, "0", None)
    assert (full.chance, full.train_seconds) == (146 / 277, 12.25)
    assert full.trainable_parameters == 22713216 and full.learning_rate == 3e-05
    assert str(full.comparison) == "weights 53aa51, batch 16" and full.search == "first"
    assert by_seed[2].quality is None and by_seed[2].status is TrialStatus.DIVERGED


def test_rows_by_task_and_search(places: StorePaths, store: MlflowStore) -> None:
    record(SearchPaths(places.storage, "first"), list(whole_search("first", 2)), store)
    record(SearchPaths(places.storage, "second"), list(whole_search("second", 3)), store)
    uri = places.tracking_uri()
    assert len(store_rows(uri)) == 5
    assert {row.search for row in store_rows(uri, search="second")} == {"second"}
    assert len(store_rows(uri, tasks=["rte", "cola"], search="first")) == 2
    assert store_rows(uri, tasks=["cola"]) == []
    assert store_rows(uri, search="it's") == []


def test_replaying_a_whole_journal_changes_nothing(places: StorePaths, store: MlflowStore) -> None:
    paths = SearchPaths(places.storage, "first")
    record(paths, every_status(), store)
    before = dump(places.database)
    paths.forwarded.unlink()
    assert record(paths, [], MlflowStore(store.uri)) == 0
    assert dump(places.database) == before


def dump(database: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of the tables that the record fills."""
    with sqlite3.connect(database) as connection:
        tables = {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in ("runs", "params", "metrics", "latest_metrics", "tags", "experiments")
        }
    connection.close()
    return tables


@pytest.mark.parametrize("cut", [SearchStatus.INTERRUPTED, SearchStatus.TIME_UP])
def test_the_search_s_run_has_its_freeze_curve(
    places: StorePaths, store: MlflowStore, cut: SearchStatus
) -> None:
    """Once, of the complete search: what was measured by then would stay beside it."""
    paths = SearchPaths(places.storage, "first")
    curve = [
        {"frozen_layers": n, "embeddings_frozen": n > 0, "quality": q, "seeds": 2}
        | {"retention": q and q / 0.9, "corrected_retention": None}
        for n, q in ((0, 0.9), (3, 0.8), (6, None))
    ]
    emptied = {"frozen_layers": 0, "embeddings_frozen": True, "quality": 0.7, "seeds": 2}
    curve.append(emptied | {"retention": 0.7, "corrected_retention": 0.6})
    answer = {"curve": curve, "certified": None, "operating_point": {"fine_tuned_layers": 3}}
    earlier = {**answer, "curve": curve[:1], "operating_point": {"fine_tuned_layers": 6}}
    (paths.report / "figures").mkdir(parents=True)
    (paths.report / "figures" / "freeze_curve.png").write_bytes(b"a picture")
    records = [
        search_started(),
        Decision(what="answer", value=[earlier]),
        SearchEnded(status=cut),
        search_started(attempt=2),
        Decision(what="answer", value=[answer]),
        Decision(what="description", value="3 of 6 layers"),
        SearchEnded(status=SearchStatus.COMPLETED),
        Decision(what="report", value="report"),
    ]
    assert record(paths, records, store) == 0
    parent, client = runs_in(places)["first"], client_of(places)
    shown = {
        name: [
            (point.step, point.value)
            for point in client.get_metric_history(parent.info.run_id, name)
        ]
        for name in parent.data.metrics
    }
    assert shown == {
        "quality": [(0, 0.9), (3, 0.8)],
        "kept": [(0, 1.0), (3, 0.8 / 0.9)],
        "seeds": [(0, 2.0), (3, 2.0)],
        "fine_tuned_layers": [(0, 3.0)],
    }
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("3 of 6 layers") and f"run_uuid={parent.info.run_id}" in note
    [data] = parent.inputs.dataset_inputs
    assert data.dataset.name == "rte"
    experiment = client.get_experiment_by_name("elsa-tune/rte")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_complete_search_that_goes_on_adds_what_has_changed_of_its_curve(
    places: StorePaths, store: MlflowStore
) -> None:
    paths = SearchPaths(places.storage, "first")
    full, deep = (
        {"frozen_layers": n, "embeddings_frozen": n > 0, "quality": q, "seeds": 2}
        | {"retention": q / 0.9, "corrected_retention": None}
        for n, q in ((0, 0.9), (3, 0.8))
    )
    answer = {"certified": None, "operating_point": {"fine_tuned_layers": 3}}
    more = {**deep, "quality": 0.81, "seeds": 3}
    records: list[Record] = []
    for attempt, curve in enumerate(([full, deep], [full, deep], [full, more]), start=1):
        records += [
            search_started(attempt=attempt),
            Decision(what="answer", value=[{**answer, "curve": curve}]),
            SearchEnded(status=SearchStatus.COMPLETED),
        ]
    assert record(paths, records, store) == 0
    parent, client = runs_in(places)["first"], client_of(places)
    shown = {}
    for name in parent.data.metrics:
        history = client.get_metric_history(parent.info.run_id, name)
        shown[name] = [(point.step, point.value) for point in history]
    assert shown == {
        "quality": [(0, 0.9), (3, 0.8), (3, 0.81)],
        "kept": [(0, 1.0), (3, 0.8 / 0.9)],
        "seeds": [(0, 2.0), (3, 2.0), (3, 3.0)],
        "fine_tuned_layers": [(0, 3.0)],
    }


@pytest.mark.parametrize("written", [None, "index.html"])
def test_a_description_links_no_figure_that_was_not_logged(
    places: StorePaths, store: MlflowStore, written: str | None
) -> None:
    """Neither where the report lacks one, nor where the report did not reach the store."""
    paths = SearchPaths(places.storage, "first")
    if written is not None:
        paths.report.mkdir(parents=True)
        (paths.report / written).write_text("a page")
    records = [
        search_started(),
        Decision(what="description", value="3 of 6 layers"),
        SearchEnded(status=SearchStatus.COMPLETED),
        Decision(what="report", value="report"),
    ]
    assert record(paths, records, store) == 0
    assert runs_in(places)["first"].data.tags["mlflow.note.content"] == "3 of 6 layers"


def test_an_answer_is_read_from_the_lists_of_runs_and_experiments(
    places: StorePaths, store: MlflowStore
) -> None:
    record(SearchPaths(places.storage, "first"), answered("first", 4, 0.998), store)
    record(SearchPaths(places.storage, "second"), answered("second", 2, 0.93), store)
    client = client_of(places)
    # Nobody made an experiment called Default.
    [experiment] = client.search_experiments(view_type=ViewType.ACTIVE_ONLY)
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.run_name for run in runs] == [
        "2 of 6, 93.0 %: second",
        "4 of 6, 99.8 %: first",
    ]
    shown = {name: runs[1].data.tags[name] for name in ("k", "kept", "certified", "rate")}
    assert shown == {"k": "4 of 6", "kept": "99.8 %", "certified": "yes, raw", "rate": "1e-4"}
    note = experiment.tags["mlflow.note.content"].splitlines()
    assert note[0] == "k 2 of 6; kept 93.0 %; certified yes, raw; rate 1e-4 (search second)"
    assert "| first | minilm | 4 of 6 | 99.8 % | yes, raw | 1e-4 | - |" in note
    # A saved view has the same columns and that of ways, as MLflow's own page reads it.
    view = json.loads(experiment.tags["mlflow.sharedViewState.elsa-tune"])
    columns = json.loads(view["state"])["selectedColumns"]
    assert columns == ["params.`model`", *(f"tags.`{name}`" for name in (*shown, "way"))]
    # It says no more of a search that is deleted.
    delete_search(places.storage, "second", places.tracking_uri())
    left = client.get_experiment(experiment.experiment_id).tags["mlflow.note.content"]
    assert "second" not in left and left.startswith("k 4 of 6")


def test_a_search_without_depths_shows_its_way(places: StorePaths, store: MlflowStore) -> None:
    answer = {"layers": 6, "reason": "no_frozen_depth", "recommendation": {"action": "wait"}}
    records = [
        search_started(),
        Decision(what="answer", value=[answer]),
        Decision(what="comparison", value=[{"layers": 6, "recommended": {"label": "lora"}}]),
        SearchEnded(status=SearchStatus.COMPLETED),
    ]
    record(SearchPaths(places.storage, "first"), records, store)
    client = client_of(places)
    [experiment] = client.search_experiments(view_type=ViewType.ACTIVE_ONLY)
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "lora: first"
    assert (run.data.tags["k"], run.data.tags["way"]) == ("-", "lora")
    note = experiment.tags["mlflow.note.content"].splitlines()
    assert note[0] == "way lora (search first)"
    assert "| first | minilm | - | - | - | - | lora |" in note


@pytest.mark.parametrize(
    ("status", "first"),
    [
        (SearchStatus.INTERRUPTED, "k 4 of 6"),
        (SearchStatus.COMPLETED, "k no answer (search second)"),
    ],
)
def test_no_answer_is_one_where_the_search_is_complete(
    places: StorePaths, store: MlflowStore, status: SearchStatus, first: str
) -> None:
    record(SearchPaths(places.storage, "first"), answered("first", 4, 0.998), store)
    nothing = {"layers": 6, "recommendation": {"action": "wait"}}
    records = [
        search_started("second"),
        Decision(what="answer", value=[nothing]),
        SearchEnded(status=status),
    ]
    record(SearchPaths(places.storage, "second"), records, store)
    [experiment] = client_of(places).search_experiments(view_type=ViewType.ACTIVE_ONLY)
    assert experiment.tags["mlflow.note.content"].startswith(first)


def test_a_description_that_somebody_wrote_stays(places: StorePaths, store: MlflowStore) -> None:
    record(SearchPaths(places.storage, "first"), answered("first", 4, 0.998), store)
    client = client_of(places)
    experiment = client.get_experiment_by_name("elsa-tune/rte").experiment_id
    client.set_experiment_tag(experiment, "mlflow.note.content", "ours, for the paper")
    record(SearchPaths(places.storage, "second"), answered("second", 2, 0.93), store)
    tags = client.get_experiment(experiment).tags
    assert tags["mlflow.note.content"] == "ours, for the paper"


def test_the_default_experiment_of_a_store_that_was_there_stays(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/theirs.db"
    theirs = MlflowClient(uri)
    theirs.create_experiment("theirs")
    MlflowStore(uri).initialise()
    assert {one.name for one in theirs.search_experiments()} == {"Default", "theirs"}


def test_an_experiment_of_an_earlier_version_gets_the_view(
    places: StorePaths, store: MlflowStore
) -> None:
    store.initialise()
    client = client_of(places)
    experiment = client.create_experiment("elsa-tune/rte")
    record(SearchPaths(places.storage, "first"), answered("first", 4, 0.998), store)
    assert "mlflow.sharedViewState.elsa-tune" in client.get_experiment(experiment).tags


def test_more_than_one_request_takes(places: StorePaths, store: MlflowStore) -> None:
    search = dataclasses.replace(search_started(), time=1.0)
    trial = trial_started(A, **{f"p{number}": number for number in range(230)})
    writer = MlflowWriter(store.uri)
    writer.begin_search(search, {})
    writer.begin_trial(search, dataclasses.replace(trial, time=2.0))
    reports = [
        Report(
            trial=A,
            evaluation=step + 1,
            step=step,
            metrics={f"m{index}": float(step) for index in range(50)},
            time=3 + step / 1000,
        )
        for step in range(50)
    ]
    writer.log(search, A, reports, {f"t{number}": "x" * 9000 for number in range(130)})
    run = runs_in(places)[A]
    assert run.data.params["p229"] == "229"
    assert run.data.metrics["m49"] == 49.0
    assert len(run.data.tags["t129"]) == 8000


def test_a_trial_never_gets_two_runs(places: StorePaths, store: MlflowStore) -> None:
    search = dataclasses.replace(search_started(), time=1.0)
    writer = MlflowWriter(store.uri)
    writer.begin_search(search, {})
    trial = dataclasses.replace(trial_started(A), time=2.0)
    writer.begin_trial(search, trial)
    # Another driver, which remembers nothing.
    other = MlflowWriter(store.uri)
    other.begin_search(search, {})
    other.begin_trial(search, trial)
    assert set(runs_in(places)) == {"first", A}


def test_a_trial_that_a_journal_lost_does_not_stay_running(
    places: StorePaths, store: MlflowStore, tmp_path: Path
) -> None:
    """A journal that comes from a copy lacks what its driver recorded last."""
    kept: list[Record] = [search_started(), *whole_trial(A, 0.8)]
    lost = [trial_started(B), report(B, 1, 0.5), trial_started(C), report(C, 1, 0.6)]
    for place, records in (
        (places.storage, [*kept, *lost]),
        (tmp_path, [*kept, search_started(attempt=2), *whole_trial(B, 0.7)]),
    ):
        paths = SearchPaths(place, "first")
        with Journal(paths.journal) as journal:
            for one in records:
                journal.append(one)
            assert Forwarder(paths, store.sink(paths.journal)).start().finish() == 0
    status = {key: run.info.status for key, run in runs_in(places).items()}
    assert status == {"first": "RUNNING", A: "FINISHED", B: "FINISHED", C: "KILLED"}


class LostAnswers(MlflowClient):
    """The server makes the run, but its answer is lost on the way."""

    def create_run(self, *arguments: object, **named: object) -> object:
        super().create_run(*arguments, **named)
        raise ConnectionError("the answer was lost")


def test_a_run_whose_creation_was_not_answered_is_found(
    places: StorePaths, store: MlflowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = dataclasses.replace(search_started(), time=1.0)
    writer = MlflowWriter(store.uri)
    writer.begin_search(search, {})
    lossy = LostAnswers(store.uri)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowConnection, "client", lambda self: lossy)
        with pytest.raises(ConnectionError):
            writer.begin_trial(search, dataclasses.replace(trial_started(A), time=2.0))
    writer.begin_trial(search, dataclasses.replace(trial_started(A), time=2.0))
    runs = runs_in(places)
    assert set(runs) == {"first", A}
    assert runs[A].data.params["seed"] == "0"


def test_a_second_run_that_a_slow_server_made_is_removed_at_the_end(
    places: StorePaths, store: MlflowStore
) -> None:
    search = dataclasses.replace(search_started(), time=1.0)
    writer = MlflowWriter(store.uri)
    writer.begin_search(search, {})
    writer.begin_trial(search, dataclasses.replace(trial_started(A), time=2.0))
    kept = runs_in(places)[A]
    tags = {name: kept.data.tags[name] for name in kept.data.tags if name.startswith("elsa_tune")}
    client_of(places).create_run(kept.info.experiment_id, tags=tags, run_name=A)
    writer.end(search, SearchEnded(status=SearchStatus.COMPLETED, time=3.0))
    assert runs_in(places)[A].info.run_id == kept.info.run_id


def test_a_deleted_experiment_comes_back(places: StorePaths, store: MlflowStore) -> None:
    record(SearchPaths(places.storage, "first"), list(whole_search("first", 1)), store)
    client = client_of(places)
    experiment = client.get_experiment_by_name("elsa-tune/rte")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    assert store_rows(store.uri) == []
    fresh = MlflowStore(store.uri)
    record(SearchPaths(places.storage, "second"), list(whole_search("second", 1)), fresh)
    assert {row.search for row in store_rows(store.uri)} == {"first", "second"}


def test_a_folder_of_any_name_holds_a_store(tmp_path: Path, database_template: Path) -> None:
    places = StorePaths(tmp_path / "a b'c#ü")
    places.root.mkdir(parents=True)
    shutil.copyfile(database_template, places.database)
    store = MlflowStore(places.tracking_uri())
    store.check()
    store.initialise()
    paths = SearchPaths(places.storage, "first")
    paths.predictions.mkdir(parents=True)
    (paths.predictions / "a.npz").write_bytes(b"x")
    ended = dataclasses.replace(
        trial_ended(A, TrialStatus.COMPLETED, 0.8), artifact="predictions/a.npz"
    )
    assert record(paths, [search_started(), trial_started(A), ended], store) == 0
    assert len(store_rows(store.uri)) == 1
    assert [file.name for file in places.artifact_root.rglob("*.npz")] == ["a.npz"]


def test_a_store_gives_the_rows_of_the_journal_to_the_last_digit(
    places: StorePaths, store: MlflowStore
) -> None:
    paths, dice = SearchPaths(places.storage, "first"), random.Random(5)
    records: list[Record] = [search_started()]
    for number in range(12):
        quality, key = dice.uniform(-1, 1), f"measure-N{number % 7}-s{number}"
        start = dataclasses.replace(trial_started(key), params=recorded(dice))
        metrics = {"chance": dice.random()} if number % 2 else {}
        records += [start, report(key, 1, quality / 3), report(key, 2, quality, **metrics)]
        records.append(trial_ended(key, TrialStatus.COMPLETED, dice.choice([quality, quality / 3])))
    assert record(paths, records, store) == 0
    assert len(records) == 1 + 4 * 12
    assert store_rows(store.uri) == journal_rows(paths.journal)


def test_a_run_that_lacks_what_a_row_needs_is_named(places: StorePaths, store: MlflowStore) -> None:
    search = dataclasses.replace(search_started(), time=1.0)
    writer = MlflowWriter(store.uri)
    writer.begin_search(search, {})
    broken = dataclasses.replace(
        trial_started(A), time=2.0, params=read_params({"model": "minilm"})
    )
    writer.begin_trial(search, broken)
    with pytest.raises(ResultsError, match=f"trial {A} of search 'first' .*names no candidate"):
        store_rows(store.uri)


def test_a_run_that_has_only_just_begun_is_left_out(places: StorePaths, store: MlflowStore) -> None:
    """Between a run's making and its params a reader may come, or the driver's end."""
    search = dataclasses.replace(search_started(), time=1.0)
    writer = MlflowWriter(store.uri)
    writer.begin_search(search, {})
    writer.begin_trial(
        search, dataclasses.replace(trial_started(A), time=2.0, params=read_params({}))
    )
    assert store_rows(store.uri) == []


# ---- is it there ---------------------------------------------------------------------------------


def test_a_store_that_was_never_made_is_not_made_by_a_question(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match=r"nothing is recorded in .*elsa-tune search"):
        store_rows(StorePaths(tmp_path).tracking_uri())
    assert list(tmp_path.iterdir()) == []


def test_a_uri_that_nothing_answers_is_given_up() -> None:
    """MLflow itself would try for longer than a test may take."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TrackingError, match=r"does not answer .*; start it, .* name another"):
            MlflowStore(closed).check()
        # This one takes the connection and says nothing.
        silent.listen()
        with pytest.raises(TrackingError, match="nothing came within 1 s"):
            MlflowStore(closed).check(timeout_s=1)
        with pytest.raises(TrackingError, match="does not answer"):
            store_rows(f"http://me:secret@127.0.0.1:{free_and_closed()}")


def free_and_closed() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    places = StorePaths(tmp_path)
    places.root.mkdir()
    places.database.write_text("this is a text of more than sixteen letters")
    with pytest.raises(TrackingError, match="not an SQLite file"):
        MlflowStore(places.tracking_uri()).initialise()
    blocked = StorePaths(tmp_path / "mlruns" / "mlflow.db")
    with pytest.raises(TrackingError, match="cannot be written"):
        MlflowStore(blocked.tracking_uri()).initialise()


def test_an_unfinished_search_over_another_schema_is_not_resumed(
    places: StorePaths, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = SearchPaths(places.storage, "first")
    record(paths, every_status()[:-3])
    save_specification(make_spec(tracking_uri=places.tracking_uri()), paths)
    with closing(sqlite3.connect(places.database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    files = (paths.journal, paths.specification, places.database)
    before = [file.read_bytes() for file in files]
    monkeypatch.chdir(places.working_directory)
    refused = run("resume", "first")
    said = refused.err.splitlines()[-1]
    assert refused.status == 2 and "Traceback" not in refused.err
    assert said.startswith("elsa-tune: ") and "made by another version of MLflow; copy it" in said
    assert f"`mlflow db upgrade {places.tracking_uri()}`" in said
    assert [file.read_bytes() for file in files] == before


INITIALISE = """
import os, signal, sys, time
from pathlib import Path
from elsa_tune.locks import is_locked
from elsa_tune.tracking.mlflow.connection import MlflowConnection
connection = MlflowConnection("sqlite:///" + sys.argv[1])
connection.import_mlflow()
database = Path(sys.argv[1])

def child():
    pid = os.fork()
    if pid == 0:
        connection.initialise()
        os._exit(0)
    return pid

killed = child()
while not is_locked(database.with_name(f".{database.name}.lock")):
    time.sleep(0.001)
others = [child(), child()]
os.kill(killed, signal.SIGKILL)  # while it makes the tables, which takes over a second
print([os.waitpid(pid, 0)[1] for pid in (killed, *others)])
"""


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_processes_make_one_schema_and_a_killed_one_leaves_no_half(
    tmp_path: Path, root: Path
) -> None:
    database = tmp_path / "mlruns" / "mlflow.db"
    command = [sys.executable, "-c", INITIALISE, str(database)]
    out = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    assert out == "[9, 0, 0]\n"
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM experiments").fetchone() == (1,)
    connection.close()


# ---- searches ------------------------------------------------------------------------------------


def test_listing_and_deleting(places: StorePaths, store: MlflowStore) -> None:
    uri = places.tracking_uri()
    record(SearchPaths(places.storage, "first"), list(whole_search("first", 4)), store)
    paths = SearchPaths(places.storage, "second")
    record(
        paths, [search_started("second"), *whole_trial(A, 0.5, "second"), trial_started(B)], store
    )
    warnings: list[str] = []
    found = list_searches(places.storage, uri, warnings.append)
    assert [
        (state.search.name, state.status.value, state.trials_done, trials_in_all(*one))
        for one in found
        for state in one[1:]
    ] == [
        ("second", "killed", 1, 4),
        ("first", "completed", 4, 4),
    ]
    assert found[1][1].decisions["answer"][0]["operating_point"] == {"fine_tuned_layers": 3}
    # From elsewhere the store tells the same.
    elsewhere = list_searches(places.storage / "nothing", uri, warnings.append)
    for (folder, one), (there, same) in zip(elsewhere, found, strict=True):
        assert folder is None and there is not None
        assert (one.search.name, one.trials_done, trials_in_all(folder, one)) == (
            same.search.name,
            same.trials_done,
            trials_in_all(there, same),
        )
        assert one.decisions.get("answer") == same.decisions.get("answer")
        assert one.status == same.status
        assert (one.search.model, one.search.task) == ("minilm", "rte")
    assert warnings == []
    with (
        Journal(paths.journal),
        pytest.raises(StorageError, match=r"is running: process .*; wait for it or end it"),
    ):
        delete_search(places.storage, "second", uri)
    assert delete_search(places.storage, "second", uri) == 3
    assert not paths.folder.exists()
    left = list_searches(places.storage, uri, warnings.append)
    assert [state.search.name for _, state in left] == ["first"] and warnings == []
    assert {row.search for row in store_rows(uri)} == {"first"}
    deleted = client_of(places).search_runs(["1"], run_view_type=ViewType.DELETED_ONLY)
    assert len(deleted) == 3
    # The name is free again, and its new runs are new.
    record(paths, list(whole_search("second", 1)), MlflowStore(uri))
    assert len(store_rows(uri, search="second")) == 1


def test_a_list_asks_for_trials_only_where_their_number_is_not_told(
    places: StorePaths, store: MlflowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand runs MLflow needs half a minute."""
    uri, second = places.tracking_uri(), SearchPaths(places.storage, "second")
    record(SearchPaths(places.storage, "first"), [*whole_search("first", 3), *probed(0.5)], store)
    begun = [search_started("second"), *whole_trial(A, 0.5, "second"), trial_started(B)]
    record(second, [*begun, SearchEnded(status=SearchStatus.INTERRUPTED)], store)
    asked: list[str] = []

    def count(client: object, run: Any, search_id: str) -> tuple[int, int]:
        asked.append(run.info.run_name)
        return counted(client, run, search_id)

    counted = mlflow_reader._counted
    monkeypatch.setattr(mlflow_reader, "_counted", count)

    def done() -> list[tuple[str, int]]:
        every = read_searches(uri)
        found = [(one.search.name, one.trials_done) for one in read_overview(uri)]
        assert found == [(one.search.name, one.trials_done) for one in every]
        assert [one.decisions for one in read_overview(uri)] == [one.decisions for one in every]
        running = [one.trials_running for one in read_overview(uri)]
        assert running == [one.trials_running for one in every]
        return found

    assert (done(), asked) == ([("first", 3), ("second", 1)], [])
    # It runs again, and its number is that of before.
    again = dataclasses.replace(search_started("second"), attempt=2)
    record(second, [again, *whole_trial(B, 0.5, "second")], MlflowStore(uri))
    assert done() == [("first", 3), ("second", 2)] and set(asked) == {"second"}
    # As earlier versions recorded it.
    first = store_runs(uri)[""].info.run_id
    client_of(places).delete_tag(first, TRIALS_DONE_TAG)
    assert done() == [("first", 3), ("second", 2)] and set(asked) == {"first", "second"}


def test_deleting_with_a_silent_store_deletes_nothing(places: StorePaths) -> None:
    paths = SearchPaths(places.storage, "first")
    record(paths, list(whole_search("first", 1)))
    with pytest.raises(TrackingError, match="does not answer"):
        delete_search(places.storage, "first", f"http://127.0.0.1:{free_and_closed()}")
    assert paths.exists


@pytest.mark.parametrize("links", [True, False], ids=["linked", "copied"])
def test_a_report_is_kept_with_the_search_and_lies_once(
    places: StorePaths, store: MlflowStore, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:  # as on another file system
        monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError(18, "no link")))
    folder = places.storage / "first" / "report"
    (folder / "figures").mkdir(parents=True)
    search = search_started()
    store.initialise()
    writer = MlflowWriter(store.uri)
    writer.begin_search(search, {})
    for text in ("drawn", "drawn again", "drawn again"):
        for name in ("index.html", "figures/freeze_curve.svg"):
            (folder / "aside").write_text(text)
            (folder / "aside").replace(folder / name)
        writer.add_artifact(search, "", folder)
        (page,) = places.artifact_root.rglob("report/index.html")
        (figure,) = places.artifact_root.rglob("report/figures/freeze_curve.svg")
        assert page.read_text() == figure.read_text() == text
        assert page.samefile(folder / "index.html") is links
    (run,) = MlflowClient(store.uri).search_runs(
        [one.experiment_id for one in MlflowClient(store.uri).search_experiments()]
    )
    listed = MlflowClient(store.uri).list_artifacts(run.info.run_id, "report")
    assert [one.path for one in listed] == ["report/figures", "report/index.html"]


def test_a_report_of_nothing_finite_is_left_out(places: StorePaths, store: MlflowStore) -> None:
    broken = Report(trial=A, evaluation=1, step=5, metrics={"quality": float("nan"), "x": 1.0})
    paths = SearchPaths(places.storage, "first")
    assert record(paths, [search_started(), trial_started(A), broken], store) == 0
    assert runs_in(places)[A].data.metrics == {"x": 1.0, "evaluation": 1.0}
    assert store_rows(store.uri) == journal_rows(paths.journal)
