"""One line of a results table as a row: every cell read, judged, and complained of by its line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from elsa_tune.errors import ResultsError
from elsa_tune.specs.checked import problems
from elsa_tune.specs.freeze import EMBEDDINGS, FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus, canonical_rate

REQUIRED = ("model", "task", "layers", "frozen_layers", "quality")
COLUMNS = (
    *REQUIRED,
    *("seed", "runs", "learning_rate", "train_size", "status", "phase", "embeddings_frozen"),
    *("chance", "metric", "std", "epochs", "selection", "search", "comparison", "examples"),
    *("train_seconds", "peak_memory_mb", "trainable_parameters"),
)
_SHARES = ("quality", "chance", "std")
_NUMBERS = (
    *(*_SHARES, "layers", "frozen_layers", "seed", "runs", "learning_rate", "train_size"),
    *("epochs", "examples", "train_seconds", "peak_memory_mb", "trainable_parameters"),
)
_ROW = TypeAdapter(ResultRow)

# Statuses as other tools write them, in lower case.
_STATUSES = {
    **dict.fromkeys(("finished", "terminated"), "completed"),
    **dict.fromkeys(("crashed", "error"), "failed"),
    **dict.fromkeys(("killed", "paused"), "interrupted"),
    **dict.fromkeys(("pending", "scheduled"), "planned"),
}


def read_row(path: Path, number: int, cells: Mapping[str, str], percent: bool) -> ResultRow:
    """The row of line `number`, from its cells by our names, empty ones left out.

    percent: quality, std and chance are percentages, else fractions. Raises ResultsError with what
    is wrong with the line.
    """
    try:
        row = _ROW.validate_python(_values(cells, percent))
        if not cells.keys() & {"seed", "runs"}:
            raise ValueError("it needs a seed, or runs for the mean of several runs")
        if row.quality is None and row.status is TrialStatus.COMPLETED:
            raise ValueError("quality is empty; a completed run has one")
        if row.std is not None and row.runs == 1:
            raise ValueError(
                "std is given for a single run; give runs, how many runs the row is the mean of, "
                "or leave std empty"
            )
        return row
    except ValueError as error:
        is_ours = not isinstance(error, ValidationError)
        why = error if is_ours else problems(error, inlined="depth")
        raise ResultsError(f"{path}, line {number}: {why}") from error


def _values(cells: Mapping[str, str], percent: bool) -> dict[str, Any]:
    """The fields of a row. What a table tells of the recipe beyond the columns that have a field of
    their own goes into its comparison.
    """
    values: dict[str, Any] = {"quality": None, "phase": "", "status": "completed", **cells}
    if values.get("frozen_layers", "").lower() == EMBEDDINGS:
        values["frozen_layers"] = "-1"
    for name in _NUMBERS:
        if values.get(name) is not None:
            values[name] = _number(name, values[name], percent)
    if "learning_rate" in values:
        values["learning_rate"] = canonical_rate(values["learning_rate"])
    frozen = values.pop("frozen_layers", None)
    depth = {"embeddings_frozen": values.pop("embeddings_frozen", frozen != 0)}
    if frozen is not None:
        depth["frozen_layers"] = frozen
    values["depth"] = FreezeDepth(0, True) if frozen == -1 else depth
    status = values["status"].lower()
    values["status"] = _STATUSES.get(status, status)
    stopped = values["status"] == TrialStatus.STOPPED_EARLY
    values["phase"] = values["phase"].lower() or (Phase.EXPLORE if stopped else Phase.MEASURE)
    if "metric" in values:
        values["metric"] = values["metric"].lower()
    if "epochs" in values:
        values.setdefault("comparison", f"epochs={values['epochs']}")
    return values


def _number(name: str, text: str, percent: bool) -> float | str:
    """A number, of a quality as a fraction; what is none stays a text. Whole numbers too: a table
    tool that meets an empty cell writes 3.0, and R writes 1e+05.
    """
    try:
        value = float(text)
    except ValueError:
        return text
    if not math.isfinite(value):
        hint = "; a run that diverged has status diverged and an empty quality"
        raise ValueError(
            f"field '{name}' must be a finite number, not {text}{hint * (name == 'quality')}"
        )
    if name not in _SHARES:
        return int(value) if value.is_integer() else value
    if abs(value) > (100 if percent else 1):
        hint = "; for percentages add `scale` percent" if abs(value) <= 100 else ""
        limit = "a percentage, at most 100" if percent else "a fraction, at most 1"
        raise ValueError(f"field '{name}' must be {limit}, not {value:g}{hint}")
    # Division, not * .01: 58.3 / 100 is the float .583 itself.
    return value / 100 if percent else value
