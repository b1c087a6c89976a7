"""One line of a results table as a row: every cell read, judged, and complained of by its line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    FiniteFloat,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from elsa_tune.errors import ResultsError
from elsa_tune.specs.checked import problems
from elsa_tune.specs.freeze import EMBEDDINGS, FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, Rate, TrialStatus, canonical_rate

REQUIRED = ("model", "task", "layers", "frozen_layers", "quality")

# Statuses as other tools write them, in lower case.
_STATUSES = {
    **dict.fromkeys(("finished", "terminated"), "completed"),
    **dict.fromkeys(("crashed", "error"), "failed"),
    **dict.fromkeys(("killed", "preempted", "preempting", "paused", "stopped"), "interrupted"),
    **dict.fromkeys(("pending", "scheduled"), "planned"),
}


def _number(text: str) -> float | str:
    """Whole numbers too: a table tool that meets an empty cell writes 3.0, and R writes 1e+05."""
    try:
        return float(text)
    except ValueError:
        return text


def _share(value: float, info: ValidationInfo) -> float:
    """A fraction. The context says whether the table has percentages."""
    percent = info.context
    if not math.isfinite(value):
        raise ValueError(
            f"must be a finite number, not {value:g}; a run that diverged has status diverged and "
            "an empty quality"
        )
    if abs(value) > (100 if percent else 1):
        hint = "; for percentages add `scale` percent" if abs(value) <= 100 else ""
        limit = "a percentage, at most 100" if percent else "a fraction, at most 1"
        raise ValueError(f"must be {limit}, not {value:g}{hint}")
    # Division, not * .01: 58.3 / 100 is the float .583 itself.
    return value / 100 if percent else value


def _layers(text: str) -> float | str:
    return -1 if text.lower() == EMBEDDINGS else _number(text)


Whole = Annotated[int, BeforeValidator(_number)]
Count = Annotated[Whole, Ge(1)]
Frozen = Annotated[int, BeforeValidator(_layers)]
Share = Annotated[float, AfterValidator(_share)]
Status = Annotated[
    TrialStatus, BeforeValidator(lambda text: _STATUSES.get(text.lower(), text.lower()))
]


class Cells(BaseModel):
    """The cells of a line, by our names of the columns; empty ones are left out."""

    model: str
    task: str
    layers: Count
    frozen_layers: Annotated[Frozen, Ge(-1)]
    quality: Share | None = None
    seed: Annotated[Whole, Ge(0)] | None = None
    runs: Count | None = None
    learning_rate: Annotated[Rate, AfterValidator(canonical_rate)] | None = None
    train_size: Count | None = None
    status: Status = TrialStatus.COMPLETED
    phase: Annotated[Phase, BeforeValidator(str.lower)] | None = None
    embeddings_frozen: bool | None = None
    chance: Share | None = None
    metric: Annotated[str, AfterValidator(str.lower)] | None = None
    std: Annotated[Share, Ge(0)] | None = None
    epochs: Count | None = None
    selection: str | None = None
    search: str | None = None
    comparison: str = ""
    examples: Count | None = None
    train_seconds: FiniteFloat | None = None
    peak_memory_mb: FiniteFloat | None = None
    trainable_parameters: Annotated[Whole, Ge(0)] | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> Cells:
        frozen = self.frozen_layers
        if frozen != 0 and self.embeddings_frozen is False:
            raise ValueError(
                f"frozen_layers is {frozen}, which freezes the embeddings, but embeddings_frozen "
                "is false"
            )
        if frozen > self.layers:
            raise ValueError(f"frozen_layers is {frozen}, but the model has {self.layers} layers")
        if self.runs is None and self.seed is None:
            raise ValueError("it needs a seed, or runs for the mean of several runs")
        if self.quality is None and self.status is TrialStatus.COMPLETED:
            raise ValueError("quality is empty; a completed run has one")
        if self.std is not None and self.runs in (None, 1):
            raise ValueError(
                "std is given for a single run; give runs, how many runs the row is the mean of, "
                "or leave std empty"
            )
        return self

    def row(self) -> ResultRow:
        """The row. What a table tells of the recipe beyond the columns that have a field of their
        own goes into its comparison.
        """
        stopped = self.status is TrialStatus.STOPPED_EARLY
        values: dict[str, Any] = dict(self)
        frozen, embeddings = values.pop("frozen_layers"), values.pop("embeddings_frozen")
        values["depth"] = FreezeDepth(max(frozen, 0), frozen != 0 or bool(embeddings))
        values["phase"] = self.phase or (Phase.EXPLORE if stopped else Phase.MEASURE)
        values["runs"] = self.runs or 1
        if not self.comparison and self.epochs is not None:
            values["comparison"] = f"epochs={self.epochs}"
        return ResultRow(**values)


COLUMNS = tuple(Cells.model_fields)


def read_row(path: Path, number: int, cells: Mapping[str, str], percent: bool) -> ResultRow:
    """The row of line `number`, from its cells by our names, empty ones left out.

    percent: quality, std and chance are percentages, else fractions. Raises ResultsError with all
    that is wrong with the line.
    """
    try:
        return Cells.model_validate(cells, context=percent).row()
    except ValidationError as error:
        raise ResultsError(f"{path}, line {number}: {problems(error)}") from error
