"""BitFit as it ships: which parameters train, and that they train as a plain loop trains them."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidates import read_candidate, recorded_candidate
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.adapt import methods
from elsa_tune.training.model.encoder import load_classifier, skeleton
from elsa_tune.training.model.parts import divide
from tests.unit.adapted import by_a_plain_loop, exported, logits_of, trained
from tests.unit.tiny_trials import calm, data_for, make_trial

LAYERS = 4


def spec_of(folder: Path, architecture: str) -> ModelSpec:
    return calm(architecture, folder / architecture, LAYERS)


def trial_of(model: ModelSpec, **changes: Any) -> TrialSpec:
    return dataclasses.replace(make_trial(model, **changes), candidate=BitFit())


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "mpnet"])
def test_every_bias_and_the_head_train_as_a_plain_loop_trains_them(
    architecture: str, tmp_path: Path
) -> None:
    trial = trial_of(spec_of(tmp_path, architecture), epochs=3)
    model = load_classifier(trial.model, 2, trial.seed)
    head = set(divide(model).head)
    wanted = {name for name, _ in model.named_parameters() if name.endswith(".bias")} | head
    assert any(".LayerNorm.bias" in name and "embeddings" in name for name in wanted)
    assert not any("relative_attention_bias" in name for name in wanted)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name in wanted
    results = list(loop.train(trial, data_for(architecture), device="cpu"))
    assert (results[-1].batches, results[-1].prefix) == ("packed", "none")
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert results[-1].trainable_parameters == count
    losses = by_a_plain_loop(trial, model, architecture)
    assert [result.train_loss for result in results] == pytest.approx(losses, rel=1e-4)
    assert losses[0] - losses[-1] > 0.01
    _, kept = trained(trial, architecture)
    assert set(kept) == wanted


def test_an_export_differs_from_the_base_model_in_biases_and_head_alone(tmp_path: Path) -> None:
    trial = trial_of(spec_of(tmp_path, "bert"))
    before = load_classifier(trial.model, 2, trial.seed).state_dict()
    logits = exported(trial, tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert np.abs(logits_of(model) - logits).max() < 1e-5
    head = set(divide(model).head)
    after = model.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert all(name.endswith(".bias") or name in head for name in changed)
    # 4 of each layer's projections and 2 of its feed-forward part, 2 of its norms, 1 in front.
    assert len(changed - head) >= 7 * LAYERS
    facts = json.loads((tmp_path / "out/config.json").read_text())["elsa_tune"]
    assert recorded_candidate(facts) == BitFit()


def test_what_xlnet_adds_to_its_scores_is_no_bias(tmp_path: Path) -> None:
    model = skeleton(spec_of(tmp_path, "xlnet"))
    trainable = methods.apply(model, BitFit())
    # Those of XLNet's scores are matrices, and belong to relative positions.
    assert not any(re.search(r"\.r_[wrs]_bias$", name) for name in trainable.parameters)
    assert any("layer_norm.bias" in name for name in trainable.parameters)


def test_a_model_without_biases_is_refused_before_anything_runs(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "modernbert")
    sentence = "'bitfit' trains biases, of which the architecture 'modernbert' has none"
    with pytest.raises(SpaceError, match=sentence):
        methods.check([BitFit()], lambda: skeleton(spec))


def test_label_and_record_give_it_back() -> None:
    candidate = read_candidate("BitFit")
    assert candidate == BitFit() and candidate.label == candidate.key == "bitfit"
    for values in (candidate.record(), {"bitfit": "True"}, {"bitfit": "true"}):
        assert recorded_candidate(values) == candidate
    with pytest.raises(SpaceError, match="BitFit has no settings; write bitfit"):
        read_candidate("bitfit-r8")
    with pytest.raises(SpaceError, match="names no candidate"):
        recorded_candidate({"bitfit": "False"})
    assert candidate.describe(12) == "the biases" and candidate.is_plural(12)
    assert candidate.doing(12) == "fine-tuning the biases"
    assert not candidate.is_ranked and candidate.fine_tuned_layers(12) is None
