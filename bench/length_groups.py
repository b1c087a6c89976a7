"""Seconds per training step against what a length group is taken to cost.

On this CPU, on real SST-2 rows.

    python bench/length_groups.py --data-dir ../shared/glue

A very large cost means one group, i.e. the whole batch padded to its longest. The settings take
turns, step by step, so that a slow spell of the machine hits all alike; medians. Writes
bench/results/length_groups.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import machine
import torch

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.trial import Recipe, TrialSpec
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training import loop
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.forward import runner

COSTS = (10**6, 256, 64, 16, 0)
STEPS = 12


def main() -> None:
    """Measure N = 0 and N = 4 with one thread, as a search on two cores runs its trials."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # What MiniLM does not need any more, and architectures without packed tokens do.
    runner.packed_doubt = lambda *_: "padded batches are measured here"
    model, task = resolve_model("minilm"), resolve_task("sst2", data_dir=options.data_dir)
    recipe = Recipe(train_size=1000)
    data = prepare(model, task, recipe)
    results = {}
    for depth in (FreezeDepth.of(0), FreezeDepth.of(4)):
        trial = TrialSpec(
            model=model, task=task, recipe=recipe, candidate=depth, learning_rate=5e-5, seed=1
        )
        run = loop._Run(trial, data, torch.device("cpu"), ())
        run.runner.train(True)
        batches = loop.shuffled_batches(trial, len(data.train))
        seconds: dict[int, list[float]] = {cost: [] for cost in COSTS}
        for number in range(STEPS + 2):
            batch = next(batches)
            for cost in COSTS:
                runner.BUCKET_COST = cost
                started = time.perf_counter()
                run.step(batch)
                if number >= 2:
                    seconds[cost].append(time.perf_counter() - started)
        results[f"N={depth.label}"] = {
            str(cost): round(statistics.median(times), 4) for cost, times in seconds.items()
        }
        run.close()
    print(json.dumps(results, indent=1))
    note = "seconds per step (batch 16, one thread) by cost of a group in tokens; medians of 12"
    print(machine.write("length_groups", results, note))


if __name__ == "__main__":
    main()
