"""The methods of adaptation: which one applies a candidate to a model.

A method has two halves. What a search knows of its candidates is a subclass of `Candidate` in
`specs/adapt/`, registered in its `candidates.py`; what it does to a model is the `Method` that this
class names in `trains_by`, which is imported when a model is adapted.
"""

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from elsa_tune.errors import ExtensionError, SpaceError, first_line, quoted
from elsa_tune.extensions import check_home
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.training.adapt.method import Method
from elsa_tune.training.adapt.trainable import Trainable


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
        return method_of(candidate).apply(model, candidate)


def check(candidates: Iterable[Candidate], skeleton: Callable[[], PreTrainedModel]) -> None:
    """Raise SpaceError for a candidate that the model cannot be adapted to.

    Raises ExtensionError for a method that workers cannot import.

    skeleton: builds the model on the meta device. It is called for other methods than freezing
    alone, which fits whatever can be divided.
    """
    for candidate in candidates:
        if not candidate.is_depth:
            method = method_of(candidate)
            for half in (type(candidate), type(method)):
                check_home(f"the method '{candidate.method}'", half.__module__)
            method.check(skeleton(), candidate)


def merged(model: PreTrainedModel, candidate: Candidate) -> Trainable:
    """Turn a trained model into one of the base model's architecture; return what trained of it."""
    method_of(candidate).merged(model, candidate)
    return trained_of(model, candidate)


def trained_of(model: PreTrainedModel, candidate: Candidate) -> Trainable:
    """Return what was trained of an exported model."""
    return method_of(candidate).trained_of(model, candidate)


def save_adapter(
    folder: Path,
    adapted: PreTrainedModel,
    base: PreTrainedModel,
    candidate: Candidate,
    location: str,
    revision: str | None,
) -> None:
    """Write what a method added to a model, as `Method.save_adapter` does."""
    method_of(candidate).save_adapter(folder, adapted, base, candidate, location, revision)


def first_trained_layers(candidates: Iterable[Candidate], layers: int) -> list[int]:
    """Return where these candidates begin to train, as far as known.

    Without those that begin at 0, of which no prefix is kept.
    """
    firsts = []
    for candidate in candidates:
        method = method_of(candidate)
        first = method.first_trained_layer(candidate, layers)
        if first > 0:
            firsts.append(first)
    return firsts


def method_of(candidate: Candidate) -> Method[Any]:
    """Return what applies the candidate to a model.

    Raises SpaceError where nothing does, ExtensionError where its module cannot be imported.
    """
    named = candidate.trains_by
    home, _, name = str(named).partition(":")
    if not home or not name:
        raise _untrained(candidate, f"is {quoted(named)}")
    try:
        module = importlib.import_module(home)
    except Exception as error:  # whatever somebody else's module meets
        is_misspelt = isinstance(error, ModuleNotFoundError) and home.startswith(str(error.name))
        if is_misspelt:
            raise _untrained(candidate, f"is {quoted(named)} ({error})") from error
        raise ExtensionError(
            f"the method '{candidate.method}' is trained by {home}, which cannot be imported "
            f"({type(error).__name__}: {first_line(error)}); mend the package that brings it"
        ) from error
    method = getattr(module, name, None)
    if isinstance(method, type):
        raise _untrained(candidate, f"is {quoted(named)}, which is a class and no instance of one")
    if not isinstance(method, Method):
        raise _untrained(candidate, f"is {quoted(named)}, which is no Method")
    return method


def _untrained(candidate: Candidate, why: str) -> SpaceError:
    return SpaceError(
        f"nothing here trains by the method '{candidate.method}': the `trains_by` of "
        f"{type(candidate).__name__} {why}; name a Method there, as module:NAME"
    )
