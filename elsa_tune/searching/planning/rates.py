"""The learning rates that the candidates of a search try, and the one that each is measured at.

A strategy asks one `Rates`, chosen by the space's `sampler`; another way of choosing is another
subclass, a line in `samplers.py`, and its name in `SamplerName` (`specs/search.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from elsa_tune.searching.planning.edge import away_from_edge
from elsa_tune.searching.planning.known import KnownTrial, Trials, is_cheap, scores_of, tries_of
from elsa_tune.searching.planning.outward import outward
from elsa_tune.searching.planning.proposals import propose
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.border import has_learnt
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import trial_score


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
        self,
        candidates: Sequence[Candidate],
        begun: Mapping[Candidate, int],
    ) -> Sequence[Candidate]:
        """Return candidates in the order in which they go on beyond their planned tries.

        begun: how many exploring trials each has begun.
        """
        return candidates

    @property
    def further_words(self) -> str:
        """What follows the planned tries, said where a search announces these; "" for nothing."""
        return ""

    @abstractmethod
    def next_rate(self, candidate: Candidate, exploring: Trials) -> float | None:
        """Return the rate of a candidate's next exploring trial.

        None where it must wait for trials that run, or has had all of them, at least `planned`.
        """

    def may_go_on(self, candidate: Candidate, exploring: Trials) -> bool:
        """Whether another candidate's trials may still send this one further, which has had all."""
        return False

    def best(self, candidate: Candidate, exploring: Trials) -> float | None:
        """Return the rate to measure a candidate at; None where no trial says anything of it.

        It is that of the best score among completed trials, or the next lower one if training
        collapses just above it (`edge.py`). Where none completed (time was up), it is that of the
        best among all that reported, compared at the last evaluation they share. Ties go to the
        lower rate. Where all that were planned diverged it is the lowest: the measuring seeds will
        diverge too and count as chance, which is the truth about such a candidate.
        """
        diverged = []
        reported = []
        tries = tries_of(exploring, candidate)
        for trial in tries:
            if trial.is_diverged:
                diverged.append(trial.learning_rate)
            elif trial.scores:
                reported.append(trial)
        have_all_diverged = len(diverged) == len(tries)
        has_had_all = len(tries) >= self.planned(candidate)
        if diverged and have_all_diverged and has_had_all:
            return min(diverged)
        completed = [trial for trial in reported if trial.is_completed]
        if completed:
            best = self._best_of(completed)
            return away_from_edge(self.spec, tries, best)
        return self._best_of(reported) if reported else None

    def _best_of(self, compared: Trials) -> float:
        """Return the rate of the best trial, each judged by as many evaluations as any other."""
        ages = [len(trial.scores) for trial in compared]
        shared_age = min(ages)
        merits: dict[float, float] = {}
        for trial in compared:
            merits[trial.learning_rate] = self.score_at(shared_age, trial)
        return best_rate(merits)

    def has_learnt_at(self, tries: Trials) -> bool:
        """Whether a candidate has learnt at one of the rates that it tried."""
        spec = self.spec
        scores = scores_of(tries)
        return has_learnt(scores, spec.chance, spec.policy.noise)

    def score_at(self, age: int, trial: KnownTrial) -> float:
        """Return what a trial scored after this many evaluations."""
        scores = trial.scores[:age]
        return trial_score(self.spec.recipe.selection, scores)


class GivenThenOutward(Rates):
    """A few of the given rates, then outward from the best one while it lies at their border."""

    def most(self, candidate: Candidate) -> int:
        planned = self.planned(candidate)
        extend = self.spec.extend
        if not planned or extend is None:
            return planned
        return planned + extend.tries

    @property
    def further_words(self) -> str:
        if self.spec.extend is None:
            return ""
        return ", then outward from a best rate at the border"

    def next_rate(self, candidate: Candidate, exploring: Trials) -> float | None:
        tries = tries_of(exploring, candidate)
        if len(tries) < self.planned(candidate):
            return propose(self.spec, candidate, tries)
        if not tries or not have_all_ended(tries) or len(tries) >= self.most(candidate):
            return None
        patience = self._patience(candidate)
        lent_rate = self._lent(candidate, exploring)
        may_learn = False
        if not candidate.is_reference:
            may_learn = self._reference_may_learn(exploring)
        return outward(self.spec, tries, patience, lent_rate, may_learn)

    def may_go_on(self, candidate: Candidate, exploring: Trials) -> bool:
        extend = self.spec.extend
        if extend is None:
            return False
        tries = tries_of(exploring, candidate)
        if len(tries) >= self.most(candidate):
            return False
        patience = self._patience(candidate)
        for lent_rate in (None, extend.high):
            for may_learn in (True, False):
                rate = outward(self.spec, tries, patience, lent_rate, may_learn)
                if rate is not None:
                    return True
        return False

    def _patience(self, candidate: Candidate) -> int:
        """Return how many rates beyond its best a candidate tries before it stops."""
        if is_cheap(self.spec, candidate):
            return self.spec.policy.cheap_patience
        return 1

    def _lent(self, candidate: Candidate, exploring: Trials) -> float | None:
        """Return the best rate of the candidate before this one in its family.

        None where that learnt nothing.
        """
        before: Candidate | None = None
        for other in self.spec.explored:
            if other == candidate:
                break
            if other.family == candidate.family:
                before = other
        if before is None:
            return None
        tries_before = tries_of(exploring, before)
        if not self.has_learnt_at(tries_before):
            return None
        scores = scores_of(tries_before)
        return best_rate(scores)

    def _reference_may_learn(self, exploring: Trials) -> bool:
        """Whether the full model learns, or nothing is known of it."""
        tries = tries_of(exploring, REFERENCE)
        return not tries or self.has_learnt_at(tries)


def have_all_ended(tries: Trials) -> bool:
    return all(trial.is_final for trial in tries)


def best_rate(scores: Mapping[float, float]) -> float:
    """Return the rate of the best score, the lower one of equals."""
    return max(scores, key=lambda rate: (scores[rate], -rate))
