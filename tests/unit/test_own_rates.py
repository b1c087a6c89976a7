"""Learning rates of a method of its own: its range, its family's neighbours, and nobody else's."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

from elsa_tune.errors import SpaceError
from elsa_tune.searching.planning.known import KnownTrial, tries_of
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.specification import load_specification, save_specification
from elsa_tune.searching.specification.making import specify
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import Extension
from elsa_tune.specs.rate_space import RateList
from elsa_tune.specs.search import SamplerName, SearchSpec
from elsa_tune.specs.space import Space
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.paths import SearchPaths
from tests.registering import registered
from tests.unit.search_examples import asked_for, make_spec

DEPTH = FreezeDepth.of(6)
OWN = (1e-4, 2e-3)


@pytest.fixture(scope="module", autouse=True)
def low_rank() -> Iterator[Any]:
    with registered("tests.low_rank") as module:
        yield module


@pytest.fixture(autouse=True)
def quiet_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("error")


def spec_of(low_rank: Any, sampler: SamplerName, **changes: Any) -> SearchSpec:
    candidates = (FULL_MODEL, DEPTH, low_rank.LowRank(16), low_rank.LowRank(8))
    usual = {"candidates": candidates, "explored": candidates, "sampler": sampler}
    return make_spec(**{**usual, "extend": Extension(), **changes})


def ended(spec: SearchSpec, candidate: Any, rate: float, score: float) -> KnownTrial:
    trial = spec.trial(Phase.EXPLORE, candidate, rate, 0)
    return KnownTrial(trial=trial, status=TrialStatus.COMPLETED, qualities=(0.5, score))


def explored(spec: SearchSpec) -> list[KnownTrial]:
    """Explore until nothing is left; the middle of each candidate's own range is best."""
    known: list[KnownTrial] = []
    strategy = strategy_of(spec)
    while slots := strategy.slots(known):
        trial = strategy.trial_of(slots[0], known)
        best = 2e-5 if trial.candidate.rates is None else 4e-4
        score = 0.9 - 0.05 * abs(trial.learning_rate / best - 1)
        known.append(ended(spec, trial.candidate, trial.learning_rate, max(score, 0.6)))
        assert len(known) < 200
    return known


def tried_rates(known: Sequence[KnownTrial], candidate: Any) -> list[float]:
    return [one.trial.learning_rate for one in tries_of(known, candidate)]


@pytest.mark.parametrize("sampler", [SamplerName.GP, SamplerName.TPE, SamplerName.RANDOM])
def test_it_begins_in_its_own_range_and_depths_in_theirs(
    low_rank: Any, sampler: SamplerName
) -> None:
    spec = spec_of(low_rank, sampler)
    known = explored(spec)
    for candidate in spec.candidates:
        first = tried_rates(known, candidate)[: spec.tries]
        if candidate.rates is None:
            assert max(first) <= 5e-5
        else:
            assert OWN[0] <= min(first) and max(first) <= OWN[1]
    best = strategy_of(spec).best_rates(known)
    assert best[DEPTH] < OWN[0] < best[low_rank.LowRank(8)]


@pytest.mark.parametrize("sampler", [SamplerName.GP, SamplerName.TPE])
def test_what_one_family_found_moves_nothing_in_another(
    low_rank: Any, sampler: SamplerName
) -> None:
    """A depth's next rates are those of a search without LoRA, and LoRA's those without depths."""
    both = explored(spec_of(low_rank, sampler))
    candidates = (FULL_MODEL, DEPTH)
    depths = explored(spec_of(low_rank, sampler, candidates=candidates, explored=candidates))
    for candidate in candidates:
        assert tried_rates(both, candidate) == tried_rates(depths, candidate)


def test_the_best_rate_is_lent_within_a_family_alone(low_rank: Any) -> None:
    spec = spec_of(low_rank, SamplerName.GP)
    rates = strategy_of(spec).rates
    learnt = [ended(spec, FULL_MODEL, rate, 0.9) for rate in (2e-5, 5e-5)]
    first = rates.next_rate(low_rank.LowRank(16), learnt)
    assert first == rates.next_rate(low_rank.LowRank(16), [])
    learnt += [ended(spec, low_rank.LowRank(8), rate, 0.9 - rate) for rate in (3e-4, 9e-4)]
    assert rates.next_rate(low_rank.LowRank(16), learnt) == 3e-4


def asked(folder: Path, **fields: Any) -> SearchSpec:
    space = Space.model_validate({"depths": [0, 6, "low8"], "strategy": "even", **fields})
    return specify(*asked_for(folder, space, "own"))


def test_where_depths_have_one_rate_it_explores_alone(low_rank: Any, tmp_path: Path) -> None:
    spec = asked(tmp_path, learning_rate=[3e-5])
    assert spec.explored == (low_rank.LowRank(8),) and spec.tries == spec.policy.tries
    strategy = strategy_of(spec)
    assert strategy.settled([]) == {FULL_MODEL, DEPTH}
    assert strategy.best_rates([]) == {FULL_MODEL: 3e-5, DEPTH: 3e-5}
    known = explored(spec)
    assert strategy.settled(known) == set(spec.candidates)
    assert strategy.best_rates(known)[low_rank.LowRank(8)] >= OWN[0]


def test_the_full_models_best_rate_is_not_its_own(low_rank: Any, tmp_path: Path) -> None:
    rates = {"learning_rate": "from_full_model", "full_model_learning_rate": [1e-5, 3e-5]}
    spec = asked(tmp_path, **rates)
    assert spec.explored == (FULL_MODEL, low_rank.LowRank(8))
    chosen = strategy_of(spec).best_rates(explored(spec))
    assert chosen[DEPTH] == chosen[FULL_MODEL] <= 3e-5 < OWN[0] <= chosen[low_rank.LowRank(8)]


def test_a_short_list_of_its_own_is_tried_once_each(low_rank: Any) -> None:
    class Listed(low_rank.LowRank):  # type: ignore[misc]  # mypy knows no classes of values
        rates = RateList(values=(1e-3, 2e-3))

    candidates = (FULL_MODEL, Listed(8))
    changes = {"candidates": candidates, "explored": candidates, "extend": None, "tries": 5}
    known = explored(spec_of(low_rank, SamplerName.TPE, **changes))
    assert sorted(tried_rates(known, Listed(8))) == [1e-3, 2e-3]


def test_search_json_gives_it_back(low_rank: Any, tmp_path: Path) -> None:
    paths = SearchPaths(tmp_path, "own")
    paths.folder.mkdir(parents=True)
    spec = dataclasses.replace(asked(tmp_path), name="own")
    save_specification(spec, paths)
    again = load_specification(paths)
    assert again.candidates == spec.candidates
    assert again.given_rates(low_rank.LowRank(8)) == OWN != again.given_rates(DEPTH)


def test_a_hunt_refuses_what_is_no_depth(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="'low8' is no depth"):
        asked(tmp_path, strategy="hunt")


def test_what_does_not_fit_the_model_is_refused_before_any_work(tmp_path: Path) -> None:
    space = Space.model_validate({"depths": [0, 6, "low8-from6"]})
    with pytest.raises(SpaceError, match="behind the last of 6 layers"):
        specify(*asked_for(tmp_path, space, "own"))
    with pytest.raises(SpaceError, match=r"frozen_layers is 'lowx'.*'low8'"):
        read_candidate("lowx")


@pytest.mark.parametrize("sampler", list(SamplerName))
def test_a_depth_tries_no_more_than_its_list_has_beside_a_method_with_a_range(
    low_rank: Any, sampler: SamplerName
) -> None:
    rates = RateList(values=(2e-5, 5e-5))
    spec = spec_of(low_rank, sampler, rates=rates, tries=4, extend=None)
    known = explored(spec)
    keys = [trial.trial.key for trial in known]
    assert len(keys) == len(set(keys))
    assert sorted(tried_rates(known, DEPTH)) == [2e-5, 5e-5]
    assert len(tried_rates(known, low_rank.LowRank(8))) == 4


def test_rates_given_above_the_extensions_bounds_are_not_tried_again_below_them() -> None:
    rates = RateList(values=(0.02, 0.3))
    depths = (FULL_MODEL,)
    usual = {"candidates": depths, "explored": depths, "rates": rates, "tries": 2}
    spec = make_spec(**usual, sampler=SamplerName.TPE, extend=Extension(low=1e-6, high=1e-2))
    known: list[KnownTrial] = []
    strategy = strategy_of(spec)
    while slots := strategy.slots(known):
        trial = strategy.trial_of(slots[0], known)
        known.append(ended(spec, FULL_MODEL, trial.learning_rate, 0.6 + trial.learning_rate))
        assert len(known) < 20
    keys = [trial.trial.key for trial in known]
    assert len(keys) == len(set(keys)) and max(tried_rates(known, FULL_MODEL)) == 0.3
