"""BitFit: every bias trains, and the head; all matrices stay as the checkpoint has them."""

from transformers import PreTrainedModel

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.training.adapt.method import Method
from elsa_tune.training.adapt.trainable import Trainable, train_only
from elsa_tune.training.model.parts import divide


class TrainBiases(Method[BitFit]):
    """Trains what is added to a linear layer's or a norm's output, embeddings' norm included."""

    def apply(self, model: PreTrainedModel, candidate: BitFit) -> Trainable:
        parts = divide(model)
        biases = set()
        for name, parameter in model.named_parameters():
            # DeBERTa's `q_bias` and `v_bias` are those of projections, too; what is called so and
            # is no vector belongs to the attention's scores, as in XLNet.
            last_name = name.rpartition(".")[2]
            is_bias = last_name == "bias" or last_name.endswith("_bias")
            if is_bias and parameter.ndim == 1:
                biases.add(name)
        if biases <= set(parts.head):
            raise SpaceError(
                f"'{candidate.label}' trains biases, of which the architecture "
                f"'{model.config.model_type}' has none in its layers; compare other ways"
            )
        return train_only(model, biases.union(parts.head))


METHOD = TrainBiases()
