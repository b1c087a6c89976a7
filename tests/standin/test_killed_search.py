"""A search that has a whole GPU for each trial is killed, and goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.searching import of_kind, wait_for
from tests.standin.searches import assert_as_on_a_cpu, calm_bench, ran, search, start

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]


def test_a_killed_search_is_resumed(tmp_path: Path) -> None:
    bench = calm_bench(tmp_path)
    driver = start(bench, *search("killed", "--gpus-per-trial", "1"))

    def three_have_ended() -> bool:
        return len(of_kind(bench.records("killed"), "trial_ended")) >= 3

    wait_for(three_have_ended, seconds=200)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    status, _, err = ran(bench, "resume", "killed")
    assert status in (0, 3), err
    assert_as_on_a_cpu(bench, "killed")
    starts = of_kind(bench.records("killed"), "search_started")
    assert [one["tags"]["gpus_per_trial"] for one in starts] == ["1", "1"]
