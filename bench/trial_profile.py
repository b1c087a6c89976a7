"""Where the time and the memory of one trial go, by frozen layers, on this CPU.

    python bench/trial_profile.py --model mpnet --n 0 6 9 11 12 --data-dir ../shared/glue

For SST-2 rows and one thread, each depth in fresh processes: seconds to load the weights, to fill
and to read the prefix cache, of a training step (median) and of an evaluation; which share of a
step each kind of operation takes (torch's profiler, its own time); the process's peak memory; and
the cache's bytes a row. Writes bench/results/trial_profile_MODEL.json.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

WARM, TIMED, PROFILED = 3, 12, 6
# Each kind of operation by what its names in torch's profiler contain; the first that fits counts.
KINDS = {
    "optimiser": ("_fused_adamw_",),
    "gradient norm": ("_foreach_norm", "vector_norm"),
    "matrix products": ("mm",),
    "word table's gradient": ("embedding_dense_backward",),
    "dropout": ("bernoulli", "random_", "dropout"),
    "GELU": ("gelu",),
    "layer norm": ("layer_norm",),
    "softmax": ("softmax",),
    "copying and gathering": ("index", "embedding", "copy", "cat", "masked_fill"),
}


def kind_of(operation: str) -> str:
    """Return the kind of an operation of torch's."""
    name = operation.removeprefix("aten::")
    for kind, parts in KINDS.items():
        for part in parts:
            if part in name:
                return kind
    return "other"


def one_trial(options: argparse.Namespace, n: int) -> dict[str, Any]:
    """Run one trial's steps in this process; return what they took."""
    import numpy as np
    import torch
    from torch.profiler import ProfilerActivity, profile

    from elsa_tune.specs.adapt.freeze import FreezeDepth
    from elsa_tune.specs.model import resolve_model
    from elsa_tune.specs.trial import PrefixCache, Recipe, TrialSpec
    from elsa_tune.tasks.task_file import resolve_task
    from elsa_tune.training import loop
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.forward.prefix_store import PrefixStore
    from elsa_tune.training.model.encoder import load_classifier

    torch.set_num_threads(1)
    model = resolve_model(options.model)
    task = resolve_task("sst2", data_dir=options.data_dir)
    recipe = Recipe(train_size=1000, frozen_dropout=False, prefix_cache=PrefixCache(options.cache))
    trial = TrialSpec(
        model=model,
        task=task,
        recipe=recipe,
        candidate=FreezeDepth.of(n),
        learning_rate=5e-5,
        seed=1,
    )
    started = time.perf_counter()
    data = prepare(model, task, recipe)
    prepared = time.perf_counter()
    load_classifier(model, 2, 1, shared=True)
    loaded = time.perf_counter()
    run = loop._Run(trial, data, torch.device("cpu"))
    built = time.perf_counter()
    batches = loop.shuffled_batches(trial, len(data.train))
    run.runner.train(True)
    seconds = []
    for number in range(WARM + TIMED):
        batch = next(batches)
        began = time.perf_counter()
        run.step(batch)
        if number >= WARM:
            seconds.append(time.perf_counter() - began)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(PROFILED):
            run.step(next(batches))
    took: dict[str, float] = collections.defaultdict(float)
    for event in profiled.key_averages():
        took[kind_of(event.key)] += event.self_cpu_time_total
    total = sum(took.values())
    shares = {kind: round(took[kind] / total, 3) for kind in (*KINDS, "other")}
    began = time.perf_counter()
    run._evaluate("evaluation")
    evaluated = time.perf_counter() - began
    tokens = {split: len(rows.input_ids) for split, rows in data.splits().items()}
    rows = sum(len(rows) for rows in data.splits().values())
    kept = sum(entry.bytes for entry in PrefixStore().entries())
    trained = sum(parameter.numel() for parameter in run.trained)
    run.close()
    return {
        "n": n,
        "prepare_s": round(prepared - started, 2),
        "load_s": round(loaded - prepared, 2),
        "build_s": round(built - loaded, 2),
        "step_s": round(statistics.median(seconds), 4),
        "evaluate_s": round(evaluated, 2),
        "shares": shares,
        "trained_parameters": trained,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "cache_bytes_a_row": round(kept / rows),
        "tokens_a_row": round(float(np.sum(list(tokens.values()))) / rows, 1),
    }


def main() -> None:
    """Run each depth twice: the second time its prefix is read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mpnet")
    parser.add_argument("--n", type=int, nargs="+", default=[0, 6, 9, 11, 12])
    parser.add_argument("--cache", default="fp32", help="the prefix cache: fp32, bf16 or none")
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one_trial(options, options.one)))
        return
    from elsa_tune.specs.model import resolve_model
    from elsa_tune.training.model.model_files import model_folder

    folder = model_folder(resolve_model(options.model))
    results = []
    for n in options.n:
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "ELSA_TUNE_CACHE": cache}
            command = [sys.executable, str(Path(__file__)), "--one", str(n)]
            command += ["--model", str(folder), "--data-dir", options.data_dir]
            command += ["--cache", options.cache]
            found = []
            for _ in range(2):
                done = subprocess.run(
                    command, env=environment, check=True, capture_output=True, text=True
                )
                found.append(json.loads(done.stdout.splitlines()[-1]))
        filling, result = found
        result["build_filling_s"] = filling["build_s"]
        result["peak_filling_mib"] = filling["peak_mib"]
        results.append(result)
        print(json.dumps(result), flush=True)
    note = (
        "SST-2, 1,000 rows, batch 16, fp32, one thread; seconds and shares of each kind of "
        "operation; `filling`: with an empty prefix cache, the rest with a full one"
    )
    print(machine.write(f"trial_profile_{options.model}", results, note))


if __name__ == "__main__":
    main()
