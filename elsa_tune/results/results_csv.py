"""A results table of any tool as rows, and back."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from elsa_tune.errors import ResultsError
from elsa_tune.results.cells import read_row
from elsa_tune.results.columns import (
    CANDIDATE,
    COLUMNS,
    EARLIER,
    EARLIER_COLUMNS,
    FINDINGS,
    LOOKS,
    METHOD,
    PLANNED_TARGET,
    POLICY,
    REQUIRED,
    SEARCH_ID,
    UNITS,
    Layout,
    lay_out,
    read_mapping,
)
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import DEPTH_FIELDS, candidate_fields
from elsa_tune.specs.adapt.named_way import NamedWay
from elsa_tune.specs.looks_text import looks_text
from elsa_tune.specs.policy import changed_fields
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import LOST_LOOKS, NONE_EARLIER
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tasks.table_file import Row, csv_line, csv_rows

# An apostrophe of its own would be taken away with ours.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_ESCAPE = re.compile(rf"'(?={_FORMULA.pattern})")


# What a written table calls the full model where it names methods.
FULL = "full"

# What MLflow's export calls the tags of our runs, of which that of a whole search has no trial.
_OF_SEARCH = "tags.elsa_tune.search_id"
_OF_TRIAL = "tags.elsa_tune.trial"
# There the run of a whole search alone says what that was planned to keep.
_TARGET_OF_SEARCH = "params.target"

# Of which values MLflow keeps the texts alone.
_MLFLOW_TEXTS = ("params.", "tags.")

# There the metric `quality` is the last evaluation's; where the trial's selection chose another
# one, its quality is here.
_TRIAL_QUALITY = "metrics.trial_quality"

# How often a trial reported, in Ray Tune's table, which has no status.
_RAY_REPORTS = "training_iteration"

# What rows of the phases are that count in no answer.
_LEFT_OUT_PHASES: Mapping[str, str] = {
    Phase.PROBE: "linear probes of the frozen model",
    Phase.FINAL: "of phase final, which train the model that is exported",
}

# What rows that belong together have in common.
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """A results table that was read."""

    rows: list[ResultRow]  # one or more
    # What was understood and what was left out, one line each; () for a table of our own names of
    # which every row counts.
    notes: tuple[str, ...]


def import_results(
    path: Path,
    *,
    percent: bool = False,
    mapping: Sequence[str] = (),
) -> Imported:
    """Read a CSV of results. percent: as in `read_row`. mapping: what `read_mapping` reads.

    Linear probes and trainings for an export are left out and counted in `notes`, and where columns
    have other names rows without depth and quality, too. Rows that repeat another exactly are
    returned; the curve counts them once. Raises ResultsError, with the line, for whatever is
    missing, unreadable or out of its range.
    """
    given = read_mapping(mapping)
    lines = _lines(path)
    _, header = next(lines, (0, []))
    if not header:
        raise ResultsError(f"{path} is empty; it needs the columns {', '.join(REQUIRED)}")
    lacks_status = _RAY_REPORTS in header and "status" not in header
    if lacks_status:
        header = [*header, "status"]
    layout = lay_out(path, header, given)
    if lacks_status:
        lines = _with_ray_status(header, lines, layout)
    all_lines = list(lines)
    targets = _targets_of_searches(header, all_lines)
    left_out: Counter[str] = Counter()
    rows = []
    is_foreign = len(layout.understood) > 0
    for number, line in all_lines:
        cells = _cells_of(header, line, layout)
        if _is_our_trial(header, line):
            target = targets.get(_search_id(header, line))
            cells = _as_our_trial(cells, header, line, given, target)
        why = _why_left_out(cells, is_foreign=is_foreign)
        if _is_whole_search(header, line):
            why = "of whole searches"
        if why:
            left_out[why] += 1
        else:
            rows.append(read_row(path, number, cells, percent))
    _check(path, rows, left_out, percent=percent)
    _check_chance(path, layout.constants.get("chance"), percent=percent)
    is_of_earlier_version = set(EARLIER_COLUMNS) <= set(layout.places)
    if is_of_earlier_version and LOOKS not in layout.places:
        rows = _without_looks_of_hunts(rows)
    notes = [f"{path}:", *layout.troubles]
    if is_foreign:
        final_rows = _without_repeated(rows)
        left_out["of attempts that were repeated"] = len(rows) - len(final_rows)
        rows = final_rows
        notes += layout.understood
        if _TRIAL_QUALITY in header and "quality" not in given:
            notes.append(f"quality <- {_TRIAL_QUALITY}, in trials of elsa-tune that have one")
        notes += _target_notes(targets, given)
        notes.append(_counts(rows))
    notes += _left_out_notes(left_out)
    notes += _tiny_notes(rows, percent=percent)
    if len(notes) == 1:
        return Imported(rows, ())
    return Imported(rows, tuple(notes))


def _without_looks_of_hunts(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows of a table of an earlier version, which left out when depths are tested.

    With as many seeds at each depth that is what it looks like: one test with all of them. Other
    searches were hunts, or were stopped, and their rows say that their looks are lost.
    """
    seeds_by_search: dict[_Key, Counter[Candidate]] = {}
    for row in rows:
        if row.phase is Phase.MEASURE and row.candidate.is_tested:
            seeds = seeds_by_search.setdefault(_search_of(row), Counter())
            seeds[row.candidate] += row.runs
    marked: list[ResultRow] = []
    for row in rows:
        seeds = seeds_by_search.get(_search_of(row), Counter())
        numbers_of_seeds = set(seeds.values())
        if row.phase is Phase.MEASURE and len(numbers_of_seeds) > 1:
            row = replace(row, looks=LOST_LOOKS)
        marked.append(row)
    return marked


def _search_of(row: ResultRow) -> _Key:
    """Return what the rows of one search have in common."""
    return (row.search_key, row.model, row.task, row.train_size)


def _cells_of(header: Sequence[str], line: Sequence[str], layout: Layout) -> dict[str, str]:
    """Return what a line holds, by the names of our columns; empty cells are left out.

    A param or tag of MLflow's that is Python's None is empty, too.
    """
    nones = {"None"}
    if _is_our_trial(header, line):
        nones.add("none")  # in others' runs it may be a name
    cells: dict[str, str] = {}
    for name, place in layout.places.items():
        cell = line[place]
        is_none = cell in nones and header[place].startswith(_MLFLOW_TEXTS)
        if cell and not is_none:
            cells[name] = cell
    cells.update(layout.constants)
    return cells


def _left_out_notes(left_out: Mapping[str, int]) -> list[str]:
    """Return a line on each kind of row that was left out: how many, by what they are."""
    return [f"left out: {count} {what}" for what, count in left_out.items() if count]


def _check(
    path: Path, rows: Sequence[ResultRow], left_out: Mapping[str, int], *, percent: bool
) -> None:
    """Raise ResultsError for a table without rows, or with fractions that are called percent."""
    if not rows and left_out:
        told = ", ".join(_left_out_notes(left_out))
        raise ResultsError(f"{path} has no rows that can be answered; {told}")
    if not rows:
        raise ResultsError(f"{path} has a header and no rows")
    # Of runs that failed, and of scores of 0, nothing is told.
    qualities = [row.quality for row in rows if row.quality]
    are_fractions = len(qualities) > 0 and all(abs(quality) <= 0.01 for quality in qualities)
    if percent and are_fractions:
        raise ResultsError(
            f"{path}: no quality is above 1, so these are fractions already; leave out "
            "`scale` percent"
        )


def _tiny_notes(rows: Sequence[ResultRow], *, percent: bool) -> list[str]:
    """Return a line where a table of percentages has some that look like fractions."""
    qualities = [abs(row.quality) for row in rows if row.quality is not None]
    tiny = [quality for quality in qualities if 0 < quality <= 0.01]
    if not percent or not tiny or max(qualities) <= 0.1:
        return []
    return [
        f"{len(tiny)} of {len(qualities)} qualities lie between 0 and 1 %, as fractions among "
        "percentages would"
    ]


def _check_chance(path: Path, given: str | None, *, percent: bool) -> None:
    """Raise ResultsError where the chance that `map` gives a table of percentages is a fraction.

    Who writes 0.8122 there means 81 %: the number is known from elsewhere. A chance below 1 %, of
    more than 100 classes, is told by a column of the table, which has one scale.
    """
    if given is None or not percent:
        return
    chance = float(given)
    if 0 < chance < 1:
        raise ResultsError(
            f"{path}: `map` chance=={given} is {given} % with `scale` percent; write "
            f"chance=={100 * chance:g} for {100 * chance:g} %, or give the table a column chance "
            "if it truly is below 1 %"
        )


def _is_whole_search(header: Sequence[str], line: Sequence[str]) -> bool:
    """Return whether a line of MLflow's export is the run of one of our searches."""
    return bool(_search_id(header, line)) and not _is_our_trial(header, line)


def _search_id(header: Sequence[str], line: Sequence[str]) -> str:
    """Return which of our searches a line of MLflow's export belongs to; "" for none."""
    if _OF_SEARCH not in header:
        return ""
    return line[header.index(_OF_SEARCH)]


def _targets_of_searches(header: Sequence[str], lines: Iterable[Row]) -> dict[str, str]:
    """Return what our searches in MLflow's export were planned to keep, by their ids."""
    targets: dict[str, str] = {}
    if _TARGET_OF_SEARCH not in header:
        return targets
    place = header.index(_TARGET_OF_SEARCH)
    for _, line in lines:
        if _is_whole_search(header, line) and line[place]:
            targets[_search_id(header, line)] = line[place]
    return targets


def _is_our_trial(header: Sequence[str], line: Sequence[str]) -> bool:
    """Return whether a line of MLflow's export is the run of one of our trials."""
    if _OF_TRIAL not in header:
        return False
    return bool(line[header.index(_OF_TRIAL)])


def _target_notes(targets: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """Return a line where the targets of our searches were found and not given by the user."""
    if not targets or PLANNED_TARGET in given:
        return []
    return [f"{PLANNED_TARGET} <- {_TARGET_OF_SEARCH}, of whole searches"]


def _as_our_trial(
    cells: Mapping[str, str],
    header: Sequence[str],
    line: Sequence[str],
    given: Mapping[str, str],
    target: str | None,
) -> dict[str, str]:
    """Return the cells of a run of one of our trials, by what we mean there.

    given: the user's mapping, which counts first. target: that of its search; None if unknown.
    """
    ours = dict(cells)
    if target is not None:
        ours.setdefault(PLANNED_TARGET, target)
    if METHOD in ours:
        # There it is no free text, but the label of what we trained.
        ours.setdefault(CANDIDATE, ours.pop(METHOD))
    if _TRIAL_QUALITY in header and "quality" not in given:
        quality = line[header.index(_TRIAL_QUALITY)]
        if quality:
            ours["quality"] = quality
    return ours


def _why_left_out(cells: Mapping[str, str], *, is_foreign: bool) -> str:
    """Return of which kind a line is that holds no result; "" for a result."""
    names_of_results = {"frozen_layers", CANDIDATE, METHOD, "quality"}
    holds_a_result = not names_of_results.isdisjoint(cells)
    if is_foreign and not holds_a_result:
        return "with neither frozen layers nor quality"  # such as the run of a whole search
    return _LEFT_OUT_PHASES.get(cells.get("phase", "").lower(), "")


def _without_repeated(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Drop the runs that broke where others took their place: tools keep both."""
    ended = {_identity(row) for row in rows if row.status.is_final}
    final_rows: list[ResultRow] = []
    for row in rows:
        was_repeated = not row.status.is_final and _identity(row) in ended
        if not was_repeated:
            final_rows.append(row)
    return final_rows


def _counts(rows: Sequence[ResultRow]) -> str:
    """Return `6 rows: 6 completed; 6 measuring, 0 exploring`."""
    statuses = Counter(row.status for row in rows)
    phases = Counter(row.phase for row in rows)
    texts: list[str] = []
    for status, count in statuses.items():
        name = status.value.replace("_", " ")
        texts.append(f"{count} {name}")
    measuring = phases[Phase.MEASURE]
    exploring = phases[Phase.EXPLORE]
    counts = ", ".join(texts)
    return f"{len(rows)} rows: {counts}; {measuring} measuring, {exploring} exploring"


def _identity(row: ResultRow) -> _Key:
    """Return what rows that repeat a trial have in common; nothing repeats one without a seed."""
    return (
        row.model,
        row.task,
        row.train_size,
        row.metric,
        row.selection,
        row.comparison,
        row.search_key,
        row.phase,
        row.candidate,
        row.learning_rate,
        id(row) if row.seed is None else row.seed,
    )


def _with_ray_status(header: Sequence[str], lines: Iterable[Row], layout: Layout) -> Iterator[Row]:
    """Give each line how its trial ended.

    One with fewer reports than others of its kind was stopped where `done` is true (which is false
    too for functions that ran to their end), else it failed.
    """
    trials = list(lines)
    place = header.index(_RAY_REPORTS)
    done = None
    if "done" in header:
        done = header.index("done")
    most: dict[_Key, float] = {}
    for _, cells in trials:
        kind = _ray_kind(cells, layout)
        most[kind] = max(most.get(kind, 0), _ray_reports(cells[place]))
    for number, cells in trials:
        reports = _ray_reports(cells[place])
        if reports > 0 and reports == most[_ray_kind(cells, layout)]:
            status = TrialStatus.COMPLETED
        elif done is None or cells[done].lower() == "true":
            status = TrialStatus.STOPPED_EARLY
        else:
            status = TrialStatus.FAILED
        yield number, [*cells, status.value]


def _ray_kind(cells: Sequence[str], layout: Layout) -> _Key:
    """Return what trials that report equally often have in common, as far as columns tell."""
    names = ("model", "task", "epochs")
    return tuple(cells[layout.places[name]] for name in names if name in layout.places)


def _ray_reports(cell: str) -> float:
    """Return how often a trial reported; a table tool that meets an empty cell writes 3.0."""
    try:
        reports = float(cell)
    except ValueError:
        return 0
    return reports if math.isfinite(reports) else 0


def _lines(path: Path) -> Iterator[Row]:
    """Yield the lines that hold anything, the header first, stripped; all are as long as it."""
    header_fields = None
    for number, cells in csv_rows(path):
        plain: list[str] = []
        for cell in cells:
            plain.append(bare_cell(cell.strip()))
        if not any(plain):
            continue
        fields = len(plain)
        if header_fields is None:
            header_fields = fields
        if fields != header_fields:
            raise ResultsError(
                f"{path}, line {number}: {fields} fields where the header has {header_fields}"
            )
        yield number, plain


def plain_cell(value: object) -> object:
    """Return a cell as written: a formula's look gets an apostrophe, which reading drops."""
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value  # -0.5


def bare_cell(text: str) -> str:
    """Return what `plain_cell` made this text of."""
    if _ESCAPE.match(text):
        return text[1:]
    return text


def csv_text(header: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV, each cell by `plain_cell`; nothing for None."""
    text = [csv_line(header)]
    for line in lines:
        cells = [plain_cell(value) for value in line]
        text.append(csv_line(cells))
    return "".join(text)


def write_results(rows: Iterable[ResultRow]) -> str:
    """Return the rows as a table that `import_results` reads back; qualities are fractions.

    It has the column `candidate` only where a row's is no depth, `method` where a table named it,
    and those of units, planned targets, findings and earlier searches only where a row has them,
    and that of ids only where several searches have one name.
    """
    rows = list(rows)
    columns = _columns_of(rows)
    lines = []
    for row in rows:
        values = _values_of(row)
        lines.append([values.get(name) for name in columns])
    return csv_text(columns, lines)


def _columns_of(rows: Sequence[ResultRow]) -> tuple[str, ...]:
    """Return the columns that these rows need."""
    names_methods = any(_column_of(row.candidate) == METHOD for row in rows)
    # A full model of unknown layers is no depth among others: its method says what it is.
    lacks_layers = any(row.layers is None for row in rows)
    is_needed = {
        CANDIDATE: any(_column_of(row.candidate) == CANDIDATE for row in rows),
        METHOD: names_methods or lacks_layers,
        UNITS: any(row.evaluation_units is not None for row in rows),
        PLANNED_TARGET: any(row.planned_target is not None for row in rows),
        FINDINGS: any(row.findings for row in rows),
        EARLIER: any(row.earlier != NONE_EARLIER for row in rows),
        SEARCH_ID: len({row.search_key for row in rows}) > len({row.search for row in rows}),
    }
    return (*COLUMNS, *(name for name, needed in is_needed.items() if needed))


def _values_of(row: ResultRow) -> dict[str, object]:
    """Return a row's values by their columns."""
    values: dict[str, object] = {}
    for name in (*COLUMNS, UNITS, PLANNED_TARGET, SEARCH_ID):
        values[name] = getattr(row, name, None)
    values["comparison"] = str(row.comparison)
    if row.looks is not None:
        values[LOOKS] = looks_text(row.looks)
    if row.policy is not None:
        changed = changed_fields(row.policy)
        values[POLICY] = json.dumps(changed, default=asdict)
    if row.findings:
        values[FINDINGS] = json.dumps([asdict(finding) for finding in row.findings])
    if row.earlier != NONE_EARLIER:
        values[EARLIER] = json.dumps(asdict(row.earlier))
    candidate_cells = candidate_fields(row.candidate)
    for name in DEPTH_FIELDS:
        values[name] = candidate_cells[name]
    column = _column_of(row.candidate)
    if column is None:
        values["embeddings_frozen"] = str(values["embeddings_frozen"]).lower()
    else:
        values[column] = row.candidate.label
    if row.layers is None and row.candidate.is_reference:
        values[METHOD] = FULL
    return values


def _column_of(candidate: Candidate) -> str | None:
    """Return the column that has a candidate's label; None for a depth, which has its own."""
    if candidate.is_depth:
        return None
    if isinstance(candidate, NamedWay):
        return METHOD
    return CANDIDATE
