"""What docs/guides/reproducing-the-paper.md says of the studies, against their recorded trials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.results.results_csv import import_results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
FOLDERS = {"sst2": "elsa_minilm", "mrpc": "elsa_minilm", "cola": "elsa_minilm_cola"}


def answer(task: str) -> Answer:
    """From the table of trials, which has no predictions."""
    found = answer_rows(import_results(RESULTS / FOLDERS[task] / "trials.csv").rows)
    return next(one for one in found if one.task == task)


def recorded(task: str) -> dict[str, object]:
    """As it was printed, with predictions."""
    text = (RESULTS / FOLDERS[task] / "answers.json").read_text(encoding="utf-8")
    found: dict[str, object] = next(one for one in json.loads(text) if one["task"] == task)
    return found


@pytest.mark.parametrize(
    ("name", "layers"),
    [("SST-2", "2 of 6; certified 3"), ("CoLA", "all 6"), ("MRPC", "no answer")],
)
def test_the_table_is_what_the_trials_say(name: str, layers: str) -> None:
    found = answer(name.lower().replace("-", ""))
    assert found.full is not None and found.full.quality is not None
    full = f"{100 * found.full.quality:.1f} ± {100 * (found.full.std or 0):.1f}"
    kept = [
        f"{100 * point.retention:.1f}"
        for point in found.points
        if point.retention is not None and not point.candidate.is_reference
    ]
    line = f"| {name} | {found.train_size:,} | {full} | {' | '.join(kept)} | {layers} |"
    assert line in (ROOT / "docs" / "guides" / "reproducing-the-paper.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("size", "layers"), [(100, "4 of 6; corrected all 6"), (200, "2 of 6; corrected 4 of 6")]
)
def test_the_low_resource_table_is_what_the_trials_say(size: int, layers: str) -> None:
    rows = import_results(RESULTS / "low_resource_minilm" / "trials.csv").rows
    found = next(one for one in answer_rows(rows) if one.train_size == size)
    assert found.full is not None and found.full.quality is not None
    full = f"{100 * found.full.quality:.1f} ± {100 * (found.full.std or 0):.1f}"
    kept = [
        f"{100 * point.retention:.1f} ({100 * point.corrected_retention:.1f})"
        for point in found.points
        if point.retention is not None
        and point.corrected_retention is not None
        and not point.candidate.is_reference
    ]
    line = f"| {size} | {full} | {' | '.join(kept)} | {layers} |"
    assert line in (ROOT / "docs" / "guides" / "reproducing-the-paper.md").read_text(
        encoding="utf-8"
    )


def test_the_answers_are_those_that_the_page_tells() -> None:
    sst2, cola, mrpc = recorded("sst2"), recorded("cola"), recorded("mrpc")
    assert isinstance(sst2["certified"], dict) and sst2["certified"]["fine_tuned_layers"] == 2
    assert isinstance(sst2["corrected_certified"], dict)
    assert sst2["corrected_certified"]["fine_tuned_layers"] == 6
    assert sst2["plausible_fine_tuned_layers"] == [2]
    assert cola["reason"] == "nothing_reaches_target"
    assert cola["plausible_fine_tuned_layers"] == [6]
    assert mrpc["reason"] == "full_model_did_not_learn" and mrpc["operating_point"] is None


def test_without_predictions_nothing_more_is_certified() -> None:
    table = answer("sst2")
    # By today's rule: raw at most one depth more than what is certified corrected.
    assert table.certified is not None and table.certified.fine_tuned_layers == 3
    assert table.corrected_certified is not None
    assert table.corrected_certified.fine_tuned_layers == 6
