"""Rows that a program holds, with an exported model's or a bundle's answers beside them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from elsa_tune.errors import UsageError
from elsa_tune.exporting.predicting import Lists, Predictor
from elsa_tune.exporting.progress_line import ProgressLine
from elsa_tune.searching.output import Say
from elsa_tune.tasks.row_files import ABSENT, ROWS, Chunk, RowFile
from elsa_tune.tasks.row_files import input_format as format_of_rows
from elsa_tune.tasks.table_file import check_names

_DTYPES = {str: "str", float: "float64"}


def predict_frame(
    predictor: Predictor,
    rows: Any,
    say: Say,
    input_format: str | None = None,
) -> pd.DataFrame:
    """Return a new DataFrame of the rows and their predictions, under the rows' own index.

    rows: a DataFrame, a file's path, or a `Split` of texts alone. input_format: a file's, by
    default by its ending. Raises DataError.
    """
    for line in predictor.unknown_kinds:
        say(line)
    frame, where = _frame(predictor, rows, input_format)
    names = [str(name) for name in frame.columns]
    added = predictor.added(names, str(where))
    texts = {}
    for name in predictor.columns:
        # By its place: a column may be called 0, and not "0".
        texts[name] = _cells(frame.iloc[:, names.index(name)])
    predicted: Lists = {name: [] for name in added}
    count = len(frame)
    progress = ProgressLine(say)
    for start in range(0, count, ROWS):
        chunk = _chunk(texts, start)
        answers = predictor.predict(chunk, where)
        for name, cells in answers.items():
            predicted[name] += cells
        done = start + len(chunk.rows)
        share = done / count
        progress.at(f"predict: {done:,} rows", share)
    for remark in predictor.remarks:
        say(f"predict: {remark}")
    columns = {}
    for name, kind in added.items():
        columns[name] = pd.Series(
            predicted[name],
            index=frame.index,
            dtype=_DTYPES[kind],
        )
    return frame.assign(**columns)


def _cells(column: "pd.Series[Any]") -> list[Any]:
    """Return a column's cells; missing ones are None, whatever the column holds for them."""
    is_there = column.notna()
    with_nones = column.astype(object).where(is_there, None)
    cells: list[Any] = with_nones.tolist()
    return cells


def _chunk(texts: Lists, start: int) -> Chunk:
    """Return the next rows from this one on. texts: of all rows, by column."""
    end = start + ROWS
    columns = [cells[start:end] for cells in texts.values()]
    rows = [list(row) for row in zip(*columns, strict=True)]
    first_line = start + 1
    lines = range(first_line, first_line + len(rows))
    return Chunk(
        names=tuple(texts),
        rows=rows,
        lines=list(lines),
    )


def _frame(
    predictor: Predictor,
    rows: Any,
    input_format: str | None,
) -> tuple[pd.DataFrame, Path]:
    """Return the rows, and what messages call them."""
    if isinstance(rows, str | Path):
        path = Path(rows)
        return _read(path, input_format), path
    if input_format is not None:
        raise UsageError("`input_format` is of a file, and the rows are none; leave it out")
    if isinstance(rows, pd.DataFrame):
        return rows, Path("the DataFrame")
    if len(rows):
        predictor.read_by_place(len(rows.texts))
    columns = predictor.columns
    texts_by_column = dict(zip(columns, rows.texts, strict=False))  # none of no rows
    frame = pd.DataFrame(
        texts_by_column,
        columns=list(columns),
        dtype=object,
    )
    return frame, Path("the texts")


def _read(path: Path, given_format: str | None) -> pd.DataFrame:
    """Read all rows of a file, each cell as it stands."""
    file_format = format_of_rows(str(path), given_format)
    file = RowFile(path, file_format)
    chunks = list(file)
    for chunk in chunks:
        check_names(chunk.names, path)
    names = list(file.names)
    if len(set(names)) < len(names):
        # Of a table with a header, so that each row has each of these columns.
        rows = [row for chunk in chunks for row in chunk.rows]
        return pd.DataFrame(rows, columns=names, dtype=object)
    records = []
    for chunk in chunks:
        for row in chunk.rows:
            record = _record(chunk.names, row)
            records.append(record)
    columns = None if records else names  # by default those of the records
    return pd.DataFrame(records, columns=columns, dtype=object)


def _record(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """Return a row's cells by their columns, without those that its line does not have."""
    cells = {}
    for name, cell in zip(names, row, strict=True):
        if cell is not ABSENT:
            cells[name] = cell
    return cells
