"""A method that adds parameters: trained, compared, merged, exported, bundled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from elsa_tune.errors import SpaceError
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training import loop, saved
from elsa_tune.training.adapt import methods
from elsa_tune.training.bundled import load_bundle, read_members
from elsa_tune.training.data.tokens import pad_batch
from elsa_tune.training.forward import equality
from elsa_tune.training.forward.packed_model import Block
from elsa_tune.training.model.encoder import load_classifier, skeleton
from tests.registering import registered
from tests.unit.tiny_trials import calm, data_for, make_trial

LAYERS = 4


@pytest.fixture(scope="module", autouse=True)
def lora() -> Iterator[Any]:
    with registered("tests.lora") as module:
        yield module


def spec_of(folder: Path, architecture: str = "bert") -> ModelSpec:
    return calm(architecture, folder / architecture, LAYERS)


def trial_of(model: ModelSpec, candidate: Any, **changes: Any) -> TrialSpec:
    return dataclasses.replace(make_trial(model, **changes), candidate=candidate)


def state_of(model: ModelSpec) -> dict[str, torch.Tensor]:
    """Return the checkpoint as the process has it in memory."""
    return {n: p.clone() for n, p in load_classifier(model, 2, 1).state_dict().items()}


def by_a_plain_loop(trial: TrialSpec, adapted: Any) -> list[float]:
    """Mean losses of each epoch of an adapted model, on padded batches by its own code."""
    data = data_for("bert")
    optimizer = loop.adamw([p for p in adapted.parameters() if p.requires_grad], trial)
    steps = loop.evaluation_steps(trial.recipe, len(data.train))[-1]
    warmup = int(np.ceil(trial.recipe.warmup_ratio * steps))
    schedule = loop.get_linear_schedule_with_warmup(optimizer, warmup, steps)
    batches = loop.shuffled_batches(trial, len(data.train))
    means = []
    for _ in range(trial.recipe.epochs):
        total = 0.0
        for _ in range(steps // trial.recipe.epochs):
            rows = next(batches)
            labels = torch.from_numpy(data.train.labels[rows])
            loss = adapted(**pad_batch(data.train, rows, data).inputs, labels=labels).loss
            loss.backward()
            nn.utils.clip_grad_norm_(adapted.parameters(), trial.recipe.max_grad_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += float(loss.detach()) * len(rows)
        means.append(total / len(data.train))
    return means


@pytest.mark.parametrize(
    ("architecture", "first", "prefix"),
    [("bert", 0, "none"), ("bert", 2, "cached"), ("distilbert", 2, "cached")],
)
def test_it_trains_as_a_plain_loop_does(
    lora: Any, architecture: str, first: int, prefix: str, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, architecture)
    trial = trial_of(spec, lora.Lora(4, first), epochs=3)
    results = list(loop.train(trial, data_for("bert"), device="cpu"))
    assert (results[-1].batches, results[-1].prefix) == ("packed", prefix)
    adapted = load_classifier(spec, 2, trial.seed)
    trainable = methods.apply(adapted, trial.candidate, trial.seed)
    assert (trainable.first_trained_layer, trainable.embeddings_train) == (first, False)
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert results[-1].trainable_parameters == trained
    losses = by_a_plain_loop(trial, adapted)
    assert [r.train_loss for r in results] == pytest.approx(losses, rel=1e-4)
    assert losses[0] - losses[-1] > 0.01


def test_what_it_draws_follows_the_seed_alone(lora: Any, tmp_path: Path) -> None:
    spec = spec_of(tmp_path)

    def drawn(seed: int, before: int) -> torch.Tensor:
        model = load_classifier(spec, 2, 1)
        torch.manual_seed(before)
        state = torch.get_rng_state()
        methods.apply(model, lora.Lora(4), seed)
        assert torch.equal(torch.get_rng_state(), state)
        [(_, linear), *_] = lora.projections(model, lora.Lora(4))
        return linear.lora_a.detach()  # type: ignore[no-any-return]

    assert torch.equal(drawn(1, before=5), drawn(1, before=6))
    assert not torch.equal(drawn(1, before=5), drawn(2, before=5))


def test_a_fast_path_without_the_adapter_is_noticed(
    lora: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Block.run

    def run_without(*arguments: Any) -> Any:
        with patch.object(lora.LoraLinear, "forward", nn.Linear.forward):
            return run(*arguments)

    monkeypatch.setattr(equality, "_doubts", {})
    monkeypatch.setattr(Block, "run", run_without)
    trial = trial_of(spec_of(tmp_path), lora.Lora(4))
    *_, last = loop.train(trial, data_for("bert"), device="cpu")
    assert last.batches == "padded"
    assert any("on packed tokens its logits differ" in note for note in last.notes)


def exported(trial: TrialSpec, folder: Path) -> np.ndarray:
    """Train and save a model; returns the trial's logits of the evaluation rows."""
    data = data_for("bert")
    kept: dict[str, torch.Tensor] = {}

    def keep(named: Any) -> None:
        kept.update({name: tensor.detach().clone() for name, tensor in named.items()})

    logits: list[torch.Tensor] = []
    evaluate = loop._Run._evaluate

    def evaluated(run: Any, split: str) -> torch.Tensor:
        logits.append(evaluate(run, split))
        return logits[-1]

    with patch.object(loop._Run, "_evaluate", evaluated):
        list(loop.train(trial, data, device="cpu", keep=keep))
    folder.mkdir()
    saved.save_classifier(folder, trial, data, kept)
    return logits[-1].numpy()  # type: ignore[no-any-return]


def test_an_export_is_a_plain_model_with_the_trials_logits(lora: Any, tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    trial = trial_of(spec, lora.Lora(4, 1), epochs=3)
    before = state_of(spec)
    logits = exported(trial, tmp_path / "out")
    after = state_of(spec)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    model, report = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    data = data_for("bert")
    rows = np.arange(len(data.evaluation))
    batch = pad_batch(data.evaluation, rows, data)
    with torch.inference_mode():
        plain = model.eval()(**batch.inputs).logits.numpy()
    assert np.abs(plain - logits).max() < 1e-5
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    queries = {n for n in changed if ".query.weight" in n or ".value.weight" in n}
    assert len(queries) == 2 * (LAYERS - 1)
    assert not any("layer.0." in name or "embeddings" in name for name in changed)
    assert json.loads((tmp_path / "out/config.json").read_text())["elsa_tune"]["lora_width"] == 4


def test_it_answers_in_a_bundle_beside_a_depth(lora: Any, tmp_path: Path) -> None:
    from elsa_tune.exporting.bundle import bundle

    spec = spec_of(tmp_path)
    exported(trial_of(spec, lora.Lora(4, 2)), tmp_path / "adapted")
    exported(make_trial(spec, 3), tmp_path / "frozen")
    [member] = read_members(tmp_path / "adapted").values()
    assert member.trainable.first_trained_layer == 2 and member.has_prefix
    assert not any("lora" in name for name in member.model.state_dict())
    folder = bundle([tmp_path / "adapted", tmp_path / "frozen"], tmp_path / "both")
    about = json.loads((folder / "bundle.json").read_text())
    assert about["runs"] == "packed"
    assert max(about["largest_difference"].values()) < 1e-5
    assert set(load_bundle(folder).tasks) == {"adapted", "frozen"}


def test_a_model_that_it_does_not_fit_is_refused_without_weights(lora: Any, tmp_path: Path) -> None:
    fits = spec_of(tmp_path)
    methods.check([lora.Lora(4)], lambda: skeleton(fits))
    other = spec_of(tmp_path, "modernbert")
    with pytest.raises(SpaceError, match="'lora4' needs projections to query and value"):
        methods.check([lora.Lora(4)], lambda: skeleton(other))
