"""The step `first` of bench/gpu.sh: is the host or the GPU the limit?

It also asks what a start costs, and what CUDA graphs would give.

What may break the process comes last: a capture that fails can leave CUDA unusable.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import gpu_bench
import numpy as np
import torch
from gpu_bench import Bench
from torch import Tensor, nn

from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.machine import CONTEXT_MIB, MIB, freeze_gc

NEEDS_GPU = "needs a GPU"
# Rows of a packed batch (of 16, and of 32), and (outputs, inputs) of a layer's matrix products.
TOKENS = (1024, 1031, 2048)
PRODUCTS = ((768, 768), (2304, 768), (3072, 768), (768, 3072))
# Steps after which a graph's parameters are compared with those of plain steps.
COMPARED_STEPS = 5


def first(bench: Bench) -> None:
    """Everything that decides what to build next, within a few minutes."""
    # Before anything else: to record a number asks the GPU's name, which begins a context.
    bench.record("new process", lambda: _new_process(bench))
    bench.record("versions", gpu_bench.versions)
    freeze_gc()  # as a search's worker does: else every trial's end looks through all of torch
    deepest = bench.sharing[-1]
    for which in ("first", "again", "third time"):
        bench.record(f"start N={deepest}, {which}", lambda: _start(bench, deepest))
    for frozen in bench.depths:
        bench.record(f"step N={frozen}", lambda n=frozen: _step(bench, n, 16))
    for frozen in bench.sharing:
        bench.record(f"step of 32 rows N={frozen}", lambda n=frozen: _step(bench, n, 32))
    bench.record("costs", lambda: _costs(bench))
    bench.record("memory beside torch", lambda: _beside_torch(bench))
    for frozen in bench.depths:
        bench.record(f"graph N={frozen}", lambda n=frozen: _graph(bench, n))


def _new_process(bench: Bench) -> dict[str, float]:
    """Return the seconds before the first trial of a process can begin.

    That is its imports, and CUDA's context. Where Ray ends a worker, the next one pays them anew.
    """
    started = time.perf_counter()
    torch.zeros(1, device=bench.device)
    bench.synchronise()
    context = time.perf_counter() - started
    return {"imports_s": round(bench.imports, 2), "context_s": round(context, 3)}


def _start(bench: Bench, frozen: int) -> dict[str, float]:
    """Return the seconds from a trial's start to its end, by part.

    The parts: until it is built, until its first step is done, and to its end. Every trial of a
    search pays them.
    """
    started = time.perf_counter()
    with gpu_bench.running(bench, frozen) as run:
        built = time.perf_counter()
        gpu_bench.steps_of(run)()
        bench.synchronise()
        stepped = time.perf_counter()
    closed = time.perf_counter()
    return {
        "built_s": round(built - started, 3),
        "first_step_s": round(stepped - started, 3),
        "closing_s": round(closed - stepped, 3),
    }


def _step(bench: Bench, frozen: int, batch_size: int) -> Iterator[dict[str, Any]]:
    """Yield a training step at this depth, by the clock and by kernel.

    pack_ms: the host's part of making the batch.
    """
    with gpu_bench.running(bench, frozen, batch_size=batch_size) as run:
        step, batches = gpu_bench.steps_of(run), gpu_bench.batches_of(run)
        how, prefix = run.runner.model.how, run.runner.prefix
        yield {"batches": how, "prefix": prefix, "notes": run.progress.notes}
        yield gpu_bench.clocked(bench, step)
        packing = gpu_bench.one_by_one(
            bench, lambda: run.runner.model.batch(run.data.train, next(batches))
        )
        yield {"pack_ms": packing["host_ms"]}
        yield gpu_bench.by_kernel(bench, step)


def _costs(bench: Bench) -> Iterator[dict[str, float]]:
    """Microseconds of the host's for a small launch, and of the GPU's for a layer's products."""
    few = torch.zeros(16, device=bench.device)
    launches = 10 if bench.tiny else 500

    def launch_all() -> None:
        for _ in range(launches):
            few.add_(1)

    host_ms = gpu_bench.one_by_one(bench, launch_all)["host_ms"]
    yield {"launch_us": round(host_ms / launches * 1e3, 2)}
    for tokens in TOKENS[:1] if bench.tiny else TOKENS:
        for outputs, inputs in PRODUCTS[:1] if bench.tiny else PRODUCTS:
            x = torch.randn(tokens, inputs, device=bench.device, dtype=torch.bfloat16)
            weight = torch.randn(outputs, inputs, device=bench.device, dtype=torch.bfloat16)
            # By the profiler: a launch would take the host longer.
            seen = gpu_bench.by_kernel(bench, lambda x=x, w=weight: nn.functional.linear(x, w))
            yield {f"{tokens} x {inputs} by {outputs}, us": round(seen["gpu_ms"] * 1e3, 1)}


# ---- what CUDA takes for a process ----


def _beside_torch(bench: Bench) -> Any:
    """MiB that another process takes of the GPU while it trains, and what of it torch knows."""
    if bench.device != "cuda":
        return NEEDS_GPU
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    free = torch.cuda.mem_get_info()[0]
    given = (theirs, bench.trial(0), bench.data(), bench.device)
    other = context.Process(target=_train_and_wait, args=given, daemon=True)
    other.start()
    theirs.close()  # so that its death ends what we read
    try:
        reserved = ours.recv()
        taken = free - torch.cuda.mem_get_info()[0]
    finally:
        other.kill()
        other.join()
    return {
        "taken_mib": round(taken / MIB),
        "reserved_mib": round(reserved / MIB),
        "beside_torch_mib": round((taken - reserved) / MIB),
        "assumed_mib": CONTEXT_MIB,
    }


def _train_and_wait(end: Connection, trial: TrialSpec, data: TaskData, device: str) -> None:
    """In a process of its own: a few steps, the bytes that torch has then, and no end."""
    training = loop.steps(trial, data, device=device)
    for _ in range(3):
        next(training)
    if device == "cuda":
        torch.cuda.synchronize()
    end.send(torch.cuda.memory_reserved())
    end.recv()


# ---- CUDA graphs ----


class FixedStep:
    """A trial's complete step on one batch on the device, as a CUDA graph can hold it.

    It is forwards, backwards, clipping and AdamW, with nothing copied from the host. AdamW's rate
    and count of steps are tensors; a graph would keep any other as it was.

    state: what a step changes, the trained parameters first.
    """

    def __init__(self, run: loop._Run, rows: np.ndarray) -> None:
        self._run, self._size = run, len(rows)
        self._batch = run.runner.model.batch(run.data.train, rows)
        self._labels = run.objective.labels("train", self._batch.rows)
        rate: Tensor | float = run.trial.learning_rate
        if on_gpu := run.device.type == "cuda":
            rate = torch.tensor(rate, device=run.device)
        groups = [
            {"params": group["params"], "weight_decay": group["weight_decay"]}
            for group in run.optimizer.param_groups
        ]
        self._adamw = torch.optim.AdamW(groups, lr=rate, fused=True, capturable=on_gpu)

    def __call__(self) -> None:
        run = self._run
        kept = run.runner.kept_states.hidden.get("train")
        given = None if kept is None else kept[self._batch.places].float()
        # Left within the step: autocast's copies of weights must not outlive a capture.
        with run.runner.setting.arithmetic():
            logits = run.runner.model(self._batch, given)
        (run.objective.loss(logits.float(), self._labels) / self._size).backward()
        norm = nn.utils.get_total_norm([p.grad for p in run.trained if p.grad is not None])
        loop.clip_in_step(self._adamw, norm, run.trial.recipe.max_grad_norm)
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)

    @property
    def state(self) -> list[Tensor]:
        kept = [value for one in self._adamw.state.values() for value in one.values()]
        return [*self._run.trained, *kept]


def _graph(bench: Bench, frozen: int) -> Iterator[dict[str, Any]]:
    """Yield the same step launched kernel by kernel and as one CUDA graph.

    Also whether both give the same parameters: with dropout, whose numbers a graph draws at each
    replay.
    """
    with gpu_bench.running(bench, frozen) as run:
        chosen = next(gpu_bench.batches_of(run))
        step = FixedStep(run, chosen)
        yield {"tokens": int(run.data.train.lengths[chosen].sum())}
        yield {"eager": gpu_bench.clocked(bench, step)}
        # Where not even plain steps repeat themselves, a graph cannot be blamed.
        yield {"eager again": _compared(step.state, len(run.trained), step, step)}
        if bench.device != "cuda":
            yield {"graph": NEEDS_GPU}
            return
        started = time.perf_counter()
        replay = _captured(step)
        yield {"capture_s": round(time.perf_counter() - started, 3)}
        yield {"replayed": gpu_bench.clocked(bench, replay)}
        yield {"replayed against eager": _compared(step.state, len(run.trained), step, replay)}


def _captured(step: Callable[[], None]) -> Callable[[], None]:
    """Return a function that launches the step's kernels as one graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    # Whatever is made at a first call must be there: nothing may be while capturing.
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _compared(
    state: Sequence[Tensor], parameters: int, one: Callable[[], object], other: Callable[[], object]
) -> dict[str, Any]:
    """How the parameters differ after a few steps of either, from the same state and random seed.

    state: what steps change; the first tensors of it are the parameters.
    """
    before = _copies(state)
    outcomes = []
    for step in (one, other):
        _put_back(state, before)
        torch.manual_seed(1)
        for _ in range(COMPARED_STEPS):
            step()
        outcomes.append(_copies(state[:parameters]))
    pairs = list(zip(*outcomes, strict=True))
    moved = zip(outcomes[0], before[:parameters], strict=True)
    return {
        "equal": all(torch.equal(a, b) for a, b in pairs),
        "largest_difference": max(float((a - b).abs().max()) for a, b in pairs),
        "largest_step": max(float((a - b).abs().max()) for a, b in moved),
    }


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


@torch.no_grad()
def _put_back(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Into the same memory: it is the one that a graph knows."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
