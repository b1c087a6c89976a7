"""What it saves that glibc keeps the memory that a step frees (machine.keep_freed_memory).

    python bench/kept_memory.py --data-dir ../shared/glue        # `make mpnet` first

Processes with and without take turns, five of each: SST-2 rows, batches of 16, fp32, one thread,
in a thread of the process as under Ray. Medians of a step's seconds, of its CPU seconds, of those
in the kernel and of its page faults; the highest peak of memory. Writes
bench/results/kept_memory.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import machine

CASES = {"mpnet": (0, 6), "minilm": (0,)}
WARM, TIMED, TURNS = 3, 12, 5


def steps(model_name: str, n: int, data_dir: str) -> dict[str, Any]:
    """Train some steps of a trial in this process."""
    import torch

    from elsa_tune.specs.adapt.freeze import FreezeDepth
    from elsa_tune.specs.model import resolve_model
    from elsa_tune.specs.trial import Recipe, TrialSpec
    from elsa_tune.tasks.task_file import resolve_task
    from elsa_tune.training import loop
    from elsa_tune.training.data.preparation import prepare

    torch.set_num_threads(1)
    model = resolve_model(model_name)
    task = resolve_task("sst2", data_dir=data_dir)
    trial = TrialSpec(
        model=model,
        task=task,
        recipe=Recipe(train_size=300, frozen_dropout=False),
        candidate=FreezeDepth.of(n),
        learning_rate=5e-5,
        seed=1,
    )
    data = prepare(model, task, trial.recipe)
    seconds, cpu, kernel, faults = [], [], [], []
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for number, _ in enumerate(loop.steps(trial, data, device="cpu")):
        ended = time.perf_counter()
        after = resource.getrusage(resource.RUSAGE_SELF)
        if number > WARM:
            seconds.append(ended - began)
            in_the_kernel = after.ru_stime - before.ru_stime
            cpu.append(after.ru_utime - before.ru_utime + in_the_kernel)
            kernel.append(in_the_kernel)
            faults.append(after.ru_minflt - before.ru_minflt)
        if number == WARM + TIMED:
            break
        began, before = ended, after
    return {
        "step_s": statistics.median(seconds),
        "cpu_s": statistics.median(cpu),
        "in_the_kernel_s": statistics.median(kernel),
        "page_faults": statistics.median(faults),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_a_thread(options: argparse.Namespace) -> dict[str, Any]:
    """Run the steps as Ray's workers do."""
    from elsa_tune.training import machine as trained_machine

    if options.one == "without":
        trained_machine.keep_freed_memory = lambda: None  # type: ignore[assignment]
    found: list[dict[str, Any]] = []

    def run() -> None:
        found.append(steps(options.model, options.n, options.data_dir))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def main() -> None:
    """Let both sides take turns in every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--n", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(in_a_thread(options)))
        return
    results = []
    for model, depths in CASES.items():
        for n in depths:
            sides: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
            for _ in range(TURNS):
                for side, runs in sides.items():
                    command = [sys.executable, str(Path(__file__)), "--one", side]
                    command += ["--model", model, "--n", str(n), "--data-dir", options.data_dir]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    runs.append(json.loads(done.stdout.splitlines()[-1]))
            result: dict[str, Any] = {"model": model, "n": n}
            for side, runs in sides.items():
                result[side] = {
                    name: round(statistics.median(run[name] for run in runs), 4)
                    for name in ("step_s", "cpu_s", "in_the_kernel_s", "page_faults")
                }
                result[side]["peak_mib"] = round(max(run["peak_mib"] for run in runs))
            results.append(result)
            print(json.dumps(result), flush=True)
    note = f"SST-2, batch 16, fp32, one thread; {TURNS} processes a side, taking turns; medians"
    print(machine.write("kept_memory", results, note))


if __name__ == "__main__":
    main()
