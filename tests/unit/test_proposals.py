"""The rates within the given range, from an Optuna study per depth.

No rate comes twice while others are left.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import optuna
import pytest

from elsa_tune.searching.planning import proposals as module
from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.searching.planning.proposals import first_points, propose
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.rate_space import RateList, RateRange, RateSpace
from elsa_tune.specs.search import SamplerName
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.search_examples import make_spec

DEPTHS = (FULL_MODEL, FreezeDepth(3, True), FreezeDepth(6, True))
STEPPED = RateRange(low=1e-5, high=5e-5, step=1e-5)
CONTINUOUS = RateRange(low=1e-5, high=5e-5)


@pytest.fixture(autouse=True)
def quiet_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("error")


def proposals(
    rates: RateSpace,
    quality: Callable[[float], float],
    *,
    tries: int = 5,
    name: SamplerName = SamplerName.TPE,
    seed: int = 0,
    depth: FreezeDepth = FULL_MODEL,
) -> list[float]:
    """Return what one depth is given, one trial after another."""
    spec = make_spec(rates=rates, sampler=name, seed=seed)
    tried: list[KnownTrial] = []
    for _ in range(tries):
        rate = propose(spec, depth, tried)
        tried.append(ended(rate, quality(rate), depth))
    return [one.trial.learning_rate for one in tried]


def ended(
    rate: float,
    score: float,
    depth: FreezeDepth = FULL_MODEL,
    status: TrialStatus = TrialStatus.COMPLETED,
) -> KnownTrial:
    trial = make_spec().trial(Phase.EXPLORE, depth, rate, 0)
    return KnownTrial(trial=trial, status=status, qualities=(score,))


def peak_at(best: float) -> Callable[[float], float]:
    return lambda rate: -abs(rate - best)


@pytest.mark.parametrize("name", list(SamplerName))
def test_five_tries_of_five_steps_try_each_rate_once(name: SamplerName) -> None:
    found = proposals(STEPPED, peak_at(3e-5), name=name)
    assert sorted(found) == [1e-5, 2e-5, 3e-5, 4e-5, 5e-5]


@pytest.mark.parametrize(
    ("rates", "points"),
    [
        (STEPPED, (5e-5, 2e-5, 1e-5)),
        (CONTINUOUS, (5e-5, 2.2361e-5, 1e-5)),
        (RateList(values=(2e-5, 5e-5)), (5e-5, 2e-5)),
    ],
)
def test_tpe_begins_with_both_ends_and_the_middle(
    rates: RateSpace, points: tuple[float, ...]
) -> None:
    assert first_points(rates) == points
    assert tuple(proposals(rates, peak_at(3e-5), tries=len(points))) == points


def test_a_grid_goes_down_from_the_highest_rate() -> None:
    found = proposals(STEPPED, peak_at(3e-5), name=SamplerName.GRID)
    assert found == [5e-5, 4e-5, 3e-5, 2e-5, 1e-5]


def test_same_seed_same_proposals_and_another_seed_or_depth_others() -> None:
    first = proposals(CONTINUOUS, peak_at(2e-5))
    assert first == proposals(CONTINUOUS, peak_at(2e-5))
    assert first != proposals(CONTINUOUS, peak_at(2e-5), seed=1)
    assert first != proposals(CONTINUOUS, peak_at(2e-5), depth=DEPTHS[1])


@pytest.mark.parametrize("best", [1.2e-5, 2.5e-5, 4.8e-5])
def test_tpe_homes_in_on_the_best_rate(best: float) -> None:
    """Late proposals lie nearer to the optimum than early ones."""
    errors = [abs(rate - best) for rate in proposals(CONTINUOUS, peak_at(best), tries=20)]
    assert sum(errors[-8:]) < sum(errors[:8])


def test_tpe_proposes_from_the_fourth_try_on() -> None:
    tried = [ended(5e-5, 0.9), ended(2.2361e-5, 0.7), ended(1e-5, 0.6)]
    found = [propose(make_spec(rates=CONTINUOUS, seed=n), FULL_MODEL, tried) for n in range(10)]
    assert min(found) > 3.3e-5


def test_a_range_whose_ends_have_more_digits_than_a_rate_is_searched_to_its_ends() -> None:
    ends = RateRange(low=1.23454e-5, high=5.43216e-5)
    found = proposals(ends, peak_at(3e-5))
    assert found[0] == 5.4322e-5 and found[2] == 1.2345e-5


@pytest.mark.parametrize(
    ("tries", "rates"),
    [
        (1, [1e-3]),
        (2, [1e-3, 1e-4]),
        (5, [1e-3, 5.6234e-4, 3.1623e-4, 1.7783e-4, 1e-4]),
    ],
)
def test_a_grid_of_a_continuous_range_goes_down_in_equal_factors(
    tries: int, rates: list[float]
) -> None:
    """So it is of a method with rates of its own."""
    spec = make_spec(tries=tries, sampler=SamplerName.GRID)
    tried: list[KnownTrial] = []
    for _ in range(tries):
        rate = propose(spec, Lora(), tried)
        tried.append(ended(rate, 0.7))
    assert [one.learning_rate for one in tried] == rates


@pytest.mark.parametrize("name", [SamplerName.TPE, SamplerName.RANDOM])
@pytest.mark.parametrize("step", [1.33333e-5, 6.6667e-6, 3.333333e-6])
def test_a_step_of_more_digits_than_a_rate_is_searched_to_its_last_rate(
    name: SamplerName, step: float
) -> None:
    rates = RateRange(low=1e-5, high=5e-5, step=step)
    assert rates.values is not None
    tries = len(rates.values)
    found = proposals(rates, peak_at(3e-5), tries=tries, name=name)
    assert sorted(found) == list(rates.values)
    if name is SamplerName.TPE:
        assert found[0] == rates.values[-1]


def test_a_running_trials_rate_is_not_proposed_again_nor_one_from_beyond_the_range() -> None:
    rates = RateList(values=(2e-5, 5e-5))
    running = ended(5e-5, 0.1, status=TrialStatus.RUNNING)
    beyond = ended(1e-4, 0.9)
    assert propose(make_spec(rates=rates), FULL_MODEL, [running, beyond]) == 2e-5


def test_where_every_proposal_was_tried_the_nearest_other_rate_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nearest by its factor; of two as near the lower."""
    monkeypatch.setattr(module, "_proposals", lambda *asked: [2e-5, 4e-5])
    tried = [ended(2e-5, 0.7), ended(4e-5, 0.7)]
    for values, nearest in (((1e-5, 2e-5, 3e-5, 4e-5), 3e-5), ((1e-5, 2e-5, 4e-5), 1e-5)):
        assert propose(make_spec(rates=RateList(values=values)), FULL_MODEL, tried) == nearest
    between = [ended(1e-5, 0.7), ended(4e-5, 0.7)]
    monkeypatch.setattr(module, "_proposals", lambda *asked: [1e-5, 4e-5])
    rates = RateList(values=(5e-6, 1e-5, 2e-5, 4e-5))
    assert propose(make_spec(rates=rates), FULL_MODEL, between) == 5e-6
    # Where no other is left, and in a continuous range, the depth's own study decides.
    assert propose(make_spec(rates=RateList(values=(1e-5, 4e-5))), FULL_MODEL, between) == 1e-5
    assert propose(make_spec(rates=CONTINUOUS), FULL_MODEL, between) == 1e-5


def test_a_stopped_trial_ranks_below_finished_ones() -> None:
    """Its truncated value is the best number seen, yet TPE must not take it for the best rate."""
    tried = [
        *(ended(rate, 0.7) for rate in (1e-5, 2.2361e-5, 5e-5, 1.1e-5, 1.2e-5)),
        *(ended(rate, 0.9, status=TrialStatus.STOPPED_EARLY) for rate in (4.9e-5, 4.8e-5, 4.7e-5)),
    ]
    found = [
        propose(make_spec(rates=CONTINUOUS, seed=seed), FULL_MODEL, tried) for seed in range(20)
    ]
    assert sum(rate < 3e-5 for rate in found) > 12
