"""Whether a depth learns: whether a fresh seed can be expected to score above guessing."""

import enum
import math

from elsa_tune.analysis.statistics.intervals import Spread, student_quantiles
from elsa_tune.specs.policy import Policy


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
    margin = student_quantiles(freedom, policy.confidence) * standard_error
    if quality - chance <= margin:
        return Learnt.NO
    if spread is None:
        return Learnt.UNTESTED
    return Learnt.YES
