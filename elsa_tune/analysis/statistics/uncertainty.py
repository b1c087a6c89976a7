"""How far each depth's quality can be trusted: seeds by Student's t, examples by resampling.

The estimand is the quality that a fresh seed can expect on fresh examples at the depth's learning
rate, collapsed seeds included. Resampling three to five seeds makes intervals far too narrow (a
percentile bootstrap over three is falsely positive 17 % of the time at a nominal 5 %), so the mean
over S seeds moves by Student's t, and the examples, common to all depths, by a bootstrap. The sum
of two such terms is the Behrens-Fisher problem, which drawing them independently solves
conservatively (Fisher 1935; Barnard 1984). Few seeds say little of their own spread, so that of the
other depths counts as a prior (Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3, 3).

What moves, flips, falls and the like are, `resampling.py` says at its top.

Letters in shape comments: R draws, S seeds.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elsa_tune.analysis.statistics.intervals import (
    SAME_QUALITY,
    Ends,
    Interval,
    Spread,
    interval_of,
    rounding_variance,
    share_below,
    variance_of_runs,
    welch,
)
from elsa_tune.analysis.statistics.resampling import ExampleDraws, Floats
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.policy import Policy, SeedTerms
from elsa_tune.tasks.types.registry import kernel_of

# How much farther than in its resamples a depth is taken to move, at most: one next to 1 does not
# move at all.
_MOST_TIMES = 50.0


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
class _SeedTerm:
    """What the seeds of one depth bring into a contrast."""

    spread: Spread  # with the variance of collapses that its runs did not show
    allowance: float  # how much such collapses would lower the contrast's value, at least 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _ContrastParts:
    """What the interval of a contrast is made of."""

    value: float  # the estimate
    moved: Floats | None  # [R], by the examples; None where nothing is known of them
    # Likewise for lower ends: the depth as unsure as at the boundary, less what examples may hide.
    lower_moves: Floats | None
    spreads: tuple[Spread, ...]  # of its seeds: one, or one a depth
    allowance: float  # for collapses that the seeds, and mistakes that the examples did not show
    rise: float  # of the upper ends, for a chance that is too high on these examples
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
    def knows_scores_alone(self) -> bool:
        """Whether examples count by their number, as it is not known which of them were right."""
        return self.examples is not None and self.examples.are_counted

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
        elif spread.variance * runs.count < SAME_QUALITY**2:
            return None
        return _interval(
            runs.mean,
            moved,
            self._less_hidden(moved, candidate, self._held_against(candidate)),
            seeds=[spread],
            ends=self.policy.ends,
        )

    def _less_hidden(
        self, moved: Floats | None, candidate: Candidate, other: Candidate
    ) -> Floats | None:
        """Return moves less what a depth's examples may hide of mistakes; the same for nothing.

        other: the depth that it is held against, or itself.
        """
        if moved is None or self.examples is None:
            return moved
        hidden = self.examples.hidden_beside(candidate, other)
        return moved if hidden is None else moved - hidden

    def _held_against(self, candidate: Candidate) -> Candidate:
        """Return the full model, where it is known: a depth's own interval agrees with its test."""
        return REFERENCE if REFERENCE in self.runs else candidate

    def next_run(self, candidate: Candidate) -> Interval | None:
        """Return where one more run on the same examples would lie.

        None with one seed, or with seeds that all score the same where nothing else tells a spread.
        """
        runs = self.runs.get(candidate)
        if runs is None or runs.count < 2 or self.is_rounding_alone(candidate):
            return None
        of_mean = self.spread(candidate)
        # Its own variance beside the mean's.
        times_the_mean = 1 + runs.count
        of_run = Spread(
            variance=of_mean.variance * times_the_mean,
            freedom=of_mean.freedom,
        )
        return interval_of(
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
        if examples.are_counted:
            return examples.counted_variances[candidate] + examples.counted_variances[other]
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
            own_variance = variance_of_runs(runs.qualities)
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

    def is_rounding_alone(self, candidate: Candidate) -> bool:
        """Whether a depth's spread is no more than what its scores were rounded by, or nothing.

        Then seeds that all score the same tell nothing of how far another would move the mean.
        """
        runs = self.runs.get(candidate)
        if runs is None or runs.count < 2:
            return False
        of_run = self.spread(candidate).variance * runs.count
        return of_run - self._rounding < SAME_QUALITY**2

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
        show but those of other depths did, and count no mistakes that a flawless q_0 may make.
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
            parts.lower_moves,
            seeds=parts.spreads,
            ends=ends,
        )
        return dataclasses.replace(
            interval,
            low=interval.low - parts.allowance,
            lower=interval.lower - parts.allowance,
            high=interval.high + parts.rise,
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
        share = share_below(
            least,
            parts.value,
            parts.lower_moves,
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
            spreads = [welch(*spreads)]
        allowance = tuned_term.allowance + other_term.allowance
        if self.examples is not None:
            # Mistakes that a flawless other may make must not speak for the depth.
            allowance += target * self.examples.falls.get(against, 0.0)
        rise = 0.0
        if self.examples is not None and corrected:
            rise = (1 - target) * self.examples.chance_too_high
        moved = self._moved_contrast(candidate, target, against=against, corrected=corrected)
        lower_moves = self._lower_moves(
            moved,
            candidate,
            target,
            against=against,
            corrected=corrected,
            boundary=base + target * other_gain,
        )
        return _ContrastParts(
            value=tuned_gain - target * other_gain,
            moved=moved,
            lower_moves=lower_moves,
            spreads=tuple(spreads),
            allowance=allowance,
            rise=rise,
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
        move, more_variance = self._unseen(runs, seeds)
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
        times: float = 1.0,
    ) -> Floats | None:
        """Return [R], how the examples move a contrast; None where nothing is known of them.

        times: how much farther than by its resamples they move the depth.
        """
        if self.examples is None:
            return None
        moves_of_depth = self.examples.candidates[candidate] * times
        moves_of_other = self.examples.candidates[against]
        moved = moves_of_depth - target * moves_of_other
        if corrected:
            weight_of_chance = 1 - target
            moved = moved - weight_of_chance * self.examples.chance
            error_of_chance = weight_of_chance * self.examples.chance_error
            if error_of_chance > 0:
                # A depth that is right on the other labels is lucky where chance is not. Then the
                # errors of both add up. Near t = 1 that is less than the two depths bring apart.
                error_of_depth = float(np.std(moves_of_depth))
                moved = _at_least(moved, error_of_depth + error_of_chance)
        weights = {candidate: 1.0, against: target}
        return self._without_flips(moved, weights)

    def _lower_moves(
        self,
        moved: Floats | None,
        candidate: Candidate,
        target: float,
        *,
        against: Candidate,
        corrected: bool,
        boundary: float,
    ) -> Floats | None:
        """Return [R], the cautious moves of a contrast, for its lower ends.

        moved: the others, as `_moved_contrast` gives them, and returned where they are as cautious.
        boundary: the quality at which the depth just keeps the target.
        """
        times = self._times_at(boundary, self.runs[candidate])
        if times > 1:
            moved = self._moved_contrast(
                candidate,
                target,
                against=against,
                corrected=corrected,
                times=times,
            )
        return self._less_hidden(moved, candidate, against)

    def _times_at(self, boundary: float, runs: CandidateRuns) -> float:
        """Return how much farther examples move a depth at the boundary than where it lies above.

        A correlation close to 1 hardly moves in resamples. If luck carried it there, it seems far
        surer than it is; runs without a mistake have an allowance of their own. A boundary below
        0, of a full model worse than guessing, counts as 0.
        """
        boundary = max(boundary, 0.0)
        if self.examples is None or self.examples.metric is None or runs.mean <= boundary:
            return 1.0
        if runs.candidate in self.examples.falls:
            return 1.0
        kernel = kernel_of(self.examples.metric)
        at_boundary = kernel.spread_at(boundary)
        if at_boundary == 0:  # the metric's best
            return 1.0
        least = at_boundary / _MOST_TIMES
        return max(1.0, at_boundary / max(kernel.spread_at(runs.mean), least))

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
        return rounding_variance(qualities, self.policy.exact_decimals)

    def _unseen(self, runs: CandidateRuns, seeds: int) -> tuple[float, float]:
        """Return how far collapses move a depth's mean, and its variance beyond what runs show.

        They are taken to be as frequent there as over all depths that learn: a fifth of seeds
        collapsing is often invisible in three seeds, but not in all depths'. seeds: how many the
        mean is of, or is to be of.
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
            within = variance_of_runs(working)
        between = failing * succeeding * fall**2
        variance_of_run = succeeding * within + between
        variance_of_mean = variance_of_run / seeds
        mean_with_collapses = working_mean - failing * fall
        move = mean_with_collapses - runs.mean
        shown = self.spread(runs.candidate, seeds)
        more_variance = variance_of_mean - shown.variance
        return move, max(0.0, more_variance)


def _interval(
    value: float,
    moved: Floats | None,
    lower_moves: Floats | None,
    *,
    seeds: Sequence[Spread],
    ends: Ends,
) -> Interval:
    """Return an interval whose lower ends have moves of their own. moved: [R], as `interval_of`."""
    interval = interval_of(value, moved, seeds=seeds, ends=ends)
    if lower_moves is moved:
        return interval
    lowered = interval_of(value, lower_moves, seeds=seeds, ends=ends)
    return dataclasses.replace(interval, low=lowered.low, lower=lowered.lower)


def _at_least(moved: Floats, error: float) -> Floats:
    """Return [R], moves with this standard error, or with their own if it is larger."""
    own_error = float(np.std(moved))
    return moved * max(1.0, error / own_error)


def excluded_failure_rate(seeds: int) -> float:
    """Return the share of failing seeds that S without a failure leave possible at 95 %."""
    succeeding = 0.05 ** (1 / seeds)
    return float(1 - succeeding)
