"""`elsa_tune.freeze`: a model frozen as a search freezes it, for any trainer."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from elsa_tune.errors import ModelError
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.arguments import checked
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.trainable import frozen_modules
from elsa_tune.training.model.parts import layer_list


@dataclass(frozen=True, slots=True)
class Frozen:
    """What `freeze` did to a model."""

    frozen_layers: int  # the first layers, which do not train
    layers: int  # of the encoder, frozen or not
    frozen_parameters: int  # how many numbers stay as they are
    trainable_parameters: int  # how many train

    def __str__(self) -> str:
        total = self.frozen_parameters + self.trainable_parameters
        return (
            f"{self.frozen_layers} of {self.layers} layers are frozen: "
            f"{self.trainable_parameters:,} of {total:,} parameters train"
        )


@checked("model")
def freeze(
    model: PreTrainedModel, frozen_layers: int | str = 9, *, frozen_dropout: bool = False
) -> Frozen:
    """Freeze the embeddings and the first layers of a classification model, in place.

    frozen_layers: 0 (nothing stays frozen) to the model's number of layers, or `embeddings`. What
    was frozen before trains again where the new depth lets it. frozen_dropout: False keeps the
    frozen layers in evaluation mode, as searches do, also after `model.train()`, which trainers
    call before each step; True leaves that to the trainer.

    Raises SpaceError for a depth that the model has not, ModelError for a model that cannot be
    divided (ALBERT, decoders), is compiled, carries PEFT adapters, or has no weights (meta).
    """
    depth = FreezeDepth.of(frozen_layers)
    _check(model)
    trainable = methods.apply(model, depth)
    for module in model.modules():
        for number, hook in list(module._forward_pre_hooks.items()):
            if hook is _stay_in_evaluation:  # of an earlier call
                del module._forward_pre_hooks[number]
    for module in [] if frozen_dropout else frozen_modules(model, trainable):
        module.eval()
        module.register_forward_pre_hook(_stay_in_evaluation)
    counts = {True: 0, False: 0}
    for parameter in model.parameters():
        counts[parameter.requires_grad] += parameter.numel()
    return Frozen(depth.frozen_layers, len(layer_list(model)), counts[False], counts[True])


def _stay_in_evaluation(module: nn.Module, arguments: Any) -> None:
    module.training = False


def _check(model: PreTrainedModel) -> None:
    if hasattr(model, "_orig_mod"):
        raise ModelError("the model is compiled: freeze it first, then call torch.compile")
    if hasattr(model, "peft_config"):
        raise ModelError(
            "the model carries PEFT adapters, which freeze every layer themselves: give the model "
            "without them"
        )
    if not isinstance(model, PreTrainedModel):
        raise ModelError(
            f"a {type(model).__name__} is no transformers model: give one that "
            "AutoModelForSequenceClassification loads"
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ModelError("the model is on the meta device and has no weights yet: load them first")
