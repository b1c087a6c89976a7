"""How trials share this machine best, one with many threads or many with few: found by training.

It must not know of searches; what it finds is kept for them in the cache folder. A result is that
of one machine: another host, number of cores or torch makes it unknown again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from elsa_tune.errors import RunError
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training.cache import cache_dir, write_aside
from elsa_tune.training.loop import steps
from elsa_tune.training.memory import MIB, PeakMemory, settle
from elsa_tune.training.tokens import TaskData

_WARM_STEPS = 2
# Loading a large model in many processes at once takes minutes.
_START_SECONDS = 600.0
# Trials side by side may take so much of the memory: the driver and the page cache need the rest.
_MEMORY_SHARE = 0.8
_MOST_TRIALS_A_GPU = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """A way to divide the machine: so many trials at once (on one GPU, where trials use one), each
    with so many CPU threads.
    """

    trials: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What a division trains. tokens_per_second: of all its trials together, padding not counted.
    peak_memory_mb: of the largest trial, MiB of the process or of the GPU.
    """

    division: Division
    tokens_per_second: float
    peak_memory_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The best division, and where it was found. device: `cpu` or `cuda`."""

    division: Division
    device: str
    what: str
    date: str
    host: str
    cores: int
    torch: str


def divisions(cores: int, gpus: int = 0) -> list[Division]:
    """Every division worth trying, few trials first."""
    if gpus:
        shares = [n for n in (1, 2, 4, _MOST_TRIALS_A_GPU) if n * gpus <= max(cores, gpus)]
        return [Division(trials=n, threads=max(1, cores // (n * gpus))) for n in shares]
    threads = {cores, *(2**power for power in range(cores.bit_length()) if 2**power <= cores)}
    return [Division(trials=cores // n, threads=n) for n in sorted(threads, reverse=True)]


def measure(
    trial: TrialSpec, data: TaskData, division: Division, device: str, seconds: float = 8.0
) -> Throughput:
    """Train so many trials at once for so many seconds, after a start that does not count.

    Raises RunError where one of them is killed, as the kernel does when memory runs out.
    """
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(division.trials)
    pool = ProcessPoolExecutor(
        division.trials, mp_context=context, initializer=_take, initargs=(start,)
    )
    with pool:
        waiting = [
            pool.submit(_train, trial, data, division.threads, device, seconds)
            for _ in range(division.trials)
        ]
        try:
            found = [future.result() for future in waiting]
        except (BrokenProcessPool, threading.BrokenBarrierError) as error:
            raise RunError(
                f"{division.trials} trials at once with {division.threads} threads each did not "
                "get going: one was killed, most likely for memory"
            ) from error
    return Throughput(
        division=division,
        tokens_per_second=sum(rate for rate, _ in found),
        peak_memory_mb=max(peak for _, peak in found),
    )


def fits(division: Division, known: Sequence[Throughput], device: str) -> bool:
    """Whether its trials fit in memory, by what the trials measured before it took."""
    if not known:
        return True
    needed = division.trials * max(one.peak_memory_mb for one in known)
    return needed <= _MEMORY_SHARE * memory_mb(device)


def memory_mb(device: str) -> float:
    """Of the machine, or of its first GPU, in MiB."""
    if device == "cuda":
        return torch.cuda.get_device_properties(0).total_memory / MIB
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MIB


def product_rate(dtype: torch.dtype, device: str, seconds: float = 0.5) -> float:
    """FLOP/s of matrix products of a BERT layer's shape on this process's threads."""
    a = torch.randn(256, 768, device=device).to(dtype)
    b = torch.randn(768, 768, device=device).to(dtype)
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < deadline:
        started = time.perf_counter()
        torch.mm(a, b)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return 2 * 256 * 768 * 768 / statistics.median(times[1:])


# ---- in each process ----

_start: threading.Barrier | None = None


def _take(start: threading.Barrier) -> None:
    global _start
    _start = start


def _train(
    trial: TrialSpec, data: TaskData, threads: int, device: str, seconds: float
) -> tuple[float, float]:
    """Tokens a second, and peak memory in MiB."""
    assert _start is not None
    torch.set_num_threads(threads)
    settle()
    memory = PeakMemory(torch.device(device))
    training = steps(trial, data, device=device)
    for _ in range(_WARM_STEPS):
        next(training)
    _start.wait(_START_SECONDS)
    started = time.perf_counter()
    tokens, elapsed = 0, 0.0
    while elapsed < seconds:
        batch = next(training)
        tokens += int(data.train.lengths[batch].sum())
        if device == "cuda":
            torch.cuda.synchronize()
        elapsed = time.perf_counter() - started
    training.close()
    return tokens / elapsed, memory.mib()


# ---- what is kept ----


def remember(division: Division, device: str, what: str) -> Path:
    """Keep the best division for the searches on this machine; raises OSError."""
    path = _path()
    tuned = Tuned(
        division=division,
        device=device,
        what=what,
        date=time.strftime("%Y-%m-%d"),
        host=socket.gethostname(),
        cores=os.cpu_count() or 1,
        torch=torch.__version__,
    )
    text = json.dumps(asdict(tuned), indent=1) + "\n"
    write_aside(path, lambda file: file.write(text.encode()))
    return path


def remembered(device: str) -> Tuned | None:
    """What was found here, None where nothing was or the machine is another one by now."""
    try:
        values = json.loads(_path().read_text(encoding="utf-8"))
        tuned = Tuned(**{**values, "division": Division(**values["division"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    here = (device, socket.gethostname(), os.cpu_count() or 1, torch.__version__)
    return tuned if (tuned.device, tuned.host, tuned.cores, tuned.torch) == here else None


def _path() -> Path:
    return cache_dir() / f"machine-{socket.gethostname()}.json"  # a home may be shared
