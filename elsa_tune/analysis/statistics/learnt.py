"""Did the full model learn? A one-sided 95 % test of its quality against a constant answer's."""

from __future__ import annotations

import enum
import math

from elsa_tune.analysis.statistics.uncertainty import CONFIDENCE, Spread

# A seed within this of chance has not left it: chance is often printed with four decimals.
AT_CHANCE = 5e-5


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
    examples: int | None = None,
    is_accuracy: bool = False,
    example_variance: float | None = None,
) -> Learnt:
    """Test whether the quality a fresh seed can expect lies above chance, one-sided at 95 %.

    quality: the mean over seeds, in [-1, 1]. spread: of that mean. examples: evaluation examples E.
    is_accuracy: the quality is a share of right answers, so that E alone tells how far it can be
    trusted. example_variance: of quality above chance, by resampling the examples in whatever
    metric. None where not known.

    To the variance over seeds that of the evaluation examples is added, as resampled, or, where
    only E is known and quality is accuracy, the binomial q (1 - q) / E (all seeds are judged by the
    same examples, so that more seeds do not reduce it); degrees of freedom by Welch-Satterthwaite.
    With one run the spread is not known: a quality that the examples alone cannot tell from chance
    has not learnt, any other is untested.
    """
    # The best constant answer scores at least 0 on every metric we know.
    if quality <= (chance or 0.0) + AT_CHANCE:
        return Learnt.NO
    if chance is None:
        return Learnt.UNTESTED
    margin = quality - chance
    of_examples = example_variance or 0.0
    if example_variance is None and is_accuracy and examples:
        of_examples = max(quality * (1 - quality), 0.0) / examples
    if spread is None:
        beyond = margin > _quantile(math.inf) * math.sqrt(of_examples)
        return Learnt.UNTESTED if beyond else Learnt.NO
    of_seeds = spread.variance
    freedom = math.inf
    if of_seeds > 0:
        freedom = (of_seeds + of_examples) ** 2 * spread.freedom / of_seeds**2
    needed = _quantile(freedom) * math.sqrt(of_seeds + of_examples)
    return Learnt.YES if margin > needed else Learnt.NO


def _quantile(freedom: float) -> float:
    """The one-sided 95 % quantile of Student's t."""
    # scipy.special alone costs 0.15 s to import; scipy.stats three times that.
    from scipy.special import ndtri, stdtrit

    return float(ndtri(CONFIDENCE) if math.isinf(freedom) else stdtrit(freedom, CONFIDENCE))
