"""Proposals of learning rates within the given range, by an Optuna study of each depth's own.

One study for all would give the full model fifteen tries of forty, and nine frozen layers two.
"""

import math
from decimal import Decimal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from elsa_tune.searching.planning.known import KnownTrial, Trials
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.rate_space import RateList, RateSpace, canonical_rate
from elsa_tune.specs.search import SamplerName, SearchSpec

LEARNING_RATE = "learning_rate"


def rate_distribution(rates: RateSpace) -> BaseDistribution:
    """Return stepped or log-uniform for a range, categorical for a list."""
    if isinstance(rates, RateList):
        return CategoricalDistribution(rates.values)
    if rates.step is not None:
        # Unlike its values, it is not rounded: Optuna takes no rate that lies between two steps.
        highest = _at_step(rates.steps, rates.low, rates.step)
        return FloatDistribution(rates.low, highest, step=rates.step)
    return FloatDistribution(rates.low, rates.high, log=True)


def first_points(rates: RateSpace) -> tuple[float, ...]:
    """Return the highest rate, the one nearest to the geometric middle, the lowest.

    The highest first: it is the best more often than not, and what early stopping compares with.
    """
    values = rates.values
    if values is None:
        assert not isinstance(rates, RateList)
        geometric_middle = math.sqrt(rates.low * rates.high)
        values = (rates.low, canonical_rate(geometric_middle), rates.high)
    lowest = values[0]
    highest = values[-1]
    centre = math.log(lowest * highest) / 2

    def distance(rate: float) -> float:
        place = math.log(rate)
        return abs(place - centre)

    middle = min(values, key=distance)
    points = dict.fromkeys((highest, middle, lowest))
    return tuple(points)


def _evenly_spaced(ends: tuple[float, float], count: int) -> tuple[float, ...]:
    """Return so many rates from the lowest to the highest, each by one factor above the last.

    Of one alone it is the highest.
    """
    low, high = ends
    gaps = max(1, count - 1)
    factor = (low / high) ** (1 / gaps)
    downward = [canonical_rate(high * factor**number) for number in range(count)]
    return tuple(reversed(downward))


def propose(spec: SearchSpec, candidate: Candidate, tried: Trials) -> float:
    """Return a rate of the given range that the depth has not tried, where there is one.

    Deterministic for one sequence of results: seeded by the search's seed, the depth and the number
    of tries it has had. tried: the depth's, those that still run included.
    """
    used = {trial.learning_rate for trial in tried}
    rates = spec.rates_for(candidate)
    values = rates.values or ()
    if spec.sampler is SamplerName.GRID and rates.values is None:
        values = _evenly_spaced(spec.given_rates(candidate), spec.tries)
    untried = [value for value in values if value not in used]
    if spec.sampler is SamplerName.GRID and untried:
        return untried[-1]
    proposals = _proposals(spec, candidate, tried)
    for rate in proposals:
        if rate not in used:
            return rate
    first = proposals[0]

    def distance(rate: float) -> float:
        factor = rate / first
        return abs(math.log(factor))

    return min(untried, key=distance, default=first)


def _proposals(spec: SearchSpec, candidate: Candidate, tried: Trials) -> list[float]:
    """Return rates in the order in which the depth's own study asks for them."""
    is_tpe = spec.sampler is SamplerName.TPE
    entropy = (spec.seed, *candidate.entropy, len(tried))
    seed_sequence = np.random.SeedSequence(entropy)
    seed = int(seed_sequence.generate_state(1)[0])
    sampler: BaseSampler
    if is_tpe:
        sampler = TPESampler(
            seed=seed,
            n_startup_trials=spec.policy.first_points,
        )
    else:
        sampler = RandomSampler(seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    rates = spec.rates_for(candidate)
    distribution = rate_distribution(rates)
    values = rates.values
    for trial in tried:
        if values is None or trial.learning_rate in values:
            recorded = _as_trial(trial, distribution)
            study.add_trial(recorded)
    if is_tpe:
        for point in first_points(rates):
            inside = _inside(point, distribution)
            study.enqueue_trial({LEARNING_RATE: inside}, skip_if_exists=True)
    proposals = []
    for _ in range(spec.policy.ask_limit):
        proposal = study.ask({LEARNING_RATE: distribution})
        rate = canonical_rate(proposal.params[LEARNING_RATE])
        proposals.append(rate)
    return proposals


def _as_trial(trial: KnownTrial, distribution: BaseDistribution) -> FrozenTrial:
    """Return a trial for the study; a stopped one is PRUNED, which TPE ranks lower."""
    scores = trial.scores
    if trial.is_unfinished:  # it is to run again, and only its rate counts
        scores = ()
    value = None
    if not scores:
        state = TrialState.RUNNING
    elif trial.is_completed:
        state = TrialState.COMPLETE
        value = trial.score
    else:
        state = TrialState.PRUNED
    rate = _inside(trial.learning_rate, distribution)
    numbered_scores = enumerate(scores, start=1)
    return optuna.trial.create_trial(
        params={LEARNING_RATE: rate},
        distributions={LEARNING_RATE: distribution},
        value=value,
        intermediate_values=dict(numbered_scores),
        state=state,
    )


def _inside(rate: float, distribution: BaseDistribution) -> float:
    """Return the rate inside its range, at a step of it, from which rounding may have moved it."""
    if not isinstance(distribution, FloatDistribution):
        return rate
    raised = max(rate, distribution.low)
    bounded = min(raised, distribution.high)
    if distribution.step is None:
        return bounded
    steps = (bounded - distribution.low) / distribution.step
    return _at_step(round(steps), distribution.low, distribution.step)


def _at_step(number: int, low: float, step: float) -> float:
    """Return the rate so many steps above the lowest, in decimals, as Optuna counts them."""
    return float(Decimal(str(low)) + number * Decimal(str(step)))
