"""One Optuna study of learning rates and candidates, which neighbouring candidates share."""

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState

from elsa_tune.searching.planning.known import (
    KnownTrial,
    Trials,
    relative_cost,
    scores_of,
    tries_of,
)
from elsa_tune.searching.planning.neighbours import CANDIDATE, LEARNING_RATE, RANK, NeighbourSampler
from elsa_tune.searching.planning.proposals import first_points, propose
from elsa_tune.searching.planning.rates import GivenThenOutward, Rates, best_rate, have_all_ended
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.border import Border, border
from elsa_tune.specs.rate_space import canonical_rate
from elsa_tune.specs.search import SearchSpec

# The lowest and the highest rate that may be tried.
Bounds = tuple[float, float]
# A rate, and by how much it promises to raise the best score.
Proposal = tuple[float, float]


class OneStudy(Rates):
    """One Optuna study of rates and a family's candidates, so that neighbours inform each other.

    A candidate ends once no rate promises enough for what a trial costs, and rates on both sides of
    its best one have been tried. Without an extension it has its planned tries, within the given
    rates. The full model goes outward from its first rates where it may: everything is compared
    with it, and what neighbours suggest was a little worse there (bench/samplers.py).
    """

    def __init__(self, spec: SearchSpec) -> None:
        super().__init__(spec)
        self._outward = GivenThenOutward(spec)
        # The last study, and what it was made of: its bounds and trials.
        self._study: optuna.Study | None = None
        self._study_content: object = None
        # What was proposed to each candidate, by the rates it was allowed, and of what content. Ray
        # Tune asks many times a second while it waits, and each proposal adds a trial to the study.
        self._proposals: dict[Candidate, dict[tuple[float, ...], Proposal]] = {}
        self._proposed_of: dict[Candidate, object] = {}

    def most(self, candidate: Candidate) -> int:
        return self._outward.most(candidate)

    @property
    def further_words(self) -> str:
        if self.spec.extend is None:
            return ""
        return ", then more while one promises enough"

    def in_turn(
        self,
        candidates: Sequence[Candidate],
        begun: Mapping[Candidate, int],
    ) -> Sequence[Candidate]:
        """Return those first that have had fewest: what they find is worth most to all."""
        return sorted(candidates, key=lambda candidate: begun[candidate])

    def next_rate(self, candidate: Candidate, exploring: Trials) -> float | None:
        family = [trial for trial in exploring if trial.candidate.family == candidate.family]
        tries = tries_of(family, candidate)
        count = len(tries)
        if count >= self.most(candidate):
            return None
        if count < self.planned(candidate):
            return self._planned_try(candidate, family, tries)
        return self._beyond_plan(candidate, family, tries)

    def _planned_try(
        self,
        candidate: Candidate,
        family: Trials,
        tries: Trials,
    ) -> float:
        """Return the rate of a try that a candidate has in any case."""
        if self._goes_outward(candidate):
            return self._unaided(candidate, tries)
        if not tries:
            return self._first_rate(candidate, family)
        rate = self._informed_rate(candidate, family, tries)
        if rate is None:
            rate = self._untried_rate(candidate, family, tries)
        return rate

    def _beyond_plan(
        self,
        candidate: Candidate,
        family: Trials,
        tries: Trials,
    ) -> float | None:
        """Return the rate of a try beyond the plan; None where it waits, or is not worth it."""
        if self._goes_outward(candidate) and self.has_learnt_at(tries):
            return self._outward.next_rate(candidate, family)
        if not have_all_ended(tries):
            return None
        if not self.has_learnt_at(tries):
            return self._blind(candidate, family)
        return self._promising_rate(candidate, family, tries)

    def _first_rate(self, candidate: Candidate, family: Trials) -> float:
        """Return the rate that a candidate begins with: its nearest neighbour's best one."""
        neighbour = self._nearest(candidate, family)
        if neighbour is None:
            return self._unaided(candidate, ())
        lent_rate = self._best_complete(neighbour, family)
        return self._near(candidate, lent_rate, ())

    def _informed_rate(
        self,
        candidate: Candidate,
        family: Trials,
        tries: Trials,
    ) -> float | None:
        """Return the rate of a further planned try, by what was tried so far.

        None where no rate is left on the side where a better one may lie, or far enough from those
        that were tried.
        """
        if not self.has_learnt_at(tries):
            return self._blind(candidate, family)
        ended = [trial for trial in family if trial.is_final]
        if len(ended) < 2:
            return self._unaided(candidate, tries)
        allowed = self._allowed(candidate, tries)
        rate, _ = self._ask(candidate, family, allowed)
        return rate

    def _untried_rate(
        self,
        candidate: Candidate,
        family: Trials,
        tries: Trials,
    ) -> float:
        """Return the most promising of all rates that a candidate has not tried."""
        untried = self._untried(candidate, tries)
        rate, _ = self._ask(candidate, family, untried)
        if rate is None:
            # A narrow range has fewer rates of two digits than tries.
            rate = propose(self.spec, candidate, tries)
        return rate

    def _promising_rate(
        self,
        candidate: Candidate,
        family: Trials,
        tries: Trials,
    ) -> float | None:
        """Return the rate that promises most, None where none is worth another try.

        What is on a side where a better rate may lie is worth it, whatever it promises.
        """
        allowed = self._allowed(candidate, tries)
        rate, gain = self._ask(candidate, family, allowed)
        if gain > self._worth(candidate):
            return rate
        side = self._side(tries)
        if side is None:
            return None
        allowed_on_side = self._allowed(candidate, tries, side)
        rate, _ = self._ask(candidate, family, allowed_on_side)
        return rate

    def may_go_on(self, candidate: Candidate, exploring: Trials) -> bool:
        tries = tries_of(exploring, candidate)
        if not self.has_learnt_at(tries):
            count = len(tries)
            return count < self.most(candidate)
        if not self._goes_outward(candidate):
            return False
        return self._outward.may_go_on(candidate, exploring)

    def _goes_outward(self, candidate: Candidate) -> bool:
        """Whether a candidate's further rates lie outward of its best one."""
        is_extended = self.spec.extend is not None
        return candidate.is_reference and is_extended

    def _best_complete(self, candidate: Candidate, exploring: Trials) -> float:
        """Return the best rate of a candidate that has learnt."""
        tries = tries_of(exploring, candidate)
        scores = scores_of(tries)
        return best_rate(scores)

    def _blind(self, candidate: Candidate, exploring: Trials) -> float | None:
        """Return the next rate of a candidate that has learnt at none so far."""
        tries = tries_of(exploring, candidate)
        planned = self.planned(candidate)
        has_ended = any(trial.is_final for trial in tries)
        if len(tries) < planned and not has_ended:
            return self._unaided(candidate, tries)
        side = self._blind_side(candidate, exploring, tries)
        if side is None:
            return None
        allowed = self._allowed(candidate, tries, side)
        rate, _ = self._ask(candidate, exploring, allowed)
        return rate

    def _blind_side(
        self,
        candidate: Candidate,
        exploring: Trials,
        tries: Trials,
    ) -> Border | None:
        """Return on which side such a candidate tries next; None where it has tried enough."""
        neighbour = self._nearest(candidate, exploring)
        if neighbour is not None:
            lent_rate = self._best_complete(neighbour, exploring)
            return self._side_of(lent_rate, neighbour, candidate, tries)
        count = len(tries)
        most_blind = self.planned(candidate) + self.spec.policy.blind_tries
        if count >= most_blind:
            return None
        # Down first: large models are known to collapse at higher rates.
        goes_down = count % 2 == 1
        if goes_down:
            return Border.LOW
        return Border.HIGH

    def _side_of(
        self,
        lent_rate: float,
        neighbour: Candidate,
        candidate: Candidate,
        tries: Trials,
    ) -> Border:
        """Return on which side of a candidate's rates a better one may lie, by its neighbour's."""
        rates = [trial.learning_rate for trial in tries]
        if lent_rate < min(rates):
            return Border.LOW
        if lent_rate > max(rates):
            return Border.HIGH
        # Between the same rates, the more is trained, the lower is the best one.
        if candidate < neighbour:
            return Border.LOW
        return Border.HIGH

    def _nearest(self, candidate: Candidate, exploring: Trials) -> Candidate | None:
        """Return the nearest other candidate that has learnt; None if none has."""
        nearest: Candidate | None = None
        least_distance = math.inf
        for other in self.spec.explored:
            if other == candidate:
                continue
            distance = abs(other.rank - candidate.rank)
            tries = tries_of(exploring, other)
            if distance < least_distance and self.has_learnt_at(tries):
                nearest = other
                least_distance = distance
        return nearest

    def _first_rates(self, candidate: Candidate) -> tuple[float, ...]:
        """Return the rates to begin with: of a range of its own the middle, then the highest."""
        if candidate.rates is None:
            return self.spec.policy.first_rates
        highest, *others = first_points(candidate.rates)
        if not others:
            return (highest,)
        middle = others[0]
        return (middle, highest)

    def _unaided(self, candidate: Candidate, tries: Trials) -> float:
        """Return a further rate where hardly a trial has ended yet."""
        rates = self._first_rates(candidate)
        last = len(rates) - 1
        place = min(len(tries), last)
        wanted = rates[place]
        return self._near(candidate, wanted, tries)

    def _near(self, candidate: Candidate, wanted: float, tries: Trials) -> float:
        """Return the rate nearest to the wanted one, of those that may be tried."""
        low, high = self._bounds(candidate)
        is_within = low <= wanted <= high
        is_first = not tries
        if is_first and is_within and self._takes_any(candidate):
            return wanted
        allowed = self._allowed(candidate, tries)
        if not allowed:
            allowed = self._untried(candidate, tries)
        if not allowed:
            return propose(self.spec, candidate, tries)

        def distance(rate: float) -> float:
            factor = rate / wanted
            return abs(math.log(factor))

        return min(allowed, key=distance)

    def _takes_any(self, candidate: Candidate) -> bool:
        """Whether a candidate may try every rate within its bounds, and not a list alone."""
        is_listed = self.spec.rates_for(candidate).values is not None
        is_extended = self.spec.extend is not None
        return is_extended or not is_listed

    def _side(self, tries: Trials) -> Border | None:
        """Return on which side of what a candidate has tried a better rate may lie, if on any."""
        scores: dict[float, float | None] = {}
        for trial in tries:
            score = None
            if trial.is_completed:
                score = trial.score
            scores[trial.learning_rate] = score
        return border(scores, self.spec.chance, self.spec.policy.noise)

    def _worth(self, candidate: Candidate) -> float:
        """Return what a trial must promise to add to the best score, by what it costs."""
        policy = self.spec.policy
        cost = relative_cost(self.spec, candidate)
        least_share = policy.worth_if_free
        share_by_cost = 1 - least_share
        share = least_share + share_by_cost * cost
        return policy.worth_a_trial * share

    def _bounds(self, candidate: Candidate) -> Bounds:
        """Return the lowest and the highest rate that may be tried."""
        low, high = self.spec.given_rates(candidate)
        extend = self.spec.extend
        if extend is not None:
            low = min(low, extend.low)
            high = max(high, extend.high)
        return low, high

    def _rates_within(self, candidate: Candidate) -> Sequence[float]:
        """Return all rates that a candidate may ever try, ascending."""
        listed = self.spec.rates_for(candidate).values
        takes_any = self._takes_any(candidate)
        if listed is not None and not takes_any:
            return listed
        low, high = self._bounds(candidate)
        return even_rates(low, high, self.spec.policy.first_rates)

    def _untried(self, candidate: Candidate, tries: Trials) -> list[float]:
        """Return the rates that a candidate may try and has not, ascending."""
        tried_rates = {trial.learning_rate for trial in tries}
        rates = self._rates_within(candidate)
        return [rate for rate in rates if rate not in tried_rates]

    def _allowed(
        self,
        candidate: Candidate,
        tries: Trials,
        side: Border | None = None,
    ) -> list[float]:
        """Return the rates that a candidate may try next, ascending.

        side: the only one of what it has tried, None for any.
        """
        policy = self.spec.policy
        rates = self._rates_within(candidate)
        if not tries:
            return list(rates)
        tried_rates = [trial.learning_rate for trial in tries]
        lowest_tried = min(tried_rates)
        highest_tried = max(tried_rates)
        lowest = 0.0
        highest = math.inf
        if side is Border.LOW:
            highest = lowest_tried
        if side is Border.HIGH:
            lowest = highest_tried
        if not self.has_learnt_at(tries):
            lowest = max(lowest, lowest_tried / policy.blind_step)
            highest = min(highest, highest_tried * policy.blind_step)
        allowed = []
        for rate in rates:
            is_within = lowest <= rate <= highest
            if is_within and _nearest_step(rate, tried_rates) >= policy.least_step:
                allowed.append(rate)
        return allowed

    def _ask(
        self,
        candidate: Candidate,
        exploring: Trials,
        allowed: Sequence[float],
    ) -> tuple[float | None, float]:
        """Return the rate that promises most, and by how much it would raise the best score."""
        if not allowed:
            return None, 0.0
        content = self._content(exploring, candidate)
        if self._proposed_of.get(candidate) != content:
            self._proposed_of[candidate] = content
            self._proposals[candidate] = {}
        proposals = self._proposals[candidate]
        rates = tuple(allowed)
        if rates not in proposals:
            proposals[rates] = self._proposal(candidate, exploring, rates)
        return proposals[rates]

    def _proposal(
        self,
        candidate: Candidate,
        exploring: Trials,
        allowed: Sequence[float],
    ) -> Proposal:
        """Return what the study proposes. allowed: one rate or more."""
        spec = self.spec
        study = self._study_of(exploring, candidate)
        sampler = NeighbourSampler(
            spec.policy,
            spec.layers,
            spec.chance,
            allowed,
        )
        study.sampler = sampler
        study.enqueue_trial({RANK: candidate.rank}, user_attrs={CANDIDATE: candidate.key})
        distributions = self._distributions(candidate)
        proposal = study.ask(distributions)
        study.tell(proposal, state=TrialState.FAIL)  # what comes of it is told once it is known
        rate = canonical_rate(proposal.params[LEARNING_RATE])
        return rate, sampler.gain

    def _content(self, exploring: Trials, candidate: Candidate) -> object:
        """Return what a study is made of. candidate: whose bounds the rates have."""
        bounds = self._bounds(candidate)
        trials = [(trial.key, trial.status, trial.scores) for trial in exploring]
        return bounds, trials

    def _study_of(self, exploring: Trials, candidate: Candidate) -> optuna.Study:
        """Return the study with these trials, made anew where they are others than before.

        candidate: whose bounds the rates have.
        """
        bounds = self._bounds(candidate)
        content = self._content(exploring, candidate)
        if self._study is not None and self._study_content == content:
            return self._study
        distributions = self._distributions(candidate)
        study = optuna.create_study(direction="maximize")
        for trial in exploring:
            rate = _clamped(trial.learning_rate, bounds)
            value = self._value(trial, exploring)
            state = TrialState.COMPLETE
            if value is None:
                state = TrialState.RUNNING
            recorded = optuna.trial.create_trial(
                params={RANK: trial.candidate.rank, LEARNING_RATE: rate},
                distributions=distributions,
                user_attrs={CANDIDATE: trial.candidate.key},
                value=value,
                state=state,
            )
            study.add_trial(recorded)
        self._study = study
        self._study_content = content
        return study

    def _distributions(self, candidate: Candidate) -> dict[str, BaseDistribution]:
        """Return what a trial's parameters may be. candidate: whose bounds the rates have.

        The sampler has a scale of its own, so that these are bounds alone.
        """
        low, high = self._bounds(candidate)
        deepest = max(explored.rank for explored in self.spec.explored)
        return {
            RANK: FloatDistribution(0, deepest + 1),
            LEARNING_RATE: FloatDistribution(low, high),
        }

    def _value(self, trial: KnownTrial, exploring: Trials) -> float | None:
        """Return the score that a trial counts with; None for one whose score is to come.

        One that diverged counts as chance; one that was stopped lies as far below the best complete
        one of its candidate as it did after as many evaluations.
        """
        if trial.is_diverged:
            return self.spec.chance
        is_to_come = trial.is_unfinished or not trial.is_final
        if is_to_come or trial.score is None:
            return None
        if trial.is_completed:
            return trial.score
        best: KnownTrial | None = None
        best_score = 0.0
        for other in tries_of(exploring, trial.candidate):
            if not other.is_completed:
                continue
            score = other.score or 0.0
            if best is None or score > best_score:
                best = other
                best_score = score
        if best is None:
            return trial.score
        age = len(trial.scores)
        behind = self.score_at(age, best) - trial.score
        return best_score - behind


def _nearest_step(rate: float, others: Sequence[float]) -> float:
    """Return by which factor, 1 or more, a rate differs from the nearest of others."""
    steps = []
    for other in others:
        step = max(rate / other, other / rate)
        steps.append(step)
    return min(steps)


def _clamped(rate: float, bounds: Bounds) -> float:
    """Return the nearest rate within bounds."""
    low, high = bounds
    raised = max(rate, low)
    return min(raised, high)


@functools.cache
def even_rates(
    low: float,
    high: float,
    besides: tuple[float, ...],
) -> tuple[float, ...]:
    """Return rates between two bounds, about twelve an octave, with two significant digits.

    besides: rates that are among them, where they lie between the bounds.
    """
    octaves = math.log2(high / low)
    steps = round(12 * octaves)
    count = max(2, steps + 1)
    rates = {low, high, *besides}
    for rate in np.geomspace(low, high, count):
        rounded = float(f"{rate:.1e}")
        rates.add(rounded)
    within: list[float] = []
    for rate in sorted(rates):
        if low <= rate <= high:
            within.append(rate)
    return tuple(within)
