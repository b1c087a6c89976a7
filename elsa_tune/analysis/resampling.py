"""Quality on resampled evaluation examples: the example half of an answer's uncertainty.

It must not know seeds' spread, targets or files. Poisson bootstrap (Hanley and MacGibbon 2006,
"Creating non-parametric bootstrap samples using Poisson frequencies"; Chamandy et al. 2012): each
example counts Poisson(1) times, the same in every run, so that depths are compared on the same
examples. Letters in shape comments: R resamples, E examples, M runs, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import ResultsError
from elsa_tune.specs.result import Predictions

RESAMPLES = 10_000

# Resamples at a time: [500, 5463] weights are 11 MB, and products of them run at full speed.
_CHUNK = 500

# Rank correlation finds ranks by interpolation in so many bins of a run's predictions: a resample's
# correlation is then right to a fifth of the bootstrap's standard error, and that standard error to
# 2 % (tests), where exact ranks of every resample would take minutes.
_BINS = 16
_TOGETHER = 16  # runs in one product

Floats = NDArray[np.float64]
Weights = NDArray[np.float32]
_Scores = Callable[[Weights], Floats]  # weights [R, E] to qualities [R, M]


@dataclass(frozen=True, slots=True)
class Resampled:
    """Qualities on resampled examples.

    runs: [R, M], each run's quality; chance: [R], the best constant answer's.
    """

    runs: Floats
    chance: Floats


def resample(
    runs: Sequence[Predictions], metric: str, resamples: int = RESAMPLES, seed: int = 0
) -> Resampled:
    """Score all runs on the same resampled examples.

    runs: one or more, with the same labels. metric: a name as in `specs.task.Metric`. Raises
    ResultsError where the runs were judged by different examples, or for an unknown metric.
    """
    labels = runs[0].labels
    for run in runs:
        if run.labels.shape != labels.shape or not np.array_equal(run.labels, labels):
            raise ResultsError(
                "the runs were judged by different evaluation examples; keep their searches apart "
                "with --search"
            )
    predictions = np.stack([run.predictions for run in runs], axis=1)  # [E, M]
    scores, chance = _scorers(metric, predictions, labels, runs[0].classes)
    found = Resampled(np.empty((resamples, len(runs))), np.empty(resamples))
    for start, weights in _poisson_weights(resamples, len(labels), seed):
        part = slice(start, start + len(weights))
        found.runs[part] = scores(weights)
        found.chance[part] = chance(weights)[:, 0]
    return found


def score(run: Predictions, metric: str) -> float:
    """A run's quality on its own examples, each counted once."""
    scores, _ = _scorers(metric, run.predictions[:, None], run.labels, run.classes)
    return float(scores(np.ones((1, len(run.labels)), dtype=np.float32))[0, 0])


def _poisson_weights(resamples: int, examples: int, seed: int) -> Iterator[tuple[int, Weights]]:
    """Chunks of weights [<= _CHUNK, E] with the number of the first; never all zero."""
    generator = np.random.default_rng(seed)
    # A table over 16 random bits is twenty times faster than numpy's Poisson, and exact to 1/65536.
    density = [math.exp(-1) / math.factorial(count) for count in range(9)]
    counts = np.searchsorted(np.cumsum(density) * 2**16, np.arange(2**16) + 0.5)
    table = counts.astype(np.float32)
    for start in range(0, resamples, _CHUNK):
        rows = min(_CHUNK, resamples - start)
        bits = np.frombuffer(generator.bytes(2 * rows * examples), dtype=np.uint16)
        weights = table[bits].reshape(rows, examples)
        empty = weights.sum(axis=1) == 0
        weights[empty, 0] = 1
        yield start, weights


def _scorers(
    metric: str, predictions: NDArray[np.generic], labels: NDArray[np.generic], classes: int
) -> tuple[_Scores, _Scores]:
    """How runs [E, M] and the best constant answer are scored under weights."""
    if metric in ("spearman", "pearson"):
        x, y = predictions.astype(np.float64), labels.astype(np.float64)
        scores = _spearman(x, y) if metric == "spearman" else _pearson(x, y)
        return scores, _zero
    if metric not in ("accuracy", "f1", "f1_macro", "matthews"):
        raise ResultsError(f"no resampling is known for the metric '{metric}'")
    scores = _of_classes(metric, predictions, labels, classes)
    if metric == "matthews":
        return scores, _zero
    constants = np.broadcast_to(np.arange(classes), (len(labels), classes))
    of_constants = _of_classes(metric, constants, labels, classes)
    return scores, lambda weights: of_constants(weights).max(axis=1, keepdims=True)


def _zero(weights: Weights) -> Floats:
    return np.zeros((len(weights), 1))


# ---- classes -------------------------------------------------------------------------------------


def _of_classes(
    metric: str, predictions: NDArray[np.generic], labels: NDArray[np.generic], classes: int
) -> _Scores:
    if metric == "accuracy":
        right = (predictions == labels[:, None]).astype(np.float32)  # [E, M]
        return lambda weights: _shares(weights, right)
    is_class = [labels == c for c in range(classes)]
    given = [(predictions == c).astype(np.float32) for c in range(classes)]
    hits = [g * own[:, None].astype(np.float32) for g, own in zip(given, is_class, strict=True)]
    own = np.stack(is_class, axis=1).astype(np.float32)  # [E, C]

    def scores(weights: Weights) -> Floats:
        actual = (weights @ own).T.astype(np.float64)[:, :, None]  # [C, R, 1]
        hit = np.stack([weights @ h for h in hits]).astype(np.float64)  # [C, R, M]
        predicted = np.stack([weights @ g for g in given]).astype(np.float64)  # [C, R, M]
        if metric == "matthews":
            return _matthews(hit, actual, predicted)
        involved = actual + predicted
        f1 = 2 * hit / np.maximum(involved, 1)
        if metric == "f1":
            return np.asarray(f1[1])
        return np.asarray((f1 * (involved > 0)).sum(axis=0) / (involved > 0).sum(axis=0))

    return scores


def _shares(weights: Weights, right: Weights) -> Floats:
    return np.asarray(_sums(weights, right) / weights.sum(axis=1, dtype=np.float64)[:, None])


def _matthews(hit: Floats, actual: Floats, predicted: Floats) -> Floats:
    """Gorodkin 2004, R_K, from weighted counts [C, R, M]; 0 where a side is constant."""
    total = actual.sum(axis=0)  # [R, 1]
    spread = (total**2 - (actual**2).sum(axis=0)) * (total**2 - (predicted**2).sum(axis=0))
    above = hit.sum(axis=0) * total - (actual * predicted).sum(axis=0)
    good = spread > 0
    return np.asarray(np.where(good, above / np.sqrt(np.where(good, spread, 1.0)), 0.0))


# ---- values --------------------------------------------------------------------------------------


def _pearson(x: Floats, y: Floats) -> _Scores:
    # Standardised first: single precision is then enough for the weighted sums.
    columns, label = _standardised(x), _standardised(y[:, None])
    products, squares = columns * label, columns**2

    def scores(weights: Weights) -> Floats:
        total = weights.sum(axis=1, dtype=np.float64)[:, None]
        sx, sy = (_sums(weights, part) / total for part in (columns, label))
        sxy, sxx, syy = (_sums(weights, part) / total for part in (products, squares, label**2))
        return _ratio(sxy - sx * sy, (sxx - sx**2) * (syy - sy**2))

    return scores


def _standardised(x: Floats) -> Weights:
    centred = x - x.mean(axis=0)
    # A constant's rounding noise must not be blown up into a prediction.
    is_constant = np.ptp(x, axis=0) == 0
    scale = np.where(is_constant, 1.0, np.maximum(centred.std(axis=0), 1e-300))
    return np.where(is_constant, 0.0, centred / scale).astype(np.float32)


def _sums(weights: Weights, part: Weights) -> Floats:
    return (weights @ part).astype(np.float64)


def _ratio(above: Floats, squared_below: Floats) -> Floats:
    good = squared_below > 1e-12
    return np.where(good, above / np.sqrt(np.where(good, squared_below, 1.0)), 0.0).clip(-1, 1)


def _spearman(x: Floats, y: Floats) -> _Scores:
    """Pearson's correlation of mid-ranks; labels' ranks exact, predictions' interpolated.

    A prediction's rank, scaled to 0..1, lies between the resampled shares below its bin's ends, at
    its place among the bin's original examples.
    """
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    starts = np.flatnonzero(np.diff(y, prepend=-np.inf) > 0)  # groups of equal labels
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(y)))
    bins = [_bins(column) for column in x.T]
    # Side by side: one large matrix product instead of many narrow ones.
    blocks = []
    for start in range(0, len(bins), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        member = np.concatenate([one.member for one in bins[part]], axis=1)
        between = np.concatenate([one.between for one in bins[part]], axis=1)
        blocks.append((part, member, between))
    tied = np.stack([one.tied for one in bins])  # [M, bins]

    def scores(weights: Weights) -> Floats:
        weights = weights[:, order]
        rows = len(weights)
        total = weights.sum(axis=1, dtype=np.float64)[:, None]  # [R, 1]
        of_group = np.add.reduceat(weights, starts, axis=1).astype(np.float64) / total
        middle = of_group.cumsum(axis=1) - of_group / 2 - 0.5  # mid-ranks about their mean
        ranked = weights * middle.astype(np.float32)[:, group]  # [R, E]
        spread = (1 - (of_group**3).sum(axis=1, keepdims=True)) / 12
        found = np.empty((rows, len(bins)))
        for part, member, between in blocks:
            share = (_sums(weights, member) / total).reshape(rows, -1, _BINS)  # [R, M, bins]
            below = np.concatenate([np.zeros((*share.shape[:2], 1)), share.cumsum(axis=2)], axis=2)
            beside = (_sums(ranked, between) / total).reshape(below.shape)
            ties = (share**3 * tied[part]).sum(axis=2)
            found[:, part] = _ratio((below * beside).sum(axis=2), (1 - ties) / 12 * spread)
        return found

    return scores


@dataclass(frozen=True, slots=True)
class _Bins:
    """One run's predictions in bins of neighbouring values.

    member: [E, bins], 1 where the example is in the bin. between: [E, bins + 1], how near it is to
    the bin's lower and upper end, two numbers that add up to 1. tied: [bins], what ties make of a
    bin's cubed share.
    """

    member: Weights
    between: Weights
    tied: Floats


def _bins(x: Floats) -> _Bins:
    examples = len(x)
    _, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2  # mid-rank of each distinct value
    # Equal values share a bin.
    of_value = np.minimum((middle / examples * _BINS).astype(int), _BINS - 1)
    size = np.bincount(of_value, counts, minlength=_BINS)
    before = np.cumsum(size) - size
    place = ((middle - before[of_value]) / size[of_value])[where]  # [E], 0..1
    bin_of = of_value[where]
    rows = np.arange(examples)
    member = np.zeros((examples, _BINS), dtype=np.float32)
    member[rows, bin_of] = 1
    between = np.zeros((examples, _BINS + 1), dtype=np.float32)
    between[rows, bin_of] = 1 - place
    between[rows, bin_of + 1] = place
    tied = np.bincount(of_value, counts.astype(float) ** 3, minlength=_BINS)
    return _Bins(member, between, tied / np.maximum(size, 1) ** 3)
