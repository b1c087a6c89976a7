"""Types of tasks: one more, in a file of its own, is read, learnt, scored and resampled."""

from __future__ import annotations

import dataclasses
import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from elsa_tune.analysis.statistics.resampling import resample
from elsa_tune.errors import DataError, UnknownNameError
from elsa_tune.searching.earlier import likely_in_folder
from elsa_tune.searching.specification import differing_settings, save_specification
from elsa_tune.specs.names import OpenName
from elsa_tune.specs.result_row import Predictions
from elsa_tune.specs.task import Metric, TaskKind, TaskSpec
from elsa_tune.specs.trial import Precision, Recipe, TrialSpec
from elsa_tune.tasks.task_file import read_task_file
from elsa_tune.tasks.types.registry import type_of, with_metric
from elsa_tune.tasks.types.scores import chance, score
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.loop import train
from elsa_tune.training.probe import linear_probe
from tests.registering import registered
from tests.unit.search_examples import make_spec
from tests.unit.tiny_trials import TASK, make_trial, tiny_bert

STARS = ("bad", "fair", "good", "great")
WORDS = ("bad plot", "a story", "good fun", "the very best film")
DESCRIBED = f"""
name: stars
kind: ordinal
files: [rows.tsv]
text: [text]
label: stars
classes: [{", ".join(STARS)}]
evaluation_share: 0.3
"""


@pytest.fixture(scope="module")
def ordinal() -> Iterator[Any]:
    with registered("tests.ordinal") as module:
        yield module


@pytest.fixture(scope="module")
def task(ordinal: Any, tmp_path_factory: pytest.TempPathFactory) -> TaskSpec:
    folder = tmp_path_factory.mktemp("stars")
    draw = np.random.default_rng(0)
    rows = ["text\tstars"]
    for number in range(200):
        level = int(draw.integers(0, 4))
        given = min(3, level + int(draw.random() < 0.2))  # some give a star more
        rows.append(f"{WORDS[level]} {number % 7}\t{STARS[given]}")
    (folder / "rows.tsv").write_text("\n".join(rows))
    (folder / "stars.yaml").write_text(DESCRIBED)
    return read_task_file(folder / "stars.yaml")


@pytest.fixture(scope="module")
def trial(task: TaskSpec, tmp_path_factory: pytest.TempPathFactory) -> TrialSpec:
    model = tiny_bert(tmp_path_factory.mktemp("models") / "bert")
    recipe = Recipe(epochs=4, precision=Precision.FP32, max_length=16)
    return dataclasses.replace(make_trial(model, 2), task=task, recipe=recipe, learning_rate=1e-2)


def test_a_type_of_task_in_one_file_is_read_learnt_scored_and_resampled(
    trial: TrialSpec, ordinal: Any
) -> None:
    from sklearn.metrics import cohen_kappa_score

    task = trial.task
    assert (task.kind, task.metric) == (ordinal.ORDINAL, ordinal.KAPPA)
    assert (task.companions, task.outputs) == ((Metric.ACCURACY,), 4)
    assert task.known_chance == 0.0
    data = prepare(trial.model, task, trial.recipe)
    assert data.chance == 0.0
    results = list(train(trial, data, device="cpu"))
    last = results[-1]
    assert last.train_loss < results[0].train_loss
    predictions = np.asarray(last.predictions)
    labels = data.evaluation.labels
    expected = cohen_kappa_score(labels, predictions, weights="quadratic")
    assert last.quality == last.metrics["kappa"] == pytest.approx(expected)
    assert last.quality > 0.5
    assert last.metrics["accuracy"] == (predictions == labels).mean()
    # An interval from the same kernel, each example as often as it was drawn.
    kept = Predictions(predictions=predictions, labels=labels, classes=4)
    found = resample([kept, kept], "kappa", 2000)
    assert found.runs.mean() == pytest.approx(expected, abs=0.02)
    assert 0.005 < found.runs.std() < 0.1
    assert (found.chance == 0).all()


def test_a_linear_probe_knows_the_type_as_well(trial: TrialSpec, ordinal: Any) -> None:
    data = prepare(trial.model, trial.task, trial.recipe)
    found = linear_probe(trial.model, trial.task, trial.recipe, data)
    assert found.quality == found.metrics["kappa"]
    assert found.quality == score(ordinal.KAPPA, found.predictions, data.evaluation.labels, 4)


def test_its_metrics_are_its_own(task: TaskSpec, ordinal: Any) -> None:
    assert with_metric(task, "accuracy").companions == (ordinal.KAPPA,)
    with pytest.raises(DataError, match="an order of 4 classes; allowed: kappa, accuracy"):
        with_metric(task, "f1_macro")
    plain = dataclasses.replace(task, kind=TaskKind.CLASSIFICATION, metric=Metric.ACCURACY)
    with pytest.raises(DataError, match="metric 'kappa' cannot score task 'stars'"):
        with_metric(plain, "kappa")


IN_A_WORKER = """
import pickle, sys
task = pickle.load(sys.stdin.buffer)
from elsa_tune.specs.task import Metric
from elsa_tune.tasks.types.registry import kernel_of, type_of
print(type(type_of(task.kind)).__name__, type(kernel_of(task.metric)).__name__)
print(task.metric is Metric("kappa"), task.metric.lowest)
"""


def test_a_worker_that_is_given_such_a_task_knows_its_type(task: TaskSpec, root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_WORKER],
        input=pickle.dumps(task),
        capture_output=True,
        cwd=root,
        check=True,
    )
    assert done.stdout.decode().split() == ["Ordinal", "Kappa", "True", "-1.0"]


def test_a_task_is_recorded_and_read_again(task: TaskSpec) -> None:
    adapter = TypeAdapter(TaskSpec)
    text = adapter.dump_json(task)
    assert b'"kind":"ordinal"' in text and b'"metric":"kappa"' in text
    assert adapter.validate_json(text) == task
    with pytest.raises(ValidationError, match=r"'accuracy', 'f1'.* or 'kappa'"):
        adapter.validate_json(text.replace(b'"kappa"', b'"kapa"'))


def test_a_search_of_another_kind_asks_something_else(task: TaskSpec, tmp_path: Path) -> None:
    by_accuracy = dataclasses.replace(task, metric=Metric.ACCURACY)
    classes = dataclasses.replace(by_accuracy, kind=TaskKind.CLASSIFICATION)
    recorded = make_spec(task=classes)
    asked = make_spec(task=by_accuracy)
    assert asked.comparison != recorded.comparison
    assert "kind=ordinal" in str(asked.comparison) and "kind" not in str(recorded.comparison)
    assert differing_settings(asked, recorded) == ["kind ordinal (recorded: classification)"]
    paths = SearchPaths(tmp_path, recorded.name)
    paths.check_writable()
    save_specification(recorded, paths)
    assert likely_in_folder(recorded, tmp_path) and not likely_in_folder(asked, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("kind: ordinal", "kind: ordinl"), "kind.*'ordinl'"),
        (("kind: ordinal", "kind: ordinal\nregression: true"), "kind is ordinal, but regression"),
        (("[bad, fair, good, great]", "[bad, good]"), "not one of the classes of task 'stars'"),
    ],
)
def test_a_task_file_of_another_type_is_checked_as_any_other(
    task: TaskSpec, change: tuple[str, str], message: str, tmp_path: Path
) -> None:
    source: Any = task.source
    rows = Path(source.train[0]).read_text()
    (tmp_path / "rows.tsv").write_text(rows)
    (tmp_path / "stars.yaml").write_text(DESCRIBED.replace(*change))
    with pytest.raises(DataError, match=message):
        read = read_task_file(tmp_path / "stars.yaml")
        prepare(tiny_bert(tmp_path / "bert"), read, Recipe())


def test_names_are_single_objects_in_the_order_of_adding(ordinal: Any) -> None:
    assert [metric.value for metric in Metric][:3] == ["accuracy", "f1", "f1_macro"]
    assert Metric("f1") is Metric.F1 and pickle.loads(pickle.dumps(Metric.F1)) is Metric.F1
    assert TaskKind.add("ordinal", "elsewhere") is ordinal.ORDINAL
    assert f"{Metric.F1}" == Metric.F1.value == "f1" and type(Metric.F1.value) is str
    assert Metric.known is not TaskKind.known and not OpenName.known
    with pytest.raises(ValueError, match="'f2' is not a valid Metric"):
        Metric("f2")
    with pytest.raises(UnknownNameError, match="f2"):
        with_metric(TASK, "f2")


def test_a_class_is_answered_with_its_share_of_the_softmax() -> None:
    """Of logits 0 and log 3 the second class has three of four parts."""
    logits = np.log([[1.0, 3.0], [4.0, 1.0], [1.0, 1.5]])
    classification = type_of(TaskKind.CLASSIFICATION)
    labels, confidences = classification.answers(torch.tensor(logits), ("no", "yes"))
    assert labels == ("yes", "no", "yes")
    assert confidences.tolist() == pytest.approx([0.75, 0.8, 0.6])
    cells = classification.cells(logits, ("no", "yes"), probabilities=True)
    assert cells["prediction"].tolist() == ["yes", "no", "yes"]
    assert cells["confidence"] == pytest.approx([0.75, 0.8, 0.6])
    assert cells["probability_yes"] == pytest.approx([0.75, 0.2, 0.6])


def test_values_are_learnt_in_units_of_their_spread() -> None:
    regression = type_of(TaskKind.REGRESSION)
    spread = regression.unit(np.array([1.0, 3.0, 5.0, 7.0]))
    assert (spread.mean, spread.std) == (4.0, pytest.approx(math.sqrt(5)))
    equal = regression.unit(np.array([4.0, 4.0, 4.0]))
    assert (equal.mean, equal.std) == (4.0, 1.0)


CLASSIFIES = type_of(TaskKind.CLASSIFICATION).metrics


@pytest.mark.parametrize("metric", [m for m in CLASSIFIES if m.of_constants is None])
def test_chance_is_that_of_the_best_constant_where_that_is_the_best_guess(metric: Metric) -> None:
    labels = np.random.default_rng(1).choice(2, 90, p=(0.7, 0.3))
    constants = [score(metric, np.full(90, c), labels, 2) for c in range(2)]
    if metric.guess == "constant answer":
        assert chance(metric, labels, 2) == max(constants)
    else:
        assert chance(metric, labels, 2) > max(constants)


def test_every_metric_belongs_to_a_type_and_has_a_kernel() -> None:
    of_types = {metric for kind in TaskKind for metric in type_of(kind).metrics}
    assert of_types == set(Metric)
    for kind in TaskKind:
        assert set(type_of(kind).usual) <= set(type_of(kind).metrics)
