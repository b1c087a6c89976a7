"""What a trial costs as the training set grows, and a search as its trials multiply.

    python bench/scaling.py --data-dir ../shared/glue rows
    python bench/scaling.py trials
    python bench/scaling.py reports

rows: SST-2 at 500 to all 67,349 examples, one epoch, N = 5 (its prefix computed first, counted
apart) and, up to 8,000, N = 0; in this process, both cores. trials: searches of 10, 100 and 1,000
trials that train next to nothing (32 examples, N = 6), one at a time: what is left is Ray, the
journal, MLflow, and the way from one trial to the next. reports: the driver's CPU time for one more
report, with 100 to 10,000 trials recorded and none trained; then `resume` of a finished search of
10,000 such trials, first with an empty store, which it fills. Writes
bench/results/scaling_WHAT.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import numpy as np
from rich.console import Console

from elsa_tune.searching.board import Board
from elsa_tune.searching.planning.known import known_trial
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.record import SearchRecord, facts_of, started
from elsa_tune.searching.specification import save_specification
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.rate_space import RateRange
from elsa_tune.specs.trial import Phase, Recipe, TrialSpec, TrialStatus
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import (
    Record,
    Report,
    SearchEnded,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.loop import evaluation_steps, steps

ROWS = (500, 1000, 2000, 8000, None)
TRIALS = (10, 100, 1000)
RECORDED, REPORTED = (100, 1000, 10_000), 500
LARGEST_FULL = 8000


def main() -> None:
    """Measure one of the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["rows", "trials", "reports"])
    parser.add_argument("--data-dir", default="../shared/glue")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ELSA_TUNE_CACHE"] = f"{scratch}/cache"
        if options.what == "rows":
            results, note = _rows(options.data_dir)
        elif options.what == "trials":
            results, note = _trials(Path(scratch))
        else:
            results, note = _reports(Path(scratch))
    print(machine.write(f"scaling_{options.what}", results, note))


def _rows(data_dir: str) -> tuple[dict[str, Any], str]:
    model, task = resolve_model("minilm"), resolve_task("sst2", data_dir=data_dir)
    found: dict[str, Any] = {}
    for count in ROWS:
        recipe = Recipe(epochs=1, train_size=count)
        data = prepare(model, task, recipe)
        for n in (5, 0):
            if n == 0 and len(data.train) > LARGEST_FULL:
                continue
            trial = TrialSpec(
                model=model,
                task=task,
                recipe=recipe,
                candidate=FreezeDepth.of(n),
                learning_rate=5e-5,
                seed=1,
            )
            started = time.perf_counter()
            training = steps(trial, data, device="cpu")
            next(training)
            ready = time.perf_counter()
            total = evaluation_steps(recipe, len(data.train))[-1]
            timed = [next(training) for _ in range(total - 1)]
            ended = time.perf_counter()
            training.close()
            examples = sum(len(batch) for batch in timed)
            tokens = sum(int(data.train.lengths[batch].sum()) for batch in timed)
            found[f"N={n} {len(data.train)} examples"] = {
                "seconds_to_first_step": round(ready - started, 2),
                "seconds_of_training": round(ended - ready, 2),
                "milliseconds_per_example": round(1e3 * (ended - ready) / examples, 3),
                "tokens": int(data.train.offsets[-1]),
                "microseconds_per_token": round(1e6 * (ended - ready) / tokens, 1),
            }
            print(n, count, found[f"N={n} {len(data.train)} examples"], flush=True)
    return found, "SST-2, MiniLM, one epoch without evaluation, batch 16, fp32, two threads"


def _trials(place: Path) -> tuple[dict[str, Any], str]:
    draw = random.Random(0)
    rows = [f"{draw.choice(['good', 'bad'])} film,{number % 2}" for number in range(32)]
    for split in ("train", "dev"):
        (place / f"{split}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (place / "task.yaml").write_text(
        "name: next_to_nothing\nfiles: {train: train.csv, evaluation: dev.csv}\ntext: [text]\n"
        'label: label\nclasses: ["0", "1"]\n'
    )
    found: dict[str, Any] = {}
    for count in TRIALS:
        name = f"of-{count}"
        started = time.perf_counter()
        command = [
            *(sys.executable, "-m", "elsa_tune", "search", "--model", "minilm"),
            *("--task", "task.yaml", "--space", "grid", "--name", name, "--seeds", str(count)),
            *("--set", "depths=[6]", "--set", "learning_rate=5e-5", "--set", "epochs=1"),
            *("--set", "linear_probe=false", "--set", "extend=false"),
            *("--cpus-per-trial", str(os.cpu_count())),
        ]
        status = subprocess.run(command, cwd=place, check=False, stdout=subprocess.DEVNULL)
        wall = time.perf_counter() - started
        if status.returncode not in (0, 3):  # 3: without the full model there is no answer
            sys.exit(status.returncode)
        journal = (place / "mlruns" / "searches" / name / "journal.jsonl").read_text()
        records = [json.loads(line) for line in journal.splitlines()]
        ends = [record for record in records if record["kind"] == "trial_ended"]
        times = [end["time"] for end in ends]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        trained = statistics.median(end["metrics"]["train_seconds"] for end in ends)
        found[f"{count} trials"] = {
            "wall_s": round(wall, 1),
            "completed": sum(end["status"] == "completed" for end in ends),
            "median_seconds_from_end_to_end": round(statistics.median(gaps), 3),
            "of_that_training": round(trained, 3),
            "peak_rss_mb_of_largest_process": _largest_mb(),
        }
        print(count, found[f"{count} trials"], flush=True)
    return found, (
        "searches of trials of two steps at N = 6, one at a time on a warm worker; whole commands; "
        "from one trial's end to the next one's: by the driver's journal"
    )


def _reports(place: Path) -> tuple[dict[str, Any], str]:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.unit.search_examples import make_spec

    spec = make_spec()
    ended = {name: 1.0 for name in ("train_seconds", "peak_memory_mb", "quality")}
    nowhere: Any = SimpleNamespace(offer=lambda record: None)
    found: dict[str, Any] = {}
    for count in RECORDED:
        paths = SearchPaths(place, f"of-{count}")
        plan = [
            spec.trial(Phase.MEASURE, spec.candidates[seed % len(spec.candidates)], 2e-5, seed)
            for seed in range(count + REPORTED)
        ]
        earlier: list[Record] = []
        for trial in plan[:count]:
            earlier += [
                TrialStarted(trial=trial.key, attempt=1, params=facts_of(spec, trial)),
                *(_report_of(trial, evaluation) for evaluation in (1, 2)),
                TrialEnded(trial=trial.key, status=TrialStatus.COMPLETED, metrics=ended),
            ]
        earlier = [dataclasses.replace(one, time=1.0 + i) for i, one in enumerate(earlier)]
        with Journal(SearchPaths(place, f"of-{count}").journal) as journal:
            journal.earlier = earlier
            record = SearchRecord(spec, paths, journal, nowhere, print)
            console = Console(file=io.StringIO())
            board = Board(spec, lambda: None, console)
            board.follow(Plan(spec, record.state, paths.folder))
            starts, reports, ends = [], [], []
            for trial in plan[count:]:
                params = facts_of(spec, trial)
                starts.append(TrialStarted(trial=trial.key, attempt=1, params=params))
                reports.append(_report_of(trial, 1))
                end = TrialEnded(trial=trial.key, status=TrialStatus.COMPLETED, metrics=ended)
                ends.append(end)
            with board:
                _milliseconds(record, board, starts)
                per_report = _milliseconds(record, board, reports)
                began = time.process_time()
                _milliseconds(record, board, ends)
            # The board prints them in a thread of its own, and has at the end of `with`.
            per_end = 1e3 * (time.process_time() - began) / len(ends)
        found[f"{count} trials"] = {
            "milliseconds_per_report": round(per_report, 3),
            "milliseconds_per_end": round(per_end, 3),
        }
        print(count, found[f"{count} trials"], flush=True)
    found |= _finished(place)
    return found, (
        f"the driver's CPU time for one record, mean of {REPORTED}, not on a terminal; resume: "
        "whole commands, the largest of their processes"
    )


def _finished(place: Path) -> dict[str, Any]:
    """`resume` of a finished search, twice; its trials say what was drawn, none was trained."""
    from tests.unit.search_examples import make_spec

    depths = tuple(map(FreezeDepth.of, range(7)))
    seeds = 5
    tries = RECORDED[-1] // len(depths) - seeds
    store = f"sqlite:///{place}/mlflow.db"
    spec = make_spec(
        name="finished",
        candidates=depths,
        explored=depths,
        rates=RateRange(low=1e-5, high=5e-5),
        tries=tries,
        seeds=seeds,
        planned_seeds=seeds,
        tracking_uri=store,
    )
    paths = SearchPaths(place / "searches", spec.name)
    paths.check_writable()
    save_specification(spec, paths)
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, spec.evaluation_examples)
    nowhere: Any = SimpleNamespace(offer=lambda record: None)
    with Journal(paths.journal) as journal:
        record = SearchRecord(spec, paths, journal, nowhere, print)
        record.write(started(spec, 1))
        rates = np.geomspace(1e-5, 5e-5, tries)
        for depth in depths:
            trials = [spec.trial(Phase.EXPLORE, depth, float(rate), spec.seed) for rate in rates]
            seeds_of = spec.measuring_seeds
            trials += [spec.trial(Phase.MEASURE, depth, 2e-5, seed) for seed in seeds_of]
            for trial in trials:
                is_right = draw.random(len(labels)) < 0.9 - 0.03 * depth.frozen_layers
                answers = np.where(is_right, labels, 1 - labels)
                record.begin(trial)
                for evaluation in (1, 2):
                    record.write(_report_of(trial, evaluation, float(is_right.mean())))
                artifact = None
                if trial.phase is Phase.MEASURE:
                    artifact = record.keep_predictions(trial.key, answers, labels)
                record.write(
                    TrialEnded(
                        trial=trial.key,
                        attempt=1,
                        status=TrialStatus.COMPLETED,
                        metrics={"quality": float(is_right.mean()), "train_seconds": 1.0},
                        artifact=artifact,
                    )
                )
        record.write(SearchEnded(status=SearchStatus.COMPLETED))
    MlflowStore(store).initialise()
    found: dict[str, Any] = {}
    for what in ("filling an empty store", "again"):
        command = [*(sys.executable, "-m", "elsa_tune", "resume", spec.name)]
        command += ["--storage-path", str(paths.storage)]
        before = time.perf_counter()
        status = subprocess.run(command, cwd=place, check=False, stdout=subprocess.DEVNULL)
        wall = time.perf_counter() - before
        if status.returncode:
            sys.exit(status.returncode)
        found[f"resume of {(tries + seeds) * len(depths)} trials, {what}"] = {
            "wall_s": round(wall, 1),
            "peak_rss_mb_of_largest_process": _largest_mb(),
        }
        print(what, found, flush=True)
    return found


def _largest_mb() -> int:
    """Return the most memory that a process below this one has had.

    That is of all that have ended so far.
    """
    return round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)


def _report_of(trial: TrialSpec, evaluation: int, quality: float = 0.7) -> Report:
    metrics = {"quality": quality, "accuracy": quality, "train_loss": 0.5}
    return Report(trial=trial.key, evaluation=evaluation, step=evaluation, metrics=metrics)


def _milliseconds(record: SearchRecord, board: Board, new: Sequence[Any]) -> float:
    """Of this process for each of these records."""
    started = time.process_time()
    for one in new:
        record.write(one)
        if isinstance(one, TrialEnded):
            board.ended(known_trial(record.spec, record.state().trials[one.trial]))
    return 1e3 * (time.process_time() - started) / len(new)


if __name__ == "__main__":
    main()
