"""Quality on resampled evaluation examples: the example half of an answer's uncertainty.

Poisson bootstrap (Hanley and MacGibbon 2006, "Creating non-parametric bootstrap samples using
Poisson frequencies"; Chamandy et al. 2012): each example counts Poisson(1) times, the same in every
run, so that depths are compared on the same examples. Letters in shape comments: R resamples,
E examples, M runs, C classes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from elsa_tune.errors import ResultsError
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.result_row import Predictions
from elsa_tune.tasks.types.base import stacked
from elsa_tune.tasks.types.registry import kernel_of

RESAMPLES = 10_000

# Resamples at a time: [500, 5463] weights are 11 MB, and products of them run at full speed.
_CHUNK = 500

# Before the number of a stream of random numbers: apart from those for seeds.
_EXAMPLES = 1

Floats = NDArray[np.float64]
Weights = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Resampled:
    """Qualities on resampled examples."""

    runs: Floats  # [R, M], each run's quality
    chance: Floats  # [R], the best constant answer's
    examples: int  # E


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleDraws:
    """How each depth's quality, and chance, move from their values with the examples."""

    candidates: Mapping[Candidate, Floats]  # [R] each
    chance: Floats  # [R]
    are_counted: bool = False  # from the number of examples alone
    # Of a depth with two runs or more the variance of one run's quality that comes from what its
    # runs answer differently on single examples. It is part of the spread between seeds and of
    # `depths`, whose variance holds a share 1 / S of it.
    flips: Mapping[Candidate, float] = field(default_factory=dict)

    @classmethod
    def of(cls, resampled: Resampled, columns: Mapping[Candidate, Sequence[int | None]]) -> Self:
        """From resampled runs. columns: for each depth its runs' columns.

        None: the run diverged and counts as chance. A run without a mistake scores 1 on
        every resample, and yet may make some on fresh examples: its error rate moves like
        Exponential(1) / E, whose upper 95 % bound is the rule of three (3 / E; Hanley and
        Lippman-Hand 1983, J. Am. Med. Assoc. 249).
        """
        candidates = {}
        flips = {}
        for stream, (candidate, numbers) in enumerate(columns.items()):
            generator = np.random.default_rng([_EXAMPLES, stream])
            errors = generator.exponential(size=len(resampled.chance))
            # One run at a time: thousands of them would fill the memory.
            total = np.zeros_like(errors)
            variances = []
            for number in numbers:
                draws = resampled.chance if number is None else resampled.runs[:, number]
                is_flawless = bool((draws == 1).all())
                moves = -errors / resampled.examples if is_flawless else draws - draws.mean()
                total += moves
                variances.append(moves.var())
            candidates[candidate] = _kept(total / len(numbers))
            if len(numbers) > 1:
                # Var(mean) = Cov + (Var - Cov) / S for runs with a common covariance.
                apart = float(np.mean(variances) - candidates[candidate].var())
                flips[candidate] = max(0.0, apart * len(numbers) / (len(numbers) - 1))
        chance = _kept(resampled.chance - resampled.chance.mean())
        return cls(candidates=candidates, chance=chance, flips=flips)

    @classmethod
    def counted(cls, accuracies: Mapping[Candidate, float], examples: int) -> Self:
        """Make them of accuracies on E examples, of which it is not known who got which right.

        Each depth moves on its own by the Beta distribution of its error rate (from a uniform
        prior). Depths that are right on the same examples move together, so that this makes their
        contrasts too wide rather than too narrow. Chance, which is known, does not move.
        """
        candidates = {}
        for stream, (candidate, accuracy) in enumerate(accuracies.items()):
            right = accuracy * examples
            generator = np.random.default_rng([_EXAMPLES, stream])
            candidates[candidate] = (
                generator.beta(right + 1, examples - right + 1, RESAMPLES) - accuracy
            )
        return cls(candidates=candidates, chance=np.zeros(RESAMPLES), are_counted=True)


def resample(runs: Sequence[Predictions], metric: str, resamples: int = RESAMPLES) -> Resampled:
    """Score all runs on the same resampled examples.

    runs: one or more, with the same labels. metric: a name as in `specs.task.Metric`. Raises
    ResultsError where the runs were judged by different examples, or for an unknown metric.
    """
    labels = runs[0].labels
    for run in runs:
        if run.labels.shape != labels.shape or not np.array_equal(run.labels, labels):
            raise ResultsError("the runs were judged by different evaluation examples")
    kernel = kernel_of(metric)
    predictions = stacked([run.predictions for run in runs])  # [E, M, ...]
    scores = kernel.scorer(predictions, labels, runs[0].classes, np.float32)
    chance = kernel.chance(labels, runs[0].classes, np.float32)
    of_runs = np.empty((resamples, len(runs)))
    of_chance = np.empty(resamples)
    # Beside trials that train, BLAS threads wait for one another longer than they compute.
    with threadpool_limits(1, "blas"):
        for number, weights in enumerate(_poisson_weights(resamples, len(labels))):
            rows = slice(number * _CHUNK, (number + 1) * _CHUNK)
            of_runs[rows] = scores(weights)
            of_chance[rows] = chance(weights)
    return Resampled(of_runs, of_chance, len(labels))


def score(run: Predictions, metric: str) -> float:
    """Return a run's quality on its own examples, each counted once."""
    predictions = stacked([run.predictions])
    scores = kernel_of(metric).scorer(predictions, run.labels, run.classes, np.float32)
    return float(scores(np.ones((1, len(run.labels)), dtype=np.float32))[0, 0])


def _poisson_weights(resamples: int, examples: int) -> Iterator[Weights]:
    """Yield chunks of weights [<= _CHUNK, E], never all zero."""
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


def _kept(moves: Floats) -> Floats:
    """Round to single precision, as moves are kept: the same answer every time."""
    return np.asarray(moves.astype(np.float32), dtype=np.float64)
