"""Nodes of a Ray cluster as processes of `ray start`, which a test kills as machines vanish."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration.conftest import free_port
from tests.searching import ROOT, family

RAY = str(Path(sys.executable).with_name("ray"))
_DASHBOARD_PORTS = (
    "--dashboard-port",
    "--dashboard-agent-listen-port",
    "--dashboard-agent-grpc-port",
    "--metrics-export-port",
    "--port",
)
# A head with its agents: seconds, on a machine that has nothing else to do.
HEAD_SECONDS = 240
# A trial's worker while it trains, as `ps` shows it.
WORKER = "ray::ImplicitFunc.train"
# Until Ray gives a node up whose processes are gone; a minute otherwise. The head decides it for
# its cluster. One that is there may take its time to answer.
SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 10000,
    "health_check_failure_threshold": 3,
}


@dataclass(frozen=True)
class RayNode:
    """A node of a cluster, with its raylet, its agents and its workers."""

    command: subprocess.Popen[bytes]  # `ray start --block`

    @classmethod
    def start(cls, *arguments: str) -> RayNode:
        """Start one; it joins in a few seconds."""
        command = [RAY, "start", "--block", "--disable-usage-stats", *arguments]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)
        return cls(process)

    @classmethod
    def join(cls, address: str, cpus: int = 1) -> RayNode:
        """Start one that joins the cluster at an address."""
        return cls.start("--address", address, "--num-cpus", str(cpus))

    @property
    def raylet(self) -> int:
        """Its raylet's process."""
        found = family(self.command.pid)
        return next(pid for pid, name in found.items() if name == "raylet")

    @property
    def trains(self) -> bool:
        """Whether a trial's worker runs on it."""
        return bool(self.workers)

    @property
    def workers(self) -> Sequence[int]:
        """The processes that run trials on it."""
        found = family(self.command.pid)
        return [pid for pid, name in found.items() if name == WORKER]

    def kill(self) -> None:
        """Kill all of it at once, its raylet first, as a machine that vanishes."""
        found = family(self.command.pid)
        raylet_first = sorted(found, key=lambda pid: found[pid] != "raylet")
        for pid in (self.command.pid, *raylet_first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.command.wait()


def joined(address: str) -> int:
    """Return how many nodes with CPUs a cluster has, without joining it."""
    from ray._raylet import GcsClient

    nodes = GcsClient(address=address).get_all_node_info().values()
    return sum(node.state == 0 and node.resources_total.get("CPU", 0) > 0 for node in nodes)


@contextlib.contextmanager
def ray_head(
    *arguments: str, environment: Mapping[str, str], python: Path | str = sys.executable
) -> Iterator[None]:
    """Run a head as `ray start` makes it, with this environment; end all that it started.

    Raises:
        AssertionError: it ended, or did not answer in time; with what it said.
    """
    place = tempfile.mkdtemp(prefix="ray")  # short: Ray puts sockets into it
    command = [str(python), "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    said = Path(place) / "said"
    with said.open("w") as output:
        head = subprocess.Popen(
            [*command, "--temp-dir", place, *arguments],
            env={**environment, "RAY_USAGE_STATS_ENABLED": "0"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for_head(head, said)
        yield
    finally:
        head.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(60)
        # The nodes that an autoscaler began are of this session too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)
        head.wait(30)
        shutil.rmtree(place, ignore_errors=True)


def python_with_dashboard() -> Path | None:
    """Return a Python that has ray[default]: this one, or that of Ray Serve's test (Makefile)."""
    serve = Path(sys.prefix) / "serve/bin/python"
    if importlib.util.find_spec("aiohttp_cors") is not None:
        return Path(sys.executable)
    return serve if serve.exists() else None


@contextlib.contextmanager
def head_with_dashboard(python: Path, home: Path, **environment: str) -> Iterator[str]:
    """Run a head that takes jobs for the user of this home; yield the dashboard's address.

    python: has ray[default].
    """
    ports = {option: free_port() for option in _DASHBOARD_PORTS}
    with ray_head(
        *("--node-ip-address", "127.0.0.1", "--dashboard-host", "127.0.0.1", "--num-cpus", "1"),
        *(word for option, port in ports.items() for word in (option, str(port))),
        environment={
            **os.environ,
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            # Jobs run `python`, as it is where Ray was started.
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "CUDA_VISIBLE_DEVICES": "",
            **environment,
        },
        python=python,
    ):
        yield f"http://127.0.0.1:{ports['--dashboard-port']}"


def _wait_for_head(head: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + HEAD_SECONDS
    while "Ray runtime started" not in said.read_text():
        assert head.poll() is None, f"`ray start` ended with {head.returncode}: {said.read_text()}"
        assert time.monotonic() < deadline, f"`ray start` did not come up: {said.read_text()}"
        time.sleep(0.1)
