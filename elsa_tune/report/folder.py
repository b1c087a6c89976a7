"""A report on disk: one folder with the page, the figures and the tables.

Each file is written aside and renamed, the page last: a reader never meets half of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object, answers_csv, as_json, curves_csv
from elsa_tune.errors import StorageError
from elsa_tune.files import write_aside
from elsa_tune.report import figures
from elsa_tune.report.charts import all_charts
from elsa_tune.report.page import by_name, page_html
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase
from elsa_tune.tables.results_csv import write_results

PAGE = "index.html"
FIGURES = "figures"
# What an earlier report may have left among the figures: beside this page it would mislead.
_OUR_FIGURES = re.compile(r"(freeze_curve|learning_rates|early_stopping)\.(png|svg)")


def write_report(
    answers: Sequence[Answer],
    rows: Sequence[ResultRow],
    folder: Path,
    command: str = "",
    origins: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write the report of these answers and the rows they came from; returns its files, page first.

    command, origins: as in `page_html`. Raises StorageError where the folder cannot be written.
    """
    rows = [row for row in rows if row.phase is not Phase.PROBE]  # the answers tell of it
    named = by_name(answers)
    charts = all_charts(named)
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
        PAGE: page_html(answers, rows, charts, command, origins),
    }
    return _write(folder, contents | {name: text.encode() for name, text in texts.items()})


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
        raise StorageError(
            f"the report cannot be written to {folder}: {error.strerror or error}; "
            "name another folder with `out`"
        ) from error
    return list(written)[::-1]
