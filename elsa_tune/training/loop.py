"""One trial: the generator that fine-tunes a model frozen to one depth and yields each evaluation.

Letters in shape comments: B batch, T tokens, C classes, E evaluation examples.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, get_linear_schedule_with_warmup

from elsa_tune.errors import DivergedError, RunError, SpaceError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.trial import EvaluationResult, Recipe, Selection, TrialSpec, chosen_evaluation
from elsa_tune.training import machine
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.trainable import Trainable
from elsa_tune.training.checkpoints import TrialCheckpoint
from elsa_tune.training.continuing import Continuing
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.data.tokens import HOLDOUT, IndexArray, TaskData
from elsa_tune.training.forward.equality import Setting
from elsa_tune.training.forward.runner import Runner, runner_for
from elsa_tune.training.model.encoder import load_classifier, own_what_trains
from elsa_tune.training.model.parts import layer_list
from elsa_tune.training.model.pooling import pool
from elsa_tune.training.objective import Objective
from elsa_tune.training.progress import Progress, RunningTrial, TrialOrigin
from elsa_tune.words import rate_text

# Where some operations have no deterministic form; rows of the pass that shows if a step has one.
_TRIED_ON = ("cuda",)
_FEW = 4

# MiniLM's full model on 1,000 examples loses 2 (SST-2) and 4 points (STS-B) with 126 steps against
# 252, and 22 and 45 with 63; 504 add 1 to 252 (SST-2, one seed each).
FEW_STEPS = 150

# Takes what trained, by name, as it stands; it must copy what it keeps.
Keep = Callable[[Mapping[str, Tensor]], None]
# Takes the optimiser steps done, and those planned.
OnStep = Callable[[int, int], None]


def train(  # noqa: PLR0913  # each is a matter of its own
    trial: TrialSpec,
    data: TaskData | None = None,
    *,
    device: str | None = None,
    candidates: Sequence[Candidate] = (),
    keep: Keep | None = None,
    on_step: OnStep | None = None,
    checkpoint: TrialCheckpoint | None = None,
) -> Generator[EvaluationResult]:
    """Fine-tune, and yield an EvaluationResult at every planned evaluation.

    data: the tokenised task, by default read here. device: `cpu` or `cuda`, by default a GPU where
    there is one. candidates: all of the search, whose frozen prefixes are kept in the same
    pass over the model as this trial's. keep: called after every evaluation that may give
    the trial's quality, at last with the one that does. on_step: called after every optimiser step.
    checkpoint: written while the trial runs; where it has one already, the trial continues there,
    and first yields what it found before, marked as restored. It has no room for what `keep` was
    given, so only one of the two may be given.
    The numbers depend on the trial alone (on a GPU also on how it batches), not on what ran before
    in the process: weights, head, order of examples and dropout follow `trial.seed`.
    Raises DivergedError when a loss or metric stops being finite, RunError when even one example at
    a time does not fit in memory, and UsageErrors for data or models that do not fit the task.
    """
    if device is None:
        has_gpu = torch.cuda.is_available()
        device = "cuda" if has_gpu else "cpu"
    if keep is not None and checkpoint is not None:
        raise ValueError("a trial whose model is kept has no checkpoint")
    if data is None:
        data = prepare(trial.model, trial.task, trial.recipe)
    where = machine.torch_device(device)
    # Closed also where a scheduler drops the generator: the next trial starts with free memory.
    with (
        machine.reproducible(trial.seed, where, trial.recipe.precision),
        contextlib.closing(_Run(trial, data, where, candidates, keep)) as run,
    ):
        if checkpoint is not None:
            run.take_up(checkpoint)
        yield from run.evaluations(on_step)


def steps(trial: TrialSpec, data: TaskData, *, device: str) -> Generator[IndexArray]:
    """Train as `train` does, without evaluations and without end; yield each step's rows."""
    where = machine.torch_device(device)
    with (
        machine.reproducible(trial.seed, where, trial.recipe.precision),
        contextlib.closing(_Run(trial, data, where)) as run,
    ):
        run.runner.train(True)
        for batch in shuffled_batches(trial, len(data.train)):
            run.step(batch)
            yield batch


class _Run:
    """A trial under way: the model, its optimiser, and how far it has come."""

    def __init__(
        self,
        trial: TrialSpec,
        data: TaskData,
        device: torch.device,
        candidates: Sequence[Candidate] = (),
        keep: Keep | None = None,
    ) -> None:
        recipe = trial.recipe
        self.trial = trial
        self.data = data
        self.device = device
        if device.type == "cpu":
            machine.keep_freed_memory()
        self.memory = machine.PeakMemory(device)
        self.precision = machine.resolve_precision(recipe.precision, device.type)
        self.objective = Objective(trial, data, device)
        self.keep = keep
        # What trains, by name, where somebody keeps it.
        self.named: dict[str, Tensor] = {}
        build = partial(self._build_runner, candidates)
        runner = machine.within_memory(build)
        if runner is None:
            raise RunError(
                f"{trial.key}: out of memory before the first step; freeze more layers, or use a "
                "machine with more memory"
            )
        self.runner = runner
        named = self.runner.model.named_parameters()
        trained = {name: parameter for name, parameter in named if parameter.requires_grad}
        self.trained = list(trained.values())
        self.optimizer = adamw(trained, trial)
        self.points = evaluation_steps(recipe, len(data.train))
        self.steps = self.points[-1]
        warmup = warmup_steps(recipe, self.steps)
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, warmup, self.steps)
        self.continuing: Continuing | None = None  # where it has a checkpoint
        self.progress = Progress(
            loss_sum=torch.zeros((), device=device),
            micro_batch=recipe.batch_size,
            eval_batch=recipe.eval_batch_size,
            notes=[*data.notes, *self.runner.notes],
        )
        if device.type in _TRIED_ON:
            note = machine.try_deterministic(self._try_gradients_of_few_rows, device)
            if note is not None:
                self.progress.notes.append(note)

    def _try_gradients_of_few_rows(self) -> None:
        rows = min(_FEW, len(self.data.train))
        self.runner.train(True)
        try:
            self._gradients(np.arange(rows))
        finally:
            self.optimizer.zero_grad(set_to_none=True)

    def _build_runner(self, candidates: Sequence[Candidate]) -> Runner:
        model, trainable = self._adapted_model()
        self._note_what_trains(model)
        layers = len(layer_list(model))
        setting = Setting(
            trainable=trainable,
            recipe=self.trial.recipe,
            precision=self.precision.value,
            device=self.device,
            name=f"{self.trial.model.name} on {self.trial.task.name}",
            others=methods.first_trained_layers(candidates, layers),
            keeps_words=self.keep is not None,
        )
        # Whether it tests, builds or reads must not show in what the trial draws afterwards.
        with machine.preserve_rng(self.device), machine.unordered_sums_are_no_news():
            return runner_for(model, self.data, setting)

    def _adapted_model(self) -> tuple[PreTrainedModel, Trainable]:
        """Load the model onto the device; return it as the candidate adapts it."""
        trial = self.trial
        model = load_classifier(trial.model, self.objective.outputs, trial.seed, shared=True)
        trainable = methods.apply(model, trial.candidate, trial.seed)
        own_what_trains(model)
        model.to(self.device)  # type: ignore[arg-type]  # its decorator hides nn.Module's signature
        pool(model, trial.recipe.pooling)
        return model, trainable

    def _note_what_trains(self, model: PreTrainedModel) -> None:
        """Count the parameters that train, and remember them by name where somebody keeps them.

        Before a runner is built: of the word table it keeps only the rows that the data use.
        """
        self.trainable_parameters = 0
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            self.trainable_parameters += parameter.numel()
            if self.keep is not None:
                # By identity: whatever runs the model moves its modules, and trains these.
                self.named[name] = parameter

    def close(self) -> None:
        """Drop everything that holds memory."""
        self.optimizer.zero_grad(set_to_none=True)
        self.runner.close()
        del self.runner, self.optimizer, self.schedule, self.trained, self.named, self.continuing
        machine.release()

    def take_up(self, checkpoint: TrialCheckpoint) -> None:
        """Continue where a checkpoint was written, if one fits, and write further ones."""
        self.continuing = Continuing(
            running=self._checkpointed_state(),
            origin=TrialOrigin.of(self.trial, self.data, self.runner, checkpoint.version),
            checkpoint=checkpoint,
            steps=self.steps,
        )
        self.continuing.take_up()

    @property
    def _checkpoint_is_due(self) -> bool:
        return self.continuing is not None and self.continuing.is_due

    def _save(self) -> None:
        assert self.continuing is not None  # or nothing is due
        self.continuing.save()

    def _checkpointed_state(self) -> RunningTrial:
        return RunningTrial(
            progress=self.progress,
            model=self.runner.model,
            optimizer=self.optimizer,
            schedule=self.schedule,
            device=self.device,
            memory=self.memory,
        )

    def evaluations(self, on_step: OnStep | None = None) -> Iterator[EvaluationResult]:
        """Train from evaluation to evaluation, and first yield those of earlier attempts."""
        progress = self.progress
        for result in progress.results:
            yield from self._yield_apart_from_rng(replace(result, restored=True))
        every_batch = shuffled_batches(self.trial, len(self.data.train))
        batches = itertools.islice(every_batch, progress.step, None)
        for point in self.points[len(progress.results) :]:
            self.runner.train(True)
            train_loss = self._train_until(point, batches, on_step)
            if not math.isfinite(train_loss):
                rate = rate_text(self.trial.learning_rate)
                raise DivergedError(
                    f"{self.trial.key}: the training loss became {train_loss} by step {point} of "
                    f"{self.steps}; a learning rate below {rate} may help"
                )
            result = self._result(train_loss)
            progress.results.append(result)
            yield from self._yield_apart_from_rng(result)
            # Whoever took it has recorded it: what a checkpoint has is never news.
            is_last = len(progress.results) == len(self.points)
            if self._checkpoint_is_due and not is_last:
                self._save()

    def _yield_apart_from_rng(self, result: EvaluationResult) -> Iterator[EvaluationResult]:
        with machine.preserve_rng(self.device):  # whoever takes it may draw random numbers too
            yield result

    def _train_until(
        self, point: int, batches: Iterator[IndexArray], on_step: OnStep | None
    ) -> float:
        """Take the optimiser steps up to this one; return the loss since the last evaluation.

        Checkpoints that are due meanwhile are written.
        """
        progress = self.progress
        started = time.perf_counter()
        while progress.step < point:
            batch = next(batches)
            progress.loss_sum += self.step(batch)
            progress.examples += len(batch)
            progress.step += 1
            if on_step is not None:
                on_step(progress.step, self.steps)
            if self._checkpoint_is_due:
                float(progress.loss_sum)  # waits for the GPU, whose time this still is
                progress.train_seconds += time.perf_counter() - started
                self._save()
                started = time.perf_counter()
        # The one GPU-CPU synchronisation of this stretch.
        train_loss = float(progress.loss_sum) / progress.examples
        progress.train_seconds += time.perf_counter() - started
        progress.seen += progress.examples
        progress.examples = 0
        progress.loss_sum = torch.zeros((), device=self.device)
        return train_loss

    def step(self, batch: IndexArray) -> Tensor:
        """Take an optimiser step on a batch; return its losses' sum, a scalar on the device."""
        loss_sum = self._gradients(batch)
        # No activation is left here: smaller micro-batches would make no room for AdamW's state.
        if machine.within_memory(self._descend) is None:
            raise RunError(
                f"{self.trial.key}: out of memory in the optimiser's step; freeze more layers, or "
                "use a machine with more memory"
            )
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss_sum

    def _gradients(self, batch: IndexArray) -> Tensor:
        """Accumulate the gradient of the batch's mean loss, in passes that memory has room for."""
        accumulate = partial(self._accumulate, batch)
        while True:
            total = machine.within_memory(accumulate)
            if total is not None:
                return total
            self.progress.micro_batch = self._halve(self.progress.micro_batch, "micro-batches")
            self.optimizer.zero_grad(set_to_none=True)
            machine.release()

    def _accumulate(self, batch: IndexArray) -> Tensor:
        total = torch.zeros((), device=self.device)
        for part in self.runner.parts("train", batch, self.progress.micro_batch):
            logits, rows = self.runner.logits("train", part)
            labels = self.objective.labels("train", rows)
            loss = self.objective.loss(logits, labels)
            # A sum over the part by the size of the whole: parts add up to the batch's mean.
            share_of_mean = loss / len(batch)
            share_of_mean.backward()
            total += loss.detach()
        return total

    def _descend(self) -> Tensor:
        """Clip and step; return the gradient's norm (a scalar on the device)."""
        gradients = [p.grad for p in self.trained if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        clip_in_step(self.optimizer, norm, self.trial.recipe.max_grad_norm)
        self.optimizer.step()
        return norm

    def _halve(self, size: int, what: str) -> int:
        recipe = self.trial.recipe
        if size == 1:
            raise RunError(
                f"{self.trial.key}: out of memory with one example at a time; lower max_length "
                f"({recipe.max_length}), freeze more layers, or use a machine with more memory"
            )
        half = math.ceil(size / 2)
        self.progress.notes.append(
            f"out of memory: {what} halved to {half}; the effective batch stays {recipe.batch_size}"
        )
        return half

    def _result(self, train_loss: float) -> EvaluationResult:
        """Evaluate. train_loss: the mean since the last evaluation."""
        progress = self.progress
        number = len(progress.results) + 1
        step = progress.step
        is_last = number == len(self.points)
        logits = {}
        for split in self.data.splits():
            if split != "train":
                logits[split] = self._evaluate(split)
        metrics, eval_loss, predictions = self.objective.assess(step, logits)
        quality = metrics[self.trial.task.metric.value]
        holdout = metrics.pop(HOLDOUT, None)
        recipe = self.trial.recipe
        score = quality if holdout is None else holdout
        progress.scores.append(score)
        chosen = chosen_evaluation(recipe.selection, progress.scores)
        if chosen == number - 1:
            progress.predictions = predictions
            may_count = is_last or recipe.selection is not Selection.LAST
            if self.keep is not None and may_count:
                self.keep(self.named)
        chosen_predictions = None
        if is_last:
            chosen_predictions = tuple(progress.predictions.tolist())
        return EvaluationResult(
            evaluation=number,
            evaluations=len(self.points),
            epoch=number / recipe.evaluations_per_epoch,
            step=step,
            steps=self.steps,
            quality=quality,
            holdout_quality=holdout,
            metrics=metrics,
            eval_loss=eval_loss,
            chance=self.data.chance,
            predictions=chosen_predictions,
            train_loss=train_loss,
            train_seconds=progress.train_seconds,
            examples_per_second=progress.seen / progress.train_seconds,
            peak_memory_mb=max(progress.peak_mib, self.memory.mib()),
            trainable_parameters=self.trainable_parameters,
            micro_batch_size=progress.micro_batch,
            precision=self.precision.value,
            batches=self.runner.model.how,
            prefix=self.runner.prefix,
            notes=tuple(progress.notes),
        )

    @torch.inference_mode()
    def _evaluate(self, split: str) -> Tensor:
        """Return logits [E, C] of every row; batches go by length, so that little is padding."""
        self.runner.train(False)
        rows = self.data.splits()[split]
        by_length = np.argsort(rows.lengths, kind="stable")
        shape = (len(rows), self.objective.outputs)
        logits = torch.empty(shape, device=self.device)
        start = 0
        while start < len(rows):
            part = by_length[start : start + self.progress.eval_batch]
            compute = partial(self.runner.logits, split, part)
            computed = machine.within_memory(compute)
            if computed is None:
                self.progress.eval_batch = self._halve(
                    self.progress.eval_batch, "evaluation batches"
                )
                machine.release()
                continue
            part_logits, numbers = computed
            logits[numbers] = part_logits
            start += len(part)
        return logits


def adamw(trained: Mapping[str, Tensor], trial: TrialSpec) -> torch.optim.AdamW:
    """Return AdamW with weight decay on matrices, not on biases and norms.

    trained: by name, for some biases have the shape of matrices (XLNet's, MPNet's of positions). As
    transformers' Trainer has it, whatever is called a bias is one.

    With bias correction, for without it few-sample fine-tuning is unstable (Mosbach et al. 2020;
    Zhang et al. 2020).
    """
    matrices = []
    others = []
    for name, parameter in trained.items():
        is_bias = "bias" in name.lower()
        if parameter.ndim >= 2 and not is_bias:
            matrices.append(parameter)
        else:
            others.append(parameter)
    groups = []
    if matrices:
        groups.append({"params": matrices, "weight_decay": trial.recipe.weight_decay})
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=trial.learning_rate, fused=True)


def clip_in_step(optimizer: torch.optim.AdamW, norm: Tensor, max_norm: float) -> None:
    """Let the next fused step clip gradients of this global norm, as `clip_grad_norm_` does.

    The step divides by `grad_scale` as it reads the gradients (torch's interface for GradScaler):
    no pass of its own over them, and on a GPU no waiting for the norm.
    """
    times_too_long = (norm + 1e-6) / max_norm
    optimizer.grad_scale = times_too_long.clamp(min=1.0)  # type: ignore[attr-defined]  # GradScaler's


def evaluation_steps(recipe: Recipe, train_size: int) -> tuple[int, ...]:
    """Return the optimiser steps (1-based) after which a trial is evaluated; the last ends it."""
    per_epoch = math.ceil(train_size / recipe.batch_size)
    parts = recipe.evaluations_per_epoch
    if parts > per_epoch:
        raise SpaceError(
            f"evaluations_per_epoch is {parts}, but {train_size} examples in batches of "
            f"{recipe.batch_size} make only {per_epoch} steps an epoch; lower it or the batch size"
        )
    points = []
    for epoch in range(recipe.epochs):
        for part in range(1, parts + 1):
            within_epoch = math.ceil(per_epoch * part / parts)
            points.append(epoch * per_epoch + within_epoch)
    return tuple(points)


def warmup_steps(recipe: Recipe, steps: int) -> int:
    """Return how many of a trial's optimiser steps are warm-up: never the last.

    The first has rate 0: without this a trial of one step would train nothing.
    """
    asked = math.ceil(recipe.warmup_ratio * steps)
    return min(asked, steps - 1)


def few_steps(recipe: Recipe, steps: int) -> str | None:
    """Return what to tell who plans trials of so few optimiser steps; None if they are enough."""
    if steps >= FEW_STEPS:
        return None
    per_epoch = steps // recipe.epochs
    epochs = math.ceil(FEW_STEPS / per_epoch)
    return (
        f"{steps} optimiser steps per trial are few: below about {FEW_STEPS} a full model still "
        f"gains points from more; set epochs={epochs}, or a batch_size below {recipe.batch_size}"
    )


def shuffled_batches(trial: TrialSpec, examples: int) -> Iterator[IndexArray]:
    """Yield batches of training examples' numbers, a fresh order each epoch, without end.

    By a generator of their own: the order is the same at every depth and whatever dropout draws.
    """
    generator = torch.Generator().manual_seed(trial.seed)
    while True:
        order = torch.randperm(examples, generator=generator)
        for batch in order.split(trial.recipe.batch_size):
            yield batch.numpy()
