"""AdamW as every trial uses it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elsa_tune.specs.trial import TrialSpec


def adamw(trained: Sequence[Tensor], trial: TrialSpec) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices, not on biases and norms; with bias correction, for
    without it few-sample fine-tuning is unstable (Mosbach et al. 2020; Zhang et al. 2020).
    """
    matrices, others = [p for p in trained if p.ndim >= 2], [p for p in trained if p.ndim < 2]
    decay = trial.recipe.weight_decay
    groups = [
        {"params": parameters, "weight_decay": decay if parameters is matrices else 0.0}
        for parameters in (matrices, others)
        if parameters
    ]
    return torch.optim.AdamW(groups, lr=trial.learning_rate, fused=True)


def clip_in_step(optimizer: torch.optim.AdamW, norm: Tensor, max_norm: float) -> None:
    """Let the next fused step clip gradients of this global norm, as `clip_grad_norm_` does.

    The step divides by `grad_scale` as it reads the gradients (torch's interface for GradScaler):
    no pass of its own over them, and on a GPU no waiting for the norm.
    """
    optimizer.grad_scale = ((norm + 1e-6) / max_norm).clamp(min=1.0)  # type: ignore[attr-defined]  # GradScaler's
