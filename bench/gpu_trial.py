"""The steps of bench/gpu.sh; each runs on a machine with torch and transformers alone.

    python bench/gpu_trial.py speed --out OUT [--data TASK.pickle] [--tiny] [--limit SECONDS]

Every step writes OUT/step_NAME.json anew after each thing it has measured, so that a limit or a
failure loses nothing, and begins nothing new near its limit. `--tiny` runs all of it on a CPU (or
with `--device cuda` on a GPU) with a model of toy size, which measures nothing and shows that the
steps work.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gpu_bench
import torch
from gpu_bench import Bench
from gpu_first import first
from gpu_graphs import graphs
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.trial import Precision, TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.machine import CONTEXT_MIB, MIB, freeze_gc, usable_cores
from elsa_tune.training.throughput import Division, measure

SEEDS = 5


def facts(bench: Bench) -> None:
    """Write what is here, which attention kernel torch chooses, and what a step is made of.

    A step's parts: launches, the GPU's time by kernel, and whether the host or the GPU is the
    limit.
    """
    bench.record("versions", gpu_bench.versions)
    if bench.device == "cuda":
        bench.record("attention chosen", _choices)
        bench.record("seconds of cuDNN's plans", _plans)
    for way, frozen in itertools.product(("packed", "padded"), bench.depths):
        bench.record(f"{way} N={frozen}", lambda way=way, n=frozen: _made_of(bench, way, n))


def _made_of(bench: Bench, way: str, frozen: int) -> Iterator[dict[str, Any]]:
    with gpu_bench.stepping(bench, frozen, way) as step:
        yield gpu_bench.one_by_one(bench, step)
        yield gpu_bench.by_kernel(bench, step)


def _shaped(rows: int, width: int, dtype: torch.dtype, masked: bool) -> dict[str, Any]:
    q, k, v = (
        torch.randn(rows, 12, width, 64, device="cuda", dtype=dtype, requires_grad=True)
        for _ in range(3)
    )
    mask = torch.zeros(rows, 1, 1, width, device="cuda", dtype=dtype) if masked else None
    return {"query": q, "key": k, "value": v, "attn_mask": mask}


def _choices() -> dict[str, str]:
    """By what a trial sets (it is strict, without cuDNN), and by what attention is asked."""
    found = {}
    yes_no = (True, False)
    for strict, cudnn, dtype, masked, dropout in itertools.product(
        yes_no, yes_no, (torch.bfloat16, torch.float32), yes_no, (0.0, 0.1)
    ):
        torch.use_deterministic_algorithms(strict)
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        chosen = torch._fused_sdp_choice(**_shaped(16, 128, dtype, masked), dropout_p=dropout)
        key = f"strict {strict}, cudnn {cudnn}, {dtype}, mask {masked}, dropout {dropout}"
        found[key] = SDPBackend(chosen).name
    torch.backends.cuda.enable_cudnn_sdp(True)
    return found


def _plans() -> list[float]:
    seconds = []
    for width in (72, 88, 104):
        given = _shaped(16, width, torch.bfloat16, True)
        started = time.perf_counter()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            scaled_dot_product_attention(**given).sum().backward()
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - started, 3))
    return seconds


def speed(bench: Bench) -> None:
    """Measure the milliseconds of a step by way and depth, beside Transformers' Trainer.

    Then what being strict costs, and what cuDNN's attention would give, which strict trials never
    use.
    """

    def timed(way: str, frozen: int) -> dict[str, Any]:
        with gpu_bench.stepping(bench, frozen, way) as step:
            return gpu_bench.clocked(bench, step)

    def with_cudnn(frozen: int) -> Iterator[dict[str, Any]]:
        with gpu_bench.cudnn_on(), gpu_bench.stepping(bench, frozen, "padded") as step:
            yield gpu_bench.clocked(bench, step)
            yield {"attention": gpu_bench.by_kernel(bench, step)["attention"]}

    ways = list(itertools.product(bench.depths, ("packed", "padded")))
    for frozen in bench.depths:
        bench.record(f"Trainer N={frozen}", lambda n=frozen: _trainers_milliseconds(bench, n))
    for frozen, way in ways:
        bench.record(f"{way} N={frozen}", lambda n=frozen, way=way: timed(way, n))
    with gpu_bench.not_strict():
        for frozen, way in ways:
            bench.record(f"{way}, not strict, N={frozen}", lambda n=frozen, w=way: timed(w, n))
        for frozen in bench.depths:
            bench.record(f"padded, cuDNN on, N={frozen}", lambda n=frozen: with_cudnn(n))


def _trainers_milliseconds(bench: Bench, frozen: int) -> dict[str, float]:
    """Its steps after the first ones, from one callback to the next."""
    from transformers import TrainerCallback

    skipped, counted = (1, 2) if bench.tiny else (20, 60)
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *given: Any, **named: Any) -> None:
            if len(ends) in (skipped - 1, skipped + counted - 1):
                bench.synchronise()
            ends.append(time.perf_counter())

    one = gpu_bench.trainer(bench, frozen, seed=1, epochs=1.0, steps=skipped + counted)
    one.add_callback(Clock())
    one.train()
    return {"mean_ms": round((ends[-1] - ends[skipped - 1]) / counted * 1e3, 3)}


def determinism(bench: Bench) -> None:
    """Compare the losses of a run, of the same again, and of one after a stopped trial.

    Are they equal to the bit? In strict mode, and where torch only warns.
    """
    data = bench.data(16 * 8, 64)
    notes: list[str] = []

    def losses(trial: TrialSpec) -> list[str]:
        results = list(loop.train(trial, data, device=bench.device))
        notes[:] = results[-1].notes
        return [value.hex() for r in results for value in (r.train_loss, r.eval_loss)]

    def equal(precision: Precision, frozen: int) -> dict[str, Any]:
        trial = bench.trial(frozen, precision=precision)
        first, second = losses(trial), losses(trial)
        stopped = loop.train(bench.trial(0), data, device=bench.device)
        next(stopped)
        stopped.close()
        third = losses(trial)
        equality = {"again": first == second, "after_a_stopped_trial": first == third}
        return {**equality, "notes": list(notes)}

    cases = list(itertools.product((Precision.AUTO, Precision.FP32), bench.depths[:2]))
    for precision, frozen in cases[-1:] if bench.tiny else cases:
        key = f"{precision.value} N={frozen}"
        bench.record(f"strict {key}", lambda p=precision, n=frozen: equal(p, n))
        with gpu_bench.not_strict():
            bench.record(f"warning {key}", lambda p=precision, n=frozen: equal(p, n))


def memory(bench: Bench) -> None:
    """Peak of a trial at each depth, what stays allocated, and halving under a small limit.

    Then what CUDA takes for each process beside that.
    """
    data = bench.data(16 * 4, 64)

    def last(frozen: int) -> Any:
        *_, result = loop.train(bench.trial(frozen), data, device=bench.device)
        return result

    for frozen in bench.depths:
        bench.record(f"peak_mb N={frozen}", lambda n=frozen: round(last(n).peak_memory_mb))
    if bench.device == "cpu":
        return
    bench.record("left_mb", lambda: round(torch.cuda.memory_allocated() / 2**20, 1))

    def limited(share: float) -> dict[str, Any]:
        total = torch.cuda.get_device_properties(0).total_memory
        allowed = bench.found["peak_mb N=0"] * share * 2**20
        torch.cuda.set_per_process_memory_fraction(allowed / total)
        try:
            result = last(0)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return {"micro_batch": result.micro_batch_size, "notes": list(result.notes)}

    for share in (1.2, 1.0, 0.9):
        bench.record(f"limited to {share} of the peak", lambda share=share: limited(share))
    bench.record("memory beside torch", lambda: _beside_torch(bench))


def _beside_torch(bench: Bench) -> dict[str, int]:
    """MiB that another process takes of the GPU while it trains, and what of it torch knows."""
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


def grid(bench: Bench) -> None:
    """Train 40 trials on RTE-shaped data, three epochs each, one after another.

    All run in this process; then the Trainer trains one at each depth.
    """
    freeze_gc()  # as a search's worker does: else every trial's end looks through all of torch
    data = bench.data()

    def whole(frozen: int, seed: int) -> dict[str, Any]:
        started = time.perf_counter()
        trial = replace(bench.trial(frozen, epochs=1 if bench.tiny else 3), seed=seed)
        depths = tuple(map(FreezeDepth.of, bench.grid))
        *_, result = loop.train(trial, data, device=bench.device, candidates=depths)
        seconds = time.perf_counter() - started
        found = {"seconds": round(seconds, 3), "training": round(result.train_seconds, 3)}
        return {**found, "batches": result.batches}

    def trainers(frozen: int) -> dict[str, float]:
        started = time.perf_counter()
        one = gpu_bench.trainer(bench, frozen, seed=1, epochs=1.0 if bench.tiny else 3.0)
        one.train()
        one.evaluate()
        return {"seconds": round(time.perf_counter() - started, 3)}

    for frozen, seed in itertools.product(bench.grid, range(1, 2 if bench.tiny else SEEDS + 1)):
        bench.record(f"N={frozen} s={seed}", lambda n=frozen, s=seed: whole(n, s))
    for frozen in bench.grid:
        bench.record(f"Trainer N={frozen}", lambda n=frozen: trainers(n))


def shares(bench: Bench) -> None:
    """Tokens a second of several trials on one GPU, each a process with a share of it."""

    def together(frozen: int, trials: int) -> dict[str, float]:
        division = Division(trials=trials, threads=max(1, usable_cores() // trials))
        seconds = 0.1 if bench.tiny else 6.0
        training = (bench.trial(frozen), bench.data())
        [found] = measure([training], division, bench.device, seconds)
        tokens, peak = round(found.tokens_per_second), round(found.peak_memory_mb)
        return {"tokens_per_second": tokens, "peak_mb": peak}

    # The numbers that tell most come first.
    cases = [(2, 2)] if bench.tiny else itertools.product((1, 4, 8, 2), bench.sharing)
    for trials, frozen in cases:
        bench.record(f"{trials} trials, N={frozen}", lambda n=frozen, k=trials: together(n, k))


STEPS = {
    step.__name__: step for step in (first, graphs, facts, speed, determinism, memory, grid, shares)
}


def main() -> None:
    """Run the steps that are named, in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="+", choices=STEPS)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--limit", type=float, default=480.0)
    options = parser.parse_args()
    options.device = options.device or ("cpu" if options.tiny else "cuda")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu_trial.py: no CUDA device here; --tiny shows on a CPU that the steps work")
    for step in options.steps:
        with tempfile.TemporaryDirectory() as scratch:
            os.environ["ELSA_TUNE_CACHE"] = f"{scratch}/cache"
            STEPS[step](Bench(step, options, Path(scratch)))


if __name__ == "__main__":
    main()
