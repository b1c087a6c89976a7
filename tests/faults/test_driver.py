"""The driver is killed, interrupted or loses a worker: nothing that was finished runs again, and
the plan is completed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.searching import Bench, make_bench, of_kind, wait_for

pytestmark = pytest.mark.timeout(900)

SETTINGS = (
    *("--set", "epochs=5", "--set", "depths=[0, 2]", "--set", "asha=null"),
    *("--set", "learning_rate=[0.002, 0.005]", "--set", "tries=2", "--seeds", "2"),
    *("--cpus-per-trial", "2"),
)
TRIALS = 8


def ended(bench: Bench, name: str) -> dict[str, dict[str, Any]]:
    """Finished trials and the record of their end."""
    records = of_kind(bench.records(name), "trial_ended")
    return {r["trial"]: r for r in records if r["status"] == "completed"}


def running(bench: Bench, name: str) -> bool:
    """Whether some trial is between its first report and its end."""
    records = bench.records(name)
    last = {r["trial"]: r["kind"] for r in records if "trial" in r}
    return "report" in last.values()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=400)
    return process.returncode, err


def measuring(bench: Bench, name: str) -> bool:
    return any(key.startswith("measure") for key in ended(bench, name)) and running(bench, name)


def history(bench: Bench) -> dict[str, list[tuple[Any, ...]]]:
    """Every metric point of every trial's run: its step counters, values and times."""
    points = bench.query(
        "select t.value, m.key, m.step, m.value, m.timestamp from metrics m "
        "join tags t on t.run_uuid = m.run_uuid and t.key = 'elsa_tune.trial' order by 1, 2, 3, 5"
    )
    found: dict[str, list[tuple[Any, ...]]] = {}
    for trial, *point in points:
        found.setdefault(trial, []).append(tuple(point))
    return found


def check_whole(bench: Bench, name: str) -> None:
    """All trials ended once, each has one MLflow run, none is running."""
    assert len(ended(bench, name)) == TRIALS
    runs = bench.query(
        "select t.value, count(*) from tags t where t.key = 'elsa_tune.trial' group by t.value"
    )
    assert len(runs) == TRIALS and {count for _, count in runs} == {1}
    statuses = bench.query("select distinct status from runs")
    assert statuses == [("FINISHED",)]


def test_killed_in_mid_epoch_then_interrupted_while_measuring(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, train=320)
    driver = bench.start(*bench.search("killed", *SETTINGS))
    wait_for(lambda: len(ended(bench, "killed")) >= 2 and running(bench, "killed"), 300)
    driver.kill()
    driver.communicate()
    kept = ended(bench, "killed")
    shown = bench.run("searches", "--format", "json")
    assert '"killed"' in shown.stdout and shown.returncode == 0
    # What MLflow had not got yet is replayed from the journal by the next driver.

    driver = bench.start("resume", "killed")
    wait_for(lambda: measuring(bench, "killed"), 300)
    before = history(bench)
    driver.send_signal(signal.SIGINT)
    status, said = finish(driver)
    assert status == 130, said
    assert "elsa-tune resume killed" in said and "Traceback" not in said
    assert bench.query("select count(*) from runs where status = 'RUNNING'") == [(0,)]
    measured = {key: r for key, r in ended(bench, "killed").items() if key.startswith("measure")}

    done = bench.run("resume", "killed", timeout=400)
    assert done.returncode in (0, 3), done.stderr
    check_whole(bench, "killed")
    # Finished trials are as they were: one attempt, the same step counters in the same run.
    starts = of_kind(bench.records("killed"), "trial_started")
    after = history(bench)
    for key in (*kept, *measured):
        assert [r["attempt"] for r in starts if r["trial"] == key] == [1]
        assert after[key] == before.get(key, after[key])
    again = [r for r in starts if r["attempt"] > 1]
    assert again, "the trials that were cut off should have started again"
    assert {r["trial"] for r in again}.isdisjoint(kept)


def test_interrupted_and_terminated_while_exploring_then_a_worker_is_killed(
    tmp_path: Path,
) -> None:
    bench = make_bench(tmp_path, train=320)
    driver = bench.start(*bench.search("ended", *SETTINGS))
    wait_for(lambda: running(bench, "ended"), 300)
    # The whole group, as a terminal does it.
    os.killpg(driver.pid, signal.SIGINT)
    status, said = finish(driver)
    assert status == 130, said
    assert "elsa-tune resume ended" in said and "Traceback" not in said
    assert bench.query("select count(*) from runs where status = 'RUNNING'") == [(0,)]

    driver = bench.start("resume", "ended")
    before = len(of_kind(bench.records("ended"), "report"))
    wait_for(lambda: len(of_kind(bench.records("ended"), "report")) > before + 1, 300)
    driver.send_signal(signal.SIGTERM)
    status, said = finish(driver)
    assert status == 130, said
    interrupted = of_kind(bench.records("ended"), "trial_ended")
    assert any(record["status"] == "interrupted" for record in interrupted)
    assert bench.query("select count(*) from runs where status = 'RUNNING'") == [(0,)]

    driver = bench.start("resume", "ended")
    wait_for(lambda: running(bench, "ended") and worker_of(driver) is not None, 300)
    worker = worker_of(driver)
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    status, said = finish(driver)
    assert status in (0, 3), said
    failed = [r for r in of_kind(bench.records("ended"), "trial_ended") if r["status"] == "failed"]
    assert failed, "the killed worker's trial should have been recorded as failed"
    check_whole(bench, "ended")


def worker_of(driver: subprocess.Popen[str]) -> int | None:
    """The process that trains for this driver, by the name that Ray gives it."""
    listing = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    parents, names = {}, {}
    for line in listing.splitlines():
        pid, parent, name = line.split(None, 2)
        parents[int(pid)], names[int(pid)] = int(parent), name
    for pid, name in names.items():
        if name.startswith("ray::ImplicitFunc") and driver.pid in ancestors(pid, parents):
            return pid
    return None


def ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found


def test_time_is_up_and_resume_carries_out_the_rest(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, train=320)
    cut = bench.run(*bench.search("short", *SETTINGS, "--max-time", "8s"), timeout=400)
    assert cut.returncode in (0, 3), cut.stderr
    assert "time was up" in cut.stderr and "elsa-tune resume short" in cut.stderr
    end = of_kind(bench.records("short"), "search_ended")[-1]
    assert end["status"] == "time_up"
    assert len(ended(bench, "short")) < TRIALS
    done = bench.run("resume", "short", "--max-time", "1h", timeout=400)
    assert done.returncode in (0, 3), done.stderr
    assert len(ended(bench, "short")) == TRIALS
