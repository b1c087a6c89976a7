"""Adapted models trained and saved in tests: by a plain loop, and as an export saves them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training import loop, saved
from elsa_tune.training.data.batches import pad_batch
from tests.unit.tiny_trials import data_for


def by_a_plain_loop(trial: TrialSpec, adapted: Any, architecture: str = "bert") -> list[float]:
    """Mean losses of each epoch of an adapted model, on padded batches by its own code."""
    data = data_for(architecture)
    optimizer = loop.adamw({n: p for n, p in adapted.named_parameters() if p.requires_grad}, trial)
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


def trained(trial: TrialSpec, architecture: str = "bert") -> tuple[np.ndarray, dict[str, Tensor]]:
    """Train a trial; return its logits of the evaluation rows, and what trained, by name."""
    kept: dict[str, Tensor] = {}

    def keep(named: Mapping[str, Tensor]) -> None:
        for name, tensor in named.items():
            kept[name] = tensor.detach().clone()

    logits: list[Tensor] = []
    evaluate = loop._Run._evaluate

    def evaluated(run: Any, split: str) -> Tensor:
        logits.append(evaluate(run, split))
        return logits[-1]

    with patch.object(loop._Run, "_evaluate", evaluated):
        list(loop.train(trial, data_for(architecture), device="cpu", keep=keep))
    return logits[-1].numpy(), kept


def exported(trial: TrialSpec, folder: Path, architecture: str = "bert") -> np.ndarray:
    """Train and save a model; return the trial's logits of the evaluation rows."""
    logits, kept = trained(trial, architecture)
    folder.mkdir()
    saved.save_classifier(folder, trial, data_for(architecture), kept)
    return logits


def logits_of(model: Any, architecture: str = "bert") -> np.ndarray:
    """Return a model's logits of the evaluation rows, on one padded batch."""
    data = data_for(architecture)
    rows = np.arange(len(data.evaluation))
    batch = pad_batch(data.evaluation, rows, data)
    with torch.inference_mode():
        logits: np.ndarray = model.eval()(**batch.inputs).logits.numpy()
    return logits
