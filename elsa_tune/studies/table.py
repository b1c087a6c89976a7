"""A study's table with our numbers beside the printed ones: as a value, as text and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass

from elsa_tune.tables.csv_lines import plain_cell
from elsa_tune.words import aligned

Cell = str | float | None
# A column's name and how its numbers are written; None for a column of words.
Column = tuple[str, Callable[[float], str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table: cells are words or fractions, None where there is nothing.

    name: for files, e.g. `table3`. title: as the study calls it, and what stands in it. heads: how
    many of the first columns say what a row is about.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    heads: int = 1

    @property
    def texts(self) -> list[list[str]]:
        """Every cell as it is printed; what begins as the row above it does leaves that out."""
        written: list[list[str]] = []
        above: tuple[Cell, ...] = ()
        for row in self.rows:
            cells = zip(row, self.columns, strict=True)
            texts = [_text(cell, write) for cell, (_, write) in cells]
            for place in range(self.heads):
                if row[: place + 1] == above[: place + 1]:
                    texts[place] = ""
            written.append(texts)
            above = row
        return written

    @property
    def text(self) -> str:
        """Title, header, rows and notes: words to the left, numbers to the right."""
        header = [name for name, _ in self.columns]
        numbers = [place for place, (_, write) in enumerate(self.columns) if write is not None]
        return "\n".join([self.title, aligned([header, *self.texts], numbers), *self.notes])

    @property
    def csv(self) -> str:
        """The rows under a header, numbers as fractions, nothing where there is none."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([name for name, _ in self.columns])
        writer.writerows([plain_cell(cell) for cell in row] for row in self.rows)
        return out.getvalue()


def _text(cell: Cell, write: Callable[[float], str] | None) -> str:
    if isinstance(cell, float) and write is not None:
        return write(cell)
    return "-" if cell is None else str(cell)
