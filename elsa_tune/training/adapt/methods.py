"""The methods of adaptation: which one applies a candidate to a model.

A method has two halves of one name. What a search knows of its candidates is a subclass of
`specs.adaptation.Candidate`; what it does to a model is a `Method`, in a file of this folder. A
package that adds a method registers both where it defines the candidate's class: a worker that is
given a candidate imports that module, and with it the other half.
"""

from collections.abc import Iterable
from typing import Any

from transformers import PreTrainedModel

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.training.adapt.freeze import Freezing
from elsa_tune.training.adapt.method import Method
from elsa_tune.training.adapt.trainable import Trainable

_METHODS: dict[str, Method[Any]] = {}


def register(name: str, method: Method[Any]) -> None:
    """Let this method apply the candidates whose `method` is `name`; the last registered counts."""
    _METHODS[name] = method


register(FreezeDepth.method, Freezing())


def apply(model: PreTrainedModel, candidate: Candidate) -> Trainable:
    """Change the model as the candidate says, in place, and return what trains of it.

    Raises SpaceError for a candidate that this model or this elsa-tune has not, ModelError for a
    model that cannot be divided.
    """
    return _method(candidate).apply(model, candidate)


def first_trained_layers(candidates: Iterable[Candidate], layers: int) -> list[int]:
    """Return where these candidates begin to train, as far as known; without those that begin at 0,
    of which no prefix is kept.
    """
    firsts = [_method(each).first_trained_layer(each, layers) for each in candidates]
    return [first for first in firsts if first > 0]


def _method(candidate: Candidate) -> Method[Any]:
    if candidate.method not in _METHODS:
        raise SpaceError(
            f"nothing here trains by the method '{candidate.method}'; import the package that "
            "registers it with elsa_tune.training.adapt.methods"
        )
    return _METHODS[candidate.method]
