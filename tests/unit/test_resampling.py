"""Resampled qualities: the metrics are the trainer's, the spread is what theory says."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from elsa_tune.analysis.statistics import resampling
from elsa_tune.analysis.statistics.hidden_mistakes import FEW_MISTAKES, FEW_OF_A_LABEL
from elsa_tune.analysis.statistics.resampling import ExampleDraws, resample, score
from elsa_tune.errors import ResultsError
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.result_row import Predictions
from elsa_tune.specs.task import Metric
from elsa_tune.tasks.types import class_counts
from elsa_tune.tasks.types.scores import chance as trainers_chance
from elsa_tune.tasks.types.scores import score as trainers_score
from tests.registering import registered

CLASSES = {"f1_macro": 3, "spearman": 0, "pearson": 0}


def answered(metric: str, examples: int, seed: int = 0, share_right: float = 0.8) -> Predictions:
    rng = np.random.default_rng(seed)
    classes = CLASSES.get(metric, 2)
    if not classes:
        labels = np.round(np.random.default_rng(99).random(examples) * 25) / 5  # many are tied
        return Predictions(
            predictions=(labels + rng.normal(0, 1, examples)).astype(np.float32),
            labels=labels.astype(np.float32),
            classes=0,
        )
    labels = np.random.default_rng(99).integers(0, classes, examples)
    other = rng.integers(0, classes, examples)
    right = rng.random(examples) < share_right
    return Predictions(
        predictions=np.where(right, labels, other).astype(np.int8),
        labels=labels.astype(np.int8),
        classes=classes,
    )


@pytest.mark.parametrize("metric", [metric.value for metric in Metric])
def test_runs_that_are_scored_together_score_as_each_alone(metric: str) -> None:
    runs = [answered(metric, 71, seed) for seed in (1, 2, 3)]
    together = resample(runs, metric, 20)
    for number, run in enumerate(runs):
        alone = resample([run], metric, 20)
        np.testing.assert_allclose(together.runs[:, number], alone.runs[:, 0], atol=1e-6)


def test_the_chance_of_a_mean_over_classes_counts_those_that_occur() -> None:
    one_class = np.zeros(30, np.int8)
    run = Predictions(predictions=one_class, labels=one_class, classes=3)
    assert (resample([run], "f1_macro", 20).chance == 1).all()


@pytest.mark.parametrize("metric", [metric.value for metric in Metric])
@pytest.mark.parametrize("examples", [7, 71, 500])
def test_a_score_is_the_trainers(metric: str, examples: int) -> None:
    run = answered(metric, examples)
    theirs = trainers_score(Metric(metric), run.predictions, run.labels, run.classes)
    assert score(run, metric) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("metric", ["matthews", "spearman", "pearson", "f1"])
def test_a_constant_answer_scores_what_the_trainer_says(metric: str) -> None:
    run = answered(metric, 60)
    constant = Predictions(
        predictions=np.ones_like(run.predictions), labels=run.labels, classes=run.classes
    )
    theirs = trainers_score(Metric(metric), constant.predictions, run.labels, run.classes)
    assert score(constant, metric) == pytest.approx(theirs, abs=1e-6)
    found = resample([constant], metric, resamples=50)
    assert np.isfinite(found.runs).all()


def test_the_spread_of_accuracy_is_the_binomials() -> None:
    run = answered("accuracy", 500)
    found = resample([run], "accuracy")
    quality = score(run, "accuracy")
    expected = math.sqrt(quality * (1 - quality) / 500)
    assert found.runs.std() == pytest.approx(expected, rel=0.03)
    assert found.runs.mean() == pytest.approx(quality, abs=expected / 20)


@pytest.mark.parametrize("metric", ["f1", "matthews", "f1_macro", "pearson"])
def test_a_resample_is_the_metric_of_repeated_examples(metric: str) -> None:
    run = answered(metric, 60)
    for weights in resampling._poisson_weights(40, 60):
        found = resample([run], metric, resamples=40)
        for number, weight in enumerate(weights.astype(int)):
            repeated = np.repeat(np.arange(60), weight)
            theirs = trainers_score(
                Metric(metric), run.predictions[repeated], run.labels[repeated], run.classes
            )
            assert found.runs[number, 0] == pytest.approx(theirs, abs=1e-5)


def test_interpolated_ranks_are_within_a_fifth_of_the_standard_error() -> None:
    """The one approximation; the reference is scipy's correlation of the repeated examples."""
    run = answered("spearman", 300)
    found = resample([run], "spearman", resamples=300)
    exact = np.empty(300)
    for weights in resampling._poisson_weights(300, 300):
        for number, weight in enumerate(weights.astype(int)):
            exact[number] = stats.spearmanr(
                np.repeat(run.predictions, weight), np.repeat(run.labels, weight)
            ).statistic
    off = found.runs[:, 0] - exact
    assert np.sqrt((off**2).mean()) < exact.std() / 4
    assert abs(off.mean()) < exact.std() / 20
    assert found.runs.std() == pytest.approx(exact.std(), rel=0.06)


def test_the_ranks_of_few_distinct_values_are_exact() -> None:
    """Each of four has bins of its own, of which nothing need be interpolated."""
    run = answered("spearman", 120)
    levels = np.digitize(run.predictions, np.quantile(run.predictions, [0.25, 0.5, 0.75]))
    few = dataclasses.replace(run, predictions=levels.astype(np.float32))
    found = resample([few], "spearman", resamples=30)
    for weights in resampling._poisson_weights(30, 120):
        for number, weight in enumerate(weights.astype(int)):
            exact = stats.spearmanr(np.repeat(levels, weight), np.repeat(run.labels, weight))
            assert found.runs[number, 0] == pytest.approx(exact.statistic, abs=1e-5)


def test_all_runs_see_the_same_examples() -> None:
    run = answered("accuracy", 200)
    same = resample([run, run], "accuracy", resamples=100).runs
    assert (same[:, 0] == same[:, 1]).all()


def test_chance_is_the_best_constant_of_each_resample() -> None:
    run = answered("f1", 80)
    found = resample([run], "f1", resamples=30)
    for weights in resampling._poisson_weights(30, 80):
        for number, weight in enumerate(weights.astype(int)):
            labels = np.repeat(run.labels, weight)
            assert found.chance[number] == pytest.approx(
                trainers_chance(Metric.F1, labels, 2), abs=1e-6
            )
    assert (resample([answered("matthews", 80)], "matthews", resamples=9).chance == 0).all()


MEMORY = """
import tracemalloc

import numpy as np
from elsa_tune.analysis.statistics.resampling import resample
from elsa_tune.specs.result_row import Predictions

labels = np.random.default_rng(0).integers(0, 150, 2000).astype(np.int16)
wrong = np.random.default_rng(1).random((2000, 20)) < 0.3
runs = [
    Predictions(predictions=np.where(one, (labels + 1) % 150, labels), labels=labels, classes=150)
    for one in wrong.T
]
tracemalloc.start()
found = resample(runs, "f1_macro", resamples=20)
peak = tracemalloc.get_traced_memory()[1]
assert np.isfinite(found.runs).all() and (found.chance < 0.01).all()
assert peak < 10e6, peak
"""


def test_many_classes_need_no_more_memory_than_few(root: Path) -> None:
    """In a process of its own: tracing one where Ray and MLflow run has taken 15 s."""
    subprocess.run([sys.executable, "-c", MEMORY], cwd=root, check=True, timeout=200)


def test_the_same_answer_every_time() -> None:
    run = answered("accuracy", 100)
    first, second = (resample([run], "accuracy", resamples=700) for _ in range(2))
    assert (first.runs == second.runs).all()


def test_a_single_example_never_vanishes() -> None:
    run = answered("accuracy", 1)
    assert np.isfinite(resample([run], "accuracy").runs).all()


def test_an_example_that_would_vanish_counts_once() -> None:
    """Poisson(1) is 0 as often as it is 1: once in e draws each."""
    weights = np.concatenate(list(resampling._poisson_weights(10_000, 1)))
    assert weights.min() == 1
    assert np.mean(weights == 1) == pytest.approx(2 / math.e, abs=0.015)


def test_the_table_of_counts_is_poissons_to_the_last_bit() -> None:
    counts = resampling._poisson_table()
    of_each_count = np.bincount(counts.astype(int))
    up_to_count = np.cumsum(of_each_count)
    expected = 2**16 * stats.poisson(1).cdf(np.arange(len(of_each_count)))
    assert np.abs(up_to_count - expected).max() <= 0.5


def test_runs_judged_by_other_examples_are_refused() -> None:
    one, other = answered("accuracy", 50), answered("accuracy", 51)
    with pytest.raises(ResultsError, match="different evaluation examples"):
        resample([one, other], "accuracy")


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ResultsError, match="'bleu'"):
        resample([answered("accuracy", 50)], "bleu")


def in_units(run: Predictions, units: list[int] | np.ndarray) -> Predictions:
    return dataclasses.replace(run, units=np.asarray(units, dtype=np.int32))


def test_with_each_row_its_own_unit_the_draws_are_the_same() -> None:
    run = answered("accuracy", 200)
    own = resample([in_units(run, np.arange(200))], "accuracy", 100)
    assert (own.runs == resample([run], "accuracy", 100).runs).all()


def test_the_rows_of_a_unit_count_alike() -> None:
    """Copies of each row, wherever they stand, are drawn as the rows alone are."""
    run = answered("f1", 60)
    alone = resample([run], "f1", 100)
    places = np.random.default_rng(0).permutation(np.repeat(np.arange(60), 3))
    numbers = {row: number for number, row in enumerate(dict.fromkeys(places.tolist()))}
    copied = Predictions(
        predictions=run.predictions[places],
        labels=run.labels[places],
        classes=2,
        units=np.array([numbers[row] for row in places.tolist()], dtype=np.int32),
    )
    in_order = list(numbers)
    sorted_alone = Predictions(
        predictions=run.predictions[in_order], labels=run.labels[in_order], classes=2
    )
    expected = resample([sorted_alone], "f1", 100)
    found = resample([copied], "f1", 100)
    assert (found.units, found.examples, found.equal_units) == (60, 180, pytest.approx(60))
    np.testing.assert_allclose(found.runs, expected.runs, atol=1e-6)
    assert alone.units is None and alone.examples == 60


def test_a_large_unit_leaves_fewer_that_tell_as_much() -> None:
    run = in_units(answered("accuracy", 100), [0] * 50 + list(range(1, 51)))
    assert resample([run], "accuracy", 20).equal_units == pytest.approx(100**2 / (50**2 + 50))


def test_units_are_those_that_any_run_knows_and_different_ones_are_refused() -> None:
    run = answered("accuracy", 60)
    by_threes = in_units(run, np.arange(60) // 3)
    known_once = resample([run, by_threes], "accuracy", 50)
    assert known_once.units == 20
    with pytest.raises(ResultsError, match="put into different units"):
        resample([by_threes, in_units(run, np.arange(60) // 2)], "accuracy", 50)


def test_few_units_are_trusted_as_students_t_has_it() -> None:
    """Of 10 documents whose rows are all right or all wrong; 90 % within t's ends."""
    right = np.repeat(np.arange(10) % 2, 20)
    labels = np.ones(200, dtype=np.int8)
    run = Predictions(
        predictions=right.astype(np.int8),
        labels=labels,
        classes=2,
        units=np.repeat(np.arange(10), 20).astype(np.int32),
    )
    draws = ExampleDraws.of(resample([run], "accuracy"), {FreezeDepth.of(0): [0]})
    moves = draws.candidates[FreezeDepth.of(0)]
    standard_error = np.std(right[::20], ddof=1) / math.sqrt(10)
    expected = stats.t(9).ppf([0.05, 0.95]) * standard_error
    # A bootstrap of a share of few documents is a little wider than normal draws.
    assert np.quantile(moves, [0.05, 0.95]) == pytest.approx(expected, rel=0.1)
    by_normal = stats.norm.ppf(0.95) * np.std(right[::20]) / math.sqrt(10)
    assert np.quantile(moves, 0.95) > 1.1 * by_normal


def test_the_stretch_of_few_units_is_drawn_from_equal_shares_of_its_distribution() -> None:
    """Of four draws one comes from the middle of each quarter, of 4 degrees of freedom."""
    resampled = resampling.Resampled(
        runs=np.zeros((4, 0)), chance=np.zeros(4), examples=10, units=5, equal_units=5.0
    )
    stretch = np.asarray(resampling._stretch(resampled))
    chi_squares = stats.chi2(4).isf([1 / 8, 3 / 8, 5 / 8, 7 / 8])
    assert sorted(stretch**2) == pytest.approx(5 / 4 * 4 / chi_squares)


def test_what_seeds_flip_is_what_they_flip_of_units() -> None:
    """Seeds that answer all rows of a text alike spread as far as its rows count."""
    rng = np.random.default_rng(5)
    count, copies = 300, 4
    labels = np.ones(count * copies, dtype=np.int8)
    units = np.repeat(np.arange(count), copies).astype(np.int32)

    def seed() -> np.ndarray:
        return np.repeat(rng.random(count) < 0.8, copies).astype(np.int8)

    spread = np.var([seed().mean() for _ in range(2000)])
    runs = [Predictions(predictions=seed(), labels=labels, classes=2) for _ in range(10)]
    frozen = FreezeDepth.of(0)
    columns = {frozen: list(range(10))}
    by_rows = ExampleDraws.of(resample(runs, "accuracy"), columns).flips[frozen]
    by_units = ExampleDraws.of(
        resample([in_units(run, units) for run in runs], "accuracy"), columns
    ).flips[frozen]
    assert by_units == pytest.approx(spread, rel=0.15)
    assert by_rows == pytest.approx(spread / copies, rel=0.15)


def test_a_flawless_run_may_fail_on_fresh_units() -> None:
    labels = np.arange(300, dtype=np.int8) % 2
    run = Predictions(
        predictions=labels,
        labels=labels,
        classes=2,
        units=np.repeat(np.arange(100), 3).astype(np.int32),
    )
    draws = ExampleDraws.of(resample([run], "accuracy"), {FreezeDepth.of(0): [0]})
    lowest = np.quantile(draws.candidates[FreezeDepth.of(0)], 0.05)
    assert lowest == pytest.approx(-3 / 100, rel=0.05)  # the rule of three


def of_few_positives(positives: int, missed: int, size: int = 1) -> Predictions:
    """200 examples in units of this size; so many units are of class 1, some of them missed."""
    labels = np.zeros(200, dtype=np.int8)
    labels[: positives * size] = 1
    answers = labels.copy()
    answers[: missed * size] = 0
    run = Predictions(predictions=answers, labels=labels, classes=2)
    return run if size == 1 else in_units(run, np.arange(200, dtype=np.int32) // size)


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("positives", [4, 6, 8])
@pytest.mark.parametrize("metric", ["f1", "matthews", "f1_macro"])
def test_the_rule_of_three_counts_the_units_of_the_rarest_class(
    metric: str, positives: int, size: int
) -> None:
    """Resamples without class 1 say nothing; of a flawless run 3 of its units may fail."""
    run = of_few_positives(positives, 0, size)
    resampled = resample([run], metric)
    assert (resampled.runs == 1).all()
    draws = ExampleDraws.of(resampled, {FreezeDepth.of(0): [0]})
    moves = draws.candidates[FreezeDepth.of(0)]
    assert moves.max() <= 0
    one_mistake = run.labels.copy()
    one_mistake[0] = 0
    cost = size * (1 - trainers_score(Metric(metric), one_mistake, run.labels, 2))
    # The stretch of few units goes on top.
    lowest = np.quantile(moves, 0.05)
    assert lowest == pytest.approx(-3 * cost, rel=0.05 if size == 1 else 0.1)


def test_mistakes_on_a_rare_class_may_hide_another() -> None:
    """One of 8 missed: by Garwood 4.74 of 8 at most, where resamples alone say 3."""
    resampled = resample([of_few_positives(8, 1)], "f1")
    draws = ExampleDraws.of(resampled, {FreezeDepth.of(0): [0]})
    moves = draws.candidates[FreezeDepth.of(0)]
    assert moves == pytest.approx(resampled.runs[:, 0] - resampled.runs.mean(), abs=1e-6)
    lower_moves = moves - draws.hidden[FreezeDepth.of(0)]
    assert np.quantile(lower_moves, 0.05) < np.quantile(moves, 0.05) - 0.05


def shares_alone(resampled: resampling.Resampled) -> list[float]:
    """Return how much of one more mistake counts of each run, beside no other."""
    columns = {FreezeDepth.of(run): [run] for run in range(resampled.runs.shape[1])}
    shares = resampled.hidden.shares(columns)
    return [shares[candidate, candidate] for candidate in columns]


def test_no_mistakes_are_hidden_on_many_rows_or_by_a_constant_answer() -> None:
    labels = np.repeat(np.array([1, 0], np.int8), [FEW_OF_A_LABEL, 1000])
    answers = labels.copy()
    answers[-FEW_MISTAKES:] = 1
    for count, few in ((FEW_OF_A_LABEL, False), (FEW_OF_A_LABEL - 1, True)):
        enough = slice(FEW_OF_A_LABEL - count, None)
        run = Predictions(predictions=answers[enough], labels=labels[enough], classes=2)
        assert shares_alone(resample([run], "f1", 20)) == [float(few)]
        assert shares_alone(resample([run], "accuracy", 20)) == [0]
        nothing = Predictions(
            predictions=np.zeros(count + 1000, np.int8), labels=labels[enough], classes=2
        )
        assert shares_alone(resample([nothing], "f1", 20)) == [0]


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
def test_the_fewer_mistakes_the_more_of_another_is_hidden(metric: str) -> None:
    """Ten units of five rows answered wrongly are ten mistakes, not fifty."""
    labels = np.repeat(np.array([1, 0], np.int8), [1000, 1000])
    answers = labels.copy()
    answers[:50] = 0
    run = Predictions(predictions=answers, labels=labels, classes=2)
    assert shares_alone(resample([run], metric, 20)) == [0]
    units = np.arange(2000, dtype=np.int32) // 5
    [share] = shares_alone(resample([in_units(run, units)], metric, 20))
    assert share == pytest.approx(1 - 10 / FEW_MISTAKES)


def test_mistakes_are_counted_in_units_and_of_accuracy_also_those_of_a_constant_answer() -> None:
    """One wrong row in each of 49 units of fifty is less than one unit answered wrongly."""
    labels = np.zeros(10_000, np.int8)
    labels[:2] = 1
    answers = labels.copy()
    answers[100 : 100 + 49 * 50 : 50] = 1
    units = np.arange(10_000, dtype=np.int32) // 50
    constant = Predictions(predictions=np.zeros_like(labels), labels=labels, classes=2, units=units)
    scattered = Predictions(predictions=answers, labels=labels, classes=2, units=units)
    right = Predictions(predictions=labels, labels=labels, classes=2, units=units)
    shares = shares_alone(resample([scattered, constant, right], "accuracy", 20))
    assert shares[0] == pytest.approx(1 - 49 / 50 / FEW_MISTAKES)
    assert shares[1] == pytest.approx(1 - 2 / 50 / FEW_MISTAKES)
    assert shares[2] == 0  # its mistakes are counted otherwise


def test_mistakes_that_another_makes_too_are_not_counted_beside_it() -> None:
    """They leave the contrast of the two, whichever of them is held against the other."""
    labels = np.zeros(1000, np.int8)
    more, fewer, diverged = FreezeDepth.of(0), FreezeDepth.of(1), FreezeDepth.of(2)
    runs = []
    for wrong in (75, 60):
        answers = labels.copy()
        answers[:wrong] = 1
        runs.append(Predictions(predictions=answers, labels=labels, classes=2))
    columns = {more: [0, 0], fewer: [1, None], diverged: [None, None]}
    shares = resample(runs, "accuracy", 20).hidden.shares(columns)
    assert shares[more, fewer] == pytest.approx(1 - 15 / FEW_MISTAKES)
    assert shares[fewer, more] == 1 / 2  # of its two runs, one diverged
    for candidate, other in ((more, more), (fewer, fewer), (more, diverged), (diverged, more)):
        assert shares[candidate, other] == 0


def test_the_costliest_mistake_counts_where_classes_are_ordered() -> None:
    """Five stars taken for one cost kappa more than for four, though four are the next rarest."""
    labels = np.repeat(np.arange(5, dtype=np.int8), [200, 200, 200, 20, 10])
    run = Predictions(predictions=labels, labels=labels, classes=5)
    farthest = labels.copy()
    farthest[-1] = 0
    lost = 1 - cohen_kappa_score(labels, farthest, weights="quadratic")
    with registered("tests.ordinal"):
        assert resample([run], "kappa", 20).hidden.cost == pytest.approx(lost)


def test_by_accuracy_a_flawless_run_may_fail_on_any_label() -> None:
    labels = np.append(np.zeros(199, np.int8), np.int8(1))
    resampled = resample([Predictions(predictions=labels, labels=labels, classes=2)], "accuracy")
    moves = ExampleDraws.of(resampled, {FreezeDepth.of(0): [0]}).candidates[FreezeDepth.of(0)]
    assert np.quantile(moves, 0.05) == pytest.approx(-3 / 200, rel=0.05)


def test_a_share_of_values_hides_as_many_mistakes_as_one_of_classes() -> None:
    """Which answers are right only the metric knows: of values hardly one is the label itself."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 250).astype(np.int8)
    by_class = []
    by_value = []
    for wrong in (0, 2, 60):
        answers = labels.copy()
        answers[:wrong] = 1 - labels[:wrong]
        by_class.append(Predictions(predictions=answers, labels=labels, classes=2))
        noise = rng.uniform(-0.4, 0.4, len(labels))
        by_value.append(
            Predictions(
                predictions=(answers * 2 + noise).astype(np.float32),
                labels=labels.astype(np.float32) * 2,
                classes=0,
            )
        )
    of_classes = resample(by_class, "accuracy")
    with registered("tests.ratings"):
        of_values = resample(by_value, "within_half")
    assert np.array_equal(of_values.runs, of_classes.runs)
    assert of_values.hidden.flawless == of_classes.hidden.flawless == {0}
    assert of_values.hidden.unsure == of_classes.hidden.unsure == {1, 2}
    assert of_values.hidden.cost == of_classes.hidden.cost == 1 / 250
    assert shares_alone(of_values) == shares_alone(of_classes) == [0, 1 - 2 / FEW_MISTAKES, 0]
    alone = {FreezeDepth.of(0): [0]}
    moves = ExampleDraws.of(of_values, alone).candidates[FreezeDepth.of(0)]
    assert np.quantile(moves, 0.05) == pytest.approx(-3 / 250, rel=0.05)


def test_no_more_mistakes_are_hidden_on_a_label_than_it_has_units() -> None:
    """Of 20 classes one has one row: it can cost macro F1 a twentieth, and a little of others."""
    labels = np.append(np.repeat(np.arange(19, dtype=np.int16), 100), np.int16(19))
    answers = labels.copy()
    answers[:100] = 1
    resampled = resample(
        [Predictions(predictions=answers, labels=labels, classes=20)], "f1_macro", 500
    )
    hidden = ExampleDraws.of(resampled, {FreezeDepth.of(0): [0]}).hidden[FreezeDepth.of(0)]
    assert 0.05 < hidden.max() < 0.051


@pytest.mark.parametrize("labels", [np.zeros(30, np.int8), np.arange(30, dtype=np.float32)])
def test_a_flawless_run_of_other_labels_has_a_cost_of_mistakes(labels: np.ndarray) -> None:
    metric, classes = ("accuracy", 2) if labels.max() == 0 else ("pearson", 0)
    run = Predictions(predictions=labels, labels=labels, classes=classes)
    assert 0 < resample([run], metric, 20).hidden.cost <= 1 / 30


def values(labels: np.ndarray) -> Predictions:
    answers = labels + np.random.default_rng(0).normal(0, 0.1, len(labels))
    return Predictions(
        predictions=answers.astype(np.float32), labels=labels.astype(np.float32), classes=0
    )


@pytest.mark.parametrize(("metric", "usual"), [("pearson", 5), ("spearman", 15 / 7)])
def test_a_correlation_on_few_far_labels_hides_one_more(metric: str, usual: float) -> None:
    """Of 100 labels five are 1, the others 0: of the variance these bring 19 times a row's part."""
    labels = np.zeros(100)
    labels[:5] = 1
    found = resample([values(labels)] * 2, metric, 20)
    assert shares_alone(found) == [1, 1]
    assert found.hidden.most == 100
    telling = (5 * 19**3 + 95 / 19**3) / (5 * 19**2 + 95 / 19**2)
    lost = 1 - math.sqrt(1 - (telling - usual) / 100)
    assert found.hidden.cost == pytest.approx(lost)
    # Twenty units say as much as twenty rows do.
    units = np.arange(100, dtype=np.int32) // 5
    lost = 1 - math.sqrt(1 - (telling - usual) / 20)
    in_fives = resample([in_units(values(labels), units)], metric, 20)
    assert in_fives.hidden.cost == pytest.approx(lost)
    draws = ExampleDraws.of(found, {FreezeDepth.of(0): [0, 1]})
    mean_hidden = float(draws.hidden[FreezeDepth.of(0)].mean())
    assert mean_hidden == pytest.approx(found.hidden.cost, rel=0.5)


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_a_correlation_on_usual_labels_hides_none(metric: str) -> None:
    shares = (np.arange(300) + 0.5) / 300
    for labels in (shares, stats.norm.ppf(shares), np.round(5 * shares)):
        if metric == "pearson" or len(np.unique(labels)) == 300:
            assert shares_alone(resample([values(labels)], metric, 20)) == [0]
    # Of ranks ties are usual, too, and cost next to nothing.
    in_fives = resample([values(np.round(5 * shares))], metric, 20)
    assert in_fives.hidden.cost < 0.001


def test_a_mistake_is_possible_on_every_rare_label() -> None:
    """Ten classes of one row each may hide ten mistakes, where one class may hide one."""
    for classes, possible in ((11, 10), (2, 1)):
        labels = np.append(np.zeros(100, np.int8), np.arange(1, classes, dtype=np.int8))
        answers = labels.copy()
        answers[0] = 1
        run = Predictions(predictions=answers, labels=labels, classes=classes)
        assert resample([run], "f1_macro", 20).hidden.most == possible


@pytest.mark.parametrize("metric", ["accuracy", "f1_macro", "matthews"])
def test_many_classes_are_counted_as_few_are(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 40, 300)  # of 50 classes some have no label, others no answer
    runs = []
    for _ in range(3):
        other = rng.integers(5, 50, 300)
        answers = np.where(rng.random(300) < 0.6, labels, other)
        runs.append(Predictions(predictions=answers, labels=labels, classes=50))
    many = resample(runs, metric, 20)
    monkeypatch.setattr(class_counts, "_MOST_NUMBERS", 2 * 50 * 20)  # two runs at a time
    in_blocks = resample(runs, metric, 20)
    monkeypatch.setattr(class_counts, "_MOST_DENSE", 50)
    few = resample(runs, metric, 20)
    for one in (many, in_blocks):
        assert np.array_equal(one.runs, few.runs)
        assert np.array_equal(one.chance, few.chance)


def test_examples_are_drawn_alike_however_many_resamples_fit_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = answered("accuracy", 71)
    at_once = resample([run], "accuracy", 21)
    monkeypatch.setattr(resampling, "_MOST_WEIGHTS", 71 * 5)
    assert [len(part) for part in resampling._poisson_weights(11, 71)] == [4, 4, 3]
    in_parts = resample([run], "accuracy", 21)
    assert np.array_equal(in_parts.runs, at_once.runs)
    monkeypatch.setattr(resampling, "_MOST_WEIGHTS", 1)
    assert [len(part) for part in resampling._poisson_weights(3, 71)] == [2, 1]


def test_chance_that_is_the_largest_of_even_shares_is_too_high() -> None:
    """Of 20 labels that are equally frequent one has about 8 % of 200 rows, instead of 5."""
    rng = np.random.default_rng(0)
    found = []
    truly = []
    for _ in range(30):
        labels = rng.integers(0, 20, 200).astype(np.int16)
        right = Predictions(predictions=labels, labels=labels, classes=20)
        draws = ExampleDraws.of(resample([right], "accuracy", 200), {FreezeDepth.of(0): [0]})
        found.append(draws.chance_too_high)
        truly.append(np.bincount(labels).max() / 200 - 0.05)
    assert np.mean(found) == pytest.approx(np.mean(truly), rel=0.35)
    # Of one clear majority nothing is too high.
    labels = np.repeat(np.array([0, 1], np.int16), [140, 60])
    right = Predictions(predictions=labels, labels=labels, classes=2)
    draws = ExampleDraws.of(resample([right], "accuracy"), {FreezeDepth.of(0): [0]})
    assert 0 <= draws.chance_too_high < 0.002
