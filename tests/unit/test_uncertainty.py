"""Intervals over seeds and examples, contrasts, and what unseen collapses do to them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from elsa_tune.analysis.statistics.resampling import RESAMPLES, Resampled, resample
from elsa_tune.analysis.statistics.uncertainty import (
    DepthRuns,
    ExampleDraws,
    Uncertainty,
    excluded_failure_rate,
    interval_of_mean,
)
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.result_row import Predictions

DEEP = FreezeDepth.of(4)


def runs(
    depth: FreezeDepth,
    qualities: list[float],
    failed: list[bool] | None = None,
) -> DepthRuns:
    return DepthRuns(
        depth=depth,
        qualities=tuple(qualities),
        failed=tuple(failed or [False] * len(qualities)),
    )


def known(*several: DepthRuns, **how: object) -> Uncertainty:
    return Uncertainty(runs={one.depth: one for one in several}, **how)  # type: ignore[arg-type]


def test_with_scores_alone_the_interval_is_students() -> None:
    qualities = [x + 1 / 3e5 for x in (0.80, 0.82, 0.81, 0.85, 0.79)]
    found = known(runs(FULL_MODEL, qualities)).quality(FULL_MODEL)
    assert found is not None
    low, high = stats.t.interval(0.95, 4, np.mean(qualities), stats.sem(qualities))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert found.low < found.lower < found.value


def test_rounded_scores_may_be_anything_that_rounds_to_them() -> None:
    """Three runs of .80 are no proof of a quality of .8000."""
    found = known(runs(FULL_MODEL, [0.80, 0.80, 0.80])).quality(FULL_MODEL)
    assert found is not None
    half = stats.t.ppf(0.975, 2) * 0.01 / math.sqrt(12) / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((0.80 - half, 0.80 + half))
    # How finely they were written shows in all depths together, also one that hardly learns.
    finer = known(runs(FULL_MODEL, [0.80, 0.80, 0.80]), runs(DEEP, [0.3304, 0.33, 0.33]))
    narrow = finer.quality(FULL_MODEL)
    assert narrow is not None and narrow.high - narrow.low == pytest.approx(2 * half / 100)


def test_one_run_has_no_interval() -> None:
    one = known(runs(FULL_MODEL, [0.8]), runs(DEEP, [0.7, 0.71]))
    assert one.quality(FULL_MODEL) is None
    assert one.contrast(DEEP, FULL_MODEL, 0.9, corrected=False) is None


def test_a_mean_with_its_deviation_has_students_interval_too() -> None:
    low, high = stats.t.interval(0.95, 4, 0.8, 0.02 / math.sqrt(5))
    found = interval_of_mean(0.8, 0.02, 5)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_the_spread_of_other_depths_counts_as_a_prior() -> None:
    """Smyth's moderated variance (limma's squeezeVar) with two prior degrees of freedom, fewer
    where the others have few themselves."""
    full, middle, deep = [0.801, 0.821, 0.814], [0.7511, 0.7622, 0.7703, 0.7584], [0.70001, 0.74]
    several = known(runs(FULL_MODEL, full), runs(FreezeDepth.of(2), middle), runs(DEEP, deep))
    squares = np.var(full, ddof=1) * 2 + np.var(middle, ddof=1) * 3
    prior = 2 * 5 / (2 + 5)
    expected = (prior * squares / 5 + 1 * np.var(deep, ddof=1)) / (prior + 1) / 2
    found = several.spread(DEEP)
    assert found.freedom == pytest.approx(prior + 1)
    assert found.variance == pytest.approx(expected, rel=1e-4)
    assert known(runs(DEEP, deep)).spread(DEEP).freedom == 1


def test_a_depth_with_a_failed_seed_stands_alone() -> None:
    steady = runs(FULL_MODEL, [0.80, 0.81, 0.82])
    broken = runs(DEEP, [0.5, 0.78123, 0.79], failed=[True, False, False])
    found = known(steady, broken, chance=0.5).spread(DEEP)
    assert found.freedom == 2
    assert found.variance == pytest.approx(np.var([0.5, 0.78123, 0.79], ddof=1) / 3, rel=1e-3)
    # And lends the others only its working seeds.
    assert known(steady, broken, chance=0.5).spread(FULL_MODEL).freedom == pytest.approx(2 + 2 / 3)


def test_two_seeds_will_do_where_other_depths_tell_of_the_spread() -> None:
    two = runs(FULL_MODEL, [0.80123, 0.81]), runs(DEEP, [0.79, 0.8])
    assert known(*two).contrast(DEEP, FULL_MODEL, 0.9, corrected=False) is None
    third = runs(FreezeDepth.of(2), [0.8, 0.81])
    assert known(*two, third).contrast(DEEP, FULL_MODEL, 0.9, corrected=False) is not None


def _answers(agreeing: float) -> tuple[Resampled, np.ndarray]:
    """Six runs of accuracy .8 or so, of which a share of the examples is answered alike."""
    rng = np.random.default_rng(3)
    common = rng.random(500) < 0.8
    own = rng.random((500, 6)) < 0.8
    right = np.where(rng.random((500, 1)) < agreeing, common[:, None], own)
    labels = np.ones(500, dtype=np.int8)
    answers = [
        Predictions(predictions=column.astype(np.int8), labels=labels, classes=2)
        for column in right.T
    ]
    return resample(answers, "accuracy"), right


@pytest.mark.parametrize("agreeing", [0.0, 0.7, 1.0])
def test_what_runs_answer_differently_counts_once(agreeing: float) -> None:
    """In accuracy a flip's variance is known: that of the example's answers, by E."""
    resampled, right = _answers(agreeing)
    draws = ExampleDraws.of(resampled, {FULL_MODEL: [0, 1, 2], DEEP: [3, 4, 5]})
    flips = right[:, 3:].var(axis=1, ddof=1).mean() / 500
    assert draws.flips[DEEP] == pytest.approx(flips, rel=0.05, abs=1e-9)
    both = known(
        *(runs(depth, [0.8001, 0.8, 0.7999]) for depth in (FULL_MODEL, DEEP)), examples=draws
    )
    # Seeds that hardly differ in all still differ on single examples.
    assert both.spread(DEEP).variance >= draws.flips[DEEP] / 3
    left = both.example_variance(DEEP)
    assert left is not None
    whole = float((draws.depths[DEEP] - draws.chance).var())
    assert left == pytest.approx(max(whole - draws.flips[DEEP] / 3, whole / 4), rel=1e-6)


def test_corrected_contrasts_stand_above_chance() -> None:
    both = known(runs(FULL_MODEL, [0.9] * 3), runs(DEEP, [0.83] * 3), chance=0.5)
    raw = both.contrast(DEEP, FULL_MODEL, 0.9, corrected=False)
    corrected = both.contrast(DEEP, FULL_MODEL, 0.9, corrected=True)
    assert raw is not None and raw.value == pytest.approx(0.83 - 0.81)
    assert corrected is not None and corrected.value == pytest.approx(0.33 - 0.9 * 0.4)
    no_chance = known(runs(FULL_MODEL, [0.9] * 3), runs(DEEP, [0.83] * 3))
    assert no_chance.contrast(DEEP, FULL_MODEL, 0.9, corrected=True) is None


def test_examples_widen_what_seeds_leave() -> None:
    rng = np.random.default_rng(0)
    draws = ExampleDraws(
        depths={FULL_MODEL: rng.normal(0, 0.01, RESAMPLES), DEEP: np.zeros(RESAMPLES)},
        chance=np.zeros(RESAMPLES),
    )
    several = runs(FULL_MODEL, [0.8, 0.8, 0.8]), runs(DEEP, [0.8, 0.8, 0.8])
    found = known(*several, examples=draws).quality(FULL_MODEL)
    assert found is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.01, rel=0.05)
    contrast = known(*several, examples=draws).contrast(DEEP, FULL_MODEL, 0.5, corrected=False)
    assert contrast is not None
    assert contrast.high - contrast.low == pytest.approx(1.96 * 0.01, rel=0.05)


@pytest.mark.parametrize("count", [20, 400])
def test_runs_without_a_mistake_may_make_some_on_fresh_examples(count: int) -> None:
    resampled = Resampled(np.ones((RESAMPLES, 6)), np.full(RESAMPLES, 0.5), examples=count)
    draws = ExampleDraws.of(resampled, {FULL_MODEL: [0, 1, 2], DEEP: [3, 4, 5]})
    several = known(runs(FULL_MODEL, [1.0] * 3), runs(DEEP, [1.0] * 3), examples=draws)
    found = several.quality(DEEP)
    assert found is not None and found.high == pytest.approx(1, abs=0.1 / count)
    assert found.lower == pytest.approx(1 - 3 / count, abs=0.1 / count)  # the rule of three
    contrast = several.contrast(DEEP, FULL_MODEL, 0.9, corrected=False)
    assert contrast is not None and contrast.low < contrast.value == pytest.approx(0.1)


def test_examples_that_are_only_counted_move_every_depth_on_its_own() -> None:
    counted = ExampleDraws.counted({FULL_MODEL: 0.8, DEEP: 0.75}, 400)
    assert counted.are_counted and not counted.chance.any()
    spread = math.sqrt(0.8 * 0.2 / 400)
    assert counted.depths[FULL_MODEL].std() == pytest.approx(spread, rel=0.03)
    both = np.corrcoef(counted.depths[FULL_MODEL], counted.depths[DEEP])
    assert abs(both[0, 1]) < 0.05
    flawless = ExampleDraws.counted({DEEP: 1.0}, 400).depths[DEEP]
    assert np.quantile(flawless, 0.05) == pytest.approx(-3 / 400, rel=0.05)  # the rule of three


def test_equal_scores_of_unknown_examples_are_no_certainty() -> None:
    equal = runs(DEEP, [0.805046] * 3)
    assert known(equal).quality(DEEP) is None
    found = known(equal, examples=ExampleDraws.counted({DEEP: 0.805046}, 872)).quality(DEEP)
    assert found is not None and found.high - found.low > 0.04


def test_a_constant_answer_needs_no_imaginary_mistake() -> None:
    """Its Matthews correlation is 0 on any examples."""
    resampled = Resampled(np.zeros((RESAMPLES, 3)), np.zeros(RESAMPLES), examples=100)
    draws = ExampleDraws.of(resampled, {DEEP: [0, 1, 2]})
    assert not draws.depths[DEEP].any()


def test_seeds_and_examples_together_are_wider_than_either() -> None:
    """Between Student's with the summed variance and the two half-widths added."""
    rng = np.random.default_rng(0)
    qualities = [0.79, 0.80, 0.81]
    draws = ExampleDraws(
        depths={FULL_MODEL: rng.normal(0, 0.02, RESAMPLES)}, chance=np.zeros(RESAMPLES)
    )
    found = known(runs(FULL_MODEL, qualities), examples=draws).quality(FULL_MODEL)
    assert found is not None
    of_seeds = stats.t.ppf(0.975, 2) * 0.01 / math.sqrt(3)
    of_examples = 1.96 * 0.02
    half = (found.high - found.low) / 2
    assert max(of_seeds, of_examples) < half < of_seeds + of_examples


def test_what_more_seeds_would_bring() -> None:
    both = known(runs(FULL_MODEL, [0.80, 0.82, 0.84]), runs(DEEP, [0.75, 0.76, 0.80]))
    now = both.contrast(DEEP, FULL_MODEL, 0.9, corrected=False)
    later = both.contrast(DEEP, FULL_MODEL, 0.9, corrected=False, as_if_seeds=12)
    assert now is not None and later is not None
    assert later.value == now.value and later.lower > now.lower
    same = both.contrast(DEEP, FULL_MODEL, 0.9, corrected=False, as_if_seeds=3)
    assert same is not None and same.lower == pytest.approx(now.lower)


def test_collapses_seen_at_other_depths_count_at_this_one() -> None:
    """Three seeds in a row show no collapse half the time when a fifth of them do."""
    middle = FreezeDepth.of(2)
    steady = runs(FULL_MODEL, [0.90, 0.91, 0.89]), runs(DEEP, [0.86, 0.87, 0.86])
    without = known(*steady, runs(middle, [0.88, 0.89, 0.90]), chance=0.5)
    collapsed = runs(middle, [0.88, 0.89, 0.50], failed=[False, False, True])
    with_one = known(*steady, collapsed, chance=0.5)
    before = without.contrast(DEEP, FULL_MODEL, 0.9, corrected=False)
    after = with_one.contrast(DEEP, FULL_MODEL, 0.9, corrected=False)
    assert before is not None and after is not None
    assert before.value == after.value and before.lower > 0 > after.lower


def test_a_depth_where_every_run_failed_says_nothing_of_the_others() -> None:
    steady = runs(FULL_MODEL, [0.90, 0.91, 0.89]), runs(DEEP, [0.86, 0.87, 0.86])
    head = runs(FreezeDepth.of(6), [0.5, 0.5, 0.5], failed=[True] * 3)
    alone = known(*steady, chance=0.5).contrast(DEEP, FULL_MODEL, 0.9, corrected=False)
    beside = known(*steady, head, chance=0.5).contrast(DEEP, FULL_MODEL, 0.9, corrected=False)
    assert alone == beside


def test_a_depth_that_hardly_learns_says_nothing_of_the_others_either() -> None:
    steady = runs(FULL_MODEL, [0.90, 0.91, 0.89]), runs(DEEP, [0.86, 0.87, 0.86])
    head = runs(FreezeDepth.of(6), [0.5, 0.5, 0.53], failed=[True, True, False])
    assert known(*steady, head, chance=0.5).failures() == (0, 6)
    unlucky = runs(FreezeDepth.of(2), [0.5, 0.88, 0.89], failed=[True, False, False])
    assert known(*steady, head, unlucky, chance=0.5).failures() == (1, 9)


@pytest.mark.parametrize(("seeds", "share"), [(3, 0.632), (5, 0.451), (10, 0.259)])
def test_what_seeds_without_a_failure_exclude(seeds: int, share: float) -> None:
    assert excluded_failure_rate(seeds) == pytest.approx(share, abs=5e-4)
    assert (1 - excluded_failure_rate(seeds)) ** seeds == pytest.approx(0.05)
