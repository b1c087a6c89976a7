"""What a search finds out of a GPU before its first trial, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elsa_tune.searching.cluster import nodes
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.cluster.ray_session import ray_session
from elsa_tune.searching.cluster.shares import share
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.request import read_requests
from elsa_tune.training import throughput
from tests.conftest import RAY_WARNINGS, Run
from tests.searching import Bench
from tests.standin.run import LIBRARY
from tests.standin.searches import calm_bench, ran, search
from tests.standin.standin import DEVICE

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return calm_bench(tmp_path_factory.mktemp("bench"))


def test_doctor_measures_depths_that_share_the_gpu_and_a_search_takes_what_it_found(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(bench.folder)
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(tmp_path))
    what = ("--model", "model", "--task", "task.yaml")
    tuned = run("doctor", "--tune", *what, "--seconds", "1")
    assert tuned.status == 0, tuned.err
    assert (
        "training model on mood at the full model and the last layer in each way for 1 s:"
        in tuned.err
    )
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
    """Return the one sentence with which a search ends before its first trial."""
    status, out, err = ran(bench, *search("refused", *more), **told)
    assert status == 2 and out == "" and "Traceback" not in err, err
    assert not bench.journal("refused").exists()
    said = err.strip().splitlines()[-1]
    assert said.startswith("elsa-tune: ")
    return said.removeprefix("elsa-tune: ")


@pytest.mark.thorough
def test_a_driver_beside_a_torch_without_cuda_is_told(bench: Bench) -> None:
    said = refused(bench, **{LIBRARY: None})
    assert said.startswith("Ray found a GPU on node ") and "not compiled with CUDA" in said
    assert said.endswith("install a torch built for CUDA, or give --gpus-per-trial 0")


@pytest.mark.thorough
def test_a_driver_that_is_too_old_is_told_by_doctor_too(bench: Bench) -> None:
    status, out, err = ran(bench, "doctor", **{DEVICE: json.dumps({"driver_is_old": True})})
    assert status == 0 and "Traceback" not in err, err
    assert "none (The NVIDIA driver on your system is too old (found version 11040)" in out
    assert "`auto` is fp32" in out


@pytest.mark.thorough
def test_a_gpu_that_others_have_filled_is_told(bench: Bench) -> None:
    # What is left takes CUDA's own part of the process that asks.
    said = refused(bench, **{DEVICE: json.dumps({"others_gib": 79.6})})
    assert said.startswith("other processes hold all but 0.0 of the Stand-in H100's 80.0 GiB")
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
    with ray_session(None) as session:
        assert session.ready().gpus == 1
        [gpu] = nodes.ask_gpus()
        assert gpu.name == "Stand-in H100" and gpu.has_bf16 and gpu.free is not None
        [node] = nodes.nodes_that_train()

        def process() -> int:
            import os

            return os.getpid()

        asked = [nodes.ask_nodes([node["NodeID"]], process, num_gpus=0.5) for _ in range(2)]
        first, second = (next(iter(answer.values())) for answer in asked)
        assert first != second
