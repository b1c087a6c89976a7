"""Rows of a table read chunk by chunk, each cell as it came.

A file of any size passes through in little memory. Formats are those of `table_file`;
`written_rows` writes what is read here.
"""

import codecs
import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from elsa_tune.errors import DataError, UsageError
from elsa_tune.tasks.table_file import (
    FORMATS,
    SUFFIXES,
    UNREADABLE,
    Row,
    cell_text,
    check_characters,
    check_readable,
    csv_reader,
    format_of,
    text_of,
)

if TYPE_CHECKING:
    import pyarrow

ROWS = 1024  # of a chunk
STDIN = "-"
MARK = "\ufeff"  # of byte order, before the first cell of what spreadsheets write

_Record = dict[str, Any]  # a line of JSON Lines: its cells by their columns


class _Absent:
    """What a record of JSON Lines has in a column that only others have."""


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that follow one another."""

    names: tuple[str, ...]  # of the columns
    rows: list[list[Any]]  # cells in the columns' order: texts, of JSON Lines and Parquet values
    lines: list[int]  # each row's, as in `table_file.Table`
    # The same rows as Parquet has them: Python's own times are coarser than some there.
    batch: "pyarrow.RecordBatch | None" = None

    def texts(self, name: str, where: Path) -> list[str]:
        """Return the cells of a column; a missing one is an empty text.

        Raises DataError for a cell that is no plain value, or holds half of a character.
        """
        place = self.names.index(name)
        texts = []
        for line, row in zip(self.lines, self.rows, strict=True):
            cell = row[place]
            where_in_file = f"{where} line {line}"
            text = None
            if cell is not ABSENT:
                text = cell_text(cell, where_in_file, name)
            if text is None:
                text = ""
            if not text.isascii() and not text.isprintable():
                check_characters(text, where_in_file)
            texts.append(text)
        return texts

    def with_columns(self, added: dict[str, list[Any]]) -> "Chunk":
        """Return the same rows with more columns behind their own."""
        rows = []
        added_rows = zip(*added.values(), strict=True)
        for row, added_cells in zip(self.rows, added_rows, strict=True):
            rows.append([*row, *added_cells])
        return Chunk((*self.names, *added), rows, self.lines, self.batch)


def input_format(rows: str, given: str | None = None) -> str:
    """Return the format of a file's rows: as given, else by its ending. Raises UsageError."""
    if given:
        return given
    if rows == STDIN:
        fault = "rows on stdin have no ending"
    else:
        by_ending = format_of(Path(rows))
        if by_ending is not None:
            return by_ending
        fault = f"{rows} ends in none of {', '.join(SUFFIXES)}"
    raise UsageError(f"{fault}; say what they are with `input_format`: {', '.join(FORMATS)}")


class RowFile:
    """A file, or stdin, that is read once, from its beginning, in chunks of rows.

    Raises DataError for what cannot be read, also while it is read.
    """

    names: tuple[str, ...]  # of its columns; for JSON Lines those of the first chunk

    def __init__(self, source: Path | BinaryIO, format: str) -> None:
        # What messages call it.
        self.where = source if isinstance(source, Path) else Path("stdin")
        self._is_file = isinstance(source, Path)
        self.format = format
        self.schema: pyarrow.Schema | None = None  # of Parquet
        # Of CSV: what parts its cells, and whether it begins with a byte order mark. By the mark
        # Excel knows UTF-8.
        self.delimiter = ","
        self.has_mark = False
        self._share: Callable[[], float | None] = lambda: None
        if isinstance(source, Path):
            check_readable(source)
        if format == "parquet":
            self._chunks = self._parquet(source)
        else:
            self._chunks = self._lines(source)
        first = next(self._chunks, None)
        if first is None:
            raise DataError(f"data file {self.where} is empty; it must have rows")
        self._first = first
        self.names = first.names

    @property
    def share(self) -> float | None:
        """What part of the file was read, 0 to 1; None where nobody knows how much there is."""
        return self._share()

    def __iter__(self) -> Iterator[Chunk]:
        yield self._first
        yield from self._chunks

    def _opened(self, source: Path | BinaryIO) -> BinaryIO:
        if not isinstance(source, Path):
            return source
        opened = source.open("rb")
        size = source.stat().st_size

        def share() -> float:
            if opened.closed or size == 0:
                return 1.0
            return opened.tell() / size

        self._share = share
        return opened

    def _lines(self, source: Path | BinaryIO) -> Iterator[Chunk]:
        readers = {
            "csv": self._csv,
            "tsv": self._tsv,
            "jsonl": self._jsonl,
        }
        chunks_of = readers[self.format]
        try:
            with self._opened(source) as opened:
                yield from chunks_of(opened)
        except OSError as error:
            why = error.strerror or error
            raise DataError(f"data file {self.where} cannot be read: {why}") from error

    def _csv(self, opened: BinaryIO) -> Iterator[Chunk]:
        first = 1

        def rows() -> Iterator[Row]:
            nonlocal first
            for cells in reader:
                if cells:
                    yield first, cells
                first = reader.line_num + 1

        def lines(text: io.TextIOWrapper) -> Iterator[str]:
            for number, line in enumerate(text):
                if number == 0:
                    self.has_mark = line.startswith(MARK)
                yield line.removeprefix(MARK) if number == 0 else line

        with io.TextIOWrapper(opened, encoding="utf-8", newline="") as text:
            try:
                reader = csv_reader(lines(text))
                self.delimiter = reader.dialect.delimiter
            except UnicodeDecodeError as error:
                raise self._not_utf8(error, 1, "behind") from None
            try:
                yield from self._separated(rows())
            except csv.Error as error:
                raise DataError(
                    f"data file {self.where} is not valid CSV in the row that begins at line "
                    f"{first}: {error}"
                ) from error
            except UnicodeDecodeError as error:
                raise self._not_utf8(error, first, "behind") from None

    def _tsv(self, opened: BinaryIO) -> Iterator[Chunk]:
        def rows() -> Iterator[Row]:
            for line, text in self._text(opened):
                yield line, text.split("\t")

        yield from self._separated(rows())

    def _separated(self, rows: Iterator[Row]) -> Iterator[Chunk]:
        _, header = next(rows, (1, []))
        if not header:
            return
        chunk = Chunk(tuple(header), [], [])
        for line, cells in rows:
            if len(cells) > len(header):
                raise DataError(
                    f"data file {self.where} has more fields than its header in line {line}"
                )
            missing = len(header) - len(cells)
            chunk.lines.append(line)
            chunk.rows.append(cells + [""] * missing)
            if len(chunk.rows) == ROWS:
                yield chunk
                chunk = Chunk(chunk.names, [], [])
        yield chunk

    def _jsonl(self, opened: BinaryIO) -> Iterator[Chunk]:
        names: dict[str, None] = {}  # of all records so far, in their order
        records: list[_Record] = []
        lines: list[int] = []
        for line, text in self._text(opened):
            if not text.strip():
                continue
            record = self._record(text, line)
            names.update(dict.fromkeys(record))
            records.append(record)
            lines.append(line)
            if len(records) == ROWS:
                yield _chunk_of(records, list(names), lines)
                records = []
                lines = []
        if records:
            yield _chunk_of(records, list(names), lines)

    def _record(self, text: str, line: int) -> _Record:
        """Read a line of JSON. Raises DataError unless it is an object."""
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.where} line {line} is not JSON: {error}") from error
        if not isinstance(record, dict):
            kind = type(record).__name__
            raise DataError(
                f"{self.where} line {line} holds a {kind}; each line must be a JSON object"
            )
        return record

    def _text(self, opened: BinaryIO) -> Iterator[tuple[int, str]]:
        """Yield the lines that are not empty; they end at \\n alone."""
        for number, raw in enumerate(opened, start=1):
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise self._not_utf8(error, number, "in") from None
            line = line.removesuffix("\n").removesuffix("\r")
            if line:
                yield number, line

    def _not_utf8(self, error: UnicodeDecodeError, line: int, place: str) -> DataError:
        """Return the error for a byte in this line or behind it; raises a better one of a file."""
        if self._is_file:
            text_of(self.where)  # which says in which line, and how to convert it
        byte = error.object[error.start]
        return DataError(
            f"data file {self.where} is not UTF-8: byte 0x{byte:02x} {place} line {line}; "
            "save it as UTF-8"
        )

    def _parquet(self, source: Path | BinaryIO) -> Iterator[Chunk]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not isinstance(source, Path):
            raise DataError("Parquet is read from its end, and stdin has none: name the file")
        try:
            with pq.ParquetFile(source) as file:
                self.schema = file.schema_arrow
                count = file.metadata.num_rows
                names = tuple(self.schema.names)
                read = 0
                self._share = lambda: read / count if count else None
                if count == 0:
                    yield Chunk(names, [], [])
                for batch in file.iter_batches(ROWS):
                    columns = [column.to_pylist() for column in batch.columns]
                    rows = [list(row) for row in zip(*columns, strict=True)]
                    first = read + 1
                    read += len(rows)
                    lines = range(first, read + 1)
                    yield Chunk(names, rows, list(lines), batch)
        except (pa.ArrowException, *UNREADABLE) as error:
            raise DataError(f"data file {source} cannot be read as Parquet: {error}") from error


def _chunk_of(
    records: Sequence[_Record],
    names: Sequence[str],
    lines: list[int],
) -> Chunk:
    """Return records of JSON as rows that have every column."""
    rows = []
    for record in records:
        rows.append([record.get(name, ABSENT) for name in names])
    return Chunk(tuple(names), rows, lines)
