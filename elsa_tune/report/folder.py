"""The folder of a report: figures, tables and the page, written so that nobody meets half of it.

Each file is written aside and renamed, the page last. Until then a new folder has a page that says
so, by which a report that was cut short is known and may be replaced.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object, answers_csv, as_json, curves_csv
from elsa_tune.analysis.comparing.comparison_json import comparison_object, comparisons_csv
from elsa_tune.analysis.comparing.ways import WayComparison
from elsa_tune.errors import StorageError, UsageError
from elsa_tune.files import write_aside
from elsa_tune.locks import alone_at
from elsa_tune.report.charts import all_charts
from elsa_tune.report.cost_chart import quality_by_cost
from elsa_tune.report.figures import draw
from elsa_tune.report.page import Origins, by_name, comparisons_by_name, page_html
from elsa_tune.results.results_csv import write_results
from elsa_tune.specs.arguments import check_out_is_here
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase

PAGE = "index.html"
FIGURES = "figures"
# How long a report waits for another one that is being written to its folder.
PATIENCE_S = 30.0

# In the head of every page that was ever written here.
_GENERATOR = b'<meta name="generator" content="elsa-tune">'
_UNFINISHED = (
    b"<!DOCTYPE html>\n"
    + _GENERATOR
    + b"\n<title>unfinished report</title>\n"
    + b"<p>This report is being written, or was cut short: the same command replaces it.</p>\n"
)

# What an earlier report may have left among the figures: beside this page it would mislead.
_OUR_FIGURES = re.compile(
    r"(freeze_curve|learning_rates|quality_by_cost|early_stopping)\.(png|svg)"
)

# Where ways are compared; likewise.
_WAYS_CSV = "ways.csv"
_WAYS_JSON = "ways.json"
_WAYS_FILES = (_WAYS_CSV, _WAYS_JSON)


def check_folder(folder: Path) -> None:
    """Raise UsageError where a report would replace files that no report wrote.

    Raises StorageError for a place that cannot be written. Nothing is made there.
    """
    check_out_is_here(folder)
    try:
        there = folder
        while not (there.exists() or there.is_symlink()):
            there = there.parent
        with tempfile.TemporaryFile(dir=there):
            pass
        is_new = there != folder or not any(folder.iterdir())
        if is_new or _is_report(folder / PAGE):
            return
    except OSError as error:
        raise _unwritten(folder, error) from error
    raise UsageError(
        f"`out` is {folder}, which holds other files than an earlier report's; name a folder "
        "that is new or empty"
    )


def _is_report(page: Path) -> bool:
    """Whether a file is a page that was written here."""
    return page.is_file() and _GENERATOR in page.read_bytes()


def write_report(
    answers: Sequence[Answer],
    rows: Sequence[ResultRow],
    folder: Path,
    command: str = "",
    origins: Origins | None = None,
    comparisons: Sequence[WayComparison] = (),
) -> list[Path]:
    """Write the report of these answers and the rows they came from.

    Returns its files, the page first. command, origins, comparisons: as in `page_html`. Raises
    StorageError where the folder cannot be written.
    """
    rows = [row for row in rows if row.phase is not Phase.PROBE]  # the answers tell of it
    named = by_name(answers)
    charts = all_charts(named)
    cost_chart = quality_by_cost(comparisons_by_name(named, comparisons))
    if cost_chart.panels:
        charts.append(cost_chart)
    figures = folder / FIGURES
    contents: dict[Path, bytes] = {}
    for chart in charts:
        for kind, drawn in draw(chart).items():
            contents[figures / f"{chart.key}.{kind}"] = drawn
    objects = [answer_object(answer) for answer in answers]
    texts = {
        "curve.csv": curves_csv(named.values()),
        "answers.csv": answers_csv(answers),
        "answers.json": as_json(objects) + "\n",
        "trials.csv": write_results(rows),
    }
    if comparisons:
        compared = [comparison_object(comparison) for comparison in comparisons]
        texts[_WAYS_CSV] = comparisons_csv(comparisons)
        texts[_WAYS_JSON] = as_json(compared) + "\n"
    texts[PAGE] = page_html(answers, rows, charts, command, origins, comparisons)
    for name, text in texts.items():
        contents[folder / name] = text.encode()
    _write(folder, contents)
    page_first = reversed(contents)
    return list(page_first)


def _write(folder: Path, contents: Mapping[Path, bytes]) -> None:
    """Write a report's files, and delete those of an earlier one that it has not.

    Two reports into one folder are written one after the other. Raises StorageError.
    """
    page = folder / PAGE
    figures = folder / FIGURES
    try:
        with alone_at(folder, PATIENCE_S):
            if not page.exists():
                write_aside(page, _UNFINISHED)
            figures.mkdir(exist_ok=True)
            for file, content in contents.items():
                write_aside(file, content)
            earlier = [file for file in figures.iterdir() if _OUR_FIGURES.fullmatch(file.name)]
            earlier += [folder / name for name in _WAYS_FILES]
            for file in earlier:
                if file not in contents:
                    file.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritten(folder, error) from error


def _unwritten(folder: Path, error: OSError) -> StorageError:
    """Return the error for a folder that cannot be written."""
    reason = error.strerror or error
    return StorageError(
        f"the report cannot be written to {folder}: {reason}; name another folder with `out`"
    )
