"""Everything that trains as views of two flat tensors, one with weight decay and one without.

The optimiser and the gradient's norm see these two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup

from elsa_tune.training import loop, machine


def used(run: loop._Run) -> list[Tensor]:
    """Return the trained parameters that get a gradient.

    AdamW leaves the others as they are; within a flat tensor they would decay.
    """
    run.runner.train(True)
    with machine.preserve_rng(run.device):
        run._gradients(np.arange(min(4, len(run.data.train))))
    found = [p for p in run.trained if p.grad is not None]
    run.optimizer.zero_grad(set_to_none=True)
    return found


def flat_of(parts: Sequence[Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
    """One tensor of all their numbers."""
    return torch.cat([part.detach().to(dtype).view(-1) for part in parts])


def views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Its consecutive parts in these shapes."""
    parts = flat.view(-1).split([part.numel() for part in like])
    return [part.view(other.shape) for part, other in zip(parts, like, strict=True)]


def kept(run: loop._Run, some: Sequence[Tensor], flat: Tensor) -> list[Tensor]:
    """Return the flat tensor's parts in the shapes of these parameters.

    A trial keeps them under the parameters' names.
    """
    parts = views(flat.detach(), some)
    own = {id(p): part for p, part in zip(some, parts, strict=True)}
    run.named = {name: own.get(id(p), p) for name, p in run.named.items()}
    return parts


def replace(run: loop._Run, old: Sequence[Tensor], new: Sequence[Tensor]) -> list[Tensor]:
    """Let the model run on new parameters; these.

    Memory cannot be exchanged (`.data =`) in every tensor: not in the stand-in's.
    """
    made = {id(p): nn.Parameter(part) for p, part in zip(old, new, strict=True)}
    for module in run.runner.model.modules():
        for name, p in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if id(p) in made:
                setattr(module, name, made[id(p)])
    return [made[id(p)] for p in old]


class Flat(loop._Run):
    """All that trains in one flat tensor, and its gradients in another.

    Backward passes leave a gradient for each parameter, as today; one call copies them into the
    flat gradient. (Autograd can hand over a gradient without a copy only where there is none yet.)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        found = used(self)
        groups = [[p for p in found if p.ndim >= 2], [p for p in found if p.ndim < 2]]
        self.leaves: list[Tensor] = []
        self.trained, self.grads = [], []
        for group, shape in zip(groups, ((1, -1), (-1,)), strict=True):
            # Two dimensions decay, as `adamw` has it without names.
            flat = nn.Parameter(flat_of(group).view(shape))
            flat.grad = torch.zeros_like(flat)
            self.leaves += replace(self, group, kept(self, group, flat))
            self.trained.append(flat)
            self.grads += views(flat.grad, group)
        take(self)
        self.optimizer.zero_grad = self._forget  # type: ignore[method-assign]

    def _forget(self, set_to_none: bool = True) -> None:
        for leaf in self.leaves:
            leaf.grad = None

    def _descend(self) -> Tensor:
        torch._foreach_copy_(self.grads, [leaf.grad for leaf in self.leaves])
        return super()._descend()


class FlatInPlace(Flat):
    """Each parameter's gradient is a view of the flat one, which is zeroed and added to."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for leaf, grad in zip(self.leaves, self.grads, strict=True):
            leaf.grad = grad

    def _forget(self, set_to_none: bool = True) -> None:
        for flat in self.trained:
            assert flat.grad is not None
            flat.grad.zero_()

    def _descend(self) -> Tensor:
        return super(Flat, self)._descend()


def take(run: loop._Run) -> None:
    """Take an optimiser and its schedule for what trains now."""
    numbered = {str(number): flat for number, flat in enumerate(run.trained)}
    run.optimizer = loop.adamw(numbered, run.trial)
    warmup = int(np.ceil(run.trial.recipe.warmup_ratio * run.points[-1]))
    run.schedule = get_linear_schedule_with_warmup(run.optimizer, warmup, run.points[-1])
