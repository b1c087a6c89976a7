"""How far each depth's quality can be trusted: seeds by Student's t, examples by resampling.

The estimand is the quality that a fresh seed can expect on fresh examples at the depth's learning
rate, collapsed seeds included. Resampling three to five seeds makes intervals far too narrow (a
percentile bootstrap over three is falsely positive 17 % of the time at a nominal 5 %), so the mean
over S seeds moves by Student's t, and the examples, common to all depths, by a bootstrap. The sum
of two such terms is the Behrens-Fisher problem, which drawing them independently solves
conservatively (Fisher 1935; Barnard 1984). What the seeds say, `seeds.py` knows.

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
    share_below,
    welch,
)
from elsa_tune.analysis.statistics.resampling import ExampleDraws, Floats
from elsa_tune.analysis.statistics.seeds import CandidateRuns, Seeds
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.policy import Policy, SeedTerms
from elsa_tune.tasks.types.registry import kernel_of

# How much farther than in its resamples a depth is taken to move, at most: one next to 1 does not
# move at all.
_MOST_TIMES = 50.0


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

    @functools.cached_property
    def _seeds(self) -> Seeds:
        """What the seeds say."""
        flips: Mapping[Candidate, float] = {}
        if self.examples is not None:
            flips = self.examples.flips
        return Seeds(
            runs=self.runs,
            chance=self.chance,
            flips=flips,
            are_exact=self.has_predictions,
            policy=self.policy,
        )

    def spread(self, candidate: Candidate, as_if_seeds: int | None = None) -> Spread:
        """Return how far the mean of a depth's seeds can be trusted. as_if_seeds: for S."""
        return self._seeds.spread(candidate, as_if_seeds)

    def is_rounding_alone(self, candidate: Candidate) -> bool:
        """Whether a depth's spread is no more than what its scores were rounded by, or nothing."""
        return self._seeds.is_rounding_alone(candidate)

    def failures(self) -> tuple[int, int]:
        """Count the failed and all runs of the depths that learn; (0, 0) with chance unknown."""
        return self._seeds.failures()

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
        if tuned is None or other is None or not self._seeds.are_enough(tuned, other):
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
        tuned_term = self._seeds.term(tuned, 1.0, tuned_seeds)
        other_term = self._seeds.term(other, -target, other_seeds)
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

    def _without_flips(self, moved: Floats, weights: Mapping[Candidate, float]) -> Floats:
        """Return the moves of a weighted sum of depths, less the flips that seeds' spread has."""
        variance = float(np.var(moved))
        if variance == 0:
            return moved
        counted_twice = 0.0
        for candidate, weight in weights.items():
            flips = self._seeds.flips_of(candidate)
            seeds = self.runs[candidate].count
            counted_twice += weight**2 * flips / seeds
        share_left = 1 - counted_twice / variance
        share_kept = max(share_left, self.policy.least_example_share)
        return moved * math.sqrt(share_kept)


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
