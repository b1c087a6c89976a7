"""One encoder layer on packed tokens, by the model's own modules.

It must not know where hidden states come from or what reads them. Shapes: P tokens of a packed
batch, B rows, H hidden size. An architecture is known here by the modules its layers have; whether
what comes out is right is for a test of equality to say (`equality.py`), never for a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from elsa_tune.training.forward.attention import Heads, attend
from elsa_tune.training.forward.packed import PackedBatch

# (layer, hidden states [P, H], batch, whether only each row's first token is wanted, position bias
# where the architecture has one) -> [P or B, H]
Block = Callable[[Any, Tensor, PackedBatch, bool, Tensor | None], Tensor]


def block_for(layer: nn.Module) -> Block | None:
    """How to run such a layer on packed tokens; None where that is not known."""
    if _has(layer, *_BERT):
        return _bert
    if _has(layer, *_DISTILBERT):
        return _distilbert
    if _has(layer, *_MPNET):
        return _mpnet
    return None


_BERT = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.self.dropout",
    "attention.output",
    "intermediate",
    "output",
)
_DISTILBERT = (
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "attention.dropout",
    "sa_layer_norm",
    "ffn",
    "output_layer_norm",
)
_MPNET = (
    "attention.attn.q",
    "attention.attn.k",
    "attention.attn.v",
    "attention.attn.o",
    "attention.attn.dropout",
    "attention.LayerNorm",
    "intermediate",
    "output",
)


def _has(layer: nn.Module, *names: str) -> bool:
    modules = dict(layer.named_modules())
    return all(name in modules for name in names)


def _heads(attention: Any, count: int, scaling: float) -> Heads:
    return Heads(count, attention.dropout.p if attention.training else 0.0, scaling)


def _inputs(hidden: Tensor, batch: PackedBatch, firsts: bool) -> tuple[Tensor, Tensor]:
    """Those that ask, [P or B, H], and what is read of all, [P, H], as matrix products take it."""
    return batch.firsts(hidden) if firsts else hidden, batch.operand(hidden)


def _bert(
    layer: Any, hidden: Tensor, batch: PackedBatch, firsts: bool, bias: Tensor | None
) -> Tensor:
    """BERT, RoBERTa, XLM-R, CamemBERT, ELECTRA."""
    attention = layer.attention.self
    asking, read = _inputs(hidden, batch, firsts)
    context = attend(
        attention.query(asking if firsts else read),
        attention.key(read),
        attention.value(read),
        batch,
        _heads(attention, attention.num_attention_heads, attention.scaling),
        bias,
    )
    attended = layer.attention.output(context, asking)
    return layer.output(layer.intermediate(attended), attended)  # type: ignore[no-any-return]  # untyped


def _distilbert(
    layer: Any, hidden: Tensor, batch: PackedBatch, firsts: bool, bias: Tensor | None
) -> Tensor:
    attention = layer.attention
    asking, read = _inputs(hidden, batch, firsts)
    context = attend(
        attention.q_lin(asking if firsts else read),
        attention.k_lin(read),
        attention.v_lin(read),
        batch,
        _heads(attention, attention.n_heads, attention.scaling),
        bias,
    )
    attended = layer.sa_layer_norm(attention.out_lin(context) + asking)
    return layer.output_layer_norm(layer.ffn(attended) + attended)  # type: ignore[no-any-return]  # untyped


def _mpnet(
    layer: Any, hidden: Tensor, batch: PackedBatch, firsts: bool, bias: Tensor | None
) -> Tensor:
    attention = layer.attention.attn
    asking, read = _inputs(hidden, batch, firsts)
    context = attend(
        attention.q(asking if firsts else read),
        attention.k(read),
        attention.v(read),
        batch,
        _heads(attention, attention.num_attention_heads, attention.attention_head_size**-0.5),
        bias,
    )
    attended = layer.attention.dropout(attention.o(context)) + asking
    attended = layer.attention.LayerNorm(attended)
    return layer.output(layer.intermediate(attended), attended)  # type: ignore[no-any-return]  # untyped
