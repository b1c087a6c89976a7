"""A search's plan beside its record: what comes next and why, and what is left to do."""

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.errors import ElsaTuneError, StorageError
from elsa_tune.searching.planning.exploring import (
    best_rates,
    failed_slots,
    measured_rates,
    settled_depths,
    slots_left,
)
from elsa_tune.searching.planning.known import KnownTrial, known_trial, tried
from elsa_tune.searching.planning.measuring import Walk, chosen_ladder, measuring_trials, walk
from elsa_tune.searching.specification import load_specification
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import SearchSpec, Strategy
from elsa_tune.specs.trial import Phase, TrialSpec
from elsa_tune.tracking.journal_records import Decision, Record
from elsa_tune.tracking.names import LADDER
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.tracking.state import SearchState, TrialState
from elsa_tune.words import depths_text


class Plan:
    """What a search is to do; nobody else judges whether it is complete.

    state: gives the record so far. folder: the search's. say: is told what a hunt's next trials are
    for, whenever that is something new. write: keeps which of its ladder a hunt tests.
    """

    def __init__(
        self,
        spec: SearchSpec,
        state: Callable[[], SearchState],
        folder: Path,
        say: Callable[[str], None] = lambda why: None,
        write: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self._spec, self._state, self._folder, self._say = spec, state, folder, say
        self._write = write
        self._said = ""
        self._known: dict[str, tuple[TrialState, KnownTrial]] = {}
        self._evidence = KeptPredictions()
        self._judged: frozenset[str] | None = None
        self._curve: FreezeCurve | None = None

    @classmethod
    def of(cls, spec: SearchSpec, paths: SearchPaths, state: SearchState) -> Self:
        """That of a recorded search; StorageError where a record does not say what a trial is."""
        for trial in state.planned_trials:
            try:
                known_trial(spec, trial)
                rows_of(dataclasses.replace(state, trials={trial.key: trial}))
            except (KeyError, TypeError, ValueError, AssertionError, ElsaTuneError) as error:
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
        # Read anew where something was recorded of it since.
        before, now = self._known, {one.key: one for one in self.state.planned_trials}
        self._known = {
            key: before[key]
            if key in before and before[key][0] is state
            else (state, known_trial(self._spec, state))
            for key, state in now.items()
        }
        return tuple(one for _, one in self._known.values())

    @property
    def trials(self) -> int:
        """How many trials there are in all; beyond the given rates those that have begun."""
        known = self.known
        return sum(planned_trials(self._spec, known, depth) for depth in self._spec.depths)

    def measuring(
        self, rates: Mapping[FreezeDepth, float], known: Sequence[KnownTrial]
    ) -> Sequence[TrialSpec]:
        """The measuring trials that could start now, those that run included."""
        return self._next(rates, known).trials

    def _next(self, rates: Mapping[FreezeDepth, float], known: Sequence[KnownTrial]) -> Walk:
        if self._spec.strategy is Strategy.EVEN:
            return Walk(measuring_trials(self._spec, rates, known), "", waits=True)
        curve, ladder = self._curve_of(known), self.state.decisions.get(LADDER)
        if ladder is None:
            ladder = chosen_ladder(self._spec, rates, known, curve)
            if ladder is not None and self._spec.ladder_error:
                self._write(Decision(what=LADDER, value=ladder))
                left_out = [one for one in self._spec.ladder if one.frozen_layers not in ladder]
                if left_out:
                    layers = self._spec.layers
                    why = f"{depths_text(self._spec.explored[1:2], layers)} looks good"
                    left = depths_text(left_out, layers)
                    self._say(f"measuring: leaving out {left}, because {why}")
        found = walk(self._spec, rates, known, curve, ladder)
        if found.why != self._said and not found.waits:
            self._said = found.why
            self._say(f"measuring: {found.why}")
        return found

    @property
    def left(self) -> Counter[FreezeDepth]:
        """Trials to go, by depth; none where the plan was carried out.

        What failed is among them: a session gives it up, the next one tries it again.
        """
        spec, known = self._spec, self.known
        kept = measured_rates(known)
        if spec.strategy is Strategy.HUNT:
            rates = {**best_rates(spec, known), **kept}
            left = Counter(one.depth for one in self.measuring(rates, known))
        else:  # whatever the rates will be
            measured = [one for one in known if one.trial.phase is Phase.MEASURE]
            ended = Counter(one.trial.depth for one in measured if one.status.is_final)
            left = Counter(dict.fromkeys(spec.depths, spec.seeds)) - ended
        # The answer of a complete search did not need whatever else was not explored.
        is_complete = self.state.is_complete
        slots = failed_slots(known) if is_complete else slots_left(spec, known, kept)
        left.update(slot.depth for slot in slots)
        return left

    @property
    def is_complete(self) -> bool:
        """Whether the search has ended with nothing left to do."""
        return self.state.is_complete and not self.left

    def missing(self, rates: Mapping[FreezeDepth, float], *, explores: bool) -> str:
        """What is left at these rates, in words; "" for nothing. explores: exploring trials count
        too; a depth whose measuring has begun keeps its rate, and only what failed there is left.
        """
        known = self.known
        untried = len(slots_left(self._spec, known, measured_rates(known))) if explores else 0
        found = self._next(rates, known)
        # A hunt that has ended needs no rate of what it did not come to.
        needed = self._spec.depths if found.waits else ()
        rateless = ", ".join(depth.label for depth in needed if depth not in rates)
        parts = (
            f"{untried} exploring trials to go" if untried else "",
            f"{len(found.trials)} measuring trials to go" if found.trials else "",
            f"no learning rate for frozen layers {rateless}" if rateless else "",
        )
        return " and ".join(filter(None, parts))

    def _curve_of(self, known: Sequence[KnownTrial]) -> FreezeCurve | None:
        """Of the trials that have ended; made anew when another one has."""
        ended = frozenset(
            one.trial.key
            for one in known
            if one.trial.phase is Phase.MEASURE and one.status.is_final
        )
        if ended != self._judged:
            rows = [row for row in rows_of(self.state, self._folder) if row.trial in ended]
            self._curve = next(iter(freeze_curves(rows, self._evidence)), None)
            self._judged = ended
        return self._curve


def planned_trials(spec: SearchSpec, known: Sequence[KnownTrial], depth: FreezeDepth) -> int:
    """Trials of a depth, both phases: the plan's, and beyond the given rates those begun."""
    explored = len(tried(known, depth))
    planned = spec.tries if depth in spec.explored else 0
    measured = spec.seeds
    if spec.strategy is Strategy.HUNT:
        # Its first look's; others as they begin, as all of a ladder whose next depth has begun.
        begun = Counter(one.trial.depth for one in known if one.trial.phase is Phase.MEASURE)
        is_passed = depth in spec.ladder and begun[spec.explored[1]] > 0
        measured = max(begun[depth], 0 if is_passed else spec.first_seeds(depth))
    return measured + max(planned, explored)


def trial_range(spec: SearchSpec, known: Sequence[KnownTrial]) -> tuple[int, int]:
    """How few and how many trials there may be in all.

    The most: with every rate beyond the given ones at the depths that still explore, and a hunt's
    second looks. The fewest: without them; a hunt may end once it has measured the full model.
    """
    is_hunt = spec.strategy is Strategy.HUNT
    settled = settled_depths(spec, known)
    measured = Counter(one.trial.depth for one in known if one.trial.phase is Phase.MEASURE)
    fewest = most = furthest = begun = 0
    for depth in spec.depths:
        planned, explored = planned_trials(spec, known, depth), len(tried(known, depth))
        exploring = max(spec.tries if depth in spec.explored else 0, explored)
        measuring = planned - exploring
        may_end_before = is_hunt and not depth.is_full_model
        fewest += exploring + (measured[depth] if may_end_before else measuring)
        most += max(measuring, spec.seeds_at(-1, depth)) if is_hunt and measuring else measuring
        is_open = depth in spec.explored and depth not in settled and not measured[depth]
        beyond = spec.extend.tries if spec.extend is not None and is_open else 0
        furthest += max(exploring, spec.tries + beyond) if is_open else exploring
        begun += exploring
    if spec.exploring_limit is not None:
        furthest = max(begun, min(furthest, spec.exploring_limit))
    return fewest, most + furthest


def exploring_share(spec: SearchSpec) -> float:
    """The part of a time budget that exploring may take: that of its trials, at most half."""
    return min(
        spec.policy.exploring_share,
        spec.exploring_trials / (spec.exploring_trials + spec.measuring_trials),
    )


def steps_per_trial(spec: SearchSpec) -> int:
    """Optimiser steps of a trial that runs to its end."""
    return math.ceil(spec.train_examples / spec.recipe.batch_size) * spec.recipe.epochs


def doubts(spec: SearchSpec) -> Iterator[str]:
    """What to tell who is about to train all of this, and might not want to."""
    from elsa_tune.training.loop import few_steps

    full = FULL_MODEL in spec.depths
    if not full or len(spec.depths) == 1:
        lacks = "frozen layers" if full else "0 (the full model)"
        yield f"depths without {lacks} leave nothing to compare: no answer by this search alone"
    if note := few_steps(spec.recipe, steps_per_trial(spec)):
        yield note


def trials_in_all(folder: Path | None, state: SearchState) -> int | None:
    """How many a recorded search's board counted, if known. folder: None if in MLflow alone."""
    if folder is not None:
        paths = SearchPaths(folder.parent, folder.name)
        with contextlib.suppress(ElsaTuneError):
            return Plan.of(load_specification(paths), paths, state).trials
    params = state.search.params
    counts = [params.get(f"{phase}_trials", "") for phase in ("exploring", "measuring")]
    planned = [int(count) for count in counts if count.isdigit()]
    return max(sum(planned), state.trials_done) if planned else None
