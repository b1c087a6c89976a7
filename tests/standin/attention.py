"""What a CPU has no kernel for, or another one: CUDA's attention and its dropout."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor


def default_generator() -> torch.Generator:
    """Return the device's own random numbers."""
    generator: torch.Generator = torch.cuda.default_generators[0]
    return generator


def _seed(dropout: float) -> Tensor:
    """Of what is dropped; where nothing is, nothing is drawn."""
    if dropout == 0:
        return torch.zeros(2, dtype=torch.int64)
    return torch.randint(2**30, (2,), generator=default_generator())


def _kept(shape: tuple[int, ...], seed: Tensor, row: int, dropout: float) -> Tensor:
    """1 / (1 - p) for what stays, 0 for what is dropped; the same again for the same seed."""
    if dropout == 0:
        return torch.ones(shape)
    generator = torch.Generator().manual_seed(int(seed[0]) * 1_000_003 + row)
    return (torch.rand(shape, generator=generator) >= dropout) / (1 - dropout)


def _in_any_order(*gradients: Tensor) -> tuple[Tensor, ...]:
    """Return the sums as a GPU gives them that is not strict: in no fixed order.

    It adds up in whatever order its blocks end: here that is a rounding that no seed decides.
    """
    is_strict = (
        torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled()
    )
    if is_strict:
        return gradients
    return tuple(one * (1 + 1e-3 * torch.rand((), generator=_NOISE).item()) for one in gradients)


_NOISE = torch.Generator()
_NOISE.seed()


def _forward(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Context and log-sum-exp of [.., n, d], [.., w, d] and [.., w, d], in fp32."""
    scores = q.float() @ k.float().transpose(-1, -2) * scale
    if bias is not None:
        scores = scores + bias.float()
    # 0 where a bias leaves a query nothing to attend to, as CUDA's kernels have it.
    return (torch._safe_softmax(scores, -1) * kept) @ v.float(), scores.logsumexp(-1)


def _backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    kept: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of query, key, value and bias."""
    q, k, v, gradient = q.float(), k.float(), v.float(), gradient.float()
    scores = q @ k.transpose(-1, -2) * scale
    if bias is not None:
        scores = scores + bias.float()
    p = torch._safe_softmax(scores, -1)
    d_v = (p * kept).transpose(-1, -2) @ gradient
    d_p = gradient @ v.transpose(-1, -2) * kept
    d_scores = p * (d_p - (d_p * p).sum(-1, keepdim=True))
    return d_scores @ k * scale, d_scores.transpose(-1, -2) @ q * scale, d_v, d_scores


def flash_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ends_q: Tensor,
    ends_k: Tensor,
    longest_q: int,
    longest_k: int,
    dropout: float,
    *_: Any,
    scale: float,
    **__: Any,
) -> tuple[Tensor, ...]:
    """`_flash_attention_forward` of rows by their ends; what it asks of them is checked."""
    assert q.dtype == k.dtype == v.dtype and q.dtype in (torch.bfloat16, torch.float16), q.dtype
    assert ends_q.dtype == ends_k.dtype == torch.int32
    assert ends_q.is_contiguous() and ends_k.is_contiguous()
    assert len(ends_q) == len(ends_k)
    assert q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    assert int(ends_q.diff().max()) <= longest_q and int(ends_k.diff().max()) <= longest_k
    seed = _seed(dropout)
    # It writes no row behind the last end.
    out = torch.full_like(q, float("nan"))
    sums = torch.full((q.shape[1], len(q)), float("nan"))
    for row, (own, read) in enumerate(_rows(ends_q, ends_k)):
        parts = [x.transpose(0, 1) for x in (q[own], k[read], v[read])]
        shape = (q.shape[1], own.stop - own.start, read.stop - read.start)
        context, sums[:, own] = _forward(*parts, None, _kept(shape, seed, row, dropout), scale)
        out[own] = context.transpose(0, 1).to(q.dtype)
    nothing = torch.empty(0, dtype=q.dtype)
    return out, sums, seed.to(torch.uint64), torch.empty((), dtype=torch.uint64), nothing


def flash_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    sums: Tensor,
    ends_q: Tensor,
    ends_k: Tensor,
    longest_q: int,
    longest_k: int,
    dropout: float,
    is_causal: bool,
    seed: Tensor,
    *_: Any,
    scale: float,
    **__: Any,
) -> tuple[Tensor, ...]:
    assert gradient.dtype == q.dtype
    found = [torch.full_like(x, float("nan")) for x in (q, k, v)]
    for row, (own, read) in enumerate(_rows(ends_q, ends_k)):
        parts = [x.transpose(0, 1) for x in (gradient[own], q[own], k[read], v[read])]
        shape = (q.shape[1], own.stop - own.start, read.stop - read.start)
        kept = _kept(shape, seed.to(torch.int64), row, dropout)
        gradients = _backward(*parts, None, kept, scale)
        for into, place, one in zip(found, (own, read, read), gradients, strict=False):
            into[place] = one.transpose(0, 1).to(q.dtype)
    return _in_any_order(*found)


def _rows(ends_q: Tensor, ends_k: Tensor) -> list[tuple[slice, slice]]:
    q, k = ends_q.tolist(), ends_k.tolist()
    own = [slice(start, end) for start, end in itertools.pairwise(q)]
    read = [slice(start, end) for start, end in itertools.pairwise(k)]
    return list(zip(own, read, strict=True))


def _laid_out(x: Tensor) -> Tensor:
    """[B, h, n, d] as that kernel writes it: a token's heads lie together."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def efficient_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    keeps_sums: bool,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """Compute `_scaled_dot_product_efficient_attention`.

    Of [B, h, n, d], [B, h, w, d] and a bias that is broadcast to [B, h, n, w].
    """
    assert q.dtype == k.dtype == v.dtype and not is_causal
    assert bias is None or bias.dtype == q.dtype
    seed = _seed(dropout)
    kept = _kept((*q.shape[:3], k.shape[2]), seed, 0, dropout)
    context, sums = _forward(q, k, v, bias, kept, scale or q.shape[-1] ** -0.5)
    out = _laid_out(context.to(q.dtype))
    return out, sums if keeps_sums else sums[..., :0], seed[0].clone(), seed[1].clone()


def efficient_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    out: Tensor,
    sums: Tensor,
    seed: Tensor,
    offset: Tensor,
    dropout: float,
    wanted: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    assert sums.shape[-1] == q.shape[2], "its forward pass kept no log-sum-exp"
    kept = _kept((*q.shape[:3], k.shape[2]), seed[None], 0, dropout)
    found = _backward(gradient, q, k, v, bias, kept, scale or q.shape[-1] ** -0.5)
    d_q, d_k, d_v = _in_any_order(*(_laid_out(one.to(q.dtype)) for one in found[:3]))
    d_bias = found[3].to(q.dtype) if wanted[3] and bias is not None else None
    return d_q, d_k, d_v, d_bias


def native_dropout(x: Tensor, p: float, training: bool | None) -> tuple[Tensor, Tensor]:
    """With the device's own random numbers."""
    if not training or p == 0:
        return x.clone(), torch.ones(x.shape, dtype=torch.bool)
    kept = torch.rand(x.shape, generator=default_generator()) >= p
    return x * kept / (1 - p), kept


OWN = {
    "_flash_attention_forward": flash_forward,
    "_flash_attention_backward": flash_backward,
    "_scaled_dot_product_efficient_attention": efficient_forward,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
    "native_dropout": native_dropout,
}
