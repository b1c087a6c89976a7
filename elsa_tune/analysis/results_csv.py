"""A results table of any tool as rows, and rows as such a table: the columns of docs/answer.md.

It must not know what is answered from the rows. Every complaint names the file and its line.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from elsa_tune.errors import ResultsError, SpaceError
from elsa_tune.specs.freeze import EMBEDDINGS, FreezeDepth
from elsa_tune.specs.result import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus, canonical_rate

REQUIRED = ("model", "task", "layers", "frozen_layers", "quality")
OPTIONAL = (
    *("seed", "runs", "learning_rate", "train_size", "status", "phase", "embeddings_frozen"),
    *("chance", "metric", "std", "epochs", "selection", "search", "comparison", "examples"),
    *("train_seconds", "peak_memory_mb", "trainable_parameters"),
)
COLUMNS = (*REQUIRED, *OPTIONAL)

_Choice = TypeVar("_Choice", TrialStatus, Phase)

_FALSE, _TRUE = ("false", "no", "0"), ("true", "yes", "1")

# What other tools call the columns, for the hint when one is missing.
_LOOKALIKES = {
    "quality": ("mean_accuracy", "accuracy", "score", "value", "quality_percent", "eval_accuracy"),
    "frozen_layers": ("frozen", "n_frozen", "freeze", "frozen_layer"),
    "layers": ("num_layers", "num_hidden_layers", "n_layers"),
    "seed": ("random_seed", "seeds"),
    "runs": ("n_runs", "seeds"),
}


def read_results(path: Path, *, percent: bool = False) -> list[ResultRow]:
    """Read a CSV of results. percent: quality, std and chance are percentages, else fractions.

    Rows that repeat another exactly are returned too; the curve counts them once and says so.
    Raises ResultsError, naming the line, for anything that is not a number where one must be, a
    value out of its range, a missing column, contradicting rows, or an empty or unreadable file.
    """
    lines = _lines(path)
    header = next(lines, None)
    if header is None:
        raise ResultsError(f"{path} is empty; it needs the columns {', '.join(REQUIRED)}")
    columns = _check_columns(path, header.cells)
    extras = [column for column in columns if column in _EXTRAS]
    seen = _Seen(path)
    rows = []
    largest = 0.0
    for line in lines:
        if len(line.cells) != len(columns):
            raise ResultsError(
                f"{path}, line {line.number}: {len(line.cells)} fields where the header has "
                f"{len(columns)}"
            )
        cells = {name: cell for name, cell in zip(columns, line.cells, strict=True) if cell}
        row = _Fields(path, line.number, cells, percent).row(extras)
        seen.check(row, line.number)
        largest = max(largest, abs(row.quality or 0.0))
        rows.append(row)
    if not rows:
        raise ResultsError(f"{path} has a header and no rows")
    if percent and largest <= 0.01:
        raise ResultsError(
            f"{path}: no quality is above 1, so these are fractions already; leave out --scale "
            "percent"
        )
    return rows


def write_results(rows: Iterable[ResultRow]) -> str:
    """The rows as a table that `read_results` reads back; qualities are fractions."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        values = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
        values["frozen_layers"] = row.depth.frozen_layers
        values["embeddings_frozen"] = str(row.depth.embeddings_frozen).lower()
        writer.writerow("" if values[name] is None else values[name] for name in COLUMNS)
    return text.getvalue()


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    cells: list[str]


def _lines(path: Path) -> Iterator[_Line]:
    """The table's lines that hold anything, cells stripped."""
    if not path.exists():
        raise ResultsError(f"results table {path} does not exist")
    try:
        # utf-8-sig: spreadsheets write a byte order mark.
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for cells in reader:
                stripped = [cell.strip() for cell in cells]
                if any(stripped):
                    yield _Line(reader.line_num, stripped)
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path} is not UTF-8 text; save it as a CSV in UTF-8") from error
    except csv.Error as error:
        raise ResultsError(f"{path}, line {reader.line_num}: not a CSV line ({error})") from error
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error


def _check_columns(path: Path, header: list[str]) -> list[str]:
    columns = [name.lower() for name in header]
    if len(columns) == 1 and (separator := next((s for s in ";\t|" if s in header[0]), "")):
        name = {"\t": "tabs"}.get(separator, f"'{separator}'")
        raise ResultsError(f"{path}, line 1: columns are separated by {name}; use commas")
    twice = sorted({name for name in columns if name and columns.count(name) > 1})
    if twice:
        raise ResultsError(f"{path}, line 1: column {', '.join(twice)} occurs more than once")
    missing = [name for name in REQUIRED if name not in columns]
    if "seed" not in columns and "runs" not in columns:
        missing.append("seed (one row a run) or runs (a row is the mean of so many)")
    if missing:
        hints = [
            f"is {other} the {name.split()[0]}?"
            for name in missing
            for other in _LOOKALIKES.get(name.split()[0], ())
            if other in columns
        ]
        hint = f"; {hints[0]} Then rename it" if hints else ""
        raise ResultsError(
            f"{path}, line 1: missing columns {', '.join(missing)}; it has "
            f"{', '.join(header)}{hint}"
        )
    return columns


@dataclass(frozen=True, slots=True)
class _Fields:
    """The cells of one line by column name, empty ones left out.

    Every reader of a cell complains with the line's number.
    """

    path: Path
    number: int
    cells: Mapping[str, str]
    percent: bool

    def row(self, extras: Sequence[str]) -> ResultRow:
        """The row; extras: those columns of the table that are only read, not judged together."""
        status = self._choice("status", TrialStatus) or TrialStatus.COMPLETED
        phase = self._choice("phase", Phase)
        if phase is None:
            stopped = status is TrialStatus.STOPPED_EARLY
            phase = Phase.EXPLORE if stopped else Phase.MEASURE
        layers = self._required("layers", self._whole("layers", 1))
        runs = self._whole("runs", 1)
        seed = self._whole("seed", 0)
        if runs is None and seed is None:
            raise self._error("needs a seed, or runs for the mean of several runs")
        quality = self._share("quality")
        if quality is None and status is TrialStatus.COMPLETED:
            raise self._error("quality is empty; a completed run has one")
        return ResultRow(
            model=self._text("model"),
            task=self._text("task"),
            layers=layers,
            depth=self._depth(layers),
            quality=quality,
            status=status,
            phase=phase,
            seed=seed,
            runs=runs or 1,
            std=self._std(runs or 1),
            comparison=self._comparison(),
            **{name: _EXTRAS[name](self) for name in extras if name in self.cells},
        )

    def _error(self, text: str) -> ResultsError:
        return ResultsError(f"{self.path}, line {self.number}: {text}")

    def _required(self, name: str, value: int | None) -> int:
        if value is None:
            raise self._error(f"{name} is empty")
        return value

    def _text(self, name: str) -> str:
        if name not in self.cells:
            raise self._error(f"{name} is empty")
        return self.cells[name]

    def _number(self, name: str) -> float | None:
        text = self.cells.get(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self._error(f"{name} is '{text}'; it must be a number") from None
        if not math.isfinite(value):
            raise self._error(
                f"{name} is '{text}'; it must be a finite number (a run that diverged has status "
                "diverged and an empty quality)"
            )
        return value

    def _whole(self, name: str, least: int) -> int | None:
        # 3.0 too: a table tool that meets an empty cell writes the whole column so.
        value = self._number(name)
        if value is None:
            return None
        if value != int(value) or value < least:
            raise self._error(
                f"{name} is {self.cells[name]}; it must be a whole number, {least} or more"
            )
        return int(value)

    def _share(self, name: str) -> float | None:
        value = self._number(name)
        if value is None:
            return None
        limit, unit = (100, "percent") if self.percent else (1, "a fraction")
        if abs(value) > limit:
            is_percentage = not self.percent and abs(value) <= 100
            hint = "; for percentages add --scale percent" if is_percentage else ""
            raise self._error(
                f"{name} is {self.cells[name]}; as {unit} it is at most {limit}{hint}"
            )
        # Division, not * .01: 58.3 / 100 is the float .583 itself.
        return value / 100 if self.percent else value

    def _std(self, runs: int) -> float | None:
        std = self._share("std")
        if std is not None and std < 0:
            raise self._error(f"std is {self.cells['std']}; it must be 0 or more")
        if std is not None and runs == 1:
            raise self._error(
                "std is given for a single run; give runs, how many runs the row is the mean of, "
                "or leave std empty"
            )
        return std

    def _rate(self) -> float | None:
        value = self._number("learning_rate")
        try:
            return None if value is None else canonical_rate(value)
        except SpaceError as error:
            raise self._error(str(error)) from error

    def _choice(self, name: str, choices: type[_Choice]) -> _Choice | None:
        text = self.cells.get(name, "").lower()
        if not text:
            return None
        try:
            return choices(text)
        except ValueError:
            known = ", ".join(choice.value for choice in choices)
            raise self._error(
                f"{name} is '{self.cells[name]}'; it must be one of {known}"
            ) from None

    def _depth(self, layers: int) -> FreezeDepth:
        flag = self.cells.get("embeddings_frozen", "").lower()
        if flag not in (*_TRUE, *_FALSE, ""):
            raise self._error(
                f"embeddings_frozen is '{self.cells['embeddings_frozen']}'; it must be true or "
                "false"
            )
        text = self._text("frozen_layers")
        number = -1 if text.lower() == EMBEDDINGS else self._whole("frozen_layers", -1)
        assert number is not None
        if number != 0 and flag in _FALSE:
            raise self._error(f"frozen_layers is {text}, which freezes the embeddings, not false")
        if number > layers:
            raise self._error(f"frozen_layers is {text}, but the model has {layers} layers")
        return FreezeDepth(max(number, 0), number != 0 or flag in _TRUE)

    def _comparison(self) -> str:
        """What a table tells of the recipe beyond the columns that have a field of their own."""
        if self.cells.get("comparison"):
            return self.cells["comparison"]
        return f"epochs={self._whole('epochs', 1)}" if "epochs" in self.cells else ""


_EXTRAS: dict[str, Callable[[_Fields], Any]] = {
    "chance": lambda fields: fields._share("chance"),
    "metric": lambda fields: fields._text("metric").lower(),
    "selection": lambda fields: fields._text("selection"),
    "search": lambda fields: fields._text("search"),
    "learning_rate": _Fields._rate,
    "train_size": lambda fields: fields._whole("train_size", 1),
    "epochs": lambda fields: fields._whole("epochs", 1),
    "examples": lambda fields: fields._whole("examples", 1),
    "train_seconds": lambda fields: fields._number("train_seconds"),
    "peak_memory_mb": lambda fields: fields._number("peak_memory_mb"),
    "trainable_parameters": lambda fields: fields._whole("trainable_parameters", 0),
}


@dataclass(slots=True)
class _Seen:
    """What earlier lines said, so that a contradiction can name both lines."""

    path: Path
    layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    outcomes: dict[tuple[object, ...], tuple[object, int]] = field(default_factory=dict)

    def check(self, row: ResultRow, number: int) -> None:
        layers, line = self.layers.setdefault(row.model, (row.layers, number))
        if layers != row.layers:
            raise ResultsError(
                f"{self.path}, line {number}: {row.model} has {row.layers} layers, but {layers} in "
                "line "
                f"{line}; give different models different names"
            )
        if row.phase is not Phase.MEASURE or row.seed is None:
            return
        what = (row.model, row.task, row.train_size, row.metric, row.selection, row.comparison)
        key = (*what, row.search, row.depth, row.learning_rate, row.seed)
        outcome = (row.quality, row.status, row.runs)
        other, line = self.outcomes.setdefault(key, (outcome, number))
        if other != outcome:
            raise ResultsError(
                f"{self.path}, line {number}: the same depth, learning rate and seed ({row.seed}) "
                "as line "
                f"{line}, with another outcome; keep the right one"
            )
