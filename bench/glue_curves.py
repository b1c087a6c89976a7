"""MiniLM's freeze curves on four GLUE tasks, by the command line as a user runs it.

    python bench/glue_curves.py --data-dir ../shared/glue            # runs the searches
    python bench/glue_curves.py --only-read     # answers the committed trials again

Writes bench/results/TASK.csv (every trial; `elsa-tune operating-point --from` reads it) and
glue_curves.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import machine

from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.results.results_csv import import_results, write_results
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
    """Run (or only read) the four searches and write their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--storage", type=Path, default=Path("mlruns/searches"))
    parser.add_argument("--only-read", action="store_true")
    options = parser.parse_args()
    answers = []
    for task, (size, settings) in PLANS.items():
        if not options.only_read:
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
            (machine.RESULTS / f"{task}.csv").write_text(write_results(rows), encoding="utf-8")
        rows = import_results(machine.RESULTS / f"{task}.csv").rows
        answers += [answer_object(answer) for answer in answer_rows(rows)]
    note = "MiniLM, space quick with bench/glue_curves.py: PLANS; qualities are fractions"
    print(machine.write("glue_curves", answers, note))


if __name__ == "__main__":
    main()
