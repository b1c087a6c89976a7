"""A search on a cluster that begins with one node, and that Ray's autoscaler lets grow.

The cluster is that of deploy/cloud/aws.yaml, as is the one for Kubernetes: a head that trains
nothing, a node that stays, and others that come as trials wait. Here nodes are processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config

from tests.conftest import ROOT
from tests.integration.conftest import free_port
from tests.ray_nodes import ray_head
from tests.searching import make_bench, of_kind, wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]

TRIALS = 40
LONG_ENOUGH = (
    *("--set", "depths=[0, 2]", "--set", "learning_rate=0.003", "--set", "epochs=30"),
    *("--seeds", str(TRIALS // 2), "--cpus-per-trial", "1"),
)
# The name that Ray's provider of pretended machines has for a head.
HEAD = "ray.head.default"


def configuration(gcs_address: str) -> dict[str, Any]:
    """Return that of the cloud, with processes for machines and CPUs for GPUs."""
    written = yaml.safe_load((ROOT / "deploy/cloud/aws.yaml").read_text())
    # As `ray up` sends it to the head.
    cloud: dict[str, Any] = prepare_config(written)
    types = cloud["available_node_types"]
    types[HEAD] = types.pop(cloud["head_node_type"])
    for node_type in types.values():
        node_type["node_config"] = {}
    for name in ("gpu", "gpu_spot"):
        types[name]["resources"] = {"CPU": 1}
    # This machine has no room for nine.
    types["gpu_spot"]["max_workers"] = 1
    provider = {
        "type": "fake_multinode",
        "gcs_address": gcs_address,
        # Nodes that need no ssh to be set up.
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
        "use_node_id_as_ip": True,
    }
    for left_out in ("docker", "auth", "file_mounts"):
        cloud[left_out] = {}
    for commands in ("head_start_ray_commands", "worker_start_ray_commands"):
        cloud[commands] = []
    return cloud | {"provider": provider, "head_node_type": HEAD, "max_workers": 2}


@contextlib.contextmanager
def growing_cluster(folder: Path) -> Iterator[str]:
    """Start the head, whose autoscaler starts the rest; yield its address."""
    import ray._private.services

    address = f"{ray._private.services.get_node_ip_address()}:{free_port()}"
    file = folder / "cluster.json"
    file.write_text(json.dumps(configuration(address)))
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_FAKE_CLUSTER": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    }
    with ray_head(
        *("--port", address.rpartition(":")[2], "--num-cpus", "0"),
        *("--include-dashboard", "false", "--autoscaling-config", str(file)),
        environment=environment,
    ):
        yield address


def nodes(address: str) -> int:
    """Return how many nodes the autoscaler calls active."""
    said = subprocess.run(
        [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    ).stdout
    active = said.partition("Active:")[2].partition("Pending:")[0]
    return active.count("\n 1 ")


def test_trials_that_wait_bring_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", 64 * "0")
    bench = make_bench(tmp_path, train=320)
    with growing_cluster(tmp_path) as address:
        # The head, and the node that stays.
        wait_for(lambda: nodes(address) == 2, 180)
        search = bench.start(*bench.search("mine", *LONG_ENOUGH, "--address", address))
        wait_for(lambda: nodes(address) == 3, 180)
        _, said = search.communicate(timeout=800)
        assert search.returncode == 0, said
    records = bench.records("mine")
    completed = [r["trial"] for r in of_kind(records, "trial_ended") if r["status"] == "completed"]
    assert len(completed) == len(set(completed)) == TRIALS
    assert most_at_once(records) == 2


def most_at_once(records: list[dict[str, Any]]) -> int:
    """Return how many trials at most were between their first report and their end."""
    most = 0
    running: set[str] = set()
    for record in records:
        if record["kind"] == "report":
            running.add(record["trial"])
        if record["kind"] == "trial_ended":
            running.discard(record["trial"])
        most = max(most, len(running))
    return most
