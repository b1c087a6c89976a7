"""Ray, where trials run: on this machine, or a running cluster; found, checked, left as it was."""

import atexit
import contextlib
import gc
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from elsa_tune.errors import RunError, UsageError
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.cluster.environment import (
    ASKS_FOR_TOKEN,
    answers,
    asks_for_token,
    ray_environment,
)
from elsa_tune.searching.cluster.join_address import (
    AUTO,
    check_join_address,
    knock,
    rays_address,
)
from elsa_tune.searching.cluster.nodes import check_nodes, nodes_that_train
from elsa_tune.searching.output import say
from elsa_tune.training.machine import usable_cores


@dataclass(frozen=True, slots=True)
class RaySession:
    """Ray as `ray_session` has it open."""

    ready: Callable[[], Capacity]  # waits until Ray has started
    over: Callable[[], object] = lambda: None  # lets Ray end while the caller goes on


# What Ray says where the versions of a cluster and of this process differ.
_OTHER_VERSIONS = re.compile(
    r"Version mismatch:.*?Ray: (\S+)\s+Python: (\S+).*?Ray: (\S+)\s+Python: (\S+)", re.DOTALL
)
# What Ray says where its processes took too long to start.
_TIMED_OUT = "timed out during startup"
# What is behind its words where a cluster that answers has no node on this machine.
_NO_NODE = "when trying to resolve node to connect to"
# Where `ray_session` has Ray open: the searches of one command share it.
_open_at: set[str | None] = set()
# Held by the thread that has Ray open. Its own searches may share that Ray; another thread's would
# lose it when the first one ends.
_in_use = threading.RLock()
# How much Ray's loggers say while it is open: what goes wrong is told in our own sentences.
_LEVELS = {"ray": logging.ERROR, "ray.tune": logging.CRITICAL}
# What must live as long as this process: of a Ray that has lost its node, and what asks Ray for
# something when it is collected.
_abandoned: list[object] = []
_kept: list[object] = []
# The ends of earlier Rays. One may be to come: a second Ctrl-C leaves a Ray that is starting.
_ending: list[Future[None]] = []


@contextlib.contextmanager
def ray_session(address: str | None, packages: Iterable[str] = ()) -> Iterator[RaySession]:
    """Open Ray on this machine (address None), or the running cluster at `auto` or HOST:PORT.

    It starts while the caller goes on. Where this process has a Ray already, that is the one, and
    it goes on running. Raises UsageError for what is no address, while another thread has Ray open
    here, and within seconds, when it is waited for, if nothing answers at the address, or if this
    machine has no node; RunError where this process's Ray has lost its node.
    """
    check_join_address(address)
    if _abandoned:
        raise RunError("this program's Ray has lost its node; start the program again")
    if not _in_use.acquire(blocking=False):
        raise UsageError(
            "a search runs in another thread of this program, which can run one at a time; wait "
            "for its end, or start this one in a process of its own"
        )
    try:
        _wait_for_earlier()
        with ray_environment(address):
            import ray

            with _quiet_loggers():
                if ray.is_initialized():
                    yield _running(address, packages)
                else:
                    with _started(address, packages) as session:
                        yield session
    finally:
        _in_use.release()


def _wait_for_earlier() -> None:
    """Wait until the Ray of an earlier search has ended: two in one process would be mixed up."""
    if not all(ended.done() for ended in _ending):
        say("waiting until the Ray of the search before has ended")
    wait(_ending)
    _ending.clear()


def _running(address: str | None, packages: Iterable[str]) -> RaySession:
    """Return the Ray that this process has already."""
    if address is not None and address not in _open_at:
        raise UsageError(
            f"Ray is already running in this process, and `address` {address} asks for another "
            "one; call ray.shutdown() first, or give `address` none to train on the one that runs"
        )

    def ready() -> Capacity:
        if not _open_at:  # it is the program's own, which may have joined a cluster
            _check_other_nodes(packages)
        return _capacity()

    return RaySession(ready)


def _check_other_nodes(packages: Iterable[str]) -> None:
    """Raise UsageError where nodes beside this one cannot train, or would train otherwise."""
    import ray

    nodes = [node["NodeID"] for node in nodes_that_train()]
    if nodes != [ray.get_runtime_context().get_node_id()]:
        check_nodes(nodes, packages)


@contextlib.contextmanager
def _started(address: str | None, packages: Iterable[str]) -> Iterator[RaySession]:
    """Start Ray, or join a cluster, while the caller goes on; end that in the end."""
    import ray

    # Ray's processes end with the thread that started them, so it lives as long as they do.
    thread = ThreadPoolExecutor(1, "ray")
    has_started = threading.Event()

    def start() -> None:
        _start_ray(address)
        has_started.set()
        if address is not None:
            nodes = [node["NodeID"] for node in nodes_that_train()]
            check_nodes(nodes, packages)

    def stop() -> None:
        if has_started.is_set():  # else what runs is another thread's of the program
            ray.shutdown()

    try:
        starting = thread.submit(start)

        def ready() -> Capacity:
            starting.result()
            _open_at.add(address)
            return _capacity()

        def end() -> None:
            if not _abandoned:
                _collect()
                thread.submit(stop)

        try:
            yield RaySession(ready, end)
        except KeyboardInterrupt:
            if not starting.done():
                say("Ray is still starting; waiting until it has started and ended")
            raise
    finally:
        _open_at.clear()
        if _abandoned:
            _abandoned.append(thread)
        else:
            try:
                _collect()
            finally:  # also where Ctrl-C comes once more
                ended = thread.submit(stop)  # once it has started, or has not
                _ending.append(ended)
            ended.result()
            thread.shutdown()


@contextlib.contextmanager
def _quiet_loggers() -> Iterator[None]:
    """Have Ray's loggers say little while inside."""
    before = {name: logging.getLogger(name).level for name in _LEVELS}
    for name, level in _LEVELS.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        if not _abandoned:  # a Ray that has lost its node complains to the end
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)


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
    """Have Ray start here, or join a cluster. Raises RunError or UsageError, and leaves nothing."""
    import ray

    try:
        with warnings.catch_warnings():
            # Ray warns of its own coming changes; its user is us, not whoever runs a search.
            warnings.simplefilter("ignore")
            settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            if address is None:
                # Not RAY_ADDRESS, nor a cluster that happens to run here: `address` asks for those.
                settings |= {"num_cpus": usable_cores(), "include_dashboard": False}
            elif address != AUTO:
                knock(address)
                _look_for_node(address)
            _init_ray("local" if address is None else rays_address(address), settings)
    except Exception as error:  # Ray raises plain ones too, where its raylet dies while it starts
        if not ray.is_initialized():  # else another thread of the program started it meanwhile
            ray.shutdown()
        if address is None:
            remedy = ""
            if _TIMED_OUT in str(error):
                remedy = "; this machine may be too busy: try again when it has less to do"
            raise RunError(f"Ray does not start on this machine: {error}{remedy}") from error
        if found := _OTHER_VERSIONS.search(str(error)):
            raise UsageError(
                f"the cluster at `address` {address} runs Ray {found[1]} on Python {found[2]}, and "
                f"this machine has Ray {found[3]} on Python {found[4]}; install the same here or "
                "there"
            ) from error
        if _NO_NODE in f"{error} {error.__cause__}" and answers(address):
            raise UsageError(
                f"the cluster at `address` {address} answers, but no node of it runs on this "
                f"machine, from which a search would join; `ray start --address="
                f"{rays_address(address)}` makes it one, or `elsa-tune submit` sends the search to "
                "the cluster's dashboard"
            ) from error
        if asks_for_token(address):
            raise UsageError(f"the cluster at `address` {address} {ASKS_FOR_TOKEN}") from error
        raise UsageError(
            f"no Ray cluster answers at `address` {address}: {error}; start one with `ray start "
            "--head`, or give `address` none to run on this machine"
        ) from error


def _look_for_node(address: str) -> None:
    """Raise as Ray does after a minute where a cluster answers, and no node runs on this machine.

    One that runs may be another cluster's, which only Ray finds out.
    """
    from ray._private import services

    find = getattr(services, "find_node_ids", None)  # not every version of Ray looks so
    if find is not None and not find() and answers(address):
        raise ConnectionError(_NO_NODE)


def _init_ray(address: str, settings: dict[str, Any]) -> None:
    """Have Ray start or join, once more where it took too long: it waits half a minute, no longer.

    Raises what Ray does.
    """
    import ray

    try:
        ray.init(address=address, **settings)
    except Exception as error:
        if _TIMED_OUT not in str(error) or ray.is_initialized():
            raise
        say("Ray has not started in time, as on a busy machine; trying once more")
        ray.shutdown()
        ray.init(address=address, **settings)


def _capacity() -> Capacity:
    return Capacity.of_nodes([node["Resources"] for node in nodes_that_train()])
