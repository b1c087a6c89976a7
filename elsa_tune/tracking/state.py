"""What a journal says of a search and of its trials, replayed from the records."""

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from elsa_tune.errors import StorageError
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.specs.trial_facts import TrialFacts
from elsa_tune.tracking.journal import is_held, read_journal
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
from elsa_tune.tracking.params import UnreadParams
from elsa_tune.tracking.paths import lock_of
from elsa_tune.tracking.record_names import GPUS_TAG, REPORT, WAITING

_NONE = SearchStarted(name="", search_id="", attempt=0, model="", task="")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTrial:
    """A trial's last attempt, as a journal or a store has it.

    What else the package asks of a recorded trial is a projection of this one: `known_trial` is
    the plan's, `rows_of` the answers'.
    """

    start: TrialStarted  # of the last attempt
    reports: tuple[Report, ...] = ()  # in the order of the evaluations
    end: TrialEnded | None = None  # None while it runs, and where it was cut off
    cut_off: float | None = None  # when its search ended or was resumed before it did
    run_id: str | None = None  # where a store keeps its files, as `fetch` takes it

    @property
    def key(self) -> str:
        return self.start.trial

    @property
    def facts(self) -> TrialFacts:
        """What the trial is. Raises StorageError where the record does not say it."""
        params = self.start.params
        if isinstance(params, UnreadParams):
            raise StorageError(f"trial {self.key} is not a complete record: {params.why}")
        return params

    @property
    def is_planned(self) -> bool:
        """Whether it is one of the plan: neither the linear probe nor a final one is."""
        return is_planned(self.start.params.phase)

    def reported(self, metric: str) -> tuple[float, ...]:
        """Return a metric's values at the evaluations that have it, in order."""
        return tuple(report.metrics[metric] for report in self.reports if metric in report.metrics)

    @property
    def evaluation(self) -> int:
        """The number of its last evaluation; 0 before the first."""
        return self.reports[-1].evaluation if self.reports else 0

    @property
    def runs(self) -> bool:
        """Whether it has neither ended nor been cut off."""
        return self.end is None and self.cut_off is None

    @property
    def status(self) -> TrialStatus:
        if self.end is not None:
            return self.end.status
        if self.runs:
            return TrialStatus.RUNNING
        return TrialStatus.INTERRUPTED

    @property
    def ended(self) -> float | None:
        """When it ended or was cut off, seconds since the epoch; None while it runs."""
        if self.end is not None:
            return self.end.time
        return self.cut_off

    @property
    def latest(self) -> dict[str, float]:
        """The last finite value of every metric, the end's before the reports'.

        `quality` is the trial's under its selection, until it ended the last reported one.
        """
        ordered = sorted(self.reports, key=lambda report: (report.step, report.time))
        tables = [report.metrics for report in ordered]
        if self.end is not None:
            tables.append(self.end.metrics)
        latest: dict[str, float] = {}
        for metrics in tables:
            for name, value in metrics.items():
                if math.isfinite(value):
                    latest[name] = value
        return latest


@dataclass(slots=True)
class SearchState:
    """A search as its records tell it; adding one costs the same however many there are."""

    search: SearchStarted = _NONE  # its last session's start
    started: float = 0.0  # when the first session began, seconds since the epoch
    end: SearchEnded | None = None  # the last session's, if it has ended
    is_alive: bool = True  # whether its driver lives
    # By key, in the order of their first start.
    trials: dict[str, RecordedTrial] = field(default_factory=dict)
    decisions: dict[str, Any] = field(default_factory=dict)  # the last of each name
    # How many trials are done, and how many run, where they were counted and not read.
    counted: int | None = None
    counted_running: int | None = None
    time: float = 0.0  # of the last record, seconds since the epoch
    # Seconds for which trials that run no more held a GPU, times the part of it that each held; of
    # every attempt in every session.
    held_gpu_seconds: float = 0.0

    @classmethod
    def replay(cls, records: Iterable[Record], alive: bool = True) -> Self:
        """Follow the records. alive: a driver holds the lock; else what has no end was cut off."""
        state = cls(is_alive=alive)
        for record in records:
            state.add(record)
        if not alive:
            state._cut_off(state.time)
        return state

    def add(self, record: Record) -> None:
        if isinstance(record, SearchStarted):
            self.started = self.started or record.time
            self._cut_off(record.time)
            self.search = record
            self.end = None
            self.decisions.pop(WAITING, None)
        elif isinstance(record, SearchEnded):
            self.end = record
            self.decisions.pop(REPORT, None)  # an earlier session's says less
            self._cut_off(record.time)
        elif isinstance(record, Decision):
            self.decisions[record.what] = record.value
        elif isinstance(record, TrialStarted):
            before = self.trials.get(record.trial)
            if before is not None and before.runs:
                self._count(before, record.time)
            self.trials[record.trial] = RecordedTrial(start=record)
            self.decisions.pop(WAITING, None)
        elif isinstance(record, Report | TrialEnded) and self.expects(record):
            trial = self.trials[record.trial]
            if isinstance(record, Report):
                trial = replace(trial, reports=(*trial.reports, record))
            else:
                self._count(trial, record.time)
                trial = replace(trial, end=record)
            self.trials[record.trial] = trial
        elif isinstance(record, LatePredictions):
            self._add_predictions(record)
        self.time = record.time

    def _add_predictions(self, record: LatePredictions) -> None:
        trial = self.trials.get(record.trial)
        if trial is None or trial.end is None:
            return
        end = replace(trial.end, artifact=record.artifact)
        self.trials[record.trial] = replace(trial, end=end)

    def expects(self, record: Report | TrialEnded) -> bool:
        """Whether it is of a trial that runs; an attempt that was given up counts for nothing."""
        trial = self.trials.get(record.trial)
        return trial is not None and trial.runs and trial.start.attempt == record.attempt

    @property
    def status(self) -> SearchStatus:
        if self.end is not None:
            return self.end.status
        if self.is_alive:
            return SearchStatus.RUNNING
        return SearchStatus.KILLED

    @property
    def status_text(self) -> str:
        """The status in words; "not begun" before the first session."""
        if not self.search.attempt:
            return "not begun"
        return self.status.value.replace("_", " ")

    @property
    def planned_trials(self) -> list[RecordedTrial]:
        """The trials of the plan that have begun."""
        return [trial for trial in self.trials.values() if trial.is_planned]

    @property
    def final_trials(self) -> list[RecordedTrial]:
        """The trials that `resume` keeps."""
        return [trial for trial in self.planned_trials if trial.status.is_final]

    @property
    def trials_done(self) -> int:
        """How many `resume` keeps."""
        if self.counted is not None:
            return self.counted
        return len(self.final_trials)

    @property
    def trials_running(self) -> int:
        """How many run now."""
        if self.counted_running is not None:
            return self.counted_running
        return sum(trial.runs for trial in self.planned_trials)

    @property
    def waits_for(self) -> str | None:
        """What it waits for before a trial can run, in words; None where it waits for nothing."""
        if self.status is not SearchStatus.RUNNING or self.trials_running:
            return None
        waiting = self.decisions.get(WAITING)
        return waiting if isinstance(waiting, str) else None

    @property
    def is_complete(self) -> bool:
        """Whether the whole plan was carried out: nothing is left to resume."""
        return self.status is SearchStatus.COMPLETED

    def copy(self) -> Self:
        return replace(self, trials=dict(self.trials), decisions=dict(self.decisions))

    @property
    def gpus_per_trial(self) -> float:
        """The part of a GPU that a trial of the last session holds; 0 where it trains on CPUs."""
        with contextlib.suppress(ValueError):  # whatever somebody else wrote there
            return float(self.search.tags.get(GPUS_TAG, "0"))
        return 0.0

    def gpu_hours(self, now: float) -> float:
        """Return the hours for which trials have held a GPU, in parts as they did.

        That is of every attempt in every session, those that run included. now: seconds since the
        epoch.
        """
        share = self.gpus_per_trial
        seconds = self.held_gpu_seconds
        if share:
            for trial in self.trials.values():
                if trial.runs and trial.is_planned:
                    seconds += share * max(0.0, now - trial.start.time)
        return seconds / 3600

    def _cut_off(self, time: float) -> None:
        """Note that what runs ended without a record by this time."""
        for key, trial in self.trials.items():
            if trial.runs:
                # It held its GPU until the last sign of its driver, which may be days before.
                self._count(trial, self.time)
                self.trials[key] = replace(trial, cut_off=time)

    def _count(self, trial: RecordedTrial, until: float) -> None:
        """Count the time for which a trial that runs no more held its part of a GPU."""
        if trial.is_planned:
            seconds = max(0.0, until - trial.start.time)
            self.held_gpu_seconds += self.gpus_per_trial * seconds


def is_planned(phase: object) -> bool:
    """Whether a trial of this phase is one of the plan."""
    return phase not in (Phase.PROBE, Phase.FINAL)


def is_behind(kept: SearchState, sent: SearchState) -> bool:
    """Whether a store keeps less of a search than it was sent: it was lost, or is an older copy.

    It may keep more, for what was sent is noted afterwards. Of the search and of each trial the
    last attempt counts.
    """
    if _ends_behind(kept.search.attempt, kept.end, sent.search.attempt, sent.end):
        return True
    for key, trial in sent.trials.items():
        there = kept.trials.get(key)
        if there is None or _is_trial_behind(there, trial):
            return True
    return False


def _is_trial_behind(kept: RecordedTrial, sent: RecordedTrial) -> bool:
    if _ends_behind(kept.start.attempt, kept.end, sent.start.attempt, sent.end):
        return True
    is_same = kept.start.attempt == sent.start.attempt
    return is_same and kept.evaluation < sent.evaluation


def _ends_behind(
    kept_attempt: int,
    kept_end: SearchEnded | TrialEnded | None,
    sent_attempt: int,
    sent_end: SearchEnded | TrialEnded | None,
) -> bool:
    """Whether an attempt that was sent is not kept, or its end is not."""
    if kept_attempt != sent_attempt or sent_end is None:
        return kept_attempt < sent_attempt
    return kept_end is None or kept_end.status != sent_end.status


def read_state(journal: Path) -> SearchState:
    """Return what a journal says now; errors as in `read_journal`."""
    alive = is_held(lock_of(journal))  # asked first: its driver may end it meanwhile
    records = read_journal(journal)
    return SearchState.replay(records, alive)
