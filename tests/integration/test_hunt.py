"""A hunt as it is typed: it is interrupted, goes on, and takes every planned test."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.searching import ONE_AT_A_TIME, Bench, interrupted, make_bench, of_kind

pytestmark = pytest.mark.timeout(500)
# Of four layers: a ladder of N = 2, then 3 and 4.
HUNT = (
    *("--space", "hunt", "--set", "epochs=3", "--set", "learning_rate=[1e-3, 3e-3]"),
    *ONE_AT_A_TIME,
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("hunt"), evaluation=200, layers=4)


def measured(bench: Bench, name: str) -> Counter[str]:
    """Measuring trials that completed, by the first part of their keys."""
    ends = of_kind(bench.records(name), "trial_ended")
    completed = [end["trial"] for end in ends if end["status"] == "completed"]
    return Counter(key.rsplit("-lr")[0] for key in completed if key.startswith("measure"))


# Quickly, of a recorded hunt, in test_recorded_before.py.
@pytest.mark.thorough
@pytest.mark.usefixtures("ray")
def test_interrupted_while_measuring_it_goes_on_and_takes_every_test(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    journal: Path = bench.journal("cut")
    with interrupted(lambda: journal.exists() and '"trial":"measure' in journal.read_text()):
        cut = run(*bench.search("cut", *HUNT))
    # It ends of its own accord and names the way on.
    assert cut.status == 130 and "Traceback" not in cut.err, cut.err
    assert "elsa-tune resume cut" in cut.err
    assert of_kind(bench.records("cut"), "search_ended")[-1]["status"] == "interrupted"
    assert bench.query("select count(*) from runs where status = 'RUNNING'") == [(0,)]

    resumed = run("resume", "cut", "--until", "certified")
    assert resumed.status in (0, 3), resumed.err
    counts = measured(bench, "cut")
    # Two seeds of the full model, three at a first look, four at a second one.
    assert counts["measure-N0"] in (2, 3, 4)
    [ladder] = {
        json.dumps(r["value"])
        for r in of_kind(bench.records("cut"), "decision")
        if r["what"] == "ladder"
    }
    assert ladder in ("[]", '["N2"]')
    assert ("measure-N2" in counts) is (ladder == '["N2"]')
    deep = {key: count for key, count in counts.items() if key[-1] in "34"}
    # With two seeds it was given up; three are a first look, ten a second one.
    assert deep and all(count in (2, 3, 10) for count in deep.values()), counts
    starts = of_kind(bench.records("cut"), "trial_started")
    # Whatever is tested first follows the full model.
    first = "measure-N3-" if ladder == "[]" else "measure-N2-"
    looks = [one["params"]["looks"] for one in starts if one["trial"].startswith(first)]
    assert looks[0]["after"] == "N0" and all(one == looks[0] for one in looks)
    assert bench.query("select value from tags where key = 'decision.ladder'") == [(ladder,)]
    ends = of_kind(bench.records("cut"), "trial_ended")
    done = Counter(end["trial"] for end in ends if end["status"] == "completed")
    assert done and max(done.values()) == 1

    [found] = json.loads(run("operating-point", "--search", "cut", "--format", "json").out)
    looks = [point["contrast"] for point in found["curve"] if point["contrast"]]
    assert looks and all(contrast["look"]["planned"] == 2 for contrast in looks), (
        [(p["frozen_layers"], p["quality"]) for p in found["curve"]],
        found["reason"],
    )
    # Everything is certified, or the first depth that is not has no look left that may certify it.
    assert found["next_step"] is None
    if any(one["lower_bound"] <= 0 for one in looks):
        ends = "the last look at|would certify in about [012] % of|far (from|below) the target"
        assert re.search(ends, resumed.err), resumed.err


def test_what_is_no_hunt_is_refused_before_any_work(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    refused = run(*bench.search("no", *HUNT, "--seeds", "5"))
    assert refused.status == 2
    assert "a hunt runs as many seeds as its tests need" in refused.err
    refused = run(*bench.search("no", *HUNT, "--gpu-hours", "1"))
    assert refused.status == 2
    assert "trials train on CPUs here; give --max-time" in refused.err
    refused = run(*bench.search("no", "--space", "quick", "--until", "certified"))
    assert refused.status == 2
    assert "start another one by --space hunt" in refused.err
    assert not bench.journal("no").exists()
    planned = run(*bench.search("dry", *HUNT, "--dry-run"))
    assert planned.status == 0, planned.err
    # One seed of a full model at chance; with second looks 4 of it, and 5, 10 and 10.
    assert "1 to 29 trials" in planned.out
