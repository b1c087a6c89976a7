"""Freeze, LoRA, BitFit or the head alone: the space `ways` on real tasks.

    python bench/ways.py sst2 cola --data-dir ../shared/glue     # goes on where it stopped
    python bench/ways.py sst2 --model mpnet
    python bench/ways.py --only-read                             # the committed ones again

Three epochs, 1,000 training rows or all where fewer, five seeds of every way. Each search, its
journal and predictions, lies in bench/results/ways, named by model and task; called again, an
interrupted one is resumed. Minutes and memory are `bench/recorded.py`'s. Writes
bench/results/ways.json: each comparison as `elsa-tune compare --format json` has it, by training
time, and what the search took.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import machine
import recorded

TASKS = ("stdlib", "sst2", "cola", "mrpc", "rte", "stsb")
MODELS = ("minilm", "mpnet")
STORAGE = machine.RESULTS / "ways"
ROWS, EPOCHS = 1000, 3
# What a comparison has that is told by its ways, or that is only words.
_LEFT_OUT = ("lines", "schema_version")


def search(model: str, task: str, data_dir: str) -> None:
    """Start or resume a task's search."""
    words = ["--model", model, "--task", task, "--space", "ways"]
    words += ["--data-dir", data_dir] if task != "stdlib" else []
    words += ["--train-size", str(ROWS), "--set", f"epochs={EPOCHS}"]
    recorded.search(folder_of(model, task), words, data_dir)


def folder_of(model: str, task: str) -> Path:
    """Return where a search lies."""
    return STORAGE / f"{model}_{task}"


def read(folder: Path) -> dict[str, Any]:
    """Return what a search says of its ways, and what it took."""
    comparison = recorded.asked("compare", folder)
    for name in _LEFT_OUT:
        comparison.pop(name, None)
    return {"commands": recorded.recorded_commands(folder), **comparison}


def main() -> None:
    """Run or read the tasks' searches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", nargs="*", choices=[*TASKS, []], default=[])
    parser.add_argument("--model", choices=MODELS, default="minilm")
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--only-read", action="store_true")
    options = parser.parse_args()
    if not options.only_read:
        for task in options.task or TASKS:
            search(options.model, task, options.data_dir)
    results = []
    for model in MODELS:
        for task in TASKS:
            folder = folder_of(model, task)
            if recorded.is_finished(folder):
                results.append(read(folder))
    note = (
        f"at most {ROWS:,} training rows, {EPOCHS} epochs, fp32, five seeds of every way; both "
        "models were tuned on pairs of sentences; qualities are fractions, times seconds"
    )
    print(machine.write("ways", results, note))


if __name__ == "__main__":
    main()
