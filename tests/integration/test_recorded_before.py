"""Searches that an earlier version recorded are listed, answered, resumed and exported by this one.

`tests/recorded/README.md` says what they are.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import re
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elsa_tune
from elsa_tune.analysis.answers import answer_curves
from elsa_tune.sources.source import Question
from elsa_tune.sources.stored import Stored
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import read_state
from tests.conftest import Run
from tests.recorded_before import HERE, NEW_KEYS, RECORDED, recorded_work, without_new_keys
from tests.searching import Bench, of_kind

pytestmark = pytest.mark.timeout(500)

SEARCHES = sorted(folder.name for folder in (RECORDED / "searches").iterdir())
FINISHED = [name for name in SEARCHES if not name.endswith("-cut")]
ANSWERS = RECORDED / "answers"
STORE = "sqlite:///mlruns/mlflow.db"
DECIMALS = re.compile(r"-?\d+\.\d+")
# Of an exported model: what its file of facts says beside the answer.
EXPORTED = """
base revision frozen_layers embeddings_frozen prefix_sha256 max_length text_columns quality
fine_tuned_layers chosen promised seeds_measured learning_rate seed epochs train_examples search
elsa-tune torch transformers
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a working directory whose searches are asked only."""
    return recorded_work(tmp_path_factory.mktemp("asked") / "work")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a working directory that has only MLflow's record of them."""
    work = recorded_work(tmp_path_factory.mktemp("stored") / "work")
    shutil.rmtree(work / "mlruns" / "searches")
    return work


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a working directory whose searches may go on; enter it."""
    work = recorded_work(tmp_path / "work")
    monkeypatch.chdir(work)
    return Bench(work)


def expected(name: str) -> str:
    """Return the recorded answer, in a file of this name."""
    return (ANSWERS / f"{name}.json").read_text(encoding="utf-8")


def check_answer(printed: str, name: str, work: Path) -> None:
    """Fail unless the answer of a search in a working directory is the recorded one."""
    printed = without_new_keys(printed.replace(str(work), HERE)) + "\n" * printed.endswith("\n")
    if not name.startswith("scores"):
        assert printed == expected(name)
        return
    # Sums of products of values are rounded differently by different processors, those of classes,
    # which are counted, are not: the sixth decimal of what is resampled may differ.
    assert DECIMALS.sub("", printed) == DECIMALS.sub("", expected(name))
    numbers = [float(number) for number in DECIMALS.findall(printed)]
    recorded = [float(number) for number in DECIMALS.findall(expected(name))]
    assert numbers == pytest.approx(recorded, abs=2e-6)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_journal_is_answered_as_it_was(
    name: str, asked: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(asked)
    check_answer(run("operating-point", name, "--format", "json").out, name, asked)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_store_is_answered_as_it_was(
    name: str, stored: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stored)
    found = run("operating-point", "--search", name, "--tracking-uri", STORE, "--format", "json")
    check_answer(found.out, f"{name}-stored", stored)


def told(values: Any) -> list[str]:
    """Return what answers, curves or comparisons say; curves are answered anew."""
    texts = [repr(values), values.to_dataframe().to_csv()]
    if isinstance(values, elsa_tune.Curves):
        for answer in answer_curves(values, 0.8):
            texts += [str(answer), answer.sentence, answer.certainty]
    return texts


def told_again(pickled: bytes) -> list[str]:
    return told(pickle.loads(pickled))


def test_what_is_asked_from_python_says_the_same_in_another_process_without_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = recorded_work(tmp_path / "work")
    monkeypatch.chdir(work)
    search = elsa_tune.load_search("minilm-hunt")
    trials = search.trials()
    found: list[Any] = []
    for source in (search, trials, trials.drop(columns="looks")):
        found += [ask(source) for ask in (elsa_tune.answer, elsa_tune.curve, elsa_tune.compare)]
    store = Stored(f"sqlite:///{work}/mlruns/mlflow.db")
    question = Question(search="minilm-hunt")
    rows = store.ask(question, print)
    found.append(elsa_tune.Curves(store.curves(question, rows)))
    pickles = [pickle.dumps(values) for values in found]
    before = [told(values) for values in found]
    for values, pickled in zip(found, pickles, strict=True):
        assert pickle.loads(pickled) == values
        assert b"mlflow.db" not in pickled  # a store's URI may have a password
    shutil.rmtree(work / "mlruns")
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning) as pool:
        after = list(pool.map(told_again, pickles))
    assert after == before


@pytest.fixture
def in_utc() -> Iterator[None]:
    """Have times shown in UTC; the C library reads TZ once, unless it is told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize("place", ["asked", "stored"])
def test_searches_are_listed_as_they_were(
    place: str, run: Run, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    work: Path = request.getfixturevalue(place)
    monkeypatch.chdir(work)
    listed = json.loads(run("searches", "--format", "json").out)
    before = json.loads(expected(f"searches-{place}").replace(HERE, str(work)))
    for search, recorded in zip(listed, before, strict=True):
        assert {name: search[name] for name in recorded} == recorded


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_reported(
    name: str, asked: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(asked)
    found = run("report", name, "--out", tmp_path / "report")
    assert found.out == f"{tmp_path / 'report' / 'index.html'}\n", found.err
    answers = (tmp_path / "report" / "answers.json").read_text(encoding="utf-8")
    check_answer(answers, name, asked)


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_search_that_is_resumed_trains_nothing_and_answers_the_same(
    name: str, bench: Bench, run: Run
) -> None:
    before = bench.records(name)
    found = run("resume", name)
    assert found.status in (0, 3), found.err
    after = bench.records(name)
    assert after[: len(before)] == before
    assert not of_kind(after[len(before) :], "trial_started")
    check_answer(run("operating-point", name, "--format", "json").out, name, bench.folder)


# Quickly, of a hunt, in the next one; of a new search, in tests/faults/test_driver.py.
@pytest.mark.thorough
@pytest.mark.usefixtures("ray")
def test_a_search_whose_driver_was_killed_goes_on(bench: Bench, run: Run) -> None:
    resume_to_the_end(bench, run, "even-cut")
    done = completed(bench.records("even-cut"))
    assert {key: count for key, count in done.items() if key.startswith("measure")} == {
        "measure-N0-lr3e-03-s1": 1,
        "measure-N0-lr3e-03-s2": 1,
        "measure-N2-lr3e-03-s1": 1,
        "measure-N2-lr3e-03-s2": 1,
        "measure-N4-lr1e-02-s1": 1,
        "measure-N4-lr1e-02-s2": 1,
    }


@pytest.mark.thorough
@pytest.mark.usefixtures("ray")
def test_a_hunt_that_was_interrupted_goes_on(bench: Bench, run: Run) -> None:
    before = bench.records("hunt-cut")
    resume_to_the_end(bench, run, "hunt-cut")
    after = bench.records("hunt-cut")
    # The ladder is decided once, and what was measured has the rates that were chosen then.
    ladders = [one["value"] for one in of_kind(after, "decision") if one["what"] == "ladder"]
    assert ladders == [[2]]
    assert rates_measured(before).items() <= rates_measured(after).items()
    # The same looks, as a text in the old records and as an object in the new ones.
    rows = rows_of(read_state(bench.journal("hunt-cut")))
    looks = {row.looks for row in rows if (row.trial or "").startswith("measure-N4-")}
    assert len(looks) == 1 and None not in looks


def resume_to_the_end(bench: Bench, run: Run, name: str) -> None:
    """Resume a search, and fail unless its record goes on as it began."""
    before = bench.records(name)
    found = run("resume", name)
    assert found.status in (0, 3), found.err
    after = bench.records(name)
    assert after[: len(before)] == before
    new = after[len(before) :]
    assert of_kind(new, "search_ended")[-1]["status"] == "completed"
    # What had ended is not trained again; what was cut short is, and says so.
    kept = {one["trial"] for one in of_kind(before, "trial_ended") if is_kept(one)}
    started = {one["trial"]: one["attempt"] for one in of_kind(new, "trial_started")}
    assert kept and not kept & started.keys()
    cut_short = {one["trial"] for one in of_kind(before, "trial_started")} - kept
    assert cut_short and all(started[trial] == 2 for trial in cut_short)
    check_names(before, new)
    check_runs(bench, name)
    forwarded = bench.folder / "mlruns" / "searches" / name / "forwarded.json"
    assert json.loads(forwarded.read_text()).keys() >= {"tracking_uri", "until"}


def is_kept(end: dict[str, Any]) -> bool:
    """Return whether a trial that ended so is not trained again."""
    return end["status"] in ("completed", "stopped_early", "diverged")


def completed(records: list[dict[str, Any]]) -> Counter[str]:
    """Return how often each trial completed."""
    ends = of_kind(records, "trial_ended")
    return Counter(end["trial"] for end in ends if end["status"] == "completed")


def rates_measured(records: list[dict[str, Any]]) -> dict[str, str]:
    """Return by the first part of the measuring trials' keys the learning rate in them."""
    keys = [one["trial"] for one in of_kind(records, "trial_started")]
    parts = [key.split("-lr") for key in keys if key.startswith("measure-")]
    return {depth: rest.rsplit("-s", 1)[0] for depth, rest in parts}


def check_names(before: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    """Fail where a new record lacks a name that all earlier ones of its kind have."""
    for what in ("", "params", "tags", "metrics"):
        persisted = common_names(before, what)
        written = common_names(new, what)
        for kind in persisted.keys() & written.keys():
            assert persisted[kind] <= written[kind], (kind, what)


def common_names(records: list[dict[str, Any]], what: str) -> dict[str, set[str]]:
    """Return by kind the names that each record has in its field `what`, "" for its own fields."""
    found: dict[str, set[str]] = {}
    for record in records:
        phase = record.get("trial", "").partition("-")[0]
        kind = f"{record['kind']} {phase} {record.get('what')} {record.get('status')}"
        names = set(record.get(what, {}) if what else record)
        found[kind] = found.get(kind, names) & names
    return found


def check_runs(bench: Bench, name: str) -> None:
    """Fail unless each trial has one run in MLflow, with the names that earlier runs have."""
    runs = bench.query(
        "select r.run_uuid, r.start_time, r.status, t.value from runs r join tags s on s.run_uuid "
        "= r.run_uuid and s.key = 'elsa_tune.search' left join tags t on t.run_uuid = r.run_uuid "
        f"and t.key = 'elsa_tune.trial' where s.value = '{name}'"
    )
    assert set(Counter(trial for *_, trial in runs).values()) == {1}
    assert {status for _, _, status, _ in runs} <= {"FINISHED", "FAILED"}
    resumed = 1000 * of_kind(bench.records(name), "search_started")[-1]["time"]
    measured = [one for one in runs if (one[3] or "").startswith("measure")]
    for table in ("tags", "params", "metrics"):
        old = [names_of(bench, table, run) for run, start, *_ in measured if start < resumed]
        new = [names_of(bench, table, run) for run, start, *_ in measured if start >= resumed]
        assert old and new
        assert set.intersection(*old) <= set.intersection(*new), table
    # The search's own run has what that of a finished one has.
    [own] = [run for run, _, _, trial in runs if trial is None]
    [[finished]] = bench.query(
        "select run_uuid from tags where key = 'mlflow.runName' and value = 'no answer: even'"
    )
    for table in ("tags", "params"):
        assert names_of(bench, table, finished) <= names_of(bench, table, own), table


def names_of(bench: Bench, table: str, run: str) -> set[str]:
    """Return the names that a run has in one of MLflow's tables."""
    return {key for (key,) in bench.query(f"select key from {table} where run_uuid = '{run}'")}


def test_a_recorded_answer_is_exported(bench: Bench, run: Run) -> None:
    found = run("export", "minilm", "--out", "model-out")
    assert found.status == 0, found.err
    about = json.loads((bench.folder / "model-out" / "elsa-tune.json").read_text())
    [answer] = json.loads(expected("minilm"))
    for point in about["curve"]:
        for key in NEW_KEYS:
            point.pop(key)
    assert {name: about[name] for name in answer} == answer
    assert about["exported"].keys() >= set(EXPORTED.split())
    assert about["exported"]["search"] == "minilm"
    [final] = (bench.folder / "mlruns" / "searches" / "minilm" / "predictions").glob("final-*.npz")
    with np.load(final) as kept:
        right = float(np.mean(kept["predictions"] == kept["labels"]))
    assert right == pytest.approx(about["exported"]["quality"])


def test_a_search_with_the_tag_of_versions_between_is_answered(
    stored: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the store's searches gets the other tag, as some versions wrote it."""
    work = tmp_path / "work"
    shutil.copytree(stored, work)
    monkeypatch.chdir(work)
    with closing(sqlite3.connect(work / "mlruns" / "mlflow.db")) as store:
        store.execute(
            "update tags set key = 'elsa_tune.searching' "
            "where key = 'elsa_tune.search' and value = 'even'"
        )
        store.commit()
    for name in ("even", "minilm"):
        found = run("operating-point", "--search", name, "--format", "json")
        check_answer(found.out, f"{name}-stored", stored)
    listed = json.loads(run("searches", "--format", "json").out)
    assert sorted(one["name"] for one in listed) == SEARCHES
