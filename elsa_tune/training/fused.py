"""Several trials of one depth trained as one: their weights side by side, each step's matrix
products in one batch.

It must not know why trials train together, or Ray. At batch 16 a large GPU waits for launches most
of the time; so many trials at once launch as much as one. Each member has its own learning rate,
seed, order of examples, gradient norm and optimiser state; frozen parameters and the kept hidden
states behind them are there once. With dropout off a member computes what it would compute alone,
to rounding; with dropout its masks depend on the company too.
Letters in shape comments: G members, B rows of a batch, P tokens of the longest packed batch, W of
the longest row, D trained numbers of one member, C outputs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from elsa_tune.errors import DivergedError, RunError
from elsa_tune.specs.trial import EpochResult, PrefixCache, TrialSpec
from elsa_tune.training.course import (
    Choice,
    IndexArray,
    adamw,
    check_training_loss,
    clip_in_step,
    decays,
    epoch_result,
    evaluation_steps,
    own_randomness,
    prepare_runner,
    reproducible,
    resolve_precision,
    schedule_for,
    shuffled_batches,
)
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.forward.packed import AttentionGroup, PackedBatch, pack, padded_square
from elsa_tune.training.forward.packed_model import Tokens
from elsa_tune.training.forward.runner import Packed, Runner
from elsa_tune.training.memory import PeakMemory, release
from elsa_tune.training.objective import Objective

Event = EpochResult | DivergedError


class NotFusableError(RunError):
    """These trials cannot train as one; each can alone."""


@dataclass
class _Member:
    """A trial of the group. decaying, plain: its trained numbers, one flat tensor with weight decay
    and one without; rows of the group's own memory.
    """

    trial: TrialSpec
    decaying: nn.Parameter
    plain: nn.Parameter
    notes: list[str]
    batches: Iterator[IndexArray]
    choice: Choice
    train_seconds: float = 0.0
    optimizer: torch.optim.AdamW = field(init=False)
    schedule: torch.optim.lr_scheduler.LRScheduler = field(init=False)


def train_fused(
    trials: Sequence[TrialSpec],
    data: TaskData,
    *,
    device: str,
    depths: Sequence[int] = (),
    wanted: Callable[[TrialSpec], bool] = lambda trial: True,
) -> Iterator[tuple[TrialSpec, Event]]:
    """Train them together; after each evaluation yield every member's result, in their order.

    trials: of one model, task, recipe and depth. wanted: asked of each member before training goes
    on; one that is not wanted leaves the group. A member that diverges yields its DivergedError and
    leaves. Seconds and memory of the group are shared out equally. Raises NotFusableError before
    training where the model does not run on packed tokens or its frozen layers' output is not kept;
    torch's out-of-memory errors pass.
    """
    where = torch.device(device)
    with reproducible(trials[0].seed, where):
        group = _Group(trials, data, where, depths)
        try:
            yield from group.evaluations(wanted)
        finally:
            group.close()


class _Group:
    """Trials under way together."""

    def __init__(
        self,
        trials: Sequence[TrialSpec],
        data: TaskData,
        device: torch.device,
        depths: Sequence[int],
    ) -> None:
        first = trials[0]
        self.data, self.device, self.recipe = data, device, first.recipe
        self.memory = PeakMemory(device)
        self.precision = resolve_precision(first.recipe.precision, device.type)
        self.objective = Objective(first.task, data, device)
        self.points = evaluation_steps(first.recipe, len(data.train))
        self.members: list[_Member] = []
        self.runner: Packed = self._load(trials, depths)
        self._bind()

    # ---- weights ----

    def _load(self, trials: Sequence[TrialSpec], depths: Sequence[int]) -> Packed:
        """Every member's own weights; the runner that computes for all is the first one's."""
        kept = self._runner(trials[0], depths)
        reason = _reason_against(kept)
        if reason is not None:
            kept.close()
            raise NotFusableError(f"trained one by one: {reason}")
        assert isinstance(kept, Packed)
        named = [(name, p) for name, p in kept.model.named_parameters() if p.requires_grad]
        # With weight decay first, so that each kind is one block.
        self.order = sorted(range(len(named)), key=lambda place: not decays(named[place][1]))
        self.names = [named[place][0] for place in self.order]
        self.shapes = [named[place][1].shape for place in self.order]
        self.decaying = sum(decays(p) for _, p in named)
        self.members.append(self._member(trials[0], kept))
        for trial in trials[1:]:
            # Only its own weights are wanted: it needs no hidden states.
            without = dataclasses.replace(trial.recipe, prefix_cache=PrefixCache.NONE)
            other = self._runner(dataclasses.replace(trial, recipe=without), ())
            self.members.append(self._member(trial, other))
            other.close()
        for member in self.members:
            member.notes += kept.notes
        return kept

    def _runner(self, trial: TrialSpec, depths: Sequence[int]) -> Runner:
        runner, self.trainable_parameters = prepare_runner(
            trial, self.data, self.objective, self.device, depths
        )
        return runner

    def _member(self, trial: TrialSpec, runner: Runner) -> _Member:
        trained = [p.detach().reshape(-1) for p in runner.model.parameters() if p.requires_grad]
        flat = [trained[place] for place in self.order]
        member = _Member(
            trial=trial,
            decaying=nn.Parameter(_joined(flat[: self.decaying], self.device)),
            plain=nn.Parameter(_joined(flat[self.decaying :], self.device)),
            notes=list(self.data.notes),
            batches=shuffled_batches(trial, len(self.data.train)),
            choice=Choice(trial.recipe.selection),
        )
        member.optimizer = adamw([member.decaying], [member.plain], trial)
        member.schedule = schedule_for(member.optimizer, trial.recipe, self.points[-1])
        return member

    def _bind(self) -> None:
        """Lay the members' numbers and gradients out as rows [G, D], and every parameter [G, ...]
        as a part of the first: the optimisers see rows, the model sees parameters.
        """
        self.parameters: dict[str, Tensor] = {}
        self.gradients = torch.empty(0)  # the old ones are let go before the new ones are made
        flat = torch.stack([torch.cat([m.decaying.data, m.plain.data]) for m in self.members])
        self.gradients = torch.zeros_like(flat)
        divide = self.members[0].decaying.numel()
        for member, row, gradient in zip(self.members, flat, self.gradients, strict=True):
            for own, part in (
                (member.decaying, slice(0, divide)),
                (member.plain, slice(divide, None)),
            ):
                own.data, own.grad = row[part], gradient[part]
        start = 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + shape.numel()
            self.parameters[name] = flat[:, start:stop].unflatten(1, shape).requires_grad_()
            start = stop

    def _keep(self, members: list[_Member]) -> None:
        if len(members) < len(self.members):
            self.members = members
            if members:
                self._bind()

    def close(self) -> None:
        """Drop everything that holds memory."""
        self.runner.close()
        self.members.clear()
        self.parameters.clear()
        del self.gradients
        release()

    # ---- training ----

    def evaluations(self, wanted: Callable[[TrialSpec], bool]) -> Iterator[tuple[TrialSpec, Event]]:
        """Train from evaluation to evaluation, as long as anybody is left."""
        step = seen = 0
        for number, point in enumerate(self.points, start=1):
            self._keep([member for member in self.members if wanted(member.trial)])
            if not self.members:
                return
            started = time.perf_counter()
            self.runner.train(True)
            losses = torch.zeros(len(self.members), device=self.device)
            examples = 0
            while step < point:
                batches = [next(member.batches) for member in self.members]
                losses += self._step(batches)
                examples += len(batches[0])
                step += 1
            means = (losses / examples).tolist()  # the one synchronisation of this stretch
            seconds = time.perf_counter() - started
            seen += examples
            for member in self.members:
                member.train_seconds += seconds / len(self.members)
            events = self._judged(number, step, seen, means)
            with own_randomness(self.device):
                for member, event in events:
                    yield member.trial, event
            self._keep([member for member, event in events if isinstance(event, EpochResult)])

    def _step(self, batches: Sequence[IndexArray]) -> Tensor:
        """One optimiser step of every member; returns their sums of losses [G]."""
        packed = [
            pack(self.data.train, batch, torch.device("cpu"), one_group=True) for batch in batches
        ]
        inputs = self._inputs("train", packed)
        labels = [self.objective.labels("train", one.chosen) for one in packed]
        inputs["labels"] = torch.stack(labels)

        def loss_of(parameters: dict[str, Tensor], own: dict[str, Tensor]) -> Tensor:
            logits = self._logits(parameters, own)
            return self.objective.loss(logits.float(), own["labels"])

        # Of each member's own numbers only: its dropout too is drawn for itself.
        sums = vmap(loss_of, randomness="different")(self.parameters, inputs)
        leaves = list(self.parameters.values())
        # A parameter that takes no part gets zeros: it only decays, and nothing reads it.
        gradients = torch.autograd.grad(
            sums.sum() / len(batches[0]), leaves, allow_unused=True, materialize_grads=True
        )
        torch.cat([one.flatten(1) for one in gradients], dim=1, out=self.gradients)
        norms = self.gradients.norm(dim=1)
        for member, norm in zip(self.members, norms, strict=True):
            clip_in_step(member.optimizer, norm, self.recipe.max_grad_norm)
            member.optimizer.step()
            member.schedule.step()
        return sums.detach()

    def _inputs(self, split: str, packed: Sequence[PackedBatch]) -> dict[str, Tensor]:
        """What the model reads of these batches, side by side; filled up to one shape by tokens
        that no row attends to and nothing reads.
        """
        tokens = max(len(one.source) for one in packed)
        width = max(one.groups[0].width for one in packed)
        source = np.stack([_filled(one.source, tokens) for one in packed])
        squares = [
            padded_square(
                one.starts.numpy(),
                np.diff(one.starts.numpy(), append=len(one.source)),
                width,
            )
            for one in packed
        ]
        inputs = {
            "position": np.stack([_filled(one.position.numpy(), tokens) for one in packed]),
            "starts": np.stack([one.starts.numpy() for one in packed]),
            "index": np.stack([index for index, _, _ in squares]),
            "bias": np.stack([bias for _, bias, _ in squares]),
            "real": np.stack([_filled(real, tokens) for _, _, real in squares]),
        }
        on_device = {
            name: torch.from_numpy(value).to(self.device, non_blocking=True)
            for name, value in inputs.items()
        }
        given = self.runner.hidden(split, source)
        if given is not None:
            return {**on_device, "given": given}
        words = self.runner.tokens(self.data.splits()[split], source, on_device["position"])
        on_device["ids"] = words.ids
        if words.types is not None:
            on_device["types"] = words.types
        return on_device

    def _logits(self, parameters: dict[str, Tensor], own: dict[str, Tensor]) -> Tensor:
        """Logits [B, C] of one member; under `vmap` of all of them."""
        rows, tokens = len(own["starts"]), len(own["position"])
        batch = PackedBatch(
            chosen=np.empty(rows, dtype=np.int64),
            source=np.empty(0, dtype=np.int64),
            position=own["position"],
            starts=own["starts"],
            groups=(
                AttentionGroup(
                    first=0,
                    last=rows,
                    width=own["bias"].shape[-1],
                    start=0,
                    stop=tokens,
                    index=own["index"],
                    bias=own["bias"],
                    real=own["real"],
                ),
            ),
            by_torch=True,
        )
        given, words = own.get("given"), None
        if given is None:
            words = Tokens(ids=own["ids"], positions=own["position"], types=own.get("types"))
        # On a CPU vmap knows no other attention.
        kernels = sdpa_kernel(SDPBackend.MATH) if self.device.type == "cpu" else nullcontext()
        autocast = torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.precision.value == "bf16"
        )
        with autocast, kernels:
            return functional_call(self.runner.model, parameters, (batch, words, given))  # type: ignore[no-any-return]  # untyped

    # ---- evaluation ----

    def _judged(
        self, number: int, step: int, seen: int, means: Sequence[float]
    ) -> list[tuple[_Member, Event]]:
        logits = {split: self._evaluate(split) for split in self.objective.splits}
        events: list[tuple[_Member, Event]] = []
        for place, (member, train_loss) in enumerate(zip(self.members, means, strict=True)):
            own = {split: values[place] for split, values in logits.items()}
            try:
                check_training_loss(member.trial, train_loss, step, self.points[-1])
                found = self.objective.assess(member.trial, step, own)
            except DivergedError as error:
                events.append((member, error))
                continue
            result = epoch_result(
                member.trial,
                self.data,
                found,
                member.choice,
                number,
                self.points,
                train_loss=train_loss,
                train_seconds=member.train_seconds,
                examples_per_second=seen / member.train_seconds,
                peak_memory_mb=self.memory.mib() / len(self.members),
                trainable_parameters=self.trainable_parameters,
                micro_batch_size=self.recipe.batch_size,
                precision=self.precision.value,
                batches="fused",
                prefix=self.runner.prefix,
                notes=tuple(member.notes),
            )
            events.append((member, result))
        return events

    @torch.inference_mode()
    def _evaluate(self, split: str) -> Tensor:
        """Logits [G, E, C] of every row; batches go by length."""
        self.runner.train(False)
        rows = self.data.splits()[split]
        by_length = np.argsort(rows.lengths, kind="stable")
        shape = (len(self.members), len(rows), self.objective.outputs)
        logits = torch.empty(shape, device=self.device)
        size = max(1, self.recipe.eval_batch_size // len(self.members))
        for start in range(0, len(rows), size):
            part = by_length[start : start + size]
            batch = pack(rows, part, torch.device("cpu"), one_group=True)
            own = {name: value[0] for name, value in self._inputs(split, [batch]).items()}
            found = vmap(self._logits, in_dims=(0, None))(self.parameters, own)
            logits[:, torch.from_numpy(batch.chosen).to(self.device)] = found.float()
        return logits


def _filled(values: np.ndarray, count: int) -> np.ndarray:
    """With zeros behind, up to `count`."""
    return np.concatenate([values, np.zeros(count - len(values), dtype=values.dtype)])


def _joined(parts: Sequence[Tensor], device: torch.device) -> Tensor:
    return torch.cat(list(parts)) if parts else torch.empty(0, device=device)


def _reason_against(runner: Runner) -> str | None:
    """Why such trials cannot train as one; None where they can."""
    if not isinstance(runner, Packed):
        return "; ".join(runner.notes)
    if runner.prefix == "recomputed":
        return "; ".join(runner.notes) or "the frozen layers' output is not kept"
    table = getattr(runner.model.embeddings, "word_embeddings", None)
    if table is not None and table.weight.requires_grad and table.padding_idx is not None:
        # Its row gets no gradient; torch's rule for batched tables knows only the first one's.
        return "the texts contain the padding token"
    return None
