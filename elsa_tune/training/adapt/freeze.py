"""Freezing: the embedding side and the first N layers stay as the checkpoint has them."""

from transformers import PreTrainedModel

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.training.adapt.method import Method
from elsa_tune.training.adapt.trainable import Trainable, train_only
from elsa_tune.training.model.parts import divide


class Freezing(Method[FreezeDepth]):
    """Trains the head, the layers from N on, and for the full model the embeddings."""

    def apply(self, model: PreTrainedModel, candidate: FreezeDepth) -> Trainable:
        parts = divide(model)
        candidate.check(len(parts.layers))
        trained = set(parts.head)
        for layer in parts.layers[candidate.frozen_layers :]:
            trained.update(layer)
        if not candidate.embeddings_frozen:
            trained.update(parts.embedding)
        return train_only(model, trained)

    def first_trained_layer(self, candidate: FreezeDepth, layers: int) -> int:
        return candidate.frozen_layers


METHOD = Freezing()
