"""Attention over packed tokens: each row attends to its own tokens and to nothing else.

Letters in shape comments: P tokens of a packed batch, H hidden size, h heads, d = H / h; b rows, w
tokens and n queries a row of one bucket.
"""

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

    count: int
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
    if batch.layout.attention is Attention.VARLEN:
        assert position_bias is None
        return _varlen(query, key, value, batch, heads)
    attend_bucket = _explicit if batch.layout.attention is Attention.BUCKETED else _by_torch
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
        if every_token_asks and bucket.index is not None:
            assert bucket.real is not None and bucket.padding is not None
            padding = bucket.padding.view(-1, 1)
            context = gathered(context, bucket.real, bucket.index, padding)
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
    position_bias: Tensor | None, buckets: Sequence[Bucket], every_token_asks: bool
) -> Sequence[Tensor | None]:
    """Return the part of a position bias that each bucket's queries need."""
    if position_bias is None:
        return [None] * len(buckets)
    # A layer's gradients add up before they meet other layers', from the first bucket on.
    own = position_bias.view_as(position_bias)
    biases = []
    for bucket in reversed(buckets):
        queries = bucket.width if every_token_asks else 1
        biases.append(own[..., :queries, : bucket.width])
    return biases[::-1]


def _padded(x: Tensor, bucket: Bucket, heads: Heads) -> Tensor:
    """Return [b, w, h, d] of x [.., H]; padding repeats its row's first token, without gradient."""
    if bucket.index is not None:
        assert bucket.real is not None
        x = gathered(x, bucket.index, bucket.real)
    return x.view(bucket.rows, bucket.width, heads.count, -1)


def _by_torch(
    q: Tensor, k: Tensor, v: Tensor, bucket: Bucket, heads: Heads, bias: Tensor | None
) -> Tensor:
    """Return the context [b, n, h, d] by torch's kernels. bias: includes the bucket's own."""
    return F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=bucket.bias if bias is None else bias,
        dropout_p=heads.dropout,
        scale=heads.scaling,
    ).transpose(1, 2)


def _explicit(
    q: Tensor, k: Tensor, v: Tensor, bucket: Bucket, heads: Heads, bias: Tensor | None
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
        scores = (q @ k.transpose(2, 3)).float().mul_(heads.scaling)  # [h, b, n, w]
        if padding is not None:
            scores += padding.squeeze(1)
        if bias is not None:
            scores += bias[:, None]
        p = torch.softmax(scores, dim=-1).to(q.dtype)
        mask = keep_mask(p, heads.dropout) if heads.dropout > 0 else None
        ctx.save_for_backward(q, k, v, p, mask)
        ctx.heads = heads
        return drop(p, mask, heads.dropout) @ v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, p, mask = ctx.saved_tensors
        [g] = grads
        d_p = drop(g @ v.transpose(2, 3), mask, ctx.heads.dropout)
        # Of softmax: p * (d_p - sum(p * d_p)).
        weighted_sum = (d_p * p).sum(-1, keepdim=True)
        d_scores = d_p.sub_(weighted_sum).mul_(p)
        d_bias = d_scores.sum(1) if ctx.needs_input_grad[4] else None
        d_scores.mul_(ctx.heads.scaling)
        d_v = drop(p, mask, ctx.heads.dropout).transpose(2, 3) @ g
        d_q = d_scores @ k
        d_k = d_scores.transpose(2, 3) @ q
        return d_q, d_k, d_v, None, d_bias, None


def keep_mask(like: Tensor, p: float) -> Tensor:
    """Draw a bool mask of the shape of `like`, False with probability p, from torch's generator."""
    count = like.numel()
    # Each 64-bit number gives four lanes; from -2^63 on, so that the sign bit is random too.
    bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    lanes = bits.view(torch.int16)[:count].view(like.shape)
    threshold = round(p * _DROPOUT_STEPS) - _DROPOUT_STEPS // 2
    return lanes >= threshold


def drop(x: Tensor, mask: Tensor | None, p: float) -> Tensor:
    """Return x where the mask keeps it, scaled so that the mean stays, 0 elsewhere.

    No mask keeps all.
    """
    if mask is None:
        return x
    really = round(p * _DROPOUT_STEPS) / _DROPOUT_STEPS
    return torch.ops.aten.native_dropout_backward(x, mask, 1 / (1 - really))  # type: ignore[no-any-return]  # untyped
