"""A results table of any tool as rows, and back."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.errors import ResultsError
from elsa_tune.results.cells import read_row
from elsa_tune.results.columns import CANDIDATE, COLUMNS, REQUIRED, lay_out, read_mapping
from elsa_tune.specs.candidates import candidate_fields, is_depth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tasks.table_file import Row, csv_rows

# An apostrophe of its own would be taken away with ours.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_ESCAPE = re.compile(rf"'(?={_FORMULA.pattern})")


@dataclass(frozen=True, slots=True)
class Imported:
    """A results table that was read."""

    rows: list[ResultRow]  # one or more
    told: tuple[str, ...]  # what was understood, one line each; () for a table of our own


def import_results(path: Path, *, percent: bool = False, mapping: Sequence[str] = ()) -> Imported:
    """Read a CSV of results. percent: as in `read_row`. mapping: what `read_mapping` reads.

    Where columns have other names, rows without depth and quality are left out, and counted in
    `told`. Rows that repeat another exactly are returned too; the curve counts them once. Raises
    ResultsError, with the line, for whatever is missing, unreadable or out of its range.
    """
    given = read_mapping(mapping)
    lines = _lines(path)
    _, header = next(lines, (0, []))
    if not header:
        raise ResultsError(f"{path} is empty; it needs the columns {', '.join(REQUIRED)}")
    if "training_iteration" in header and "status" not in header:
        lines = _with_ray_status(header, lines)
        header = [*header, "status"]
    layout = lay_out(path, header, given)
    left_out: Counter[str] = Counter()
    rows = []
    for number, line in lines:
        cells = {name: line[place] for name, place in layout.places.items() if line[place]}
        cells |= layout.constants
        why = _why_left_out(cells, is_foreign=bool(layout.understood))
        if why:
            left_out[why] += 1
        else:
            rows.append(read_row(path, number, cells, percent))
    _check(path, rows, percent=percent)
    if not layout.understood:
        return Imported(rows, ())
    kept = _without_repeated(rows)
    left_out["of attempts that were repeated"] = len(rows) - len(kept)
    told = [f"{path}:", *layout.understood, _counts(kept)]
    told += [f"left out: {count} {what}" for what, count in left_out.items() if count]
    return Imported(kept, tuple(told))


def _check(path: Path, rows: Sequence[ResultRow], *, percent: bool) -> None:
    """Raise ResultsError for a table without rows, or with fractions that are called percent."""
    if not rows:
        raise ResultsError(f"{path} has a header and no rows")
    if percent and all(abs(row.quality or 0.0) <= 0.01 for row in rows):
        raise ResultsError(
            f"{path}: no quality is above 1, so these are fractions already; leave out "
            "`scale` percent"
        )


def _why_left_out(cells: Mapping[str, str], *, is_foreign: bool) -> str:
    """Return of which kind a line is that holds no result; "" for a result."""
    if is_foreign and not cells.keys() & {"frozen_layers", CANDIDATE, "quality"}:
        return "with neither frozen layers nor quality"  # such as the run of a whole search
    if cells.get("phase") == Phase.PROBE:
        return "linear probes of the frozen model"
    return ""


def _without_repeated(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Drop the runs that broke where others took their place: tools keep both."""
    ended = {_identity(row) for row in rows if row.status.is_final}
    return [row for row in rows if row.status.is_final or _identity(row) not in ended]


def _counts(rows: Sequence[ResultRow]) -> str:
    """Return `6 rows: 6 completed; 6 measuring, 0 exploring`."""
    statuses = Counter(row.status.value.replace("_", " ") for row in rows)
    phases = Counter(row.phase for row in rows)
    by_status = ", ".join(f"{count} {name}" for name, count in statuses.items())
    return (
        f"{len(rows)} rows: {by_status}; "
        f"{phases[Phase.MEASURE]} measuring, {phases[Phase.EXPLORE]} exploring"
    )


def _identity(row: ResultRow) -> tuple[object, ...]:
    """Return what rows that repeat a trial have in common; nothing repeats one without a seed."""
    return (
        row.model,
        row.task,
        row.train_size,
        row.metric,
        row.selection,
        row.comparison,
        row.search,
        row.phase,
        row.candidate,
        row.learning_rate,
        id(row) if row.seed is None else row.seed,
    )


def _with_ray_status(header: Sequence[str], lines: Iterable[Row]) -> Iterator[Row]:
    """Give each line how its trial ended.

    One with fewer reports than others was stopped where `done` is true (which is false too for
    functions that ran to their end), else it failed.
    """
    trials = list(lines)
    reports = header.index("training_iteration")
    done = header.index("done") if "done" in header else None
    counts = [cells[reports] for _, cells in trials]
    most = max(counts, key=lambda text: int(text) if text.isdecimal() else 0, default="")
    for number, cells in trials:
        is_stopped = done is None or cells[done].lower() == "true"
        status = TrialStatus.STOPPED_EARLY if is_stopped else TrialStatus.FAILED
        if cells[reports] == most:
            status = TrialStatus.COMPLETED
        yield number, [*cells, status.value]


def _lines(path: Path) -> Iterator[Row]:
    """Yield the lines that hold anything, the header first, stripped; all are as long as it."""
    fields = 0
    for number, cells in csv_rows(path):
        stripped = [cell[1:] if _ESCAPE.match(cell) else cell for cell in map(str.strip, cells)]
        if not any(stripped):
            continue
        fields = fields or len(stripped)
        if len(stripped) != fields:
            raise ResultsError(
                f"{path}, line {number}: {len(stripped)} fields where the header has {fields}"
            )
        yield number, stripped


def plain_cell(value: object) -> object:
    """Return a cell as written: a formula's look gets an apostrophe, which reading drops."""
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value  # -0.5


def csv_text(header: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV, each cell by `plain_cell`; nothing for None."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(plain_cell, line) for line in lines)
    return text.getvalue()


def write_results(rows: Iterable[ResultRow]) -> str:
    """Return the rows as a table that `import_results` reads back; qualities are fractions.

    It has the column `candidate` only where a row's is no depth.
    """
    rows = list(rows)
    columns = COLUMNS if all(is_depth(row.candidate) for row in rows) else (*COLUMNS, CANDIDATE)
    lines = []
    for row in rows:
        values = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
        values["comparison"] = str(row.comparison)
        values |= candidate_fields(row.candidate)
        if is_depth(row.candidate):
            values["embeddings_frozen"] = str(values["embeddings_frozen"]).lower()
        else:
            values[CANDIDATE] = row.candidate.label
        lines.append([values.get(name) for name in columns])
    return csv_text(columns, lines)
