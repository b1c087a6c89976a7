"""How far the seeds of each depth can be trusted, by Student's t.

By searches of the first rule the spread of the other depths counts as a prior (Smyth 2004, Stat.
Appl. Genet. Mol. Biol. 3, 3); by today's each depth's own alone. Runs that fail now and then are
expected at every depth.

Letters in shape comments: S seeds.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from elsa_tune.analysis.statistics.intervals import (
    SAME_QUALITY,
    Spread,
    rounding_variance,
    variance_of_runs,
)
from elsa_tune.analysis.statistics.resampling import Floats
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.policy import Policy


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
class SeedTerm:
    """What the seeds of one depth bring into a contrast."""

    spread: Spread  # with the variance of collapses that its runs did not show
    allowance: float  # how much such collapses would lower the contrast's value, at least 0


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """What the seeds of one freeze curve say."""

    runs: Mapping[Candidate, CandidateRuns]  # of the depths whose runs are known one by one
    chance: float | None  # the quality of the best constant answer; None where not known
    # By depth, the variance of a run by what equal runs answer differently (`ExampleDraws.flips`).
    flips: Mapping[Candidate, float]
    are_exact: bool  # whether qualities are known to the last digit, and not as printed
    policy: Policy  # the constants that the answer is judged by

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
        variance_of_run = max(pooled_variance, self.flips_of(candidate))
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

    def term(self, runs: CandidateRuns, weight: float, seeds: int) -> SeedTerm:
        """Return what a depth's seeds bring into a contrast that has its mean with this weight."""
        move, more_variance = self._unseen(runs, seeds)
        seen = self.spread(runs.candidate, seeds)
        variance = seen.variance + more_variance
        weighted = Spread(
            variance=weight**2 * variance,
            freedom=seen.freedom,
        )
        fall = -weight * move
        return SeedTerm(
            spread=weighted,
            allowance=max(0.0, fall),
        )

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

    def are_enough(self, tuned: CandidateRuns, other: CandidateRuns) -> bool:
        """Whether there are enough seeds, of both depths and in all, to tell their spread."""
        if min(tuned.count, other.count) < self.policy.fewest_seeds:
            return False
        freedom = 0
        for runs in {tuned, other, *self._learning}:
            freedom += runs.count - 1
        return freedom >= self.policy.fewest_freedom

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

    def flips_of(self, candidate: Candidate) -> float:
        """Return ExampleDraws.flips; 0 where a seed failed, which differs for that reason."""
        has_failed_seed = any(self.runs[candidate].failed)
        if has_failed_seed:
            return 0.0
        return self.flips.get(candidate, 0.0)

    @functools.cached_property
    def _rounding(self) -> float:
        """The variance of a quality's rounding when written down: .801 may be .8005 to .8015."""
        if self.are_exact:
            return 0.0
        qualities: list[float] = []
        for runs in self.runs.values():
            qualities += runs.qualities
        return rounding_variance(qualities, self.policy.exact_decimals)


def excluded_failure_rate(seeds: int) -> float:
    """Return the share of failing seeds that S without a failure leave possible at 95 %."""
    succeeding = 0.05 ** (1 / seeds)
    return float(1 - succeeding)
