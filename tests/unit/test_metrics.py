"""Metrics against scipy and textbook values, constants, ties, and the one judge of values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from elsa_tune.errors import DivergedError
from elsa_tune.specs.task import Metric
from elsa_tune.tasks.types.base import ratio
from elsa_tune.tasks.types.regression import ranks
from elsa_tune.tasks.types.scores import chance, check_quality, score

LABELS = np.array([1, 1, 1, 0, 0, 1, 0, 1])
ANSWERS = np.array([1, 0, 1, 0, 1, 1, 0, 1])  # TP 4, FN 1, TN 2, FP 1


def test_two_classes_by_hand() -> None:
    assert score(Metric.ACCURACY, ANSWERS, LABELS, 2) == 6 / 8
    assert score(Metric.F1, ANSWERS, LABELS, 2) == 2 * 4 / (2 * 4 + 1 + 1)
    assert score(Metric.F1_MACRO, ANSWERS, LABELS, 2) == pytest.approx((8 / 10 + 4 / 6) / 2)
    expected = (4 * 2 - 1 * 1) / math.sqrt((4 + 1) * (4 + 1) * (2 + 1) * (2 + 1))
    assert score(Metric.MATTHEWS, ANSWERS, LABELS, 2) == pytest.approx(expected)


def test_matthews_of_two_classes_is_pearson_of_the_ids() -> None:
    rng = np.random.default_rng(0)
    labels, answers = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    expected = stats.pearsonr(labels, answers).statistic
    assert score(Metric.MATTHEWS, answers, labels, 2) == pytest.approx(expected)


def test_matthews_of_three_classes_is_gorodkins() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 200)
    answers = np.where(rng.random(200) < 0.6, labels, rng.integers(0, 3, 200))
    # R_K as a correlation of indicator matrices: cov(X, Y) / sqrt(cov(X, X) cov(Y, Y)).
    x, y = np.eye(3)[labels], np.eye(3)[answers]
    x, y = x - x.mean(0), y - y.mean(0)
    expected = (x * y).sum() / math.sqrt((x * x).sum() * (y * y).sum())
    assert score(Metric.MATTHEWS, answers, labels, 3) == pytest.approx(expected)


@pytest.mark.parametrize("ties", [False, True])
def test_correlations_agree_with_scipy(ties: bool) -> None:
    rng = np.random.default_rng(2)
    labels = rng.normal(size=150).astype(np.float32)
    answers = (labels + rng.normal(size=150)).astype(np.float32)
    if ties:
        labels, answers = np.round(labels * 2) / 2, np.round(answers)
    assert score(Metric.SPEARMAN, answers, labels, 1) == pytest.approx(
        stats.spearmanr(answers, labels).statistic, abs=1e-12
    )
    assert score(Metric.PEARSON, answers, labels, 1) == pytest.approx(
        stats.pearsonr(answers.astype(float), labels.astype(float)).statistic, abs=1e-12
    )


def test_ranks_share_ties() -> None:
    values = np.array([3.0, 1.0, 3.0, 2.0, 3.0])
    assert ranks(values).tolist() == stats.rankdata(values).tolist() == [4, 1, 4, 2, 4]


@pytest.mark.parametrize("metric", [Metric.MATTHEWS, Metric.SPEARMAN, Metric.PEARSON])
@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_a_constant_prediction_has_no_correlation(metric: Metric, constant: float) -> None:
    answers = np.full(8, constant)
    assert score(metric, answers, LABELS.astype(float), 2) == 0.0


def test_a_constant_that_rounds_still_has_no_correlation() -> None:
    answers = np.full(7, 0.1, dtype=np.float32)  # its mean is not exactly 0.1
    labels = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    assert score(Metric.PEARSON, answers, labels, 1) == 0.0


def test_a_correlation_is_defined_where_both_sides_vary_by_more_than_rounding() -> None:
    """Variances whose product is 1e-12 or less are none."""
    products = np.array([0.9e-12, 1e-12, 1.1e-12, -1.0])
    expected = [0.0, 0.0, 0.5 / math.sqrt(1.1), 0.0]
    assert ratio(np.full(4, 0.5e-6), products) == pytest.approx(expected)


def test_values_that_lie_one_apart_are_no_constant() -> None:
    values = np.array([0.0, 0.25, 1.0])
    assert score(Metric.PEARSON, values, values, 1) == pytest.approx(1.0)


def test_huge_and_tiny_values_correlate() -> None:
    labels = np.array([0.0, 1.0, 2.0, 3.0])
    for scale in (1e-300, 1e300):
        assert score(Metric.PEARSON, labels * scale, labels, 1) == pytest.approx(1.0)


def test_a_class_that_is_never_seen_or_answered_leaves_the_macro_mean() -> None:
    labels, answers = np.array([0, 0, 1]), np.array([0, 1, 1])
    expected = (2 / 3 + 2 / 3) / 2
    assert score(Metric.F1_MACRO, answers, labels, 5) == pytest.approx(expected)


def test_chance_is_the_best_constant() -> None:
    assert chance(Metric.ACCURACY, LABELS, 2) == 5 / 8
    assert chance(Metric.F1, LABELS, 2) == 2 * 5 / (5 + 8)
    assert chance(Metric.MATTHEWS, LABELS, 2) == 0.0
    assert chance(Metric.SPEARMAN, LABELS.astype(float), 1) == 0.0


def test_blind_answers_beat_every_constant_where_classes_count_alike() -> None:
    """Answering 0 has F1 6 / 7 of class 0 and none of class 1; class 2 occurs nowhere."""
    labels = np.array([0, 0, 0, 1])
    assert score(Metric.F1_MACRO, np.zeros(4, int), labels, 3) == pytest.approx((6 / 7 + 0) / 2)
    assert chance(Metric.F1_MACRO, labels, 3) == pytest.approx(1 / 2)


def test_answers_drawn_as_classes_are_common_score_the_chance_of_macro_f1() -> None:
    rng = np.random.default_rng(1)
    shares = (0.6, 0.3, 0.1)
    labels = rng.choice(3, 200_000, p=shares)
    blind = score(Metric.F1_MACRO, rng.choice(3, 200_000, p=shares), labels, 3)
    assert blind == pytest.approx(chance(Metric.F1_MACRO, labels, 3), abs=0.005)


def test_f1s_best_constant_is_the_positive_class_even_where_it_is_rare() -> None:
    qqp = np.repeat([1, 0], [14885, 40430 - 14885])
    assert chance(Metric.F1, qqp, 2) == pytest.approx(2 * 14885 / (14885 + 40430))
    assert chance(Metric.ACCURACY, qqp, 2) == (40430 - 14885) / 40430


def test_the_judge_lets_values_in_range_pass() -> None:
    assert check_quality(0.5, Metric.ACCURACY) == 0.5
    assert check_quality(-0.3, Metric.MATTHEWS) == -0.3
    assert check_quality(1 + 1e-9, Metric.SPEARMAN) == 1.0  # rounding


def test_a_millionth_beyond_the_range_is_rounding_and_more_is_not() -> None:
    assert check_quality(1 + 0.9e-6, Metric.ACCURACY) == 1.0
    assert check_quality(-0.9e-6, Metric.ACCURACY) == 0.0
    with pytest.raises(DivergedError, match=r"outside its range 0\.\.1"):
        check_quality(1 + 1.1e-6, Metric.ACCURACY)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.1, -0.1])
def test_the_judge_stops_everything_else(value: float) -> None:
    with pytest.raises(DivergedError):
        check_quality(value, Metric.ACCURACY)


def test_predictions_that_are_not_finite_never_become_a_score() -> None:
    answers = np.array([0.1, np.nan, np.inf])
    with pytest.raises(DivergedError, match="2 of 3 predictions are not finite"):
        score(Metric.SPEARMAN, answers, np.array([1.0, 2.0, 3.0]), 1)


def test_shapes_and_ids_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="must be equal, not empty"):
        score(Metric.ACCURACY, np.array([], dtype=int), np.array([], dtype=int), 2)
    with pytest.raises(ValueError, match="there are 2 classes"):
        score(Metric.ACCURACY, np.array([0, 2]), np.array([0, 1]), 2)
