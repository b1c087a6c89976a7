"""What a search can certify, estimated before it trains: from its evaluation rows and seeds alone.

For a metric that is a share of the examples. Nothing is known yet of the model, so that its scores
are assumed: the full model's to lie halfway between guessing and 1, seeds to spread as the policy
says, and depths to be right on the same examples as MiniLM's are in the laboratory's tables. How
good that is: bench/power.py.
"""

import math
from dataclasses import dataclass

import numpy as np

from elsa_tune.analysis.answer import score_at_target
from elsa_tune.analysis.evidence import NORMAL
from elsa_tune.analysis.forecast import MOST_TIMES_ROWS, first, round_numbers
from elsa_tune.analysis.statistics.hidden_mistakes import FEW_MISTAKES
from elsa_tune.analysis.statistics.resampling import Floats

# Of one example's variance, q (1 - q) with quality q, what stays in the contrast of a depth that
# lies near the target, for the depth and the full model are right on unlike examples; and what
# seeds of one depth answer differently. Means over such depths of the laboratory's tables
# (bench/power.py).
PAIRED_SHARE = 0.35
FLIPPED_SHARE = 0.2

# Below this target nothing is estimated. The shares above are those of depths that lie next to the
# full model; a depth far below it is right on other examples, and how alike they are is not known.
LEAST_TARGET = 0.8

# How far above the target a depth is said to lie, and the share of cases that is asked for.
MARGIN = 0.03
PROBABLY = 0.8

# At how many points of its distribution a spread that is estimated from seeds is taken.
_POINTS = 100

# Margins are tried in steps of half a point.
_STEP = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTest:
    """One planned look at a depth."""

    seeds: int  # of the depth, 2 or more
    full_seeds: int  # likewise
    level: float  # the error that it may spend, one-sided


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What is estimated of the planned tests of a depth."""

    guessing: float  # quality of a constant answer
    target: float  # the share of the full model's quality that a depth must keep
    tests: tuple[PlannedTest, ...]  # one or two, the second with the seeds of the first and more
    seed_spread: float  # standard deviation of one run on the same examples, but for their flips

    @property
    def is_known(self) -> bool:
        """Whether the target is high enough for an estimate."""
        return self.target >= LEAST_TARGET

    @property
    def full(self) -> float:
        """The quality that the full model is assumed to have."""
        twice = 1 + self.guessing
        return twice / 2

    @property
    def enough(self) -> float:
        """The quality that keeps the target of what the full model gains over guessing."""
        return score_at_target(self.full, self.target, self.guessing)

    def share_certified(self, rows: int, margin: float) -> float:
        """Return in which share of cases a depth that truly lies so far above is certified.

        Where it may be tested twice, that is by either test; a hunt leaves out a second one that
        promises little.
        """
        variances: list[float] = []
        shares: list[float] = []
        for test in self.tests:
            variance, share = self._by_test(test, rows, margin)
            variances.append(variance)
            shares.append(share)
        if len(shares) == 1:
            return shares[0]
        first_share, second_share = shares
        first_variance, second_variance = variances
        correlation = math.sqrt(second_variance / first_variance)
        return _either(first_share, second_share, correlation=correlation)

    def _by_test(
        self,
        test: PlannedTest,
        rows: int,
        margin: float,
    ) -> tuple[float, float]:
        """Return the variance of a test's contrast, and in which share of cases it rejects.

        Examples are added in quadrature, as good as their convolution.
        """
        from scipy.special import ndtr

        wrong = 1 - self.full
        of_one_example = self.full * wrong
        by_examples = PAIRED_SHARE * of_one_example / rows
        flips = FLIPPED_SHARE * of_one_example / rows
        of_one_run = self.seed_spread**2 + flips
        of_depth = of_one_run / test.seeds
        of_full = self.target**2 * of_one_run / test.full_seeds
        variance = by_examples + of_depth + of_full

        for_seeds = self._needed_for_seeds(test, of_one_run, flips)
        hidden = self._share_hidden(rows, margin) / rows
        for_examples = _upper_end(test.level, math.sqrt(by_examples), hidden)
        needed = np.hypot(for_seeds, for_examples)
        standard_error = math.sqrt(variance)
        beyond_needed = (margin - needed) / standard_error
        share = np.mean(ndtr(beyond_needed))
        return variance, float(share)

    def _share_hidden(self, rows: int, margin: float) -> float:
        """Return how much of one more mistake a run of the depth may hide, as hidden_mistakes.py.

        Its mistakes count where the full model is right, which follows from how often the two are
        right on unlike examples. The depth is taken for no better than the full model.
        """
        lost = max(self.full - self.enough - margin, 0.0)
        of_one_example = self.full * (1 - self.full)
        share_unlike = (PAIRED_SHARE + FLIPPED_SHARE) * of_one_example
        share_mistaken = (share_unlike + lost) / 2
        mistakes = rows * share_mistaken
        return max(0.0, 1 - mistakes / FEW_MISTAKES)

    def _needed_for_seeds(
        self,
        test: PlannedTest,
        of_one_run: float,
        flips: float,
    ) -> Floats:
        """Return how far above 0 a contrast must lie for its seeds, [depth's, full model's spread].

        The test knows the spread of seeds only from its few: each depth's is that of a scaled
        chi-square, here at the middles of equal shares, and what it needs follows by Welch's
        degrees of freedom. of_one_run: the true variance. flips: what of it runs show in any case.
        """
        from scipy.special import stdtrit

        depth_freedom = test.seeds - 1
        full_freedom = test.full_seeds - 1
        of_depth = _estimates(of_one_run, flips, depth_freedom)
        of_full = _estimates(of_one_run, flips, full_freedom)
        depth_term = of_depth[:, None] / test.seeds
        full_term = self.target**2 * of_full[None, :] / test.full_seeds
        variance = depth_term + full_term
        depth_part = depth_term**2 / depth_freedom
        full_part = full_term**2 / full_freedom
        inverse_freedom = depth_part + full_part
        freedom = variance**2 / inverse_freedom
        students = stdtrit(freedom, 1 - test.level)
        return np.asarray(students * np.sqrt(variance))

    def rows_needed(self, rows: int, margin: float) -> int | None:
        """Return how many rows such a depth probably takes, more than these; None for too many."""
        most = MOST_TIMES_ROWS * rows
        choices = round_numbers(rows, most)

        def certifies(number: int) -> bool:
            return self.share_certified(number, margin) >= PROBABLY

        return first(choices, certifies)

    def margin_needed(self, rows: int) -> float | None:
        """Return how far above the target a depth must lie to be probably certified.

        In steps of half a point; None where even a perfect one is not.
        """
        most = 1 - self.enough
        most_steps = int(most / _STEP)
        for steps in range(1, most_steps + 1):
            margin = steps * _STEP
            share = self.share_certified(rows, margin)
            if share >= PROBABLY:
                return margin
        return None


def _upper_end(level: float, deviation: float, mean_hidden: float) -> float:
    """Return what a normal deviation and a hidden fall, exponential, exceed together this often.

    (Grushka 1972, Anal. Chem. 44, "Characterization of exponentially modified Gaussian peaks".)
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr, ndtri

    normal_end = float(-ndtri(level) * deviation)
    if mean_hidden <= deviation / 1000:  # its share is then lost in rounding
        return normal_end
    ratio = deviation / mean_hidden

    def excess(end: float) -> float:
        """Return how much more often than asked the sum exceeds an end."""
        normal_alone = math.exp(log_ndtr(-end / deviation))
        log_tail = ratio**2 / 2 - end / mean_hidden + log_ndtr(end / deviation - ratio)
        return normal_alone + math.exp(log_tail) - level

    most = normal_end - mean_hidden * math.log(level / 2) + 6 * deviation
    return float(brentq(excess, normal_end, most, xtol=1e-9))


def _estimates(variance: float, flips: float, freedom: int) -> Floats:
    """Return estimates of a run's variance, each as likely as another, [_POINTS].

    A certificate takes a spread for no less than what its runs answer differently (flips).
    """
    estimates = variance * _scaled_chi_squares(freedom)
    return np.maximum(estimates, flips)


def _scaled_chi_squares(freedom: int) -> Floats:
    """Return estimates of a variance of 1, each as likely as another."""
    from scipy.special import chdtri

    strata = np.arange(_POINTS)
    shares_above = (strata + 0.5) / _POINTS
    chi_squares = chdtri(freedom, shares_above)
    return np.asarray(chi_squares / freedom)


def _either(first: float, second: float, *, correlation: float) -> float:
    """Return how often one or the other of two tests rejects, each as often as given."""
    from scipy.integrate import quad

    passes_first = NORMAL.inv_cdf(first)
    passes_second = NORMAL.inv_cdf(second)
    left_over = 1 - correlation**2
    scale = math.sqrt(max(left_over, 1e-9))

    def density(z: float) -> float:
        """Return how likely the first test finds z and the second does not reject."""
        expected = correlation * z
        shortfall = (-passes_second - expected) / scale
        return NORMAL.pdf(z) * NORMAL.cdf(shortfall)

    neither, _ = quad(
        density,
        -9.0,
        -passes_first,
        epsabs=1e-9,
    )
    return 1 - float(neither)
