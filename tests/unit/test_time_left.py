"""How long a search still takes: from the times of its own trials, whatever the clock says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from elsa_tune.searching.eta import (
    FURTHER_TRIES,
    SEEN,
    TRIAL_SECONDS,
    Expected,
    LooksExpected,
    _trials_to_begin,
    evaluation_seconds,
    seconds_left,
    seconds_per_trial,
    time_range,
)
from elsa_tune.searching.planning.known import KnownTrial, relative_cost
from elsa_tune.searching.planning.plan import trial_ranges
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.rate_space import RateList
from elsa_tune.specs.search import Extension, SearchSpec
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.words import rough_range
from tests.unit.search_examples import DEPTHS, make_spec

COMPLETED, RUNNING = TrialStatus.COMPLETED, TrialStatus.RUNNING
DEEP = DEPTHS[2]


def ran(
    spec: SearchSpec,
    depth: FreezeDepth,
    start: float,
    *after: float,
    status: TrialStatus = COMPLETED,
    seed: int = 1,
) -> KnownTrial:
    """Return a measuring trial of two evaluations, reported so many seconds after its start.

    The last number is its end.
    """
    trial = spec.trial(Phase.MEASURE, depth, 2e-5, seed)
    times = [start + seconds for seconds in after]
    return KnownTrial(
        trial=trial,
        status=status,
        qualities=(0.7,) * len(times[:2]),
        started=start,
        reported=tuple(times[:2]),
        ended=times[-1] if status is COMPLETED else None,
    )


def measuring(**changes: object) -> SearchSpec:
    """Four seeds of the full model alone, at one rate."""
    return make_spec(
        **{"candidates": (FULL_MODEL,), "explored": (), "tries": 0, "seeds": 4, **changes},
        rates=RateList(values=(2e-5,)),
    )


def test_nothing_is_said_before_the_first_report() -> None:
    spec = measuring()
    assert seconds_left(spec, [], 0.0) is None
    assert seconds_left(spec, [ran(spec, FULL_MODEL, 0.0, status=RUNNING)], 50.0) is None


def test_the_trials_to_come_last_as_long_as_the_last_ones_of_their_depth() -> None:
    spec = measuring()
    ended = [ran(spec, FULL_MODEL, 0.0, 10.0, 20.0, 20.0, seed=1)]
    assert seconds_left(spec, ended, 20.0) == 60.0
    slower = [ran(spec, FULL_MODEL, 20.0 + 40 * i, 20, 40, 40, seed=2 + i) for i in range(2)]
    assert seconds_left(spec, ended + slower, 100.0) == 40.0


def test_it_goes_down_between_reports_and_never_below_nothing() -> None:
    spec = measuring()
    ended = [ran(spec, FULL_MODEL, 20.0 * i, 10, 20, 20, seed=1 + i) for i in range(3)]
    running = ran(spec, FULL_MODEL, 60.0, status=RUNNING, seed=4)
    assert seconds_left(spec, [*ended, running], 65.0) == 15.0
    assert seconds_left(spec, [*ended, running], 70.0) == 10.0
    assert seconds_left(spec, [*ended, running], 900.0) == 0.0


def test_a_trial_that_is_slower_than_others_counts_with_its_own_pace() -> None:
    spec = measuring(recipe=dataclasses.replace(make_spec().recipe, epochs=4))
    ended = [ran(spec, FULL_MODEL, 20.0 * i, 5, 10, 20, seed=1 + i) for i in range(3)]
    slow = ran(spec, FULL_MODEL, 60.0, 50, 100, status=RUNNING, seed=4)
    assert seconds_left(spec, [*ended, slow], 170.0) == 90.0


def test_trials_side_by_side_share_the_work_but_not_the_last_of_it() -> None:
    spec = measuring(seeds=5)
    pair = [ran(spec, FULL_MODEL, 0.0, 10.0, 20.0, 20.0 + i / 10, seed=1 + i) for i in range(2)]
    assert seconds_left(spec, pair, 20.1) == pytest.approx(30.0, abs=0.1)
    more = [ran(spec, FULL_MODEL, 20.1, 10.0, 20.0, 20.0 + i / 10, seed=3 + i) for i in range(2)]
    assert seconds_left(spec, pair + more, 40.2) == pytest.approx(20.0, abs=0.2)


def test_running_trials_of_one_depth_end_together() -> None:
    spec = measuring()
    ended = [ran(spec, FULL_MODEL, 0.0, 50.0, 100.0, 100.0, seed=1)]
    running = [ran(spec, FULL_MODEL, 100.0, status=RUNNING, seed=2 + i) for i in range(3)]
    assert seconds_left(spec, ended + running, 110.0) == pytest.approx(90.0)


def test_what_only_a_first_trial_does_is_not_expected_of_others() -> None:
    spec = measuring()
    first = ran(spec, FULL_MODEL, 0.0, 100.0, 110.0, 110.0)
    assert seconds_left(spec, [first], 110.0) == 3 * (2 * 10.0 + TRIAL_SECONDS)


def test_a_depth_that_never_ran_costs_what_the_plan_says() -> None:
    spec = measuring(candidates=(FULL_MODEL, DEPTHS[1]), seeds=1)
    known = [ran(spec, FULL_MODEL, 0.0, 10.0, 21.0, 21.0)]
    expected = TRIAL_SECONDS + 20.0 * relative_cost(spec, DEPTHS[1])
    assert seconds_left(spec, known, 21.0) == pytest.approx(expected)


def test_a_second_look_that_was_taken_is_expected_no_more() -> None:
    hunt = make_spec(strategy="hunt", rates=RateList(values=(2e-5,)), tries=0, planned_seeds=10)
    strategy = strategy_of(hunt)
    first, last = strategy.seeds_at(0, FULL_MODEL), strategy.seeds_at(-1, FULL_MODEL)
    assert first < last
    to_come = []
    for seeds in range(first, last + 1):
        trials = [ran(hunt, FULL_MODEL, 0.0, 5.0, 10.0, seed=seed) for seed in range(seeds)]
        to_begin = _trials_to_begin(strategy, trials, FULL_MODEL, LooksExpected.EVERY_SECOND)
        to_come.append(to_begin.measuring)
    assert to_come == list(range(last - first, -1, -1))


def test_rates_beyond_those_given_are_expected_until_a_depth_has_ended_without_them() -> None:
    depths = (FULL_MODEL, DEEP)
    spec = make_spec(candidates=depths, explored=depths, seeds=1, extend=Extension())
    explored = [
        dataclasses.replace(
            ran(spec, depth, 40.0 * i + 20.0 * j, 10.0, 20.0, 20.0),
            trial=spec.trial(Phase.EXPLORE, depth, rate, 0),
            # Best in the middle of what was tried: the full model goes on nowhere.
            qualities=(0.5, quality),
        )
        for i, depth in enumerate(depths)
        for j, (rate, quality) in enumerate(((2e-5, 0.9), (1e-5, 0.6)))
    ]
    spec = dataclasses.replace(spec, tries=1)
    fresh = dataclasses.replace(spec, extend=None)
    one_each = explored[::2]
    without = seconds_left(fresh, one_each, 60.0)
    assert without == 40.0  # the two measuring trials, one after the other
    more = seconds_left(spec, one_each, 60.0)
    assert more == without + 2 * FURTHER_TRIES * 20.0


def explored(spec: SearchSpec, *pairs: tuple[float, float]) -> list[KnownTrial]:
    """Return exploring trials of 20 s, one after the other: each rate at every depth."""
    trials: list[KnownTrial] = []
    for rate, quality in pairs:
        for depth in spec.explored:
            one = ran(spec, depth, 20.0 * len(trials), 10.0, 20.0, 20.0)
            trial = spec.trial(Phase.EXPLORE, depth, rate, 0)
            trials.append(dataclasses.replace(one, trial=trial, qualities=(0.5, quality)))
    return trials


INSIDE = ((1e-5, 0.6), (2e-5, 0.9), (4e-5, 0.6), (8e-5, 0.6))
AT_THE_BORDER = ((1e-5, 0.6), (5e-5, 0.9))


@pytest.mark.parametrize(
    ("pairs", "limit", "goes_on"),
    [(AT_THE_BORDER, None, True), (INSIDE, None, False), (AT_THE_BORDER, 4, False)],
)
def test_no_rate_is_expected_of_a_depth_that_explores_no_further(
    pairs: tuple[tuple[float, float], ...], limit: int | None, goes_on: bool
) -> None:
    depths = (FULL_MODEL, DEEP)
    changes = {"candidates": depths, "explored": depths, "tries": len(pairs)}
    spec = make_spec(**changes, extend=Extension(), exploring_limit=limit)
    known = explored(spec, *pairs)
    end = 20.0 * len(known)
    plain = dataclasses.replace(spec, extend=None)
    found, without = time_range(spec, known, end), time_range(plain, known, end)
    assert found is not None and without is not None
    assert (found[1] > without[1]) is goes_on and found[0] == without[0]


def test_no_more_rates_are_expected_than_are_allowed_in_all() -> None:
    depths = (FULL_MODEL, DEEP)
    spec = make_spec(candidates=depths, explored=depths, tries=2, extend=Extension())
    known = explored(spec, *AT_THE_BORDER)
    tops = []
    for limit in (4, 5, 6):
        limited = dataclasses.replace(spec, exploring_limit=limit)
        _, high = time_range(limited, known, 80.0) or (0.0, 0.0)
        tops.append(high)
    assert tops[1] - tops[0] == pytest.approx(20.0 * SEEN)
    assert tops[2] - tops[0] == pytest.approx(40.0 * SEEN)


def test_a_journal_gives_the_times(tmp_path: Path) -> None:
    from elsa_tune.searching.planning.known import known_trial
    from elsa_tune.tracking.state import SearchState
    from tests.recorded_search import search_started, whole_trial

    records = [search_started(), *whole_trial("measure-N0-s1", 0.8)]
    timed = [dataclasses.replace(one, time=100.0 + 10 * i) for i, one in enumerate(records)]
    (state,) = SearchState.replay(timed).planned_trials
    known = known_trial(make_spec(), state)
    assert (known.started, known.reported, known.ended) == (110.0, (120.0, 130.0, 140.0), 150.0)


def test_an_evaluation_is_expected_by_the_longest_of_its_like() -> None:
    spec = make_spec()
    trial = spec.trial(Phase.MEASURE, FULL_MODEL, 2e-5, 9)
    deep = ran(spec, DEEP, 0.0, 3.0, 5.0, 5.0)
    assert evaluation_seconds(spec, [], trial) is None
    assert evaluation_seconds(spec, [ran(spec, FULL_MODEL, 0.0, status=RUNNING)], trial) is None
    # By a cheaper depth until one of its own depth has reported; then by that one.
    ratio = relative_cost(spec, FULL_MODEL) / relative_cost(spec, DEEP)
    assert evaluation_seconds(spec, [deep], trial) == pytest.approx(3.0 * ratio)
    own = ran(spec, FULL_MODEL, 0.0, 8.0, 20.0, 20.0)
    assert evaluation_seconds(spec, [deep, own], trial) == 12.0
    # A dearer depth says what it takes at most.
    cheap = spec.trial(Phase.MEASURE, DEEP, 2e-5, 9)
    assert evaluation_seconds(spec, [own], cheap) == 12.0


def test_a_range_waits_until_a_trial_was_seen_through_and_contains_the_estimate() -> None:
    spec = measuring(seeds=6)
    first = ran(spec, FULL_MODEL, 0.0, 50.0, status=RUNNING)
    assert seconds_left(spec, [first], 60.0) is not None
    assert time_range(spec, [first], 60.0) is None  # it may have loaded libraries all the time
    ended = [ran(spec, FULL_MODEL, 0.0, 10.0, 20.0, 20.0, seed=1)]
    ended.append(ran(spec, FULL_MODEL, 20.0, 15.0, 30.0, 30.0, seed=2))
    estimate, found = seconds_left(spec, ended, 50.0), time_range(spec, ended, 50.0)
    assert estimate is not None and found is not None
    low, high = found
    assert 4 * 10.0 < low < estimate < high < 4 * 50.0


def test_one_report_changes_no_range_beside_trials_that_have_ended() -> None:
    spec = measuring(recipe=dataclasses.replace(make_spec().recipe, epochs=4))
    ended = [ran(spec, FULL_MODEL, 0.0, 10, 20, 40, seed=seed) for seed in (1, 2, 3)]
    silent = ran(spec, FULL_MODEL, 40.0, status=RUNNING, seed=4)
    # Its first evaluation took long: other libraries, or another node.
    reported = ran(spec, FULL_MODEL, 40.0, 60.0, status=RUNNING, seed=4)
    of_silent = seconds_per_trial(spec, [*ended, silent])
    assert seconds_per_trial(spec, [*ended, reported]) == of_silent
    low, high = time_range(spec, [*ended, reported], 100.0) or (0.0, 0.0)
    whole = of_silent[FULL_MODEL]
    assert (low, high) == (
        pytest.approx(0.75 * whole / SEEN),
        pytest.approx(0.75 * whole * SEEN),
    )


def test_the_top_of_a_hunts_range_covers_every_look_of_it() -> None:
    hunt = make_spec(
        strategy="hunt",
        candidates=DEPTHS,
        explored=DEPTHS,
        tries=2,
        planned_seeds=10,
        policy=Policy(),
    )
    known = explored(hunt, *AT_THE_BORDER)
    end = 20.0 * len(known)
    seconds = dict.fromkeys(hunt.candidates, 20.0)
    every = Expected(further=0.0, looks=LooksExpected.EVERY_SECOND)
    _, most = trial_ranges(hunt, known)[Phase.MEASURE]
    assert seconds_left(hunt, known, end, seconds=seconds, expected=every) == 20.0 * most


def test_what_never_ran_and_rates_to_come_make_the_range_wider() -> None:
    spec = make_spec(extend=Extension())
    one = [ran(spec, FULL_MODEL, 0.0, 10.0, 20.0, 20.0)]
    low, high = time_range(spec, one, 20.0) or (0.0, 0.0)
    fewer = make_spec(extend=None)
    assert 0 < low < high and high / low > 1.5
    assert (time_range(fewer, one, 20.0) or (0.0, 0.0))[1] < high


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1, 3, "5 s"),
        (31, 62, "30 to 60 s"),
        (50, 400, "50 s to 7 min"),
        (720, 2400, "12 to 40 min"),
        (3000, 12_600, "50 min to 3.5 h"),
        (36_000, 90_000, "10 to 25 h"),
    ],
)
def test_times_are_said_as_roughly_as_they_are_known(low: float, high: float, text: str) -> None:
    assert rough_range(low, high) == text
