"""Dropout from cheap random bits: the same distribution as torch's, other numbers, less time.

On a CPU torch draws a whole random number for every element; sixteen bits of one are enough to
decide whether an element is dropped. Measured: bench/results/step.json.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
    return torch.ops.aten.native_dropout_backward(x, mask, 1 / (1 - probability(p)))  # type: ignore[no-any-return]


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask = keep_mask(x, p)
        ctx.save_for_backward(mask)
        ctx.p = p
        return drop(x, mask, p)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return drop(grads[0], mask, ctx.p), None


class CheapDropout(nn.Dropout):
    """nn.Dropout that draws sixteen bits an element on a CPU; elsewhere it is nn.Dropout itself."""

    def forward(self, input: Tensor) -> Tensor:
        """As nn.Dropout: the input in evaluation mode, else with elements dropped."""
        if not self.training or self.p == 0:
            return input
        if input.device.type != "cpu" or probability(self.p) >= 1:
            return F.dropout(input, self.p)
        return _Drop.apply(input, self.p)  # type: ignore[no-any-return, no-untyped-call]


def use_cheap_dropout(model: nn.Module) -> None:
    """Put CheapDropout in the place of every plain nn.Dropout of the model."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                cheap = CheapDropout(child.p)
                cheap.train(child.training)
                setattr(module, name, cheap)
