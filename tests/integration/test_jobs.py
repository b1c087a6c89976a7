"""A search sent to a cluster: `ray start` with a dashboard, on this machine.

It is submitted, refused a second time, watched, stopped, submitted again, and finished.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.ray_nodes import head_with_dashboard, python_with_dashboard
from tests.searching import Bench, make_bench, of_kind, wait_for

PYTHON = python_with_dashboard()
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        PYTHON is None,
        reason="needs ray[default], whose dashboard takes jobs: make .venv/.serve",
    ),
]

# Of two depths, a second or so each: long enough to be stopped in the middle.
TRIALS = 40
LONG_ENOUGH = (
    *("--set", "depths=[0, 2]", "--set", "learning_rate=0.003", "--set", "epochs=40"),
    *("--seeds", str(TRIALS // 2), "--cpus-per-trial", "1"),
)


@pytest.mark.timeout(900)
def test_a_search_is_sent_watched_stopped_sent_again_and_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    home = tmp_path / "home"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text(64 * "0")
    bench = make_bench(tmp_path / "work")
    # What the job records lies below the home of whoever runs Ray there.
    there = Bench(home / "elsa-tune")
    assert PYTHON is not None
    with head_with_dashboard(PYTHON, home, RAY_AUTH_MODE="token") as dashboard:
        address = ("--address", dashboard)
        command = ["submit", *bench.search("mine", *LONG_ENOUGH, *address)[1:]]
        who_has_no_token_is_refused(bench, address)
        monkeypatch.setenv("HOME", str(home))
        gpus_that_no_node_has_are_refused(bench, command)

        sent = bench.run(*command)
        assert sent.returncode == 0, sent.stderr
        assert sent.stdout == "elsa-tune-1-mine\n"
        assert f"elsa-tune watch mine --address {dashboard}" in sent.stderr
        twice = bench.run(*command)
        assert twice.returncode == 2, twice.stderr
        assert "search 'mine' is " in twice.stderr and "job elsa-tune-1-mine" in twice.stderr

        wait_for(lambda: ended_trials(there) >= 2, seconds=180)
        stopped_as_by_ctrl_c(bench, there, address)

        # The files come in another folder, and count if the rows are the same.
        task = bench.folder / "task.yaml"
        task.write_text(task.read_text() + "# a remark\n")
        again = bench.run(*command)
        assert again.returncode == 0, again.stderr
        assert again.stdout == "elsa-tune-2-mine\n"
        assert "submitted before (job elsa-tune-1-mine, interrupted)" in again.stderr
        listed = bench.run("searches", *address)
        assert listed.stderr.endswith(f"Next: elsa-tune watch mine --address {dashboard}\n")
        wait_for(lambda: len(of_kind(there.records("mine"), "search_started")) == 2, seconds=180)
        left_while_it_runs(bench, there)
        followed = bench.run("watch", "mine", *address)
        assert followed.returncode == 0, followed.stderr
        assert followed.stderr.endswith("job elsa-tune-2-mine: completed\n")
        said = bench.run("logs", "mine", *address).stdout
    assert "is recorded with the same options: continuing it" in said
    records = there.records("mine")
    completed = [r["trial"] for r in of_kind(records, "trial_ended") if r["status"] == "completed"]
    assert len(completed) == len(set(completed)) == TRIALS
    assert len(of_kind(records, "search_started")) == 2
    # Nothing was recorded where it was typed.
    assert not (bench.folder / "mlruns").exists()


def who_has_no_token_is_refused(bench: Bench, address: tuple[str, str]) -> None:
    refused = bench.run("logs", "mine", *address)
    assert refused.returncode == 2, refused.stderr
    assert "asks for a token; copy ~/.ray/auth_token" in refused.stderr


def gpus_that_no_node_has_are_refused(bench: Bench, command: list[str]) -> None:
    refused = bench.run(*command, "--gpus-per-trial", "1")
    assert refused.returncode == 2, refused.stderr
    assert "--gpus-per-trial is 1, but no node of the cluster" in refused.stderr


def stopped_as_by_ctrl_c(bench: Bench, there: Bench, address: tuple[str, str]) -> None:
    stopped = bench.run("stop", "mine", *address)
    assert stopped.returncode == 0, stopped.stderr
    [end] = of_kind(there.records("mine"), "search_ended")
    assert end["status"] == "interrupted"
    assert ended_trials(there) < TRIALS
    not_running = bench.run("stop", "mine", *address)
    assert not_running.returncode == 2
    assert "is not running: job elsa-tune-1-mine is interrupted" in not_running.stderr


def ended_trials(there: Bench) -> int:
    ends = of_kind(there.records("mine"), "trial_ended")
    return len([end for end in ends if end["status"] == "completed"])


def left_while_it_runs(bench: Bench, there: Bench) -> None:
    """Watch it by its journal, and leave by Ctrl-C: the search goes on."""
    storage = there.journal("mine").parent.parent
    watching = bench.start("watch", "mine", "--storage-path", str(storage))
    assert watching.stderr is not None
    for line in watching.stderr:
        if ": completed at " in line:
            break
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=200)
    assert watching.returncode == 0, err
    assert err.endswith("left; the search goes on\n"), err
    before = ended_trials(there)
    time.sleep(1)
    wait_for(lambda: ended_trials(there) > before, seconds=60)
