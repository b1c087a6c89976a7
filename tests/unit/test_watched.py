"""A search watched and ended from another shell, by its record."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.cli.commands import jobs
from elsa_tune.errors import RunError, StorageError, TrackingError, UnknownNameError
from elsa_tune.searching.jobs import watched
from elsa_tune.searching.jobs.watched import (
    JournalReader,
    new_lines,
    patiently,
    stored_lines,
    watch_journal,
)
from elsa_tune.searching.process.stopping import driver_of, stop_here
from elsa_tune.searching.record import started
from elsa_tune.searching.specification import (
    differing_settings,
    load_specification,
    save_specification,
    where_asked,
)
from elsa_tune.specs.model import ModelSource, ModelSpec
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.task import FilesSource
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Decision, Record, SearchEnded, SearchStatus
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.record_names import ANSWER, COMPARISON, HOST_TAG, JOURNAL_TAG
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import journal_tags
from elsa_tune.training.model.model_files import weights_fingerprint
from tests.conftest import Run
from tests.recorded_search import report, search_started, trial_ended, trial_started, whole_trial
from tests.searching import ROOT, make_bench, wait_for
from tests.unit.search_examples import make_spec


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SearchPaths:
    """Return the places of a search that was specified."""
    monkeypatch.chdir(tmp_path)
    paths = SearchPaths(tmp_path / "mlruns" / "searches", "first")
    paths.folder.mkdir(parents=True)
    save_specification(make_spec(name="first"), paths)
    return paths


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "JOURNAL_SECONDS", 0.01)
    monkeypatch.setattr(watched, "STORE_SECONDS", 0.01)


def watching(paths: SearchPaths) -> tuple[threading.Thread, list[SearchState]]:
    states: list[SearchState] = []
    thread = threading.Thread(target=lambda: states.append(watch_journal(paths)))
    thread.start()
    return thread, states


def test_each_end_of_a_trial_is_told_until_the_session_ends(
    paths: SearchPaths, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with Journal(paths.journal) as journal:
        journal.append(search_started())
        for record in whole_trial("measure-N0-s1", 0.5):
            journal.append(record)
        journal.append(trial_started("measure-N3-s1"))
        thread, states = watching(paths)
        told = ""

        def says(text: str) -> Callable[[], bool]:
            def look() -> bool:
                nonlocal told
                told += capsys.readouterr().err
                return text in told

            return look

        wait_for(says("Ctrl-C leaves, and the search goes on"))
        journal.append(report("measure-N3-s1", 1, 0.75))
        journal.append(trial_ended("measure-N3-s1", TrialStatus.COMPLETED))
        wait_for(says("measure-N3"))
        journal.append(SearchEnded(status=SearchStatus.INTERRUPTED))
        thread.join(200)
    told += capsys.readouterr().err
    assert states[0].status is SearchStatus.INTERRUPTED
    assert told.count(": completed at ") == 1  # what had ended before is not told again


def test_a_driver_that_is_killed_ends_the_watch(paths: SearchPaths, quick: None) -> None:
    with Journal(paths.journal) as journal:
        journal.append(search_started())
        thread, states = watching(paths)
        time.sleep(0.2)
        assert thread.is_alive()
    thread.join(200)
    assert states[0].status is SearchStatus.KILLED


def test_a_journal_is_read_when_it_has_changed(
    paths: SearchPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(paths.journal) as journal:
        journal.append(search_started())
        reader = JournalReader(paths)
        first = reader.read()
        assert reader.read() is first
        journal.append(trial_started("measure-N0-s1"))
        assert len(reader.read().trials) == 1


def test_the_time_is_that_of_the_record(tmp_path: Path) -> None:
    """Its clock stayed behind where the driver's machine slept."""
    paths = SearchPaths(tmp_path, "first")
    behind = 8 * 3600.0
    with Journal(paths.journal) as journal:
        last = dataclasses.replace(search_started(), time=time.time() - behind)
        journal.append(last)
        reader = JournalReader(paths)
        assert reader.now() == pytest.approx(time.time() - behind, abs=5.0)


def test_what_answered_before_is_asked_again_where_it_does_not(quick: None) -> None:
    answers: list[Exception | str] = []
    said: list[str] = []

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    answers += [TrackingError("no answer"), TrackingError("none yet"), "there"]
    assert patiently(ask, said.append, patience_s=60.0) == "there"
    assert said == ["no answer; asking again for up to 1 min 00 s"]
    answers += [TrackingError("gone"), TrackingError("gone for good")]
    with pytest.raises(TrackingError, match="gone for good"):
        patiently(ask, said.append, patience_s=0.0005)
    answers.append(UnknownNameError("there is no such search"))
    with pytest.raises(UnknownNameError):
        patiently(ask, said.append)
    assert len(said) == 2


@pytest.mark.parametrize("max_time", [None, 3600.0])
def test_the_time_of_a_session_is_the_one_it_was_given(
    paths: SearchPaths, quick: None, monkeypatch: pytest.MonkeyPatch, max_time: float | None
) -> None:
    limits: list[float | None] = []
    board = watched.Board

    def noting(spec: SearchSpec, *given: Any, **named: Any) -> Any:
        limits.append(spec.max_time)
        return board(spec, *given, **named)

    monkeypatch.setattr(watched, "Board", noting)
    session = dataclasses.replace(load_specification(paths), max_time=max_time)
    with Journal(paths.journal) as journal:
        journal.append(journal.stamp(started(session, 2)))
        thread, _ = watching(paths)
        wait_for(lambda: bool(limits))
        journal.append(journal.stamp(SearchEnded(status=SearchStatus.INTERRUPTED)))
        thread.join(20)
    assert limits == [max_time]


def test_what_has_ended_is_said_with_what_to_type(paths: SearchPaths, run: Run) -> None:
    with Journal(paths.journal) as journal:
        journal.append(search_started())
        journal.append(SearchEnded(status=SearchStatus.FAILED, message="3 trials failed"))
    done = run("watch")
    assert done.status == 1
    assert done.err.splitlines()[-2:] == [
        "search 'first': failed (3 trials failed)",
        "Next: elsa-tune resume first",
    ]
    assert run("watch", "other").status == 2
    # As of a variable that is not set.
    assert run("watch", "first", "--tracking-uri", "").err.endswith("elsa-tune resume first\n")
    assert "unknown search 'other'" in run("watch", "other", "--tracking-uri", "").err


POINT = {"operating_point": {"label": "9"}, "reason": None}
NO_POINT = {"operating_point": None, "reason": "full_at_chance"}
BEST = {"best": {"label": "lora"}, "reason": None}
NO_BEST = {"best": {"label": "lora"}, "reason": "no_way_learnt"}


@pytest.mark.parametrize(
    ("end", "answers", "comparisons", "status"),
    [
        (SearchStatus.COMPLETED, [POINT], None, 0),
        (SearchStatus.TIME_UP, [POINT], None, 0),
        (SearchStatus.COMPLETED, [NO_POINT], None, 3),
        (SearchStatus.TIME_UP, [], None, 3),
        (SearchStatus.COMPLETED, [NO_POINT], [BEST], 0),
        (SearchStatus.COMPLETED, [NO_POINT], [NO_BEST], 3),
        (SearchStatus.COMPLETED, "nothing that is ours", None, 3),
        (SearchStatus.FAILED, [POINT], None, 1),
        (SearchStatus.KILLED, [POINT], None, 1),
        (None, None, None, 1),  # its driver is gone
        (SearchStatus.INTERRUPTED, [POINT], None, 130),
    ],
)
def test_a_watched_search_gives_its_exit_status(
    paths: SearchPaths,
    run: Run,
    end: SearchStatus | None,
    answers: object,
    comparisons: object,
    status: int,
) -> None:
    with Journal(paths.journal) as journal:
        journal.append(search_started())
        if answers is not None:
            journal.append(Decision(what=ANSWER, value=answers))
        if comparisons is not None:
            journal.append(Decision(what=COMPARISON, value=comparisons))
        if end is not None:
            journal.append(SearchEnded(status=end))
    done = run("watch", "first")
    assert done.status == status, done.err
    assert "elsa-tune: " not in done.err  # nothing has happened to the command itself


def test_what_a_store_has_is_shown_without_a_plan() -> None:
    records = [search_started(), *whole_trial("measure-N0-s1", 0.5)]
    records += [*whole_trial("measure-N0-s2", 0.75), trial_started("measure-N3-s1")]
    lines = stored_lines(SearchState.replay(records))
    assert lines[0] == "first: minilm on rte, running; trials: 2 ended, 1 begun"
    assert [line.split() for line in lines[2:]] == [
        ["0", "6", "2", "0", "75.0"],
        ["3", "3", "0", "1", "-"],
    ]


ELSEWHERE = {HOST_TAG: "another-machine", JOURNAL_TAG: "/there/first/journal.jsonl"}


def test_a_search_of_another_machine_is_watched_in_its_store(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal is not here: what the store has is read again until the search has ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watched, "STORE_SECONDS", 0.01)
    records: list[Record] = [dataclasses.replace(search_started(), tags=ELSEWHERE)]
    stages = [
        [trial_started("measure-N0-s1")],
        [report("measure-N0-s1", 1, 0.5), trial_ended("measure-N0-s1", TrialStatus.COMPLETED)],
        [Decision(what=ANSWER, value=[POINT]), SearchEnded(status=SearchStatus.COMPLETED)],
    ]

    def searches(store: MlflowStore, tasks: object, search: str | None) -> list[SearchState]:
        if search not in ("first", search_started().search_id):
            return []
        records.extend(stages.pop(0))
        return [SearchState.replay(records)]

    monkeypatch.setattr(MlflowStore, "searches", searches)
    monkeypatch.setattr(MlflowStore, "overview", lambda store: [SearchState.replay(records)])
    place = ("--tracking-uri", f"sqlite:///{tmp_path}/store.db")
    done = run("watch", "first", *place)
    assert done.status == 0, done.err
    assert done.err.splitlines() == [
        "watch: reading the store",
        "first: minilm on rte, running; trials: 0 ended, 1 begun",
        "first: minilm on rte, running; trials: 1 ended, 0 begun",
        "search 'first': completed",
        f"Next: elsa-tune answer first --tracking-uri sqlite:///{tmp_path}/store.db",
    ]
    unknown = run("watch", "firts", *place)
    assert unknown.status == 2 and "did you mean 'first'?" in unknown.err


@pytest.mark.parametrize("place", [(), ("--tracking-uri", "http://store:5000")])
def test_ctrl_c_before_a_search_is_found_leaves_none(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, place: tuple[str, ...]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "find_search", interrupt)
    monkeypatch.setattr(MlflowStore, "searches", interrupt)
    done = run("watch", "first", *place)
    assert done.status == 130
    assert done.err.endswith("elsa-tune: interrupted\n") and "goes on" not in done.err


@pytest.mark.parametrize(
    ("tags", "typed", "said"),
    [
        (ELSEWHERE, True, "Next, on another-machine: elsa-tune resume first --storage-path /there"),
        ({}, True, "Next: elsa-tune answer first --tracking-uri http://store:5000"),
        ({}, False, "Next: elsa-tune answer first"),  # the variable names it for the answer, too
    ],
)
def test_what_to_type_about_a_search_that_a_store_alone_has(
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    tags: dict[str, str],
    typed: bool,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = "http://me:s3cret@store:5000"
    records: list[Record] = [dataclasses.replace(search_started(), tags=tags)]
    records.append(SearchEnded(status=SearchStatus.INTERRUPTED))
    states = [SearchState.replay(records)]
    monkeypatch.setattr(MlflowStore, "searches", lambda store, tasks, search: states)
    if not typed:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    done = run("watch", "first", *(("--tracking-uri", uri) if typed else ()))
    assert done.err.splitlines()[-2:] == ["search 'first': interrupted", said]


def test_a_search_of_this_machine_is_watched_by_its_journal_though_a_store_is_named(
    paths: SearchPaths, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Journal(paths.journal) as journal:
        journal.append(search_started())
        journal.append(SearchEnded(status=SearchStatus.INTERRUPTED))
    stored = dataclasses.replace(search_started(), tags=journal_tags(paths.journal))
    states = [SearchState.replay([stored])]
    monkeypatch.setattr(MlflowStore, "searches", lambda store, tasks, search: states)
    done = run("watch", "first", "--tracking-uri", f"sqlite:///{tmp_path}/store.db")
    assert done.err.splitlines()[-2:] == [
        "search 'first': interrupted",
        "Next: elsa-tune resume first",
    ]


def test_a_log_is_given_out_by_complete_lines(quick: None) -> None:
    logs = iter(["", "one\ntw", "one\ntwo\n", "one\ntwo\nlast"])
    ends = iter([False, False, False, True])
    assert list(new_lines(lambda: next(logs), lambda: next(ends))) == ["one", "two", "last"]


HOLDS = """
import signal, sys, time
from pathlib import Path
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import SearchEnded, SearchStatus
from tests.recorded_search import search_started

with Journal(Path(sys.argv[1])) as journal:
    journal.append(search_started())
    try:
        print("holds", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        if sys.argv[2] == "ends":
            journal.append(SearchEnded(status=SearchStatus.INTERRUPTED))
        else:
            time.sleep(60)
"""


@pytest.fixture
def driver(paths: SearchPaths, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds the search's journal, and ends by Ctrl-C unless told otherwise."""
    way = getattr(request, "param", "ends")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(paths.journal), way],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    yield process
    process.kill()
    process.communicate()


def test_stop_ends_it_as_ctrl_c_would(
    paths: SearchPaths, driver: subprocess.Popen[str], run: Run
) -> None:
    done = run("stop")
    assert done.status == 0, done.err
    assert f"(process {driver.pid}) ends its trials" in done.err
    assert done.err.endswith("search 'first': interrupted; `elsa-tune resume first` goes on\n")
    assert driver.wait(30) == 0
    again = run("stop", "first")
    assert again.status == 2
    assert again.err.splitlines()[-1].endswith("is not running (it is interrupted)")


@pytest.mark.parametrize("driver", ["hangs"], indirect=True)
def test_what_does_not_end_is_told(paths: SearchPaths, driver: subprocess.Popen[str]) -> None:
    with pytest.raises(RunError, match=rf"still runs after 0\.5 s \(process {driver.pid}\)"):
        stop_here(paths, lambda line: None, seconds=0.5)
    assert driver.poll() is None


def test_no_other_process_is_signalled(paths: SearchPaths, driver: subprocess.Popen[str]) -> None:
    """The holder's note may be old, and its number another process's by now."""
    holder = paths.journal.with_suffix(".holder")
    assert driver_of(paths) == driver.pid
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        for note, where in (
            (f"process {bystander.pid} on {socket.gethostname()}", "runs elsewhere"),
            (f"process {driver.pid} on another-machine", "runs on another-machine"),
            ("", "runs elsewhere"),
        ):
            holder.write_text(note)
            with pytest.raises(StorageError, match=where):
                stop_here(paths, lambda line: None)
        assert bystander.poll() is None and driver.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_search_of_another_user_is_said_to_be_that(
    paths: SearchPaths, driver: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but root sees which files the processes of others have open."""

    def refuse(folder: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(StorageError, match=rf"by process {driver.pid}, which is another user's"):
        driver_of(paths)


def of_folder(folder: Path, weights: str) -> SearchSpec:
    model = ModelSpec(name="model", source=ModelSource.DIRECTORY, location=str(folder / "model"))
    rows = FilesSource(format="csv", train=(str(folder / "train.csv"),))
    spec = make_spec(model=model, fingerprints={"weights": weights, "data": "d"})
    return dataclasses.replace(spec, task=dataclasses.replace(spec.task, source=rows))


def test_files_that_moved_are_the_same_if_their_content_is(tmp_path: Path) -> None:
    """A job's files come to another folder each time that its search is submitted."""
    for name in ("before", "now", "other"):
        make_bench(tmp_path / name)
    other = tmp_path / "other" / "model" / "config.json"
    other.write_text(other.read_text() + " ")
    now = of_folder(tmp_path / "now", "")
    weights = weights_fingerprint(now.model)
    recorded = of_folder(tmp_path / "before", weights)
    assert differing_settings(now, recorded) == []
    assert differing_settings(recorded, recorded) == []
    [difference] = differing_settings(of_folder(tmp_path / "other", ""), recorded)
    assert difference.startswith("model ") and "/other/model (recorded: " in difference
    renamed = dataclasses.replace(now, model=dataclasses.replace(now.model, name="another"))
    assert differing_settings(renamed, recorded) == []
    assert where_asked(renamed)(recorded).model.name == recorded.model.name
    moved = where_asked(now)(recorded)
    assert moved.model.location == now.model.location and moved.task.source == now.task.source
    assert moved.fingerprints == recorded.fingerprints
    seeds = where_asked(now, lambda spec: dataclasses.replace(spec, seeds=9))(recorded)
    assert (seeds.seeds, seeds.model) == (9, now.model)
    # What comes from elsewhere than folders stays as it was recorded.
    assert where_asked(now)(make_spec()) == make_spec()
