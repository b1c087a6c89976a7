"""MiniLM's freeze curves on four GLUE tasks, by the command line as a user runs it.

    python bench/glue_curves.py --data-dir ../shared/glue

Writes bench/results/TASK.csv: every trial, as `elsa-tune operating-point --from` reads it.
tools/answers.py answers them again, so that a test sees where an answer changes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import machine

from elsa_tune.results.results_csv import write_results
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import read_state

# SST-2 is the search a reader would start. The others need more examples before MiniLM learns
# anything, so they try one rate only: all four take about half an hour.
ONE_RATE = ("--set", "learning_rate=5e-5", "--set", "epochs=3")
PLANS: dict[str, tuple[int, tuple[str, ...]]] = {
    "sst2": (1000, ()),
    "cola": (4000, ONE_RATE),
    "mrpc": (2000, ONE_RATE),
    "rte": (500, ONE_RATE),
}


def main() -> None:
    """Run the four searches and write their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--storage", type=Path, default=Path("mlruns/searches"))
    options = parser.parse_args()
    for task, (size, settings) in PLANS.items():
        command = [
            *(sys.executable, "-m", "elsa_tune", "search", "--model", "minilm", "--task", task),
            *("--data-dir", options.data_dir, "--train-size", str(size), "--name", task),
            *("--space", "search_spaces/quick.yaml", "--storage-path", str(options.storage)),
            *settings,
        ]
        status = subprocess.run(command, check=False).returncode
        if status not in (0, 3):  # 3: the full model did not learn, which is a result
            sys.exit(status)
        rows = rows_of(read_state(options.storage / task / "journal.jsonl"))
        file = machine.RESULTS / f"{task}.csv"
        file.write_text(write_results(rows), encoding="utf-8")
        print(file)


if __name__ == "__main__":
    main()
