"""What is odd about the rows of GLUE and of the embedded task, and what looking at them costs.

    python bench/rows.py --data-dir ../shared/glue        # a minute

For each task that the folder holds: the findings of `elsa-tune tasks` (leaked, contradicting and
repeated rows), and the CPU seconds that they take, the least of five runs. Then the same of 100,000
made-up rows of 25 and of 250 words. Writes bench/results/rows.json; `--table` prints the Markdown
table of docs/measured.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Mapping
from typing import Any

import machine
import numpy as np

from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.known import GLUE_TASKS
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training.data.preparation import read_splits
from elsa_tune.training.data.row_checks import row_findings
from elsa_tune.training.data.tokens import Split

RUNS = 5
MADE_UP = 100_000


def timed(task: TaskSpec, splits: Mapping[str, Split]) -> tuple[tuple[RowFinding, ...], float]:
    """Return the findings, and the CPU seconds that they take, on one core."""
    seconds = []
    for _ in range(RUNS):
        begun = time.process_time()
        findings = row_findings(task, splits)
        seconds.append(time.process_time() - begun)
    return findings, round(min(seconds), 4)


def looked_at(name: str, data_dir: str) -> dict[str, Any]:
    """One task's sizes, findings and seconds."""
    task = resolve_task(name, data_dir if name in GLUE_TASKS else None)
    splits = read_splits(task, Recipe())
    findings, seconds = timed(task, splits)
    return {
        "train_rows": len(splits["train"]),
        "evaluation_rows": len(splits["evaluation"]),
        "findings": [dataclasses.asdict(one) for one in findings],
        "seconds": seconds,
    }


def made_up(words: int) -> float:
    """Seconds for 100,000 rows of this many words, a tenth of them evaluated."""
    draw = np.random.default_rng(0)
    vocabulary = np.array([f"word{number}" for number in range(5000)])
    texts = [" ".join(row) for row in vocabulary[draw.integers(5000, size=(MADE_UP, words))]]
    labels = draw.integers(2, size=MADE_UP)
    first = MADE_UP // 10
    splits = {
        "evaluation": Split("made up", (texts[:first],), labels[:first]),
        "train": Split("made up", (texts[first:],), labels[first:]),
    }
    return timed(resolve_task("sst2"), splits)[1]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data-dir", default="../shared/glue")
    options.add_argument("--tasks", nargs="+", default=["cola", "sst2", "mrpc", "stsb", "rte"])
    options.add_argument("--table", action="store_true")
    given = options.parse_args()
    if given.table:
        print(table())
        return
    results = {
        "tasks": {name: looked_at(name, given.data_dir) for name in [*given.tasks, "stdlib"]},
        "seconds_of_100000_rows": {f"{words} words": made_up(words) for words in (25, 250)},
    }
    note = f"seconds: CPU time of row_findings, the least of {RUNS} runs; reading is not in it"
    print(machine.write("rows", results, note))


def table() -> str:
    """Return the Markdown table of docs/measured.md."""
    results = json.loads((machine.RESULTS / "rows.json").read_text())["results"]
    columns = ["task", "training rows", "evaluation rows", "evaluated and trained on"]
    columns += [
        "with the same label",
        "texts with two labels",
        "repeated in training",
        "repeated in evaluation",
    ]
    lines = [f"| {' | '.join([*columns, 'seconds'])} |", "|---" * 9 + "|"]
    for name, one in results["tasks"].items():
        found = {(row["code"], row["where"]): row for row in one["findings"]}
        leaked = found.get(("leaked_rows", "evaluation"), {})
        two = found.get(("contradicting_labels", "training and evaluation"), {})
        repeated = [
            found.get(("duplicate_rows", where), {}).get("count", 0)
            for where in ("training", "evaluation")
        ]
        same, texts = leaked.get("same_label", 0), two.get("texts", 0)
        if name == "stsb":  # its labels are numbers
            same = texts = "–"
        cells = [f"{one['train_rows']:,}", f"{one['evaluation_rows']:,}", leaked.get("count", 0)]
        row = [name, *cells, same, texts, *repeated, f"{one['seconds']:.2f}"]
        lines.append(f"| {' | '.join(map(str, row))} |")
    costs = [
        f"{seconds:.2f} s for rows of {words}"
        for words, seconds in results["seconds_of_100000_rows"].items()
    ]
    return "\n".join([*lines, "", f"100,000 rows: {' and '.join(costs)}."])


if __name__ == "__main__":
    main()
