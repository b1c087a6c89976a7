"""Records as calls of MLflow: what of each is a run, a metric, a tag or a file there."""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elsa_tune.errors import TrackingError
from elsa_tune.specs.trial import QUALITY, TrialStatus
from elsa_tune.tracking.journal_records import (
    Decision,
    LatePredictions,
    Record,
    Report,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.mlflow import names
from elsa_tune.tracking.mlflow.connection import may_pass, refused_access
from elsa_tune.tracking.mlflow.files import why_not_at, why_not_written
from elsa_tune.tracking.mlflow.writer import MlflowWriter
from elsa_tune.tracking.record_names import ANSWER, COMPARISON, DESCRIPTION, REPORT
from elsa_tune.tracking.state import RecordedTrial, SearchState
from elsa_tune.tracking.store import (
    AccessRefusedError,
    FileUnsentError,
    RefusedError,
    StoreGoneError,
    journal_tags,
)
from elsa_tune.tracking.uris import reason

log = logging.getLogger(__name__)

# A store that answers but keeps refusing a file (no room, no rights) gets the rest without it, and
# the file by the next session: after three times, or where it is only busy or its files' own server
# is down, after so long.
_ARTIFACT_TRIES = 3
_ARTIFACT_PATIENCE_S = 300.0
# Answers of MLflow that will be the same next time.
_REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "RESOURCE_ALREADY_EXISTS"})
# Its answer to a bad record, and to most errors of its database, as while that fails over.
_DOUBTFUL = "BAD_REQUEST"
# So often a record meets that answer, from a store that takes something else, until it is refused.
_DOUBTFUL_TRIES = 10
# What MLflow says of a run or an experiment that is marked as deleted (MLflow 3.17).
_DELETED_CODES = frozenset({"INVALID_PARAMETER_VALUE", "INVALID_STATE"})
_DELETED = re.compile(r"must be in (the )?'active'|non-active experiment")


class MlflowSink:
    """A `RecordSink` that makes records calls of MLflow, without threads or retries.

    journal: artifacts are relative to its folder. state: what was sent so far.
    """

    name = "MLflow"

    def __init__(self, journal: Path, writer: MlflowWriter) -> None:
        self.uri = writer.uri
        self._journal = journal
        self._writer = writer
        # By trial, "" for the report's: when its file was first sent in vain, and how often.
        self._artifact_tries: dict[str, tuple[float, int]] = {}
        self._has_tried_files = False
        self._told: set[str] = set()  # why files do not reach it, each told once
        self._file_trouble = ""  # why the file of what is sent now does not
        self.begin_again()

    def begin_again(self) -> None:
        self.state = SearchState()
        # By trial, the last evaluation of which its run has a point, of whichever attempt.
        self._shown: dict[str, int] = {}
        self._ready = False
        self._doubtful_tries = 0  # of what is sent now
        self._writer.forget()

    def learn(self, record: Record) -> None:
        if isinstance(record, Report) and self.state.expects(record):
            shown = self._shown.get(record.trial, 0)
            self._shown[record.trial] = max(shown, record.evaluation)
        self.state.add(record)

    def send(self, batch: Sequence[Record]) -> None:
        """Bring one record into the store, or several reports of one trial; then `state` has them.

        Raises RefusedError when the store will never take them, StoreGoneError when everything must
        be sent again, AccessRefusedError for a 401 or 403, and whatever MLflow raises when trying
        again may help. Raises FileUnsentError where all is done but for a file.
        """
        self._file_trouble = ""
        try:
            if not self._ready:
                self._writer.initialise()
                # Records that it is said to have: said by a file of ours, not by the store, which
                # may have been emptied, or restored from a backup.
                search = self.state.search
                if search.attempt and self._writer.lacks(self.state):
                    raise StoreGoneError(f"it lacks a part of search '{search.name}'")
                self._ready = True
            self._send(batch)
        except Exception as error:  # sorted by what the forwarder should do next; else passed on
            why = reason(error, self.uri)
            if _is_gone(error):
                raise StoreGoneError(why) from error
            if _is_refusal(error) or self._is_at_fault(error):
                self._doubtful_tries = 0
                raise RefusedError(why) from error
            if refused_access(self.uri, _of_mlflow(error)):
                raise AccessRefusedError(why) from error
            raise
        self._doubtful_tries = 0
        for record in batch:
            self.learn(record)
        if self._file_trouble:
            raise FileUnsentError(self._file_trouble)

    def trouble(self, error: Exception) -> str:
        if isinstance(error, FileUnsentError):
            return f"did not take their files ({error})"
        error = _of_mlflow(error)
        refusal = refused_access(self.uri, error)
        if refusal:
            return refusal
        why = reason(error, self.uri)
        return f"did not take them ({why})"

    def _is_at_fault(self, error: Exception) -> bool:
        """Whether what is sent met a doubtful answer so often that the store is not to blame."""
        search = self.state.search
        if _code(error) != _DOUBTFUL or not search.attempt:
            return False
        try:
            self._writer.try_to_write(search)
        except Exception:  # whatever it is, the store takes nothing now
            return False
        self._doubtful_tries += 1
        return self._doubtful_tries >= _DOUBTFUL_TRIES

    def _send(self, batch: Sequence[Record]) -> None:
        record = batch[0]
        search = self.state.search
        if isinstance(record, SearchStarted | SearchEnded):
            self._interrupt_running(record.time)
        if isinstance(record, SearchStarted):
            tags = journal_tags(self._journal)
            self._writer.begin_search(record, tags)
            self._try_files()
            self._writer.end_lost_trials(record, self.state.trials)
        elif not search.attempt:
            raise RefusedError("the record belongs to no search")
        elif isinstance(record, SearchEnded):
            self._end_search(record)
        elif isinstance(record, TrialStarted):
            self._writer.begin_trial(search, record)
        elif isinstance(record, Decision):
            self._decide(record)
        elif isinstance(record, LatePredictions):
            self._writer.log(search, record.trial, [], {names.PREDICTIONS: record.artifact})
            self._add_artifact(record.trial, record.artifact)
        elif isinstance(record, Report | TrialEnded) and self.state.expects(record):
            # One of an attempt that was given up meanwhile counts for nothing.
            trial = self.state.trials[record.trial]
            if isinstance(record, TrialEnded):
                self._end_trial(trial, record)
            else:
                reports = [each for each in batch if isinstance(each, Report)]
                self._report(trial, reports)

    def _end_search(self, record: SearchEnded) -> None:
        search = self.state.search
        answer = None
        comparison = None
        if record.status in (SearchStatus.COMPLETED, SearchStatus.TIME_UP):
            answer = self.state.decisions.get(ANSWER)
            comparison = self.state.decisions.get(COMPARISON)
        reports = []
        # MLflow cannot take a point of the curve back: it waits until there is no more to come.
        if record.status is SearchStatus.COMPLETED:
            reports = names.curve_reports(answer, record.time)
        if reports and search.attempt > 1:
            # A search that was complete before has most of them: only what is new is added.
            reports = self._writer.without_shown(search, reports)
        gpu_hours = self.state.gpu_hours(record.time)
        if gpu_hours:
            metrics = {names.GPU_HOURS: gpu_hours}
            spent = Report(
                trial="", evaluation=0, step=search.attempt, metrics=metrics, time=record.time
            )
            reports.append(spent)
        tags = {names.TRIALS_DONE_TAG: str(self.state.trials_done)}
        name = names.search_run_name(search.name, answer, comparison)
        self._writer.end(search, record, reports, tags, name)

    def _report(self, trial: RecordedTrial, reports: Sequence[Report]) -> None:
        # The headline metric by its own name is `quality` once more.
        twice = names.TWICE | {names.metric_of(trial.start.params)}
        shown = []
        for report in reports:
            # An earlier attempt's points are in the run already, but for what it never recorded: a
            # checkpoint may be ahead of the journal.
            if report.restored and report.evaluation <= self._shown.get(trial.key, 0):
                continue
            values = report.metrics | {names.EVALUATION: float(report.evaluation)}
            once = {name: value for name, value in values.items() if name not in twice}
            shown.append(replace(report, metrics=once))
        notes: dict[str, None] = {}  # each once
        for report in (*trial.reports, *reports):
            notes |= dict.fromkeys(report.notes)
        tags = {}
        if notes:
            tags["notes"] = "; ".join(notes)
        self._writer.log(self.state.search, trial.key, shown, tags)

    def _end_trial(self, trial: RecordedTrial, record: TrialEnded) -> None:
        values = dict(record.metrics)
        step = 0
        last_quality = None
        if trial.reports:
            last = trial.reports[-1]
            step = last.step
            last_quality = last.metrics.get(QUALITY)
        quality = values.pop(QUALITY, None)
        # Another number than the last evaluation's only where the selection chose another. One of
        # an earlier attempt must not stay in the run: MLflow's exports show it.
        if quality is not None and (quality != last_quality or record.attempt > 1):
            values[names.TRIAL_QUALITY] = quality
        if trial.reports and trial.reports[-1].restored:
            # The attempt has no point of its own, and its end must not be read without any.
            last = trial.reports[-1]
            values = {**last.metrics, names.EVALUATION: float(last.evaluation), **values}
        at_end = Report(
            trial=record.trial,
            evaluation=len(trial.reports),
            step=step,
            metrics=values,
            tags=record.tags,
            time=record.time,
        )
        tags = {}
        if record.artifact:
            tags[names.PREDICTIONS] = record.artifact
        name = names.run_name(record.trial, trial.start.params, record.status)
        self._writer.end(self.state.search, record, [at_end], tags, name)
        if record.artifact:
            self._add_artifact(record.trial, record.artifact)

    def _decide(self, record: Decision) -> None:
        search = self.state.search
        is_logged = True
        if record.what == REPORT:
            is_logged = self._add_artifact("", str(record.value))
        if record.what in (REPORT, DESCRIPTION):
            decisions = self.state.decisions | {record.what: record.value}
            run_id = self._writer.run_id(search)
            has_figure = is_logged and self._has_figure(decisions)
            tags = names.described(decisions, run_id, has_figure=has_figure)
        else:
            tag = f"{names.DECISION_PREFIX}{record.what}"
            tags = {tag: names.tag_text(record.value)}
        if record.what == ANSWER:
            tags |= names.answer_tags(record.value)
        if record.what == COMPARISON:
            answer = self.state.decisions.get(ANSWER)
            tags |= names.comparison_tags(record.value, answer)
        self._writer.log(search, "", [], tags)

    def _has_figure(self, decisions: Mapping[str, Any]) -> bool:
        """Whether the search's report has a freeze curve."""
        if REPORT not in decisions:
            return False
        report = self._journal.parent / str(decisions[REPORT])
        return (report / names.FREEZE_CURVE).is_file()

    def _try_files(self) -> None:
        """Tell at the start where files cannot be written; the search needs none of them there."""
        if self._has_tried_files:
            return
        self._has_tried_files = True
        why = why_not_written(self._writer.files_uri, self.uri)
        if why:
            self._tell("predictions and the report do not reach MLflow", why)

    def _tell(self, what: str, why: str) -> None:
        """Say what does not reach MLflow, once for each reason: dozens of trials may share one."""
        if why in self._told:
            return
        self._told.add(why)
        log.warning("%s: %s; the search's folder has all, and `resume` sends it", what, why)

    def _add_artifact(self, trial: str, artifact: str) -> bool:
        """Keep a file or the report's folder; return whether the store has it, which may refuse.

        Raises what may pass.
        """
        file = self._journal.parent / artifact
        home = self._journal.parent.resolve()
        what = f"the predictions of {trial}" if trial else "the report"
        now = time.monotonic()
        first_try, tries = self._artifact_tries.get(trial, (now, 0))
        try:
            if not file.exists():
                raise RefusedError(f"{file} is not there any more")
            for part in (file, *file.rglob("*")):
                if not part.resolve().is_relative_to(home):
                    raise RefusedError(f"{file} leads out of the search's folder")
            self._writer.add_artifact(self.state.search, trial, file)
            self._artifact_tries.pop(trial, None)
            return True
        except Exception as error:  # an artifact that cannot be had must not hold up the rest
            if _is_refusal(error):
                self._artifact_tries.pop(trial, None)
                log.warning("%s did not reach MLflow: %s", what, reason(error, self.uri))
                return False
            why = why_not_at(self._writer.files_uri, error, self.uri)
            is_patient = tries + 1 < _ARTIFACT_TRIES and why not in self._told
            if may_pass(error):
                is_patient = now < first_try + _ARTIFACT_PATIENCE_S
            if is_patient:
                self._artifact_tries[trial] = (first_try, tries + 1)
                raise
            self._artifact_tries.pop(trial, None)
            self._tell(f"{what} did not reach MLflow", why)
            self._file_trouble = why
            return False

    def _interrupt_running(self, at: float) -> None:
        """No run stays RUNNING without its driver; `resume` opens those that it starts again."""
        for key, trial in self.state.trials.items():
            if not trial.runs:
                continue
            end = TrialEnded(
                trial=key,
                attempt=trial.start.attempt,
                status=TrialStatus.INTERRUPTED,
                message="the search ended before the trial did",
                time=at,
            )
            name = names.run_name(key, trial.start.params, end.status)
            self._writer.end(self.state.search, end, name=name)


def _of_mlflow(error: Exception) -> Exception:
    """Return MLflow's own error, which may be the cause of ours."""
    while isinstance(error, TrackingError | AccessRefusedError):
        if not isinstance(error.__cause__, Exception):
            break
        error = error.__cause__
    return error


def _is_refusal(error: BaseException) -> bool:
    """Whether trying again cannot help: a refusal of MLflow, or an error of our own making."""
    if _is_gone(error):
        return False
    if isinstance(error, RefusedError) or _code(error) in _REFUSALS:
        return True
    return isinstance(error, TypeError | KeyError | AttributeError)


def _is_gone(error: BaseException) -> bool:
    """Whether a run or an experiment of ours was removed, or marked as deleted."""
    code = _code(error)
    if code == "RESOURCE_DOES_NOT_EXIST":
        return True
    return code in _DELETED_CODES and _DELETED.search(str(error)) is not None


def _code(error: BaseException) -> str:
    return str(getattr(error, "error_code", ""))
