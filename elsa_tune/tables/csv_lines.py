"""The lines of a CSV file of results with their numbers, and its cells as they are written."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.errors import ResultsError

# An apostrophe of its own would be taken away with ours.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


@dataclass(frozen=True, slots=True)
class Line:
    """number: in the file, from 1, of the line's end. cells: stripped."""

    number: int
    cells: list[str]


def read_lines(path: Path) -> Iterator[Line]:
    """The lines that hold anything, the header first; all as long as the header.

    Raises ResultsError for a file that cannot be read, is no CSV in UTF-8, or has a longer or
    shorter line.
    """
    if not path.exists():
        raise ResultsError(f"results table {path} does not exist")
    fields = 0
    try:
        # utf-8-sig: spreadsheets write a byte order mark.
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for cells in reader:
                stripped = [_as_meant(cell.strip()) for cell in cells]
                if not any(stripped):
                    continue
                fields = fields or len(stripped)
                if len(stripped) != fields:
                    raise ResultsError(
                        f"{path}, line {reader.line_num}: {len(stripped)} fields where the header "
                        f"has {fields}"
                    )
                yield Line(reader.line_num, stripped)
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path} is not UTF-8 text; save it as a CSV in UTF-8") from error
    except csv.Error as error:
        raise ResultsError(f"{path}, line {reader.line_num}: not a CSV line ({error})") from error
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error


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
