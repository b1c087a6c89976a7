"""One trial: the generator that fine-tunes a model frozen to one depth and yields each evaluation.

    for result in train(trial): ...

It must not know Ray, Optuna or MLflow: a search is this same loop inside a worker.
Letters in shape comments: B batch, T tokens, C classes, E evaluation examples.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import get_linear_schedule_with_warmup

from elsa_tune.errors import DivergedError, RunError, SpaceError
from elsa_tune.specs.task import TaskKind
from elsa_tune.specs.trial import EpochResult, Precision, Recipe, TrialSpec
from elsa_tune.training.data import prepare
from elsa_tune.training.encoder import load_classifier
from elsa_tune.training.memory import PeakMemory, release
from elsa_tune.training.metrics import check_quality, score
from elsa_tune.training.parts import freeze
from elsa_tune.training.runner import Runner, Setting, runner_for
from elsa_tune.training.tokens import TaskData

IndexArray = NDArray[np.int64]

EVALUATION = "evaluation"


def train(
    trial: TrialSpec,
    data: TaskData | None = None,
    *,
    device: str | None = None,
    depths: Sequence[int] = (),
) -> Iterator[EpochResult]:
    """Fine-tune and yield an EpochResult at every planned evaluation; the last one has `is_last`.

    data: the tokenised task; read (and cached) here when it is not given. device: `cpu` or `cuda`,
    by default a GPU where there is one. depths: N of other trials of the same search, whose frozen
    prefixes are kept in the same pass over the model as this trial's. The numbers depend on the
    trial alone, not on what ran before in the process: weights, head, order of examples and dropout
    all follow `trial.seed`.
    Raises DivergedError when a loss or metric stops being finite, RunError when even one example at
    a time does not fit in memory, and UsageErrors for data or models that do not fit the task.
    """
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if data is None:
        data = prepare(trial.model, trial.task, trial.recipe)
    with _reproducible(trial.seed, where):
        run = _Run(trial, data, where, depths)
        try:
            yield from run.evaluations()
        finally:
            # Also reached when a scheduler drops the generator: the next trial starts with free
            # memory.
            run.close()


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


def resolve_precision(precision: Precision, device: str) -> Precision:
    """What `auto` means on this machine: bf16 where the GPU has it, else fp32.

    Raises SpaceError when bf16 is asked of a GPU that lacks it.
    """
    has_bf16 = device != "cuda" or torch.cuda.is_bf16_supported()
    if precision is Precision.BF16 and not has_bf16:
        raise SpaceError("precision is bf16, but this GPU has no bf16 arithmetic; use fp32")
    if precision is not Precision.AUTO:
        return precision
    return Precision.BF16 if device == "cuda" and has_bf16 else Precision.FP32


@contextlib.contextmanager
def _reproducible(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch for one trial and put the process back as it was."""
    if device.type == "cuda":
        # Read by cuBLAS at its first use; without it matrix products may differ between runs.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with torch.random.fork_rng(devices=_gpus(device)):
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Fills every new tensor to catch readers of garbage: a debugging aid that costs each step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warn_only)
            torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


def _gpus(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []


@contextlib.contextmanager
def _own_randomness(device: torch.device) -> Iterator[None]:
    """Keep the trial's random state over a `yield`: whoever consumes the result may draw numbers
    too.
    """
    state = torch.get_rng_state()
    gpu_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    yield
    torch.set_rng_state(state)
    if gpu_state is not None:
        torch.cuda.set_rng_state(gpu_state, device)


@dataclass(slots=True)
class _Evaluation:
    predictions: np.ndarray  # [E] class ids (int64) or values (float32)
    loss: float


class _Run:
    """A trial under way: the model, its optimiser, and how far it has come."""

    def __init__(
        self, trial: TrialSpec, data: TaskData, device: torch.device, depths: Sequence[int]
    ) -> None:
        recipe = trial.recipe
        self.trial, self.data, self.device = trial, data, device
        self.memory = PeakMemory(device)
        self.precision = resolve_precision(recipe.precision, device.type)
        self.is_regression = trial.task.kind is TaskKind.REGRESSION
        self.outputs = int(data.train.labels.max()) + 1 if not self.is_regression else 1
        self.outputs = max(self.outputs, trial.task.outputs)
        self.runner, self.trained, self.trainable_parameters = self._prepare(depths)
        self.optimizer = _adamw(self.trained, trial)
        self.points = evaluation_steps(recipe, len(data.train))
        self.schedule = get_linear_schedule_with_warmup(
            self.optimizer, math.ceil(recipe.warmup_ratio * self.points[-1]), self.points[-1]
        )
        self.labels = {
            name: torch.from_numpy(rows.labels).to(device) for name, rows in data.splits().items()
        }
        # Its own generator: the order of examples is the same at every depth and whatever dropout
        # draws.
        self.order = torch.Generator().manual_seed(trial.seed)
        self.micro_batch = recipe.batch_size
        self.eval_batch = recipe.eval_batch_size
        self.notes: list[str] = [*data.notes, *self.runner.notes]
        self.train_seconds = 0.0

    def _prepare(self, depths: Sequence[int]) -> tuple[Runner, list[Tensor], int]:
        """The runner, the parameters it trains, and how many numbers train in the whole model."""
        trial = self.trial
        model = load_classifier(
            trial.model, self.outputs, trial.seed, self.is_regression, trial.depth
        )
        model.to(self.device)  # type: ignore[arg-type]  # its decorator hides nn.Module's signature
        freeze(model, trial.depth)
        # Counted here: of the word table the runner keeps only the rows that the data use.
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        setting = Setting(
            depth=trial.depth,
            recipe=trial.recipe,
            precision=self.precision.value,
            device=self.device,
            name=f"{trial.model.name} on {trial.task.name}",
            depths=depths,
        )
        # Whether it tests, builds or reads must not show in what the trial draws afterwards.
        with torch.random.fork_rng(devices=_gpus(self.device)):
            runner = runner_for(model, self.data, setting)
        return runner, [p for p in runner.model.parameters() if p.requires_grad], count

    def close(self) -> None:
        """Drop everything that holds memory."""
        self.optimizer.zero_grad(set_to_none=True)
        self.runner.close()
        del self.runner, self.optimizer, self.schedule, self.trained
        release()

    def evaluations(self) -> Iterator[EpochResult]:
        """Train from evaluation to evaluation."""
        batches = self._batches()
        step, seen = 0, 0
        for number, point in enumerate(self.points, start=1):
            started = time.perf_counter()
            self.runner.train(True)
            loss_sum = torch.zeros((), device=self.device)
            examples = 0
            while step < point:
                batch = next(batches)
                loss_sum += self._step(batch)
                examples += len(batch)
                step += 1
            train_loss = (
                float(loss_sum) / examples
            )  # the one GPU-CPU synchronisation of this stretch
            self.train_seconds += time.perf_counter() - started
            seen += examples
            if not math.isfinite(train_loss):
                raise DivergedError(
                    f"{self.trial.key}: the training loss became {train_loss} by step {step} of "
                    f"{self.points[-1]}; a learning rate below {self.trial.learning_rate:g} may "
                    "help"
                )
            result = self._result(number, step, seen, train_loss)
            with _own_randomness(self.device):
                yield result

    def _batches(self) -> Iterator[IndexArray]:
        """Indices of the training examples, one batch after another, a fresh order each epoch."""
        size = self.trial.recipe.batch_size
        while True:
            order = torch.randperm(len(self.data.train), generator=self.order).numpy()
            for start in range(0, len(order), size):
                yield order[start : start + size]

    def _step(self, batch: IndexArray) -> Tensor:
        """One optimiser step on a whole batch; returns the sum of its losses (a scalar on the
        device).
        """
        loss_sum = self._gradients(batch)
        _clip(self.optimizer, self.trained, self.trial.recipe.max_grad_norm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss_sum

    def _gradients(self, batch: IndexArray) -> Tensor:
        """Accumulate the gradient of the batch's mean loss, in as many micro-batches as memory asks
        for.
        """
        while True:
            try:
                total = torch.zeros((), device=self.device)
                for part in self.runner.parts("train", batch, self.micro_batch):
                    logits, rows = self.runner.logits("train", part)
                    loss = self._loss(logits, self._labels("train", rows))
                    # A sum over the part by the size of the whole: parts add up to the batch's
                    # mean.
                    (loss / len(batch)).backward()
                    total += loss.detach()
                return total
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
            # Outside the handler: the exception's traceback would keep the activations alive.
            self.micro_batch = self._halve(self.micro_batch, "micro-batches")
            self.optimizer.zero_grad(set_to_none=True)
            release()

    def _halve(self, size: int, what: str) -> int:
        if size == 1:
            raise RunError(
                f"{self.trial.key}: out of memory with one example at a time; lower max_length "
                f"({self.trial.recipe.max_length}), freeze more layers, or use a machine with "
                "more memory"
            )
        half = math.ceil(size / 2)
        self.notes.append(
            f"out of memory: {what} halved to {half}; the effective batch stays "
            f"{self.trial.recipe.batch_size}"
        )
        return half

    def _labels(self, split: str, rows: IndexArray) -> Tensor:
        """Labels [B] of these rows, on the device."""
        return self.labels[split][torch.from_numpy(rows).to(self.device, non_blocking=True)]

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Sum of the examples' losses."""
        if self.is_regression:
            return F.mse_loss(logits.squeeze(-1), labels.float(), reduction="sum")
        return F.cross_entropy(logits, labels, reduction="sum")

    def _result(self, number: int, step: int, seen: int, train_loss: float) -> EpochResult:
        data, task = self.data, self.trial.task
        main = self._evaluate(EVALUATION)
        # Before any metric: a NaN logit still has an argmax, and would score like an honest answer.
        if not math.isfinite(main.loss):
            raise DivergedError(
                f"{self.trial.key}: the evaluation loss became {main.loss} at step {step}; a "
                "learning "
                f"rate below {self.trial.learning_rate:g} may help"
            )
        values = {
            metric.value: score(metric, main.predictions, data.evaluation.labels, self.outputs)
            for metric in (task.metric, *task.companions)
        }
        for name, rows in data.companions.items():
            values[name] = score(
                task.metric, self._evaluate(name).predictions, rows.labels, self.outputs
            )
        last = number == len(self.points)
        return EpochResult(
            evaluation=number,
            evaluations=len(self.points),
            epoch=number / self.trial.recipe.evaluations_per_epoch,
            step=step,
            steps=self.points[-1],
            quality=check_quality(values[task.metric.value], task.metric),
            metrics=values,
            train_loss=train_loss,
            eval_loss=main.loss,
            train_seconds=self.train_seconds,
            examples_per_second=seen / self.train_seconds,
            peak_memory_mb=self.memory.mib(),
            trainable_parameters=self.trainable_parameters,
            micro_batch_size=self.micro_batch,
            precision=self.precision.value,
            chance=data.chance,
            batches=self.runner.how,
            prefix=self.runner.prefix,
            notes=tuple(self.notes),
            predictions=tuple(main.predictions.tolist()) if last else None,
        )

    @torch.inference_mode()
    def _evaluate(self, split: str) -> _Evaluation:
        """Predict every row; batches go by length, so that little is padding."""
        self.runner.train(False)
        rows = self.data.splits()[split]
        by_length = np.argsort(rows.lengths, kind="stable")
        logits = torch.empty((len(rows), self.outputs), device=self.device)
        start = 0
        while start < len(rows):
            part = by_length[start : start + self.eval_batch]
            out = self._tried(split, part)
            if out is None:
                self.eval_batch = self._halve(self.eval_batch, "evaluation batches")
                release()
                continue
            logits[torch.from_numpy(out[1]).to(self.device)] = out[0]
            start += len(part)
        loss = float(self._loss(logits, self.labels[split])) / len(rows)
        predictions = logits.squeeze(-1) if self.is_regression else logits.argmax(-1)
        return _Evaluation(predictions.cpu().numpy(), loss)

    def _tried(self, split: str, part: IndexArray) -> tuple[Tensor, IndexArray] | None:
        """The rows' logits, None where memory ran out."""
        try:
            return self.runner.logits(split, part)
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
        return None


def _adamw(trained: Sequence[Tensor], trial: TrialSpec) -> torch.optim.AdamW:
    """AdamW with bias correction over the trained parameters; matrices decay, biases and norms do
    not.

    Without bias correction few-sample fine-tuning is unstable (Mosbach et al. 2020; Zhang et al.
    2020).
    """
    groups = [
        {
            "params": [p for p in trained if p.ndim >= 2],
            "weight_decay": trial.recipe.weight_decay,
        },
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=trial.learning_rate, fused=True
    )


def _clip(optimizer: torch.optim.AdamW, trained: Sequence[Tensor], max_norm: float) -> None:
    """Let the next fused step clip the gradients to this global norm, as `clip_grad_norm_` does.

    The step divides by `grad_scale` as it reads the gradients (torch's interface for GradScaler):
    no pass of its own over them, and on a GPU no waiting for the norm.
    """
    norm = nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
    optimizer.grad_scale = ((norm + 1e-6) / max_norm).clamp(min=1.0)  # type: ignore[attr-defined]


def _is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """CUDA has its own class; the CPU allocator raises a plain RuntimeError."""
    return isinstance(
        error, MemoryError | torch.OutOfMemoryError
    ) or "can't allocate memory" in str(error)
