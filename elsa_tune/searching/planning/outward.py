"""The way outward: a depth's next rate where its best one lies at the border of what it tried."""

from dataclasses import dataclass

from elsa_tune.searching.planning.known import Trials, scores_of
from elsa_tune.specs.border import has_learnt, plateau
from elsa_tune.specs.rate_space import canonical_rate
from elsa_tune.specs.search import SearchSpec


def outward(
    spec: SearchSpec,
    tried: Trials,
    patience: int,
    lent_rate: float | None,
    may_learn: bool,
) -> float | None:
    """Return the next rate beyond those tried; None where the best lies inside, or none is left.

    tried: all that the depth has had, one or more, each ended. patience: how many rates beyond its
    best the depth tries before it stops. lent_rate: the best rate of the next shallower depth, None
    where it has none. may_learn: that nothing was learnt at any rate so far does not mean that
    nothing can be, because the full model does learn.
    """
    if spec.extend is None:
        return None
    rates = {trial.learning_rate for trial in tried}
    diverged = [trial.learning_rate for trial in tried if trial.is_diverged]
    tries = _Tried(
        spec=spec,
        rates=sorted(rates),
        scores=scores_of(tried),
        diverged=diverged,
        lent_rate=lent_rate,
        given=spec.given_rates(tried[0].candidate),
    )
    if not tries.scores:
        have_all_diverged = len(diverged) == len(tried)
        return tries.lower if have_all_diverged else None
    if has_learnt(tries.scores, spec.chance, spec.policy.noise):
        return _beyond_the_best(tries, patience)
    if not may_learn:
        return _where_nothing_learnt(tries)
    if diverged:
        return None
    return tries.higher


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """What a depth has tried."""

    spec: SearchSpec
    rates: list[float]  # ascending
    scores: dict[float, float]  # by the rates of completed trials
    diverged: list[float]  # rates at which a trial diverged
    lent_rate: float | None  # the best rate of the next shallower depth
    given: tuple[float, float]  # the lowest and the highest rate that it was given

    @property
    def lower(self) -> float | None:
        """The next rate below all of them; None where that is hardly another one."""
        lowest = self.rates[0]
        wanted = lowest / self.spec.policy.rate_factor
        return self._bounded(wanted, lowest)

    @property
    def higher(self) -> float | None:
        """The next rate above all of them, as far as the neighbour's; None as above."""
        highest = self.rates[-1]
        wanted = self.spec.policy.rate_factor * highest
        if self.lent_rate is not None:
            wanted = max(wanted, self.lent_rate)
        return self._bounded(wanted, highest)

    def _bounded(self, wanted: float, rate: float) -> float | None:
        """Return a rate on the wanted side of `rate`, within the extension's bounds.

        Rates that were given beyond these widen them. None where it is hardly another rate.
        """
        extend = self.spec.extend
        if extend is None:
            return None
        low = min(extend.low, self.given[0])
        high = max(extend.high, self.given[1])
        raised = max(wanted, low)
        bounded = min(raised, high)
        step = rate / bounded
        if wanted > rate:
            step = bounded / rate
        if step < self.spec.policy.least_step:
            return None
        return canonical_rate(bounded)


def _beyond_the_best(tries: _Tried, patience: int) -> float | None:
    """Return the next rate of a depth that learns at some rate."""
    policy = tries.spec.policy
    low, high = plateau(tries.scores, policy.noise)
    above = [rate for rate in tries.rates if rate > low]
    widest = policy.widest_gap * low
    if above and above[0] > widest:
        return canonical_rate(policy.rate_factor * low)
    has_diverged_above = any(rate > low for rate in tries.diverged)
    if len(above) < patience and not has_diverged_above:
        return tries.higher
    if high == tries.rates[0]:
        return tries.lower
    return None


def _where_nothing_learnt(tries: _Tried) -> float | None:
    """Return the next rate of a depth that learns at none, where the full model learns neither."""
    lowest_given, highest_given = tries.given
    lowest = tries.rates[0]
    highest = tries.rates[-1]
    if lowest > lowest_given:  # large models are known to collapse at higher ones
        return lowest_given
    if lowest < lowest_given or highest > highest_given:
        return None
    if tries.diverged:
        return tries.lower
    return tries.higher
