"""The MLflow server of deploy/compose.yaml on a real PostgreSQL, killed while a search runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from elsa_tune.tracking.paths import SearchPaths
from tests.conftest import ROOT
from tests.integration.conftest import free_port, wait_for_mlflow
from tests.integration.test_forwarder import check_equal
from tests.integration.test_postgres import PASSWORD, Postgres, postgres
from tests.recorded_search import store_runs
from tests.searching import ONE_AT_A_TIME, Bench, make_bench, of_kind, wait_for

__all__ = ["postgres"]
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1500)]

TRIALS = 40
SETTINGS = (
    *("--set", "depths=[0, 2]", "--set", "learning_rate=0.003", "--set", "epochs=10"),
    *("--seeds", str(TRIALS // 2), *ONE_AT_A_TIME),
)


def server_command(port: int, postgres: Postgres, files: Path) -> list[str]:
    """Return the file's own command, with this machine's places for those of its containers."""
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    places = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--artifacts-destination": str(files),
    }
    words = []
    for word in compose["services"]["mlflow"]["command"][1:]:
        name, _, value = word.partition("=")
        if name == "--backend-store-uri":
            value = value.replace("@postgres:5432/", f"@127.0.0.1:{postgres.port}/")
        words.append(f"{name}={places.get(name, value)}" if value else word)
    return [sys.executable, "-m", "mlflow", *words]


@contextlib.contextmanager
def mlflow_server(folder: Path, postgres: Postgres) -> Iterator[str]:
    """Start the server; yield its address."""
    port = free_port()
    environment = {
        **os.environ,
        "PGPASSWORD": PASSWORD,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = server_command(port, postgres, folder / "artifacts")
    assert PASSWORD not in " ".join(command)
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for_mlflow(address, server)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(250)


def completed(bench: Bench) -> int:
    ends = of_kind(bench.records("first"), "trial_ended")
    return len([end for end in ends if end["status"] == "completed"])


def test_a_search_goes_on_while_postgresql_is_gone_and_nothing_is_lost(
    postgres: Postgres, tmp_path: Path
) -> None:
    # As POSTGRES_USER and POSTGRES_DB make them in the container.
    postgres.execute(f"CREATE USER mlflow PASSWORD '{PASSWORD}'")
    postgres.execute("CREATE DATABASE mlflow OWNER mlflow")
    bench = make_bench(tmp_path / "bench", train=320)
    with mlflow_server(tmp_path, postgres) as address:
        search = bench.start(*bench.search("first", *SETTINGS, "--tracking-uri", address))
        wait_for(lambda: completed(bench) >= 3, 300)
        # Killed, as by a power cut.
        postgres.close()
        before = completed(bench)
        wait_for(lambda: completed(bench) >= before + 5, 120)
        assert search.poll() is None
        postgres.start()
        _, said = search.communicate(timeout=800)
        assert search.returncode == 0, said
        storage = bench.journal("first").parent.parent
        check_equal(SearchPaths(storage, "first"), address)
        runs = store_runs(address, "first")
        assert len(runs) == TRIALS + 1
        assert {run.info.status for run in runs.values()} == {"FINISHED"}
        assert len(list((tmp_path / "artifacts").rglob("*predictions*"))) >= TRIALS
