"""What Ray Tune asks for trials: it asks the plan, which needs no state of Ray's."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ray.tune.search import Searcher

from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.searching.planning.plan import exploring_share
from elsa_tune.searching.planning.strategy import Strategy
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.searching.tune.trainable import TRIAL, NeverRestored
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus

# A trial that failed (a lost node, a full disk) is given one more try before the search goes on
# without it.
ATTEMPTS = 2


class PlanSearcher(NeverRestored, Searcher):
    """Suggests what the plan still lacks, as long as it lacks something.

    known: gives the trials of this search so far. rates: of candidates that an earlier session
    began to measure; they explore no more. decide: called with the rates of all decided candidates
    whenever there are new ones. measuring: gives what is to be measured at given rates.
    limit: the session's time; once exploring has had its share of it, no more of its trials begin,
    and those that run are waited for.
    """

    # What a worker does beside the plan, once trials are under way: the linear probe.
    probe: TrialSpec | None = None

    def __init__(
        self,
        strategy: Strategy,
        known: Callable[[], Sequence[KnownTrial]],
        rates: Mapping[Candidate, float],
        decide: Callable[[Mapping[Candidate, float]], None],
        measuring: Callable[[Mapping[Candidate, float], Sequence[KnownTrial]], Sequence[TrialSpec]],
        limit: TimeLimit | None = None,
    ) -> None:
        super().__init__()
        self._spec = strategy.spec
        self._strategy = strategy
        self._known = known
        self._rates = dict(rates)
        self._decide = decide
        self._limit = limit or TimeLimit()
        self._measuring = measuring
        self._probe_runs_as: str | None = None  # Ray's name of it, while it runs
        self._probed = 0
        self._under_way: dict[str, TrialSpec] = {}
        self._attempts: Counter[str] = Counter()

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial's config; None to wait for trials that run; FINISHED at the end."""
        known = self._so_far()
        ended = [one.trial.key for one in known if one.status.is_final]
        # The workers' first work is a trial; what earlier sessions finished says nothing of them.
        if any(key in self._attempts for key in ended) and self._probe_is_due:
            return self._suggest_probe(trial_id)
        trial = self._next(known)
        if trial is not None:
            self._under_way[trial_id] = trial
            self._attempts[trial.key] += 1
            return {TRIAL: trial}
        if self._under_way or self._probe_runs_as:
            return None
        if ended and self._probe_is_due:
            return self._suggest_probe(trial_id)
        return str(Searcher.FINISHED)

    @property
    def _probe_is_due(self) -> bool:
        """Whether the probe is wanted, does not run, and has not failed too often."""
        is_wanted = self.probe is not None and self._probe_runs_as is None
        return is_wanted and self._probed < ATTEMPTS

    def _suggest_probe(self, trial_id: str) -> dict[str, TrialSpec | None]:
        self._probe_runs_as = trial_id
        self._probed += 1
        return {TRIAL: self.probe}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Note that a trial runs no more; how it ended is in the record."""
        if trial_id == self._probe_runs_as:
            self._probe_runs_as = None
            self.probe = self.probe if error else None
        self._under_way.pop(trial_id, None)

    @property
    def under_way(self) -> list[TrialSpec]:
        """Those that Ray Tune was given and that have not ended."""
        return list(self._under_way.values())

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the plan follows from the journal."""

    def _next(self, known: Sequence[KnownTrial]) -> TrialSpec | None:
        """Return a trial that could start now: one to explore, else one to measure."""
        slots = self._strategy.slots_left(known, self._rates.keys())
        trial = self._first((self._strategy.trial_of(slot, known) for slot in slots), known)
        if trial is not None and self._may_explore(known):
            return trial
        explores = any(trial.phase is Phase.EXPLORE for trial in self.under_way)
        # What has failed for good keeps its depth from being settled, and must not for ever.
        waits = explores or self._strategy.waits_for_reference(known)
        self._settle(known, is_over=not waits)
        running = {trial.key for trial in self.under_way}
        left = self._measuring(self._rates, known)
        return self._first((one for one in left if one.key not in running), known)

    def _may_explore(self, known: Sequence[KnownTrial]) -> bool:
        """Whether exploring, which must leave time to measure, has some of its own left."""
        is_late = self._limit.has_passed(exploring_share(self._spec))
        return not is_late or not self._strategy.best_rates(known)

    def _settle(self, known: Sequence[KnownTrial], *, is_over: bool) -> None:
        if len(self._rates) == len(self._spec.candidates):
            return
        best = self._strategy.best_rates(known)
        settled = best.keys() if is_over else self._strategy.settled(known)
        new = {}
        for candidate in self._spec.candidates:
            if candidate in settled and candidate in best:
                new[candidate] = best[candidate]
        if new.keys() - self._rates.keys():
            self._rates = {**new, **self._rates}
            self._decide(self._rates)

    def _first(self, trials: Iterator[TrialSpec], known: Sequence[KnownTrial]) -> TrialSpec | None:
        """Return the trials less those that failed in this session, unless nothing else is left."""
        ended = (one.status for one in known if one.trial.key in self._attempts)
        attempts = 1 if all(status is TrialStatus.FAILED for status in ended) else ATTEMPTS
        again: TrialSpec | None = None
        for trial in trials:
            if not self._attempts[trial.key]:
                return trial
            if again is None and self._attempts[trial.key] < attempts:
                again = trial
        return again

    def _so_far(self) -> list[KnownTrial]:
        """Return what is recorded, and what was suggested and has not begun."""
        running = {trial.key: trial for trial in self._under_way.values()}
        known = [one for one in self._known() if one.trial.key not in running]
        begun = partial(KnownTrial, status=TrialStatus.RUNNING, qualities=())
        return known + [begun(trial=trial) for trial in running.values()]
