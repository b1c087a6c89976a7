"""Attention over packed tokens: each row attends to its own tokens and to nothing else.

Letters in shape comments: P tokens of a packed batch, H hidden size, h heads, d = H / h; b rows, w
tokens and n queries a row of one bucket.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elsa_tune.training.forward.packed import Attention, Bucket, PackedBatch, gathered

# Sixteen bits of a random number decide whether an element is dropped: on a CPU torch draws a
# complete one for each. So p is rounded to a multiple of 2^-16.
_DROPOUT_STEPS = 2**16


@dataclass(frozen=True, slots=True)
class Heads:
    """A layer's h heads."""

    count: int  # h
    dropout: float  # of the attention probabilities, 0 where nothing is dropped
    scaling: float  # of the scores, usually d^-0.5


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: PackedBatch,
    heads: Heads,
    position_bias: Tensor | None = None,
) -> Tensor:
    """Return the context of every query, in the queries' order and shape.

    query: [P, H], or [B, H] for one query a row (its first token). key, value: [P, H].
    position_bias: added to the scaled scores, as `PackedModel.position_bias` gives it.
    """
    every_token_asks = len(query) != len(batch)  # else each row's first one only
    attention = batch.layout.attention
    if attention is Attention.VARLEN:
        assert position_bias is None
        return _varlen(query, key, value, batch, heads)
    attend_bucket = _by_torch
    if attention is Attention.BUCKETED:
        attend_bucket = _explicit
    buckets = batch.buckets
    tokens = [bucket.tokens for bucket in buckets]
    asking = tokens
    if not every_token_asks:
        asking = [bucket.rows for bucket in buckets]
    queries = _split(query, asking)
    keys = _split(key, tokens)
    values = _split(value, tokens)
    biases = _biases(position_bias, buckets, every_token_asks)
    contexts = []
    for bucket, q, k, v, bias in zip(buckets, queries, keys, values, biases, strict=True):
        if every_token_asks:
            q = _padded(q, bucket, heads)
        else:
            q = q.view(bucket.rows, 1, heads.count, -1)
        k = _padded(k, bucket, heads)
        v = _padded(v, bucket, heads)
        context = attend_bucket(q, k, v, bucket, heads, bias)
        context = context.reshape(-1, query.shape[1])
        if every_token_asks:
            context = _unpadded(context, bucket)
        contexts.append(context)
    if len(contexts) == 1:
        return contexts[0]
    return torch.cat(contexts)


def _varlen(query: Tensor, key: Tensor, value: Tensor, batch: PackedBatch, heads: Heads) -> Tensor:
    """Attend by flash attention's kernel for rows of different lengths.

    torch's public name for it (torch.nn.attention.varlen) has no dropout.
    """
    query_bounds = batch.cu_seqlens
    most_queries = batch.longest
    if len(query) == len(batch):  # each row's first token asks
        query_bounds = batch.cu_cls_tokens
        most_queries = 1
    context: Tensor
    context, *_ = torch.ops.aten._flash_attention_forward(
        query.view(len(query), heads.count, -1),
        key.view(len(key), heads.count, -1),
        value.view(len(value), heads.count, -1),
        query_bounds,
        batch.cu_seqlens,
        most_queries,
        batch.longest,
        heads.dropout,
        is_causal=False,
        return_debug_mask=False,
        scale=heads.scaling,
    )
    return context.reshape(query.shape)


def _split(x: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    if len(sizes) == 1:
        return [x]  # on a GPU a split of its own would be a launch
    parts: Sequence[Tensor] = x.split(sizes)
    return parts


def _biases(
    position_bias: Tensor | None,
    buckets: Sequence[Bucket],
    every_token_asks: bool,
) -> Sequence[Tensor | None]:
    """Return the part of a position bias that each bucket's queries need."""
    if position_bias is None:
        return [None] * len(buckets)
    # A view makes a node of this layer's own: its buckets' gradients are summed there, before they
    # are added to the bias that all layers share. Reversed, so that the sum begins with the first.
    own = position_bias.view_as(position_bias)
    biases = []
    for bucket in reversed(buckets):
        width = bucket.width
        queries = width if every_token_asks else 1
        bias = own[..., :queries, :width]
        biases.append(bias)
    return biases[::-1]


def _padded(x: Tensor, bucket: Bucket, heads: Heads) -> Tensor:
    """Return [b, w, h, d] of x [.., H]; padding repeats its row's first token, without gradient."""
    if bucket.index is not None:
        assert bucket.real is not None
        x = gathered(x, bucket.index, bucket.real)
    return x.view(bucket.rows, bucket.width, heads.count, -1)


def _unpadded(context: Tensor, bucket: Bucket) -> Tensor:
    """Return [tokens, H] of a bucket's context [b * w, H]."""
    if bucket.index is None:
        return context
    assert bucket.real is not None and bucket.padding is not None
    padding = bucket.padding.view(-1, 1)
    return gathered(context, bucket.real, bucket.index, padding)


def _by_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bucket: Bucket,
    heads: Heads,
    bias: Tensor | None,
) -> Tensor:
    """Return the context [b, n, h, d] by torch's kernels. bias: includes the bucket's own."""
    if bias is None:
        bias = bucket.bias
    context = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=bias,
        dropout_p=heads.dropout,
        scale=heads.scaling,
    )
    return context.transpose(1, 2)


def _explicit(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bucket: Bucket,
    heads: Heads,
    bias: Tensor | None,
) -> Tensor:
    """Return the context [b, n, h, d] with explicit gradients. bias: [h, n, w]."""
    q = q.permute(2, 0, 1, 3).contiguous()
    k = k.permute(2, 0, 1, 3).contiguous()
    v = v.permute(2, 0, 1, 3).contiguous()
    context: Tensor = _Attended.apply(q, k, v, bucket.bias, bias, heads)  # type: ignore[no-untyped-call]  # untyped
    return context.permute(1, 2, 0, 3)


class _Attended(torch.autograd.Function):
    """Attention in explicit steps: torch's own is slow on CPUs with dropout or a mask."""

    @staticmethod
    def forward(  # noqa: PLR0913  # autograd takes each tensor by itself
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        padding: Tensor | None,
        bias: Tensor | None,
        heads: Heads,
    ) -> Tensor:
        """Return the context [h, b, n, d].

        q: [h, b, n, d]. k, v: [h, b, w, d]. padding: [b, 1, 1, w]. bias: [h, n, w].
        """
        products = q @ k.transpose(2, 3)
        scores = products.float().mul_(heads.scaling)  # [h, b, n, w]
        if padding is not None:
            scores += padding.squeeze(1)
        if bias is not None:
            scores += bias[:, None]
        probabilities = torch.softmax(scores, dim=-1)
        p = probabilities.to(q.dtype)
        mask = None
        if heads.dropout > 0:
            mask = keep_mask(p, heads.dropout)
        ctx.save_for_backward(q, k, v, p, mask)
        ctx.heads = heads
        shares = drop(p, mask, heads.dropout)
        return shares @ v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, p, mask = ctx.saved_tensors
        heads = ctx.heads
        [g] = grads
        d_shares = g @ v.transpose(2, 3)
        d_p = drop(d_shares, mask, heads.dropout)
        # Of softmax: p * (d_p - sum(p * d_p)).
        weighted = d_p * p
        weighted_sum = weighted.sum(-1, keepdim=True)
        d_scores = d_p.sub_(weighted_sum).mul_(p)
        d_bias = None
        if ctx.needs_input_grad[4]:
            d_bias = d_scores.sum(1)
        d_scores.mul_(heads.scaling)
        shares = drop(p, mask, heads.dropout)
        d_v = shares.transpose(2, 3) @ g
        d_q = d_scores @ k
        d_k = d_scores.transpose(2, 3) @ q
        return d_q, d_k, d_v, None, d_bias, None


def keep_mask(like: Tensor, p: float) -> Tensor:
    """Draw a bool mask of the shape of `like`, False with probability p, from torch's generator."""
    count = like.numel()
    # Each 64-bit number gives four lanes; from -2^63 on, so that the sign bit is random too.
    needed = math.ceil(count / 4)
    numbers = torch.empty(needed, dtype=torch.int64)
    numbers.random_(-(2**63), None)
    lanes = numbers.view(torch.int16)[:count]
    dropped_steps = round(p * _DROPOUT_STEPS)
    threshold = dropped_steps - _DROPOUT_STEPS // 2
    return lanes.view(like.shape) >= threshold


def drop(x: Tensor, mask: Tensor | None, p: float) -> Tensor:
    """Return x where the mask keeps it, scaled so that the mean stays, 0 elsewhere.

    No mask keeps all.
    """
    if mask is None:
        return x
    dropped_steps = round(p * _DROPOUT_STEPS)
    dropped_share = dropped_steps / _DROPOUT_STEPS
    scale = 1 / (1 - dropped_share)
    return torch.ops.aten.native_dropout_backward(x, mask, scale)  # type: ignore[no-any-return]  # untyped
