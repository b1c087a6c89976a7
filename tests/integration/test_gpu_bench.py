"""`bench/gpu.sh` works before a GPU is at hand: every step, small, on a CPU."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STEPS = ("facts", "speed", "determinism", "memory", "grid", "shares")
NO_TRAINER = "requires `accelerate"


@pytest.fixture
def bench(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(root / "bench")
    return importlib.import_module("gpu_trial")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.filterwarnings("ignore")  # the profiler's and the Trainer's are not ours
def test_every_step_measures_all_it_names(
    bench: Any, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(bench.STEPS) == set(STEPS)
    monkeypatch.setattr(sys, "argv", ["gpu_trial", step, "--tiny", "--out", str(tmp_path)])
    bench.main()
    written = json.loads((tmp_path / f"step_{step}.json").read_text())
    assert written["machine"]["versions"]["torch"] and written["results"]
    failed = {
        name: found["failed"]
        for name, found in written["results"].items()
        if isinstance(found, dict) and "failed" in found
    }
    if importlib.util.find_spec("accelerate") is None:
        assert all(name.startswith("Trainer") for name in failed)
        failed = {name: why for name, why in failed.items() if NO_TRAINER not in why}
    assert failed == {}


def test_the_guides_lines_write_a_task_that_the_steps_take(
    bench: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (root / "docs/guides/gpu.md").read_text()
    (lines,) = re.findall(r"^```python\n(.*?)^```", guide, flags=re.MULTILINE | re.DOTALL)
    for said, here in (("bert_base", "minilm"), ("rte", "stdlib"), ("=1)", "=1, train_size=40)")):
        assert lines.count(said) == 1
        lines = lines.replace(said, here)
    monkeypatch.chdir(tmp_path)
    exec(lines, {})

    def step(one: Any) -> None:
        one.record("rows", lambda: len(one.data().train.labels))

    monkeypatch.setitem(bench.STEPS, "facts", step)
    words = ["gpu_trial", "facts", "--tiny", "--out", "out", "--data", "task.pickle"]
    monkeypatch.setattr(sys, "argv", words)
    bench.main()
    written = json.loads((tmp_path / "out/step_facts.json").read_text())
    assert written["results"]["rows"] == 40


def test_what_one_thing_meets_costs_no_other(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(one: Any) -> None:
        one.record("first", lambda: 1 / 0)
        one.record("second", lambda: 2)
        assert json.loads((tmp_path / "step_step.json").read_text())["results"]["second"] == 2
        monkeypatch.setattr(bench, "LIMIT_SECONDS", 0.0)
        one.record("third", lambda: 3)

    monkeypatch.setitem(bench.STEPS, "step", step)
    monkeypatch.setattr(sys, "argv", ["gpu_trial", "step", "--tiny", "--out", str(tmp_path)])
    bench.main()
    results = json.loads((tmp_path / "step_step.json").read_text())["results"]
    assert results == {
        "first": {"failed": "ZeroDivisionError: division by zero"},
        "second": 2,
        "third": "no time was left for it",
    }


def test_the_script_runs_the_steps_it_is_given_and_says_which_failed(
    root: Path, tmp_path: Path
) -> None:
    ended = subprocess.run(
        ["bash", str(root / "bench/gpu.sh"), "--tiny", "out", "memory", "nonsense"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": sys.executable},
        timeout=600,
    )
    assert ended.returncode == 1 and "step nonsense ended with status 2" in ended.stderr
    assert "step memory" not in ended.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["step_memory.json"]
