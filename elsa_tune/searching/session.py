"""One driver's session with a search: its lock, the plan carried out by Ray Tune, the answer."""

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence

import optuna
import ray
from ray import tune
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.wording.tables import answer_markdown
from elsa_tune.errors import RunError, shortlist
from elsa_tune.searching.answering import Finished, answers_of, has_drawn
from elsa_tune.searching.board import Board
from elsa_tune.searching.interruption import Interruption
from elsa_tune.searching.planning.known import KnownTrial, failed_slots, is_cheap, measured_rates
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.record import SearchRecord, started
from elsa_tune.searching.supervision import give_up, recording
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.searching.tune.asha import PerCandidateAsha
from elsa_tune.searching.tune.cluster import abandon, keep
from elsa_tune.searching.tune.mailbox import Mailbox
from elsa_tune.searching.tune.probing import LITTLE_PATIENCE, PATIENCE, Probing
from elsa_tune.searching.tune.ray_callback import Recorder
from elsa_tune.searching.tune.searcher import PlanSearcher
from elsa_tune.searching.tune.stopper import SearchStopper
from elsa_tune.searching.tune.trainable import Train, Work, run_trial, train_here
from elsa_tune.searching.tune.watching import LostNodes, Watch
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Decision, SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.record_names import ANSWER, DESCRIPTION, REPORT
from elsa_tune.tracking.store import RecordStore
from elsa_tune.tracking.uris import hidden
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.words import candidates_text, rate_text, trials_text


def run_session(
    spec: SearchSpec,
    paths: SearchPaths,
    data: TaskData,
    store: RecordStore,
    trained: Callable[[], object] = lambda: None,
    train: Train = train_here,
) -> Finished:
    """Run one session, from its lock to its last record.

    trained: called as soon as Ray is no longer needed.
    """
    with Journal(paths.journal, spec.search_id) as journal:
        recording(paths, store.uri)
        sink = store.sink(paths.journal)
        forwarder = Forwarder(paths, sink, journal.earlier).start()
        board = Board(spec, lambda: _provisional(record.rows, spec.target))
        record = SearchRecord(spec, paths, journal, forwarder, board.say)
        plan = Plan(spec, record.state, paths.folder)
        board.follow(plan)
        attempt = record.state().search.attempt + 1
        interruption = Interruption()
        is_raised = False
        status = SearchStatus.FAILED
        message = ""
        with interruption.caught(board.stopping), board:
            try:
                record.write(started(spec, attempt))
                outcome = SearchRun(data, record, plan, board, interruption, train).run()
                status = outcome.status
                message = outcome.message
                trained()
            except KeyboardInterrupt:
                status = SearchStatus.INTERRUPTED
            except BaseException as error:
                if interruption.requested:
                    # Whatever a search meets whose Ray or terminal is gone.
                    status = SearchStatus.INTERRUPTED
                else:
                    message = hidden(f"{type(error).__name__}: {error}", store.uri)
                is_raised = True
                raise
            finally:
                interruption.closing = True
                answers = _answered(record, board, status, message)
                unsent = forwarder.close()
                unwritten = record.settled(lambda: interruption.is_hurried)
                if is_raised and unwritten:
                    board.say(unwritten)
    why = forwarder.trouble
    return Finished(spec, paths, status, message, tuple(answers), unsent, why, unwritten)


def _answered(
    record: SearchRecord, board: Board, status: SearchStatus, message: str
) -> Sequence[Answer]:
    """Answer a session's search, record that and the session's end, and draw the report."""
    board.phase("answering")
    paths = record.paths
    answers = answers_of(record.spec, record.state(), paths, status, board.say)
    objects = [answer_object(answer) for answer in answers]
    record.write(Decision(what=ANSWER, value=objects))
    texts = [answer_markdown(answer) for answer in answers]
    description = "\n\n".join(texts)
    record.write(Decision(what=DESCRIPTION, value=description))
    record.write(SearchEnded(status=status, message=message))
    if status in (SearchStatus.COMPLETED, SearchStatus.TIME_UP):
        board.phase("drawing the report")
        if has_drawn(record.state(), paths, answers, board.say):
            report = Decision(what=REPORT, value=paths.report.name)
            record.write(report)
    return answers


def _provisional(rows: Callable[[], list[ResultRow]], target: float) -> str | None:
    """Return the answer so far; None while there is none."""
    try:
        answers = answer_rows(rows(), target)
    except Exception:  # as in answers_of
        return None
    # What the plan has yet to measure is no reason against an answer.
    for answer in answers:
        return answer.first_lines.headline if answer.is_answered else "not yet"
    return None


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
        self._limit = TimeLimit(record.spec.max_time)
        # A depth that an earlier session began to measure keeps its rate.
        self._measured_rates = measured_rates(plan.known)
        self._rates = self._measured_rates
        self._is_measuring = False
        self._said = ""  # what the last step was for
        self._watch: Watch  # while Ray Tune runs
        self._lost: str | None = None  # why no node can train any more
        # Beside the driver: a node that is lost must not take other trials' predictions with it.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        mailbox = Mailbox.options(scheduling_strategy=here).remote()  # type: ignore[attr-defined]  # Ray's
        self._work = Work(spec=record.spec, data=data, mailbox=mailbox, train=train)
        self._probing = Probing(data, record, interruption, mailbox)
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def run(self) -> SearchEnded:
        """Do what is left of the plan; every way out leaves each trial with a status."""
        try:
            self._probing.start()
            self._announce()
            self._fit()
            return self._outcome()
        finally:
            # A Ray that was there before this search goes on after it. Of a lost node it would be
            # waited for without end.
            if self._lost is None:
                ray.kill(self._work.mailbox)

    def _announce(self) -> None:
        """Say what is explored first."""
        spec = self._spec
        trials = self._plan.known
        slots = self._plan.strategy.slots_left(trials, self._rates)
        failed = failed_slots(trials)
        if failed:
            self._board.phase(f"exploring: {trials_text(len(failed))} that failed, once more")
        # Some depth that is not being measured yet still lacks tries or a rate.
        undecided = set(spec.candidates) - self._rates.keys()
        if spec.explored and undecided:
            further = self._plan.strategy.rates.further_words
            candidates = f"{len(spec.explored)} depths"
            if len(spec.explored) == 1:
                candidates = "the full model"
            self._board.phase(f"exploring: {len(slots)} trials over {candidates}{further}")

    def _decide(self, rates: Mapping[Candidate, float]) -> None:
        """Record the candidates' learning rates."""
        if not self._is_measuring:
            self._is_measuring = True
            if self._plan.strategy.opening:
                self._board.phase(self._plan.strategy.opening)
        self._rates = dict(rates)
        value = {candidate.label: rate for candidate, rate in rates.items()}
        self._record.write(Decision(what="learning_rates", value=value))

    def _measuring(
        self, rates: Mapping[Candidate, float], trials: Sequence[KnownTrial]
    ) -> Sequence[TrialSpec]:
        """Return what is measured now; record what that decides, and say what it is for."""
        step = self._plan.step(rates, trials)
        if step.decision is not None:
            self._record.write(step.decision)
            if step.note:
                self._board.phase(f"measuring: {step.note}")
        if step.why != self._said and not step.waits:
            self._said = step.why
            self._board.phase(f"measuring: {step.why}")
        return step.trials

    def _fit(self) -> None:
        if self._is_over():
            return
        spec = self._spec
        scheduler = self._scheduler()
        searcher = PlanSearcher(
            self._plan.strategy,
            lambda: self._plan.known,
            self._rates,
            self._decide,
            self._measuring,
            self._limit,
        )
        searcher.probe = self._probing.trial
        recorder = Recorder(self._record, scheduler, self._work, self._board, self._probing)
        self._watch = Watch(
            spec,
            self._plan,
            searcher,
            scheduler.has_workers,
            self._board.say,
            give_up,
        )
        try:
            with contextlib.suppress(LostNodes), self._watch, warnings.catch_warnings():
                # Ray's and Optuna's own are about our use of them, not the user's.
                warnings.simplefilter("ignore")
                self._tuner(searcher, scheduler, recorder).fit()
        finally:
            self._lost = self._watch.lost
            if self._lost is not None:
                abandon()
            if self._lost is not None or self._interruption.requested:
                # It holds all that Ray Tune has. Who ended the search may have ended Ray, too.
                keep(scheduler)
            recorder.end_the_rest()
            self._is_over()
            if self._lost is None:
                self._probing.collect()

    def _tuner(
        self, searcher: PlanSearcher, scheduler: PerCandidateAsha, recorder: Recorder
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
                stop=SearchStopper(self._limit, self._interruption, self._watch),
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
        return self._limit.has_passed() or self._interruption.requested

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
        self._say_better_rates()
        patience = PATIENCE
        if self._spec.max_time is not None:
            patience = LITTLE_PATIENCE
        self._probing.collect(patience)
        if self._interruption.requested:
            return SearchEnded(status=SearchStatus.INTERRUPTED)
        missing = self._plan.missing(self._rates, explores=self._limit.ran_out)
        if missing and self._limit.ran_out:
            return SearchEnded(status=SearchStatus.TIME_UP, message=f"time was up with {missing}")
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
