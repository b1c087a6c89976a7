"""MLflow stores for the tests: a SQLite store in a moment, and a real server on a loopback port."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.places import StorePaths


@pytest.fixture(scope="session")
def database_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty MLflow database.

    Making its schema takes seconds, so it is made once and copied.
    """
    file = tmp_path_factory.mktemp("template") / "mlflow.db"
    MlflowConnection(f"sqlite:///{file}").initialise()
    return file


@pytest.fixture
def places(tmp_path: Path, database_template: Path) -> StorePaths:
    """Return a working directory with an empty default store."""
    places = StorePaths(tmp_path / "work")
    places.root.mkdir(parents=True)
    shutil.copyfile(database_template, places.database)
    return places


@pytest.fixture
def store(places: StorePaths) -> MlflowStore:
    """Return the writer of that store."""
    return MlflowStore(places.tracking_uri())


class Server:
    """`mlflow server` on a loopback port, before a SQLite store, or what `backend` names."""

    def __init__(self, folder: Path, database: Path, backend: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.database = folder, database
        self._backend = backend or f"sqlite:///{database}"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        command += ["--backend-store-uri", self._backend, "--port", str(self.port)]
        command += ["--artifacts-destination", str(self._folder / "artifacts")]
        environment = {
            **os.environ,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        wait_for_mlflow(self.uri, self._process)

    def kill(self) -> None:
        """As a power failure would: nothing is finished, nothing said."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, database_template: Path) -> Iterator[Server]:
    """Yield a server that has not been started yet; one for the tests of a module."""
    folder = tmp_path_factory.mktemp("server")
    database = folder / "mlflow.db"
    shutil.copyfile(database_template, database)
    server = Server(folder, database)
    yield server
    server.kill()


# The machine gives the ports from here on to whoever asks for any, as Ray's processes do by the
# dozen: one of those may be gone before a server has started that is to listen on it. Below it are
# those of Ray's workers, up to 19999.
ANY_PORT = 32768


def ports_of_this_process() -> Iterator[int]:
    """Yield ports that no other process of these tests takes, and none twice."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = range(20000 + 2000 * (worker % 6), 20000 + 2000 * (worker % 6 + 1))
    # From anywhere in it: another run of the tests may be on this machine.
    start = random.SystemRandom().choice(share)
    yield from itertools.cycle([*range(start, share.stop), *range(share.start, start)])


_ports = ports_of_this_process()


def free_port() -> int:
    """Return a port of this process on which nothing listens."""
    for port in itertools.islice(_ports, 2000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def wait_for_mlflow(address: str, process: subprocess.Popen[bytes]) -> None:
    """Return once a server has opened its store, too, for which its first request waits."""
    wait_for_http(f"{address}/health", process)
    wait_for_http(f"{address}/api/2.0/mlflow/experiments/search?max_results=1", process)


def connections(deaf: socket.socket) -> int:
    """Return how many connections to a socket that listened wait for somebody to take them."""
    deaf.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            deaf.accept()[0].close()
            count += 1
    return count


def wait_for_http(address: str, process: subprocess.Popen[bytes], seconds: float = 300) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, f"it ended with status {process.returncode}"
        try:
            with opener.open(address, timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"nothing answers on {address}")
