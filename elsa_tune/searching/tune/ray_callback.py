"""Ray's callback on the driver: turns what Ray Tune tells of its trials into records.

It never raises: an exception in a Tune callback kills the trial.
"""

import functools
from collections.abc import Callable
from typing import Any

import ray
from ray import cloudpickle
from ray.tune import Callback
from ray.tune.experiment import Trial

from elsa_tune.searching.board import Board
from elsa_tune.searching.cluster.repeats import Repeats, TrialEnd
from elsa_tune.searching.planning.known import known_trial
from elsa_tune.searching.record import SearchRecord
from elsa_tune.searching.tune.asha import EVALUATION, PerCandidateAsha
from elsa_tune.searching.tune.probing import Probing
from elsa_tune.searching.tune.trainable import DIVERGED, NODE, TRIAL, NeverRestored, Work
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.journal_records import LatePredictions
from elsa_tune.tracking.uris import hidden

# How long Ray Tune, and with it every trial's news, waits for predictions, which are there by then.
# What has not come is asked for again at the end.
_MAILBOX_SECONDS = 10.0


def _never_raises(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def guarded(self: "Recorder", *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # a broken record must not cost the trial
            self._board.say(f"a record could not be made ({type(error).__name__}: {error})")

    return guarded


class Recorder(NeverRestored, Callback):
    """Writes a trial's start, reports and end, and finds out why it ended where Ray is silent."""

    def __init__(
        self,
        record: SearchRecord,
        scheduler: PerCandidateAsha,
        work: Work,
        board: Board,
        probing: Probing,
        repeats: Repeats,
    ) -> None:
        """Prepare to record. repeats: judges trials that end without a result."""
        super().__init__()
        self._record = record
        self._scheduler = scheduler
        self._work = work
        self._board = board
        self._probing = probing
        self._repeats = repeats
        self._ray_trials: dict[str, Trial] = {}  # by key, as Ray Tune has them now
        self._hung: dict[str, str] = {}  # trials that were ended because they hung, and why
        self._late: list[str] = []  # trials that have ended, and their predictions not come

    @_never_raises
    def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
        """End the trials that hang, at the one moment when no other trial can have their worker."""
        self._repeats.hangs.step()
        for key, why in self._repeats.hangs.take().items():
            trial = self._ray_trials.get(key)
            worker = None
            if trial is not None and self._runs(key):
                worker = trial.temporary_state.ray_actor
            if worker is not None:
                self._hung[key] = why
                # Ray asks the process to end, and kills it where it does not answer.
                ray.kill(worker)

    @_never_raises
    def on_trial_start(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        spec = trial.config[TRIAL]
        if spec.phase is not Phase.PROBE:  # that is recorded with its result
            self._ray_trials[spec.key] = trial
            self._hung.pop(spec.key, None)
            self._record.begin(spec)

    @_never_raises
    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        spec = trial.config[TRIAL]
        if spec.phase is Phase.PROBE:
            return
        key = spec.key
        if DIVERGED in result:
            message = f"DivergedError: {result[DIVERGED]}"
            self._end(key, TrialStatus.DIVERGED, message)
            return
        if result[EVALUATION] <= self._evaluations(key):
            return
        for note in result["notes"]:
            if note not in self._work.data.notes:  # those were said before it began
                self._record.warn_once(note, f"note: {note}")
        self._record.report(key, result, {NODE: result[NODE]})

    @_never_raises
    def on_trial_complete(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        spec = trial.config[TRIAL]
        if spec.phase is Phase.PROBE:
            self._probing.worked()
            return
        key = spec.key
        if not self._runs(key):
            return
        if self._has_run_all(key):
            status = TrialStatus.COMPLETED
        elif trial.trial_id in self._scheduler.stopped:
            status = TrialStatus.STOPPED_EARLY
        else:
            status = TrialStatus.INTERRUPTED
        self._end(key, status)

    @_never_raises
    def on_trial_error(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        spec = trial.config[TRIAL]
        error = _error_of(trial)
        if spec.phase is Phase.PROBE:
            self._probing.failed(error)
            return
        if not self._runs(spec.key):
            if self._ray_trials.get(spec.key) is trial:
                return  # it had diverged, and lost its worker before that said so to Ray
            self._record.begin(spec)  # it failed before Ray could start it
        if self._has_run_all(spec.key):
            self._end(spec.key, TrialStatus.COMPLETED)  # it had nothing left to do
            return
        # A remote traceback ends with what matters.
        lines = str(error).strip().splitlines()
        last_line = lines[-1].strip() if lines else "no message"
        message = f"{type(error).__name__}: {hidden(last_line)[:500]}"
        end = self._judged(spec.key, error, message)
        self._end(spec.key, end.status, end.message)
        if end.status is TrialStatus.INTERRUPTED:
            self._board.say(f"{spec.key}: {end.message}; it is begun again")

    def _judged(self, key: str, error: BaseException, message: str) -> TrialEnd:
        """Return how a trial ends that met an error, in a line, and count it."""
        why = self._hung.pop(key, None)
        if why is None:
            end = self._repeats.end_of(key, error, self._evaluations(key), message)
        else:
            end = self._repeats.hung(key, why)
        trials = self._record.state().planned_trials
        has_completed = any(trial.status is TrialStatus.COMPLETED for trial in trials)
        self._repeats.count(end, has_completed=has_completed)
        return end

    def end_the_rest(self, *, ray_answers: bool = True) -> None:
        """Record the end of the trials that Ray let go without a word.

        Those whose last report has come are completed, the others interrupted. Late predictions of
        earlier ones are asked for again. ray_answers: whether predictions can be fetched; else they
        are lost.
        """
        for trial in self._record.state().planned_trials:
            if not trial.runs:
                continue
            status = TrialStatus.INTERRUPTED
            if self._has_run_all(trial.key):
                status = TrialStatus.COMPLETED
            self._end(trial.key, status, ray_answers=ray_answers)
        if ray_answers:
            self._fetch_late()
        for key in self._late:
            self._board.say(f"the predictions of {key} are lost")
        self._late = []

    def _fetch_late(self) -> None:
        """Record the predictions that had not come when their trials ended, if they come now."""
        for key in tuple(self._late):
            try:
                artifact = self._predictions(key)
            except Exception:  # whoever hangs once more is not waited for again and again
                return
            if artifact is not None:
                self._record.write(LatePredictions(trial=key, artifact=artifact))
                self._late.remove(key)

    def _runs(self, key: str) -> bool:
        trial = self._record.trial(key)
        return trial is not None and trial.runs

    def _has_run_all(self, key: str) -> bool:
        """Return whether a trial has reported every evaluation of the plan."""
        return self._evaluations(key) >= self._record.spec.recipe.evaluations

    def _evaluations(self, key: str) -> int:
        """Return how many evaluations a trial has reported."""
        trial = self._record.trial(key)
        if trial is None or not trial.reports:
            return 0
        return trial.reports[-1].evaluation

    def _end(
        self, key: str, status: TrialStatus, message: str = "", *, ray_answers: bool = True
    ) -> None:
        artifact = None
        if status is TrialStatus.COMPLETED:
            if ray_answers:
                artifact = self._predictions_in_time(key)
            else:
                self._board.say(f"the predictions of {key} are lost with Ray's node")
        ended = self._record.end(key, status, message, artifact)
        trial = known_trial(self._record.spec, ended)
        self._board.ended(trial)
        if status.is_final:
            self._record.drop_checkpoint(key)
        if artifact is not None:  # they arrive again: what is late need not wait for the end
            self._fetch_late()

    def _predictions_in_time(self, key: str) -> str | None:
        """Keep a trial's predictions as `_predictions` does; note it where they are late."""
        try:
            return self._predictions(key)
        except Exception as error:  # the trial counts without them; only later intervals need them
            self._late.append(key)
            self._board.say(
                f"the predictions of {key} did not arrive ({type(error).__name__}); they are asked "
                "for again"
            )
            return None

    def _predictions(self, key: str) -> str | None:
        """Keep a trial's predictions and return their file, None without any. Raises as Ray."""
        mailbox = self._work.mailbox
        predictions = ray.get(mailbox.held.remote(key), timeout=_MAILBOX_SECONDS)
        if predictions is None:
            return None
        data = self._work.data
        labels = data.evaluation.labels
        artifact = self._record.keep_predictions(key, predictions, labels, data.units)
        mailbox.forget.remote(key)
        return artifact


def _error_of(trial: Trial) -> BaseException:
    # `Trial.get_pickled_error` looks where Ray has not copied the file to yet.
    if trial.pickled_error_file is None:
        return RuntimeError("it ended without saying why")
    with open(trial.pickled_error_file, "rb") as file:
        error: BaseException = cloudpickle.load(file)
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return cause
    return error
