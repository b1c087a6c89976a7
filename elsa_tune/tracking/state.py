"""What a journal says: the state of a search and of each of its trials, replayed from the records.

It must not read files or know MLflow. Of a trial that was started again only the last attempt
counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    Report,
    Scalar,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One report: its number (1-based), the optimiser steps done, and every metric by name."""

    evaluation: int
    step: int
    metrics: dict[str, float]
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialState:
    """A trial's last attempt.

    first_started: when attempt 1 began; started and ended: of this attempt, seconds since the
    epoch. metrics: those recorded at its end. node: the tag of that name, where the trial ran.
    """

    key: str
    attempt: int
    status: TrialStatus
    params: dict[str, Scalar]
    tags: dict[str, str]
    reports: tuple[Evaluation, ...]
    metrics: dict[str, float]
    notes: tuple[str, ...]
    message: str
    artifact: str | None
    first_started: float
    started: float
    ended: float | None

    @property
    def is_planned(self) -> bool:
        """Whether it is a trial of the plan: all but the linear probe are."""
        return self.params.get("phase") != Phase.PROBE

    @property
    def node(self) -> str | None:
        """Where the trial ran, as far as it is known."""
        return self.tags.get("node")

    @property
    def quality(self) -> float | None:
        """The trial's quality under its selection; the last reported one until it has ended."""
        return self.latest.get("quality")

    @property
    def latest(self) -> dict[str, float]:
        """The last finite value of every metric, those of the end before those of the reports."""
        values: dict[str, float] = {}
        ordered = sorted(self.reports, key=lambda report: (report.step, report.time))
        for metrics in (*(report.metrics for report in ordered), self.metrics):
            values.update((name, value) for name, value in metrics.items() if math.isfinite(value))
        return values

    @property
    def evaluations(self) -> int:
        """Evaluations done, i.e. the number of the last one."""
        return max((report.evaluation for report in self.reports), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """A search as its journal tells it; `trials` by key, in the order of their first start."""

    name: str
    search_id: str
    attempt: int
    model: str
    task: str
    params: dict[str, str]
    tags: dict[str, str]
    status: SearchStatus
    message: str
    started: float
    ended: float | None
    trials: dict[str, TrialState]
    decisions: dict[str, Any]

    @classmethod
    def replay(cls, records: Iterable[Record], alive: bool = True) -> SearchState:
        """Follow the records from the first to the last.

        alive: whether a driver holds the search's lock now. Where none does, a search without an
        end reads as killed, and trials without an end as interrupted. Later decisions of one name
        replace earlier ones.
        """
        story = Story()
        for record in records:
            story.add(record)
        return story.tell(alive)

    @property
    def planned_trials(self) -> list[TrialState]:
        """Those of the plan: all but the linear probe."""
        return [trial for trial in self.trials.values() if trial.is_planned]

    @property
    def final_trials(self) -> list[TrialState]:
        """Those that `resume` keeps."""
        return [trial for trial in self.planned_trials if trial.status.is_final]

    @property
    def is_complete(self) -> bool:
        """Whether the whole plan was carried out: nothing is left to resume."""
        return self.status is SearchStatus.COMPLETED


@dataclass(slots=True)
class _Trial:
    """A trial while its records are being followed."""

    start: TrialStarted
    first_started: float
    reports: list[Report] = field(default_factory=list)
    end: TrialEnded | None = None
    cut_off: float | None = (
        None  # when its search ended or was taken up again without it having ended
    )
    told: TrialState | None = None  # while its driver lives, and until another record comes

    def tell(self, alive: bool) -> TrialState:
        if self.told is None:
            self.told = self._tell()
        if alive or self.told.status is not TrialStatus.RUNNING:
            return self.told
        return replace(self.told, status=TrialStatus.INTERRUPTED)

    def _tell(self) -> TrialState:
        tags = dict(self.start.tags)
        notes: list[str] = []
        for report in self.reports:
            tags |= report.tags
            notes += [note for note in report.notes if note not in notes]
        status, ended = TrialStatus.RUNNING, None
        if self.end is not None:
            status, ended = self.end.status, self.end.time
            tags |= self.end.tags
        elif self.cut_off is not None:
            status, ended = TrialStatus.INTERRUPTED, self.cut_off
        return TrialState(
            key=self.start.trial,
            attempt=self.start.attempt,
            status=status,
            params=dict(self.start.params),
            tags=tags,
            reports=tuple(
                Evaluation(
                    evaluation=report.evaluation,
                    step=report.step,
                    metrics=dict(report.metrics),
                    time=report.time,
                )
                for report in self.reports
            ),
            metrics=dict(self.end.metrics) if self.end else {},
            notes=tuple(notes),
            message=self.end.message if self.end else "",
            artifact=self.end.artifact if self.end else None,
            first_started=self.first_started,
            started=self.start.time,
            ended=ended,
        )


class Story:
    """The records so far, one after the other: what another one costs does not grow with them."""

    def __init__(self) -> None:
        self.first: SearchStarted | None = None
        self.last: SearchStarted | None = None
        self.end: SearchEnded | None = None
        self.trials: dict[str, _Trial] = {}
        self.decisions: dict[str, Any] = {}

    def add(self, record: Record) -> None:
        """The next record."""
        if isinstance(record, SearchStarted):
            self.first = self.first or record
            self.last = record
            self.end = None
            self._cut_off(record.time)
        elif isinstance(record, SearchEnded):
            self.end = record
            self._cut_off(record.time)
        elif isinstance(record, Decision):
            self.decisions[record.what] = record.value
        elif isinstance(record, TrialStarted):
            before = self.trials.get(record.trial)
            first = before.first_started if before else record.time
            self.trials[record.trial] = _Trial(start=record, first_started=first)
        elif isinstance(record, Report | TrialEnded):
            trial = self.trials.get(record.trial)
            # A word from an attempt that was given up meanwhile counts for nothing.
            if trial is None or trial.start.attempt != record.attempt or trial.end is not None:
                return
            trial.told = None
            if isinstance(record, Report):
                trial.reports.append(record)
            else:
                trial.end = record

    def _cut_off(self, time: float) -> None:
        for trial in self.trials.values():
            if trial.end is None and trial.cut_off is None:
                trial.told = None
                trial.cut_off = time

    def trial(self, key: str) -> TrialState | None:
        """One trial while the driver lives; None before it has begun."""
        found = self.trials.get(key)
        return None if found is None else found.tell(alive=True)

    def tell(self, alive: bool = True) -> SearchState:
        """The state that they make; `alive` as in `SearchState.replay`."""
        last = self.last
        status = SearchStatus.RUNNING if alive else SearchStatus.KILLED
        if self.end is not None:
            status = SearchStatus(self.end.status)
        return SearchState(
            name=last.name if last else "",
            search_id=last.search_id if last else "",
            attempt=last.attempt if last else 0,
            model=last.model if last else "",
            task=last.task if last else "",
            params=dict(last.params) if last else {},
            tags=dict(last.tags) if last else {},
            status=status,
            message=self.end.message if self.end else "",
            started=self.first.time if self.first else 0.0,
            ended=self.end.time if self.end else None,
            trials={key: trial.tell(alive) for key, trial in self.trials.items()},
            decisions=dict(self.decisions),
        )
