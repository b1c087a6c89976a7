"""Texts, or pairs of texts, that models are asked to answer."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from elsa_tune.errors import DataError
from elsa_tune.tasks.table_file import check_characters
from elsa_tune.training.data.tokens import Split

COMPARED = 8  # of the texts that models are to answer

Text = str | tuple[str, str]
Texts = Sequence[Text]


def split_texts(texts: Texts, missing: str | None = None) -> Split:
    """Return texts, or pairs of texts, as columns.

    missing: what stands for a text that is missing. Raises DataError for what are no texts, and
    unless `missing` is given for one that is missing.
    """
    no_list = "give a list of texts, or a list of pairs of texts"
    # Of a mapping the keys would be taken for texts.
    if isinstance(texts, str | Mapping) or not isinstance(texts, Iterable):
        raise DataError(no_list)
    rows = []
    widths = set()
    for row in texts:
        cells: Any = row
        if isinstance(row, str) or _is_missing(row):
            cells = (row,)
        if not isinstance(cells, tuple | list):
            raise DataError(no_list)
        rows.append([missing if _is_missing(cell) else cell for cell in cells])
        widths.add(len(cells))
    is_table = widths in (set(), {1}, {2})
    if not is_table:
        raise DataError(no_list)
    for number, cells in enumerate(rows, start=1):
        if not all(isinstance(cell, str) for cell in cells):
            raise DataError("each text must be a string: one of them is missing, or something else")
        for cell in cells:
            check_characters(cell, f"row {number} of the texts")
    columns: list[list[str]] = [[]]
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
    return Split(
        where="the texts",
        texts=tuple(columns),
        labels=np.zeros(len(rows)),
    )


def _is_missing(cell: object) -> bool:
    """Whether a cell is None, NaN or pandas' NA."""
    if isinstance(cell, float):
        return math.isnan(cell)
    return cell is None or type(cell).__name__ == "NAType"


def few_of(texts: Texts) -> Texts:
    """Return at most COMPARED of some texts, from the shortest to the longest."""
    by_length = sorted(texts, key=_length)
    count = min(COMPARED, len(texts))
    last = len(texts) - 1
    places = np.linspace(0, last, count).round()
    return [by_length[int(place)] for place in places]


def _length(text: Text) -> int:
    if isinstance(text, str):
        return len(text)
    return sum(len(part) for part in text)
