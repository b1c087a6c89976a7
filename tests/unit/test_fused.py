"""Trials trained as one compute what each computes alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elsa_tune.errors import DivergedError
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import EpochResult, Precision, TrialSpec
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.fused import NotFusableError, train_fused
from elsa_tune.training.loop import train
from tests.unit.tiny_trials import (
    REGRESSION,
    break_head,
    calm,
    data_for,
    make_data,
    make_trial,
    tiny_bert,
)

LAYERS = 3


@pytest.fixture
def bert(tmp_path: Path) -> ModelSpec:
    """Without dropout."""
    return calm("bert", tmp_path / "bert", LAYERS)


def members(model: ModelSpec, depth: int | str, **changes: Any) -> list[TrialSpec]:
    """Three trials with their own rates and seeds; two share a seed, and so the order of rows."""
    return [
        make_trial(model, depth, learning_rate=rate, seed=seed, **changes)
        for rate, seed in ((1e-4, 1), (3e-4, 1), (2e-4, 2))
    ]


def together(
    trials: Sequence[TrialSpec], data: TaskData, **more: Any
) -> dict[str, list[EpochResult]]:
    found: dict[str, list[EpochResult]] = {trial.key: [] for trial in trials}
    for trial, event in train_fused(trials, data, device="cpu", **more):
        assert isinstance(event, EpochResult)
        found[trial.key].append(event)
    return found


def assert_equal(one: Sequence[EpochResult], other: Sequence[EpochResult]) -> None:
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        assert (a.step, a.evaluation, a.metrics) == (b.step, b.evaluation, b.metrics)
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-5)
        assert a.eval_loss == pytest.approx(b.eval_loss, rel=1e-5)
        assert a.trainable_parameters == b.trainable_parameters
        assert a.prefix == b.prefix
    assert one[-1].predictions == other[-1].predictions


@pytest.mark.parametrize(
    ("architecture", "depth"),
    [
        # Each architecture's embeddings, layers and head; those of the last two are RoBERTa's.
        *((architecture, 0) for architecture in ("bert", "electra", "distilbert", "roberta")),
        *(("mpnet", 0), ("mpnet", 2), ("xlm-roberta", 2), ("camembert", 2)),
        *(("bert", "embeddings"), ("bert", 2), ("bert", LAYERS)),
    ],
)
def test_fused_equals_single_over_fifty_steps(
    architecture: str, depth: int | str, tmp_path: Path
) -> None:
    data = data_for(architecture, train=155)  # ten steps an epoch, the last one of eleven rows
    trials = members(calm(architecture, tmp_path / "model", LAYERS), depth, epochs=5)
    if architecture != "bert":
        del trials[0]  # how many there are has nothing to do with the architecture
    found = together(trials, data)
    for trial in trials:
        alone = list(train(trial, data, device="cpu"))
        assert {result.batches for result in alone} == {"packed"}
        assert {result.batches for result in found[trial.key]} == {"fused"}
        assert_equal(found[trial.key], alone)


def test_a_regression_too(bert: ModelSpec) -> None:
    data = make_data(regression=True)
    trials = members(bert, 2, task=REGRESSION)
    found = together(trials, data)
    for trial in trials:
        alone = list(train(trial, data, device="cpu"))
        assert [r.train_loss for r in alone] == pytest.approx(
            [r.train_loss for r in found[trial.key]], rel=1e-5
        )
        ours, theirs = found[trial.key][-1].predictions, alone[-1].predictions
        assert ours is not None and theirs is not None
        assert np.allclose(ours, theirs, atol=1e-5)


def test_in_bf16_as_far_as_its_rounding_goes(bert: ModelSpec) -> None:
    data = make_data()
    trials = members(bert, 2, precision=Precision.BF16)
    found = together(trials, data)
    for trial in trials:
        (first, *_) = train(trial, data, device="cpu")
        assert found[trial.key][0].precision == first.precision == "bf16"
        assert found[trial.key][0].train_loss == pytest.approx(first.train_loss, rel=0.02)


def test_who_leaves_does_not_change_the_others(bert: ModelSpec) -> None:
    data = make_data()
    trials = members(bert, 2, epochs=4)
    asked: list[str] = []

    def wanted(trial: TrialSpec) -> bool:
        asked.append(trial.key)
        return not (trial == trials[0] and asked.count(trial.key) > 2)

    found = together(trials, data, wanted=wanted)
    assert [len(found[trial.key]) for trial in trials] == [2, 4, 4]
    for trial in trials[1:]:
        assert_equal(found[trial.key], list(train(trial, data, device="cpu")))
    # When all have left, it ends.
    assert list(train_fused(trials, data, device="cpu", wanted=lambda trial: False)) == []


def test_who_diverges_leaves_with_its_error(bert: ModelSpec) -> None:
    data = make_data()
    trials = members(bert, 2, epochs=3)
    broken = dataclasses.replace(trials[1], seed=99)
    # Infinite weights of one head alone: its loss is not a number, the others' are.
    with pytest.MonkeyPatch.context() as patch:
        break_head(patch, 99)
        events = list(train_fused([trials[0], broken, trials[2]], data, device="cpu"))
    of_broken = [event for trial, event in events if trial == broken]
    assert len(of_broken) == 1 and isinstance(of_broken[0], DivergedError)
    assert broken.key in str(of_broken[0])
    for trial in (trials[0], trials[2]):
        own = [event for one, event in events if one == trial and isinstance(event, EpochResult)]
        assert_equal(own, list(train(trial, data, device="cpu")))


def test_dropout_is_drawn_for_each_member(tmp_path: Path) -> None:
    model = tiny_bert(tmp_path / "bert")
    same = [make_trial(model, seed=1), make_trial(model, seed=1, learning_rate=3.0001e-3)]
    data = make_data()
    found = together(same, data)
    first, second = (found[trial.key][0].train_loss for trial in same)
    assert abs(first - second) > 1e-4  # the same seed and nearly the same rate, other masks
    again = together(same, data)
    assert [r.train_loss for r in again[same[0].key]] == [r.train_loss for r in found[same[0].key]]


def test_what_cannot_be_fused_says_why(tmp_path: Path, bert: ModelSpec) -> None:
    data = make_data()
    deberta = calm("deberta-v2", tmp_path / "deberta", LAYERS)
    with pytest.raises(NotFusableError, match="one by one: padded batches: "):
        together(members(deberta, 1), data)
    with pytest.raises(NotFusableError, match=r"one by one: .*frozen_dropout is on"):
        together(members(bert, 2, frozen_dropout=True), data)
    # With a padding token among the words, its row of the table must stay: not in one product.
    ids = data.train.input_ids.copy()
    ids[3] = data.pad_token_id
    padded = dataclasses.replace(data, train=dataclasses.replace(data.train, input_ids=ids))
    with pytest.raises(NotFusableError, match="padding token"):
        together(members(bert, 0), padded)
