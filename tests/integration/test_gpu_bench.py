"""`bench/gpu.sh` works before a GPU is available.

Every step runs, small, on a CPU, with the packages of a machine that only trains, and no more.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import bare_machine

pytestmark = pytest.mark.timeout(600)

# Every step, in the order of the script. `tests` needs pytest, and two have a part for accelerate.
STEPS = ("first", "tests", "graphs", "facts", "grid", "speed", "determinism", "memory", "shares")
WITH_TRAINER = ("grid", "speed")
NO_TRAINER = "requires `accelerate"


@pytest.fixture
def bench(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(root / "bench")
    return importlib.import_module("gpu_trial")


def script(
    root: Path, folder: Path, *words: str, others: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the script in a folder, on a machine that only trains and has these others."""
    return subprocess.run(
        ["bash", str(root / "bench/gpu.sh"), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**bare_machine.environment(*others), "PYTHON": sys.executable},
        timeout=550,
    )


def failures(path: Path) -> dict[str, str]:
    """Return what a step says it could not do, and why."""
    written = json.loads(path.read_text())
    assert written["machine"]["versions"]["torch"] and written["results"]
    assert written["machine"]["versions"]["ray"] is None
    return {
        name: found["failed"]
        for name, found in written["results"].items()
        if isinstance(found, dict) and "failed" in found
    }


@pytest.mark.thorough
def test_every_step_runs_where_only_training_is_installed(root: Path, tmp_path: Path) -> None:
    """In one process: most of what a step takes at this size is imports."""
    steps = [step for step in STEPS if step != "tests"]
    ended = subprocess.run(
        [sys.executable, str(root / "bench/gpu_trial.py"), *steps, "--tiny", "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**bare_machine.environment(), "OMP_NUM_THREADS": "1", "PYTHONPATH": path(root)},
        timeout=550,
    )
    assert ended.returncode == 0, ended.stderr
    for step in steps:
        failed = failures(tmp_path / f"out/step_{step}.json")
        if step in WITH_TRAINER:
            assert failed and all(name.startswith("Trainer") for name in failed)
            assert all(NO_TRAINER in why for why in failed.values())
        else:
            assert failed == {}


def path(root: Path) -> str:
    """As the script sets it."""
    return os.pathsep.join([str(root), bare_machine.environment()["PYTHONPATH"]])


@pytest.mark.thorough
def test_with_pytest_and_accelerate_so_do_the_tests_and_the_trainer(
    root: Path, tmp_path: Path
) -> None:
    words = ("--tiny", "out", "tests", *WITH_TRAINER)
    ended = script(root, tmp_path, *words, others=("pytest", "accelerate"))
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"\b[1-9]\d* passed", (tmp_path / "out/tests.txt").read_text())
    for step in WITH_TRAINER:
        assert failures(tmp_path / f"out/step_{step}.json") == {}


def test_these_are_all_steps(bench: Any, root: Path) -> None:
    assert set(bench.STEPS) == set(STEPS) - {"tests"}
    text = (root / "bench/gpu.sh").read_text()
    (steps,) = re.findall(r"\|\| set -- (.*)", text)
    assert steps.split() == list(STEPS)


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


def test_the_guides_first_hour_is_three_calls_of_under_ten_minutes(root: Path) -> None:
    guide = (root / "docs/guides/gpu.md").read_text()
    calls = re.findall(r"^bash bench/gpu\.sh \"\$OUT\" (.*)$", guide, flags=re.MULTILINE)
    assert len(calls) == 3
    named = [dict(word.split(":") for word in call.split()) for call in calls]
    assert [step for call in named for step in call] == list(STEPS)
    assert all(sum(int(seconds) for seconds in call.values()) < 600 for call in named)


def run_step(
    bench: Any, step: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Run a step of the test's own, and return what it leaves behind."""
    monkeypatch.setitem(bench.STEPS, "step", step)
    monkeypatch.setattr(sys, "argv", ["gpu_trial", "step", "--tiny", "--out", str(tmp_path)])
    bench.main()
    return written(tmp_path)


def written(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((folder / "step_step.json").read_text())["results"]
    return results


def test_what_one_thing_meets_costs_no_other(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(one: Any) -> None:
        one.record("first", lambda: 1 / 0)
        one.record("second", lambda: 2)
        assert written(tmp_path)["second"] == 2
        one.limit = 0.0
        one.record("third", lambda: 3)

    assert run_step(bench, step, tmp_path, monkeypatch) == {
        "first": {"failed": "ZeroDivisionError: division by zero"},
        "second": 2,
        "third": "no time was left for it",
    }


def test_every_number_is_written_when_it_is_found(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parts() -> Any:
        yield {"a": 1}
        assert written(tmp_path) == {"thing": {"a": 1}}
        yield {"b": 2}
        raise RuntimeError("broken")

    found = run_step(bench, lambda one: one.record("thing", parts), tmp_path, monkeypatch)
    assert found == {"thing": {"a": 1, "b": 2, "failed": "RuntimeError: broken"}}


def test_what_differs_after_the_same_steps_is_found(bench: Any) -> None:
    compared = importlib.import_module("gpu_graphs")._compared
    weight, count = torch.zeros(3), torch.zeros(())

    def plain() -> None:
        weight.add_(torch.rand(3))
        count.add_(1)

    def forgets_to_draw() -> None:
        weight.add_(0.5)
        count.add_(1)

    assert compared([weight, count], 1, plain, plain)["equal"]
    assert count == 5  # put back between the two
    assert not compared([weight, count], 1, plain, forgets_to_draw)["equal"]


def test_cudnns_attention_stays_on_where_it_is_to_be_measured(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial turns it off, and torch never takes it in strict mode."""
    ways = importlib.import_module("gpu_bench")
    monkeypatch.setattr(ways.loop, "_TRIED_ON", ("cpu",))

    def settings(one: Any) -> dict[str, bool]:
        with ways.stepping(one, 0, "padded"):
            return {
                "strict": not torch.is_deterministic_algorithms_warn_only_enabled(),
                "cudnn": torch.backends.cuda.cudnn_sdp_enabled(),
            }

    def step(one: Any) -> None:
        one.record("trial", lambda: settings(one))
        with ways.not_strict():
            one.record("not strict", lambda: settings(one))
            with ways.cudnn_on():
                one.record("cudnn on", lambda: settings(one))

    assert run_step(bench, step, tmp_path, monkeypatch) == {
        "trial": {"strict": True, "cudnn": False},
        "not strict": {"strict": False, "cudnn": False},
        "cudnn on": {"strict": False, "cudnn": True},
    }


@pytest.mark.thorough
def test_the_script_runs_the_steps_it_is_given_and_says_which_failed(
    root: Path, tmp_path: Path
) -> None:
    ended = script(root, tmp_path, "--tiny", "out", "memory:300", "nonsense", "facts:0.1")
    assert ended.returncode == 1 and "step nonsense ended with status 2" in ended.stderr
    assert "step facts ended with status 124" in ended.stderr
    assert "step memory" not in ended.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["step_memory.json"]


@pytest.mark.thorough
def test_the_script_leaves_the_path_for_packages_that_it_is_given(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "carried").mkdir()
    (tmp_path / "carried/sitecustomize.py").write_text('print("carried")')
    monkeypatch.setenv("PYTHONPATH", "carried")
    ended = subprocess.run(
        ["bash", str(root / "bench/gpu.sh"), "out", "nonsense"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": sys.executable},
        timeout=200,
    )
    assert "carried" in ended.stdout
