"""Which evaluation gives a trial's quality, and that its predictions are those that are kept."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from elsa_tune.searching.board import Board
from elsa_tune.searching.board_lines import candidate_lines
from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.searching.record import SearchRecord
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import (
    EvaluationResult,
    Phase,
    Recipe,
    Selection,
    TrialSpec,
    TrialStatus,
    trial_quality,
)
from elsa_tune.tasks.types.scores import score
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import train
from tests.unit.search_examples import DEPTHS, make_spec
from tests.unit.tiny_trials import REGRESSION, TASK, calm, make_data, make_rows, make_trial


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return calm("bert", tmp_path_factory.mktemp("models") / "bert")


def alone(trial: TrialSpec, data: TaskData) -> list[EvaluationResult]:
    return list(train(trial, data, device="cpu"))


def score_again(trial: TrialSpec, data: TaskData, results: Sequence[EvaluationResult]) -> float:
    """From what would be kept of the trial."""
    assert [result.predictions is None for result in results] == [True] * (len(results) - 1) + [
        False
    ]
    dtype = np.float32 if trial.task is REGRESSION else np.int8
    predictions = np.asarray(results[-1].predictions, dtype=dtype)
    return score(trial.task.metric, predictions, data.evaluation.labels, trial.task.outputs)


@pytest.mark.parametrize("regression", [False, True])
def test_the_kept_predictions_are_those_of_the_quality(bert: ModelSpec, regression: bool) -> None:
    data = make_data(train=16, regression=regression)
    task: dict[str, Any] = {"task": REGRESSION} if regression else {}
    found = {}
    for selection in (Selection.LAST, Selection.BEST_EPOCH):
        trial = make_trial(bert, epochs=8, learning_rate=3e-2, selection=selection, **task)
        results = alone(trial, data)
        qualities = [result.quality for result in results]
        # The learning rate is far too high: some evaluation is better than the last.
        assert max(qualities) > qualities[-1]
        quality = trial_quality(selection, qualities)
        assert score_again(trial, data, results) == quality
        found[selection] = quality
    assert found[Selection.BEST_EPOCH] > found[Selection.LAST]


def contrary(data: TaskData) -> TaskData:
    """With a holdout of wrong labels: who learns gets better on the evaluation and worse there."""
    wrong = make_rows(20, 3)
    return dataclasses.replace(data, holdout=dataclasses.replace(wrong, labels=1 - wrong.labels))


@pytest.mark.parametrize("frozen", [0, 2])
def test_the_holdout_chooses_whatever_the_evaluation_says(bert: ModelSpec, frozen: int) -> None:
    data = contrary(make_data(train=120))
    trial = make_trial(bert, frozen, epochs=4, learning_rate=1e-3, selection=Selection.HOLDOUT)
    results = alone(trial, data)
    qualities = [result.quality for result in results]
    held_out = [result.holdout_quality for result in results if result.holdout_quality is not None]
    assert len(held_out) == 4 and "holdout" not in results[-1].metrics
    quality = trial_quality(Selection.HOLDOUT, qualities, held_out)
    assert quality == qualities[held_out.index(max(held_out))] < min(qualities[-1], max(qualities))
    assert score_again(trial, data, results) == quality


def test_without_scores_of_a_holdout_nothing_is_chosen_by_it() -> None:
    assert trial_quality(Selection.HOLDOUT, [0.5, 0.7, 0.6], [0.3, 0.4, 0.4]) == 0.7
    with pytest.raises(ValueError, match="3 evaluations, 0 scores"):
        trial_quality(Selection.HOLDOUT, [0.5, 0.7, 0.6])


def test_the_screen_shows_scores_of_exploring_and_qualities_of_measuring_trials() -> None:
    spec = make_spec(recipe=Recipe(epochs=2, selection=Selection.HOLDOUT))
    known = [
        KnownTrial(
            trial=spec.trial(phase, DEPTHS[0], rate, 0),
            status=TrialStatus.COMPLETED,
            qualities=qualities,
            holdout_qualities=held_out,
        )
        for phase, rate, qualities, held_out in (
            (Phase.EXPLORE, 2e-5, (0.5, 0.6), (0.8, 0.7)),
            (Phase.EXPLORE, 5e-5, (0.9, 0.9), (0.6, 0.6)),
            (Phase.MEASURE, 2e-5, (0.55, 0.6), (0.75, 0.7)),
        )
    ]
    line = candidate_lines(spec, known)[0]
    assert line.best is not None and line.measured == 0.55
    assert (line.best.score, line.best.trial.learning_rate) == (0.8, 2e-5)
    text = io.StringIO()
    board = Board(spec, lambda: None, Console(file=text))
    board.follow(SimpleNamespace(known=known))
    with board:
        for one in known:
            board.ended(one)
    said = text.getvalue().splitlines()
    assert "completed at 80.0 held out after 2/2" in said[0]
    assert "completed at 55.0 after 2/2" in said[2]


@pytest.mark.parametrize(
    ("classes", "kind", "values"),
    [
        (2, np.int8, [0, 1, 1]),
        (128, np.int8, [0, 127, 1]),
        (129, np.int16, [0, 128, 1]),
        (32769, np.int32, [0, 32768, 1]),
        (0, np.float32, [0.5, 2.25, -1.0]),
    ],
)
def test_the_kept_file_holds_what_judges_the_predictions(
    tmp_path: Path, classes: int, kind: type[Any], values: list[float]
) -> None:
    task = dataclasses.replace(TASK, classes=tuple(map(str, range(classes)))) if classes else None
    spec = make_spec(task=task or REGRESSION)
    paths = SearchPaths(tmp_path, spec.name)
    with Journal(paths.journal) as journal:
        unsent = Forwarder(paths, MlflowStore("sqlite://").sink(paths.journal))
        record = SearchRecord(spec, paths, journal, unsent, pytest.fail)
        wide = np.asarray(values, dtype=np.float32 if kind is np.float32 else np.int64)
        place = record.keep_predictions("measure-N0-lr1e-05-s1", wide, wide[::-1])
    assert place is not None
    kept = np.load(paths.folder / place)
    assert kept["predictions"].tolist() == values and kept["labels"].tolist() == values[::-1]
    assert kept["predictions"].dtype == kept["labels"].dtype == kind
    assert int(kept["classes"]) == classes
    assert str(kept["metric"]) == spec.task.metric.value
