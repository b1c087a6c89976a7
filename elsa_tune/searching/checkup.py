"""Whether store, Ray and data would serve a search, each tried in a process of its own.

One that hangs is killed, and one that breaks breaks nothing else.
"""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from elsa_tune.errors import DataError, ElsaTuneError, first_line
from elsa_tune.specs.task import GlueSource, TaskSpec
from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.known import GLUE_TASKS

# A cold machine reads torch, Ray and MLflow from a shared disk.
SECONDS = 90.0

# What is tried and with which arguments; it returns what it found in a few words.
Check = tuple[Callable[..., str], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a check. text: what was found, or what is wrong and its remedy."""

    name: str
    text: str
    is_well: bool


def examine(checks: Mapping[str, Check], seconds: float = SECONDS) -> Iterator[Finding]:
    """All checks at once, told in their order. seconds: for all of them together."""
    context = multiprocessing.get_context("spawn")
    begun = {}
    until = time.monotonic() + seconds
    try:
        for name, (check, given) in checks.items():
            ours, theirs = context.Pipe(duplex=False)
            begun[name] = context.Process(target=_tell, args=(theirs, check, given)), ours
            begun[name][0].start()
            theirs.close()
        for name, (_, ours) in begun.items():
            if not ours.poll(max(0.0, until - time.monotonic())):
                yield Finding(name, f"nothing came within {seconds:g} s", False)
                continue
            try:
                yield Finding(name, *ours.recv())
            except EOFError:
                yield Finding(name, "the process that tried it was killed: is memory short?", False)
    finally:
        for process, _ in begun.values():
            process.kill()
            process.join()


def _tell(end: Connection, check: Callable[..., str], given: Sequence[Any]) -> None:
    """In the process of a check: try it, and send what was found and whether that is well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this one
    try:
        end.send((check(*given), True))
    except ElsaTuneError as error:
        end.send((str(error), False))
    except Exception as error:  # what a library raises here a search would meet too
        end.send((f"{type(error).__name__}: {first_line(error)}", False))


def store(tracking_uri: str) -> str:
    """Whether MLflow can be reached and written."""
    from elsa_tune.tracking.store_check import look_at_store

    return look_at_store(tracking_uri)


def ray(address: str | None) -> str:
    """Whether Ray starts here, or the cluster answers, and a task runs on it."""
    from elsa_tune.searching.tune.cluster import ANSWER_SECONDS, ray_session

    began = time.monotonic()
    with ray_session(address) as session:
        capacity = session.ready()
        import ray

        # Takes no CPU: trials may have them all.
        answer = ray.remote(num_cpus=0)(lambda: True).remote()
        ray.get(answer, timeout=ANSWER_SECONDS)
        seconds = time.monotonic() - began
    gpus = f", {capacity.gpus:g} GPUs" if capacity.gpus else ""
    has = f"{capacity.cpus:g} CPUs{gpus}"
    if address is None:
        return f"starts here and runs a task, in {seconds:.0f} s: {has}"
    nodes = "1 node" if capacity.nodes == 1 else f"{capacity.nodes} nodes"
    return f"the cluster at {address} runs a task: {nodes}, {has}"


def task_rows(task: TaskSpec) -> str:
    """Whether its rows can be read; from the hub they are fetched."""
    from elsa_tune.training.data.preparation import read_splits

    splits = read_splits(task, Recipe())
    counts = ", ".join(f"{len(split):,} {name}" for name, split in splits.items())
    return f"{task.name} can be read: {counts} rows"


def glue_rows(data_dir: str) -> str:
    """Which of GLUE's tasks can be read in a folder. Raises DataError where none can."""
    from elsa_tune.training.data.texts import read_texts

    readable = []
    for name, task in GLUE_TASKS.items():
        assert isinstance(task.source, GlueSource)
        try:
            read_texts(replace(task, source=replace(task.source, data_dir=data_dir)))
            readable.append(name)
        except DataError as error:
            wrong = error
    if not readable:
        raise wrong
    return f"{len(readable)} of GLUE's {len(GLUE_TASKS)} tasks can be read: {', '.join(readable)}"


def cached_glue() -> str:
    """Which of GLUE's tasks need no download."""
    from elsa_tune.training.data.texts import cached_tasks

    if cached := cached_tasks():
        return f"in the hub's cache: {', '.join(cached)}; `stdlib` needs no data"
    return "no GLUE in the hub's cache: `data_dir` names a folder, `stdlib` needs no data"
