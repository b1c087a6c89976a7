"""Which of a working directory's records is asked: its journals, or a store of MLflow."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import elsa_tune
from elsa_tune.errors import NoAnswerError, UnknownMethodError
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.record import started
from elsa_tune.searching.specification import save_specification
from elsa_tune.sources.record import recorded
from elsa_tune.sources.source import Question
from elsa_tune.specs.policy import SeedCounts
from elsa_tune.specs.search import Looks
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal import Journal, read_journal
from elsa_tune.tracking.journal_records import Record, SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.record_names import HOST_TAG, JOURNAL_TAG
from elsa_tune.tracking.state import read_state
from tests.conftest import Run
from tests.recorded_search import (
    journal_of,
    record,
    report,
    search_started,
    searched,
    trial_ended,
    trial_started,
)
from tests.table_store import TableStore
from tests.unit.result_rows import falling_curve, fill_store
from tests.unit.search_examples import make_spec

ASK = ("operating-point", "--model", "minilm", "--task")
Asked = Callable[[], list[str]]


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a working directory whose journals know `first`, minilm on rte, and nothing else."""
    monkeypatch.chdir(tmp_path)
    return searched(StorePaths(tmp_path).storage).storage


@pytest.fixture
def store(storage: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have it record in an MLflow store, and return the URIs that were asked.

    The store knows `elsewhere`, minilm on rte and on cola.
    """
    places = StorePaths(storage.parents[1])
    places.database.write_bytes(b"there")
    known = [*falling_curve(search="elsewhere"), *falling_curve(search="c", task="cola")]
    return fill_store(monkeypatch, known)


def test_the_journals_are_asked_before_the_store(run: Run, store: list[str]) -> None:
    found = run(*ASK, "rte")
    assert found.status == 0 and "search 'first'" in found.out and store == []
    assert run("operating-point", "--search", "first").status == 0 and store == []
    assert "search 'first'" in run(*ASK, "all").out and store == []


def test_what_the_journals_lack_is_asked_of_the_store(run: Run, store: list[str]) -> None:
    assert "search 'c'" in run(*ASK, "cola").out
    assert "search 'elsewhere'" in run("operating-point", "--search", "elsewhere").out
    # The record is asked as one, so that nothing is answered from a half of it.
    assert "search 'elsewhere'" in run(*ASK, "rte", "--task", "cola").out
    assert len(store) >= 3


def test_a_store_that_is_named_is_asked_itself(
    run: Run, store: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "search 'elsewhere'" in run(*ASK, "rte", "--tracking-uri", "http://server:1").out
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server:2")
    assert "search 'elsewhere'" in run(*ASK, "rte").out
    assert store == ["http://server:1", "http://server:2"]


def next_lines(run: Run) -> list[str]:
    """Return what the answer and the comparison of a store's search say to do next."""
    said = []
    for command in ("answer", "compare"):
        found = run(command, "mine", "--tracking-uri", "http://server:1")
        assert found.status == 0, found.err
        said += [line.strip() for line in found.out.splitlines() if line.strip().startswith("Next")]
    return said


def test_what_a_store_alone_has_is_exported_where_its_record_is(
    run: Run, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = falling_curve(search="mine", trial="t")
    journal = "/my runs/mine/journal.jsonl"
    fill_store(monkeypatch, rows, **{HOST_TAG: "lab3", JOURNAL_TAG: journal})
    of_answer, of_ways = next_lines(run)
    there = "on lab3: elsa-tune export mine --storage-path '/my runs' "
    assert there + "--out mine-model" in of_answer
    assert there + "--way" in of_ways
    # Where that folder is gone, no command can name the search.
    for tags in ({HOST_TAG: socket.gethostname(), JOURNAL_TAG: journal}, {}):
        fill_store(monkeypatch, rows, **tags)
        [of_answer] = next_lines(run)
        assert "elsa-tune" not in of_answer and "in your own training" in of_answer


@pytest.mark.parametrize(("name", "is_here"), [("first", True), ("elsewhere", False)])
def test_a_journal_alone_names_its_search_in_a_command_only_where_that_lies_here(
    run: Run, storage: Path, tmp_path: Path, name: str, is_here: bool
) -> None:
    paths = searched(tmp_path / "copied", name)
    record(paths, [SearchEnded(status=SearchStatus.COMPLETED)])
    journal = paths.journal
    found = run("answer", "--from", journal)
    assert found.status == 0
    assert (f"elsa-tune export {name} --out" in found.out) == is_here
    assert ("in your own training" in found.out) != is_here
    assert (f"elsa-tune export {name} --way" in run("compare", "--from", journal).out) == is_here


def test_without_a_store_the_journals_say_what_there_is(run: Run, storage: Path) -> None:
    assert "did you mean 'first'" in run("operating-point", "--search", "frist").err
    other = run(*ASK, "cola")
    assert other.status == 3 and "nothing is recorded on task cola" in other.err
    assert not StorePaths(storage.parents[1]).database.exists()


def test_a_journal_that_cannot_be_read_is_said_and_left_out(run: Run, storage: Path) -> None:
    (storage / "bad").mkdir()
    (storage / "bad" / "journal.jsonl").write_text("{}\n{}\n")
    found = run(*ASK, "rte")
    assert found.status == 0 and "search 'first'" in found.out
    assert "bad/journal.jsonl, line 1 cannot be read" in found.err
    alone = run("operating-point", "--search", "bad")
    assert alone.status == 2 and "line 1 cannot be read" in alone.err


def test_a_search_is_found_by_its_folder_if_that_was_renamed(run: Run, storage: Path) -> None:
    (storage / "first").rename(storage / "renamed")
    assert "search 'renamed'" in run("operating-point", "--search", "renamed").out
    assert "search 'renamed'" in run(*ASK, "rte").out
    refused = run("operating-point", "--search", "first")
    assert refused.status == 2 and "known: renamed" in refused.err


def test_searches_are_asked_in_the_order_of_their_start(run: Run, storage: Path) -> None:
    searched(storage, "a")  # the same trials, not to be averaged
    assert [line.split(":")[0] for line in run(*ASK, "rte").err.splitlines()[1:]] == [
        "  first",
        "  a",
    ]


def test_a_search_with_trials_left_is_said_to_be_incomplete(run: Run, storage: Path) -> None:
    ask = ("operating-point", "--search", "first", "--format", "json")

    def said() -> list[str]:
        [answer] = json.loads(run(*ask).out)
        return [one["text"] for one in answer["warnings"] if one["code"] == "search_incomplete"]

    assert said() == ["search 'first' is not complete (killed); `elsa-tune resume first` goes on"]
    with Journal(SearchPaths(storage, "first").journal) as journal:
        assert said() == ["search 'first' is not complete (running)"]
        journal.append(SearchEnded(status=SearchStatus.TIME_UP))
        assert "not complete (time up)" in said()[0]
        journal.append(SearchEnded(status=SearchStatus.COMPLETED))
        assert said() == []


def test_a_search_is_answered_at_its_own_target_unless_another_is_given(
    run: Run, storage: Path
) -> None:
    def target(*more: str) -> float:
        asked = run("operating-point", "--search", "first", "--format", "json", *more)
        [answer] = json.loads(asked.out)
        assert elsa_tune.answer("first", *map(float, more[1:]))[0].target == answer["target"]
        return float(answer["target"])

    assert target() == 0.9  # recorded before searches said what they were after
    with Journal(SearchPaths(storage, "first").journal) as journal:
        journal.append(started(make_spec(name="first", target=0.95), 2))
    assert target() == 0.95
    assert target("--target", "0.9") == 0.9
    rows = elsa_tune.load_search("first").trials()
    assert elsa_tune.answer(rows)[0].target == 0.95


def test_a_search_that_was_killed_before_its_first_trial_can_be_gone_on_with(
    run: Run, storage: Path
) -> None:
    paths = journal_of(storage, "early", [search_started("early")])
    save_specification(make_spec(name="early"), paths)
    words = "search 'early' has begun no trial; `elsa-tune resume early` goes on"
    for _ in range(2):
        for way in (("--search", "early"), ("--from", str(paths.journal))):
            found = run("operating-point", *way)
            assert found.status == 3 and words in found.err
        with pytest.raises(NoAnswerError, match=re.escape(words)):
            elsa_tune.answer("early")
        paths.journal.write_bytes(b"")  # killed even before


def test_an_empty_journal_does_not_hide_what_mlflow_has(run: Run, store: list[str]) -> None:
    paths = SearchPaths(StorePaths(Path.cwd()).storage, "elsewhere")
    paths.check_writable()
    search_id = search_started("elsewhere").search_id
    save_specification(make_spec(name="elsewhere", search_id=search_id), paths)
    paths.journal.write_bytes(b"")
    found = run("operating-point", "--search", "elsewhere")
    assert found.status == 0 and "search 'elsewhere'" in found.out


def test_each_search_is_answered_and_advised_at_its_own_target(run: Run, storage: Path) -> None:
    """A hunt for 95 % beside a search for 90: its second look may still be taken, for 95 %."""
    looks = Looks(after=0, first_seed=1, counts=(SeedCounts(2, 2), SeedCounts(5, 3)))
    records: list[Record] = [started(make_spec(name="hunt", target=0.95), 1)]
    for frozen, qualities in ((0, (0.90, 0.902)), (3, (0.90, 0.85))):
        for seed, quality in enumerate(qualities, 1):
            key = f"measure-N{frozen}-s{seed}"
            records.append(trial_started(key, search="hunt", task="cola", looks=looks))
            records += [report(key, 3, quality), trial_ended(key, TrialStatus.COMPLETED, quality)]
    journal_of(storage, "hunt", [*records, SearchEnded(status=SearchStatus.COMPLETED)])

    def asked(*more: str) -> tuple[float, str | None]:
        [answer] = json.loads(run("operating-point", *more, "--format", "json").out)
        return answer["target"], answer["next_step"]

    further = "elsa-tune resume hunt --until certified"
    for way in (("--search", "hunt"), ("--model", "minilm", "--task", "cola")):
        assert asked(*way) == (0.95, further)
        assert asked(*way, "--target", "0.9") == (0.9, None)
    assert asked("--search", "first")[0] == 0.9


def test_a_target_that_cannot_be_read_is_said(run: Run, storage: Path) -> None:
    with Journal(SearchPaths(storage, "first").journal) as journal:
        begun = search_started(attempt=2)
        journal.append(dataclasses.replace(begun, params={**begun.params, "target": "much"}))
    found = run("operating-point", "--search", "first")
    assert found.status == 2 and "the target of first cannot be read" in found.err


def test_a_search_by_a_method_of_another_package_stands_in_nobodys_way(
    run: Run, storage: Path
) -> None:
    key = "measure-N3-s9"
    of_unknown_method = trial_started(key, search="other", candidate={"low_rank_width": 8})
    ended = trial_ended(key, TrialStatus.COMPLETED, 0.9)
    paths = journal_of(storage, "other", [search_started("other"), of_unknown_method, ended])
    found = run(*ASK, "rte")
    assert found.status == 0 and "search 'first'" in found.out
    assert found.err.count("left out: ") == 1
    assert f"trial {key} of search 'other' cannot be read" in found.err
    alone = run("operating-point", "--search", "other")
    assert alone.status == 2 and "import the package that brings its method" in alone.err
    assert "delete" not in alone.err
    with pytest.raises(UnknownMethodError, match="import the package"):
        Plan.of(make_spec(), paths, read_state(paths.journal))


def test_a_journal_that_is_left_out_is_said_once(run: Run, storage: Path) -> None:
    searched(storage, "bad").journal.write_text("{}\n{}\n")
    for way in ((), ("--storage-path", str(storage))):
        found = run(*ASK, "rte", *way)
        assert found.status == 0 and found.err.count("left out: ") == 1


def test_a_stored_search_has_its_folder_where_that_is_on_this_machine(
    storage: Path, run: Run
) -> None:
    """What needs its model and data, or goes on with it, finds them also through its store."""
    stored = TableStore(f"records://{storage}/records.db")
    paths = SearchPaths(storage, "first")
    *begun, _ = read_journal(paths.journal)  # it has trials left
    stored.sink(paths.journal).send(begun)
    ask = ("operating-point", "--search", "first", "--tracking-uri", stored.uri)

    def folder() -> Path | None:
        question = Question(search="first")
        source = recorded(question, StorePaths(Path.cwd()), stored.uri, print)
        [curve] = source.curves(question, source.ask(question, print))
        return source.folder_of(question, curve)

    assert folder() is None  # nothing can go on there
    assert "goes on" not in run(*ask).out
    save_specification(make_spec(name="first"), paths)
    assert folder() == paths.folder
    assert "`elsa-tune resume first` goes on" in run(*ask).out
