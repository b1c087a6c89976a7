"""What the searches of a study recorded so far: its table and answers, as text and as files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answers import answer_curves, answer_rows, freeze_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.groups import size_text
from elsa_tune.errors import ElsaTuneError
from elsa_tune.report.folder import write_report
from elsa_tune.report.page import Context
from elsa_tune.specs.known_tasks import MISMATCHED
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.studies.protocols import PROTOCOLS
from elsa_tune.studies.reproduction import Edition, standing
from elsa_tune.studies.table import Line, beside, table_csv, table_text
from elsa_tune.tables.published import printed_rows
from elsa_tune.tracking.predictions import KeptPredictions
from elsa_tune.tracking.rows import rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults:
    """What the trials so far say.

    left: trials to go. unread: the reason of each search that could not be read, by name.
    """

    edition: Edition
    left: int
    unread: Mapping[str, str]
    rows: tuple[ResultRow, ...]
    answers: tuple[Answer, ...]
    table: tuple[Line, ...]

    @property
    def heading(self) -> list[str]:
        """What was done, a sentence a line."""
        return [
            f"{self.edition.study.source}, scale {self.edition.scale}",
            *([f"Not finished: {self.left} trials to go."] if self.left else []),
            *(f"Not read: {name}." for name in self.unread),
            *(f"Not as published: {sentence}" for sentence in self.edition.departures),
        ]

    @property
    def text(self) -> str:
        """All of it as a person reads it: what was done, the table, the answers."""
        answers = "\n".join(map(_sentence, self.answers))
        return "\n\n".join(["\n".join(self.heading), table_text(self.table), answers])


def _sentence(answer: Answer) -> str:
    task = "all tasks together" if answer.task == ALL_TASKS else answer.task
    size = size_text(answer.train_size, ", {:,} examples")
    return f"{answer.model} on {task}{size}: {answer.sentence} {answer.certainty}".strip()


def read_study(edition: Edition) -> StudyResults:
    """Read the journals and lay out the study's table; what cannot be read is left out."""
    rows: list[ResultRow] = []
    curves: list[FreezeCurve] = []
    unread: dict[str, str] = {}
    left = 0
    for search in edition.searches:
        try:
            found = standing(search)
            own = rows_of(found.state, search.storage / search.name)
            # Also the trials that MNLI's second split judged, with that as their task and quality;
            # what is kept are the predictions on the task's own split.
            second = [
                dataclasses.replace(
                    row,
                    task=MISMATCHED,
                    quality=trial.latest[MISMATCHED],
                    predictions=None,
                    chance=search.task.published_chance.get(MISMATCHED),
                )
                for trial, row in zip(found.state.trials.values(), own, strict=True)
                if MISMATCHED in trial.latest
            ]
            mine = freeze_curves([*own, *second], KeptPredictions())
        except ElsaTuneError as error:
            unread[search.name] = str(error)
            continue
        left += found.left.total()
        rows += own
        curves += mine
    printed = freeze_curves(printed_rows(edition.study))
    return StudyResults(
        edition=edition,
        left=left,
        unread=unread,
        rows=tuple(rows),
        answers=tuple(answer_curves([one for one in curves if one.task != MISMATCHED])),
        table=tuple(beside(curves, printed, PROTOCOLS[edition.study].models[0])),
    )


def write_study(results: StudyResults, folder: Path, command: str) -> Path:
    """Write the report of the trials with tables.txt and study.csv; returns the report's page.

    command: what made it. Raises StorageError where that fails.
    """
    models = {row.model for row in results.rows}
    theirs = [row for row in printed_rows(results.edition.study) if row.model in models]
    context = Context(
        published=answer_rows(row for row in theirs if row.task != MISMATCHED),
        command=command,
        notes=results.heading,
        files={
            "tables.txt": f"{results.text}\n",
            "study.csv": table_csv(results.table),
        },
    )
    page, *_ = write_report(results.answers, results.rows, folder, context)
    return page
