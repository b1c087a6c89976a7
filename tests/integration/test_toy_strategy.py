"""A strategy of one's own: a class, and a line that registers it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elsa_tune import testing
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.searching.inputs import Inputs
from elsa_tune.searching.planning import strategies
from elsa_tune.searching.planning.plan import Plan, trial_range
from elsa_tune.searching.planning.strategy import (
    Findings,
    Outline,
    Step,
    Strategy,
    measuring_trials,
)
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import REFERENCE
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.search import Asha
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.journal_records import Decision
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.rows import rows_of

pytestmark = pytest.mark.timeout(400)


class Ends(Strategy):
    """Measures the full model, and then the last candidate alone."""

    name = "ends"

    @classmethod
    def outline(
        cls, inputs: Inputs, policy: Policy, *, seeds: int | None, whole_ladder: bool
    ) -> Outline:
        candidates = inputs.space.depths_for(inputs.layers)
        return Outline(candidates=candidates, explored=candidates[-1:], seeds=1)

    def next(self, findings: Findings) -> Step:
        last = self.spec.candidates[-1]
        decision = None
        if "aim" not in findings.decisions:
            decision = Decision(what="aim", value=last.key)
        for wanted in (REFERENCE, last):
            rates = {one: rate for one, rate in findings.rates.items() if one == wanted}
            trials = measuring_trials(self.spec, rates, findings.known)
            if wanted not in rates or trials:
                why = f"{wanted.key} comes next"
                return Step(
                    trials=trials, why=why, waits=wanted not in rates, decision=decision, note="aim"
                )
        return Step(why="both ends are known")

    def may_leave_out(self, candidate: Candidate) -> bool:
        return candidate not in (REFERENCE, self.spec.candidates[-1])

    def planned_seeds(self, candidate: Candidate, known: object) -> int:
        return 0 if self.may_leave_out(candidate) else self.spec.seeds


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(strategies, "_STRATEGIES", dict(strategies._STRATEGIES))
    strategies.register(Ends)
    yield


def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
    return 0.9 - 0.02 * depth.frozen_layers - 1000 * abs(learning_rate - 2e-5)


def test_a_registered_strategy_carries_out_a_search(
    places: StorePaths, ray: Capacity, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = testing.example_spec(
        strategy="ends", asha=Asha(), seeds=2, resources=ray.resources(ray.largest_cpus, 0)
    )
    state = testing.search(spec, quality, places.working_directory)
    assert state.is_complete and state.decisions["aim"] == spec.candidates[-1].key
    assert {trial.status for trial in state.planned_trials} <= {
        TrialStatus.COMPLETED,
        TrialStatus.STOPPED_EARLY,
    }
    rows = rows_of(state)
    measured = [row.candidate.key for row in rows if row.phase is Phase.MEASURE]
    assert measured == ["N0", "N0", "N6", "N6"]
    [answer] = answer_rows(rows)
    assert [point.candidate.key for point in answer.measured] == ["N0", "N6"]
    said = capfd.readouterr().err
    assert "measuring: aim" in said and said.index("N0 comes next") < said.index("N6 comes next")
    plan = Plan.of(spec, SearchPaths(places.storage, spec.name), state)
    assert not plan.left and plan.trials == len(state.planned_trials)
    assert trial_range(spec, plan.known) == (plan.trials, plan.trials)
