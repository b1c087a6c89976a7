"""A node that stops answering without dying: a paused machine, a swapped or stopped raylet."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.searching import ONE_AT_A_TIME, family, make_bench, of_kind, wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

SETTINGS = (
    *("--set", "epochs=5", "--set", "depths=[0, 2]", "--set", "learning_rate=0.003"),
    *("--seeds", "12", *ONE_AT_A_TIME),
)


def test_a_node_that_does_not_answer_ends_the_search_and_resume_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("period_ms", 500), ("timeout_ms", 4000), ("failure_threshold", 3)):
        monkeypatch.setenv(f"RAY_health_check_{name}", str(value))  # a minute otherwise
    bench = make_bench(tmp_path / "paused bench", train=320)
    driver = bench.start(*bench.search("paused", *SETTINGS))
    wait_for(lambda: bool(of_kind(bench.records("paused"), "trial_ended")), 300)
    [raylet] = [pid for pid, name in family(driver.pid).items() if name == "raylet"]
    os.kill(raylet, signal.SIGSTOP)
    try:
        out, said = driver.communicate(timeout=300)
    finally:
        os.killpg(driver.pid, signal.SIGKILL) if driver.poll() is None else None
    assert driver.returncode == 1 and "Traceback" not in said
    # The search itself notices, or on a busy machine its supervisor.
    assert "does not answer" in said
    has_noticed = "search 'paused': Ray's node on this machine does not answer" in said
    assert out.startswith("model, task mood (") == has_noticed  # the answer so far
    last = said.splitlines()[-1]
    assert last.startswith("elsa-tune:") and "`elsa-tune resume paused` " in last
    before = bench.records("paused")
    assert before[-1]["kind"] == "search_ended" and before[-1]["status"] == "failed"
    assert bench.query("select count(*) from runs where status = 'RUNNING'") == [(0,)]
    wait_for(lambda: not Path(f"/proc/{raylet}").exists())  # nothing of Ray is left behind

    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    resumed = bench.run("resume", "paused")
    assert resumed.returncode in (0, 3), resumed.stderr
    ends = of_kind(bench.records("paused"), "trial_ended")
    completed = [end["trial"] for end in ends if end["status"] == "completed"]
    assert len(completed) == len(set(completed)) == 24
