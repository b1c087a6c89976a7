"""The frozen prefix, computed once: which hidden states are kept, where, and under which key."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from elsa_tune.training.data.tokens import IndexArray, TaskData, TokenRows
from elsa_tune.training.forward.equality import Setting
from elsa_tune.training.forward.prefix_store import NotKeptError, PrefixStore, Reading, Shape
from elsa_tune.training.machine import room
from elsa_tune.training.model.encoder import checkpoint_digests

# Changes whenever the same inputs would give other rows.
_FORMAT = 2
# Tokens of one pass over the layers while a cache is filled: enough for full speed, little memory.
_CHUNK_TOKENS = 4096
# Of a GPU's memory that a trial may take, what the kept hidden states of its depth may: the rest is
# for the layers that train.
_MEMORY_SHARE = 0.4

# (split, consecutive rows, wanted) -> (N, hidden states [tokens, H] behind layer N) for each wanted
# N, ascending; in evaluation mode, the tokens in the split's order.
FrozenLayers = Callable[[TokenRows, IndexArray, Collection[int]], Iterable[tuple[int, Tensor]]]


class Prefix:
    """The hidden states of one model's frozen layers on one task's data, on this node.

    model: on its device, and complete. setting: of the trial that computes them; where dropout is
    on in frozen layers, nothing is kept of the training rows. batches: `packed` or `padded`, how
    they are computed. A GPU with room keeps them in its memory, for a CPU they lie on disk.
    """

    def __init__(
        self, model: PreTrainedModel, data: TaskData, setting: Setting, batches: str
    ) -> None:
        dtype = setting.recipe.prefix_cache.value
        self._splits = dict(data.splits())
        if setting.recipe.frozen_dropout:
            del self._splits["train"]
        self._shape = Shape(
            tokens={split: len(rows.input_ids) for split, rows in self._splits.items()},
            hidden_size=int(model.config.hidden_size),
            dtype=torch.float32 if dtype == "fp32" else torch.bfloat16,
        )
        self._setting = setting
        self._store = PrefixStore()
        # The fingerprint is of the task as it was read; the digests are of the tokens themselves.
        self._what = (
            data.fingerprint,
            *(f"{split} {_rows_digest(rows)}" for split, rows in self._splits.items()),
            *(f"{setting.precision}-{dtype}", batches),
        )

    def reading(self, frozen_layers: int, others: Iterable[int], layers: FrozenLayers) -> Reading:
        """The hidden states behind a depth's frozen layers, computed by those layers if need be.

        others: depths that later trials will want, kept on disk in the same pass where there is
        room. Raises NotKeptError where there is no room for this one, OSError where the disk cannot
        be written.
        """
        if self._shape.bytes <= _MEMORY_SHARE * room(self._setting.device):
            return self._computed_here(frozen_layers, layers)
        if self._setting.device.type != "cpu":
            raise NotKeptError(
                f"{self._shape.bytes / 1e9:.1f} GB of the GPU would be needed to keep its output"
            )
        store, key = self._store, self._key(frozen_layers)
        kept = store.open(key, self._shape)
        if kept is not None:
            return kept
        # One builder a model and task, whatever the depth: it will fill the others' too.
        with store.building(self._key(0)):
            kept = store.open(key, self._shape)
            if kept is None:
                self._build(frozen_layers, others, layers)
                kept = store.open(key, self._shape)
        if kept is None:
            raise OSError(f"what was written to {store.folder} cannot be read back")
        return kept

    def _computed_here(self, frozen_layers: int, layers: FrozenLayers) -> Reading:
        """In the memory of the device that computes them."""
        reading = Reading()
        for split, rows in self._splits.items():
            size = (len(rows.input_ids), self._shape.hidden_size)
            hidden = torch.empty(size, dtype=self._shape.dtype, device=self._setting.device)
            start = 0
            for _, _, part in rows_behind(layers, rows, [frozen_layers], self._setting):
                hidden[start : start + len(part)] = part
                start += len(part)
            reading.hidden[split] = hidden
        return reading

    def _key(self, frozen_layers: int) -> str:
        """Names the entry of a depth by the contents of the checkpoint's files and of the data."""
        parts = (str(_FORMAT), *checkpoint_digests(), *self._what, str(frozen_layers))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def _build(self, frozen_layers: int, others: Iterable[int], layers: FrozenLayers) -> None:
        store, shape, kept_as = self._store, self._shape, self._setting.recipe.prefix_cache
        there = {entry.key for entry in store.entries()}
        depths = sorted({frozen_layers, *(n for n in others if self._key(n) not in there)})
        try:
            store.make_room(shape.bytes * len(depths))
        except NotKeptError:
            depths = [frozen_layers]
            store.make_room(shape.bytes)
        with contextlib.ExitStack() as written:
            append = {}
            for n in depths:
                what = f"{self._setting.name}, {n} frozen layers, {kept_as}"
                append[n] = written.enter_context(store.writing(self._key(n), what, shape))
            for rows in self._splits.values():
                for _, n, hidden in rows_behind(layers, rows, depths, self._setting):
                    append[n](hidden)


def rows_behind(
    layers: FrozenLayers, rows: TokenRows, wanted: Collection[int], setting: Setting
) -> Iterator[tuple[IndexArray, int, Tensor]]:
    """(row numbers, N, hidden states [tokens, H] of these rows behind layer N), for all rows in
    their order, about _CHUNK_TOKENS at a time, and each wanted N.
    """
    start = 0
    while start < len(rows):
        limit = rows.offsets[start] + _CHUNK_TOKENS
        stop = max(start + 1, int(np.searchsorted(rows.offsets, limit, side="right")) - 1)
        chunk = np.arange(start, stop)
        with torch.inference_mode(), setting.arithmetic():
            for n, hidden in layers(rows, chunk, wanted):
                yield chunk, n, hidden
        start = stop


def _rows_digest(rows: TokenRows) -> str:
    digest = hashlib.blake2b()
    for array in (rows.input_ids, rows.offsets, rows.token_type_ids):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
