"""A search over freeze depths and LoRA, which a file of its own registers: from YAML to a bundle.

What Ray, the journal, MLflow and a saved model make of another method; what answers and figures say
of one, in every case that there is, is in tests/unit/test_another_method.py, which runs no search.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient
from transformers import AutoModelForSequenceClassification

from elsa_tune import testing
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState, read_state
from elsa_tune.training.bundle.together import load_bundle
from tests.commands import Run, runner
from tests.registering import registered
from tests.searching import ONE_AT_A_TIME, Bench, make_bench

# Quickly, without a search: tests/unit/test_low_rank.py.
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", autouse=True)
def low_rank() -> Iterator[Candidate]:
    with registered("tests.low_rank") as module:
        yield module.LowRank(4)


def quality(candidate: Candidate, learning_rate: float, seed: int, epoch: float) -> float:
    best = {"0": 0.90, "3": 0.85, "6": 0.70, "low4": 0.88}[candidate.label]
    off = 4e-4 if candidate.label == "low4" else 2e-5
    return best + 0.001 * seed - 0.02 * abs(learning_rate / off - 1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("methods") / "bench")


@pytest.fixture
def place(bench: Bench, low_rank: Candidate, ray: Capacity) -> Path:
    """Return a working directory with a search of pretended trials, which runs once."""
    place = bench.folder
    if bench.journal("example").exists():
        return place
    candidates = (*testing.EXAMPLE_DEPTHS, low_rank)
    spec = testing.example_spec(
        candidates=candidates, explored=candidates, seeds=3, planned_seeds=3
    )
    state = testing.search(spec, quality, place)
    assert state.is_complete
    return place


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(place, monkeypatch, capsys)


def state_of(place: Path, name: str = "example") -> SearchState:
    return read_state(SearchPaths(StorePaths(place).storage, name).journal)


def test_the_journal_names_it_and_gives_it_back(place: Path, low_rank: Candidate) -> None:
    rows = [row for row in rows_of(state_of(place)) if row.candidate == low_rank]
    measured = [row for row in rows if row.phase is Phase.MEASURE]
    assert [row.seed for row in measured] == [1, 2, 3]
    assert {row.status for row in measured} == {TrialStatus.COMPLETED}
    assert all(
        key.startswith(f"measure-{low_rank.key}-") for key in (r.trial or "" for r in measured)
    )


def test_it_explores_rates_of_its_own(place: Path, low_rank: Candidate) -> None:
    rows = rows_of(state_of(place))
    for row in rows:
        low, high = row.given_rates or (0.0, 0.0)
        assert (low, high) == ((1e-4, 2e-3) if row.candidate == low_rank else (2e-5, 5e-5))
        assert low <= (row.learning_rate or 0.0) <= high
    explored = {row.learning_rate for row in rows if row.candidate == low_rank}
    assert len(explored) == 2


def first_of(printed: str) -> Any:
    answers = json.loads(printed)
    return answers[0] if isinstance(answers, list) else answers


def test_the_cheapest_that_keeps_the_target_is_the_answer(run: Run, low_rank: Candidate) -> None:
    answer = first_of(run("operating-point", "--format", "json"))
    for name in ("operating_point", "recommendation"):
        assert (answer[name]["candidate"], answer[name]["label"]) == (low_rank.key, low_rank.label)
        assert answer[name]["frozen_layers"] is answer[name]["fine_tuned_layers"] is None
    # All depths kept to the rates that were given: no other answer would come of these.
    assert answer["operating_point_within_given_rates"] is None
    curve = [(point["frozen_layers"], point["candidate"]) for point in answer["curve"][-1:]]
    assert curve == [(None, low_rank.key)]
    assert [point["frozen_layers"] for point in answer["curve"]] == [0, 3, 6, None]


def test_tables_and_reports_name_it(run: Run, place: Path, low_rank: Candidate) -> None:
    table = run("operating-point", "--details")
    assert "LoRA of rank 4" in table and "None" not in table
    lines = csv.DictReader(io.StringIO(run("curve", "--format", "csv")))
    labels = [line["label"] or line["frozen_layers"] for line in lines]
    assert labels == ["0", "3", "6", low_rank.label]
    run("report", "--out", str(place / "page"))
    page = (place / "page" / "index.html").read_text(encoding="utf-8")
    assert low_rank.label in page
    assert list((place / "page").glob("**/*.png")) or "<svg" in page


def test_mlflow_gives_it_back(run: Run, place: Path, low_rank: Candidate) -> None:
    uri = f"sqlite:///{StorePaths(place).database}"
    words = ("operating-point", "--search", "example", "--format", "json")
    by_journal = json.loads(run(*words))
    by_mlflow = json.loads(run(*words, "--tracking-uri", uri))
    assert by_mlflow == by_journal
    client = MlflowClient(uri)
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    [parent] = [one for one in runs if "decision.answer" in one.data.tags]
    assert parent.data.tags["k"] == low_rank.label
    assert parent.data.tags["rate"] != "-"
    steps = [one.step for one in client.get_metric_history(parent.info.run_id, "quality")]
    # Its rank is no whole number: it stands behind the depths.
    assert steps == [0, 3, 6, 7]


def test_a_table_gives_it_back(run: Run, place: Path, low_rank: Candidate) -> None:
    run("report", "--out", str(place / "tables"))
    trials = next((place / "tables").glob("**/trials.csv"))
    by_table = first_of(run("operating-point", "--from", str(trials), "--format", "json"))
    assert by_table["operating_point"]["candidate"] == low_rank.key


@pytest.fixture
def real(place: Path, bench: Bench, run: Run) -> Path:
    """Return the same directory with a search of real trials, which runs once.

    They have one rate for depths, and LoRA's own range.
    """
    if bench.journal("real").exists():
        return place
    settings = ("epochs=1", "depths=[0, 2, low4]", "learning_rate=[5e-5]")
    options = [word for setting in settings for word in ("--set", setting)]
    # So few steps teach the full model nothing, and there is no answer.
    run(*bench.search("real", *options, "--seeds", "1", *ONE_AT_A_TIME), status=3)
    return place


def test_a_space_names_it_and_real_trials_train_it(real: Path, low_rank: Candidate) -> None:
    state = state_of(real, "real")
    assert state.is_complete
    rows = rows_of(state)
    trained = {row.candidate: row.trainable_parameters or 0 for row in rows}
    full, head, added = (trained[read_candidate(label)] for label in ("0", "2", low_rank.label))
    assert head < added < full
    explored = {row.candidate for row in rows if row.phase is Phase.EXPLORE}
    assert explored == {low_rank}


def test_it_is_exported_predicts_and_is_bundled(real: Path, run: Run, low_rank: Candidate) -> None:
    run("export", "real", "--way", low_rank.label, "--out", "adapted")
    run("export", "real", "--layers", "0", "--out", "frozen")
    model, report = AutoModelForSequenceClassification.from_pretrained(
        real / "adapted", output_loading_info=True
    )
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    about = json.loads((real / "adapted" / "elsa-tune.json").read_text())["exported"]
    assert (about["candidate"], about["label"]) == (low_rank.key, low_rank.label)
    card = (real / "adapted" / "README.md").read_text()
    assert "LoRA of rank 4" in card and "bit for bit" not in card
    assert "bit for bit" in (real / "frozen" / "README.md").read_text()
    columns = ",".join(model.config.elsa_tune["text_columns"])
    texts = ["the film was good", "a dull story"]
    (real / "rows.csv").write_text("\n".join([columns, *texts]) + "\n")
    scored = list(csv.DictReader(io.StringIO(run("predict", "adapted", "rows.csv"))))
    assert [line["prediction"] in model.config.label2id for line in scored] == [True, True]
    run("bundle", "adapted", "frozen", "--out", "both")
    assert set(load_bundle(real / "both").tasks) == {"adapted", "frozen"}
