"""Resampled qualities: the metrics are the trainer's, the spread is what theory says."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from elsa_tune.analysis.statistics import resampling
from elsa_tune.analysis.statistics.resampling import resample, score
from elsa_tune.errors import ResultsError
from elsa_tune.specs.result_row import Predictions
from elsa_tune.specs.task import Metric
from elsa_tune.tasks.types.scores import chance as trainers_chance
from elsa_tune.tasks.types.scores import score as trainers_score

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
    subprocess.run([sys.executable, "-c", MEMORY], cwd=root, check=True, timeout=60)


def test_the_same_answer_every_time() -> None:
    run = answered("accuracy", 100)
    first, second = (resample([run], "accuracy", resamples=700) for _ in range(2))
    assert (first.runs == second.runs).all()


def test_a_single_example_never_vanishes() -> None:
    run = answered("accuracy", 1)
    assert np.isfinite(resample([run], "accuracy").runs).all()


def test_runs_judged_by_other_examples_are_refused() -> None:
    one, other = answered("accuracy", 50), answered("accuracy", 51)
    with pytest.raises(ResultsError, match="different evaluation examples"):
        resample([one, other], "accuracy")


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ResultsError, match="'bleu'"):
        resample([answered("accuracy", 50)], "bleu")
