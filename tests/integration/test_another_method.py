"""A search over freeze depths and over a second method, which a file of its own registers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elsa_tune import testing
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import read_candidate
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState, read_state
from tests.registering import registered

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module", autouse=True)
def biases() -> Iterator[Candidate]:
    with registered("tests.biases") as module:
        yield module.Biases()


def quality(candidate: Candidate, learning_rate: float, seed: int, epoch: float) -> float:
    best = {"0": 0.90, "3": 0.85, "6": 0.70, "biases": 0.88}[candidate.label]
    return best + 0.001 * seed - 100 * abs(learning_rate - 2e-5)


@pytest.fixture(scope="module")
def place(biases: Candidate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a search of pretended trials."""
    place = tmp_path_factory.mktemp("methods")
    candidates = (*testing.EXAMPLE_DEPTHS, biases)
    spec = testing.example_spec(
        candidates=candidates, explored=candidates, seeds=3, planned_seeds=3
    )
    state = testing.search(spec, quality, place)
    assert state.is_complete
    return place


Run = Callable[..., str]


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns what a command prints on stdout in that directory."""
    from elsa_tune.cli import app

    monkeypatch.chdir(place)

    def run(*words: str, status: int = 0) -> str:
        monkeypatch.setattr("sys.argv", ["elsa-tune", *words])
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert (ended.value.code or 0) == status
        return capsys.readouterr().out

    return run


def state_of(place: Path, name: str = "example") -> SearchState:
    return read_state(SearchPaths(StorePaths(place).storage, name).journal)


def test_the_journal_names_it_and_gives_it_back(place: Path, biases: Candidate) -> None:
    state = state_of(place)
    measured = [
        row for row in rows_of(state) if row.candidate == biases and row.phase is Phase.MEASURE
    ]
    assert [row.seed for row in measured] == [1, 2, 3]
    assert {row.status for row in measured} == {TrialStatus.COMPLETED}
    assert {row.learning_rate for row in measured} == {2e-5}
    assert all(key.startswith("measure-Bbiases-") for key in (row.trial or "" for row in measured))


def test_the_cheapest_that_keeps_the_target_is_the_answer(run: Run) -> None:
    answer = json.loads(run("operating-point", "--format", "json"))
    answer = answer[0] if isinstance(answer, list) else answer
    assert answer["operating_point"]["candidate"] == "Bbiases"
    assert answer["operating_point"]["frozen_layers"] is None
    assert answer["operating_point"]["fine_tuned_layers"] is None
    curve = [(point["frozen_layers"], round(point["quality"], 3)) for point in answer["curve"]]
    assert curve == [(0, 0.902), (3, 0.852), (6, 0.702), (None, 0.882)]


def test_tables_and_reports_name_it(run: Run, place: Path) -> None:
    table = run("operating-point", "--details")
    assert "the biases" in table
    lines = csv.DictReader(io.StringIO(run("curve", "--format", "csv")))
    labels = [line["label"] or line["frozen_layers"] for line in lines]
    assert labels == ["0", "3", "6", "biases"]
    run("report", "--out", str(place / "page"))
    page = (place / "page" / "index.html").read_text(encoding="utf-8")
    assert "biases" in page
    assert list((place / "page").glob("**/*.png")) or "<svg" in page


def test_mlflow_gives_it_back(run: Run, place: Path, biases: Candidate) -> None:
    uri = f"sqlite:///{StorePaths(place).database}"
    words = ("operating-point", "--search", "example", "--format", "json")
    by_journal = json.loads(run(*words))
    by_mlflow = json.loads(run(*words, "--tracking-uri", uri))
    assert by_mlflow == by_journal


def test_a_table_gives_it_back(run: Run, place: Path) -> None:
    run("report", "--out", str(place / "tables"))
    trials = next((place / "tables").glob("**/trials.csv"))
    by_table = json.loads(run("operating-point", "--from", str(trials), "--format", "json"))
    by_table = by_table[0] if isinstance(by_table, list) else by_table
    assert by_table["operating_point"]["candidate"] == "Bbiases"


def test_a_space_names_it_and_real_trials_train_it(run: Run, place: Path) -> None:
    run(
        *("search", "--model", "minilm", "--task", "stdlib", "--space", "demo", "--name", "real"),
        *("--train-size", "64", "--seeds", "1", "--set", "epochs=1", "--set", "linear_probe=false"),
        *("--set", "depths=[0, 6, biases]", "--set", "learning_rate=[5e-5]"),
        status=3,  # so few rows teach the full model nothing, and there is no answer
    )
    state = state_of(place, "real")
    assert state.is_complete
    trained = {row.candidate: row.trainable_parameters or 0 for row in rows_of(state)}
    full, head, biases = (trained[read_candidate(label)] for label in ("0", "6", "biases"))
    assert head < biases < full / 100
