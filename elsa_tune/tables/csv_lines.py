"""The lines of a CSV file of results with their numbers, and its cells as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.errors import ResultsError
from elsa_tune.tables.table_file import csv_rows

# An apostrophe of its own would be taken away with ours.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


@dataclass(frozen=True, slots=True)
class Line:
    """number: in the file, from 1, of the line's beginning. cells: stripped."""

    number: int
    cells: list[str]


def read_lines(path: Path) -> Iterator[Line]:
    """The lines that hold anything, the header first; all as long as the header.

    Raises DataError for a file that cannot be read or is no CSV in UTF-8, ResultsError for a longer
    or shorter line.
    """
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
        yield Line(number, stripped)


def plain_cell(value: object) -> object:
    """A cell as it is written: a text that a spreadsheet would take for a formula gets an
    apostrophe in front, which `read_lines` takes away again.
    """
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value  # -0.5


def _as_meant(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
