"""What the searches of a study recorded so far: its tables and answers, as text and as files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answer_json import as_json
from elsa_tune.analysis.answers import answer_curves, freeze_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.groups import size_text
from elsa_tune.errors import ElsaTuneError
from elsa_tune.report.folder import write_report
from elsa_tune.report.page import Context
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.studies.paper_tables import elsa_tables, low_resource_tables
from elsa_tune.studies.reproduction import Edition, standing
from elsa_tune.studies.table import PaperTable
from elsa_tune.tables.published import SOURCES, Study, published_rows, published_values
from elsa_tune.tracking.predictions import KeptPredictions
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState

# Judged beside MNLI's own split; Table 3 prints it.
MISMATCHED = "mnli_mismatched"
NOT_AS_PUBLISHED = "Not as published"
# Every table that a plan may have; those of an earlier one would be taken for this one's.
_TABLES = re.compile(r"(table[2-5](-.+)?|figure1|appendix-.+)\.csv")


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
    tables: tuple[PaperTable, ...]

    @property
    def heading(self) -> list[str]:
        """What was done, a sentence a line."""
        return [
            f"{SOURCES[self.edition.study]}, scale {self.edition.scale}",
            *([f"Not finished: {self.left} trials to go."] if self.left else []),
            *(f"Not read: {name}." for name in self.unread),
            *(f"{NOT_AS_PUBLISHED}: {sentence}" for sentence in self.edition.departures),
        ]

    @property
    def text(self) -> str:
        """All of it as a person reads it: what was done, the tables, the answers."""
        shrunk = " ".join(self.edition.departures)
        # Under every table: it may be copied without the rest.
        under = f"\n{NOT_AS_PUBLISHED}: {shrunk}" if shrunk else ""
        tables = (f"{table.text}{under}" for table in self.tables)
        answers = "\n".join(map(_sentence, self.answers))
        return "\n\n".join(["\n".join(self.heading), *tables, answers])


def _sentence(answer: Answer) -> str:
    task = "all tasks together" if answer.task == ALL_TASKS else answer.task
    size = size_text(answer.train_size, ", {:,} examples")
    return f"{answer.model} on {task}{size}: {answer.sentence} {answer.certainty}".strip()


def read_study(edition: Edition) -> StudyResults:
    """Read the journals and lay out the study's tables; what cannot be read is left out."""
    rows: list[ResultRow] = []
    curves: list[FreezeCurve] = []
    beside: list[FreezeCurve] = []
    unread: dict[str, str] = {}
    left = 0
    for search in edition.searches:
        try:
            found = standing(search)
            own = rows_of(found.state, search.storage / search.name)
            mine = freeze_curves(own, KeptPredictions())
            chance = search.task.published_chance.get(MISMATCHED)
            beside += freeze_curves(_mismatched(found.state, own, chance))
        except ElsaTuneError as error:
            unread[search.name] = str(error)
            continue
        left += found.left.total()
        rows += own
        curves += mine
    if edition.study is Study.ELSA:
        tables = elsa_tables([*curves, *beside], rows, published_values()) if curves else []
    else:
        tables = low_resource_tables(curves, published_values())
    return StudyResults(
        edition=edition,
        left=left,
        unread=unread,
        rows=tuple(rows),
        answers=tuple(answer_curves(curves)),
        tables=tuple(tables),
    )


def _mismatched(
    state: SearchState, rows: Sequence[ResultRow], chance: float | None
) -> list[ResultRow]:
    """The trials that MNLI's second split judged too, with that as their task and quality."""
    # What is kept are the predictions on the task's own split.
    return [
        dataclasses.replace(
            row, task=MISMATCHED, quality=trial.latest[MISMATCHED], predictions=None, chance=chance
        )
        for trial, row in zip(state.trials.values(), rows, strict=True)
        if MISMATCHED in trial.latest
    ]


def write_study(results: StudyResults, folder: Path, command: str) -> Path:
    """Write the report of the trials, and with it tables.txt, a CSV for each table and study.json;
    returns the report's page. command: what made it. Tables of an earlier plan are removed.

    Raises StorageError where that fails.
    """
    edition = results.edition
    theirs = [
        row
        for row in published_rows()
        if row.comparison == SOURCES[edition.study] and row.model in edition.models
    ]
    study = {
        "study": edition.study,
        "source": SOURCES[edition.study],
        "scale": edition.scale,
        "models": edition.models,
        "seeds": edition.seeds,
        "trained": [dataclasses.asdict(one) for one in edition.trained],
        "not_as_published": edition.departures,
        "trials_to_go": results.left,
        "not_read": dict(results.unread),
        "searches": [search.name for search in edition.searches],
    }
    page, *_ = write_report(
        results.answers,
        results.rows,
        folder,
        Context(
            published=answer_curves(freeze_curves(theirs)) if theirs else [],
            command=command,
            notes=results.heading,
            files={
                "tables.txt": f"{results.text}\n",
                "study.json": as_json([study]) + "\n",
                **{f"{table.name}.csv": table.csv for table in results.tables},
            },
            stale=_TABLES,
        ),
    )
    return page
