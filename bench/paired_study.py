"""A setting's effect on quality: the same seeds with it on and off, on two tasks and three depths.

    python bench/paired_study.py frozen_dropout --data-dir ../shared/glue
    python bench/paired_study.py precision --depths 0 3 ...      # bf16 against fp32

Writes bench/results/paired_FIELD.json: each task and depth's mean difference (second value minus
first) with a 95 % t-interval over the seeds, in quality and in final evaluation loss.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import machine
import numpy as np
import torch
from scipy import stats

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.tasks import resolve_task
from elsa_tune.specs.trial import Precision, Recipe, TrialSpec
from elsa_tune.training.data import prepare
from elsa_tune.training.loop import train

VALUES: dict[str, tuple[Any, Any]] = {
    "frozen_dropout": (True, False),
    "precision": (Precision.FP32, Precision.BF16),
}


def outcome(job: tuple[str, str, int, int, str, Any, int]) -> tuple[float, float, float]:
    """Quality, evaluation loss and training seconds of one trial, with one thread."""
    data_dir, name, depth, seed, field, value, size = job
    torch.set_num_threads(1)
    model = resolve_model("minilm")
    is_glue = name not in ("stdlib", "stdlib_shuffled")
    task = resolve_task(name, data_dir=data_dir) if is_glue else resolve_task(name)
    base = Recipe(epochs=3, train_size=size, frozen_dropout=False, precision=Precision.FP32)
    recipe = dataclasses.replace(base, **{field: value})
    trial = TrialSpec(
        model=model,
        task=task,
        recipe=recipe,
        depth=FreezeDepth.of(depth),
        learning_rate=5e-5,
        seed=seed,
    )
    *_, last = train(trial, prepare(model, task, recipe), device="cpu")
    return last.quality, last.eval_loss, last.train_seconds


def main() -> None:
    """Run every pair, two trials at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("field", choices=sorted(VALUES))
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--tasks", nargs="+", default=["sst2", "stdlib"])
    parser.add_argument("--depths", nargs="+", type=int, default=[3, 4, 5])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--train-size", type=int, default=500)
    options = parser.parse_args()
    data_dir = str(Path(options.data_dir).resolve())
    first, second = VALUES[options.field]
    cases = list(itertools.product(options.tasks, options.depths))
    seeds = range(1, options.seeds + 1)
    jobs = [
        (data_dir, task, depth, seed, options.field, value, options.train_size)
        for seed in seeds
        for task, depth in cases
        for value in (first, second)
    ]
    with ProcessPoolExecutor(max_workers=2) as pool:
        found = dict(zip([job[1:6] for job in jobs], pool.map(outcome, jobs), strict=True))
    results = []
    for task, depth in cases:
        pairs = [
            [found[task, depth, seed, options.field, value] for seed in seeds]
            for value in (first, second)
        ]
        a, b = (np.asarray(pair) for pair in pairs)  # [seeds, 3]
        results.append(
            {
                "task": task,
                "frozen_layers": depth,
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
        "3 epochs, lr 5e-5, fp32 unless studied; paired over seeds, 95 % t-intervals; qualities "
        "are fractions"
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
