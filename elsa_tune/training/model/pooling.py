"""What a model's head reads of a row: as the architecture has it, or the mean of the row's tokens.

Shapes: B rows, T tokens of the longest, H hidden size.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.errors import ModelError
from elsa_tune.specs.trial import Pooling
from elsa_tune.training.model.parts import layer_list

# Those whose own head reads each row's first token of the last layer's output, and nothing else.
# Read in transformers 5.23; XLNet's reads the last token, ModernBERT's has a pooling of its own.
_READ_FIRST = (
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "distilbert",
    "electra",
    "mpnet",
    "deberta",
    "deberta-v2",
)


def check_pooling(pooling: Pooling, model_type: str, name: str) -> None:
    """Raise ModelError where this architecture's head cannot be given the mean."""
    if pooling is Pooling.MEAN and model_type not in _READ_FIRST:
        raise ModelError(
            f"pooling is mean, but the head of model '{name}' (architecture '{model_type}') is not "
            f"known to read the first token alone; leave pooling out, or give one of "
            f"{', '.join(_READ_FIRST)}"
        )


def pool(model: PreTrainedModel, pooling: Pooling) -> None:
    """Let the model's head read this of every row. Raises ModelError as `check_pooling` does.

    For the mean, the first token that the last layer gives becomes the mean of its row's tokens,
    without padding; what runs a layer by itself must do the same (`packed.row_means`).
    """
    check_pooling(pooling, model.config.model_type, str(model.config.name_or_path))
    if pooling is Pooling.MEAN:
        mean = _MeanFirst()
        model.register_forward_pre_hook(mean.see, with_kwargs=True)
        layer_list(model)[-1].register_forward_hook(mean.put)


class _MeanFirst:
    """Hooks of one model; a copy of the model has a copy of its own."""

    def __init__(self) -> None:
        self._mask: Tensor | None = None

    def see(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Keep the batch's mask [B, T], 1 for tokens; None where all are."""
        self._mask = kwargs.get("attention_mask")

    def put(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Return the last layer's output [B, T, H], or a tuple with it, its mean in front."""
        if isinstance(output, tuple):
            hidden, *others = output
            return (self._mean_first(hidden), *others)
        return self._mean_first(output)

    def _mean_first(self, hidden: Tensor) -> Tensor:
        """Return hidden states [B, T, H] with the mean of each row in front."""
        mask = self._mask
        if mask is None:
            mask = torch.ones(hidden.shape[:2])
        share = mask.to(hidden.device, torch.float32)[..., None]  # [B, T, 1]
        weighted = hidden.float() * share
        total = weighted.sum(1, keepdim=True)
        tokens = share.sum(1, keepdim=True)
        mean = (total / tokens).to(hidden.dtype)
        others = hidden[:, 1:]
        return torch.cat([mean, others], dim=1)
