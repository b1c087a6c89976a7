"""A third type of task, as another package would bring it: classes in an order.

They are scored by Cohen's kappa with quadratic weights (Cohen 1968), as essays and reviews are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from elsa_tune.specs.task import Metric, TaskKind, TaskSpec
from elsa_tune.tasks.types.base import (
    Array,
    Floats,
    Kernel,
    Scorer,
    Weights,
    register,
    sums,
    totals,
)
from elsa_tune.tasks.types.classification import Classification

ORDINAL = TaskKind.add("ordinal", __name__)
KAPPA = Metric.define("kappa", __name__, lowest=-1.0, of_constants=0.0)


class Ordinal(Classification):
    """One of several classes, from the lowest to the highest."""

    kind = ORDINAL
    metrics = (KAPPA, Metric.ACCURACY)
    usual = (KAPPA, Metric.ACCURACY)

    def describe(self, task: TaskSpec) -> str:
        return f"an order of {len(task.classes)} classes"


class Kappa(Kernel):
    """1 - squared distances of answers and labels, over those of answers and labels at random."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        answers = predictions.astype(precision)  # [E, M]
        truth = labels[:, None].astype(precision)
        observed = (answers - truth) ** 2
        answer_squares = answers**2
        truth_squares = truth**2

        def scores(weights: Weights) -> Floats:
            total = totals(weights)
            means = sums(weights, answers) / total * sums(weights, truth) / total
            spread = sums(weights, answer_squares) + sums(weights, truth_squares)
            expected = spread / total - 2 * means
            has_spread = expected > 1e-12
            distance = sums(weights, observed) / total
            return np.where(has_spread, 1 - distance / np.where(has_spread, expected, 1.0), 0.0)

        return scores


register(Ordinal(), {KAPPA: Kappa()})
