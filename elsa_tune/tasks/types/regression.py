"""Regression: one value for each row. Labels and predictions are float32 values [E]."""

from __future__ import annotations

import math
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
    Scorer,
    TaskType,
    Unit,
    Weights,
    ratio,
    register,
    sums,
    totals,
)

if TYPE_CHECKING:
    from torch import Tensor

# Values are stratified in so many bins of equal size.
BINS = 10

# Rank correlation finds ranks by interpolation in so many bins of a run's predictions: a resample's
# correlation is then right to a fifth of the bootstrap's standard error, and that standard error to
# 2 % (tests), where exact ranks of every resample would take minutes.
_RANK_BINS = 16


class Regression(TaskType):
    """One number."""

    kind = TaskKind.REGRESSION
    metrics = (Metric.PEARSON, Metric.SPEARMAN)
    usual = (Metric.SPEARMAN, Metric.PEARSON)
    label_dtype = np.float32
    names_classes = False
    bins = BINS
    linear_model = LinearModel.RIDGE
    problem_type = "regression"

    def describe(self, task: TaskSpec) -> str:
        return "a regression"

    def label_reader(self, task: TaskSpec) -> Callable[[str, str], float]:
        def read(label: str, where: str) -> float:
            try:
                value = float(label)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise DataError(
                    f"{where}: label '{label}' of task '{task.name}' is not a finite number"
                )
            return value

        return read

    def label_text(self, task: TaskSpec, label: Any) -> float:
        return round(float(label), 6)

    def only_label(self, task: TaskSpec, label: Any) -> str:
        return f"value {label:g}; nothing can be learnt or scored"

    def strata(self, labels: Array) -> NDArray[np.int64]:
        """Return the bin of each value [E], in ten bins of equal size."""
        places = np.argsort(np.argsort(labels, kind="stable"))
        return places * BINS // max(1, len(labels))

    def unit(self, labels: Array) -> Unit:
        """Return the mean and standard deviation of labels [E]; 1 where all are equal."""
        values = labels.astype(np.float64)
        std = float(values.std()) if np.ptp(values) > 0 else 1.0
        return Unit(float(values.mean()), std)

    def loss(self, logits: Tensor, labels: Tensor, unit: Unit) -> Tensor:
        from torch.nn import functional as F

        targets = (labels.float() - unit.mean) / unit.std
        return F.mse_loss(logits.squeeze(-1), targets, reduction="sum")

    def predictions(self, logits: Tensor, unit: Unit) -> Tensor:
        return logits.squeeze(-1) * unit.std + unit.mean

    def answers(self, logits: Tensor, names: Sequence[str]) -> tuple[Sequence[str], Tensor]:
        """Return the name of the value, and the value."""
        return (names[0],) * len(logits), logits.squeeze(1)

    def cells(
        self, logits: NDArray[np.float32], names: Sequence[str], *, probabilities: bool
    ) -> dict[str, Array]:
        """Return `prediction`, the value."""
        return {"prediction": logits[:, 0]}


class Pearson(Kernel):
    """The correlation of answers and labels; 0 where either is constant."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        # Standardised first: single precision is then enough for the weighted sums.
        columns = _standardised(predictions.astype(np.float64)).astype(precision)  # [E, M]
        label = _standardised(labels.astype(np.float64)[:, None]).astype(precision)  # [E, 1]
        products = columns * label
        squares = columns**2
        label_squares = label**2

        def scores(weights: Weights) -> Floats:
            total = totals(weights)
            sx = sums(weights, columns) / total
            sy = sums(weights, label) / total
            sxy = sums(weights, products) / total
            sxx = sums(weights, squares) / total
            syy = sums(weights, label_squares) / total
            return ratio(sxy - sx * sy, (sxx - sx**2) * (syy - sy**2))

        return scores


def _standardised(values: Floats) -> Floats:
    """Return each column [E, n] in units of its standard deviation, from its mean."""
    # A constant's rounding noise must not be blown up into a prediction.
    is_constant = np.ptp(values, axis=0) == 0
    with np.errstate(over="ignore"):
        centred = values - values.mean(axis=0)
        std = centred.std(axis=0)
    # Squares of very large or very small values overflow or vanish.
    if not ((std > 1e-100) & (std < 1e100) | is_constant).all():
        values = values / np.maximum(np.abs(values).max(axis=0), 1e-300)
        centred = values - values.mean(axis=0)
        std = centred.std(axis=0)
    scale = np.where(is_constant, 1.0, np.maximum(std, 1e-300))
    return np.where(is_constant, 0.0, centred / scale)


class Spearman(Kernel):
    """Pearson's correlation of mid-ranks."""

    def score(self, predictions: Array, labels: Array, classes: int) -> float:
        """Return the quality of one run's predictions [E], by exact ranks."""
        return Pearson().score(ranks(predictions), ranks(labels), classes)

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        """Return how runs are scored: labels' ranks exact, predictions' interpolated.

        A prediction's rank, in 0..1, is interpolated within its bin between the weighted shares.
        """
        x = predictions.astype(np.float64)
        y = labels.astype(np.float64)
        order = np.argsort(y, kind="stable")
        x = x[order]
        y = y[order]
        starts = np.flatnonzero(np.diff(y, prepend=-np.inf) > 0)  # groups of equal labels
        group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(y)))
        # Side by side: one large matrix product instead of many narrow ones.
        parts = [_bins(column, precision) for column in x.T]
        member = np.concatenate([part[0] for part in parts], axis=1)
        between = np.concatenate([part[1] for part in parts], axis=1)
        tied = np.concatenate([part[2] for part in parts], axis=1)

        def scores(weights: Weights) -> Floats:
            weights = weights[:, order]
            total = totals(weights)
            of_group = np.add.reduceat(weights, starts, axis=1).astype(np.float64) / total
            middle = of_group.cumsum(axis=1) - of_group / 2 - 0.5  # mid-ranks about their mean
            ranked = weights * middle.astype(precision)[:, group]  # [R, E]
            spread = (1 - (of_group**3).sum(axis=1, keepdims=True)) / 12
            shape = (len(weights), -1, _RANK_BINS)
            share = (sums(weights, member) / total).reshape(shape)  # [R, M, bins]
            below = np.pad(share.cumsum(axis=2), ((0, 0), (0, 0), (1, 0)))
            beside = (sums(ranked, between) / total).reshape(below.shape)
            ties = (share**3 * tied.reshape(-1, _RANK_BINS)).sum(axis=2)
            return ratio((below * beside).sum(axis=2), (1 - ties) / 12 * spread)

        return scores


def ranks(values: Array) -> Floats:
    """Return ranks 1..E of values [E]; equal values share the mean of their ranks."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2.0)[where]


def _bins(values: Floats, precision: type[np.floating[Any]]) -> tuple[Array, Array, Floats]:
    """Divide one run's predictions [E] into bins of neighbouring values.

    Returns member [E, bins], 1 where the example is in the bin; between [E, bins + 1], how near it
    is to the bin's ends, which adds up to 1; tied [1, bins], what ties make of a bin's cubed share.
    """
    examples = len(values)
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2  # mid-rank of each distinct value
    # Equal values share a bin.
    of_value = np.minimum((middle / examples * _RANK_BINS).astype(int), _RANK_BINS - 1)
    size = np.bincount(of_value, counts, minlength=_RANK_BINS)
    before = np.cumsum(size) - size
    place = ((middle - before[of_value]) / size[of_value])[where]  # [E], 0..1
    bin_of = of_value[where]
    rows = np.arange(examples)
    member = np.zeros((examples, _RANK_BINS), dtype=precision)
    member[rows, bin_of] = 1
    between = np.zeros((examples, _RANK_BINS + 1), dtype=precision)
    between[rows, bin_of] = 1 - place
    between[rows, bin_of + 1] = place
    tied = np.bincount(of_value, counts.astype(float) ** 3, minlength=_RANK_BINS)
    return member, between, (tied / np.maximum(size, 1) ** 3)[None]


register(Regression(), {Metric.PEARSON: Pearson(), Metric.SPEARMAN: Spearman()})
