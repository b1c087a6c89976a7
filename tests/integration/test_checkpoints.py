"""A search whose workers are killed in the middle of a trial goes on inside it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path, PosixPath
from typing import Any

import pytest
import ray as running_ray
from ray.cluster_utils import Cluster

from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.tune.checkpoints import DriversFolder
from elsa_tune.searching.tune.mailbox import Mailbox
from elsa_tune.training.progress import DamagedError, read_file
from tests.conftest import Run
from tests.searching import ONE_AT_A_TIME, Bench, family, make_bench, of_kind, wait_for

pytestmark = pytest.mark.timeout(1500)

EPOCHS = 30
STEPS_AN_EPOCH = 20
SETTINGS = (
    *("--set", f"epochs={EPOCHS}", "--set", "depths=[0, 1]", "--set", "learning_rate=0.003"),
    *("--seeds", "2", "--set", "seed=0"),
)
# At every step, or nearly.
OFTEN = ("--checkpoint", "0.001")
# What two searches of the same trials may have otherwise.
OF_THE_MACHINE = ("train_seconds", "examples_per_second", "peak_memory_mb")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("checkpoints bench"), train=16 * STEPS_AN_EPOCH)


def far_into_a_trial(folder: Path) -> tuple[str, int] | None:
    """Return the trial that has trained a few steps behind an evaluation, and that step."""
    for file in folder.glob("*.safetensors"):
        try:
            header = read_file(file.read_bytes()).header
        except (OSError, DamagedError):  # it has just ended
            return None
        step = header["progress"]["step"]
        if len(header["results"]) >= 2 and step % STEPS_AN_EPOCH >= 2:
            return file.stem, step
    return None


def wait_for_a_trial(folder: Path, but: str = "", beyond: int = 0) -> str:
    """Wait until a trial other than `but` is far, and beyond a step; return its key."""
    seen: list[str] = []

    def is_far() -> bool:
        now = far_into_a_trial(folder)
        if now is not None and now[0] != but and now[1] > beyond:
            seen.append(now[0])
        return bool(seen)

    wait_for(is_far, 300)
    return seen[0]


def killed_in_a_trial(
    driver: subprocess.Popen[str], folder: Path, but: str = "", beyond: int = 0
) -> str:
    """Kill the worker in a trial other than `but`, beyond a step; return the trial's key."""
    key = wait_for_a_trial(folder, but, beyond)
    (worker,) = [
        pid for pid, name in family(driver.pid).items() if name.startswith("ray::ImplicitFunc")
    ]
    os.kill(worker, signal.SIGKILL)
    return key


def failed(bench: Bench) -> list[str]:
    """Return the trials that failed, once for each time they did."""
    ends = of_kind(bench.records("killed"), "trial_ended")
    return [end["trial"] for end in ends if end["status"] == "failed"]


def reported(bench: Bench, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return what the last attempt of each trial reported, but for what is the machine's."""
    trials: dict[str, list[dict[str, Any]]] = {}
    for record in bench.records(name):
        if record["kind"] == "trial_started":
            trials[record["trial"]] = []
        if record["kind"] == "report":
            metrics = {
                key: value for key, value in record["metrics"].items() if key not in OF_THE_MACHINE
            }
            trials[record["trial"]].append({"step": record["step"], **metrics})
    return trials


def answer(bench: Bench, name: str) -> list[tuple[Any, ...]]:
    """Return the curve of a search's answer, but for what its trials cost."""
    decisions = of_kind(bench.records(name), "decision")
    *_, [last] = [record["value"] for record in decisions if record["what"] == "answer"]
    return [
        (point["frozen_layers"], point["quality"], point["std"], point["seeds"])
        for point in last["curve"]
    ]


@pytest.mark.usefixtures("ray")
# What continues, to the last bit, is in tests/unit/test_checkpoints.py.
@pytest.mark.thorough
def test_a_trial_whose_worker_is_killed_continues_at_its_checkpoint(
    bench: Bench, run: Run, ray: Capacity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: the second time the search ends without it, and `resume` continues inside it."""
    monkeypatch.chdir(bench.folder)
    undisturbed = run(*bench.search("undisturbed", *SETTINGS, *ONE_AT_A_TIME))
    assert undisturbed.status in (0, 3), undisturbed.err
    assert not (bench.journal("undisturbed").parent / "checkpoints").exists()

    folder = bench.journal("killed").parent / "checkpoints"
    driver = bench.start(*bench.search("killed", *SETTINGS, *ONE_AT_A_TIME, *OFTEN))
    wait_for(lambda: bool(of_kind(bench.records("killed"), "trial_ended")), 300)
    first_key = of_kind(bench.records("killed"), "trial_ended")[0]["trial"]
    key = killed_in_a_trial(driver, folder, but=first_key)
    wait_for(lambda: failed(bench) == [key], 100)
    kept = folder / f"{key}.safetensors"

    def continues() -> bool:
        starts = of_kind(bench.records("killed"), "report")
        return any(report["trial"] == key and report["attempt"] == 2 for report in starts)

    # The second kill comes behind a checkpoint that the second attempt has written itself.
    step = read_file(kept.read_bytes()).header["progress"]["step"]
    wait_for(continues, 300)
    again = killed_in_a_trial(driver, folder, but=first_key, beyond=step)
    _, said = driver.communicate(timeout=800)
    assert driver.returncode == 1 and "`elsa-tune resume killed` tries the rest again" in said
    assert again == key and failed(bench) == [key, key]
    # The search ended, and keeps what `resume` continues from.
    assert [file.name for file in folder.iterdir() if file.suffix == ".safetensors"] == [kept.name]

    resumed = run("resume", "killed")
    assert resumed.status in (0, 3), resumed.err
    assert not folder.exists()
    its_reports = [
        report for report in of_kind(bench.records("killed"), "report") if report["trial"] == key
    ]
    last = [report for report in its_reports if report["attempt"] == 3]
    restored = [report["evaluation"] for report in last if report["restored"]]
    assert len(restored) >= 2 and restored == list(range(1, len(restored) + 1))
    assert [report["evaluation"] for report in last] == list(range(1, EPOCHS + 1))
    notes = [note for note in last[-1]["notes"] if "continued from a checkpoint" in note]
    assert len(notes) == 2 and notes[0].startswith(f"{key}: continued from a checkpoint at step ")
    assert f"note: {notes[1]}" in resumed.err

    assert reported(bench, "killed") == reported(bench, "undisturbed")
    assert answer(bench, "killed") == answer(bench, "undisturbed")
    # What was found before the kills is one value each in MLflow. An attempt that was killed
    # before a point of its own repeats the last one, so that its end is not read without any.
    points = bench.query(
        "select m.key, m.step, count(distinct m.value) from metrics m "
        "join tags t on t.run_uuid = m.run_uuid and t.key = 'elsa_tune.trial' "
        "join tags s on s.run_uuid = m.run_uuid and s.key = 'elsa_tune.search' "
        f"where t.value = '{key}' and s.value = 'killed' "
        "and m.key in ('quality', 'eval_loss') group by 1, 2"
    )
    assert len(points) == 2 * EPOCHS and {count for _, _, count in points} == {1}


@pytest.mark.usefixtures("ray")
def test_a_trial_on_another_node_keeps_its_checkpoint_with_the_driver(tmp_path: Path) -> None:
    """It travels as bytes, and what goes wrong there is an OSError here."""
    folder = tmp_path / "checkpoints"
    mailbox: Any = Mailbox.remote(folder)  # type: ignore[attr-defined]  # Ray's
    try:
        elsewhere = DriversFolder(folder=folder, node="another", mailbox=mailbox)
        here = running_ray.get_runtime_context().get_node_id()
        beside = DriversFolder(folder=folder, node=here, mailbox=None)
        assert elsewhere.load("measure-N1") is None
        elsewhere.save("measure-N1", lambda file: file.write(b"state" * 1_000_000))
        assert beside.load("measure-N1") == elsewhere.load("measure-N1") == b"state" * 1_000_000
        elsewhere.delete("measure-N1")
        assert beside.load("measure-N1") is None
        beside.save("measure-N2", lambda file: file.write(b"more"))
        assert elsewhere.load("measure-N2") == b"more"
        beside.delete("measure-N2")
        folder.rmdir()
        folder.write_text("no folder")
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            elsewhere.save("measure-N1", lambda file: file.write(b"state"))
    finally:
        running_ray.kill(mailbox)
    with pytest.raises(OSError, match=r"."):
        elsewhere.load("measure-N1")


class SlowFolder(PosixPath):
    """A folder whose files are not reached before there is a file of its name with `.open`."""

    def __truediv__(self, name: Any) -> SlowFolder:
        while not os.path.exists(f"{self}.open"):
            time.sleep(0.01)
        return super().__truediv__(name)


@pytest.mark.usefixtures("ray")
def test_predictions_wait_for_no_checkpoint_and_are_kept_until_they_have_arrived(
    tmp_path: Path,
) -> None:
    mailbox: Any = Mailbox.remote(SlowFolder(tmp_path / "kept"))  # type: ignore[attr-defined]  # Ray's
    get = running_ray.get
    try:
        saves = [mailbox.save_checkpoint.remote(f"measure-N{n}", b"state") for n in range(3)]
        load = mailbox.load_checkpoint.remote("measure-N9")
        get(mailbox.put.remote("measure-N0", "predictions"), timeout=60)
        for _ in range(2):  # whoever asked first did not get it in time
            assert get(mailbox.held.remote("measure-N0"), timeout=60) == "predictions"
        mailbox.forget.remote("measure-N0")
        assert get(mailbox.held.remote("measure-N0"), timeout=60) is None
        done, _ = running_ray.wait([*saves, load], timeout=0)
        assert done == []
        (tmp_path / "kept.open").touch()
        assert get([*saves, load], timeout=60) == [None] * 4
        assert len(list((tmp_path / "kept").iterdir())) == 3
    finally:
        running_ray.kill(mailbox)


@pytest.mark.thorough
@pytest.mark.usefixtures("ray")
def test_a_trial_whose_node_is_lost_continues_on_another(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that is lost had trained all along; the driver's machine has what it saved."""
    bench = make_bench(tmp_path, train=16 * STEPS_AN_EPOCH)
    monkeypatch.chdir(tmp_path)
    folder = bench.journal("lost").parent / "checkpoints"
    running_ray.shutdown()
    # The head has no CPU for trials, as is usual on a cluster.
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    taken: list[str] = []

    def take_its_node_away(nodes: dict[str, Any]) -> None:
        wait_for(lambda: bool(of_kind(bench.records("lost"), "trial_ended")), 300)
        key = wait_for_a_trial(folder)

        def its_nodes() -> list[str]:
            reports = of_kind(bench.records("lost"), "report")
            return [r["tags"]["node"] for r in reports if r["trial"] == key]

        # The driver may hear of it after the checkpoint has come.
        wait_for(lambda: bool(its_nodes()))
        its_node = its_nodes()[-1]
        cluster.remove_node(nodes[its_node], allow_graceful=False)
        taken.append(its_node)

    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        cluster.wait_for_nodes()
        by_name = {node.node_id[:8]: node for node in nodes}
        taker = threading.Thread(target=take_its_node_away, args=(by_name,))
        taker.start()
        there = ("--address", cluster.address, "--cpus-per-trial", "1", *OFTEN)
        done = run(*bench.search("lost", *SETTINGS, "--seeds", "4", *there))
        taker.join()
    finally:
        cluster.shutdown()
    assert done.status in (0, 3), done.err
    reports = of_kind(bench.records("lost"), "report")
    again = [report for report in reports if report["attempt"] == 2]
    assert again and len(taken) == 1
    assert {report["tags"]["node"] for report in again}.isdisjoint(taken)
    key = again[0]["trial"]
    assert [report["evaluation"] for report in again] == list(range(1, EPOCHS + 1))
    assert sum(report["restored"] for report in again) >= 2
    assert f"{key}: continued from a checkpoint at step" in again[-1]["notes"][-1]
    assert not folder.exists()
