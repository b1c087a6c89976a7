"""A strategy of one's own: a class, and a line that registers it."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elsa_tune import testing
from elsa_tune.analysis.answer import Reason, passing
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.cli.app import main
from elsa_tune.errors import SpaceError
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.inputs import Inputs
from elsa_tune.searching.planning import strategies
from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.searching.planning.plan import Plan, exploring_share, planned_trials, trial_range
from elsa_tune.searching.planning.strategy import (
    Findings,
    Outline,
    Step,
    Strategy,
    explored_of,
    left_to_measure,
)
from elsa_tune.searching.specification import until_certain, with_seeds
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import NO_LOOKS, Asha, Resources, SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.rows import rows_of
from tests.registering import registered
from tests.unit.search_examples import planned_request

pytestmark = pytest.mark.timeout(400)

SEEDS = 3


class Bisect(Strategy):
    """Measures the full model, then the candidate in the middle of those that are still open."""

    name = "bisect"

    @classmethod
    def outline(cls, inputs: Inputs, policy: Policy, *, seeds: int | None, joined: bool) -> Outline:
        space = inputs.space
        candidates = tuple(each for each in space.candidates_for(inputs.layers) if each.is_tested)
        if REFERENCE not in candidates:
            raise SpaceError("strategy bisect compares depths with the full model (0); add 0")
        for candidate in candidates:
            if candidate.family != REFERENCE.family:
                raise SpaceError(
                    f"strategy bisect needs depths in order, and '{candidate.label}' is no depth; "
                    "leave it out"
                )
        if joined:
            raise SpaceError("strategy bisect measures other depths for each task; search one")
        return Outline(
            candidates=candidates,
            explored=explored_of(space, candidates),
            seeds=seeds or space.seeds,
        )

    @property
    def most_measured(self) -> int:
        frozen = len(self.spec.candidates) - 1
        return 1 + frozen.bit_length()

    def next(self, findings: Findings) -> Step:
        candidates = self.spec.candidates
        last_kept = 0
        first_failed = len(candidates)
        place = 0  # the full model comes first
        while True:
            candidate = candidates[place]
            why = f"{candidate.key} comes next"
            if candidate not in findings.chosen_rates:
                return Step(why=why, waits=True)
            rates = {candidate: findings.chosen_rates[candidate]}
            trials = left_to_measure(self.spec, rates, findings.known)
            if trials:
                return Step(trials=trials, why=why)
            curve = findings.curve()
            if curve is None or curve.full is None or curve.full.quality is None:
                return Step(why="the full model gave no result")
            if candidate in passing(curve, self.spec.target):
                last_kept = place
            else:
                first_failed = place
            if first_failed - last_kept <= 1:
                return Step(why="the smallest depth is found")
            place = (last_kept + first_failed) // 2


@pytest.fixture(autouse=True)
def bisect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(strategies, "_STRATEGIES", dict(strategies._STRATEGIES))
    strategies.register(Bisect)
    yield


def spec_of(ray: Capacity | None = None) -> SearchSpec:
    depths = (FULL_MODEL, *map(FreezeDepth.of, range(1, 7)))
    resources = Resources(cpus=1, gpus=0)
    if ray is not None:
        resources = ray.resources(ray.largest_cpus, 0)
    return testing.example_spec(
        strategy="bisect",
        candidates=depths,
        explored=depths,
        asha=Asha(),
        seeds=SEEDS,
        planned_seeds=SEEDS,
        resources=resources,
    )


def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
    lost = 0.03 * depth.frozen_layers + 0.001 * seed
    return 0.95 - lost - 1000 * abs(learning_rate - 2e-5)


@pytest.mark.thorough
def test_a_registered_strategy_carries_out_a_search_that_certifies_nothing(
    places: StorePaths, ray: Capacity, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(ray)
    state = testing.search(spec, quality, places.working_directory)
    assert state.is_complete
    said = capfd.readouterr().err
    path = re.findall(r"(\w+) comes next", said)
    assert path[0] == "N0" and 2 < len(path) <= 4
    rows = rows_of(state)
    measured = [row.candidate.key for row in rows if row.phase is Phase.MEASURE]
    assert sorted(measured) == sorted(path * SEEDS)
    plan = Plan.of(spec, SearchPaths(places.storage, spec.name), state)
    assert not plan.left and plan.trials == len(state.planned_trials)
    fewest, most = trial_range(spec, plan.known)
    assert fewest == plan.trials <= most <= plan.trials + SEEDS
    its_answer_says_that_it_was_not_planned_to_certify(rows)


def its_answer_says_that_it_was_not_planned_to_certify(rows: list[ResultRow]) -> None:
    assert {row.looks for row in rows if row.phase is Phase.MEASURE} == {NO_LOOKS}
    [answer] = answer_rows(rows)
    chosen = answer.operating_point
    assert chosen is not None and not chosen.candidate.is_reference
    assert answer.reason is Reason.NOT_PLANNED_TO_CERTIFY
    assert answer.certified is None and answer.corrected_certified is None
    assert answer.plausible_candidates is None and answer.next_step is None
    # Without that mark the same runs would be tested, though they chose which depths there are.
    [unmarked] = answer_rows([dataclasses.replace(row, looks=None) for row in rows])
    assert unmarked.certified is not None


def test_its_counts_follow_from_the_most_that_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = "search --model minilm --task stdlib --set strategy=bisect --set depths=all --dry-run"
    monkeypatch.setattr(sys, "argv", ["elsa-tune", *command.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    printed, said = capsys.readouterr()
    [depths] = re.findall(r"^depths +(.*) frozen layers$", printed, re.MULTILINE)
    frozen = depths.count(",")  # the full model stands first
    measuring = r"^measuring +(\d+) to (\d+) trials$"
    [(fewest, most)] = re.findall(measuring, printed, re.MULTILINE)
    assert int(fewest) == SEEDS
    assert int(most) == SEEDS * (1 + math.ceil(math.log2(frozen + 1)))
    assert int(most) < SEEDS * (1 + frozen)
    assert "strategy bisect certifies nothing" in said


def test_a_candidate_counts_once_it_is_measured() -> None:
    spec = spec_of()
    strategy = strategies.strategy_of(spec)
    full = spec.candidates[0]
    middle = spec.candidates[3]
    fewest, most = trial_range(dataclasses.replace(spec, extend=None), [])
    exploring = spec.tries * len(spec.explored)
    more_seeds = dataclasses.replace(spec, seeds=10)
    measuring = 10 * strategy.most_measured
    assert exploring_share(more_seeds) == exploring / (exploring + measuring)
    assert (fewest, most) == (exploring + SEEDS, exploring + SEEDS * strategy.most_measured)
    begun = [
        KnownTrial(trial=trial, status=TrialStatus.COMPLETED, qualities=(0.9,))
        for trial in left_to_measure(spec, {full: 2e-5, middle: 2e-5}, [])
    ]
    assert planned_trials(spec, begun, middle) == spec.tries + SEEDS
    assert planned_trials(spec, begun, spec.candidates[1]) == spec.tries
    assert trial_range(spec, begun) == (exploring + 2 * SEEDS, most)
    # The rest may be any: the most expensive ones stand for them.
    assert tuple(strategy.undecided(begun)) == spec.candidates[1:3]
    assert strategy.measuring_at(0).keys() == set(spec.candidates[: strategy.most_measured])


def test_who_skips_candidates_certifies_nothing_whatever_the_class_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Bisect, "certifies", True)
    spec = spec_of()
    strategy = strategies.strategy_of(spec)
    assert {strategy.looks(candidate, {}) for candidate in spec.candidates} == {NO_LOOKS}


def test_it_refuses_what_is_for_hunts_alone() -> None:
    spec = spec_of()
    with pytest.raises(SpaceError, match="bisect, which certifies nothing"):
        until_certain(spec)
    assert with_seeds(spec, SEEDS + 2).seeds == SEEDS + 2


def test_a_full_model_without_result_ends_it() -> None:
    spec = spec_of()
    full, other = spec.candidates[:2]
    ended = [
        KnownTrial(trial=trial, status=TrialStatus.DIVERGED, qualities=())
        for trial in left_to_measure(spec, {full: 2e-5}, [])
    ]
    findings = Findings(known=ended, chosen_rates={full: 2e-5, other: 2e-5}, curve=lambda: None)
    step = strategies.strategy_of(spec).next(findings)
    assert not step.trials and not step.waits
    assert step.why == "the full model gave no result"


def test_it_takes_depths_alone_and_of_these_what_may_be_the_answer(tmp_path: Path) -> None:
    space = load_space("demo", ["strategy=bisect", "depths=[0, embeddings, 3, 6]"])
    planned = planned_request(tmp_path, space, "demo").spec
    assert [candidate.label for candidate in planned.candidates] == ["0", "3", "6"]
    with registered("tests.biases"):
        space = load_space("demo", ["strategy=bisect", "depths=[0, biases, 6]"])
        with pytest.raises(SpaceError, match="'biases' is no depth"):
            planned_request(tmp_path, space, "demo")


class FullModelLast(Bisect):
    """A strategy that would certify, but begins its tests behind the full model."""

    name = "full_model_last"
    certifies = True

    @classmethod
    def outline(cls, inputs: Inputs, policy: Policy, *, seeds: int | None, joined: bool) -> Outline:
        outline = super().outline(inputs, policy, seeds=seeds, joined=joined)
        return dataclasses.replace(outline, candidates=outline.candidates[::-1])


def test_one_that_certifies_names_the_full_model_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategies.register(FullModelLast)
    space = load_space("demo", ["strategy=full_model_last"])
    with pytest.raises(SpaceError, match="must name the full model first"):
        planned_request(tmp_path, space, "demo")
    monkeypatch.setattr(FullModelLast, "certifies", False)
    assert planned_request(tmp_path, space, "demo").spec.candidates[-1] == REFERENCE
