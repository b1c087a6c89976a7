"""Seconds per training step, and what each part of the fast way is worth, on this CPU.

    python bench/step.py --data-dir ../shared/glue

For MiniLM on SST-2 and RTE rows at N = 0, 3, 4, with one thread: the step as it is, the same
without one of its parts in turn, and the padded way; beside it the floor, i.e. the FLOPs of what
trains over this machine's measured matrix-product rate. The variants take turns, step by step, so
that a slow spell of the machine hits all alike; medians. Writes bench/results/step.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import machine
import numpy as np
import torch

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.trial import PrefixCache, Recipe, TrialSpec
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training import loop
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.forward import packed, runner

STEPS = 15
HIDDEN, INNER, LAYERS = 384, 1536, 6


@contextlib.contextmanager
def _as_it_is() -> Iterator[None]:
    yield


def _patch(module: Any, name: str, value: Any) -> Callable[[], Any]:
    return lambda: mock.patch.object(module, name, value)


# name: how to build a trial without that part
VARIANTS: dict[str, Callable[[], Any]] = {
    "as it is": _as_it_is,
    "whole word table": _patch(runner, "use_compact_vocabulary", lambda model, data: None),
    "attention in one padded square": _patch(packed, "BUCKET_COST", 10**9),
    "attention row by row": _patch(packed, "BUCKET_COST", 0),
    "attention groups at 1000": _patch(packed, "BUCKET_COST", 1000),
    "attention groups at 16000": _patch(packed, "BUCKET_COST", 16000),
    "padded, in length groups": _patch(runner, "packed_doubt", lambda *_: "measured"),
}


def main() -> None:
    """Measure every variant of every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rate = product_rate()
    results: dict[str, Any] = {"product_gflops_per_second": round(rate / 1e9, 1)}
    model = resolve_model("minilm")
    for name in ("sst2", "rte"):
        task = resolve_task(name, data_dir=options.data_dir)
        for n in (0, 3, 4):
            cache = PrefixCache.FP32
            recipe = Recipe(train_size=500, frozen_dropout=False, prefix_cache=cache)
            data = prepare(model, task, recipe)
            trial = TrialSpec(
                model=model,
                task=task,
                recipe=recipe,
                candidate=FreezeDepth.of(n),
                learning_rate=5e-5,
                seed=1,
            )
            found, tokens = measure(trial, data)
            floor = flops(tokens, n) / rate
            found["floor"] = round(floor, 4)
            found["times the floor"] = round(found["as it is"] / floor, 2)
            results[f"{name} N={n}"] = found
            print(name, n, json.dumps(found), flush=True)
    note = (
        "seconds per step (batch 16, one thread, fp32), medians; floor: FLOPs of the matrix "
        "products of the mean batch over the rate of a 1536 x 384 x 1536 product"
    )
    print(machine.write("step", results, note))


def measure(trial: TrialSpec, data: Any) -> tuple[dict[str, float], float]:
    """Median seconds of a step by variant, and mean tokens of a batch."""
    device = torch.device("cpu")
    runs = {}
    for name, patch in VARIANTS.items():
        with patch():
            runs[name] = loop._Run(trial, data, device, ())
    batches = loop.shuffled_batches(trial, len(data.train))
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    tokens = []
    for number in range(STEPS + 2):
        batch = next(batches)
        tokens.append(int(data.train.lengths[batch].sum()))
        for name, run in runs.items():
            with VARIANTS[name]():
                run.runner.train(True)
                started = time.perf_counter()
                run.step(batch)
                if number >= 2:
                    seconds[name].append(time.perf_counter() - started)
    for run in runs.values():
        run.close()
    medians = {name: round(statistics.median(times), 4) for name, times in seconds.items()}
    return medians, float(np.mean(tokens))


def flops(tokens: float, frozen: int) -> float:
    """Return the operations of a step's matrix products.

    Trained layers go forwards and backwards (three times a forward), the last one for first tokens
    only but for its keys and values, 16 of them.
    """
    whole = 2 * tokens * (4 * HIDDEN**2 + 2 * HIDDEN * INNER)
    last = 2 * tokens * 2 * HIDDEN**2 + 2 * 16 * (2 * HIDDEN**2 + 2 * HIDDEN * INNER)
    trained = LAYERS - frozen
    return 3 * (whole * (trained - 1) + last) if trained else 0.0


def product_rate() -> float:
    """FLOPs a second of a product of a layer's shape."""
    a, b = torch.randn(1536, HIDDEN), torch.randn(HIDDEN, INNER)
    times = []
    for _ in range(20):
        started = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - started)
    return 2 * 1536 * HIDDEN * INNER / statistics.median(times)


if __name__ == "__main__":
    main()
