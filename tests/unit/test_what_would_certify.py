"""What would certify a depth that is not: seeds of a new search, evaluation rows, or neither."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from elsa_tune.analysis import power as power_before_training
from elsa_tune.analysis.answer import Answer, WouldCertify
from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.forecast import MOST_SEEDS, _is_probably_above, round_numbers, with_rows
from elsa_tune.analysis.power import FLIPPED_SHARE, PAIRED_SHARE, PlannedTest, Power
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.analysis.statistics.resampling import ExampleDraws, resample
from elsa_tune.analysis.statistics.seeds import CandidateRuns
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import Claim, Policy, SeedCounts
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.search import Looks
from tests.unit.result_rows import BY_SEEDS_ALONE, seeds, seeds_advised, takes_more_rows

NEITHER = WouldCertify(seeds=None, evaluation_rows=None)
DEEP = FreezeDepth(3, True)
DEEPER = FreezeDepth(5, True)
FULL = [0.89, 0.90, 0.91]


def around(mean: float, spread: float) -> list[float]:
    """Return three qualities with this mean and standard deviation."""
    return [mean - spread, mean, mean + spread]


def alternating(mean: float, spread: float, count: int) -> list[float]:
    """Return so many qualities with this mean and standard deviation."""
    steps = np.linspace(-1, 1, count)
    return list(mean + spread * steps / np.std(steps, ddof=1))


def answered(rows: list[ResultRow]) -> Answer:
    (answer,) = answer_rows(rows)
    return answer


def studied(*depths: tuple[int, list[float]], **how: Any) -> Answer:
    """Answer for the full model and these depths, by their frozen layers.

    A constant answer has nothing, so that raw and corrected are the same.
    """
    how = {"chance": 0.0, **how}
    rows = seeds(0, FULL, **how)
    for frozen, qualities in depths:
        rows += seeds(frozen, qualities, **how)
    return answered(rows)


def seeds_by_hand(above: float, spread: float) -> int:
    """Return the fewest seeds a depth by Welch's test: both depths spread alike, 90 % is kept.

    Its bound must lie above 0 by .84 / 1.64 of the way to it, for four of five.
    """
    for count in range(4, 1000):
        freedom = (count - 1) * (1 + 0.81) ** 2 / (1 + 0.81**2)
        error = spread * math.sqrt((1 + 0.81) / count)
        quantile = stats.t.ppf(1 - Policy().test_error(count), freedom)
        if above > (1 + 0.84 / 1.64) * quantile * error:
            return count
    raise AssertionError("no number of seeds is enough")


@pytest.mark.parametrize("above", [0.015, 0.0101, 0.008])
def test_the_seeds_are_those_of_welchs_test(above: float) -> None:
    answer = studied((3, around(0.81 + above, 0.01)))
    expected = seeds_by_hand(above, 0.01)
    needed = answer.would_certify[DEEP]
    assert needed.seeds is not None and abs(needed.seeds - expected) <= 1  # drawn quantiles
    assert needed.evaluation_rows is None  # nothing is known of the examples
    assert seeds_advised(answer) == needed.seeds and not takes_more_rows(answer)


def test_more_seeds_than_can_be_advised_are_none() -> None:
    assert seeds_by_hand(0.004, 0.01) > MOST_SEEDS
    assert studied((3, around(0.814, 0.01))).would_certify[DEEP] == NEITHER


def test_what_is_certified_needs_nothing() -> None:
    answer = studied((3, around(0.88, 0.001)))
    assert answer.certified is not None and answer.certified.candidate == DEEP
    assert answer.would_certify == {}
    for point in answer_object(answer)["curve"]:
        assert point["would_certify"] is None


def test_nothing_is_promised_below_the_target() -> None:
    answer = studied((3, around(0.80, 0.0001)), examples=100)
    assert answer.would_certify[DEEP] == NEITHER
    assert "No number of seeds or evaluation rows that can be advised" in answer.certainty


def test_rows_are_enough_where_examples_are_too_few() -> None:
    """D is .04. 100 examples move it by sqrt(.85 x .15 + .81 x .9 x .1) / 10; seeds hardly do."""
    rows = seeds(0, [0.9001, 0.8999, 0.9], examples=100, chance=0.0)
    rows += seeds(3, [0.8501, 0.8499, 0.85], examples=100, chance=0.0)
    answer = answered(rows)
    needed = answer.would_certify[DEEP]
    of_one_example = 0.85 * 0.15 + 0.81 * 0.9 * 0.1
    errors_below = stats.norm.ppf(1 - Policy().test_error(3))
    expected = of_one_example * (errors_below * (1 + 0.84 / 1.64) / 0.04) ** 2
    assert needed.seeds is None and takes_more_rows(answer)
    assert needed.evaluation_rows == pytest.approx(expected, rel=0.05)
    assert "evaluation rows (more seeds alone would not do)" in answer.certainty


def test_seeds_and_rows_together_where_neither_would_do_alone() -> None:
    """D is .018. 1,000 rows move it by .012, and two seeds of each say little of theirs."""

    def look(count: int, examples: int) -> Answer:
        full, deep = alternating(0.905, 0.007, count), alternating(0.8825, 0.0035, count)
        how = {"chance": 0.5, "examples": examples, "policy": Policy()}
        return answered([*seeds(0, full, **how), *seeds(3, deep, **how)])

    first = look(2, 1000)
    needed = first.corrected_would_certify[DEEP]
    together = needed.together
    assert needed.seeds is None and needed.evaluation_rows is None and together is not None
    assert (
        f"certify the last 3 layers by {together.seeds} seeds at each depth and "
        f"{together.evaluation_rows:,} evaluation rows."
    ) in first.certainty
    told = answer_object(first)["curve"][1]["corrected_would_certify"]["together"]
    assert told == dataclasses.asdict(together)
    then = look(together.seeds, together.evaluation_rows).corrected_certified
    assert then is not None and then.candidate == DEEP
    for fewer in (look(2, together.evaluation_rows), look(together.seeds, 1000)):
        assert fewer.corrected_certified is not None
        assert fewer.corrected_certified.candidate.is_reference


def test_of_the_score_both_take_what_the_claim_takes_of_the_depths_before() -> None:
    """The score of N = 5 is tested once the gain of N = 3 is certified."""
    how = {"chance": 0.5, "examples": 1000, "policy": Policy()}
    rows = seeds(0, alternating(0.905, 0.007, 2), **how)
    rows += seeds(3, alternating(0.8825, 0.0035, 2), **how)
    rows += seeds(5, alternating(0.86, 0.0035, 2), **how)
    answer = answered(rows)
    assert answer.certified is not None and answer.certified.candidate == DEEP
    of_gain = answer.corrected_would_certify[DEEP].together
    of_score = answer.would_certify[DEEPER].together
    assert of_gain is not None and of_score is not None
    # Alone it would take fewer: the score keeps 95.0 %, and the gain of N = 3 94.4 %.
    assert of_score == of_gain


def test_with_those_rows_it_is_certified() -> None:
    few = studied((3, around(0.85, 0.003)), examples=100)
    rows = few.would_certify[DEEP].evaluation_rows
    assert rows is not None and few.certified is not None
    assert few.certified.candidate.is_reference
    many = studied((3, around(0.85, 0.003)), examples=rows)
    assert many.certified is not None and many.certified.candidate == DEEP


def test_with_those_seeds_it_is_certified() -> None:
    advised = studied((3, [0.81, 0.83, 0.82])).would_certify[DEEP].seeds
    assert advised is not None
    again = (advised + 2) // 3
    rows = [*seeds(0, FULL * again), *seeds(3, [0.81, 0.83, 0.82] * again)]
    settled = answered(rows)
    assert settled.certified is not None and settled.certified.candidate == DEEP


def test_a_depth_takes_what_those_before_it_take() -> None:
    alone = studied((5, around(0.84, 0.01)))
    behind = studied((3, around(0.825, 0.01)), (5, around(0.84, 0.01)))
    first = behind.would_certify[DEEP].seeds
    assert first is not None
    easier = alone.would_certify.get(DEEPER)
    assert easier is None or (easier.seeds or 0) < first
    assert behind.would_certify[DEEPER].seeds == first
    blocked = studied((3, around(0.80, 0.01)), (5, around(0.88, 0.001)))
    assert blocked.would_certify == {DEEP: NEITHER, DEEPER: NEITHER}


def test_a_certified_depth_before_it_counts_no_more() -> None:
    answer = studied((3, around(0.88, 0.001)), (5, around(0.825, 0.01)))
    assert answer.certified is not None and answer.certified.candidate == DEEP
    assert answer.would_certify.keys() == {DEEPER}
    assert answer.would_certify[DEEPER].seeds is not None


def test_raw_and_corrected_are_two_questions() -> None:
    """Of .90 and chance .5, 90 % is .81 raw and .86 corrected."""
    answer = studied((3, around(0.825, 0.01)), chance=0.5)
    assert answer.would_certify[DEEP].seeds is not None
    assert answer.corrected_would_certify[DEEP] == NEITHER
    of_deep = answer_object(answer)["curve"][1]
    assert of_deep["would_certify"]["seeds"] == answer.would_certify[DEEP].seeds
    nothing = {"seeds": None, "evaluation_rows": None, "together": None}
    assert of_deep["corrected_would_certify"] == nothing
    # What is said is of the claim.
    assert "No number of seeds or evaluation rows that can be advised" in answer.certainty
    both = studied(
        (3, around(0.825, 0.01)),
        chance=0.5,
        policy=dataclasses.replace(BY_SEEDS_ALONE, claim=Claim.BOTH),
    )
    assert "Corrected for chance: no number of seeds" in both.certainty


def test_a_raw_depth_takes_what_the_one_before_takes_corrected() -> None:
    """Of the claim N = 3 needs more seeds than raw, and N = 5 comes after it."""
    of_both = (3, around(0.875, 0.012)), (5, around(0.83, 0.01))
    answer = studied(*of_both, chance=0.5)
    assert answer.certified is not None and answer.certified.candidate == DEEP
    gain = answer.corrected_would_certify[DEEP].seeds
    assert gain is not None and gain > 3
    score = answer.would_certify[DEEPER].seeds
    assert score is not None and score >= gain
    alone = studied((5, around(0.83, 0.01)), chance=0.5)
    assert alone.certified is not None and alone.certified.candidate == DEEPER


def test_too_few_seeds_say_nothing() -> None:
    rows = [*seeds(0, FULL), *seeds(3, [0.83])]
    answer = answered(rows)
    assert answer.would_certify == {}


@pytest.mark.parametrize(("lower", "is_above"), [(0.0169, True), (0.0167, False)])
def test_an_allowance_for_collapses_is_no_part_of_the_luck(lower: float, is_above: bool) -> None:
    """With a standard error of .02 the bound must lie .84 x .02 above 0, whatever is allowed."""
    allowance = 0.05
    value = lower + allowance + 1.64 * 0.02
    contrast = Interval(value=value, low=0.0, high=0.2, lower=lower, allowance=allowance)
    assert _is_probably_above(contrast) is is_above


# ---- planned tests ----


def planned(frozen: int, qualities: list[float], *counts: tuple[int, int]) -> list[ResultRow]:
    of_looks = tuple(SeedCounts(*seeds) for seeds in counts)
    looks = Looks(after=0, first_seed=1, counts=of_looks)
    return seeds(frozen, qualities, looks=looks, search="s", trial="t", examples=10**6, chance=0.0)


def test_a_tested_search_is_never_to_be_resumed_with_more_seeds() -> None:
    rows = [*seeds(0, FULL, search="s", trial="t"), *seeds(3, [0.81, 0.83, 0.82], trial="t")]
    rows = [dataclasses.replace(row, search="s", chance=0.0) for row in rows]
    answer = answered(rows)
    assert seeds_advised(answer) is not None
    assert answer.next_step is None
    assert "new search" in answer.certainty


def test_a_hunt_that_is_over_is_told_of_seeds_in_a_new_search() -> None:
    counts = ((3, 3), (4, 3))
    over = answered(
        [*planned(0, FULL, *counts), *planned(3, [*around(0.822, 0.012), 0.822], *counts)]
    )
    assert not over.open_look and over.next_step is None
    look = over.contrasts[DEEP].look
    assert look is not None and look.number == 2
    needed = over.would_certify[DEEP].seeds
    assert needed is not None and needed > min(look.seeds, look.full_seeds)
    assert f"{needed} seeds at each depth" in over.certainty


def test_an_open_look_comes_before_any_advice() -> None:
    counts = ((3, 3), (10, 4))
    hunted = answered([*planned(0, FULL, *counts), *planned(3, around(0.828, 0.012), *counts)])
    assert hunted.open_look and hunted.next_step == "elsa-tune resume s --until certified"
    assert "new search" not in hunted.certainty


# ---- fewer examples' luck ----


def test_more_rows_shrink_what_examples_bring_and_no_more() -> None:
    """Runs of equal truth differ by the luck of single examples alone: half of it with 4 x E."""
    generator = np.random.default_rng(0)
    examples = 400
    labels = np.zeros(examples, dtype=np.int8)
    kept: dict[str, Predictions] = {}
    rows: list[ResultRow] = []
    for frozen in (0, 3):
        wrong_in = [generator.random(examples) < 0.2 for _ in range(4)]
        qualities = [1 - float(wrong.mean()) for wrong in wrong_in]
        for row, wrong in zip(seeds(frozen, qualities), wrong_in, strict=True):
            name = f"{frozen}-{row.seed}"
            kept[name] = Predictions(predictions=wrong.astype(np.int8), labels=labels, classes=2)
            rows.append(
                dataclasses.replace(
                    row, trial=name, predictions=name, examples=examples, metric="accuracy"
                )
            )

    class Kept:
        def __call__(self, row: ResultRow) -> Predictions | None:
            return kept[row.predictions or ""]

    (answer,) = answer_rows(rows, evidence=Kept())
    now = answer.uncertainty
    then = with_rows(now, 4)
    assert now.has_predictions
    moved_now = now.example_variance(DEEP)
    moved_then = then.example_variance(DEEP)
    assert moved_now is not None and moved_then == pytest.approx(moved_now / 4)
    # All of the spread comes from single examples: it falls to a quarter, or the flips' own.
    flips = now.examples.flips[DEEP] if now.examples is not None else 0.0
    spread = max(np.var(now.runs[DEEP].qualities, ddof=1) - flips * 3 / 4, flips / 4)
    assert then.spread(DEEP).variance == pytest.approx(spread / 4)
    assert then.runs[DEEP].mean == pytest.approx(now.runs[DEEP].mean)


def test_of_more_rows_as_many_mistakes_may_be_hidden_and_each_costs_less() -> None:
    labels = np.repeat(np.array([1, 0], np.int8), [16, 184])
    one_missed = labels.copy()
    one_missed[0] = 0
    flawless = Predictions(predictions=labels, labels=labels, classes=2)
    unsure = Predictions(predictions=one_missed, labels=labels, classes=2)
    columns = {FULL_MODEL: [0] * 3, DEEP: [1] * 3}
    draws = ExampleDraws.of(resample([flawless, unsure], "f1"), columns)
    runs = {}
    for candidate in columns:
        runs[candidate] = CandidateRuns(
            candidate=candidate, qualities=(0.9,) * 3, failed=(False,) * 3
        )
    then = with_rows(Uncertainty(runs=runs, chance=0.0, examples=draws), 4).examples
    assert then is not None
    assert then.hidden[DEEP] == pytest.approx(draws.hidden[DEEP] / 4)
    # What a flawless run may hide moves with its draws, and so must what is not counted of it.
    mean_move = float(then.candidates[FULL_MODEL].mean())
    assert then.falls == {FULL_MODEL: pytest.approx(-mean_move)}


def test_of_more_rows_that_are_counted_chance_is_surer() -> None:
    """Four times the rows halve its error."""
    rows = [*seeds(0, around(0.9, 0.003), chance=0.65), *seeds(3, around(0.82, 0.003), chance=0.65)]
    rows = [dataclasses.replace(row, examples=500, metric="accuracy") for row in rows]
    (answer,) = answer_rows(rows, 0.5)
    now = answer.uncertainty
    then = with_rows(now, 4)
    assert now.examples is not None and then.examples is not None
    assert now.examples.chance_error == pytest.approx(math.sqrt(0.65 * 0.35 / 500))
    assert then.examples.chance_error == pytest.approx(now.examples.chance_error / 2)


def test_more_rows_leave_a_single_run_as_it_is() -> None:
    """One run shows no spread that could shrink."""
    now = studied((3, [0.83]), examples=100).uncertainty
    assert with_rows(now, 4).runs[DEEP] == now.runs[DEEP]


def test_more_seeds_shrink_what_unseen_collapses_bring_too() -> None:
    """One seed of one depth failed: all others may have hidden some, fewer of many seeds."""
    rows = seeds(0, around(0.9, 0.003), chance=0.5)
    rows += seeds(3, around(0.895, 0.003), chance=0.5)
    rows += seeds(5, [*around(0.89, 0.003), 0.5], chance=0.5)
    uncertainty = answered(rows).uncertainty
    assert uncertainty.failures() == (1, 10)
    half_widths: list[float] = []
    for count in (3, 12, 1200):
        contrast = uncertainty.contrast(DEEP, 0.75, as_if_seeds=(count, count), corrected=True)
        assert contrast is not None
        half_widths.append(contrast.value - contrast.allowance - contrast.lower)
    now = uncertainty.contrast(DEEP, 0.75, corrected=True)
    assert now is not None
    assert half_widths[0] == pytest.approx(now.value - now.allowance - now.lower)
    assert half_widths[1] < 0.6 * half_widths[0] and half_widths[2] < 0.1 * half_widths[0]


def test_a_depth_takes_no_more_rows_than_one_before_it_did() -> None:
    """The second would do with fewer rows than the first, so that it takes just as many."""
    how = {"chance": 0.5, "examples": 300, "metric": "accuracy"}
    rows = seeds(0, [0.9, 0.905, 0.903, 0.902], **how)
    rows += seeds(3, [0.885, 0.884, 0.886, 0.885], **how)
    rows += seeds(4, [0.895, 0.894, 0.896, 0.897], **how)
    rows += seeds(5, [0.896, 0.895, 0.895, 0.896], **how)
    needed = answered(rows).corrected_would_certify
    rows_needed = [advice.evaluation_rows for advice in needed.values()]
    assert len(rows_needed) == 3 and rows_needed[0] is not None and rows_needed[0] > 300
    assert set(rows_needed) == {rows_needed[0]}


def test_round_numbers() -> None:
    assert round_numbers(97, 130) == [98, 99, 100, 110, 120, 130]
    assert round_numbers(10, 12) == [11, 12]
    assert round_numbers(12, 12) == []


# ---- before training ----


def power(*counts: tuple[int, int], level: float = 0.045, spread: float = 0.01) -> Power:
    tests = []
    for seeds_of_depth, full_seeds in counts or ((3, 3),):
        tests.append(PlannedTest(seeds=seeds_of_depth, full_seeds=full_seeds, level=level))
    return Power(guessing=0.5, target=0.9, tests=tuple(tests), seed_spread=spread)


def test_power_grows_with_rows_seeds_and_margin() -> None:
    shares = [power().share_certified(rows, 0.03) for rows in (71, 277, 1000, 5463)]
    assert shares == sorted(shares) and shares[0] < 0.25 and shares[-1] > 0.8
    few, many = (power((count, 3)).share_certified(1000, 0.03) for count in (3, 10))
    assert few < many < power((3, 3), (10, 3)).share_certified(1000, 0.03) < few + many
    assert 0.01 < power().share_certified(1000, 0.0) <= 0.045  # at the target: the level at most


def test_what_is_needed_is_enough_and_no_less_is() -> None:
    rows = power().rows_needed(277, 0.03)
    assert rows is not None
    assert power().share_certified(rows, 0.03) >= 0.8 > power().share_certified(rows - 100, 0.03)
    margin = power().margin_needed(277)
    assert margin is not None
    assert power().share_certified(277, margin) >= 0.8
    assert power().share_certified(277, margin - 0.005) < 0.8
    # Seeds alone leave too much open.
    assert power(spread=0.05).rows_needed(277, 0.03) is None


def test_the_full_model_is_assumed_halfway_between_guessing_and_perfect() -> None:
    """With guessing at .2 that is .6; 90 % of the gain of .4 is .36."""
    assumed = Power(guessing=0.2, target=0.9, tests=(), seed_spread=0.01)
    assert assumed.full == pytest.approx(0.6)
    assert assumed.enough == pytest.approx(0.56)


def test_no_margin_is_named_that_no_depth_can_have() -> None:
    """Above .725 there is room for .275; with seeds this far apart a test needs more."""
    assert power(spread=0.2).enough == pytest.approx(0.725)
    assert power(spread=0.2).margin_needed(10_000) is None
    assert power(spread=0.02).margin_needed(10_000) is not None


@pytest.mark.parametrize("counts", [(3, 3), (10, 2), (2, 10)])
def test_the_share_certified_is_that_of_drawn_searches(counts: tuple[int, int]) -> None:
    """Searches are drawn, their seeds' spreads estimated, and each is tested by Welch's t."""
    spread = 0.02
    rows = 1000
    margin = 0.04
    level = 0.045
    generator = np.random.default_rng(11)
    searches = 20_000
    of_one_example = 0.75 * 0.25  # the full model scores .75
    by_examples = PAIRED_SHARE * of_one_example / rows
    flips = FLIPPED_SHARE * of_one_example / rows
    of_one_run = spread**2 + flips
    estimated = []
    freedoms = []
    true_variance = by_examples
    for weight, count in zip((1.0, 0.9), counts, strict=True):
        scale = weight**2 * of_one_run / count
        drawn = generator.chisquare(count - 1, searches) / (count - 1)
        drawn = np.maximum(drawn, flips / of_one_run)
        estimated.append(scale * drawn)
        freedoms.append(count - 1)
        true_variance += scale
    variance = estimated[0] + estimated[1]
    freedom = variance**2 / (estimated[0] ** 2 / freedoms[0] + estimated[1] ** 2 / freedoms[1])
    for_seeds = stats.t.ppf(1 - level, freedom) * np.sqrt(variance)
    for_examples = stats.norm.ppf(1 - level) * math.sqrt(by_examples)
    contrast = generator.normal(margin, math.sqrt(true_variance), searches)
    expected = np.mean(contrast > np.hypot(for_seeds, for_examples))
    share = power(counts, level=level, spread=spread).share_certified(rows, margin)
    assert share == pytest.approx(expected, abs=0.012)


def test_a_plan_knows_that_few_mistakes_hide_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 rows the depth misses five or so where the full model is right, of 10,000 many."""
    tests = (PlannedTest(seeds=3, full_seeds=3, level=0.045),)
    planned = Power(guessing=0.9, target=0.9, tests=tests, seed_spread=0.01)
    few, many = (planned.share_certified(rows, 0.03) for rows in (200, 10_000))
    monkeypatch.setattr(power_before_training, "FEW_MISTAKES", 1e-9)
    assert few < planned.share_certified(200, 0.03) - 0.05
    assert many == planned.share_certified(10_000, 0.03)


@pytest.mark.parametrize(
    ("deviation", "mean_hidden", "level"),
    [
        (0.01, 0.005, 0.05),
        (0.01, 1e-4, 0.05),
        (0.001, 0.01, 0.025),
        (0.009, 0.005, 0.01),
        (0.02, 1e-5, 0.05),
        (0.02, 1e-12, 0.05),
    ],
)
def test_what_hides_moves_the_end_as_in_draws(
    deviation: float, mean_hidden: float, level: float
) -> None:
    generator = np.random.default_rng(3)
    sums = generator.normal(0, deviation, 500_000) + generator.exponential(mean_hidden, 500_000)
    end = power_before_training._upper_end(level, deviation, mean_hidden)
    assert np.mean(sums > end) == pytest.approx(level, rel=0.03)
