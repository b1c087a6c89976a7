"""Intervals over seeds and examples, contrasts, and what unseen collapses do to them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats

from elsa_tune.analysis.statistics.hidden_mistakes import NOTHING_HIDDEN
from elsa_tune.analysis.statistics.intervals import (
    Interval,
    Spread,
    interval_of,
    rounding_variance,
    spread_of_printed_mean,
    welch,
)
from elsa_tune.analysis.statistics.learning import Learnt, learnt
from elsa_tune.analysis.statistics.resampling import (
    RESAMPLES,
    ExampleDraws,
    Resampled,
    resample,
    score,
)
from elsa_tune.analysis.statistics.seeds import CandidateRuns, excluded_failure_rate
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import UNRECORDED, Policy
from elsa_tune.specs.result_row import Predictions

DEEP, MIDDLE = FreezeDepth.of(4), FreezeDepth.of(2)

# More decimals than a table prints: no allowance for rounding.
FULL_RUNS = [x + 1 / 3e5 for x in (0.80, 0.90, 0.85, 0.95, 0.75)]
DEEP_RUNS = [x + 1 / 3e5 for x in (0.76, 0.80, 0.79)]


def runs(
    depth: FreezeDepth,
    qualities: list[float],
    failed: list[bool] | None = None,
) -> CandidateRuns:
    return CandidateRuns(
        candidate=depth,
        qualities=tuple(qualities),
        failed=tuple(failed or [False] * len(qualities)),
    )


def known(*several: CandidateRuns, **how: object) -> Uncertainty:
    """Return what runs say by the first policy, which lends depths one another's spread."""
    by_candidate = {one.candidate: one for one in several}
    return Uncertainty(runs=by_candidate, **{"policy": UNRECORDED, **how})  # type: ignore[arg-type]


def ends(found: Interval | None) -> tuple[float, float, float]:
    assert found is not None
    return found.low, found.lower, found.high


ENDS = 0.025, 0.05, 0.975


def students(mean: float, error: float, freedom: float) -> np.ndarray:
    return np.asarray(stats.t.ppf(ENDS, freedom, mean, error))


def moderated(own: list[float], *others: list[float]) -> tuple[float, float]:
    """Return Smyth's moderated variance of a run, and its degrees of freedom.

    It is limma's squeezeVar with two prior degrees of freedom, fewer where the others have few
    themselves.
    """
    known = sum(len(one) - 1 for one in others)
    pooled = sum(np.var(one, ddof=1) * (len(one) - 1) for one in others) / known
    prior, freedom = 2 * known / (2 + known), len(own) - 1
    variance = (prior * pooled + freedom * np.var(own, ddof=1)) / (prior + freedom)
    return float(variance), prior + freedom


def shares_below(found: Interval | None, value: float, *parts: tuple[float, float]) -> list[float]:
    """Return what lies below each end of the sum of value and two Student's t, by integration.

    parts: variance and degrees of freedom of each.
    """
    (first, freedom), (second, other) = parts

    def below(end: float) -> float:
        def joint(t: float) -> float:
            rest = (end - value - math.sqrt(first) * t) / math.sqrt(second)
            return float(stats.t.pdf(t, freedom) * stats.t.cdf(rest, other))

        return float(integrate.quad(joint, -np.inf, np.inf)[0])

    return list(map(below, ends(found)))


def spread_like(distribution: object, seed: int) -> np.ndarray:
    """Draws of a scipy distribution with exactly its quantiles."""
    shares = (np.arange(RESAMPLES) + 0.5) / RESAMPLES
    drawn = distribution.ppf(shares)  # type: ignore[attr-defined]
    return np.random.default_rng(seed).permutation(np.asarray(drawn))


def test_with_scores_alone_the_interval_is_students() -> None:
    found = known(runs(FULL_MODEL, FULL_RUNS)).quality(FULL_MODEL)
    assert ends(found) == pytest.approx(students(np.mean(FULL_RUNS), stats.sem(FULL_RUNS), 4))
    two = known(runs(DEEP, DEEP_RUNS[:2])).quality(DEEP)
    assert ends(two) == pytest.approx(students(np.mean(DEEP_RUNS[:2]), stats.sem(DEEP_RUNS[:2]), 1))


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
    # With five decimals they may be rounded, with six nobody prints them so.
    assert known(runs(DEEP, [0.73421] * 3)).quality(DEEP) is not None
    assert known(runs(DEEP, [0.734213] * 3)).quality(DEEP) is None


def test_one_run_has_no_interval() -> None:
    one = known(runs(FULL_MODEL, [0.8]), runs(DEEP, [0.7, 0.71]))
    assert one.quality(FULL_MODEL) is None
    assert one.contrast(DEEP, 0.9) is None
    alone = known(runs(FULL_MODEL, [0.800001])).spread(FULL_MODEL)
    assert (alone.variance, alone.freedom) == (0, 0)


def test_a_mean_with_its_deviation_has_students_interval_too() -> None:
    expected = students(0.8, 0.02 / math.sqrt(5), 4)
    of_mean = spread_of_printed_mean(0.02, 5, 0.0)
    found = interval_of(0.8, None, seeds=[of_mean], ends=Policy().ends)
    assert ends(found) == pytest.approx(expected)
    assert found.allowance == 0  # nothing is known of collapses


def test_more_runs_do_not_make_the_last_digit_of_a_printed_mean_finer() -> None:
    rounding = rounding_variance([0.851, 0.85], exact_decimals=6)
    assert rounding == pytest.approx(1e-6 / 12)
    assert rounding_variance([0.8512345, 0.85], exact_decimals=6) == 0
    assert 84.4 / 100 != 0.844
    assert rounding_variance([84.4 / 100, 0.85], exact_decimals=6) == rounding
    many = spread_of_printed_mean(0.001, 1_000_000, rounding)
    assert many.variance == pytest.approx(rounding, rel=1e-4)


def test_the_spread_of_other_depths_counts_as_a_prior() -> None:
    full, middle, deep = [0.801, 0.821, 0.814], [0.7511, 0.7622, 0.7703, 0.7584], [0.70001, 0.74]
    several = known(runs(FULL_MODEL, full), runs(MIDDLE, middle), runs(DEEP, deep))
    variance, freedom = moderated(deep, full, middle)
    found = several.spread(DEEP)
    assert found.freedom == pytest.approx(freedom)
    assert found.variance == pytest.approx(variance / 2, rel=1e-4)
    assert known(runs(DEEP, deep)).spread(DEEP).freedom == 1


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("as_if", [None, 12])
def test_a_contrast_is_of_two_independent_means(corrected: bool, as_if: int | None) -> None:
    """The Behrens-Fisher problem; with more seeds, which spread alike, and more tasks than one."""
    both = known(runs(FULL_MODEL, FULL_RUNS), runs(DEEP, DEEP_RUNS), chance=0.5)
    value = np.mean(DEEP_RUNS) - 0.9 * np.mean(FULL_RUNS) - (0.05 if corrected else 0)
    found = both.contrast(DEEP, 0.9, corrected=corrected, as_if_seeds=as_if and (as_if, as_if))
    assert found is not None and found.value == pytest.approx(value) and found.allowance == 0
    parts = []
    for own, other, weight in ((DEEP_RUNS, FULL_RUNS, 1.0), (FULL_RUNS, DEEP_RUNS, 0.9**2)):
        prior = 2 * (len(other) - 1) / (2 + len(other) - 1)
        count = as_if or len(own)
        variance = prior * np.var(other, ddof=1) + (count - 1) * np.var(own, ddof=1)
        freedom = prior + count - 1
        parts.append((weight * variance / freedom / count, freedom))
    assert shares_below(found, value, *parts) == pytest.approx(ENDS, abs=0.003)
    wide = (0.025, 1 - 0.025 / 3, 0.05)
    three = both.contrast(
        DEEP, 0.9, corrected=corrected, as_if_seeds=as_if and (as_if, as_if), ends=wide
    )
    assert ends(three)[:2] == ends(found)[:2]
    assert shares_below(three, value, *parts)[2] == pytest.approx(1 - 0.025 / 3, abs=0.002)


def test_rounding_is_part_of_a_contrast_too() -> None:
    deep, full = [0.74, 0.75, 0.74], [0.80, 0.80, 0.81, 0.80]
    both = known(runs(FULL_MODEL, full), runs(DEEP, deep))
    found = both.contrast(DEEP, 0.9)
    (here, freedom), (there, other) = moderated(deep, full), moderated(full, deep)
    rounding = 0.01**2 / 12
    parts = ((here + rounding) / 3, freedom), (0.9**2 * (there + rounding) / 4, other)
    value = np.mean(deep) - 0.9 * np.mean(full)
    assert shares_below(found, value, *parts) == pytest.approx(ENDS, abs=0.003)


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
    assert known(*two).contrast(DEEP, 0.9) is None
    third = runs(MIDDLE, [0.8, 0.81])
    assert known(*two, third).contrast(DEEP, 0.9) is not None


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
    whole = float((draws.candidates[DEEP] - draws.chance).var())
    assert left == pytest.approx(max(whole - draws.flips[DEEP] / 3, whole / 4), rel=1e-6)


def test_corrected_contrasts_stand_above_chance() -> None:
    both = known(runs(FULL_MODEL, [0.9] * 3), runs(DEEP, [0.83] * 3), chance=0.5)
    raw = both.contrast(DEEP, 0.9)
    corrected = both.contrast(DEEP, 0.9, corrected=True)
    assert raw is not None and raw.value == pytest.approx(0.83 - 0.81)
    assert corrected is not None and corrected.value == pytest.approx(0.33 - 0.9 * 0.4)
    no_chance = known(runs(FULL_MODEL, [0.9] * 3), runs(DEEP, [0.83] * 3))
    assert no_chance.contrast(DEEP, 0.9, corrected=True) is None


def test_examples_enter_a_contrast_as_they_enter_its_parts() -> None:
    """D = (q_N - b) - .9 (q_0 - b) stands still where q_N moves by .9 of q_0 and .1 of b."""
    full, chance = (spread_like(stats.expon(-0.02, 0.02), seed) for seed in (0, 1))
    draws = ExampleDraws(
        candidates={FULL_MODEL: full, DEEP: 0.9 * full + 0.1 * chance}, chance=chance
    )
    several = runs(FULL_MODEL, [0.8] * 3), runs(DEEP, [0.75] * 3)
    both = known(*several, chance=0.5, examples=draws)
    still = both.contrast(DEEP, 0.9, corrected=True)
    assert ends(still) == pytest.approx([-0.02] * 3)  # .25 - .9 x .3
    # Without chance it moves by .1 of b: skewed, up rather than down.
    moving = both.contrast(DEEP, 0.9)
    expected = 0.03 + 0.1 * stats.expon(-0.02, 0.02).ppf(ENDS)
    assert ends(moving) == pytest.approx(expected, abs=1e-5)
    assert both.example_variance(FULL_MODEL) == pytest.approx(np.var(full - chance))
    assert both.example_variance(MIDDLE) is None


def test_a_chance_that_is_too_high_raises_the_upper_end_of_what_is_gained_alone() -> None:
    moves = spread_like(stats.norm(0, 0.01), 0)
    usual = ExampleDraws(candidates={FULL_MODEL: moves, DEEP: moves}, chance=0 * moves)
    too_high = replace(usual, chance_too_high=0.03)
    several = runs(FULL_MODEL, [0.8] * 3), runs(DEEP, [0.6] * 3)
    for target, corrected, rise in ((0.3, True, 0.7 * 0.03), (0.3, False, 0.0), (1.0, True, 0.0)):
        before, after = (
            known(*several, chance=0.08, examples=draws).contrast(DEEP, target, corrected=corrected)
            for draws in (usual, too_high)
        )
        assert before is not None and after is not None
        assert (after.low, after.lower) == (before.low, before.lower)
        assert after.high == pytest.approx(before.high + rise)


def test_the_moves_of_a_depth_are_the_mean_of_its_runs_about_their_own() -> None:
    rng = np.random.default_rng(0)
    resampled = Resampled(rng.random((RESAMPLES, 3)), rng.random(RESAMPLES), examples=50)
    draws = ExampleDraws.of(resampled, {FULL_MODEL: [0, 1], DEEP: [2, None]})
    chance = resampled.chance - resampled.chance.mean()
    moves = resampled.runs - resampled.runs.mean(axis=0)
    assert draws.chance == pytest.approx(chance, abs=1e-6)
    assert draws.candidates[FULL_MODEL] == pytest.approx((moves[:, 0] + moves[:, 1]) / 2, abs=1e-6)
    # A diverged run counts as chance, and moves with it.
    assert draws.candidates[DEEP] == pytest.approx((moves[:, 2] + chance) / 2, abs=1e-6)
    assert not draws.are_counted


def test_a_single_run_flips_with_no_other() -> None:
    resampled, _ = _answers(0.0)
    draws = ExampleDraws.of(resampled, {FULL_MODEL: [0], DEEP: [1, 2]})
    assert set(draws.flips) == {DEEP}


def _is_certified(
    metric: str, positives: int, missed: int, *, size: int = 1, missed_by_all: int = 0
) -> bool:
    """Whether .9 of a full model is certified of a depth that misses so many units of class 1.

    The full model misses only those that all do.
    """
    labels = np.zeros(200, dtype=np.int8)
    labels[: positives * size] = 1
    units = np.repeat(np.arange(200 // size), size).astype(np.int32)
    answers: list[Predictions] = []
    both: list[CandidateRuns] = []
    for candidate, count in ((FULL_MODEL, missed_by_all), (DEEP, missed_by_all + missed)):
        predictions = labels.copy()
        predictions[: count * size] = 0
        answer = Predictions(predictions=predictions, labels=labels, classes=2, units=units)
        answers.append(answer)
        both.append(runs(candidate, [score(answer, metric)] * 3))
    draws = ExampleDraws.of(resample(answers, metric), {FULL_MODEL: [0] * 3, DEEP: [1] * 3})
    contrast = known(*both, examples=draws).contrast(DEEP, 0.9)
    assert contrast is not None
    return contrast.lower > 0


@pytest.mark.parametrize(("positives", "size"), [(4, 1), (8, 1), (8, 2), (16, 1), (30, 1)])
@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_few_positives_certify_falsely_in_5_percent_at_most(
    metric: str, positives: int, size: int
) -> None:
    """At the edge the full model misses none and the depth 2 of 11, where F1 is .9."""
    false = 0.0
    for missed in range(positives):
        if not _is_certified(metric, positives, missed, size=size):
            break
        false += stats.binom.pmf(missed, positives, 2 / 11)
    assert false <= 0.05


def _is_certified_by_accuracy(
    rows: int,
    missed: int,
    target: float,
    *,
    missed_by_all: int = 0,
    tested: FreezeDepth = DEEP,
    other: FreezeDepth = FULL_MODEL,
) -> bool:
    """Whether a depth is that misses more than another, each in three like seeds."""
    labels = np.arange(rows, dtype=np.int8) % 2
    answers = []
    both = []
    for candidate, count in ((other, missed_by_all), (tested, missed_by_all + missed)):
        predictions = labels.copy()
        predictions[:count] = 1 - labels[:count]
        answers.append(Predictions(predictions=predictions, labels=labels, classes=2))
        both.append(runs(candidate, [score(answers[-1], "accuracy")] * 3))
    draws = ExampleDraws.of(resample(answers, "accuracy"), {other: [0] * 3, tested: [1] * 3})
    contrast = known(*both, examples=draws).contrast(tested, target, against=other)
    assert contrast is not None
    return contrast.lower > 0


@pytest.mark.parametrize(("rows", "target"), [(40, 0.9), (100, 0.95), (200, 0.975), (300, 0.9)])
def test_few_mistakes_certify_falsely_in_5_percent_at_most(rows: int, target: float) -> None:
    """At the edge the full model makes none and the depth 1 - target of all."""
    false = 0.0
    for missed in range(rows):
        if not _is_certified_by_accuracy(rows, missed, target):
            break
        false += stats.binom.pmf(missed, rows, 1 - target)
    assert false <= 0.05


def test_mistakes_that_all_runs_share_say_nothing_of_those_of_a_depth() -> None:
    """All miss a third of 150 rows; at the edge the depth misses 5 of the others."""
    false = 0.0
    for missed in range(100):
        if not _is_certified_by_accuracy(150, missed, 0.95, missed_by_all=50):
            break
        false += stats.binom.pmf(missed, 100, 0.05)
    assert false <= 0.05


@pytest.mark.parametrize(("tested", "other"), [(FULL_MODEL, DEEP), (MIDDLE, DEEP)])
def test_that_holds_of_any_two_ways(tested: FreezeDepth, other: FreezeDepth) -> None:
    """The full model may be the one that is tested, or none of the two."""
    false = 0.0
    for missed in range(40):
        if not _is_certified_by_accuracy(
            100, missed, 0.95, missed_by_all=60, tested=tested, other=other
        ):
            break
        false += stats.binom.pmf(missed, 40, 0.05)
    assert false <= 0.05


def test_a_mistake_that_all_runs_share_does_not_certify() -> None:
    assert not _is_certified("f1", 8, 0, missed_by_all=1)


def test_what_a_depth_may_hide_lowers_the_lower_ends_alone() -> None:
    labels = np.repeat(np.array([1, 0], np.int8), [8, 192])
    answers = labels.copy()
    answers[0] = 0
    run = Predictions(predictions=answers, labels=labels, classes=2)
    draws = ExampleDraws.of(resample([run], "f1"), {FULL_MODEL: [0] * 3, DEEP: [0] * 3})
    unsure = known(runs(FULL_MODEL, [0.9] * 3), runs(DEEP, [0.9] * 3), examples=draws)
    sure = replace(unsure, examples=replace(draws, hidden_shares={}))
    for of_unsure, of_sure in (
        (unsure.quality(DEEP), sure.quality(DEEP)),
        (unsure.contrast(DEEP, 0.9), sure.contrast(DEEP, 0.9)),
    ):
        assert of_unsure is not None
        assert of_sure is not None
        assert of_unsure.high == of_sure.high
        assert of_unsure.low < of_sure.low
        assert of_unsure.lower < of_sure.lower
    p_value, p_if_sure = (one.p_value(DEEP, 0.9, against=FULL_MODEL) for one in (unsure, sure))
    assert p_value is not None
    assert p_if_sure is not None
    assert p_value > p_if_sure


def test_many_positives_without_a_mistake_certify() -> None:
    assert _is_certified("f1", 30, 0)


@pytest.mark.parametrize("count", [20, 400])
def test_runs_without_a_mistake_may_make_some_on_fresh_examples(count: int) -> None:
    resampled = Resampled(
        np.ones((RESAMPLES, 6)),
        np.full(RESAMPLES, 0.5),
        examples=count,
        hidden=replace(NOTHING_HIDDEN, flawless=frozenset(range(6)), cost=1 / count, most=count),
    )
    draws = ExampleDraws.of(resampled, {FULL_MODEL: [0, 1, 2], DEEP: [3, 4, 5]})
    several = known(runs(FULL_MODEL, [1.0] * 3), runs(DEEP, [1.0] * 3), examples=draws)
    found = several.quality(DEEP)
    assert found is not None and found.high == pytest.approx(1, abs=0.1 / count)
    assert found.lower == pytest.approx(1 - 3 / count, abs=0.1 / count)  # the rule of three
    contrast = several.contrast(DEEP, 0.9)
    assert contrast is not None and contrast.low < contrast.value == pytest.approx(0.1)


def test_examples_that_are_only_counted_move_every_depth_on_its_own() -> None:
    counted = ExampleDraws.counted({FULL_MODEL: 0.8, DEEP: 0.75}, 400)
    assert counted.are_counted and not counted.chance.any()
    spread = math.sqrt(0.8 * 0.2 / 400)
    assert counted.candidates[FULL_MODEL].std() == pytest.approx(spread, rel=0.03)
    # 8 of 10: what a uniform prior makes of it.
    few = ExampleDraws.counted({DEEP: 0.8}, 10).candidates[DEEP] + 0.8
    shares = [0.05, 0.5, 0.95]
    assert np.quantile(few, shares) == pytest.approx(stats.beta(9, 3).ppf(shares), abs=0.006)
    both = np.corrcoef(counted.candidates[FULL_MODEL], counted.candidates[DEEP])
    assert abs(both[0, 1]) < 0.05
    for candidate, moves in counted.candidates.items():
        assert moves.var() == pytest.approx(counted.counted_variances[candidate], rel=0.06)
    flawless = ExampleDraws.counted({DEEP: 1.0}, 400).candidates[DEEP]
    assert np.quantile(flawless, 0.05) == pytest.approx(-3 / 400, rel=0.05)  # the rule of three


def test_chance_over_counted_examples_may_move_against_a_depth() -> None:
    """Of what is gained over .65, on 1,000 examples; at t = 1 chance leaves the contrast."""
    accuracies = {FULL_MODEL: 0.9, DEEP: 0.715}
    several = runs(FULL_MODEL, [0.9] * 3), runs(DEEP, [0.715] * 3)

    def width(target: float, *, chance: float | None, corrected: bool = True) -> float:
        draws = ExampleDraws.counted(accuracies, 1000, chance)
        both = known(*several, chance=0.65, examples=draws)
        found = both.contrast(DEEP, target, corrected=corrected)
        assert found is not None
        return found.high - found.low

    of_depth = math.sqrt(0.715 * 0.285 / 1000)
    of_chance = math.sqrt(0.65 * 0.35 / 1000)
    for target in (0.1, 0.5):
        error = of_depth + (1 - target) * of_chance
        assert width(target, chance=0.65) == pytest.approx(2 * 1.96 * error, rel=0.03)
    # There the two depths move farther apart than that.
    assert width(0.9, chance=0.65) == width(0.9, chance=None)
    assert width(0.5, chance=0.65, corrected=False) == width(0.5, chance=None, corrected=False)
    assert width(0.5, chance=0.0) == width(0.5, chance=None)


def test_a_flawless_full_model_that_is_counted_speaks_for_no_depth() -> None:
    """Of 50 answers without an error 50 more may have some, at .95 of the score as well."""
    perfect = {FULL_MODEL: 1.0, DEEP: 1.0}
    draws = ExampleDraws.counted(perfect, 50)
    several = known(runs(FULL_MODEL, [1.0] * 3), runs(DEEP, [1.0] * 3), examples=draws)
    contrast = several.contrast(DEEP, 0.95)
    assert contrast is not None and contrast.allowance == pytest.approx(0.95 / 52)
    assert contrast.lower < 0


def test_a_lucky_correlation_moves_as_one_at_the_target_would() -> None:
    """A depth at .97 beside a full model at .98 is tested as if it were at 90 % of that."""
    moves = np.random.default_rng(0).normal(0, 0.01, RESAMPLES)
    draws = ExampleDraws(
        candidates={FULL_MODEL: np.zeros(RESAMPLES), DEEP: moves}, chance=np.zeros(RESAMPLES)
    )
    full, deep = runs(FULL_MODEL, [0.98] * 3), runs(DEEP, [0.97] * 3)
    widths = []
    highest = []
    for metric in ("accuracy", "pearson", "spearman"):
        of_metric = replace(draws, metric=metric)
        contrast = known(full, deep, examples=of_metric).contrast(DEEP, 0.9)
        assert contrast is not None
        widths.append(contrast.value - contrast.lower)
        highest.append(contrast.high)
    at_target, at_depth = 1 - 0.882**2, 1 - 0.97**2
    assert widths[1] == pytest.approx(at_target / at_depth * widths[0], rel=0.01)
    # Ranks are interpolated, which adds noise that does not end next to 1.
    of_ranks = math.hypot(at_target, 0.055) / math.hypot(at_depth, 0.055)
    assert widths[2] == pytest.approx(of_ranks * widths[0], rel=0.01)
    assert highest[0] == highest[1] == highest[2]
    # One below the target is as unsure as it seems, and one next to 1 not without end.
    for quality, most in ((0.8, 1.0), (0.999999, 50.0)):
        deep = runs(DEEP, [quality] * 3)
        contrast = known(full, deep, examples=replace(draws, metric="pearson")).contrast(DEEP, 0.9)
        assert contrast is not None
        width = contrast.value - contrast.lower
        assert width == pytest.approx(most * widths[0], rel=0.01)


def test_a_correlation_with_a_full_model_worse_than_guessing_raises_nothing() -> None:
    """At a boundary below 0, or at 1, a depth moves at least as far as it seems to."""
    moves = np.random.default_rng(0).normal(0, 0.01, RESAMPLES)
    draws = ExampleDraws(
        candidates={FULL_MODEL: np.zeros(RESAMPLES), DEEP: moves},
        chance=np.zeros(RESAMPLES),
        metric="pearson",
    )
    deep = runs(DEEP, [0.4] * 3)
    widths = []
    for of_full in (-1.0, -0.5, 0.0):
        full = runs(FULL_MODEL, [of_full] * 3)
        contrast = known(full, deep, examples=draws).contrast(DEEP, 1.0)
        assert contrast is not None
        widths.append(contrast.value - contrast.lower)
    assert widths == pytest.approx([widths[2]] * 3)
    assert known(full, runs(DEEP, [1.0] * 3), examples=draws).contrast(DEEP, 1.0) is not None


def test_the_allowance_of_a_flawless_correlation_is_not_stretched() -> None:
    """Of 300 labels from 0 to 5, all answered to the digit, one may yet be missed."""
    labels = np.round(5 * (np.arange(300) + 0.5) / 300).astype(np.float32)
    noisy = labels + np.random.default_rng(1).normal(0, 0.5, 300).astype(np.float32)
    answered = [
        Predictions(predictions=given, labels=labels, classes=0) for given in (noisy, labels)
    ]
    qualities = [score(one, "pearson") for one in answered]
    resampled = resample(answered, "pearson")
    draws = ExampleDraws.of(resampled, {FULL_MODEL: [0] * 3, DEEP: [1] * 3})
    full, deep = (
        runs(depth, [quality] * 3)
        for depth, quality in zip((FULL_MODEL, DEEP), qualities, strict=True)
    )
    contrast = known(full, deep, examples=draws).contrast(DEEP, 0.9)
    assert contrast is not None
    assert 0 < contrast.lower < contrast.value


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
@pytest.mark.parametrize("noise", [0.05, 0.1])
def test_a_depth_next_to_1_and_as_good_as_the_full_model_is_certified(
    metric: str, noise: float
) -> None:
    rng = np.random.default_rng(2)
    labels = rng.normal(size=300)
    answered = []
    for _ in range(2):
        given = (labels + rng.normal(0, noise, 300)).astype(np.float32)
        answered.append(Predictions(predictions=given, labels=labels.astype(np.float32), classes=0))
    draws = ExampleDraws.of(resample(answered, metric), {FULL_MODEL: [0] * 3, DEEP: [1] * 3})
    quality = score(answered[0], metric)
    several = known(runs(FULL_MODEL, [quality] * 3), runs(DEEP, [quality] * 3), examples=draws)
    contrast = several.contrast(DEEP, 0.9)
    assert contrast is not None and contrast.lower > 0.05


def test_equal_scores_of_unknown_examples_are_no_certainty() -> None:
    equal = runs(DEEP, [0.805046] * 3)
    assert known(equal).quality(DEEP) is None
    # Whose mean is not 327 / 408 in its last digit.
    assert known(runs(DEEP, [327 / 408] * 3)).quality(DEEP) is None
    found = known(equal, examples=ExampleDraws.counted({DEEP: 0.805046}, 872)).quality(DEEP)
    assert found is not None and found.high - found.low > 0.04


def test_a_constant_answer_needs_no_imaginary_mistake() -> None:
    """Its Matthews correlation is 0 on any examples."""
    resampled = Resampled(np.zeros((RESAMPLES, 3)), np.zeros(RESAMPLES), examples=100)
    draws = ExampleDraws.of(resampled, {DEEP: [0, 1, 2]})
    assert not draws.candidates[DEEP].any()


def test_seeds_and_examples_add_up_without_what_both_hold() -> None:
    """Runs that answer single examples differently (flips) spread for that reason already."""
    moves = spread_like(stats.norm(0, 0.01), 0)
    still = np.zeros(RESAMPLES)
    several = runs(FULL_MODEL, [0.79, 0.80, 0.81]), runs(DEEP, [0.75] * 40)
    draws = ExampleDraws(candidates={FULL_MODEL: moves, DEEP: still}, chance=still)
    both = known(*several, examples=draws)
    variance, freedom = moderated([0.79, 0.80, 0.81], [0.75] * 40)
    parts = (variance / 3, freedom), (0.01**2, 1e6)
    assert shares_below(both.quality(FULL_MODEL), 0.80, *parts) == pytest.approx(ENDS, abs=0.003)

    flips = 2e-4
    draws = ExampleDraws(
        candidates={FULL_MODEL: moves, DEEP: still}, chance=still, flips={FULL_MODEL: flips}
    )
    both = known(*several, examples=draws)
    # More than what the seeds show, so that it takes the place of that.
    parts = (flips / 3, freedom), (0.01**2 - flips / 3, 1e6)
    assert shares_below(both.quality(FULL_MODEL), 0.80, *parts) == pytest.approx(ENDS, abs=0.003)
    # Of D the full model is .9; of the other depth, whose 40 seeds agree, next to nothing is left.
    found = both.contrast(DEEP, 0.9)
    parts = (0.9**2 * flips / 3, freedom), (0.9**2 * (0.01**2 - flips / 3), 1e6)
    assert shares_below(found, 0.75 - 0.72, *parts) == pytest.approx(ENDS, abs=0.003)
    # A failed seed differs from the others for another reason.
    failed = runs(FULL_MODEL, [0.79, 0.80, 0.81], failed=[True, False, False])
    alone = known(failed, several[1], examples=draws)
    assert alone.spread(FULL_MODEL).variance == pytest.approx(0.01**2 / 3)
    assert alone.example_variance(FULL_MODEL) == pytest.approx(np.var(moves))


def test_what_a_depths_own_seeds_flip_leaves_its_contrast_once() -> None:
    """The full model stands still, and its 40 seeds agree: all luck is the depth's."""
    moves = spread_like(stats.norm(0, 0.01), 0)
    still = np.zeros(RESAMPLES)
    flips = 1.5e-4
    draws = ExampleDraws(
        candidates={FULL_MODEL: still, DEEP: moves}, chance=still, flips={DEEP: flips}
    )
    several = runs(FULL_MODEL, [0.9] * 40), runs(DEEP, [0.79, 0.80, 0.81])
    both = known(*several, examples=draws, policy=Policy())
    of_seeds = flips / 3
    by_examples = 0.01**2 - flips / 3
    found = both.contrast(DEEP, 0.9, ends=(0.025, 0.975, 0.05))
    parts = (of_seeds, 2), (by_examples, 1e6)
    assert shares_below(found, 0.80 - 0.81, *parts) == pytest.approx(ENDS, abs=0.003)


def mixed(working: list[float], rate: float) -> tuple[float, float]:
    """Mean and variance of a run that has chance (.5) at that rate, and else is like these."""
    mean = (1 - rate) * np.mean(working) + rate * 0.5
    square = (1 - rate) * (np.var(working, ddof=1) + np.mean(working) ** 2) + rate * 0.5**2
    return float(mean), float(square - mean**2)


def test_collapses_seen_at_other_depths_count_at_this_one() -> None:
    """Three seeds in a row show no collapse half the time when a fifth of them do.

    Of one in eleven Laplace's rule makes two in thirteen.
    """
    full, deep, middle = FULL_RUNS, DEEP_RUNS, [0.88, 0.89, 0.90]
    steady = runs(FULL_MODEL, full), runs(DEEP, deep)
    without = known(*steady, runs(MIDDLE, middle), chance=0.5)
    assert without.failures() == (0, 11)
    before = without.contrast(DEEP, 0.9)
    assert before is not None and before.allowance == 0
    collapsed = runs(MIDDLE, [0.88, 0.89, 0.50], failed=[False, False, True])
    with_one = known(*steady, collapsed, chance=0.5)
    assert with_one.failures() == (1, 11)
    after = with_one.contrast(DEEP, 0.9)
    assert after is not None and after.value == before.value
    parts, shift = [], 0.0
    for own, other, weight in ((deep, full, 1.0), (full, deep, 0.9**2)):
        variance, freedom = moderated(own, other, middle[:2])
        mean, of_mixture = mixed(own, 2 / 13)
        parts.append((weight * max(variance, of_mixture) / len(own), freedom))
        shift = shift or np.mean(own) - mean
    assert after.allowance == pytest.approx(shift)
    unshifted = dataclasses.replace(after, low=after.low + shift, lower=after.lower + shift)
    assert shares_below(unshifted, after.value, *parts) == pytest.approx(ENDS, abs=0.003)


def test_a_full_model_that_was_unlucky_is_expected_to_do_better() -> None:
    """One of its three runs failed, two in eleven are to be expected."""
    deep, full, middle = DEEP_RUNS, [FULL_RUNS[0], 0.5, FULL_RUNS[2]], [0.88, 0.87, 0.89]
    unlucky = runs(FULL_MODEL, full, failed=[False, True, False])
    several = known(unlucky, runs(DEEP, deep), runs(MIDDLE, middle), chance=0.5)
    found = several.contrast(DEEP, 0.9)
    assert found is not None
    of_full, _ = mixed([full[0], full[2]], 2 / 11)
    shift = np.mean(deep) - mixed(deep, 2 / 11)[0] + 0.9 * (of_full - np.mean(full))
    assert found.allowance == pytest.approx(shift)


def test_a_depth_where_every_run_failed_says_nothing_of_the_others() -> None:
    steady = runs(FULL_MODEL, [0.90, 0.91, 0.89]), runs(DEEP, [0.86, 0.87, 0.86])
    head = runs(FreezeDepth.of(6), [0.5, 0.5, 0.5], failed=[True] * 3)
    alone = known(*steady, chance=0.5).contrast(DEEP, 0.9)
    beside = known(*steady, head, chance=0.5).contrast(DEEP, 0.9)
    assert alone == beside


def test_a_depth_that_hardly_learns_says_nothing_of_the_others_either() -> None:
    steady = runs(FULL_MODEL, [0.90, 0.91, 0.89]), runs(DEEP, [0.86, 0.87, 0.86])
    head = runs(FreezeDepth.of(6), [0.5, 0.5, 0.53], failed=[True, True, False])
    assert known(*steady, head, chance=0.5).failures() == (0, 6)
    unlucky = runs(MIDDLE, [0.5, 0.88, 0.89], failed=[True, False, False])
    assert known(*steady, head, unlucky, chance=0.5).failures() == (1, 9)
    assert known(*steady, head, unlucky).failures() == (0, 0)  # failed at what?
    # Half of what the best depth gains is enough.
    best = runs(FULL_MODEL, [1.0, 1.0])
    half = runs(DEEP, [0.75, 0.5], failed=[False, True])
    assert known(best, half, chance=0.5).failures() == (1, 4)
    less = runs(DEEP, [0.74, 0.5], failed=[False, True])
    assert known(best, less, chance=0.5).failures() == (0, 2)


@pytest.mark.parametrize(("seeds", "share"), [(3, 0.632), (5, 0.451), (10, 0.259)])
def test_what_seeds_without_a_failure_exclude(seeds: int, share: float) -> None:
    assert excluded_failure_rate(seeds) == pytest.approx(share, abs=5e-4)
    assert (1 - excluded_failure_rate(seeds)) ** seeds == pytest.approx(0.05)


def test_a_quality_exactly_at_the_bound_has_not_learnt() -> None:
    """One run that lies above chance by 1.64 of its standard error of .25, and by a bit more."""
    bound = 0.25 * float(special.stdtrit(math.inf, Policy().confidence))
    assert bound == pytest.approx(0.25 * 1.645, abs=1e-4)

    def verdict(quality: float) -> Learnt:
        return learnt(quality, chance=0.0, spread=None, example_variance=0.25**2, policy=Policy())

    assert verdict(bound) is Learnt.NO
    assert verdict(math.nextafter(bound, 1)) is Learnt.UNTESTED


def test_one_more_run_is_expected_by_the_moderated_spread() -> None:
    variance, freedom = moderated(DEEP_RUNS, FULL_RUNS)
    both = known(runs(FULL_MODEL, FULL_RUNS), runs(DEEP, DEEP_RUNS))
    error = math.sqrt(variance * (1 + 1 / 3))
    expected = students(np.mean(DEEP_RUNS), error, freedom)
    assert ends(both.next_run(DEEP)) == pytest.approx(expected)
    # Alone, by Student's t and its own spread; one seed tells of none.
    alone = known(runs(DEEP, DEEP_RUNS))
    error = np.std(DEEP_RUNS, ddof=1) * math.sqrt(1 + 1 / 3)
    assert ends(alone.next_run(DEEP)) == pytest.approx(students(np.mean(DEEP_RUNS), error, 2))
    assert known(runs(DEEP, DEEP_RUNS[:1])).next_run(DEEP) is None
    # Equal seeds neither, unless others tell how far seeds spread.
    equal = runs(DEEP, [0.8312, 0.8312])
    assert known(equal).next_run(DEEP) is None
    assert known(runs(FULL_MODEL, FULL_RUNS), equal).next_run(DEEP) is not None


# ---- by this version's policy: each depth's spread is its own, added up by Welch ----


def test_a_depths_spread_is_its_own() -> None:
    several = known(runs(FULL_MODEL, FULL_RUNS), runs(DEEP, DEEP_RUNS), policy=Policy())
    found = several.spread(DEEP)
    assert found.freedom == 2
    assert found.variance == pytest.approx(np.var(DEEP_RUNS, ddof=1) / 3)


@pytest.mark.parametrize("deep", [DEEP_RUNS, DEEP_RUNS[:2], [0.76, 0.94, 0.58, 0.88]])
def test_a_contrast_of_scores_is_welchs(deep: list[float]) -> None:
    """Compared with scipy's test of two means, the full model's runs multiplied by the target."""
    both = known(runs(FULL_MODEL, FULL_RUNS), runs(DEEP, deep), policy=Policy())
    found = both.contrast(DEEP, 0.9)
    scaled = [0.9 * quality for quality in FULL_RUNS]
    expected = stats.ttest_ind(deep, scaled, equal_var=False)
    for share, end in ((0.025, "low"), (0.975, "high")):
        interval = expected.confidence_interval(0.95)
        assert getattr(found, end) == pytest.approx(getattr(interval, end), abs=1e-4), share
    error = 0.04 if len(deep) == 2 else 0.045
    one_sided = expected.confidence_interval(1 - 2 * error)
    assert found is not None and found.lower == pytest.approx(one_sided.low, abs=1e-4)


@pytest.mark.parametrize(("full_seeds", "seeds"), [(2, 2), (2, 3), (5, 2)])
def test_pairs_of_seeds_are_tested_with_less_error(full_seeds: int, seeds: int) -> None:
    """Welch's approximation is worst there, whichever of the two depths has the pair."""
    full, deep = FULL_RUNS[:full_seeds], DEEP_RUNS[:seeds]
    found = known(runs(FULL_MODEL, full), runs(DEEP, deep), policy=Policy()).contrast(DEEP, 0.9)
    expected = stats.ttest_ind(deep, [0.9 * quality for quality in full], equal_var=False)
    assert found is not None
    assert found.lower == pytest.approx(expected.confidence_interval(0.92).low, abs=1e-9)
    assert found.high == pytest.approx(expected.confidence_interval(0.95).high, abs=1e-9)
    # Two pairs have two degrees of freedom, of which early searches took three.
    early = known(runs(FULL_MODEL, full), runs(DEEP, deep)).contrast(DEEP, 0.9)
    assert (early is None) == (full_seeds + seeds == 4)


def test_welchs_degrees_of_freedom_lie_between_the_least_and_all() -> None:
    alike = welch(Spread(variance=2.0, freedom=3), Spread(variance=2.0, freedom=3))
    assert (alike.variance, alike.freedom) == (4.0, pytest.approx(6, abs=1e-9))
    unlike = welch(Spread(variance=1.0, freedom=9), Spread(variance=4.0, freedom=2))
    by_hand = 5.0**2 / (1.0**2 / 9 + 4.0**2 / 2)
    assert unlike.freedom == pytest.approx(by_hand, abs=1e-9)
    equal_scores = welch(Spread(variance=0.0, freedom=2), Spread(variance=0.0, freedom=4))
    assert (equal_scores.variance, equal_scores.freedom) == (0.0, 6)


def test_a_fall_seen_elsewhere_counts_as_far_as_it_went() -> None:
    """A seed that lost a third of its gain does not make others fear a collapse."""
    full = runs(FULL_MODEL, [0.80, 0.81, 0.79, 0.80])
    fell = runs(MIDDLE, [0.80, 0.81, 0.70, 0.80], failed=[False, False, True, False])
    deep = runs(DEEP, [0.79, 0.80, 0.78, 0.79])
    partly = known(full, fell, deep, chance=0.5, policy=Policy()).contrast(DEEP, 0.9)
    collapsed = runs(MIDDLE, [0.80, 0.81, 0.50, 0.80], failed=[False, False, True, False])
    all_of_it = known(full, collapsed, deep, chance=0.5, policy=Policy()).contrast(DEEP, 0.9)
    assert partly is not None and all_of_it is not None
    assert 0 < partly.allowance < 0.5 * all_of_it.allowance


def test_of_several_falls_their_mean_counts() -> None:
    """Of a gain of .3 one of ten seeds lost all, another one a third.

    Two thirds are expected of three in twelve.
    """
    full = runs(FULL_MODEL, [0.80, 0.81, 0.79])
    fell = runs(MIDDLE, [0.80, 0.50, 0.70, 0.80], failed=[False, True, True, False])
    deep = runs(DEEP, [0.79, 0.80, 0.78])
    found = known(full, fell, deep, chance=0.5, policy=Policy()).contrast(DEEP, 0.9)
    assert found is not None
    assert found.allowance == pytest.approx(3 / 12 * (0.79 - 0.5) * 2 / 3)
