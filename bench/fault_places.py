"""Clusters on which the searches of faults.py run, and which can be broken."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

# A `ray start` asks for a token where this user has one.
os.environ["RAY_AUTH_MODE"] = "disabled"

import ray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.integration.conftest import free_port
from tests.ray_nodes import (
    SOON,
    RayNode,
    head_with_dashboard,
    joined,
    python_with_dashboard,
)
from tests.searching import family

NODES = 2  # of a cluster, beside its head


class NodesOfCluster:
    """A cluster of `ray start`: a head that does not train, and nodes of one CPU that do."""

    def __init__(self) -> None:
        self._nodes: list[RayNode] = []
        self._begin()

    def _begin(self) -> None:
        port = free_port()
        self.address = f"{ray.util.get_node_ip_address()}:{port}"
        self._place = tempfile.mkdtemp(prefix="ray")  # short: sockets' paths have a limit
        self._head = RayNode.start(
            *("--head", "--port", str(port), "--num-cpus", "0"),
            *("--include-dashboard", "false", "--temp-dir", self._place),
            *("--system-config", json.dumps(SOON)),
        )
        for count in range(NODES + 1):
            self._wait(count)

    def _wait(self, count: int) -> None:
        """Wait until the head answers and so many nodes have joined, which are started here."""
        deadline = time.monotonic() + 180
        while True:
            with contextlib.suppress(Exception):  # its gcs_server is not there yet
                if joined(self.address) >= count:
                    return
                self._start(count)
            assert time.monotonic() < deadline, "the nodes did not join"
            time.sleep(1)

    def _start(self, count: int) -> None:
        """Start what lacks of so many nodes. `ray start` ends where another one begins with it."""
        self._nodes = [node for node in self._nodes if node.command.poll() is None]
        if len(self._nodes) < count:
            self._nodes.append(RayNode.join(self.address))

    def break_one(self, kind: str, draw: random.Random) -> bool:
        """Kill a node that trains, or stop its worker; False where none trains just now."""
        self._start(NODES)
        training = [node for node in self._nodes if node.trains]
        if not training:
            return False
        node = draw.choice(training)
        if kind == "hung":
            os.kill(node.workers[0], signal.SIGSTOP)
            return True
        node.kill()
        self._start(NODES)
        return True

    def lose_head(self, driver: int, folder: Path) -> None:
        """Lose the machine of the head, the driver and its record; another cluster begins."""
        for pid in (driver, *family(driver)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.end()
        shutil.rmtree(folder, ignore_errors=True)
        self._begin()

    def end(self) -> None:
        """End all of it."""
        for node in (*self._nodes, self._head):
            node.kill()
        self._nodes = []
        shutil.rmtree(self._place, ignore_errors=True)


class JobsOfCluster:
    """A head that takes jobs, and trains. What they record lies below the home of its user."""

    def __init__(self, place: Path) -> None:
        python = python_with_dashboard()
        assert python is not None, "needs ray[default]: make .venv/.serve"
        self._home = place / "home"
        self._home.mkdir()
        self.folder = self._home / "elsa-tune"
        self._open = contextlib.ExitStack()
        head = head_with_dashboard(python, self._home, RAY_AUTH_MODE="disabled")
        self.address = self._open.enter_context(head)

    def break_one(self, draw: random.Random) -> bool:
        """Kill a process of the job that runs, or Ray's that watches over it; False without any."""
        found = family(os.getpid())
        watchers = [pid for pid, name in found.items() if name.startswith("ray::JobSupervisor")]
        victims = list(watchers)
        for watcher in watchers:
            own = family(watcher)
            victims += [pid for pid, name in own.items() if name.startswith("python")]
        if len(victims) == len(watchers):
            return False  # it has not begun
        try:
            os.kill(draw.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> None:
        """End all of it."""
        self._open.close()
