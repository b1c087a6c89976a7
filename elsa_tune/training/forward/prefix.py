"""The frozen prefix, computed once: which hidden states are kept, where, and under which key.

For a disk one pass over the model fills every depth asked for; a layer's output is written as it is
computed, so memory stays flat.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from elsa_tune.training.data.tokens import IndexArray, TaskData, TokenRows
from elsa_tune.training.forward.equality import Setting
from elsa_tune.training.forward.prefix_store import (
    EntryWriter,
    NotKeptError,
    PrefixStore,
    Reading,
    Shape,
)
from elsa_tune.training.machine import room
from elsa_tune.training.model.encoder import checkpoint_files
from elsa_tune.training.model.parts import divide

# Changes whenever the same inputs would give other rows.
_FORMAT = 1
# Tokens of one pass over the layers while a cache is filled: enough for full speed, little memory.
_CHUNK_TOKENS = 4096
# Of a GPU's memory that a trial may take, what the kept hidden states of its depth may: the rest is
# for the layers that train.
_MEMORY_SHARE = 0.4

# What a configuration says of the head or of its own file, not of the function of the layers.
_NOT_THE_PREFIX = {
    "_name_or_path",
    "architectures",
    "classifier_dropout",
    "dtype",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "transformers_version",
}

# (split, consecutive rows, wanted) -> (N, hidden states [tokens, H] behind layer N) for each wanted
# N, ascending; in evaluation mode, the tokens in the split's order.
FrozenLayers = Callable[[TokenRows, IndexArray, Collection[int]], Iterable[tuple[int, Tensor]]]


def prefix_digests(model: PreTrainedModel) -> tuple[str, ...]:
    """A digest for each N in 0..L of all that decides the hidden states behind layer N: the
    configuration, the embedding side with every table that layers share, and layers 0..N-1.
    """
    config = {
        name: value for name, value in model.config.to_dict().items() if name not in _NOT_THE_PREFIX
    }
    state = model.state_dict()
    parts = divide(model)
    running = hashlib.blake2b(json.dumps(config, sort_keys=True, default=str).encode())
    digests = []
    for names in (parts.embedding, *parts.layers):
        for name in names:
            running.update(name.encode())
            tensor = state[name].detach().to("cpu").contiguous()
            running.update(tensor.view(torch.uint8).numpy().data)
        digests.append(running.copy().hexdigest()[:32])
    return tuple(digests)


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
        # A GPU's copy of the model would have to be copied back for it, and needs no name.
        self._digests = _digests(model) if setting.device.type == "cpu" else ()
        # The fingerprint is of the task as it was read; the digests are of the tokens themselves.
        self._what = (
            data.fingerprint,
            *(f"{split} {_rows_digest(rows)}" for split, rows in self._splits.items()),
        )
        self._how = (f"{setting.precision}-{dtype}", batches)

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
        kept = self._opened(frozen_layers)
        if kept is not None:
            return kept
        # One builder a model and task, whatever the depth: it will fill the others' too.
        with self._store.building(self._key(0)):
            kept = self._opened(frozen_layers)
            if kept is None:
                self._build(frozen_layers, others, layers)
                kept = self._opened(frozen_layers)
        if kept is None:
            raise OSError(f"what was written to {self._store.folder} cannot be read back")
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
        """Names the entry of a depth by its content."""
        digest, depth = self._digests[frozen_layers], str(frozen_layers)
        parts = (str(_FORMAT), digest, *self._what, depth, *self._how)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def _opened(self, frozen_layers: int) -> Reading | None:
        return self._store.open(self._key(frozen_layers), self._shape)

    def _is_kept(self, frozen_layers: int) -> bool:
        reading = self._opened(frozen_layers)
        if reading is not None:
            reading.close()
        return reading is not None

    def _build(self, frozen_layers: int, others: Iterable[int], layers: FrozenLayers) -> None:
        self._store.sweep()
        depths = [n for n in sorted({*others, frozen_layers}) if not self._is_kept(n)]
        try:
            self._store.make_room(self._shape.bytes * len(depths))
        except NotKeptError:
            depths = [frozen_layers]
            self._store.make_room(self._shape.bytes)
        writers: dict[int, EntryWriter] = {}
        try:
            for n in depths:
                what = (
                    f"{self._setting.name}, {n} frozen layers, {self._setting.recipe.prefix_cache}"
                )
                writers[n] = self._store.writer(self._key(n), what, self._shape)
            for rows in self._splits.values():
                for _, n, hidden in rows_behind(layers, rows, depths, self._setting):
                    writers[n].append(hidden)
            for writer in writers.values():
                writer.finish()
        finally:
            for writer in writers.values():
                writer.abandon()


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


_known_digests: tuple[tuple[Any, ...], tuple[str, ...]] | None = None


def _digests(model: PreTrainedModel) -> tuple[str, ...]:
    """Of the model, once for each checkpoint that this process uses one after the other."""
    global _known_digests
    files = checkpoint_files()
    if _known_digests is None or _known_digests[0] != files:
        _known_digests = (files, prefix_digests(model))
    return _known_digests[1]


def _rows_digest(rows: TokenRows) -> str:
    digest = hashlib.blake2b()
    for array in (rows.input_ids, rows.offsets, rows.token_type_ids):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
