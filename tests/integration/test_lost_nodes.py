"""A cluster that loses nodes: trials are repeated and not counted, hung ones are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray as running_ray
from ray.cluster_utils import Cluster

from elsa_tune import testing
from elsa_tune.searching.cluster import node_versions, watching
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.cluster.repeats import LOSSES
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.rate_space import RateList
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.trial import Recipe, TrialStatus
from elsa_tune.tracking.places import StorePaths
from tests.conftest import Run
from tests.integration.test_checkpoints import SETTINGS, far_into_a_trial
from tests.ray_nodes import RAY, SOON, RayNode, joined
from tests.searching import make_bench, of_kind, wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("ray")]


class Nodes:
    """A cluster whose head has no CPU for trials, as is usual, and the nodes that train."""

    def __init__(self) -> None:
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": SOON}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes: list[RayNode] = []

    @property
    def address(self) -> str:
        address: str = self._cluster.address
        return address

    def add(self) -> RayNode:
        """Start a node with one CPU; it joins in a few seconds."""
        node = RayNode.join(self.address)
        self._nodes.append(node)
        return node

    def wait(self, count: int) -> None:
        """Wait until so many nodes can train."""
        wait_for(lambda: joined(self.address) >= count, 120)

    def end(self) -> None:
        running_ray.shutdown()
        for node in self._nodes:
            node.kill()
        self._cluster.shutdown()


@pytest.fixture
def cluster() -> Iterator[Nodes]:
    """Start a cluster in place of this process's Ray."""
    running_ray.shutdown()
    nodes = Nodes()
    try:
        yield nodes
    finally:
        nodes.end()


def pretended(cluster: Nodes | None, **changes: Any) -> SearchSpec:
    """Return a search of trials that pretend, one after the other on each CPU."""
    given: dict[str, Any] = {
        "candidates": (FULL_MODEL,),
        "explored": (),
        "rates": RateList(values=(3e-5,)),
        "tries": 0,
        "seeds": 3,
        "recipe": Recipe(epochs=4, train_size=100),
        "resources": Resources(cpus=1, gpus=0),
        "address": cluster.address if cluster else None,
    }
    return testing.example_spec(**{**given, **changes})


def beside(what: Callable[[], None]) -> threading.Thread:
    """Do something to a cluster while a search runs on it."""
    thread = threading.Thread(target=what)
    thread.start()
    return thread


def ends(state: Any) -> list[tuple[str, str]]:
    """Return how each trial's last try ended, and the message."""
    return [(trial.end.status.value, trial.end.message) for trial in state.planned_trials]


def attempts(state: Any) -> list[int]:
    return [trial.start.attempt for trial in state.planned_trials]


@pytest.mark.thorough
def test_a_lost_node_costs_no_failure_and_one_that_joins_gets_the_trials(
    cluster: Nodes, places: StorePaths, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The only node that trains goes while it trains, and another one comes."""
    began = tmp_path / "began"
    node = cluster.add()
    cluster.wait(1)

    def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        if seed == 2 and epoch == 2 and not began.exists():
            began.touch()
            time.sleep(600)  # it ends with its node, however late that is taken away
        return 0.9

    def replace_node() -> None:
        wait_for(began.exists, 200)
        node.kill()
        cluster.add()

    thread = beside(replace_node)
    spec = pretended(cluster, max_failures=0)
    state = testing.search(spec, quality, places.working_directory)
    thread.join()
    assert ends(state) == [("completed", "")] * 3
    assert sorted(attempts(state)) == [1, 1, 2]
    said = capfd.readouterr().err
    assert "measure-N0-lr3e-05-s2: its node was lost: " in said
    assert "; it is begun again" in said


@pytest.mark.thorough
def test_a_node_that_joins_with_other_versions_ends_the_search_and_resume_goes_on(
    cluster: Nodes, places: StorePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so itself, as one without elsa-tune would, of which this machine has none."""
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.5)
    cluster.add()
    cluster.wait(1)
    began = tmp_path / "began"
    is_over = tmp_path / "over"
    ask = node_versions.question

    def question(more: Iterable[str] = ()) -> Callable[[], dict[str, str]]:
        truly = ask(more)
        here = running_ray.nodes()
        known = [node["NodeID"] for node in here]

        def versions() -> dict[str, str]:
            import ray

            found = truly()
            if ray.get_runtime_context().get_node_id() not in known:
                found["elsa-tune"] = "missing"
            return found

        return versions

    def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        began.touch()
        while seed == 1 and epoch == 4 and not is_over.exists():
            time.sleep(0.1)
        return 0.9

    def another_joins() -> None:
        wait_for(began.exists, 200)
        cluster.add()

    monkeypatch.setattr(node_versions, "question", question)
    thread = beside(another_joins)
    state = testing.search(pretended(cluster), quality, places.working_directory)
    thread.join()
    assert state.end is not None and state.end.status.value == "failed"
    assert " of the cluster has other versions than this machine" in (state.end.message)
    assert "elsa-tune missing (here " in state.end.message
    is_over.touch()
    monkeypatch.setattr(node_versions, "question", ask)  # as if it was installed there
    state = testing.search(pretended(cluster), quality, places.working_directory)
    assert ends(state) == [("completed", "")] * 3


@pytest.mark.thorough
def test_a_trial_that_takes_down_each_node_fails_and_the_others_are_trained(
    cluster: Nodes, places: StorePaths
) -> None:
    def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        if seed == 1 and epoch == 2:
            os.kill(os.getppid(), signal.SIGKILL)  # its raylet
            time.sleep(600)
        return 0.9

    def replace_nodes() -> None:
        for _ in range(LOSSES):
            wait_for(lambda: joined(cluster.address) == 0, 200)
            cluster.add()
            cluster.wait(1)

    cluster.add()
    cluster.wait(1)
    thread = beside(replace_nodes)
    spec = pretended(cluster, seeds=2)
    state = testing.search(spec, quality, places.working_directory)
    thread.join()
    (first, message), second = ends(state)
    assert first == "failed" and second == ("completed", "")
    assert message.startswith("its node was lost 4 times before it got further, so the trial")
    assert attempts(state)[0] == LOSSES


def only_what_is_stopped_hangs(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a watch look often, and let none of its looks but those at a stopped process count.

    stopped: names the last process of the trial of seed 2 that stopped itself. A worker that takes
    long to begin, as on a busy machine, is as silent.
    """
    patience = watching.patience

    def while_stopped(spec: SearchSpec, trials: Any, trial: Any) -> float | None:
        if not trial.key.endswith("-s2") or not is_stopped(stopped):
            return None
        return patience(spec, trials, trial)

    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(watching, "patience", while_stopped)


def is_stopped(named: Path) -> bool:
    """Whether the process that a file names is stopped by a signal."""
    try:
        return " T " in Path(f"/proc/{named.read_text()}/stat").read_text()
    except OSError:  # there is none yet, or no longer
        return False


def test_a_hung_trial_is_ended_and_repeated_and_its_worker_is_gone(
    ray: Capacity,
    places: StorePaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its process is stopped: it hears neither Ray nor Python's signals."""
    hung = tmp_path / "hung"
    only_what_is_stopped_hangs(hung, monkeypatch)

    def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        if seed == 2 and epoch == 2 and not hung.exists():
            hung.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return 0.9

    everything = Resources(cpus=ray.largest_cpus, gpus=0)
    spec = pretended(None, hung_after=3.0, max_failures=0, resources=everything)
    state = testing.search(spec, quality, places.working_directory)
    assert ends(state) == [("completed", "")] * 3
    assert sorted(attempts(state)) == [1, 1, 2]
    said = capfd.readouterr().err
    assert "measure-N0-lr3e-05-s2: hung: no report for " in said
    process = Path(f"/proc/{hung.read_text()}")
    wait_for(lambda: not process.exists())


@pytest.mark.thorough
def test_a_second_hang_is_a_failure(
    ray: Capacity, places: StorePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = tmp_path / "hung"
    only_what_is_stopped_hangs(hung, monkeypatch)

    def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        if seed == 2 and epoch == 2:
            hung.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return 0.9

    spec = pretended(None, hung_after=3.0)
    state = testing.search(spec, quality, places.working_directory)
    statuses = {trial.key[-1]: trial.status for trial in state.planned_trials}
    assert statuses == {
        "1": TrialStatus.COMPLETED,
        "2": TrialStatus.FAILED,
        "3": TrialStatus.COMPLETED,
    }
    (message,) = {message for status, message in ends(state) if status == "failed"}
    assert message.startswith("hung: no report for ")
    assert state.trials["measure-N0-lr3e-05-s2"].start.attempt == 2


@pytest.mark.thorough
def test_too_many_failures_end_the_search_and_resume_goes_on(
    ray: Capacity, places: StorePaths, tmp_path: Path
) -> None:
    is_repaired = tmp_path / "repaired"

    def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        if seed != 1 and not is_repaired.exists():
            raise OSError(f"the disk of seed {seed} is gone")
        return 0.9

    spec = pretended(
        None, seeds=6, max_failures=1, resources=Resources(cpus=ray.largest_cpus, gpus=0)
    )
    state = testing.search(spec, quality, places.working_directory)
    assert state.end is not None
    assert state.end.status.value == "failed"
    assert state.end.message == (
        "2 trials failed, more than the 1 that may; the first said: OSError: the disk of seed 2 "
        "is gone"
    )
    statuses = [trial.status.value for trial in state.planned_trials]
    assert statuses.count("completed") == 1 and statuses.count("failed") == 2
    is_repaired.touch()
    state = testing.search(spec, quality, places.working_directory)
    assert ends(state) == [("completed", "")] * 6


@pytest.mark.thorough
@pytest.mark.parametrize("by_signal", [False, True])
def test_a_node_that_is_drained_is_left_with_a_checkpoint(
    cluster: Nodes, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, by_signal: bool
) -> None:
    """A notice, long before any checkpoint is due: the trial saves, leaves, and loses no step.

    by_signal: SIGTERM to `ray start --block`, as Kubernetes sends it; else `drain-node`.
    """
    bench = make_bench(tmp_path, train=16 * 20)
    monkeypatch.chdir(tmp_path)
    folder = bench.journal("drained").parent / "checkpoints"
    drained: list[str] = []
    node = cluster.add()
    cluster.wait(1)

    def drain() -> None:
        def has_reported() -> bool:
            return bool(of_kind(bench.records("drained"), "report"))

        wait_for(has_reported, 300)
        trains = next(node for node in running_ray.nodes() if node["Resources"].get("CPU"))
        words = [RAY, "drain-node", "--address", cluster.address]
        words += ["--node-id", trains["NodeID"], "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
        words += ["--reason-message", "spot", "--deadline-remaining-seconds", "600"]
        if by_signal:
            node.command.terminate()
        else:
            # Its trial may have left, and Ray have given it up, before this returns.
            subprocess.run(words, check=True, capture_output=True)
        wait_for(lambda: bool(list(folder.glob("*.safetensors"))))
        drained.append(next(folder.glob("*.safetensors")).stem)
        cluster.add()

    thread = beside(drain)
    there = ("--address", cluster.address, "--cpus-per-trial", "1", "--max-failures", "0")
    longer = ("--set", "epochs=100")
    done = run(*bench.search("drained", *SETTINGS, *longer, *there))
    thread.join()
    assert done.status in (0, 3), done.err
    (key,) = drained
    assert f"{key}: its node is being taken away, and the trial left it; it is begun again" in (
        done.err
    )
    records = bench.records("drained")
    statuses = [end["status"] for end in of_kind(records, "trial_ended") if end["trial"] == key]
    assert statuses == ["interrupted", "completed"]
    reports = [report for report in of_kind(records, "report") if report["trial"] == key]
    again = [report for report in reports if report["attempt"] == 2]
    restored = [report["evaluation"] for report in again if report["restored"]]
    before = [report["evaluation"] for report in reports if report["attempt"] == 1]
    assert restored == before
    nodes_before = {report["tags"]["node"] for report in reports if report["attempt"] == 1}
    assert nodes_before.isdisjoint(report["tags"]["node"] for report in again)
    assert far_into_a_trial(folder) is None
