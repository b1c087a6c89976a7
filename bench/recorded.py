"""Recorded searches as measurements: each one command, resumed where it stopped, with its costs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine

ROOT = machine.RESULTS.parent.parent
COMMANDS = "commands.json"  # how long each command of a search took
MARK = "ELSA_TUNE_BENCH_SEARCH"  # set in every process of a command
ENDED = (0, 3)  # exit statuses of a complete search: 3 has no certified answer, a result too


class Usage:
    """Watches what the marked processes hold and how long they compute."""

    def __init__(self) -> None:
        self.together_mib = 0.0
        self.worker_mib = 0.0
        self._cpu_seconds: dict[str, float] = {}  # by process, ended ones as last seen
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def cpu_minutes(self) -> float:
        """Processor time of all processes together."""
        return sum(self._cpu_seconds.values()) / 60

    def __enter__(self) -> Usage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(2.0):
            together = 0.0
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if MARK.encode() not in (process / "environ").read_bytes():
                        continue
                    text = (process / "smaps_rollup").read_text()
                    name = (process / "comm").read_text()
                    times = (process / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
                except OSError:
                    continue
                ticks = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
                self._cpu_seconds[process.name] = ticks
                lines = [line for line in text.splitlines() if line.startswith("Pss:")]
                held = sum(int(line.split()[1]) for line in lines) / 1024
                together += held
                if name.startswith("ray::"):
                    self.worker_mib = max(self.worker_mib, held)
            self.together_mib = max(self.together_mib, together)


def search(folder: Path, words: Sequence[str], data_dir: str) -> None:
    """Run `elsa-tune search` with these words, or resume it; note what the command took.

    folder: of the search, whose name its own is. Exits with the command's status where it failed.
    """
    commands = recorded_commands(folder)
    if commands and commands[-1]["status"] in ENDED:
        return
    command = [sys.executable, "-m", "elsa_tune", "search", *words]
    command += ["--name", folder.name, "--storage-path", str(folder.parent)]
    command += ["--tracking-uri", f"sqlite:///{ROOT}/build/{folder.parent.name}.db"]
    (ROOT / "build").mkdir(exist_ok=True)
    load_before = round(os.getloadavg()[2], 1)
    began = time.perf_counter()
    with Usage() as usage:
        environment = {**os.environ, MARK: "1"}
        status = subprocess.run(command, check=False, env=environment).returncode
    seconds = time.perf_counter() - began
    commands.append(
        {
            "status": status,
            "cpu": machine.describe()["cpu"],
            "minutes": round(seconds / 60, 1),
            "cpu_minutes": round(usage.cpu_minutes, 1),
            "together_mib": round(usage.together_mib),
            "largest_worker_mib": round(usage.worker_mib),
            "load_before": load_before,
        }
    )
    text = json.dumps(commands, indent=1)
    (folder / COMMANDS).write_text(f"{text}\n", encoding="utf-8")
    if status not in ENDED:
        sys.exit(status)
    forget_this_machine(folder, data_dir)


def recorded_commands(folder: Path) -> list[dict[str, Any]]:
    """Return what the commands of a search took, so far."""
    file = folder / COMMANDS
    if not file.exists():
        return []
    commands: list[dict[str, Any]] = json.loads(file.read_text())
    return commands


def is_finished(folder: Path) -> bool:
    """Return whether a search has run to its end."""
    commands = recorded_commands(folder)
    return bool(commands) and commands[-1]["status"] in ENDED


def asked(command: str, folder: Path, *options: str) -> Any:
    """Return what `elsa-tune COMMAND` says of a search, as JSON."""
    words = [sys.executable, "-m", "elsa_tune", command, "--search", folder.name]
    words += ["--storage-path", str(folder.parent), "--format", "json", *options]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE)
    [answer] = json.loads(done.stdout)
    return answer


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
