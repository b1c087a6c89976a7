"""Several real tasks from a search to models that answer together, each judged by an outsider.

    python bench/end_to_end.py --data-dir ../shared/glue        # 30 to 60 minutes on two cores
    python bench/end_to_end.py --tasks stdlib sst2 --space quick

For each task, with MiniLM: `elsa-tune search` (a hunt), `elsa-tune export`, and the exported
model's quality by a Python process of its own that imports transformers and nothing of elsa-tune.
Then one `elsa-tune bundle` of all models that share frozen layers, with its sizes and latencies. A
task without an answer is not exported, and the reason stands in the results. Writes
bench/results/end_to_end.json, anew after each task.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training.data.preparation import read_splits

TASKS = ("stdlib", "sst2", "mrpc", "cola")
# What a stranger would write, given the folder and labelled texts: no line of elsa-tune runs.
OUTSIDER = """
import json, math, sys
from transformers import pipeline

folder, rows = sys.argv[1], json.load(open(sys.argv[2]))
model = pipeline("text-classification", model=folder, truncation=True)
texts = [{"text": r["texts"][0], "text_pair": (r["texts"] + [None])[1]} for r in rows]
given = [model.model.config.label2id[one["label"]] for one in model(texts, batch_size=32)]
true = [r["label"] for r in rows]
pairs = list(zip(true, given))
tp, fp = pairs.count((1, 1)), pairs.count((0, 1))
fn, tn = pairs.count((1, 0)), pairs.count((0, 0))
under = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
print(json.dumps({
    "accuracy": (tp + tn) / len(pairs),
    "f1": 2 * tp / max(1, 2 * tp + fp + fn),
    "matthews": (tp * tn - fp * fn) / under if under else 0.0,
    "elsa_tune": sorted(name for name in sys.modules if name.startswith("elsa_tune")),
}))
"""


def command(place: Path, *words: str) -> tuple[int, str, str, float]:
    """`elsa-tune` as it is typed: its exit status, what it printed and said, and its seconds."""
    started = time.perf_counter()
    line = [sys.executable, "-m", "elsa_tune", *words]
    ended = subprocess.run(line, cwd=place, check=False, capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr, round(time.perf_counter() - started, 1)


def judged(folder: Path, task: str, data_dir: str, place: Path) -> dict[str, Any]:
    """Return the exported model's scores on the task's evaluation rows.

    They are found as an outsider finds them.
    """
    there = None if task == "stdlib" else data_dir
    split = read_splits(resolve_task(task, data_dir=there), Recipe())["evaluation"]
    rows = [
        {"texts": texts, "label": int(label)}
        for *texts, label in zip(*split.texts, split.labels, strict=True)
    ]
    (place / "rows.json").write_text(json.dumps(rows))
    here = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [sys.executable, "-c", OUTSIDER, str(folder), str(place / "rows.json")]
    ended = subprocess.run(line, cwd=place, check=True, capture_output=True, text=True, env=here)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def one_task(task: str, place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Search, answer, export, and an outsider's verdict."""
    data = () if task == "stdlib" else ("--data-dir", options.data_dir)
    size = str(options.train_size)
    status, _, said, seconds = command(
        *(place, "search", "--model", "minilm", "--task", task, *data, "--name", task),
        *("--space", options.space, "--train-size", size, "--set", f"epochs={options.epochs}"),
    )
    found: dict[str, Any] = {"search_s": seconds, "search_status": status}
    if status not in (0, 3):
        return {**found, "said": said.splitlines()[-3:]}
    _, told, _, _ = command(place, "operating-point", "--search", task, "--format", "json")
    [answer] = json.loads(told)
    found |= {name: answer[name] for name in ("sentence", "certainty") if name in answer}
    folder = place / f"{task}-model"
    status, _, said, seconds = command(place, "export", "--search", task, "--out", folder.name)
    if status:
        return {**found, "export_status": status, "said": said.splitlines()[-1:]}
    about = json.loads((folder / "elsa-tune.json").read_text())["exported"]
    theirs = judged(folder, task, options.data_dir, place)
    return {
        **found,
        "export_s": seconds,
        "exported": {name: about[name] for name in about if name != "versions"},
        "outsider": theirs,
    }


def main() -> None:
    """Every task, then the bundle."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--space", default="hunt")
    parser.add_argument("--train-size", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    options.data_dir = str(Path(options.data_dir).resolve())
    results: dict[str, Any] = {"train_size": options.train_size, "epochs": options.epochs}
    results |= {"space": options.space, "tasks": {}}
    note = "whole commands in seconds; qualities by an outsider are of all evaluation rows"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for task in options.tasks:
            results["tasks"][task] = one_task(task, place, options)
            print(json.dumps(results["tasks"][task])[:600], flush=True)
            machine.write("end_to_end", results, note)
        models = [
            f"{task}-model"
            for task, found in results["tasks"].items()
            if found.get("exported", {}).get("frozen_layers", 0)
        ]
        if len(models) > 1:
            status, _, said, seconds = command(place, "bundle", *models, "--out", "together")
            about = place / "together" / "bundle.json"
            results["bundle"] = {"of": models, "status": status, "s": seconds}
            results["bundle"]["said"] = said.splitlines()
            if about.exists():
                results["bundle"]["about"] = json.loads(about.read_text())
        print(machine.write("end_to_end", results, note))


if __name__ == "__main__":
    main()
