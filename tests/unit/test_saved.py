"""A trained model as a folder: what transformers alone loads from it is what was trained."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import pipeline

from elsa_tune.errors import DataError, ModelError
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.task import FilesSource, Metric, TaskKind, TaskSpec
from elsa_tune.specs.trial import Phase, Pooling, Recipe, Selection, TrialSpec
from elsa_tune.tasks.types.scores import task_scores
from elsa_tune.training.bundle.members import alone, read_members
from elsa_tune.training.data.preparation import prepare, read_splits
from elsa_tune.training.loop import train
from elsa_tune.training.model.encoder import load_tokenizer, save_tokenizer
from elsa_tune.training.objective import Objective
from elsa_tune.training.saved import (
    check_exportable,
    predict,
    read_labelled,
    save_classifier,
)
from tests.searching import make_bench
from tests.unit.tiny_models import make_tiny

RECIPE = Recipe(epochs=2, batch_size=16, max_length=24)


def task_of(folder: Path, **changes: Any) -> TaskSpec:
    make_bench(folder)
    files = FilesSource(
        format="csv", train=(str(folder / "train.csv"),), evaluation=(str(folder / "dev.csv"),)
    )
    task = TaskSpec(
        name="mood",
        kind=TaskKind.CLASSIFICATION,
        text_columns=("text",),
        label_column="label",
        classes=("bad", "good"),
        metric=Metric.ACCURACY,
        companions=(Metric.F1,),
        source=files,
    )
    return dataclasses.replace(task, **changes)


def exported(trial: TrialSpec, folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the trial's own predictions, and the facts of the folder in which it is saved."""
    data = prepare(trial.model, trial.task, trial.recipe)
    kept: dict[str, torch.Tensor] = {}

    def keep(named: Any) -> None:
        kept.update({name: value.detach().clone() for name, value in named.items()})

    *_, last = train(trial, data, keep=keep)
    folder.mkdir()
    return np.asarray(last.predictions), save_classifier(folder, trial, data, kept)


def trial_of(tmp_path: Path, architecture: str, frozen: int | str, **changes: Any) -> TrialSpec:
    model = resolve_model(str(make_tiny(architecture, tmp_path / architecture)))
    values = {"task": task_of(tmp_path / "task"), "recipe": RECIPE, **changes}
    depth = FreezeDepth.of(frozen)
    return TrialSpec(
        model=model, candidate=depth, learning_rate=3e-3, seed=5, phase=Phase.FINAL, **values
    )


@pytest.mark.parametrize(
    ("architecture", "frozen"),
    [
        ("bert", 0),
        ("bert", 2),
        ("bert", "embeddings"),
        ("roberta", 4),
        ("deberta-v2", 1),
        ("modernbert", 3),
        ("xlnet", 2),
        ("big_bird", 2),
    ],
)
def test_transformers_alone_predicts_what_the_trial_predicted(
    architecture: str, frozen: int | str, tmp_path: Path
) -> None:
    trial = trial_of(tmp_path, architecture, frozen)
    predictions, facts = exported(trial, tmp_path / "out")
    texts = read_splits(trial.task, trial.recipe)["evaluation"].texts
    assert predict(tmp_path / "out", texts).tolist() == predictions.tolist()
    assert facts["frozen_layers"] == trial.candidate.frozen_layers
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in files)


def edit_configuration(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, **fields}))


@pytest.mark.parametrize(
    ("switch", "value"),
    [("return_dict", False), ("output_attentions", True), ("output_hidden_states", True)],
)
def test_a_configurations_switches_of_what_a_model_returns_are_passed_over(
    switch: str, value: bool, tmp_path: Path
) -> None:
    trial = trial_of(tmp_path, "bert", 2)
    edit_configuration(tmp_path / "bert", **{switch: value})
    out = tmp_path / "out"
    predictions, _ = exported(trial, out)
    written = json.loads((out / "config.json").read_text())
    assert written.get(switch, not value) is not value
    # In an export of an earlier version, or by somebody else.
    edit_configuration(out, **{switch: value})
    texts = read_splits(trial.task, trial.recipe)["evaluation"].texts
    assert predict(out, texts).tolist() == predictions.tolist()
    [member] = read_members(out).values()
    assert alone(member, texts[0]).argmax(1).tolist() == predictions.tolist()


def test_frozen_tensors_are_the_base_s_bit_by_bit_and_the_same_seed_gives_the_same_model(
    tmp_path: Path,
) -> None:
    trial = trial_of(tmp_path, "bert", 2)
    _, facts = exported(trial, tmp_path / "out")
    exported(trial, tmp_path / "again")
    base = load_file(tmp_path / "bert" / "model.safetensors")
    ours = load_file(tmp_path / "out" / "model.safetensors")
    parts = ("embeddings.", "encoder.layer.0.", "encoder.layer.1.")
    frozen = [name for name in base if name.startswith(parts)]
    assert len(frozen) > 30
    assert all(torch.equal(ours[f"bert.{name}"], base[name]) for name in frozen)
    trained = [name for name in base if name.startswith("encoder.layer.3.")]
    assert not any(torch.equal(ours[f"bert.{name}"], base[name]) for name in trained)
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(torch.equal(ours[name], again[name]) for name in ours)
    digest = hashlib.sha256()
    for name in sorted(frozen):
        digest.update(f"bert.{name}".encode() + base[name].numpy().tobytes())
    assert facts["prefix_sha256"] == digest.hexdigest()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert config["problem_type"] == "single_label_classification"
    assert config["elsa_tune"] == facts


def test_a_regression_answers_on_the_scale_of_its_labels(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    task = task_of(
        folder, kind=TaskKind.REGRESSION, classes=(), metric=Metric.PEARSON, companions=()
    )
    for name in ("train.csv", "dev.csv"):
        text = (folder / name).read_text().replace(",good", ",105.0").replace(",bad", ",95.0")
        (folder / name).write_text(text)
    trial = trial_of(
        tmp_path / "model", "bert", 2, recipe=dataclasses.replace(RECIPE, standardize_targets=True)
    )
    trial = dataclasses.replace(trial, task=task)
    predictions, _ = exported(trial, tmp_path / "out")
    texts = read_splits(task, trial.recipe)["evaluation"].texts
    assert predictions.min() > 90 and predictions.max() < 110
    np.testing.assert_allclose(predict(tmp_path / "out", texts), predictions, atol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        [answer] = pipeline("text-classification", str(tmp_path / "out"))(texts[0][:1])
    assert answer["score"] == pytest.approx(predictions[0], abs=1e-3)


def test_the_weights_are_those_of_the_epoch_that_gives_the_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assess = Objective.assess

    def worse_each_time(self: Objective, step: int, logits: Any) -> Any:
        metrics, loss, predictions = assess(self, step, logits)
        return {**metrics, "accuracy": 1 / step}, loss, predictions

    monkeypatch.setattr(Objective, "assess", worse_each_time)
    recipe = dataclasses.replace(RECIPE, epochs=4, selection=Selection.BEST_EPOCH)
    trial = trial_of(tmp_path, "bert", 2, recipe=recipe)
    data = prepare(trial.model, trial.task, trial.recipe)
    kept: list[dict[str, torch.Tensor]] = []
    trained: dict[str, torch.Tensor] = {}

    def keep(named: Any) -> None:
        kept.append({name: value.detach().clone() for name, value in named.items()})
        trained.update(named)

    *_, last = train(trial, data, device="cpu", keep=keep)
    [first] = kept  # the first epoch's; the model trained on
    matrices = [name for name in first if name.endswith("dense.weight")]
    assert matrices
    assert not any(torch.equal(first[name], trained[name]) for name in matrices)
    (tmp_path / "out").mkdir()
    save_classifier(tmp_path / "out", trial, data, first)
    texts = read_splits(trial.task, trial.recipe)["evaluation"].texts
    assert predict(tmp_path / "out", texts).tolist() == list(last.predictions or ())


def test_a_file_of_one_s_own_is_scored(tmp_path: Path) -> None:
    trial = trial_of(tmp_path, "bert", 2)
    exported(trial, tmp_path / "out")
    rows = read_labelled(tmp_path / "task" / "dev.csv", trial.task)
    found = task_scores(trial.task, predict(tmp_path / "out", rows.texts), rows.labels)
    assert list(found) == ["accuracy", "f1"]
    assert found["accuracy"] > 0.6
    # Each row counts, whatever groups they are trained in.
    grouped = dataclasses.replace(trial.task, group_column="document")
    assert len(read_labelled(tmp_path / "task" / "dev.csv", grouped)) == len(rows)
    with pytest.raises(DataError, match=r"dev\.xls is of no known kind; give a \.csv"):
        read_labelled(tmp_path / "dev.xls", trial.task)


def test_a_mean_of_tokens_is_refused() -> None:
    with pytest.raises(ModelError, match="pooling mean, which no classifier of transformers"):
        check_exportable(Recipe(pooling=Pooling.MEAN))


def test_a_tokenizer_that_finds_no_room_is_refused_as_every_file_is(tmp_path: Path) -> None:
    make_tiny("bert", tmp_path / "model")
    tokenizer = load_tokenizer(resolve_model(str(tmp_path / "model")))
    full_disk = tmp_path / "out"
    full_disk.mkdir()
    (full_disk / "tokenizer.json").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        save_tokenizer(tokenizer, full_disk)
