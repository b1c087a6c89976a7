"""Beyond the rates that a search was given: which one a depth tries next, if any.

The given range (1e-5..5e-5) was made for the full model. A single layer or a bare head wants ten
to fifty times more, and a freeze curve is only as fair as its rates. So a depth whose best rate
lies at the border goes on outward, one rate at a time, while it improves by more than noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from elsa_tune.search.planning.known import KnownTrial
from elsa_tune.specs.border import has_learnt, plateau
from elsa_tune.specs.search import Extension, SearchSpec
from elsa_tune.specs.trial import TrialStatus, canonical_rate

FACTOR = 2.0
# A rate lent by a neighbour may skip some; a wider gap above the best is filled at its lower end.
WIDEST_GAP = 4.5
# Nearer to a rate that was tried, a bound is not worth a trial.
LEAST_STEP = 1.2


def outward(
    spec: SearchSpec,
    tried: Sequence[KnownTrial],
    patience: int = 1,
    lent: float | None = None,
    may_learn: bool = False,
) -> float | None:
    """The next rate beyond those tried, None where the best one lies inside, a bound is reached or
    the depth has had all its trials.

    tried: all that the depth has had, one or more, each ended; the first `spec.tries` of them were
    tries of the given range. patience: how many rates beyond its best the depth tries before it
    stops. lent: the best rate of the next shallower depth, None where it has none. may_learn: that
    nothing was learnt at any rate so far does not mean that nothing can be, because the full model
    does learn.
    """
    bounds, chance = spec.extend, spec.chance
    if bounds is None or len(tried) >= spec.tries + bounds.tries:
        return None
    rates = sorted({one.trial.learning_rate for one in tried})
    diverged = [one.trial.learning_rate for one in tried if one.status is TrialStatus.DIVERGED]
    scores = scores_of(tried)
    if not scores:
        return _below(rates[0], bounds) if len(diverged) == len(tried) else None
    if not has_learnt(scores, chance):
        if may_learn:
            return None if diverged else _above(rates[-1], bounds, lent)
        if len(tried) > spec.tries:
            return None
        return _below(rates[0], bounds) if diverged else _above(rates[-1], bounds, lent)
    low, high = plateau(scores)
    above = [rate for rate in rates if rate > low]
    if above and above[0] > WIDEST_GAP * low:
        return canonical_rate(FACTOR * low)
    if len(above) < patience and not any(rate > low for rate in diverged):
        return _above(rates[-1], bounds, lent)
    return _below(rates[0], bounds) if high == rates[0] else None


def scores_of(tried: Sequence[KnownTrial]) -> dict[float, float]:
    """The score of each rate that ran to its end."""
    return {
        one.trial.learning_rate: one.score
        for one in tried
        if one.status is TrialStatus.COMPLETED and one.score is not None
    }


def _above(rate: float, bounds: Extension, lent: float | None) -> float | None:
    return _inside(max(FACTOR * rate, lent or 0.0), rate, bounds)


def _below(rate: float, bounds: Extension) -> float | None:
    return _inside(rate / FACTOR, rate, bounds)


def _inside(wanted: float, rate: float, bounds: Extension) -> float | None:
    """Cut off at the bounds; None where that is hardly another rate."""
    found = min(max(wanted, bounds.low), bounds.high)
    return canonical_rate(found) if max(found / rate, rate / found) >= LEAST_STEP else None
