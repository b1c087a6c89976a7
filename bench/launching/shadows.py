"""Copies of the linear modules' parameters in bf16, which the optimiser's step writes.

They take the place of autocast's copies, which every pass makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elsa_tune.training import loop
from elsa_tune.training.data.tokens import IndexArray


def shadow(model: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Let trained linear modules run on copies in bf16; (parameter, copy) of each."""
    pairs = []
    for module in model.modules():
        if not isinstance(module, nn.Linear) or not module.weight.requires_grad:
            continue
        for name in ("weight", "bias"):
            own = getattr(module, name)
            if own is not None:
                pairs.append((own, nn.Parameter(own.detach().bfloat16())))
                setattr(module, name, pairs[-1][1])
    return pairs


class Accumulating(loop._Run):
    """A trial that looks at the gradients of every pass."""

    def _accumulate(self, batch: IndexArray) -> Tensor:
        total = torch.zeros((), device=self.device)
        for part in self.runner.parts("train", batch, self.progress.micro_batch):
            logits, rows = self.runner.logits("train", part)
            loss = self.objective.loss(logits, self.objective.labels("train", rows))
            (loss / len(batch)).backward()
            self._collect()
            total += loss.detach()
        return total

    def _collect(self) -> None:
        raise NotImplementedError


class Shadows(Accumulating):
    """Gradients come in bf16, as they do from autocast's products, and add up in fp32."""

    # None yet in the pass that shows whether a step is strict.
    masters: Sequence[nn.Parameter] = ()
    shadows: Sequence[nn.Parameter] = ()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # An evaluation of a trial without autocast runs in fp32, and so must its training.
        on = self.precision.value == "bf16"
        pairs = shadow(self.runner.model) if on else []
        self.masters, self.shadows = [p for p, _ in pairs], [copy for _, copy in pairs]

    def _collect(self) -> None:
        got = [
            (p, copy)
            for p, copy in zip(self.masters, self.shadows, strict=True)
            if copy.grad is not None
        ]
        if not got:
            return
        fresh = got[0][0].grad is None
        for p, _ in got if fresh else []:
            p.grad = torch.empty_like(p)
        add: Any = torch._foreach_copy_ if fresh else torch._foreach_add_
        add([p.grad for p, _ in got], [copy.grad for _, copy in got])
        for _, copy in got:
            copy.grad = None

    def _descend(self) -> Tensor:
        norm = super()._descend()
        with torch.no_grad():
            torch._foreach_copy_(self.shadows, self.masters) if self.shadows else None
        return norm
