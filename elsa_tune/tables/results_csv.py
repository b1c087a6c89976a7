"""A results table of any tool as rows, and rows as such a table (docs/reference/answer.md).

Every complaint names the file and its line.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elsa_tune.errors import ResultsError
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase
from elsa_tune.tables.column_mapping import ColumnMapping, lay_out
from elsa_tune.tables.csv_lines import plain_cell, read_lines
from elsa_tune.tables.result_fields import COLUMNS, REQUIRED, read_row
from elsa_tune.tables.tool_exports import recognise, unfold


@dataclass(frozen=True, slots=True)
class Imported:
    """rows: never empty. told: what was understood, one line each; () for a table of our own."""

    rows: list[ResultRow]
    told: tuple[str, ...]


def import_results(
    path: Path, *, percent: bool = False, mapping: ColumnMapping | None = None
) -> Imported:
    """Read a CSV of results. percent: quality, std and chance are percentages, else fractions.

    Exports of known tools are recognised by their columns. Rows that repeat another exactly are
    returned too; the curve counts them once and says so. Raises ResultsError, naming the line, for
    anything that is not a number where one must be, a value out of its range, a missing column,
    contradicting rows, or an empty or unreadable file.
    """
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise ResultsError(f"{path} is empty; it needs the columns {', '.join(REQUIRED)}")
    tool = recognise(first.cells)
    header, lines_left, notes = unfold(path, tool, first.cells, lines)
    layout = lay_out(path, header, mapping or ColumnMapping(), tool)
    seen = _Seen(path)
    rows = []
    left_out: Counter[str] = Counter()
    for line in lines_left:
        cells = layout.cells(line.cells)
        if tool is not None and not cells.keys() & {"frozen_layers", "quality"}:
            left_out["with neither frozen layers nor quality"] += 1  # e.g. a search's parent run
            continue
        if cells.get("phase") == Phase.PROBE:
            left_out["linear probes of the frozen model"] += 1
            continue
        row = read_row(path, line.number, cells, percent)
        # Another tool keeps the runs that broke beside those that took their place.
        if tool is None or row.status.is_final:
            seen.check(row, line.number)
        rows.append(row)
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
        kept = [row for row in rows if row.status.is_final or not seen.has(row)]
        left_out["of attempts that were repeated"] = len(rows) - len(kept)
        rows = kept
    by = "" if tool is None else f", an export of {tool}"
    told = [f"{path}{by}:", *layout.told, *notes, *_counts(rows, left_out)]
    return Imported(rows, tuple(told))


def _counts(rows: Sequence[ResultRow], left_out: Mapping[str, int]) -> list[str]:
    """How many rows of each status there are, and what they are taken for."""
    statuses = Counter(row.status.value.replace("_", " ") for row in rows)
    phases = Counter(row.phase for row in rows)
    return [
        f"{len(rows)} rows: {', '.join(f'{count} {name}' for name, count in statuses.items())}; "
        f"{phases[Phase.MEASURE]} measuring, {phases[Phase.EXPLORE]} exploring",
        *(f"left out: {count} {what}" for what, count in left_out.items() if count),
    ]


def write_results(rows: Iterable[ResultRow]) -> str:
    """The rows as a table that `import_results` reads back; qualities are fractions."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        values = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
        values["frozen_layers"] = row.depth.frozen_layers
        values["embeddings_frozen"] = str(row.depth.embeddings_frozen).lower()
        writer.writerow(plain_cell(values[name]) for name in COLUMNS)
    return text.getvalue()


@dataclass(slots=True)
class _Seen:
    """What earlier lines said, so that a contradiction can name both lines."""

    path: Path
    layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    outcomes: dict[tuple[object, ...], tuple[object, int]] = field(default_factory=dict)

    def check(self, row: ResultRow, number: int) -> None:
        layers, line = self.layers.setdefault(row.model, (row.layers, number))
        if layers != row.layers:
            raise ResultsError(
                f"{self.path}, line {number}: {row.model} has {row.layers} layers, but {layers} in "
                f"line {line}; give different models different names"
            )
        if row.phase is not Phase.MEASURE or row.seed is None:
            return
        outcome = (row.quality, row.status, row.runs)
        other, line = self.outcomes.setdefault(_identity(row), (outcome, number))
        if other != outcome:
            raise ResultsError(
                f"{self.path}, line {number}: the same depth, learning rate and seed ({row.seed}) "
                f"as line {line}, with another outcome; keep the right one"
            )

    def has(self, row: ResultRow) -> bool:
        """A measurement of the same trial was checked."""
        return _identity(row) in self.outcomes


def _identity(row: ResultRow) -> tuple[object, ...]:
    what = (row.model, row.task, row.train_size, row.metric, row.selection, row.comparison)
    return (*what, row.search, row.depth, row.learning_rate, row.seed)
