"""A results table of any tool as rows, and rows as such a table (docs/reference/answer.md).

Every complaint names the file and its line.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.errors import ResultsError
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase
from elsa_tune.tables.columns import Tool, lay_out, read_mapping, recognise, with_ray_status
from elsa_tune.tables.result_fields import COLUMNS, REQUIRED, read_row
from elsa_tune.tables.table_file import Row, csv_rows

# An apostrophe of its own would be taken away with ours.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


@dataclass(frozen=True, slots=True)
class Imported:
    """rows: never empty. told: what was understood, one line each; () for a table of our own."""

    rows: list[ResultRow]
    told: tuple[str, ...]


def import_results(path: Path, *, percent: bool = False, mapping: Sequence[str] = ()) -> Imported:
    """Read a CSV of results. percent: quality, std and chance are percentages, else fractions.
    mapping: what `read_mapping` reads.

    Exports of known tools are recognised by their columns. Rows that repeat another exactly are
    returned too; the curve counts them once and says so. Raises ResultsError, naming the line, for
    anything that is not a number where one must be, a value out of its range, a missing column, or
    an empty or unreadable file. Rows that contradict one another are found by what groups them.
    """
    columns = read_mapping(mapping)
    lines: Iterable[Row] = _lines(path)
    _, header = next(iter(lines), (0, []))
    if not header:
        raise ResultsError(f"{path} is empty; it needs the columns {', '.join(REQUIRED)}")
    tool = recognise(header)
    notes = []
    if tool is Tool.RAY and "training_iteration" in header and "status" not in header:
        header, lines, told_of_status = with_ray_status(path, header, lines)
        notes.append(told_of_status)
    layout = lay_out(path, header, columns, tool)
    rows = []
    left_out: Counter[str] = Counter()
    for number, line in lines:
        cells = layout.cells(line)
        if tool is not None and not cells.keys() & {"frozen_layers", "quality"}:
            left_out["with neither frozen layers nor quality"] += 1  # e.g. a search's parent run
            continue
        if cells.get("phase") == Phase.PROBE:
            left_out["linear probes of the frozen model"] += 1
            continue
        rows.append(read_row(path, number, cells, percent))
    if not rows:
        raise ResultsError(f"{path} has a header and no rows")
    if percent and max(abs(row.quality or 0.0) for row in rows) <= 0.01:
        raise ResultsError(
            f"{path}: no quality is above 1, so these are fractions already; leave out "
            "`scale` percent"
        )
    if not layout.told:
        return Imported(rows, ())
    if tool is not None:
        # It keeps the runs that broke beside those that took their place.
        ended = {_identity(row) for row in rows if row.status.is_final}
        kept = [row for row in rows if row.status.is_final or _identity(row) not in ended]
        left_out["of attempts that were repeated"] = len(rows) - len(kept)
        rows = kept
    by = "" if tool is None else f", an export of {tool}"
    told = [f"{path}{by}:", *layout.told, *notes, _counts(rows)]
    told += [f"left out: {count} {what}" for what, count in left_out.items() if count]
    return Imported(rows, tuple(told))


def _counts(rows: Sequence[ResultRow]) -> str:
    """How many rows of each status there are, and what they are taken for."""
    statuses = Counter(row.status.value.replace("_", " ") for row in rows)
    phases = Counter(row.phase for row in rows)
    return (
        f"{len(rows)} rows: {', '.join(f'{count} {name}' for name, count in statuses.items())}; "
        f"{phases[Phase.MEASURE]} measuring, {phases[Phase.EXPLORE]} exploring"
    )


def _lines(path: Path) -> Iterator[Row]:
    """The lines that hold anything, the header first; all as long as the header, and stripped."""
    fields = 0
    for number, cells in csv_rows(path):
        stripped = [_as_meant(cell.strip()) for cell in cells]
        if not any(stripped):
            continue
        fields = fields or len(stripped)
        if len(stripped) != fields:
            raise ResultsError(
                f"{path}, line {number}: {len(stripped)} fields where the header has {fields}"
            )
        yield number, stripped


def _as_meant(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def plain_cell(value: object) -> object:
    """A cell as it is written: a text that a spreadsheet would take for a formula gets an
    apostrophe in front, which `import_results` takes away again.
    """
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value  # -0.5


def csv_text(header: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    """A table as CSV, each cell by `plain_cell`; nothing for None."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(plain_cell, line) for line in lines)
    return text.getvalue()


def write_results(rows: Iterable[ResultRow]) -> str:
    """The rows as a table that `import_results` reads back; qualities are fractions."""
    lines = []
    for row in rows:
        values = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
        values["frozen_layers"] = row.depth.frozen_layers
        values["embeddings_frozen"] = str(row.depth.embeddings_frozen).lower()
        lines.append([values[name] for name in COLUMNS])
    return csv_text(COLUMNS, lines)


def _identity(row: ResultRow) -> tuple[object, ...]:
    """Rows that repeat a trial have the same; what has no seed is repeated by nothing."""
    what = (row.model, row.task, row.train_size, row.metric, row.selection, row.comparison)
    seed = id(row) if row.seed is None else row.seed
    return (*what, row.search, row.phase, row.depth, row.learning_rate, seed)
