"""How trials share this machine best, one with many threads or many with few: found by training.

It must not know of searches; what it finds is kept for them in the cache folder. A result is that
of one model on one machine: another host, number of cores, GPU or torch makes it unknown again.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import socket
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from elsa_tune.errors import RunError
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training.cache import cache_dir, write_aside
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import steps
from elsa_tune.training.machine import (
    MIB,
    PeakMemory,
    is_out_of_memory,
    settle,
    take_share,
    usable_cores,
)

_WARM_STEPS = 2
# Loading a large model in many processes at once takes minutes.
_START_SECONDS = 600.0
# Trials side by side may take so much of the memory: the driver and the page cache need the rest.
_MEMORY_SHARE = 0.8
_MOST_TRIALS_A_GPU = 8
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


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
    peak_memory_mb: of the largest trial, MiB of the process, or of what it takes of the GPU.
    """

    division: Division
    tokens_per_second: float
    peak_memory_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The best division for a model, and where it was found. device: `cpu`, or the GPU's name."""

    division: Division
    model: str
    task: str
    date: str
    host: str
    device: str
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
    return measure_each([(trial, data)], division, device, seconds)[0]


def measure_each(
    trainings: Sequence[tuple[TrialSpec, TaskData]],
    division: Division,
    device: str,
    seconds: float = 8.0,
) -> list[Throughput]:
    """The same for several trials, each for so many seconds, one after another in the same
    processes, whose start takes longer than that.
    """
    # Not a pool of the standard library: one whose first process dies while the next one starts
    # may wait for ever for what that next one never says.
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(division.trials)
    processes, ends = [], []
    try:
        for _ in range(division.trials):
            ours, theirs = context.Pipe()
            given = (theirs, start, division.threads, device, seconds)
            processes.append(context.Process(target=_train_each, args=given, daemon=True))
            ends.append(ours)
            processes[-1].start()
            theirs.close()  # so that its death ends what we read
        for end in ends:
            end.send(trainings)
        answers = _gather(ends)
        # Those that only waited for one that failed say nothing of why.
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        errors.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
        if errors:
            raise errors[0]
    except (EOFError, ConnectionError, threading.BrokenBarrierError) as error:
        raise RunError(
            f"{division.trials} trials at once with {division.threads} CPU threads each did "
            "not get going: one was killed, most likely for memory"
        ) from error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(f"{division.trials} trials at once do not fit in memory") from error
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()
    return [
        Throughput(
            division=division,
            tokens_per_second=sum(rate for rate, _ in alike),
            peak_memory_mb=max(peak for _, peak in alike),
        )
        for alike in zip(*answers, strict=True)
    ]


def _gather(ends: Sequence[Connection]) -> list[Any]:
    """Every process's answer, as they come; EOFError as soon as one ends without."""
    answers, waiting = [], list(ends)
    while waiting:
        for end in wait(waiting):
            assert isinstance(end, Connection)
            answers.append(end.recv())
            waiting.remove(end)
    return answers


def fits(division: Division, known: Sequence[Throughput], device: str) -> bool:
    """Whether its trials fit in memory, by what the trials measured before it took."""
    if not known:
        return True
    needed = division.trials * max(one.peak_memory_mb for one in known)
    return needed <= _MEMORY_SHARE * memory_mb(device)


def memory_mb(device: str) -> float:
    """Of the machine (of this container, where that has less), or of its first GPU, in MiB."""
    if device == "cuda":
        return torch.cuda.get_device_properties(0).total_memory / MIB
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MIB
    with contextlib.suppress(OSError, ValueError):
        memory = min(memory, int(_CONTAINER_LIMIT.read_text()) / MIB)
    return memory


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


def _train_each(
    end: Connection, start: threading.Barrier, threads: int, device: str, seconds: float
) -> None:
    """Answer the trainings that come with what each gave, or with what went wrong."""
    try:
        trainings = end.recv()
        end.send(
            [_train(trial, data, start, threads, device, seconds) for trial, data in trainings]
        )
    except Exception as error:  # whatever it is, the parent judges it
        end.send(error)


def _train(
    trial: TrialSpec,
    data: TaskData,
    start: threading.Barrier,
    threads: int,
    device: str,
    seconds: float,
) -> tuple[float, float]:
    """Tokens a second, and peak memory in MiB."""
    torch.set_num_threads(threads)
    take_share(1 / start.parties if device == "cuda" else 0)
    settle()
    memory = PeakMemory(torch.device(device))
    training = steps(trial, data, device=device)
    try:
        for _ in range(_WARM_STEPS):
            next(training)
    except BaseException:
        start.abort()  # the others need not wait
        raise
    start.wait(_START_SECONDS)
    started = time.perf_counter()
    tokens, elapsed = 0, 0.0
    while elapsed < seconds:
        batch = next(training)
        tokens += int(data.train.lengths[batch].sum())
        if device == "cuda":
            torch.cuda.synchronize()
        elapsed = time.perf_counter() - started
    training.close()
    return tokens / elapsed, memory.taken_mib()


# ---- what is kept ----


def remember(division: Division, device: str, model: str, task: str) -> None:
    """Keep the best division for a model's searches on this machine; raises OSError."""
    found = {
        **{one.model: one for one in remembered(device)},
        model: Tuned(
            division=division,
            model=model,
            task=task,
            date=time.strftime("%Y-%m-%d"),
            **_here(device),
        ),
    }
    text = json.dumps([asdict(one) for one in found.values()], indent=1) + "\n"
    write_aside(_path(device), lambda file: file.write(text.encode()))


def remembered(device: str) -> list[Tuned]:
    """What was found on this machine as it is now."""
    try:
        entries = json.loads(_path(device).read_text(encoding="utf-8"))
        found = [Tuned(**{**one, "division": Division(**one["division"])}) for one in entries]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    here = _here(device)
    return [one for one in found if all(getattr(one, name) == here[name] for name in here)]


def _here(device: str) -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "cores": usable_cores(),
        "torch": torch.__version__,
    }


def _path(device: str) -> Path:
    return cache_dir() / f"machine-{socket.gethostname()}-{device}.json"  # a home may be shared
