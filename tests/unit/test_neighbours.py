"""One Optuna study of rates and candidates: what neighbours found moves what a depth tries."""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest

from elsa_tune.searching.planning.known import KnownTrial, relative_cost, tries_of
from elsa_tune.searching.planning.neighbours import (
    CANDIDATE,
    LEARNING_RATE,
    RANK,
    NeighbourSampler,
    ScoreProcess,
)
from elsa_tune.searching.planning.one_study import OneStudy, even_rates
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.policy import Extension, Policy
from elsa_tune.specs.rate_space import RateList, RateRange, RateSpace
from elsa_tune.specs.search import SamplerName, SearchSpec
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus
from tests.unit.search_examples import DEPTHS, make_spec

WIDE = RateRange(low=1e-6, high=1e-2)
GIVEN = RateRange(low=1e-5, high=5e-5, step=1e-5)
Score = Callable[[FreezeDepth, float], float | TrialStatus]


@pytest.fixture(autouse=True)
def quiet_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("error")


def spec_of(**changes: object) -> SearchSpec:
    usual = {"sampler": SamplerName.GP, "rates": WIDE, "tries": 2, "extend": Extension()}
    return make_spec(**{**usual, "chance": 0.5, **changes})


def ended(trial: TrialSpec, score: float | TrialStatus) -> KnownTrial:
    if isinstance(score, TrialStatus):
        return KnownTrial(trial=trial, status=score, qualities=())
    return KnownTrial(trial=trial, status=TrialStatus.COMPLETED, qualities=(0.5, score))


def explore(spec: SearchSpec, score: Score, known: Iterable[KnownTrial] = ()) -> list[KnownTrial]:
    """Carry the exploring plan out, one trial after another."""
    known = list(known)
    strategy = strategy_of(spec)
    while slots := strategy.slots(known):
        trial = strategy.trial_of(slots[0], known)
        known = [one for one in known if one.trial.key != trial.key]
        known.append(ended(trial, score(trial.candidate, trial.learning_rate)))
        assert len(known) < 200
    return known


def peak(best: dict[int, float], width: float = 2.0) -> Score:
    """Return scores that learn .3 at each depth's best rate, and less on either side."""

    def score(depth: FreezeDepth, rate: float) -> float:
        octaves = math.log2(rate / best[depth.frozen_layers])
        return 0.5 + 0.3 * math.exp(-((octaves / width) ** 2) / 2)

    return score


def trials(
    spec: SearchSpec, score: Score, rates: dict[FreezeDepth, Sequence[float]]
) -> list[KnownTrial]:
    """Return a record with these rates of these depths."""
    known = []
    for depth, several in rates.items():
        for rate in several:
            known.append(ended(spec.trial(Phase.EXPLORE, depth, rate, 0), score(depth, rate)))
    return known


DRIFTING = {0: 6e-5, 3: 2.5e-4, 6: 1e-3}


def test_each_depth_comes_near_its_own_rate_with_few_trials() -> None:
    spec = spec_of()
    known = explore(spec, peak(DRIFTING))
    for depth, rate in strategy_of(spec).best_rates(known).items():
        assert abs(math.log2(rate / DRIFTING[depth.frozen_layers])) < 0.75, depth
        assert len(tries_of(known, depth)) <= 6


def test_a_depth_tries_what_its_neighbours_found() -> None:
    spec = spec_of()
    here, score = DEPTHS[1], peak(dict.fromkeys((0, 3, 6), 4e-4))
    around = {DEPTHS[0]: [5e-5, 1e-4, 4e-4, 1.6e-3], DEPTHS[2]: [5e-5, 1e-4, 4e-4, 1.6e-3]}
    informed = trials(spec, score, {**around, here: [5e-5]})
    rate = OneStudy(spec).next_rate(here, informed)
    assert rate is not None and abs(math.log2(rate / 4e-4)) < 0.75
    # Where the neighbours peak elsewhere, so does what it tries.
    lower = trials(spec, peak(dict.fromkeys((0, 3, 6), 1e-5)), {**around, here: [5e-5]})
    other = OneStudy(spec).next_rate(here, lower)
    assert other is not None and other < 5e-5


def test_a_depth_begins_with_the_best_rate_of_the_nearest_that_learnt() -> None:
    spec = spec_of()
    rates = OneStudy(spec)
    assert rates.next_rate(DEPTHS[2], []) == spec.policy.first_rates[0]
    known = trials(spec, peak({0: 1e-4, 3: 8e-4}), {DEPTHS[0]: [5e-5, 1e-4]})
    assert rates.next_rate(DEPTHS[2], known) == 1e-4
    known += trials(spec, peak({0: 1e-4, 3: 8e-4}), {DEPTHS[1]: [5e-5, 8e-4]})
    assert rates.next_rate(DEPTHS[2], known) == 8e-4


@pytest.mark.parametrize(
    ("rates", "extend", "low", "high"),
    [
        (WIDE, Extension(), 1e-6, 1e-2),
        (GIVEN, Extension(low=2e-6, high=1e-3), 2e-6, 1e-3),
        (RateRange(low=2e-5, high=4e-4), None, 2e-5, 4e-4),
    ],
)
def test_rates_lie_within_what_was_given_and_none_comes_twice(
    rates: RateSpace, extend: Extension | None, low: float, high: float
) -> None:
    spec = spec_of(rates=rates, extend=extend, tries=4)
    known = explore(spec, lambda depth, rate: min(0.9, 0.6 + 100 * rate))  # the higher the better
    for depth in DEPTHS:
        had = [one.trial.learning_rate for one in tries_of(known, depth)]
        assert all(low <= rate <= high for rate in had)
        apart = [abs(math.log(a / b)) for a in had for b in had if a != b]
        assert len(set(had)) == len(had) and min(apart) >= math.log(1.19)


def test_without_an_extension_a_depth_tries_given_rates_as_often_as_planned() -> None:
    known = explore(spec_of(rates=GIVEN, extend=None, tries=3), peak(DRIFTING))
    for depth in DEPTHS:
        had = [one.trial.learning_rate for one in tries_of(known, depth)]
        assert len(had) == 3 and set(had) <= set(GIVEN.values or ())
    known = explore(spec_of(rates=RateList(values=(2e-5,)), extend=None, tries=1), peak(DRIFTING))
    assert {one.trial.learning_rate for one in known} == {2e-5}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("rates", "extend", "tries"),
    [
        (GIVEN, None, 3),
        (GIVEN, None, 4),
        (GIVEN, None, 5),
        (RateList(values=(1e-5, 1.1e-5)), None, 2),
        (RateRange(low=1e-5, high=1.1e-5), None, 4),
        (RateRange(low=1e-5, high=5e-5), None, 10),
        (RateRange(low=1e-5, high=5e-5), Extension(low=1e-5, high=6e-5, tries=2), 10),
    ],
)
def test_each_depth_has_its_planned_tries_whatever_comes_of_them(
    rates: RateSpace, extend: Extension | None, tries: int, workers: int
) -> None:
    """Rates that learn or not, diverge or not, run one by one or beside each other."""
    strategy = strategy_of(spec_of(rates=rates, extend=extend, tries=tries))
    for learns in ((True, True, False), (True, False, True), (False, False, False)):
        outcomes = random.Random(tries)
        known: list[KnownTrial] = []
        running: list[TrialSpec] = []
        while True:
            under_way = [
                KnownTrial(trial=trial, status=TrialStatus.RUNNING, qualities=())
                for trial in running
            ]
            slots = strategy.slots([*known, *under_way])
            if slots and len(running) < workers:
                running.append(strategy.trial_of(slots[0], [*known, *under_way]))
            elif running:
                trial = running.pop(0)
                score: float | TrialStatus = 0.5
                if learns[DEPTHS.index(trial.candidate)]:
                    score = outcomes.choice((0.5, 0.7, 0.8, TrialStatus.DIVERGED))
                known.append(ended(trial, score))
            else:
                break
        for depth in DEPTHS:
            had = [trial.learning_rate for trial in tries_of(known, depth)]
            assert len(had) == len(set(had)) >= tries


def test_a_best_rate_lies_between_others_that_were_tried() -> None:
    known = explore(spec_of(), peak(DRIFTING))
    for depth in DEPTHS:
        here = {one.trial.learning_rate: one.score or 0.0 for one in tries_of(known, depth)}
        best = max(here, key=lambda rate: here[rate])
        assert min(here) < best < max(here)


def test_a_search_that_was_cut_anywhere_goes_on_to_the_same_rates() -> None:
    spec = spec_of()
    complete = explore(spec, peak(DRIFTING))
    for end in range(1, len(complete)):
        cut = complete[:end]
        cut[-1] = KnownTrial(trial=cut[-1].trial, status=TrialStatus.INTERRUPTED, qualities=())
        again = explore(spec, peak(DRIFTING), cut)
        assert {one.trial.key for one in again} == {one.trial.key for one in complete}


def test_what_runs_is_not_asked_for_again() -> None:
    spec = spec_of(tries=4)
    score = peak(DRIFTING)
    known = trials(spec, score, {FULL_MODEL: [5e-5], DEPTHS[1]: [5e-5, 2e-4]})
    first = OneStudy(spec).next_rate(DEPTHS[1], known)
    assert first is not None
    running = spec.trial(Phase.EXPLORE, DEPTHS[1], first, 0)
    known.append(KnownTrial(trial=running, status=TrialStatus.RUNNING, qualities=()))
    second = OneStudy(spec).next_rate(DEPTHS[1], known)
    assert second is not None and abs(math.log2(second / first)) > 0.5
    # Beyond its planned tries a depth waits for those that run.
    assert OneStudy(spec_of(tries=2)).next_rate(DEPTHS[1], known) is None


def test_a_search_that_waits_asks_the_study_once_for_each_depth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray Tune asks ten times a second while trials run."""
    spec = spec_of()
    score = peak(DRIFTING)
    known = trials(spec, score, {depth: [5e-5, 2e-4] for depth in DEPTHS})
    running = spec.trial(Phase.EXPLORE, FULL_MODEL, 1e-4, 0)
    known.append(KnownTrial(trial=running, status=TrialStatus.RUNNING, qualities=()))
    asked: list[float] = []
    sample = NeighbourSampler.sample_independent

    def counted(self: NeighbourSampler, *given: Any) -> float:
        rate = sample(self, *given)
        asked.append(rate)
        return rate

    monkeypatch.setattr(NeighbourSampler, "sample_independent", counted)
    strategy = strategy_of(spec)
    slots = strategy.slots(known)
    once = len(asked)
    assert {slot.candidate for slot in slots} == set(DEPTHS) - {FULL_MODEL} and once > 0
    for _ in range(100):
        assert strategy.slots(known) == slots
    assert len(asked) == once
    assert isinstance(strategy.rates, OneStudy) and strategy.rates._study is not None
    assert len(strategy.rates._study.trials) == len(known) + once
    # A report is news, of which all are asked again, and get what a fresh search gets.
    known[-1] = replace(known[-1], qualities=(0.79,))
    assert strategy.slots(known) == strategy_of(spec).slots(known)
    assert len(asked) == 3 * once


def test_before_anything_has_ended_depths_have_the_first_rates() -> None:
    spec = spec_of()
    strategy = strategy_of(spec)
    known: list[KnownTrial] = []
    for _ in range(2 * len(DEPTHS)):
        trial = strategy.trial_of(strategy.slots(known)[0], known)
        known.append(KnownTrial(trial=trial, status=TrialStatus.RUNNING, qualities=()))
    assert strategy.slots(known) == ()
    for depth in DEPTHS:
        had = [one.trial.learning_rate for one in tries_of(known, depth)]
        assert had == list(spec.policy.first_rates)


@pytest.mark.parametrize("above", [0.5, TrialStatus.DIVERGED])
def test_a_full_model_that_collapses_at_its_first_rates_goes_down(
    above: float | TrialStatus,
) -> None:
    def score(depth: FreezeDepth, rate: float) -> float | TrialStatus:
        return 0.8 if rate < 1.5e-5 else above

    spec = spec_of(candidates=(FULL_MODEL,), explored=(FULL_MODEL,))
    known = explore(spec, score)
    assert strategy_of(spec).best_rates(known)[FULL_MODEL] < 1.5e-5


def test_where_nothing_learns_few_rates_are_tried() -> None:
    known = explore(spec_of(), lambda depth, rate: 0.5)
    most = 2 + Policy().blind_tries
    assert [len(tries_of(known, depth)) for depth in DEPTHS] == [most] * 3
    rates = [one.trial.learning_rate for one in tries_of(known, FULL_MODEL)]
    assert min(rates) < 5e-5 < max(rates)


def test_a_depth_that_learns_at_high_rates_alone_is_followed_there() -> None:
    def score(depth: FreezeDepth, rate: float) -> float:
        if depth == DEPTHS[2]:
            return 0.7 if rate > 9e-4 else 0.5
        return peak(DRIFTING)(depth, rate)

    spec = spec_of()
    known = explore(spec, score)
    assert strategy_of(spec).best_rates(known)[DEPTHS[2]] > 9e-4


def test_a_depth_that_learnt_nothing_may_go_on_and_is_not_settled() -> None:
    spec = spec_of()
    nothing = trials(spec, lambda depth, rate: 0.5, {DEPTHS[2]: [5e-5, 1.3e-5, 2e-4, 4e-6]})
    assert OneStudy(spec).next_rate(DEPTHS[2], nothing) is None
    assert DEPTHS[2] not in strategy_of(spec).settled(nothing)
    learnt = explore(spec, peak(DRIFTING))
    assert set(DEPTHS) <= strategy_of(spec).settled(learnt)


def test_a_depth_that_learnt_nothing_steps_as_far_as_its_factor_and_no_further() -> None:
    """Four times a rate and a quarter of it, both included."""
    rates = (9.9e-6, 1e-5, 4e-5, 1.6e-4, 1.61e-4)
    study = OneStudy(spec_of(rates=RateList(values=rates), extend=None))
    nothing = trials(study.spec, lambda depth, rate: 0.5, {DEPTHS[2]: [4e-5]})
    assert study._allowed(DEPTHS[2], nothing) == [1e-5, 1.6e-4]
    learnt = trials(study.spec, lambda depth, rate: 0.8, {DEPTHS[2]: [4e-5]})
    assert study._allowed(DEPTHS[2], learnt) == [9.9e-6, 1e-5, 1.6e-4, 1.61e-4]


def test_a_depth_that_learnt_is_sent_no_further_by_others() -> None:
    spec = spec_of()
    learnt = trials(spec, peak(DRIFTING), {DEPTHS[2]: [5e-4, 1e-3, 2e-3]})
    assert not OneStudy(spec).may_go_on(DEPTHS[2], learnt)
    nothing = trials(spec, lambda depth, rate: 0.5, {DEPTHS[2]: [5e-4, 1e-3, 2e-3]})
    assert OneStudy(spec).may_go_on(DEPTHS[2], nothing)


def test_limits_are_kept() -> None:
    few = spec_of(extend=Extension(tries=1))
    known = explore(few, peak(DRIFTING, width=0.7))
    assert max(len(tries_of(known, depth)) for depth in DEPTHS) == 3
    known = explore(spec_of(), peak(DRIFTING, width=0.7))
    assert max(len(tries_of(known, depth)) for depth in DEPTHS) > 3
    assert OneStudy(few).most(FULL_MODEL) == 3 and OneStudy(few).planned(FULL_MODEL) == 2
    assert len(explore(spec_of(exploring_limit=7), peak(DRIFTING))) == 7


def test_dear_trials_must_promise_more() -> None:
    cheap = spec_of()
    known = explore(cheap, peak(DRIFTING))
    free = spec_of(policy=Policy(worth_a_trial=1e-4))
    assert len(explore(free, peak(DRIFTING))) > len(known)
    same = spec_of(policy=Policy(worth_a_trial=0.01, worth_if_free=0.999))
    dear = spec_of(policy=Policy(worth_a_trial=0.01, worth_if_free=0.01))
    more = explore(dear, peak(DRIFTING))
    assert len(tries_of(more, DEPTHS[2])) > len(tries_of(explore(same, peak(DRIFTING)), DEPTHS[2]))


def test_what_a_trial_must_promise_lies_between_the_full_models_and_a_free_ones() -> None:
    """.04 at the full model; where a trial costs nothing .4 of that, and in between evenly."""
    spec = spec_of()
    rates = OneStudy(spec)
    assert rates._worth(FULL_MODEL) == pytest.approx(0.04)
    cost = relative_cost(spec, DEPTHS[1])
    assert 0.1 < cost < 0.9
    assert rates._worth(DEPTHS[1]) == pytest.approx(cost * 0.04 + (1 - cost) * 0.016)


def test_of_two_candidates_of_one_rank_each_has_its_own_best_rate() -> None:
    """What the other found at a rate is worth a try, though both lie at one point."""
    usual, sharp = Lora(), Lora(lora_alpha=32)
    assert usual.rank == sharp.rank
    candidates = (FULL_MODEL, usual, sharp)
    spec = spec_of(candidates=candidates, explored=candidates)
    scores = {
        usual: {1e-4: 0.6, 3e-4: 0.8, 1e-3: 0.6},
        sharp: {1e-4: 0.6, 1.3e-4: 0.65, 1e-3: 0.55},
    }
    known = []
    for candidate, by_rate in scores.items():
        for rate, score in by_rate.items():
            known.append(ended(spec.trial(Phase.EXPLORE, candidate, rate, 0), score))
    assert OneStudy(spec).next_rate(usual, known) is None
    rate = OneStudy(spec).next_rate(sharp, known)
    assert rate is not None and abs(math.log2(rate / 3e-4)) < 0.75


# ---- the process and its sampler ----


def process(pending: Sequence[float] = (), noise: float = 0.01) -> ScoreProcess:
    """Return one of a single candidate with three trials, at 0, 1 and 2 length scales."""
    points = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    running = np.array([[place, 0.0] for place in pending]).reshape(-1, 2)
    return ScoreProcess(points, np.array([0.5, 1.0, 0.5]), 0.6, noise, running)


def test_a_process_keeps_to_what_was_found_and_expects_chance_far_away() -> None:
    expected = process().expected(np.array([[0.0, 0.0], [1.0, 0.0], [30.0, 0.0], [1.0, 30.0]]))
    assert expected[:2] == pytest.approx([0.5, 1.0], abs=0.01)
    assert expected[2:] == pytest.approx([0.0, 0.0], abs=1e-6)
    near, far = process().expected(np.array([[1.0, 0.3], [1.0, 1.5]]))
    assert 0 < far < near < 1


def test_gains_are_those_of_the_normal_distribution() -> None:
    # Far away nothing is known: mean 0, deviation .6.
    [gain] = process(noise=1e-6).gains(np.array([[50.0, 0.0]]), best=0.3)
    draws = np.random.default_rng(0).normal(0, 0.6, 400_000)
    assert gain == pytest.approx(np.maximum(draws - 0.3, 0).mean(), rel=0.02)


def test_a_pending_trial_moves_no_expectation_and_makes_its_surroundings_less_promising() -> None:
    places = np.array([[1.5, 0.0], [4.0, 0.0]])
    assert process([1.5]).expected(places) == pytest.approx(process().expected(places))
    before, after = process().gains(places, 1.0), process([1.5]).gains(places, 1.0)
    assert after[0] < 0.5 * before[0]
    assert after[1] == pytest.approx(before[1], rel=0.2)


def test_the_sampler_proposes_rates_alone() -> None:
    sampler = NeighbourSampler(Policy(), 6, 0.5, (1e-5,))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    with pytest.raises(ValueError, match=RANK):
        study.ask({RANK: optuna.distributions.FloatDistribution(0, 6)})


def test_of_tasks_that_learn_little_and_much_the_same_rate_is_proposed() -> None:
    distributions = {
        RANK: optuna.distributions.FloatDistribution(0, 6),
        LEARNING_RATE: optuna.distributions.FloatDistribution(1e-6, 1e-2, log=True),
    }
    proposed = []
    for learnt in (0.45, 0.4):
        sampler = NeighbourSampler(Policy(seed_spread=0), 6, 0.5, even_rates(1e-6, 1e-2, ()))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for rate, share in ((1e-5, 0.5), (5e-5, 1.0), (2.5e-4, 0.9)):
            params = {RANK: 0.0, LEARNING_RATE: rate}
            value = 0.5 + share * learnt
            study.add_trial(
                optuna.trial.create_trial(
                    params=params,
                    distributions=distributions,
                    user_attrs={CANDIDATE: "N0"},
                    value=value,
                )
            )
        study.enqueue_trial({RANK: 0.0}, user_attrs={CANDIDATE: "N0"})
        proposed.append((study.ask(distributions).params[LEARNING_RATE], sampler.gain / learnt))
    assert proposed[0][0] == proposed[1][0]
    assert proposed[0][1] == pytest.approx(proposed[1][1])


def test_even_rates_are_short_and_include_what_is_named() -> None:
    rates = even_rates(1e-6, 1e-2, (5e-5, 1.0))
    assert rates[0] == 1e-6 and rates[-1] == 1e-2 and 5e-5 in rates and 1.0 not in rates
    assert all(float(f"{rate:.1e}") == rate for rate in rates)
    assert max(b / a for a, b in itertools.pairwise(rates)) < 1.2
