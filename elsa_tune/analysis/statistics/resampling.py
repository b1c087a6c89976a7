"""Quality on resampled evaluation examples: the example half of an answer's uncertainty.

Poisson bootstrap (Hanley and MacGibbon 2006, "Creating non-parametric bootstrap samples using
Poisson frequencies"; Chamandy et al. 2012): each example counts Poisson(1) times, the same in every
run, so that depths are compared on the same examples. Letters in shape comments: R resamples,
E examples, M runs, C classes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from elsa_tune.errors import ResultsError
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.result_row import Predictions

RESAMPLES = 10_000

# Resamples at a time: [500, 5463] weights are 11 MB, and products of them run at full speed.
_CHUNK = 500

# Rank correlation finds ranks by interpolation in so many bins of a run's predictions: a resample's
# correlation is then right to a fifth of the bootstrap's standard error, and that standard error to
# 2 % (tests), where exact ranks of every resample would take minutes.
_BINS = 16

# Before the number of a stream of random numbers: apart from those for seeds.
_EXAMPLES = 1

Floats = NDArray[np.float64]
Weights = NDArray[np.float32]
_Scores = Callable[[Weights], Floats]  # weights [R, E] to qualities [R, M]


@dataclass(frozen=True, slots=True)
class Resampled:
    """Qualities on resampled examples.

    runs: [R, M], each run's quality; chance: [R], the best constant answer's; examples: E.
    """

    runs: Floats
    chance: Floats
    examples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleDraws:
    """How each depth's quality, and chance, move with the examples: differences from their values.

    depths: [R] each; chance: [R]. are_counted: from the number of examples alone. flips: of a depth
    with two runs or more, the variance of one run's quality that comes from what its runs answer
    differently on single examples. It is part of the spread between seeds and of `depths`, whose
    variance holds a share 1 / S of it.
    """

    depths: Mapping[Candidate, Floats]
    chance: Floats
    are_counted: bool = False
    flips: Mapping[Candidate, float] = field(default_factory=dict)

    @classmethod
    def of(cls, resampled: Resampled, columns: Mapping[Candidate, Sequence[int | None]]) -> Self:
        """From resampled runs. columns: for each depth its runs' columns; None: the run diverged
        and counts as chance. A run without a mistake scores 1 on every resample, and yet may make
        some on fresh examples: its error rate moves like Exponential(1) / E, whose upper 95 % bound
        is the rule of three (3 / E; Hanley and Lippman-Hand 1983, J. Am. Med. Assoc. 249).
        """
        depths, flips = {}, {}
        for stream, (depth, numbers) in enumerate(columns.items()):
            generator = np.random.default_rng([_EXAMPLES, stream])
            errors = generator.exponential(size=len(resampled.chance))
            # One run at a time: thousands of them would fill the memory.
            total, variances = np.zeros_like(errors), []
            for number in numbers:
                draws = resampled.chance if number is None else resampled.runs[:, number]
                is_flawless = bool((draws == 1).all())
                moves = -errors / resampled.examples if is_flawless else draws - draws.mean()
                total += moves
                variances.append(moves.var())
            depths[depth] = _kept(total / len(numbers))
            if len(numbers) > 1:
                # Var(mean) = Cov + (Var - Cov) / S for runs with a common covariance.
                apart = float(np.mean(variances) - depths[depth].var())
                flips[depth] = max(0.0, apart * len(numbers) / (len(numbers) - 1))
        chance = _kept(resampled.chance - resampled.chance.mean())
        return cls(depths=depths, chance=chance, flips=flips)

    @classmethod
    def counted(cls, accuracies: Mapping[Candidate, float], examples: int) -> Self:
        """From accuracies on so many examples, of which it is not known who got which right.

        Each depth moves on its own by the Beta distribution of its error rate (from a uniform
        prior). Depths that are right on the same examples move together, so that this makes their
        contrasts too wide rather than too narrow. Chance, which is known, does not move.
        """
        depths = {}
        for stream, (depth, accuracy) in enumerate(accuracies.items()):
            right = accuracy * examples
            generator = np.random.default_rng([_EXAMPLES, stream])
            depths[depth] = generator.beta(right + 1, examples - right + 1, RESAMPLES) - accuracy
        return cls(depths=depths, chance=np.zeros(RESAMPLES), are_counted=True)


def resample(runs: Sequence[Predictions], metric: str, resamples: int = RESAMPLES) -> Resampled:
    """Score all runs on the same resampled examples.

    runs: one or more, with the same labels. metric: a name as in `specs.task.Metric`. Raises
    ResultsError where the runs were judged by different examples, or for an unknown metric.
    """
    labels = runs[0].labels
    for run in runs:
        if run.labels.shape != labels.shape or not np.array_equal(run.labels, labels):
            raise ResultsError("the runs were judged by different evaluation examples")
    predictions = np.stack([run.predictions for run in runs], axis=1)  # [E, M]
    scores = _scores(metric, predictions, labels, runs[0].classes)
    chance = _chance(metric, labels, runs[0].classes)
    of_runs, of_chance = np.empty((resamples, len(runs))), np.empty(resamples)
    # Beside trials that train, BLAS threads wait for one another longer than they compute.
    with threadpool_limits(1, "blas"):
        for number, weights in enumerate(_poisson_weights(resamples, len(labels))):
            rows = slice(number * _CHUNK, (number + 1) * _CHUNK)
            of_runs[rows], of_chance[rows] = scores(weights), chance(weights)
    return Resampled(of_runs, of_chance, len(labels))


def score(run: Predictions, metric: str) -> float:
    """A run's quality on its own examples, each counted once."""
    scores = _scores(metric, run.predictions[:, None], run.labels, run.classes)
    return float(scores(np.ones((1, len(run.labels)), dtype=np.float32))[0, 0])


def _poisson_weights(resamples: int, examples: int) -> Iterator[Weights]:
    """Chunks of weights [<= _CHUNK, E], never all zero."""
    generator = np.random.default_rng(0)
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
        yield weights


def _scores(
    metric: str, predictions: NDArray[np.generic], labels: NDArray[np.generic], classes: int
) -> _Scores:
    """How runs [E, M] are scored under weights."""
    if metric in ("spearman", "pearson"):
        x, y = predictions.astype(np.float64), labels.astype(np.float64)
        return _spearman(x, y) if metric == "spearman" else _pearson(x, y)
    if metric == "accuracy":
        right = (predictions == labels[:, None]).astype(np.float32)  # [E, M]
        return lambda weights: _sums(weights, right) / _total(weights)
    if metric in ("f1", "f1_macro", "matthews"):
        return _of_classes(metric, predictions, labels, classes)
    raise ResultsError(f"no resampling is known for the metric '{metric}'")


def _chance(metric: str, labels: NDArray[np.generic], classes: int) -> Callable[[Weights], Floats]:
    """The best constant answer's quality [R] under weights."""
    if metric not in ("accuracy", "f1", "f1_macro"):
        return lambda weights: np.zeros(len(weights))
    own = (labels[:, None] == np.arange(classes)).astype(np.float32)  # [E, C]

    def best(weights: Weights) -> Floats:
        actual = _sums(weights, own)  # [R, C]
        total = actual.sum(axis=1, keepdims=True)
        f1 = 2 * actual / (actual + total)  # of a class that is the answer to everything
        if metric == "f1":
            return np.asarray(f1[:, 1])
        # The mean is over the classes that occur, as a label or as the answer.
        occurring = (actual > 0).sum(axis=1, keepdims=True) + (actual == 0)
        quality = actual / total if metric == "accuracy" else f1 / occurring
        return np.asarray(quality.max(axis=1))

    return best


def _kept(moves: Floats) -> Floats:
    """In single precision, as they are kept: the same answer the first time and every time."""
    return np.asarray(moves.astype(np.float32), dtype=np.float64)


def _of_classes(
    metric: str, predictions: NDArray[np.generic], labels: NDArray[np.generic], classes: int
) -> _Scores:
    """F1 and Matthews from weighted counts, class by class: memory does not grow with C."""
    runs = predictions.shape[1]

    def scores(weights: Weights) -> Floats:
        total = _total(weights)
        shape = (len(weights), runs)
        f1, involved, hits, products, squares = (np.zeros(shape) for _ in range(5))
        own_squares = np.zeros_like(total)
        for c in [1] if metric == "f1" else range(classes):
            own = (labels == c).astype(np.float32)[:, None]
            given = (predictions == c).astype(np.float32)  # [E, M]
            actual, predicted = _sums(weights, own), _sums(weights, given)
            hit = _sums(weights, given * own)
            f1 += 2 * hit / np.maximum(actual + predicted, 1)
            involved += actual + predicted > 0
            hits += hit
            products += actual * predicted
            squares += predicted**2
            own_squares += actual**2
        if metric == "matthews":
            # Gorodkin 2004, R_K; 0 where a side is constant.
            spread = (total**2 - own_squares) * (total**2 - squares)
            return _ratio(hits * total - products, spread)
        return f1 if metric == "f1" else f1 / involved

    return scores


def _pearson(x: Floats, y: Floats) -> _Scores:
    # Standardised first: single precision is then enough for the weighted sums.
    columns, label = _standardised(x), _standardised(y[:, None])
    products, squares = columns * label, columns**2

    def scores(weights: Weights) -> Floats:
        total = _total(weights)
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


def _total(weights: Weights) -> Floats:
    return np.asarray(weights.sum(axis=1, keepdims=True, dtype=np.float64))  # [R, 1]


def _sums(weights: Weights, part: Weights) -> Floats:
    return (weights @ part).astype(np.float64)


def _ratio(above: Floats, squared_below: Floats) -> Floats:
    good = squared_below > 1e-12
    return np.where(good, above / np.sqrt(np.where(good, squared_below, 1.0)), 0.0).clip(-1, 1)


def _spearman(x: Floats, y: Floats) -> _Scores:
    """Pearson's correlation of mid-ranks; labels' ranks exact, predictions' interpolated.

    A prediction's rank, in 0..1, is interpolated within its bin between the resampled shares.
    """
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    starts = np.flatnonzero(np.diff(y, prepend=-np.inf) > 0)  # groups of equal labels
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(y)))
    # Side by side: one large matrix product instead of many narrow ones.
    member, between, tied = (
        np.concatenate(parts, axis=1) for parts in zip(*map(_bins, x.T), strict=True)
    )

    def scores(weights: Weights) -> Floats:
        weights = weights[:, order]
        total = _total(weights)
        of_group = np.add.reduceat(weights, starts, axis=1).astype(np.float64) / total
        middle = of_group.cumsum(axis=1) - of_group / 2 - 0.5  # mid-ranks about their mean
        ranked = weights * middle.astype(np.float32)[:, group]  # [R, E]
        spread = (1 - (of_group**3).sum(axis=1, keepdims=True)) / 12
        share = (_sums(weights, member) / total).reshape(len(weights), -1, _BINS)  # [R, M, bins]
        below = np.pad(share.cumsum(axis=2), ((0, 0), (0, 0), (1, 0)))
        beside = (_sums(ranked, between) / total).reshape(below.shape)
        ties = (share**3 * tied.reshape(-1, _BINS)).sum(axis=2)
        return _ratio((below * beside).sum(axis=2), (1 - ties) / 12 * spread)

    return scores


def _bins(x: Floats) -> tuple[Weights, Weights, Floats]:
    """One run's predictions in bins of neighbouring values: member, between, tied.

    member: [E, bins], 1 where the example is in the bin. between: [E, bins + 1], how near it is to
    the bin's ends; adds up to 1. tied: [1, bins], what ties make of a bin's cubed share.
    """
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
    return member, between, (tied / np.maximum(size, 1) ** 3)[None]
