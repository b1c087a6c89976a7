"""What a search can certify, estimated before it trains: from its evaluation rows and seeds alone.

For a metric that is a share of the examples. Nothing is known yet of the model, so that its scores
are assumed: the full model's to lie halfway between guessing and 1, seeds to spread as the policy
says, and depths to be right on the same examples as MiniLM's are in the laboratory's tables. How
good that is: bench/power.py.
"""

import math
from dataclasses import dataclass

import numpy as np

from elsa_tune.analysis.evidence import NORMAL
from elsa_tune.analysis.forecast import MOST_TIMES_ROWS, round_numbers
from elsa_tune.analysis.statistics.resampling import Floats

# Of one example's variance, q (1 - q) with quality q, what stays in the contrast of a depth that
# lies near the target, for the depth and the full model are right on unlike examples; and what
# seeds of one depth answer differently. Means over such depths of the laboratory's tables
# (bench/power.py).
PAIRED_SHARE = 0.35
FLIPPED_SHARE = 0.2

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
    target: float
    tests: tuple[PlannedTest, ...]  # one or two, the second with the seeds of the first and more
    seed_spread: float  # standard deviation of one run on the same examples, but for their flips

    @property
    def full(self) -> float:
        """The quality that the full model is assumed to have."""
        return (1 + self.guessing) / 2

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
        first, second = shares
        return _either(first, second, correlation=math.sqrt(variances[1] / variances[0]))

    def _by_test(self, test: PlannedTest, rows: int, margin: float) -> tuple[float, float]:
        """Return the variance of a test's contrast, and in which share of cases it rejects.

        The test knows the spread of seeds only from its few: each depth's is that of a scaled
        chi-square, here at the middles of equal shares, and what it needs follows by Welch's
        degrees of freedom. Examples are added in quadrature, as good as their convolution.
        """
        from scipy.special import ndtr, ndtri, stdtrit

        of_one_example = self.full * (1 - self.full)
        by_examples = PAIRED_SHARE * of_one_example / rows
        flips = FLIPPED_SHARE * of_one_example / rows
        of_one_run = self.seed_spread**2 + flips
        variance = by_examples + of_one_run / test.seeds
        variance += self.target**2 * of_one_run / test.full_seeds

        # A certificate takes a spread for no less than what its runs answer differently.
        of_depth = np.maximum(of_one_run * _scaled_chi_squares(test.seeds - 1), flips)
        of_full = np.maximum(of_one_run * _scaled_chi_squares(test.full_seeds - 1), flips)
        depth_term = of_depth[:, None] / test.seeds
        full_term = self.target**2 * of_full[None, :] / test.full_seeds
        of_seeds = depth_term + full_term
        inverse = depth_term**2 / (test.seeds - 1) + full_term**2 / (test.full_seeds - 1)
        by_seeds = stdtrit(of_seeds**2 / inverse, 1 - test.level) * np.sqrt(of_seeds)
        needed = np.hypot(by_seeds, ndtri(1 - test.level) * math.sqrt(by_examples))
        return variance, float(np.mean(ndtr((margin - needed) / math.sqrt(variance))))

    def rows_needed(self, rows: int, margin: float) -> int | None:
        """Return how many rows such a depth probably takes, more than these; None for too many."""
        for number in round_numbers(rows, MOST_TIMES_ROWS * rows):
            if self.share_certified(number, margin) >= PROBABLY:
                return number
        return None

    def margin_needed(self, rows: int) -> float | None:
        """Return how far above the target a depth must lie to be probably certified.

        In steps of half a point; None where even a perfect one is not.
        """
        most = 1 - self.target * self.full
        for steps in range(1, int(most / _STEP) + 1):
            if self.share_certified(rows, steps * _STEP) >= PROBABLY:
                return steps * _STEP
        return None


def _scaled_chi_squares(freedom: int) -> Floats:
    """Return estimates of a variance of 1, each as likely as another."""
    from scipy.special import chdtri

    shares_above = (np.arange(_POINTS) + 0.5) / _POINTS
    return np.asarray(chdtri(freedom, shares_above) / freedom)


def _either(first: float, second: float, *, correlation: float) -> float:
    """Return how often one or the other of two tests rejects, each as often as given."""
    from scipy.integrate import quad

    passes_first = NORMAL.inv_cdf(first)
    passes_second = NORMAL.inv_cdf(second)
    scale = math.sqrt(max(1 - correlation**2, 1e-9))

    def density(z: float) -> float:
        return NORMAL.pdf(z) * NORMAL.cdf((-passes_second - correlation * z) / scale)

    neither, _ = quad(density, -9.0, -passes_first, epsabs=1e-9)
    return 1 - float(neither)
