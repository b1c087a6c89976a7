"""A metric of one's own for a kind that ships, as another package would bring it: one file.

Balanced accuracy is the mean share of right answers to each class, so that all classes count alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from elsa_tune.specs.task import Metric, TaskKind
from elsa_tune.tasks.types.base import (
    Array,
    Floats,
    Kernel,
    Scorer,
    Weights,
    register_metric,
    sums,
)

BALANCED = Metric.define("balanced_accuracy", __name__)


class BalancedAccuracy(Kernel):
    """The mean over the classes that occur as a label, as scikit-learn has it."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        right = predictions == labels[:, None]  # [E, M]

        def scores(weights: Weights) -> Floats:
            recalls: Floats = np.zeros((len(weights), right.shape[1]))
            occurring: Floats = np.zeros((len(weights), 1))
            for c in range(classes):
                own = (labels == c)[:, None]
                actual = sums(weights, own.astype(precision))  # [R, 1]
                hits = sums(weights, (own & right).astype(precision))  # [R, M]
                recalls += hits / np.maximum(actual, 1)
                occurring += actual > 0
            return recalls / occurring

        return scores

    def chance(self, labels: Array, classes: int, precision: type[np.floating[Any]]) -> Scorer:
        """Return the score of any constant answer: 1 / the number of classes that occur."""
        own = (labels[:, None] == np.arange(classes)).astype(precision)  # [E, C]

        def of_constants(weights: Weights) -> Floats:
            occurring = (sums(weights, own) > 0).sum(axis=1)
            return np.asarray(1 / occurring)

        return of_constants


register_metric(BALANCED, BalancedAccuracy(), TaskKind.CLASSIFICATION)
