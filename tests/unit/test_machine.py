"""What a process has of its machine: its share of a GPU, and of the cores."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch

from elsa_tune.errors import UsageError
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.training.machine import (
    CONTEXT_MIB,
    MIB,
    PeakMemory,
    has_bf16_units,
    room,
    take_share,
    usable_cores,
)

GIB = 2**30
CUDA = torch.device("cuda")


class Gpu:
    """A GPU of 40 GiB, as much of it free as is said, 1 GiB reserved by this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        self.fraction = 1.0
        for name, value in {
            "get_device_properties": lambda *_: SimpleNamespace(total_memory=40 * GIB),
            "mem_get_info": lambda *_: (free, 40 * GIB),
            "memory_reserved": lambda *_: GIB,
            "max_memory_reserved": lambda *_: 3 * GIB,
            "max_memory_allocated": lambda *_: 2 * GIB,
            "reset_peak_memory_stats": lambda *_: None,
            "get_per_process_memory_fraction": lambda *_: self.fraction,
            "set_per_process_memory_fraction": lambda fraction: setattr(self, "fraction", fraction),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)


def test_trials_that_share_a_gpu_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, free=39 * GIB)
    assert take_share(1) == "cuda" and gpu.fraction == 1
    assert room(CUDA) == 39 * GIB
    assert take_share(0.25) == "cuda"
    # CUDA's own part of a process comes out of its share.
    assert gpu.fraction == pytest.approx(0.25 - CONTEXT_MIB / (40 * 1024))
    # Whatever is free now, the other trials' part is not for this one.
    assert room(CUDA) == pytest.approx(10 * GIB - CONTEXT_MIB * MIB - GIB, abs=1)
    assert take_share(0) == "cpu" and room(torch.device("cpu")) == 0


def test_no_trial_takes_what_others_have_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpu(monkeypatch, free=2 * GIB)
    assert room(CUDA) == 2 * GIB


def test_what_a_trial_takes_of_a_gpu_is_more_than_its_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Gpu(monkeypatch, free=39 * GIB)
    memory = PeakMemory(CUDA)
    assert (memory.mib(), memory.taken_mib()) == (2048, 3072 + CONTEXT_MIB)


def test_a_trial_trains_on_one_gpu_at_most() -> None:
    node = Capacity(cpus=8, gpus=2, nodes=1, largest_cpus=8, largest_gpus=2)
    assert node.resources(None, 0.5).gpus == 0.5
    with pytest.raises(UsageError, match=r"2 GPUs per trial .* a trial trains on one at most"):
        node.resources(None, 2)


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm and taskset give fewer than the machine has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert usable_cores() == Capacity.of_this_machine().cpus == 2


@pytest.mark.parametrize(
    ("found", "has"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False, "architecture": "x86_64"}, False),
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"neon": True, "bf16": True}, True),
        ({}, False),
    ],
)
def test_a_cpu_says_whether_it_has_units_for_bf16(
    found: dict[str, object], has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    assert has_bf16_units("cpu") is has
