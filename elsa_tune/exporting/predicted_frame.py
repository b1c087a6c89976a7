"""Rows that a program holds, with an exported model's or a bundle's answers beside them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from elsa_tune.errors import DataError
from elsa_tune.exporting.predicting import Predictor
from elsa_tune.exporting.progress import Progress
from elsa_tune.searching.output import Say
from elsa_tune.tasks.row_files import ABSENT, ROWS, Chunk, RowFile, input_format
from elsa_tune.words import listed

_DTYPES = {str: "str", float: "float64"}


def predict_frame(predictor: Predictor, rows: Any, say: Say) -> pd.DataFrame:
    """Return a new DataFrame of the rows and their predictions, under the rows' own index.

    rows: a DataFrame, a file's path, or a `Split` of texts alone. Raises DataError.
    """
    frame, where = _frame(predictor.columns, rows)
    added = predictor.added([str(name) for name in frame.columns], str(where))
    # Missing cells are None, whatever their column holds for them.
    texts = {
        name: frame[name].astype(object).where(frame[name].notna(), None).tolist()
        for name in predictor.columns
    }
    predicted: dict[str, list[Any]] = {name: [] for name in added}
    progress = Progress(say)
    for start in range(0, len(frame), ROWS):
        part = _chunk({name: cells[start : start + ROWS] for name, cells in texts.items()}, start)
        for name, cells in predictor.predict(part, where).items():
            predicted[name] += cells
        done = start + len(part.rows)
        progress.at(f"predict: {done:,} rows", done / len(frame))
    if predictor.empty:
        say(f"predict: {predictor.empty:,} rows have an empty text, and were predicted as such")
    values = {
        name: pd.Series(cells, index=frame.index, dtype=_DTYPES[added[name]])
        for name, cells in predicted.items()
    }
    return frame.assign(**values)


def _chunk(columns: dict[str, list[Any]], start: int) -> Chunk:
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return Chunk(tuple(columns), rows, list(range(start + 1, start + 1 + len(rows))))


def _frame(columns: Sequence[str], rows: Any) -> tuple[pd.DataFrame, Path]:
    """Return the rows, and what messages call them."""
    if isinstance(rows, pd.DataFrame):
        return rows, Path("the DataFrame")
    if isinstance(rows, str | Path):
        return _read(Path(rows)), Path(rows)
    if len(rows) and len(rows.texts) != len(columns):
        given = "a text" if len(rows.texts) == 1 else "a pair of texts"
        raise DataError(f"each row is {given}, but the model reads {listed(columns)}")
    texts = dict(zip(columns, rows.texts, strict=False))
    return pd.DataFrame(texts, columns=list(columns), dtype=object), Path("the texts")


def _read(path: Path) -> pd.DataFrame:
    """Read all rows of a file, each cell as it stands."""
    file = RowFile(path, input_format(str(path)))
    records = [
        {name: cell for name, cell in zip(chunk.names, row, strict=True) if cell is not ABSENT}
        for chunk in file
        for row in chunk.rows
    ]
    return pd.DataFrame(records, columns=None if records else list(file.names), dtype=object)
