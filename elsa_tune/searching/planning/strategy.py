"""What a strategy of searching is asked: which candidates, which learning rates, what comes next.

A strategy is a file beside this one with a subclass of `Strategy`, and a line in `strategies.py`.
Every method is a pure function of the specification and of what was recorded, so that a fresh, a
resumed and a dry run agree.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.errors import SpaceError
from elsa_tune.searching.inputs import Inputs
from elsa_tune.searching.planning.known import (
    KnownTrial,
    Slot,
    Trials,
    exploring_of,
    failed_slots,
    measured_rates,
    relative_cost,
    slot_again,
    tries_of,
)
from elsa_tune.searching.planning.samplers import rates_of
from elsa_tune.searching.planning.strategy_settings import read_settings
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.policy import Policy, SeedCounts
from elsa_tune.specs.rate_space import RateSpace
from elsa_tune.specs.search import NO_LOOKS, Looks, SearchSpec
from elsa_tune.specs.space import Space
from elsa_tune.specs.trial import Phase, TrialSpec
from elsa_tune.tracking.journal_records import Decision

# The looks at which trials are counted, as places among a candidate's planned looks.
FIRST_LOOK = 0
LAST_LOOK = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a strategy makes of a request when a search is specified."""

    candidates: tuple[Candidate, ...]  # all that are trained, in the order of tests
    explored: tuple[Candidate, ...]  # those of them that try learning rates of their own
    seeds: int  # measuring seeds of a candidate, at most
    spent_error: float = 0.0  # the part of the error that is spent before anything is tested


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a search has found so far."""

    known: Trials
    chosen_rates: Mapping[Candidate, float]  # of the candidates that explore no further
    curve: Callable[[], FreezeCurve | None]  # of what was measured; None before anything was
    decisions: Mapping[str, Any] = field(default_factory=dict)  # recorded ones, by name

    def explored_quality(self, candidate: Candidate) -> float:
        """Return the quality of a candidate's exploring run at its rate; infinite without any."""
        rate = self.chosen_rates[candidate]
        qualities = []
        for trial in tries_of(self.known, candidate):
            if trial.learning_rate == rate and trial.quality is not None:
                qualities.append(trial.quality)
        return max(qualities, default=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a strategy has measured next, and why."""

    trials: tuple[TrialSpec, ...] = ()  # those that run included; none where it waits or has ended
    why: str = ""  # what they are for, or what ended the search; "" where that goes without saying
    waits: bool = False  # for a candidate's learning rate: without trials, this is not the end
    decision: Decision | None = None  # to be recorded before any of the trials begins
    note: str = ""  # what to say of that decision


class Strategy(ABC):
    """How one search is carried out."""

    # As spaces and search.json have it.
    name: ClassVar[str]
    # Whether candidates are tested in one fixed order without gaps (`tested`), which a certificate
    # takes. A strategy that skips candidates does not: its answers say that no test was planned.
    certifies: ClassVar[bool] = False
    # Whether more seeds than those of the first tests can be asked for: `thorough`, `until`.
    takes_second_looks: ClassVar[bool] = False
    # The frozen dataclass that a space's `strategy_settings` are read as; None: there are none.
    settings_type: ClassVar[type[Any] | None] = None

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec
        self.settings = self.settings_of(spec.strategy_settings)
        self.rates = rates_of(spec)

    # ---- what a search is asked to do ----

    @classmethod
    def settings_of(cls, given: Mapping[str, Any]) -> Any:
        """Return a space's or a search's `strategy_settings` as `settings_type`.

        Raises SpaceError for what they cannot be.
        """
        return read_settings(cls.name, cls.settings_type, given)

    @classmethod
    @abstractmethod
    def outline(cls, inputs: Inputs, policy: Policy, *, seeds: int | None, joined: bool) -> Outline:
        """Return what a new search trains.

        seeds: measuring seeds that were asked for, None for the space's. joined: the search is one
        of several tasks', which are to measure the same candidates. Raises SpaceError for what the
        strategy cannot do.
        """

    def with_seeds(self, seeds: int) -> SearchSpec:
        """Return the search with this number of measuring seeds. Raises SpaceError for fewer."""
        spec = self.spec
        if seeds < spec.seeds:
            raise SpaceError(
                f"`seeds` is {seeds}, but search '{spec.name}' has {spec.seeds} already, and what "
                f"is measured stays; write {spec.seeds} or more"
            )
        # Those beyond the planned ones count for the curve, not for the certificate: who saw some
        # seeds chooses how many more. A search that recorded no plan had planned what it has.
        planned = spec.planned_seeds or spec.seeds
        return replace(spec, seeds=seeds, planned_seeds=planned)

    def until_certain(self) -> SearchSpec:
        """Return the search that takes every look it planned.

        Raises SpaceError for a strategy without second looks.
        """
        if self.takes_second_looks:
            return replace(self.spec, until_certified=True)
        if not self.plans_tests:
            raise SpaceError(
                f"`until` certified: search '{self.spec.name}' has strategy {self.name}, which "
                "certifies nothing; start another one by `space` hunt"
            )
        raise SpaceError(
            f"`until` certified: search '{self.spec.name}' tests each depth once, with the seeds "
            "it planned; start another one by `space` hunt, or with more seeds"
        )

    # ---- which learning rates are explored ----

    def slots(self, known: Iterable[KnownTrial]) -> tuple[Slot, ...]:
        """Return the exploring trials that could start now.

        Unfinished ones come first, at the learning rate they had; then those of the given rates;
        then the next rate of each candidate that has had these. Candidates take turns, so that a
        search that is cut short has looked at all of them alike. Trials that run are among the
        known ones, and a candidate goes no further before they end: no slots may mean that there
        will be some.
        """
        known = list(known)
        exploring = exploring_of(known)
        restarts = [slot_again(trial) for trial in exploring if trial.is_unfinished]
        fresh = self._fresh(exploring)
        further = self._further(exploring)
        begun_anew = fresh + further
        limit = self.spec.exploring_limit
        if limit is not None:
            # Before `in_order`: further rates of the full model must not use up planned tries.
            still_allowed = max(0, limit - len(exploring))
            begun_anew = begun_anew[:still_allowed]
        return tuple(self.in_order(restarts + begun_anew, known))

    def _fresh(self, exploring: Trials) -> list[Slot]:
        """Return the tries that every explored candidate has in any case, by turns."""
        had = _counted(exploring)
        planned = {}
        for candidate in self.spec.explored:
            planned[candidate] = self.rates.planned(candidate)
        most = max(planned.values(), default=0)
        slots = []
        for number in range(most):
            for candidate, tries in planned.items():
                if had[candidate] <= number < tries:
                    slots.append(Slot(candidate=candidate))
        return slots

    def _further(self, exploring: Trials) -> list[Slot]:
        """Return the next rate of each candidate that has had its tries."""
        had = _counted(exploring)
        slots = []
        for candidate in self.rates.in_turn(self.spec.explored, had):
            if had[candidate] < self.rates.planned(candidate):
                continue
            rate = self.rates.next_rate(candidate, exploring)
            if rate is not None:
                slots.append(Slot(candidate=candidate, learning_rate=rate))
        return slots

    def in_order(self, slots: list[Slot], known: Trials) -> list[Slot]:
        """Return the slots in the order in which they begin, less those that must wait."""
        return slots

    def slots_left(self, known: Trials, measured: Collection[Candidate]) -> tuple[Slot, ...]:
        """Return the exploring trials that could start now, beside candidates that keep their rate.

        measured: those, whose measuring has begun. They explore no further, and only what failed
        there is tried again.
        """
        failed = failed_slots(known)
        left = []
        for slot in self.slots(known):
            explores = slot.candidate not in measured
            if explores or slot in failed:
                left.append(slot)
        return tuple(left)

    def trial_of(self, slot: Slot, known: Trials) -> TrialSpec | None:
        """Return a slot's trial as it begins; None where its rate waits for trials that run.

        known: the trials so far, those that run included.
        """
        spec = self.spec
        candidate = slot.candidate
        rate = slot.learning_rate
        if rate is None:
            exploring = exploring_of(known)
            rate = self.rates.next_rate(candidate, exploring)
        if rate is None:
            return None
        return spec.trial(Phase.EXPLORE, candidate, rate, spec.seed)

    def waits_for_reference(self, known: Iterable[KnownTrial]) -> bool:
        """Whether all exploring waits until the full model was measured."""
        return False

    def settled(self, known: Iterable[KnownTrial]) -> frozenset[Candidate]:
        """Return the candidates whose exploring has ended, whatever other trials will say.

        A candidate that goes further heeds those before it and the full model; before these have
        ended it is settled only where it would stop beside any of them. One that is not explored
        takes its rate from the leading ones.
        """
        known = list(known)
        explored = self.spec.explored
        exploring = exploring_of(known)
        waiting = {slot.candidate for slot in self.slots(known)}
        settled: list[Candidate] = []
        for place, candidate in enumerate(explored):
            has_ended = candidate not in waiting and self._has_had_all(candidate, exploring)
            if not has_ended:
                continue
            others_are_settled = len(settled) == place
            if others_are_settled or not self._may_go_on(candidate, exploring):
                settled.append(candidate)
        for leading in self.leading:
            if leading in explored and leading not in settled:
                return frozenset(settled)
        for candidate in self.spec.candidates:
            if candidate not in explored:
                settled.append(candidate)
        return frozenset(settled)

    def _has_had_all(self, candidate: Candidate, exploring: Trials) -> bool:
        """Whether all tries that a candidate has in any case have ended."""
        tries = tries_of(exploring, candidate)
        have_ended = all(trial.is_final for trial in tries)
        if not tries or not have_ended:
            return False
        if self._is_limited(exploring):
            return True
        return len(tries) >= self.rates.planned(candidate)

    def _may_go_on(self, candidate: Candidate, exploring: Trials) -> bool:
        if self._is_limited(exploring):
            return False
        return self.rates.may_go_on(candidate, exploring)

    def _is_limited(self, exploring: Trials) -> bool:
        """Whether there may be no more exploring trials."""
        limit = self.spec.exploring_limit
        if limit is None:
            return False
        return len(exploring) >= limit

    @property
    def leading(self) -> Sequence[Candidate]:
        """The candidates from whose rates those that are not explored take theirs."""
        return (REFERENCE,)

    def best_rates(self, known: Trials) -> dict[Candidate, float]:
        """Return each candidate's rate for measuring; without those that nothing is known of."""
        spec = self.spec
        exploring = exploring_of(known)
        chosen: dict[Candidate, float] = {}
        for candidate in spec.explored:
            rate = self.rates.best(candidate, exploring)
            if rate is not None:
                chosen[candidate] = rate
        for candidate in spec.candidates:
            if candidate in spec.explored:
                continue
            lowest, highest = spec.given_rates(candidate)
            has_one_rate = lowest == highest
            if has_one_rate or not spec.explored:
                chosen[candidate] = lowest
            elif all(leading in chosen for leading in self.leading):
                chosen[candidate] = self.rate_unexplored(candidate, chosen)
        return chosen

    def rate_unexplored(self, candidate: Candidate, chosen: Mapping[Candidate, float]) -> float:
        """Return the rate of a candidate that is not explored. chosen: those of the explored."""
        return chosen[REFERENCE]

    # ---- what is measured ----

    @abstractmethod
    def next(self, findings: Findings) -> Step:
        """Return what to measure now."""

    @property
    def plans_tests(self) -> bool:
        """Whether its answers can be certified; never where it may skip a candidate."""
        return self.certifies and not self._skips

    def looks(self, candidate: Candidate, decisions: Mapping[str, Any]) -> Looks | None:
        """Return when a candidate is tested, None where its search has no plan of that.

        The full model's looks are those beside any other. decisions: the recorded ones, by name.
        """
        if not self.plans_tests:
            return NO_LOOKS
        spec = self.spec
        order = []
        for other in self.tested(decisions):
            if other.is_in_order_of_tests:
                order.append(other)
        if spec.planned_seeds is None or candidate not in order:
            return None
        if not order[0].is_reference:
            return None
        place = order.index(candidate)
        before = order[max(0, place - 1)]
        counts = self.look_counts(candidate)
        fewest_seeds = min(min(seeds) for seeds in counts)
        error_left = spec.policy.test_error(fewest_seeds) - spec.ladder_error
        return Looks(
            after=before.key,
            first_seed=spec.seed + 1,
            counts=counts,
            error=round(error_left, 3),
        )

    def tested(self, decisions: Mapping[str, Any]) -> Sequence[Candidate]:
        """Return the candidates that are measured, in the order of their tests."""
        return self.spec.candidates

    def look_counts(self, candidate: Candidate) -> tuple[SeedCounts, ...]:
        """Return the seeds of a candidate and of the full model at each planned look."""
        planned = self.spec.planned_seeds or self.spec.seeds
        return (SeedCounts(depth=planned, full=planned),)

    def seeds_at(self, look: int, candidate: Candidate) -> int:
        """Return the measuring trials of a candidate up to a look, FIRST_LOOK or LAST_LOOK."""
        return self.spec.seeds

    @property
    def most_measured(self) -> int:
        """How many candidates are measured at most, the full model included.

        Every count of measuring trials follows from this. Where it is less than all of them, a
        candidate counts from its first measuring trial on.
        """
        return len(self.spec.candidates)

    @property
    def _skips(self) -> bool:
        """Whether some candidate is never measured."""
        return self.most_measured < len(self.spec.candidates)

    def may_leave_out(self, candidate: Candidate) -> bool:
        """Whether the search may end without measuring a candidate."""
        return self._skips and not candidate.is_reference

    def planned_seeds(self, candidate: Candidate, known: Iterable[KnownTrial]) -> int:
        """Return how many measuring trials a candidate has, as far as that is decided."""
        if self.may_leave_out(candidate) and candidate not in measured_rates(known):
            return 0
        return self.seeds_at(FIRST_LOOK, candidate)

    def undecided(self, known: Iterable[KnownTrial]) -> Sequence[Candidate]:
        """Return the candidates that may be measured beside those of which that is decided.

        Which ones these will be is open: the most expensive ones stand for them.
        """
        if not self._skips:
            return ()
        known = list(known)
        still_open = []
        for candidate in self.spec.candidates:
            if not self.planned_seeds(candidate, known):
                still_open.append(candidate)

        def cost(candidate: Candidate) -> float:
            return relative_cost(self.spec, candidate)

        most_expensive_first = sorted(still_open, key=cost, reverse=True)
        decided = len(self.spec.candidates) - len(still_open)
        more = max(0, self.most_measured - decided)
        return most_expensive_first[:more]

    def lacking(self, findings: Findings) -> Counter[Candidate]:
        """Return the measuring trials to go, by candidate."""
        step = self.next(findings)
        return Counter(trial.candidate for trial in step.trials)

    @property
    def opening(self) -> str:
        """What to say as measuring begins; "" where each step says what it is for."""
        return ""

    # ---- how many trials that is ----

    def fewest_tries(self, candidate: Candidate) -> int:
        """Return a candidate's exploring trials in any case, however early the search ends."""
        return self.rates.planned(candidate)

    def fewest_seeds(self, candidate: Candidate) -> int:
        """Return a candidate's measuring trials in any case, however early the search ends."""
        if self.may_leave_out(candidate):
            return 0
        return self.seeds_at(FIRST_LOOK, candidate)

    @property
    def exploring_trials(self) -> int:
        """Exploring trials that the candidates have before any goes on further."""
        return sum(map(self.rates.planned, self.spec.explored))

    @property
    def further_words(self) -> str:
        """What follows those, as the rates say it; "" where the search's limit leaves none."""
        limit = self.spec.exploring_limit
        if limit is not None and limit <= self.exploring_trials:
            return ""
        return self.rates.further_words

    def measuring_at(self, look: int) -> Counter[Candidate]:
        """Return the measuring trials of a new search, by candidate.

        Those up to every candidate's FIRST_LOOK or LAST_LOOK.
        """
        undecided = self.undecided(())
        trials: Counter[Candidate] = Counter()
        for candidate in self.spec.candidates:
            if candidate in undecided or self.planned_seeds(candidate, ()):
                trials[candidate] = self.seeds_at(look, candidate)
        return trials

    def expected_seeds(self, candidate: Candidate) -> float:
        """Return the measuring trials of its first look that a new search is expected to have."""
        return self.measuring_at(FIRST_LOOK)[candidate]

    @property
    def measuring_trials(self) -> int:
        """Measuring trials up to every candidate's first look."""
        return self.measuring_at(FIRST_LOOK).total()


def explored_of(space: Space, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return which of its candidates a space has try learning rates of their own.

    None that have one rate; where all follow the full model, it and those with rates of their own.
    Raises SpaceError where the full model is not among them then.
    """
    explored = []
    for candidate in candidates:
        rates = space.rates_for(candidate)
        if not _is_one_rate(rates):
            explored.append(candidate)
    if not space.follows_full_model or _is_one_rate(space.rates):
        return tuple(explored)
    if REFERENCE not in candidates:
        raise SpaceError(
            "learning_rate is from_full_model, but depths leave the full model (0) out; add 0"
        )
    leading = []
    for candidate in explored:
        has_own_rates = candidate.rates is not None
        if candidate.is_reference or has_own_rates:
            leading.append(candidate)
    return tuple(leading)


def _is_one_rate(rates: RateSpace) -> bool:
    """Whether there is nothing to explore."""
    if rates.values is None:
        return False
    return len(rates.values) == 1


def left_to_measure(
    spec: SearchSpec, rates: Mapping[Candidate, float], known: Iterable[KnownTrial]
) -> tuple[TrialSpec, ...]:
    """Return the measuring trials still to run: every candidate's first seed, then the second, ...

    So that a search that runs out of time has an answer, if a less certain one.
    """
    ended = {trial.key for trial in known if trial.is_final}
    measured = [candidate for candidate in spec.candidates if candidate in rates]
    trials = []
    for seed in spec.measuring_seeds:
        for candidate in measured:
            trial = spec.trial(Phase.MEASURE, candidate, rates[candidate], seed)
            if trial.key not in ended:
                trials.append(trial)
    return tuple(trials)


def _counted(trials: Iterable[KnownTrial]) -> Counter[Candidate]:
    """Return how many of these trials each candidate has."""
    return Counter(trial.candidate for trial in trials)
