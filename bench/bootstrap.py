"""What an answer costs: the bootstrap in every metric, and whole questions to large records.

    python bench/bootstrap.py

The bootstrap: 13 depths x 5 seeds x 5,463 examples (QNLI's), 10,000 resamples, each metric in a
process of its own (seconds, peak MiB; medians of 3). The question: `operating-point` as a process
on a journal of 1,000 trials with predictions, and on a results table of 100,000 rows. Writes
bench/results/bootstrap.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import numpy as np

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import (
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.paths import SearchPaths

METRICS = ("accuracy", "f1", "f1_macro", "matthews", "pearson", "spearman")
RUNS, EXAMPLES = 65, 5463
REPEATS = 3

_ONE_METRIC = f"""
import resource, sys, time
import numpy as np
from elsa_tune.analysis.statistics.resampling import resample
from elsa_tune.specs.result_row import Predictions
metric, runs, examples = sys.argv[1], {RUNS}, {EXAMPLES}
rng = np.random.default_rng(0)
classes = {{"f1_macro": 3, "pearson": 0, "spearman": 0}}.get(metric, 2)
if classes:
    labels = rng.integers(0, classes, examples).astype(np.int8)
    several = [np.where(rng.random(examples) < .8, labels, rng.integers(0, classes, examples))
               .astype(np.int8) for _ in range(runs)]
else:
    labels = (np.round(rng.random(examples) * 25) / 5).astype(np.float32)
    several = [(labels + rng.normal(0, 1, examples)).astype(np.float32) for _ in range(runs)]
given = [Predictions(predictions=p, labels=labels, classes=classes) for p in several]
started = time.perf_counter()
found = resample(given, metric)
assert found.runs.shape == (10_000, runs)
print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def bootstrap(metric: str) -> dict[str, object]:
    """Medians of whole resamplings in fresh processes."""
    found = []
    for _ in range(REPEATS):
        done = subprocess.run(
            [sys.executable, "-c", _ONE_METRIC, metric], capture_output=True, text=True, check=True
        )
        found.append([float(number) for number in done.stdout.split()])
    seconds, mib = (statistics.median(column) for column in zip(*found, strict=True))
    return {"what": "bootstrap", "metric": metric, "seconds": seconds, "peak_mib": mib}


def question(what: str, *arguments: str) -> dict[str, object]:
    """`operating-point` as a whole process; the median of three."""
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "elsa_tune", "operating-point", "--format", "json", *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        seconds.append(time.perf_counter() - started)
        [answer] = json.loads(done.stdout)
    return {"what": what, "seconds": statistics.median(seconds), "certified": answer["certified"]}


def write_search(storage: Path, trials: int = 1000, examples: int = 872) -> Path:
    """Write a journal of so many measuring trials at 8 depths of 12 layers, with predictions."""
    paths = SearchPaths(storage, "large")
    paths.predictions.mkdir(parents=True)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, examples).astype(np.int8)
    depths = (0, 6, 7, 8, 9, 10, 11, 12)
    with Journal(paths.journal) as journal:
        started = SearchStarted(
            name="large", search_id="large", attempt=1, model="synthetic", task="synthetic"
        )
        journal.append(journal.stamp(started))
        for number in range(trials):
            frozen, seed = depths[number % len(depths)], 1 + number // len(depths)
            right = rng.random(examples) < 0.92 - 0.02 * max(0, frozen - 6)
            predictions = np.where(right, labels, 1 - labels).astype(np.int8)
            key = f"measure-N{frozen}-lr3e-05-s{seed}"
            np.savez_compressed(
                paths.predictions / f"{key}.npz",
                predictions=predictions,
                labels=labels,
                classes=np.int64(2),
                metric=np.str_("accuracy"),
            )
            depth = FreezeDepth.of(frozen)
            params = {
                "model": "synthetic",
                "task": "synthetic",
                "phase": Phase.MEASURE.value,
                "learning_rate": 3e-5,
                "frozen_layers": frozen,
                "embeddings_frozen": depth.embeddings_frozen,
                "fine_tuned_layers": 12 - frozen,
                "layers": 12,
                "seed": seed,
                "metric": "accuracy",
                "chance": float(max(labels.mean(), 1 - labels.mean())),
                "evaluation_examples": examples,
            }
            ended = TrialEnded(
                trial=key,
                status=TrialStatus.COMPLETED,
                metrics={"quality": float((predictions == labels).mean())},
                artifact=f"predictions/{key}.npz",
            )
            for record in (TrialStarted(trial=key, params=params), ended):
                journal.append(journal.stamp(record))
        journal.append(journal.stamp(SearchEnded(status=SearchStatus.COMPLETED)))
    return paths.journal


def write_table(folder: Path, rows: int = 100_000) -> Path:
    """Write a results table with so many runs of 8 depths."""
    rng = np.random.default_rng(0)
    file = folder / "large.csv"
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["model", "task", "layers", "frozen_layers", "quality", "seed", "chance"])
        for number in range(rows):
            frozen = (0, 6, 7, 8, 9, 10, 11, 12)[number % 8]
            quality = 0.9 - 0.01 * max(0, frozen - 6) + rng.normal(0, 0.01)
            writer.writerow(["synthetic", "rte", 12, frozen, f"{quality:.6f}", number // 8, 0.5])
    return file


def main() -> None:
    """Measure, print and write."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    results = [bootstrap(metric) for metric in METRICS]
    with tempfile.TemporaryDirectory() as folder:
        journal = write_search(Path(folder))
        results.append(question("journal of 1,000 trials", "--from", str(journal)))
        table = write_table(Path(folder))
        results.append(question("table of 100,000 rows", "--from", str(table)))
    for one in results:
        print(json.dumps(one))
    note = f"{RUNS} runs x {EXAMPLES} examples, 10,000 resamples; questions as whole processes"
    print(machine.write("bootstrap", results, note))


if __name__ == "__main__":
    main()
