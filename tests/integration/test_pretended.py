"""A search's own decisions in a real Ray run, whose trials only pretend to train."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from elsa_tune import testing
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.planning.known import known_trial, tries_of
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import Extension, Policy
from elsa_tune.specs.rate_space import RateList, RateRange
from elsa_tune.specs.search import Asha, SamplerName, SearchSpec
from elsa_tune.specs.trial import Phase, Recipe, TrialStatus
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.state import SearchState
from tests.conftest import Run
from tests.searching import family, wait_for

pytestmark = pytest.mark.timeout(400)

ACTORS = ("ray::Mailbox", "ray::ImplicitFunc")
DEEP = FreezeDepth(3, True)
RECIPE = Recipe(epochs=4, train_size=100)


def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
    """Return a quality that falls with depth, and away from the depth's best rate.

    That rate is 3e-5, at the deep depth 1e-4, which lies beyond the given range; there 1e-5
    diverges.
    """
    if depth == DEEP and learning_rate == 1e-5:
        return math.nan
    start, best = (0.9, 3e-5) if depth.is_reference else (0.7, 1e-4)
    return start - 1000 * abs(learning_rate - best) + 0.01 * epoch


def searched(spec: SearchSpec, places: StorePaths, quality: testing.Quality) -> SearchState:
    state = testing.search(spec, quality, places.working_directory)
    # A Ray that was there before goes on, and nothing of the search stays in it.
    wait_for(lambda: not any(name.startswith(ACTORS) for name in family(os.getpid()).values()))
    return state


@pytest.mark.thorough
def test_a_deeper_depth_though_always_worse_keeps_its_best_trial_and_goes_on_beyond_the_rates(
    places: StorePaths, ray: Capacity
) -> None:
    depths = (FULL_MODEL, DEEP)
    spec = testing.example_spec(
        candidates=depths,
        explored=depths,
        rates=RateRange(low=1e-5, high=5e-5, step=1e-5),
        tries=5,
        seeds=1,
        asha=Asha(grace=1, reduction_factor=2),
        extend=Extension(),
        recipe=RECIPE,
        resources=ray.resources(1, 0),
    )
    state = searched(spec, places, quality)
    known = [known_trial(spec, trial) for trial in state.trials.values()]
    exploring = [trial for trial in known if trial.trial.phase is Phase.EXPLORE]
    for depth, best_rate, beyond in ((FULL_MODEL, 3e-5, []), (DEEP, 1e-4, [1e-4, 2e-4])):
        at_depth = [trial for trial in exploring if trial.trial.candidate == depth]
        assert [trial.trial.learning_rate for trial in at_depth[5:]] == beyond
        best = [trial for trial in at_depth if trial.trial.learning_rate == best_rate]
        assert [trial.status for trial in best] == [TrialStatus.COMPLETED]
        assert len(best[0].qualities) == RECIPE.evaluations
    # Early stopping did happen: otherwise this would prove nothing.
    stopped = [trial for trial in exploring if trial.status is TrialStatus.STOPPED_EARLY]
    assert stopped and all(len(trial.qualities) < RECIPE.evaluations for trial in stopped)

    diverged = [trial for trial in known if trial.status is TrialStatus.DIVERGED]
    assert [trial.trial.key for trial in diverged] == ["explore-N3-lr1e-05-s0"]
    end = state.trials["explore-N3-lr1e-05-s0"].end
    assert end is not None and end.message.endswith("the pretended quality is nan")
    measured = [trial for trial in known if trial.trial.phase is Phase.MEASURE]
    assert {(trial.trial.candidate, trial.trial.learning_rate) for trial in measured} == {
        (FULL_MODEL, 3e-5),
        (DEEP, 1e-4),
    }


def collapsing(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
    """Return a quality that rises with the rate up to 5e-5, and is chance above it."""
    if learning_rate > 5e-5:
        return 0.5
    return 0.7 + 1000 * learning_rate + 0.01 * epoch


@pytest.mark.thorough
def test_a_depth_is_measured_one_step_below_its_best_rate_where_the_next_higher_one_collapsed(
    places: StorePaths, ray: Capacity, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = testing.example_spec(
        candidates=(FULL_MODEL, FreezeDepth.of(3)),
        explored=(FULL_MODEL, FreezeDepth.of(3)),
        rates=RateRange(low=1e-5, high=5e-5, step=1e-5),
        tries=5,
        seeds=2,
        chance=0.5,
        extend=Extension(),
        policy=Policy(kept_off_edge=0.95),
        recipe=RECIPE,
        resources=ray.resources(1, 0),
    )
    state = searched(spec, places, collapsing)
    known = [known_trial(spec, trial) for trial in state.trials.values()]
    rates = {(one.candidate.label, one.learning_rate) for one in known if one.measures}
    assert rates == {("0", 5e-5), ("3", 4e-5)}
    assert state.decisions["learning_rates"] == {"0": 5e-5, "3": 4e-5}
    said = capfd.readouterr().err
    assert "The last 3 layers are measured at 4e-5, not at 5e-5" in said
    assert "All 6 layers are measured" not in said


def drifting(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
    """Return a quality that falls with depth, and whose best rate grows with it.

    That rate is 4e-5 at the full model, eight times that at N = 3; the higher ones of all diverge.
    """
    if learning_rate > 4e-3:
        return math.nan
    octaves = math.log2(learning_rate / 4e-5) - depth.frozen_layers
    return 0.5 + (0.3 - 0.02 * depth.frozen_layers) * math.exp(-(octaves**2) / 8) + 0.01 * epoch


# Quickly, of what it gives alone, in tests/unit/test_neighbours.py.
@pytest.mark.thorough
def test_one_study_of_all_depths_finds_each_ones_rate(places: StorePaths, ray: Capacity) -> None:
    depths = (FULL_MODEL, FreezeDepth(2, True), DEEP)
    spec = testing.example_spec(
        candidates=depths,
        explored=depths,
        rates=RateRange(low=1e-5, high=5e-5, step=1e-5),
        sampler=SamplerName.GP,
        seeds=1,
        asha=Asha(grace=1, reduction_factor=2),
        extend=Extension(),
        recipe=RECIPE,
        # One trial at a time: what is proposed depends on what is known by then.
        resources=ray.resources(ray.largest_cpus, 0),
    )
    state = searched(spec, places, drifting)
    known = [known_trial(spec, trial) for trial in state.trials.values()]
    measured = [trial.trial for trial in known if trial.trial.phase is Phase.MEASURE]
    assert {trial.candidate for trial in measured} == set(depths)
    for trial in measured:
        assert abs(math.log2(trial.learning_rate / 4e-5) - trial.candidate.rank) < 1
    for depth in depths:
        rates = [one.trial.learning_rate for one in tries_of(known, depth)]
        assert len(rates) == len(set(rates)) <= 7
    # Asked again from the record alone, it has nothing left to try.
    assert strategy_of(spec).slots(known) == ()


def test_a_limit_that_gives_exploring_no_rate_leaves_it_the_rest_of_the_time(
    places: StorePaths, ray: Capacity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exploring has no time of its own, and its first trial begins after that."""
    monkeypatch.setattr("elsa_tune.searching.tune.searcher.exploring_share", lambda spec: 0.0)
    spec = testing.example_spec(
        candidates=(FULL_MODEL,),
        explored=(FULL_MODEL,),
        rates=RateList(values=(3e-5,)),
        tries=1,
        seeds=3,
        max_time=300.0,
        recipe=RECIPE,
        resources=ray.resources(ray.largest_cpus, 0),  # one trial at a time: fewer processes
    )
    state = searched(spec, places, quality)
    explored, *measured = sorted(state.trials.values(), key=lambda trial: trial.key)
    # It gave a rate, which was measured.
    assert explored.key.startswith("explore") and explored.start.attempt == 1
    assert [trial.status for trial in (explored, *measured)] == [TrialStatus.COMPLETED] * 4


def test_a_trial_that_diverges_ends_no_worker(
    places: StorePaths, ray: Capacity, capfd: pytest.CaptureFixture[str]
) -> None:
    noted = places.root / "workers.txt"

    def noting(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        with noted.open("a") as file:
            file.write(f"{os.getpid()} {'torch' in sys.modules}\n")
        return quality(depth, learning_rate, seed, epoch)

    depths = (FULL_MODEL, DEEP)
    spec = testing.example_spec(
        candidates=depths,
        explored=depths,
        rates=RateList(values=(1e-5, 3e-5)),
        tries=2,
        seeds=1,
        asha=None,
        recipe=RECIPE,
        resources=ray.resources(ray.largest_cpus, 0),  # one worker
    )
    state = searched(spec, places, noting)
    ended = {trial.key: trial.status for trial in state.trials.values()}
    assert ended.pop("explore-N3-lr1e-05-s0") is TrialStatus.DIVERGED
    assert len(ended) == 5 and set(ended.values()) == {TrialStatus.COMPLETED}
    # The one that diverged was neither the first nor the last; and what trains was not imported.
    [worker] = set(noted.read_text().splitlines())
    assert worker == f"{worker.split()[0]} False"
    assert "Trial" not in capfd.readouterr().err  # Ray's own words


def test_a_pretended_search_is_answered_and_gone_on_with_as_any_other(
    places: StorePaths, ray: Capacity, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        if seed == 2:
            raise OSError("no such disk")
        return quality(depth, learning_rate, seed, epoch)

    spec = testing.example_spec(
        candidates=(FULL_MODEL, DEEP),
        explored=(),
        rates=RateList(values=(3e-5,)),
        tries=0,
        recipe=RECIPE,
        resources=ray.resources(ray.largest_cpus, 0),
    )
    state = searched(spec, places, failing)
    failed = [trial for trial in state.trials.values() if trial.status is TrialStatus.FAILED]
    assert [trial.end.message for trial in failed if trial.end] == ["OSError: no such disk"] * 2
    state = searched(spec, places, quality)
    assert {trial.status for trial in state.trials.values()} == {TrialStatus.COMPLETED}
    assert len(state.trials) == 4
    monkeypatch.chdir(places.working_directory)
    shutil.rmtree(places.storage / spec.name / "report")
    answer = run("operating-point", "--search", spec.name, "--format", "json")
    assert answer.status == 0 and '"target"' in answer.out


def test_a_trial_whose_worker_is_killed_is_given_up_and_tried_again_later(
    places: StorePaths, ray: Capacity, capfd: pytest.CaptureFixture[str]
) -> None:
    deadly = places.root / "deadly"
    deadly.touch()

    def killed(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        if depth == DEEP and seed == 0 and epoch == 2 and deadly.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return quality(depth, learning_rate, seed, epoch)

    spec = testing.example_spec(
        candidates=(FULL_MODEL, DEEP),
        explored=(FULL_MODEL, DEEP),
        rates=RateList(values=(3e-5, 1e-4)),
        tries=1,
        seeds=1,
        asha=None,
        recipe=RECIPE,
        resources=ray.resources(ray.largest_cpus, 0),
    )
    state = searched(spec, places, killed)
    assert state.status is SearchStatus.COMPLETED  # without it
    assert state.end is not None
    ends = {key: trial.end for key, trial in state.trials.items()}
    [given_up] = [key for key, end in ends.items() if end and end.status is TrialStatus.FAILED]
    assert given_up.startswith("explore-N3") and state.trials[given_up].start.attempt == 2
    assert given_up in state.end.message and "resume" in state.end.message
    del ends[given_up]

    deadly.unlink()
    capfd.readouterr()
    state = searched(spec, places, killed)
    assert "exploring: 1 trial that failed, once more" in capfd.readouterr().err
    again = state.trials[given_up]
    assert again.status is TrialStatus.COMPLETED and again.start.attempt == 3
    assert {key: state.trials[key].end for key in ends} == ends
    with sqlite3.connect(places.database, timeout=30) as store:
        statuses = store.execute("select distinct status from runs").fetchall()
    assert statuses == [("FINISHED",)]


@pytest.mark.thorough
def test_a_search_is_gone_on_with_from_its_copy(
    places: StorePaths, ray: Capacity, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way, of machines that are gone, is in tests/faults/test_lost_record.py."""
    kept = tmp_path / "kept"
    spec = testing.example_spec(
        candidates=(FULL_MODEL,),
        explored=(FULL_MODEL,),
        seeds=2,
        recipe=RECIPE,
        resources=ray.resources(1, 0),
        artifacts=str(kept),
    )
    searched(spec, places, quality)
    own = SearchPaths(places.storage, spec.name)
    journal = own.journal.read_bytes()
    part = kept / spec.name / "journal" / "000000000000.jsonl"
    specification = kept / spec.name / "search.json"
    assert part.read_bytes() == journal
    assert specification.read_bytes() == own.specification.read_bytes()
    assert not (kept / spec.name / "lease.json").exists()

    shutil.rmtree(own.folder)
    monkeypatch.chdir(places.working_directory)
    again = run("resume", spec.name, "--artifacts", str(kept))
    assert again.status in (0, 3) and f"fetching it from {kept}" in again.err, again.err
    assert "it is complete" in again.err
    # The report was drawn again, which is a record more.
    assert own.journal.read_bytes().startswith(journal)
    assert part.read_bytes() == own.journal.read_bytes() != journal
    assert (own.report / "index.html").exists()

    assert run("searches", "--delete", spec.name).status == 0
    assert not own.folder.exists() and list((kept / spec.name).rglob("*.*")) == []
    gone = run("resume", spec.name, "--artifacts", str(kept))
    assert gone.status == 2 and f"unknown search '{spec.name}'" in gone.err
