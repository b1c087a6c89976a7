"""Turns records into calls of the MLflow store, batch by batch.

It must not know threads, retries or files of its own: a batch goes through whole, or `send` raises
and the same batch may come again.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.connection import reason
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    Report,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.mlflow_writer import MlflowStore, StoreGoneError
from elsa_tune.tracking.names import (
    ANSWER,
    DECISION_PREFIX,
    DESCRIPTION,
    EVALUATION,
    HOST_TAG,
    JOURNAL_TAG,
    PREDICTIONS_TAG,
    REPORT,
    TAG_LENGTH,
    TRIAL_QUALITY,
)
from elsa_tune.tracking.shown import TWICE, curve_reports, described, run_name
from elsa_tune.tracking.state import SearchState

log = logging.getLogger(__name__)

# A store that answers but keeps refusing a file (no room, no rights) loses that file, not the rest.
_ARTIFACT_TRIES = 3
# Answers of MLflow that will be the same next time.
_REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS"})
_GONE = "RESOURCE_DOES_NOT_EXIST"


class RefusedError(Exception):
    """The store will never take what was sent: trying again cannot help."""


class Sender:
    """Brings one search's records into its store, and keeps in mind what later records need.

    journal: named in the parent run; artifacts are relative to its folder.
    """

    def __init__(self, journal: Path, store: MlflowStore) -> None:
        self._journal, self._store = journal, store
        self._artifact_tries: dict[str, int] = {}
        self.begin_again()

    def begin_again(self) -> None:
        self._state = SearchState()
        self._ready = False
        self._store.forget()

    def learn(self, record: Record) -> None:
        self._state.add(record)

    def send(self, batch: Sequence[Record]) -> None:
        """Bring a batch into the store; what it taught is kept when all of it came through.

        Raises RefusedError when the store will never take it, StoreGoneError when everything must
        be sent again, and whatever MLflow raises when trying again may help.
        """
        before = self._state.copy()
        try:
            if not self._ready:
                self._store.initialise()
                # Records that it is said to have: said by a file of ours, not by the store.
                if self._state.search.attempt:
                    self._store.require(self._state.search)
                self._ready = True
            self._send_all(batch)
        except Exception as error:  # sorted by what the forwarder should do next; else passed on
            self._state = before
            if _code(error) == _GONE:
                raise StoreGoneError(reason(error)) from error
            if _is_refusal(error):
                raise RefusedError(reason(error)) from error
            raise

    def _send_all(self, batch: Sequence[Record]) -> None:
        # Reports of one trial travel together, but never past another record of it.
        waiting: dict[str, list[Report]] = {}
        for record in batch:
            if isinstance(record, Report):
                if self._state.expects(record):
                    waiting.setdefault(record.trial, []).append(record)
            elif isinstance(record, TrialEnded):
                self._end_trial(waiting.pop(record.trial, []), record)
            elif isinstance(record, TrialStarted):
                self._send_reports(waiting.pop(record.trial, []))
                self._store.begin_trial(self._search, record)
            elif isinstance(record, Decision):
                self._decide(record)
            elif isinstance(record, SearchStarted | SearchEnded):
                for reports in waiting.values():
                    self._send_reports(reports)
                waiting.clear()
                self._interrupt_running(record.time)
                if isinstance(record, SearchEnded):
                    self._store.end(self._search, record, self._curve(record))
                else:
                    place = {
                        JOURNAL_TAG: str(self._journal.absolute()),
                        HOST_TAG: socket.gethostname(),
                    }
                    self._store.begin_search(record, place)
            self._state.add(record)
        for reports in waiting.values():
            self._send_reports(reports)

    @property
    def _search(self) -> SearchStarted:
        if not self._state.search.attempt:
            raise RefusedError("the record belongs to no search")
        return self._state.search

    def _decide(self, record: Decision) -> None:
        if record.what == REPORT:
            self._add_artifact("", str(record.value))
            if DESCRIPTION in self._state.decisions:
                self._describe(str(self._state.decisions[DESCRIPTION]), is_drawn=True)
        elif record.what == DESCRIPTION:
            self._describe(str(record.value), is_drawn=False)
        else:
            tags = {f"{DECISION_PREFIX}{record.what}": _tag_text(record.value)}
            self._store.log(self._search, "", [], tags)

    def _describe(self, text: str, *, is_drawn: bool) -> None:
        run_id = self._store.run_id(self._search)
        self._store.log(self._search, "", [], described(text, run_id, is_drawn=is_drawn))

    def _curve(self, end: SearchEnded) -> list[Report]:
        """The freeze curve, once there is no more to come: MLflow cannot take a point back."""
        if end.status not in (SearchStatus.COMPLETED, SearchStatus.TIME_UP):
            return []
        return curve_reports(self._state.decisions.get(ANSWER), end.time)

    def _send_reports(self, reports: Sequence[Report]) -> None:
        if reports:
            numbered = self._shown(reports)
            self._store.log(self._search, reports[0].trial, numbered, self._notes(reports))

    def _end_trial(self, reports: Sequence[Report], record: TrialEnded) -> None:
        if not self._state.expects(record):
            return  # the end of an attempt that was given up meanwhile
        values = dict(record.metrics)
        trial = self._state.trials[record.trial]
        reported = trial.reports
        if "quality" in values:
            values[TRIAL_QUALITY] = values.pop("quality")
            # Another number than the last evaluation's only where the selection chose another.
            if reported and reported[-1].metrics.get("quality") == values[TRIAL_QUALITY]:
                del values[TRIAL_QUALITY]
        last = Report(
            trial=record.trial,
            evaluation=len(reported),
            step=reported[-1].step if reported else 0,
            metrics=values,
            tags=record.tags,
            time=record.time,
        )
        tags = self._notes(reports)
        if record.artifact:
            tags[PREDICTIONS_TAG] = record.artifact
        name = run_name(record.trial, trial.params, record.status)
        self._store.end(self._search, record, [*self._shown(reports), last], tags, name)
        if record.artifact:
            self._add_artifact(record.trial, record.artifact)

    def _shown(self, reports: Sequence[Report]) -> list[Report]:
        """With their numbers among their metrics, and no number under two names."""
        shown = []
        for report in reports:
            # The headline metric by its own name is `quality` once more.
            twice = TWICE | {self._state.trials[report.trial].params.get("metric")}
            values = report.metrics | {EVALUATION: float(report.evaluation)}
            once = {name: value for name, value in values.items() if name not in twice}
            shown.append(replace(report, metrics=once))
        return shown

    def _notes(self, reports: Sequence[Report]) -> dict[str, str]:
        """The tag of a trial's notes, those of earlier reports among them, if these have any."""
        if not any(report.notes for report in reports):
            return {}
        every = self._state.trials[reports[0].trial].reports
        return {"notes": "; ".join(dict.fromkeys(note for one in every for note in one.notes))}

    def _add_artifact(self, trial: str, artifact: str) -> None:
        file = self._journal.parent / artifact
        tries = self._artifact_tries[trial] = self._artifact_tries.get(trial, 0) + 1
        try:
            if not file.exists():
                raise RefusedError(f"{file} is not there any more")
            home = self._journal.parent.resolve()
            if not all(one.resolve().is_relative_to(home) for one in (file, *file.rglob("*"))):
                raise RefusedError(f"{file} leads out of the search's folder")
            self._store.add_artifact(self._search, trial, file)
            del self._artifact_tries[trial]
        except Exception as error:  # an artifact that cannot be had must not hold up the rest
            if tries < _ARTIFACT_TRIES and not _is_refusal(error):
                raise
            what = f"the predictions of {trial}" if trial else "the report"
            log.warning("%s did not reach MLflow: %s", what, reason(error))

    def _interrupt_running(self, at: float) -> None:
        """No run stays RUNNING without its driver; `resume` opens those that it starts again."""
        for key, trial in self._state.trials.items():
            if trial.runs:
                end = TrialEnded(
                    trial=key,
                    attempt=trial.start.attempt,
                    status=TrialStatus.INTERRUPTED,
                    message="the search ended before the trial did",
                    time=at,
                )
                name = run_name(key, trial.params, end.status)
                self._store.end(self._search, end, name=name)


def _is_refusal(error: BaseException) -> bool:
    """Whether trying again cannot help: a refusal of MLflow, or an error of our own making."""
    if isinstance(error, RefusedError) or _code(error) in _REFUSALS:
        return True
    return isinstance(error, TypeError | KeyError | AttributeError | AssertionError)


def _code(error: BaseException) -> str:
    return str(getattr(error, "error_code", ""))


def _tag_text(value: Any) -> str:
    """A decision as a tag: text as it is, else JSON, with inner lists counted where it is too long.

    The whole of it stands in the journal.
    """
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= TAG_LENGTH else json.dumps(_shorter(value), ensure_ascii=False)


def _shorter(value: Any, inner: bool = False) -> Any:
    if isinstance(value, dict):
        return {name: _shorter(item, inner=True) for name, item in value.items()}
    if isinstance(value, list):
        return f"{len(value)} items" if inner else [_shorter(item, inner=True) for item in value]
    return value
