"""Which learning rates the candidates of a search try, and which one becomes each one's own.

A strategy asks one `Rates`, chosen by the space's `sampler`; another way of choosing is another
subclass, and a line at the end of this file.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from elsa_tune.errors import SpaceError
from elsa_tune.searching.planning.known import KnownTrial, is_cheap, scores_of, tried
from elsa_tune.searching.planning.outward import outward
from elsa_tune.searching.planning.sampler import propose
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.border import has_learnt
from elsa_tune.specs.candidates import REFERENCE
from elsa_tune.specs.search import SamplerName, SearchSpec
from elsa_tune.specs.trial import TrialStatus, trial_score


class Rates(ABC):
    """The rates of one search: a pure function of its specification and its trials so far.

    exploring, in every method: the search's exploring trials, those that run included.
    """

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec

    def planned(self, candidate: Candidate) -> int:
        """Return how many exploring trials a candidate has in any case."""
        return self.spec.tries if candidate in self.spec.explored else 0

    def most(self, candidate: Candidate) -> int:
        """Return how many exploring trials a candidate has at most."""
        return self.planned(candidate)

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
        here = tried(exploring, candidate)
        diverged = [one for one in here if one.status is TrialStatus.DIVERGED]
        if diverged and len(diverged) == len(here) >= self.planned(candidate):
            return min(one.trial.learning_rate for one in diverged)
        reported = [one for one in here if one.scores and one not in diverged]
        completed = [one for one in reported if one.status is TrialStatus.COMPLETED]
        return self._best_of(completed or reported)

    def _best_of(self, compared: Sequence[KnownTrial]) -> float | None:
        """Return the rate of the best trial, each judged by as many evaluations as any other."""
        if not compared:
            return None
        age = min(len(one.scores) for one in compared)
        merits: dict[float, float] = {}
        for one in compared:
            score = trial_score(self.spec.recipe.selection, one.scores[:age])
            merits[one.trial.learning_rate] = score
        return max(merits, key=lambda rate: (merits[rate], -rate))


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
        here = tried(exploring, candidate)
        if len(here) < self.planned(candidate):
            return propose(self.spec, candidate, here)
        if not here or not all(one.status.is_final for one in here):
            return None
        lent = self._lent(candidate, exploring)
        may_learn = not candidate.is_reference and self._reference_may_learn(exploring)
        return outward(self.spec, here, self._patience(candidate), lent, may_learn)

    def may_go_on(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> bool:
        extend = self.spec.extend
        if extend is None:
            return False
        here = tried(exploring, candidate)
        patience = self._patience(candidate)
        for lent in (None, extend.high):
            for may_learn in (True, False):
                if outward(self.spec, here, patience, lent, may_learn) is not None:
                    return True
        return False

    def _patience(self, candidate: Candidate) -> int:
        """Return how many rates beyond its best a candidate tries before it stops."""
        return self.spec.policy.cheap_patience if is_cheap(self.spec, candidate) else 1

    def _lent(self, candidate: Candidate, exploring: Sequence[KnownTrial]) -> float | None:
        """Return the best rate of the candidate before this one; None where that learnt nothing."""
        place = self.spec.explored.index(candidate)
        if place == 0:
            return None
        scores = scores_of(tried(exploring, self.spec.explored[place - 1]))
        if not has_learnt(scores, self.spec.chance, self.spec.policy.noise):
            return None
        return max(scores, key=lambda rate: (scores[rate], -rate))

    def _reference_may_learn(self, exploring: Sequence[KnownTrial]) -> bool:
        """Whether the full model learns, or nothing is known of it."""
        full = tried(exploring, REFERENCE)
        return not full or has_learnt(scores_of(full), self.spec.chance, self.spec.policy.noise)


# By the space's `sampler`; which rates of the given range come first is what these three differ in.
_RATES: dict[str, type[Rates]] = {
    SamplerName.TPE: GivenThenOutward,
    SamplerName.RANDOM: GivenThenOutward,
    SamplerName.GRID: GivenThenOutward,
}


def rates_of(spec: SearchSpec) -> Rates:
    """Return what chooses a search's rates. Raises SpaceError for a sampler that is none."""
    if spec.sampler not in _RATES:
        raise SpaceError(f"sampler is '{spec.sampler}'; it must be {' or '.join(_RATES)}")
    return _RATES[spec.sampler](spec)
