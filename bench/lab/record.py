"""The laboratory: complete tables of trials, rate x depth x seed x evaluation, for replay.

    python bench/lab/record.py --data-dir ../shared/glue          # goes on where it stopped
    python bench/lab/record.py --model mpnet --tasks sst2 cola    # twelve layers

Each finished trial is written to bench/lab/TASK.parquet (mpnet/TASK.parquet) at once, so that it
may be killed at any time. MiniLM or MPNet, fp32, one thread a trial, 1,000 training rows (MiniLM's
CoLA 2,000) with a further tenth of them held out, four epochs, no dropout in frozen layers: the
searches' own training loop, without Ray. One row is one evaluation; its predictions are packed (see
`packed`).

Rates go up in steps of about two from the space's lowest while a depth can use them: until two
steps past its best; of MPNet, the seven lowest at least. First comes every depth's first seed,
which chooses rates; then three fresh seeds of the rates that it chooses: the best within the
paper's range, the best of all, and the full model's best within the paper's range; then the other
seeds around the best rate.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FOLDER = Path(__file__).resolve().parent
RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2)
PAPER = 5e-5  # the highest rate of the paper's range
MEASURING = (1, 2, 3)
LAYERS = {"minilm": 6, "mpnet": 12}
DEPTHS = {"minilm": (0, 2, 3, 4, 5, 6), "mpnet": (0, 6, 7, 8, 9, 10, 11, 12)}
# The first seed is recorded at so many of the lowest rates at least, whatever it learns.
AT_LEAST = {"minilm": 0, "mpnet": 7}
# Dear depths are thinned: of their other seeds, these rates, and two of each.
THIN_RATES = (2e-5, 5e-5, 1e-4, 2e-4)
THIN = {"minilm": (0, 2), "mpnet": (0, 6, 7)}
SEEDS_THIN = 2
TASKS = ("sst2", "cola", "mrpc", "stsb", "stdlib")
EPOCHS = 4
SEEDS = 3
SEEDS_AT_BEST = 6  # of depths whose trials take seconds
LEARNT = 0.02  # rates that differ by less have all failed to train
CHEAP = {"minilm": 4, "mpnet": 10}  # from this many frozen layers on


@dataclass(frozen=True, order=True)
class Job:
    """One trial of the laboratory."""

    model: str
    task: str
    frozen_layers: int
    learning_rate: float
    seed: int


def rows_of(model: str, task: str) -> int:
    """Return how many rows a task's trials are given; an eleventh of them is held out."""
    # MiniLM learns nothing of CoLA from 1,000 rows; MPNet does.
    return 2222 if (model, task) == ("minilm", "cola") else 1111


def run(job: Job, data_dir: str) -> list[dict[str, Any]]:
    """Train it with one thread; a row per evaluation, the last with its status."""
    import torch

    from elsa_tune.errors import DivergedError
    from elsa_tune.specs.adapt.freeze import FreezeDepth
    from elsa_tune.specs.model import resolve_model
    from elsa_tune.specs.trial import Precision, Recipe, Selection, TrialSpec
    from elsa_tune.tasks.task_file import resolve_task
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.loop import train
    from elsa_tune.training.objective import Objective

    torch.set_num_threads(1)
    model = resolve_model(job.model)
    is_glue = job.task != "stdlib"
    task = resolve_task(job.task, data_dir=data_dir) if is_glue else resolve_task(job.task)
    recipe = Recipe(
        epochs=EPOCHS,
        train_size=rows_of(job.model, job.task),
        selection=Selection.HOLDOUT,
        precision=Precision.FP32,
        standardize_targets=True,  # as in every space that repeats no published protocol
    )
    trial = TrialSpec(
        model=model,
        task=task,
        recipe=recipe,
        candidate=FreezeDepth.of(job.frozen_layers),
        learning_rate=job.learning_rate,
        seed=job.seed,
    )
    data = prepare(model, task, recipe)
    predictions: list[np.ndarray] = []
    assess = Objective.assess

    def recorded(self: Objective, *args: Any) -> Any:
        found = assess(self, *args)
        predictions.append(found[-1])
        return found

    # A trial gives the predictions of one evaluation only; the tables keep all.
    Objective.assess = recorded  # type: ignore[method-assign]
    started, rows, status = time.process_time(), [], "completed"
    try:
        candidates = [FreezeDepth.of(n) for n in DEPTHS[job.model]]
        for found in train(trial, data, device="cpu", candidates=candidates):
            rows.append(
                {
                    "task": job.task,
                    "frozen_layers": job.frozen_layers,
                    "learning_rate": job.learning_rate,
                    "seed": job.seed,
                    "evaluation": found.evaluation,
                    "evaluations": found.evaluations,
                    "step": found.step,
                    "quality": found.quality,
                    "holdout_quality": found.holdout_quality,
                    "train_loss": found.train_loss,
                    "eval_loss": found.eval_loss,
                    "chance": found.chance,
                    "train_seconds": found.train_seconds,
                    "cpu_seconds": time.process_time() - started,
                    "predictions": packed(predictions[-1]),
                }
            )
    except DivergedError:
        status = "diverged"
    finally:
        Objective.assess = assess  # type: ignore[method-assign]
    if not rows:
        asked = {name: value for name, value in vars(job).items() if name != "model"}
        rows.append({**asked, "evaluation": 0, "evaluations": EPOCHS})
    return [{**row, "status": status} for row in rows]


def packed(predictions: np.ndarray) -> bytes:
    """Two classes as bits, classes as bytes, values as float16, in the evaluation split's order."""
    if predictions.dtype.kind == "f":
        return predictions.astype("<f2").tobytes()
    if predictions.max(initial=0) > 1:
        return predictions.astype(np.uint8).tobytes()
    return np.packbits(predictions.astype(bool)).tobytes()


def unpacked(data: bytes, examples: int) -> np.ndarray:
    """Return what `packed` packed, of so many examples."""
    if len(data) == 2 * examples:
        return np.frombuffer(data, "<f2").astype(np.float32)
    if len(data) == examples:
        return np.frombuffer(data, np.uint8).astype(np.int64)
    return np.unpackbits(np.frombuffer(data, np.uint8))[:examples].astype(np.int64)


def folder_of(model: str) -> Path:
    """Return where a model's tables lie."""
    return FOLDER if model == "minilm" else FOLDER / model


class Tables:
    """What is recorded so far, a Parquet file a task."""

    def __init__(self, model: str, tasks: list[str]) -> None:
        self.model = model
        self.folder = folder_of(model)
        self.folder.mkdir(exist_ok=True)
        self.rows: dict[str, list[dict[str, Any]]] = {}
        for task in tasks:
            file = self.folder / f"{task}.parquet"
            self.rows[task] = pd.read_parquet(file).to_dict("records") if file.exists() else []

    def add(self, rows: list[dict[str, Any]]) -> None:
        """One trial's rows, written beside the file and renamed."""
        task = rows[0]["task"]
        self.rows[task] += rows
        keys = ["frozen_layers", "learning_rate", "seed", "evaluation"]
        table = pd.DataFrame(self.rows[task]).sort_values(keys)
        aside = self.folder / f".{task}.parquet"
        table.to_parquet(aside, index=False, compression="zstd")
        aside.replace(self.folder / f"{task}.parquet")

    def done(self, task: str) -> dict[Job, float]:
        """Each finished trial's last quality; a diverged one has -1."""
        last: dict[Job, tuple[int, float]] = {}
        for row in self.rows[task]:
            asked = (row["frozen_layers"], row["learning_rate"], row["seed"])
            job = Job(self.model, task, *asked)
            quality = -1.0 if row["status"] == "diverged" else row["quality"]
            if job not in last or row["evaluation"] >= last[job][0]:
                last[job] = (row["evaluation"], quality)
        return {job: quality for job, (_, quality) in last.items()}


def rules(depth: int, done: dict[Job, float]) -> set[float]:
    """Return the rates that the first seed chooses for a depth: see the module's beginning."""
    first: dict[int, dict[float, float]] = defaultdict(dict)
    for job, quality in done.items():
        if job.seed == 0:
            first[job.frozen_layers][job.learning_rate] = quality
    given = {n: {r: q for r, q in found.items() if r <= PAPER} for n, found in first.items()}
    if not given.get(depth) or not given.get(0):
        return set()
    return {lowest(given[depth]), lowest(first[depth]), lowest(given[0])}


def lowest(found: dict[float, float]) -> float:
    """Return the lowest rate of the best one's plateau, as a search sees it."""
    from elsa_tune.specs.border import plateau
    from elsa_tune.specs.policy import Policy

    return plateau(found, Policy().noise)[0]


def wanted(model: str, task: str, depth: int, done: dict[Job, float]) -> list[tuple[int, Job]]:
    """Return what this depth still lacks, each with how soon it is wanted.

    A smaller number comes first.
    """
    mean: dict[float, list[float]] = defaultdict(list)
    for job, quality in done.items():
        if job.frozen_layers == depth:
            mean[job.learning_rate].append(quality)
    found = {rate: sum(values) / len(values) for rate, values in mean.items()}
    best = max(found, key=lambda rate: (found[rate], -rate), default=RATES[0])
    place = RATES.index(best)
    if max(found.values(), default=0) - min(found.values(), default=0) < LEARNT:
        place = max(map(RATES.index, found), default=0)  # nothing has learnt yet: go on upwards
    chosen = rules(depth, done)
    jobs = []
    for index, rate in enumerate(RATES[: max(place + 3, AT_LEAST[model])]):
        for seed in range(SEEDS_AT_BEST):
            job = Job(model, task, depth, rate, seed)
            order = order_of(job, rate in chosen, abs(index - place) <= 1)
            if job not in done and order is not None:
                jobs.append((order, job))
    return jobs


def order_of(job: Job, is_chosen: bool, is_near: bool) -> int | None:
    """Return how soon a trial is wanted, None where it is not.

    is_chosen: whether the first seed chooses its rate. is_near: whether that is the best or beside.
    """
    depth = job.frozen_layers
    is_thin = depth in THIN[job.model]
    if job.seed == 0 and job.learning_rate in RATES[: AT_LEAST[job.model]]:
        return 0
    # No shipped space asks for N = 2 of 6: it takes no part in the measured curves.
    later = 6 if depth == 2 else 0
    if is_chosen and job.seed in MEASURING and depth != 2:
        return 1
    if is_thin and job.learning_rate not in THIN_RATES:
        return None
    if job.seed == 0:
        return later
    if is_thin and job.seed < SEEDS_THIN:
        return 4 + later
    if not is_thin and job.seed < SEEDS:
        return 2
    if depth >= CHEAP[job.model] and is_near:
        return 3
    return None


def main() -> None:
    """Two trials at a time, the most wanted first, until nothing is wanted or it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--model", choices=list(DEPTHS), default="minilm")
    parser.add_argument("--depths", nargs="+", type=int, help="some of the model's only")
    parser.add_argument("--orders", type=int, default=99, help="only jobs wanted this soon")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    data_dir = str(Path(options.data_dir).resolve())
    tables = Tables(options.model, options.tasks)
    depths = options.depths or DEPTHS[options.model]
    running: dict[Any, Job] = {}
    with ProcessPoolExecutor(max_workers=options.workers) as pool:
        while True:
            under_way = set(running.values())
            queue = sorted(
                (order // 2, options.tasks.index(task), order, -job.frozen_layers, job)
                for task in options.tasks
                for depth in depths
                for order, job in wanted(options.model, task, depth, tables.done(task))
                if job not in under_way and order <= options.orders
            )
            for *_, job in queue[: options.workers - len(running)]:
                running[pool.submit(run, job, data_dir)] = job
            if not running:
                break
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                job, rows = running.pop(future), future.result()
                tables.add(rows)
                last = rows[-1]
                print(
                    f"{time.strftime('%H:%M:%S')} {job.task} N={job.frozen_layers} "
                    f"{job.learning_rate:g} s{job.seed} {last['status']} "
                    f"{last.get('quality', float('nan')):.4f} {last.get('cpu_seconds', 0):.1f}s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
