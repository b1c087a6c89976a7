"""Passes a journal on to MLflow in the background; never raises into its caller or blocks it."""

import itertools
import json
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from elsa_tune.errors import TrackingError
from elsa_tune.files import write_aside
from elsa_tune.specs.trial import QUALITY, TrialStatus
from elsa_tune.tracking import mlflow_names as names
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    Report,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
    encode,
)
from elsa_tune.tracking.mlflow_connection import refused_access
from elsa_tune.tracking.mlflow_writer import MlflowStore, StoreGoneError
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.record_names import ANSWER, DESCRIPTION, HOST_TAG, JOURNAL_TAG, REPORT
from elsa_tune.tracking.state import RecordedTrial, SearchState
from elsa_tune.tracking.uris import reason, without_credentials

log = logging.getLogger(__name__)

# Reports of one trial that travel together, at most.
_LARGEST_BATCH = 200
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 15.0
_BETWEEN_MARKS_S = 1.0
# How often a store that lost our runs is filled again from the journal's beginning.
_REFILLS = 3
# A store that answers but keeps refusing a file (no room, no rights) loses that file, not the rest.
_ARTIFACT_TRIES = 3
# Answers of MLflow that will be the same next time.
_REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS"})


class Forwarder:
    """Sends a search's records to its store; make one per driver, after taking the journal's lock.

    records: the journal's so far, where they were read already; later ones come by `offer`.
    """

    def __init__(
        self, paths: SearchPaths, store: MlflowStore, records: Sequence[Record] | None = None
    ) -> None:
        self._journal = paths.journal
        self._watermark = paths.forwarded  # how far this journal has reached this store
        self._place = without_credentials(store.uri)
        self._sender = Sender(self._journal, store)
        self._pending: deque[Record] = deque()
        self._wake = threading.Condition()
        self._closing_time: float | None = None
        self._refills = 0
        self._marked = 0.0  # when the watermark was written, by the monotonic clock
        self._uri = store.uri
        self._error: Exception | None = None
        everything = read_journal(self._journal) if records is None else records
        self._take_backlog(everything, self._read_watermark())
        self._thread = threading.Thread(target=self._run, name="mlflow-forwarder", daemon=True)

    def start(self) -> Self:
        """Begin to send; returns itself."""
        self._thread.start()
        return self

    def offer(self, record: Record) -> None:
        """Take one record that the journal has stamped since; returns at once and never raises."""
        with self._wake:
            self._pending.append(record)
            self._wake.notify()

    @property
    def lag(self) -> int:
        """Records that the store does not have yet."""
        return len(self._pending)

    @property
    def trouble(self) -> str:
        """Why the store did not take the last record offered, and what to do; "" if it did."""
        error = self._error
        if error is None:
            return ""
        if isinstance(error, TrackingError) and isinstance(error.__cause__, Exception):
            error = error.__cause__  # MLflow's own
        refusal = refused_access(self._uri, error)
        return refusal or f"did not take them ({reason(error, self._uri)})"

    def finish(self, patience_s: float = 30.0) -> int:
        """Send everything, unless nothing arrives for that long; returns what `close` does."""
        lag = self.lag
        heard = time.monotonic()
        while self.lag and time.monotonic() < heard + patience_s:
            time.sleep(0.05)
            if self.lag < lag:
                lag = self.lag
                heard = time.monotonic()
        return self.close(0.0 if lag else patience_s)

    def close(self, timeout_s: float = 30.0) -> int:
        """Send what is left for at most that long; returns how many records the next one sends."""
        with self._wake:
            self._closing_time = time.monotonic() + timeout_s
            self._wake.notify()
        if self._thread.is_alive():
            # A request that hangs is left behind with its thread: the watermark does not count it.
            self._thread.join(timeout_s)
        return self.lag

    def _run(self) -> None:
        try:
            self._send_until_closed()
        except Exception as error:
            # Not even a fault of this thread may reach the search; the next driver sends the rest.
            log.error("MLflow gets no more records from this driver: %s", reason(error, self._uri))

    def _send_until_closed(self) -> None:
        pause = _FIRST_PAUSE_S
        size = _LARGEST_BATCH
        while self._wait_for_records():
            batch = self._next_batch(size)
            try:
                self._sender.send(batch)
                self._drop(batch)
                self._error = None
                pause = _FIRST_PAUSE_S
                size = _LARGEST_BATCH
            except RefusedError as error:
                if len(batch) > 1:
                    size = 1  # one by one, until the report that is refused stands alone
                else:
                    self._skip(batch, error)
            except StoreGoneError as error:
                if self._refills < _REFILLS:
                    self._note(error)
                    self._refill()
                else:
                    self._skip(batch[:1], error)
            except Exception as error:  # whatever fails is tried again, for as long as it takes
                self._note(error)
                with self._wake:  # whatever is offered meanwhile; a closing cuts it short
                    self._wake.wait_for(lambda: self._closing_time is not None, pause)
                if self._closing_time is not None:
                    time.sleep(min(pause, _FIRST_PAUSE_S))
                pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _wait_for_records(self) -> bool:
        """Return True when there is something to send, False when the work is over."""
        with self._wake:
            self._wake.wait_for(lambda: self._pending or self._closing_time is not None)
            is_late = self._closing_time is not None and time.monotonic() >= self._closing_time
            return bool(self._pending) and not is_late

    def _next_batch(self, size: int) -> list[Record]:
        """Return the next record.

        With a report those that its trial made before anything else of it.
        """
        with self._wake:
            first = self._pending[0]
            near = itertools.islice(self._pending, size)
            trial = getattr(first, "trial", None)
            own = (one for one in near if getattr(one, "trial", None) == trial)
            return list(itertools.takewhile(lambda one: isinstance(one, Report), own)) or [first]

    def _drop(self, batch: Sequence[Record]) -> None:
        with self._wake:
            for record in batch:
                self._pending.remove(record)
            # What was sent ahead of other records may come once more, which changes nothing.
            until = batch[0].time if self._pending else batch[-1].time
            if self._pending and time.monotonic() < self._marked + _BETWEEN_MARKS_S:
                return  # each mark waits for the disk; an older one makes a later driver send more
        self._marked = time.monotonic()
        text = json.dumps({"tracking_uri": self._place, "until": until})
        try:
            write_aside(self._watermark, text.encode(), is_private=True)
        except OSError as error:
            # An older watermark makes a later driver send more, not less.
            log.info("how far MLflow has the journal is not noted (%s)", reason(error))

    def _skip(self, batch: Sequence[Record], error: BaseException) -> None:
        why = reason(error, self._uri)
        log.warning("MLflow refuses a record (%s): %s", why, encode(batch[0]))
        self._drop(batch)

    def _note(self, error: Exception) -> None:
        self._error = error
        why = reason(error, self._uri)
        log.info("MLflow did not take the record (%s); it will be sent again", why)

    def _take_backlog(self, records: Sequence[Record], until: float) -> None:
        """Put every record after that time in the queue; learn from those before it."""
        self._sender.begin_again()
        self._pending.clear()
        for record in records:
            if record.time > until:
                self._pending.append(record)
            else:
                self._sender.state.add(record)

    def _refill(self) -> None:
        """Begin again with the first record."""
        self._refills += 1
        with self._wake:
            waiting = list(self._pending)
            self._take_backlog(read_journal(self._journal), 0.0)
            journalled = {record.time for record in self._pending}
            self._pending.extend(record for record in waiting if record.time not in journalled)

    def _read_watermark(self) -> float:
        """Return the time up to which this store has everything; 0 for a store never met before."""
        try:
            values = json.loads(self._watermark.read_text(encoding="utf-8"))
            return float(values["until"]) if values["tracking_uri"] == self._place else 0.0
        except (OSError, ValueError, KeyError, TypeError):
            # Without it everything is sent again, which changes nothing that is there.
            return 0.0


class RefusedError(Exception):
    """The store will never take what was sent: trying again cannot help."""


class Sender:
    """Makes records calls of the store, without threads or retries.

    journal: artifacts are relative to its folder. state: what was sent so far.
    """

    def __init__(self, journal: Path, store: MlflowStore) -> None:
        self._journal = journal
        self._store = store
        self._artifact_tries: dict[str, int] = {}
        self.begin_again()

    def begin_again(self) -> None:
        self.state = SearchState()
        self._ready = False
        self._store.forget()

    def send(self, batch: Sequence[Record]) -> None:
        """Bring one record into the store, or several reports of one trial; then `state` has them.

        Raises RefusedError when the store will never take them, StoreGoneError when everything must
        be sent again, and whatever MLflow raises when trying again may help.
        """
        try:
            if not self._ready:
                self._store.initialise()
                # Records that it is said to have: said by a file of ours, not by the store.
                if self.state.search.attempt:
                    self._store.run_id(self.state.search)
                self._ready = True
            self._send(batch)
        except Exception as error:  # sorted by what the forwarder should do next; else passed on
            if _code(error) == "RESOURCE_DOES_NOT_EXIST":
                raise StoreGoneError(reason(error, self._store.uri)) from error
            if _is_refusal(error):
                raise RefusedError(reason(error, self._store.uri)) from error
            raise
        for record in batch:
            self.state.add(record)

    def _send(self, batch: Sequence[Record]) -> None:
        record = batch[0]
        search = self.state.search
        if isinstance(record, SearchStarted | SearchEnded):
            self._interrupt_running(record.time)
        if isinstance(record, SearchStarted):
            place = {
                JOURNAL_TAG: str(self._journal.absolute()),
                HOST_TAG: socket.gethostname(),
            }
            self._store.begin_search(record, place)
        elif not search.attempt:
            raise RefusedError("the record belongs to no search")
        elif isinstance(record, SearchEnded):
            # MLflow cannot take a point of the curve back: it waits until there is no more to come.
            is_over = record.status in (SearchStatus.COMPLETED, SearchStatus.TIME_UP)
            answer = self.state.decisions.get(ANSWER) if is_over else None
            reports = names.curve_reports(answer, record.time)
            tags = {names.TRIALS_DONE_TAG: str(self.state.trials_done)}
            name = names.search_run_name(search.name, answer)
            self._store.end(search, record, reports, tags, name)
        elif isinstance(record, TrialStarted):
            self._store.begin_trial(search, record)
        elif isinstance(record, Decision):
            self._decide(record)
        elif isinstance(record, Report | TrialEnded) and self.state.expects(record):
            # One of an attempt that was given up meanwhile counts for nothing.
            trial = self.state.trials[record.trial]
            if isinstance(record, TrialEnded):
                self._end_trial(trial, record)
            else:
                self._report(trial, [one for one in batch if isinstance(one, Report)])

    def _report(self, trial: RecordedTrial, reports: Sequence[Report]) -> None:
        # The headline metric by its own name is `quality` once more.
        twice = names.TWICE | {names.metric_of(trial.start.params)}
        shown = []
        for report in reports:
            values = report.metrics | {names.EVALUATION: float(report.evaluation)}
            once = {name: value for name, value in values.items() if name not in twice}
            shown.append(replace(report, metrics=once))
        notes = dict.fromkeys(note for one in (*trial.reports, *reports) for note in one.notes)
        tags = {"notes": "; ".join(notes)} if notes else {}
        self._store.log(self.state.search, trial.key, shown, tags)

    def _end_trial(self, trial: RecordedTrial, record: TrialEnded) -> None:
        values = dict(record.metrics)
        last = trial.reports[-1] if trial.reports else None
        if QUALITY in values:
            quality = values.pop(QUALITY)
            # Another number than the last evaluation's only where the selection chose another.
            if last is None or last.metrics.get(QUALITY) != quality:
                values[names.TRIAL_QUALITY] = quality
        at_end = Report(
            trial=record.trial,
            evaluation=len(trial.reports),
            step=last.step if last else 0,
            metrics=values,
            tags=record.tags,
            time=record.time,
        )
        tags = {names.PREDICTIONS: record.artifact} if record.artifact else {}
        name = names.run_name(record.trial, trial.start.params, record.status)
        self._store.end(self.state.search, record, [at_end], tags, name)
        if record.artifact:
            self._add_artifact(record.trial, record.artifact)

    def _decide(self, record: Decision) -> None:
        search = self.state.search
        if record.what == REPORT:
            self._add_artifact("", str(record.value))
        if record.what in (REPORT, DESCRIPTION):
            decisions = self.state.decisions | {record.what: record.value}
            tags = names.described(decisions, self._store.run_id(search))
        else:
            tags = {f"{names.DECISION_PREFIX}{record.what}": names.tag_text(record.value)}
            if record.what == ANSWER:
                tags |= names.answer_tags(record.value)
        self._store.log(search, "", [], tags)

    def _add_artifact(self, trial: str, artifact: str) -> None:
        file = self._journal.parent / artifact
        home = self._journal.parent.resolve()
        tries = self._artifact_tries[trial] = self._artifact_tries.get(trial, 0) + 1
        try:
            if not file.exists():
                raise RefusedError(f"{file} is not there any more")
            if not all(one.resolve().is_relative_to(home) for one in (file, *file.rglob("*"))):
                raise RefusedError(f"{file} leads out of the search's folder")
            self._store.add_artifact(self.state.search, trial, file)
            del self._artifact_tries[trial]
        except Exception as error:  # an artifact that cannot be had must not hold up the rest
            if tries < _ARTIFACT_TRIES and not _is_refusal(error):
                raise
            what = f"the predictions of {trial}" if trial else "the report"
            log.warning("%s did not reach MLflow: %s", what, reason(error, self._store.uri))

    def _interrupt_running(self, at: float) -> None:
        """No run stays RUNNING without its driver; `resume` opens those that it starts again."""
        for key, trial in self.state.trials.items():
            if trial.runs:
                end = TrialEnded(
                    trial=key,
                    attempt=trial.start.attempt,
                    status=TrialStatus.INTERRUPTED,
                    message="the search ended before the trial did",
                    time=at,
                )
                name = names.run_name(key, trial.start.params, end.status)
                self._store.end(self.state.search, end, name=name)


def _is_refusal(error: BaseException) -> bool:
    """Whether trying again cannot help: a refusal of MLflow, or an error of our own making."""
    if isinstance(error, RefusedError) or _code(error) in _REFUSALS:
        return True
    return isinstance(error, TypeError | KeyError | AttributeError | AssertionError)


def _code(error: BaseException) -> str:
    return str(getattr(error, "error_code", ""))
