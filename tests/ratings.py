"""A type of task whose labels are values, scored by a share: of the answers that are near them."""

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
    register,
    sums,
    totals,
)
from elsa_tune.tasks.types.regression import Regression

RATING = TaskKind.add("rating", __name__)
NEAR = Metric.define("within_half", __name__, words="share within half a point", is_share=True)

REACH = 0.5


class Rating(Regression):
    """One number, of which half a point more or less does not matter."""

    kind = RATING
    metrics = (NEAR, *Regression.metrics)
    usual = (NEAR, Metric.SPEARMAN)


class WithinHalf(Kernel):
    """The share of answers that are at most half a point off."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        distances = np.abs(predictions - labels[:, None])
        is_near = (distances <= REACH).astype(precision)  # [E, M]

        def scores(weights: Weights) -> Floats:
            return sums(weights, is_near) / totals(weights)

        return scores


register(Rating(), {NEAR: WithinHalf()})
