"""Kernels of a training step on a GPU, counted on a stand-in, and its seconds on this CPU.

Today's code stands beside three ways to launch less.

    python bench/launches.py --data-dir ../shared/glue
    python tests/standin/run.py bench/launches.py --only count        # kernels alone, in a minute

The ways, in bench/launching: `flat` (all that trains as views of two flat tensors, for optimiser
and norm; gradients copied into a flat one, or added to it in place), `one product` (query, key and
value), `shadows` (linear modules' weights kept in bf16), and all of them together; beside them `one
cast`, a CPU's query, key and value on one rounded input, as a GPU has them.

Kernels are counted by tests/standin/launches.py: of one more trained layer, and of a step of a tiny
BERT of twelve layers, bf16, by the ends of rows; today's code also in a padded square and on padded
batches. Calls that take all tensors at once (norm, AdamW, copies of gradients) are counted apart:
each launches a few kernels.

Seconds: MiniLM on MRPC rows at N = 0 and 3, fp32 and bf16, one thread. The ways take turns, step by
step and in another order every step, on the same batches with the same random numbers; medians, and
the median of each step's time by today's, for each round. Losses are compared with today's. Memory:
the highest of a process that trains one way alone. Writes bench/results/launches.json; `--only
count --write` replaces the kernels in it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import machine
import pytest
import torch
from launching import one_product
from launching.flat import Flat, FlatInPlace
from launching.one_product import OneProduct
from launching.shadows import Shadows
from launching.together import Together
from torch import Tensor

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.trial import Precision, PrefixCache, Recipe, TrialSpec
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training import loop
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.forward.packed import PackedBatch
from elsa_tune.training.forward.packed_model import Block
from elsa_tune.training.machine import PeakMemory, release

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.standin import launches
from tests.standin.run import LIBRARY, WHY_NOT
from tests.standin.standin import Seen
from tests.unit.tiny_models import make_tiny
from tests.unit.tiny_trials import data_for, make_trial

ROUNDS, STEPS, WARM = 3, 20, 2
TODAY = "today"
RUN = Path(__file__).resolve().parent.parent / "tests/standin/run.py"
# The note of each part: what was counted on the stand-in, with its torch, and what was measured.
COUNTED = (
    "kernels: not measured, but counted on tests/standin (torch {}) with factors read from torch's "
    "source; tiny BERT of twelve layers, bf16, by the ends of rows where nothing else is named; "
    "without calls over all tensors (norm, AdamW, copies of gradients), each of which launches a "
    "few kernels more: how many calls a step at N=0 makes; waits, copies to the device: the most "
    "of a step at any N"
)
MEASURED = (
    "seconds and MiB: measured on the machine below; MiniLM, MRPC, batch 16, one thread; seconds: "
    "medians of rounds; of today's: median over steps of time by today's time, lowest and highest "
    "round; losses: largest relative difference from today's over a round's steps; MiB: the "
    "highest of a process that trains one way alone"
)


class Today(loop._Run):
    """As it is."""


def _once(self: PackedBatch, hidden: Tensor) -> Tensor:
    on = torch.is_autocast_enabled("cpu")
    return hidden.bfloat16() if on else hidden


# name: what trains, and what else has to stand in the code's place
WAYS: dict[str, tuple[type[loop._Run], Callable[[], Any]]] = {
    TODAY: (Today, contextlib.nullcontext),
    "flat": (Flat, contextlib.nullcontext),
    "flat, gradients in place": (FlatInPlace, contextlib.nullcontext),
    "one product": (OneProduct, lambda: mock.patch.object(Block, "run", one_product.run)),
    "one cast": (Today, lambda: mock.patch.object(PackedBatch, "operand", _once)),
    "shadows": (Shadows, contextlib.nullcontext),
    "together": (Together, lambda: mock.patch.object(Block, "run", one_product.run)),
}


def main() -> None:
    """Count and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--only", choices=("count", "seconds", "memory"))
    parser.add_argument("--write", action="store_true", help="with --only count: replace kernels")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if options.write and options.only != "count":
        parser.error("--write goes with --only count; without --only everything is written")
    if problem := wrong_device(options.only):
        parser.error(problem)
    torch.set_num_threads(1)
    if options.only == "count":
        found = counted()
        if options.write:
            print(replace_kernels(found))
        return
    results: dict[str, Any] = {}
    for precision in (Precision.FP32, Precision.BF16):
        for n in (0, 3):
            case = (options.data_dir, precision, n)
            if options.only in (None, "seconds"):
                found = timed(*minilm(*case), options.rounds)
                results[f"{precision.value} N={n}"] = found
                print(precision.value, n, json.dumps(found, indent=1), flush=True)
            if options.only in (None, "memory"):
                results[f"{precision.value} N={n} MiB"] = memory(*case)
                print(results[f"{precision.value} N={n} MiB"], flush=True)
    if options.only is None:
        print(machine.write("launches", results, MEASURED))
        # In a process of its own, for what is timed must not run on the stand-in.
        count = [sys.executable, str(RUN), __file__, "--only", "count", "--write"]
        sys.exit(subprocess.run(count).returncode)


def wrong_device(only: str | None) -> str | None:
    """Return what to do where this process is not on what the part is counted or measured on."""
    on_standin = LIBRARY in os.environ
    if only == "count" and not on_standin:
        why = f" ({os.environ[WHY_NOT]})" if WHY_NOT in os.environ else ""
        return (
            f"kernels are counted on the stand-in for a GPU, which this process is not on{why}; "
            "where a C++ compiler and torch's build for CPUs are, run: python tests/standin/run.py "
            "bench/launches.py --only count"
        )
    if only != "count" and on_standin:
        return (
            "seconds and memory are a CPU's, and this process is on the stand-in for a GPU; run: "
            "python bench/launches.py"
        )
    return None


def replace_kernels(found: dict[str, Any]) -> Path:
    """Write the kernels beside what was measured, which stays as it is."""
    path = machine.RESULTS / "launches.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    measured = {name: part for name, part in content["results"].items() if name != "kernels"}
    content["note"] = f"{COUNTED.format(torch.__version__)}; {MEASURED}"
    content["results"] = {"kernels": found, **measured}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def counted() -> dict[str, Any]:
    """Kernels of one more layer, and of a step at some depths, by way."""
    ways = {
        TODAY: (TODAY, launches.ENDS),
        **{f"{TODAY}, {how}": (TODAY, how) for how in (launches.SQUARE, launches.PADDED)},
        # Of these, one cast is what a GPU does today.
        **{name: (name, launches.ENDS) for name in WAYS if name not in (TODAY, "one cast")},
    }
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        bert = resolve_model(str(make_tiny("bert", Path(scratch) / "bert", 12)))
        for name, (way, how) in ways.items():
            steps = {n: launched(way, how, bert, n) for n in (0, 1, 2, 6, 9, 12)}
            each = {n: kernels(seen) for n, seen in steps.items()}
            layer = {op: count - each[2].get(op, 0) for op, count in each[1].items()}
            results[name] = {
                "a layer": sum(layer.values()),
                **{f"N={n}": sum(each[n].values()) for n in (0, 6, 9, 12)},
                "of a layer": {op: count for op, count in layer.items() if count},
                "calls over all tensors": {
                    op: count for op, count in sorted(steps[0].operations.items()) if over_all(op)
                },
                "waits": max(seen.waits.total() for seen in steps.values()),
                "copies to the device": max(
                    seen.operations["copy to the device"] for seen in steps.values()
                ),
            }
            print(name, json.dumps(results[name]), flush=True)
    return results


def kernels(seen: Seen) -> dict[str, int]:
    """Return the launches by operation, without calls over all tensors."""
    return {op: count for op, count in launches.kernels(seen).items() if not over_all(op)}


def over_all(operation: str) -> bool:
    """Whether one call of it takes all parameters or gradients."""
    return operation.startswith(("_foreach_", "_fused_"))


def launched(name: str, how: str, model: Any, n: int) -> Seen:
    """Return what one step of a way launches on a GPU; torch refuses to let the host wait in it."""
    way, change = WAYS[name]
    trial = make_trial(model, n, precision=Precision.BF16)
    with pytest.MonkeyPatch.context() as patch, change():
        patch.setattr(loop, "_Run", way)
        launches.force(how, patch)
        return launches.step(trial, data_for("bert"))


def minilm(data_dir: str, precision: Precision, n: int) -> tuple[TrialSpec, Any]:
    """Return the trial that is measured, and its data."""
    task = resolve_task("mrpc", data_dir=data_dir)
    recipe = Recipe(
        train_size=1000, frozen_dropout=False, prefix_cache=PrefixCache.FP32, precision=precision
    )
    model = resolve_model("minilm")
    depth = FreezeDepth.of(n)
    trial = TrialSpec(
        model=model, task=task, recipe=recipe, candidate=depth, learning_rate=5e-5, seed=1
    )
    return trial, prepare(model, task, recipe)


@contextlib.contextmanager
def _random(states: dict[str, Tensor], name: str) -> Iterator[None]:
    torch.set_rng_state(states[name])
    yield
    states[name] = torch.get_rng_state()


def timed(trial: TrialSpec, data: Any, rounds: int) -> dict[str, Any]:
    """Seconds of a step and losses, by way."""
    fp32 = trial.recipe.precision is Precision.FP32
    names = [name for name in WAYS if not (fp32 and name in ("shadows", "one cast"))]
    seconds: dict[str, list[float]] = defaultdict(list)
    shares: dict[str, list[float]] = defaultdict(list)
    off: dict[str, float] = defaultdict(float)
    for number in range(rounds):
        times, losses = one_round(trial, data, names, number)
        for name in names:
            seconds[name].append(statistics.median(times[name]))
            by_step = zip(times[name], times[TODAY], strict=True)
            shares[name].append(statistics.median(own / other for own, other in by_step))
            pairs = zip(losses[name], losses[TODAY], strict=True)
            off[name] = max(off[name], *(abs(own / other - 1) for own, other in pairs))
    return {
        name: {
            "seconds": round(statistics.median(seconds[name]), 4),
            "of today's": round(statistics.median(shares[name]), 3),
            "from": round(min(shares[name]), 3),
            "to": round(max(shares[name]), 3),
            "losses": float(f"{off[name]:.2g}"),
        }
        for name in names
    }


def one_round(
    trial: TrialSpec, data: Any, names: list[str], number: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each step, and its loss, by way; without the first steps, but for losses."""
    runs, states = {}, {}
    for name in names:
        way, change = WAYS[name]
        torch.manual_seed(number)
        with change():
            runs[name] = way(trial, data, torch.device("cpu"))
        runs[name].runner.train(True)
        torch.manual_seed(number)
        states[name] = torch.get_rng_state()
    batches = loop.shuffled_batches(trial, len(data.train))
    seconds: dict[str, list[float]] = {name: [] for name in names}
    losses: dict[str, list[float]] = {name: [] for name in names}
    for step in range(STEPS + WARM):
        batch = next(batches)
        for place in range(len(names)):
            name = names[(place + step + number) % len(names)]
            with WAYS[name][1](), _random(states, name):
                started = time.perf_counter()
                loss = runs[name].step(batch)
                taken = time.perf_counter() - started
            losses[name].append(float(loss))
            if step >= WARM:
                seconds[name].append(taken)
    for run in runs.values():
        run.close()
    runs.clear()
    release()
    return seconds, losses


def memory(data_dir: str, precision: Precision, n: int) -> dict[str, float]:
    """Return the highest MiB of a process that trains one way alone, by way."""
    spawn = multiprocessing.get_context("spawn")
    found = {}
    for name in WAYS:
        if name == "one cast" or (name == "shadows" and precision is Precision.FP32):
            continue
        with spawn.Pool(1) as pool:
            found[name] = pool.apply(_peak, (data_dir, precision, n, name))
    return found


def _peak(data_dir: str, precision: Precision, n: int, name: str) -> float:
    torch.set_num_threads(1)
    trial, data = minilm(data_dir, precision, n)
    way, change = WAYS[name]
    with change():
        run = way(trial, data, torch.device("cpu"))
        run.runner.train(True)
        peak = PeakMemory(torch.device("cpu"))
        for batch, _ in zip(loop.shuffled_batches(trial, len(data.train)), range(10), strict=False):
            run.step(batch)
        return round(peak.mib())


if __name__ == "__main__":
    main()
