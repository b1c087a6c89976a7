"""A search that has a whole GPU for each trial is killed, and goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.searching import Bench, of_kind, wait_for
from tests.standin.searches import assert_as_on_a_cpu, calm_bench, ran, search, start

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]


def attempts(bench: Bench) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the start of each attempt at a trial, and the record that ended it or was last."""
    running: dict[str, float] = {}
    last: dict[str, Any] = {}
    for record in bench.records("killed"):
        key = record.get("trial", "")
        if record["kind"] == "search_started":
            yield from ((start, last) for start in running.values())
            running.clear()
        if record["kind"] == "trial_started" and not key.startswith("probe"):
            running[key] = record["time"]
        if record["kind"] == "trial_ended" and key in running:
            yield running.pop(key), record
        last = record


def test_a_killed_search_is_resumed(tmp_path: Path) -> None:
    bench = calm_bench(tmp_path)
    driver = start(bench, *search("killed", "--gpus-per-trial", "1"))

    def some_have_ended() -> bool:
        return len(of_kind(bench.records("killed"), "trial_ended")) >= 2

    wait_for(some_have_ended, seconds=200)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    # What it has used already is no budget for more; a larger one is, and its hours are counted.
    refused, _, said = ran(bench, "resume", "killed", "--gpu-hours", "0.0001")
    assert refused == 2 and "of its 0.0001 GPU-hours" in said, said
    status, _, err = ran(bench, "resume", "killed", "--gpu-hours", "10")
    assert status in (0, 3), err
    assert " GPU-hours used, in all sessions" in err
    points = bench.query("select step, value from metrics where key = 'gpu_hours' order by step")
    _, hours = points[-1]  # of the last session
    held = sum(end["time"] - start for start, end in attempts(bench))
    assert hours == pytest.approx(held / 3600, rel=1e-3)
    assert_as_on_a_cpu(bench, "killed", has_probe=False)
    starts = of_kind(bench.records("killed"), "search_started")
    assert [one["tags"]["gpus_per_trial"] for one in starts] == ["1", "1"]
