"""What a process has of its machine: its share of a GPU, and of the cores."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from elsa_tune.errors import UsageError
from elsa_tune.searching.cluster.capacity import Capacity, Node
from elsa_tune.training import machine
from elsa_tune.training.machine import (
    MIB,
    PeakMemory,
    has_bf16_units,
    reproducible,
    usable_cores,
)


def test_a_trial_trains_on_one_gpu_at_most() -> None:
    node = Capacity(nodes=(Node(cpus=8, gpus=2),))
    assert node.resources(None, 0.5).gpus == 0.5
    with pytest.raises(UsageError, match=r"2 GPUs per trial .* a trial trains on one at most"):
        node.resources(None, 2)


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm and taskset give fewer than the machine has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert usable_cores() == Capacity.of_this_machine().cpus == 2


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "400000 100000"}, 4),
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "9900000 100000"}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({}, 8),
    ],
)
def test_a_containers_limit_on_cpu_time_counts(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    for name, content in files.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content + "\n")
    assert usable_cores() == cores


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


# Page faults of ten turns of allocating and freeing 36 matrices of BERT-base's size, in a thread as
# trials run in under Ray.
_TURNS = """
import resource, sys, threading, torch
from elsa_tune.training.machine import keep_freed_memory
if sys.argv[1] == "with":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def turns():
    for number in range(12):
        tensors = [torch.ones(768, 3072) for _ in range(36)]
        del tensors
        if number == 1:
            before = faults()
    print(faults() - before)
thread = threading.Thread(target=turns)
thread.start()
thread.join()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_memory_that_a_step_frees_is_kept_for_the_next() -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", _TURNS, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert faults("with") < faults("without") / 2


def test_few_compiled_products_are_kept_unless_the_user_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)
    with reproducible(1, torch.device("cpu")):
        pass
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
    assert os.environ["LRU_CACHE_CAPACITY"] == "64"


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="this kernel resets no peak"
)
def test_a_peak_is_of_what_came_since() -> None:
    here = torch.device("cpu")
    earlier = PeakMemory(here)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, 300 * MIB, flags=flags) as taken:
        for place in range(0, len(taken), mmap.PAGESIZE):
            taken[place] = 1
    highest = earlier.mib()
    assert PeakMemory(here).mib() < highest - 200
