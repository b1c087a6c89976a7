"""What Ray Tune asks for trials: it asks the plan, which needs no state of Ray's."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.tune.search import Searcher

from elsa_tune.searching.cluster.fair_part import FairPart
from elsa_tune.searching.cluster.repeats import ATTEMPTS, Repeats
from elsa_tune.searching.planning.known import KnownTrial, Slot, tries_of
from elsa_tune.searching.planning.plan import exploring_share
from elsa_tune.searching.planning.strategy import Step, Strategy
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.searching.tune.trainable import TRIAL, NeverRestored
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """What a session has beside its plan, by which it is decided whether a trial begins."""

    # Its time; once exploring has had its share of it, those of its trials that run are waited for,
    # and only depths without a rate go on.
    limit: TimeLimit = field(default_factory=TimeLimit)
    repeats: Repeats = field(default_factory=Repeats)  # knows which tries do not count
    # What a worker does beside the plan, once trials are under way: the linear probe.
    probe: TrialSpec | None = None
    # Whether there is room for another trial; None where Ray alone decides that.
    room: FairPart | None = None


class PlanSearcher(NeverRestored, Searcher):
    """Suggests what the plan still lacks, as long as it lacks something.

    trials: gives the trials of this search so far. rates: of candidates that an earlier session
    began to measure; they explore no more. decide: called with the rates of all decided candidates
    whenever there are new ones. measuring: gives the step that is to be measured at given rates.
    """

    def __init__(
        self,
        strategy: Strategy,
        trials: Callable[[], Sequence[KnownTrial]],
        rates: Mapping[Candidate, float],
        decide: Callable[[Mapping[Candidate, float]], None],
        measuring: Callable[[Mapping[Candidate, float], Sequence[KnownTrial]], Step],
        parts: SessionParts | None = None,
    ) -> None:
        super().__init__()
        parts = parts or SessionParts()
        self._spec = strategy.spec
        self._strategy = strategy
        self._trials = trials
        self._rates = dict(rates)
        self._decide = decide
        self._measuring = measuring
        self._limit = parts.limit
        self._repeats = parts.repeats
        self._room = parts.room
        self._probe = parts.probe  # None once it was made
        self._probe_runs_as: str | None = None  # Ray's name of it, while it runs
        self._probed = 0
        self._under_way: dict[str, TrialSpec] = {}
        self._attempts: Counter[str] = Counter()

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial's config; None to wait for trials that run; FINISHED at the end."""
        if self._room is None:
            return self._suggest_next(trial_id)
        under_way = len(self._under_way)
        if self._probe_runs_as is not None:
            under_way += 1
        suggested = None
        if self._room.allows(under_way):
            suggested = self._suggest_next(trial_id)
        if suggested is None:
            self._room.leave()
        return suggested

    def _suggest_next(self, trial_id: str) -> Any:
        """Return what `suggest` does where there is room for a trial."""
        trials = self._so_far()
        ended = [trial.key for trial in trials if trial.is_final]
        # The workers' first work is a trial; what earlier sessions finished says nothing of them.
        has_worked = any(key in self._attempts for key in ended)
        if has_worked and self._probe_is_due:
            return self._suggest_probe(trial_id)
        trial = self._next(trials)
        if trial is not None:
            self._under_way[trial_id] = trial
            self._attempts[trial.key] += 1
            return {TRIAL: trial}
        something_runs = self._under_way or self._probe_runs_as
        if something_runs:
            return None
        if ended and self._probe_is_due:
            return self._suggest_probe(trial_id)
        return str(Searcher.FINISHED)

    @property
    def _probe_is_due(self) -> bool:
        """Whether the probe is wanted, does not run, and has not failed too often."""
        if self._probe is None or self._probe_runs_as is not None:
            return False
        return self._probed < ATTEMPTS

    def _suggest_probe(self, trial_id: str) -> dict[str, TrialSpec | None]:
        """Return the config of the probe, which runs from now on."""
        self._probe_runs_as = trial_id
        self._probed += 1
        return {TRIAL: self._probe}

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,
    ) -> None:
        """Note that a trial runs no more; how it ended is in the record."""
        if trial_id == self._probe_runs_as:
            self._probe_runs_as = None
            if not error:
                self._probe = None
        self._under_way.pop(trial_id, None)

    @property
    def under_way(self) -> list[TrialSpec]:
        """The trials that Ray Tune was given and that have not ended."""
        return list(self._under_way.values())

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the plan follows from the journal."""

    def _next(self, trials: Sequence[KnownTrial]) -> TrialSpec | None:
        """Return a trial that could start now: one to explore, else one to measure.

        Once exploring has had its share, depths without a rate alone explore: those that had a turn
        at once, so that they are measured beside the others, the rest where all has been measured.
        """
        strategy = self._strategy
        slots = strategy.slots_left(trials, self._rates.keys())
        trial = self._first_ready(slots, trials)
        if trial is not None and not self._may_explore(trials):
            slots = tuple(self._without_rate(slots, trials))
            had_a_turn = [slot for slot in slots if tries_of(trials, slot.candidate)]
            trial = self._first_ready(had_a_turn, trials)
        if trial is not None:
            return trial
        something_explores = any(trial.phase is Phase.EXPLORE for trial in self.under_way)
        # What has failed for good keeps its depth from being settled, and must not for ever.
        self._settle(trials, is_over=not something_explores)
        running = {trial.key for trial in self.under_way}
        step = self._measuring(self._rates, trials)
        to_measure = [trial for trial in step.trials if trial.key not in running]
        trial = self._first(to_measure, trials)
        something_is_measured = any(trial.phase is Phase.MEASURE for trial in self.under_way)
        if trial is not None or something_is_measured or not step.waits:
            return trial
        return self._first_ready(slots, trials)

    def _first_ready(self, slots: Sequence[Slot], trials: Sequence[KnownTrial]) -> TrialSpec | None:
        """Return the first trial of slots that could start now."""
        return self._first(self._ready(slots, trials), trials)

    def _ready(self, slots: Sequence[Slot], trials: Sequence[KnownTrial]) -> Iterator[TrialSpec]:
        """Yield the trials of slots, without those whose rate waits for trials that run."""
        for slot in slots:
            trial = self._strategy.trial_of(slot, trials)
            if trial is not None:
                yield trial

    def _may_explore(self, trials: Sequence[KnownTrial]) -> bool:
        """Return whether exploring, which must leave time to measure, has some of its own left."""
        of_exploring = exploring_share(self._spec)
        if not self._limit.ends_exploring(of_exploring):
            return True
        has_rates = bool(self._strategy.best_rates(trials))
        return not has_rates

    def _without_rate(self, slots: Sequence[Slot], trials: Sequence[KnownTrial]) -> list[Slot]:
        """Return the slots of candidates without any rate to measure them at.

        Their tries, if there were any, diverged or were lost; one that runs is waited for. Once the
        planned ones have diverged, they have a rate.
        """
        best_rates = self._strategy.best_rates(trials)
        rateless = []
        for slot in slots:
            tries = tries_of(trials, slot.candidate)
            gave_nothing = all(trial.is_diverged or trial.is_unfinished for trial in tries)
            if gave_nothing and slot.candidate not in best_rates:
                rateless.append(slot)
        return rateless

    def _settle(self, trials: Sequence[KnownTrial], *, is_over: bool) -> None:
        """Decide the rates that are settled, all of them where exploring is over.

        Where all else waits for the full model, its exploring alone is over.
        """
        if len(self._rates) == len(self._spec.candidates):
            return
        best_rates = self._strategy.best_rates(trials)
        settled: Collection[Candidate] = best_rates.keys()
        if not is_over:
            settled = self._strategy.settled(trials)
        elif self._strategy.waits_for_reference(trials):
            settled = [REFERENCE]
        decided: dict[Candidate, float] = {}
        for candidate in self._spec.candidates:
            if candidate in settled and candidate in best_rates:
                decided[candidate] = best_rates[candidate]
        new = decided.keys() - self._rates.keys()
        if new:
            self._rates = {**decided, **self._rates}
            self._decide(self._rates)

    def _first(
        self,
        suggested: Iterable[TrialSpec],
        trials: Sequence[KnownTrial],
    ) -> TrialSpec | None:
        """Return the first that did not fail in this session, or one to try again without such."""
        everything_failed = True
        for trial in trials:
            is_own = trial.key in self._attempts
            has_failed = trial.status is TrialStatus.FAILED
            if is_own and not has_failed:
                everything_failed = False
        most = ATTEMPTS
        if everything_failed:
            most = 1
        again: TrialSpec | None = None
        for spec in suggested:
            attempts = self._repeats.counted(spec.key, self._attempts[spec.key])
            if attempts == 0:
                return spec
            if again is None and attempts < most:
                again = spec
        return again

    def _so_far(self) -> list[KnownTrial]:
        """Return what is recorded, and what was suggested and has not begun."""
        running = {trial.key: trial for trial in self.under_way}
        trials = [trial for trial in self._trials() if trial.key not in running]
        for spec in running.values():
            trial = KnownTrial(
                trial=spec,
                status=TrialStatus.RUNNING,
                qualities=(),
            )
            trials.append(trial)
        return trials
