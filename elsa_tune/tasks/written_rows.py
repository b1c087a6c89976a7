"""Rows written chunk by chunk in any of the formats that `row_files` reads."""

import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from elsa_tune.errors import DataError
from elsa_tune.tasks.row_files import ABSENT, MARK, Chunk, RowFile
from elsa_tune.tasks.table_file import cell_text, check_names, csv_line, delimiter_of


@dataclass(frozen=True, slots=True)
class Written:
    """What is written where."""

    target: Any  # for Parquet a binary file, else one of texts
    format: str  # csv, tsv, jsonl or parquet
    names: tuple[str, ...]  # of all columns
    added: Mapping[str, type]  # columns that the source lacks, with their type, `str` or `float`
    source: RowFile  # where the rows come from

    def write(self, chunks: Iterable[Chunk]) -> None:
        """Write all chunks, each as soon as it is there.

        Raises DataError for rows that the format cannot hold, and OSError.
        """
        self._check_names()
        writer_of = _WRITERS[self.format]
        writer = writer_of(self)
        with contextlib.closing(writer) as file:
            for chunk in chunks:
                self._check_later(chunk)
                file.write(chunk)
                self.target.flush()

    def _check_names(self) -> None:
        if self.format != "jsonl":
            check_names(self.names, self.source.where)
        if self.format not in ("jsonl", "parquet"):
            return
        for name in self.names:
            if self.names.count(name) > 1:
                raise DataError(
                    f"{self.source.where} has the column '{name}' twice, which {self.format} "
                    "cannot hold; rename one of them"
                )

    def _check_later(self, chunk: Chunk) -> None:
        for name in self.added:
            if chunk.names.count(name) > 1:
                raise DataError(
                    f"{self.source.where} has its own '{name}' in later rows; rename that column"
                )
        if self.format == "jsonl":
            return
        for name in chunk.names:
            if name not in self.names:
                raise DataError(
                    f"{self.source.where} has '{name}' in later rows only, and {self.format} names "
                    "its columns at the top; choose `format` jsonl"
                )


class _JsonLines:
    """A writer of JSON Lines; a record has the columns that it had in its source."""

    def __init__(self, written: Written) -> None:
        self._target = written.target

    def write(self, chunk: Chunk) -> None:
        for row in chunk.rows:
            record: dict[str, Any] = {}
            for name, cell in zip(chunk.names, row, strict=True):
                if cell is not ABSENT:
                    record[name] = _json_value(cell)
            line = json.dumps(record, ensure_ascii=False, allow_nan=False, default=str)
            try:
                line.encode()
            except UnicodeEncodeError:  # half of a character, in a column that is no text
                line = json.dumps(record, allow_nan=False, default=str)
            self._target.write(line + "\n")

    def close(self) -> None: ...


class _Csv:
    """A writer of CSV under a header, with the delimiter and the mark of a source that is CSV."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._target = written.target
        if written.format == "csv":
            self._begin()
        self.row(1, written.names)

    def write(self, chunk: Chunk) -> None:
        for line, row in zip(chunk.lines, chunk.rows, strict=True):
            cells = [_cell(value) or "" for value in row]
            self.row(line, cells)

    def _begin(self) -> None:
        """Write the source's mark, and what parts the cells where the header does not tell it."""
        source = self._written.source
        if source.has_mark:
            self._target.write(MARK)
        header = csv_line(self._written.names, source.delimiter)
        if delimiter_of(header) != source.delimiter:
            self._target.write(f"sep={source.delimiter}\n")

    def row(self, line: int, cells: Sequence[str]) -> None:
        self._target.write(csv_line(cells, self._written.source.delimiter))

    def close(self) -> None: ...


class _Tsv(_Csv):
    """A writer of tab-separated values, which know no quoting."""

    def row(self, line: int, cells: Sequence[str]) -> None:
        for cell in cells:
            if any(mark in cell for mark in "\t\n\r"):
                raise DataError(
                    f"{self._written.source.where} line {line} has a tab or a line break in a "
                    "cell, which tsv cannot hold; choose `format` csv"
                )
        self._target.write("\t".join(cells) + "\n")


class _Parquet:
    """A writer of Parquet: the source's own types where it was Parquet too, else texts."""

    def __init__(self, written: Written) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._written = written
        self._arrow = pa
        source_schema = written.source.schema
        fields = []
        metadata = None
        if source_schema is not None:
            fields += list(source_schema)
            metadata = source_schema.metadata  # what pandas keeps there of its own types
        else:
            for name in written.names:
                if name not in written.added:
                    fields.append(pa.field(name, pa.string()))
        for name, kind in written.added.items():
            column_type = pa.string()
            if kind is float:
                column_type = pa.float64()
            fields.append(pa.field(name, column_type))
        self._schema = pa.schema(fields, metadata=metadata)
        self._file = pq.ParquetWriter(written.target, self._schema)

    def write(self, chunk: Chunk) -> None:
        pa = self._arrow
        arrays = []
        if chunk.batch is not None:
            arrays += chunk.batch.columns
        for place in range(len(arrays), len(self._schema)):
            field = self._schema.field(place)
            cells = [row[place] for row in chunk.rows]
            if field.name not in self._written.added:
                cells = [_cell(cell) for cell in cells]
            arrays.append(pa.array(cells, field.type))
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._file.write_table(table)

    def close(self) -> None:
        self._file.close()


_Writer = _Csv | _JsonLines | _Parquet

_WRITERS: dict[str, type[_Writer]] = {
    "csv": _Csv,
    "tsv": _Tsv,
    "jsonl": _JsonLines,
    "parquet": _Parquet,
}


def _json_value(value: Any) -> Any:
    """Replace NaN and the infinities, which are no JSON, by null, within lists and tables too."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_json_value(part) for part in value]
    if isinstance(value, dict):
        return {name: _json_value(part) for name, part in value.items()}
    return value


def _cell(value: Any) -> str | None:
    """Write a cell as a text: what `cell_text` makes of it, lists and tables as JSON."""
    if value is None or value is ABSENT:
        return None
    if isinstance(value, str | bool | int | float | Decimal):
        text = cell_text(value, "", "") or ""
    elif isinstance(value, list | dict):
        text = json.dumps(_json_value(value), ensure_ascii=False, allow_nan=False, default=str)
    else:
        text = str(value)  # a date
    return text.encode("utf-8", "replace").decode()
