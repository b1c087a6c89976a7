"""The same grid of trials by `elsa-tune search` and by the peer: Ray Tune around a Trainer.

    python bench/peer.py --peer ../shared/peer/ray_trainer_baseline.py --data-dir ../shared/glue rte

Ten trials: N = 0, 3, 4, 5, 6 x two seeds at one learning rate (ours measures, so nothing is stopped
early on either side), the same rows from one folder, the same batch size, epochs and evaluation
points. Whole commands are timed, start-up and our cold cache included, one side after the other.
Writes bench/results/peer_TASK.json. `--precision bf16`: both sides in bf16, and ours in fp32 too,
on a CPU that has bf16 units (peer_TASK_bf16.json). `--model mpnet`: twelve layers, N = 0, 6, 8, 10,
12 (peer_TASK_mpnet.json).

    python bench/peer.py --certified ... sst2      # an hour and a half

From the same rows to a certified answer, each as a user would: our hunt (until certified), three
epochs a trial as both others; ours with five seeds at every depth; and the peer's grid of two rates
x five depths x five seeds, whose table `operating-point --from` answers. Each of ours has a store
and a cache of its own. Writes bench/results/certified_TASK.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
import pandas as pd

from elsa_tune.specs.model import ModelSource, download_folder, resolve_model
from elsa_tune.training.model.model_files import model_folder

# task: GLUE folder, training rows, epochs
GRIDS = {"rte": ("RTE", 500, 3), "mrpc": ("MRPC", 500, 3), "sst2": ("SST-2", 1000, 6)}
FROZEN = {"minilm": [0, 3, 4, 5, 6], "mpnet": [0, 6, 8, 10, 12]}
LAYERS = {"minilm": 6, "mpnet": 12}
SEEDS = [1, 2]
RATE = 5e-5
CERTIFIED = {
    "hunt": ("--space", "hunt", "--until", "certified"),
    "even": ("--space", "joint", "--seeds", "5"),
}
RATES, MANY_SEEDS, EPOCHS = [2e-5, 5e-5], [1, 2, 3, 4, 5], 3


def main() -> None:
    """Time both sides on a task's grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=sorted(GRIDS))
    parser.add_argument("--peer", required=True)
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--epochs", type=int, help="Fewer than the grid's, where time is short.")
    parser.add_argument("--model", choices=sorted(FROZEN), default="minilm")
    parser.add_argument("--frozen", type=int, nargs="+", help="Some of the grid's depths only.")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--certified", action="store_true", help="To a certified answer instead.")
    parser.add_argument("--peer-seeds", type=int, help="Fewer of the peer's, where time is short.")
    parser.add_argument("--skip-peer", action="store_true", help="Only ours, for a quick look.")
    options = parser.parse_args()
    folder, rows, epochs = GRIDS[options.task]
    epochs, precision = options.epochs or epochs, options.precision
    frozen = options.frozen or FROZEN[options.model]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        _write_rows(Path(options.data_dir) / folder, place / "data" / folder, rows)
        if options.certified:
            name = f"certified_{options.task}" + _suffix(options.model)
            print(machine.write(name, *_to_certified(place, options)))
            return
        searches = {"ours": (precision, "cold"), "ours_with_a_warm_cache": (precision, "again")}
        if precision == "bf16":
            searches["ours_in_fp32"] = ("fp32", "fp32")
        results: dict[str, Any] = {}
        for side, (arithmetic, name) in searches.items():
            results[side] = _ours(place, options, frozen, epochs, arithmetic, name)
            print(json.dumps(results[side]), flush=True)
        ours, peer = results["ours"], None
        if not options.skip_peer:
            peer_seeds = SEEDS[: options.peer_seeds]
            grid, more = ([RATE], peer_seeds), ["--bf16"] * (precision == "bf16")
            data = place / "data" / folder
            peer = _peer(place, data, options, frozen, epochs, *grid, more=more)
    results["peer"] = peer
    if peer is not None:
        del peer["rows"]
        results |= _times_faster(ours, peer, len(peer_seeds))
    print(json.dumps(results, indent=1))
    note = (
        f"{options.model}, {options.task}: {rows} examples, {epochs} epochs, N = {frozen} x seeds "
        f"{SEEDS}, "
        f"lr {RATE}, {precision} on both sides; whole commands; the peer with one trial at a time "
        "on all cores, as the guides have it; warm: our command again, its cache filled; peak "
        "memory is of the worker process that trains, in MiB"
    )
    if options.peer_seeds:
        note += f"; the peer ran with {options.peer_seeds} of the seeds"
    if not options.skip_peer:
        part = _suffix(options.model)
        if frozen != FROZEN[options.model]:
            part += "_N" + "_".join(map(str, frozen))
        part += "_bf16" * (precision == "bf16")
        print(machine.write(f"peer_{options.task}{part}", results, note))


def _times_faster(ours: dict[str, Any], peer: dict[str, Any], peer_seeds: int) -> dict[str, Any]:
    """Return how many times as long the peer took; exits where it did not do the same work."""
    for count in ("trials", "steps", "full_length"):
        if ours[count] * peer_seeds != peer[count] * len(SEEDS):
            sys.exit(f"not the same work: {count} {ours[count]} and {peer[count]}")
    results: dict[str, Any] = {}
    if peer_seeds == len(SEEDS):
        results["times_faster"] = round(peer["wall_s"] / ours["wall_s"], 2)
    results["times_faster_per_trial"] = {
        n: round(peer["seconds_per_trial"][n] / ours["seconds_per_trial"][n], 1)
        for n in ours["seconds_per_trial"]
    }
    return results


def _suffix(model: str) -> str:
    """Return what results of a model other than MiniLM are called by."""
    return "" if model == "minilm" else f"_{model}"


def _write_rows(source: Path, target: Path, count: int) -> None:
    """Write the folder both sides read: `count` training rows drawn once, the whole dev split."""
    target.mkdir(parents=True)
    kept: dict[str, Any] = {"sep": "\t", "quoting": csv.QUOTE_NONE}
    for split in ("train", "dev"):
        frame = pd.read_csv(source / f"{split}.tsv", keep_default_na=False, dtype=str, **kept)
        if split == "train":
            frame = frame.sample(count, random_state=0)
        frame.to_csv(target / f"{split}.tsv", index=False, **kept)


def _to_certified(place: Path, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Whole commands, one after the other, until each has its answer; what they did, and a note."""
    folder, rows, _ = GRIDS[options.task]
    found: dict[str, Any] = {}
    for side, settings in CERTIFIED.items():
        place_of = place / side
        store = ("--storage-path", str(place_of), "--tracking-uri", f"sqlite:///{place_of}.db")
        command = [
            *(sys.executable, "-m", "elsa_tune", "search", "--model", options.model),
            *("--task", options.task, "--data-dir", str(place / "data"), "--name", side),
            *(*settings, "--set", f"epochs={EPOCHS}", *store),
        ]
        environment = {**os.environ, "ELSA_TUNE_CACHE": _cache(f"{place_of}-cache", options.model)}
        wall, _ = _timed(command, environment, place, allowed=(0, 3))
        journal = (place_of / side / "journal.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in journal]
        started = {r["trial"] for r in records if r["kind"] == "trial_started"}
        trials = {key for key in started if not key.startswith("probe")}
        reports = [r for r in records if r["kind"] == "report" and r["trial"] in trials]
        asked = ("--search", side, "--storage-path", str(place_of))
        found[side] = {
            "minutes": round(wall / 60, 1),
            "trials": len(trials),
            "epochs": len(reports),
            **_answer(place, *asked),
        }
        print(json.dumps(found), flush=True)
    if options.skip_peer:
        return found, "ours alone"
    data = place / "data" / folder
    frozen = FROZEN[options.model]
    peer = _peer(place, data, options, frozen, EPOCHS, RATES, MANY_SEEDS)
    table = place / "peer.csv"
    pd.DataFrame(peer["rows"]).to_csv(table, index=False)
    fixed = {"model": options.model, "task": options.task, "layers": LAYERS[options.model]}
    mapped = [word for name, value in fixed.items() for word in ("--map", f"{name}=={value}")]
    found["peer"] = {
        "minutes": round(peer["wall_s"] / 60, 1),
        "trials": peer["trials"],
        "epochs": peer["trials"] * EPOCHS,
        **_answer(place, "--from", str(table), *mapped),
    }
    print(json.dumps(found, indent=1))
    note = (
        f"{options.task}: {rows} examples, {EPOCHS} epochs a trial, fp32; whole commands, one "
        f"after the other, each until its answer; the peer: rates {RATES}, N = {frozen}, "
        f"{len(MANY_SEEDS)} seeds, one trial at a time on all cores, as the guides have it"
    )
    return found, note


def _answer(place: Path, *asked: str) -> dict[str, Any]:
    """Return what `operating-point` says of it."""
    command = [sys.executable, "-m", "elsa_tune", "operating-point", *asked, "--format", "json"]
    done = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, check=False)
    [answer] = json.loads(done.stdout)
    points = {name: answer[name] for name in ("operating_point", "certified")}
    layers = {n: point and point["fine_tuned_layers"] for n, point in points.items()}
    curve = {p["frozen_layers"]: round(p["quality"], 4) for p in answer["curve"] if p["quality"]}
    return {**layers, "reason": answer["reason"], "curve": curve}


def _cache(folder: Path | str, model: str) -> str:
    """Return an empty cache for a command, with the weights that were downloaded into ours."""
    spec = resolve_model(model)
    if spec.source is ModelSource.DOWNLOAD:
        weights = Path(folder) / "models" / spec.location
        weights.parent.mkdir(parents=True, exist_ok=True)
        if not weights.exists():
            weights.symlink_to(download_folder(spec))
    return str(folder)


def _ours(
    place: Path,
    options: argparse.Namespace,
    frozen: list[int],
    epochs: int,
    precision: str,
    name: str,
) -> dict[str, Any]:
    command = [
        *(sys.executable, "-m", "elsa_tune", "search", "--model", options.model),
        *("--task", options.task),
        *("--data-dir", str(place / "data"), "--space", "grid", "--name", name),
        *("--seeds", str(len(SEEDS)), "--set", f"epochs={epochs}", "--set", f"depths={frozen}"),
        *("--set", f"learning_rate={RATE}", "--set", "frozen_dropout=false"),
        # The peer has neither.
        *("--set", "linear_probe=false", "--set", "extend=false"),
        *("--set", f"precision={precision}"),
        # As the peer has them: an epoch of warm-up, no weight decay.
        *("--set", f"warmup_ratio={1 / epochs:.6f}", "--set", "weight_decay=0"),
        *("--storage-path", str(place / "searches")),
        *("--tracking-uri", f"sqlite:///{place}/mlflow.db"),
    ]
    cache = place / ("fp32-cache" if name == "fp32" else "cache")
    environment = {**os.environ, "ELSA_TUNE_CACHE": _cache(cache, options.model)}
    wall, memory = _timed(command, environment, place, allowed=(0, 3))
    journal = (place / "searches" / name / "journal.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in journal]
    started, seconds, quality, steps = {}, defaultdict(list), defaultdict(list), {}
    for record in records:
        if record["kind"] == "trial_started":
            started[record["trial"]] = record
        elif record["kind"] == "report":
            steps[record["trial"]] = record["step"]
        elif record["kind"] == "trial_ended":
            begun = started[record["trial"]]
            n = str(begun["params"]["frozen_layers"])
            seconds[n].append(record["time"] - begun["time"])
            quality[n].append(record["metrics"]["quality"])
    full = [r for r in records if r["kind"] == "trial_ended" and r["status"] == "completed"]
    return {
        "wall_s": wall,
        "trials": len(started),
        "steps": sum(steps.values()),
        "full_length": len(full),
        "quality": {n: [round(q, 4) for q in values] for n, values in sorted(quality.items())},
        "seconds_per_trial": {
            n: round(statistics.median(s), 2) for n, s in sorted(seconds.items())
        },
        "peak_memory_mib": memory,
    }


def _peer(
    place: Path,
    data: Path,
    options: argparse.Namespace,
    frozen: list[int],
    epochs: int,
    *grid: Sequence[float],
    more: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what the other side finds.

    data: its folder of rows. grid: rates and seeds. more: options of its own.
    """
    rates, seeds = grid
    model = model_folder(resolve_model(options.model))
    command = [
        *(sys.executable, str(Path(options.peer).resolve()), "--model", str(model)),
        *("--data", str(data), "--mode", "grid", "--epochs", str(epochs)),
        *("--learning-rates", *map(str, rates), "--seeds", *map(str, seeds)),
        *("--frozen", *map(str, frozen), "--out", str(place / "peer"), *more),
    ]
    output = place / "peer.json"
    wall, memory = _timed(command, dict(os.environ), place, output=output)
    printed = json.loads(output.read_text().splitlines()[-1])
    seconds, quality, rows = defaultdict(list), defaultdict(list), []
    for file in place.glob("peer/**/result.json"):
        last = json.loads(file.read_text().splitlines()[-1])
        n = str(last["config"]["frozen"])
        config = {f"config/{name}": last["config"][name] for name in ("frozen", "lr", "seed")}
        rows.append({"quality": last["quality"], **config})
        seconds[n].append(last["time_total_s"])
        quality[n].append(last["quality"])
    return {
        "wall_s": wall,
        "trials": printed["trials"],
        "steps": printed["steps"],
        "full_length": printed["full_length"],
        "quality": {n: [round(q, 4) for q in values] for n, values in sorted(quality.items())},
        "seconds_per_trial": {
            n: round(statistics.median(s), 2) for n, s in sorted(seconds.items())
        },
        "peak_memory_mib": memory,
        "rows": rows,
    }


def _timed(
    command: list[str],
    environment: dict[str, str],
    folder: Path,
    *,
    output: Path | None = None,
    allowed: tuple[int, ...] = (0,),
) -> tuple[float, float]:
    """Seconds of a whole command, and the peak resident memory of any Ray worker, in MiB."""
    peak = [0.0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    text = status.read_text()
                except OSError:
                    continue
                if text.startswith("Name:\tray::"):
                    lines = [line for line in text.splitlines() if line.startswith("VmHWM:")]
                    peak[0] = max(peak[0], *(int(line.split()[1]) / 1024 for line in lines), 0.0)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    started = time.perf_counter()
    with open(output or os.devnull, "wb") as out:
        finished = subprocess.run(command, env=environment, cwd=folder, stdout=out, check=False)
    wall = round(time.perf_counter() - started, 1)
    done.set()
    watcher.join()
    if finished.returncode not in allowed:
        sys.exit(f"{command[:4]} ended with {finished.returncode}")
    return wall, round(peak[0])


if __name__ == "__main__":
    main()
