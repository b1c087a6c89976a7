"""What tests of complete searches share.

That is a tiny model, a task of their own, and the command line as a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.tiny_models import make_tiny

ROOT = Path(__file__).resolve().parent.parent
GOOD, BAD = ("good", "great", "best", "fun"), ("bad", "dull", "worst", "never")
# A trial's share on a machine of two cores: one thread, since on models of this size two would only
# wait for each other, at work; and no second trial beside it, whose process would spend longer on
# its imports than on its trials.
ONE_AT_A_TIME = ("--cpus-per-trial", "1.5")
FILLERS = ("the", "film", "was", "and", "very", "story", "plot", "acting", "it", "is")


@dataclass(frozen=True)
class Bench:
    """A working directory with a model (`model/`) and a task (`task.yaml`) in it."""

    folder: Path

    @property
    def journal(self) -> Callable[[str], Path]:
        return lambda name: self.folder / "mlruns" / "searches" / name / "journal.jsonl"

    def records(self, name: str) -> list[dict[str, Any]]:
        """Every whole line of a search's journal."""
        try:
            lines = self.journal(name).read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the SQLite store."""
        with sqlite3.connect(self.folder / "mlruns" / "mlflow.db", timeout=30) as store:
            return store.execute(sql).fetchall()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command line in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "elsa_tune", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run the same to its end."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def search(self, name: str, *more: str) -> list[str]:
        """Return the arguments of a small search under a name.

        more: among others a linear probe, and rates beyond those given, which it is otherwise
        without.
        """
        what = ["search", "--model", "model", "--task", "task.yaml", "--name", name]
        return [*what, "--set", "linear_probe=false", "--set", "extend=false", *more]


def make_bench(folder: Path, train: int = 96, evaluation: int = 64, layers: int = 2) -> Bench:
    """Make a small BERT with random weights and a sentiment task that a bag of words solves."""
    folder.mkdir(parents=True, exist_ok=True)
    make_tiny("bert", folder / "model", layers=layers)
    draw = random.Random(0)
    for name, count in (("train", train), ("dev", evaluation)):
        rows = [_row(draw, number % 2) for number in range(count)]
        (folder / f"{name}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (folder / "task.yaml").write_text(
        "name: mood\nfiles: {train: train.csv, evaluation: dev.csv}\ntext: [text]\n"
        "label: label\nclasses: [bad, good]\nmetric: accuracy\n"
    )
    return Bench(folder)


def _row(draw: random.Random, label: int) -> str:
    words = [draw.choice(FILLERS) for _ in range(4)] + [draw.choice(GOOD if label else BAD)] * 3
    draw.shuffle(words)
    return " ".join(words) + "," + ("good" if label else "bad")


def wait_for(what: Callable[[], bool], seconds: float = 200) -> None:
    """Return as soon as something is so; fail when it is not in time."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@contextlib.contextmanager
def interrupted(when: Callable[[], bool]) -> Iterator[None]:
    """Send this process a Ctrl-C while the block runs, as soon as something is so."""
    is_over = threading.Event()

    def watch() -> None:
        while not when():
            if is_over.wait(0.1):
                return
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def of_kind(records: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the records of one kind."""
    return [record for record in records if record["kind"] == kind]


def without_export(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer as JSON without its next step, which is to export the search's model."""
    recommendation = answer["recommendation"]
    [(_, command)] = [line for line in recommendation["lines"] if line[0] == "Next"]
    assert command.startswith("elsa-tune export"), command
    lines = [line for line in recommendation["lines"] if line[0] != "Next"]
    return {**answer, "recommendation": {**recommendation, "lines": lines}}


def terminate(command: subprocess.Popen[str]) -> None:
    """SIGTERM to a command and every process that it has started, as systemd and Slurm do it."""
    for pid in (command.pid, *family(command.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def family(first: int) -> dict[int, str]:
    """Every process that one has started, and theirs: the programs' names by their ids."""
    listing = subprocess.run(
        ["ps", "-ewwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    children: dict[int, dict[int, str]] = {}
    for line in listing.splitlines():
        pid, parent, words = line.split(None, 2)
        children.setdefault(int(parent), {})[int(pid)] = Path(words.split()[0]).name
    found, waiting = {}, [first]
    while waiting:
        below = children.get(waiting.pop(), {})
        found |= below
        waiting += below
    return found
