"""Ray, where trials run: on this machine, or a running cluster; found, checked, left as it was."""

import atexit
import contextlib
import gc
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from elsa_tune.errors import RunError, UsageError
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.cluster.environment import prepare_ray
from elsa_tune.searching.cluster.join_address import AUTO, check_join_address, knock
from elsa_tune.searching.cluster.nodes import check_nodes, nodes_that_train
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
    it goes on running. Raises UsageError for what is no address, and within seconds, when it is
    waited for, if nothing answers there; RunError where this process's Ray has lost its node.
    """
    check_join_address(address)
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
            elif address != AUTO:
                knock(address)
            ray.init(address=address or "local", **settings)
    except Exception as error:  # Ray raises plain ones too, where its raylet dies while it starts
        if address is None:
            raise RunError(f"Ray does not start on this machine: {error}") from error
        if found := _OTHER_VERSIONS.search(str(error)):
            raise UsageError(
                f"the cluster at `address` {address} runs Ray {found[1]} on Python {found[2]}, and "
                f"this machine has Ray {found[3]} on Python {found[4]}; install the same here or "
                "there"
            ) from error
        raise UsageError(
            f"no Ray cluster answers at `address` {address}: {error}; start one with `ray start "
            "--head`, give this machine the head's token (~/.ray/auth_token) where that asks for "
            "it, or leave `address` out to run on this machine"
        ) from error
    if address is not None:
        check_nodes([node["NodeID"] for node in nodes_that_train()])


def _capacity() -> Capacity:
    return Capacity.of_nodes([node["Resources"] for node in nodes_that_train()])
