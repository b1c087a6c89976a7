"""The linear probe: features of the frozen model, a penalty by cross-validation, every odd case."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elsa_tune.errors import DivergedError
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.specs.task import Metric, TaskSpec
from elsa_tune.specs.trial import Pooling, Precision, PrefixCache, Recipe
from elsa_tune.tasks.types.scores import score
from elsa_tune.training import probe
from elsa_tune.training.data.batches import pad_batch
from elsa_tune.training.data.tokens import TaskData, TokenRows
from elsa_tune.training.forward.prefix_store import PrefixStore
from elsa_tune.training.forward.runner import Prefix
from elsa_tune.training.loop import train
from elsa_tune.training.model.encoder import load_classifier
from elsa_tune.training.probe import ProbeFeatures, ProbeResult, fit_probe, linear_probe
from tests.unit.tiny_models import make_tiny
from tests.unit.tiny_trials import (
    REGRESSION,
    TASK,
    data_for,
    make_data,
    make_rows,
    make_trial,
    tiny_bert,
)

RECIPE = Recipe(precision=Precision.FP32)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_bert(tmp_path_factory.mktemp("bert"), layers=1)


def ask(
    model: ModelSpec, data: TaskData, task: TaskSpec = TASK, recipe: Recipe = RECIPE
) -> ProbeResult:
    found = linear_probe(model, task, recipe, data)
    assert len(found.predictions) == found.evaluation_examples
    return found


def test_it_learns_what_the_frozen_model_gives_and_is_the_same_every_time(bert: ModelSpec) -> None:
    data = make_data(train=200, evaluation=100)
    found, again = ask(bert, data), ask(bert, data)
    assert found.quality > 0.9 and found.notes == ()
    assert (found.train_examples, found.evaluation_examples) == (200, 100)
    assert found.metrics.keys() == {"accuracy", "f1"}
    assert found.quality == score(Metric.ACCURACY, found.predictions, data.evaluation.labels, 2)
    assert again.quality == found.quality and (again.predictions == found.predictions).all()


@pytest.mark.parametrize("architecture", ["bert", "roberta", "deberta-v2", "modernbert", "xlnet"])
def test_features_are_the_encoders_output_on_whatever_batches(
    architecture: str, tmp_path: Path
) -> None:
    """Packed or padded, against the whole encoder row by row."""
    model = resolve_model(str(make_tiny(architecture, tmp_path, layers=2)))
    data = data_for(architecture, train=40)
    frozen = probe._frozen(model, TASK, RECIPE, torch.device("cpu"))
    (found,) = probe._features(*frozen, data, {"train": data.train})
    whole = load_classifier(model, 2, 0).eval()
    for number in (0, 1, 17, 39):
        inputs = pad_batch(data.train, [number], data).inputs
        with torch.inference_mode():
            [hidden] = whole.base_model(**inputs).last_hidden_state
        read = hidden[-1 if architecture == "xlnet" else 0]
        expected = torch.cat([read, hidden.mean(dim=0)]).numpy()
        np.testing.assert_allclose(found[number], expected, rtol=1e-3, atol=1e-4)


def entries() -> set[str]:
    """Return what is kept of frozen layers, in words."""
    return {entry.what for entry in PrefixStore().entries()}


def test_a_search_computes_frozen_layers_once_for_the_probe_and_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_bert(tmp_path, layers=3)
    data = make_data(train=40, evaluation=30)
    depths = [FreezeDepth.of(n) for n in (0, 1, 3)]
    shared = linear_probe(model, TASK, RECIPE, data, candidates=depths)
    name = f"{model.name} on {TASK.name}"
    assert entries() == {f"{name}, {n} frozen layers, fp32" for n in (1, 3)}
    alone = linear_probe(model, TASK, RECIPE, data)
    assert shared.quality == alone.quality and (shared.predictions == alone.predictions).all()

    def build(*_: object) -> None:
        raise AssertionError("the trial computes what the probe has kept")

    monkeypatch.setattr(Prefix, "_build", build)
    trial = make_trial(model, 1)
    assert list(train(trial, data, device="cpu", candidates=depths))[-1].prefix == "cached"


@pytest.mark.parametrize(
    ("settings", "frozen"),
    [
        ({}, (0, 1)),  # no candidate freezes all layers
        ({"frozen_dropout": True}, (0, 3)),
        ({"prefix_cache": PrefixCache.BF16}, (0, 3)),  # rounded
        ({"prefix_cache": PrefixCache.NONE}, (0, 3)),
    ],
)
def test_the_probe_keeps_nothing_that_no_trial_would_read(
    settings: dict[str, Any], frozen: tuple[int, ...], tmp_path: Path
) -> None:
    model = tiny_bert(tmp_path, layers=3)
    recipe = dataclasses.replace(RECIPE, **settings)
    depths = [FreezeDepth.of(n) for n in frozen]
    linear_probe(model, TASK, recipe, make_data(train=20), candidates=depths)
    assert entries() == set()


def test_without_room_the_probe_computes_for_itself(
    bert: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELSA_TUNE_PREFIX_CACHE_GB", "0")
    depths = [FreezeDepth.of(0), FreezeDepth.of(1)]
    data = make_data(train=40, evaluation=30)
    found = linear_probe(bert, TASK, RECIPE, data, candidates=depths)
    assert entries() == set()
    assert found.quality == linear_probe(bert, TASK, RECIPE, data).quality


def test_what_a_head_reads_decides_nothing_of_the_features(
    bert: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe's model is not pooled, so neither is what its packed tokens are compared with."""
    doubts: list[str | None] = []
    real = probe.packed_doubt

    def noted(*given: Any) -> str | None:
        doubts.append(real(*given))
        return doubts[-1]

    monkeypatch.setattr(probe, "packed_doubt", noted)
    data = make_data(train=40, evaluation=20)
    as_loaded = ask(bert, data)
    pooled = ask(bert, data, recipe=dataclasses.replace(RECIPE, pooling=Pooling.MEAN))
    assert doubts == [None, None]
    assert (pooled.predictions == as_loaded.predictions).all()


def test_a_regression_is_answered_in_values(bert: ModelSpec) -> None:
    found = ask(bert, make_data(train=200, evaluation=60, regression=True), REGRESSION)
    assert found.quality > 0.7 and found.predictions.dtype == np.float32


def test_any_headline_metric_judges(bert: ModelSpec) -> None:
    task = dataclasses.replace(TASK, metric=Metric.F1_MACRO, companions=())
    data = make_data(train=120, evaluation=60)
    found = ask(bert, data, task)
    judged = score(Metric.F1_MACRO, found.predictions, data.evaluation.labels, 2)
    assert found.quality == judged > 0.8


def test_the_headline_metric_chooses_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LogisticRegression

    asked: list[Metric] = []
    strengths: list[float] = []
    fit = LogisticRegression.fit

    def third_is_best(metric: Metric, *_: Any) -> float:
        asked.append(metric)
        return float(len(asked) == 3)

    def noted(self: Any, *given: Any, **named: Any) -> Any:
        strengths.append(self.C)
        return fit(self, *given, **named)

    monkeypatch.setattr(probe, "score", third_is_best)
    monkeypatch.setattr(LogisticRegression, "fit", noted)
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    labels = (x[:, 0] > 0).astype(np.int64)
    features = ProbeFeatures(
        train=x, evaluation=x, train_labels=labels, evaluation_labels=labels, seconds=0.0
    )
    fit_probe(dataclasses.replace(TASK, metric=Metric.F1_MACRO, companions=()), features)
    assert asked == [Metric.F1_MACRO] * len(probe._STRENGTHS)
    assert strengths[-1] == probe._STRENGTHS[2]


@pytest.mark.parametrize("regression", [False, True])
def test_rows_of_one_label_give_a_constant_answer(bert: ModelSpec, regression: bool) -> None:
    data = make_data(train=20, regression=regression)
    same = dataclasses.replace(data.train, labels=np.full_like(data.train.labels, 1))
    found = ask(bert, dataclasses.replace(data, train=same), REGRESSION if regression else TASK)
    np.testing.assert_allclose(found.predictions, 1, atol=1e-5)


@pytest.mark.parametrize("minority", [1, 2, 4])
def test_eight_rows_are_enough(bert: ModelSpec, minority: int) -> None:
    """Down to one row of a class, where no folds can be made."""
    data = make_data(train=400)
    places = [np.flatnonzero(data.train.labels == label) for label in (0, 1)]
    chosen = np.sort(np.concatenate([places[0][: 8 - minority], places[1][:minority]]))
    found = ask(bert, dataclasses.replace(data, train=data.train.take(chosen)))
    assert found.train_examples == 8 and 0 <= found.quality <= 1


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_a_regression_on_few_rows_is_finite(bert: ModelSpec, rows: int) -> None:
    data = make_data(train=rows, regression=True)
    assert np.isfinite(ask(bert, data, REGRESSION).predictions).all()


def test_of_many_rows_a_stratified_part_is_taken_and_that_is_said(bert: ModelSpec) -> None:
    data = dataclasses.replace(
        make_data(), train=make_rows(100_000, 1), evaluation=make_rows(12_000, 2)
    )
    found = ask(bert, data)
    assert (found.train_examples, found.evaluation_examples) == (5_000, 10_000)
    assert found.quality > 0.9
    assert found.notes == (
        "the linear probe took 5,000 of 100,000 training rows, stratified",
        "the linear probe took 10,000 of 12,000 evaluation rows, stratified",
    )


def test_features_that_are_not_finite_end_in_a_sentence() -> None:
    train = np.full((8, 3), np.nan, dtype=np.float32)
    labels = np.arange(8) % 2
    features = ProbeFeatures(
        train=train,
        evaluation=np.zeros((8, 3), dtype=np.float32),
        train_labels=labels,
        evaluation_labels=labels,
        seconds=0.0,
    )
    with pytest.raises(DivergedError, match="the frozen model's output is not finite"):
        fit_probe(TASK, features)


def test_rows_can_be_taken_in_any_order() -> None:
    rows = make_rows(30, 3)
    rows = dataclasses.replace(rows, token_type_ids=(rows.input_ids % 2).astype(np.int8))
    chosen = np.array([7, 2, 29])
    few = rows.take(chosen)
    assert len(few) == 3 and (few.labels == rows.labels[chosen]).all()
    for place, number in enumerate(chosen):
        for name in ("input_ids", "token_type_ids"):
            assert (_row(few, place, name) == _row(rows, number, name)).all()


def _row(rows: TokenRows, number: int, name: str) -> np.ndarray:
    return getattr(rows, name)[rows.offsets[number] : rows.offsets[number + 1]]
