"""From a wheel to the first answer, in a clean environment without a checkout.

    python bench/first_answer.py [--python PYTHON] [--note "what else ran here"]

Builds the wheel (with hatchling), downloads it with everything it needs, installs that into a new
environment, and runs `elsa-tune demo` in an empty folder, offline. pip takes torch from wherever
its settings say: set PIP_EXTRA_INDEX_URL as the README does for a machine without a GPU. Writes
bench/results/first_answer.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine

ROOT = Path(__file__).resolve().parent.parent


def step(command: Sequence[str], folder: Path, shown: str, **more: str) -> dict[str, Any]:
    """Run a command as a new user would. shown: as it is typed."""
    # Neither this checkout nor this environment may help.
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "VIRTUAL_ENV", "MLFLOW_TRACKING_URI")
    }
    load = os.getloadavg()[0]
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment | more, capture_output=True, text=True, check=False
    )
    minutes = (time.perf_counter() - started) / 60
    if done.returncode:
        sys.exit(f"{shown}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(f"{minutes:6.1f} min  {shown}", flush=True)
    return {
        "command": shown,
        "minutes": round(minutes, 2),
        "load_before": round(load, 1),
        "stdout": done.stdout.splitlines(),
    }


def megabytes(folder: Path) -> int:
    """Of all files below a folder."""
    files = (Path(where, name) for where, _, names in os.walk(folder) for name in names)
    return round(sum(file.lstat().st_size for file in files) / 1e6)


def first_answer(python: str, place: Path) -> dict[str, Any]:
    wheels, venv, empty = place / "wheels", place / "venv", place / "empty"
    empty.mkdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = place.glob("*.whl")
    what = f"{wheel.name}[demo]"
    pip, elsa = str(venv / "bin" / "pip"), str(venv / "bin" / "elsa-tune")
    make = step([python, "-m", "venv", str(venv)], place, "python3 -m venv .venv")
    download = [pip, "download", "-q", "-d", str(wheels), f"{wheel}[demo]"]
    steps = [make, step(download, place, f"pip download '{what}'")]
    install = [pip, "install", "-q", "--no-index", "--find-links", str(wheels), f"{wheel}[demo]"]
    steps.append(step(install, place, f"pip install '{what}'"))
    installed = megabytes(venv)
    steps.append(step([elsa, "demo"], empty, "elsa-tune demo", HF_HUB_OFFLINE="1"))
    steps.append(step([elsa, "answer"], empty, "elsa-tune answer"))
    listed = subprocess.run([pip, "freeze"], capture_output=True, text=True, check=True).stdout
    versions = dict(line.split("==") for line in listed.splitlines() if "==" in line)
    return {
        "minutes": round(sum(one["minutes"] for one in steps[:-1]), 1),
        "megabytes_downloaded": megabytes(wheels),
        "megabytes_installed": installed,
        "megabytes_recorded": megabytes(empty),
        "installed": {name: versions.get(name) for name in machine.PACKAGES if name in versions},
        "steps": steps,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--python", default=sys.executable, help="what makes the environment")
    options.add_argument("--note", default="nothing else ran on the machine")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = first_answer(given.python, Path(place))
    print(machine.write("first_answer", found, given.note))


if __name__ == "__main__":
    main()
