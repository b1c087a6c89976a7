"""The methods of adaptation: which one applies a candidate to a model.

A method has two halves of one name. What a search knows of its candidates is a subclass of
`Candidate` in `specs/adapt/`, registered in its `candidates.py`; what it does to a model is a
`Method`, which is `METHOD` in the file of that name in this folder. Another package registers both
where it defines the candidate's class: a worker that is given a candidate imports that module, and
with it the other half.
"""

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from elsa_tune.errors import SpaceError
from elsa_tune.extensions import check_home
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import is_depth
from elsa_tune.training.adapt.method import Method
from elsa_tune.training.adapt.trainable import Trainable

_METHODS: dict[str, Method[Any]] = {}


def register(name: str, method: Method[Any]) -> None:
    """Let this method apply the candidates whose `method` is `name`; the last registered counts."""
    _METHODS[name] = method


def apply(model: PreTrainedModel, candidate: Candidate, seed: int = 0) -> Trainable:
    """Change the model as the candidate says, in place, and return what trains of it.

    seed: of what a method draws; torch's global random state is neither read nor changed. Raises
    SpaceError for a candidate that this model or this elsa-tune has not, ModelError for a model
    that cannot be divided.
    """
    # Not the seed itself: the head was drawn from that.
    seed_sequence = np.random.SeedSequence((seed, *candidate.entropy))
    own_seed = int(seed_sequence.generate_state(1)[0])
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(own_seed)  # a GPU's is not touched
        return _method(candidate).apply(model, candidate)


def check(candidates: Iterable[Candidate], skeleton: Callable[[], PreTrainedModel]) -> None:
    """Raise SpaceError for a candidate that the model cannot be adapted to.

    Raises ExtensionError for a method that workers cannot import.

    skeleton: builds the model on the meta device. It is called for other methods than freezing
    alone, which fits whatever can be divided.
    """
    for candidate in candidates:
        if not is_depth(candidate):
            method = _method(candidate)
            for half in (type(candidate), type(method)):
                check_home(f"the method '{candidate.method}'", half.__module__)
            method.check(skeleton(), candidate)


def merged(model: PreTrainedModel, candidate: Candidate) -> Trainable:
    """Turn a trained model into one of the base model's architecture; return what trained of it."""
    _method(candidate).merged(model, candidate)
    return trained_of(model, candidate)


def trained_of(model: PreTrainedModel, candidate: Candidate) -> Trainable:
    """Return what was trained of an exported model."""
    return _method(candidate).trained_of(model, candidate)


def save_adapter(
    folder: Path,
    adapted: PreTrainedModel,
    base: PreTrainedModel,
    candidate: Candidate,
    location: str,
    revision: str | None,
) -> None:
    """Write what a method added to a model, as `Method.save_adapter` does."""
    _method(candidate).save_adapter(folder, adapted, base, candidate, location, revision)


def first_trained_layers(candidates: Iterable[Candidate], layers: int) -> list[int]:
    """Return where these candidates begin to train, as far as known.

    Without those that begin at 0, of which no prefix is kept.
    """
    firsts = []
    for candidate in candidates:
        method = _method(candidate)
        first = method.first_trained_layer(candidate, layers)
        if first > 0:
            firsts.append(first)
    return firsts


def _method(candidate: Candidate) -> Method[Any]:
    name = candidate.method
    if name not in _METHODS:
        shipped = _shipped(name)
        if shipped is None:
            raise SpaceError(
                f"nothing here trains by the method '{name}'; import the package that registers "
                "it with elsa_tune.training.adapt.methods"
            )
        register(name, shipped)
    return _METHODS[name]


def _shipped(name: str) -> Method[Any] | None:
    """Return the METHOD of the file of that name beside this one; None where there is none."""
    if not name.isidentifier():
        return None
    file = f"{__package__}.{name}"
    try:
        module = importlib.import_module(file)
    except ModuleNotFoundError as error:
        if error.name != file:
            raise
        return None
    return getattr(module, "METHOD", None)
