"""One line of a results table as a row: every cell read, judged, and complained of by its line.

It must not know where a cell stood in the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from elsa_tune.errors import ResultsError, SpaceError
from elsa_tune.specs.freeze import EMBEDDINGS, FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus, canonical_rate
from elsa_tune.tables.tool_exports import STATUSES

REQUIRED = ("model", "task", "layers", "frozen_layers", "quality")
OPTIONAL = (
    *("seed", "runs", "learning_rate", "train_size", "status", "phase", "embeddings_frozen"),
    *("chance", "metric", "std", "epochs", "selection", "search", "comparison", "examples"),
    *("train_seconds", "peak_memory_mb", "trainable_parameters"),
)
COLUMNS = (*REQUIRED, *OPTIONAL)

_Choice = TypeVar("_Choice", TrialStatus, Phase)

_FALSE, _TRUE = ("false", "no", "0"), ("true", "yes", "1")


@dataclass(frozen=True, slots=True)
class Fields:
    """The cells of one line by column name, empty ones left out.

    Every reader of a cell complains with the line's number.
    """

    path: Path
    number: int
    cells: Mapping[str, str]
    percent: bool

    def row(self, extras: Sequence[str]) -> ResultRow:
        """The row; extras: those columns of the table that are only read, not judged together."""
        status = self._status()
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
            **{name: EXTRAS[name](self) for name in extras if name in self.cells},
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
            hint = "; for percentages add `scale` percent" if is_percentage else ""
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

    def _status(self) -> TrialStatus:
        """Ours, or what another tool calls it."""
        known = STATUSES.get(self.cells.get("status", "").lower())
        return known or self._choice("status", TrialStatus) or TrialStatus.COMPLETED

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


EXTRAS: dict[str, Callable[[Fields], Any]] = {
    "chance": lambda fields: fields._share("chance"),
    "metric": lambda fields: fields._text("metric").lower(),
    "selection": lambda fields: fields._text("selection"),
    "search": lambda fields: fields._text("search"),
    "learning_rate": Fields._rate,
    "train_size": lambda fields: fields._whole("train_size", 1),
    "epochs": lambda fields: fields._whole("epochs", 1),
    "examples": lambda fields: fields._whole("examples", 1),
    "train_seconds": lambda fields: fields._number("train_seconds"),
    "peak_memory_mb": lambda fields: fields._number("peak_memory_mb"),
    "trainable_parameters": lambda fields: fields._whole("trainable_parameters", 0),
}
