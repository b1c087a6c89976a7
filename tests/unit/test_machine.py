"""What a process has of its machine: its share of a GPU, and of the cores."""

from __future__ import annotations

import os

import pytest
import torch

from elsa_tune.errors import UsageError
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.training.machine import has_bf16_units, usable_cores


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
