"""Beyond the given rates: where a depth goes on and where it stops, by nothing but the record."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from elsa_tune.searching.planning import samplers
from elsa_tune.searching.planning.known import KnownTrial, Trials, is_cheap, relative_cost, tries_of
from elsa_tune.searching.planning.outward import outward
from elsa_tune.searching.planning.plan import exploring_share, planned_trials, trial_ranges
from elsa_tune.searching.planning.proposals import propose
from elsa_tune.searching.planning.rates import Rates, have_all_ended
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.planning.strategy import Step, left_to_measure
from elsa_tune.searching.search_run import _cut_by
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.searching.tune.searcher import PlanSearcher, SessionParts
from elsa_tune.searching.tune.trainable import TRIAL
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.border import Border, alike_ends, border
from elsa_tune.specs.policy import Extension, Policy
from elsa_tune.specs.rate_space import RateList, RateRange
from elsa_tune.specs.search import SamplerName, SearchSpec
from elsa_tune.specs.trial import Phase, PrefixCache, Recipe, TrialSpec, TrialStatus
from tests.unit.search_examples import DEPTHS, make_spec

BOUNDS = Extension()
RATES = RateList(values=(1e-5, 2e-5, 5e-5))
STOPPED, DIVERGED = TrialStatus.STOPPED_EARLY, TrialStatus.DIVERGED
Score = Callable[[FreezeDepth, float], float | TrialStatus]


def tries(*pairs: tuple[float, float | TrialStatus]) -> list[KnownTrial]:
    return of_depth(make_spec(), FULL_MODEL, *pairs)


def next_rate(
    spec: SearchSpec,
    tried: Trials,
    *,
    patience: int = 1,
    lent_rate: float | None = None,
    may_learn: bool = False,
) -> float | None:
    """Return a depth's next rate; a test names only what it is about."""
    return outward(spec, tried, patience, lent_rate, may_learn)


@pytest.mark.parametrize(
    ("found", "after", "why"),
    [
        ([(1e-5, 0.6), (2e-5, 0.7), (5e-5, 0.8)], 1e-4, "the best is the highest"),
        ([(1e-5, 0.8), (2e-5, 0.7), (5e-5, 0.6)], 5e-6, "the best is the lowest"),
        ([(1e-5, 0.6), (2e-5, 0.8), (5e-5, 0.7)], None, "the best lies inside"),
        ([(1e-5, 0.7), (2e-5, 0.8), (5e-5, 0.804)], None, "a gain within noise is none"),
        ([(1e-5, 0.8), (2e-5, 0.8), (5e-5, 0.8)], None, "a plateau stops at once"),
        ([(2e-5, 0.7), (5e-5, 0.8), (1e-4, STOPPED)], None, "what was stopped early was tried"),
        ([(2e-5, 0.7), (5e-5, 0.8), (1e-4, DIVERGED)], None, "and so was what diverged"),
        ([(2e-5, 0.7), (5e-5, 0.8), (1e-4, 0.82)], 2e-4, "it goes on while it improves"),
        ([(5e-5, DIVERGED), (2e-5, DIVERGED)], 1e-5, "where all diverge it goes down"),
        ([(2e-6, 0.9), (5e-6, 0.6)], 1e-6, "down to the bound"),
        ([(1e-6, 0.9), (2e-6, 0.6)], None, "and not below it"),
        ([(3.2e-3, 0.6), (6.4e-3, 0.9)], 1e-2, "up to the bound"),
        ([(5e-5, 0.6), (1e-2, 0.9)], None, "and not above it"),
        ([(5e-5, 0.8), (8e-4, 0.6)], 1e-4, "a gap that a lent rate left is filled"),
        ([(5e-5, 0.8), (2.3e-4, 0.6)], 1e-4, "also one of a factor of 4.6"),
        ([(2e-5, 0.6), (5e-5, 0.8), (2.2e-4, 0.6)], None, "not one of 4.4"),
        ([(2e-3, 0.6), (8.2e-3, 0.9)], 1e-2, "a fifth more is worth a trial"),
        ([(2e-3, 0.6), (8.4e-3, 0.9)], None, "less is not"),
        ([(1.22e-6, 0.9), (2e-6, 0.6)], 1e-6, "a fifth less too"),
        ([(1.19e-6, 0.9), (2e-6, 0.6)], None, "and not less than that"),
        ([(2e-5, STOPPED), (5e-5, STOPPED)], None, "nothing ran to its end: nothing is known"),
    ],
)
def test_where_a_depth_goes_on(
    found: list[tuple[float, float | TrialStatus]], after: float | None, why: str
) -> None:
    assert next_rate(spec_of(tries=3), tries(*found)) == after, why


def test_a_depth_with_one_try_goes_on_from_it() -> None:
    assert next_rate(spec_of(tries=1), tries((5e-5, 0.8))) == 1e-4


def test_a_neighbour_lends_its_best_rate_as_the_first_point() -> None:
    rising = tries((2e-5, 0.6), (5e-5, 0.7))
    assert next_rate(spec_of(tries=2), rising, lent_rate=4e-4) == 4e-4
    assert next_rate(spec_of(tries=2), rising, lent_rate=2e-5) == 1e-4
    assert next_rate(spec_of(tries=2), rising, lent_rate=0.5) == 1e-2  # never past the bound


def test_a_depth_that_has_not_learnt_goes_up_as_long_as_the_full_model_says_that_it_may() -> None:
    nothing = tries((1e-5, 0.5), (2e-5, 0.5), (5e-5, 0.5))
    assert next_rate(spec_of(tries=3), nothing) == 1e-4
    more = [*nothing, *tries((1e-4, 0.5))]
    assert next_rate(spec_of(tries=3), more) is None
    assert next_rate(spec_of(tries=3), more, may_learn=True) == 2e-4
    broken = [*more, *tries((2e-4, DIVERGED))]
    assert next_rate(spec_of(tries=3), broken, may_learn=True) is None
    # The full model itself: where rates diverge and others learn nothing, lower ones may.
    collapsed = tries((1e-5, 0.5), (2e-5, 0.5), (5e-5, DIVERGED))
    assert next_rate(spec_of(tries=3), collapsed) == 5e-6
    assert next_rate(spec_of(tries=3), [*collapsed, *tries((5e-6, 0.5))]) is None


def test_patience_tries_a_second_rate_beyond_the_best() -> None:
    found = tries((2e-5, 0.7), (5e-5, 0.8), (1e-4, 0.79))
    assert next_rate(spec_of(tries=2), found, patience=2) == 2e-4
    assert next_rate(spec_of(tries=2), found + tries((2e-4, 0.8)), patience=2) is None


def border_of(tried: dict[float, float | None], chance: float | None) -> Border | None:
    return border(tried, chance, Policy().noise)


def test_the_border_of_what_was_tried() -> None:
    assert border_of({2e-5: 0.7, 5e-5: 0.8}, 0.5) is Border.HIGH
    assert border_of({2e-5: 0.8, 5e-5: 0.7}, 0.5) is Border.LOW
    assert border_of({2e-5: 0.7, 5e-5: 0.8, 1e-4: None}, 0.5) is None
    assert border_of({2e-5: 0.8, 5e-5: 0.803}, 0.5) is None
    assert border_of({2e-5: 0.5, 5e-5: 0.5}, 0.5) is Border.HIGH  # nothing has learnt yet
    assert border_of({2e-5: 0.5, 5e-5: 0.5}, None) is None
    assert border_of({2e-5: None}, 0.5) is None and border_of({}, 0.5) is None


@pytest.mark.parametrize(
    ("tried", "ends"),
    [
        ({1e-5: 0.7, 2e-5: 0.9, 4e-5: 0.8}, ()),
        ({1e-5: 0.7, 2e-5: 0.9, 4e-5: 0.896}, (Border.HIGH,)),
        ({1e-5: 0.896, 2e-5: 0.9, 4e-5: 0.8}, (Border.LOW,)),
        ({1e-5: 0.896, 2e-5: 0.9, 4e-5: 0.896}, (Border.LOW, Border.HIGH)),
        # Half a point below and more is worse.
        ({1e-5: 0.7, 2e-5: 0.9, 4e-5: 0.894}, ()),
        # A best rate at an end is `border`'s to tell.
        ({1e-5: 0.7, 2e-5: 0.8, 4e-5: 0.9}, ()),
        # Behind it lies a rate that diverged or was stopped early.
        ({1e-5: 0.7, 2e-5: 0.9, 4e-5: 0.896, 8e-5: None}, ()),
        ({1e-5: 0.5, 2e-5: 0.5}, ()),
        ({1e-5: None}, ()),
    ],
)
def test_the_ends_of_what_was_tried_that_are_as_good_as_the_best(
    tried: dict[float, float | None], ends: tuple[Border, ...]
) -> None:
    assert alike_ends(tried, 0.5, Policy().noise) == ends


# ---- the whole plan ----


def explore(spec: SearchSpec, score: Score, known: Iterable[KnownTrial] = ()) -> list[KnownTrial]:
    """Carry the exploring plan out, one trial after another."""
    known = list(known)
    while slots := strategy_of(spec).slots(known):
        slot = slots[0]
        rate = slot.learning_rate or propose(spec, slot.candidate, tries_of(known, slot.candidate))
        trial = spec.trial(Phase.EXPLORE, slot.candidate, rate, spec.seed)
        known = [one for one in known if one.trial.key != trial.key]
        known.append(ended(trial, score(slot.candidate, trial.learning_rate)))
        assert len(known) < 200
    return known


def ended(trial: TrialSpec, score: float | TrialStatus) -> KnownTrial:
    if isinstance(score, TrialStatus):
        return KnownTrial(trial=trial, status=score, qualities=())
    return KnownTrial(trial=trial, status=TrialStatus.COMPLETED, qualities=(0.1, score))


def rates_of(known: Iterable[KnownTrial], depth: FreezeDepth) -> list[float]:
    return [one.trial.learning_rate for one in known if one.trial.candidate == depth]


def deeper_wants_more(depth: FreezeDepth, rate: float) -> float:
    """Peaks: 3e-5 at the full model, 2e-4 at N = 3, 2e-3 at N = 6; falls by a point a factor."""
    best = {0: 3e-5, 3: 2e-4, 6: 2e-3}[depth.frozen_layers]
    return round(0.8 - 0.02 * abs(math.log2(rate / best)), 3)


def spec_of(**changes: object) -> SearchSpec:
    return make_spec(**{"rates": RATES, "tries": 3, "extend": BOUNDS, **changes})


# The fourth one, `gp`, does not go outward: tests/unit/test_neighbours.py.
@pytest.mark.parametrize("sampler", [SamplerName.TPE, SamplerName.RANDOM, SamplerName.GRID])
def test_each_depth_finds_its_own_rate(sampler: SamplerName) -> None:
    spec = spec_of(sampler=sampler)
    known = explore(spec, deeper_wants_more)
    found = strategy_of(spec).best_rates(known)
    assert found == {DEPTHS[0]: 2e-5, DEPTHS[1]: 2e-4, DEPTHS[2]: 1.6e-3}
    assert rates_of(known, DEPTHS[0])[3:] == []
    assert rates_of(known, DEPTHS[1])[3:] == [1e-4, 2e-4, 4e-4]
    # N = 6 begins where N = 3 ended.
    assert rates_of(known, DEPTHS[2])[3:] == [2e-4, 4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3]
    assert explore(spec_of(sampler=sampler, extend=None), deeper_wants_more)[9:] == []


def test_of_two_best_rates_a_depth_lends_the_lower() -> None:
    def score(depth: FreezeDepth, rate: float) -> float:
        return {1e-4: 0.8, 2e-4: 0.8}.get(rate, 0.6 + 1000 * min(rate, 1e-4))

    known = explore(spec_of(), score)
    assert rates_of(known, DEPTHS[1])[3:] == [1e-4, 2e-4]
    assert rates_of(known, DEPTHS[2])[3] == 1e-4


def test_a_search_that_was_cut_anywhere_goes_on_to_the_same_rates() -> None:
    spec = spec_of()
    whole = explore(spec, deeper_wants_more)
    for end in range(len(whole)):
        cut = whole[:end]
        if cut:  # the last one was under way
            last = cut[-1]
            cut[-1] = KnownTrial(trial=last.trial, status=TrialStatus.INTERRUPTED, qualities=())
        again = explore(spec, deeper_wants_more, cut)
        assert {one.trial.key for one in again} == {one.trial.key for one in whole}


def test_a_rate_that_diverges_costs_a_depth_nothing_but_the_try() -> None:
    def score(depth: FreezeDepth, rate: float) -> float | TrialStatus:
        return DIVERGED if rate > 3e-4 else deeper_wants_more(depth, rate)

    spec = spec_of()
    known = explore(spec, score)
    assert strategy_of(spec).best_rates(known)[DEPTHS[2]] == 2e-4
    assert rates_of(known, DEPTHS[2])[3:] == [2e-4, 4e-4]


def test_the_number_of_trials_is_a_limit() -> None:
    known = explore(spec_of(exploring_limit=11), deeper_wants_more)
    assert len(known) == 11
    assert len(explore(spec_of(exploring_limit=9), deeper_wants_more)) == 9


@pytest.mark.parametrize("hunts", [False, True])
def test_a_trial_to_try_again_takes_no_other_ones_place_within_the_limit(hunts: bool) -> None:
    strategy = "hunt" if hunts else "even"
    spec = spec_of(exploring_limit=9, strategy=strategy)
    known = explore(spec_of(extend=None), lambda depth, rate: 0.6 + 1000 * rate)
    assert len(known) == 9  # and every depth would go on
    deep = next(one for one in known if not one.trial.candidate.is_reference)
    cut = [replace(one, status=TrialStatus.INTERRUPTED) if one is deep else one for one in known]
    slots = strategy_of(spec).slots(cut)
    assert [slot.candidate for slot in slots] == [deep.trial.candidate]


def test_a_depths_own_budget_is_a_limit() -> None:
    spec = spec_of(extend=Extension(tries=2))
    assert len(rates_of(explore(spec, deeper_wants_more), DEPTHS[2])) == 5


def test_further_tries_count_from_those_that_a_short_list_of_rates_leaves() -> None:
    """LoRA's own range may let a search ask for more tries than the given list has rates."""
    spec = spec_of(
        rates=RateList(values=(1e-5, 2e-5)),
        tries=5,
        extend=Extension(low=1e-6, high=1e-2, tries=2),
    )
    known = explore(spec, deeper_wants_more)
    assert max(len(rates_of(known, depth)) for depth in DEPTHS) == 2 + 2


def test_a_trial_at_an_end_of_a_given_range_lies_within_it() -> None:
    uneven = spec_of(rates=RateRange(low=5e-5 / 3, high=2e-4 / 3))
    low, high = uneven.given_rates(FULL_MODEL)
    assert (low, high) == (1.6667e-5, 6.6667e-5)
    known = explore(uneven, lambda depth, rate: 0.5)
    tried = rates_of(known, FULL_MODEL)
    assert len(tried) == len(set(tried)) and {low, high} <= set(tried)


def test_one_depth_and_a_full_model_that_learns_nothing() -> None:
    alone = spec_of(candidates=(FULL_MODEL,), explored=(FULL_MODEL,))
    assert rates_of(explore(alone, lambda depth, rate: 0.5), FULL_MODEL)[3:] == [1e-4]
    known = explore(spec_of(), lambda depth, rate: 0.5)
    # Where the full model learns nothing no depth is followed up.
    assert [len(rates_of(known, depth)) for depth in DEPTHS] == [4, 4, 4]


@pytest.mark.parametrize("above", [0.5, DIVERGED])
def test_a_full_model_that_collapses_at_its_first_rates_goes_down(
    above: float | TrialStatus,
) -> None:
    def score(depth: FreezeDepth, rate: float) -> float | TrialStatus:
        return 0.8 if rate < 1.5e-5 else above

    spec = spec_of(candidates=(FULL_MODEL,), explored=(FULL_MODEL,), tries=2)
    known = explore(spec, score)
    assert rates_of(known, FULL_MODEL) == [5e-5, 2e-5, 1e-5, 5e-6]
    assert strategy_of(spec).best_rates(known) == {FULL_MODEL: 5e-6}
    nothing = explore(spec, lambda depth, rate: 0.5)
    assert rates_of(nothing, FULL_MODEL) == [5e-5, 2e-5, 1e-5, 1e-4]


def test_a_depth_waits_for_its_own_trials_before_it_goes_on() -> None:
    spec = spec_of()
    known = explore(spec_of(extend=None), deeper_wants_more)
    running = KnownTrial(trial=known[2].trial, status=TrialStatus.RUNNING, qualities=())
    waiting = [running if one is known[2] else one for one in known]
    assert running.trial.candidate == DEPTHS[2]
    assert [slot.candidate for slot in strategy_of(spec).slots(waiting)] == [DEPTHS[1]]
    running = KnownTrial(trial=known[1].trial, status=TrialStatus.RUNNING, qualities=())
    waiting = [running if one is known[1] else one for one in known]
    assert [slot.candidate for slot in strategy_of(spec).slots(waiting)] == [DEPTHS[2]]
    assert planned_trials(spec, known, DEPTHS[2]) == 5
    assert planned_trials(spec_of(explored=DEPTHS[:1]), known[:1], DEPTHS[2]) == 2


def of_depth(
    spec: SearchSpec, depth: FreezeDepth, *pairs: tuple[float, float | TrialStatus]
) -> list[KnownTrial]:
    """Exploring trials of one depth that ended."""
    return [ended(spec.trial(Phase.EXPLORE, depth, rate, 0), score) for rate, score in pairs]


def test_a_depth_is_settled_once_no_other_depth_can_send_it_further() -> None:
    spec = spec_of()
    full, middle, deep = DEPTHS
    rising = (1e-5, 0.6), (2e-5, 0.7), (5e-5, 0.8)
    inside = (1e-5, 0.6), (2e-5, 0.8), (5e-5, 0.7)
    assert strategy_of(spec).settled([]) == frozenset()
    assert strategy_of(spec).settled(of_depth(spec, full, *inside[:2])) == frozenset()
    assert strategy_of(spec).settled(of_depth(spec, full, *inside)) == {full}
    assert strategy_of(spec).settled(of_depth(spec, middle, *inside)) == {middle}
    assert strategy_of(spec).settled(of_depth(spec, middle, *rising)) == frozenset()
    # Nothing learnt so far: the full model may say that it can be.
    nothing = (1e-5, 0.5), (2e-5, 0.5), (5e-5, 0.5), (1e-4, 0.5)
    assert strategy_of(spec).settled(of_depth(spec, middle, *nothing)) == frozenset()
    # At the end of its budget, and where nothing goes beyond the given rates.
    short = spec_of(extend=Extension(tries=1))
    assert strategy_of(short).settled(of_depth(spec, middle, *rising)) == frozenset()
    assert strategy_of(short).settled(of_depth(spec, middle, *rising, (1e-4, 0.9))) == {middle}
    given = spec_of(extend=None)
    assert strategy_of(given).settled(of_depth(spec, deep, *rising)) == {deep}
    # Where the trials are used up, each that has ended; a trial that is to run again has not.
    limited = spec_of(exploring_limit=2)
    assert strategy_of(limited).settled(of_depth(spec, middle, *rising[:2])) == {middle}
    broken = of_depth(spec, middle, *inside[:2], (5e-5, TrialStatus.FAILED))
    assert strategy_of(spec).settled(broken) == frozenset()


def test_depths_that_are_not_explored_are_settled_with_the_full_model() -> None:
    alone = spec_of(explored=(FULL_MODEL,), extend=None)
    tries_of_it = of_depth(alone, FULL_MODEL, (1e-5, 0.6), (2e-5, 0.7), (5e-5, 0.8))
    assert strategy_of(alone).settled(tries_of_it[:2]) == frozenset()
    assert strategy_of(alone).settled(tries_of_it) == set(DEPTHS)
    assert strategy_of(spec_of(explored=(), tries=0)).settled([]) == set(DEPTHS)


def test_the_plan_names_the_worst_case() -> None:
    spec = spec_of()
    assert strategy_of(spec).exploring_trials == 9
    assert trial_ranges(spec, ())[Phase.EXPLORE] == (9, 9 + 24)
    assert trial_ranges(spec_of(exploring_limit=12), ())[Phase.EXPLORE] == (9, 12)
    assert trial_ranges(spec_of(extend=None), ())[Phase.EXPLORE] == (9, 9)


def test_what_a_trial_costs() -> None:
    spec = make_spec()
    costs = [relative_cost(spec, FreezeDepth.of(n)) for n in (0, 1, 3, 4, 5, 6)]
    assert costs == pytest.approx([1, 0.808, 0.423, 0.231, 0.038, 0.003], abs=1e-3)
    assert [is_cheap(spec, FreezeDepth.of(n)) for n in (0, 3, 4, 5, 6)] == [
        False, False, False, True, True,
    ]  # fmt: skip
    # Of 24 layers the last two cost 1.2 of 23.2.
    assert [is_cheap(make_spec(layers=24), FreezeDepth.of(n)) for n in (22, 23)] == [False, True]
    for recipe in (Recipe(frozen_dropout=True), Recipe(prefix_cache=PrefixCache.NONE)):
        assert relative_cost(make_spec(recipe=recipe), FreezeDepth.of(6)) == pytest.approx(1 / 3)
        assert relative_cost(make_spec(recipe=recipe), FreezeDepth.of(3)) == pytest.approx(4 / 6)


# ---- what Ray is told ----


def searching(
    spec: SearchSpec,
    known: Callable[[], list[KnownTrial]],
    rates: Mapping[FreezeDepth, float],
    parts: SessionParts | None = None,
) -> PlanSearcher:
    """Return a searcher that measures every depth alike."""
    return PlanSearcher(
        strategy_of(spec),
        known,
        rates,
        lambda decided: None,
        partial(all_alike, spec),
        parts,
    )


def all_alike(spec: SearchSpec, rates: Mapping[FreezeDepth, float], known: Trials) -> Step:
    """Return the step that measures every depth alike."""
    return Step(trials=left_to_measure(spec, rates, known), waits=True)


def exploring(
    spec: SearchSpec,
    known: Callable[[], list[KnownTrial]],
    rates: Mapping[FreezeDepth, float] | None = None,
    parts: SessionParts | None = None,
) -> PlanSearcher:
    """Return a searcher that measures nothing."""
    return PlanSearcher(
        strategy_of(spec),
        known,
        rates or {},
        lambda decided: None,
        lambda rates, known: Step(),
        parts,
    )


def test_the_searcher_waits_while_trials_run_and_then_finishes() -> None:
    spec = spec_of(
        candidates=(FULL_MODEL,), explored=(FULL_MODEL,), rates=RateRange(low=1e-5, high=5e-5)
    )
    known: list[KnownTrial] = []
    searcher = exploring(spec, lambda: known)
    given = [searcher.suggest(f"{number}") for number in range(3)]
    assert [config[TRIAL].learning_rate for config in given] == [5e-5, 2.2361e-5, 1e-5]
    assert searcher.suggest("3") is None
    for number, (config, score) in enumerate(zip(given, (0.8, 0.7, 0.6), strict=True)):
        known.append(ended(config[TRIAL], score))
        searcher.on_trial_complete(f"{number}")
    beyond = searcher.suggest("4")[TRIAL]
    assert beyond.learning_rate == 1e-4 and beyond.phase is Phase.EXPLORE
    known.append(ended(spec.trial(Phase.EXPLORE, FULL_MODEL, 1e-4, 0), 0.7))
    searcher.on_trial_complete("4")
    assert searcher.suggest("5") == "FINISHED"


class OneAtATime(Rates):
    """Rates that wait: a candidate's next one follows from its last one's result."""

    def next_rate(self, candidate: Candidate, exploring: Trials) -> float | None:
        tries = tries_of(exploring, candidate)
        if not have_all_ended(tries) or len(tries) == self.planned(candidate):
            return None
        return (5e-5, 1e-5)[len(tries)]


def test_a_candidate_whose_rate_waits_holds_up_no_other_and_is_not_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(samplers._RATES, SamplerName.RANDOM, OneAtATime)
    two = (FULL_MODEL, FreezeDepth.of(3))
    rates = RateList(values=(1e-5, 5e-5))
    spec = spec_of(candidates=two, explored=two, rates=rates, sampler=SamplerName.RANDOM)
    known: list[KnownTrial] = []
    searcher = exploring(spec, lambda: known)
    given = [searcher.suggest("0")[TRIAL], searcher.suggest("1")[TRIAL]]
    assert [(trial.candidate, trial.learning_rate) for trial in given] == [
        (FULL_MODEL, 5e-5),
        (FreezeDepth.of(3), 5e-5),
    ]
    assert searcher.suggest("2") is None
    strategy = strategy_of(spec)
    assert not strategy.settled(known)
    known.append(ended(given[0], 0.8))
    searcher.on_trial_complete("0")
    following = searcher.suggest("3")[TRIAL]
    assert (following.candidate, following.learning_rate) == (FULL_MODEL, 1e-5)
    assert searcher.suggest("4") is None
    known += [ended(following, 0.7), ended(given[1], 0.7)]
    assert [slot.candidate for slot in strategy.slots(known)] == [FreezeDepth.of(3)]
    assert strategy.settled(known) == {FULL_MODEL}


def test_the_probe_comes_after_a_first_trial_and_once_more_where_it_fails() -> None:
    spec = spec_of(candidates=(FULL_MODEL,), explored=(FULL_MODEL,), rates=RateList(values=(3e-5,)))
    parts = SessionParts(probe=spec.trial(Phase.PROBE, FreezeDepth.of(6), 1.0, 0))
    known: list[KnownTrial] = []
    for fails in (False, True):
        known.clear()
        searcher = exploring(spec, lambda: known, {FULL_MODEL: 3e-5}, parts)
        known.append(ended(spec.trial(Phase.MEASURE, FULL_MODEL, 3e-5, 1), 0.8))
        assert searcher.suggest("0")[TRIAL].phase is Phase.PROBE
        assert searcher.suggest("1") is None  # its end is waited for
        searcher.on_trial_complete("0", error=fails)
        if fails:
            assert searcher.suggest("2")[TRIAL].phase is Phase.PROBE
            searcher.on_trial_complete("2", error=True)
        assert searcher.suggest("3") == "FINISHED"
    fresh = exploring(spec, list, {FULL_MODEL: 3e-5}, parts)
    assert fresh.suggest("0") == "FINISHED"  # nothing to begin behind


def test_a_failed_trial_is_tried_once_more_but_not_where_everything_fails() -> None:
    spec = spec_of(
        extend=None,
        candidates=DEPTHS[:1],
        explored=DEPTHS[:1],
        rates=RateList(values=(1e-5, 2e-5)),
        tries=2,
    )
    known: dict[str, KnownTrial] = {}

    def session(failing: float) -> list[float]:
        searcher = exploring(spec, lambda: list(known.values()))
        begun: list[float] = []
        while isinstance(config := searcher.suggest(str(len(begun))), dict):
            rate = config[TRIAL].learning_rate
            trial = spec.trial(Phase.EXPLORE, DEPTHS[0], rate, 0)
            score: float | TrialStatus = TrialStatus.FAILED if rate <= failing else 0.7
            known[trial.key] = ended(trial, score)
            searcher.on_trial_complete(str(len(begun)), error=True)
            begun.append(rate)
        assert config == "FINISHED"
        return begun

    assert session(failing=1e-5) == [2e-5, 1e-5, 1e-5]
    known.clear()
    assert session(failing=1) == [2e-5, 1e-5]
    assert session(failing=0) == [2e-5, 1e-5]  # a later session tries again


def test_a_resumed_search_begins_with_a_trial_and_probes_after_it() -> None:
    depths = DEPTHS[:1]
    spec = spec_of(candidates=depths, explored=depths, rates=RateList(values=(3e-5,)), seeds=2)
    earlier = ended(spec.trial(Phase.MEASURE, depths[0], 3e-5, 1), 0.8)
    known = [earlier]
    parts = SessionParts(probe=spec.trial(Phase.PROBE, FreezeDepth.of(6), 1.0, 0))
    searcher = searching(spec, lambda: known, {depths[0]: 3e-5}, parts)
    first = searcher.suggest("0")[TRIAL]
    assert (first.phase, first.seed) == (Phase.MEASURE, 2)
    known.append(ended(first, 0.8))
    searcher.on_trial_complete("0")
    assert searcher.suggest("1")[TRIAL].phase is Phase.PROBE


def test_what_failed_at_a_measured_depth_is_tried_again_and_changes_no_rate() -> None:
    spec = spec_of(candidates=DEPTHS[:1], explored=DEPTHS[:1], rates=RateList(values=(1e-5, 2e-5)))
    rates = {DEPTHS[0]: 1e-5}
    seeds = [spec.trial(Phase.MEASURE, DEPTHS[0], 1e-5, seed) for seed in spec.measuring_seeds]
    failed = spec.trial(Phase.EXPLORE, DEPTHS[0], 2e-5, 0)
    earlier = [ended(spec.trial(Phase.EXPLORE, DEPTHS[0], 1e-5, 0), 0.6)]
    earlier += [ended(seed, 0.6) for seed in seeds]
    decided: list[Mapping[FreezeDepth, float]] = []
    known = [*earlier, ended(failed, TrialStatus.FAILED)]
    searcher = PlanSearcher(
        strategy_of(spec), lambda: known, rates, decided.append, partial(all_alike, spec)
    )
    assert searcher.suggest("0") == {TRIAL: failed}
    known[-1] = ended(failed, 0.9)  # better than what was measured
    searcher.on_trial_complete("0")
    assert searcher.suggest("1") == "FINISHED" and decided == []
    for status in (TrialStatus.DIVERGED, TrialStatus.STOPPED_EARLY, TrialStatus.INTERRUPTED):
        known[-1] = ended(failed, status)
        assert exploring(spec, lambda: known, rates).suggest("0") == "FINISHED"


def test_decided_depths_explore_no_more() -> None:
    rates = dict.fromkeys(DEPTHS[:2], 2e-5)
    searcher = exploring(spec_of(), lambda: [], rates)
    given = [searcher.suggest(str(number)) for number in range(4)]
    assert [one and one[TRIAL].candidate.label for one in given] == ["6", "6", "6", None]


def whole_search(
    spec: SearchSpec, score: Score, workers: int, order: random.Random
) -> tuple[list[TrialSpec], list[KnownTrial]]:
    """Every trial in the order of its start, by so many workers that end in any order."""
    known: dict[str, KnownTrial] = {}
    searcher = searching(spec, lambda: list(known.values()), {})
    running: dict[str, TrialSpec] = {}
    begun: list[TrialSpec] = []
    while True:
        config = None
        while len(running) < workers:
            config = searcher.suggest(str(len(begun)))
            if not isinstance(config, dict):
                break
            trial = config[TRIAL]
            running[str(len(begun))] = trial
            begun.append(trial)
            known[trial.key] = KnownTrial(trial=trial, status=TrialStatus.RUNNING, qualities=())
        if not running:
            assert config == "FINISHED"
            return begun, list(known.values())
        name = order.choice(sorted(running))
        trial = running.pop(name)
        known[trial.key] = ended(trial, score(trial.candidate, trial.learning_rate))
        searcher.on_trial_complete(name)


def test_exploring_whose_time_is_up_ends_its_trials_and_leaves_the_rest_to_measuring() -> None:
    spec = spec_of(
        candidates=DEPTHS[:1], explored=DEPTHS[:1], rates=RateRange(low=1e-5, high=5e-5), seeds=2
    )
    known: dict[str, KnownTrial] = {}
    now = 0.0
    limit = TimeLimit(10.0, lambda: now)
    searcher = searching(spec, lambda: list(known.values()), {}, SessionParts(limit=limit))
    given = [searcher.suggest(str(number))[TRIAL] for number in range(2)]
    assert [one.learning_rate for one in given] == [5e-5, 2.2361e-5]
    # Before any trial has ended there would be nothing to measure.
    now = 6.0
    third = searcher.suggest("2")[TRIAL]
    assert third.phase is Phase.EXPLORE
    trials = zip((*given, third), (0.7, 0.8, 0.75), strict=True)
    for number, (trial, score) in enumerate(trials):
        known[trial.key] = ended(trial, score)
        # As long as one explores, its depth may change its rate.
        assert searcher.suggest(str(10 + number)) is None
        searcher.on_trial_complete(str(number))
    measured = [searcher.suggest(str(20 + number))[TRIAL] for number in range(2)]
    assert {(one.phase, one.learning_rate) for one in measured} == {(Phase.MEASURE, 2.2361e-5)}
    assert searcher.suggest("22") is None
    # What is left was left for want of time, unless a measuring trial failed with time to spare.
    assert not limit.has_passed()
    assert _cut_by(limit, list(known.values())) == "exploring had its share of the time"
    failed = KnownTrial(trial=measured[0], status=TrialStatus.FAILED, qualities=())
    assert _cut_by(limit, [*known.values(), failed]) is None
    now = 10.0
    assert limit.has_passed() and _cut_by(limit, [failed]) == "time was up"


@pytest.mark.parametrize("status", [TrialStatus.DIVERGED, TrialStatus.FAILED])
def test_a_depth_whose_tries_gave_no_rate_explores_on_where_exploring_had_its_time(
    status: TrialStatus,
) -> None:
    spec = spec_of(extend=None, tries=2, seeds=1)
    known: dict[str, KnownTrial] = {}
    # A second a try; there is time for one of each depth.
    limit = TimeLimit(2.0 * len(DEPTHS), lambda: len(known))
    assert exploring_share(spec) == 0.5
    searcher = searching(spec, lambda: list(known.values()), {}, SessionParts(limit=limit))
    begun: list[str] = []
    while isinstance(config := searcher.suggest(str(len(begun))), dict):
        trial = config[TRIAL]
        is_first_of_it = trial.key.startswith(f"explore-{DEPTHS[1].key}") and len(begun) < 3
        known[trial.key] = ended(trial, status if is_first_of_it else 0.7)
        searcher.on_trial_complete(str(len(begun)))
        begun.append(trial.key.partition("-lr")[0])
    full, failing, deepest = (depth.key for depth in DEPTHS)
    each_once = [f"explore-{key}" for key in (full, failing, deepest)]
    measured = [f"measure-{key}" for key in (full, failing, deepest)]
    assert begun == [*each_once, f"explore-{failing}", *measured]


def test_depths_that_had_no_turn_explore_where_all_others_are_measured() -> None:
    spec = spec_of(extend=None, tries=2, seeds=1)
    known: dict[str, KnownTrial] = {}
    # A second a trial; exploring has the time of the first one.
    limit = TimeLimit(2.0, lambda: len(known))
    searcher = searching(spec, lambda: list(known.values()), {}, SessionParts(limit=limit))
    begun: list[str] = []
    while isinstance(config := searcher.suggest(str(len(begun))), dict):
        trial = config[TRIAL]
        known[trial.key] = ended(trial, 0.7)
        searcher.on_trial_complete(str(len(begun)))
        begun.append(trial.key.partition("-lr")[0])
    one_after_the_other = []
    for depth in DEPTHS:
        one_after_the_other += [f"explore-{depth.key}", f"measure-{depth.key}"]
    assert begun == one_after_the_other


@pytest.mark.parametrize("seed", range(40))
def test_a_rate_that_a_depth_is_measured_at_is_never_overtaken(seed: int) -> None:
    """Measuring begins while other depths explore; it must not begin too soon."""
    order = random.Random(seed)
    peaks = {depth: order.uniform(-5.5, -2) for depth in DEPTHS}
    learns = {depth: order.random() < 0.8 for depth in DEPTHS}

    def score(depth: FreezeDepth, rate: float) -> float | TrialStatus:
        if order.random() < 0.05:
            return DIVERGED
        noise = order.gauss(0, 0.004)
        distance = abs(math.log10(rate) - peaks[depth])
        return 0.5 if not learns[depth] or distance > 1.5 else 0.8 - 0.1 * distance + noise

    spec = spec_of(seeds=2)
    begun, known = whole_search(spec, score, workers=1 + seed % 4, order=order)
    measured = [trial for trial in begun if trial.phase is Phase.MEASURE]
    best = strategy_of(spec).best_rates(known)
    assert {(one.candidate, one.learning_rate) for one in measured} == set(best.items())
    assert len({one.key for one in begun}) == len(begun)
    assert len(measured) == 2 * len(best)


def test_a_settled_depth_is_measured_while_others_explore() -> None:
    """The full model's walk takes one worker; the other need not wait for it."""
    begun, _ = whole_search(spec_of(seeds=1), full_model_wants_more, 2, random.Random(1))
    phases = [trial.phase for trial in begun]
    first = phases.index(Phase.MEASURE)
    assert Phase.EXPLORE in phases[first:]
    # One worker: the same trials, every time.
    once, again = (
        whole_search(spec_of(), full_model_wants_more, 1, random.Random(0))[0] for _ in range(2)
    )
    assert [one.key for one in once] == [one.key for one in again]


def full_model_wants_more(depth: FreezeDepth, rate: float) -> float:
    peak = 1e-3 if depth == FULL_MODEL else 2e-5
    return 0.8 - 0.1 * abs(math.log10(rate / peak))


def test_what_failed_for_good_does_not_hold_up_measuring() -> None:
    def broken(depth: FreezeDepth, rate: float) -> float | TrialStatus:
        return TrialStatus.FAILED if depth == DEPTHS[1] and rate == 1e-5 else 0.7

    spec = spec_of(extend=None, seeds=1)
    begun, _ = whole_search(spec, broken, 2, random.Random(0))
    assert {one.candidate for one in begun if one.phase is Phase.MEASURE} == set(DEPTHS)
