"""Metrics: predictions and labels in, one number in [-1, 1] out.

Shapes: E evaluation examples, C classes.
"""

import math

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import DivergedError
from elsa_tune.specs.task import Metric, TaskSpec

# Rounding may carry a perfect score past 1 by this much; more than that is a defect.
TOLERANCE = 1e-6

Array = NDArray[np.generic]


def score(metric: Metric, predictions: Array, labels: Array, classes: int) -> float:
    """The metric of predictions [E] against labels [E]; a fraction in [-1, 1], never NaN.

    predictions, labels: class ids 0..C-1, or for correlations values. classes: C (ignored by
    correlations). A constant prediction has Matthews, Pearson and Spearman 0. Raises DivergedError
    for predictions that are not finite, ValueError for unequal or no examples.
    """
    if predictions.shape != labels.shape or predictions.ndim != 1 or not len(labels):
        raise ValueError(
            f"predictions {predictions.shape} and labels {labels.shape} must be equal, not empty"
        )
    if not np.isfinite(predictions).all():
        bad = int((~np.isfinite(predictions)).sum())
        raise DivergedError(f"{bad} of {len(predictions)} predictions are not finite numbers")
    if metric.is_for_regression:
        x, y = predictions.astype(np.float64), labels.astype(np.float64)
        value = correlation(ranks(x), ranks(y)) if metric is Metric.SPEARMAN else correlation(x, y)
    else:
        value = _of_confusion(metric, confusion(predictions, labels, classes))
    return check_quality(value, metric)


def task_scores(task: TaskSpec, predictions: Array, labels: Array) -> dict[str, float]:
    """Every metric of the task by its name, the headline's first; as `score` has them."""
    metrics = (task.metric, *task.companions)
    return {metric.value: score(metric, predictions, labels, task.outputs) for metric in metrics}


def chance(metric: Metric, labels: Array, classes: int) -> float:
    """Quality of the best constant prediction on labels [E]; 0 for Matthews and correlations.

    F1's best constant is the positive class, not the majority.
    """
    if metric.is_for_regression or metric is Metric.MATTHEWS:
        return 0.0
    constants = (np.full(labels.shape, c, dtype=np.int64) for c in range(classes))
    return max(score(metric, constant, labels, classes) for constant in constants)


def check_quality(value: float, metric: Metric) -> float:
    """The value, if within the metric's range, give or take rounding. Raises DivergedError."""
    if not metric.lowest - TOLERANCE <= value <= 1 + TOLERANCE:
        raise DivergedError(f"{metric} is {value:g}, outside its range {metric.lowest:g}..1")
    return min(1.0, max(metric.lowest, value))


def confusion(predictions: Array, labels: Array, classes: int) -> NDArray[np.int64]:
    """Counts [C, C] by label and prediction. Raises ValueError for ids outside 0..C-1."""
    pairs = np.stack([labels, predictions]).astype(np.int64)
    if pairs.min() < 0 or pairs.max() >= classes:
        raise ValueError(
            f"class ids reach from {pairs.min()} to {pairs.max()}; there are {classes} classes"
        )
    return np.bincount(pairs[0] * classes + pairs[1], minlength=classes * classes).reshape(
        classes, classes
    )


def _of_confusion(metric: Metric, counts: NDArray[np.int64]) -> float:
    hits = np.diag(counts).astype(np.float64)  # [C]
    actual, predicted = counts.sum(axis=1), counts.sum(axis=0)  # [C]
    if metric is Metric.ACCURACY:
        return float(hits.sum() / counts.sum())
    if metric is Metric.MATTHEWS:
        # Gorodkin 2004, R_K: for C classes; the usual one for two.
        rows, t, p = float(actual.sum()), actual.astype(np.float64), predicted.astype(np.float64)
        spread = (rows**2 - t @ t) * (rows**2 - p @ p)
        return float((hits.sum() * rows - t @ p) / math.sqrt(spread)) if spread > 0 else 0.0
    # F1 of class c = 2 TP / (actual + predicted); 0 where the class was never right.
    involved = actual + predicted
    f1 = 2 * hits / np.maximum(involved, 1)
    if metric is Metric.F1:
        return float(f1[1])
    # As scikit-learn's macro average: over the classes that occur as a label or an answer.
    return float(f1[involved > 0].mean())


def correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Pearson's correlation of x [E] and y [E]; 0 where either is constant."""
    # Subtracting the mean of a constant leaves rounding noise, which would correlate with anything.
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    # Scaled first, so that squares of very large or very small values neither overflow nor vanish.
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    return float((x @ y) / math.sqrt((x @ x) * (y @ y)))


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks 1..E of values [E]; equal values share the mean of their ranks."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2.0)[where]
