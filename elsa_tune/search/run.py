"""A search from its first trial to its last: explore, choose each depth's rate, measure.

Fresh and resumed searches go the same way: what is left to do follows from the specification and
the journal.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence

import optuna
import ray
from ray import tune
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elsa_tune.errors import RunError
from elsa_tune.search.board import Board
from elsa_tune.search.planned import Plan
from elsa_tune.search.planning.plan import (
    best_rates,
    exploring_share,
    exploring_slots,
    is_cheap,
)
from elsa_tune.search.record import SearchRecord
from elsa_tune.search.tune.early_stopping import PerDepthAsha
from elsa_tune.search.tune.probing import LITTLE_PATIENCE, PATIENCE, Probing
from elsa_tune.search.tune.ray_callback import Recorder
from elsa_tune.search.tune.searcher import PlanSearcher
from elsa_tune.search.tune.stopping import Interruption, SearchStopper
from elsa_tune.search.tune.trainable import (
    Mailbox,
    Train,
    Work,
    run_trial,
)
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import Strategy
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.journal_records import Decision, SearchEnded, SearchStatus
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import train

RATES = "learning_rates"


class SearchRun:
    """One session of a search, on a Ray that is already up."""

    def __init__(
        self,
        data: TaskData,
        record: SearchRecord,
        board: Board,
        interruption: Interruption,
        train: Train = train,
    ) -> None:
        self._spec = spec = record.spec
        self._record = record
        self._board = board
        self._interruption = interruption
        self._plan = Plan(spec, record.state, record.paths.folder, board.phase)
        self._started = time.monotonic()
        self._tuners = 0
        self._rates: dict[FreezeDepth, float] = {}
        self._is_measuring = False
        self._ran_out = False  # some phase was cut short by its time
        # Beside the driver: a node that is lost must not take other trials' predictions with it.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        mailbox = Mailbox.options(scheduling_strategy=here).remote()  # type: ignore[attr-defined]
        self._work = Work(spec=spec, data=data, mailbox=mailbox, train=train)
        self._probing = Probing(data, record, interruption)
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def run(self) -> SearchEnded:
        """Do what is left of the plan; every way out leaves each trial with a status."""
        try:
            return self._carry_out()
        finally:
            # A Ray that was there before this search goes on after it.
            ray.kill(self._work.mailbox)

    def _carry_out(self) -> SearchEnded:
        self._probing.start()
        spec, known = self._spec, self._record.known_trials()
        # A depth that an earlier session began to measure keeps its rate.
        measured = [one.trial for one in known if one.trial.phase is Phase.MEASURE]
        self._rates = {trial.depth: trial.learning_rate for trial in measured}
        slots = [s for s in exploring_slots(spec, known) if s.depth not in self._rates]
        # Some depth that is not being measured yet still lacks tries or a rate.
        if spec.explored and (slots or set(spec.depths) - self._rates.keys()):
            beyond = ", then outward from a best rate at the border" if spec.extend else ""
            depths = "the full model" if len(spec.explored) == 1 else f"{len(spec.explored)} depths"
            self._board.phase(f"exploring: {len(slots)} trials over {depths}{beyond}")
        if spec.max_time is None:
            self._fit((Phase.EXPLORE, Phase.MEASURE), None)
        else:
            # Exploring must leave time to measure, also at a rate that could have been better.
            if slots:
                self._fit((Phase.EXPLORE,), self._started + exploring_share(spec) * spec.max_time)
            if not self._interruption.requested:
                # Without any rate there is nothing to measure: the rest of the time explores, too.
                found = best_rates(spec, self._record.known_trials())
                phases = (Phase.MEASURE,) if found else (Phase.EXPLORE, Phase.MEASURE)
                self._fit(phases, self._started + spec.max_time)
        self._refuse_if_nothing_works()
        return self._outcome()

    # ---- the learning rates ----

    def _decide(self, rates: Mapping[FreezeDepth, float]) -> None:
        """A depth's rate is settled, and it will be measured at it."""
        if not self._is_measuring:
            self._is_measuring = True
            if self._spec.strategy is Strategy.EVEN:  # a hunt says itself what it is after
                seeds = "1 seed" if self._spec.seeds == 1 else f"{self._spec.seeds} seeds"
                left = self._spec.measuring_trials
                self._board.phase(f"measuring: {left} trials, {seeds} of each depth")
        self._rates = dict(rates)
        value = {depth.label: rate for depth, rate in rates.items()}
        self._record.write(Decision(what=RATES, value=value))

    # ---- Ray Tune ----

    def _fit(self, phases: Sequence[Phase], deadline: float | None) -> None:
        """One Ray Tune run, for these phases of what is left."""
        if self._is_over(deadline):
            return
        spec = self._spec
        self._tuners += 1
        scheduler = self._scheduler()
        searcher = PlanSearcher(
            spec, self._record.known_trials, self._rates, self._decide, phases, self._plan.measuring
        )
        recorder = Recorder(self._record, scheduler, self._work, self._board)
        name = f"{self._record.state().search.attempt}-{self._tuners}"
        share = {"cpu": spec.resources.cpus, "gpu": spec.resources.gpus}
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(run_trial, work=self._work), share),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=scheduler,
                num_samples=-1,  # until the searcher says that it has finished
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=str(self._record.paths.ray),
                callbacks=[recorder],
                stop=SearchStopper(self._interruption, deadline),
                verbose=0,
            ),
        )
        try:
            with _quiet():
                tuner.fit()
        finally:
            recorder.end_the_rest()
            self._is_over(deadline)
            self._probing.collect()

    def _scheduler(self) -> PerDepthAsha:
        """With what earlier sessions' trials reported in its rungs."""
        spec = self._spec
        exempt = [depth.label for depth in spec.explored if is_cheap(spec, depth)]
        score = spec.recipe.selection.score
        scheduler = PerDepthAsha(spec.asha, spec.recipe.evaluations, score, exempt)
        for one in self._record.known_trials():
            if one.trial.phase is Phase.EXPLORE and one.status.is_final:
                scheduler.replay(one.trial.key, one.trial.depth.label, one.scores)
        return scheduler

    def _is_over(self, deadline: float | None) -> bool:
        stopper = SearchStopper(self._interruption, deadline)
        self._ran_out = self._ran_out or stopper.time_is_up
        return stopper.stop_all()

    def _refuse_if_nothing_works(self) -> None:
        """End a search whose every trial fails: the second round would fail like the first."""
        ends = [state.end for state in self._record.state().planned_trials]
        failed = [end for end in ends if end is not None and end.status is TrialStatus.FAILED]
        if failed and len(failed) == len(ends):
            raise RunError(f"every trial failed; the first said: {failed[0].message}")

    def _outcome(self) -> SearchEnded:
        self._probing.collect(PATIENCE if self._spec.max_time is None else LITTLE_PATIENCE)
        if self._interruption.requested:
            return SearchEnded(status=SearchStatus.INTERRUPTED)
        missing = self._plan.missing(self._rates, explores=self._ran_out)
        known = self._record.known_trials()
        failed = [one for one in known if one.status is TrialStatus.FAILED]
        if missing and self._ran_out:
            return SearchEnded(status=SearchStatus.TIME_UP, message=f"time was up with {missing}")
        if missing:
            return SearchEnded(
                status=SearchStatus.FAILED, message=f"{len(failed)} trials failed, with {missing}"
            )
        message = f"{len(failed)} trials failed: {failed[0].trial.key}" if failed else ""
        return SearchEnded(status=SearchStatus.COMPLETED, message=message)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ray's and Optuna's own warnings are about our use of them, not the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
