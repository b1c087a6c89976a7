"""The learning rates that the candidates of a search try, and the one that each is measured at.

A strategy asks one `Rates`, chosen by the space's `sampler`; another way of choosing is another
subclass, and a line at the end of this file.
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState

from elsa_tune.errors import SpaceError
from elsa_tune.searching.planning.known import (
    KnownTrial,
    is_cheap,
    relative_cost,
    scores_of,
    tried,
)
from elsa_tune.searching.planning.neighbours import LEARNING_RATE, RANK, NeighbourSampler
from elsa_tune.searching.planning.outward import outward
from elsa_tune.searching.planning.sampler import first_points, propose
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.border import Border, border, has_learnt
from elsa_tune.specs.candidates import REFERENCE
from elsa_tune.specs.search import SamplerName, SearchSpec
from elsa_tune.specs.trial import canonical_rate, trial_score


class Rates(ABC):
    """The rates of one search: a pure function of its specification and its trials so far.

    exploring, in every method: the search's exploring trials, those that run included.
    """

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec

    def planned(self, candidate: Candidate) -> int:
        """Return how many exploring trials a candidate has in any case."""
        if candidate not in self.spec.explored:
            return 0
        values = self.spec.rates_for(candidate).values
        if values is None:
            return self.spec.tries
        return min(self.spec.tries, len(values))

    def most(self, candidate: Candidate) -> int:
        """Return how many exploring trials a candidate has at most."""
        return self.planned(candidate)

    def in_turn(
        self, candidates: Sequence[Candidate], had: Mapping[Candidate, int]
    ) -> Sequence[Candidate]:
        """Return candidates in the order in which they go on beyond their planned tries.

        had: how many exploring trials each has begun.
        """
        return candidates

    @property
    def further_words(self) -> str:
        """What follows the planned tries, said where a search announces these; "" for nothing."""
        return ""

    @abstractmethod
    def next_rate(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> float | None:
        """Return the rate of a candidate's next exploring trial.

        None where it has had all of them, or must wait for trials that run.
        """

    def may_go_on(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> bool:
        """Whether another candidate's trials may still send this one further, which has had all."""
        return False

    def best(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> float | None:
        """Return the rate to measure a candidate at; None where no trial says anything of it.

        It is that of the best score among completed trials; where none completed (time was up),
        among all that reported, compared at the last evaluation they share. Ties go to the lower
        rate. Where all diverged it is the lowest: the measuring seeds will diverge too and count as
        chance, which is the truth about such a candidate.
        """
        diverged = []
        reported = []
        tries = tried(exploring, candidate)
        for trial in tries:
            if trial.is_diverged:
                diverged.append(trial.learning_rate)
            elif trial.scores:
                reported.append(trial)
        if diverged and len(diverged) == len(tries) >= self.planned(candidate):
            return min(diverged)
        completed = [trial for trial in reported if trial.is_completed]
        return self._best_of(completed or reported)

    def _best_of(self, compared: Sequence[KnownTrial]) -> float | None:
        """Return the rate of the best trial, each judged by as many evaluations as any other."""
        if not compared:
            return None
        age = min(len(trial.scores) for trial in compared)
        merits: dict[float, float] = {}
        for trial in compared:
            merits[trial.learning_rate] = self._score_at(age, trial)
        return _best_rate(merits)

    def _has_learnt(self, tries: Sequence[KnownTrial]) -> bool:
        """Whether a candidate has learnt at one of the rates that it tried."""
        return has_learnt(scores_of(tries), self.spec.chance, self.spec.policy.noise)

    def _score_at(self, age: int, trial: KnownTrial) -> float:
        """Return what a trial scored after this many evaluations."""
        return trial_score(self.spec.recipe.selection, trial.scores[:age])


class GivenThenOutward(Rates):
    """A few of the given rates, then outward from the best one while it lies at their border."""

    def most(self, candidate: Candidate) -> int:
        planned = self.planned(candidate)
        if not planned or self.spec.extend is None:
            return planned
        return planned + self.spec.extend.tries

    @property
    def further_words(self) -> str:
        return ", then outward from a best rate at the border" if self.spec.extend else ""

    def next_rate(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> float | None:
        tries = tried(exploring, candidate)
        if len(tries) < self.planned(candidate):
            return propose(self.spec, candidate, tries)
        if not tries or not all(trial.is_final for trial in tries):
            return None
        lent = self._lent(candidate, exploring)
        may_learn = not candidate.is_reference and self._reference_may_learn(exploring)
        return outward(self.spec, tries, self._patience(candidate), lent, may_learn)

    def may_go_on(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> bool:
        extend = self.spec.extend
        if extend is None:
            return False
        tries = tried(exploring, candidate)
        patience = self._patience(candidate)
        for lent in (None, extend.high):
            for may_learn in (True, False):
                rate = outward(self.spec, tries, patience, lent, may_learn)
                if rate is not None:
                    return True
        return False

    def _patience(self, candidate: Candidate) -> int:
        """Return how many rates beyond its best a candidate tries before it stops."""
        if is_cheap(self.spec, candidate):
            return self.spec.policy.cheap_patience
        return 1

    def _lent(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> float | None:
        """Return the best rate of the candidate before this one in its family.

        None where that learnt nothing.
        """
        family = [other for other in self.spec.explored if other.family == candidate.family]
        place = family.index(candidate)
        if place == 0:
            return None
        tries_before = tried(exploring, family[place - 1])
        if not self._has_learnt(tries_before):
            return None
        return _best_rate(scores_of(tries_before))

    def _reference_may_learn(self, exploring: Sequence[KnownTrial]) -> bool:
        """Whether the full model learns, or nothing is known of it."""
        tries = tried(exploring, REFERENCE)
        return not tries or self._has_learnt(tries)


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
        # The bounds and trials of the study, and the study.
        self._study: tuple[object, optuna.Study] | None = None

    def most(self, candidate: Candidate) -> int:
        return self._outward.most(candidate)

    @property
    def further_words(self) -> str:
        return ", then more while one promises enough" if self.spec.extend else ""

    def in_turn(
        self, candidates: Sequence[Candidate], had: Mapping[Candidate, int]
    ) -> Sequence[Candidate]:
        """Return those first that have had fewest: what they find is worth most to all."""
        return sorted(candidates, key=lambda candidate: had[candidate])

    def next_rate(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> float | None:
        family = [trial for trial in exploring if trial.candidate.family == candidate.family]
        tries = tried(family, candidate)
        if len(tries) >= self.most(candidate):
            return None
        if self._goes_outward(candidate):
            if len(tries) < self.planned(candidate):
                return self._unaided(candidate, tries)
            if self._has_learnt(tries):
                return self._outward.next_rate(candidate, family)
        if not tries:
            return self._first_rate(candidate, family)
        if len(tries) < self.planned(candidate):
            return self._planned_rate(candidate, family, tries)
        return self._further_rate(candidate, family, tries)

    def _first_rate(self, candidate: Candidate, family: Sequence[KnownTrial]) -> float:
        """Return the rate that a candidate begins with: its nearest neighbour's best one."""
        neighbour = self._nearest(candidate, family)
        if neighbour is None:
            return self._unaided(candidate, ())
        lent = _best_rate(scores_of(tried(family, neighbour)))
        return self._near(candidate, lent, ())

    def _planned_rate(
        self, candidate: Candidate, family: Sequence[KnownTrial], tries: Sequence[KnownTrial]
    ) -> float | None:
        """Return the rate of a further try that a candidate has in any case."""
        if not self._has_learnt(tries):
            return self._blind(candidate, family)
        ended = [trial for trial in family if trial.is_final]
        if len(ended) < 2:
            return self._unaided(candidate, tries)
        rate, _ = self._ask(candidate, family, self._allowed(candidate, tries))
        return rate

    def _further_rate(
        self, candidate: Candidate, family: Sequence[KnownTrial], tries: Sequence[KnownTrial]
    ) -> float | None:
        """Return the rate of a try beyond those; None where it must wait, or is not worth it."""
        if not all(trial.is_final for trial in tries):
            return None
        if not self._has_learnt(tries):
            return self._blind(candidate, family)
        rate, gain = self._ask(candidate, family, self._allowed(candidate, tries))
        if gain > self._worth(candidate):
            return rate
        side = self._side(tries)
        if side is None:
            return None
        rate, _ = self._ask(candidate, family, self._allowed(candidate, tries, side))
        return rate

    def may_go_on(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> bool:
        tries = tried(exploring, candidate)
        if not self._has_learnt(tries):
            return len(tries) < self.most(candidate)
        if self._goes_outward(candidate):
            return self._outward.may_go_on(candidate, exploring)
        return False

    def _goes_outward(self, candidate: Candidate) -> bool:
        return candidate.is_reference and self.spec.extend is not None

    def _blind(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> float | None:
        """Return the next rate of a candidate that has learnt at none so far."""
        tries = tried(exploring, candidate)
        planned = self.planned(candidate)
        has_ended = any(trial.is_final for trial in tries)
        if len(tries) < planned and not has_ended:
            return self._unaided(candidate, tries)
        neighbour = self._nearest(candidate, exploring)
        if neighbour is not None:
            lent = _best_rate(scores_of(tried(exploring, neighbour)))
            side = self._side_of(lent, neighbour, candidate, tries)
        elif len(tries) < planned + self.spec.policy.blind_tries:
            # Down first: large models are known to collapse at higher rates.
            side = Border.LOW if len(tries) % 2 else Border.HIGH
        else:
            return None
        rate, _ = self._ask(candidate, exploring, self._allowed(candidate, tries, side))
        return rate

    def _side_of(
        self, lent: float, neighbour: Candidate, candidate: Candidate, tries: Sequence[KnownTrial]
    ) -> Border:
        """Return on which side of a candidate's rates a better one may lie, by its neighbour's."""
        rates = [trial.learning_rate for trial in tries]
        if lent < min(rates):
            return Border.LOW
        if lent > max(rates):
            return Border.HIGH
        # Between the same rates, the more is trained, the lower is the best one.
        return Border.LOW if candidate < neighbour else Border.HIGH

    def _nearest(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> Candidate | None:
        """Return the nearest other candidate that has learnt; None if none has."""
        learnt = []
        for other in self.spec.explored:
            if other != candidate and self._has_learnt(tried(exploring, other)):
                learnt.append(other)
        return min(learnt, key=lambda other: abs(other.rank - candidate.rank), default=None)

    def _first_rates(self, candidate: Candidate) -> tuple[float, ...]:
        """Return the rates to begin with: of a range of its own the middle, then the highest."""
        if candidate.rates is None:
            return self.spec.policy.first_rates
        highest, *others = first_points(candidate.rates)
        return (*others[:1], highest)

    def _unaided(self, candidate: Candidate, tries: Sequence[KnownTrial]) -> float:
        """Return a further rate where hardly a trial has ended yet."""
        rates = self._first_rates(candidate)
        place = min(len(tries), len(rates) - 1)
        return self._near(candidate, rates[place], tries)

    def _near(self, candidate: Candidate, wanted: float, tries: Sequence[KnownTrial]) -> float:
        """Return the rate nearest to the wanted one, of those that may be tried."""
        given = self.spec.rates_for(candidate).values
        is_any = given is None or self.spec.extend is not None
        low, high = self._bounds(candidate)
        if is_any and not tries and low <= wanted <= high:
            return wanted
        allowed = self._allowed(candidate, tries) or self._allowed(candidate, ())
        return min(allowed, key=lambda rate: abs(math.log(rate / wanted)))

    def _side(self, tries: Sequence[KnownTrial]) -> Border | None:
        """Return on which side of what a candidate has tried a better rate may lie, if on any."""
        scores: dict[float, float | None] = {}
        for trial in tries:
            scores[trial.learning_rate] = trial.score if trial.is_completed else None
        return border(scores, self.spec.chance, self.spec.policy.noise)

    def _worth(self, candidate: Candidate) -> float:
        """Return what a trial must promise to add to the best score, by what it costs."""
        policy = self.spec.policy
        cost = relative_cost(self.spec, candidate)
        share = policy.worth_if_free + (1 - policy.worth_if_free) * cost
        return policy.worth_a_trial * share

    def _bounds(self, candidate: Candidate) -> tuple[float, float]:
        """Return the lowest and the highest rate that may be tried."""
        low, high = self.spec.given_rates(candidate)
        extend = self.spec.extend
        if extend is None:
            return low, high
        return min(low, extend.low), max(high, extend.high)

    def _allowed(
        self, candidate: Candidate, tries: Sequence[KnownTrial], side: Border | None = None
    ) -> list[float]:
        """Return the rates that a candidate may try next, ascending.

        side: the only one of what it has tried, None for any.
        """
        policy = self.spec.policy
        given = self.spec.rates_for(candidate).values
        if given is None or self.spec.extend is not None:
            low, high = self._bounds(candidate)
            given = even_rates(low, high, policy.first_rates)
        rates = [trial.learning_rate for trial in tries]
        if not rates:
            return list(given)
        lowest = 0.0
        highest = math.inf
        if side is Border.LOW:
            highest = min(rates)
        if side is Border.HIGH:
            lowest = max(rates)
        if not self._has_learnt(tries):
            lowest = max(lowest, min(rates) / policy.blind_step)
            highest = min(highest, max(rates) * policy.blind_step)
        allowed = []
        for rate in given:
            step = min(max(rate / other, other / rate) for other in rates)
            if step >= policy.least_step and lowest <= rate <= highest:
                allowed.append(rate)
        return allowed

    def _ask(
        self, candidate: Candidate, exploring: Sequence[KnownTrial], allowed: Sequence[float]
    ) -> tuple[float | None, float]:
        """Return the rate that promises most, and by how much it would raise the best score."""
        if not allowed:
            return None, 0.0
        spec = self.spec
        study = self._study_of(exploring, candidate)
        sampler = NeighbourSampler(spec.policy, spec.layers, spec.chance, allowed)
        study.sampler = sampler
        study.enqueue_trial({RANK: candidate.rank})
        asked = study.ask(self._distributions(candidate))
        study.tell(asked, state=TrialState.FAIL)  # what comes of it is told once it is known
        return canonical_rate(asked.params[LEARNING_RATE]), sampler.gain

    def _study_of(self, exploring: Sequence[KnownTrial], candidate: Candidate) -> optuna.Study:
        """Return the study with these trials, made anew where they are others than before.

        candidate: whose bounds the rates have.
        """
        low, high = self._bounds(candidate)
        trials = tuple((trial.key, trial.status, trial.scores) for trial in exploring)
        content = (low, high, trials)
        if self._study is not None and self._study[0] == content:
            return self._study[1]
        distributions = self._distributions(candidate)
        study = optuna.create_study(direction="maximize")
        for trial in exploring:
            value = self._value(trial, exploring)
            rate = min(max(trial.learning_rate, low), high)
            recorded = optuna.trial.create_trial(
                params={RANK: trial.candidate.rank, LEARNING_RATE: rate},
                distributions=distributions,
                value=value,
                state=TrialState.RUNNING if value is None else TrialState.COMPLETE,
            )
            study.add_trial(recorded)
        self._study = (content, study)
        return study

    def _distributions(self, candidate: Candidate) -> dict[str, BaseDistribution]:
        low, high = self._bounds(candidate)
        deepest = max(explored.rank for explored in self.spec.explored)
        return {
            RANK: FloatDistribution(0, deepest + 1),
            LEARNING_RATE: FloatDistribution(low, high, log=True),
        }

    def _value(self, trial: KnownTrial, exploring: Sequence[KnownTrial]) -> float | None:
        """Return the score that a trial counts with; None for one whose score is to come.

        One that diverged counts as chance; one that was stopped lies as far below the best complete
        one of its candidate as it did after as many evaluations.
        """
        if trial.is_diverged:
            return self.spec.chance
        if not trial.is_final or trial.is_unfinished or trial.score is None:
            return None
        if trial.is_completed:
            return trial.score
        best: KnownTrial | None = None
        for other in tried(exploring, trial.candidate):
            if not other.is_completed:
                continue
            if best is None or (other.score or 0.0) > (best.score or 0.0):
                best = other
        if best is None:
            return trial.score
        behind = self._score_at(len(trial.scores), best) - trial.score
        return (best.score or 0.0) - behind


@functools.cache
def even_rates(low: float, high: float, besides: tuple[float, ...]) -> tuple[float, ...]:
    """Return rates between two bounds, about twelve an octave, with two significant digits.

    besides: rates that are among them, where they lie between the bounds.
    """
    count = round(12 * math.log2(high / low)) + 1
    wanted = {low, high, *besides}
    for rate in np.geomspace(low, high, max(2, count)):
        wanted.add(float(f"{rate:.1e}"))
    return tuple(rate for rate in sorted(wanted) if low <= rate <= high)


def _best_rate(scores: Mapping[float, float]) -> float:
    """Return the rate of the best score, the lower one of equals."""
    return max(scores, key=lambda rate: (scores[rate], -rate))


# By the space's `sampler`. Which of the given rates come first is what the last three differ in.
_RATES: dict[str, type[Rates]] = {
    SamplerName.GP: OneStudy,
    SamplerName.TPE: GivenThenOutward,
    SamplerName.RANDOM: GivenThenOutward,
    SamplerName.GRID: GivenThenOutward,
}


def rates_of(spec: SearchSpec) -> Rates:
    """Return what chooses a search's rates. Raises SpaceError for a sampler that is none."""
    if spec.sampler not in _RATES:
        raise SpaceError(f"sampler is '{spec.sampler}'; it must be {' or '.join(_RATES)}")
    return _RATES[spec.sampler](spec)
