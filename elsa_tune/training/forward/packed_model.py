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

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.trial import Pooling
from elsa_tune.training.data.tokens import IndexArray, Indices, TaskData, TokenRows
from elsa_tune.training.forward.attention import Heads, attend
from elsa_tune.training.forward.packed import Attention, Layout, PackedBatch, pack, row_means
from elsa_tune.training.model.parts import layer_list


@dataclass(frozen=True, slots=True)
class Block:
    """A kind of layer by its modules' names. Whether what comes out is right is for a test to say
    (`equality.py`), never for a list. projections: to query, key and value, in `attention`. heads:
    the name of their number there. behind: what runs on the attention's context, of (layer,
    context, hidden states of those that asked).
    """

    attention: str
    projections: tuple[str, str, str]
    heads: str
    behind: Callable[[Any, Tensor, Tensor], Tensor]

    def fits(self, layer: nn.Module) -> bool:
        """Whether the layer's attention has these modules."""
        modules = dict(layer.named_modules())
        return all(f"{self.attention}.{name}" in modules for name in self.projections)

    def run(
        self,
        layer: nn.Module,
        hidden: Tensor,
        batch: PackedBatch,
        firsts: bool,
        bias: Tensor | None,
    ) -> Tensor:
        """The layer on hidden states [P, H]: [P, H], or [B, H] where only each row's first token is
        wanted. bias: of positions, where the architecture has one.
        """
        attention: Any = layer.get_submodule(self.attention)
        asking = batch.firsts(hidden) if firsts else hidden
        read = batch.operand(hidden)
        query, key, value = (getattr(attention, name) for name in self.projections)
        count = getattr(attention, self.heads)
        dropout = attention.dropout.p if attention.training else 0.0
        context = attend(
            query(asking if firsts else read),
            key(read),
            value(read),
            batch,
            Heads(count, dropout, (query.out_features // count) ** -0.5),
            bias,
        )
        return self.behind(layer, context, asking)


def _behind_bert(layer: Any, context: Tensor, asking: Tensor) -> Tensor:
    attended = layer.attention.output(context, asking)
    return layer.output(layer.intermediate(attended), attended)  # type: ignore[no-any-return]  # untyped


def _behind_distilbert(layer: Any, context: Tensor, asking: Tensor) -> Tensor:
    attended = layer.sa_layer_norm(layer.attention.out_lin(context) + asking)
    return layer.output_layer_norm(layer.ffn(attended) + attended)  # type: ignore[no-any-return]  # untyped


def _behind_mpnet(layer: Any, context: Tensor, asking: Tensor) -> Tensor:
    attention = layer.attention
    attended = attention.LayerNorm(attention.dropout(attention.attn.o(context)) + asking)
    return layer.output(layer.intermediate(attended), attended)  # type: ignore[no-any-return]  # untyped


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


class PackedModel(nn.Module):
    """The parts of a model that run, in their order; of the model itself nothing may be used.

    Embeddings and layers are the model's own modules, called one by one; what stands behind them is
    the model without them, so every head of Transformers stays as it is. It gets each row's first
    token only, or the mean: the last layer computes no more of the others than keys and values.
    deepest: the last layer that it can begin behind, L. word_numbers: the word table's rows by
    token id, where some were left out.
    """

    how: ClassVar[str] = "packed"

    def __init__(
        self,
        model: PreTrainedModel,
        depth: FreezeDepth,
        pooling: Pooling = Pooling.HEAD,
        layout: Layout | None = None,
    ) -> None:
        """layout: of the batches that it packs, by default the plain one of the model's device.

        Raises ValueError for an architecture whose layers it cannot run.
        """
        super().__init__()
        base: Any = model.base_model
        layers = list(layer_list(model))
        block = next((block for block in BLOCKS if block.fits(layers[0])), None)
        embeddings = getattr(base, "embeddings", None)
        table = getattr(embeddings, "position_embeddings", None)
        if block is None or embeddings is None or not isinstance(table, nn.Embedding):
            raise ValueError("packed tokens are not known for its kind of layers or embeddings")
        self._block = block
        self.layout = layout or Layout.plain(model.device)
        self.depth = depth
        self._reads_mean = pooling is Pooling.MEAN
        # A table with a padding row (RoBERTa's) begins counting behind it.
        self._first_position = 0 if table.padding_idx is None else table.padding_idx + 1
        self._takes = frozenset(inspect.signature(type(embeddings).forward).parameters)
        self.embeddings: nn.Module | None = embeddings
        self.project: nn.Module | None = getattr(base, "embeddings_project", None)
        self.layers = nn.ModuleList(layers)
        self.first_layer = 0
        self.word_numbers: IndexArray | None = None
        self.deepest = len(layers)
        has_bias = has_position_bias(model)
        self._bias_of_width = base.encoder.compute_position_bias if has_bias else None
        base.embeddings = Passthrough()
        if self.project is not None:
            base.embeddings_project = nn.Identity()
        del layer_list(model)[:]
        self.head = model

    def drop_prefix(self, layers: int) -> None:
        """Give up the embeddings and so many layers: hidden states behind them will be given."""
        self.embeddings = self.project = None
        self.layers = nn.ModuleList(list(self.layers)[layers:])
        self.first_layer = layers

    def batch(self, rows: TokenRows, indices: Indices) -> PackedBatch:
        """These rows of a split as this model attends them."""
        return pack(rows, indices, self.layout, self.word_numbers)

    def embed(self, batch: PackedBatch) -> Tensor:
        """Hidden states [P, H] in front of layer 0."""
        assert self.embeddings is not None
        given = {
            "input_ids": batch.ids[None],
            "position_ids": batch.positions[None] + self._first_position,
            "token_type_ids": None if batch.types is None else batch.types[None],
        }
        hidden = self.embeddings(
            **{name: value for name, value in given.items() if name in self._takes}
        )
        if self.project is not None:
            hidden = self.project(hidden)
        return hidden[0]  # type: ignore[no-any-return]  # untyped

    def position_bias(self, hidden: Tensor, batch: PackedBatch) -> Tensor | None:
        """What the architecture adds to all scores by the places of query and key in their row, if
        anything: [h, W, W] for the longest row, or, with the square's own bias, [B or 1, h, W, W].
        """
        if self._bias_of_width is None:
            return None
        # It looks at the shape only, [1, W, H].
        bias: Tensor = self._bias_of_width(hidden.new_empty((1, batch.longest, 1)))
        if batch.layout.attention is Attention.GROUPS:
            return bias[0]
        [square] = batch.squares
        bias = bias.to(batch.layout.dtype)
        return bias if square.bias is None else bias + square.bias

    def _hidden(
        self, batch: PackedBatch, given: Tensor | None = None, firsts: bool = False
    ) -> Iterator[Tensor]:
        """Hidden states [P, H] behind the embeddings, or those given behind layer N, then behind
        each layer in turn. firsts: the last layer's are [B, H], each row's first token.
        """
        hidden = self.embed(batch) if given is None else given
        bias = self.position_bias(hidden, batch)
        yield hidden
        for index in range(0 if given is None else self.depth.frozen_layers, self.deepest):
            layer = self.layers[index - self.first_layer]
            last = index == self.deepest - 1
            hidden = self._block.run(layer, hidden, batch, firsts and last, bias)
            yield hidden

    def behind(
        self, rows: TokenRows, chunk: IndexArray, wanted: Collection[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """(N, hidden states [tokens, H] behind layer N) of consecutive rows of a split, for each
        wanted N, ascending, tokens in the split's order. Each is handed on before the next runs.
        """
        batch = self.batch(rows, chunk)
        place = batch.places - int(rows.offsets[chunk[0]])
        for n, hidden in zip(range(max(wanted) + 1), self._hidden(batch), strict=False):
            if n in wanted:
                in_order = torch.empty_like(hidden)
                in_order[place] = hidden
                yield n, in_order

    def forward(self, batch: PackedBatch, given: Tensor | None = None) -> Tensor:
        """Logits [B, C] in the batch's order.

        given: hidden states [P, H] behind layer N, else they are computed from the tokens.
        """
        [hidden] = deque(self._hidden(batch, given, firsts=not self._reads_mean), maxlen=1)
        if self._reads_mean:
            hidden = row_means(hidden, batch)
        elif self.depth.frozen_layers == self.deepest and given is not None:
            hidden = batch.firsts(hidden)
        return self.head(inputs_embeds=hidden[:, None]).logits  # type: ignore[no-any-return]  # untyped


def has_position_bias(model: PreTrainedModel) -> bool:
    """Whether a table of relative positions, shared by all layers, adds to scores, as MPNet's."""
    return hasattr(getattr(model.base_model, "encoder", None), "compute_position_bias")


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
    used = np.unique(np.concatenate([rows.input_ids for rows in data.splits().values()]))
    numbers = np.zeros(table.num_embeddings, dtype=np.int64)
    numbers[used] = np.arange(len(used))
    kept = torch.from_numpy(used.astype(np.int64)).to(table.weight.device)
    with torch.no_grad():
        table.weight = nn.Parameter(table.weight[kept], requires_grad=table.weight.requires_grad)
    if table.padding_idx is not None:
        # Its row gets no gradient; where no example uses it, there is no such row any more.
        is_used = table.padding_idx in used
        table.padding_idx = int(numbers[table.padding_idx]) if is_used else None
    table.num_embeddings = len(used)
    model.word_numbers = numbers
