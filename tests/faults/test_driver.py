"""The driver is killed, or loses a worker or Ray.

Nothing that was finished runs again, and the plan is completed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.searching.cluster.capacity import Capacity
from tests.conftest import Run
from tests.searching import ONE_AT_A_TIME, Bench, family, make_bench, of_kind, wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1500)]

NAME = "storm"
SETTINGS = (
    *("--set", "epochs=20", "--set", "depths=[0, 2]", "--set", "asha=null"),
    *("--set", "learning_rate=[0.002, 0.003, 0.005]", "--set", "tries=3", "--seeds", "3"),
    *ONE_AT_A_TIME,
)
TRIALS = 12
RESUME = ("resume", NAME)

Ends = dict[str, dict[str, Any]]
History = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path / "storm bench", train=320)


def ended(bench: Bench) -> Ends:
    """Finished trials and the record of their end."""
    records = of_kind(bench.records(NAME), "trial_ended")
    return {r["trial"]: r for r in records if r["status"] == "completed"}


def failed(bench: Bench) -> list[str]:
    """Trials that failed, once for each time they did."""
    records = of_kind(bench.records(NAME), "trial_ended")
    return [record["trial"] for record in records if record["status"] == "failed"]


def running(bench: Bench, phase: str) -> bool:
    """Whether some trial of a phase is between its first report and its end, in this session."""
    last: dict[str, str] = {}
    for record in bench.records(NAME):
        if record["kind"] == "search_started":
            last.clear()
        elif "trial" in record:
            last[record["trial"]] = record["kind"]
    return any(kind == "report" and trial.startswith(phase) for trial, kind in last.items())


def measured(bench: Bench) -> int:
    return sum(trial.startswith("measure") for trial in ended(bench))


def begun(bench: Bench, *command: str) -> subprocess.Popen[str]:
    """Start the next session in a process of its own, and wait for its record."""
    sessions = len(of_kind(bench.records(NAME), "search_started"))
    driver = bench.start(*command)
    wait_for(lambda: len(of_kind(bench.records(NAME), "search_started")) > sessions, 300)
    return driver


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=800)
    return process.returncode, err


def history(bench: Bench) -> History:
    """Every metric point of every trial's run: its step counters, values and times."""
    points = bench.query(
        "select t.value, m.key, m.step, m.value, m.timestamp from metrics m "
        "join tags t on t.run_uuid = m.run_uuid and t.key = 'elsa_tune.trial' order by 1, 2, 3, 5"
    )
    found: History = {}
    for trial, *point in points:
        found.setdefault(trial, []).append(tuple(point))
    return found


def kill(driver: subprocess.Popen[str], name: str) -> None:
    """Kill a process that this command has started, by the beginning of its name."""
    (pid,) = [pid for pid, found in family(driver.pid).items() if found.startswith(name)]
    os.kill(pid, signal.SIGKILL)


def check_died(bench: Bench, status: int, said: str, cause: str) -> None:
    """Its supervisor has said why in one sentence, closed the record and named the way on."""
    assert status == 1 and "Traceback" not in said
    last = of_kind(bench.records(NAME), "search_ended")[-1]
    assert cause in last["message"] and bench.records(NAME)[-1] == last
    (sentence,) = [line for line in said.splitlines() if line.startswith("elsa-tune:")]
    assert last["message"] in sentence and f"`elsa-tune resume {NAME}` goes on" in sentence
    assert bench.query("select count(*) from runs where status = 'RUNNING'") == [(0,)]


@pytest.fixture
def inside(bench: Bench, run: Run, ray: Capacity, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the command line in this process, where nothing is killed."""
    monkeypatch.chdir(bench.folder)
    return run


def test_whatever_ends_a_session_the_next_one_goes_on_and_the_plan_is_completed(
    bench: Bench, inside: Run
) -> None:
    kept: Ends = {}  # what was finished so far; no later session may touch it
    for session in (
        killed_in_mid_epoch_while_exploring,
        rays_gcs_server_killed_while_exploring,
        time_is_up,
        a_worker_killed_while_exploring_and_rays_raylet_while_measuring,
    ):
        session(bench, inside)
        kept |= ended(bench)
        shown = inside("searches", "--format", "json")
        assert f'"{NAME}"' in shown.out and shown.status == 0
    assert sum(trial.startswith("measure") for trial in kept) >= 1 and len(kept) < TRIALS
    before = history(bench)
    done = inside(*RESUME)
    assert done.status in (0, 3), done.err
    nothing_that_was_finished_ran_again(bench, kept, before)


def killed_in_mid_epoch_while_exploring(bench: Bench, inside: Run) -> None:
    driver = begun(bench, *bench.search(NAME, *SETTINGS))
    wait_for(lambda: len(ended(bench)) >= 1 and running(bench, "explore"), 300)
    os.kill(next(iter(family(driver.pid))), signal.SIGKILL)  # the command's own child
    check_died(bench, *finish(driver), "was killed (SIGKILL")


def rays_gcs_server_killed_while_exploring(bench: Bench, inside: Run) -> None:
    driver = begun(bench, *RESUME)
    wait_for(lambda: running(bench, "explore"), 300)
    kill(driver, "gcs_server")
    # Ray waits a minute for it; trials that run meanwhile may end.
    check_died(bench, *finish(driver), "Ray's raylet or gcs_server died")


def time_is_up(bench: Bench, inside: Run) -> None:
    cut = inside(*RESUME, "--max-time", "2s")
    assert cut.status in (0, 3), cut.err
    assert "time was up" in cut.err and f"elsa-tune resume {NAME}" in cut.out + cut.err
    assert of_kind(bench.records(NAME), "search_ended")[-1]["status"] == "time_up"
    assert len(ended(bench)) < TRIALS


def a_worker_killed_while_exploring_and_rays_raylet_while_measuring(
    bench: Bench, inside: Run
) -> None:
    driver = begun(bench, *RESUME)
    wait_for(lambda: running(bench, "explore"), 300)
    kill(driver, "ray::ImplicitFunc")
    wait_for(lambda: bool(failed(bench)), 100)
    wait_for(lambda: measured(bench) >= 1 and running(bench, "measure"), 300)
    kill(driver, "raylet")
    check_died(bench, *finish(driver), "Ray's raylet or gcs_server died")


def nothing_that_was_finished_ran_again(bench: Bench, kept: Ends, before: History) -> None:
    # All trials ended once, each has one MLflow run, none is running.
    assert len(ended(bench)) == TRIALS
    runs = bench.query(
        "select t.value, count(*) from tags t where t.key = 'elsa_tune.trial' group by t.value"
    )
    assert len(runs) == TRIALS and {count for _, count in runs} == {1}
    assert bench.query("select distinct status from runs") == [("FINISHED",)]
    # Finished trials are as they were: started once, except the one whose worker was killed before
    # it finished, with the same record of their end and the same step counters in the same run.
    starts = of_kind(bench.records(NAME), "trial_started")
    after, now = history(bench), ended(bench)
    for trial, end in kept.items():
        assert now[trial] == end and after[trial] == before[trial]
        assert sum(r["trial"] == trial for r in starts) == end["attempt"]
    again = {r["trial"] for r in starts if r["attempt"] > 1}
    assert again, "the trials that were cut off should have started again"
    assert set(failed(bench)) <= again


# Quickly, with trials that pretend, in tests/integration/test_pretended.py.
def test_a_trial_that_was_given_up_is_tried_again_by_resume(bench: Bench, inside: Run) -> None:
    settings = ("--set", "epochs=60", "--set", "depths=[0, 2]", "--set", "asha=null")
    rates = ("--set", "learning_rate=[0.002, 0.005]", "--set", "tries=2", "--seeds", "1")
    driver = begun(bench, *bench.search(NAME, *settings, *rates, *ONE_AT_A_TIME))
    given_up = of_kind(wait_for_records(bench, "trial_started"), "trial_started")[0]["trial"]
    for attempt in (1, 2):
        wait_for(lambda: reports(bench, given_up, attempt), 300)  # noqa: B023 (called at once)
        kill(driver, "ray::ImplicitFunc")
    status, said = finish(driver)
    assert status in (0, 3), said
    # The search ended without it, and says how to have it after all.
    assert failed(bench) == [given_up, given_up]
    assert f"1 trial failed ({given_up}); `resume` tries again" in said
    assert of_kind(bench.records(NAME), "search_ended")[-1]["status"] == "completed"
    finished = ended(bench)
    assert given_up not in finished and measured(bench) == 2

    again = inside(*RESUME)
    assert again.status in (0, 3), again.err
    assert "exploring: 1 trial that failed, once more" in again.err
    assert failed(bench) == [given_up, given_up]
    now = ended(bench)
    assert now.keys() - finished.keys() == {given_up} and now[given_up]["attempt"] == 3
    assert {trial: now[trial] for trial in finished} == finished
    statuses = bench.query(
        "select r.status from runs r join tags t on t.run_uuid = r.run_uuid "
        f"where t.key = 'elsa_tune.trial' and t.value = '{given_up}'"
    )
    assert statuses == [("FINISHED",)]
    assert "nothing is left to do" in inside(*RESUME).err


def reports(bench: Bench, trial: str, attempt: int) -> bool:
    """Whether this attempt of a trial has reported, and runs."""
    its = [one for one in bench.records(NAME) if one.get("trial") == trial]
    return bool(its) and its[-1]["kind"] == "report" and its[-1]["attempt"] == attempt


def wait_for_records(bench: Bench, kind: str) -> list[dict[str, Any]]:
    """Return the journal, once it has a record of this kind."""
    wait_for(lambda: bool(of_kind(bench.records(NAME), kind)), 300)
    return bench.records(NAME)
