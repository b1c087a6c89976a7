"""The differences between ways that are more than noise, and what a rerun would need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from elsa_tune.analysis.comparing.comparison_json import comparison_object
from elsa_tune.analysis.comparing.ways import Differences, Rerun, WayBasis, WayComparison
from elsa_tune.analysis.statistics.differences import (
    FOUND,
    corrected_by_holm,
    difference_test,
    fewest_seeds,
    rows_needed,
    seeds_needed,
)
from elsa_tune.analysis.statistics.intervals import Spread
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.policy import Policy, SeedCounts
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import Looks
from tests.unit.result_rows import row, seeds
from tests.unit.ways import ADAPTER, FULL, HEAD, LAST_TWO, Adapter, compared, four_ways


def line(comparison: WayComparison, label: str) -> str:
    return dict(comparison.first_lines.lines).get(label, "")


def differences(rows: Sequence[ResultRow]) -> Differences:
    found = compared(rows).differences
    assert found is not None
    return found


def single(examples: int | None = 1000, **qualities: float) -> list[ResultRow]:
    """Return one run a way: of the full model, adapters, the last two layers and the head."""
    names = {"full": FULL, "adapter": ADAPTER, "last_two": LAST_TWO, "head": HEAD}
    return [row(names[name], quality, examples=examples) for name, quality in qualities.items()]


# ---- the numbers ----


def test_a_difference_is_tested_by_welch() -> None:
    first, second = (0.91, 0.92, 0.93), (0.88, 0.90, 0.87, 0.89)
    parts = [
        Spread(variance=float(np.var(values, ddof=1)) / len(values), freedom=len(values) - 1)
        for values in (first, second)
    ]
    difference = float(np.mean(first) - np.mean(second))
    test = difference_test(difference, parts)
    by_scipy = stats.ttest_ind(first, second, equal_var=False)
    interval = by_scipy.confidence_interval()
    assert test.p == pytest.approx(by_scipy.pvalue)
    assert test.p_above == pytest.approx(by_scipy.pvalue / 2)
    assert test.half == pytest.approx((interval.high - interval.low) / 2)
    reverse = difference_test(-difference, parts)
    assert reverse.p == pytest.approx(test.p) and reverse.p_above == pytest.approx(1 - test.p / 2)


def test_of_a_known_variance_it_is_tested_as_of_a_normal_variable() -> None:
    test = difference_test(0.02, [Spread(variance=1e-4, freedom=math.inf)])
    assert test.half == pytest.approx(0.0195996, rel=1e-4)
    assert test.p == pytest.approx(0.0455, abs=1e-4)


def test_what_is_known_does_not_make_few_seeds_certain() -> None:
    """Two seeds that agree by luck beside rows: Welch's sum would test as if nothing were drawn."""
    seeds, rows = Spread(variance=1e-5, freedom=1), Spread(variance=1e-5, freedom=math.inf)
    by_seeds = stats.t.isf(0.025, 1) * math.sqrt(1e-5)
    by_rows = stats.norm.isf(0.025) * math.sqrt(1e-5)
    test = difference_test(math.hypot(by_seeds, by_rows), [seeds, rows])
    assert test.p == pytest.approx(0.05) and test.p_above == pytest.approx(0.025)
    assert test.half == pytest.approx(test.difference)
    below = difference_test(-test.difference, [seeds, rows])
    assert below.p == pytest.approx(0.05) and below.p_above == pytest.approx(0.975)
    far = difference_test(10.0, [replace(seeds, freedom=100), rows])
    assert 0 < far.p < 1e-14 and far.p_above == far.p / 2


@pytest.mark.parametrize(
    ("difference", "p", "p_above"), [(0.1, 0.0, 0.0), (-0.1, 0.0, 1.0), (0.0, 1.0, 0.5)]
)
def test_what_does_not_vary_is_certain(difference: float, p: float, p_above: float) -> None:
    test = difference_test(difference, [Spread(variance=0.0, freedom=2)])
    assert (test.p, test.p_above, test.half) == (p, p_above, 0.0)


def test_holm_is_monotone_and_at_most_one() -> None:
    corrected = corrected_by_holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.9})
    assert corrected == pytest.approx({"a": 0.04, "c": 0.09, "b": 0.09, "d": 0.9})
    assert corrected_by_holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}


def power(difference: float, variance: float) -> float:
    """Return how often a two-sided test at 5 % finds a difference of a known variance."""
    return float(stats.norm.sf(1.959964 - difference / math.sqrt(variance)))


def test_so_many_rows_and_seeds_find_it_four_times_out_of_five() -> None:
    of_runs, of_row = 2e-4, 0.3
    rows = rows_needed(0.02, of_row, of_runs / 8)
    assert rows is not None
    assert power(0.02, of_row / rows + of_runs / 8) == pytest.approx(0.8, abs=1e-3)


def power_of_seeds(difference: float, variance_of_runs: float, seeds: int) -> float:
    """Return how often a two-sided t test at 5 % finds a difference of means over so many seeds."""
    freedom = 2 * (seeds - 1)
    shift = difference / math.sqrt(variance_of_runs / seeds)
    return float(stats.nct.sf(stats.t.ppf(0.975, freedom), freedom, shift))


@pytest.mark.parametrize("difference", [0.01, 0.02, 0.03, 0.1])
def test_so_few_seeds_find_it_four_times_out_of_five_with_any_number_of_rows(
    difference: float,
) -> None:
    seeds = fewest_seeds(difference, 2e-4)
    assert power_of_seeds(difference, 2e-4, seeds) > 0.79
    assert seeds == 2 or power_of_seeds(difference, 2e-4, seeds - 1) < 0.81


def test_rows_ask_for_more_seeds() -> None:
    assert fewest_seeds(0.02, 2e-4) == 6
    assert seeds_needed(0.02, 2e-4, 2.5e-5) == 9


def test_too_few_seeds_or_rows_hide_a_difference_whatever_the_others_are() -> None:
    assert rows_needed(0.02, 0.3, 1e-4) is None
    assert seeds_needed(0.02, 2e-4, 1e-4) is None


# ---- the ways ----


def test_one_run_a_way_is_held_against_the_evaluation_rows() -> None:
    comparison = compared(single(full=0.90, adapter=0.905, last_two=0.88, head=0.80))
    found = comparison.differences
    assert found is not None
    # sqrt(.905 x .095 / 1000 + .88 x .12 / 1000) = .0138, times 2.394 for .025 / 3: .0331.
    assert [way.candidate for way in found.possible] == [ADAPTER, FULL, LAST_TWO]
    assert [way.candidate for way in found.below_full] == [HEAD] and found.above_full == ()
    assert found.counts_rows and len(found.without_spread) == 4
    assert line(comparison, "Differ?") == (
        "at 95 %, beyond the noise of evaluation rows, the best is one of adapters of size 8, the "
        "full model and the last 2 layers, and not the head alone. Likewise, the head alone scores "
        "lower than the full model. How far another seed would move the scores is not known."
    )


@pytest.mark.parametrize(("quality", "is_possible"), [(0.873, True), (0.870, False)])
def test_a_way_may_be_the_best_by_the_margin_of_all_comparisons(
    quality: float, is_possible: bool
) -> None:
    # The margin for three others is .0336; for one alone it would be .0275.
    found = differences(single(full=0.90, adapter=0.905, last_two=quality, head=0.80))
    assert (LAST_TWO in [way.candidate for way in found.possible]) is is_possible


def test_of_two_equal_ways_one_seems_better_in_5_percent() -> None:
    """Only the larger difference counts, which may lie to either side."""
    for difference, is_told in ((0.0271, False), (0.0281, True)):
        rows = single(full=0.9 - difference, adapter=0.9, last_two=0.5, head=0.5)[:2]
        # sqrt(.9 x .1 / 1000 + .873 x .127 / 1000) = .0142, times 1.960: .0278.
        found = differences(rows)
        assert (found.above_full != ()) is is_told
        assert len(found.possible) == (1 if is_told else 2)


def test_rows_that_share_units_tell_less() -> None:
    rows = single(full=0.90, adapter=0.905, last_two=0.85, head=0.80)
    # One unit of 64 rows and 936 single ones tell as much as 198 equal ones.
    shared = [replace(one, evaluation_units=937) for one in rows]
    assert len(differences(rows).possible) == 2
    assert len(differences(shared).possible) == 3


def test_seeds_count_beside_the_rows() -> None:
    calm = [0.899, 0.9, 0.901]
    rows = [*seeds(FULL, calm, examples=100_000), *seeds(ADAPTER, calm, examples=100_000)]
    near = [*rows, *seeds(HEAD, [0.88, 0.881, 0.882], examples=100_000)]
    wild = [*rows, *seeds(HEAD, [0.84, 0.88, 0.92], examples=100_000)]
    assert HEAD not in [way.candidate for way in differences(near).possible]
    assert HEAD in [way.candidate for way in differences(wild).possible]
    assert differences(near).without_spread == () and differences(near).counts_rows


def test_without_the_number_of_rows_seeds_alone_are_counted() -> None:
    rows = [
        *seeds(FULL, [0.9, 0.901, 0.902]),
        *seeds(HEAD, [0.8, 0.801, 0.802]),
    ]
    comparison = compared(rows)
    assert line(comparison, "Differ?") == (
        "the full model scores higher than any other by more than the noise of seeds, at 95 %. "
        "Likewise, the head alone scores lower than the full model. How far other evaluation rows "
        "would move the scores is not known."
    )
    assert line(comparison, "Rerun") == ""


def test_the_number_of_rows_tells_nothing_of_a_score_that_is_no_share_of_them() -> None:
    rows = [
        *seeds(FULL, [0.9, 0.901, 0.902], metric="f1", examples=1000),
        *seeds(ADAPTER, [0.9, 0.902, 0.904], metric="f1", examples=1000),
    ]
    found = differences(rows)
    assert not found.counts_rows
    assert found.rerun is not None and found.rerun.rows is None and found.rerun.seeds is not None
    once = [one for one in rows if one.seed == 1]
    assert compared(once).differences is None


def test_ways_that_lie_above_and_below_the_full_model_are_named() -> None:
    rows = single(full=0.8, adapter=0.9, last_two=0.801, head=0.7)
    assert "Likewise, adapters of size 8 score higher than the full model, and the head alone " in (
        line(compared(rows), "Differ?")
    )
    assert "Likewise, adapters of size 8 score higher than the full model. How" in (
        line(compared(rows[:3]), "Differ?")
    )
    assert "No way can be told from the full model" in line(compared(rows[::2]), "Differ?")
    assert "full model" not in line(compared(rows[1:]), "Differ?")


def test_where_nothing_tells_what_chance_gives_the_line_says_so() -> None:
    comparison = compared(single(examples=None, full=0.9, head=0.8))
    assert comparison.differences is None
    assert line(comparison, "Differ?").startswith("not known: too few ways have a second run")
    assert comparison_object(comparison)["differences"] is None


def test_a_way_of_one_run_among_others_is_left_out_or_named() -> None:
    several = [*seeds(FULL, [0.9, 0.901, 0.902]), *seeds(HEAD, [0.8, 0.801, 0.802])]
    unknown = compared([*several, row(ADAPTER, 0.85)])
    assert unknown.differences is not None
    assert [way.candidate for way in unknown.differences.untested] == [ADAPTER]
    assert "Adapters of size 8 may lie anywhere" in line(unknown, "Differ?")
    counted = [replace(one, examples=1000) for one in [*several, row(ADAPTER, 0.85)]]
    assert line(compared(counted), "Differ?").endswith(
        "How far another seed would move adapters of size 8 is not known."
    )


def test_a_single_run_does_not_hide_how_far_seeds_move_the_others() -> None:
    wild = seeds(ADAPTER, [0.96, 0.89, 0.82], examples=2000)
    found = differences([row(FULL, 0.85, examples=2000), *wild])
    assert [way.candidate for way in found.possible] == [ADAPTER, FULL]


def test_one_planned_seed_tells_of_no_spread() -> None:
    """A search with `--seeds 1` that was given two more later."""
    looks = Looks(after="N0", first_seed=1, counts=(SeedCounts(1, 1),))
    rows: list[ResultRow] = []
    for candidate, qualities in ((FULL, (0.90, 0.85, 0.80)), (ADAPTER, (0.94, 0.89, 0.91))):
        rows += seeds(candidate, qualities, looks=looks)
    assert compared(rows).differences is None


def test_the_two_halves_do_not_contradict_each_other() -> None:
    """Holm's last steps are laxer: by them the ninth of ten ways lies below the full model."""
    rows = single(full=0.90)
    for number in range(1, 10):
        quality = 0.8796 if number == 9 else 0.80
        rows.append(row(Adapter(number), quality, examples=2000))
    found = differences([replace(one, examples=2000) for one in rows])
    possible = {way.candidate for way in found.possible}
    assert len(possible) == 2 and len(found.below_full) == 8
    assert not possible & {way.candidate for way in found.below_full}


def means(std: float | None, examples: int | None = None) -> list[ResultRow]:
    """Return two ways a tenth of a point apart, each a mean of five runs."""
    common = {"std": std, "runs": 5, "seed": None, "examples": examples}
    return [row(FULL, 0.63, **common), row(ADAPTER, 0.6310001, **common)]


def test_the_last_digit_of_printed_means_tells_no_ways_apart() -> None:
    """However many runs they are of: one decimal of a percentage is rounded by .03."""
    common = {"std": 0.001, "runs": 20, "seed": None}
    exact = [row(FULL, 0.85, **common), row(ADAPTER, 0.8510001, **common)]
    assert differences(exact).above_full
    printed = [row(FULL, 0.85, **common), row(ADAPTER, 0.851, **common)]
    assert not differences(printed).above_full


def test_seeds_that_all_score_the_same_tell_nothing_of_their_spread() -> None:
    assert [way.candidate for way in differences(means(0.0001)).above_full] == [ADAPTER]
    without = compared(means(0.0))
    assert without.differences is None
    assert line(without, "Differ?").startswith("not known: seeds that all score the same do not ")
    alike = [*seeds(FULL, [0.1, 0.1, 0.1]), *seeds(ADAPTER, [0.1 + 1e-8] * 3)]
    assert compared(alike).differences is None
    by_rows = compared(means(0.0, examples=1000))
    found = by_rows.differences
    assert found is not None and found.counts_rows and len(found.without_spread) == 2
    assert [way.candidate for way in found.possible] == [ADAPTER, FULL]
    assert line(by_rows, "Differ?").endswith("another seed would move the scores is not known.")


def test_means_without_a_standard_deviation_are_not_taken_for_single_runs() -> None:
    reason = "not known: means without a standard deviation do not tell how far seeds move the "
    without = compared(means(None))
    assert without.differences is None
    assert line(without, "Differ?").startswith(reason)
    beside_one_run = compared([*means(None), row(HEAD, 0.6)])
    assert line(beside_one_run, "Differ?").startswith(reason)


def test_the_best_and_what_differs_from_the_full_model_never_contradict_each_other() -> None:
    """What the first finds of the full model the second finds, too, and nothing against it."""
    draw = np.random.default_rng(3)
    for _ in range(100):
        rows: list[ResultRow] = []
        for way in (FULL, ADAPTER, LAST_TWO, HEAD):
            spread = draw.choice([0.0005, 0.005, 0.03])
            qualities = draw.uniform(0.84, 0.93) + draw.normal(0, spread, 3)
            rows += seeds(way, qualities.tolist())
        found = differences(rows)
        possible = {way.candidate for way in found.possible}
        above = {way.candidate for way in found.above_full}
        below = {way.candidate for way in found.below_full}
        best = found.possible[0].candidate
        assert not below & possible
        if FULL in possible:
            assert not above
        else:
            assert best in above
        if best == FULL:
            assert below == {ADAPTER, LAST_TWO, HEAD} - possible


def test_the_best_is_one_of_those_that_could_be_tested() -> None:
    rows = [
        *seeds(ADAPTER, [0.9, 0.901, 0.902]),
        *seeds(LAST_TWO, [0.9, 0.902, 0.903]),
        *seeds(HEAD, [0.7, 0.701, 0.702]),
        row(FULL, 0.89),
    ]
    assert "the best of those that could be tested is one of " in line(compared(rows), "Differ?")


@pytest.mark.parametrize("score", [0.9, 0.9123, 0.9 + 1 / 3e5])
def test_seeds_that_all_score_the_same_tell_no_spread(score: float) -> None:
    rows = [*seeds(FULL, [score] * 3), *seeds(ADAPTER, [score + 0.01] * 3)]
    assert compared(rows).differences is None


def test_rows_that_share_units_are_counted_by_them() -> None:
    calm, wild = [0.89, 0.90, 0.91], [0.885, 0.905, 0.925]
    rows = [*seeds(FULL, calm, examples=872), *seeds(ADAPTER, wild, examples=872)]
    shared = [replace(one, evaluation_units=830) for one in rows]
    assert "independent evaluation rows" in line(compared(shared), "Rerun")


def test_the_full_model_is_one() -> None:
    text = line(compared(single(full=0.91, adapter=0.905)), "Rerun")
    assert text.startswith("if the full model is truly better than adapters of size 8")


def test_no_answer_has_no_such_line() -> None:
    comparison = compared(single(full=0.5, head=0.5))
    assert line(comparison, "Differ?") == "" and line(comparison, "Rerun") == ""


def at_rates(
    candidate: Candidate, qualities: Sequence[float], examples: int | None = None
) -> list[ResultRow]:
    """Return measuring runs of a way at as many rates, the first at the usual one."""
    rows: list[ResultRow] = []
    for number, quality in enumerate(qualities):
        rows.append(
            row(candidate, quality, learning_rate=3e-5 * 2**number, seed=1, examples=examples)
        )
    return rows


@pytest.mark.parametrize("several", [FULL, ADAPTER])
def test_of_two_equal_ways_that_at_several_rates_seems_no_better(several: Candidate) -> None:
    """The best of three rates was chosen, so that the difference counts as one of three."""
    [single_way] = {FULL, ADAPTER} - {several}
    # 1.960 standard errors are .0271, and 2.394 for a third of the error .0332.
    for difference, is_told in ((0.030, False), (0.0345, True)):
        best = at_rates(several, [0.9, 0.6, 0.6], examples=1000)
        found = differences([*best, row(single_way, 0.9 - difference, examples=1000)])
        assert len(found.possible) == (1 if is_told else 2)
        told = found.below_full if several == FULL else found.above_full
        assert [way.candidate for way in told] == ([ADAPTER] if is_told else [])


def test_of_two_ways_at_several_rates_each_the_more_rates_count() -> None:
    for difference, is_told in ((0.030, False), (0.0345, True)):
        rows = at_rates(FULL, [0.9, 0.6, 0.6], examples=1000)
        rows += at_rates(ADAPTER, [0.9 - difference, 0.6], examples=1000)
        assert (differences(rows).below_full != ()) is is_told


@pytest.mark.parametrize("count", [2, 5])
def test_seeds_pay_for_welchs_approximation(count: int) -> None:
    """As certificates do: two seeds by the error of pairs, more by the other."""
    paying = Policy(approximation_error=0.01, approximation_error_of_pairs=0.02)
    level = paying.test_error(count)
    freedom = 2 * (count - 1)
    error = 0.01 * math.sqrt(2 / count)
    for p, is_told in ((level * 1.05, False), (level * 0.95, True)):
        difference = error * float(stats.t.isf(p / 2, freedom))
        common = {"std": 0.01, "runs": count, "seed": None, "policy": paying}
        found = differences([row(FULL, 0.9, **common), row(ADAPTER, 0.9 - difference, **common)])
        assert (found.below_full != ()) is is_told
        assert len(found.possible) == (1 if is_told else 2)


def test_a_single_run_beside_seeds_pays_by_their_number() -> None:
    paying = Policy(approximation_error=0.01, approximation_error_of_pairs=0.02)
    common = {"examples": 900, "policy": paying}
    # By the seeds of the one and the rows of both, p is .0448 and .0345. Of five seeds, .04 counts.
    for way, told in ((0.8671, False), (0.865, True)):
        rows = [row(FULL, 0.9, std=0.01, runs=5, seed=None, **common), row(ADAPTER, way, **common)]
        assert (differences(rows).below_full != ()) is told


# ---- a rerun ----


def rerun(rows: Sequence[ResultRow]) -> Rerun:
    found = differences(rows).rerun
    assert found is not None
    return found


def names(found: Rerun) -> tuple[Candidate, Candidate]:
    return found.way.candidate, found.other.candidate


def test_a_rerun_tells_the_best_from_the_full_model_or_from_the_next() -> None:
    beside = single(full=0.90, adapter=0.905, last_two=0.903)
    assert names(rerun(beside)) == (ADAPTER, FULL)
    assert names(rerun(single(full=0.5, adapter=0.905, last_two=0.903))) == (ADAPTER, LAST_TWO)
    assert names(rerun(single(full=0.91, adapter=0.905, last_two=0.903))) == (FULL, ADAPTER)
    assert differences(single(full=0.9, head=0.6)).rerun is None
    assert differences(single(full=0.9, head=0.9)).rerun is None
    # A difference that is printed as 0.0 points is none to look for.
    assert differences(single(full=0.9, head=0.9001)).rerun is None


def test_of_one_run_a_way_the_rows_are_known_and_the_seeds_are_not() -> None:
    comparison = compared(single(full=0.90, adapter=0.905))
    found = comparison.differences and comparison.differences.rerun
    assert found is not None and found.seeds is None and found.rows is not None
    # Within a hundredth: an error rate is drawn from a Beta distribution, from a uniform prior.
    assert found.rows == pytest.approx(FOUND * (0.905 * 0.095 + 0.09) / 0.005**2, rel=1e-2)
    assert line(comparison, "Rerun") == (
        "if adapters of size 8 are truly better than the full model by the measured 0.5 points, a "
        "rerun of the two finds that four times out of five with several seeds of each and at "
        "least 56,000 evaluation rows."
    )


def test_a_rerun_of_two_ways_needs_no_more_rows_beside_a_third() -> None:
    # Of one run a way only the number of rows is known, and no draw of chance moves that.
    two = rerun(single(examples=1319, full=0.531, adapter=0.5004))
    three = rerun(single(examples=1319, full=0.531, head=0.2, adapter=0.5004))
    assert two.rows is not None and two.rows == three.rows


def test_where_these_rows_can_do_the_seeds_on_them_are_named() -> None:
    calm, wild = [0.89, 0.90, 0.91], [0.885, 0.905, 0.925]
    rows = [*seeds(FULL, calm, examples=100_000), *seeds(ADAPTER, wild, examples=100_000)]
    found = rerun(rows)
    assert found.rows == 100_000 and found.seeds is not None
    # The runs' variances are 1e-4 and 4e-4.
    by_rows = (0.09 + 0.905 * 0.095) / 100_000
    assert found.seeds == pytest.approx(5e-4 / (0.005**2 / FOUND - by_rows), rel=0.05)
    assert "seeds of each on the same 100,000 evaluation rows" in line(compared(rows), "Rerun")


def test_where_these_rows_cannot_do_there_are_more_of_them() -> None:
    calm, wild = [0.89, 0.90, 0.91], [0.885, 0.905, 0.925]
    found = rerun([*seeds(FULL, calm, examples=500), *seeds(ADAPTER, wild, examples=500)])
    assert found.rows is not None and found.rows > 500 and found.seeds is not None
    # Half of what chance may take is left for each of the two.
    assert found.rows == pytest.approx(2 * FOUND * (0.09 + 0.086) / 0.005**2, rel=0.1)
    assert found.seeds % 2 == 0


def test_where_the_claim_is_certified_no_line_asks_for_a_rerun() -> None:
    comparison = compared(four_ways(adapter=0.901))
    assert comparison.basis is WayBasis.CERTIFIED
    assert comparison.differences is not None and comparison.differences.rerun is not None
    assert line(comparison, "Differ?") != "" and line(comparison, "Rerun") == ""


def test_without_rows_only_the_seeds_are_known() -> None:
    rows = [*seeds(FULL, [0.89, 0.90, 0.91]), *seeds(ADAPTER, [0.885, 0.905, 0.925])]
    found = rerun(rows)
    assert found.rows is None and found.seeds is not None
    assert "how many evaluation rows is not known" in line(compared(rows), "Rerun")


def test_json_has_the_labels_and_what_a_rerun_needs() -> None:
    comparison = compared(single(full=0.90, adapter=0.905, head=0.8))
    told = comparison_object(comparison)["differences"]
    assert told["possible_best"] == ["adapter-8", "0"] and told["below_full"] == ["6"]
    assert told["above_full"] == [] and told["untested"] == [] and told["counts_rows"] is True
    assert told["without_spread"] == ["6", "adapter-8", "0"]
    assert told["rerun"]["label"] == "adapter-8" and told["rerun"]["other"] == "0"
    assert told["rerun"]["difference"] == pytest.approx(0.005) and told["rerun"]["seeds"] is None
