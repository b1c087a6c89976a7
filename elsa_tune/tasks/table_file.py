"""Tables as they lie on disk: CSV, TSV, JSONL and Parquet, read cell by cell with line numbers.

No value is interpreted: "null", "nan", "NA" and "007" are the texts they are. CSV is quoted by RFC
4180, its cells parted by commas, or where its header has none by semicolons or tabs, or by what a
line `sep=;` before it says; TSV knows no quoting (the GLUE files' rule): a field ends at the tab, a
row with its line.
"""

import codecs
import contextlib
import csv
import difflib
import io
import itertools
import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from elsa_tune.errors import DataError, shortlist
from elsa_tune.files import is_url

FORMATS = ("csv", "tsv", "jsonl", "parquet")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".ndjson": "jsonl",
}

# Endings of tables that are not read as they are, and what makes one that is.
REMEDIES = {
    ".gz": "unpack it",
    ".zip": "unpack it",
    ".json": "write each row as a line of its own, as a .jsonl file",
    ".xlsx": "save it as CSV, in UTF-8",
    ".xls": "save it as CSV, in UTF-8",
}

# The first line by which Excel is told what parts the cells.
SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?\s*', re.IGNORECASE)

# What else than Arrow's own errors reading Parquet raises; Python has no time of the year 10000.
UNREADABLE = (OSError, ValueError, OverflowError)

NO_LISTS = (
    "several labels a row, token labels and texts in parts are not supported: write one plain "
    "value a row"
)

# A cell may be a book; Python's own limit is 131,072 characters.
csv.field_size_limit(2**31 - 1)

Row = tuple[int, list[str]]  # its line, its cells in the order of the columns
CellTexts = list[str | None]  # of a column; None where a row has no such cell


@dataclass(frozen=True, slots=True)
class Table:
    """The wanted columns of one file."""

    path: Path  # as messages name it
    columns: dict[str, CellTexts]  # by name, all of one length
    lines: list[int]  # each row's (first) line, for Parquet its number; both from 1
    # Line and fault of rows that cannot be parted into columns; they are in no other list.
    malformed: list[tuple[int, str]] = field(default_factory=list)
    # Names of columns that hold lists, which are left out where every column is wanted.
    lists: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)


def format_of(path: Path) -> str | None:
    """Return csv, tsv, jsonl or parquet by the file's suffix, None for any other."""
    return SUFFIXES.get(path.suffix.lower())


def read_table(
    path: Path,
    format: str,
    wanted: Sequence[str] | None,
    header: Sequence[str] | None = None,
) -> Table:
    """Read the wanted columns of a file.

    wanted: None for every one of plain values, without those of CSV and TSV that have no name, if
    they are several. header: the columns of a file without a header line. Raises DataError for an
    unreadable file, and a wanted column that is missing or there twice.
    """
    if format == "parquet":
        return _read_parquet(path, wanted)
    if format == "jsonl":
        return _read_jsonl(path, wanted)
    if format == "csv":
        return _separated(path, csv_rows(path), wanted, header)
    return _separated(path, _tsv_rows(path), wanted, header)


def text_of(path: Path) -> str:
    """Return what a file holds. Raises DataError where it cannot be read or is not UTF-8."""
    check_readable(path)
    try:
        # A byte order mark, which spreadsheets write, is not a part of the first cell.
        raw = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raw = error.object
        line = raw.count(b"\n", 0, error.start) + 1
        byte = raw[error.start]
        remedy = _how_to_convert(path, raw)
        raise DataError(
            f"data file {path} is not UTF-8: byte 0x{byte:02x} in line {line}; {remedy}"
        ) from None
    except OSError as error:
        why = error.strerror or error
        raise DataError(f"data file {path} cannot be read: {why}") from error


def _how_to_convert(path: Path, raw: bytes) -> str:
    """Write how to make a file UTF-8 from what spreadsheets write besides, if it is that."""
    has_utf16_mark = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if has_utf16_mark and _decodes(raw, "utf-16"):
        likely = "UTF-16"
    elif b"\0" in raw:
        return "it is no text: save its table as CSV, in UTF-8"
    elif _decodes(raw, "cp1252"):
        likely = "WINDOWS-1252"
    else:
        return "save it as UTF-8"
    file = shlex.quote(str(path))
    command = f"iconv -f {likely} -t UTF-8 {file} > FILE"
    return f"it looks like {likely}: save it as UTF-8, or convert it: {command}"


def _decodes(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def check_readable(path: Path) -> None:
    """Raise DataError, with what lies beside it, unless the path is a file."""
    try:
        _check_file(path)
    except OSError as error:  # a folder that nobody may enter, a name that is too long
        why = error.strerror or error
        raise DataError(f"data file {path} cannot be read: {why}") from error


def _check_file(path: Path) -> None:
    """Raise DataError as `check_readable` does, and OSError where the path cannot be followed."""
    if path.is_file():
        return
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a data file; it holds {listing(path)}")
    if path.exists():
        raise DataError(f"{path} is a device or a pipe, not a data file; save its rows in a file")
    if path.is_symlink():
        raise DataError(f"data file {path} is a link to {path.readlink()}, where nothing is")
    hint = ""
    folder = path.parent
    if is_url(path):
        hint = ": a URL is not read, so save its file on this machine"
    elif folder.is_dir():
        names = [entry.name for entry in folder.iterdir()]
        likely = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
        if likely:
            hint = f"; did you mean '{path.with_name(likely[0])}'?"
        else:
            hint = f"; its folder holds {listing(folder)}"
    raise DataError(f"data file {path} does not exist{hint}")


def listing(folder: Path) -> str:
    """List the names in a folder for a message: sorted, at most twelve."""
    most = 12
    names = sorted(entry.name for entry in folder.iterdir())
    shown = ", ".join(names[:most]) or "nothing"
    if len(names) <= most:
        return shown
    return f"{shown}, and {len(names) - most} more"


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, with their numbers.

    They end at \\n alone: U+2028 and U+0085 belong to a text.
    """
    lines = text_of(path).split("\n")
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r")
        if line:
            yield number, line


def check_characters(text: str, where: str) -> None:
    """Raise DataError for half of a character (a lone surrogate), which no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where} has half of a character ({text[error.start]!r}) in its text; take it out"
        ) from None


def check_names(names: Iterable[str], where: Path) -> None:
    """Raise DataError for half of a character in a column's name, which JSON alone can hold."""
    for name in names:
        check_characters(name, f"a column's name in {where}")


def _tsv_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a TSV file that are not empty, the header first."""
    for number, line in _lines(path):
        yield number, line.split("\t")


def csv_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV file that are not empty, the header first.

    Errors are as in `read_table`.
    """
    check_readable(path)
    try:
        # Line by line: in one text a single rare character makes that four bytes for each of all.
        with path.open(encoding="utf-8-sig", newline="") as lines:
            yield from _csv_rows(lines, path)
    except UnicodeDecodeError:
        text_of(path)  # which says where, and how to convert it
        raise
    except OSError as error:
        why = error.strerror or error
        raise DataError(f"data file {path} cannot be read: {why}") from error


def _csv_rows(lines: Iterator[str], path: Path) -> Iterator[Row]:
    reader = csv_reader(lines)
    first = 1
    try:
        for cells in reader:
            if cells:
                yield first, cells
            first = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"data file {path} is not valid CSV in the row that begins at line {first}: {error}"
        ) from error


def csv_reader(lines: Iterator[str]) -> Any:
    """Return a reader of lines of CSV, whose cells are parted as those of the first one.

    Excel's line `sep=;` is read as an empty one, so that lines keep their numbers.
    """
    first_lines: list[str] = []  # up to the header
    delimiter = None
    for line in lines:
        separator = SEPARATOR.fullmatch(line)
        if separator and not first_lines:
            delimiter = separator[1]
            first_lines.append("\n")
            break
        first_lines.append(line)
        if line.strip():
            break
    if delimiter is None:
        delimiter = delimiter_of("".join(first_lines))
    all_lines = itertools.chain(first_lines, lines)
    return csv.reader(all_lines, strict=True, delimiter=delimiter)


def csv_line(cells: Iterable[object], delimiter: str = ",") -> str:
    r"""Write a row as a line of CSV, which ends in \n; nothing for None."""
    line = io.StringIO()
    # Python 3.11 quotes a cell with the characters of the line's end, and a reader takes a lone \r
    # for one, too.
    writer = csv.writer(line, delimiter=delimiter, lineterminator="\r\n")
    writer.writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"


def delimiter_of(text: str) -> str:
    """Return what parts the cells of the header.

    Spreadsheets write semicolons where a comma is a decimal point.
    """
    header, _, _ = text.lstrip("\r\n").partition("\n")
    for delimiter in ",;\t":
        with contextlib.suppress(csv.Error):  # a quoted name that goes on in the next line
            reader = csv.reader([header], delimiter=delimiter)
            cells = next(reader, [])
            if len(cells) > 1:
                return delimiter
    return ","


def _separated(
    path: Path,
    rows: Iterator[Row],
    wanted: Sequence[str] | None,
    header: Sequence[str] | None,
) -> Table:
    """Put cells under their header; a short row lacks its last cells, a long one is malformed."""
    if header is None:
        _, header = next(rows, (1, []))
    if wanted is None:
        # Spreadsheets write empty columns behind the last one.
        has_nameless = header.count("") > 1
        wanted = [name for name in header if name or not has_nameless]
    _check_columns(path, header, wanted)
    places: dict[str, int] = {}
    columns: dict[str, CellTexts] = {}
    for name in wanted:
        places[name] = header.index(name)
        columns[name] = []
    lines: list[int] = []
    malformed: list[tuple[int, str]] = []
    for line, row in rows:
        if len(row) > len(header):
            malformed.append((line, "more fields than the header"))
            continue
        lines.append(line)
        for name, place in places.items():
            cell = row[place] if place < len(row) else None
            columns[name].append(cell)
    return Table(path, columns, lines, malformed)


def _read_jsonl(path: Path, wanted: Sequence[str] | None) -> Table:
    columns: dict[str, CellTexts] = {name: [] for name in wanted or ()}
    lines: list[int] = []
    keys: dict[str, None] = {}  # of all records, in the order of their first one
    lists: dict[str, None] = {}  # keys left out
    for number, line in _lines(path):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        record = _json_object(line, where)
        if wanted is None:
            for name, value in record.items():
                if not _is_plain(value):
                    columns.pop(name, None)
                    if isinstance(value, list):
                        lists[name] = None
                elif name not in keys:
                    columns[name] = [None] * len(lines)
        keys.update(dict.fromkeys(record))
        lines.append(number)
        for name, cells in columns.items():
            value = record.get(name)
            cells.append(cell_text(value, where, name))
    # A key that only some records have is a missing cell; one that none has is a missing column.
    _check_columns(path, list(keys), list(columns))
    return Table(path, columns, lines, lists=list(lists))


def _json_object(line: str, where: str) -> dict[str, Any]:
    """Read a line of JSON. Raises DataError unless it is an object."""
    try:
        record = json.loads(line)
    except RecursionError as error:
        raise DataError(f"{where} is nested too deeply to be read") from error
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}") from error
    if not isinstance(record, dict):
        kind = type(record).__name__
        raise DataError(f"{where} holds a {kind}; each line must be a JSON object")
    return record


def _is_plain(value: Any) -> bool:
    return not isinstance(value, list | dict)


def _read_parquet(path: Path, wanted: Sequence[str] | None) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_readable(path)
    lists: list[str] = []
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            if wanted is None:
                wanted = []
                for column in schema:
                    if _has_plain_cells(column.type):
                        wanted.append(column.name)
                    elif _has_lists(column.type):
                        lists.append(column.name)
            _check_columns(path, schema.names, wanted)
            distinct = list(dict.fromkeys(wanted))
            table = file.read(columns=distinct)
        values = {name: table.column(name).to_pylist() for name in distinct}
    except (pa.ArrowException, *UNREADABLE) as error:
        raise DataError(f"data file {path} cannot be read as Parquet: {error}") from error
    columns = {}
    for name in distinct:
        columns[name] = plain_cells(values[name], str(path), name)
    rows = range(1, table.num_rows + 1)
    return Table(path, columns, list(rows), lists=lists)


def _has_plain_cells(kind: Any) -> bool:
    """Whether `cell_text` writes the cells of an Arrow type: no times, bytes or lists."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_null,
    )
    return any(test(kind) for test in tests)


def _has_lists(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    import pyarrow as pa

    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def plain_cells(
    values: Sequence[object],
    where: str,
    column: str,
) -> CellTexts:
    """Return a column's values as `cell_text` writes them, their rows counted from 1."""
    cells = []
    for row, value in enumerate(values, start=1):
        where_in_table = f"{where} row {row}"
        cells.append(cell_text(value, where_in_table, column))
    return cells


def cell_text(value: object, where: str, column: str) -> str | None:
    """Write a cell as CSV shows it: 1.0 as "1", true as "true", null and NaN as None.

    Raises DataError for a value that is not plain.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if value.is_integer():
            return str(int(value))
        return repr(value)
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, list):
        raise DataError(f"{where} holds a list in column '{column}'; {NO_LISTS}")
    kind = type(value).__name__
    raise DataError(
        f"{where} holds a {kind} in column '{column}'; texts and labels must be plain values"
    )


def _decimal_text(value: Decimal) -> str | None:
    """Write an exact number, as databases have them, without a fraction of zeros."""
    if value.is_nan():
        return None
    if value.is_finite() and value == value.to_integral_value():
        return str(int(value))
    return f"{value:f}"


def _check_columns(path: Path, header: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise DataError for a wanted column that is missing or there twice."""
    if not header:
        raise DataError(
            f"data file {path} is empty; it must have rows, and as CSV or TSV a header line above"
        )
    shown = shortlist(f"'{name}'" for name in header)
    missing = []
    repeated = []
    for name in wanted:
        count = list(header).count(name)
        if count == 0:
            missing.append(f"'{name}'")
        elif count > 1:
            repeated.append(name)
    if missing:
        raise DataError(
            f"data file {path} has no column {shortlist(missing)}; its columns are {shown}"
        )
    if repeated:
        raise DataError(
            f"data file {path} has the column '{repeated[0]}' twice (its columns are {shown}); "
            "rename or drop one of them"
        )
