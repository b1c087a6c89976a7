"""`elsa_tune.freeze`: what it freezes and refuses, and that frozen layers drop nothing."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel

import elsa_tune
from elsa_tune.errors import ModelError, SpaceError
from tests.unit.tiny_models import make_tiny

LAYERS = 4


@pytest.fixture
def model(tmp_path: Path) -> PreTrainedModel:
    folder = make_tiny("bert", tmp_path / "model", layers=LAYERS)
    loaded = AutoModelForSequenceClassification.from_pretrained(folder)
    assert isinstance(loaded, PreTrainedModel)
    return loaded


def hidden(model: PreTrainedModel, layer: int) -> torch.Tensor:
    """Return what a layer gives, in training mode as a trainer sets it before each step."""
    model.train()
    ids = torch.arange(5, 15).reshape(2, 5)
    states: Any = model(input_ids=ids, output_hidden_states=True).hidden_states
    return torch.as_tensor(states[layer])


def test_it_freezes_and_says_what(model: PreTrainedModel) -> None:
    done = elsa_tune.freeze(model, 3)
    trained = {name for name, one in model.named_parameters() if one.requires_grad}
    assert all("layer.3." in name or "pooler" in name or "classifier" in name for name in trained)
    count = sum(one.numel() for one in model.parameters())
    assert (done.frozen_layers, done.layers) == (3, LAYERS)
    assert done.frozen_parameters + done.trainable_parameters == count
    assert str(done).startswith(f"3 of {LAYERS} layers are frozen: ")


def test_frozen_layers_drop_nothing_though_a_trainer_says_train(model: PreTrainedModel) -> None:
    assert not torch.equal(hidden(model, 3), hidden(model, 3))
    elsa_tune.freeze(model, 3)
    assert torch.equal(hidden(model, 3), hidden(model, 3))
    assert not torch.equal(hidden(model, LAYERS), hidden(model, LAYERS))
    again = copy.deepcopy(model)
    assert torch.equal(hidden(again, 3), hidden(model, 3))


def test_another_depth_replaces_the_first(model: PreTrainedModel) -> None:
    elsa_tune.freeze(model, LAYERS)
    elsa_tune.freeze(model, 1)
    assert torch.equal(hidden(model, 1), hidden(model, 1))
    assert not torch.equal(hidden(model, 2), hidden(model, 2))
    assert elsa_tune.freeze(model, 0).frozen_parameters == 0
    assert not torch.equal(hidden(model, 1), hidden(model, 1))
    assert elsa_tune.freeze(model, "embeddings").frozen_layers == 0
    assert not model.bert.embeddings.word_embeddings.weight.requires_grad


def test_dropout_may_stay_the_trainers(model: PreTrainedModel) -> None:
    elsa_tune.freeze(model, 3, frozen_dropout=True)
    assert not torch.equal(hidden(model, 3), hidden(model, 3))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_cannot_be_frozen_is_refused(model: PreTrainedModel, tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=f"frozen_layers is 9, but the model has {LAYERS} layers"):
        elsa_tune.freeze(model)
    albert = AutoModelForSequenceClassification.from_pretrained(
        make_tiny("albert", tmp_path / "albert")
    )
    with pytest.raises(ModelError, match="shares one set of weights"):
        elsa_tune.freeze(albert, 1)
    with pytest.raises(ModelError, match="freeze it first, then call"):
        elsa_tune.freeze(torch.compile(model), 1)  # type: ignore[arg-type]
    with torch.device("meta"):
        empty = type(model)(model.config)
    with pytest.raises(ModelError, match="meta device"):
        elsa_tune.freeze(empty, 1)
    with pytest.raises(ModelError, match="Linear is no transformers model"):
        elsa_tune.freeze(torch.nn.Linear(2, 2), 1)  # type: ignore[arg-type]
    model.peft_config = {}
    with pytest.raises(ModelError, match="PEFT"):
        elsa_tune.freeze(model, 1)
