"""What is left of a search, carried out by one run of Ray Tune on a Ray that is up."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
import ray
from ray import tune
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elsa_tune.errors import RunError, shortlist
from elsa_tune.searching.board import Board
from elsa_tune.searching.cluster.fair_part import NAMESPACE, FairPart, actor_name
from elsa_tune.searching.cluster.joining import JoiningNodes
from elsa_tune.searching.cluster.ray_session import abandon, keep
from elsa_tune.searching.cluster.repeats import Repeats
from elsa_tune.searching.cluster.watching import LostNodes, Watch, WatchHooks
from elsa_tune.searching.extending_packages import packages_of_search
from elsa_tune.searching.planning.edge import edge_note
from elsa_tune.searching.planning.known import (
    KnownTrial,
    failed_slots,
    is_cheap,
    measured_rates,
    tries_of,
)
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.planning.strategy import Step
from elsa_tune.searching.process.interruption import Interruption
from elsa_tune.searching.process.supervision import give_up
from elsa_tune.searching.record import SearchRecord
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.searching.tune.asha import PerCandidateAsha
from elsa_tune.searching.tune.checkpoints import DriversFolder
from elsa_tune.searching.tune.mailbox import Mailbox
from elsa_tune.searching.tune.probing import Probing
from elsa_tune.searching.tune.ray_callback import Recorder
from elsa_tune.searching.tune.searcher import PlanSearcher, SessionParts
from elsa_tune.searching.tune.stopper import SearchStopper
from elsa_tune.searching.tune.trainable import Train, Work, run_trial
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.journal_records import Decision, SearchEnded, SearchStatus
from elsa_tune.tracking.record_names import WAITING
from elsa_tune.training.checkpoints import FolderCheckpoints
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.words import candidates_text, kind_text, rate_text, trials_text


class SearchRun:
    """One session of a search, on a Ray that is already up."""

    def __init__(
        self,
        data: TaskData,
        record: SearchRecord,
        plan: Plan,
        board: Board,
        interruption: Interruption,
        train: Train,
    ) -> None:
        self._spec = record.spec
        self._record = record
        self._plan = plan
        self._board = board
        self._interruption = interruption
        self._limit = TimeLimit(
            record.spec.max_time,
            gpu_hours=record.spec.gpu_hours,
            used=record.gpu_hours,
        )
        # A depth that an earlier session began to measure keeps its rate.
        self._measured_rates = measured_rates(plan.known)
        self._rates = self._measured_rates
        self._is_measuring = False
        self._said = ""  # what the last step was for
        self._repeats = Repeats(record.spec.max_failures)
        self._lost: str | None = None  # why no node can train any more
        self._unfit: str | None = None  # why a node that has joined must get no trial
        # Beside the driver: a node that is lost must not take other trials' predictions with it.
        node = ray.get_runtime_context().get_node_id()
        here = NodeAffinitySchedulingStrategy(node, soft=True)
        folder = record.paths.checkpoints
        options: dict[str, Any] = {"scheduling_strategy": here}
        if record.spec.address is not None:
            # By it the searches of a cluster find one another.
            options |= {"name": actor_name(record.spec.search_id), "namespace": NAMESPACE}
        mailbox = Mailbox.options(**options).remote(folder)  # type: ignore[attr-defined]  # Ray's
        self._work = Work(
            spec=record.spec,
            data=data,
            mailbox=mailbox,
            train=train,
            checkpoints=DriversFolder(folder=folder, node=node, mailbox=mailbox),
        )
        self._probing = Probing(data, record, interruption, mailbox)

    def run(self) -> SearchEnded:
        """Do what is left of the plan; every way out leaves each trial with a status."""
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            self._probing.start()
            self._announce()
            self._fit()
            return self._outcome()
        finally:
            optuna.logging.set_verbosity(verbosity)
            # A Ray that was there before this search goes on after it. Of a lost node it would be
            # waited for without end.
            if self._lost is None:
                ray.kill(self._work.mailbox)

    def _announce(self) -> None:
        """Say what is explored first."""
        trials = self._plan.known
        slots = self._plan.strategy.slots_left(trials, self._rates)
        failed = failed_slots(trials)
        if failed:
            self._board.phase(f"exploring: {trials_text(len(failed))} that failed, once more")
        others = [slot for slot in slots if slot not in failed]
        if others:
            explored = {slot.candidate for slot in others}
            candidates = kind_text(explored, len(explored))
            if explored == {REFERENCE}:
                candidates = "the full model"
            further = self._plan.strategy.further_words
            self._board.phase(f"exploring: {trials_text(len(others))} over {candidates}{further}")
        if self._plan.lacks_probe and not self._plan.left:
            self._board.phase("making the linear probe")

    def _decide(self, rates: Mapping[Candidate, float]) -> None:
        """Record the candidates' learning rates."""
        if not self._is_measuring:
            self._is_measuring = True
            if self._plan.strategy.opening:
                self._board.phase(self._plan.strategy.opening)
        known = self._plan.known
        for candidate, rate in rates.items():
            if candidate in self._rates:
                continue
            note = edge_note(self._spec, tries_of(known, candidate), rate)
            if note:
                self._board.say(note)
        self._rates = dict(rates)
        value = {candidate.label: rate for candidate, rate in rates.items()}
        self._record.write(Decision(what="learning_rates", value=value))

    def _note_waiting(self, what: str | None) -> None:
        """Record what the search waits for, for whoever lists searches."""
        self._record.write(Decision(what=WAITING, value=what))

    def _measuring(self, rates: Mapping[Candidate, float], trials: Sequence[KnownTrial]) -> Step:
        """Return what is measured now; record what that decides, and say what it is for."""
        step = self._plan.step(rates, trials)
        if step.decision is not None:
            self._record.write(step.decision)
            if step.note:
                self._board.phase(f"measuring: {step.note}")
        if step.why != self._said and not step.waits:
            self._said = step.why
            self._board.phase(f"measuring: {step.why}")
        return step

    def _fit(self) -> None:
        """Have Ray Tune run what is left of the plan."""
        if self._is_over():
            return
        spec = self._spec
        scheduler = self._scheduler()
        fair_part = FairPart(
            spec.resources,
            spec.search_id,
            most=spec.max_workers,
            is_shared=spec.address is not None,
            release=scheduler.release_idle,
        )
        searcher = PlanSearcher(
            self._plan.strategy,
            lambda: self._plan.known,
            self._rates,
            self._decide,
            self._measuring,
            SessionParts(
                limit=self._limit,
                repeats=self._repeats,
                probe=self._probing.trial,
                room=fair_part,
            ),
        )
        recorder = Recorder(
            self._record,
            scheduler,
            self._work,
            self._board,
            self._probing,
            self._repeats,
        )
        joining = None
        if spec.address is not None:
            joining = JoiningNodes(packages_of_search(spec))
        hooks = WatchHooks(
            has_workers=scheduler.has_workers,
            saved=FolderCheckpoints(self._record.paths.checkpoints).saved,
            look_around=fair_part.look,
            joining=joining,
            hangs=self._repeats.hangs,
            note_waiting=self._note_waiting,
            say=self._board.say,
            give_up=give_up,
        )
        watch = Watch(spec, self._plan, searcher, hooks)
        try:
            with contextlib.suppress(LostNodes), watch, warnings.catch_warnings():
                # Ray's and Optuna's own are about our use of them, not the user's.
                warnings.simplefilter("ignore")
                self._tuner(searcher, scheduler, recorder, watch).fit()
        finally:
            self._end_tune(watch, scheduler, recorder)

    def _end_tune(self, watch: Watch, scheduler: PerCandidateAsha, recorder: Recorder) -> None:
        """Record how the trials ended that Ray Tune had, whatever ended its run."""
        self._lost = watch.lost
        self._unfit = watch.unfit
        if self._lost is not None:
            abandon()
        if self._lost is not None or self._interruption.requested:
            # It holds all that Ray Tune has. Who ended the search may have ended Ray, too.
            keep(scheduler)
        recorder.end_the_rest(ray_answers=self._lost is None)
        self._is_over()
        if self._lost is None:
            self._probing.collect()
        self._record.tidy_checkpoints()

    def _tuner(
        self,
        searcher: PlanSearcher,
        scheduler: PerCandidateAsha,
        recorder: Recorder,
        watch: Watch,
    ) -> tune.Tuner:
        spec = self._spec
        share = {"cpu": spec.resources.cpus, "gpu": spec.resources.gpus}
        return tune.Tuner(
            tune.with_resources(tune.with_parameters(run_trial, work=self._work), share),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=scheduler,
                num_samples=-1,  # until the searcher says that it has finished
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=str(self._record.state().search.attempt),
                storage_path=str(self._record.paths.ray),
                callbacks=[recorder],
                stop=SearchStopper(
                    self._limit,
                    self._repeats,
                    self._interruption,
                    watch,
                    lambda: self._record.taken is not None,
                ),
                verbose=0,
                # Otherwise Ray clears a notebook's cell, and with it the board.
                progress_reporter=tune.CLIReporter(),
            ),
        )

    def _scheduler(self) -> PerCandidateAsha:
        """Return the scheduler, with what earlier sessions' trials reported in its rungs."""
        spec = self._spec
        exempt = [candidate for candidate in spec.explored if is_cheap(spec, candidate)]
        score = spec.recipe.selection.score
        scheduler = PerCandidateAsha(
            spec.early_stopping,
            spec.recipe.evaluations,
            score,
            exempt,
            # A cluster's GPUs are for others while they wait.
            keeps_workers=spec.address is None,
        )
        for trial in self._plan.known:
            if trial.trial.phase is Phase.EXPLORE and trial.status.is_final:
                scheduler.replay(trial.trial, trial.scores)
        return scheduler

    def _is_over(self) -> bool:
        is_taken = self._record.taken is not None
        return is_taken or self._limit.has_passed() or self._interruption.requested

    def _outcome(self) -> SearchEnded:
        """Return how the session ended. Raises RunError where every trial failed."""
        planned = self._record.state().planned_trials
        failed = []
        for trial in planned:
            if trial.end is not None and trial.end.status is TrialStatus.FAILED:
                failed.append(trial.end)
        if self._lost is not None:
            return SearchEnded(status=SearchStatus.FAILED, message=self._lost)
        if failed and len(failed) == len(planned):
            raise RunError(f"every trial failed; the first said: {failed[0].message}")
        over = self._record.taken or self._unfit or self._repeats.too_many
        if over is not None and not self._interruption.requested:
            return SearchEnded(status=SearchStatus.FAILED, message=over)
        self._say_better_rates()
        self._probing.finish(self._limit.seconds_left)
        if self._interruption.requested:
            return SearchEnded(status=SearchStatus.INTERRUPTED)
        why = _cut_by(self._limit, self._plan.known)
        missing = self._plan.missing(self._rates, explores=why is not None)
        if missing and why is not None:
            return SearchEnded(status=SearchStatus.TIME_UP, message=f"{why} with {missing}")
        if missing:
            message = f"{trials_text(len(failed))} failed, with {missing}"
            return SearchEnded(status=SearchStatus.FAILED, message=message)
        message = ""
        if failed:
            names = shortlist(end.trial for end in failed)
            message = f"{trials_text(len(failed))} failed ({names}); `resume` tries again"
        return SearchEnded(status=SearchStatus.COMPLETED, message=message)

    def _say_better_rates(self) -> None:
        """Say where trying again prefers another rate than the one a depth was measured at."""
        best = self._plan.strategy.best_rates(self._plan.known)
        for candidate, rate in self._measured_rates.items():
            if candidate not in self._spec.explored:
                continue
            preferred = best.get(candidate, rate)
            if preferred == rate:
                continue
            which = candidates_text([candidate], self._spec.layers)
            self._board.say(
                f"{which}: measured at {rate_text(rate)}, and exploring now prefers "
                f"{rate_text(preferred)}: only a new search would measure that"
            )


def _cut_by(limit: TimeLimit, known: Sequence[KnownTrial]) -> str | None:
    """Return which limit kept a session from its plan, None where none did.

    What failed at its measuring is for no want of time, though exploring had its share of it.
    """
    if limit.ran_out is not None:
        return limit.ran_out
    if any(trial.measures and trial.status is TrialStatus.FAILED for trial in known):
        return None
    return limit.cut_exploring
