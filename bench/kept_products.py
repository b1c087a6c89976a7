"""What it saves that oneDNN keeps few compiled products (machine.reproducible): memory in bf16.

    python bench/kept_products.py --data-dir ../shared/glue      # `make mpnet` first; bf16 units

One trial of MPNet's full model on 500 rows of RTE, three epochs, bf16, once with 1,024 of them
kept, as oneDNN and torch do by themselves, and once with our number, side by side on one thread
each, as a search trains two at once. Seconds of training, the peak of memory, and whether both
scored the same. Writes bench/results/kept_products.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

import machine

BY_THEMSELVES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024", "LRU_CACHE_CAPACITY": "1024"}
ROWS, EPOCHS = 500, 3


def main() -> None:
    """Train both at once and write what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    options = parser.parse_args()
    started = {
        "by_themselves": start(options, BY_THEMSELVES),
        "ours": start(options, {}),
    }
    results = {side: read(process) for side, process in started.items()}
    scores = [result.pop("scores") for result in results.values()]
    results["same_scores"] = scores[0] == scores[1]
    print(json.dumps(results, indent=1))
    note = (
        f"MPNet, N = 0, RTE, {ROWS} rows, {EPOCHS} epochs, {options.precision}; both at once, one "
        "thread each; seconds of training, peak memory in MiB"
    )
    print(machine.write("kept_products", results, note))


def start(options: argparse.Namespace, variables: dict[str, str]) -> subprocess.Popen[str]:
    """Begin a trial in a process of its own. variables: of its environment."""
    command = [
        *(sys.executable, "-m", "elsa_tune", "trial", "--model", "mpnet", "--task", "rte"),
        *("--data-dir", options.data_dir, "--train-size", str(ROWS), "--frozen-layers", "0"),
        *("--learning-rate", "5e-5", "--set", f"epochs={EPOCHS}"),
        *("--set", f"precision={options.precision}", "--format", "json"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def read(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what a trial took, and its evaluations' losses and scores."""
    out, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(f"the trial ended with {process.returncode}")
    reports = [json.loads(line) for line in out.splitlines()]
    return {
        "train_seconds": round(reports[-1]["train_seconds"], 1),
        "peak_memory_mib": round(reports[-1]["peak_memory_mb"]),
        "scores": [[report["train_loss"], report["quality"]] for report in reports],
    }


if __name__ == "__main__":
    main()
