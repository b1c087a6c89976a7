"""A classification model run on packed tokens: no work on padding, and none on what is given.

Shapes: P tokens of a packed batch, B rows, H hidden size, C outputs.
"""

import inspect
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.specs.trial import Pooling
from elsa_tune.training.data.tokens import IndexArray, Indices, TaskData, TokenRows
from elsa_tune.training.forward.attention import Heads, attend
from elsa_tune.training.forward.packed import Attention, Layout, PackedBatch, pack, row_means
from elsa_tune.training.model.parts import layer_list


@dataclass(frozen=True, slots=True)
class Block:
    """A kind of layer, by the names of its modules.

    Whether what comes out is right is for a test to say (`equality.py`), never for a list.
    """

    attention: str  # the module that has the projections
    projections: tuple[str, str, str]  # to query, key and value, in `attention`
    heads: str  # the name of their number there
    # Runs on the attention's context: of (layer, context, hidden states of those that asked).
    behind: Callable[[Any, Tensor, Tensor], Tensor]

    def fits(self, layer: nn.Module) -> bool:
        """Return whether the layer's attention has these modules."""
        modules = dict(layer.named_modules())
        names = [f"{self.attention}.{name}" for name in self.projections]
        return all(name in modules for name in names)

    def run(
        self,
        layer: nn.Module,
        hidden: Tensor,
        batch: PackedBatch,
        cls_only: bool,
        bias: Tensor | None,
    ) -> Tensor:
        """Run the layer on hidden states [P, H]; return [P, H], or [B, H] for first tokens only.

        bias: of positions, where the architecture has one.
        """
        first_tokens = None
        if cls_only:
            first_tokens = batch.cls_tokens(hidden)
        context = self._context(layer, hidden, first_tokens, batch, bias)
        if first_tokens is None:
            return self.behind(layer, context, hidden)
        return self.behind(layer, context, first_tokens)

    def _context(
        self,
        layer: nn.Module,
        hidden: Tensor,
        first_tokens: Tensor | None,
        batch: PackedBatch,
        bias: Tensor | None,
    ) -> Tensor:
        """Return what the first tokens, or all without them, gather from their rows' tokens."""
        attention: Any = layer.get_submodule(self.attention)
        to_query, to_key, to_value = [getattr(attention, name) for name in self.projections]
        count = getattr(attention, self.heads)
        size = to_query.out_features // count
        dropout = 0.0
        if attention.training:
            dropout = attention.dropout.p
        heads = Heads(count=count, dropout=dropout, scaling=size**-0.5)
        read = batch.operand(hidden)
        asking = read
        if first_tokens is not None:
            asking = first_tokens
        query = to_query(asking)
        key = to_key(read)
        value = to_value(read)
        return attend(query, key, value, batch, heads, bias)


def _behind_bert(layer: Any, context: Tensor, asking: Tensor) -> Tensor:
    attended = layer.attention.output(context, asking)
    intermediate = layer.intermediate(attended)
    return layer.output(intermediate, attended)  # type: ignore[no-any-return]  # untyped


def _behind_distilbert(layer: Any, context: Tensor, asking: Tensor) -> Tensor:
    projected = layer.attention.out_lin(context)
    attended = layer.sa_layer_norm(projected + asking)
    transformed = layer.ffn(attended)
    return layer.output_layer_norm(transformed + attended)  # type: ignore[no-any-return]  # untyped


def _behind_mpnet(layer: Any, context: Tensor, asking: Tensor) -> Tensor:
    attention = layer.attention
    projected = attention.attn.o(context)
    attended = attention.LayerNorm(attention.dropout(projected) + asking)
    intermediate = layer.intermediate(attended)
    return layer.output(intermediate, attended)  # type: ignore[no-any-return]  # untyped


BLOCKS = (
    Block(  # BERT, RoBERTa, XLM-R, CamemBERT, ELECTRA
        attention="attention.self",
        projections=("query", "key", "value"),
        heads="num_attention_heads",
        behind=_behind_bert,
    ),
    Block(
        attention="attention",
        projections=("q_lin", "k_lin", "v_lin"),
        heads="n_heads",
        behind=_behind_distilbert,
    ),
    Block(
        attention="attention.attn",
        projections=("q", "k", "v"),
        heads="num_attention_heads",
        behind=_behind_mpnet,
    ),
)


def _block_of(layer: nn.Module) -> Block | None:
    """Return the kind of a layer, None for one that is not known here."""
    for block in BLOCKS:
        if block.fits(layer):
            return block
    return None


class PackedModel(nn.Module):
    """The parts of a model that run, in their order; of the model itself nothing may be used.

    Embeddings and layers are the model's own modules, called one by one; what stands behind them is
    the model without them, so every head of Transformers stays as it is. It gets each row's first
    token only, or the mean: the last layer computes no more of the others than keys and values.
    """

    how: ClassVar[str] = "packed"

    def __init__(
        self,
        model: PreTrainedModel,
        begin: int,
        pooling: Pooling = Pooling.HEAD,
        layout: Layout | None = None,
    ) -> None:
        """Take the model apart.

        begin: the layer, from 0, that reads the hidden states that will be given, if any are.
        layout: of the batches that it packs, by default the plain one of the model's device.

        Raises ValueError for an architecture whose layers it cannot run.
        """
        super().__init__()
        base: Any = model.base_model
        layers = list(layer_list(model))
        block = _block_of(layers[0])
        embeddings = getattr(base, "embeddings", None)
        table = getattr(embeddings, "position_embeddings", None)
        if block is None or embeddings is None or not isinstance(table, nn.Embedding):
            raise ValueError("packed tokens are not known for its kind of layers or embeddings")
        self._block = block
        self.layout = layout or Layout.plain(model.device)
        self._begin = begin
        self._reads_mean = pooling is Pooling.MEAN
        # A table with a padding row (RoBERTa's) begins counting behind it. The token of that number
        # has that row wherever it stands, also where a text names it, and counts none.
        self._padding: int | None = table.padding_idx
        self._first_position = 0
        if self._padding is not None:
            self._first_position = self._padding + 1
        # What the embeddings take, by name.
        signature = inspect.signature(type(embeddings).forward)
        self._takes = frozenset(signature.parameters)
        self.embeddings: nn.Module | None = embeddings
        self.project: nn.Module | None = getattr(base, "embeddings_project", None)
        self.layers = nn.ModuleList(layers)
        self.first_layer = 0  # of those that are left
        # The word table's rows by token id, where some were left out.
        self.word_numbers: IndexArray | None = None
        self.deepest = len(layers)  # the last layer that it can begin behind
        self._bias_of_width: Any = None
        if has_position_bias(model):
            self._bias_of_width = base.encoder.compute_position_bias
        base.embeddings = Passthrough()
        if self.project is not None:
            base.embeddings_project = nn.Identity()
        del layer_list(model)[:]
        self.head = model

    def drop_prefix(self, layers: int) -> None:
        """Give up the embeddings and so many layers: hidden states behind them will be given."""
        self.embeddings = None
        self.project = None
        left = list(self.layers)[layers:]
        self.layers = nn.ModuleList(left)
        self.first_layer = layers

    def batch(self, rows: TokenRows, indices: Indices) -> PackedBatch:
        """Return these rows of a split as this model attends them."""
        return pack(rows, indices, self.layout, self.word_numbers, self._padding)

    def embed(self, batch: PackedBatch) -> Tensor:
        """Return hidden states [P, H] in front of layer 0."""
        assert self.embeddings is not None
        positions = batch.positions + self._first_position
        # Without types some architectures read as many zeros as one row may have tokens.
        types = torch.zeros_like(batch.ids)
        if batch.types is not None:
            types = batch.types
        given = {
            "input_ids": batch.ids[None],
            "position_ids": positions[None],
            "token_type_ids": types[None],
        }
        taken = {name: value for name, value in given.items() if name in self._takes}
        hidden = self.embeddings(**taken)
        if self.project is not None:
            hidden = self.project(hidden)
        return hidden[0]  # type: ignore[no-any-return]  # untyped

    def position_bias(self, hidden: Tensor, batch: PackedBatch) -> Tensor | None:
        """Return what the architecture adds to scores by the places of query and key in their row.

        [h, W, W] for the longest row, or, with the one bucket's own bias, [B or 1, h, W, W]; None
        where the architecture adds nothing.
        """
        if self._bias_of_width is None:
            return None
        # It looks at the shape only, [1, W, H].
        shape_alone = hidden.new_empty((1, batch.longest, 1))
        bias: Tensor = self._bias_of_width(shape_alone)
        if batch.layout.attention is Attention.BUCKETED:
            return bias[0]
        [bucket] = batch.buckets
        bias = bias.to(batch.layout.dtype)
        if bucket.bias is not None:
            bias = bias + bucket.bias
        return bias

    def _hidden(
        self,
        batch: PackedBatch,
        given: Tensor | None = None,
        cls_only: bool = False,
    ) -> Iterator[Tensor]:
        """Yield hidden states [P, H] in front of the first layer that runs, then behind each layer.

        given: what the layer `begin` reads. cls_only: the last layer's are [B, H], each row's first
        token.
        """
        hidden = given
        begin = self._begin
        if hidden is None:
            hidden = self.embed(batch)
            begin = 0
        bias = self.position_bias(hidden, batch)
        yield hidden
        for index in range(begin, self.deepest):
            layer = self.layers[index - self.first_layer]
            is_last = index == self.deepest - 1
            gives_cls_only = cls_only and is_last
            hidden = self._block.run(layer, hidden, batch, gives_cls_only, bias)
            yield hidden

    def behind(
        self,
        rows: TokenRows,
        chunk: IndexArray,
        wanted: Collection[int],
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield (N, hidden states [tokens, H] behind N layers) of consecutive rows of a split.

        For each wanted N, ascending, tokens in the split's order. Each is handed on before the next
        layer runs.
        """
        batch = self.batch(rows, chunk)
        first_token = int(rows.offsets[chunk[0]])
        place = batch.places - first_token
        last = max(wanted)
        for n, hidden in enumerate(self._hidden(batch)):
            if n in wanted:
                in_order = torch.empty_like(hidden)
                in_order[place] = hidden
                yield n, in_order
            if n == last:
                return  # before the next layer runs

    def forward(self, batch: PackedBatch, given: Tensor | None = None) -> Tensor:
        """Return logits [B, C] in the batch's order.

        given: hidden states [P, H] that layer `begin` reads; else computed from the tokens.
        """
        states = self._hidden(batch, given, cls_only=not self._reads_mean)
        hidden = deque(states, maxlen=1).pop()  # the last one; no other is held meanwhile
        if self._reads_mean:
            hidden = row_means(hidden, batch)
        elif self._begin == self.deepest and given is not None:
            hidden = batch.cls_tokens(hidden)
        return self.head(inputs_embeds=hidden[:, None]).logits  # type: ignore[no-any-return]  # untyped


def has_position_bias(model: PreTrainedModel) -> bool:
    """Return whether a table of relative positions adds to all layers' scores, as MPNet's."""
    encoder = getattr(model.base_model, "encoder", None)
    return hasattr(encoder, "compute_position_bias")


class Passthrough(nn.Module):
    """Stands where the embeddings stood, and hands on the hidden states that the head is given."""

    def forward(self, *args: Tensor | None, **kwargs: Tensor | None) -> Tensor:
        given = kwargs.get("inputs_embeds")
        if given is None:
            # DistilBERT passes them by position.
            given = next(value for value in args if value is not None)
        return given


def use_compact_vocabulary(model: PackedModel, data: TaskData) -> None:
    """Keep only the rows of the word table that the data use.

    A row that no example uses has no gradient, and nothing reads it: leaving it out changes no
    number of the trial, and spares the optimiser most of its work on the full model.
    """
    table: nn.Embedding = model.embeddings.word_embeddings  # type: ignore[union-attr, assignment]  # untyped
    is_used = np.zeros(table.num_embeddings, dtype=bool)
    for rows in data.splits().values():
        is_used[rows.input_ids] = True
    used = np.flatnonzero(is_used)
    numbers = np.zeros(table.num_embeddings, dtype=np.int64)
    numbers[used] = np.arange(len(used))
    used_rows = torch.from_numpy(used).to(table.weight.device)
    with torch.no_grad():
        weight = table.weight[used_rows]
        table.weight = nn.Parameter(weight, requires_grad=table.weight.requires_grad)
    padding = table.padding_idx
    if padding is not None:
        # Its row gets no gradient; where no example uses it, there is no such row any more.
        table.padding_idx = None
        if padding in used:
            table.padding_idx = int(numbers[padding])
    table.num_embeddings = len(used)
    model.word_numbers = numbers
