"""A classification model run on padded batches, by its own code: any architecture.

Shapes: B rows, T tokens of the longest, H hidden size, C outputs.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask

from elsa_tune.training.data import batches
from elsa_tune.training.data.batches import PaddedBatch
from elsa_tune.training.data.tokens import IndexArray, Indices, TaskData, TokenRows
from elsa_tune.training.forward.packed_model import Passthrough
from elsa_tune.training.forward.prefix_store import NotKeptError
from elsa_tune.training.model.parts import drop_layers, layer_list

# Of one batch while a cache is filled.
_ROWS = 32


class _EnoughError(Exception):
    """Ends a forward pass whose rest nobody needs."""


class PaddedModel(nn.Module):
    """As `PackedModel`, on batches padded to their longest row.

    deepest: the last layer that it can begin behind; the model's own code expects one to run.
    """

    how: ClassVar[str] = "padded"

    def __init__(self, model: PreTrainedModel, data: TaskData) -> None:
        super().__init__()
        self.model = model
        self._data = data
        self.deepest = len(layer_list(model)) - 1

    def drop_prefix(self, layers: int) -> None:
        """Drop what `PackedModel.drop_prefix` drops.

        Raises ValueError where embeddings are no module.
        """
        base: Any = self.model.base_model
        embeddings = getattr(base, "embeddings", None)
        if not isinstance(embeddings, nn.Module):
            raise ValueError("its embeddings are not a module of their own")
        drop_layers(self.model, layers)
        base.embeddings = Passthrough()

    def batch(self, rows: TokenRows, indices: Indices) -> PaddedBatch:
        """Return these rows of a split."""
        return batches.pad_batch(rows, indices, self._data, self.model.device)

    def behind(
        self,
        rows: TokenRows,
        chunk: IndexArray,
        wanted: Collection[int],
    ) -> list[tuple[int, Tensor]]:
        """Return what `PackedModel.behind` yields, of the complete model.

        Raises NotKeptError where its layers read other tokens than the rows have.
        """
        device = self.model.device
        first = chunk[0]
        last = chunk[-1]
        first_token = int(rows.offsets[first])
        count = int(rows.offsets[last + 1]) - first_token
        states: dict[int, Tensor] = {}
        order = np.argsort(rows.lengths[chunk], kind="stable")
        by_length = chunk[order]
        for start in range(0, len(chunk), _ROWS):
            part = by_length[start : start + _ROWS]
            batch = self.batch(rows, part)
            # Numbers from the host: a GPU would be waited for to count those of a mask.
            numbers = {"real": np.flatnonzero(batch.mask)}
            on_device = batches.to_device(numbers, device)
            real = on_device["real"]
            all_places = batch.places.view(-1)
            place = all_places[real] - first_token
            for n, hidden in self._hidden(batch, wanted).items():
                _check_places(hidden, batch)
                if n not in states:
                    size = hidden.shape[-1]
                    states[n] = hidden.new_empty((count, size))
                every_token = hidden.flatten(0, 1)
                states[n][place] = every_token[real]
        return sorted(states.items())

    @torch.inference_mode()
    def _hidden(self, batch: PaddedBatch, wanted: Collection[int]) -> dict[int, Tensor]:
        """Return hidden states [B, T, H] behind N layers for each wanted N, in the model's mode.

        What layer N + 1 reads, not what layer N gives: DeBERTa adds its convolution in between. For
        N = L what the encoder gives its head, a last norm included.
        """
        states: dict[int, Tensor] = {}
        layers = layer_list(self.model)
        last = max(wanted)

        def keep(number: int, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
            if args:
                states[number] = args[0]
            else:
                states[number] = kwargs["hidden_states"]
            if number == last:
                raise _EnoughError

        hooks = []
        for number in wanted:
            if number < len(layers):
                hook = partial(keep, number)
                handle = layers[number].register_forward_pre_hook(hook, with_kwargs=True)
                hooks.append(handle)
        try:
            with masks_without_asking(self.model.device):
                if len(layers) in wanted:
                    output = self.model.base_model(**batch.inputs)
                    states[len(layers)] = output.last_hidden_state
                else:
                    self.model(**batch.inputs)
        except _EnoughError:
            pass
        finally:
            for handle in hooks:
                handle.remove()
        return states

    def forward(self, batch: PaddedBatch, given: Tensor | None = None) -> Tensor:
        """Return logits [B, C]. given: hidden states [B, T, H] behind the dropped layers."""
        inputs = dict(batch.inputs)
        if given is not None:
            # At padding stands the row's first token: finite, and attended by nobody.
            del inputs["input_ids"]
            inputs["inputs_embeds"] = given
        with masks_without_asking(self.model.device):
            return self.model(**inputs).logits  # type: ignore[no-any-return]  # untyped


def _check_places(hidden: Tensor, batch: PaddedBatch) -> None:
    """Raise NotKeptError unless hidden states [B, T, H] are those of a batch's tokens [B, T].

    Some architectures pad a batch further, or lay it out otherwise.
    """
    given = batch.mask.shape
    read = tuple(hidden.shape[:2])
    if read != given:
        raise NotKeptError(
            f"its layers read {read[0]} x {read[1]} tokens where the batch has "
            f"{given[0]} x {given[1]}"
        )


_MASKS: dict[str, Callable[..., Any]] = {"sdpa": sdpa_mask, "eager": eager_mask}


def _of_every_batch(make: Callable[..., Any], **how: Any) -> Any:
    how["allow_is_bidirectional_skip"] = False
    return make(**how)


@contextlib.contextmanager
def masks_without_asking(device: torch.device) -> Iterator[None]:
    """Let transformers make a mask for every batch of a GPU.

    Otherwise it looks into a batch's mask first, and the GPU's queue would have to run empty for
    the answer.
    """
    if device.type == "cpu":
        yield
        return

    for name, make in _MASKS.items():
        ALL_MASK_ATTENTION_FUNCTIONS[name] = partial(_of_every_batch, make)
    try:
        yield
    finally:
        for name in _MASKS:
            del ALL_MASK_ATTENTION_FUNCTIONS[name]
