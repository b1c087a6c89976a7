"""Attention over packed tokens: each row attends to its own tokens and to nothing else.

It must not know models or how a batch came to be. Letters in shape comments: P tokens of a packed
batch, H hidden size, h heads, d = H / h; b rows, w tokens and n queries a row of one group.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elsa_tune.training.dropout import drop, keep_mask
from elsa_tune.training.packed import AttentionGroup, PackedBatch


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: PackedBatch,
    heads: int,
    dropout: float,
    scaling: float,
) -> Tensor:
    """Context of every query, in the queries' order and shape.

    query: [P, H], or [B, H] for one query a row (its first token). key, value: [P, H]. dropout: of
    the attention probabilities, 0 where nothing is dropped. scaling: of the scores, usually d^-0.5.
    """
    if query.device.type == "cpu":
        return _OnCpu.apply(query, key, value, batch, heads, dropout, scaling)  # type: ignore[no-any-return, no-untyped-call]
    whole = _is_whole(query, batch)
    parts = []
    for group in batch.groups:
        keys, values = (_padded(x, group, heads) for x in (key, value))
        queries = _queries(query, group, heads, whole)
        # Kernels with a mask need it in the queries' dtype.
        bias = None if group.bias is None else group.bias.to(queries.dtype)
        context = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=bias, dropout_p=dropout, scale=scaling
        )
        parts.append(_unpadded(context, group, whole))
    return torch.cat(parts)


class _OnCpu(torch.autograd.Function):
    """Group by group with explicit gradients: torch's own attention takes a slow path on CPUs as
    soon as dropout or a mask is asked for.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        batch: PackedBatch,
        heads: int,
        dropout: float,
        scaling: float,
    ) -> Tensor:
        whole = _is_whole(query, batch)
        kept = any(ctx.needs_input_grad[:3])
        context = torch.empty_like(query)
        saved: list[Tensor | None] = []
        for group in batch.groups:
            q = _queries(query, group, heads, whole)  # [b, h, n, d]
            k, v = (_padded(x, group, heads) for x in (key, value))  # [b, h, w, d]
            scores = torch.matmul(q, k.transpose(-1, -2)).float().mul_(scaling)  # [b, h, n, w]
            if group.bias is not None:
                scores += group.bias
            p = torch.softmax(scores, dim=-1).to(query.dtype)
            mask = keep_mask(p, dropout) if dropout > 0 else None
            dropped = p if mask is None else drop(p, mask, dropout)
            _write(context, torch.matmul(dropped, v), group, whole)
            if kept:
                saved += [p, mask]
        ctx.save_for_backward(query, key, value, *saved)
        ctx.settings = (batch, heads, dropout, scaling, whole)
        return context

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0]
        query, key, value, *saved = ctx.saved_tensors
        batch, heads, dropout, scaling, whole = ctx.settings
        d_query, d_key, d_value = (torch.empty_like(x) for x in (query, key, value))
        for number, group in enumerate(batch.groups):
            p, mask = saved[2 * number : 2 * number + 2]
            q = _queries(query, group, heads, whole)
            k, v = (_padded(x, group, heads) for x in (key, value))
            # Of padding rows it would be garbage times zero; `_queries` repeats a real row there.
            g = _queries(grad, group, heads, whole)
            if whole and group.index is not None:
                g = _without_padding(g, group)
            dropped = p if mask is None else drop(p, mask, dropout)
            d_v = torch.matmul(dropped.transpose(-1, -2), g)
            d_p = torch.matmul(g, v.transpose(-1, -2))
            if mask is not None:
                d_p = drop(d_p, mask, dropout)
            # Of softmax: p * (d_p - sum(p * d_p)).
            d_scores = (d_p - (d_p * p).sum(-1, keepdim=True)).mul_(p).mul_(scaling)
            _write(d_query, torch.matmul(d_scores, k), group, whole)
            _write(d_key, torch.matmul(d_scores.transpose(-1, -2), q), group, True)
            _write(d_value, d_v, group, True)
        return d_query, d_key, d_value, None, None, None, None


def _is_whole(query: Tensor, batch: PackedBatch) -> bool:
    """Whether every token asks, or each row's first one only."""
    return len(query) == batch.groups[-1].stop and len(query) != len(batch)


def _queries(x: Tensor, group: AttentionGroup, heads: int, whole: bool) -> Tensor:
    """[b, h, n, d] of the group's queries: n = w where every token asks, else 1."""
    if whole:
        return _padded(x, group, heads)
    return x[group.first : group.last].reshape(group.rows, 1, heads, -1).transpose(1, 2)


def _padded(x: Tensor, group: AttentionGroup, heads: int) -> Tensor:
    """[b, h, w, d] of the group's tokens; padding repeats its row's first token."""
    block = x[group.start : group.stop] if group.index is None else x[group.index]
    return block.reshape(group.rows, group.width, heads, -1).transpose(1, 2)


def _without_padding(x: Tensor, group: AttentionGroup) -> Tensor:
    """[b, h, w, d] with zeros at padding."""
    assert group.bias is not None
    return x * (group.bias == 0).to(x.dtype).transpose(-1, -2)


def _unpadded(x: Tensor, group: AttentionGroup, whole: bool) -> Tensor:
    """The inverse of `_queries`: [tokens or rows of the group, H]."""
    flat = x.transpose(1, 2).reshape(x.shape[0] * x.shape[2], -1)
    return flat if not whole or group.real is None else flat[group.real]


def _write(out: Tensor, x: Tensor, group: AttentionGroup, whole: bool) -> None:
    """Put a group's result [b, h, n, d] where it belongs in `out` [P or B, H]."""
    block = slice(group.start, group.stop) if whole else slice(group.first, group.last)
    out[block] = _unpadded(x, group, whole)
