"""Rows a second that `elsa-tune predict` and transformers' own pipeline classify on this CPU.

    python bench/predict.py

A MiniLM classifier (`--model` names another one) with a head that was never trained, as speed does
not depend on it, saved as `export` saves it. Rows are pairs of the embedded task, all of them in
one chunk; the pipeline takes them one by one, as it does by default, and 32 at once. All take turns
within a pass, so that a slow spell of the machine hits all alike; medians of the passes. Writes
bench/results/predict.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import machine
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from elsa_tune.exporting.predicting import Predictor
from elsa_tune.tasks.row_files import Chunk
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training.data.embedded import read_embedded
from elsa_tune.training.saved import classifier
from tests.exporting import exported_model


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    split = read_embedded()["evaluation"]
    pairs = list(zip(*split.texts, strict=True))[: options.rows]
    task = resolve_task("stdlib")
    with tempfile.TemporaryDirectory() as place:
        folder = exported_model(Path(place) / "model", options.model, task, 4, max_length=128)
        pipeline, predictor = classifier(folder), Predictor(folder)
    rows = [{"text": one, "text_pair": other} for one, other in pairs]
    chunk = Chunk(task.text_columns, [list(pair) for pair in pairs], list(range(len(pairs))))
    where = Path("rows")
    assert list(predictor.predict(chunk, where)["prediction"]) == [
        one["label"] for one in pipeline(rows)
    ]
    calls: dict[str, Callable[[], object]] = {
        "elsa-tune predict": lambda: predictor.predict(chunk, where),
        "pipeline, one by one": lambda: pipeline(rows),
        "pipeline, 32 at once": lambda: pipeline(rows, batch_size=32),
    }
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.passes):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            spent[name].append(time.perf_counter() - started)
    results = {
        name: {"rows_a_second": round(len(pairs) / statistics.median(seconds), 1)}
        for name, seconds in spent.items()
    }
    note = (
        f"{options.model}, threads: {options.threads}, {len(pairs)} pairs, {options.passes} passes "
        "in turns, medians; on a machine where other work ran"
    )
    print(results)
    print(machine.write("predict", results, note))


if __name__ == "__main__":
    main()
