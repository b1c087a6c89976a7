"""A finished search that is resumed: answered again, and given what its end did not come to."""

from __future__ import annotations

import dataclasses
import functools
import io
import socket
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from elsa_tune.errors import NoAnswerError, TrackingError
from elsa_tune.report import folder as report_folder
from elsa_tune.searching import launch
from elsa_tune.searching.answering import answer_again
from elsa_tune.searching.launch import resume
from elsa_tune.searching.specification import load_specification, save_specification, with_seeds
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.journal import Journal, read_journal
from elsa_tune.tracking.journal_records import Decision, SearchEnded, SearchStarted, SearchStatus
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.record_names import REPORT
from elsa_tune.tracking.state import SearchState, read_state
from tests.conftest import Run
from tests.recorded_search import journal_rows, record, store_rows, store_runs, whole_search
from tests.unit.search_examples import make_spec

REPORTED = Decision(what=REPORT, value="report")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where reports were drawn; drawing itself takes seconds and is tested elsewhere."""
    places: list[Path] = []

    def draw(
        answers: Any, rows: Any, place: Path, command: str, origins: Any, comparisons: Any
    ) -> None:
        place.mkdir(exist_ok=True)
        (place / "index.html").write_text("drawn")
        places.append(place)

    monkeypatch.setattr(report_folder, "write_report", draw)
    return places


@pytest.fixture
def finished(places: StorePaths, store: MlflowStore) -> SearchPaths:
    paths = SearchPaths(places.storage, "first")
    paths.report.mkdir(parents=True)
    records = [*whole_search("first", 3), REPORTED]
    assert record(paths, records, store) == 0
    (started,) = (one for one in records if isinstance(one, SearchStarted))
    spec = make_spec(name="first", search_id=started.search_id, seeds=1, tracking_uri=store.uri)
    measured = tuple(FreezeDepth.of(n) for n in range(3))
    save_specification(dataclasses.replace(spec, candidates=measured, explored=measured), paths)
    return paths


def reported(paths: SearchPaths) -> int:
    return sum(getattr(one, "what", "") == REPORT for one in read_journal(paths.journal))


def test_nothing_is_done_where_nothing_is_missing(finished: SearchPaths, drawn: list[Path]) -> None:
    before = finished.journal.read_bytes(), finished.forwarded.stat().st_mtime_ns
    assert resume(finished, print).unsent == 0
    assert (finished.journal.read_bytes(), finished.forwarded.stat().st_mtime_ns) == before
    assert drawn == []


@pytest.mark.parametrize(
    ("is_closed", "reason"), [(False, "No space left on device"), (True, "it is closed")]
)
def test_an_answer_that_stdout_does_not_take_costs_no_exit_status(
    is_closed: bool,
    reason: str,
    finished: SearchPaths,
    places: StorePaths,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is recorded, so `answer` prints it again."""
    monkeypatch.chdir(places.working_directory)
    printed = run("resume", "first")
    assert printed.out and printed.status == NoAnswerError.exit_status
    with open("/dev/full", "wb", buffering=0) as full:
        stdout = None if is_closed else io.TextIOWrapper(full, write_through=True)
        monkeypatch.setattr("sys.stdout", stdout)
        unread = run("resume", "first")
    assert unread.status == printed.status
    sentence = (
        f"stdout cannot be written: {reason}; what was to be printed there is recorded, and "
        "`elsa-tune answer first` prints it again"
    )
    assert sentence in unread.err.splitlines()
    assert "Traceback" not in unread.err


def test_a_store_that_was_lost_is_filled_again(
    finished: SearchPaths, drawn: list[Path], store: MlflowStore
) -> None:
    sent = read_state(finished.journal)
    assert not store.lacks(sent)
    other = dataclasses.replace(sent.search, search_id="another search of that name")
    assert store.lacks(dataclasses.replace(sent, search=other))
    assert MlflowStore(f"{store.uri}.gone").lacks(sent)
    client = MlflowClient(store.uri)
    for run in store_runs(store.uri).values():
        client.delete_run(run.info.run_id)
    assert store.lacks(sent)
    assert resume(finished, print).unsent == 0
    assert store_rows(store.uri, search="first") == journal_rows(finished.journal) != []


def test_a_store_that_lacks_a_trial_is_filled_again(
    finished: SearchPaths, drawn: list[Path], store: MlflowStore
) -> None:
    lost = store_runs(store.uri)["measure-N1-s1"]
    MlflowClient(store.uri).delete_run(lost.info.run_id)
    said: list[str] = []
    assert resume(finished, said.append).unsent == 0
    assert any(line.startswith("sending ") for line in said)
    assert store_rows(store.uri, search="first") == journal_rows(finished.journal) != []
    said.clear()
    assert resume(finished, said.append).unsent == 0 and said == []


def test_a_store_that_cannot_be_read_is_not_taken_for_a_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mlflow.db"
    file.write_bytes(b"SQLite format 3\0" + bytes(range(200)))
    with pytest.raises(TrackingError, match="cannot be read"):
        MlflowStore(f"sqlite:///{file}").lacks(SearchState())


def test_a_store_that_hangs_is_asked_for_seconds_and_the_journal_answers(
    finished: SearchPaths, drawn: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MlflowConnection.check, "__defaults__", (1.0,))
    before, said = finished.forwarded.read_bytes(), list[str]()
    with socket.socket() as black_hole:  # it takes connections, and never says anything
        black_hole.bind(("127.0.0.1", 0))
        black_hole.listen()
        uri = f"http://127.0.0.1:{black_hole.getsockname()[1]}"
        spec = dataclasses.replace(load_specification(finished), tracking_uri=uri)
        with Journal(finished.journal) as journal:
            ended = answer_again(spec, finished, journal, MlflowStore(uri), said.append)
    assert ended.status is SearchStatus.COMPLETED and len(ended.answers) == 1
    (line,) = said
    assert "does not answer (nothing came within 1 s)" in line
    assert line.endswith("this answer is the journal's")
    # Nothing of it is known to be there, and nothing was sent.
    assert ended.unsent == len(read_journal(finished.journal))
    assert finished.forwarded.read_bytes() == before


def test_another_store_is_given_everything_and_remembered(
    finished: SearchPaths, drawn: list[Path], places: StorePaths
) -> None:
    elsewhere = places.tracking_uri("sqlite:///elsewhere/other.db")
    ended = resume(finished, print, tracking_uri=elsewhere)
    assert (ended.unsent, ended.spec.tracking_uri) == (0, elsewhere)
    assert store_rows(elsewhere, search="first") == journal_rows(finished.journal) != []
    assert load_specification(finished).tracking_uri == elsewhere
    assert resume(finished, print).spec.tracking_uri == elsewhere


@pytest.mark.parametrize("how", ["killed while drawing", "removed", "of an earlier session"])
def test_a_report_that_is_missing_is_drawn_and_logged(
    finished: SearchPaths, drawn: list[Path], store: MlflowStore, how: str
) -> None:
    if how == "removed":
        finished.report.rmdir()
    else:
        lines = finished.journal.read_text().splitlines(keepends=True)
        if how == "killed while drawing":
            del lines[-1]
        finished.journal.write_text("".join(lines))
        if how == "of an earlier session":
            end = next(o for o in read_journal(finished.journal) if isinstance(o, SearchEnded))
            record(finished, [SearchEnded(status=end.status)], store)
    assert resume(finished, print).unsent == 0
    assert drawn == [finished.report]
    assert reported(finished) == (1 if how == "killed while drawing" else 2)
    parent = store_runs(store.uri)[""].info
    files = MlflowClient(store.uri).list_artifacts(parent.run_id, REPORT)
    assert [file.path for file in files] == [f"{REPORT}/index.html"]
    resume(finished, print)
    assert len(drawn) == 1


@pytest.mark.thorough
def test_seeds_that_were_asked_for_are_remembered_whatever_ends_the_start(
    finished: SearchPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(spec: SearchSpec) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "inputs_of", interrupted)
    four = functools.partial(with_seeds, seeds=4)
    for more in (four, None):  # the second time as `resume` alone
        with pytest.raises(KeyboardInterrupt):
            resume(finished, print, more=more)
        assert load_specification(finished).seeds == 4
