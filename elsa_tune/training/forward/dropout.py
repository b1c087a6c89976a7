"""Dropout with its mask in hand, as a function with explicit gradients needs it.

On a CPU torch draws a whole random number for every element; sixteen bits of one are enough to
decide whether an element is dropped.
"""

from __future__ import annotations

import torch
from torch import Tensor

_STEPS = 2**16


def probability(p: float) -> float:
    """The probability that is really used for p: the nearest multiple of 2^-16."""
    return round(p * _STEPS) / _STEPS


def keep_mask(like: Tensor, p: float) -> Tensor:
    """Bool mask of the shape of `like`, False with probability p; from torch's global generator."""
    count = like.numel()
    # Each 64-bit number gives four lanes; from -2^63 on, so that the sign bit is random too.
    bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    lanes = bits.view(torch.int16)[:count].view(like.shape)
    return lanes >= round(p * _STEPS) - _STEPS // 2


def drop(x: Tensor, mask: Tensor, p: float) -> Tensor:
    """x where the mask keeps it, scaled so that the mean stays; 0 elsewhere."""
    return torch.ops.aten.native_dropout_backward(x, mask, 1 / (1 - probability(p)))  # type: ignore[no-any-return]  # untyped
