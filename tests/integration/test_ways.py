"""A search over every way, whose trials pretend to train: its end, its record, its two answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from elsa_tune import testing
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.state import SearchState, read_state
from tests.commands import Run, runner

pytestmark = pytest.mark.timeout(600)

OTHERS = (BitFit(), Lora(), Lora(last=3))


def quality(candidate: Candidate, learning_rate: float, seed: int, epoch: float) -> float:
    best = {"0": 0.90, "3": 0.89, "6": 0.70, "bitfit": 0.86, "lora": 0.91, "lora-last3": 0.88}
    off = 2e-5 if candidate.is_ranked else 2e-4
    return best[candidate.label] + 0.002 * (seed % 3) - 0.01 * abs(learning_rate / off - 1)


def searched(
    name: str, candidates: tuple[Candidate, ...], place: Path, ray: Capacity
) -> SearchState:
    # One trial at a time: whom early stopping ends depends on who reported before.
    spec = testing.example_spec(
        name=name,
        search_id=name,
        candidates=candidates,
        explored=candidates,
        seeds=5,
        planned_seeds=5,
        evaluation_examples=2000,
        resources=ray.resources(ray.largest_cpus, 0),
    )
    return testing.search(spec, quality, place)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ways")


@pytest.fixture
def place(folder: Path, ray: Capacity) -> Path:
    """Return a working directory with a search over all ways, and one over depths alone."""
    for name, others in (("every_way", OTHERS), ("depths_alone", ())):
        if not SearchPaths(StorePaths(folder).storage, name).exists:
            assert searched(name, (*testing.EXAMPLE_DEPTHS, *others), folder, ray).is_complete
    return folder


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(place, monkeypatch, capsys)


def test_it_ends_with_the_comparison_and_then_the_depths(run: Run) -> None:
    printed = run("resume", "every_way")
    assert run("compare", "every_way").splitlines()[1] == printed.splitlines()[1]
    assert "LoRA of rank 8 on the last 3 layers" in printed
    assert printed.index("LoRA of rank 8") < printed.index("   tuned")


def test_freezing_is_answered_as_if_nothing_else_had_been_compared(run: Run) -> None:
    """To the digit: its curve, its spread, its certificate."""
    answers = []
    for name in ("every_way", "depths_alone"):
        printed = run("operating-point", "--search", name, "--format", "json")
        [answer] = json.loads(printed.replace(name, "NAME"))
        answers.append(answer)
    beside, alone = answers
    assert beside == alone
    assert alone["certified"] is not None


def test_the_record_has_the_comparison(run: Run, place: Path) -> None:
    state = read_state(SearchPaths(StorePaths(place).storage, "every_way").journal)
    [recorded] = state.decisions["comparison"]
    [compared] = json.loads(run("compare", "every_way", "--format", "json"))
    # Recorded with the folder in its commands, which this one does without in its own folder.
    for told in (recorded, compared):
        del told["lines"], told["warnings"]
    assert recorded == compared
    assert len(compared["ways"]) == 6
    client = MlflowClient(f"sqlite:///{StorePaths(place).database}")
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    tags: list[dict[str, Any]] = [one.data.tags for one in runs]
    [parent] = [one for one in tags if "decision.comparison" in one]
    assert compared["headline"] in parent["mlflow.note.content"]
    depths = read_state(SearchPaths(StorePaths(place).storage, "depths_alone").journal)
    assert "comparison" not in depths.decisions


@pytest.mark.thorough
def test_without_depths_the_comparison_is_the_whole_answer(
    run: Run, place: Path, ray: Capacity
) -> None:
    state = searched("others", (REFERENCE, *OTHERS), place, ray)
    assert state.is_complete
    printed = run("resume", "others")
    assert "LoRA of rank 8" in printed and "No answer" not in printed
    assert run("report", "--search", "others", "--out", str(place / "page")).endswith("html\n")
    listed = json.loads(run("searches", "--format", "json"))
    commands = {one["name"]: one["next"] for one in listed}
    assert commands["others"] == "elsa-tune compare others"
    assert commands["depths_alone"] == "elsa-tune answer depths_alone"
    run("operating-point", "--search", "others", status=3)
