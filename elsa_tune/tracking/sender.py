"""Turns records into calls of the MLflow store, batch by batch.

It must not know threads, retries or files of its own: a batch goes through whole, or `send` raises
and the same batch may come again.
"""

from __future__ import annotations

import json
import logging
import socket
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.connection import first_line
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    Report,
    SearchEnded,
    SearchStarted,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.mlflow_writer import MissingRunError, MlflowStore
from elsa_tune.tracking.names import (
    DECISION_PREFIX,
    EVALUATION,
    HOST_TAG,
    JOURNAL_TAG,
    PREDICTIONS_TAG,
    REPORT,
    TAG_LENGTH,
    TRIAL_QUALITY,
    Point,
)

log = logging.getLogger(__name__)

# A store that answers but keeps refusing a file (no room, no rights) loses that file, not the rest.
_ARTIFACT_TRIES = 3
# Answers of MLflow that will be the same next time.
_REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS"})
_GONE = "RESOURCE_DOES_NOT_EXIST"


class RefusedError(Exception):
    """The store will never take what was sent: trying again cannot help."""


class StoreGoneError(Exception):
    """The store no longer knows our runs: it was emptied or replaced."""


@dataclass(frozen=True, slots=True)
class _Progress:
    """Of a trial, what later records need: attempt, last step reported, whether it runs."""

    attempt: int
    step: int = 0
    runs: bool = True
    notes: tuple[str, ...] = ()


_Trials = ChainMap[str, _Progress]


class Sender:
    """Brings one search's records into its store, and keeps in mind what later records need.

    journal: named in the parent run; artifacts are relative to its folder.
    """

    def __init__(self, journal: Path, store: MlflowStore) -> None:
        self._journal, self._store = journal, store
        self._artifact_tries: dict[str, int] = {}
        self._ready = False
        self.lost_artifacts = 0
        self.begin_again()

    def begin_again(self) -> None:
        """Forget every record and every run."""
        self._search: SearchStarted | None = None
        self._trials: dict[str, _Progress] = {}
        self._ready = False
        self._store.forget()

    def learn(self, record: Record) -> None:
        """Take note of a record that the store has already."""
        if isinstance(record, SearchStarted | SearchEnded):
            if isinstance(record, SearchStarted):
                self._search = record
            for key, progress in self._trials.items():
                self._trials[key] = replace(progress, runs=False)
        elif isinstance(record, TrialStarted):
            self._trials[record.trial] = _Progress(record.attempt)
        elif isinstance(record, Report):
            _gather(ChainMap(self._trials), [record])
        elif isinstance(record, TrialEnded):
            known = self._trials.get(record.trial)
            if known is not None and known.attempt == record.attempt:
                self._trials[record.trial] = replace(known, runs=False)

    def send(self, batch: Sequence[Record]) -> None:
        """Bring a batch into the store; what it taught is kept when all of it came through.

        Raises RefusedError when the store will never take it, StoreGoneError when everything must
        be sent again, and whatever MLflow raises when trying again may help.
        """
        trials: _Trials = ChainMap({}, self._trials)
        try:
            if not self._ready:
                self._store.initialise()
                # Records that it is said to have: said by a file of ours, not by the store.
                if self._search is not None and not self._store.has_search(self._search):
                    raise StoreGoneError(f"search '{self._search.name}' is not there any more")
                self._ready = True
            search = self._send_all(trials, batch)
        except Exception as error:  # sorted by what the forwarder should do next; else passed on
            if isinstance(error, MissingRunError | StoreGoneError) or _code(error) == _GONE:
                raise StoreGoneError(first_line(error)) from error
            if _is_refusal(error):
                raise RefusedError(first_line(error)) from error
            raise
        self._trials.update(trials.maps[0])
        self._search = search

    def _send_all(self, trials: _Trials, batch: Sequence[Record]) -> SearchStarted | None:
        search = self._search
        # Reports of one trial travel together, but never past another record of it.
        reports: dict[str, list[Report]] = {}
        for record in batch:
            if isinstance(record, Report):
                reports.setdefault(record.trial, []).append(record)
            elif isinstance(record, TrialEnded):
                self._end_trial(search, trials, reports.pop(record.trial, []), record)
            elif isinstance(record, TrialStarted):
                self._send_reports(search, trials, reports.pop(record.trial, []))
                self._start_trial(search, trials, record)
            elif isinstance(record, Decision):
                self._decide(search, record)
            else:
                for waiting in reports.values():
                    self._send_reports(search, trials, waiting)
                reports.clear()
                if search is not None:
                    self._interrupt_running(search, trials, record.time)
                if isinstance(record, SearchStarted):
                    search = self._start_search(record)
                elif isinstance(record, SearchEnded):
                    self._store.end_search(_needed(search), record)
        for waiting in reports.values():
            self._send_reports(search, trials, waiting)
        return search

    def _start_search(self, record: SearchStarted) -> SearchStarted:
        place = {JOURNAL_TAG: str(self._journal.absolute()), HOST_TAG: socket.gethostname()}
        self._store.begin_search(record, place)
        return record

    def _start_trial(
        self, search: SearchStarted | None, trials: _Trials, record: TrialStarted
    ) -> None:
        self._store.begin_trial(_needed(search), record)
        trials[record.trial] = _Progress(record.attempt)

    def _decide(self, search: SearchStarted | None, record: Decision) -> None:
        if record.what == REPORT:
            self._add_artifact(_needed(search), "", str(record.value))
            return
        tags = {f"{DECISION_PREFIX}{record.what}": _tag_text(record.value)}
        self._store.log(_needed(search), "", [], tags)

    def _send_reports(
        self, search: SearchStarted | None, trials: _Trials, reports: Sequence[Report]
    ) -> None:
        points, tags = _gather(trials, reports)
        if points:
            self._store.log(_needed(search), reports[0].trial, points, tags)

    def _end_trial(
        self,
        search: SearchStarted | None,
        trials: _Trials,
        reports: Sequence[Report],
        record: TrialEnded,
    ) -> None:
        points, tags = _gather(trials, reports)
        progress = trials.get(record.trial)
        if progress is None or progress.attempt != record.attempt:
            return  # the end of an attempt that was given up meanwhile
        values = dict(record.metrics)
        if "quality" in values:
            values[TRIAL_QUALITY] = values.pop("quality")
        points += [
            Point(name, value, record.milliseconds, progress.step) for name, value in values.items()
        ]
        if record.artifact:
            tags[PREDICTIONS_TAG] = record.artifact
        self._store.end_trial(_needed(search), record, points, tags)
        trials[record.trial] = replace(progress, runs=False)
        if record.artifact:
            self._add_artifact(_needed(search), record.trial, record.artifact)

    def _add_artifact(self, search: SearchStarted, trial: str, artifact: str) -> None:
        file = self._journal.parent / artifact
        tries = self._artifact_tries[trial] = self._artifact_tries.get(trial, 0) + 1
        try:
            if not file.exists():
                raise RefusedError(f"{file} is not there any more")
            home = self._journal.parent.resolve()
            if not all(one.resolve().is_relative_to(home) for one in (file, *file.rglob("*"))):
                raise RefusedError(f"{file} leads out of the search's folder")
            self._store.add_artifact(search, trial, file)
            del self._artifact_tries[trial]
        except Exception as error:  # an artifact that cannot be had must not hold up the rest
            if tries < _ARTIFACT_TRIES and not _is_refusal(error):
                raise
            self.lost_artifacts += 1
            what = f"the predictions of {trial}" if trial else "the report"
            log.warning("%s did not reach MLflow: %s", what, first_line(error))

    def _interrupt_running(self, search: SearchStarted, trials: _Trials, at: float) -> None:
        """No run stays RUNNING without its driver; `resume` opens those that it starts again."""
        for key, progress in list(trials.items()):
            if progress.runs:
                end = TrialEnded(
                    trial=key,
                    attempt=progress.attempt,
                    status=TrialStatus.INTERRUPTED,
                    message="the search ended before the trial did",
                    time=at,
                )
                self._store.end_trial(search, end)
                trials[key] = replace(progress, runs=False)


def _gather(trials: _Trials, reports: Sequence[Report]) -> tuple[list[Point], dict[str, str]]:
    """The points and tags of one trial's reports; the trial's progress moves on with them."""
    points: list[Point] = []
    tags: dict[str, str] = {}
    for report in reports:
        progress = trials.get(report.trial)
        if progress is None or progress.attempt != report.attempt or not progress.runs:
            continue  # a word from an attempt that was given up meanwhile
        values = report.metrics | {EVALUATION: float(report.evaluation)}
        points += [
            Point(name, value, report.milliseconds, report.step) for name, value in values.items()
        ]
        tags |= report.tags
        fresh = tuple(note for note in report.notes if note not in progress.notes)
        progress = replace(progress, step=report.step, notes=progress.notes + fresh)
        if fresh:
            tags["notes"] = "; ".join(progress.notes)
        trials[report.trial] = progress
    return points, tags


def _needed(search: SearchStarted | None) -> SearchStarted:
    if search is None:
        raise RefusedError("the record belongs to no search")
    return search


def _is_refusal(error: BaseException) -> bool:
    """Whether trying again cannot help: a refusal of MLflow, or an error of our own making."""
    if isinstance(error, RefusedError) or _code(error) in _REFUSALS:
        return True
    return isinstance(error, TypeError | KeyError | AttributeError | AssertionError)


def _code(error: BaseException) -> str:
    """MLflow's error code, or ""."""
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
