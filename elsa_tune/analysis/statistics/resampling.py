"""Quality on resampled evaluation examples: the example half of an answer's uncertainty.

Poisson bootstrap (Hanley and MacGibbon 2006, "Creating non-parametric bootstrap samples using
Poisson frequencies"; Chamandy et al. 2012): each example counts Poisson(1) times, the same in every
run, so that depths are compared on the same examples. Examples of one unit (repeated texts, the
rows of one document) count alike: what is drawn is units (a cluster bootstrap; Davison and Hinkley
1997, Bootstrap Methods and their Application, 3.8; Cameron, Gelbach and Miller 2008, Rev. Econ.
Stat. 90, 414).

Words here and in `uncertainty.py`:

moves       How far each draw of a quality lies from its value: what other examples would do to it.
flips       The variance of one run's quality by what the runs of a depth answer differently on
            single examples. Seeds show it, and examples again: it must not count twice.
fall        How far the mean move of a depth lies below 0: its flawless runs may err elsewhere.
hidden      How much lower a depth may lie for mistakes beside those that its runs made.
held against
            The depth that another is compared with, by default the full model: `against`.
allowance   How much lower the lower ends lie, beside all moves: for collapses that the few seeds
            of a depth did not show, and for mistakes that a flawless `against` did not.
lower_moves The moves that the lower ends are drawn with: `times` as far, and less what is hidden.
times       How much farther examples move a depth just at the target than this one, above it.
stretch     How much farther moves go where there are few units to draw.

Letters in shape comments: R resamples, E examples, U units, M runs, C classes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from elsa_tune.analysis.statistics.hidden_mistakes import (
    NOTHING_HIDDEN,
    HiddenMistakes,
    hidden_mistakes,
)
from elsa_tune.errors import ResultsError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.result_row import Predictions
from elsa_tune.tasks.types.base import stacked
from elsa_tune.tasks.types.registry import kernel_of

RESAMPLES = 10_000

# Resamples at a time: [500, 5463] weights are 11 MB, and products of them run at full speed. Of
# more than 100,000 examples fewer, so that their weights stay below 200 MB.
_CHUNK = 500
_MOST_WEIGHTS = 50_000_000

# The largest of several even shares lies too high on a sample, by as much as shares are unsure. On
# resamples, twice as variable, it lies higher by .41 of that.
_TIMES_THE_RISE = 1 / (math.sqrt(2) - 1)

# Before the number of a stream of random numbers: apart from those for seeds.
_EXAMPLES = 1
_FEW_UNITS = 3

Floats = NDArray[np.float64]
Weights = NDArray[np.float32]
Integers = NDArray[np.integer[Any]]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Resampled:
    """The qualities of runs, and of chance, on resampled examples."""

    runs: Floats  # [R, M], each run's quality
    chance: Floats  # [R], the best constant answer's
    examples: int  # E
    metric: str | None = None  # as `resample` was given it
    units: int | None = None  # U; None where each example is its own
    # How many units of one size tell as much; likewise.
    equal_units: float | None = None
    hidden: HiddenMistakes = NOTHING_HIDDEN  # what the examples may hide of the runs
    # How much higher chance is on resamples than on the examples, in the mean.
    rise_of_chance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleDraws:
    """How each depth's quality, and chance, move from their values with the examples."""

    candidates: Mapping[Candidate, Floats]  # [R] each
    chance: Floats  # [R]
    are_counted: bool = False  # from the number of examples alone
    # Of counted ones, the standard error of chance. It is not known with which depth it moves.
    chance_error: float = 0.0
    # Of counted ones, the variance of each depth's draws by their formula, which no draw moves.
    counted_variances: Mapping[Candidate, float] = field(default_factory=dict)
    metric: str | None = None  # of predictions; None where they were counted
    # How much higher chance may be on these examples than on fresh ones, at least 0.
    chance_too_high: float = 0.0
    # Of a depth with two runs or more the variance of one run's quality that comes from what its
    # runs answer differently on single examples. It is part of the spread between seeds and of
    # `candidates`, whose variance holds a share 1 / S of it.
    flips: Mapping[Candidate, float] = field(default_factory=dict)
    # How far the mean move of a depth lies below 0 for mistakes of its flawless runs.
    falls: Mapping[Candidate, float] = field(default_factory=dict)
    # [R] each, at least 0: how much lower a depth may lie for mistakes that its other runs hide.
    # Lower ends alone count it, and of it no more than a share (`hidden_beside`).
    hidden: Mapping[Candidate, Floats] = field(default_factory=dict)
    # By a depth and the one that it is held against; by a depth and itself where it stands alone.
    hidden_shares: Mapping[tuple[Candidate, Candidate], float] = field(default_factory=dict)

    @classmethod
    def of(cls, resampled: Resampled, columns: Mapping[Candidate, Sequence[int | None]]) -> Self:
        """Return the draws of resampled runs.

        columns: for each depth its runs' columns; None: the run diverged and counts as chance.
        """
        moves_by_depth: dict[Candidate, Floats] = {}
        flips: dict[Candidate, float] = {}
        falls: dict[Candidate, float] = {}
        hidden: dict[Candidate, Floats] = {}
        hidden_shares = resampled.hidden.shares(columns)
        stretch = _stretch(resampled)
        for stream, (candidate, numbers) in enumerate(columns.items()):
            cost = _cost_of_mistakes(resampled, stream)
            # One run at a time: thousands of them would fill the memory.
            total = np.zeros_like(cost)
            variances = []
            for number in numbers:
                moves = _moves_of_run(resampled, number, cost)
                total += moves
                variances.append(moves.var())
            seeds = len(numbers)
            moves_of_mean = _rounded(total / seeds)
            moves_of_depth = _rounded(moves_of_mean * stretch)
            moves_by_depth[candidate] = moves_of_depth
            if not resampled.hidden.flawless.isdisjoint(numbers):
                falls[candidate] = -float(moves_of_depth.mean())
            if any(hidden_shares[candidate, other] > 0 for other in columns):
                hidden[candidate] = cost * stretch
            if seeds > 1:
                flips[candidate] = _flips(variances, moves_of_mean)
        mean_of_chance = resampled.chance.mean()
        moves_of_chance = resampled.chance - mean_of_chance
        return cls(
            candidates=moves_by_depth,
            chance=_rounded(moves_of_chance * stretch),
            chance_too_high=max(0.0, _TIMES_THE_RISE * resampled.rise_of_chance),
            metric=resampled.metric,
            flips=flips,
            falls=falls,
            hidden=hidden,
            hidden_shares=hidden_shares,
        )

    @classmethod
    def counted(
        cls,
        accuracies: Mapping[Candidate, float],
        examples: int,
        chance: float | None = None,
    ) -> Self:
        """Return draws for accuracies on E examples, of which it is not known who got which right.

        Each depth moves on its own by the Beta distribution of its error rate (from a uniform
        prior). Depths that are right on the same examples move together, so that this makes their
        contrasts too wide rather than too narrow. Chance is the share of a label on the same
        examples. A depth may be right on that label or on the others, so that chance may move with
        it or against it: `chance_error` says how far, and no draw does.
        """
        moves_by_depth: dict[Candidate, Floats] = {}
        falls: dict[Candidate, float] = {}
        variances: dict[Candidate, float] = {}
        for stream, (candidate, accuracy) in enumerate(accuracies.items()):
            right = accuracy * examples
            wrong = examples - right
            mean = (right + 1) / (examples + 2)
            variances[candidate] = mean * (1 - mean) / (examples + 3)
            generator = np.random.default_rng([_EXAMPLES, stream])
            drawn_accuracies = generator.beta(
                right + 1,
                wrong + 1,
                size=RESAMPLES,
            )
            moves_by_depth[candidate] = drawn_accuracies - accuracy
            if accuracy == 1:
                falls[candidate] = 1 / (examples + 2)  # the mean error rate of these draws
        share = chance or 0.0
        variance_of_chance = share * (1 - share) / examples
        return cls(
            candidates=moves_by_depth,
            chance=np.zeros(RESAMPLES),
            are_counted=True,
            chance_error=math.sqrt(max(0.0, variance_of_chance)),
            counted_variances=variances,
            falls=falls,
        )

    def hidden_beside(self, candidate: Candidate, other: Candidate) -> Floats | None:
        """Return [R], how much lower a depth may lie beside another; None for nothing.

        other: the depth itself, for how much lower it may lie alone.
        """
        share = self.hidden_shares.get((candidate, other), 0.0)
        if share == 0:
            return None
        return _rounded(self.hidden[candidate] * share)


def _cost_of_mistakes(resampled: Resampled, stream: int) -> Floats:
    """Return [R], what mistakes cost that a run made none of, and may make on fresh examples.

    As many units as Exponential(1), whose upper 95 % bound is the rule of three (Hanley and
    Lippman-Hand 1983, J. Am. Med. Assoc. 249), each at what a mistake costs. A flawless run scores
    1 on every resample, and is moved by them. As many more are `hidden` where few mistakes, k, were
    made, or on a label of few units: a resample has about Poisson(k) of them, and the exact upper
    bound is that of Gamma(k + 1), the lower one that of Gamma(k) (Garwood 1936, Biometrika 28). So
    are answers to labels that are far from the others. stream: of random numbers, one a depth.
    """
    generator = np.random.default_rng([_EXAMPLES, stream])
    errors = generator.exponential(size=len(resampled.chance))
    mistakes = np.minimum(errors, resampled.hidden.most)
    cost: Floats = mistakes * resampled.hidden.cost
    return cost


def _moves_of_run(resampled: Resampled, number: int | None, cost: Floats) -> Floats:
    """Return [R], how far the examples move a run.

    number: its column; None: it diverged and counts as chance. cost: [R], of a flawless run's
    mistakes on fresh examples.
    """
    qualities = resampled.chance
    if number is not None:
        qualities = resampled.runs[:, number]
    moves: Floats = qualities - qualities.mean()
    if number in resampled.hidden.flawless:
        moves = moves - cost
    return moves


def _flips(variances: Sequence[float], moves_of_mean: Floats) -> float:
    """Return the variance of one run's quality by what a depth's runs answer differently.

    variances: of each run's moves, of two or more. Where examples share units, the answers are
    compared by units, too: of a unit two seeds often flip all at once.
    """
    # Var(mean) = Cov + (Var - Cov) / S for runs with a common covariance.
    variance_of_run = np.mean(variances)
    variance_of_mean = moves_of_mean.var()
    apart = float(variance_of_run - variance_of_mean)
    seeds = len(variances)
    freedom = seeds - 1
    own_variance = apart * seeds / freedom
    return max(0.0, own_variance)


def resample(
    runs: Sequence[Predictions],
    metric: str,
    resamples: int = RESAMPLES,
) -> Resampled:
    """Score all runs on the same resampled examples.

    Resamples on which the metric is not defined are replaced by others: F1 of class 1 and a
    correlation are 0 / 0 where an example of class 1, or all but one class, was not drawn. That
    says nothing of a run, and would lower each alike.

    runs: one or more, with the same labels, and the same units where these are known. metric: a
    name as in `specs.task.Metric`. Raises ResultsError where the runs were judged by different
    examples, or for an unknown metric.
    """
    labels = runs[0].labels
    classes = runs[0].classes
    for run in runs:
        if not np.array_equal(run.labels, labels):
            raise ResultsError("the runs were judged by different evaluation examples")
    kernel = kernel_of(metric)
    of_each_run = [run.predictions for run in runs]
    predictions = stacked(of_each_run)  # [E, M, ...]
    score_runs = kernel.scorer(predictions, labels, classes, np.float32)
    score_chance = kernel.chance(labels, classes, np.float32)
    score_labels = kernel.scorer(stacked([labels]), labels, classes, np.float32)
    examples = len(labels)
    unit_of_example = _common_units(runs)
    units = None
    equal_units = None
    if unit_of_example is not None:
        sizes = np.bincount(unit_of_example)
        units = len(sizes)
        equal_units = _equal_units(sizes)
    of_runs = np.empty((resamples, len(runs)))
    of_chance = np.empty(resamples)
    of_labels = np.empty(resamples)
    # Beside trials that train, BLAS threads wait for one another longer than they compute.
    with threadpool_limits(1, "blas"):
        start = 0
        for drawn_weights in _poisson_weights(resamples, units or examples):
            end = start + len(drawn_weights)
            weights = drawn_weights
            if unit_of_example is not None:
                weights = drawn_weights[:, unit_of_example]
            of_runs[start:end] = score_runs(weights)
            of_chance[start:end] = score_chance(weights)
            of_labels[start:end] = score_labels(weights)[:, 0]
            start = end
    # Of labels that score 0 as answers no answer scores more.
    is_undefined = of_labels == 0
    _replace(of_runs, is_undefined)
    _replace(of_chance, is_undefined)
    each_once = np.ones((1, examples), dtype=np.float32)
    [chance] = score_chance(each_once)
    hidden = hidden_mistakes(runs, metric, unit_of_example, equal_units or examples)
    return Resampled(
        runs=of_runs,
        chance=of_chance,
        examples=examples,
        metric=metric,
        units=units,
        equal_units=equal_units,
        hidden=hidden,
        rise_of_chance=float(of_chance.mean() - chance),
    )


def _replace(scores: Floats, is_undefined: Booleans) -> None:
    """Put scores [R, ...] of other resamples in the place of undefined ones, if there are others.

    is_undefined: [R].
    """
    defined = np.flatnonzero(~is_undefined)
    if len(defined) > 0:
        others = np.resize(defined, is_undefined.sum())
        scores[is_undefined] = scores[others]


def _equal_units(sizes: Integers) -> float:
    """Return how many units of one size tell as much as units of these sizes [U].

    E^2 / sum of n_u^2, as Kish (1965, Survey Sampling).
    """
    examples = int(sizes.sum())
    exact_sizes = sizes.astype(np.float64)
    squares = float(np.sum(exact_sizes**2))
    return examples**2 / squares


def _common_units(runs: Sequence[Predictions]) -> Integers | None:
    """Return the unit of each example [E], 0..U-1; None where each is its own, or none is known.

    Runs of earlier versions know none, and were judged by the same examples. Raises ResultsError
    where two runs know different ones.
    """
    common: Integers | None = None
    for run in runs:
        if run.units is None:
            continue
        if common is None:
            common = run.units
        if not np.array_equal(run.units, common):
            raise ResultsError("the runs' evaluation examples were put into different units")
    return common


def _stretch(resampled: Resampled) -> Floats | float:
    """Return by how much the moves of few units are stretched, [R] or 1 for all.

    A bootstrap of few units says too little: its variance lacks a share 1 / U, and its draws are
    as good as normal where Student's t would be right (Cameron, Gelbach and Miller 2008). Its
    degrees of freedom count units of one size (`_equal_units`).
    """
    units = resampled.equal_units
    if units is None or units <= 1:
        return 1.0
    from scipy.special import chdtri  # scipy.stats takes half a second to import

    freedom = max(units - 1, 1.0)
    resamples = len(resampled.chance)
    strata = np.arange(resamples)
    middles = (strata + 0.5) / resamples
    generator = np.random.default_rng([_FEW_UNITS, 0])
    shuffled = generator.permutation(middles)
    chi_squares = np.asarray(chdtri(freedom, shuffled))
    lacking_variance = units / (units - 1)
    squared_stretch = lacking_variance * freedom / chi_squares
    return np.sqrt(squared_stretch)


def score(run: Predictions, metric: str) -> float:
    """Return a run's quality on its own examples, each counted once."""
    kernel = kernel_of(metric)
    predictions = stacked([run.predictions])  # [E, 1, ...]
    score_run = kernel.scorer(
        predictions,
        run.labels,
        run.classes,
        np.float32,
    )
    examples = len(run.labels)
    each_once = np.ones((1, examples), dtype=np.float32)
    [[quality]] = score_run(each_once)
    return float(quality)


def _poisson_weights(resamples: int, units: int) -> Iterator[Weights]:
    """Yield chunks of weights [<= _CHUNK, U], never all zero; the same rows whatever the chunks."""
    generator = np.random.default_rng(0)
    count_of_bits = _poisson_table()
    # An even number of rows takes whole words of the generator's bits.
    most_pairs = _MOST_WEIGHTS // (2 * units)
    chunk = min(_CHUNK, 2 * max(1, most_pairs))
    for start in range(0, resamples, chunk):
        rows_left = resamples - start
        rows = min(chunk, rows_left)
        numbers = rows * units
        two_bytes_each = generator.bytes(2 * numbers)
        bits = np.frombuffer(two_bytes_each, dtype=np.uint16)
        weights = count_of_bits[bits].reshape(rows, units)
        totals = weights.sum(axis=1)
        is_empty = totals == 0
        weights[is_empty, 0] = 1
        yield weights


def _poisson_table() -> Weights:
    """Return for each value of 16 random bits how often it has an example counted, [2**16].

    Such a table is twenty times faster than numpy's Poisson, and exact to 1/65536.
    """
    density = []
    for count in range(9):
        ways = math.factorial(count)
        density.append(math.exp(-1) / ways)
    distribution = np.cumsum(density)
    last_bits = distribution * 2**16  # of each count
    bits = np.arange(2**16)
    counts = np.searchsorted(last_bits, bits + 0.5)
    return counts.astype(np.float32)


def _rounded(moves: Floats) -> Floats:
    """Round to single precision, in which moves are kept: the same answer every time."""
    single = moves.astype(np.float32)
    return single.astype(np.float64)
