"""A search's plan beside its record: what is to be measured next, and what is left to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.search.planning.hunt import walk
from elsa_tune.search.planning.known import KnownTrial
from elsa_tune.search.planning.plan import best_rates, exploring_slots, measuring_trials
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import SearchSpec, Strategy
from elsa_tune.specs.trial import Phase, TrialSpec
from elsa_tune.tracking.predictions import KeptPredictions
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState


class Plan:
    """What a search still has to do, for whoever asks again and again.

    state: gives the record so far. folder: the search's. say: is told what a hunt's next trials are
    for, whenever that is something new.
    """

    def __init__(
        self,
        spec: SearchSpec,
        state: Callable[[], SearchState],
        folder: Path,
        say: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._spec, self._state, self._folder, self._say = spec, state, folder, say
        self._said = ""
        self._evidence = KeptPredictions()
        self._judged: frozenset[str] | None = None
        self._curve: FreezeCurve | None = None

    def measuring(
        self, rates: Mapping[FreezeDepth, float], known: Sequence[KnownTrial]
    ) -> Sequence[TrialSpec]:
        """The measuring trials that could start now, those that run included."""
        if self._spec.strategy is Strategy.EVEN:
            return measuring_trials(self._spec, rates, known)
        found = walk(self._spec, rates, known, self._curve_of(known))
        if found.why != self._said and not found.waits:
            self._said = found.why
            self._say(f"measuring: {found.why}")
        return found.trials

    def left(self, known: Sequence[KnownTrial]) -> Counter[FreezeDepth]:
        """Trials to go, by depth; none where the plan was carried out."""
        spec = self._spec
        if spec.strategy is Strategy.HUNT:
            left = Counter(one.depth for one in self.measuring(best_rates(spec, known), known))
        else:  # whatever the rates will be
            measured = [one for one in known if one.trial.phase is Phase.MEASURE]
            ended = Counter(one.trial.depth for one in measured if one.status.is_final)
            left = Counter(dict.fromkeys(spec.depths, spec.seeds)) - ended
        if not self._state().is_complete:  # else its answer did not need what failed in exploring
            left.update(slot.depth for slot in exploring_slots(spec, known))
        return left

    def _curve_of(self, known: Sequence[KnownTrial]) -> FreezeCurve | None:
        """Of the trials that have ended; made anew when another one has."""
        ended = frozenset(
            one.trial.key
            for one in known
            if one.trial.phase is Phase.MEASURE and one.status.is_final
        )
        if ended != self._judged:
            rows = [row for row in rows_of(self._state(), self._folder) if row.trial in ended]
            self._curve = next(iter(freeze_curves(rows, self._evidence)), None)
            self._judged = ended
        return self._curve
