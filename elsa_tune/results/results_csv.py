"""A results table of any tool as rows, and back; and the two studies' printed means, one such."""

import csv
import enum
import functools
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.errors import ResultsError
from elsa_tune.results.columns import CANDIDATE, COLUMNS, REQUIRED, lay_out, read_mapping, read_row
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tasks.known import MISMATCHED
from elsa_tune.tasks.table_file import Row, csv_rows

# An apostrophe of its own would be taken away with ours.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_ESCAPE = re.compile(rf"'(?={_FORMULA.pattern})")


@dataclass(frozen=True, slots=True)
class Imported:
    """What was read of a results table."""

    rows: list[ResultRow]  # never empty
    told: tuple[str, ...]  # what was understood, a line each; () for a table of our own


def import_results(path: Path, *, percent: bool = False, mapping: Sequence[str] = ()) -> Imported:
    """Read a CSV of results. percent: as in `read_row`. mapping: what `read_mapping` reads.

    Where columns have other names, rows without depth and quality are left out, and counted in
    `told`. Rows that repeat another exactly are returned too; the curve counts them once. Raises
    ResultsError, with the line, for whatever is missing, unreadable or out of its range.
    """
    named = read_mapping(mapping)
    lines = _lines(path)
    _, header = next(lines, (0, []))
    if not header:
        raise ResultsError(f"{path} is empty; it needs the columns {', '.join(REQUIRED)}")
    if "training_iteration" in header and "status" not in header:
        lines = _with_ray_status(header, lines)
        header = [*header, "status"]
    places, constants, columns = lay_out(path, header, named)
    is_foreign = bool(columns)
    rows: list[ResultRow] = []
    left_out: Counter[str] = Counter()
    for number, line in lines:
        cells = {name: line[place] for name, place in places.items() if line[place]} | constants
        why = _why_left_out(cells, is_foreign)
        if why:
            left_out[why] += 1
        else:
            rows.append(read_row(path, number, cells, percent))
    if not rows:
        raise ResultsError(f"{path} has a header and no rows")
    if percent and max(abs(row.quality or 0.0) for row in rows) <= 0.01:
        raise ResultsError(
            f"{path}: no quality is above 1, so these are fractions already; leave out "
            "`scale` percent"
        )
    if not is_foreign:
        return Imported(rows, ())
    kept = _without_broken_attempts(rows)
    left_out["of attempts that were repeated"] = len(rows) - len(kept)
    understood = [f"{path}:", *columns, _counts(kept)]
    for why, count in left_out.items():
        if count:
            understood.append(f"left out: {count} {why}")
    return Imported(kept, tuple(understood))


def _why_left_out(cells: Mapping[str, str], is_foreign: bool) -> str:
    """Say of which kind a line is that is no result; "" for a result."""
    if is_foreign and not cells.keys() & {"frozen_layers", CANDIDATE, "quality"}:
        return "with neither frozen layers nor quality"  # e.g. a search's parent run
    if cells.get("phase") == Phase.PROBE:
        return "linear probes of the frozen model"
    return ""


def _without_broken_attempts(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Leave out runs that broke beside those that took their place: tools keep both."""
    ended = {_identity(row) for row in rows if row.status.is_final}
    return [row for row in rows if row.status.is_final or _identity(row) not in ended]


def _counts(rows: Sequence[ResultRow]) -> str:
    """Write how many rows there are, by status and phase."""
    statuses = Counter(row.status.value.replace("_", " ") for row in rows)
    phases = Counter(row.phase for row in rows)
    by_status = ", ".join(f"{count} {name}" for name, count in statuses.items())
    return (
        f"{len(rows)} rows: {by_status}; {phases[Phase.MEASURE]} measuring, "
        f"{phases[Phase.EXPLORE]} exploring"
    )


def _identity(row: ResultRow) -> tuple[object, ...]:
    """Rows that repeat a trial have the same; what has no seed is repeated by nothing."""
    what = (row.model, row.task, row.train_size, row.metric, row.selection, row.comparison)
    seed = id(row) if row.seed is None else row.seed
    return (*what, row.search, row.phase, row.depth, row.learning_rate, seed)


def _with_ray_status(header: Sequence[str], lines: Iterable[Row]) -> Iterator[Row]:
    """Each line with how its trial ended. One with fewer reports than others was stopped where
    `done` is true (which is false too for functions that ran to their end), else it failed.
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
    """The lines that hold anything, the header first; all as long as the header, and stripped."""
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
    """A cell as written: what looks like a formula gets an apostrophe, which reading drops."""
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value  # -0.5


def csv_text(header: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    """A table as CSV, each cell by `plain_cell`; nothing for None."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(plain_cell, line) for line in lines)
    return text.getvalue()


def write_results(rows: Iterable[ResultRow]) -> str:
    """Return the rows as a table that `import_results` reads back; qualities are fractions.

    It has a column `candidate` where a row is of another method than freezing.
    """
    rows = list(rows)
    columns = list(COLUMNS)
    if any("frozen_layers" not in row.depth.record() for row in rows):
        columns.append(CANDIDATE)
    lines = []
    for row in rows:
        values = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
        values["comparison"] = str(row.comparison)
        record = row.depth.record()
        values["frozen_layers"] = record.get("frozen_layers")
        values["embeddings_frozen"] = str(record.get("embeddings_frozen", "")).lower()
        values[CANDIDATE] = row.depth.label
        lines.append([values[name] for name in columns])
    return csv_text(columns, lines)


class Study(enum.StrEnum):
    """A published study, whose means are rows here."""

    ELSA = "elsa"  # the whole training set, depths L/2..L: Tables 3-5 (BERT-base from Table 3)
    LOW_RESOURCE = "low-resource"  # RoBERTa-base, 50 to 1,000 examples, depths 0..L; CoLA: accuracy

    @property
    def source(self) -> str:
        """Whose numbers these are, as in the `comparison` of its rows."""
        if self is Study.ELSA:
            return "Lee, Tang, Lin 2019 (arXiv 1911.03090)"
        return "the low-resource blog study, appendix"


@functools.cache
def printed_rows(study: Study) -> tuple[ResultRow, ...]:
    """The means in the tables' order; MNLI's second evaluation split is task `mnli_mismatched`."""
    rows = import_results(Path(__file__).parent / "data" / "published.csv").rows
    return tuple(row for row in rows if str(row.comparison) == study.source)


def published_rows() -> list[ResultRow]:
    """The means of both studies on the tasks that a search knows."""
    return [row for study in Study for row in printed_rows(study) if row.task != MISMATCHED]
