"""`elsa-tune reproduce` as a user runs it, with a tiny model: interrupted, extended, finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from elsa_tune.searching.cluster.capacity import Capacity
from tests.conftest import Run
from tests.searching import ONE_AT_A_TIME, Bench, make_bench, of_kind, terminate, wait_for

pytestmark = pytest.mark.timeout(600)

NAME = "elsa-model-mood-600"
ASKED = ("--models", "model", "--tasks", "task.yaml", *ONE_AT_A_TIME)
STUDY = ("reproduce", "elsa", *ASKED, "--train-size", "600")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path / "study bench", train=640)


@pytest.fixture
def inside(bench: Bench, run: Run, ray: Capacity, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the command line in this process, whose imports are behind it."""
    monkeypatch.chdir(bench.folder)
    return run


def ended(bench: Bench) -> list[str]:
    """Return the trials that came to an end, once for each time they did."""
    records = of_kind(bench.records(NAME), "trial_ended")
    return [record["trial"] for record in records if record["status"] == "completed"]


@pytest.mark.thorough
def test_an_interrupted_study_goes_on_with_more_seeds_and_is_then_done(
    bench: Bench, inside: Run
) -> None:
    process = bench.start(*STUDY, "--seeds", "2")
    wait_for(lambda: len(ended(bench)) >= 1, seconds=200)
    terminate(process)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 130, said
    # Where Ray, which was told to end too, took the driver with it, its parent says so.
    assert "interrupted" in said and "goes on" in said and "Traceback" not in said
    assert of_kind(bench.records(NAME), "search_ended")[-1]["status"] == "interrupted"
    assert bench.query("select count(*) from runs where status = 'RUNNING'") == [(0,)], said
    before = ended(bench)

    dry = inside(*STUDY, "--seeds", "3", "--dry-run")
    assert dry.status == 0, dry.err
    assert f" 14 {14 - len(before)} interrupted" in " ".join(dry.out.split())
    assert "time: about" in dry.out

    # It goes on where it was, with one seed more than it began with.
    finished = inside(*STUDY, "--seeds", "3")
    assert finished.status == 0, finished.err
    # Five rates on the full model, then three seeds of each of three depths, nothing twice.
    assert len(ended(bench)) == len(set(ended(bench))) == 14
    assert ended(bench)[: len(before)] == before
    assert "Here: 3 seeds at each depth; " in finished.out
    assert "tasks mood; at most 600 training examples." in finished.out
    assert "scale full" in finished.out and "0 of 2" in finished.out
    assert "printed" in finished.out and "Not finished" not in finished.out

    again = inside(*STUDY, "--seeds", "3")
    assert again.status == 0
    assert again.out == finished.out
    assert len(ended(bench)) == 14 and "search 1 of 1" not in again.err


# Quickly, of made-up searches, in tests/unit/test_reproduction.py.
@pytest.mark.thorough
def test_the_blogs_study_prints_its_depths(inside: Run) -> None:
    finished = inside("reproduce", "low-resource", *ASKED, "--train-size", "32", "--seeds", "1")
    assert finished.status == 0, finished.err
    # A model of two layers: embeddings-only, and each share of twelve as one of 0, 1 and 2.
    for depth in ("0 of 2", "embeddings of 2", "1 of 2", "2 of 2"):
        assert depth in finished.out
