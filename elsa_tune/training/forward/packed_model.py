"""A classification model run on packed tokens: no work on padding, and none on what is given.

It must not know data sets, caches on disk or optimisers. Shapes: P tokens of a packed batch, B
rows, H hidden size, C outputs.

Embeddings and layers are the model's own modules, called one by one; what stands behind them is the
model itself with its embeddings and layers taken out, so every head of Transformers stays as it is.
The head gets each row's first token only, which is all that those of BERT, RoBERTa, XLM-R,
CamemBERT, ELECTRA, DistilBERT and MPNet read: the last layer computes keys and values for every
token, and all else for the first. Under `pooling: mean` it computes all for every token, and the
head gets their mean. Whether a head reads more is found out by a test (`equality.py`), not by its
name.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.trial import Pooling
from elsa_tune.training.forward.blocks import block_for
from elsa_tune.training.forward.packed import PackedBatch, row_means
from elsa_tune.training.model.parts import layer_list


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the embeddings read of a packed batch. ids, positions: int64 [P]; types: int64 [P], or
    None where the model takes none.
    """

    ids: Tensor
    positions: Tensor
    types: Tensor | None

    def renumbered(self, numbers: Tensor) -> Tokens:
        """The same with other ids. numbers: int64 [V], each id's new one."""
        return Tokens(ids=numbers[self.ids], positions=self.positions, types=self.types)


class PackedModel(nn.Module):
    """The parts of a model that run, in their order.

    It takes the model apart: afterwards only this object may be used. layer_runs counts, for each
    of the L layers, how often it ran.
    """

    def __init__(
        self, model: PreTrainedModel, depth: FreezeDepth, pooling: Pooling = Pooling.HEAD
    ) -> None:
        """Raises ValueError for an architecture whose layers it cannot run."""
        super().__init__()
        base: Any = model.base_model
        layers = list(layer_list(model))
        block = block_for(layers[0])
        embeddings = getattr(base, "embeddings", None)
        table = getattr(embeddings, "position_embeddings", None)
        if block is None or embeddings is None or not isinstance(table, nn.Embedding):
            raise ValueError("packed tokens are not known for its kind of layers or embeddings")
        self._block = block
        self.depth = depth
        self._reads_mean = pooling is Pooling.MEAN
        # A table with a padding row (RoBERTa's) begins counting behind it.
        self._first_position = 0 if table.padding_idx is None else table.padding_idx + 1
        self._takes = frozenset(inspect.signature(type(embeddings).forward).parameters)
        self.embeddings: nn.Module | None = embeddings
        self.project: nn.Module | None = getattr(base, "embeddings_project", None)
        self.layers = nn.ModuleList(layers)
        self.first_layer = 0
        self.layer_runs = [0] * len(layers)
        # MPNet's layers share a table of relative positions, which stands behind them.
        self._bias_of_width = getattr(getattr(base, "encoder", None), "compute_position_bias", None)
        base.embeddings = Passthrough()
        if self.project is not None:
            base.embeddings_project = nn.Identity()
        del layer_list(model)[:]
        self.head = model

    def drop_prefix(self) -> None:
        """Give up the embeddings and the frozen layers: hidden states behind them will be given."""
        self.embeddings = self.project = None
        n = self.depth.frozen_layers
        self.layers = nn.ModuleList(list(self.layers)[n - self.first_layer :])
        self.first_layer = n

    def embed(self, tokens: Tokens) -> Tensor:
        """Hidden states [P, H] in front of layer 0."""
        assert self.embeddings is not None
        given = {
            "input_ids": tokens.ids[None],
            "position_ids": tokens.positions[None] + self._first_position,
            "token_type_ids": None if tokens.types is None else tokens.types[None],
        }
        hidden = self.embeddings(
            **{name: value for name, value in given.items() if name in self._takes}
        )
        if self.project is not None:
            hidden = self.project(hidden)
        return hidden[0]  # type: ignore[no-any-return]  # untyped

    def run_layer(
        self, index: int, hidden: Tensor, batch: PackedBatch, firsts: bool, bias: Tensor | None
    ) -> Tensor:
        """Layer `index` of L on [P, H]; [B, H] where only first tokens are wanted."""
        self.layer_runs[index] += 1
        return self._block(self.layers[index - self.first_layer], hidden, batch, firsts, bias)

    def position_bias(self, hidden: Tensor, batch: PackedBatch) -> Tensor | None:
        """[h, W, W] for the longest row, where the architecture has one."""
        if self._bias_of_width is None:
            return None
        width = batch.groups[-1].width
        # It looks at the shape only, [1, W, H].
        bias: Tensor = self._bias_of_width(hidden.new_empty((1, width, 1)))
        return bias[0]

    def prefix(self, tokens: Tokens, batch: PackedBatch) -> Iterator[Tensor]:
        """Hidden states [P, H] behind the embeddings, then behind each layer in turn: 0..L."""
        hidden = self.embed(tokens)
        bias = self.position_bias(hidden, batch)
        yield hidden
        for index in range(len(self.layer_runs)):
            hidden = self.run_layer(index, hidden, batch, False, bias)
            yield hidden

    def forward(self, batch: PackedBatch, tokens: Tokens | None, given: Tensor | None) -> Tensor:
        """Logits [B, C] in the batch's order.

        given: hidden states [P, H] behind layer N, else they are computed from the tokens.
        """
        frozen, layers = self.depth.frozen_layers, len(self.layer_runs)
        if given is not None:
            hidden, start = given, frozen
        else:
            assert tokens is not None
            with self._no_grad_if(self.depth.embeddings_frozen):
                hidden = self.embed(tokens)
            start = 0
        bias = self.position_bias(hidden, batch)
        for index in range(start, layers):
            with self._no_grad_if(index < frozen):
                firsts = index == layers - 1 and not self._reads_mean
                hidden = self.run_layer(index, hidden, batch, firsts, bias)
        if self._reads_mean:
            hidden = row_means(hidden, batch)
        elif frozen == layers and given is not None:
            hidden = hidden[batch.starts]
        return self.head(inputs_embeds=hidden[:, None]).logits  # type: ignore[no-any-return]  # untyped

    @staticmethod
    def _no_grad_if(frozen: bool) -> contextlib.AbstractContextManager[Any]:
        return torch.no_grad() if frozen else contextlib.nullcontext()


class Passthrough(nn.Module):
    """Stands where the embeddings stood, and hands on the hidden states that the head is given."""

    def forward(self, *args: Tensor | None, **kwargs: Tensor | None) -> Tensor:
        given = kwargs.get("inputs_embeds")
        if given is None:
            # DistilBERT passes them by position.
            given = next(value for value in args if value is not None)
        return given


def use_compact_vocabulary(model: PackedModel, used: Tensor) -> Tensor:
    """Keep only the rows of the word table that the data use; returns the map of token ids.

    used: int64, ascending, the ids of every token of every split. Returns int64 [V]: each used id's
    new number. A row that no example uses has no gradient: AdamW only shrinks it, nothing reads it,
    and it adds nothing to the gradient's norm. So leaving it out changes no number of the trial,
    and spares the optimiser most of its work on the full model.
    """
    table: nn.Embedding = model.embeddings.word_embeddings  # type: ignore[union-attr, assignment]  # untyped
    numbers = torch.zeros(table.num_embeddings, dtype=torch.int64, device=used.device)
    numbers[used] = torch.arange(len(used), device=used.device)
    with torch.no_grad():
        table.weight = nn.Parameter(table.weight[used], requires_grad=table.weight.requires_grad)
    if table.padding_idx is not None:
        # Its row gets no gradient; where no example uses it, there is no such row any more.
        is_used = bool((used == table.padding_idx).any())
        table.padding_idx = int(numbers[table.padding_idx]) if is_used else None
    table.num_embeddings = len(used)
    return numbers


@contextlib.contextmanager
def without_dropout(dropouts: Sequence[nn.Dropout]) -> Iterator[None]:
    """These let everything pass, and are put back afterwards."""
    before = [module.p for module in dropouts]
    for module in dropouts:
        module.p = 0.0
    try:
        yield
    finally:
        for module, p in zip(dropouts, before, strict=True):
            module.p = p


def copy_of(model: PreTrainedModel) -> PreTrainedModel:
    """A model that can be taken apart while the other stays whole; both share their weights."""
    shared: dict[int, Any] = {id(p): p for p in model.parameters()}
    shared |= {id(b): b for b in model.buffers()}
    return copy.deepcopy(model, shared)
