"""The nodes of the cluster that this process has joined, and what they answer."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from elsa_tune.errors import UsageError, first_line
from elsa_tune.searching.cluster import node_versions
from elsa_tune.searching.output import say
from elsa_tune.training.machine import Gpu

Answer = TypeVar("Answer")

# A cold node reads torch from a shared disk.
ANSWER_SECONDS = 60.0
# Until it is said what is waited for, and said again.
TELL_SECONDS = 25.0
AGAIN_SECONDS = 600.0
# Of a GPU, for a question: next to nothing, so that one with anything left can be asked.
_QUESTION = 0.001


def nodes_that_train() -> list[dict[str, Any]]:
    """Return what Ray tells of the nodes that can train."""
    import ray

    nodes: list[dict[str, Any]] = []
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        if node["Resources"].get("CPU"):
            nodes.append(node)
    return nodes


def ask_gpus() -> tuple[Gpu, ...]:
    """Return what torch finds on each node with a GPU.

    Of nodes whose GPUs are taken for long one is enough. Raises UsageError for a node whose torch
    cannot be loaded, or cannot use what Ray found there.
    """

    # Its type is a text: Ray takes what is named there along, and Gpu's module loads torch.
    def look() -> "Gpu | str":
        try:
            from elsa_tune.training.machine import look_at_gpu
        except Exception as error:  # a library of torch's that is missing raises OSError
            return first_line(error)
        return look_at_gpu(ask_free=True)

    nodes: list[str] = []
    for node in nodes_that_train():
        if node["Resources"].get("GPU"):
            nodes.append(node["NodeID"])
    if not nodes:
        return ()
    answers = ask_nodes(nodes, look, num_gpus=_QUESTION)
    gpus: list[Gpu] = []
    for node_id, gpu in answers.items():
        if isinstance(gpu, str):
            raise UsageError(
                f"torch on node {node_id[:8]}, which has a GPU, cannot be loaded ({gpu}); mend "
                "that, or give `gpus_per_trial` 0"
            )
        if gpu.fault:
            remedy = "mend that"
            if "not compiled with CUDA" in gpu.fault:
                remedy = "install a torch built for CUDA"
            elif "driver" in gpu.fault:
                remedy = "install a driver that fits this torch"
            raise UsageError(
                f"Ray found a GPU on node {node_id[:8]}, but torch {gpu.torch} there cannot use it "
                f"({gpu.fault}); {remedy}, or give `gpus_per_trial` 0"
            )
        gpus.append(gpu)
    return tuple(gpus)


def ask_nodes(
    nodes: list[str], question: Callable[[], Answer], **share: float
) -> dict[str, Answer]:
    """Return the answers of all nodes; of those that are busy for long one is enough.

    Raises UsageError where the question fails on a node.

    question: an inner function: Ray takes its code along to where elsa_tune may be missing. share:
    what it takes of the node, such as `num_gpus`; by default nothing.
    """
    import ray
    from ray.exceptions import (
        NodeDiedError,
        RayTaskError,
        RuntimeEnvSetupError,
        TaskUnschedulableError,
    )
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    answers = {}
    for node in nodes:
        on_node = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"num_cpus": 0, **share, "scheduling_strategy": on_node}
        # With a GPU the process ends with its answer: it is bound to that one, and a later task
        # might be given it with another. (Ray sees to that only where @ray.remote names GPUs.)
        task = ray.remote(question)
        if share:
            task = ray.remote(max_calls=1)(question)
        on_node_alone = task.options(**options)
        answers[node] = on_node_alone.remote()
    pending = list(answers.values())
    count = len(pending)
    ray.wait(pending, num_returns=count, timeout=TELL_SECONDS)
    some, _ = ray.wait(pending, timeout=0)
    if not some:
        _say_waiting(share)
    ray.wait(pending, num_returns=count, timeout=ANSWER_SECONDS - TELL_SECONDS)
    some, _ = ray.wait(pending, timeout=AGAIN_SECONDS)
    while not some:
        _say_waiting(share)
        some, _ = ray.wait(pending, timeout=AGAIN_SECONDS)
    done, busy = ray.wait(pending, num_returns=count, timeout=0)
    for answer in busy:
        ray.cancel(answer)
    answered: dict[str, Answer] = {}
    for node, answer in answers.items():
        if answer not in done:
            continue
        # One that leaves meanwhile gets no trial.
        with contextlib.suppress(NodeDiedError, TaskUnschedulableError):
            try:
                answered[node] = ray.get(answer)
            except RayTaskError as error:
                raise _failed(node, first_line(error.cause)) from error
            except RuntimeEnvSetupError as error:
                *_, last = str(error).splitlines()
                raise _failed(node, last) from error
    return answered


def _failed(node: str, why: str) -> UsageError:
    return UsageError(f"node {node[:8]} cannot say what it has ({why}); mend that there")


def _say_waiting(share: Mapping[str, float]) -> None:
    """Say what a cluster is waited for."""
    import ray

    awaited = "one of the cluster's nodes to answer"
    if "num_gpus" in share:
        resources = ray.cluster_resources()
        gpus = resources.get("GPU", 0.0)
        awaited = f"a GPU: others have all {gpus:g} of the cluster"
    say(f"waiting for {awaited}; Ctrl-C ends the wait")


def check_nodes(nodes: list[str], packages: Iterable[str] = ()) -> None:
    """Raise UsageError where nodes lack elsa-tune, or have other versions than this machine.

    A trial could not even start there, or would train otherwise. So it could where there is none.
    packages: as of `node_versions.question`.
    """
    if not nodes:
        raise UsageError(
            "the cluster has no node with CPUs, so nothing can train there; wait until one has "
            "joined (`ray status` shows them)"
        )
    ask = node_versions.question(packages)
    node_versions.check_versions(ask(), ask_nodes(nodes, ask))
