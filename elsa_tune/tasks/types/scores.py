"""Scores of a trial: predictions and labels in, one number for each metric out.

E is the number of evaluation examples.
"""

import numpy as np

from elsa_tune.errors import DivergedError, ExtensionError
from elsa_tune.specs.task import Metric, TaskSpec
from elsa_tune.tasks.types.base import Array
from elsa_tune.tasks.types.registry import kernel_of

# Rounding may carry a perfect score past 1 by this much; more than that is a defect.
TOLERANCE = 1e-6


def score(
    metric: Metric,
    predictions: Array,
    labels: Array,
    classes: int,
) -> float:
    """Return the metric of predictions [E, ...] against labels [E, ...], within its range.

    classes: of the task, 0 without such; class ids are 0..classes-1. A constant prediction has
    Matthews, Pearson and Spearman 0. Raises DivergedError for predictions that are not finite,
    ValueError for unequal or no examples, and for class ids outside their range, ExtensionError
    for a metric that calls itself a share of the examples and is none.
    """
    are_equal = predictions.shape == labels.shape
    if not are_equal or len(labels) == 0:
        raise ValueError(
            f"predictions {predictions.shape} and labels {labels.shape} must be equal, not empty"
        )
    is_finite = np.isfinite(predictions)
    if not is_finite.all():
        count = predictions.size
        bad = int((~is_finite).sum())
        raise DivergedError(f"{bad} of {count} predictions are not finite numbers")
    _check_ids(predictions, labels, classes)
    kernel = kernel_of(metric)
    quality = check_quality(kernel.score(predictions, labels, classes), metric)
    if metric.is_share:
        _check_share(quality, metric, len(labels))
    return quality


def task_scores(task: TaskSpec, predictions: Array, labels: Array) -> dict[str, float]:
    """Return every metric of the task by its name, the headline's first; as `score` has them."""
    scores: dict[str, float] = {}
    for metric in (task.metric, *task.companions):
        quality = score(metric, predictions, labels, task.class_count)
        scores[metric.value] = quality
    return scores


def chance(metric: Metric, labels: Array, classes: int) -> float:
    """Return the quality of the best blind answer to labels [E, ...], which is mostly a constant.

    F1's best constant is the positive class, not the majority; for macro F1 answers drawn with the
    labels' shares are better than any. 0 for correlations.
    """
    kernel = kernel_of(metric)
    best = kernel.chance(labels, classes, np.float64)
    weights = np.ones((1, len(labels)))
    [quality] = best(weights)
    return float(quality)


def check_quality(value: float, metric: Metric) -> float:
    """Return the value, if within the metric's range, give or take rounding.

    Raises DivergedError.
    """
    lowest = metric.lowest
    is_within = lowest - TOLERANCE <= value <= 1 + TOLERANCE
    if not is_within:
        allowed = f"{lowest:g}..1"
        raise DivergedError(f"{metric} is {value:g}, outside its range {allowed}")
    raised = max(lowest, value)
    return min(1.0, raised)


def _check_share(quality: float, metric: Metric, examples: int) -> None:
    """Raise ExtensionError for a score that no number of right examples has.

    What a share can certify is counted in examples, so that of another metric would be wrong.
    """
    right = quality * examples
    if abs(right - round(right)) > TOLERANCE * examples:
        raise ExtensionError(
            f"the metric '{metric}' is defined with is_share=True, but its score {quality:.6g} is "
            f"that of no whole number of the {examples:,} examples; define it without"
        )


def _check_ids(predictions: Array, labels: Array, classes: int) -> None:
    """Raise ValueError for class ids outside 0..classes-1.

    Values are no ids, and neither are whole numbers where labels name no classes.
    """
    for ids in (labels, predictions):
        is_of_integers = ids.dtype.kind in "iu"
        if not is_of_integers or not classes:
            return
    lowest = min(predictions.min(), labels.min())
    highest = max(predictions.max(), labels.max())
    if lowest < 0 or highest >= classes:
        reach = f"class ids reach from {lowest} to {highest}"
        raise ValueError(f"{reach}; there are {classes} classes")
