"""Attention over packed tokens: each row attends to its own tokens and to nothing else.

Letters in shape comments: P tokens of a packed batch, H hidden size, h heads, d = H / h; b rows, w
tokens and n queries a row of one group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elsa_tune.training.forward.packed import Attention, PackedBatch, Square, gathered

# Sixteen bits of a random number decide whether an element is dropped: on a CPU torch draws a
# complete one for each. So p is rounded to a multiple of 2^-16.
_DROPOUT_STEPS = 2**16


@dataclass(frozen=True, slots=True)
class Heads:
    """A layer's h heads. dropout: of the attention probabilities, 0 where nothing is dropped.
    scaling: of the scores, usually d^-0.5.
    """

    count: int
    dropout: float
    scaling: float


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: PackedBatch,
    heads: Heads,
    position_bias: Tensor | None = None,
) -> Tensor:
    """Context of every query, in the queries' order and shape.

    query: [P, H], or [B, H] for one query a row (its first token). key, value: [P, H].
    position_bias: added to the scaled scores, as `PackedModel.position_bias` gives it.
    """
    if batch.layout.attention is Attention.ENDS:
        assert position_bias is None
        return _by_ends(query, key, value, batch, heads)
    way = _InGroups.apply if batch.layout.attention is Attention.GROUPS else _in_square
    return way(query, key, value, batch, heads, position_bias)


def _is_whole(query: Tensor, batch: PackedBatch) -> bool:
    """Whether every token asks, or each row's first one only."""
    return len(query) != len(batch)


def _by_ends(query: Tensor, key: Tensor, value: Tensor, batch: PackedBatch, heads: Heads) -> Tensor:
    """By flash attention's kernel for rows of different lengths. torch's public name for it
    (torch.nn.attention.varlen) has no dropout.
    """
    whole = _is_whole(query, batch)
    q, k, v = (x.view(len(x), heads.count, -1) for x in (query, key, value))
    context: Tensor
    context, *_ = torch.ops.aten._flash_attention_forward(
        *(q, k, v),
        *(batch.ends if whole else batch.each, batch.ends),
        *(batch.longest if whole else 1, batch.longest),
        heads.dropout,
        is_causal=False,
        return_debug_mask=False,
        scale=heads.scaling,
    )
    return context.reshape(query.shape)


def _in_square(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: PackedBatch,
    heads: Heads,
    position_bias: Tensor | None,
) -> Tensor:
    """By torch's kernels, on all rows padded to the longest."""
    [square] = batch.squares
    mask = square.bias if position_bias is None else position_bias  # which has the square's in it
    k, v = (_padded(x, square, heads.count) for x in (key, value))
    whole = _is_whole(query, batch)
    if whole:
        q = _padded(query, square, heads.count)
    else:
        q = query.view(len(query), heads.count, 1, -1)
        mask = None if mask is None else mask[:, :, :1]
    context = F.scaled_dot_product_attention(
        *(q, k, v),
        attn_mask=mask,
        dropout_p=heads.dropout,
        scale=heads.scaling,
    )
    flat = context.transpose(1, 2).reshape(-1, query.shape[1])
    if not whole or square.index is None:
        return flat
    assert square.real is not None and square.padding is not None
    return gathered(flat, square.real, square.index, square.padding.view(-1, 1))


def _padded(x: Tensor, square: Square, heads: int) -> Tensor:
    """[b, h, w, d] of x [P, H]; padding repeats its row's first token, and gets no gradient."""
    if square.index is not None:
        assert square.real is not None
        x = gathered(x, square.index, square.real)
    return x.view(square.rows, square.width, heads, -1).transpose(1, 2)


class _InGroups(torch.autograd.Function):
    """Group by group with explicit gradients: torch's own attention takes a slow path on CPUs as
    soon as dropout or a mask is asked for.
    """

    @staticmethod
    def forward(  # noqa: PLR0913
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        batch: PackedBatch,
        settings: Heads,
        position_bias: Tensor | None,
    ) -> Tensor:
        heads, dropout, scaling = settings.count, settings.dropout, settings.scaling
        whole = _is_whole(query, batch)
        kept = any(ctx.needs_input_grad)
        queries, keys, values = (_by_head(x, heads) for x in (query, key, value))
        context = torch.empty_like(queries)
        saved: list[Tensor | None] = []
        for group in batch.squares:
            q = _take(queries, group, whole)  # [h * b, n, d]
            k, v = (_take(x, group, True) for x in (keys, values))  # [h * b, w, d]
            scores = torch.bmm(q, k.transpose(1, 2)).float().mul_(scaling)  # [h * b, n, w]
            by_row = scores.view(heads, group.rows, -1, group.width)
            if group.bias is not None:
                by_row += group.bias.squeeze(1)
            if position_bias is not None:
                by_row += _bias_of(position_bias, group, whole)[:, None]
            p = torch.softmax(scores, dim=-1).to(query.dtype)
            mask = keep_mask(p, dropout) if dropout > 0 else None
            dropped = p if mask is None else drop(p, mask, dropout)
            _put(context, torch.bmm(dropped, v), group, whole)
            if kept:
                saved += [q, k, v, p, mask]
        ctx.save_for_backward(*saved)
        wants_bias = position_bias is not None and ctx.needs_input_grad[5]
        bias_shape = position_bias.shape if position_bias is not None and wants_bias else None
        ctx.facts = (batch, settings, whole, keys.shape, bias_shape)
        return _joined(context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        batch, settings, whole, shape, bias_shape = ctx.facts
        heads, dropout, scaling = settings.count, settings.dropout, settings.scaling
        saved = ctx.saved_tensors
        grad = _by_head(grads[0], heads)
        d_query = torch.empty_like(grad)
        d_key, d_value = grad.new_empty(shape), grad.new_empty(shape)
        d_bias = None if bias_shape is None else grad.new_zeros(bias_shape)
        for number, group in enumerate(batch.squares):
            q, k, v, p, mask = saved[5 * number : 5 * number + 5]
            g = _take(grad, group, whole)
            if whole and group.bias is not None:
                # Padding repeats a real token, which must count once.
                padding = group.padding.view(1, group.rows, group.width, 1)
                g.view(heads, group.rows, group.width, -1).masked_fill_(padding, 0)
            dropped = p if mask is None else drop(p, mask, dropout)
            d_p = torch.bmm(g, v.transpose(1, 2))
            if mask is not None:
                d_p = drop(d_p, mask, dropout)
            # Of softmax: p * (d_p - sum(p * d_p)).
            d_scores = d_p.sub_((d_p * p).sum(-1, keepdim=True)).mul_(p)
            if d_bias is not None:
                by_row = d_scores.view(heads, group.rows, -1, group.width)
                _bias_of(d_bias, group, whole).add_(by_row.sum(1))
            d_scores.mul_(scaling)
            _put(d_query, torch.bmm(d_scores, k), group, whole)
            _put(d_key, torch.bmm(d_scores.transpose(1, 2), q), group, True)
            _put(d_value, torch.bmm(dropped.transpose(1, 2), g), group, True)
        joined = (_joined(x) for x in (d_query, d_key, d_value))
        return (*joined, None, None, d_bias)


def _bias_of(position_bias: Tensor, group: Square, whole: bool) -> Tensor:
    """[h, n, w]: the part of a position bias that a group's queries need; a view."""
    return position_bias[:, : group.width if whole else 1, : group.width]


def _by_head(x: Tensor, heads: int) -> Tensor:
    """[h, P or B, d] of [P or B, H], in memory of its own."""
    return x.view(len(x), heads, -1).transpose(0, 1).contiguous()


def _joined(x: Tensor) -> Tensor:
    """The inverse of `_by_head`."""
    return x.transpose(0, 1).reshape(x.shape[1], -1)


def _take(x: Tensor, group: Square, whole: bool) -> Tensor:
    """The group's part of x [h, P or B, d] in memory of its own: [h * b, n, d], n = w for every
    token (padding repeats its row's first token), n = 1 for a row each.
    """
    if not whole:
        part = x[:, group.first : group.last]
    elif group.index is None:
        part = x[:, group.start : group.stop]
    else:
        part = x.index_select(1, group.index)
    count = group.width if whole else 1
    return part.reshape(len(x) * group.rows, count, -1).contiguous()


def _put(out: Tensor, x: Tensor, group: Square, whole: bool) -> None:
    """The inverse of `_take`; what stands at padding is left out."""
    flat = x.view(len(out), -1, x.shape[-1])
    if not whole:
        out[:, group.first : group.last] = flat
    else:
        out[:, group.start : group.stop] = flat if group.real is None else flat[:, group.real]


def keep_mask(like: Tensor, p: float) -> Tensor:
    """Bool mask of the shape of `like`, False with probability p; from torch's global generator."""
    count = like.numel()
    # Each 64-bit number gives four lanes; from -2^63 on, so that the sign bit is random too.
    bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    lanes = bits.view(torch.int16)[:count].view(like.shape)
    return lanes >= round(p * _DROPOUT_STEPS) - _DROPOUT_STEPS // 2


def drop(x: Tensor, mask: Tensor, p: float) -> Tensor:
    """x where the mask keeps it, scaled so that the mean stays; 0 elsewhere."""
    really = round(p * _DROPOUT_STEPS) / _DROPOUT_STEPS
    return torch.ops.aten.native_dropout_backward(x, mask, 1 / (1 - really))  # type: ignore[no-any-return]  # untyped
