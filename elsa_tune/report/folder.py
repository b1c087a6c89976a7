"""A report on disk: one folder with the page, the figures and the tables.

Each file is written aside and then renamed, the page last: a reader meets old files or new ones,
never half of one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object, answers_csv, as_json, curves_csv
from elsa_tune.errors import StorageError
from elsa_tune.files import write_aside
from elsa_tune.report import figures
from elsa_tune.report.charts import all_charts
from elsa_tune.report.page import Context, by_name, page_html
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase
from elsa_tune.tables.results_csv import write_results

PAGE = "index.html"
FIGURES = "figures"
# What an earlier report may have left among the figures, three of them drawn by earlier versions
# only: beside this page they would mislead.
_OUR_FIGURES = re.compile(
    r"(freeze_curve|relative_change|training_time|learning_rates|early_stopping)\.(png|svg)"
)


def write_report(
    answers: Sequence[Answer],
    rows: Sequence[ResultRow],
    folder: Path,
    context: Context | None = None,
) -> list[Path]:
    """Write the report of these answers and the rows they came from; returns its files, page first.

    Raises StorageError where the folder cannot be written.
    """
    check_folder(folder)
    context = context or Context()
    rows = [row for row in rows if row.phase is not Phase.PROBE]  # the answers tell of it
    named = by_name(answers)
    charts = all_charts(named, context.published)
    contents = {
        f"{FIGURES}/{chart.key}.{kind}": drawn
        for chart in charts
        if chart.panels
        for kind, drawn in figures.draw(chart).items()
    }
    texts = {
        "curve.csv": curves_csv(named.values()),
        "answers.csv": answers_csv(answers),
        "answers.json": as_json([answer_object(answer) for answer in answers]) + "\n",
        "trials.csv": write_results(rows),
        PAGE: page_html(answers, rows, charts, context),
    }
    return _write(folder, contents | {name: text.encode() for name, text in texts.items()})


def check_folder(folder: Path) -> None:
    """Raise StorageError if a report cannot be written there; makes nothing yet."""
    there = folder / FIGURES
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise _cannot_write(folder, NotADirectoryError(20, f"{there} is a file"))
    # What is there must take the files, a folder that is not there yet must be made.
    if not all(os.access(place, os.W_OK | os.X_OK) for place in {there, folder} if place.is_dir()):
        raise _cannot_write(folder, PermissionError(13, "permission denied"))


def _cannot_write(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        f"the report cannot be written to {folder}: {error.strerror or error}; "
        "name another folder with `out`"
    )


def _write(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    written = {folder / name: content for name, content in contents.items()}
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        for target, content in written.items():
            write_aside(target, content)
        for old in list((folder / FIGURES).iterdir()):
            if _OUR_FIGURES.fullmatch(old.name) and old not in written:
                old.unlink()
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return list(written)[::-1]
