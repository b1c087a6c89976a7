"""A CUDA device without one.

Tensors say `cuda:0`, the CPU computes their numbers, and the host may not look at them unseen.

What is replaced lies below torch's own Python (`torch._C._cuda_*`) and below its dispatcher, so
torch's argument checks, autograd, CUDA's autocast and the choice of an attention kernel run as they
do on a GPU. On top of that it is stricter than one: memory that nobody has written is NaN, and sums
whose order a GPU does not fix come out different each time.

It shows that code runs on a GPU, mixes no devices, looks at no numbers, and gives the CPU's losses.
It shows nothing of speed, of kernels' own limits, or of the order of their sums.

`site/sitecustomize.py` puts it under any Python process, `run.py` builds it and starts one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIBRARY = "ELSA_TUNE_STANDIN"  # the path of what standin.cpp became
DEVICE = "ELSA_TUNE_STANDIN_GPU"  # JSON: fields of Gpu that are to be otherwise

GIB = 2**30
CONTEXT = 600 * 2**20  # what each process takes of the device beside its tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The device.

    gib: all its memory. others_gib: what other processes have taken of it. flash: whether torch was
    built with flash attention.
    """

    name: str = "Stand-in H100"
    capability: tuple[int, int] = (9, 0)
    gib: float = 80.0
    others_gib: float = 0.0
    count: int = 1
    flash: bool = True
    driver_is_old: bool = False


@dataclass
class State:
    """What this process has done with the device.

    operations: what was launched, by name. waits: where the host waited for the device, by what
    made it wait. allocated: bytes of tensors that are alive, by where they lie. fraction: of the
    memory, that this process may take.
    """

    operations: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    allocated: dict[int, tuple[int, int]] = field(default_factory=dict)
    in_use: int = 0
    peak: int = 0
    fraction: float = 1.0
    raises_on_waits: bool = False
    process: int | None = None
    tape: list[tuple[Any, ...]] | None = None


gpu = Gpu(**json.loads(os.environ.get(DEVICE, "{}")))
state = State()
_lock = threading.RLock()


# ---- before torch is imported, and while it is ----


def load(torch: Path) -> None:
    """Load the library before torch, which asks only once who its CUDA is. torch: its folder."""
    for name in (torch / "lib/libc10.so", torch / "lib/libtorch_cpu.so", os.environ[LIBRARY]):
        ctypes.CDLL(str(name), mode=ctypes.RTLD_GLOBAL)


def replace_driver() -> None:
    """Give `torch._C` what a build with CUDA has there, before `torch.cuda` looks for it."""
    import torch

    for name, value in _driver().items():
        setattr(torch._C, name, value)


def _visible() -> int:
    """How many devices CUDA_VISIBLE_DEVICES leaves."""
    if gpu.driver_is_old:
        return 0
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return gpu.count
    return len([one for one in named.split(",") if one.strip() not in ("", "-1")])


def _driver() -> dict[str, Callable[..., Any]]:
    def index(device: Any) -> int:
        """C++ takes a number, and only one that is there."""
        if not isinstance(device, int):
            raise TypeError(f"the driver was given {device!r} for a device's number")
        if not 0 <= device < max(1, _visible()):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return device

    def init() -> None:
        import torch

        if gpu.driver_is_old:
            raise RuntimeError(
                "The NVIDIA driver on your system is too old (found version 11040). Please update "
                "your GPU driver"
            )
        if not _visible():
            raise RuntimeError("No CUDA GPUs are available")
        state.process = os.getpid()
        torch.cuda.default_generators = tuple(torch.Generator() for _ in range(_visible()))
        torch.cuda._get_device_properties = _properties  # type: ignore[attr-defined]

    def memory_stats(device: int) -> dict[str, Any]:
        index(device)
        use = {"all": {"current": state.in_use, "peak": state.peak}}
        return {"allocated_bytes": use, "reserved_bytes": use}

    def reset_peak(device: int) -> None:
        index(device)
        state.peak = state.in_use

    def set_fraction(fraction: float, device: int) -> None:
        index(device)
        state.fraction = fraction

    def set_sync_debug_mode(mode: int) -> None:
        state.raises_on_waits = mode == 2

    def synchronise() -> None:
        state.waits["synchronize"] += 1

    return {
        "_cuda_getDeviceCount": _visible,
        "_cuda_init": init,
        "_cuda_isInBadFork": lambda: state.process not in (None, os.getpid()),
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": index,
        "_cuda_exchangeDevice": lambda device: 0,
        "_cuda_maybeExchangeDevice": lambda device: 0,
        "_cuda_getCurrentRawStream": index,
        "_cuda_synchronize": synchronise,
        "_cuda_emptyCache": lambda: None,
        "_cuda_getArchFlags": lambda: "sm_80 sm_90",
        "_cuda_set_sync_debug_mode": set_sync_debug_mode,
        "_cuda_get_sync_debug_mode": lambda: 2 * state.raises_on_waits,
        "_cuda_getMemoryFraction": lambda device: state.fraction + 0 * index(device),
        "_cuda_setMemoryFraction": set_fraction,
        "_cuda_memoryStats": memory_stats,
        "_cuda_resetPeakMemoryStats": reset_peak,
        "_cuda_resetAccumulatedMemoryStats": index,
    }


def _properties(device: int) -> Any:
    major, minor = gpu.capability
    return types.SimpleNamespace(
        name=gpu.name,
        major=major,
        minor=minor,
        total_memory=int(gpu.gib * GIB),
        multi_processor_count=132,
    )


def _free() -> int:
    taken = gpu.others_gib * GIB + CONTEXT + state.in_use
    return max(0, int(gpu.gib * GIB - taken))


def complete() -> None:
    """After torch's import: the tensors, and the little of its Python that is C++ elsewhere."""
    import torch

    def memory_info(device: int) -> tuple[int, int]:
        return _free(), int(gpu.gib * GIB)

    torch.cuda._cudart = types.SimpleNamespace(cudaMemGetInfo=memory_info)  # type: ignore[attr-defined]
    torch._C._is_flash_attention_available = lambda: gpu.flash
    # A parameter's memory cannot become a tensor of another class: `module.to` makes new ones.
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    from tests.standin import tensors

    tensors.install()


# ---- what tests ask ----


@dataclass
class Seen:
    """What happened on the device since a moment: operations launched, and waits for it."""

    operations: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)


@contextlib.contextmanager
def watched() -> Iterator[Seen]:
    """Yield what happens within."""
    before = Counter(state.operations), Counter(state.waits)
    seen = Seen()
    yield seen
    seen.operations.update(state.operations - before[0])
    seen.waits.update(state.waits - before[1])
