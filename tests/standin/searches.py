"""Complete searches whose processes are on the stand-in, by the command line.

Ray is told of one GPU, and believes it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.searching.specification import load_specification
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.loop import train
from tests.searching import Bench, make_bench, of_kind
from tests.unit.tiny_trials import DROPOUTS

# In fp32 and without dropout, whose draws differ, a GPU gives the CPU's losses.
SPACE = (
    *("--set", "depths=[0, 2]", "--set", "epochs=2", "--set", "learning_rate=[0.001, 0.003]"),
    *("--set", "extend=false", "--set", "precision=fp32", "--seeds", "2"),
)
# Two rates at two depths, then two seeds of each.
TRIALS = 8


def calm_bench(folder: Path) -> Bench:
    """Return a model without dropout, and its task."""
    bench = make_bench(folder)
    path = bench.folder / "model" / "config.json"
    config = json.loads(path.read_text())
    config.update({name: 0.0 for name in DROPOUTS if name in config})
    path.write_text(json.dumps(config))
    return bench


def search(name: str, *more: str) -> tuple[str, ...]:
    """Arguments of a search on that bench."""
    return ("search", "--model", "model", "--task", "task.yaml", "--name", name, *SPACE, *more)


def start(bench: Bench, *arguments: str, **told: str | None) -> subprocess.Popen[str]:
    """Start the command line in a process group of its own.

    told: what its environment has, too.
    """
    environment: dict[str, Any] = {
        **os.environ,
        "ELSA_TUNE_STANDIN_NVML": "1",
        "ELSA_TUNE_CACHE": str(bench.folder / "cache"),
        "RAY_worker_niceness": "0",
        **told,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "elsa_tune", *arguments],
        cwd=bench.folder,
        env={name: value for name, value in environment.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ran(bench: Bench, *arguments: str, **told: str | None) -> tuple[int, str, str]:
    """Its status, and what it printed, to its end."""
    process = start(bench, *arguments, **told)
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


def assert_as_on_a_cpu(bench: Bench, name: str, has_probe: bool = True) -> None:
    """Every trial of a search has the losses that it has on a CPU.

    has_probe: whether the linear probe must be recorded: a budget does not wait long for it.
    """
    spec = load_specification(SearchPaths(bench.folder / "mlruns" / "searches", name))
    data = prepare(spec.model, spec.task, spec.recipe)
    records = bench.records(name)
    params = {one["trial"]: one["params"] for one in of_kind(records, "trial_started")}
    ends = {one["trial"]: one["status"] for one in of_kind(records, "trial_ended")}
    probe = params.pop("probe-N2", None)
    if has_probe or probe is not None:
        assert probe is not None and probe["learning_rate"] is None
    assert len(params) == TRIALS
    for key, told in params.items():
        assert ends[key] == "completed"
        depth = FreezeDepth(**told["candidate"])
        rate, seed = float(told["learning_rate"]), int(told["seed"])
        trial = spec.trial(Phase(told["phase"]), depth, rate, seed)
        assert trial.key == key
        there = {
            one["evaluation"]: one["metrics"]
            for one in of_kind(records, "report")
            if one["trial"] == key
        }
        for here in train(trial, data, device="cpu"):
            found = there[here.evaluation]
            assert found["train_loss"] == pytest.approx(here.train_loss, rel=1e-5)
            assert found["eval_loss"] == pytest.approx(here.eval_loss, rel=1e-5)
            assert found["quality"] == here.quality
