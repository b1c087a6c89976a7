"""Results as a notebook shows them, and as DataFrames."""

import html
import io

import pandas as pd

from elsa_tune.analysis.answer import Answer, FirstLines
from elsa_tune.analysis.answer_json import answers_csv, curves_csv
from elsa_tune.analysis.comparing.comparison_json import comparisons_csv
from elsa_tune.analysis.comparing.ways import WayComparison
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.results.results_csv import bare_cell
from elsa_tune.tasks.table_file import csv_line, csv_reader

# Columns with names, also behind a prefix: a search may be called `001`, and a task `NA`.
_NAMES = (
    *("model", "task", "search", "metric", "comparison", "candidate", "label", "method"),
    *("decided_by", "earlier_searches"),
)


def frame_of(table: str) -> pd.DataFrame:
    """Return a table of CSV as a DataFrame, in which names stay the texts that they are."""
    header, *lines = csv_reader(io.StringIO(table, newline=""))
    bare = [csv_line(header)]
    for line in lines:
        # No spreadsheet reads a DataFrame, so that no formula needs its apostrophe.
        cells = [bare_cell(cell) for cell in line]
        bare.append(csv_line(cells))
    texts = {column: str for column in header if column.endswith(_NAMES)}
    return pd.read_csv(
        io.StringIO("".join(bare)), dtype=texts, keep_default_na=False, na_values=[""]
    )


class Curves(tuple[FreezeCurve, ...]):
    """Freeze curves: quality by frozen layers, one for each model, task and training size."""

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each depth; the columns are those of `elsa-tune curve --format csv`."""
        return frame_of(curves_csv(self))

    def _repr_html_(self) -> str:
        return str(self.to_dataframe().to_html(index=False))


class Answers(tuple[Answer, ...]):
    """Answers, one for each model, task and training size; of several tasks the joint one, too."""

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each, with the columns of `elsa-tune operating-point --format csv`."""
        return frame_of(answers_csv(self))

    def _repr_html_(self) -> str:
        """Return the first lines, the table and the freeze curve of each.

        A joint answer has first lines alone.
        """
        from elsa_tune.report.charts import freeze_curve
        from elsa_tune.report.figures import draw
        from elsa_tune.report.page import by_name, joint_by_name
        from elsa_tune.report.tables import curve_table

        parts = []
        answers = by_name(self)
        for name, answer in answers.items():
            table = curve_table(name, answer)
            rows = pd.DataFrame(list(table.rows), columns=list(table.names))
            parts.append(f"<p>{html.escape(name)}</p>")
            parts.append(_first_lines_html(answer.first_lines))
            parts.append(rows.to_html(index=False))
        for name, answer in joint_by_name(self).items():
            parts.append(f"<p>{html.escape(name)}</p>")
            parts.append(_first_lines_html(answer.first_lines))
        chart = freeze_curve(answers)
        if chart.panels:  # none where nothing has been measured yet
            svg = draw(chart)["svg"]
            parts.append(svg.decode())
        return "\n".join(parts)


class Comparisons(tuple[WayComparison, ...]):
    """Comparisons of ways, one for each model, task and training size."""

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each way; the columns are those of `elsa-tune compare --format csv`."""
        return frame_of(comparisons_csv(self))

    def _repr_html_(self) -> str:
        """Return the first lines and the table of each."""
        from elsa_tune.analysis.wording.comparison_tables import way_cells
        from elsa_tune.report.page import comparisons_by_name

        parts = []
        for name, comparison in comparisons_by_name({}, self).items():
            cells = [way_cells(comparison, way) for way in comparison.ways]
            parts.append(f"<p>{html.escape(name)}</p>")
            parts.append(_first_lines_html(comparison.first_lines))
            parts.append(pd.DataFrame(cells).to_html(index=False))
        return "\n".join(parts)


def _first_lines_html(first: FirstLines) -> str:
    items = []
    for label, text in first.lines:
        item = f"<li><b>{html.escape(label)}</b> {html.escape(text)}</li>"
        items.append(item)
    headline = html.escape(first.headline)
    return f"<p><b>{headline}</b></p><ul>{''.join(items)}</ul>"
