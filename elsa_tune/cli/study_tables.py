"""A reproduced study as a person reads it, and as files.

It must not lay out tables or decide anything; the report floor and analysis do.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answer_json import as_json
from elsa_tune.analysis.answers import answer_curves, freeze_curves
from elsa_tune.analysis.published import SOURCES, published_rows, published_values
from elsa_tune.cli.answer_tables import PIPE_WIDTH, stdout_console
from elsa_tune.errors import StorageError
from elsa_tune.report.appendix_tables import low_resource_tables
from elsa_tune.report.folder import write_report
from elsa_tune.report.paper_tables import elsa_tables
from elsa_tune.report.study_table import Kind, PaperTable
from elsa_tune.search.reproduction import (
    PlannedSearch,
    companion_rows,
    histories_of_plan,
    rows_of_plan,
)
from elsa_tune.search.studies import PROTOCOLS, Edition, Study
from elsa_tune.specs.result import ResultRow
from elsa_tune.tracking.predictions import KeptPredictions
from elsa_tune.training.cache import cache_dir

# Judged beside MNLI's own split; Table 3 prints it.
MISMATCHED = "mnli_mismatched"
NOT_AS_PUBLISHED = "Not as published"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults:
    """What the trials so far say. left: trials to go. histories: as `write_report` takes them."""

    edition: Edition
    searches: tuple[str, ...]
    left: int
    rows: tuple[ResultRow, ...]
    histories: Mapping[tuple[str, str], tuple[float, ...]]
    answers: tuple[Answer, ...]
    tables: tuple[PaperTable, ...]

    @property
    def heading(self) -> list[str]:
        """What was done, a sentence a line."""
        source = PROTOCOLS[self.edition.study].source
        unfinished = [f"Not finished: {self.left} trials to go."] if self.left else []
        differences = [f"{NOT_AS_PUBLISHED}: {sentence}" for sentence in self.edition.departures]
        return [f"{source}, scale {self.edition.scale}", *unfinished, *differences]

    @property
    def footnotes(self) -> list[str]:
        """One line under every table: it may be copied without the rest."""
        if not self.edition.departures:
            return []
        return [f"{NOT_AS_PUBLISHED}: {' '.join(self.edition.departures)}"]


def read_study(
    edition: Edition, searches: Sequence[PlannedSearch], storage: Path, left: int
) -> StudyResults:
    """Read the journals and lay out the study's tables."""
    rows = rows_of_plan(searches, storage)
    curves = freeze_curves(rows, KeptPredictions(rows, cache_dir()))
    if edition.study is Study.ELSA:
        beside = freeze_curves(companion_rows(searches, storage, MISMATCHED))
        tables = elsa_tables([*curves, *beside], rows, published_values()) if curves else []
    else:
        tables = low_resource_tables(curves, published_values())
    return StudyResults(
        edition=edition,
        searches=tuple(search.name for search in searches),
        left=left,
        rows=tuple(rows),
        histories=histories_of_plan(searches, storage),
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


def write_study(results: StudyResults, folder: Path) -> Path:
    """Write the report of the trials, and beside it tables.txt, a CSV for each table and
    study.json; returns the report's page.

    Raises StorageError where that fails.
    """
    text = io.StringIO()
    _print(results, Console(file=text, width=PIPE_WIDTH, soft_wrap=True, markup=False))
    files = {
        "tables.txt": text.getvalue(),
        "study.json": as_json([_study_object(results)]) + "\n",
        **{f"{table.name}.csv": table.csv for table in results.tables},
    }
    page, *_ = write_report(
        results.answers,
        results.rows,
        results.histories,
        folder,
        published=_published_answers(results.edition),
    )
    try:
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot write in {folder}: {error.strerror}; choose another place with --out"
        ) from error
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
