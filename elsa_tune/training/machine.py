"""What a process has of its machine: cores, memory, and what to do when memory runs out."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

Result = TypeVar("Result")

MIB = 2**20
# About what CUDA takes of a GPU for each process, beside what torch allocates.
CONTEXT_MIB = 600
# The CPU's allocator, the CUDA runtime, cuBLAS (on a full GPU it cannot even begin), and cuDNN,
# which says no more than that something inside failed.
_NO_MEMORY = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR",
)

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def usable_cores() -> int:
    """CPU cores that this process may use: the machine's, or fewer under Slurm or taskset."""
    return len(os.sched_getaffinity(0))


class PeakMemory:
    """Measures from its creation: allocated memory on a GPU, resident memory of the process
    elsewhere. What a process takes of a GPU is more (`taken_mib`).

    The kernel's high-water mark is reset first (`echo 5 > /proc/self/clear_refs`, see proc(5)), so
    that a trial on a reused worker does not report an earlier trial's peak.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with contextlib.suppress(OSError):
                _CLEAR_REFS.write_text("5")

    def mib(self) -> float:
        """The highest use since this was made, in MiB; on a GPU that of this process's tensors."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / MIB
        with contextlib.suppress(OSError, ValueError):
            for line in _STATUS.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def taken_mib(self) -> float:
        """What others cannot have: on a GPU also torch's reserve and CUDA's own part."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_reserved(self._device) / MIB + CONTEXT_MIB
        return self.mib()


def take_share(gpus: float) -> str:
    """Keep this process to its share (0..1) of the GPU that it sees; the device's name for torch.

    torch's own part of the memory that CUDA takes for each process is not lent to it.
    """
    if gpus == 0:
        return "cpu"
    if gpus < 1:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(max(0.0, gpus - CONTEXT_MIB * MIB / total))
    return "cuda"


def room(device: torch.device) -> int:
    """Bytes of a GPU that this process may still take, by its share of it; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    share = total * torch.cuda.get_per_process_memory_fraction(device)
    return max(0, min(free, int(share) - torch.cuda.memory_reserved(device)))


def settle() -> None:
    """Tell the garbage collector that all there is now will stay.

    For a process that will train trial after trial: looking through the libraries' objects again
    takes longer than starting a trial.
    """
    gc.collect()
    gc.freeze()


def release() -> None:
    """Give back what earlier trials held, to the GPU and to the operating system."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    # glibc keeps freed memory in its arenas, which would count as the next trial's.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def within_memory(attempt: Callable[[], Result]) -> Result | None:
    """What the attempt gives; None where memory ran out in it. Then everything that only it held is
    free: its error, whose traceback holds its variables, is gone too.
    """
    try:
        return attempt()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return None


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """torch has its own class, for what its allocator cannot get; others raise a RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in _NO_MEMORY)
