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
    reduce it. The margins by seeds and by examples are added by their squares: counted as degrees
    of freedom, examples would let few seeds pass for certain. With one run the spread is not known:
    a quality that the examples alone cannot tell from chance has not learnt, any other is untested.
    """
    # The best constant answer scores at least 0 on every metric we know.
    guessing = chance or 0.0
    if quality <= guessing + policy.at_chance:
        return Learnt.NO
    if chance is None:
        return Learnt.UNTESTED
    by_examples = student_quantiles(math.inf, policy.confidence) * math.sqrt(example_variance)
    by_seeds = 0.0
    if spread is not None and spread.variance > 0:
        quantile = student_quantiles(spread.freedom, policy.confidence)
        by_seeds = float(quantile) * math.sqrt(spread.variance)
    if quality - chance <= math.hypot(by_seeds, by_examples):
        return Learnt.NO
    if spread is None:
        return Learnt.UNTESTED
    return Learnt.YES
