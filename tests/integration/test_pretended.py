"""A search's own decisions in a real Ray run, whose trials only pretend to train."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from elsa_tune.searching.planning.known import known_trial
from elsa_tune.searching.session import run_session
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.searching.tune.trainable import Train
from elsa_tune.specs.freeze import FULL_MODEL
from elsa_tune.specs.policy import Extension
from elsa_tune.specs.search import Asha, RateList, RateRange, Resources, SearchSpec
from elsa_tune.specs.trial import Phase, Recipe, TrialStatus
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.mlflow_writer import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState
from tests.pretended import DEEP, EVALUATIONS, pretend, pretend_and_name_the_process
from tests.searching import family, wait_for
from tests.unit.search_examples import make_spec
from tests.unit.tiny_trials import make_data

pytestmark = pytest.mark.timeout(400)

ACTORS = ("ray::Mailbox", "ray::ImplicitFunc")


def run(spec: SearchSpec, folder: Path, share: Resources, train: Train) -> SearchState:
    """A whole session with a made-up trial in it."""
    spec = dataclasses.replace(spec, resources=share)
    paths = SearchPaths(folder, spec.name)
    paths.check_writable()
    store = MlflowStore(f"sqlite:///{folder}/mlflow.db")
    run_session(spec, paths, make_data(), store, train=train)
    # A Ray that was there before goes on, and nothing of the search stays in it.
    wait_for(lambda: not any(one.startswith(ACTORS) for one in family(os.getpid()).values()))
    return SearchState.replay(read_journal(paths.journal))


def test_a_deeper_depth_though_always_worse_keeps_its_best_trial_and_goes_on_beyond_the_rates(
    tmp_path: Path, ray: Capacity
) -> None:
    depths = (FULL_MODEL, DEEP)
    spec = make_spec(
        depths=depths,
        explored=depths,
        rates=RateRange(low=1e-5, high=5e-5, step=1e-5),
        tries=5,
        seeds=1,
        asha=Asha(grace=1, reduction_factor=2),
        extend=Extension(),
        recipe=Recipe(epochs=EVALUATIONS, train_size=100),
    )
    state = run(spec, tmp_path, ray.resources(1, 0), pretend)
    known = [known_trial(spec, trial) for trial in state.trials.values()]
    exploring = [one for one in known if one.trial.phase is Phase.EXPLORE]
    for depth, best_rate, beyond in ((FULL_MODEL, 3e-5, []), (DEEP, 1e-4, [1e-4, 2e-4])):
        at_depth = [one for one in exploring if one.trial.depth == depth]
        assert [one.trial.learning_rate for one in at_depth[5:]] == beyond
        best = [one for one in at_depth if one.trial.learning_rate == best_rate]
        assert [one.status for one in best] == [TrialStatus.COMPLETED]
        assert len(best[0].qualities) == EVALUATIONS
    # Early stopping did happen: otherwise this would prove nothing.
    stopped = [one for one in exploring if one.status is TrialStatus.STOPPED_EARLY]
    assert stopped and all(len(one.qualities) < EVALUATIONS for one in stopped)

    diverged = [one for one in known if one.status is TrialStatus.DIVERGED]
    assert [one.trial.key for one in diverged] == ["explore-N3-lr1e-05-s0"]
    end = state.trials["explore-N3-lr1e-05-s0"].end
    assert end is not None and "the training loss became nan" in end.message
    measured = [one for one in known if one.trial.phase is Phase.MEASURE]
    assert {(one.trial.depth, one.trial.learning_rate) for one in measured} == {
        (FULL_MODEL, 3e-5),
        (DEEP, 1e-4),
    }


def test_a_limit_that_gives_exploring_no_rate_leaves_it_the_rest_of_the_time(
    tmp_path: Path, ray: Capacity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exploring has no time of its own, and its first trial begins after that."""
    monkeypatch.setattr("elsa_tune.searching.session.exploring_share", lambda spec: 0.0)
    depths = (FULL_MODEL,)
    spec = make_spec(
        depths=depths,
        explored=depths,
        rates=RateList(values=(3e-5,)),
        tries=1,
        seeds=3,
        max_time=300.0,
        recipe=Recipe(epochs=EVALUATIONS, train_size=100),
    )
    share = ray.resources(ray.largest_cpus, 0)  # one trial at a time: fewer processes to start
    state = run(spec, tmp_path, share, pretend)
    explored, *measured = sorted(state.trials.values(), key=lambda trial: trial.key)
    # It gave a rate, which was measured.
    assert explored.key.startswith("explore") and explored.start.attempt == 1
    assert [one.status for one in (explored, *measured)] == [TrialStatus.COMPLETED] * 4


def test_a_trial_that_diverges_ends_no_worker(
    tmp_path: Path, ray: Capacity, capfd: pytest.CaptureFixture[str]
) -> None:
    depths = (FULL_MODEL, DEEP)
    spec = make_spec(
        depths=depths,
        explored=depths,
        rates=RateList(values=(1e-5, 3e-5)),
        tries=2,
        seeds=1,
        asha=None,
        recipe=Recipe(epochs=EVALUATIONS, train_size=100),
    )
    share = ray.resources(ray.largest_cpus, 0)  # one worker
    state = run(spec, tmp_path, share, pretend_and_name_the_process)
    ended = {trial.key: trial.status for trial in state.trials.values()}
    assert ended.pop("explore-N3-lr1e-05-s0") is TrialStatus.DIVERGED
    assert len(ended) == 5 and set(ended.values()) == {TrialStatus.COMPLETED}
    # It was neither the first nor the last.
    processes = {
        report.metrics["process"] for trial in state.trials.values() for report in trial.reports
    }
    assert len(processes) == 1
    assert "Trial" not in capfd.readouterr().out  # Ray's own words
