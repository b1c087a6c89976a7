"""Freeze, LoRA, BitFit or the head alone: the space `ways` on real tasks.

    python bench/ways.py sst2 cola --data-dir ../shared/glue     # goes on where it stopped
    python bench/ways.py sst2 --model mpnet
    python bench/ways.py mrpc --model mpnet --precision bf16     # for CPUs with its units
    python bench/ways.py --only-read                             # the committed ones again
    python bench/ways.py rte --only-read --latencies             # and what its models take

Three epochs, 1,000 training rows or all where fewer, five seeds of every way. Each search, its
journal and predictions, lies in bench/results/ways, named by model and task; called again, an
interrupted one is resumed. Minutes and memory are `bench/recorded.py`'s. Writes
bench/results/ways.json: each comparison as `elsa-tune compare --format json` has it, by training
time, and what the search took. Latencies of exported models, alone and in a bundle, are measured
where they are asked for, on an idle machine, and kept until they are measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import machine
import recorded

TASKS = ("stdlib", "sst2", "cola", "mrpc", "rte", "stsb")
MODELS = ("minilm", "mpnet")
STORAGE = machine.RESULTS / "ways"
ROWS, EPOCHS = 1000, 3
# What a comparison has that is told by its ways, or that is only words.
_LEFT_OUT = ("lines", "schema_version")
# What a way's exported model takes for a text.
_LATENCIES = ("latency_seconds", "bundle_seconds")

Latencies = dict[str, dict[str, Any]]  # of a search, by its ways' labels


def search(model: str, task: str, data_dir: str, precision: str) -> None:
    """Start or resume a task's search."""
    words = ["--model", model, "--task", task, "--space", "ways"]
    words += ["--data-dir", data_dir] if task != "stdlib" else []
    words += ["--train-size", str(ROWS), "--set", f"epochs={EPOCHS}"]
    if precision != "fp32":
        words += ["--set", f"precision={precision}"]
    recorded.search(folder_of(model, task), words, data_dir)


def folder_of(model: str, task: str) -> Path:
    """Return where a search lies."""
    return STORAGE / f"{model}_{task}"


def read(folder: Path, latencies: Latencies) -> dict[str, Any]:
    """Return what a search says of its ways, and what it took. latencies: by its ways' labels."""
    comparison = recorded.asked("compare", folder)
    for name in _LEFT_OUT:
        comparison.pop(name, None)
    for way in comparison["ways"]:
        way |= latencies.get(way["label"], {})
    return {"commands": recorded.recorded_commands(folder), **comparison}


def measured_latencies(folder: Path, data_dir: str) -> Latencies:
    """Return what a search's exported models take on this machine.

    The record calls the data folder `glue`, so that the command runs beside a link of that name.
    """
    with TemporaryDirectory() as place:
        (Path(place) / "glue").symlink_to(Path(data_dir).resolve())
        with contextlib.chdir(place):
            comparison = recorded.asked("compare", folder, "--cost", "bundle")
    return latencies_in(comparison)


def latencies_in(comparison: dict[str, Any]) -> Latencies:
    """Return what a comparison knows of its ways' exported models, by their labels."""
    latencies: Latencies = {}
    for way in comparison["ways"]:
        known = {name: way.get(name) for name in _LATENCIES}
        if None not in known.values():
            latencies[way["label"]] = known
    return latencies


def kept_latencies() -> dict[str, Latencies]:
    """Return what bench/results/ways.json has of each search, by its name."""
    file = machine.RESULTS / "ways.json"
    if not file.exists():
        return {}
    kept: dict[str, Latencies] = {}
    for comparison in json.loads(file.read_text())["results"]:
        kept[comparison["search"]] = latencies_in(comparison)
    return kept


def main() -> None:
    """Run or read the tasks' searches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", nargs="*", choices=[*TASKS, []], default=[])
    parser.add_argument("--model", choices=MODELS, default="minilm")
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--only-read", action="store_true")
    parser.add_argument("--latencies", action="store_true")
    options = parser.parse_args()
    asked = options.task or TASKS
    if not options.only_read:
        for task in asked:
            search(options.model, task, options.data_dir, options.precision)
    kept = kept_latencies()
    results = []
    for model in MODELS:
        for task in TASKS:
            folder = folder_of(model, task)
            if recorded.is_finished(folder):
                latencies = kept.get(folder.name, {})
                if options.latencies and model == options.model and task in asked:
                    latencies = measured_latencies(folder, options.data_dir)
                results.append(read(folder, latencies))
    note = (
        f"at most {ROWS:,} training rows, {EPOCHS} epochs, fp32 unless the command says bf16, "
        "five seeds of every way; both models were tuned on pairs of sentences; qualities are "
        "fractions, times seconds"
    )
    print(machine.write("ways", results, note))


if __name__ == "__main__":
    main()
