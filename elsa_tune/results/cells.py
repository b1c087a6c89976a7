"""One line of a results table as a row: its cells by our columns, checked."""

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from elsa_tune.errors import ResultsError, SpaceError
from elsa_tune.results.columns import (
    CANDIDATE,
    EARLIER,
    FINDINGS,
    LARGER_IS_BETTER,
    LOOKS,
    METHOD,
    POLICY,
    UNITS,
    is_better_when_lower,
    metric_names,
)
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import (
    method_name,
    read_candidate,
    read_way,
    recorded_candidate,
)
from elsa_tune.specs.checked import problems
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.looks_text import read_looks
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.rate_space import canonical_rate
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.search import Earlier, Looks
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import Phase, TrialStatus

# Columns of qualities, which may be in percent.
_SHARES = ("quality", "chance", "std")
_NUMBERS = (
    *_SHARES,
    "layers",
    "seed",
    "runs",
    "learning_rate",
    "train_size",
    "epochs",
    "examples",
    "train_seconds",
    "peak_memory_mb",
    "trainable_parameters",
    "evaluation_units",
    "planned_target",
)
# The largest fraction: other tools round, so that 1.0000000000000002 is 1.
_ONE = 1 + 1e-6
_COSTS = ("train_seconds", "peak_memory_mb")
# What `method` may say of a row whose depth has a column of its own.
_FREEZING = ("freeze", "freezing", "frozen", "layer freezing", "partial fine tuning")
_ROW = TypeAdapter(ResultRow)
_POLICY = TypeAdapter(Policy)
_FINDINGS = TypeAdapter(tuple[RowFinding, ...])
_EARLIER = TypeAdapter(Earlier)
# How MLflow shows what is not known.
_NONE = "none"

# Statuses as MLflow and Ray write them, in lower case.
_STATUSES = {
    "finished": "completed",
    "terminated": "completed",
    "error": "failed",
    "killed": "interrupted",
    "paused": "interrupted",
    "pending": "planned",
    "scheduled": "planned",
}


def read_row(path: Path, number: int, cells: Mapping[str, str], percent: bool) -> ResultRow:
    """Return the row of line `number`, from its cells by our names, empty ones left out.

    percent: quality, std and chance are in percent. Raises ResultsError with what is wrong.
    """
    try:
        row = _ROW.validate_python(_values(cells, percent))
        if "seed" not in cells and "runs" not in cells:
            raise ValueError("it needs a seed, or runs for the mean of several runs")
        if row.quality is None and row.status is TrialStatus.COMPLETED:
            raise ValueError("quality is empty; a completed run has one")
        for name in _COSTS:
            cost = getattr(row, name)
            if cost is not None and cost < 0:
                raise ValueError(f"field '{name}' must be 0 or more, not {cost:g}")
        _check_range(row)
        _check_units(row)
        if row.std is not None and row.runs == 1:
            raise ValueError(
                "std is given for a single run; give runs, how many runs the row is the mean of, "
                "or leave std empty"
            )
        return row
    except (ValueError, SpaceError) as error:
        raise ResultsError(f"{path}, line {number}: {problems(error)}") from error


def _check_range(row: ResultRow) -> None:
    """Raise ValueError where a quality, or chance, is lower than its metric can be."""
    metric = Metric.named(row.metric)
    if metric is None:
        return
    for name, value in (("quality", row.quality), ("chance", row.chance)):
        if value is not None and value < metric.lowest:
            raise ValueError(
                f"field '{name}' must be {metric.lowest:g} or more for {metric.words}, not "
                f"{value:g}; a run that diverged has status diverged and an empty quality"
            )


def _check_units(row: ResultRow) -> None:
    """Raise ValueError where there are more independent units than examples to make them of."""
    if row.examples is None or row.evaluation_units is None:
        return
    if row.evaluation_units > row.examples:
        raise ValueError(
            f"evaluation_units is {row.evaluation_units:,}, but examples is {row.examples:,}; a "
            "unit is one or more of the examples, so give no more units than examples"
        )


def _values(cells: Mapping[str, str], percent: bool) -> dict[str, Any]:
    """Return the fields of a row; what has no field of its own goes into `comparison`."""
    values: dict[str, Any] = {"quality": None, "phase": "", "status": "completed", **cells}
    values[LOOKS] = _looks(values.get(LOOKS, _NONE))
    if str(values.get(UNITS, _NONE)).lower() == _NONE:
        values[UNITS] = None
    if POLICY in values:
        values["policy"] = _policy(values.pop(POLICY))
    if FINDINGS in values:
        values["findings"] = _findings(values.pop(FINDINGS))
    if EARLIER in values:
        values["earlier"] = _earlier(values.pop(EARLIER))
    for name in _NUMBERS:
        if values.get(name) is not None:
            values[name] = _number(name, values[name], percent)
    told = _candidate(
        values.pop("frozen_layers", None),
        values.pop("embeddings_frozen", None),
        values.pop(CANDIDATE, None),
    )
    method = values.pop(METHOD, None)
    if method is not None:
        values.setdefault("layers", None)
    values["candidate"] = _with_method(told, method, values.get("layers"))
    if "learning_rate" in values:
        values["learning_rate"] = canonical_rate(values["learning_rate"])
    status = values["status"].lower()
    values["status"] = _STATUSES.get(status, status)
    # Where a table names no phases, a run that was stopped early is one of those that measure: what
    # stopped it is how it scored, and the rest are the better ones.
    values["phase"] = values["phase"].lower() or Phase.MEASURE
    if "metric" in values:
        if is_better_when_lower(values["metric"]):
            raise ValueError(f"metric is '{values['metric']}', {LARGER_IS_BETTER}")
        metric = values["metric"].lower()
        values["metric"] = metric_names().get(metric, metric)
    if "epochs" in values:
        values["comparison"] = _with_epochs(values.get("comparison", ""), values["epochs"])
    return values


def _with_epochs(comparison: str, epochs: object) -> str:
    """Return a comparison that also tells the epochs, so that unlike ones are never pooled."""
    told = ("epochs", str(epochs))
    if told in Comparison.read(comparison).values:
        return comparison
    with_epochs = f"epochs={epochs}"
    return f"{comparison}, {with_epochs}" if comparison else with_epochs


@functools.lru_cache(maxsize=1000)
def _looks(text: str) -> Looks | None:
    """Return when a row's depth is tested, None where that is not said. Raises SpaceError."""
    if text.lower() == _NONE:
        return None
    return read_looks(text)


@functools.lru_cache(maxsize=100)
def _policy(text: str) -> Policy:
    """Return the policy that a row's search was planned by.

    In one thing a table is answered by this version's, whatever its search was planned by: it has
    no predictions, and scores alone do not tell how far other examples would move them.
    """
    return replace(_POLICY.validate_json(text), by_seeds_alone=Policy().by_seeds_alone)


@functools.lru_cache(maxsize=100)
def _findings(text: str) -> tuple[RowFinding, ...]:
    """Return what is odd about the rows of a row's task. Raises ValueError."""
    return _FINDINGS.validate_json(text)


@functools.lru_cache(maxsize=100)
def _earlier(text: str) -> Earlier:
    """Return the searches that asked the same before a row's own. Raises ValueError."""
    return _EARLIER.validate_json(text)


def _of_label(label: str) -> Candidate:
    """Return the candidate of a label. Raises SpaceError."""
    try:
        return read_candidate(label, field=CANDIDATE)
    except SpaceError as error:
        raise SpaceError(
            f"{error}; a way of another package is known where that is installed"
        ) from error


@functools.lru_cache(maxsize=1000)
def _candidate(frozen: str | None, embeddings: str | None, label: str | None) -> Candidate | None:
    """Return the candidate that three cells tell, each None where it is empty; None for none.

    frozen: layers, where -1 stands for embeddings-only, or another candidate's label. label: of the
    candidate, where `frozen` is empty or says the same. Raises ValueError and SpaceError.
    """
    labelled = None
    if label is not None:
        labelled = _of_label(label)
    if frozen is None:
        return labelled
    told = _told_by_depth(frozen, embeddings)
    if labelled is not None and labelled != told:
        raise ValueError(
            f"candidate is '{label}', but frozen_layers says '{told.label}'; leave empty what does "
            "not say how this run was trained"
        )
    return told


def _told_by_depth(frozen: str, embeddings: str | None) -> Candidate:
    """Return the candidate that the cells of a depth tell. Raises ValueError and SpaceError."""
    try:
        number = float(frozen)
    except ValueError:
        return read_candidate(frozen)
    if not number.is_integer():
        raise ValueError(f"field 'frozen_layers' must be a whole number, not {frozen}")
    if number == -1:
        return recorded_candidate({"frozen_layers": 0, "embeddings_frozen": True})
    recorded: dict[str, Any] = {"frozen_layers": int(number)}
    if embeddings is not None:
        recorded["embeddings_frozen"] = embeddings
    return recorded_candidate(recorded)


def _with_method(told: Candidate | None, method: str | None, layers: object) -> Candidate:
    """Return the candidate that `method` names, or that other cells told in agreement with it.

    method: the cell, None where it is empty. layers: the cell's number, if it has one. Raises
    ValueError where nothing names a candidate, or two cells name different ones.
    """
    if method is None:
        if told is None:
            raise ValueError(
                "field 'frozen_layers' is missing; write the depth there, or in a column method "
                "how the model was adapted"
            )
        return told
    name = method_name(method)
    is_freezing = name in _FREEZING
    known_layers = layers if isinstance(layers, int) else None
    if told is None:
        if is_freezing:
            raise ValueError(f"method is '{method}', and frozen_layers does not say how many")
        return read_way(method, known_layers)
    if is_freezing and told.is_depth:
        return told
    names = [method_name(told.method), *map(method_name, told.method_names(known_layers))]
    way = read_way(method, known_layers)
    is_told = way == told or method == told.label or name in names
    if not is_told:
        raise ValueError(
            f"method is '{method}', but frozen_layers or candidate says '{told.label}'; leave "
            "empty what does not say how this run was trained"
        )
    return told


def _number(name: str, text: str, percent: bool) -> float | str:
    """Return a number, of a quality as a fraction; what is none stays a text.

    Whole numbers may have decimals: a table tool that meets an empty cell writes 3.0, and R writes
    1e+05.
    """
    try:
        value = float(text)
    except ValueError:
        return text
    if not math.isfinite(value):
        hint = ""
        if name == "quality":
            hint = "; a run that diverged has status diverged and an empty quality"
        raise ValueError(f"field '{name}' must be a finite number, not {text}{hint}")
    if name not in _SHARES:
        return int(value) if value.is_integer() else value
    if percent:
        if abs(value) > 100 * _ONE:
            raise ValueError(f"field '{name}' must be a percentage, at most 100, not {text}")
        # As decimals, so that 84.4 becomes .844 itself: 84.4 / 100 is another float.
        value = float(Decimal(text) / 100)
    if abs(value) > _ONE:
        hint = "; for percentages add `scale` percent" if abs(value) <= 100 else ""
        raise ValueError(f"field '{name}' must be a fraction, at most 1, not {text}{hint}")
    return max(-1.0, min(value, 1.0))
