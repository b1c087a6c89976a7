"""What a search can certify, estimated before it trains: from its evaluation rows and seeds alone.

For a metric that is a share of the examples. Nothing is known yet of the model, so that its scores
are assumed: the full model's to lie halfway between guessing and 1, seeds to spread as the policy
says, and depths to be right on the same examples as MiniLM's are in the laboratory's tables. How
good that is: bench/power.py.
"""

import math
from dataclasses import dataclass

from elsa_tune.analysis.forecast import MOST_TIMES_ROWS, round_numbers

# Of one example's variance, q (1 - q) with quality q, what stays in the contrast of a depth that
# lies near the target, for the depth and the full model are right on unlike examples; and what
# seeds of one depth answer differently. Means over such depths of the laboratory's tables (bench/power.py).
PAIRED_SHARE = 0.35
FLIPPED_SHARE = 0.2

# How far above the target a depth is said to lie, and the share of cases that is asked for.
MARGIN = 0.03
PROBABLY = 0.8

# Margins are tried in steps of half a point.
_STEP = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What is estimated of one planned test of a depth."""

    guessing: float  # quality of a constant answer
    target: float
    seeds: int  # of the depth
    full_seeds: int
    level: float  # one-sided
    seed_spread: float  # standard deviation of one run on the same examples, but for their flips

    @property
    def full(self) -> float:
        """The quality that the full model is assumed to have."""
        return (1 + self.guessing) / 2

    def share_certified(self, rows: int, margin: float) -> float:
        """Return in which share of cases a depth that truly lies so far above is certified.

        The sum of examples and seeds by Student's t, with the degrees of freedom of Welch and
        Satterthwaite: not central, because the depth lies above the target.
        """
        from scipy.special import nctdtr, stdtrit

        of_one_example = self.full * (1 - self.full)
        by_examples = PAIRED_SHARE * of_one_example / rows
        of_one_run = self.seed_spread**2 + FLIPPED_SHARE * of_one_example / rows
        of_depth = of_one_run / self.seeds
        of_full = self.target**2 * of_one_run / self.full_seeds
        variance = by_examples + of_depth + of_full
        inverse = of_depth**2 / (self.seeds - 1) + of_full**2 / (self.full_seeds - 1)
        freedom = variance**2 / inverse
        needed = stdtrit(freedom, 1 - self.level)
        return 1 - float(nctdtr(freedom, margin / math.sqrt(variance), needed))

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
