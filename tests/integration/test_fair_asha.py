"""In a real Ray run the deeper of two depths, though always worse, keeps its best trial to the
end, and goes on beyond the given rates to find it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from elsa_tune.search.planning.known import known_trial
from elsa_tune.search.session import run_session
from elsa_tune.search.tune.cluster import ray_session
from elsa_tune.specs.freeze import FULL_MODEL
from elsa_tune.specs.search import Asha, Extension, RateRange, SearchSpec
from elsa_tune.specs.trial import Phase, Recipe, TrialStatus
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.mlflow_writer import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState
from tests.pretended import DEEP, EVALUATIONS, pretend
from tests.unit.search_examples import make_spec
from tests.unit.tiny_trials import make_data

pytestmark = [
    pytest.mark.timeout(400),
    # Ray leaves the pipes of its processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def run(spec: SearchSpec, folder: Path) -> SearchState:
    """A whole session with a made-up trial in it."""
    paths = SearchPaths(folder, spec.name)
    paths.check_writable()
    store = MlflowStore(f"sqlite:///{folder}/mlflow.db", folder / "artifacts")
    run_session(spec, paths, make_data(), store, pretend)
    return SearchState.replay(read_journal(paths.journal))


def test_the_deeper_depths_best_trial_completes_and_a_diverged_one_is_named(tmp_path: Path) -> None:
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
    with ray_session(None) as capacity:
        spec = dataclasses.replace(spec, resources=capacity.resources(1, 0))
        state = run(spec, tmp_path)
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
