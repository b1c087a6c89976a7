"""What elsa-tune itself costs: start-up, an answer, memory and disk per trial.

The answer comes from a store of 200 trials.

    python bench/footprint.py

Times are medians of five whole processes; run it on an idle machine. Memory is the kernel's peak
resident size of each process. Writes bench/results/footprint.json.
"""

from __future__ import annotations

import argparse
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

RUNS = 5
ELSA = [sys.executable, "-m", "elsa_tune"]
TRIALS = 200
ROOT = Path(__file__).resolve().parent.parent


def timed(command: list[str], folder: Path) -> float:
    """Median seconds of the whole process, after one run that warms the disk cache."""
    seconds = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return round(statistics.median(seconds[1:]), 3)


def store_of(trials: int, folder: Path) -> None:
    """Record a finished search of so many trials in the default SQLite store.

    The recorder's own code writes it.
    """
    from elsa_tune.searching.record import facts_of
    from elsa_tune.specs.trial import Phase, TrialStatus
    from elsa_tune.tracking.forwarder import Forwarder
    from elsa_tune.tracking.journal import Journal
    from elsa_tune.tracking.journal_records import (
        Report,
        SearchEnded,
        SearchStarted,
        SearchStatus,
        TrialEnded,
        TrialStarted,
    )
    from elsa_tune.tracking.mlflow.store import MlflowStore
    from elsa_tune.tracking.paths import SearchPaths
    from elsa_tune.tracking.places import StorePaths

    sys.path.insert(0, str(ROOT))
    from tests.unit.search_examples import make_spec

    places = StorePaths(folder)
    uri = places.tracking_uri(places.tracking_uri())
    spec = make_spec(name="large", tracking_uri=uri)
    paths = SearchPaths(places.storage, "large")
    paths.check_writable()
    store = MlflowStore(uri)
    store.initialise()
    with Journal(paths.journal) as journal:
        forwarder = Forwarder(paths, store.sink(paths.journal)).start()

        def put(record: Any) -> None:
            forwarder.offer(journal.append(record))

        put(SearchStarted(name="large", search_id="1", attempt=1, model="minilm", task="stdlib"))
        for number in range(trials):
            depth = spec.candidates[number % len(spec.candidates)]
            trial = spec.trial(Phase.MEASURE, depth, 5e-5, number)
            quality = 0.9 - 0.03 * depth.frozen_layers - 0.0001 * number
            put(TrialStarted(trial=trial.key, params=facts_of(spec, trial)))
            for evaluation in (1, 2):
                metrics = {"quality": quality, "train_loss": 0.1, "eval_loss": 0.2}
                where = {"evaluation": evaluation, "step": evaluation}
                put(Report(trial=trial.key, metrics=metrics, **where))
            end = {"quality": quality, "train_seconds": 9.0, "peak_memory_mb": 800.0}
            put(TrialEnded(trial=trial.key, status=TrialStatus.COMPLETED, metrics=end))
        put(SearchEnded(status=SearchStatus.COMPLETED))
        assert forwarder.close(300) == 0


def search_memory(folder: Path) -> dict[str, Any]:
    """Run a small MiniLM search, and return what it took.

    That is the driver's peak, each depth's trial peak (MiB) and the disk left per trial (MB).
    """
    command = [
        *(*ELSA, "search", "--model", "minilm", "--task", "stdlib", "--name", "small"),
        *("--space", "demo", "--train-size", "96", "--set", "learning_rate=5e-5"),
        *("--set", "epochs=1", "--set", "depths=[0, 3, 6]", "--seeds", "1"),
        *("--set", "linear_probe=false", "--set", "extend=false"),
    ]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=folder, stdout=quiet, stderr=quiet)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 3)
    journal = folder / "mlruns" / "searches" / "small" / "journal.jsonl"
    ended = [r for r in map(json.loads, journal.open()) if r["kind"] == "trial_ended"]
    kept = sum(f.stat().st_size for f in journal.parent.rglob("*") if f.is_file())
    return {
        "driver_mib": round(usage.ru_maxrss / 1024),
        "trial_mib": {r["trial"]: round(r["metrics"]["peak_memory_mb"]) for r in ended},
        "search_folder_mb_per_trial": round(kept / 1e6 / len(ended), 3),
    }


def main() -> None:
    """Measure and write."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store_of(TRIALS, folder)
        ask = [*ELSA, "operating-point", "--search", "large", "--format", "json"]
        database = folder / "mlruns" / "mlflow.db"
        results = {
            "help_seconds": timed([*ELSA, "--help"], folder),
            f"operating_point_{TRIALS}_trials_seconds": timed(ask, folder),
            "store_mb_per_trial": round(database.stat().st_size / 1e6 / TRIALS, 3),
            **search_memory(folder),
        }
    print(json.dumps(results, indent=1))
    note = "whole processes, medians of 5; memory: peak resident"
    print(machine.write("footprint", results, note))


if __name__ == "__main__":
    main()
