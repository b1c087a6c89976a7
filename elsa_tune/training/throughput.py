"""How trials share this machine best, one with many threads or many with few: found by training."""

import contextlib
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from elsa_tune.errors import RunError
from elsa_tune.files import cache_dir, write_aside
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training import machine
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import steps

_WARM_STEPS = 2
# Trials side by side may take so much of the memory: the driver and the page cache need the rest.
_MEMORY_SHARE = 0.8
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """A way to share the machine among trials."""

    trials: int  # at once; on one GPU, where trials use one
    threads: int  # of the CPU, for each


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What a division trains."""

    tokens_per_second: float  # of all its trials together, padding not counted
    # Of the largest trial, MiB of the process, or of what it takes of the GPU.
    peak_memory_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The best division for a model's searches."""

    division: Division  # of the machine, among trials
    task: str  # on which it was found
    date: str  # when
    bf16: float | None = None  # how many times as fast bf16 trains; None where nobody tried


def divisions(cores: int, gpus: int = 0) -> list[Division]:
    """Return every division worth trying, few trials first."""
    ways = []
    if gpus:
        for trials in (1, 2, 4, 8, 16):
            in_all = trials * gpus
            if in_all <= max(cores, gpus):
                threads = max(1, cores // in_all)
                ways.append(Division(trials=trials, threads=threads))
        return ways
    thread_counts = {cores}
    power_of_two = 1
    while power_of_two <= cores:
        thread_counts.add(power_of_two)
        power_of_two *= 2
    for threads in sorted(thread_counts, reverse=True):
        ways.append(Division(trials=cores // threads, threads=threads))
    return ways


def tune(
    trials: Sequence[TrialSpec], data: TaskData, device: str, seconds: float
) -> Iterator[tuple[Division, Throughput | str]]:
    """Yield every division worth trying with what it trains, or why it was not measured.

    What it trains is of these trials, as many tokens of each. Raises RunError where even the first
    one does not run.
    """
    trainings = [(trial, data) for trial in trials]
    peak = 0.0
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    for division in divisions(machine.usable_cores(), gpus):
        wanted_mb = division.trials * peak
        if wanted_mb > _MEMORY_SHARE * memory_mb(device):
            yield division, "skipped: it would not fit in memory"
            continue
        try:
            throughputs = measure(trainings, division, device, seconds)
        except RunError as error:
            if not peak:
                raise
            yield division, str(error)
            continue
        rates = [throughput.tokens_per_second for throughput in throughputs]
        of_all = Throughput(
            tokens_per_second=statistics.harmonic_mean(rates),
            peak_memory_mb=max(throughput.peak_memory_mb for throughput in throughputs),
        )
        peak = max(peak, of_all.peak_memory_mb)
        yield division, of_all


def measure(
    trainings: Sequence[tuple[TrialSpec, TaskData]], division: Division, device: str, seconds: float
) -> list[Throughput]:
    """Train each of these for some seconds, after a start that does not count.

    As many copies run at once as the division has trials, one training after another in the same
    processes.

    Raises RunError where one of them is killed, as the kernel does when memory runs out.
    """
    # Not a pool of the standard library: one whose first process dies while the next one starts
    # may wait for ever for what that next one never says.
    context = multiprocessing.get_context("forkserver")  # torch is imported once, not in each
    context.set_forkserver_preload([__name__])
    processes = []
    ends = []
    throughputs = []
    try:
        for _ in range(division.trials):
            ours, theirs = context.Pipe()
            arguments = (theirs, division, device, seconds)
            process = context.Process(target=_train_each, args=arguments, daemon=True)
            processes.append(process)
            ends.append(ours)
            process.start()
            theirs.close()  # so that its death ends what we read
        for training in trainings:
            _asked(ends, training)
            counts = _asked(ends, "count")
            rates, peaks = zip(*counts, strict=True)
            throughput = Throughput(tokens_per_second=sum(rates), peak_memory_mb=max(peaks))
            throughputs.append(throughput)
        return throughputs
    except (EOFError, ConnectionError) as error:
        raise RunError(
            f"{division.trials} trials at once with {division.threads} CPU threads each did "
            "not get going: one was killed, most likely for memory"
        ) from error
    except (RuntimeError, MemoryError) as error:
        if not machine.is_out_of_memory(error):
            raise
        raise RunError(f"{division.trials} trials at once do not fit in memory") from error
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()


def _asked(ends: Sequence[Connection], what: object) -> list[Any]:
    """Return every process's answer; raise what one raised, EOFError where one ended without."""
    for end in ends:
        end.send(what)
    answers = [end.recv() for end in ends]
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def memory_mb(device: str) -> float:
    """Return the memory of the machine, container, or this process's GPU, in MiB."""
    if device == "cuda":
        properties = torch.cuda.get_device_properties(machine.torch_device(device))
        return properties.total_memory / machine.MIB
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        memory = min(memory, int(_CONTAINER_LIMIT.read_text()))
    return memory / machine.MIB


def _train_each(end: Connection, division: Division, device: str, seconds: float) -> None:
    """Begin each training, in a process of its own; when asked answer tokens/s and peak MiB."""
    torch.set_num_threads(division.threads)
    try:
        machine.take_share(1 / division.trials if device == "cuda" else 0)
        while True:
            trial, data = end.recv()
            machine.freeze_gc()
            memory = machine.PeakMemory(machine.torch_device(device))
            training = steps(trial, data, device=device)
            for _ in range(_WARM_STEPS):
                next(training)
            end.send(None)
            end.recv()
            started = time.perf_counter()
            tokens = 0
            elapsed = 0.0
            while elapsed < seconds:
                batch = next(training)
                tokens += int(data.train.lengths[batch].sum())
                elapsed = time.perf_counter() - started
            if device == "cuda":
                # Once, as in training: a wait in every step would time host and GPU one after the
                # other, where the slower of them decides.
                torch.cuda.synchronize()
                elapsed = time.perf_counter() - started
            training.close()
            end.send((tokens / elapsed, memory.taken_mib()))
    except Exception as error:  # whatever it is, the parent judges it
        end.send(error)


def remember(
    division: Division, device: str, model: str, task: str, bf16: float | None = None
) -> None:
    """Keep the best division for a model's searches on this machine; raises OSError."""
    by_model = remembered(device)
    date = time.strftime("%Y-%m-%d")
    by_model[model] = Tuned(division=division, task=task, date=date, bf16=bf16)
    values = {name: asdict(tuned) for name, tuned in by_model.items()}
    text = json.dumps(values, indent=1) + "\n"
    write_aside(_path(device), text.encode())


def remembered(device: str) -> dict[str, Tuned]:
    """Return what was found on this machine as it is now, by the model's name."""
    try:
        values = json.loads(_path(device).read_text(encoding="utf-8"))
        by_model = {}
        for model, fields in values.items():
            fields["division"] = Division(**fields["division"])
            by_model[model] = Tuned(**fields)
        return by_model
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _path(device: str) -> Path:
    return cache_dir() / f"machine-{machine.identity(device)}.json"
