"""A type of task whose labels are whole numbers that name no classes: stars, learnt as a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import DataError
from elsa_tune.specs.task import Metric, TaskKind, TaskSpec
from elsa_tune.tasks.types.base import (
    Array,
    Floats,
    Kernel,
    LinearModel,
    Logits,
    Scorer,
    TaskType,
    Unit,
    Weights,
    register,
    sums,
    totals,
)

if TYPE_CHECKING:
    from torch import Tensor

STARS = TaskKind.add("stars", __name__)
NEAR = Metric.define("within_one_star", __name__, is_share=True)
GAIN = Metric.define("mean_gain", __name__)

MOST = 5
# What an answer gains, by the label (row) and the answer (column), both from 0 stars on.
DISTANCES = np.abs(np.subtract.outer(np.arange(MOST + 1), np.arange(MOST + 1)))
GAINS = 1 - DISTANCES / MOST


class Stars(TaskType):
    """One to five stars."""

    kind = STARS
    metrics = (GAIN, NEAR)
    usual = (GAIN, NEAR)
    label_dtype = np.int64
    names_classes = False
    linear_model = LinearModel.RIDGE
    problem_type = "regression"

    def label_reader(self, task: TaskSpec) -> Callable[[str, str], int]:
        def read(label: str, where: str) -> int:
            if not label.isdecimal() or not 1 <= int(label) <= MOST:
                raise DataError(f"{where}: '{label}' is no number of stars, 1 to {MOST}")
            return int(label)

        return read

    def label_text(self, task: TaskSpec, label: Any) -> int:
        return int(label)

    def only_label(self, task: TaskSpec, label: Any) -> str:
        return f"same number of stars, {label}; nothing can be learnt"

    def strata(self, labels: Array) -> NDArray[np.int64]:
        return labels.astype(np.int64)

    def unit(self, labels: Array) -> Unit:
        return Unit(float(labels.mean()), float(labels.std()))

    def loss(self, logits: Tensor, labels: Tensor, unit: Unit) -> Tensor:
        from torch.nn import functional as F

        targets = (labels.float() - unit.mean) / unit.std
        return F.mse_loss(logits.squeeze(-1), targets, reduction="sum")

    def predictions(self, logits: Tensor, unit: Unit) -> Tensor:
        values = logits.squeeze(-1) * unit.std + unit.mean
        return values.round().clamp(1, MOST).long()

    def answers(self, logits: Tensor, names: Sequence[str]) -> tuple[Sequence[str], Tensor]:
        stars = self.predictions(logits, Unit())
        return [str(int(each)) for each in stars], logits.squeeze(-1)

    def cells(
        self, logits: Logits, names: Sequence[str], *, probabilities: bool
    ) -> dict[str, Array]:
        return {"prediction": logits[:, 0].round().clip(1, MOST)}


class WithinOne(Kernel):
    """The share of answers that are at most one star off."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        is_near = DISTANCES[labels[:, None], predictions] <= 1
        near = is_near.astype(precision)  # [E, M]

        def scores(weights: Weights) -> Floats:
            return sums(weights, near) / totals(weights)

        return scores


class MeanGain(Kernel):
    """The mean of what answers gain, from a table that labels and answers are indices of."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        if classes != 0:
            raise ValueError(f"stars name no classes, but {classes} are given")
        gains = GAINS[labels[:, None], predictions].astype(precision)  # [E, M]

        def scores(weights: Weights) -> Floats:
            return sums(weights, gains) / totals(weights)

        return scores

    def chance(self, labels: Array, classes: int, precision: type[np.floating[Any]]) -> Scorer:
        """Return the score of the best constant number of stars."""
        if classes != 0:
            raise ValueError(f"stars name no classes, but {classes} are given")
        of_constants = GAINS[labels].astype(precision)  # [E, answers]

        def best(weights: Weights) -> Floats:
            scores = sums(weights, of_constants) / totals(weights)
            return np.asarray(scores.max(axis=1))

        return best


register(Stars(), {GAIN: MeanGain(), NEAR: WithinOne()})
