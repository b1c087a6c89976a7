"""The freeze curve: what counts as a measurement, what is averaged, what is told."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.curve_of_rows import freeze_curve
from elsa_tune.analysis.groups import comparison_groups, require_one_each
from elsa_tune.analysis.learnt import verdict_on
from elsa_tune.analysis.statistics.intervals import Interval, Spread
from elsa_tune.analysis.statistics.learning import Learnt, learnt
from elsa_tune.analysis.statistics.resampling import ExampleDraws
from elsa_tune.analysis.statistics.seeds import CandidateRuns
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.errors import ResultsError
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.result_rows import EMBEDDINGS_ONLY, codes, falling_curve, row, seeds, warned


def only_curve(rows: list[ResultRow]) -> FreezeCurve:
    (group,) = comparison_groups(rows)
    return freeze_curve(group)


def at(curve: FreezeCurve, frozen: int) -> CurvePoint:
    depth = FreezeDepth(frozen, frozen > 0)
    return next(point for point in curve.points if point.candidate == depth)


def test_mean_std_and_retention_of_each_depth() -> None:
    curve = only_curve(seeds(0, [0.9, 0.8, 0.85]) + seeds(5, [0.7, 0.74, 0.72]))
    full, frozen = at(curve, 0), at(curve, 5)
    assert full.quality == pytest.approx(0.85)
    assert full.std == pytest.approx(statistics.stdev([0.9, 0.8, 0.85]))
    assert full.retention == full.corrected_retention == 1.0
    assert frozen.seeds == 3 and frozen.fine_tuned_layers == 1
    assert frozen.retention == pytest.approx(0.72 / 0.85)
    assert frozen.corrected_retention == pytest.approx((0.72 - 0.5) / (0.85 - 0.5))


def test_exploring_and_unfinished_trials_are_no_measurements() -> None:
    exploring = {"phase": Phase.EXPLORE, "learning_rate": 5e-5}
    rows = [
        *seeds(0, [0.8, 0.82]),
        row(0, 0.99, **exploring),
        row(0, 0.20, status=TrialStatus.STOPPED_EARLY, **exploring),
        row(0, None, status=TrialStatus.DIVERGED, **exploring),
        row(0, None, status=TrialStatus.FAILED, **exploring),
        row(0, 0.10, seed=3, status=TrialStatus.INTERRUPTED),
        row(0, None, seed=4, status=TrialStatus.FAILED),
        row(0, 0.10, seed=5, status=TrialStatus.STOPPED_EARLY),
        row(0, None, seed=6),
    ]
    curve = only_curve(rows)
    full = at(curve, 0)
    assert full.quality == pytest.approx(0.81)
    assert (full.seeds, full.exploring_trials, full.stopped_early) == (2, 3, 1)
    warning = warned(curve, WarningCode.NOT_COUNTED)
    assert "4 measuring trials" in warning
    for reason in ("1 interrupted", "1 failed", "1 stopped early", "1 completed without a quality"):
        assert reason in warning
    one = only_curve([*seeds(0, [0.8, 0.82]), row(0, None, seed=4, status=TrialStatus.FAILED)])
    said = "1 measuring trial is not counted (1 failed)"
    assert said in warned(one, WarningCode.NOT_COUNTED)


def test_a_depth_that_was_only_explored_has_no_quality() -> None:
    curve = only_curve([*seeds(0, [0.8, 0.8]), row(4, 0.7, phase=Phase.EXPLORE)])
    found = at(curve, 4)
    assert (found.quality, found.learning_rate, found.exploring_trials) == (None, None, 1)
    assert (found.seeds, found.failed_seeds, found.measured_at_rates) == (0, 0, 0)
    assert found.qualities == ()
    assert found.retention is None
    assert [point.candidate for point in curve.measured] == [FULL_MODEL]


def test_a_diverged_seed_counts_as_chance_and_a_collapsed_one_as_it_is() -> None:
    rows = [*seeds(0, [0.9, 0.47]), row(0, 0.88, seed=3, status=TrialStatus.DIVERGED)]
    curve = only_curve(rows)
    full = at(curve, 0)
    assert full.quality == pytest.approx((0.9 + 0.47 + 0.5) / 3)
    assert full.std == pytest.approx(statistics.stdev([0.9, 0.47, 0.5]))
    assert (full.seeds, full.failed_seeds) == (3, 2)
    warning = warned(curve, WarningCode.SEEDS_FAILED)
    assert "2 of 3 seeds" in warning and "1 diverged" in warning


def test_each_failed_seed_is_told_in_one_way_alone() -> None:
    qualities = [0.9, 0.91, 0.89, 0.9, 0.47, 0.48, 0.49, 0.7]
    diverged = [row(0, None, seed=seed, status=TrialStatus.DIVERGED) for seed in (9, 10)]
    curve = only_curve([*seeds(0, qualities), *diverged])
    assert warned(curve, WarningCode.SEEDS_FAILED) == (
        "the full model: 6 of 10 seeds failed (2 diverged, counted as chance; 3 no better than "
        "guessing; 1 far below the others, 50.0); they count in the mean"
    )


def test_a_diverged_seed_without_known_chance_is_left_out_and_told() -> None:
    rows = [*seeds(0, [0.9, 0.8], chance=None), row(0, None, seed=3, chance=None)]
    rows[2] = row(0, None, seed=3, chance=None, status=TrialStatus.DIVERGED)
    curve = only_curve(rows)
    assert at(curve, 0).seeds == 2
    assert at(curve, 0).quality == pytest.approx(0.85)
    assert "chance is not known" in warned(curve, WarningCode.NOT_COUNTED)


@pytest.mark.parametrize("metric", ["matthews", "spearman", "pearson"])
def test_chance_of_correlations_is_zero(metric: str) -> None:
    curve = only_curve(seeds(0, [0.5, 0.6], metric=metric, chance=None))
    assert curve.chance == 0.0


def test_of_several_rates_the_best_mean_is_taken_with_a_warning() -> None:
    rows = seeds(0, [0.80, 0.82], learning_rate=1e-5) + seeds(0, [0.9, 0.7], learning_rate=5e-5)
    curve = only_curve(rows)
    full = at(curve, 0)
    assert full.learning_rate == 1e-5 and full.seeds == 2
    assert full.quality == pytest.approx(0.81)
    assert "1e-5" in warned(curve, WarningCode.SEVERAL_RATES)


def test_of_equal_means_the_higher_rate_counts_and_of_equal_depths_the_deepest_is_best() -> None:
    rates = (1e-5, 5e-5, 2e-5)
    rows = [one for rate in rates for one in seeds(4, [0.8, 0.7], learning_rate=rate)]
    curve = only_curve([*seeds(0, [0.7, 0.8]), *rows, *seeds(6, [0.5, 0.6])])
    assert at(curve, 4).learning_rate == 5e-5 and at(curve, 4).measured_at_rates == 3
    assert curve.best == at(curve, 4)


def test_a_score_of_nothing_is_not_the_best() -> None:
    """Matthews is 0 for a constant answer."""
    rows = seeds(0, [0.4, 0.5], metric="matthews") + seeds(6, [0.0, 0.0], metric="matthews")
    curve = only_curve(rows)
    assert curve.best == curve.full == at(curve, 0)


def test_of_equal_means_one_at_a_rate_that_is_named_counts() -> None:
    rows = [*seeds(4, [0.8, 0.7], learning_rate=None), *seeds(4, [0.8, 0.7], learning_rate=1e-5)]
    assert at(only_curve(rows), 4).learning_rate == 1e-5
    assert at(only_curve(rows[::-1]), 4).learning_rate == 1e-5


def test_runs_stand_in_the_order_of_their_seeds_those_without_one_last() -> None:
    rows = [row(0, 0.7, seed=None), row(0, 0.9, seed=2), row(0, 0.8, seed=0)]
    assert at(only_curve(rows), 0).qualities == (0.8, 0.9, 0.7)


def test_a_run_at_chance_failed_and_a_mean_of_runs_does_not_tell() -> None:
    """With four decimals chance is known to half of 1e-4."""
    full = at(only_curve(seeds(0, [0.50004, 0.50006, 0.3])), 0)
    assert full.failed_seeds == 2
    means = at(only_curve([row(0, 0.5, seed=None, runs=3), row(0, 0.4, seed=None, runs=2)]), 0)
    assert (means.seeds, means.failed_seeds) == (5, 0)


def test_a_mean_with_its_deviation_has_an_interval() -> None:
    (point,) = only_curve([row(0, 0.8000001, seed=None, runs=5, std=0.02)]).points
    low, high = stats.t.interval(0.95, 4, 0.8000001, 0.02 / math.sqrt(5))
    assert (point.ci_low, point.ci_high) == pytest.approx((low, high))
    (one,) = only_curve([row(0, 0.8)]).points
    assert one.ci_low is one.ci_high is None


@pytest.mark.parametrize("qualities", [[-0.377, -0.36, -0.33], [-0.01, 0.02, 0.03]])
def test_an_interval_of_an_unknown_metric_holds_its_mean(qualities: list[float]) -> None:
    rows = [*seeds(0, [0.3, 0.31, 0.32], metric="r2"), *seeds(3, qualities, metric="r2")]
    point = at(only_curve(rows), 3)
    assert point.quality is not None and point.ci_low is not None and point.ci_high is not None
    assert point.ci_low < point.quality < point.ci_high
    assert point.ci_low < 0


def test_an_unknown_metric_without_a_negative_score_begins_at_0() -> None:
    assert at(only_curve(seeds(0, [0.01, 0.02, 0.3], metric="kappa")), 0).ci_low == 0


def test_exact_copies_count_once_and_contradictions_are_refused() -> None:
    rows = seeds(0, [0.8, 0.9])
    curve = only_curve([*rows, rows[0]])
    assert at(curve, 0).seeds == 2
    assert codes(curve) == [WarningCode.REPEATED_ROWS]
    for other in (row(0, 0.81), row(0, 0.8, runs=2), row(0, 0.8, status=TrialStatus.DIVERGED)):
        with pytest.raises(ResultsError, match=r"seed 1: two rows disagree \(0\.8 and "):
            only_curve([*rows, other])


def test_without_a_seed_every_row_is_a_run_however_equal() -> None:
    runs = [row(0, quality, seed=None) for quality in (0.8, 0.8, 0.8, 0.8, 0.7)]
    curve = only_curve(runs)
    assert (at(curve, 0).seeds, at(curve, 0).quality) == (5, pytest.approx(0.78))
    # The odd one lost a third of what the others gain over guessing.
    assert codes(curve) == [WarningCode.SEEDS_FAILED]
    means = [row(0, 0.8, seed=None, runs=count, std=0.1) for count in (2, 2, 3)]
    assert at(only_curve(means), 0).seeds == 2 + 2 + 3


def test_a_table_that_was_probably_pasted_twice_counts_all_of_it_with_a_warning() -> None:
    once = [
        row(frozen, 0.8 - frozen / 100 + more, seed=None) for frozen in (0, 3) for more in (0, 0.01)
    ]
    (curve,) = freeze_curves([*once, *once])
    assert at(curve, 0).seeds == 4
    assert "the 8 measuring rows is there twice" in warned(curve, WarningCode.ROWS_DOUBLED)
    (curve,) = freeze_curves([*once, *once, *once])
    assert "the 12 measuring rows is there 3 times" in warned(curve, WarningCode.ROWS_DOUBLED)
    # One tie is none, nor are rows that name their seeds.
    (curve,) = freeze_curves([*once, *once[:-1]])
    assert WarningCode.ROWS_DOUBLED not in codes(curve)
    (curve,) = freeze_curves([*seeds(0, [0.8, 0.8]), *seeds(3, [0.7, 0.7])])
    assert WarningCode.ROWS_DOUBLED not in codes(curve)


def test_means_of_several_runs_weigh_by_their_runs() -> None:
    runs = [0.80, 0.84, 0.88, 0.7, 0.9]
    parts = [runs[:3], runs[3:]]
    rows = [
        row(0, statistics.mean(part), seed=None, runs=len(part), std=statistics.stdev(part))
        for part in parts
    ]
    full = at(only_curve(rows), 0)
    assert full.quality == pytest.approx(statistics.mean(runs))
    assert full.std == pytest.approx(statistics.stdev(runs))
    assert full.seeds == 5
    diverged = row(0, None, seed=None, runs=2, status=TrialStatus.DIVERGED)
    full = at(only_curve([rows[0], diverged]), 0)
    assert full.std == pytest.approx(statistics.stdev([*runs[:3], 0.5, 0.5]))


def test_std_is_unknown_for_one_run_and_for_means_without_std() -> None:
    curve = only_curve([row(0, 0.9), row(4, 0.8, seed=None, runs=5), row(5, 0.7, runs=2)])
    assert [point.std for point in curve.points] == [None] * 3
    assert at(curve, 4).seeds == 5


def test_embeddings_only_is_in_the_curve_but_is_no_reference_and_not_the_best() -> None:
    rows = [*seeds(EMBEDDINGS_ONLY, [0.95, 0.97]), *seeds(0, [0.9, 0.9]), *seeds(6, [0.6, 0.6])]
    curve = only_curve(rows)
    assert [point.candidate for point in curve.points] == [
        FULL_MODEL,
        EMBEDDINGS_ONLY,
        FreezeDepth(6, True),
    ]
    assert curve.points[1].retention == pytest.approx(0.96 / 0.9)
    assert curve.full == curve.best == curve.points[0]
    without = only_curve(seeds(EMBEDDINGS_ONLY, [0.95, 0.97]))
    assert without.full is None and without.points[0].retention is None


def test_medians_of_what_a_trial_costs_leave_out_diverged_ones() -> None:
    rows = [
        *(row(0, 0.9, seed=s, train_seconds=t) for s, t in ((1, 100.0), (2, 300.0), (3, 110.0))),
        row(0, None, seed=4, train_seconds=1.0, status=TrialStatus.DIVERGED),
    ]
    full = at(only_curve(rows), 0)
    assert full.train_seconds == 110.0 and full.peak_memory_mb is None
    rows += [row(0, 0.9, seed=5, train_seconds=math.nan), row(0, 0.9, seed=6)]
    assert at(only_curve(rows), 0).train_seconds == 110.0


def test_zero_and_negative_references_have_no_ratio() -> None:
    zero = only_curve(seeds(0, [0.0, 0.0], metric="matthews", chance=0.0))
    assert zero.points[0].retention is None and zero.points[0].corrected_retention is None
    # A quality is known to 1e-6, and one within half of 1e-4 of chance is chance.
    for full, is_known in ((0.9e-6, False), (1.1e-6, True)):
        (point,) = only_curve([row(0, full, metric="matthews", chance=0.0)]).points
        assert (point.retention is not None) == is_known
    for full, is_known in ((0.50004, False), (0.50006, True)):
        (point,) = only_curve([row(0, full)]).points
        assert (point.corrected_retention is not None) == is_known
    rows = seeds(0, [-0.1, -0.1], metric=None, chance=None) + seeds(6, [-0.2, -0.2], metric=None)
    rows = [r for r in rows if r.chance is None] + seeds(6, [-0.2], metric=None, chance=None)
    assert all(point.retention is None for point in only_curve(rows).points)


def test_unlike_results_are_kept_apart_and_listed() -> None:
    rows = falling_curve(search="three", comparison="epochs=3, batch=16")
    rows += falling_curve(search="ten", comparison="epochs=10, batch=16")
    groups = comparison_groups(rows)
    assert len(groups) == 2
    with pytest.raises(ResultsError) as caught:
        freeze_curves(rows)
    heading, three, ten = str(caught.value).splitlines()
    assert "`search`" in heading
    assert three.strip() == (
        "three: 15 measuring rows; epochs=3; 2 of 6 layers for 90 % (83.0 of 90.0); rates 3e-5 "
        "at the full model, 5e-5 at the last 3, 2 and 1 layers and the head alone"
    )
    assert "epochs=10" in ten and "batch=16" not in three + ten
    with pytest.raises(ResultsError, match=r"1 of 6 layers for 80 %"):
        freeze_curves(rows, target=0.8)


def test_the_same_seeds_twice_are_listed_as_such() -> None:
    rows = [*seeds(0, [0.9, 0.9], search="a"), *seeds(0, [0.9, 0.9], search="b")]
    with pytest.raises(ResultsError) as caught:
        freeze_curves(rows)
    _, a, b = str(caught.value).splitlines()
    for one in (a, b):
        assert "seeds in common; no answer (no frozen depth); rates 3e-5" in one


@pytest.mark.parametrize(
    ("one", "other", "remedy"),
    [
        ({"search": "a"}, {"search": "b"}, "`search` NAME"),
        (
            {"search": "a", "train_size": 9},
            {"search": "b", "train_size": 8},
            "`search` NAME or `train_size`",
        ),
        ({"train_size": 9}, {"train_size": 8, "search": "b"}, "`train_size`"),
        ({}, {"comparison": "epochs=3"}, "table"),
    ],
)
def test_how_to_choose_is_said(
    one: dict[str, object], other: dict[str, object], remedy: str
) -> None:
    rows = [row(0, 0.9, **one), row(0, 0.9, **other), row(3, 0.9, **other, seed=2)]
    with pytest.raises(ResultsError) as caught:
        freeze_curves(rows, train_sizes_apart=False)
    heading, first, second = str(caught.value).splitlines()
    assert heading.endswith(f"{remedy}:")
    assert "1 measuring row;" in first and "2 measuring rows;" in second


def test_results_are_told_apart_by_their_metric_and_by_how_epochs_were_chosen() -> None:
    rows = [
        row(0, 0.9, search="named", metric="f1", selection="last epoch"),
        row(0, 0.9, search="not", metric=None, selection=None),
    ]
    with pytest.raises(ResultsError) as caught:
        freeze_curves(rows)
    _, named, unnamed = str(caught.value).splitlines()
    assert "named: 1 measuring row; metric f1; selection last epoch; " in named
    assert "not: 1 measuring row; metric not named; selection not named; " in unnamed


def test_searches_alike_are_pooled_only_when_their_seeds_differ() -> None:
    first = seeds(0, [0.9, 0.8], search="a", comparison="same")
    same = seeds(0, [0.9, 0.7], search="b", comparison="same")
    fresh = [row(0, 0.7, seed=seed, search="b", comparison="same") for seed in (3, 4)]
    assert len(comparison_groups(first + same)) == 2
    curve = only_curve(first + fresh)
    assert curve.search == "a, b"
    assert at(curve, 0).seeds == 4
    assert warned(curve, WarningCode.POOLED).endswith("2 searches: a, b")
    assert only_curve(first).warnings == () and only_curve(first).search == "a"


def test_training_sizes_are_apart_only_where_asked() -> None:
    groups = comparison_groups(
        falling_curve(train_size=100) + falling_curve(train_size=200) + falling_curve()
    )
    assert [group.first.train_size for group in groups] == [100, 200, None]
    require_one_each(groups, lambda group: "", train_sizes_apart=True)
    with pytest.raises(ResultsError, match="`train_size`"):
        require_one_each(groups, lambda group: "", train_sizes_apart=False)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [({"layers": 12}, "6 and 12 layers"), ({"chance": 0.6}, "chance is 0.5")],
)
def test_a_group_that_contradicts_itself_is_refused(
    change: dict[str, float], complaint: str
) -> None:
    with pytest.raises(ResultsError, match=complaint):
        comparison_groups([row(0, 0.9), row(4, 0.8, **change)])


def test_chance_with_four_decimals_agrees_with_chance_in_full() -> None:
    (group,) = comparison_groups([row(0, 0.9, chance=0.5271), row(4, 0.8, chance=146 / 277)])
    assert group.chance == pytest.approx(0.5271, abs=1e-4)
    comparison_groups([row(0, 0.9), row(4, 0.8, chance=0.50009)])
    with pytest.raises(ResultsError, match=r"0\.5 and 0\.50011"):
        comparison_groups([row(0, 0.9), row(4, 0.8, chance=0.50011)])


def test_a_group_has_the_fewest_examples_and_the_searches_that_its_rows_name() -> None:
    rows = [row(0, 0.9, examples=500), row(4, 0.8)]
    rows.append(row(3, 0.8, seed=2, examples=400, search="a"))
    group, other = comparison_groups([*rows, row(0, 0.7, task="cola")])
    assert (group.examples, group.searches, group.first.task) == (400, ("a",), "rte")
    assert group.first == rows[0]
    assert (other.examples, other.searches, other.chance) == (None, (), 0.5)
    (unnamed,) = comparison_groups([row(0, 0.9, metric=None, chance=None)])
    assert unnamed.chance is None


def verdict(quality: float, std: float | None, count: int, **more: Any) -> Learnt:
    return learnt(quality, spread=spread(std, count), **{"chance": 0.5, "policy": Policy(), **more})


def spread(std: float | None, count: int) -> Spread | None:
    return None if std is None else Spread(variance=std**2 / count, freedom=count - 1)


def test_learnt_agrees_with_the_one_sided_t_test() -> None:
    verdicts = set()
    for sample in ([0.52, 0.53, 0.54], [0.50, 0.53, 0.56], [0.51, 0.511], [0.51, 0.53]):
        p_value = stats.ttest_1samp(sample, 0.5, alternative="greater").pvalue
        found = verdict(statistics.mean(sample), statistics.stdev(sample), len(sample))
        assert (found is Learnt.YES) == (p_value < 0.05), sample
        verdicts.add(found)
    assert verdicts == {Learnt.YES, Learnt.NO}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (verdict(0.5, 0.0, 5), Learnt.NO),  # every seed gave the constant answer
        (verdict(0.50004, 0.0, 5), Learnt.NO),  # and chance was printed with four decimals
        (verdict(0.50006, 0.0, 5), Learnt.YES),
        (verdict(0.8, 0.0, 2), Learnt.YES),
        (verdict(0.8, None, 1), Learnt.UNTESTED),
        (verdict(0.8, None, 5), Learnt.UNTESTED),
        (verdict(0.49, None, 1), Learnt.NO),
        (verdict(0.8, 0.01, 5, chance=None), Learnt.UNTESTED),
        (verdict(0.0, 0.01, 5, chance=None), Learnt.NO),
        (verdict(-0.2, None, 1, chance=None), Learnt.NO),
    ],
)
def test_learnt_where_little_is_known(found: Learnt, expected: Learnt) -> None:
    assert found is expected


@pytest.mark.parametrize(("std", "count"), [(0.02, 2), (0.02, 5), (0.0, 3)])
@pytest.mark.parametrize("of_examples", [0.0, 2.5e-4])
def test_learnt_begins_where_margins_of_seeds_and_examples_say(
    std: float, count: int, of_examples: float
) -> None:
    by_seeds = float(stats.t.ppf(0.95, count - 1)) * std / math.sqrt(count)
    by_examples = float(stats.norm.ppf(0.95)) * math.sqrt(of_examples)
    needed = max(math.hypot(by_seeds, by_examples), 5e-5)
    for margin, expected in ((0.999 * needed, Learnt.NO), (1.001 * needed, Learnt.YES)):
        assert verdict(0.5 + margin, std, count, example_variance=of_examples) is expected


def test_one_run_is_asked_only_whether_its_examples_could_have_given_it_by_chance() -> None:
    needed = float(stats.norm.ppf(0.95)) * 0.02
    for margin, expected in ((0.999 * needed, Learnt.NO), (1.001 * needed, Learnt.UNTESTED)):
        assert verdict(0.5 + margin, None, 1, example_variance=0.02**2) is expected


@pytest.mark.parametrize(("factor", "expected"), [(0.999, Learnt.NO), (1.001, Learnt.YES)])
def test_of_a_mean_its_own_deviation_tells_the_spread(factor: float, expected: Learnt) -> None:
    needed = float(stats.t.ppf(0.95, 4 - 1)) * 0.02 / math.sqrt(4)
    mean = row(0, 0.5 + factor * needed, runs=4, std=0.02, seed=None)
    assert verdict_on(only_curve([mean])) is expected


def test_of_accuracy_the_number_of_examples_tells_the_spread() -> None:
    """.6 against .5: 1.645 x sqrt(.6 x .4 / E) is .1 at E = 64.9."""

    def of_means(**changes: Any) -> Learnt | None:
        (curve,) = freeze_curves([row(0, 0.6000001, runs=3, std=0.0, seed=None, **changes)])
        return verdict_on(curve)

    assert of_means(examples=64) is Learnt.NO
    assert of_means(examples=65) is Learnt.YES
    assert of_means(examples=64, metric="f1") is Learnt.YES
    # What was resampled goes before it.
    (curve,) = freeze_curves([row(0, 0.6, runs=3, std=0.0, seed=None, examples=64)])
    draws = ExampleDraws(candidates={FULL_MODEL: np.zeros(9)}, chance=np.zeros(9))
    runs = CandidateRuns(candidate=FULL_MODEL, qualities=(0.6,) * 3, failed=(False,) * 3)
    known = Uncertainty(runs={FULL_MODEL: runs}, examples=draws)
    assert verdict_on(replace(curve, uncertainty=known)) is Learnt.YES


@pytest.mark.parametrize(("value", "nearest"), [(1.02, 1.0), (-1.02, -1.0)])
def test_no_end_of_an_interval_lies_beyond_the_metrics_range(
    monkeypatch: pytest.MonkeyPatch, value: float, nearest: float
) -> None:
    beyond = Interval(value=value, low=value, high=value, lower=value)
    monkeypatch.setattr(Uncertainty, "quality", lambda *_: beyond)
    point = at(only_curve(seeds(0, [0.9, 0.8], metric="matthews")), 0)
    assert (point.ci_low, point.ci_high) == (nearest, nearest)


def test_equal_seeds_have_no_spread_and_no_interval() -> None:
    """The mean of three times 327 / 408 differs from it in the last digit."""
    rows = [*seeds(0, [327 / 408] * 3, metric="f1"), *seeds(3, [310 / 408] * 3, metric="f1")]
    [curve] = freeze_curves(rows)
    for point in curve.points:
        assert point.std == 0
        assert point.ci_low is None and point.ci_high is None
