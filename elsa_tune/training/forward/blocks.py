"""One encoder layer on packed tokens, by the model's own modules.

Shapes: P tokens of a packed batch, B rows, H hidden size. An architecture is known here by the
modules its layers have; whether what comes out is right is for a test of equality to say
(`equality.py`), never for a list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from elsa_tune.training.forward.attention import Heads, attend
from elsa_tune.training.forward.packed import PackedBatch


@dataclass(frozen=True, slots=True)
class Block:
    """A kind of layer by its modules' names. projections: to query, key and value, in `attention`.
    heads: the name of their number there. behind: what runs on the attention's context, of (layer,
    context, hidden states of those that asked). needs: the modules that it calls.
    """

    attention: str
    projections: tuple[str, str, str]
    heads: str
    behind: Callable[[Any, Tensor, Tensor], Tensor]
    needs: tuple[str, ...]

    def fits(self, layer: nn.Module) -> bool:
        """Whether the layer has these modules."""
        modules = dict(layer.named_modules())
        own = (f"{self.attention}.{name}" for name in (*self.projections, "dropout"))
        return all(name in modules for name in (*own, *self.needs))

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
        needs=("attention.output", "intermediate", "output"),
    ),
    Block(
        attention="attention",
        projections=("q_lin", "k_lin", "v_lin"),
        heads="n_heads",
        behind=_behind_distilbert,
        needs=("attention.out_lin", "sa_layer_norm", "ffn", "output_layer_norm"),
    ),
    Block(
        attention="attention.attn",
        projections=("q", "k", "v"),
        heads="num_attention_heads",
        behind=_behind_mpnet,
        needs=("attention.attn.o", "attention.LayerNorm", "intermediate", "output"),
    ),
)


def block_for(layer: nn.Module) -> Block | None:
    """How to run such a layer on packed tokens; None where that is not known."""
    return next((block for block in BLOCKS if block.fits(layer)), None)
