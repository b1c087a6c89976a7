"""What many classes cost the bootstrap, counted by example, beside products for each class.

    python bench/bootstrap_classes.py

39 runs x 10,000 examples, 10,000 resamples, by metric and number of classes, both ways in turn in
fresh processes on one thread; medians of 3. The qualities are compared to the bit. Writes
bench/results/bootstrap_classes.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

import machine

CASES = (("f1_macro", 3), ("f1_macro", 20), ("f1_macro", 150), ("matthews", 150))
RUNS, EXAMPLES = 39, 10_000
REPEATS = 3
WAYS = {"products": 10**9, "counted": 0}  # the most classes that have products of their own

_ONE = f"""
import hashlib, sys, time
import numpy as np
from elsa_tune.analysis.statistics.resampling import resample
from elsa_tune.specs.result_row import Predictions
from elsa_tune.tasks.types import class_counts
metric, classes, class_counts._MOST_DENSE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
labels = rng.integers(0, classes, {EXAMPLES}).astype(np.int16)
several = [np.where(rng.random({EXAMPLES}) < .8, labels, rng.integers(0, classes, {EXAMPLES}))
           .astype(np.int16) for _ in range({RUNS})]
given = [Predictions(predictions=p, labels=labels, classes=classes) for p in several]
started = time.perf_counter()
found = resample(given, metric)
seconds = time.perf_counter() - started
digest = hashlib.sha256(found.runs.tobytes() + found.chance.tobytes()).hexdigest()
print(seconds, digest)
"""


def measured(metric: str, classes: int) -> dict[str, object]:
    """Return the median seconds of both ways."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    digests = set()
    for _ in range(REPEATS):
        for way, most in WAYS.items():
            command = [sys.executable, "-c", _ONE, metric, str(classes), str(most)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            took, digest = done.stdout.split()
            seconds[way].append(float(took))
            digests.add(digest)
    assert len(digests) == 1, "the two ways differ"
    medians = {way: statistics.median(taken) for way, taken in seconds.items()}
    return {"metric": metric, "classes": classes, "seconds": medians}


def main() -> None:
    """Measure, print and write."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    results = [measured(metric, classes) for metric, classes in CASES]
    for one in results:
        print(json.dumps(one))
    note = f"{RUNS} runs x {EXAMPLES} examples, 10,000 resamples; equal to the bit"
    print(machine.write("bootstrap_classes", results, note))


if __name__ == "__main__":
    main()
