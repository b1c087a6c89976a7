"""A running Ray cluster of two nodes (processes on this machine).

Both train, the driver records both, and more than either has is refused.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from tests.conftest import Run
from tests.integration.conftest import free_port
from tests.ray_nodes import ray_head
from tests.searching import Bench, make_bench, of_kind

pytestmark = pytest.mark.thorough


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray")
def test_a_search_on_two_nodes_uses_both_and_refuses_what_neither_has(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(tmp_path, train=320)
    monkeypatch.chdir(tmp_path)
    refused = run(*bench.search("other", "--address", "127.0.0.1:9"))
    assert refused.status == 2
    assert "Ray is already running in this process, and --address 127.0.0.1:9 asks" in refused.err
    ray.shutdown()
    where_nothing_answers_is_refused(bench, run)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    # The head has no CPU for trials, as is usual on a cluster.
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        cluster.add_node(num_cpus=1)
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        there = ("--address", cluster.address)
        # Ray believes what it is told, as it believes the GPU's driver where torch has no CUDA.
        pretended = cluster.add_node(num_cpus=1, num_gpus=1)
        cluster.wait_for_nodes()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        no_gpu = run(*bench.search("gpu", *there))
        cluster.remove_node(pretended)
        refused = run(*bench.search("bad", *there, "--cpus-per-trial", "4096"))
        done = run(
            *bench.search("two", *there, "--cpus-per-trial", "1"),
            *("--set", "depths=[0, 2]", "--set", "learning_rate=0.003"),
            # Enough of them for the second worker to come while the first still has some to do.
            *("--set", "epochs=20", "--seeds", "8"),
        )
    finally:
        cluster.shutdown()
    # Ray has to be asked, and the status and the one line are what a script sees.
    assert refused.status == 2, refused.err
    assert refused.err.strip().splitlines()[-1].startswith("elsa-tune: 4096 CPUs per trial")
    assert "Traceback" not in refused.err and refused.out == ""
    assert not bench.journal("bad").exists()

    assert no_gpu.status == 2, no_gpu.err
    [said] = no_gpu.err.strip().splitlines()[-1:]
    assert said.startswith("elsa-tune: Ray found a GPU on node ")
    assert said.endswith("install a torch built for CUDA, or give --gpus-per-trial 0")
    assert not bench.journal("gpu").exists()

    assert done.status in (0, 3), done.err
    records = bench.records("two")
    completed = [r for r in of_kind(records, "trial_ended") if r["status"] == "completed"]
    assert len(completed) == 16
    nodes = {r["tags"]["node"] for r in of_kind(records, "report")}
    assert len(nodes) == 2
    recorded = bench.query("select distinct value from tags where key = 'node'")
    assert {value for (value,) in recorded} == nodes


def where_nothing_answers_is_refused(bench: Bench, run: Run) -> None:
    for address, named in (
        ("127.0.0.1:9", "127.0.0.1:9"),
        ("no-such-host.invalid:6379", "no-such-host"),
    ):
        refused = run(*bench.search("nowhere", "--address", address))
        assert (refused.status, refused.out) == (2, "")
        said = refused.err.strip().splitlines()[-1]
        assert said.startswith("elsa-tune: no Ray cluster answers")
        assert named in said and "ray start --head" in said and "Traceback" not in refused.err
        assert not bench.journal("nowhere").exists()


def test_what_listens_and_never_answers_is_given_up(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        refused = bench.run(*bench.search("nowhere", "--address", address), timeout=250)
    assert refused.returncode == 2, refused.stderr
    said = refused.stderr.strip().splitlines()[-1]
    assert said.startswith(f"elsa-tune: no Ray cluster answers at --address {address}: ")
    assert not bench.journal("nowhere").exists()


@contextlib.contextmanager
def ray_start(home: Path, cpus: int = 1) -> Iterator[str]:
    """Start a head as `ray start` makes it for the user of this home; yield its address."""
    port = free_port()
    with ray_head(
        *("--node-ip-address", "127.0.0.1", "--port", str(port), "--num-cpus", str(cpus)),
        *("--include-dashboard", "false"),
        environment={**os.environ, "HOME": str(home)},
    ):
        yield f"127.0.0.1:{port}"


@pytest.mark.timeout(400)
def test_a_cluster_that_asks_for_a_token_is_joined_by_whoever_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray start` asks for one as soon as its user has ever run Ray."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    owner, stranger = tmp_path / "owner", tmp_path / "stranger"
    (owner / ".ray").mkdir(parents=True)
    (owner / ".ray" / "auth_token").write_text(64 * "0")
    bench = make_bench(stranger)
    with ray_start(owner) as address:
        monkeypatch.setenv("HOME", str(owner))
        joined = bench.run("doctor", "--task", "task.yaml", "--address", address)
        monkeypatch.setenv("HOME", str(stranger))
        refused = bench.run("doctor", "--task", "task.yaml", "--address", address)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert f"the cluster at {address} runs a task: 1 node, 1 CPUs" in joined.stdout
    assert refused.returncode == 1
    assert "asks for a token; copy ~/.ray/auth_token from the cluster's head" in refused.stdout


@pytest.mark.timeout(400)
def test_a_cluster_that_asks_for_no_token_is_joined_by_whoever_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offered one, its workers would not answer: every trial failed before it began."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    owner, guest = tmp_path / "owner", tmp_path / "guest"
    owner.mkdir()
    (guest / ".ray").mkdir(parents=True)
    (guest / ".ray" / "auth_token").write_text(64 * "0")
    bench = make_bench(tmp_path / "work")
    few = ("--set", "depths=[0]", "--set", "learning_rate=0.003", "--seeds", "1")
    with ray_start(owner) as address:
        monkeypatch.setenv("HOME", str(guest))
        done = bench.run(*bench.search("guest", *few, "--address", address))
    assert done.returncode in (0, 3), done.stderr
    [ended] = of_kind(bench.records("guest"), "trial_ended")
    assert ended["status"] == "completed"
