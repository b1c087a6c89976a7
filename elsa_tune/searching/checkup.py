"""Checks whether store, Ray and data would serve a search, each in a process of its own.

A check that hangs is killed, and one that breaks breaks nothing else.
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
SECONDS = 120.0

# A function and its arguments; it returns what works, in a few words.
Check = tuple[Callable[..., str], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a check."""

    name: str  # of the check
    text: str  # what works, or what is wrong and its remedy
    is_well: bool


def examine(checks: Mapping[str, Check], seconds: float = SECONDS) -> Iterator[Finding]:
    """Run all checks at once and yield what came of them, in their order.

    seconds: for all of them together.
    """
    context = multiprocessing.get_context("spawn")
    processes = []
    answers = {}
    until = time.monotonic() + seconds
    try:
        for name, (check, arguments) in checks.items():
            answers[name], sender = context.Pipe(duplex=False)
            process = context.Process(target=_send_finding, args=(sender, name, check, arguments))
            process.start()
            processes.append(process)
            sender.close()
        for name, answer in answers.items():
            left = until - time.monotonic()
            if not answer.poll(max(0.0, left)):
                yield Finding(name, f"nothing came within {seconds:g} s", False)
                continue
            try:
                yield answer.recv()
            except EOFError:
                yield Finding(name, "the process that tried it was killed: is memory short?", False)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _send_finding(
    sender: Connection, name: str, check: Callable[..., str], arguments: Sequence[Any]
) -> None:
    """Run a check in its own process, and send what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this one
    try:
        finding = Finding(name, check(*arguments), True)
    except ElsaTuneError as error:
        finding = Finding(name, str(error), False)
    except Exception as error:  # what a library raises here a search would meet too
        finding = Finding(name, f"{type(error).__name__}: {first_line(error)}", False)
    sender.send(finding)


def store(tracking_uri: str) -> str:
    """Check that the store can be reached and written."""
    from elsa_tune.tracking.stores import store_at

    return store_at(tracking_uri).look()


def ray(address: str | None) -> str:
    """Check that Ray starts here, or the cluster answers, and that a task runs on it."""
    from elsa_tune.searching.cluster.join_address import asked_address
    from elsa_tune.searching.cluster.nodes import ANSWER_SECONDS
    from elsa_tune.searching.cluster.ray_session import ray_session

    address = asked_address(address)
    began = time.monotonic()
    with ray_session(address) as session:
        capacity = session.ready()
        import ray

        # Takes no CPU: trials may have them all.
        task = ray.remote(num_cpus=0)(lambda: True)
        answer = task.remote()
        ray.get(answer, timeout=ANSWER_SECONDS)
        seconds = time.monotonic() - began
    resources = f"{capacity.cpus:g} CPUs"
    if capacity.gpus:
        resources += f", {capacity.gpus:g} GPUs"
    if address is None:
        return f"starts here and runs a task, in {seconds:.0f} s: {resources}"
    count = len(capacity.nodes)
    nodes = f"{count} nodes"
    if count == 1:
        nodes = "1 node"
    return f"the cluster at {address} runs a task: {nodes}, {resources}"


def task_rows(task: TaskSpec) -> str:
    """Check that a task's rows can be read; from the hub they are fetched."""
    from elsa_tune.training.data.preparation import read_splits

    splits = read_splits(task, Recipe())
    counts = ", ".join(f"{len(split):,} {name}" for name, split in splits.items())
    return f"{task.name} can be read: {counts} rows"


def glue_rows(data_dir: str) -> str:
    """List GLUE's tasks that can be read in a folder. Raises DataError where none can."""
    from elsa_tune.training.data.texts import read_texts

    readable = []
    for name, task in GLUE_TASKS.items():
        assert isinstance(task.source, GlueSource)
        source = replace(task.source, data_dir=data_dir)
        try:
            read_texts(replace(task, source=source))
        except DataError as error:
            last_error = error
        else:
            readable.append(name)
    if not readable:
        raise last_error
    return f"{len(readable)} of GLUE's {len(GLUE_TASKS)} tasks can be read: {', '.join(readable)}"


def cached_glue() -> str:
    """List GLUE's tasks that need no download."""
    from elsa_tune.training.data.glue import cached_tasks

    cached = cached_tasks()
    if cached:
        return f"in the hub's cache: {', '.join(cached)}; `stdlib` needs no data"
    return "no GLUE in the hub's cache: `data_dir` names a folder, `stdlib` needs no data"
