"""What of a model trains, and what follows from that: the part that never changes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from elsa_tune.errors import quoted
from elsa_tune.training.model.parts import divide, prefix_modules


@dataclass(frozen=True, slots=True)
class Trainable:
    """What trains of a model with L layers.

    The embedding side and the layers below `first_trained_layer` are the frozen prefix: their
    output can be computed once and kept. `forward/equality.py` tests that this changes nothing.
    """

    # Names of the parameters that train; every other one stays as it is.
    parameters: frozenset[str]
    # The first layer, from 0, in which one of them is; L where only the head trains.
    first_trained_layer: int
    # Whether one is on the embedding side: then first_trained_layer is 0, and no prefix is frozen.
    embeddings_train: bool

    def record(self) -> dict[str, Any]:
        """Return what an exported model's configuration keeps of it: how long the prefix is."""
        return {
            "first_trained_layer": self.first_trained_layer,
            "embeddings_train": self.embeddings_train,
        }


def recorded_trainable(model: PreTrainedModel, values: Mapping[str, Any]) -> Trainable | None:
    """Return what `record` kept of an exported model; None where nothing was kept.

    Whatever is not in the prefix counts as trained. Raises ValueError for values that no export
    has, ModelError for a model that `divide` refuses.
    """
    first = values.get("first_trained_layer")
    embeddings_train = values.get("embeddings_train")
    if first is None or embeddings_train is None:
        return None
    layers = len(divide(model).layers)
    most = 0 if embeddings_train else layers
    if not isinstance(first, int) or not 0 <= first <= most:
        raise ValueError(f"first_trained_layer is {quoted(first)}; the model has {layers} layers")
    prefix = frozen_prefix(model, Trainable(frozenset(), first, bool(embeddings_train)))
    names = {name for name, _ in model.named_parameters()}
    return Trainable(frozenset(names - prefix), first, bool(embeddings_train))


def train_only(model: PreTrainedModel, parameters: Collection[str]) -> Trainable:
    """Let these parameters train and no others, whatever trained before.

    What does not train loses its gradient. Positions that are constant by design never train, even
    if they are named. Raises ValueError for a name that the model has not, ModelError for a model
    that `divide` refuses.
    """
    parts = divide(model)
    names = {name for name, _ in model.named_parameters()}
    unknown = set(parameters) - names
    if unknown:
        raise ValueError(f"the model has no parameter '{min(unknown)}'")
    trained = frozenset(parameters) - parts.fixed
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
        if name not in trained:
            parameter.grad = None
    if not trained.isdisjoint(parts.embedding):
        return Trainable(trained, first_trained_layer=0, embeddings_train=True)
    first = 0
    for names_of_layer in parts.layers:
        if not trained.isdisjoint(names_of_layer):
            break
        first += 1
    return Trainable(trained, first, embeddings_train=False)


def frozen_modules(model: PreTrainedModel, trainable: Trainable) -> list[nn.Module]:
    """Return the modules of the frozen prefix, with those in them; none where it is empty.

    Calling `eval()` on each switches the prefix's dropout off and nothing else.
    """
    if trainable.embeddings_train:
        return []
    return prefix_modules(model, trainable.first_trained_layer)


def frozen_prefix(model: PreTrainedModel, trainable: Trainable) -> frozenset[str]:
    """Return the names of the prefix's parameters, those that are constant by design included."""
    parts = divide(model)
    if trainable.embeddings_train:
        return parts.fixed
    below = parts.layers[: trainable.first_trained_layer]
    return parts.fixed.union(parts.embedding, *below)
