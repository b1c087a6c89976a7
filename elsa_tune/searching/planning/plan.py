"""A search's plan beside its record: what comes next and why, and what is left to do."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.errors import ElsaTuneError, StorageError, UnknownMethodError
from elsa_tune.searching.planning.known import (
    KnownTrial,
    Trials,
    failed_slots,
    known_trial,
    lacks_probe,
    measured_rates,
    tries_of,
)
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.planning.strategy import LAST_LOOK, Findings, Step
from elsa_tune.searching.specification import load_specification
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.tracking.state import RecordedTrial, SearchState
from elsa_tune.words import candidates_text, trials_text


class Plan:
    """What a search is to do; nobody else judges whether it is complete, and nothing is written.

    state: gives the record so far. folder: the search's.
    """

    def __init__(self, spec: SearchSpec, state: Callable[[], SearchState], folder: Path) -> None:
        self.strategy = strategy_of(spec)
        self._spec = spec
        self._state = state
        self._folder = folder
        self._known: dict[str, tuple[RecordedTrial, KnownTrial]] = {}
        self._evidence = KeptPredictions()
        self._judged: frozenset[str] | None = None
        self._curve: FreezeCurve | None = None

    @classmethod
    def of(cls, spec: SearchSpec, paths: SearchPaths, state: SearchState) -> Self:
        """Return a recorded search's.

        Raises StorageError where a record does not name a trial, and UnknownMethodError where it
        names one of a method that is not known here.
        """
        for trial in state.planned_trials:
            try:
                rows_of(dataclasses.replace(state, trials={trial.key: trial}))
                known_trial(spec, trial)
            except UnknownMethodError:
                raise
            except ElsaTuneError as error:
                raise StorageError(
                    f"{paths.journal} does not say what trial '{trial.key}' is; restore the file "
                    "from a copy, or delete the search"
                ) from error
        return cls(spec, lambda: state, paths.folder)

    @property
    def state(self) -> SearchState:
        return self._state()

    @property
    def known(self) -> tuple[KnownTrial, ...]:
        """The plan's trials that have begun, in the order of their start."""
        read_before = self._known
        read: dict[str, tuple[RecordedTrial, KnownTrial]] = {}
        for recorded in self.state.planned_trials:
            pair = read_before.get(recorded.key)
            if pair is None or pair[0] is not recorded:  # something was recorded of it since
                pair = (recorded, known_trial(self._spec, recorded))
            read[recorded.key] = pair
        self._known = read  # at once, for the board asks in a thread of its own
        return tuple(known for _, known in read.values())

    @property
    def trials(self) -> int:
        """How many trials there are in all; beyond the given rates those that have begun."""
        known = self.known
        trials = 0
        for candidate in self._spec.candidates:
            trials += planned_trials(self._spec, known, candidate)
        return trials

    def step(self, rates: Mapping[Candidate, float], known: Trials) -> Step:
        """Return what is measured now, at these rates, and why."""
        return self.strategy.next(self._findings(rates, known))

    def _findings(self, rates: Mapping[Candidate, float], known: Trials) -> Findings:
        return Findings(
            known=known,
            chosen_rates=rates,
            curve=lambda: self._curve_of(known),
            decisions=self.state.decisions,
        )

    @property
    def left(self) -> Counter[Candidate]:
        """Trials to go, by candidate; none where the plan was carried out.

        What failed is among them: a session gives it up, the next one tries it again.
        """
        known = self.known
        rates_of_measured = measured_rates(known)
        rates = self.strategy.best_rates(known) | rates_of_measured
        left = self.strategy.lacking(self._findings(rates, known))
        if self.state.is_complete:
            # Its answer did not need whatever else was not explored.
            slots = failed_slots(known)
        else:
            slots = self.strategy.slots_left(known, rates_of_measured)
        for slot in slots:
            left[slot.candidate] += 1
        return left

    @property
    def lacks_probe(self) -> bool:
        """Whether its linear probe is still to be made: an earlier session may have failed."""
        return lacks_probe(self._spec, self.state)

    @property
    def is_complete(self) -> bool:
        """Whether the search has ended with nothing left to do, the linear probe included."""
        return self.state.is_complete and not self.left and not self.lacks_probe

    def missing(self, rates: Mapping[Candidate, float], *, explores: bool) -> str:
        """Return what is left at these rates, in words; "" for nothing.

        explores: exploring trials count too. A candidate whose measuring has begun keeps its rate,
        and only what failed there is left.
        """
        known = self.known
        step = self.step(rates, known)
        parts = []
        untried = 0
        if explores:
            slots = self.strategy.slots_left(known, measured_rates(known))
            untried = len(slots)
        if untried:
            parts.append(f"{trials_text(untried, 'exploring')} to go")
        if step.trials:
            parts.append(f"{trials_text(len(step.trials), 'measuring')} to go")
        rateless = []
        if step.waits:  # a search that has ended needs no rate of what it did not come to
            for candidate in self._spec.candidates:
                if candidate not in rates:
                    rateless.append(candidate)
        if rateless:
            which = candidates_text(rateless, self._spec.layers)
            parts.append(f"no learning rate for {which}")
        return " and ".join(parts)

    def _curve_of(self, known: Trials) -> FreezeCurve | None:
        """Return the curve of the trials that have ended, made anew when another one has."""
        ended = frozenset(trial.key for trial in known if trial.measures and trial.is_final)
        if ended == self._judged:
            return self._curve
        all_rows = rows_of(self.state, self._folder)
        rows = [row for row in all_rows if row.trial in ended]
        curves = freeze_curves(rows, self._evidence)
        curve = None
        if curves:
            curve = curves[0]
        self._curve = curve
        self._judged = ended
        return curve


def planned_trials(spec: SearchSpec, known: Trials, candidate: Candidate) -> int:
    """Return the trials of a candidate, both phases, as far as they are decided."""
    strategy = strategy_of(spec)
    planned = strategy.rates.planned(candidate)
    begun = len(tries_of(known, candidate))
    return max(planned, begun) + strategy.planned_seeds(candidate, known)


def trial_range(spec: SearchSpec, known: Trials) -> tuple[int, int]:
    """Return how few and how many trials there may be in all."""
    ranges = trial_ranges(spec, known).values()
    fewest = sum(low for low, _ in ranges)
    most = sum(high for _, high in ranges)
    return fewest, most


def trial_ranges(spec: SearchSpec, known: Trials) -> dict[Phase, tuple[int, int]]:
    """Return how few and how many trials there may be of each phase of the plan.

    The most: with every further rate of the candidates that still explore, and every look. The
    fewest: those that have begun, and what the search has however early it ends.
    """
    return {
        Phase.EXPLORE: _exploring_range(spec, known),
        Phase.MEASURE: _measuring_range(spec, known),
    }


def _exploring_range(spec: SearchSpec, known: Trials) -> tuple[int, int]:
    strategy = strategy_of(spec)
    measured = measured_rates(known)
    settled = strategy.settled(known)
    fewest = 0
    planned = 0
    most = 0
    for candidate in spec.candidates:
        begun = len(tries_of(known, candidate))
        fewest += max(begun, strategy.fewest_tries(candidate))
        tries = max(begun, strategy.rates.planned(candidate))
        planned += tries
        if candidate not in settled and candidate not in measured:
            tries = max(tries, strategy.rates.most(candidate))
        most += tries
    if spec.exploring_limit is not None:
        most_allowed = min(most, spec.exploring_limit)
        most = max(planned, most_allowed)
    return fewest, most


def _measuring_range(spec: SearchSpec, known: Trials) -> tuple[int, int]:
    strategy = strategy_of(spec)
    begun = Counter(trial.candidate for trial in known if trial.measures)
    fewest = 0
    most = 0
    for candidate in spec.candidates:
        fewest += max(begun[candidate], strategy.fewest_seeds(candidate))
        planned = strategy.planned_seeds(candidate, known)
        if planned:
            most += max(planned, strategy.seeds_at(LAST_LOOK, candidate))
    for candidate in strategy.undecided(known):
        most += strategy.seeds_at(LAST_LOOK, candidate)
    return fewest, most


def exploring_share(spec: SearchSpec) -> float:
    """Return the part of a time budget that exploring may take: that of its trials, at most."""
    strategy = strategy_of(spec)
    exploring = strategy.exploring_trials
    in_all = exploring + strategy.measuring_trials
    return min(spec.policy.exploring_share, exploring / in_all)


def steps_per_trial(spec: SearchSpec) -> int:
    """Return the optimiser steps of a trial that runs to its end."""
    steps_an_epoch = math.ceil(spec.train_examples / spec.recipe.batch_size)
    return steps_an_epoch * spec.recipe.epochs


def trials_in_all(folder: Path | None, state: SearchState) -> int | None:
    """Return how many trials a recorded search's board counted; None where that is not known.

    folder: None for a search that is in MLflow alone.
    """
    if folder is not None:
        paths = SearchPaths(folder.parent, folder.name)
        if paths.specification.exists():
            try:
                return Plan.of(load_specification(paths), paths, state).trials
            except ElsaTuneError:  # damaged, or of a package that is not here
                return None
    planned = []
    for name in ("exploring_trials", "measuring_trials"):
        count = str(state.search.params.get(name, ""))
        if count.isdigit():
            planned.append(int(count))
    if not planned:
        return None
    return max(sum(planned), state.trials_done)
