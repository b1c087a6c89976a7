"""The step `first` of bench/gpu.sh: is the host or the GPU the limit, and what costs a start?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gpu_bench
import torch
from gpu_bench import Bench
from torch import nn

from elsa_tune.training.machine import freeze_gc

# Rows of a packed batch (of 16, and of 32), and (outputs, inputs) of a layer's matrix products.
TOKENS = (1024, 1031, 2048)
PRODUCTS = ((768, 768), (2304, 768), (3072, 768), (768, 3072))


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
