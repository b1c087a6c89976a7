"""A search that goes on where a trial takes another share of the machine."""

from __future__ import annotations

import json

import pytest

from elsa_tune.searching.cluster.capacity import Capacity, share_text
from tests.conftest import Run
from tests.searching import Bench, make_bench, of_kind

pytestmark = pytest.mark.timeout(400)

NAME = "moved"
LARGE = 999.0
TRIALS = (
    *("--set", "epochs=1", "--set", "depths=[0, 2]", "--set", "learning_rate=0.003"),
    *("--seeds", "1"),
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("share") / "bench")


def cpus_of_sessions(bench: Bench) -> list[str]:
    """Return the CPUs that a trial took in each session."""
    starts = of_kind(bench.records(NAME), "search_started")
    return [record["tags"]["cpus_per_trial"] for record in starts]


@pytest.mark.thorough
def test_a_search_of_a_larger_machine_goes_on_with_the_share_that_there_is(
    bench: Bench, ray: Capacity, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    begun = run(*bench.search(NAME, *TRIALS))
    assert begun.status in (0, 3), begun.err
    here = ray.resources(None, 0)
    # As it would be if it had begun on a machine with many cores.
    file = bench.journal(NAME).with_name("search.json")
    recorded = json.loads(file.read_text())
    recorded["resources"]["cpus"] = LARGE
    file.write_text(json.dumps(recorded))

    resumed = run("resume", NAME, "--seeds", "2")
    assert resumed.status in (0, 3), resumed.err
    taken = f"note: a trial takes {share_text(here)} in this session; search '{NAME}' began with"
    assert f"{taken} {LARGE:g} CPU" in resumed.err
    assert json.loads(file.read_text())["resources"]["cpus"] == LARGE

    asked = run("resume", NAME, "--seeds", "3", "--cpus-per-trial", "1.5")
    assert asked.status in (0, 3), asked.err
    assert cpus_of_sessions(bench) == [f"{here.cpus:g}", f"{here.cpus:g}", "1.5"]
    assert json.loads(file.read_text())["cpus_per_trial"] == 1.5

    refused = run("resume", NAME, "--seeds", "4", "--cpus-per-trial", f"{LARGE:g}")
    assert refused.status == 2
    assert f"{LARGE:g} CPUs per trial were asked for" in refused.err
    assert "give --cpus-per-trial above 0 and up to that" in refused.err


def test_the_command_that_began_a_search_may_ask_for_another_share(
    bench: Bench, ray: Capacity, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    limited = (*TRIALS, "--max-time", "0.001s")
    cut_off = run(*bench.search("again", *limited))
    assert cut_off.status in (1, 3), cut_off.err
    refused = run(*bench.search("again", *limited, "--cpus-per-trial", f"{LARGE:g}"))
    assert refused.status == 2
    assert f"{LARGE:g} CPUs per trial were asked for" in refused.err
