"""`elsa-tune searches` and `elsa-tune ui` as a user types them."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.cli.app import main
from elsa_tune.searching.board_lines import candidate_lines, counts_of
from elsa_tune.searching.planning.known import known_trial
from elsa_tune.searching.specification import save_specification
from elsa_tune.sources.record import list_searches
from elsa_tune.specs.search import Extension
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Decision, Record, SearchEnded, SearchStatus
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.state import SearchState, read_state
from tests.recorded_search import (
    journal_of,
    probed,
    report,
    search_started,
    trial_ended,
    trial_started,
    whole_search,
    whole_trial,
)
from tests.unit.search_examples import make_spec


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the default storage of a fresh working directory."""
    monkeypatch.chdir(tmp_path)
    return StorePaths(tmp_path).storage


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["elsa-tune", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_nothing_recorded(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "searches") == 0
    out, err = capsys.readouterr()
    assert out == "" and "no search is recorded" in err and "elsa-tune search" in err
    assert run(monkeypatch, "searches", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == []
    assert not storage.parent.exists()  # a question leaves nothing behind


def test_the_list(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = whole_search("done", 4)
    first = dataclasses.replace(first, time=1.0)
    journal_of(storage, "done", [first, *probed(0.7, "done"), *rest])
    unlearnt = {"layers": 6, "operating_point": None, "reason": "full_model_did_not_learn"}
    begun = dataclasses.replace(search_started("stopped", task="cola"), time=2.0)
    stopped = [begun, *whole_trial("measure-N0-s0", 0.5)]
    stopped += [trial_started("measure-N3-s1"), Decision(what="answer", value=[unlearnt])]
    stopped += [SearchEnded(status=SearchStatus.INTERRUPTED)]
    journal_of(storage, "stopped", stopped)
    early = trial_ended("measure-N3-s1", TrialStatus.STOPPED_EARLY)
    began = dataclasses.replace(search_started("dead"), time=3.0)
    journal_of(storage, "dead", [began, trial_started("measure-N3-s1"), early])
    with Journal(SearchPaths(storage, "live").journal) as live:
        live.append(search_started("live"))
        assert run(monkeypatch, "searches", "--format", "json") == 0
        found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
        assert list(found) == ["live", "dead", "stopped", "done"]  # the latest first
        states = {name: entry["status"] for name, entry in found.items()}
        assert states == {
            "done": "completed",
            "stopped": "interrupted",
            "dead": "killed",
            "live": "running",
        }
        done = {name: entry["trials_done"] for name, entry in found.items()}
        assert done == {"done": 4, "stopped": 1, "dead": 1, "live": 0}
        assert found["done"]["trials_planned"] == 4
        assert found["stopped"]["answer"] == [unlearnt] and found["stopped"]["task"] == "cola"
        assert found["dead"]["answer"] is None
        assert {name: entry["next"] for name, entry in found.items()} == {
            "done": "elsa-tune answer done",
            "stopped": "elsa-tune resume stopped",
            "dead": "elsa-tune resume dead",
            "live": None,
        }
        assert run(monkeypatch, "searches") == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "Next: elsa-tune answer done",
        "Next: elsa-tune resume dead (2 are not complete)",
    ]
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == [
        *("name", "model", "task", "status", "trials", "done", "trials", "planned"),
        *("started", "answer"),
    ]
    assert lines[4][:6] == ["done", "minilm", "rte", "completed", "4", "4"]
    assert "3 of 6 layers fine-tuned" in out
    assert "none: full model did not learn" in out


def test_one_search_of_the_list(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        journal_of(storage, name, list(whole_search(name)))
    assert run(monkeypatch, "searches", "first", "--format", "json") == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == ["first"]
    assert run(monkeypatch, "searches", "frist") == 2
    assert "did you mean 'first'" in capsys.readouterr().err
    assert run(monkeypatch, "searches", "first", "--delete", "second") == 2
    assert "are two; name one" in capsys.readouterr().err
    assert run(monkeypatch, "searches", "first", "--delete", "first") == 0
    assert not (storage / "first").exists() and (storage / "second").exists()


@pytest.mark.parametrize("warning", ["a text", {"code": "seeds_failed", "text": "a text"}])
def test_answers_of_both_schema_versions_are_listed(
    warning: Any,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = {"layers": 6, "operating_point": {"fine_tuned_layers": 3}, "warnings": [warning]}
    journal_of(storage, "old", [search_started("old"), Decision(what="answer", value=[answer])])
    assert run(monkeypatch, "searches") == 0
    assert "3 of 6 layers fine-tuned" in capsys.readouterr().out
    assert run(monkeypatch, "searches", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["answer"] == [answer]


def test_an_interrupted_search_is_counted_as_its_board_counted_it(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine planned trials, and two more beyond the given rates that have begun."""
    spec = make_spec(name="mine", tries=1, seeds=2, extend=Extension())
    records: list[Record] = [search_started("mine")]
    for number, rate in enumerate((2e-5, 4e-5, 8e-5)):
        key = f"explore-N3-s{number}"
        records += [trial_started(key, search="mine", learning_rate=rate)]
        records += [report(key, 3, 0.6), trial_ended(key, TrialStatus.COMPLETED, 0.6)]
    records.append(SearchEnded(status=SearchStatus.INTERRUPTED))
    paths = journal_of(storage, "mine", records)
    save_specification(spec, paths)
    known = [known_trial(spec, one) for one in read_state(paths.journal).planned_trials]
    assert counts_of(candidate_lines(spec, known))[0] == "3/11"
    assert run(monkeypatch, "searches") == 0
    assert "interrupted 3 11" in " ".join(capsys.readouterr().out.split())


def test_a_search_says_what_it_has_or_waits_for(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked() -> tuple[int, str | None]:
        assert run(monkeypatch, "searches", "--format", "json") == 0
        [row] = json.loads(capsys.readouterr().out)
        return row["trials_running"], row["waits_for"]

    with Journal(SearchPaths(storage, "mine").journal) as live:
        live.append(search_started("mine"))
        live.append(Decision(what="waiting", value="room: others have it"))
        assert asked() == (0, "room: others have it")
        assert run(monkeypatch, "searches") == 0
        out, err = capsys.readouterr()
        assert "running (no trial)" in out
        assert "search 'mine' waits for room: others have it" in err
        live.append(trial_started("measure-N3-s1", search="mine"))
        assert asked() == (1, None)
        assert run(monkeypatch, "searches") == 0
        assert "running (1 trial)" in capsys.readouterr().out
        live.append(trial_ended("measure-N3-s1", TrialStatus.COMPLETED, 0.6))
        assert asked() == (0, None)  # the wait ended with the trial's beginning
        live.append(Decision(what="waiting", value="room: others have it"))
    assert asked() == (0, None)  # its driver is gone
    with Journal(SearchPaths(storage, "mine").journal) as live:
        live.append(search_started("mine"))
        assert asked() == (0, None)


def test_searches_that_began_together_are_listed_by_name(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("c", "b"):
        journal_of(storage, name, [dataclasses.replace(search_started(name), time=5.0)])
    elsewhere = SearchState(search=search_started("a"), started=5.0)
    monkeypatch.setattr(MlflowStore, "overview", lambda store: [elsewhere])
    found = list_searches(storage, "a store", lambda line: None)
    assert [state.search.name for _, state in found] == ["a", "b", "c"]


def test_the_command_for_a_search_that_a_store_has_names_the_store(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = SearchState(search=search_started("a"), started=5.0)
    monkeypatch.setattr(MlflowStore, "overview", lambda store: [elsewhere])
    assert run(monkeypatch, "searches", "--tracking-uri", "sqlite:///my store.db") == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["Next: elsa-tune answer a --tracking-uri 'sqlite:///my store.db'"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://store:5000")
    assert run(monkeypatch, "searches") == 0
    assert capsys.readouterr().err.splitlines() == ["Next: elsa-tune answer a"]


def test_an_unreadable_journal_is_a_warning_and_the_rest_is_listed(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journal_of(storage, "good", list(whole_search("good", 1)))
    bad = journal_of(storage, "bad", list(whole_search("bad", 1)))
    bad.journal.write_text("{}\n" + bad.journal.read_text())
    assert run(monkeypatch, "searches", "--format", "json") == 0
    out, err = capsys.readouterr()
    assert [entry["name"] for entry in json.loads(out)] == ["good"]
    assert "line 1 cannot be read" in err
    assert run(monkeypatch, "searches", "--delete", "good") == 0
    capsys.readouterr()
    assert run(monkeypatch, "searches") == 0
    assert "line 1 cannot be read" in (err := capsys.readouterr().err)
    assert "no search is recorded" not in err
    # Deleting is the way out of it.
    assert run(monkeypatch, "searches", "--delete", "bad") == 0
    assert not bad.folder.exists()


def test_another_storage_path(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journal_of(Path("else where"), "done", list(whole_search("done", 1)))
    arguments = ["searches", "--storage-path", "else where", "--format", "json"]
    assert run(monkeypatch, *arguments) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["folder"] == str(Path.cwd() / "else where" / "done")
    # As a shell takes it.
    assert entry["next"] == f"elsa-tune answer done --storage-path '{Path.cwd()}/else where'"
    # What a folder lacks is not looked for in MLflow, and a store that is not there is said.
    StorePaths(Path.cwd()).database.parent.mkdir(exist_ok=True)
    StorePaths(Path.cwd()).database.write_bytes(b"no database")
    assert run(monkeypatch, "searches", "--storage-path", "nowhere") == 0
    assert "no search is recorded in" in (err := capsys.readouterr().err) and "mlflow.db" not in err
    assert run(monkeypatch, *arguments, "--tracking-uri", "sqlite:///none.db") == 0
    out, err = capsys.readouterr()
    assert (
        len(json.loads(out)) == 1 and "nothing is recorded in" in err and "--tracking-uri or" in err
    )


def test_deleting(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = journal_of(storage, "rte-minilm", list(whole_search("rte-minilm", 1)))
    assert run(monkeypatch, "searches", "--delete", "rte-minilmm") == 2
    assert "did you mean 'rte-minilm'" in capsys.readouterr().err
    with Journal(paths.journal):
        assert run(monkeypatch, "searches", "--delete", "rte-minilm") == 2
    assert "is running: process" in capsys.readouterr().err
    assert paths.exists
    assert run(monkeypatch, "searches", "--delete", "rte-minilm") == 0
    out, err = capsys.readouterr()
    assert out == "" and "deleted search 'rte-minilm'" in err
    assert not paths.folder.exists() and list(storage.iterdir()) == []
    assert run(monkeypatch, "searches", "--delete", "../x") == 2


def test_a_linked_search_is_not_deleted_and_the_reason_is_said(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = journal_of(storage.parent / "elsewhere", "linked", list(whole_search("linked", 1)))
    storage.mkdir()
    (storage / "linked").symlink_to(elsewhere.folder)
    assert run(monkeypatch, "searches", "--delete", "linked") == 2
    err = capsys.readouterr().err
    assert "it is a link to" in err and str(elsewhere.folder) in err and "None" not in err
    assert elsewhere.journal.exists()
    assert run(monkeypatch, "searches") == 0
    assert "linked" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["searches", "ui"])
def test_a_file_store_is_refused_with_the_remedy(
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    assert run(monkeypatch, command, "--tracking-uri", "./mlruns") == 2
    assert "write sqlite:///FILE.db" in capsys.readouterr().err


def test_the_interface_of_a_server_is_its_address(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "ui", "--tracking-uri", "http://me:secret@server:5000/") == 0
    out, err = capsys.readouterr()
    assert out == "" and "open http://server:5000\n" in err and "secret" not in err


def test_a_port_in_use_is_named(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run(monkeypatch, "ui", "--port", port) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("recommended", "text"),
    [
        ({"frozen_layers": 4, "embeddings_frozen": True, "label": "4"}, "4 frozen layers, 2 fine"),
        ({"frozen_layers": 6, "embeddings_frozen": True, "label": "6"}, "the head alone; depths"),
        ({"frozen_layers": 0, "embeddings_frozen": False, "label": "0"}, "the full model; depths"),
        ({"candidate": "lora-last3", "label": "lora-last3"}, "lora-last3; depths"),
        ({"candidate": "new-1", "label": "of a later version"}, "of a later version; depths"),
    ],
)
def test_the_cheapest_way_is_listed_by_what_its_number_counts(
    recommended: dict[str, Any],
    text: str,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    compared = Decision(what="comparison", value=[{"layers": 6, "recommended": recommended}])
    *begun, ended = whole_search("done", 1)
    journal_of(storage, "done", [*begun, compared, ended])
    assert run(monkeypatch, "searches") == 0
    assert f"the cheapest good way: {text}" in capsys.readouterr().out
