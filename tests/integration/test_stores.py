"""What every store of records must do. One that is added is one more line in `STORES`."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.errors import ResultsError, TrackingError
from elsa_tune.searching.launch import resume
from elsa_tune.searching.leaving import leave_store
from elsa_tune.searching.specification import load_specification, save_specification
from elsa_tune.sources.journals import Journals
from elsa_tune.sources.record import list_searches
from elsa_tune.sources.source import Question
from elsa_tune.sources.stored import Stored
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.deletion import delete_search
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import (
    Record,
    Report,
    SearchEnded,
    SearchStarted,
    SearchStatus,
)
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.record_names import ANSWER
from elsa_tune.tracking.state import SearchState, read_state
from elsa_tune.tracking.store import RecordStore, RefusedError, StoreGoneError, local_folder
from elsa_tune.tracking.stores import store_at
from tests import table_store
from tests.pairs import thorough
from tests.recorded_search import ANSWER as FOUND
from tests.recorded_search import (
    journal_rows,
    record,
    report,
    search_started,
    searched,
    store_rows,
    trial_ended,
    trial_started,
    whole_search,
    whole_trial,
)
from tests.searching import wait_for
from tests.unit.search_examples import make_spec

# By their names: a URI, given a folder.
STORES = {
    "MLflow": "sqlite:///{}/mlflow.db",
    table_store.TableStore.name: "records://{}/records.db",
}
A, B = "measure-N0-s0", "measure-N3-s1"


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    """Return the name of a store."""
    return str(request.param)


@pytest.fixture
def store(kind: str, places: StorePaths) -> RecordStore:
    """Return a store that is ready to be written."""
    store = store_at(STORES[kind].format(places.root))
    store.initialise(print)
    return store


@pytest.fixture
def paths(places: StorePaths) -> SearchPaths:
    return SearchPaths(places.storage, "first")


def journalled(paths: SearchPaths, records: Sequence[Record]) -> list[Record]:
    """Write a journal; returns its records with their times."""
    with Journal(paths.journal) as journal:
        return [journal.append(one) for one in records]


def check_equal(paths: SearchPaths, store: RecordStore) -> None:
    """Check that the store says of the search what its journal does, to the last digit."""
    kept = store_rows(store.uri, search=paths.name)
    assert sorted(kept, key=key) == sorted(journal_rows(paths.journal), key=key) != []
    [state] = store.searches(search=paths.name)
    assert state.status is read_state(paths.journal).status


def key(row: ResultRow) -> str:
    return row.trial or ""


# ---- filled --------------------------------------------------------------------------------------


def test_what_is_sent_twice_is_there_once(store: RecordStore, paths: SearchPaths) -> None:
    records = journalled(paths, [*whole_search("first", 2)])
    sink = store.sink(paths.journal)
    for one in records:
        sink.send([one])
    check_equal(paths, store)
    once = store.searches()
    assert len(once) == 1
    for again in (sink, store.sink(paths.journal)):
        for one in records:
            again.send([one])
            again.send([one])
        assert store.searches() == once


def test_reports_that_are_sent_ahead_of_others(store: RecordStore, paths: SearchPaths) -> None:
    records = journalled(
        paths,
        [
            search_started(),
            trial_started(A),
            trial_started(B),
            *(report(trial, number, 0.1 * number) for number in (1, 2, 3) for trial in (A, B)),
            trial_ended(A, TrialStatus.COMPLETED, 0.3),
            trial_ended(B, TrialStatus.COMPLETED, 0.3),
        ],
    )
    ahead = [one for one in records if isinstance(one, Report) and one.trial == B]
    sink = store.sink(paths.journal)
    for one in records[:3]:
        sink.send([one])
    sink.send(ahead)
    for one in records[3:]:
        if one not in ahead:
            sink.send([one])
    check_equal(paths, store)


@pytest.mark.parametrize("reached", [0, 1, 3, 9])
def test_a_driver_that_was_killed_before_it_noted_what_it_sent(
    store: RecordStore, paths: SearchPaths, reached: int
) -> None:
    records = journalled(paths, [*whole_search("first", 2)])
    sink = store.sink(paths.journal)
    for one in records[:reached]:
        sink.send([one])
    assert not paths.forwarded.exists()
    assert Forwarder(paths, store.sink(paths.journal)).start().close(200) == 0
    check_equal(paths, store)


def test_a_trial_that_is_tried_again_counts_by_its_last_attempt(
    store: RecordStore, paths: SearchPaths
) -> None:
    first = [search_started(), trial_started(A), report(A, 1, 0.9), report(A, 2, 0.95)]
    assert record(paths, first, store) == 0
    again = [search_started(attempt=2), trial_started(A, attempt=2), report(A, 1, 0.4, attempt=2)]
    assert record(paths, again, store) == 0
    check_equal(paths, store)


def test_a_store_that_lost_a_search_is_filled_again(store: RecordStore, paths: SearchPaths) -> None:
    assert record(paths, [search_started(), *whole_trial(A, 0.8)], store) == 0
    search_id = search_started().search_id
    sent = read_state(paths.journal)
    assert not store.lacks(sent)
    assert store.delete(search_id) > 0
    assert store.lacks(sent) and store.delete(search_id) == 0
    # The mark says that the store has everything; a later driver finds out.
    assert paths.forwarded.exists()
    assert record(paths, [search_started(attempt=2), *whole_trial(B, 0.7)], store) == 0
    check_equal(paths, store)


# A search whose second trial is begun twice, in two sessions.
SESSIONS = [
    [search_started(), *whole_trial(A, 0.8), trial_started(B), report(B, 1, 0.9)],
    [
        *(search_started(attempt=2), trial_started(B, attempt=2), report(B, 1, 0.4, attempt=2)),
        *(report(B, 2, 0.5, attempt=2), trial_ended(B, TrialStatus.COMPLETED, 0.5, attempt=2)),
        SearchEnded(status=SearchStatus.COMPLETED),
    ],
]


def copied(source: Path, target: Path) -> None:
    """Copy a database's content, also into one that is open."""
    with (
        contextlib.closing(sqlite3.connect(source)) as read,
        contextlib.closing(sqlite3.connect(target)) as written,
    ):
        read.backup(written)


@pytest.mark.parametrize("in_copy", [1, 6, 10, 13, *thorough(4, 8, 12, 14)])
def test_a_store_that_was_restored_from_a_backup_is_filled_again(
    store: RecordStore, paths: SearchPaths, tmp_path: Path, in_copy: int
) -> None:
    file = Path(store.uri.partition("://")[2].replace("//", "/"))
    in_all = sum(len(session) for session in SESSIONS)
    sent = 0
    for session in SESSIONS:
        before = session[: max(0, in_copy - sent)]
        for part in (before, session[len(before) :]):
            assert record(paths, part, store) == 0
            sent += len(part)
            if sent == in_copy:
                copied(file, tmp_path / "backup")
    state = read_state(paths.journal)
    assert not store.lacks(state)
    copied(tmp_path / "backup", file)
    assert store.lacks(state) is (in_copy < in_all)
    # The mark says that the store has everything; the next driver finds out.
    assert record(paths, [search_started(attempt=3)], store) == 0
    check_equal(paths, store)
    assert not store.lacks(read_state(paths.journal))


def test_a_store_that_is_ahead_of_the_note_lacks_nothing(
    store: RecordStore, paths: SearchPaths
) -> None:
    first, second = SESSIONS
    records = journalled(paths, [*first, *second])
    sink = store.sink(paths.journal)
    for one in records:
        sink.send([one])
    for number in range(len(records) + 1):
        assert not store.lacks(SearchState.replay(records[:number]))


def test_a_sink_says_what_the_forwarder_is_to_do(store: RecordStore, paths: SearchPaths) -> None:
    start, trial = journalled(paths, [search_started(), trial_started(A)])
    sink = store.sink(paths.journal)
    with pytest.raises(RefusedError):
        sink.send([trial])
    sink.begin_again()
    sink.learn(start)
    with pytest.raises(StoreGoneError):
        sink.send([trial])
    assert "no room" in sink.trouble(OSError("no room"))
    assert (sink.name, sink.uri) == (store.name, store.uri)


def test_a_finished_search_moves_to_the_store_that_is_named(
    kind: str, places: StorePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elsa_tune.searching.answering.has_drawn", lambda *arguments: False)
    paths = SearchPaths(places.storage, "first")
    journalled(paths, [*whole_search("first", 3)])
    search_id = search_started().search_id
    spec = make_spec(name="first", search_id=search_id, seeds=1, tracking_uri="sqlite:////no/db")
    depths = tuple(FreezeDepth.of(number) for number in range(3))
    save_specification(dataclasses.replace(spec, candidates=depths, explored=depths), paths)
    uri = STORES[kind].format(places.root / "new")
    said: list[str] = []
    ended = resume(paths, said.append, tracking_uri=uri)
    assert ended.unsent == 0 and any(kind in line for line in said)
    check_equal(paths, store_at(uri))
    assert load_specification(paths).tracking_uri == uri
    unsent = dataclasses.replace(ended, unsent=2, why_unsent="is gone").unsent_words
    assert unsent == f"2 records did not reach {kind} at {uri}, which is gone"


@pytest.mark.parametrize("sent", [2, 4])
def test_what_a_killed_search_left_running_ends_in_a_store_that_it_leaves(
    store: RecordStore, paths: SearchPaths, sent: int
) -> None:
    killed = [search_started(), trial_started(A), report(A, 1, 0.5), report(A, 2, 0.6)]
    assert record(paths, killed[:sent], store) == 0
    with Journal(paths.journal) as journal:
        for one in killed[sent:]:
            journal.append(one)
    before = paths.journal.read_bytes()
    search_id = search_started().search_id
    spec = make_spec(name="first", search_id=search_id, tracking_uri=store.uri)
    said: list[str] = []
    with Journal(paths.journal) as journal:
        leave_store(spec, paths, journal, said.append, patience_s=60)
    [state] = store.searches(search="first")
    [trial] = state.trials.values()
    assert state.end is not None and state.status is SearchStatus.KILLED
    assert not trial.runs and trial.evaluation == 2
    # In the journal the search goes on, and it may come back.
    assert said == [] and paths.journal.read_bytes() == before
    assert record(paths, [search_started(attempt=2), *whole_trial(B, 0.8)], store) == 0
    [state] = store.searches(search="first")
    assert state.end is None and len(state.trials) == 2


def test_a_store_that_cannot_be_told_that_a_search_leaves_it(paths: SearchPaths) -> None:
    journalled(paths, [search_started(), trial_started(A)])
    spec = make_spec(name="first", tracking_uri="http://127.0.0.1:9")
    said: list[str] = []
    with Journal(paths.journal) as journal:
        leave_store(spec, paths, journal, said.append, patience_s=1)
    [line] = said
    assert line.startswith("http://127.0.0.1:9 does not take the rest of search 'first'")
    # Nothing was ever sent to a file that is not there.
    spec = make_spec(name="first", tracking_uri="sqlite:////no/db")
    with Journal(paths.journal) as journal:
        leave_store(spec, paths, journal, said.append, patience_s=1)
    assert len(said) == 1


# ---- asked ---------------------------------------------------------------------------------------


def test_a_question_makes_no_store(kind: str, places: StorePaths) -> None:
    store = store_at(STORES[kind].format(places.root / "new"))
    before = sorted(places.root.rglob("*"))
    assert store.is_unmade() and store.lacks(SearchState.replay([search_started()]))
    assert not store.lacks(SearchState())
    store.check()
    assert "can be made" in store.look()
    for ask in (store.searches, store.overview):
        with pytest.raises(TrackingError, match="nothing is recorded"):
            ask()
    assert store.delete("0123") == 0
    assert sorted(places.root.rglob("*")) == before
    store.initialise(print)
    store.initialise(print)
    assert not store.is_unmade() and store.searches() == []
    assert "answers" in store.look()


def test_searches_are_listed(store: RecordStore, places: StorePaths) -> None:
    record(SearchPaths(places.storage, "first"), [*whole_search("first", 2)], store)
    other = SearchPaths(places.storage, "second")
    record(other, [search_started("second", task="mrpc"), *whole_trial(A, 0.5, "second")], store)
    assert [one.search.name for one in store.searches()] == ["first", "second"]
    assert [one.search.name for one in store.searches(tasks=["mrpc"])] == ["second"]
    assert [one.search.name for one in store.searches(search="first")] == ["first"]
    assert store.searches(search="third") == store.searches(tasks=["sst2"]) == []
    for states in (store.searches(), store.overview()):
        assert [(one.search.name, one.trials_done) for one in states] == [
            ("first", 2),
            ("second", 1),
        ]
        assert states[0].is_complete and states[0].decisions[ANSWER] == [FOUND]
        assert local_folder(states[1].search.tags) == other.folder
        assert states[1].status_text == "killed"
    with Journal(other.journal):
        assert store.searches(search="second")[0].status_text == "running"
    listed = list_searches(places.root / "nowhere", store.uri, print)
    assert [state.search.name for _, state in listed] == ["second", "first"]


def test_it_answers_as_the_journal_does(store: RecordStore, places: StorePaths) -> None:
    paths = searched(places.storage)
    assert Forwarder(paths, store.sink(paths.journal)).start().close(200) == 0
    question = Question(search="first")
    before = Journals(places.storage).ask(question, print)
    shutil.rmtree(paths.folder)
    after = Stored(store.uri).ask(question, print)
    assert headlines(after) == headlines(before) != []


def headlines(rows: list[ResultRow]) -> list[str]:
    return [answer.first_lines.headline for answer in answer_rows(rows)]


def test_a_search_is_deleted_from_folder_and_store(store: RecordStore, places: StorePaths) -> None:
    for name in ("first", "second"):
        record(SearchPaths(places.storage, name), [*whole_search(name, 2)], store)
    assert delete_search(places.storage, "second", store.uri) == 3
    assert not (places.storage / "second").exists()
    assert [one.search.name for one in store.searches()] == ["first"]


def test_of_two_searches_of_one_name_the_own_is_answered_and_deleted(
    store: RecordStore, places: StorePaths, tmp_path: Path
) -> None:
    others = SearchPaths(tmp_path / "others", "first")
    own = SearchPaths(places.storage, "first")
    for paths, search_id in ((others, "a" * 32), (own, "b" * 32)):
        begun, *rest = whole_search("first", 2)
        assert isinstance(begun, SearchStarted)
        begun = dataclasses.replace(begun, search_id=search_id)
        assert record(paths, [begun, *rest], store) == 0
    question = Question(search="first")
    rows = Stored(store.uri, places.storage).ask(question, print)
    assert {row.search_id for row in rows} == {"b" * 32}
    with pytest.raises(ResultsError, match="2 searches in the record are named 'first'"):
        Stored(store.uri).ask(question, print)
    question = Question(search="a" * 32)
    rows = Stored(store.uri).ask(question, print)
    assert [row.search for row in rows] == ["first", "first"]
    assert {row.search_id for row in rows} == {"a" * 32}
    assert delete_search(places.storage, "first", store.uri) == 3
    assert Stored(store.uri).ask(question, print) == rows and others.journal.exists()


def test_a_registered_scheme_has_two_slashes_and_no_password_is_shown(places: StorePaths) -> None:
    with pytest.raises(TrackingError) as refused:
        places.tracking_uri("records:user:geheim@host/db")
    assert "records://" in str(refused.value) and "geheim" not in str(refused.value)
    assert places.tracking_uri("RECORDS://host/db/") == "records://host/db"


def test_what_a_store_says_of_its_trouble_hides_passwords_and_may_fail(places: StorePaths) -> None:
    class Sink:
        uri = "records://user:geheim@host/db"
        name = "records"
        says = "is at records://user:geheim@host/db"

        def begin_again(self) -> None: ...

        def learn(self, record: Record) -> None: ...

        def send(self, batch: Sequence[Record]) -> None:
            raise OSError("no route to geheim")

        def trouble(self, error: Exception) -> str:
            if not self.says:
                raise KeyError("geheim")
            return self.says

    paths = searched(places.storage)
    sink = Sink()
    forwarder = Forwarder(paths, sink).start()
    wait_for(lambda: bool(forwarder.trouble))
    assert forwarder.close(0.5) > 0
    assert "host/db" in forwarder.trouble and "geheim" not in forwarder.trouble
    sink.says = ""
    assert "did not take them" in forwarder.trouble and "geheim" not in forwarder.trouble
