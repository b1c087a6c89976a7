"""A search is planned, resumed and answered by the policy that it was recorded with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.groups import comparison_groups
from elsa_tune.analysis.statistics import intervals, resampling
from elsa_tune.errors import ResultsError
from elsa_tune.searching.planning.plan import exploring_share
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.record import facts_of, started
from elsa_tune.searching.specification import (
    differing_settings,
    load_specification,
    save_specification,
    specify,
)
from elsa_tune.specs.policy import (
    UNRECORDED,
    Claim,
    Extension,
    Policy,
    SeedCounts,
    SeedTerms,
    common_policy,
)
from elsa_tune.specs.space import load_space
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.journal_records import TrialStarted
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState
from tests.recorded_before import NEW_KEYS
from tests.unit.result_rows import falling_curve, row
from tests.unit.search_examples import asked_for, make_spec, planned_request
from tests.unit.test_hunt import CLEAR, Drawn
from tests.unit.test_hunt import spec as hunt_spec

# By which searches were planned before policies were recorded. These values never change.
BEFORE_POLICIES: dict[str, Any] = {
    "tries": 2,
    "extension": {"low": 1e-6, "high": 1e-2, "tries": 8},
    "noise": 0.005,
    "rate_factor": 2.0,
    "widest_gap": 4.5,
    "least_step": 1.2,
    "cheap_cost": 0.05,
    "cheap_patience": 2,
    "first_points": 3,
    "ask_limit": 8,
    "grace": 0.5,
    "exploring_share": 0.5,
    "deep_share": 0.25,
    "ladder_depths": 3,
    "looks": ((4, 2), (8, 3)),
    "ladder_looks": ((2, 2), (5, 3)),
    "thorough_seeds": 5,
    "above_chance": 1.645,
    "clear": 2.5,
    "likely": 0.5,
    "free_cost": 0.03,
    "promising": 0.2,
    "no_promise": 0.02,
    "error": 0.05,
    "ladder_error": 0.005,
    "first_look_share": 0.6,
    "fewest_seeds": 2,
    "fewest_freedom": 3,
    "fewest_units": 1,
    "kept_off_edge": None,
    "prior_freedom": 2,
    "seed_terms": "drawn",
    "approximation_error": 0,
    "approximation_error_of_pairs": 0,
    "seeds_before_giving_up": None,
    "failed_loss": None,
    "by_seeds_alone": True,
    "least_example_share": 0.25,
    "learning_share": 0.5,
    "at_chance": 5e-5,
    "exact_decimals": 6,
    "same_score": 1e-5,
    "rounding": 1e-9,
}


FIELDS = [field.name for field in dataclasses.fields(Policy)]


def draw_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw 500 times."""
    for module in (intervals, resampling):
        monkeypatch.setattr(module, "RESAMPLES", 500)
    monkeypatch.setattr(resampling.resample, "__defaults__", (500,))
    intervals._student.cache_clear()


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    draw_less(monkeypatch)
    yield
    intervals._student.cache_clear()


def changed(name: str) -> Any:
    """Return another value of a field that is allowed there."""
    value = getattr(Policy(), name)
    if isinstance(value, bool):
        return not value
    if isinstance(value, SeedTerms):
        return SeedTerms.DRAWN
    if name == "prior_freedom":
        return 1.0
    if isinstance(value, Extension):
        return Extension(low=1e-5, high=1e-3, tries=2)
    if name in ("looks", "ladder_looks"):
        return (SeedCounts(3, 3), SeedCounts(6, 6))
    if name == "claim":
        return Claim.BOTH
    if name == "first_rates":
        return (4e-5, 1e-5)
    others = (value + 1, value + 2) if isinstance(value, int) else (value / 2, value / 4)
    return next(other for other in others if other != getattr(UNRECORDED, name))


def later_version(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Give these fields another default."""
    before = Policy()
    defaults = Policy.__init__.__kwdefaults__  # type: ignore[misc]  # of the class, not an instance
    of_extension = Extension.__init__.__kwdefaults__  # type: ignore[misc]  # likewise
    for name in names:
        if name == "extension":
            for part, value in dataclasses.asdict(changed(name)).items():
                monkeypatch.setitem(of_extension, part, value)
        else:
            monkeypatch.setitem(defaults, name, changed(name))
    for name in FIELDS:
        assert (getattr(Policy(), name) != getattr(before, name)) is (name in names), name
    for name in names:
        # Of two values, the other one is that of before.
        if name not in ("seed_terms", "by_seeds_alone", "claim"):
            assert getattr(Policy(), name) != getattr(UNRECORDED, name), name


def what_it_does(one: Drawn, stride: int = 4) -> list[Any]:
    """Return what a hunt would do after its trials, so many at a time, and its answer."""
    strategy = strategy_of(one.spec)
    keys = list(one.known)
    found: list[Any] = [strategy.looks(depth, {}) for depth in one.spec.candidates]
    for after in range(0, len(keys) + 1, stride):
        part = Drawn(one.spec, one.qualities, one.spread)
        part.answers = one.answers
        part.known = {key: one.known[key] for key in keys[:after]}
        part.rows = {key: found_row for key, found_row in one.rows.items() if key in part.known}
        known = list(part.known.values())
        step = part.step(strategy.best_rates(known), known)
        found.append((strategy.slots(known), strategy.settled(known), step))
    found += [answer_object(answer) for answer in answer_rows(one.rows.values(), evidence=one)]
    return found


class Recorded(Drawn):
    """A hunt whose rows have its policy, as those of a journal or of MLflow have."""

    def end(self, trial: Any) -> None:
        super().end(trial)
        if trial.key in self.rows:
            policy = self.spec.policy
            self.rows[trial.key] = dataclasses.replace(self.rows[trial.key], policy=policy)


def test_a_search_that_was_recorded_before_policies_has_the_constants_of_its_version() -> None:
    values = TypeAdapter(Policy).dump_python(UNRECORDED)
    # Sampler `gp`, whose constants are younger, had no search without a policy.
    assert {name: values[name] for name in BEFORE_POLICIES} == BEFORE_POLICIES
    assert UNRECORDED.by_seeds_alone and not Policy().by_seeds_alone


@pytest.mark.parametrize("name", ["rate_factor", "widest_gap", "least_step", "blind_step"])
def test_a_factor_between_rates_is_any_number_above_one(name: str) -> None:
    policies = TypeAdapter(Policy)
    assert getattr(policies.validate_python({name: 1.01}), name) == 1.01
    for value in (1.0, 0.99):
        with pytest.raises(ValidationError, match="greater than 1"):
            policies.validate_python({name: value})


@pytest.mark.parametrize("name", ["tries", "fewest_seeds", "ladder_depths", "ask_limit"])
def test_a_count_is_one_or_more(name: str) -> None:
    policies = TypeAdapter(Policy)
    assert getattr(policies.validate_python({name: 1}), name) == 1
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        policies.validate_python({name: 0})


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_later_version_plans_and_answers_a_recorded_search_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_recorded: bool
) -> None:
    """A doubtful depth has its second look."""
    planned_by = Policy() if is_recorded else UNRECORDED
    spec = hunt_spec(tmp_path, policy=planned_by)
    one = Recorded(spec, {**CLEAR, 9: 0.845}, 0.02)
    one.run()
    paths = SearchPaths(tmp_path, one.spec.name)
    paths.check_writable()
    save_specification(one.spec, paths)
    if not is_recorded:
        values = json.loads(paths.specification.read_text())
        del values["policy"]
        # A knob of earlier versions, which had no effect on what is certified.
        paths.specification.write_text(json.dumps(values | {"speculate": True}))
    before = without_forecasts(what_it_does(one))
    later_version(monkeypatch, *FIELDS)
    kept = load_specification(paths)
    assert kept.policy == planned_by != Policy()
    one.spec = kept
    assert without_forecasts(what_it_does(one)) == before
    # A search that begins now is another one.
    space = load_space("hunt", ["epochs=2"])
    assert planned_request(tmp_path / "another", space, "hunt").spec.policy == Policy()


def without_forecasts(done: list[Any]) -> list[Any]:
    """Leave out what a new search would certify: that one is planned by the version of the day."""
    for part in done:
        if isinstance(part, dict):
            for point in part["curve"]:
                for key in NEW_KEYS:
                    del point[key]
    return done


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return two recorded hunts, by their policy's name, and what they do."""
    hunts: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        draw_less(patch)
        for policy, name in ((Policy(), "this version's"), (UNRECORDED, "the first")):
            folder = tmp_path_factory.mktemp("earlier")
            one = Recorded(hunt_spec(folder, policy=policy), {**CLEAR, 9: 0.84}, 0.01)
            one.run()
            paths = SearchPaths(folder, one.spec.name)
            paths.check_writable()
            save_specification(one.spec, paths)
            hunts[name] = one, paths, without_forecasts(what_it_does(one, stride=30))
    intervals._student.cache_clear()
    return hunts


@pytest.mark.parametrize("name", FIELDS)
def test_no_constant_of_a_recorded_search_follows_a_later_version(
    monkeypatch: pytest.MonkeyPatch, earlier: dict[str, Any], name: str
) -> None:
    later_version(monkeypatch, name)
    for policy_name, (one, paths, before) in earlier.items():
        kept = load_specification(paths)
        assert getattr(kept.policy, name) == getattr(one.spec.policy, name), policy_name
        one.spec = kept
        assert without_forecasts(what_it_does(one, stride=30)) == before, policy_name


def test_a_search_that_is_asked_for_again_is_compared_by_its_own_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = load_space("joint", ["epochs=2"])
    first = planned_request(tmp_path, space, "joint", layers=12)
    later_version(monkeypatch, *FIELDS)
    # Not recorded yet, it is planned by the constants of this version.
    assert (
        differing_settings(planned_request(tmp_path, space, "joint", layers=12).spec, first.spec)
        != []
    )
    first.paths.check_writable()
    save_specification(first.spec, first.paths)
    again = planned_request(tmp_path, space, "joint", layers=12)
    assert differing_settings(again.spec, first.spec) == []


def test_a_policy_that_was_recorded_before_a_field_has_the_value_of_before() -> None:
    values = TypeAdapter(Policy).dump_python(Policy(error=0.1))
    del values["claim"]
    read = TypeAdapter(Policy).validate_json(json.dumps(values))
    assert read == Policy(error=0.1, claim=Claim.BOTH)
    assert Policy().claim is Claim.CORRECTED


def test_every_field_is_read(tmp_path: Path) -> None:
    """What nobody reads decides nothing."""
    read: set[str] = set()

    class Noting(Policy):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    policy = Noting()
    read.clear()
    for overrides in ((), ("thorough=true",)):
        space = load_space("hunt", ["epochs=2", *overrides])
        spec = specify(*asked_for(tmp_path, space, "hunt", layers=12), policy=policy)
        one = Recorded(
            dataclasses.replace(spec, chance=0.5, evaluation_examples=1000),
            {**CLEAR, 9: 0.845},
            0.02,
        )
        one.run()
        one.answer()
    assert one.spec.early_stopping is not None
    exploring_share(one.spec)
    assert {field.name for field in dataclasses.fields(Policy)} - read == set()


def test_what_is_recorded_decides_the_answer() -> None:
    rows = falling_curve(examples=100_000)

    def confidence(policy: Policy | None) -> float:
        [answer] = answer_rows([dataclasses.replace(one, policy=policy) for one in rows])
        assert answer.certified is not None
        return answer.certified.confidence

    assert confidence(None) == confidence(Policy()) == 0.95
    assert confidence(Policy(error=0.1)) == 0.9


def test_searches_of_unlike_policies_are_pooled_by_this_versions() -> None:
    """How a run scored does not depend on a policy."""
    other = Policy(error=0.1)
    assert common_policy([other, other]) == other
    assert common_policy([other, Policy(noise=0.1)]) == common_policy([]) == Policy()
    rows = [row(0, 0.9, search="a", seed=1), row(0, 0.8, search="b", seed=2)]
    rows = [dataclasses.replace(one, policy=other) for one in rows[:1]] + rows[1:]
    [group] = comparison_groups(rows)
    assert len(group.rows) == 2 and group.policy == Policy()


def test_rows_have_the_policy_that_their_search_recorded() -> None:
    policy = Policy(error=0.1, looks=(SeedCounts(3, 3), SeedCounts(6, 6)))
    spec = make_spec(policy=policy)
    trial = spec.trial(Phase.MEASURE, spec.candidates[0], 2e-5, 1)
    begun = TrialStarted(trial=trial.key, params=facts_of(spec, trial))

    def state(**tags: str) -> SearchState:
        start = started(spec, 1)
        kept = {name: text for name, text in start.tags.items() if name != "policy"}
        return SearchState.replay([dataclasses.replace(start, tags=kept | tags), begun])

    [found] = rows_of(SearchState.replay([started(spec, 1), begun]))
    assert found.policy == policy
    [older] = rows_of(state())
    assert older.policy == UNRECORDED
    # A later version's has fields that this one does not know, and lacks none.
    newer = json.dumps({**TypeAdapter(Policy).dump_python(policy), "another": 1})
    [found] = rows_of(state(policy=newer))
    assert found.policy == policy
    # An earlier version's lacks fields, which have the values that they had then.
    [found] = rows_of(state(policy='{"error": 0.1}'))
    assert found.policy == dataclasses.replace(UNRECORDED, error=0.1)
    with pytest.raises(ResultsError, match="policy of search 'example' cannot be read"):
        rows_of(state(policy='{"error": 2}'))


def test_a_policy_recorded_before_a_field_existed_has_what_searches_did_then(
    tmp_path: Path,
) -> None:
    spec = hunt_spec(tmp_path, policy=Policy())
    paths = SearchPaths(tmp_path, spec.name)
    paths.check_writable()
    save_specification(spec, paths)
    values = json.loads(paths.specification.read_text())
    for name in ("seed_terms", "approximation_error", "failed_loss"):
        del values["policy"][name]
    paths.specification.write_text(json.dumps(values))
    policy = load_specification(paths).policy
    assert policy.seed_terms is SeedTerms.DRAWN
    assert policy.approximation_error == 0
    assert policy.failed_loss is None
    # What was recorded stays.
    assert policy.prior_freedom == Policy().prior_freedom


def test_pairs_of_seeds_are_tested_at_a_smaller_error() -> None:
    policy = Policy()
    assert policy.test_error(3) == pytest.approx(0.045)
    assert policy.test_error(2) == pytest.approx(0.04)
    assert policy.ends_of_test(3, tasks=2) == pytest.approx((0.025, 0.9875, 0.045))
    assert UNRECORDED.test_error(2) == UNRECORDED.error
