"""Ray, where trials run: on this machine, or a running cluster; found, checked, left as it was."""

import atexit
import contextlib
import gc
import logging
import math
import os
import socket
import sys
import urllib.parse
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from elsa_tune import __version__
from elsa_tune.errors import RunError, UsageError
from elsa_tune.searching.output import say
from elsa_tune.specs.search import Resources
from elsa_tune.training.machine import Gpu, look_at_gpu, usable_cores

Answer = TypeVar("Answer")

CONNECT_SECONDS = 5.0
# A cold node reads torch from a shared disk.
ANSWER_SECONDS = 60.0
# Until it is said what is waited for, and said again.
TELL_SECONDS = 25.0
AGAIN_SECONDS = 600.0
DEFAULT_PORT = 6379
# Of a GPU, for a question: next to nothing, so that one with anything left can be asked.
_QUESTION = 0.001

# Ray reads these when it is imported or started; the reasons stand beside them.
_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal and MLflow are the record
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `stopping` ends a search, for SIGTERM too
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # a failed trial is recorded with its reason
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # one for each core, of which trials use none
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the cluster has in all, and on its largest node."""

    cpus: float  # of all nodes
    gpus: float  # of all nodes
    nodes: int  # how many there are
    largest_cpus: float  # of the node with the most
    largest_gpus: float  # of the node with the most
    gpu_kinds: tuple[Gpu, ...] = ()  # what torch finds, one for each node that was asked
    no_gpu: str | None = None  # why torch finds none on this machine, where that is the cluster

    @classmethod
    def of_this_machine(cls) -> Self:
        """Return what a search will find here, without starting Ray."""
        import torch

        cpus = float(usable_cores())
        gpu = look_at_gpu()
        gpus = 0.0 if gpu.fault else float(torch.cuda.device_count())
        return cls(
            cpus=cpus,
            gpus=gpus,
            nodes=1,
            largest_cpus=cpus,
            largest_gpus=gpus,
            gpu_kinds=() if gpu.fault else (gpu,),
            no_gpu=gpu.fault,
        )

    def at_once(self, share: Resources) -> int:
        """Return how many trials of this share run side by side."""
        by_cpus = self.cpus / share.cpus
        by_gpus = self.gpus / share.gpus if share.gpus else math.inf
        return max(1, int(min(by_cpus, by_gpus)))

    def resources(self, cpus_per_trial: float | None, gpus_per_trial: float | None) -> Resources:
        """Return one trial's share.

        It is as asked for, else a GPU where there is one, and half a node's CPUs. Raises UsageError
        when no node could ever run such a trial.
        """
        gpus = gpus_per_trial
        if gpus is None:
            gpus = 1.0 if self.gpus >= 1 else 0.0
        cpus = cpus_per_trial
        if cpus is None:
            cpus = self._default_cpus(gpus)
        # Written so that nan, which compares to nothing, is refused too.
        if not 0 < cpus <= self.largest_cpus:
            raise UsageError(
                f"{cpus:g} CPUs per trial were asked for, but the largest node has "
                f"{self.largest_cpus:g}; give `cpus_per_trial` above 0 and up to that"
            )
        if not 0 <= gpus <= min(1.0, self.largest_gpus):
            why = f" ({self.no_gpu})" if self.no_gpu else ""
            raise UsageError(
                f"{gpus:g} GPUs per trial were asked for, but a trial trains on one at most, and "
                f"the largest node has {self.largest_gpus:g}{why}; give `gpus_per_trial` 1, a "
                "share of one, or 0"
            )
        return Resources(cpus=cpus, gpus=gpus)

    def _default_cpus(self, gpus: float) -> float:
        """Return the CPUs of a trial that has this part of a GPU."""
        if not gpus > 0:
            half_a_node = self.cpus / self.nodes // 2
            return max(1.0, half_a_node)
        all_gpus = max(1.0, self.gpus)
        by_gpu = self.cpus * gpus // all_gpus
        most = min(4.0, self.largest_cpus, by_gpu)
        return max(1.0, most)


@dataclass(frozen=True, slots=True)
class RaySession:
    """Ray as `ray_session` has it open."""

    ready: Callable[[], Capacity]  # waits until Ray has started
    over: Callable[[], object] = lambda: None  # lets Ray end while the caller goes on


def prepare_ray(address: str | None) -> None:
    """Set what Ray reads, some of it when it is imported."""
    os.environ.update(_ENVIRONMENT)
    # A cluster that `ray start` began asks whoever joins it for the token that lies in its user's
    # home; Ray offers that only if it was set so before its import. One that asks for none takes
    # it as well.
    joins_cluster = address is not None
    is_imported = "ray" in sys.modules
    if joins_cluster and not is_imported and _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _has_token() -> bool:
    """Return whether this user has a token where Ray looks for it."""
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return True
    return (Path.home() / ".ray" / "auth_token").is_file()


# Where `ray_session` has Ray open: the searches of one command share it.
_open_at: set[str | None] = set()
# What must live as long as this process: of a Ray that has lost its node, and what asks Ray for
# something when it is collected.
_abandoned: list[object] = []
_kept: list[object] = []


@contextlib.contextmanager
def ray_session(address: str | None) -> Iterator[RaySession]:
    """Open Ray on this machine (address None), or the running cluster at `auto` or HOST:PORT.

    It starts while the caller goes on. Where this process has a Ray already, that is the one, and
    it goes on running. Raises UsageError within seconds, when it is waited for, if nothing answers
    there; RunError where this process's Ray has lost its node.
    """
    if _abandoned:
        raise RunError("this program's Ray has lost its node; start the program again")
    prepare_ray(address)
    import ray

    if ray.is_initialized():
        if address is not None and address not in _open_at:
            raise UsageError(
                f"Ray is already running in this process, and `address` {address} asks for another "
                "one; leave `address` out, or call ray.shutdown() first"
            )
        yield RaySession(_capacity)
        return
    # Ray's processes end with the thread that started them, so it lives as long as they do.
    thread = ThreadPoolExecutor(1, "ray")
    try:
        starting = thread.submit(_start_ray, address)

        def ready() -> Capacity:
            starting.result()
            _open_at.add(address)
            return _capacity()

        def end() -> None:
            if not _abandoned:
                _collect()
                thread.submit(ray.shutdown)

        yield RaySession(ready, end)
    finally:
        _open_at.clear()
        if _abandoned:
            _abandoned.append(thread)
        else:
            _collect()
            thread.submit(ray.shutdown).result()  # once it has started, or has not
            thread.shutdown()


def _collect() -> None:
    """Collect what Ray Tune left, which speaks to Ray then.

    Collected in this thread while another shuts Ray down, it would have Ray end the process.
    """
    if not _kept:  # else Ray may be gone, and would be waited for
        gc.collect()


def keep(held: object) -> None:
    """Keep an object until this process ends.

    Ray Tune's own ask Ray to free their resources when they are collected, in whatever thread that
    happens. Where Ray is gone, that thread waits without end.
    """
    _kept.append(held)


def abandon() -> None:
    """Leave this process's Ray, which has lost its node, to be killed at this process's exit.

    It cannot end as others do: whatever asks that node for something waits without end.
    """
    import ray

    atexit.unregister(ray.shutdown)
    # Ray has no other way to find them; those of a cluster are not among them.
    node = getattr(ray._private.worker, "_global_node", None)
    if node is not None:
        atexit.register(node.kill_all_processes, check_alive=False)
    _abandoned.append(ray)


def _start_ray(address: str | None) -> None:
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            # Ray warns of its own coming changes; its user is us, not whoever runs a search.
            warnings.simplefilter("ignore")
            settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            if address is None:
                # Not RAY_ADDRESS, nor a cluster that happens to run here: `address` asks for those.
                settings |= {"num_cpus": usable_cores(), "include_dashboard": False}
            elif address != "auto":
                _knock(address)
            ray.init(address=address or "local", **settings)
    except Exception as error:  # Ray raises plain ones too, where its raylet dies while it starts
        if address is None:
            raise RunError(f"Ray does not start on this machine: {error}") from error
        raise UsageError(
            f"no Ray cluster answers at `address` {address}: {error}; start one with `ray start "
            "--head`, give this machine the head's token (~/.ray/auth_token) where that asks for "
            "it, or leave `address` out to run on this machine"
        ) from error
    if address is not None:
        _check_nodes([node["NodeID"] for node in _nodes()])


def _knock(address: str) -> None:
    """Raise OSError unless something listens there: Ray itself would wait for minutes."""
    place = urllib.parse.urlsplit(f"//{address}")
    host = place.hostname or ""
    port = place.port or DEFAULT_PORT
    socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()


def _capacity() -> Capacity:
    import ray

    total = ray.cluster_resources()
    of_nodes = [node["Resources"] for node in _nodes()]
    return Capacity(
        cpus=total.get("CPU", 0.0),
        gpus=total.get("GPU", 0.0),
        nodes=max(1, len(of_nodes)),
        largest_cpus=max((resources.get("CPU", 0.0) for resources in of_nodes), default=0.0),
        largest_gpus=max((resources.get("GPU", 0.0) for resources in of_nodes), default=0.0),
    )


def _nodes() -> list[dict[str, Any]]:
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
    cannot use what Ray found there.
    """

    def look() -> Gpu:
        from elsa_tune.training.machine import look_at_gpu

        return look_at_gpu(ask_free=True)

    nodes: list[str] = []
    for node in _nodes():
        if node["Resources"].get("GPU"):
            nodes.append(node["NodeID"])
    if not nodes:
        return ()
    answers = _ask_nodes(nodes, look, num_gpus=_QUESTION)
    for node_id, gpu in answers.items():
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
    return tuple(answers.values())


def _ask_nodes(
    nodes: list[str], question: Callable[[], Answer], **share: float
) -> dict[str, Answer]:
    """Return the answers of all nodes; of those that are busy for long one is enough.

    question: an inner function: Ray takes its code along to where elsa_tune may be missing. share:
    what it takes of the node, such as `num_gpus`; by default nothing.
    """
    import ray
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
        if answer in done:
            answered[node] = ray.get(answer)
    return answered


def _say_waiting(share: Mapping[str, float]) -> None:
    """Say what a cluster is waited for."""
    import ray

    awaited = "one of the cluster's nodes to answer"
    if "num_gpus" in share:
        resources = ray.cluster_resources()
        gpus = resources.get("GPU", 0.0)
        awaited = f"a GPU: others have all {gpus:g} of the cluster"
    say(f"waiting for {awaited}; Ctrl-C ends the wait")


def _check_nodes(nodes: list[str]) -> None:
    """Raise UsageError for a node whose elsa-tune is missing or another version.

    A trial could not even start on it.
    """

    def version_here() -> str:
        try:
            import elsa_tune
        except ImportError as error:
            return f"none ({error})"
        return str(elsa_tune.__version__)

    for node, version in _ask_nodes(nodes, version_here).items():
        if version != __version__:
            raise UsageError(
                f"node {node[:8]} of the cluster has elsa-tune {version}, this machine has "
                f"{__version__}; install the same version there, in the Python that runs Ray"
            )
