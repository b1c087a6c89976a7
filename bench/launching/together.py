"""All three ways together.

What runs are views of a flat tensor in fp32 or, for linear modules under autocast, of one in bf16;
query, key and value lie side by side in both.

For measuring only: what a trial keeps or exports has the query, key and value projections that it
started with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from launching.flat import flat_of, kept, replace, take, used, views
from launching.one_product import OneProduct
from launching.shadows import Accumulating, shadow
from torch import Tensor, nn


class Together(OneProduct, Accumulating):
    """Gradients of every pass go into the flat one, in bf16 or fp32 as they come."""

    # None yet in the passes that show whether a step is strict, and what is used.
    leaves: Sequence[Tensor] = ()
    grads: Sequence[Tensor] = ()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        found = {id(p) for p in used(self)}
        on = self.precision.value == "bf16"
        copies = dict(_by_id(shadow(self.runner.model))) if on else {}
        mine = [p for p in self.trained if id(p) in found]
        # Those with copies first, so that one range of a flat tensor has one range of copies.
        mine.sort(key=lambda p: id(p) not in copies)
        leaves: list[Tensor] = []
        grads: list[Tensor] = []
        self.trained, self.copied = [], []
        for shape, some in (
            ((1, -1), [p for p in mine if p.ndim >= 2]),
            ((-1,), [p for p in mine if p.ndim < 2]),
        ):
            flat = nn.Parameter(flat_of(some).view(shape))
            flat.grad = torch.zeros_like(flat)
            parts = kept(self, some, flat)
            run = [copies[id(p)] for p in some if id(p) in copies]
            if run:
                half = flat_of(run, torch.bfloat16)
                parts[: len(run)] = views(half, run)
                self.copied.append((half, flat.detach().view(-1)[: len(half)]))
            self.trained.append(flat)
            grads += views(flat.grad, some)
            leaves += replace(self, [copies.get(id(p), p) for p in some], parts)
        self.leaves, self.grads = leaves, grads
        self.fresh = True
        take(self)
        self.optimizer.zero_grad = self._forget  # type: ignore[method-assign]

    def _collect(self) -> None:
        # One call for each kind of gradient: where kinds mix, a GPU copies them one by one.
        for kind in (torch.bfloat16, torch.float32):
            pairs = zip(self.grads, self.leaves, strict=True)
            some = [(grad, leaf.grad) for grad, leaf in pairs if leaf.dtype == kind]
            if some:
                add: Any = torch._foreach_copy_ if self.fresh else torch._foreach_add_
                add(*map(list, zip(*some, strict=True)))
        for leaf in self.leaves:
            leaf.grad = None
        self.fresh = False

    def _forget(self, set_to_none: bool = True) -> None:
        self.fresh = True
        for leaf in self.leaves:
            leaf.grad = None

    def _descend(self) -> Tensor:
        norm = super()._descend()
        for half, whole in self.copied:
            half.copy_(whole)
        return norm


def _by_id(pairs: list[tuple[nn.Parameter, nn.Parameter]]) -> list[tuple[int, nn.Parameter]]:
    return [(id(p), copy) for p, copy in pairs]
