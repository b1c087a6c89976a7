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

from elsa_tune.training.data.tokens import TaskData, TokenRows, pad_batch, padded_places
from elsa_tune.training.forward.packed import IndexArray, pack
from elsa_tune.training.forward.packed_model import PackedModel, Tokens
from elsa_tune.training.forward.padded_model import hidden_behind

# Rows of one padded batch.
_PADDED_ROWS = 32


class FrozenLayers(Protocol):
    """What computes hidden states, in evaluation mode."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

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

    @property
    def device(self) -> torch.device:
        """As `FrozenLayers.device`."""
        return next(self.model.head.parameters()).device

    def hidden_behind(
        self, rows: TokenRows, chunk: IndexArray, wanted: Collection[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """As `FrozenLayers.hidden_behind`."""
        batch = pack(rows, chunk, self.device)
        place = torch.from_numpy(batch.source - rows.offsets[chunk[0]]).to(self.device)
        was_training = self.model.training
        self.model.eval()
        try:
            tokens = tokens_of(rows, batch.source, batch.position)
            for n, hidden in enumerate(self.model.prefix(tokens, batch)):
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

    @property
    def device(self) -> torch.device:
        """As `FrozenLayers.device`."""
        return next(self.model.parameters()).device

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
                batch = pad_batch(rows, part, self.data)
                inputs = {name: value.to(self.device) for name, value in batch.items()}
                inputs.pop("labels")
                mask, source = padded_places(rows, part, self.data.padding_side)
                place = torch.from_numpy(source[mask] - base).to(self.device)
                is_token = torch.from_numpy(mask).to(self.device)
                for n, hidden in hidden_behind(self.model, inputs, wanted).items():
                    if n not in found:
                        found[n] = hidden.new_empty((tokens, hidden.shape[-1]))
                    found[n][place] = hidden[is_token]
        finally:
            self.model.train(was_training)
        yield from sorted(found.items())


def tokens_of(rows: TokenRows, source: IndexArray, positions: Tensor) -> Tokens:
    """What the embeddings read of the split's tokens `source`, at these positions of their rows;
    both in any one shape.
    """
    device = positions.device
    types = None
    if rows.token_type_ids is not None:
        types = torch.from_numpy(rows.token_type_ids[source].astype(np.int64)).to(device)
    ids = torch.from_numpy(rows.input_ids[source].astype(np.int64)).to(device)
    return Tokens(ids=ids, positions=positions, types=types)
