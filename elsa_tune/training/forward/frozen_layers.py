"""Hidden states behind a model's first layers, on packed tokens or on padded batches.

It must not know whether and where they are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from elsa_tune.training.data.tokens import IndexArray, TaskData, TokenRows, pad_batch, to_device
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.forward.padded_model import hidden_behind

# Rows of one padded batch.
_PADDED_ROWS = 32


class FrozenLayers(Protocol):
    """What computes hidden states, in evaluation mode."""

    def hidden_behind(
        self, rows: TokenRows, chunk: IndexArray, wanted: Collection[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """(N, hidden states [tokens, H] behind layer N) for each wanted N, ascending.

        chunk: consecutive rows; the tokens come in the order in which the split has them.
        """


@dataclass(frozen=True, slots=True)
class PackedLayers:
    """Those of a packed model; each depth is handed on before the next layer runs."""

    model: PackedModel

    def hidden_behind(
        self, rows: TokenRows, chunk: IndexArray, wanted: Collection[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """As `FrozenLayers.hidden_behind`."""
        batch = self.model.pack(rows, chunk)
        place = batch.places - int(rows.offsets[chunk[0]])
        was_training = self.model.training
        self.model.eval()
        try:
            for n, hidden in enumerate(self.model.prefix(batch)):
                if n in wanted:
                    in_order = torch.empty_like(hidden)
                    in_order[place] = hidden
                    yield n, in_order
                if n == max(wanted):
                    return
        finally:
            self.model.train(was_training)


@dataclass(frozen=True, slots=True)
class PaddedLayers:
    """Those of a whole model on padded batches."""

    model: PreTrainedModel
    data: TaskData

    def hidden_behind(
        self, rows: TokenRows, chunk: IndexArray, wanted: Collection[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """As `FrozenLayers.hidden_behind`."""
        base = int(rows.offsets[chunk[0]])
        tokens = int(rows.offsets[chunk[-1] + 1]) - base
        found: dict[int, Tensor] = {}
        by_length = chunk[np.argsort(rows.lengths[chunk], kind="stable")]
        was_training = self.model.training
        self.model.eval()
        try:
            for start in range(0, len(chunk), _PADDED_ROWS):
                part = by_length[start : start + _PADDED_ROWS]
                batch = pad_batch(rows, part, self.data, self.model.device)
                # Numbers from the host: a GPU would be waited for to count those of a mask.
                real = to_device({"real": np.flatnonzero(batch.mask)}, self.model.device)["real"]
                place = batch.places.view(-1)[real] - base
                for n, hidden in hidden_behind(self.model, batch.inputs, wanted).items():
                    if n not in found:
                        found[n] = hidden.new_empty((tokens, hidden.shape[-1]))
                    found[n][place] = hidden.flatten(0, 1)[real]
        finally:
            self.model.train(was_training)
        yield from sorted(found.items())
