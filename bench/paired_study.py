"""A setting's effect on quality: the same seeds with it on and off, per task, depth and rate.

    python bench/paired_study.py frozen_dropout --data-dir ../shared/glue
    python bench/paired_study.py precision --depths 0 3            # where there are bf16 units
    python bench/paired_study.py rounded_products --depths 0 3     # where there are none
    python bench/paired_study.py standardize_targets --tasks stsb --depths 0 3 5 6 --seeds 3 \
        --rates 5e-5 2e-4 --train-size 1000 --epochs 4
    python bench/paired_study.py pooling --tasks stsb sst2 --depths 0 3 5:5e-4 6:5e-4 --seeds 3 \
        --train-size 1000 --epochs 4                               # N:RATE has a rate of its own

`rounded_products` computes in fp32, with operands and results of every matrix product rounded to
bf16, forwards and backwards: what bf16 units compute, which add up in fp32.

Writes bench/results/paired_FIELD.json: per task, depth and rate the mean difference (second value
minus first) with a 95 % t-interval over the seeds, in quality and in final evaluation loss.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import machine
import numpy as np
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.trial import Pooling, Precision, Recipe, TrialSpec
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.loop import train

VALUES: dict[str, tuple[Any, Any]] = {
    "frozen_dropout": (True, False),
    "precision": (Precision.FP32, Precision.BF16),
    "rounded_products": (False, True),
    "pooling": (Pooling.HEAD, Pooling.MEAN),
    "standardize_targets": (False, True),
}

_PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm}


class RoundedProducts(TorchDispatchMode):
    """Rounds to bf16 what goes into each matrix product and what comes out; counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket not in _PRODUCTS:
            return func(*args, **(kwargs or {}))
        self.products += 1
        rounded = [_rounded(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
        return _rounded(func(*rounded, **(kwargs or {})))


def _rounded(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).to(x.dtype)


def outcome(
    job: tuple[str, str, int, float, int, str, Any, int, int],
) -> tuple[float, float, float]:
    """Quality, evaluation loss and training seconds of one trial, with one thread."""
    data_dir, name, depth, rate, seed, field, value, size, epochs = job
    torch.set_num_threads(1)
    model = resolve_model("minilm")
    is_glue = name not in ("stdlib", "stdlib_shuffled")
    task = resolve_task(name, data_dir=data_dir) if is_glue else resolve_task(name)
    base = Recipe(
        epochs=epochs, train_size=size, precision=Precision.FP32, standardize_targets=True
    )
    emulated = field == "rounded_products"
    recipe = base if emulated else dataclasses.replace(base, **{field: value})
    trial = TrialSpec(
        model=model,
        task=task,
        recipe=recipe,
        candidate=FreezeDepth.of(depth),
        learning_rate=rate,
        seed=seed,
    )
    data = prepare(model, task, recipe)
    with RoundedProducts() if emulated and value else contextlib.nullcontext() as rounding:
        *_, last = train(trial, data, device="cpu")
    if rounding is not None and rounding.products < 100:
        raise RuntimeError(f"only {rounding.products} products were rounded")
    return last.quality, last.eval_loss, last.train_seconds


def main() -> None:
    """Run every pair, two trials at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("field", choices=sorted(VALUES))
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--tasks", nargs="+", default=["sst2", "stdlib"])
    parser.add_argument("--depths", nargs="+", default=["3", "4", "5"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rates", nargs="+", type=float, default=[5e-5])
    parser.add_argument("--train-size", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    data_dir = str(Path(options.data_dir).resolve())
    first, second = VALUES[options.field]
    cases = [
        (task, int(depth), rate)
        for task in options.tasks
        for depth, _, own in (text.partition(":") for text in options.depths)
        for rate in ([float(own)] if own else options.rates)
    ]
    seeds = range(1, options.seeds + 1)
    jobs = [
        (data_dir, *case, seed, options.field, value, options.train_size, options.epochs)
        for seed in seeds
        for case in cases
        for value in (first, second)
    ]
    with ProcessPoolExecutor(max_workers=2) as pool:
        found = {}
        for job, result in zip(jobs, pool.map(outcome, jobs), strict=True):
            print(*job[1:7], *result, file=sys.stderr, flush=True)
            found[job[1:7]] = result
    results = []
    for task, depth, rate in cases:
        pairs = [
            [found[task, depth, rate, seed, options.field, value] for seed in seeds]
            for value in (first, second)
        ]
        a, b = (np.asarray(pair) for pair in pairs)  # [seeds, 3]
        results.append(
            {
                "task": task,
                "frozen_layers": depth,
                "learning_rate": rate,
                str(first): a[:, 0].tolist(),
                str(second): b[:, 0].tolist(),
                "quality": interval(b[:, 0] - a[:, 0]),
                "eval_loss": interval(b[:, 1] - a[:, 1]),
                "train_seconds": [float(np.median(x[:, 2])) for x in (a, b)],
            }
        )
        print(json.dumps(results[-1]), flush=True)
    note = (
        f"{options.field}: {second} minus {first}; MiniLM, {options.train_size} examples, "
        f"{options.epochs} epochs, fp32 unless studied; paired over seeds, 95 % t-intervals; "
        "qualities are fractions"
    )
    print(machine.write(f"paired_{options.field}", results, note))


def interval(differences: np.ndarray) -> dict[str, float]:
    """Mean and 95 % t-interval of paired differences [seeds]."""
    mean = float(differences.mean())
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * float(
        differences.std(ddof=1) / math.sqrt(len(differences))
    )
    return {"mean": mean, "low": mean - half, "high": mean + half}


if __name__ == "__main__":
    main()
