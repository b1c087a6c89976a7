"""Regression: one value for each row. Labels and predictions are float32 values [E]."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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
    Precision,
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

_LARGEST = float(np.finfo(np.float32).max)

# Rank correlation finds ranks by interpolation in so many bins of a run's predictions: a resample's
# correlation is then right to a fifth of the bootstrap's standard error, and that standard error to
# 2 % (tests), where exact ranks of every resample would take minutes. Of a correlation close to 1
# it is larger: it never falls below what a correlation of sqrt(1 - _RANK_NOISE) has.
_RANK_BINS = 16
_RANK_NOISE = 0.055

# sum(z^6) / sum(z^4) of values z from their mean, in units of their standard deviation: of a normal
# distribution, and of one where all values are as frequent, as of ranks without ties.
_TELLING_OF_NORMAL = 5.0
_TELLING_OF_UNIFORM = 15 / 7


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
            if abs(value) <= _LARGEST:
                return value
            remedy = ""
            if "," in label:
                remedy = "; write its comma as a point"
            elif math.isfinite(value):
                remedy = " of 32 bits; divide all labels by a power of ten"
            raise DataError(
                f"{where}: label '{label}' of task '{task.name}' is not a finite number{remedy}"
            )

        return read

    def label_text(self, task: TaskSpec, label: Any) -> float:
        return round(float(label), 6)

    def only_label(self, task: TaskSpec, label: Any) -> str:
        return f"value {label:g}; nothing can be learnt or scored"

    def strata(self, labels: Array) -> NDArray[np.int64]:
        """Return the bin of each value [E], in ten bins of equal size."""
        order = np.argsort(labels, kind="stable")
        places = np.argsort(order)
        examples = max(1, len(labels))
        return places * BINS // examples

    def unit(self, labels: Array) -> Unit:
        """Return the mean and standard deviation of labels [E]; 1 where all are equal."""
        values = labels.astype(np.float64)
        mean = float(values.mean())
        if np.ptp(values) > 0:
            return Unit(mean, float(values.std()))
        return Unit(mean, std=1.0)

    def loss(self, logits: Tensor, labels: Tensor, unit: Unit) -> Tensor:
        from torch.nn import functional as F

        values = logits.squeeze(-1)
        targets = (labels.float() - unit.mean) / unit.std
        return F.mse_loss(values, targets, reduction="sum")

    def predictions(self, logits: Tensor, unit: Unit) -> Tensor:
        values = logits.squeeze(-1)
        return values * unit.std + unit.mean

    def answers(self, logits: Tensor, names: Sequence[str]) -> tuple[Sequence[str], Tensor]:
        """Return the name of the value, and the value."""
        [name] = names
        labels = [name] * len(logits)
        return labels, logits.squeeze(1)

    def cells(
        self,
        logits: Logits,
        names: Sequence[str],
        *,
        probabilities: bool,
    ) -> dict[str, Array]:
        """Return `prediction`, the value."""
        return {"prediction": logits[:, 0]}


class Pearson(Kernel):
    """The correlation of answers and labels; 0 where either is constant."""

    def spread_at(self, quality: float) -> float:
        """Return 1 - r^2: so a correlation's standard error goes (Fisher 1915, Biometrika 10)."""
        return 1 - quality**2

    def cost_of_far_labels(self, labels: Array, units: float) -> float:
        """Return what labels cost whose distribution has heavier tails than a normal one."""
        return _cost_of_far(labels, units, _TELLING_OF_NORMAL)

    def scorer(
        self,
        predictions: Array,
        labels: Array,
        classes: int,
        precision: Precision,
    ) -> Scorer:
        # Standardised first: single precision is then enough for the weighted sums.
        columns = _standardised(predictions).astype(precision)  # [E, M]
        label = _standardised(labels[:, None]).astype(precision)  # [E, 1]
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
            covariance = sxy - sx * sy
            variance = sxx - sx**2
            label_variance = syy - sy**2
            return ratio(covariance, variance * label_variance)

        return scores


def _cost_of_far(values: Array, units: float, usual: float) -> float:
    """Return how far a perfect correlation falls where one far value [E] is not told apart.

    An example brings its squared distance w from the mean to the variance. Those that bring much
    are few: which of them a run gets wrong, the examples hardly show. They bring sum(w^3) /
    sum(w^2), of which `usual` needs no allowance (bench/far_labels.py).
    """
    brought = _standardised(values[:, None]) ** 2
    squares = float((brought**2).sum())
    if squares == 0:  # all are alike
        return 0.0
    telling = float((brought**3).sum()) / squares
    beyond_usual = max(0.0, telling - usual)
    share_lost = min(1.0, beyond_usual / units)
    return 1 - math.sqrt(1 - share_lost)


def _standardised(values: Array) -> Floats:
    """Return each column [E, n] in units of its standard deviation, from its mean."""
    values = values.astype(np.float64)
    # A constant's rounding noise must not be blown up into a prediction.
    is_constant = np.ptp(values, axis=0) == 0
    with np.errstate(over="ignore"):
        centred = values - values.mean(axis=0)
        std = centred.std(axis=0)
    # Squares of very large or very small values overflow or vanish.
    is_moderate = (std > 1e-100) & (std < 1e100)
    if not (is_moderate | is_constant).all():
        largest = np.abs(values).max(axis=0)
        values = values / np.maximum(largest, 1e-300)
        centred = values - values.mean(axis=0)
        std = centred.std(axis=0)
    floored_std = np.maximum(std, 1e-300)
    scale = np.where(is_constant, 1.0, floored_std)
    return np.where(is_constant, 0.0, centred / scale)


class Spearman(Kernel):
    """Pearson's correlation of mid-ranks."""

    def score(self, predictions: Array, labels: Array, classes: int) -> float:
        """Return the quality of one run's predictions [E], by exact ranks."""
        predicted_ranks = ranks(predictions)
        label_ranks = ranks(labels)
        return Pearson().score(predicted_ranks, label_ranks, classes)

    def spread_at(self, quality: float) -> float:
        """Return that of Pearson's, which it is on ranks, with the noise of interpolated ranks."""
        return math.hypot(Pearson().spread_at(quality), _RANK_NOISE)

    def cost_of_far_labels(self, labels: Array, units: float) -> float:
        """Return what ranks cost that ties set apart from the others."""
        return _cost_of_far(ranks(labels), units, _TELLING_OF_UNIFORM)

    def scorer(
        self,
        predictions: Array,
        labels: Array,
        classes: int,
        precision: Precision,
    ) -> Scorer:
        """Return how runs are scored: labels' ranks exact, predictions' interpolated.

        A prediction's rank, in 0..1, is interpolated within its bin between the weighted shares.
        """
        values = labels.astype(np.float64)
        order = np.argsort(values, kind="stable")
        values = values[order]
        runs = predictions.astype(np.float64)[order]  # [E, M]
        steps = np.diff(values, prepend=-np.inf)
        starts = np.flatnonzero(steps > 0)  # groups of equal labels
        sizes = np.diff(starts, append=len(values))
        group = np.repeat(np.arange(len(starts)), sizes)
        # Side by side: one large matrix product instead of many narrow ones.
        bins = [_bins(run, precision) for run in runs.T]
        member = np.concatenate([run_bins.member for run_bins in bins], axis=1)
        between = np.concatenate([run_bins.between for run_bins in bins], axis=1)
        tied = np.stack([run_bins.tied for run_bins in bins])  # [M, bins]

        def scores(weights: Weights) -> Floats:
            weights = weights[:, order]
            total = totals(weights)
            group_weights = np.add.reduceat(weights, starts, axis=1)
            of_group = group_weights.astype(np.float64) / total
            middle = _mid_ranks(of_group).astype(precision)
            ranked = weights * middle[:, group]  # [R, E]
            shape = (len(weights), len(bins), _RANK_BINS)
            shares = sums(weights, member) / total
            share = shares.reshape(shape)  # [R, M, bins]
            below = np.zeros((*shape[:2], _RANK_BINS + 1))
            below[:, :, 1:] = share.cumsum(axis=2)
            beside = sums(ranked, between) / total
            products = below * beside.reshape(below.shape)
            covariance = products.sum(axis=2)
            cubes = share**3 * tied
            variance = (1 - cubes.sum(axis=2)) / 12
            label_cubes = of_group**3
            label_variance = (1 - label_cubes.sum(axis=1, keepdims=True)) / 12
            return ratio(covariance, variance * label_variance)

        return scores


def _mid_ranks(shares: Floats) -> Floats:
    """Return the mid-ranks [R, n], about their mean, of groups with these shares [R, n]."""
    ends: Floats = shares.cumsum(axis=1)
    middles = ends - shares / 2
    return middles - 0.5


def ranks(values: Array) -> Floats:
    """Return ranks 1..E of values [E]; equal values share the mean of their ranks."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    first = last - counts + 1
    middle: Floats = (first + last) / 2.0
    return middle[where]


class _Bins(NamedTuple):
    """One run's predictions in bins of neighbouring values."""

    member: Array  # [E, bins], 1 where the example is in the bin
    between: Array  # [E, bins + 1], how near it is to the bin's ends, which adds up to 1
    tied: Floats  # [bins], what ties make of a bin's cubed share


def _bins(values: Floats, precision: Precision) -> _Bins:
    """Divide one run's predictions [E] into bins of neighbouring values."""
    examples = len(values)
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle = ends - counts / 2  # mid-rank of each distinct value
    # Equal values share a bin; a mid-rank lies below E, so that the last one ends there.
    scaled = middle / examples * _RANK_BINS
    of_value = scaled.astype(int)
    size = np.bincount(of_value, counts, minlength=_RANK_BINS)
    before = np.cumsum(size) - size
    within_bin = middle - before[of_value]
    place_of_value = within_bin / size[of_value]  # 0..1
    place = place_of_value[where]  # [E]
    bin_of = of_value[where]
    rows = np.arange(examples)
    member = np.zeros((examples, _RANK_BINS), dtype=precision)
    member[rows, bin_of] = 1
    between = np.zeros((examples, _RANK_BINS + 1), dtype=precision)
    between[rows, bin_of] = 1 - place
    between[rows, bin_of + 1] = place
    cubes = counts.astype(float) ** 3
    cubed = np.bincount(of_value, cubes, minlength=_RANK_BINS)
    tied = cubed / np.maximum(size, 1) ** 3
    return _Bins(member, between, tied)


register(
    Regression(),
    {
        Metric.PEARSON: Pearson(),
        Metric.SPEARMAN: Spearman(),
    },
)
