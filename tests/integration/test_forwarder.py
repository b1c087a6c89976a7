"""From the journal to MLflow: everything arrives, once and in order, whatever happens."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INVALID_PARAMETER_VALUE
from mlflow.tracking import MlflowClient

from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal, read_journal
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    Report,
    SearchEnded,
    SearchStatus,
)
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.store import StoreGoneError
from tests.integration.conftest import Server
from tests.pairs import one_of_each
from tests.recorded_search import (
    journal_rows,
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

# Longer than anything here takes on a busy machine: it only ends a test that hangs.
HANGS_S = 200.0

A, B, C = (f"measure-N{depth}-s{depth}" for depth in range(3))


def until(condition: Callable[[], bool], seconds: float = HANGS_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def run_statuses(uri: str) -> set[str]:
    """In MLflow's words, of all runs of ours."""
    return {run.info.status for run in store_runs(uri).values()}


def check_equal(paths: SearchPaths, uri: str) -> None:
    """Journal and store agree, trial by trial and point by point, and nothing is there twice."""
    assert store_rows(uri, search=paths.name) == journal_rows(paths.journal)
    runs = store_runs(uri, paths.name)
    written: dict[str, list[tuple[int, int, float]]] = {}
    for entry in read_journal(paths.journal):
        if isinstance(entry, Report):
            point = (entry.step, entry.milliseconds, entry.metrics["quality"])
            written.setdefault(entry.trial, []).append(point)
    client = MlflowClient(uri)
    for trial, points in written.items():
        history = client.get_metric_history(runs[trial].info.run_id, "quality")
        assert sorted((p.step, p.timestamp, p.value) for p in history) == sorted(points)


class FaultyClient:
    """MLflow's client, with a fault that strikes before or after a call does its work."""

    def __init__(
        self, client: MlflowClient, fault: Callable[[str, int], None], after: bool
    ) -> None:
        self._client, self._fault, self._after = client, fault, after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if not self._after:
                self._fault(name, self.calls)
            answer = method(*arguments, **named)
            if self._after:
                self._fault(name, self.calls)
            return answer

        return call


@pytest.fixture
def break_client(
    store: MlflowStore, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., FaultyClient]:
    def break_it(fault: Callable[[str, int], None], after: bool = False) -> FaultyClient:
        faulty = FaultyClient(MlflowClient(store.uri), fault, after)
        monkeypatch.setattr(MlflowConnection, "client", lambda self: faulty)
        monkeypatch.setattr("elsa_tune.tracking.forwarder._FIRST_PAUSE_S", 0.001)
        return faulty

    return break_it


LOCKED = MlflowException("(sqlite3.OperationalError) database is locked", 2)
UNREACHABLE = MlflowException("API request failed with exception Max retries exceeded")
FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("error", "after"),
    one_of_each((LOCKED, UNREACHABLE, FULL), (False, True)),
    ids=lambda value: str(value)[:24],
)
def test_a_flaky_store_gets_everything_once(
    places: StorePaths,
    store: MlflowStore,
    break_client: Callable[..., FaultyClient],
    error: Exception,
    after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(0)

    def every_third(_name: str, _number: int) -> None:
        if chance.random() < 1 / 3:
            raise error

    paths = SearchPaths(places.storage, "first")
    faulty = break_client(every_third, after)
    assert record(paths, whole_search("first", 3), store) == 0
    assert faulty.calls > 15
    monkeypatch.undo()
    check_equal(paths, store.uri)
    assert run_statuses(store.uri) == {"FINISHED"}


@pytest.mark.parametrize("good_calls", [2, 30], ids=["at the start", "in the middle"])
def test_a_database_that_fails_over_gets_everything_once(
    places: StorePaths,
    store: MlflowStore,
    break_client: Callable[..., FaultyClient],
    good_calls: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """MLflow gives most errors of its database the code of a bad request."""
    monkeypatch.setattr("elsa_tune.tracking.forwarder._LONGEST_PAUSE_S", 0.001)
    error = MlflowException("cannot execute INSERT in a read-only transaction", BAD_REQUEST)

    def fail_over(_name: str, number: int) -> None:
        if good_calls < number <= good_calls + 100:
            raise error

    paths = SearchPaths(places.storage, "first")
    faulty = break_client(fail_over)
    assert record(paths, whole_search("first", 3), store) == 0
    assert faulty.calls > good_calls + 100
    assert "refuses" not in caplog.text
    monkeypatch.undo()
    check_equal(paths, store.uri)
    assert run_statuses(store.uri) == {"FINISHED"}


def test_the_start_of_a_search_is_not_skipped(
    places: StorePaths, store: MlflowStore, break_client: Callable[..., FaultyClient]
) -> None:
    """Without it the store would take none of the search's records."""
    refusals = 0

    def refuse(name: str, _number: int) -> None:
        nonlocal refusals
        if name == "create_run" and refusals < 5:
            refusals += 1
            raise MlflowException("the tables are being upgraded", INVALID_PARAMETER_VALUE)

    paths = SearchPaths(places.storage, "first")
    break_client(refuse)
    assert record(paths, [search_started(), *whole_trial(A, 0.8)], store) == 0
    assert refusals == 5
    check_equal(paths, store.uri)


def test_offering_never_waits_for_a_slow_store(
    places: StorePaths, store: MlflowStore, break_client: Callable[..., FaultyClient]
) -> None:
    """Whoever waited for this one would wait until the test is ended."""
    released = threading.Event()
    break_client(lambda name, number: released.wait() and None)
    paths = SearchPaths(places.storage, "first")
    with Journal(paths.journal) as journal:
        forwarder = Forwarder(paths, store.sink(paths.journal)).start()
        stamped = [journal.append(entry) for entry in whole_search("first", 20)]
        for entry in stamped:
            forwarder.offer(entry)
        assert forwarder.lag == len(stamped)
        assert forwarder.finish(patience_s=0.3) == len(stamped)  # nothing arrives: it gives up
        # Somebody is in a hurry.
        assert forwarder.finish(lambda: True, patience_s=math.inf) == len(stamped)
        assert forwarder.close(0.3) == len(stamped)
    released.set()
    forwarder._thread.join(HANGS_S)


class Clock:
    """A clock that goes on only when it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        time.sleep(0.005)


def test_a_store_that_takes_records_slowly_gets_all_of_them(
    places: StorePaths,
    store: MlflowStore,
    break_client: Callable[..., FaultyClient],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, limit = Clock(), 1.5
    for module in ("forwarder", "waiting"):
        monkeypatch.setattr(f"elsa_tune.tracking.{module}.time", clock)

    def take_long(name: str, number: int) -> None:
        clock.now += 0.1

    break_client(take_long)
    paths = SearchPaths(places.storage, "first")
    with Journal(paths.journal) as journal:
        for entry in whole_search("first", 4):
            journal.append(entry)
        forwarder = Forwarder(paths, store.sink(paths.journal)).start()
        assert forwarder.finish(patience_s=limit) == 0
        assert clock.now > limit  # which is for a store that takes nothing at all
    check_equal(paths, store.uri)


def test_what_is_offered_twice_is_there_once(places: StorePaths, store: MlflowStore) -> None:
    paths = SearchPaths(places.storage, "first")
    with Journal(paths.journal) as journal:
        records = [journal.append(one) for one in (search_started(), *whole_trial(A, 0.8))]
        forwarder = Forwarder(paths, store.sink(paths.journal)).start()
        for one in records:  # they were in the journal already
            forwarder.offer(one)
        assert forwarder.close(HANGS_S) == 0
    check_equal(paths, store.uri)


@pytest.mark.parametrize("code", [INVALID_PARAMETER_VALUE, BAD_REQUEST])
def test_a_refused_record_does_not_hold_up_the_others(
    places: StorePaths,
    store: MlflowStore,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("elsa_tune.tracking.forwarder._FIRST_PAUSE_S", 0.001)
    real = MlflowClient.log_batch

    def picky(self: MlflowClient, run_id: str, *arguments: Any, **named: Any) -> Any:
        if any(tag.key == "decision.bad" for tag in named.get("tags") or ()):
            raise MlflowException("Invalid value for parameter", code)
        return real(self, run_id, *arguments, **named)

    monkeypatch.setattr(MlflowClient, "log_batch", picky)
    paths = SearchPaths(places.storage, "first")
    bad = Decision(what="bad", value=1)
    records = [search_started(), *whole_trial(A, 0.8), bad, *whole_trial(B, 0.7), bad]
    with Journal(paths.journal) as journal:
        for entry in records:
            journal.append(entry)
        forwarder = Forwarder(paths, store.sink(paths.journal)).start()
        assert forwarder.close(HANGS_S) == 0
    assert caplog.text.count("MLflow refuses a record") == 2
    assert "Invalid value" in caplog.text and '"what":"bad"' in caplog.text
    check_equal(paths, store.uri)


def test_predictions_that_cannot_be_kept_do_not_hold_up_the_others(
    places: StorePaths, store: MlflowStore, caplog: pytest.LogCaptureFixture
) -> None:
    # Where the artifacts should go stands a file; and one trial's predictions are not there at all.
    places.artifact_root.write_text("in the way")
    paths = SearchPaths(places.storage, "first")
    paths.predictions.mkdir(parents=True)
    (paths.predictions / "a.npz").write_bytes(b"x")
    records: list[Record] = [search_started()]
    for trial, file in ((A, "a.npz"), (B, "b.npz")):
        ended = trial_ended(trial, TrialStatus.COMPLETED, 0.5)
        ended = dataclasses.replace(ended, artifact=f"predictions/{file}")
        records += [trial_started(trial), report(trial, 3, 0.5), ended]
    with Journal(paths.journal) as journal:
        for entry in records:
            journal.append(entry)
        forwarder = Forwarder(paths, store.sink(paths.journal)).start()
        assert forwarder.close(HANGS_S) == 1
    assert "did not take their files (" in forwarder.trouble
    assert caplog.text.count("did not reach MLflow") == 2 and "refuses" not in caplog.text
    sent = store_rows(store.uri)
    assert {row.status for row in sent} == {TrialStatus.COMPLETED}
    # The next driver sends it; and the one after that nothing.
    places.artifact_root.unlink()
    forwarder = Forwarder(paths, store.sink(paths.journal))
    assert forwarder.lag == 4
    assert forwarder.start().close(HANGS_S) == 0 and not forwarder.trouble
    [kept] = places.artifact_root.rglob("*.npz")
    assert kept.name == "a.npz" and kept.read_bytes() == b"x"
    assert Forwarder(paths, store.sink(paths.journal)).lag == 0
    assert store_rows(store.uri) == sent


def test_another_store_gets_everything_from_the_beginning(
    places: StorePaths, store: MlflowStore, database_template: Path
) -> None:
    paths = SearchPaths(places.storage, "first")
    records = list(whole_search("first", 2))
    record(paths, records[:5], store)
    other = places.root / "other.db"
    shutil.copyfile(database_template, other)
    record(paths, records[5:], MlflowStore(f"sqlite:///{other}"))
    check_equal(paths, f"sqlite:///{other}")
    assert len(store_rows(store.uri)) == 1


def test_a_watermark_is_believed_only_while_the_store_has_the_search(
    places: StorePaths, store: MlflowStore
) -> None:
    paths = SearchPaths(places.storage, "first")
    assert record(paths, [search_started(), *whole_trial(A, 0.8)], store) == 0
    client = MlflowClient(store.uri)
    for run in store_runs(store.uri).values():
        client.delete_run(run.info.run_id)
    resumed = [search_started(attempt=2), *whole_trial(B, 0.7)]
    assert record(paths, resumed, MlflowStore(store.uri)) == 0
    check_equal(paths, store.uri)


def test_a_store_that_lost_its_runs_is_filled_again(places: StorePaths, store: MlflowStore) -> None:
    paths = SearchPaths(places.storage, "first")
    records = list(whole_search("first", 2))
    record(paths, records[:5], store)
    # Somebody removes the runs for good, as `mlflow gc` does, while the search goes on.
    for run in store_runs(store.uri).values():
        MlflowClient(store.uri)._tracking_client.store._hard_delete_run(run.info.run_id)
    assert store_rows(store.uri) == []
    assert record(paths, records[5:], MlflowStore(store.uri)) == 0
    check_equal(paths, store.uri)


def test_a_folder_that_another_search_has_is_neither_read_nor_written(places: StorePaths) -> None:
    class Sink:
        name = "records"
        uri = "records://host/db"
        loses = True

        def __init__(self) -> None:
            self.taken: list[Record] = []

        def begin_again(self) -> None: ...

        def learn(self, record: Record) -> None: ...

        def send(self, batch: Sequence[Record]) -> None:
            if self.taken and self.loses:
                self.loses = False
                raise StoreGoneError
            self.taken.extend(batch)

        def trouble(self, error: Exception) -> str:
            return ""

    paths = SearchPaths(places.storage, "first")
    sink = Sink()
    with Journal(paths.journal) as journal:
        written = [journal.append(search_started()), journal.append(trial_started(A))]
        shutil.rmtree(paths.folder)
        with Journal(paths.journal) as other:
            other.append(search_started(search_id="another"))
            forwarder = Forwarder(paths, sink, written, journal.is_taken).start()
            assert forwarder.finish() == 0
    assert sink.taken == written and not sink.loses
    assert not paths.forwarded.exists()


def delete_in_the_middle(
    paths: SearchPaths, store: MlflowStore, delete: Callable[[MlflowClient, str], object]
) -> None:
    """Record a search under which somebody deletes something, by the id of a trial that runs."""
    with Journal(paths.journal) as journal:
        forwarder = Forwarder(paths, store.sink(paths.journal)).start()

        def write(*records: Record) -> None:
            for entry in records:
                forwarder.offer(journal.append(entry))

        write(search_started(paths.name), *whole_trial(A, 0.8, paths.name))
        write(trial_started(B, search=paths.name), report(B, 1, 0.5))
        until(lambda: forwarder.lag == 0)
        running = store_runs(store.uri, paths.name)[B]
        delete(MlflowClient(store.uri), running.info.run_id)
        write(report(B, 3, 0.7), trial_ended(B, TrialStatus.COMPLETED, 0.7))
        write(*whole_trial(C, 0.6, paths.name), SearchEnded(status=SearchStatus.COMPLETED))
        assert forwarder.close(HANGS_S) == 0
    check_equal(paths, store.uri)
    runs = store_runs(store.uri, paths.name)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}


def delete_its_experiment(client: MlflowClient, run_id: str) -> None:
    client.delete_experiment(client.get_run(run_id).info.experiment_id)


@pytest.mark.parametrize("delete", [delete_its_experiment, MlflowClient.delete_run])
def test_what_is_deleted_on_mlflows_pages_during_a_search_comes_back(
    places: StorePaths, store: MlflowStore, delete: Callable[[MlflowClient, str], object]
) -> None:
    delete_in_the_middle(SearchPaths(places.storage, "first"), store, delete)


# ---- drivers that die --------------------------------------------------------------------------


# Where its store is to hang, it does so once it has taken some batches: records are on their way
# whenever this driver is killed.
DRIVER = """
import sys, threading
from pathlib import Path
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from tests.recorded_search import search_started, whole_trial
places = StorePaths(Path(sys.argv[1]))
name, trials, hangs = sys.argv[2], int(sys.argv[3]), sys.argv[4] == "hangs"
store = MlflowStore(places.tracking_uri())
store.initialise()
paths = SearchPaths(places.storage, name)
print("ready", flush=True)
sys.stdin.readline()
with Journal(paths.journal) as journal:
    sink = store.sink(paths.journal)
    send, batches = sink.send, []
    def send_some(batch):
        if hangs and len(batches) == 30:
            threading.Event().wait()
        batches.append(batch)
        send(batch)
    sink.send = send_some
    forwarder = Forwarder(paths, sink).start()
    def write(record):
        forwarder.offer(journal.append(record))
    write(search_started(name))
    for number in range(trials):
        for record in whole_trial(f"measure-N{number % 7}-s{number}", 0.5, name):
            write(record)
            if number > 2:
                print(forwarder.lag, flush=True)
    sys.exit(forwarder.close(200))
"""


def start_driver(
    places: StorePaths, root: Path, name: str, trials: int, store: str = "answers"
) -> subprocess.Popen[str]:
    words = [str(places.working_directory), name, str(trials), store]
    command = [sys.executable, "-c", DRIVER, *words]
    driver = subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return driver


def go(driver: subprocess.Popen[str]) -> None:
    assert driver.stdin is not None and driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    driver.stdin.write("\n")
    driver.stdin.flush()


@pytest.mark.timeout(600)
def test_after_a_killed_driver_the_next_one_completes_the_record(
    places: StorePaths, store: MlflowStore, root: Path
) -> None:
    driver = start_driver(places, root, "first", 60, "hangs")
    go(driver)
    assert driver.stdout is not None
    for _ in range(40):
        driver.stdout.readline()
    paths = SearchPaths(places.storage, "first")
    until(paths.forwarded.exists)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    journalled = read_journal(paths.journal)
    until_time = json.loads(paths.forwarded.read_text())["until"]
    missed = [entry for entry in journalled if entry.time > until_time]
    assert missed, "the driver was killed with records on their way"
    open_before = {row.seed for row in journal_rows(paths.journal) if not row.status.is_final}
    # The next driver: what was missed arrives, nothing is left RUNNING, and the work goes on.
    unfinished = [row for row in store_rows(store.uri) if not row.status.is_final]
    assert all(row.status is TrialStatus.INTERRUPTED for row in unfinished)
    again = sorted(open_before) or [0]
    key = f"measure-N{again[0] % 7}-s{again[0]}"  # type: ignore[operator]
    records: list[Record] = [search_started("first", attempt=2), trial_started(key, 2)]
    # Further than the killed attempt came: MLflow shows the value of the highest step.
    records += [report(key, 9, 0.25, attempt=2), SearchEnded(status=SearchStatus.INTERRUPTED)]
    assert record(paths, records, store) == 0
    check_equal(paths, store.uri)
    assert run_statuses(store.uri) <= {"FINISHED", "KILLED"}
    restarted = store_runs(store.uri)[key].data
    assert restarted.tags["attempt"] == "2" and restarted.metrics["quality"] == 0.25


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_two_searches_at_once_on_one_store_both_get_everything(
    places: StorePaths, root: Path
) -> None:
    names = ("first", "second")
    drivers = [start_driver(places, root, name, 8) for name in names]
    for driver in drivers:
        go(driver)
    for driver in drivers:
        driver.communicate()
    assert [driver.returncode for driver in drivers] == [0, 0]
    uri = places.tracking_uri()
    for name in names:
        check_equal(SearchPaths(places.storage, name), uri)
    assert len(store_rows(uri)) == 16
    [experiment] = MlflowClient(uri).search_experiments()  # no Default that nobody made
    assert experiment.name == "elsa-tune/rte"


# ---- a server ----------------------------------------------------------------------------------


@pytest.fixture
def quick_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


# Quickly, of lost requests and lost answers, above.
@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("quick_requests")
def test_a_server_that_is_down_killed_and_back(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "elsa_tune.tracking.forwarder")
    paths = SearchPaths(tmp_path / "searches", "first")
    paths.predictions.mkdir(parents=True)
    (paths.predictions / "a.npz").write_bytes(b"predictions")
    trials = [f"measure-N{number % 7}-s{number}" for number in range(6)]
    with Journal(paths.journal) as journal:
        forwarder = Forwarder(paths, MlflowStore(server.uri).sink(paths.journal)).start()

        def write(entry: Record) -> None:
            forwarder.offer(journal.append(entry))

        # It is down at the start.
        write(search_started())
        for entry in whole_trial(trials[0], 0.5):
            write(entry)
        until(lambda: "it will be sent again" in caplog.text)
        assert forwarder.lag == 6
        server.start()
        until(lambda: forwarder.lag == 0)
        caplog.clear()
        # It is killed in the middle, and the search goes on.
        for entry in whole_trial(trials[1], 0.5):
            write(entry)
        write(trial_started(trials[2]))
        server.kill()
        for trial in trials[3:]:
            for entry in whole_trial(trial, 0.5):
                write(entry)
        until(lambda: "it will be sent again" in caplog.text)
        server.start()
        ended = trial_ended(trials[2], TrialStatus.COMPLETED, 0.5)
        write(report(trials[2], 3, 0.5))
        write(dataclasses.replace(ended, artifact="predictions/a.npz"))
        write(SearchEnded(status=SearchStatus.COMPLETED))
        assert forwarder.close(HANGS_S) == 0
    check_equal(paths, server.uri)
    assert run_statuses(server.uri) == {"FINISHED"}
    # Through the server and straight from its database the record is the same.
    assert store_rows(server.uri) == store_rows(f"sqlite:///{server.database}")
    run = store_runs(server.uri)[trials[2]].info
    artifacts = MlflowClient(server.uri).list_artifacts(run.run_id, "predictions")
    assert [artifact.path for artifact in artifacts] == ["predictions/a.npz"]


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("quick_requests")
def test_an_experiment_deleted_on_a_server_comes_back(server: Server, tmp_path: Path) -> None:
    if not server.is_up:
        server.start()
    paths = SearchPaths(tmp_path / "searches", "deleted")
    try:
        delete_in_the_middle(paths, MlflowStore(server.uri), delete_its_experiment)
    finally:
        server.kill()  # another test begins without one
