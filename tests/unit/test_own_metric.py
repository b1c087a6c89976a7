"""A metric of one's own scores the kinds that ship, by one registration in a file of its own."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from elsa_tune.analysis.statistics.resampling import resample
from elsa_tune.errors import DataError, ExtensionError
from elsa_tune.specs.result_row import Predictions
from elsa_tune.specs.task import Metric, TaskKind, TaskSpec
from elsa_tune.specs.trial import Precision, Recipe
from elsa_tune.tasks.frames import write_task
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tasks.types.base import Kernel, register_metric
from elsa_tune.tasks.types.registry import with_metric
from elsa_tune.tasks.types.scores import chance, score
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.loop import train
from tests.registering import registered
from tests.unit.search_examples import make_spec
from tests.unit.tiny_trials import TASK, make_trial, tiny_bert

LABELS = np.array([0, 0, 0, 0, 1, 1, 2])
PREDICTIONS = np.array([0, 0, 0, 1, 1, 0, 2])


@pytest.fixture(autouse=True)
def balanced() -> Iterator[Any]:
    with registered("tests.balanced") as module:
        yield module


def named(task: str, metric: str = "balanced_accuracy") -> TaskSpec:
    return resolve_task(task, None, metric)


def test_every_task_of_classes_takes_it(balanced: Any, tmp_path: Path) -> None:
    assert named("rte").metric is balanced.BALANCED
    assert named("mrpc").companions == (Metric.F1, Metric.ACCURACY)
    rows = pd.DataFrame({"text": ["a", "b", "c"] * 20, "label": ["x", "y", "z"] * 20})
    file = tmp_path / "rows.csv"
    rows.to_csv(file, index=False)
    of_table = named(str(file))
    assert (of_table.kind, of_table.metric) == (TaskKind.CLASSIFICATION, balanced.BALANCED)
    of_frame = write_task(rows, tmp_path, "own", "text", "label", {})
    assert named(str(of_frame)).metric is balanced.BALANCED


def test_a_trial_is_scored_by_it(tmp_path: Path) -> None:
    from sklearn.metrics import balanced_accuracy_score

    model = tiny_bert(tmp_path / "bert")
    recipe = Recipe(epochs=1, precision=Precision.FP32, max_length=16, train_size=64)
    task = named("stdlib")
    trial = dataclasses.replace(make_trial(model, 2), task=task, recipe=recipe)
    data = prepare(trial.model, task, recipe)
    *_, last = train(trial, data, device="cpu")
    labels = data.evaluation.labels
    expected = balanced_accuracy_score(labels, last.predictions)
    assert last.quality == last.metrics["balanced_accuracy"] == pytest.approx(expected)
    assert last.metrics["accuracy"] == (np.asarray(last.predictions) == labels).mean()
    assert data.chance == 0.5


def test_its_score_its_chance_and_its_spread_are_of_one_kernel(balanced: Any) -> None:
    mean = (3 / 4 + 1 / 2 + 1) / 3
    assert score(balanced.BALANCED, PREDICTIONS, LABELS, 4) == pytest.approx(mean)
    assert chance(balanced.BALANCED, LABELS, 4) == pytest.approx(1 / 3)
    kept = Predictions(predictions=PREDICTIONS.repeat(40), labels=LABELS.repeat(40), classes=4)
    found = resample([kept, kept], "balanced_accuracy", 500)
    assert found.runs.mean() == pytest.approx(mean, abs=0.02)
    assert found.runs.std() > 0.01


def test_one_that_is_no_share_of_the_examples_cannot_call_itself_one(
    balanced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balanced.BALANCED, "is_share", True)
    assert score(balanced.BALANCED, LABELS, LABELS, 3) == 1.0
    refusal = "is_share=True, but its score 0.75 is that of no whole number of the 7 examples"
    with pytest.raises(ExtensionError, match=refusal):
        score(balanced.BALANCED, PREDICTIONS, LABELS, 3)


def test_its_results_pool_as_those_of_a_metric_that_ships(balanced: Any) -> None:
    by_accuracy = make_spec(task=TASK)
    by_its_own = make_spec(task=with_metric(TASK, "balanced_accuracy"))
    expected = str(by_accuracy.comparison).replace("metric=accuracy", "metric=balanced_accuracy")
    assert str(by_its_own.comparison) == expected


@pytest.mark.parametrize(
    ("task", "metric", "message"),
    [
        ("stsb", "balanced_accuracy", "which is a regression; allowed: pearson, spearman$"),
        ("rte", "pearson", r"allowed: .*, matthews, balanced_accuracy \(a task of numbers"),
    ],
)
def test_another_kind_is_refused_in_a_sentence(task: str, metric: str, message: str) -> None:
    with pytest.raises(DataError, match=f"metric '{metric}' cannot score task '{task}'.*{message}"):
        named(task, metric)


def test_what_ships_is_computed_by_what_ships(balanced: Any) -> None:
    kernel: Kernel = balanced.BalancedAccuracy()
    with pytest.raises(ValueError, match="classification computes metric 'accuracy'"):
        register_metric(Metric.ACCURACY, kernel, TaskKind.REGRESSION)
    with pytest.raises(DataError, match="'accuracy' cannot score"):
        named("stsb", "accuracy")


def test_whoever_registers_it_again_replaces_its_kinds(balanced: Any) -> None:
    register_metric(balanced.BALANCED, balanced.BalancedAccuracy(), TaskKind.REGRESSION)
    assert named("stsb").metric is balanced.BALANCED
    with pytest.raises(DataError, match="a task of numbers has `regression: true`"):
        named("rte")


IN_A_WORKER = """
import pickle, sys
task = pickle.load(sys.stdin.buffer)
from elsa_tune.tasks.types.registry import kernel_of, with_metric
print(type(kernel_of(task.metric)).__name__, with_metric(task, task.metric) == task)
"""


def test_a_worker_that_is_given_such_a_task_knows_the_metric(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_WORKER],
        input=pickle.dumps(named("rte")),
        capture_output=True,
        cwd=root,
        check=True,
    )
    assert done.stdout.decode().split() == ["BalancedAccuracy", "True"]
