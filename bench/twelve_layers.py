"""What elsa-tune says and costs on twelve real layers, MPNet-base (`make mpnet`).

    python bench/twelve_layers.py sst2 cola --data-dir ../shared/glue    # goes on where it stopped
    python bench/twelve_layers.py --only-read                            # the committed ones again

A hunt until certified for each task: three epochs, 1,000 training rows or all where fewer. Each
search, its journal and predictions, lies in bench/results/mpnet. Called again, an interrupted one
is resumed; its minutes are the sum of its commands'. Memory is the highest sum of what the
command's processes hold at one time (proportional set size: shared pages count once), looked at
twice a second, and the highest of one worker. Writes bench/results/twelve_layers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import machine

TASKS = ("sst2", "cola", "mrpc", "rte", "stsb", "stdlib")
ROOT = machine.RESULTS.parent.parent
STORAGE = machine.RESULTS / "mpnet"
COMMANDS = "commands.json"  # how long each command of a search took
ROWS, EPOCHS = 1000, 3
MARK = "ELSA_TUNE_BENCH_OF_TWELVE_LAYERS"  # set in every process of a command
ANSWER_FIELDS = (
    *("metric", "chance", "full", "operating_point", "corrected_operating_point", "certified"),
    *("corrected_certified", "plausible_fine_tuned_layers", "linear_probe", "reason", "warnings"),
)
CURVE_FIELDS = (
    *("frozen_layers", "learning_rate", "quality", "std", "ci_low", "ci_high", "seeds"),
    *("explored", "retention", "corrected_retention"),
)


class Memory:
    """Watches what the marked processes hold."""

    def __init__(self) -> None:
        self.together_mib = 0.0
        self.worker_mib = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            together = 0.0
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if MARK.encode() not in (process / "environ").read_bytes():
                        continue
                    text = (process / "smaps_rollup").read_text()
                    name = (process / "comm").read_text()
                except OSError:
                    continue
                lines = [line for line in text.splitlines() if line.startswith("Pss:")]
                held = sum(int(line.split()[1]) for line in lines) / 1024
                together += held
                if name.startswith("ray::"):
                    self.worker_mib = max(self.worker_mib, held)
            self.together_mib = max(self.together_mib, together)


def search(task: str, data_dir: str) -> None:
    """Start or resume a task's search; note what the command took."""
    folder = STORAGE / task
    finished = folder / COMMANDS
    commands = json.loads(finished.read_text()) if finished.exists() else []
    if commands and commands[-1]["status"] in (0, 3):  # 3: no certified answer, a result too
        return
    command = [sys.executable, "-m", "elsa_tune", "search", "--model", "mpnet", "--task", task]
    command += ["--data-dir", data_dir] if task != "stdlib" else []
    command += ["--space", "hunt", "--until", "certified", "--train-size", str(ROWS)]
    command += ["--set", f"epochs={EPOCHS}", "--name", task, "--storage-path", str(STORAGE)]
    command += ["--tracking-uri", f"sqlite:///{ROOT}/build/mpnet.db"]
    began = time.perf_counter()
    with Memory() as memory:
        environment = {**os.environ, MARK: "1"}
        status = subprocess.run(command, check=False, env=environment).returncode
    seconds = time.perf_counter() - began
    commands.append(
        {
            "status": status,
            "minutes": round(seconds / 60, 1),
            "together_mib": round(memory.together_mib),
            "largest_worker_mib": round(memory.worker_mib),
            "load_before": round(os.getloadavg()[2], 1),
        }
    )
    finished.write_text(json.dumps(commands, indent=1) + "\n", encoding="utf-8")
    if status not in (0, 3):
        sys.exit(status)
    forget_this_machine(folder, data_dir)


def forget_this_machine(folder: Path, data_dir: str) -> None:
    """Leave what answers are read from, with no path of this machine in it."""
    for name in ("ray", "report"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("journal.lock", "journal.holder", "forwarded.json"):
        (folder / name).unlink(missing_ok=True)
    for file in (folder / "journal.jsonl", folder / "search.json"):
        text = file.read_text(encoding="utf-8")
        text = text.replace(str(Path(data_dir).resolve()), "glue").replace(f"{ROOT}/", "")
        file.write_text(text, encoding="utf-8")


def read(task: str) -> dict[str, Any]:
    """Return what a task's search answers, and what it cost."""
    folder = STORAGE / task
    command = [sys.executable, "-m", "elsa_tune", "operating-point", "--search", task]
    command += ["--storage-path", str(STORAGE), "--format", "json"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    [answer] = json.loads(done.stdout)
    journal = (folder / "journal.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in journal]
    trials = {record["trial"] for record in records if record["kind"] == "trial_started"}
    commands = json.loads((folder / COMMANDS).read_text())
    curve = []
    for point in answer["curve"]:
        of_depth = {field: point[field] for field in CURVE_FIELDS}
        curve.append({**of_depth, **cost(records, point["frozen_layers"])})
    return {
        "task": task,
        "minutes": round(sum(command["minutes"] for command in commands), 1),
        "commands": commands,
        "trials": len({trial for trial in trials if not trial.startswith("probe")}),
        **{field: answer.get(field) for field in ANSWER_FIELDS},
        "curve": curve,
    }


def cost(records: list[dict[str, Any]], frozen_layers: int) -> dict[str, float]:
    """Return the medians of a depth's measuring trials: minutes from start to end, peak memory."""
    begun: dict[str, float] = {}
    minutes, peaks = [], []
    for record in records:
        trial = record.get("trial", "")
        if not trial.startswith(f"measure-N{frozen_layers}-"):
            continue
        if record["kind"] == "trial_started":
            begun[trial] = record["time"]
        elif record["kind"] == "trial_ended":
            minutes.append((record["time"] - begun[trial]) / 60)
            peaks.append(record["metrics"]["peak_memory_mb"])
    return {
        "minutes_of_a_trial": round(statistics.median(minutes), 2),
        "peak_mib_of_a_trial": round(statistics.median(peaks)),
    }


def main() -> None:
    """Run or read the tasks' searches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", nargs="*", choices=[*TASKS, []], default=[])
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--only-read", action="store_true")
    options = parser.parse_args()
    if not options.only_read:
        for task in options.task or TASKS:
            search(task, options.data_dir)
    results = [read(task) for task in TASKS if (STORAGE / task / COMMANDS).exists()]
    note = (
        f"MPNet-base (all-mpnet-base-v2, tuned on pairs of sentences: curves flatter than raw "
        f"BERT's), {ROWS} rows, {EPOCHS} epochs, fp32; hunts until certified; qualities are "
        "fractions"
    )
    print(machine.write("twelve_layers", results, note))


if __name__ == "__main__":
    main()
