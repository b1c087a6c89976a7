"""How far each depth's quality can be trusted: seeds by Student's t, examples by resampling.

The estimand is the quality that a fresh seed can expect on fresh examples at the depth's learning
rate, collapsed seeds included. Resampling three to five seeds makes intervals far too narrow (a
percentile bootstrap over three is falsely positive 17 % of the time at a nominal 5 %), so the mean
over S seeds moves by Student's t, and the examples, common to all depths, by a bootstrap. The sum
of two such terms is the Behrens-Fisher problem, which drawing them independently solves
conservatively (Fisher 1935; Barnard 1984). Few seeds say little of their own spread, so that of the
other depths counts as a prior (Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3, 3).

Letters in shape comments: R draws, S seeds.
"""

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elsa_tune.analysis.statistics.resampling import RESAMPLES, ExampleDraws, Floats
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.policy import Policy, SeedTerms

# Sets of draws of Student's t that a process keeps, 80 kilobytes each.
STUDENTS_KEPT = 128

# Which shares of what may be lie below an interval's low, high and one-sided lower end.
Ends = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRuns:
    """The measuring runs of one depth."""

    candidate: Candidate  # the depth
    qualities: tuple[float, ...]  # [S], fractions
    failed: tuple[bool, ...]  # [S], as `failures.failed_runs` finds them

    @property
    def count(self) -> int:
        """How many there are, S."""
        return len(self.qualities)

    @property
    def mean(self) -> float:
        """The mean quality of these runs."""
        total = math.fsum(self.qualities)
        return total / self.count

    @property
    def working(self) -> Floats:
        """The qualities of the runs that did not fail."""
        working = []
        for quality, is_failed in zip(self.qualities, self.failed, strict=True):
            if not is_failed:
                working.append(quality)
        return np.asarray(working)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One planned look that was taken."""

    number: int  # 1-based, of `planned` ones
    planned: int  # how many there are at most
    seeds: int  # of the depth, that it uses
    full_seeds: int  # and of the full model
    level: float  # the error that it may spend, one-sided
    half: float  # and that either end of a two-sided interval may


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far a run, or the mean over some seeds, can be trusted."""

    variance: float  # of that run or mean
    freedom: float  # the variance's degrees of freedom


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its two-sided 95 % interval and its lower one-sided 95 % bound."""

    value: float  # the estimate
    low: float  # its lower end
    high: float  # its upper end; of several tasks together at 2.5 % divided by their number
    lower: float  # the one-sided bound
    allowance: float = 0.0  # the part of the way to the lower ends that allows for collapses
    look: Look | None = None  # that it rests on and is widened for; None where none was planned


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeedTerm:
    """What the seeds of one depth bring into a contrast."""

    spread: Spread  # with the variance of collapses that its runs did not show
    allowance: float  # how much such collapses would lower the contrast's value, at least 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _ContrastParts:
    """What the interval of a contrast is made of."""

    value: float  # the estimate
    moved: Floats | None  # [R], by the examples; None where nothing is known of them
    spreads: tuple[Spread, ...]  # of its seeds: one, or one a depth
    allowance: float  # for collapses that the seeds did not show
    fewest_seeds: int  # of the two depths


@dataclass(frozen=True, kw_only=True)
class Uncertainty:
    """What is known of the spread of one freeze curve; None: nothing is known of a field."""

    runs: Mapping[Candidate, CandidateRuns]  # of the depths whose runs are known one by one
    chance: float | None = None  # the quality of the best constant answer
    examples: ExampleDraws | None = None  # how the examples move each depth's quality
    # The constants that the answer is judged by.
    policy: Policy = dataclasses.field(default_factory=Policy, repr=False)

    @property
    def basis(self) -> str:
        """What the intervals rest on, in words."""
        if self.examples is None:
            return "the spread between seeds alone"
        if self.examples.are_counted:
            return "seeds and the number of evaluation examples"
        return "seeds and evaluation examples"

    @property
    def has_examples(self) -> bool:
        """Whether examples count; yes where no run is known one by one, of which seeds say less."""
        knows_no_run = not self.runs
        return self.examples is not None or knows_no_run

    @property
    def has_predictions(self) -> bool:
        """Whether it is known which examples each run got right."""
        if self.examples is None:
            return False
        return not self.examples.are_counted

    def quality(self, candidate: Candidate) -> Interval | None:
        """Return the depth's quality; None with one seed, or equal scores of unknown examples."""
        runs = self.runs.get(candidate)
        if runs is None or runs.count < 2:
            return None
        spread = self.spread(candidate)
        moved: Floats | None = None
        if self.examples is not None:
            moves_of_depth = self.examples.candidates[candidate]
            moved = self._without_flips(moves_of_depth, {candidate: 1.0})
        elif spread.variance == 0:
            return None
        return _interval(
            runs.mean,
            moved,
            seeds=[spread],
            ends=self.policy.ends,
        )

    def next_run(self, candidate: Candidate) -> Interval | None:
        """Return where one more run on the same examples would lie; None with one seed."""
        runs = self.runs.get(candidate)
        if runs is None or runs.count < 2:
            return None
        of_mean = self.spread(candidate)
        # Its own variance beside the mean's.
        times_the_mean = 1 + runs.count
        of_run = Spread(
            variance=of_mean.variance * times_the_mean,
            freedom=of_mean.freedom,
        )
        return _interval(
            runs.mean,
            None,
            seeds=[of_run],
            ends=self.policy.ends,
        )

    def example_variance(self, candidate: Candidate) -> float | None:
        """Return the variance, by its examples, of a depth's quality above chance; or None."""
        examples = self.examples
        if examples is None or candidate not in examples.candidates:
            return None
        above_chance = examples.candidates[candidate] - examples.chance
        moved = self._without_flips(above_chance, {candidate: 1.0})
        variance = np.var(moved)
        return float(variance)

    def example_variance_of_difference(
        self, candidate: Candidate, other: Candidate
    ) -> float | None:
        """Return the variance, by the examples, of the difference of two depths; or None."""
        examples = self.examples
        if examples is None:
            return None
        if candidate not in examples.candidates or other not in examples.candidates:
            return None
        moved = self._moved_contrast(candidate, 1.0, against=other, corrected=False)
        assert moved is not None
        return float(np.var(moved))

    def spread(self, candidate: Candidate, as_if_seeds: int | None = None) -> Spread:
        """Return how far the mean of a depth's seeds can be trusted.

        Its own variance, with that of the other depths that learn as a prior; never less than what
        its runs answer differently. A depth with a failed seed stands alone. as_if_seeds: for S.
        """
        runs = self.runs[candidate]
        seeds = as_if_seeds or runs.count
        own_freedom = seeds - 1
        own_variance = 0.0
        if runs.count > 1:
            own_variance = _variance_of_runs(runs.qualities)
        prior_freedom = 0.0
        prior_variance = 0.0
        most = self.policy.prior_freedom
        stands_alone = most == 0 or any(runs.failed)
        of_others = None
        if not stands_alone:
            of_others = self._spread_of_others(runs)
        if of_others is not None:
            together = most + of_others.freedom
            prior_freedom = most * of_others.freedom / together
            prior_variance = of_others.variance
        freedom = prior_freedom + own_freedom
        pooled_variance = 0.0
        if freedom > 0:
            prior_squares = prior_freedom * prior_variance
            own_squares = own_freedom * own_variance
            pooled_variance = (prior_squares + own_squares) / freedom
        variance_of_run = max(pooled_variance, self._flips(candidate))
        variance_of_run += self._rounding
        return Spread(
            variance=variance_of_run / seeds,
            freedom=freedom,
        )

    def _spread_of_others(self, runs: CandidateRuns) -> Spread | None:
        """Return how single runs of the other depths that learn spread; None without any to say.

        Pooled within depths: each gives its squares about its own mean.
        """
        squares = 0.0
        freedom = 0
        for others in self._learning:
            if others is runs:
                continue
            qualities = others.working
            count = len(qualities)
            squares += float(np.var(qualities)) * count
            freedom += count - 1
        if freedom == 0:
            return None
        return Spread(variance=squares / freedom, freedom=freedom)

    def contrast(
        self,
        candidate: Candidate,
        target: float,
        *,
        against: Candidate = REFERENCE,
        corrected: bool = False,
        as_if_seeds: tuple[int, int] | None = None,
        ends: Ends | None = None,
    ) -> Interval | None:
        """Return D = (q_N - b) - target (q_0 - b); None with too few seeds.

        q_0: of `against`, by default the full model. b: 0, or chance where corrected (then None
        without chance). The lower ends allow for collapses that the few seeds of this depth did not
        show but those of other depths did.
        Depths are taken as independent, though they may have the same seeds: where these move them
        alike, that is cautious, and they hardly do (docs/measured.md). as_if_seeds: the interval
        to expect with that many seeds of the depth and of the full model, spread as now.
        """
        parts = self._contrast_parts(
            candidate,
            target,
            against=against,
            corrected=corrected,
            as_if_seeds=as_if_seeds,
        )
        if parts is None:
            return None
        if ends is None:
            ends = self.policy.ends_of_test(parts.fewest_seeds)
        interval = _interval(
            parts.value,
            parts.moved,
            seeds=parts.spreads,
            ends=ends,
        )
        return dataclasses.replace(
            interval,
            low=interval.low - parts.allowance,
            lower=interval.lower - parts.allowance,
            allowance=parts.allowance,
        )

    def p_value(
        self,
        candidate: Candidate,
        target: float,
        *,
        against: Candidate,
        corrected: bool = False,
    ) -> float | None:
        """Return the one-sided p value of D <= 0, with D as in `contrast`; None where that is.

        It comes from the draws of the interval: below a level, its lower bound at that level is
        above 0. What the policy's test pays for its approximation is in it.
        """
        parts = self._contrast_parts(
            candidate,
            target,
            against=against,
            corrected=corrected,
        )
        if parts is None:
            return None
        least = self.policy.rounding + parts.allowance
        share = _share_below(
            least,
            parts.value,
            parts.moved,
            seeds=parts.spreads,
        )
        paid = self.policy.error / self.policy.test_error(parts.fewest_seeds)
        return min(1.0, share * paid)

    def _contrast_parts(
        self,
        candidate: Candidate,
        target: float,
        *,
        against: Candidate,
        corrected: bool,
        as_if_seeds: tuple[int, int] | None = None,
    ) -> _ContrastParts | None:
        """Return what the interval of a contrast is made of; None with too few seeds."""
        tuned = self.runs.get(candidate)
        other = self.runs.get(against)
        if tuned is None or other is None or not self._has_enough_seeds(tuned, other):
            return None
        base = self.chance if corrected else 0.0
        if base is None:
            return None
        tuned_gain = tuned.mean - base
        other_gain = other.mean - base
        tuned_seeds = tuned.count
        other_seeds = other.count
        if as_if_seeds is not None:
            tuned_seeds, other_seeds = as_if_seeds
        tuned_term = self._seed_term(tuned, 1.0, tuned_seeds)
        other_term = self._seed_term(other, -target, other_seeds)
        spreads = [tuned_term.spread, other_term.spread]
        if self.policy.seed_terms is SeedTerms.WELCH:
            spreads = [_welch(*spreads)]
        return _ContrastParts(
            value=tuned_gain - target * other_gain,
            moved=self._moved_contrast(candidate, target, against=against, corrected=corrected),
            spreads=tuple(spreads),
            allowance=tuned_term.allowance + other_term.allowance,
            fewest_seeds=min(tuned_seeds, other_seeds),
        )

    def _has_enough_seeds(self, tuned: CandidateRuns, other: CandidateRuns) -> bool:
        """Whether there are enough seeds, of both depths and in all, to tell their spread."""
        if min(tuned.count, other.count) < self.policy.fewest_seeds:
            return False
        freedom = 0
        for runs in {tuned, other, *self._learning}:
            freedom += runs.count - 1
        return freedom >= self.policy.fewest_freedom

    def _seed_term(self, runs: CandidateRuns, weight: float, seeds: int) -> _SeedTerm:
        """Return what a depth's seeds bring into a contrast that has its mean with this weight."""
        move, more_variance = self._unseen(runs)
        seen = self.spread(runs.candidate, seeds)
        variance = seen.variance + more_variance
        weighted = Spread(
            variance=weight**2 * variance,
            freedom=seen.freedom,
        )
        fall = -weight * move
        return _SeedTerm(
            spread=weighted,
            allowance=max(0.0, fall),
        )

    def _moved_contrast(
        self,
        candidate: Candidate,
        target: float,
        *,
        against: Candidate,
        corrected: bool,
    ) -> Floats | None:
        """Return [R], how the examples move a contrast; None where nothing is known of them."""
        if self.examples is None:
            return None
        moves_of_depth = self.examples.candidates[candidate]
        moves_of_other = self.examples.candidates[against]
        moved = moves_of_depth - target * moves_of_other
        if corrected:
            weight_of_chance = 1 - target
            moved = moved - weight_of_chance * self.examples.chance
        weights = {candidate: 1.0, against: target}
        return self._without_flips(moved, weights)

    def failures(self) -> tuple[int, int]:
        """Count the failed and all runs of the depths that learn.

        The runs of other depths fail for more than bad luck. (0, 0) where chance is not known.
        """
        if self.chance is None:
            return 0, 0
        failed = 0
        count = 0
        for runs in self._learning:
            failed += sum(runs.failed)
            count += runs.count
        return failed, count

    @functools.cached_property
    def _share_lost(self) -> float:
        """The share of what its depth's working runs gain over guessing that a failed run lost.

        Their mean over all depths that learn; all of it where only guessing is failing.
        """
        if self.policy.failed_loss is None or self.chance is None:
            return 1.0
        shares_lost: list[float] = []
        for runs in self._learning:
            working_mean = float(runs.working.mean())
            usual_gain = working_mean - self.chance
            if usual_gain <= 0:
                continue
            for quality, is_failed in zip(runs.qualities, runs.failed, strict=True):
                if not is_failed:
                    continue
                gain = quality - self.chance
                share_left = gain / usual_gain
                shares_lost.append(1 - share_left)
        if not shares_lost:
            return 1.0
        return math.fsum(shares_lost) / len(shares_lost)

    @functools.cached_property
    def _learning(self) -> tuple[CandidateRuns, ...]:
        """The depths whose working runs gain a good share of what the best depth's do."""
        chance = self.chance or 0.0
        gains: dict[Candidate, float] = {}
        for candidate, runs in self.runs.items():
            working = runs.working
            if len(working) == 0:
                continue
            working_mean = float(working.mean())
            gains[candidate] = working_mean - chance
        best_gain = max(gains.values(), default=0.0)
        least_gain = best_gain * self.policy.learning_share
        learning: list[CandidateRuns] = []
        for candidate, gain in gains.items():
            if gain >= least_gain:
                learning.append(self.runs[candidate])
        return tuple(learning)

    def _flips(self, candidate: Candidate) -> float:
        """Return ExampleDraws.flips; 0 where a seed failed, which differs for that reason."""
        has_failed_seed = any(self.runs[candidate].failed)
        if self.examples is None or has_failed_seed:
            return 0.0
        return self.examples.flips.get(candidate, 0.0)

    def _without_flips(self, moved: Floats, weights: Mapping[Candidate, float]) -> Floats:
        """Return the moves of a weighted sum of depths, less the flips that seeds' spread has."""
        variance = float(np.var(moved))
        if variance == 0:
            return moved
        counted_twice = 0.0
        for candidate, weight in weights.items():
            flips = self._flips(candidate)
            seeds = self.runs[candidate].count
            counted_twice += weight**2 * flips / seeds
        share_left = 1 - counted_twice / variance
        share_kept = max(share_left, self.policy.least_example_share)
        return moved * math.sqrt(share_kept)

    @functools.cached_property
    def _rounding(self) -> float:
        """The variance of a quality's rounding when written down: .801 may be .8005 to .8015."""
        if self.has_predictions:
            return 0.0
        qualities: list[float] = []
        for runs in self.runs.values():
            qualities += runs.qualities
        for decimals in range(2, self.policy.exact_decimals):
            are_rounded = all(round(quality, decimals) == quality for quality in qualities)
            if are_rounded:
                squared_step = float(10.0 ** (-2 * decimals))
                return squared_step / 12  # of a uniform distribution one step wide
        return 0.0

    def _unseen(self, runs: CandidateRuns) -> tuple[float, float]:
        """Return how far collapses move a depth's mean, and its variance beyond what runs show.

        They are taken to be as frequent there as over all depths that learn: a fifth of seeds
        collapsing is often invisible in three seeds, but not in all depths'.
        """
        failed, count = self.failures()
        if self.chance is None or failed == 0:
            return 0.0, 0.0
        working = runs.working
        if len(working) == 0:
            return 0.0, 0.0
        # Laplace's rule of succession.
        failing = (failed + 1) / (count + 2)
        succeeding = 1 - failing
        working_mean = float(working.mean())
        usual_gain = working_mean - self.chance
        fall = usual_gain * self._share_lost
        # Of a mixture: within the runs that work, and between these and the collapsed ones.
        within = 0.0
        if len(working) > 1:
            within = _variance_of_runs(working)
        between = failing * succeeding * fall**2
        variance_of_run = succeeding * within + between
        variance_of_mean = variance_of_run / runs.count
        mean_with_collapses = working_mean - failing * fall
        move = mean_with_collapses - runs.mean
        shown = self.spread(runs.candidate)
        more_variance = variance_of_mean - shown.variance
        return move, max(0.0, more_variance)


class Learnt(enum.Enum):
    """What the test found."""

    YES = "yes"
    NO = "no"
    UNTESTED = "untested"  # above chance, but nothing is known of the spread between seeds


def learnt(
    quality: float,
    *,
    chance: float | None,
    spread: Spread | None,
    example_variance: float = 0.0,
    policy: Policy,
) -> Learnt:
    """Test whether the quality a fresh seed can expect lies above chance, one-sided.

    quality: the mean over seeds, in [-1, 1]. spread: of that mean. example_variance: of quality
    above chance, by the examples. All seeds are judged by the same, so that more seeds do not
    reduce it. Degrees of freedom by Welch-Satterthwaite. With one run the spread is not known: a
    quality that the examples alone cannot tell from chance has not learnt, any other is untested.
    """
    # The best constant answer scores at least 0 on every metric we know.
    guessing = chance or 0.0
    if quality <= guessing + policy.at_chance:
        return Learnt.NO
    if chance is None:
        return Learnt.UNTESTED
    variance = example_variance
    freedom = math.inf
    if spread is not None and spread.variance > 0:
        variance += spread.variance
        freedom = variance**2 * spread.freedom / spread.variance**2
    standard_error = math.sqrt(variance)
    margin = _quantiles(freedom, policy.confidence) * standard_error
    if quality - chance <= margin:
        return Learnt.NO
    if spread is None:
        return Learnt.UNTESTED
    return Learnt.YES


def excluded_failure_rate(seeds: int) -> float:
    """Return the share of failing seeds that S without a failure leave possible at 95 %."""
    succeeding = 0.05 ** (1 / seeds)
    return float(1 - succeeding)


def student_quantile(freedom: float, share: float) -> float:
    """Return the value of Student's t below which this share of it lies."""
    quantile = _quantiles(freedom, share)
    return float(quantile)


def _welch(tuned: Spread, full: Spread) -> Spread:
    """Return the spread of a sum of two independent means (Welch 1947, Satterthwaite 1946)."""
    variance = tuned.variance + full.variance
    if variance == 0:
        return Spread(
            variance=0.0,
            freedom=tuned.freedom + full.freedom,
        )
    tuned_share = tuned.variance / variance
    full_share = 1 - tuned_share
    tuned_part = tuned_share**2 / tuned.freedom
    full_part = full_share**2 / full.freedom
    inverse_freedom = tuned_part + full_part
    return Spread(variance=variance, freedom=1 / inverse_freedom)


def _variance_of_runs(qualities: Sequence[float] | Floats) -> float:
    """Return the unbiased variance of two runs or more."""
    variance = np.var(qualities, ddof=1)
    return float(variance)


def interval_of_mean(mean: float, std: float, count: int, ends: Ends) -> Interval:
    """Return the interval of a mean over two or more runs whose standard deviation is known."""
    of_mean = Spread(
        variance=std**2 / count,
        freedom=count - 1,
    )
    return _interval(mean, None, seeds=[of_mean], ends=ends)


def _interval(
    value: float,
    moved: Floats | None,
    *,
    seeds: Sequence[Spread],
    ends: Ends,
) -> Interval:
    """Combine seeds and examples. moved: [R], by the examples. seeds: of one mean or more."""
    if moved is None and len(seeds) == 1:
        [spread] = seeds
        standard_error = math.sqrt(spread.variance)
        shares = np.asarray(ends)
        students = _quantiles(spread.freedom, shares)
        three_ends = value + standard_error * students
    else:
        draws = _draws(value, moved, seeds)
        three_ends = np.quantile(draws, ends)
    low, high, lower = map(float, three_ends)
    return Interval(
        value=value,
        low=low,
        high=high,
        lower=lower,
    )


def _share_below(
    least: float,
    value: float,
    moved: Floats | None,
    *,
    seeds: Sequence[Spread],
) -> float:
    """Return the share of what may be that is at most `least`; arguments as of `_interval`.

    Of draws half of one is added, as an interval's end lies between two of them: no share is 0.
    """
    if moved is None and len(seeds) == 1:
        [spread] = seeds
        standard_error = math.sqrt(spread.variance)
        if standard_error == 0:
            return float(value <= least)
        from scipy.special import stdtr  # scipy.stats takes half a second to import

        distance = (least - value) / standard_error
        return float(stdtr(spread.freedom, distance))
    draws = _draws(value, moved, seeds)
    below = int(np.count_nonzero(draws <= least))
    return (below + 0.5) / len(draws)


def _draws(value: float, moved: Floats | None, seeds: Sequence[Spread]) -> Floats:
    """Return [R] draws of what may be, by examples and seeds; arguments as of `_interval`."""
    draws = np.full(RESAMPLES, value)
    if moved is not None:
        draws = draws + moved
    for stream, spread in enumerate(seeds):
        standard_error = math.sqrt(spread.variance)
        students = _student(spread.freedom, stream)
        draws = draws + standard_error * students
    return draws


@functools.lru_cache(STUDENTS_KEPT)
def _student(freedom: float, stream: int) -> Floats:
    """Return [R] draws of Student's t, one from each of R equal strata, in a random order."""
    strata = np.arange(RESAMPLES)
    middles = (strata + 0.5) / RESAMPLES
    in_order = _quantiles(freedom, middles)
    generator = np.random.default_rng(stream + 1)
    draws = generator.permutation(in_order)
    return np.asarray(draws)


def _quantiles(freedom: float, shares: Floats | float) -> Floats:
    """Return Student's t below which these shares of it lie."""
    from scipy.special import stdtrit  # scipy.stats takes half a second to import

    quantiles = stdtrit(freedom, shares)
    return np.asarray(quantiles)
