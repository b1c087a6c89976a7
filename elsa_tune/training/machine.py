"""What a process has of its machine: cores, memory, precision, and the same numbers every time."""

import contextlib
import ctypes
import functools
import gc
import os
import platform
import resource
import socket
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from elsa_tune.errors import SpaceError, first_line
from elsa_tune.files import slug
from elsa_tune.specs.trial import Precision

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

# glibc's mallopt: how many free bytes at its top the heap keeps, and the size from which on a block
# lies outside of the heap.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3

# oneDNN, which computes in bf16 on CPUs, compiles its products for every new number of tokens. By
# themselves it and torch keep the last 1,024, each with the memory that it works in; a step needs a
# dozen. Both variables are read at the first product.
_KEPT_PRODUCTS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

_STATUS = Path("/proc/self/status")
_PROCESSORS = Path("/proc/cpuinfo")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return the CPU cores that this process may use, 1 at least.

    They are fewer than all under Slurm or taskset, and in a container with a limit on CPU time.
    """
    cores = len(os.sched_getaffinity(0))
    limit = _container_cores()
    if limit is None:
        return cores
    return max(1, min(cores, int(limit)))


def _container_cores() -> float | None:
    """Return how many cores' time a container gets, None without a limit."""
    words: list[str] = []
    with contextlib.suppress(OSError):
        words = (_CGROUP / "cpu.max").read_text().split()
    if not words:  # the first version of cgroups
        with contextlib.suppress(OSError):
            for name in ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"):
                words.append((_CGROUP / name).read_text().strip())
    with contextlib.suppress(ValueError):  # `max` is no limit
        quota, period = map(int, words)
        if quota > 0 and period > 0:
            return quota / period
    return None


def identity(device: str) -> str:
    """Return a name for what is measured here: of host, cores, torch, device and GPU."""
    gpu = ""
    if device == "cuda":
        gpu = torch.cuda.get_device_name()
    host = socket.gethostname()
    cores = usable_cores()
    return slug(f"{host}-{cores}-{torch.__version__}-{device}-{gpu}")


def kind(device: torch.device) -> str:
    """Return what the last bits of a sum depend on: the GPU, or the processor and the threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    instructions = torch.backends.cpu.get_cpu_capability()
    return f"{_processor()}, {instructions}, {torch.get_num_threads()} threads"


@functools.cache
def _processor() -> str:
    """Return the processor's name, or its architecture where the kernel tells no name."""
    with contextlib.suppress(OSError):
        for line in _PROCESSORS.read_text().splitlines():
            field, _, value = line.partition(":")
            if field.strip() == "model name":
                return value.strip()
    return platform.machine()


def torch_device(name: str) -> torch.device:
    """Return torch's device for `cpu` or `cuda`, a GPU by its number.

    Without one some of torch's functions (the memory fraction's) do not take it. A process trains
    on its current GPU alone.
    """
    if name == "cuda":
        return torch.device(name, torch.cuda.current_device())
    return torch.device(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What a process finds of its GPU, or why it cannot use one; then the rest is empty."""

    torch: str  # the version that looked
    name: str = ""  # as its driver calls it
    memory: int = 0  # all of it, in bytes
    free: int | None = None  # what no process has taken, in bytes; None where nobody asked
    has_bf16: bool = False  # units for bf16 and TF32
    has_flash: bool = False  # whether flash attention runs on it
    fault: str | None = None  # why torch cannot use it


def look_at_gpu(*, ask_free: bool = False) -> Gpu:
    """Look at this process's GPU.

    ask_free: also how much memory is free, for which CUDA takes some of it until the process ends.
    """
    with warnings.catch_warnings(action="ignore"):  # torch warns of what is told here
        if not torch.cuda.is_available():
            return Gpu(torch=torch.__version__, fault=_why_no_gpu())
    device = torch_device("cuda")
    free = None
    if ask_free:
        try:
            free = torch.cuda.mem_get_info(device)[0]
        except RuntimeError as error:
            # CUDA found no room for its own part, or lets no further process in.
            if not is_out_of_memory(error):
                return Gpu(torch=torch.__version__, fault=first_line(error))
            free = 0
    return Gpu(
        torch=torch.__version__,
        name=torch.cuda.get_device_name(device),
        memory=torch.cuda.get_device_properties(device).total_memory,
        free=free,
        has_bf16=has_bf16_units(),
        has_flash=has_flash_attention(device),
    )


def _why_no_gpu() -> str:
    """Return torch's own words, which name an old driver, or a build without CUDA."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return "CUDA_VISIBLE_DEVICES is empty"
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return first_line(error)
    return "torch finds none"


def has_flash_attention(device: torch.device) -> bool:
    """Return whether torch was built with it, and the GPU runs it (NVIDIA's since Ampere)."""
    is_built = torch.backends.cuda.is_flash_attention_available()
    return is_built and torch.cuda.get_device_capability(device) >= (8, 0)


class PeakMemory:
    """The peak of memory since it began: allocated on a GPU, else resident in the process.

    What a process takes of a GPU is more (`taken_mib`).

    The kernel's high-water mark is reset first (`echo 5 > /proc/self/clear_refs`, see proc(5)), so
    that a trial on a reused worker does not report an earlier trial's peak.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.begin()

    def begin(self) -> None:
        """Begin with what is in use now, and forget what was in use before."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            with contextlib.suppress(OSError):
                _CLEAR_REFS.write_text("5")

    def mib(self) -> float:
        """Return the highest use since it began, in MiB; on a GPU by this process's tensors."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / MIB
        with contextlib.suppress(OSError, ValueError):
            for line in _STATUS.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def taken_mib(self) -> float:
        """Return what others cannot have: on a GPU also torch's reserve and CUDA's own part."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_reserved(self._device) / MIB + CONTEXT_MIB
        return self.mib()


def take_share(gpus: float) -> str:
    """Keep this process to its share (0..1) of the GPU that it sees; return torch's device name.

    torch's own part of the memory that CUDA takes for each process is not lent to it.
    """
    if gpus == 0:
        return "cpu"
    if gpus < 1:
        total = torch.cuda.get_device_properties(torch_device("cuda")).total_memory
        cudas_own = CONTEXT_MIB * MIB / total
        torch.cuda.set_per_process_memory_fraction(max(0.0, gpus - cudas_own))
    return "cuda"


def free_bytes(device: torch.device) -> int:
    """Return the bytes of a GPU that this process may still take, by its share; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    share = int(total * torch.cuda.get_per_process_memory_fraction(device))
    of_share = share - torch.cuda.memory_reserved(device)
    return max(0, min(free, of_share))


def freeze_gc() -> None:
    """Tell the garbage collector that all there is now will stay.

    For a process that will train trial after trial: looking through the libraries' objects again
    takes longer than starting a trial.
    """
    gc.collect()
    gc.freeze()


@functools.cache
def keep_freed_memory() -> None:
    """Have glibc keep what a training step frees for the next one, until `release`.

    By default it gives large tensors back to the kernel at once and takes them anew page by page:
    53,000 page faults in every step of MPNet's full model, and 8 % of its time (measured:
    bench/results/kept_memory.json). Only large blocks and the top of the heap are concerned.
    """
    # Other C libraries have no mallopt, and an old glibc refuses the higher of the thresholds.
    with contextlib.suppress(OSError, AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(_TRIM_THRESHOLD, 2**31 - 1)
        if not set_option(_MMAP_THRESHOLD, 2**30):
            set_option(_MMAP_THRESHOLD, 2**25)


def release() -> None:
    """Give back what earlier trials held, to the GPU and to the operating system."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    # glibc keeps freed memory in its arenas, which would count as the next trial's.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def within_memory(attempt: Callable[[], Result]) -> Result | None:
    """Return what the attempt gives; None where memory ran out in it.

    Then everything that only it held is free: its error, whose traceback holds its variables, is
    gone too.
    """
    try:
        return attempt()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return None


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Return whether an error says that memory ran out, by its class or in its library's words."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in _NO_MEMORY)


def has_bf16_units(device: str = "cuda") -> bool:
    """Return whether the GPU has units for bf16 and TF32 (since Ampere), or the CPU for bf16.

    Others emulate bf16, more slowly than they compute fp32.
    """
    if device == "cpu":
        for name, is_there in torch.cpu.get_capabilities().items():
            if "bf16" in name and is_there:
                return True
        return False
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def resolve_precision(
    precision: Precision, device: str, has_units: bool | None = None
) -> Precision:
    """Return what `auto` means on a device: bf16 where a GPU has units for it, else fp32.

    has_units: of all GPUs that will train; by default this machine's is asked. Raises SpaceError
    for arithmetic that the device has not.
    """
    on_gpu = device == "cuda"
    if on_gpu and has_units is None:
        has_units = has_bf16_units()
    if precision is Precision.AUTO:
        return Precision.BF16 if on_gpu and has_units else Precision.FP32
    if on_gpu and not has_units and precision is not Precision.FP32:
        raise SpaceError(
            f"precision is {precision}, but a GPU that would train has no units for it (NVIDIA's "
            "have since Ampere); use fp32"
        )
    if precision is Precision.TF32 and not on_gpu:
        raise SpaceError("precision is tf32, which only GPUs have; use fp32 or bf16")
    return precision


def precision_here(precision: Precision, device: str | None = None) -> Precision:
    """Return the same where this machine trains in it, fp32 where its device has not the units.

    device: by default that of a trial here.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolve_precision(precision, device)
    except SpaceError:
        return Precision.FP32
    return precision


@contextlib.contextmanager
def reproducible(
    seed: int, device: torch.device, precision: Precision = Precision.FP32
) -> Iterator[None]:
    """Seed torch for one trial, and put the process back as it was."""
    if device.type == "cuda":
        # Read by cuBLAS at its first use; without it matrix products may differ between runs.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    else:
        for variable, count in _KEPT_PRODUCTS.items():
            os.environ.setdefault(variable, count)
    deterministic: Any = torch.utils.deterministic
    with contextlib.ExitStack() as stack:
        stack.callback(
            torch.use_deterministic_algorithms,
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        fills = deterministic.fill_uninitialized_memory
        stack.callback(setattr, deterministic, "fill_uninitialized_memory", fills)
        stack.callback(
            torch.backends.cuda.enable_cudnn_sdp, torch.backends.cuda.cudnn_sdp_enabled()
        )
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        stack.enter_context(preserve_rng(device))
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Fills every new tensor to catch readers of garbage: a debugging aid that costs each step.
        deterministic.fill_uninitialized_memory = False
        # It plans for every new shape, for seconds in all, and rounds dropout to sixteenths.
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.set_float32_matmul_precision("high" if precision is Precision.TF32 else "highest")
        yield


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """Have torch as a new process has it: float32, on the CPU, with gradients.

    At the end all is as before. For what computes in a caller's program, which may have set a
    default type or device, or turned gradients off. The type is the whole process's, the others are
    the thread's.
    """
    dtype = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        # Only where it is needed: with it every call of torch takes a detour through Python.
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield


def preserve_rng(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Put the device's and the host's random numbers back where they were, at the end."""
    gpus = [device] if device.type == "cuda" else []
    return torch.random.fork_rng(devices=gpus)


@contextlib.contextmanager
def unordered_sums_are_no_news() -> Iterator[None]:
    """Keep torch from warning that an attention kernel adds up in any order.

    For passes of a check, which compares within a tolerance.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* defaults to a non-deterministic algorithm")
        yield


def try_deterministic(step: Callable[[], object], device: torch.device) -> str | None:
    """Let torch raise at operations without a deterministic form, unless a step needs one.

    Otherwise it warns. Called within `reproducible`. Returns None, or a note on which operation the
    step (forwards and backwards) needs.

    Where torch only warns, kernels with a faster form that adds up in any order take it.
    """
    torch.use_deterministic_algorithms(True)
    try:
        with preserve_rng(device):
            step()
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        if "determin" not in first:
            raise
        torch.use_deterministic_algorithms(True, warn_only=True)
        return f"the same seed may give other losses on this GPU: {first}"
    return None
