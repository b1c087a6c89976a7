"""One trial's share of a GPU: what it is where nobody asked for one, and what is too little."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from elsa_tune.errors import UsageError
from elsa_tune.searching.tune import cluster
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.searching.tune.shares import (
    GIB,
    check_memory,
    default_gpu_share,
    least_bytes,
    needed_bytes,
    notes,
)
from elsa_tune.specs.model import KNOWN_MODELS
from elsa_tune.specs.search import Resources
from elsa_tune.specs.trial import Precision, Recipe
from elsa_tune.training.machine import Gpu
from elsa_tune.training.model.encoder import facts
from tests.unit.search_examples import make_spec

BASE, LARGE = (facts(KNOWN_MODELS[name]) for name in ("bert_base", "bert_large"))


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
    monkeypatch.setattr(cluster, "_nodes", lambda: [node])
    broken = Gpu(torch="2.13.0+cpu", fault=fault)
    monkeypatch.setattr(cluster, "_ask_nodes", lambda nodes, found, **share: {nodes[0]: broken})
    with pytest.raises(UsageError) as error:
        cluster.ask_gpus()
    assert str(error.value) == (
        "Ray found a GPU on node 01234567, but torch 2.13.0+cpu there cannot use it "
        f"({fault}); {remedy}, or give `gpus_per_trial` 0"
    )


def test_trials_get_cores_as_they_get_gpus() -> None:
    node = Capacity(cpus=16, gpus=1, nodes=1, largest_cpus=16, largest_gpus=1)
    assert node.resources(None, 0.25).cpus == 4
    assert node.at_once(node.resources(None, 0.25)) == 4
    small = dataclasses.replace(node, cpus=2, largest_cpus=2)
    assert small.resources(None, 0.25).cpus == 1
    assert small.at_once(small.resources(None, 0.25)) == 2


def test_a_gpu_on_a_node_that_cannot_train_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_nodes", lambda: [{"NodeID": "01", "Resources": {"CPU": 4.0}}])
    assert cluster.ask_gpus() == ()
