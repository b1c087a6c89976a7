"""One trial's share of a GPU: what it is where nobody asked for one, and what is too little."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle

from elsa_tune.errors import UsageError
from elsa_tune.searching.cluster import nodes
from elsa_tune.searching.cluster.capacity import Capacity, Node
from elsa_tune.searching.cluster.recorded_peaks import recorded_peak
from elsa_tune.searching.cluster.shares import (
    GIB,
    ROOM,
    check_memory,
    least_bytes,
    needed_bytes,
    notes,
    share,
    share_again,
    smallest_share,
)
from elsa_tune.searching.inputs import read_gpu_share
from elsa_tune.searching.request import Request
from elsa_tune.searching.specification import save_specification
from elsa_tune.specs.model import KNOWN_MODELS
from elsa_tune.specs.search import Resources
from elsa_tune.specs.trial import Precision, Recipe, TrialStatus
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training import throughput
from elsa_tune.training.machine import CONTEXT_MIB, MIB, Gpu
from elsa_tune.training.model.encoder import facts
from tests.conftest import ROOT, Run
from tests.recorded_search import report, search_started, trial_ended, trial_started
from tests.unit.search_examples import make_spec


def default_gpu_share(model: Any, recipe: Recipe, *more: Any) -> float:
    """Return the share where nothing is recorded, measured or asked for."""
    return smallest_share(ROOM * needed_bytes(model, recipe), *more)


BASE, LARGE = (facts(KNOWN_MODELS[name]) for name in ("bert_base", "bert_large"))


def cluster(*nodes: tuple[float, float]) -> Capacity:
    """Return a cluster of nodes with these CPUs and GPUs."""
    return Capacity(nodes=tuple(Node(cpus=cpus, gpus=gpus) for cpus, gpus in nodes))


def gpu(gib: float, **fields: Any) -> Gpu:
    own = {"name": "NVIDIA H100", "has_bf16": True, "has_flash": True, **fields}
    return Gpu(torch="2.13.0+cu130", memory=int(gib * GIB), **own)


@pytest.mark.parametrize(
    ("model", "gib", "trials"),
    [
        (BASE, 79.1, 4),
        # 40 GB are 39.5 GiB on an A100, 24 GB 22.0 on an A10, 16 GB 14.6 on a T4.
        (BASE, 39.5, 4),
        (BASE, 22.0, 2),
        (BASE, 14.6, 1),
        (LARGE, 79.1, 2),
        (LARGE, 39.5, 1),
    ],
)
def test_small_models_share_a_large_gpu(model: Any, gib: float, trials: int) -> None:
    assert default_gpu_share(model, Recipe(), [gpu(gib)]) == 1 / trials


def test_the_smallest_gpu_decides_and_longer_texts_need_more() -> None:
    assert default_gpu_share(BASE, Recipe(), [gpu(80), gpu(22)]) == 1 / 2
    assert default_gpu_share(BASE, Recipe(max_length=512), [gpu(39.5)]) == 1


def test_no_more_trials_share_a_gpu_than_there_are_cores_for() -> None:
    shares = [default_gpu_share(BASE, Recipe(), [gpu(80)], cores) for cores in (0.5, 1, 2, 3, 16)]
    assert shares == [1, 1, 1 / 2, 1 / 2, 1 / 4]


def test_what_a_trial_takes_is_counted() -> None:
    # 109.5 million parameters, and CUDA's own part.
    assert 0.99 < least_bytes(BASE) / GIB < 1.01
    assert 4.5 < needed_bytes(BASE, Recipe()) / GIB < 4.7


@pytest.mark.parametrize(
    ("share", "gib", "fields", "told"),
    [
        (0.01, 79.1, {}, "0.01 of a NVIDIA H100 is 0.8 GiB, but CUDA itself and the model's"),
        (1.0, 0.9, {}, "use a larger one, or give `gpus_per_trial` 0 to train on CPUs"),
        (0.25, 79.1, {"free": GIB // 4}, "other processes hold all but 0.2 of the NVIDIA H100's"),
    ],
)
def test_too_little_memory_is_told(
    share: float, gib: float, fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as error:
        check_memory(share, BASE, [gpu(200), gpu(gib, **fields)])
    assert told in str(error.value)
    check_memory(0.05, BASE, [gpu(80, free=10 * GIB)])


def test_the_share_that_is_advised_is_enough() -> None:
    with pytest.raises(UsageError, match=r"`gpus_per_trial` 0\.013 or more"):
        check_memory(0.001, BASE, [gpu(79.1)])
    check_memory(0.013, BASE, [gpu(79.1)])


def test_what_is_worth_knowing_of_a_gpu_is_told_once() -> None:
    def told(*gpus: Gpu, share: float = 0.25, precision: Precision = Precision.BF16) -> list[str]:
        resources = Resources(cpus=1, gpus=share)
        spec = make_spec(resources=resources, recipe=Recipe(precision=precision))
        return notes(spec, BASE, gpus)

    assert told(gpu(80, free=79 * GIB)) == []
    used = gpu(80, free=30 * GIB)
    [note] = told(used, used)
    assert note.startswith("other processes hold 50.0 GiB of a NVIDIA H100 (80.0 GiB)")
    [note] = told(gpu(80), share=0.05)
    assert note.startswith("0.05 of a NVIDIA H100 (80.0 GiB) may be too little for a trial of the")
    [note] = told(gpu(9.75, name="NVIDIA H100 80GB HBM3 MIG 1g.10gb"), share=1)
    assert note.startswith("trials train on one MIG slice, NVIDIA H100 80GB HBM3 MIG 1g.10gb (9.8")
    plain = gpu(80, has_flash=False)
    assert told(plain, precision=Precision.FP32) == []
    [note] = told(plain)
    assert note.startswith("torch 2.13.0+cu130 has no flash attention for a NVIDIA H100")


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        ("Torch not compiled with CUDA enabled", "install a torch built for CUDA"),
        ("The NVIDIA driver on your system is too old", "install a driver that fits this torch"),
        ("CUDA error: device(s) is/are busy or unavailable", "mend that"),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_told_with_the_reason(
    fault: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = {"NodeID": "0123456789", "Resources": {"CPU": 4.0, "GPU": 1.0}}
    monkeypatch.setattr(nodes, "nodes_that_train", lambda: [node])
    broken = Gpu(torch="2.13.0+cpu", fault=fault)
    monkeypatch.setattr(nodes, "ask_nodes", lambda asked, found, **share: {asked[0]: broken})
    with pytest.raises(UsageError) as error:
        nodes.ask_gpus()
    assert str(error.value) == (
        "Ray found a GPU on node 01234567, but torch 2.13.0+cpu there cannot use it "
        f"({fault}); {remedy}, or give `gpus_per_trial` 0"
    )


def test_a_node_whose_torch_does_not_load_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question travels to the node and is answered in a Python whose torch is broken."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libcudnn.so.9: no such file')")
    program = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())())"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}

    def answered(asked: list[str], question: object, **share: float) -> dict[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=cloudpickle.dumps(question),
            capture_output=True,
            timeout=200,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return {asked[0]: done.stdout.decode().strip()}

    node = {"NodeID": "0123456789", "Resources": {"CPU": 4.0, "GPU": 1.0}}
    monkeypatch.setattr(nodes, "nodes_that_train", lambda: [node])
    monkeypatch.setattr(nodes, "ask_nodes", answered)
    with pytest.raises(UsageError) as refused:
        nodes.ask_gpus()
    assert str(refused.value) == (
        "torch on node 01234567, which has a GPU, cannot be loaded (libcudnn.so.9: no such file); "
        "mend that, or give `gpus_per_trial` 0"
    )


def test_trials_get_cores_as_they_get_gpus() -> None:
    node = cluster((16, 1))
    assert node.resources(None, 0.25).cpus == 4
    assert node.at_once(node.resources(None, 0.25)) == 4
    small = cluster((2, 1))
    assert small.resources(None, 0.25).cpus == 1
    assert small.at_once(small.resources(None, 0.25)) == 2


@pytest.mark.parametrize(
    ("nodes", "cpus", "trials"),
    [
        # Other nodes' CPUs are none of a GPU's.
        ([(8, 0), (2, 1)], 2, 1),
        ([(16, 0), (8, 4)], 2, 4),
        ([(64, 0), (1, 2)], 1, 1),
        # The node with the fewest decides, so that none of its GPUs stays idle.
        ([(32, 1), (4, 4)], 1, 5),
        ([(32, 4), (32, 4)], 4, 8),
    ],
)
def test_a_default_share_fits_on_a_node_with_gpus(
    nodes: list[tuple[float, float]], cpus: float, trials: int
) -> None:
    several = cluster(*nodes)
    taken = several.resources(None, None)
    assert taken == Resources(cpus=cpus, gpus=1)
    assert several.at_once(taken) == trials


@pytest.mark.parametrize("gpus", [None, 1.0, 0.5])
def test_a_share_that_no_node_has_in_one_place_is_refused(gpus: float | None) -> None:
    with pytest.raises(UsageError) as refused:
        cluster((16, 0), (4, 1), (2, 2)).resources(8, gpus)
    assert str(refused.value) == (
        "8 CPUs per trial were asked for, but of the nodes with GPUs the largest has 4; give "
        "`cpus_per_trial` up to that, or `gpus_per_trial` 0"
    )
    assert cluster((16, 0), (4, 1), (2, 2)).resources(8, 0) == Resources(cpus=8, gpus=0)


def test_gpus_are_shared_by_as_many_trials_as_their_own_nodes_have_cores_for(
    tmp_path: Path,
) -> None:
    def taken(*nodes: tuple[float, float], cpus: float | None = None) -> Resources:
        request = asked(tmp_path, address="auto", cpus_per_trial=cpus)
        return share(request, dataclasses.replace(cluster(*nodes), gpu_kinds=(gpu(80),)))

    assert taken((16, 4)) == Resources(cpus=1, gpus=1 / 4)
    assert taken((64, 0), (8, 4)) == Resources(cpus=1, gpus=1 / 2)
    # With a fourth each, four trials of four cores would all be on the first of four GPUs.
    assert taken((16, 4), cpus=4) == Resources(cpus=4, gpus=1)


def goes_on(machine: Capacity, **changes: Any) -> tuple[Resources, list[str]]:
    """Return a trial's share where a search goes on on a machine, and what is said of it."""
    said: list[str] = []
    return share_again(make_spec(name="mine", **changes), machine, said.append), said


def test_a_search_goes_on_with_its_share_wherever_a_node_has_it() -> None:
    recorded = Resources(cpus=4, gpus=0.5)
    for machine in (cluster((4, 1)), cluster((2, 0), (64, 8))):
        assert goes_on(machine, resources=recorded) == (recorded, [])


def test_a_search_goes_on_where_no_node_has_the_cpus_that_it_began_with() -> None:
    taken, said = goes_on(cluster((2, 0)), resources=Resources(cpus=4, gpus=0))
    assert taken == Resources(cpus=1, gpus=0)
    assert said == ["note: a trial takes 1 CPU in this session; search 'mine' began with 4 CPU"]
    # Whatever else there is, it trains on what it trained on.
    taken, _ = goes_on(cluster((2, 1)), resources=Resources(cpus=4, gpus=0))
    assert taken == Resources(cpus=1, gpus=0)
    taken, _ = goes_on(cluster((64, 0), (2, 1)), resources=Resources(cpus=4, gpus=0.5))
    assert taken == Resources(cpus=1, gpus=0.5)
    with pytest.raises(UsageError, match=r"0\.5 GPUs per trial were asked for"):
        goes_on(cluster((64, 0)), resources=Resources(cpus=4, gpus=0.5))


def test_a_share_that_was_asked_for_is_what_a_trial_takes_or_is_refused() -> None:
    recorded = Resources(cpus=4, gpus=0)
    with pytest.raises(UsageError, match="4 CPUs per trial were asked for"):
        goes_on(cluster((2, 0)), resources=recorded, cpus_per_trial=4)
    taken, said = goes_on(cluster((8, 0)), resources=recorded, cpus_per_trial=2)
    assert taken == Resources(cpus=2, gpus=0) and len(said) == 1
    # Of another part of a GPU the default has other CPUs.
    taken, said = goes_on(cluster((8, 4)), resources=recorded, gpus_per_trial=1)
    assert taken == Resources(cpus=2, gpus=1)
    assert said == [
        "note: a trial takes 2 CPU and 1 GPU in this session; search 'mine' began with 4 CPU"
    ]


def test_a_gpu_on_a_node_that_cannot_train_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        nodes, "nodes_that_train", lambda: [{"NodeID": "01", "Resources": {"CPU": 4.0}}]
    )
    assert nodes.ask_gpus() == ()


def searched_on_gpu(storage: Path, name: str, peaks: Sequence[float], **changes: Any) -> None:
    """Record a search on GPUs whose full model's trials took these peaks, in MiB."""
    micro_batch = changes.pop("micro_batch", Recipe().batch_size)
    fields: dict[str, Any] = {"resources": Resources(cpus=1, gpus=0.5), **changes}
    spec = make_spec(name=name, **fields)
    paths = SearchPaths(storage, name)
    paths.folder.mkdir(parents=True)
    save_specification(spec, paths)
    with Journal(paths.journal) as journal:
        journal.append(search_started(name))
        for seed, peak in enumerate(peaks):
            key = f"measure-N0-s{seed}"
            journal.append(trial_started(key, search=name))
            tags = {"micro_batch_size": str(micro_batch)}
            last = report(key, 1, 0.8, peak_memory_mb=peak)
            journal.append(dataclasses.replace(last, tags=tags))
            ended = trial_ended(key, TrialStatus.COMPLETED, 0.8)
            metrics = {**ended.metrics, "peak_memory_mb": peak}
            journal.append(dataclasses.replace(ended, metrics=metrics))


def asked(storage: Path, **changes: Any) -> Request:
    return Request(spec=make_spec(**changes), storage=storage, tracking_uri="sqlite://")


def test_what_trials_took_in_earlier_searches_tells_what_the_next_ones_need(
    tmp_path: Path,
) -> None:
    assert recorded_peak(asked(tmp_path)) is None
    searched_on_gpu(tmp_path, "small", [900.0, 1000.0])
    searched_on_gpu(tmp_path, "large", [4000.0])
    peak = recorded_peak(asked(tmp_path))
    assert peak is not None and peak.search == "large"
    assert peak.needed == (1.25 * 4000 + CONTEXT_MIB) * MIB
    said: list[str] = []
    machine = dataclasses.replace(cluster((16, 1)), gpu_kinds=(gpu(24),))
    request = asked(tmp_path, address="auto")
    assert share(request, machine, said.append).gpus == 1 / 4
    assert said == ["  0.25 GPU per trial: by search 'large' one takes 5.5 GiB"]
    # What was asked for counts all the same.
    request = asked(tmp_path, address="auto", gpus_per_trial=1.0)
    assert share(request, machine).gpus == 1


def test_what_doctor_measured_here_counts_on_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked(tmp_path)
    division = throughput.Division(trials=2, threads=3)
    tuned = throughput.Tuned(division=division, task="rte", date="2026-01-02")
    monkeypatch.setattr(throughput, "remembered", lambda device: {request.spec.model.name: tuned})
    assert share(request, cluster((8, 0))).cpus == 3
    two_machines = cluster((8, 0), (8, 0))
    assert share(request, two_machines) == two_machines.resources(None, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": Recipe(max_length=64)},
        {"recipe": Recipe(batch_size=8), "micro_batch": 8},
        {"model": KNOWN_MODELS["bert_large"]},
        {"resources": Resources(cpus=1, gpus=0)},
        {"micro_batch": 8},
    ],
)
def test_trials_of_another_kind_tell_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    searched_on_gpu(tmp_path, "other", [4000.0], **changes)
    assert recorded_peak(asked(tmp_path)) is None


def test_a_search_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    searched_on_gpu(tmp_path, "damaged", [4000.0])
    SearchPaths(tmp_path, "damaged").specification.write_text("{")
    assert recorded_peak(asked(tmp_path)) is None


@pytest.mark.parametrize(("text", "part"), [("auto", None), (" AUTO ", None), ("0.5", 0.5)])
def test_a_share_is_a_number_or_auto(text: str, part: float | None) -> None:
    assert read_gpu_share(text) == part


@pytest.mark.parametrize("text", ["auto", "half"])
def test_a_search_that_goes_on_takes_a_number_alone(run: Run, text: str) -> None:
    done = run("resume", "first", "--gpus-per-trial", text)
    assert done.status == 2
    assert f"--gpus-per-trial {text}: write 1, a share such as 0.5, or 0; without it" in done.err


def test_a_share_that_is_no_number_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="`gpus_per_trial` half: write auto, 1, a share such as"):
        read_gpu_share("half")
