"""A search over Ray whose workers share a GPU, its answer, and its exported model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.searching import of_kind
from tests.standin.searches import assert_as_on_a_cpu, calm_bench, ran, search

# Quickly, trial by trial, in test_trials.py and test_before_a_search.py.
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]


def test_a_search_shares_the_gpu_and_finds_what_a_cpu_finds(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fourth of it for each trial: as many run at once as there are cores, two."""
    bench = calm_bench(tmp_path)
    status, out, err = ran(bench, *search("shared", "--gpus-per-trial", "0.25"))
    assert status in (0, 3), err
    assert "Trial" not in out and "Traceback" not in err
    [started] = of_kind(bench.records("shared"), "search_started")
    assert started["tags"]["gpus_per_trial"] == "0.25"
    assert "Stand-in H100" in started["tags"]["machine"]
    assert_as_on_a_cpu(bench, "shared")
    monkeypatch.chdir(bench.folder)
    [answer] = json.loads(run("operating-point", "--search", "shared", "--format", "json").out)
    assert [point["seeds"] for point in answer["curve"]] == [2, 2]
    assert answer["linear_probe"]["quality"] > 0.5
    exported = run("export", "--search", "shared", "--layers", "2", "--out", "exported")
    assert exported.status == 0, exported.err
    final = [one for one in of_kind(bench.records("shared"), "report") if "final" in one["trial"]]
    assert final and (bench.folder / "exported" / "model.safetensors").exists()
