"""A reproduced study as a person reads it, and as files.

It must not lay out tables or decide anything; the report floor and analysis do.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answer_json import as_json
from elsa_tune.analysis.answers import answer_curves, freeze_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.cli.answer_tables import PIPE_WIDTH, stdout_console
from elsa_tune.errors import ElsaTuneError
from elsa_tune.report.folder import write_report
from elsa_tune.report.page import Context
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.studies.appendix_tables import low_resource_tables
from elsa_tune.studies.paper_tables import elsa_tables
from elsa_tune.studies.protocols import PROTOCOLS, Edition, Study
from elsa_tune.studies.reproduction import PlannedSearch
from elsa_tune.studies.results import read_search
from elsa_tune.studies.table import Kind, PaperTable
from elsa_tune.tables.published import SOURCES, published_rows, published_values
from elsa_tune.tracking.predictions import KeptPredictions
from elsa_tune.training.cache import cache_dir

# Judged beside MNLI's own split; Table 3 prints it.
MISMATCHED = "mnli_mismatched"
NOT_AS_PUBLISHED = "Not as published"
# Every table that a plan may have; those of an earlier one would be taken for this one's.
_TABLES = re.compile(r"(table[2-5](-.+)?|figure1|appendix-.+)\.csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults:
    """What the trials so far say.

    left: trials to go. unread: searches that could not be read, with the reason. histories: as
    `write_report` takes them.
    """

    edition: Edition
    searches: tuple[str, ...]
    left: int
    unread: Mapping[str, str]
    rows: tuple[ResultRow, ...]
    histories: Mapping[tuple[str, str], tuple[float, ...]]
    answers: tuple[Answer, ...]
    tables: tuple[PaperTable, ...]

    @property
    def heading(self) -> list[str]:
        """What was done, a sentence a line."""
        source = PROTOCOLS[self.edition.study].source
        unfinished = [f"Not finished: {self.left} trials to go."] if self.left else []
        unread = [f"Not read: {name}." for name in self.unread]
        differences = [f"{NOT_AS_PUBLISHED}: {sentence}" for sentence in self.edition.departures]
        return [f"{source}, scale {self.edition.scale}", *unfinished, *unread, *differences]

    @property
    def footnotes(self) -> list[str]:
        """One line under every table: it may be copied without the rest."""
        if not self.edition.departures:
            return []
        return [f"{NOT_AS_PUBLISHED}: {' '.join(self.edition.departures)}"]


def read_study(
    edition: Edition, searches: Sequence[PlannedSearch], storage: Path, left: int
) -> StudyResults:
    """Read the journals and lay out the study's tables; what cannot be read is left out."""
    rows: list[ResultRow] = []
    curves: list[FreezeCurve] = []
    beside: list[FreezeCurve] = []
    histories: dict[tuple[str, str], tuple[float, ...]] = {}
    unread: dict[str, str] = {}
    for search in searches:
        try:
            found = read_search(search, storage, MISMATCHED)
            own = freeze_curves(found.rows, KeptPredictions(found.rows, cache_dir()))
            companions = freeze_curves(found.beside)
        except ElsaTuneError as error:
            unread[search.name] = f"{error}"
            continue
        rows += found.rows
        curves += own
        beside += companions
        histories |= found.histories
    if edition.study is Study.ELSA:
        tables = elsa_tables([*curves, *beside], rows, published_values()) if curves else []
    else:
        tables = low_resource_tables(curves, published_values())
    return StudyResults(
        edition=edition,
        searches=tuple(search.name for search in searches),
        left=left,
        unread=unread,
        rows=tuple(rows),
        histories=histories,
        answers=tuple(answer_curves(curves)),
        tables=tuple(tables),
    )


def print_study(results: StudyResults) -> None:
    """Print what was done, the tables and the answers to stdout."""
    _print(results, stdout_console())


def _print(results: StudyResults, console: Console) -> None:
    first, *rest = results.heading
    console.print(first, style="bold")
    for line in rest:
        console.print(line)
    for table in results.tables:
        console.print()
        console.print(table.title, style="bold")
        console.print(_drawn(table))
        for note in (*table.notes, *results.footnotes):
            console.print(note, style="dim")
    console.print()
    for answer in results.answers:
        size = "" if answer.train_size is None else f", {answer.train_size:,} examples"
        task = "all tasks together" if answer.task == ALL_TASKS else answer.task
        told = f"{answer.sentence} {answer.certainty}".strip()
        console.print(f"{answer.model} on {task}{size}: {told}")


def _drawn(table: PaperTable) -> Table:
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, kind in table.columns:
        drawn.add_column(name, justify="left" if kind is Kind.TEXT else "right", no_wrap=True)
    for cells in table.texts:
        drawn.add_row(*cells)
    return drawn


def write_study(results: StudyResults, folder: Path, command: str) -> Path:
    """Write the report of the trials, and with it tables.txt, a CSV for each table and study.json;
    returns the report's page. command: what made it. Tables of an earlier plan are removed.

    Raises StorageError where that fails.
    """
    text = io.StringIO()
    _print(results, Console(file=text, width=PIPE_WIDTH, soft_wrap=True, markup=False))
    page, *_ = write_report(
        results.answers,
        results.rows,
        results.histories,
        folder,
        Context(
            published=_published_answers(results.edition),
            command=command,
            notes=results.heading,
            files={
                "tables.txt": text.getvalue(),
                "study.json": as_json([_study_object(results)]) + "\n",
                **{f"{table.name}.csv": table.csv for table in results.tables},
            },
            stale=_TABLES,
        ),
    )
    return page


def _published_answers(edition: Edition) -> list[Answer]:
    """What the study's own means answer, for its models among ours."""
    source = SOURCES[edition.study.value]
    rows = [
        row for row in published_rows() if row.comparison == source and row.model in edition.models
    ]
    return answer_curves(freeze_curves(rows)) if rows else []


def _study_object(results: StudyResults) -> dict[str, Any]:
    edition = results.edition
    return {
        "study": edition.study.value,
        "source": PROTOCOLS[edition.study].source,
        "scale": edition.scale.value,
        "models": list(edition.models),
        "seeds": list(edition.seeds),
        "trained": [
            {"task": one.task, "examples": one.examples, "of": one.of} for one in edition.trained
        ],
        "not_as_published": list(edition.departures),
        "trials_to_go": results.left,
        "not_read": dict(results.unread),
        "searches": list(results.searches),
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "columns": [name for name, _ in table.columns],
                "rows": [list(row) for row in table.rows],
                "notes": list(table.notes),
            }
            for table in results.tables
        ],
    }
