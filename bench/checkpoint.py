"""What a trial's checkpoint saves where the trial is killed at 90 %, and what it costs.

    python bench/checkpoint.py --data-dir ../shared/glue        # `make mpnet` first

A trial of MiniLM on SST-2 rows (batches of 16, fp32, one thread) is trained undisturbed; killed
behind 90 % of its steps and started again; and killed there and continued from its checkpoint,
which is written every few seconds, for the trial is short. Each attempt is a forked process, the
three ways take turns, and medians count: CPU seconds, since the machine does other work beside it.
Of MPNet's twelve layers the writing alone is timed. `write_s` is by the clock, to the disk, and
`write_cpu_s` beside it; `share_by_default` is what writing takes by the clock of a trial's time at
the default interval. Writes bench/results/checkpoint.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

import machine
import torch

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.trial import Recipe, TrialSpec
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training.checkpoints import (
    AUTO_SECONDS,
    AUTO_SHARE,
    FolderCheckpoints,
    TrialCheckpoint,
)
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import train

CASES = (0, 4)
ROWS, EPOCHS = 240, 2
STEPS = EPOCHS * ROWS // 16
KILLED_BEHIND = int(0.9 * STEPS)
EVERY = 2.0
TURNS = 3
# Of MPNet: depths, and how many checkpoints are written of each.
WRITTEN = (0, 6, 11)
WRITES = 5


@dataclass
class Attempt:
    """One process of a trial, and what it tells before it ends."""

    trial: TrialSpec
    data: TaskData
    folder: Path | None = None  # of its checkpoint; None: it writes none
    every: float = EVERY  # seconds from one to the next
    killed_behind: int = 0  # the step; 0: it runs to its end
    writes: int = 0  # after so many it ends; 0: it does not
    took: list[tuple[float, float]] = field(default_factory=list)  # each write, clock and CPU
    size: int = 0  # of the checkpoint, in bytes

    def run(self) -> dict[str, Any]:
        """Run it in a forked process; return what it told last."""
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=self._train, args=(there,))
        process.start()
        there.close()
        told: dict[str, Any] = here.recv()
        process.join()
        expected = -signal.SIGKILL if self.killed_behind else 0
        assert process.exitcode == expected, process.exitcode
        return told

    def _train(self, there: Connection) -> None:
        began = time.process_time()
        checkpoint = None
        if self.folder is not None:
            kept = Timed(self.folder, self)
            checkpoint = TrialCheckpoint(kept, self.trial.key, self.every)
        loss = None

        def tell() -> None:
            cpu = time.process_time() - began
            there.send({"cpu_s": cpu, "took": self.took, "size": self.size, "loss": loss})

        def on_step(done: int, planned: int) -> None:
            if done == self.killed_behind:
                tell()
                os.kill(os.getpid(), signal.SIGKILL)
            if self.writes and len(self.took) == self.writes:
                tell()
                sys.exit()

        running = train(self.trial, self.data, device="cpu", on_step=on_step, checkpoint=checkpoint)
        for result in running:
            loss = result.eval_loss
        tell()


class Timed:
    """A folder of checkpoints that tells an attempt how long writing took."""

    def __init__(self, folder: Path, attempt: Attempt) -> None:
        self._kept = FolderCheckpoints(folder)
        self._attempt = attempt

    def load(self, key: str) -> bytes | None:
        return self._kept.load(key)

    def delete(self, key: str) -> None:
        self._kept.delete(key)

    def save(self, key: str, write: Callable[[BinaryIO], object]) -> None:
        began = time.perf_counter()
        began_cpu = time.process_time()
        self._kept.save(key, write)
        cpu = time.process_time() - began_cpu
        self._attempt.took.append((time.perf_counter() - began, cpu))
        file = self._kept.folder / f"{key}.safetensors"
        self._attempt.size = file.stat().st_size


def trial_of(model_name: str, n: int, data_dir: str) -> TrialSpec:
    """Return the trial of a model with so many frozen layers."""
    return TrialSpec(
        model=resolve_model(model_name),
        task=resolve_task("sst2", data_dir=data_dir),
        recipe=Recipe(train_size=ROWS, epochs=EPOCHS),
        candidate=FreezeDepth.of(n),
        learning_rate=5e-5,
        seed=1,
    )


def costs(took: list[tuple[float, float]], size: int) -> dict[str, Any]:
    """Return what writing a checkpoint costs."""
    write = statistics.median(clock for clock, _ in took)
    cpu = statistics.median(cpu for _, cpu in took)
    return {
        "checkpoint_mb": round(size / 1e6, 1),
        "writes": len(took),
        "write_s": round(write, 3),
        "write_cpu_s": round(cpu, 3),
        "share_by_default": round(write / max(AUTO_SECONDS, write / AUTO_SHARE), 6),
    }


def killed(trial: TrialSpec, data: TaskData) -> dict[str, Any]:
    """Let the three ways take turns."""
    undisturbed: list[float] = []
    restarted: list[float] = []
    continued: list[float] = []
    took: list[tuple[float, float]] = []
    losses: set[float] = set()
    size = 0
    for _ in range(TURNS):
        alone = Attempt(trial, data).run()
        undisturbed.append(alone["cpu_s"])

        first = Attempt(trial, data, killed_behind=KILLED_BEHIND).run()
        again = Attempt(trial, data).run()
        restarted.append(first["cpu_s"] + again["cpu_s"])

        with tempfile.TemporaryDirectory(dir=".") as name:
            folder = Path(name)
            first = Attempt(trial, data, folder, killed_behind=KILLED_BEHIND).run()
            rest = Attempt(trial, data, folder).run()
        continued.append(first["cpu_s"] + rest["cpu_s"])
        losses |= {alone["loss"], again["loss"], rest["loss"]}
        took += first["took"] + rest["took"]
        size = first["size"]
    usual = statistics.median(undisturbed)
    return {
        "undisturbed_s": round(usual, 2),
        "lost_without_s": round(statistics.median(restarted) - usual, 2),
        "lost_with_s": round(statistics.median(continued) - usual, 2),
        "same_losses": len(losses) == 1,
        **costs(took, size),
    }


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for model, depths in (("minilm", CASES), ("mpnet", WRITTEN)):
        first = trial_of(model, depths[0], options.data_dir)
        data = prepare(first.model, first.task, first.recipe)
        for n in depths:
            trial = trial_of(model, n, options.data_dir)
            result: dict[str, Any] = {"model": model, "n": n}
            if model == "minilm":
                result |= killed(trial, data)
            else:
                with tempfile.TemporaryDirectory(dir=".") as name:
                    written = Attempt(trial, data, Path(name), every=0.0, writes=WRITES).run()
                result |= costs(written["took"], written["size"])
            results.append(result)
            print(json.dumps(result), flush=True)
    note = (
        f"SST-2, batch 16, {STEPS} steps, killed behind {KILLED_BEHIND}, a checkpoint every "
        f"{EVERY:g} s; CPU seconds of one thread; {TURNS} turns, medians"
    )
    print(machine.write("checkpoint", results, note))


if __name__ == "__main__":
    main()
