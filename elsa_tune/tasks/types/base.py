"""What a type of task and a metric have to say: the one place where a kind of label is known.

Letters in shape comments: E examples, M runs, R resamples, C outputs of the head, B a batch. Labels
and predictions are arrays whose first axis is E; what stands behind it is the type's affair.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from elsa_tune.specs.task import Metric, TaskKind, TaskSpec

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]
Floats = NDArray[np.float64]
# How often each example counts [R, E]: one row of ones where each counts once.
Weights = NDArray[np.floating[Any]]
# Turns weights [R, E] into qualities [R, M].
Scorer = Callable[[Weights], Floats]


class Kernel(ABC):
    """One metric, from what each example gives by itself: statistics that weights add up.

    Training weighs every example once, in double precision. The bootstrap weighs them as often as
    they were drawn, in single precision: its products are of thousands of rows.
    """

    @abstractmethod
    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        """Return how runs are scored under weights of this precision.

        predictions: [E, M, ...], of M runs. labels: [E, ...]. classes: of the task, 0 without such.
        """

    def score(self, predictions: Array, labels: Array, classes: int) -> float:
        """Return the quality of one run's predictions [E, ...], each example counted once."""
        scores = self.scorer(predictions[:, None], labels, classes, np.float64)
        return float(scores(np.ones((1, len(labels))))[0, 0])

    def chance(self, labels: Array, classes: int, precision: type[np.floating[Any]]) -> Scorer:
        """Return how the best constant answer scores under weights, as [R]; 0 unless overridden."""
        return lambda weights: np.zeros(len(weights))


def totals(weights: Weights) -> Floats:
    """Return the sum of each row's weights, [R, 1]."""
    return np.asarray(weights.sum(axis=1, keepdims=True, dtype=np.float64))


def sums(weights: Weights, statistic: Array) -> Floats:
    """Return the weighted sums [R, n] of a statistic [E, n] in the weights' precision."""
    return (weights @ statistic).astype(np.float64)


def ratio(above: Floats, squared_below: Floats) -> Floats:
    """Return above / sqrt(squared_below) within -1..1, and 0 where that is not defined."""
    good = squared_below > 1e-12
    return np.where(good, above / np.sqrt(np.where(good, squared_below, 1.0)), 0.0).clip(-1, 1)


class LinearModel(enum.Enum):
    """What a linear probe fits to the frozen model's output."""

    LOGISTIC = "logistic"  # one class of each row
    RIDGE = "ridge"  # one value of each row


@dataclass(frozen=True, slots=True)
class Unit:
    """What a logit of 0 and a step of 1 stand for on the scale of a task's labels."""

    mean: float = 0.0
    std: float = 1.0


class TaskType(ABC):
    """One kind of task: how its labels are read and checked, learnt, predicted and scored."""

    kind: ClassVar[TaskKind]
    # Those that can score it; the first is the headline one, and others of `usual` go beside it.
    metrics: ClassVar[tuple[Metric, ...]]
    usual: ClassVar[tuple[Metric, ...]]
    label_dtype: ClassVar[type[np.generic]]
    # Whether every label is one of the task's classes, so that rows can be counted by class.
    has_classes: ClassVar[bool]
    # Whether the strata are bins of values, too small to be rounded alike.
    strata_are_bins: ClassVar[bool] = False
    linear_model: ClassVar[LinearModel]

    def describe(self, task: TaskSpec) -> str:
        """Return what the task is, for a message: `a regression`."""
        return f"a task of kind {self.kind.value}"

    def allowed_metrics(self, task: TaskSpec) -> list[Metric]:
        """Return those that can score this task."""
        return list(self.metrics)

    @abstractmethod
    def label_reader(self, task: TaskSpec) -> Callable[[str, str], Any]:
        """Return what turns (a label's text, where it stands) into a label.

        The reader raises DataError, with the place, for a text that is no label of the task.
        """

    @abstractmethod
    def only_label(self, task: TaskSpec, label: Any) -> str:
        """Return what is wrong with a split whose rows all have this label."""

    @abstractmethod
    def strata(self, labels: Array) -> NDArray[np.int64]:
        """Return a small number for each label [E]: subsets keep the shares of each number."""

    def unit(self, labels: Array) -> Unit:
        """Return the unit in which labels [E, ...] to be trained on are best learnt."""
        return Unit()

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor, unit: Unit) -> Tensor:
        """Return the sum of the examples' losses, of logits [B, C] and labels [B, ...]."""

    @abstractmethod
    def predictions(self, logits: Tensor, unit: Unit) -> Tensor:
        """Return predictions [B, ...] on the scale of the labels, of logits [B, C]."""


def stacked(runs: Sequence[Array]) -> Array:
    """Return the predictions [E, M, ...] of M runs [E, ...] each."""
    return np.stack(runs, axis=1)
