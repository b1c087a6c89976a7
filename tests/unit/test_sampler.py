"""The sampler: depths come from the plan, rates from a TPE per depth, no rate twice while others
are left.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import optuna
import pytest

from elsa_tune.search.sampler import PlannedDepthSampler, Slot, Tried, distributions, settings
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import RateList, RateRange, Rates, SamplerName
from elsa_tune.specs.trial import canonical_rate

DEPTHS = (FULL_MODEL, FreezeDepth(3, True), FreezeDepth(6, True))
STEPPED = RateRange(low=1e-5, high=5e-5, step=1e-5)


@pytest.fixture(autouse=True)
def quiet_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("error")


def run_study(
    rates: Rates,
    quality: Callable[[str, float], float],
    *,
    tries: int = 5,
    name: SamplerName = SamplerName.TPE,
    seed: int = 0,
) -> list[tuple[str, float]]:
    slots = [Slot(depth=depth) for _ in range(tries) for depth in DEPTHS]
    sampler = PlannedDepthSampler(slots, rates, name, seed, evaluations=1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    proposed = []
    for _ in slots:
        trial = study.ask(distributions(DEPTHS, rates))
        depth, rate = trial.params["frozen_layers"], canonical_rate(trial.params["learning_rate"])
        proposed.append((depth, rate))
        trial.report(quality(depth, rate), 1)
        study.tell(trial, quality(depth, rate))
    return proposed


def peak_at(best: float) -> Callable[[str, float], float]:
    return lambda depth, rate: -abs(rate - best)


def test_every_depth_gets_equal_tries_in_turn() -> None:
    proposed = run_study(STEPPED, peak_at(3e-5))
    assert [depth for depth, _ in proposed[:3]] == ["0", "3", "6"]
    assert all(sum(depth == d for d, _ in proposed) == 5 for depth in ("0", "3", "6"))


@pytest.mark.parametrize("name", list(SamplerName))
def test_five_tries_of_five_steps_try_each_rate_once(name: SamplerName) -> None:
    proposed = run_study(STEPPED, peak_at(3e-5), name=name)
    for depth in ("0", "3", "6"):
        assert sorted(rate for d, rate in proposed if d == depth) == [1e-5, 2e-5, 3e-5, 4e-5, 5e-5]


def test_same_seed_same_proposals_and_another_seed_others() -> None:
    rates = RateRange(low=1e-5, high=5e-5)
    first = run_study(rates, peak_at(2e-5))
    assert first == run_study(rates, peak_at(2e-5))
    assert first != run_study(rates, peak_at(2e-5), seed=1)


def test_tpe_homes_in_on_each_depths_own_best_rate() -> None:
    """With depth-specific optima, late proposals lie nearer to the depth's own optimum than early
    ones.
    """
    best = {"0": 1.2e-5, "3": 2.5e-5, "6": 4.8e-5}
    rates = RateRange(low=1e-5, high=5e-5)
    proposed = run_study(rates, lambda depth, rate: -abs(rate - best[depth]), tries=20)
    for depth, optimum in best.items():
        errors = [abs(rate - optimum) for d, rate in proposed if d == depth]
        assert sum(errors[-8:]) < sum(errors[:8])


def test_a_restarted_trial_keeps_its_rate_and_history_is_not_repeated() -> None:
    history = [
        Tried(depth=DEPTHS[1], learning_rate=rate, scores=(0.5, 0.6), completed=True)
        for rate in (1e-5, 2e-5, 4e-5)
    ]
    slots = [Slot(depth=DEPTHS[1], learning_rate=5e-5), Slot(depth=DEPTHS[1])]
    study = optuna.create_study(
        direction="maximize",
        sampler=PlannedDepthSampler(slots, STEPPED, SamplerName.TPE, 0, 2, history),
    )
    rates = [
        canonical_rate(study.ask(distributions(DEPTHS, STEPPED)).params["learning_rate"])
        for _ in slots
    ]
    assert rates == [5e-5, 3e-5]


def test_a_stopped_trial_ranks_below_finished_ones() -> None:
    """Its truncated value is the best number seen, yet TPE must not take it for the best rate."""
    finished = [
        Tried(depth=FULL_MODEL, learning_rate=1.1e-5, scores=(0.4, 0.7), completed=True),
        Tried(depth=FULL_MODEL, learning_rate=1.2e-5, scores=(0.4, 0.7), completed=True),
        Tried(depth=FULL_MODEL, learning_rate=1.3e-5, scores=(0.4, 0.69), completed=True),
    ]
    stopped = [
        Tried(depth=FULL_MODEL, learning_rate=4.9e-5, scores=(0.9,), completed=False),
        Tried(depth=FULL_MODEL, learning_rate=4.8e-5, scores=(0.9,), completed=False),
    ]
    proposals = []
    for seed in range(20):
        sampler = PlannedDepthSampler(
            [Slot(depth=FULL_MODEL)],
            RateRange(low=1e-5, high=5e-5),
            SamplerName.TPE,
            seed,
            2,
            [*finished, *stopped],
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        trial = study.ask(distributions(DEPTHS, RateRange(low=1e-5, high=5e-5)))
        proposals.append(trial.params["learning_rate"])
    assert sum(rate < 3e-5 for rate in proposals) > 12


def test_lists_are_categorical_and_settings_say_what_was_done() -> None:
    rates = RateList(values=(2e-5, 5e-5))
    proposed = run_study(rates, peak_at(5e-5), tries=2)
    assert all({r for d, r in proposed if d == depth} == {2e-5, 5e-5} for depth in ("0", "3", "6"))
    recorded = settings(SamplerName.TPE, rates)
    assert recorded["optuna"] == optuna.__version__ and recorded["rates"] == [2e-5, 5e-5]
