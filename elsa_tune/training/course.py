"""What a trial's loop is made of: its seed, its steps, its optimiser, its results.

It must not know the loop.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import get_linear_schedule_with_warmup

from elsa_tune.errors import DivergedError, SpaceError
from elsa_tune.specs.trial import (
    EpochResult,
    Precision,
    Recipe,
    Selection,
    TrialSpec,
    chosen_evaluation,
)
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.forward.equality import Setting
from elsa_tune.training.forward.runner import Runner, runner_for
from elsa_tune.training.model.encoder import load_classifier
from elsa_tune.training.model.parts import freeze
from elsa_tune.training.model.pooling import pool
from elsa_tune.training.objective import Assessment, Objective

IndexArray = NDArray[np.int64]
Result = TypeVar("Result")

# MiniLM's full model on 1,000 examples loses 2 (SST-2) and 4 points (STS-B) with 126 steps against
# 252, and 22 and 45 with 63; 504 add 1 to 252 (SST-2, one seed each).
FEW_STEPS = 150

# The CPU's allocator, the CUDA runtime, cuBLAS (on a full GPU it cannot even begin), and cuDNN,
# which says no more than that something inside failed.
_NO_MEMORY = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR",
)


def evaluation_steps(recipe: Recipe, train_size: int) -> tuple[int, ...]:
    """The optimiser steps (1-based) after which a trial is evaluated; the last one ends it."""
    per_epoch = math.ceil(train_size / recipe.batch_size)
    parts = recipe.evaluations_per_epoch
    if parts > per_epoch:
        raise SpaceError(
            f"evaluations_per_epoch is {parts}, but {train_size} examples in batches of "
            f"{recipe.batch_size} make only {per_epoch} steps an epoch; lower it or the batch size"
        )
    return tuple(
        epoch * per_epoch + math.ceil(per_epoch * part / parts)
        for epoch in range(recipe.epochs)
        for part in range(1, parts + 1)
    )


def few_steps(recipe: Recipe, steps: int) -> str | None:
    """What to tell who plans trials of so few optimiser steps; None where they are enough."""
    if steps >= FEW_STEPS:
        return None
    per_epoch = steps // recipe.epochs
    return (
        f"{steps} optimiser steps per trial are few: below about {FEW_STEPS} a full model still "
        f"gains points from more; set epochs={math.ceil(FEW_STEPS / per_epoch)}, or a batch_size "
        f"below {recipe.batch_size}"
    )


def has_bf16_units() -> bool:
    """Whether this machine's GPU has units for bf16 and TF32 (NVIDIA's have since Ampere); others
    emulate bf16, more slowly than they compute fp32.
    """
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def resolve_precision(
    precision: Precision, device: str, has_units: bool | None = None
) -> Precision:
    """What `auto` means on a `cpu` or on `cuda`: bf16 where the GPU has units for it, else fp32.

    has_units: of all GPUs that will train; by default this machine's is asked. Raises SpaceError
    for arithmetic that the device has not.
    """
    on_gpu = device == "cuda"
    if on_gpu and has_units is None:
        has_units = has_bf16_units()
    if precision is Precision.AUTO:
        return Precision.BF16 if on_gpu and has_units else Precision.FP32
    if on_gpu and not has_units and precision is not Precision.FP32:
        raise SpaceError(
            f"precision is {precision}, but a GPU that would train has no units for it (NVIDIA's "
            "have since Ampere); use fp32"
        )
    if precision is Precision.TF32 and not on_gpu:
        raise SpaceError("precision is tf32, which only GPUs have; use fp32 or bf16")
    return precision


@contextlib.contextmanager
def reproducible(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch for one trial and put the process back as it was."""
    if device.type == "cuda":
        # Read by cuBLAS at its first use; without it matrix products may differ between runs.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]  # untyped
    with torch.random.fork_rng(devices=_gpus(device)):
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Fills every new tensor to catch readers of garbage: a debugging aid that costs each step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # untyped
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warn_only)
            torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]  # untyped


def _gpus(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []


@contextlib.contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Keep the trial's random state over a `yield`: whoever consumes the result may draw numbers
    too.
    """
    state = torch.get_rng_state()
    gpu_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    yield
    torch.set_rng_state(state)
    if gpu_state is not None:
        torch.cuda.set_rng_state(gpu_state, device)


def prepare_runner(
    trial: TrialSpec,
    data: TaskData,
    objective: Objective,
    device: torch.device,
    depths: Sequence[int],
) -> tuple[Runner, int]:
    """The trial's model, frozen to its depth, in what runs it; and how many numbers train in it."""
    model = load_classifier(
        trial.model, objective.outputs, trial.seed, objective.is_regression, trial.depth
    )
    model.to(device)  # type: ignore[arg-type]  # its decorator hides nn.Module's signature
    freeze(model, trial.depth)
    pool(model, trial.recipe.pooling)
    # Counted here: of the word table the runner keeps only the rows that the data use.
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    setting = Setting(
        depth=trial.depth,
        recipe=trial.recipe,
        precision=resolve_precision(trial.recipe.precision, device.type).value,
        device=device,
        name=f"{trial.model.name} on {trial.task.name}",
        depths=depths,
    )
    # Whether it tests, builds or reads must not show in what the trial draws afterwards.
    with torch.random.fork_rng(devices=_gpus(device)):
        return runner_for(model, data, setting), count


def shuffled_batches(trial: TrialSpec, examples: int) -> Iterator[IndexArray]:
    """Indices of the training examples, one batch after another, a fresh order each epoch, without
    end.

    By a generator of their own: the order is the same at every depth and whatever dropout draws.
    """
    generator = torch.Generator().manual_seed(trial.seed)
    size = trial.recipe.batch_size
    while True:
        order = torch.randperm(examples, generator=generator).numpy()
        for start in range(0, len(order), size):
            yield order[start : start + size]


def schedule_for(
    optimizer: torch.optim.Optimizer, recipe: Recipe, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Linear warm-up and decay to 0 over so many steps."""
    return get_linear_schedule_with_warmup(  # type: ignore[no-any-return]  # untyped
        optimizer, math.ceil(recipe.warmup_ratio * steps), steps
    )


def check_training_loss(trial: TrialSpec, loss: float, step: int, steps: int) -> None:
    """Raise DivergedError unless it is finite."""
    if not math.isfinite(loss):
        raise DivergedError(
            f"{trial.key}: the training loss became {loss} by step {step} of {steps}; a learning "
            f"rate below {trial.learning_rate:g} may help"
        )


class Choice:
    """The evaluation that gives a trial's quality, among those so far. predictions: its [E]."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._scores: list[float] = []
        self.predictions = np.empty(0)

    def add(self, found: Assessment) -> None:
        """One more evaluation, which may be the one."""
        self._scores.append(float(getattr(found, self._selection.score)))
        if chosen_evaluation(self._selection, self._scores) == len(self._scores) - 1:
            self.predictions = found.predictions


def epoch_result(
    trial: TrialSpec,
    data: TaskData,
    found: Assessment,
    choice: Choice,
    number: int,
    points: Sequence[int],
    **how: Any,
) -> EpochResult:
    """The result of a trial's evaluation `number`, which is added to its choice. how: the fields on
    how it was trained.
    """
    choice.add(found)
    return EpochResult(
        evaluation=number,
        evaluations=len(points),
        epoch=number / trial.recipe.evaluations_per_epoch,
        step=points[number - 1],
        steps=points[-1],
        quality=found.quality,
        holdout_quality=found.holdout_quality,
        metrics=found.metrics,
        eval_loss=found.loss,
        chance=data.chance,
        predictions=tuple(choice.predictions.tolist()) if number == len(points) else None,
        **how,
    )


def adamw(
    decaying: Sequence[Tensor], plain: Sequence[Tensor], trial: TrialSpec
) -> torch.optim.AdamW:
    """AdamW with bias correction, with weight decay on the first and without on the others.

    Without bias correction few-sample fine-tuning is unstable (Mosbach et al. 2020; Zhang et al.
    2020).
    """
    groups = [
        {"params": list(decaying), "weight_decay": trial.recipe.weight_decay},
        {"params": list(plain), "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=trial.learning_rate, fused=True
    )


def decays(parameter: Tensor) -> bool:
    """Whether weight decay acts on it: on matrices, not on biases and norms."""
    return parameter.ndim >= 2


def clip_in_step(optimizer: torch.optim.AdamW, norm: Tensor, max_norm: float) -> None:
    """Let the next fused step clip gradients of this global norm, as `clip_grad_norm_` does.

    The step divides by `grad_scale` as it reads the gradients (torch's interface for GradScaler):
    no pass of its own over them, and on a GPU no waiting for the norm.
    """
    optimizer.grad_scale = ((norm + 1e-6) / max_norm).clamp(min=1.0)  # type: ignore[attr-defined]  # GradScaler's


def within_memory(attempt: Callable[[], Result]) -> Result | None:
    """What the attempt gives; None where memory ran out in it. Then everything that only it held is
    free: its error, whose traceback holds its variables, is gone too.
    """
    try:
        return attempt()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return None


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """torch has its own class, for what its allocator cannot get; others raise a RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in _NO_MEMORY)
