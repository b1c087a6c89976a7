"""Whole searches over Ray whose workers are on the stand-in, by the command line: Ray is told of
one GPU, and believes it.
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

from elsa_tune.searching.inputs import SearchOptions, read_requests
from elsa_tune.searching.tune import cluster
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.searching.tune.shares import share
from elsa_tune.training import throughput
from tests.conftest import RAY_WARNINGS, Run
from tests.searching import Bench, make_bench, of_kind, wait_for
from tests.standin.standin import DEVICE, LIBRARY
from tests.unit.tiny_trials import DROPOUTS

pytestmark = pytest.mark.timeout(600)

# In fp32 and without dropout, whose draws differ, a GPU gives the CPU's losses.
SPACE = (
    *("--set", "depths=[0, 2]", "--set", "epochs=2", "--set", "learning_rate=[0.001, 0.003]"),
    *("--set", "extend=false", "--set", "precision=fp32", "--seeds", "2"),
)
KEPT = ("train_loss", "eval_loss", "quality")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    found = make_bench(tmp_path_factory.mktemp("bench"))
    path = found.folder / "model" / "config.json"
    config = json.loads(path.read_text())
    config.update({name: 0.0 for name in DROPOUTS if name in config})
    path.write_text(json.dumps(config))
    return found


def start(bench: Bench, *arguments: str, **told: str | None) -> subprocess.Popen[str]:
    """The command line on the stand-in, in a process group of its own."""
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
    process = start(bench, *arguments, **told)
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


def search(name: str, *more: str) -> tuple[str, ...]:
    return ("search", "--model", "model", "--task", "task.yaml", "--name", name, *SPACE, *more)


def found(bench: Bench, name: str) -> dict[tuple[str, int], tuple[float, ...]]:
    """Losses and quality of each trial's evaluations."""
    reports = of_kind(bench.records(name), "report")
    return {
        (one["trial"], one["evaluation"]): tuple(one["metrics"].get(key, 0.0) for key in KEPT)
        for one in reports
    }


@pytest.fixture(scope="module")
def on_a_cpu(bench: Bench) -> dict[tuple[str, int], tuple[float, ...]]:
    """The same search where there is no GPU."""
    status, _, err = ran(bench, *search("cpu"), ELSA_TUNE_STANDIN_NVML="0")
    assert status in (0, 3), err
    [started] = of_kind(bench.records("cpu"), "search_started")
    assert started["tags"]["gpus_per_trial"] == "0"
    return found(bench, "cpu")


def assert_as_on_a_cpu(
    bench: Bench, name: str, on_a_cpu: dict[tuple[str, int], tuple[float, ...]]
) -> None:
    there = found(bench, name)
    assert there.keys() == on_a_cpu.keys() and any("probe" in trial for trial, _ in there)
    for one, values in there.items():
        assert values == pytest.approx(on_a_cpu[one], rel=1e-5), one


def test_a_search_shares_the_gpu_and_finds_what_a_cpu_finds(
    bench: Bench, on_a_cpu: dict[tuple[str, int], tuple[float, ...]]
) -> None:
    """A fourth of it for each trial, which nobody asked for: as many as there are cores, two."""
    status, out, err = ran(bench, *search("shared"))
    assert status in (0, 3), err
    [started] = of_kind(bench.records("shared"), "search_started")
    assert started["tags"]["gpus_per_trial"] == "0.25"
    assert "Stand-in H100" in started["tags"]["machine"]
    assert_as_on_a_cpu(bench, "shared", on_a_cpu)
    assert "Trial" not in out and "Traceback" not in err
    answers = [
        json.loads(ran(bench, "operating-point", "--search", name, "--format", "json")[1])
        for name in ("shared", "cpu")
    ]
    for [answer] in answers:
        assert answer.pop("search") and answer["full"].pop("seconds", True)
    points = [
        [(point["frozen_layers"], point["quality"], point["learning_rate"]) for point in a["curve"]]
        for [a] in answers
    ]
    assert points[0] == points[1]
    status, _, err = ran(
        bench, "export", "--search", "shared", "--layers", "2", "--out", "exported"
    )
    assert status == 0, err
    final = [one for one in of_kind(bench.records("shared"), "report") if "final" in one["trial"]]
    assert final and (bench.folder / "exported" / "model.safetensors").exists()


def test_a_killed_search_on_a_whole_gpu_is_resumed(
    bench: Bench, on_a_cpu: dict[tuple[str, int], tuple[float, ...]]
) -> None:
    driver = start(bench, *search("killed", "--gpus-per-trial", "1"))
    ended = lambda: of_kind(bench.records("killed"), "trial_ended")  # noqa: E731
    wait_for(lambda: len(ended()) >= 3, seconds=200)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    status, _, err = ran(bench, "resume", "killed")
    assert status in (0, 3), err
    assert_as_on_a_cpu(bench, "killed", on_a_cpu)
    starts = of_kind(bench.records("killed"), "search_started")
    assert [one["tags"]["gpus_per_trial"] for one in starts] == ["1", "1"]


def test_doctor_measures_depths_that_share_the_gpu_and_a_search_takes_what_it_found(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(bench.folder)
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(tmp_path))
    what = ("--model", "model", "--task", "task.yaml")
    tuned = run("doctor", "--tune", *what, "--seconds", "1")
    assert tuned.status == 0, tuned.err
    assert "training model on mood at N = 0 and N = 1 in each way for 1 s:" in tuned.err
    assert "1 trial at once on each GPU" in tuned.err and "2 trials at once on each" in tuned.err
    [(model, found)] = throughput.remembered("cuda").items()
    assert model == "model" and found.division.trials in (1, 2)
    said: list[str] = []
    [request] = read_requests(SearchOptions(model="model", task=["task.yaml"]))
    taken = share(request, Capacity.of_this_machine(), said.append)
    assert taken.gpus == 1 / found.division.trials and "doctor --tune" in said[0]


def test_one_trial_trains_there(bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.folder)
    what = ("--model", "model", "--task", "task.yaml", "--learning-rate", "0.001")
    done = run("trial", *what, "--frozen-layers", "1", "--seed", "1", "--set", "epochs=1")
    assert done.status == 0, done.err
    assert "bf16" in done.out + done.err


def refused(bench: Bench, *more: str, **told: str | None) -> str:
    """The one sentence with which a search ends before its first trial."""
    status, out, err = ran(bench, *search("refused", *more), **told)
    assert status == 2 and out == "" and "Traceback" not in err, err
    assert not bench.journal("refused").exists()
    said = err.strip().splitlines()[-1]
    assert said.startswith("elsa-tune: ")
    return said.removeprefix("elsa-tune: ")


def test_a_driver_beside_a_torch_without_cuda_is_told(bench: Bench) -> None:
    said = refused(bench, **{LIBRARY: None})
    assert said.startswith("Ray found a GPU on node ") and "not compiled with CUDA" in said
    assert said.endswith("install a torch built for CUDA, or give --gpus-per-trial 0")


def test_a_gpu_that_others_have_filled_is_told(bench: Bench) -> None:
    # CUDA's own part for the process that asks is gone already.
    said = refused(bench, **{DEVICE: json.dumps({"others_gib": 79.3})})
    assert said.startswith("other processes hold all but 0.1 of the Stand-in H100's 80.0 GiB")
    assert said.endswith("or give --gpus-per-trial 0 to train on CPUs")


def test_no_visible_gpu_and_more_than_there_are_are_told(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Ray starts."""
    monkeypatch.chdir(bench.folder)
    more = run(*search("refused", "--gpus-per-trial", "2"))
    assert "2 GPUs per trial were asked for, but a trial trains on one at most" in more.err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    none = run(*search("refused", "--gpus-per-trial", "1"))
    assert "the largest node has 0 (CUDA_VISIBLE_DEVICES is empty)" in none.err
    assert more.status == none.status == 2 and not bench.journal("refused").exists()


@pytest.mark.filterwarnings(*RAY_WARNINGS)
def test_a_process_that_was_asked_of_a_gpu_ends_with_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else Ray gives it to a later task, with CUDA bound to the GPU that it was asked of."""
    monkeypatch.setenv("ELSA_TUNE_STANDIN_NVML", "1")
    with cluster.ray_session(None) as session:
        assert session.ready().gpus == 1
        [gpu] = cluster.ask_gpus()
        assert gpu.name == "Stand-in H100" and gpu.has_bf16 and gpu.free is not None
        [node] = cluster._nodes()

        def process() -> int:
            import os

            return os.getpid()

        asked = [cluster._asked([node["NodeID"]], process, num_gpus=0.5) for _ in range(2)]
        first, second = (next(iter(answer.values())) for answer in asked)
        assert first != second
