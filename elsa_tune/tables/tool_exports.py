"""The tables that MLflow, Ray Tune and W&B export: how they are known, and what their columns mean.

Sources: `mlflow.search_runs().to_csv()`; `ResultGrid.get_dataframe().to_csv()`; the CSV of W&B's
runs table, and that of the example for its public API (name, config and summary, these as dicts).
"""

from __future__ import annotations

import ast
import enum
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsa_tune.errors import ResultsError
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tables.csv_lines import Line


class Tool(enum.StrEnum):
    """Who wrote a table."""

    MLFLOW = "MLflow"
    RAY = "Ray Tune"
    WANDB = "W&B"
    WANDB_API = "W&B's public API"


@dataclass(frozen=True, slots=True)
class _Naming:
    """Where a tool puts what: prefixes of parameters and of outcomes, in order of trust, and what
    separates nested names.
    """

    parameters: tuple[str, ...]
    outcomes: tuple[str, ...]
    separators: str


_NAMING = {
    Tool.MLFLOW: _Naming(("params.", "tags."), ("metrics.", "params.", "tags."), "./"),
    Tool.RAY: _Naming(("config/",), ("",), "/"),
    Tool.WANDB: _Naming(("",), ("",), "."),
    Tool.WANDB_API: _Naming(("config.",), ("summary.", "config."), "."),
}

# The column that `unfold` adds to Ray's table, named after what it is told from.
RAY_STATUS = "training_iteration and done"

_STATUS_COLUMNS = {
    # elsa-tune's own runs say more in the tag than MLflow's status can.
    Tool.MLFLOW: ("tags.status", "status"),
    Tool.RAY: ("status", RAY_STATUS),
    Tool.WANDB: ("State",),
    Tool.WANDB_API: ("state",),
}

# Other names of our columns. What is not here is found by its own name only.
SYNONYMS = {
    "model": ("model_name", "model_name_or_path", "pretrained_model_name_or_path", "base_model"),
    "task": ("task_name", "glue_task"),
    "layers": ("num_layers", "num_hidden_layers", "n_layers"),
    "frozen_layers": (
        *("frozen", "n_frozen", "num_frozen", "n_frozen_layers", "num_frozen_layers"),
        *("freeze_layers", "num_freeze_layers"),
    ),
    "learning_rate": ("lr",),
    "seed": ("random_seed",),
    "epochs": ("num_epochs", "num_train_epochs", "max_epochs", "n_epochs"),
    "train_size": ("max_train_samples", "num_train_examples"),
    "embeddings_frozen": ("freeze_embeddings",),
    "train_seconds": ("train_runtime", "time_total_s"),
    "trainable_parameters": ("trainable_params",),
}

_OUTCOMES = frozenset(
    {"quality", "std", "train_seconds", "peak_memory_mb", "trainable_parameters", "chance"}
)

_METRICS = {
    **{metric.value: metric.value for metric in Metric},
    **{"acc": "accuracy", "mcc": "matthews", "matthews_correlation": "matthews"},
    **{"matthews_corrcoef": "matthews", "pearsonr": "pearson", "spearmanr": "spearman"},
}
_METRIC_COLUMN = re.compile(
    rf"(?:.*_)?(?:(?:eval|val|valid|validation|dev|test)_)?({'|'.join(_METRICS)})"
)
_EVALUATED = re.compile(
    rf"(?:(?:eval|val|valid|validation|dev|test)_)?(?:{'|'.join(_METRICS)}|quality)"
)

# Statuses as the tools write them, in lower case.
STATUSES = {
    **{name: TrialStatus.COMPLETED for name in ("finished", "terminated")},
    **{name: TrialStatus.FAILED for name in ("crashed", "error")},
    **{
        name: TrialStatus.INTERRUPTED
        for name in ("killed", "preempted", "preempting", "paused", "stopped")
    },
    **{name: TrialStatus.PLANNED for name in ("pending", "scheduled")},
}


def recognise(header: Sequence[str]) -> Tool | None:
    """Whose export this is, by its header; None for any other table."""
    names = set(header)

    def any_begins(*prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in names)

    if "run_id" in names and any_begins("params.", "metrics."):
        return Tool.MLFLOW
    if "trial_id" in names and any_begins("config/"):
        return Tool.RAY
    if {"Name", "State"} <= names:
        return Tool.WANDB
    if {"name", "config", "summary"} <= names:
        return Tool.WANDB_API
    return None


def candidates(tool: Tool, header: Sequence[str], column: str) -> list[str]:
    """The columns of a tool's export that can be meant by one of ours, of equal standing."""
    if column == "status":
        return [name for name in _STATUS_COLUMNS[tool] if name in header][:1]
    naming = _NAMING[tool]
    for prefix in naming.outcomes if column in _OUTCOMES else naming.parameters:
        rests = {name: name.removeprefix(prefix) for name in header if name.startswith(prefix)}
        if column in rests.values():
            return [prefix + column]
        if column == "quality":
            found = [name for name, rest in rests.items() if _EVALUATED.fullmatch(_plain(rest))]
        else:
            last = {name: _last(rest, naming.separators) for name, rest in rests.items()}
            # A nested name of our own before what others call it.
            found = [name for name in last if last[name] == column] or [
                name for name in last if last[name] in SYNONYMS.get(column, ())
            ]
        if found:
            return found
    return []


def metric_of(column: str) -> str | None:
    """The metric that a column's name tells, e.g. `accuracy` of `metrics.eval_accuracy`."""
    found = _METRIC_COLUMN.fullmatch(_plain(column))
    return None if found is None else _METRICS[found[1]]


def unfold(
    path: Path, tool: Tool | None, header: list[str], lines: Iterable[Line]
) -> tuple[list[str], Iterable[Line], tuple[str, ...]]:
    """Header, lines and what to tell, once a tool's peculiarities are columns like any others."""
    if tool is Tool.WANDB_API:
        return (*_without_dicts(path, header, list(lines)), ())
    if tool is Tool.RAY and "training_iteration" in header and "status" not in header:
        return _with_ray_status(path, header, list(lines))
    return header, lines, ()


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _last(name: str, separators: str) -> str:
    return re.split(f"[{re.escape(separators)}]", name)[-1]


def _with_ray_status(
    path: Path, header: list[str], lines: list[Line]
) -> tuple[list[str], list[Line], tuple[str, ...]]:
    """Ray's table has every trial's last report, but not how the trial ended.

    With fewer reports than others it is no measurement: Tune stopped it where `done` is true (which
    is false too for functions that ran to their end), else it failed.
    """
    place, trial = header.index("training_iteration"), header.index("trial_id")
    done = header.index("done") if "done" in header else None
    reports = [_count(path, line, place) for line in lines]
    most = max(reports, default=0)
    seen: dict[str, int] = {}
    extended = []
    for line, count in zip(lines, reports, strict=True):
        name = line.cells[trial]
        if seen.setdefault(name, line.number) != line.number:
            raise ResultsError(
                f"{path}, line {line.number}: trial {name} is in line {seen[name]} already; this "
                "is a history with one row a report, and one row a trial is needed, which "
                "ResultGrid.get_dataframe() gives"
            )
        status = TrialStatus.COMPLETED
        if count < most:
            stopped = done is None or line.cells[done].lower() == "true"
            status = TrialStatus.STOPPED_EARLY if stopped else TrialStatus.FAILED
        extended.append(Line(line.number, [*line.cells, status.value]))
    told = f"complete is a trial with {most} reports, as the longest have"
    return [*header, RAY_STATUS], extended, (told,)


def _count(path: Path, line: Line, place: int) -> int:
    text = line.cells[place]
    if not (text.isascii() and text.isdigit()):
        raise ResultsError(
            f"{path}, line {line.number}: training_iteration is '{text}'; it must be a whole number"
        )
    return int(text)


def _without_dicts(
    path: Path, header: list[str], lines: list[Line]
) -> tuple[list[str], list[Line]]:
    """Each entry of the dicts in `config` and `summary` as a column, e.g. `config.seed`."""
    places = {name: header.index(name) for name in ("config", "summary")}
    unfolded = []
    for line in lines:
        cells = {
            name: cell
            for name, cell in zip(header, line.cells, strict=True)
            if name and name not in places
        }
        for name, place in places.items():
            cells |= dict(_flat(name, _dict(path, line.number, name, line.cells[place])))
        unfolded.append((line.number, cells))
    columns = list(dict.fromkeys(name for _, cells in unfolded for name in cells))
    return columns, [
        Line(number, [cells.get(name, "") for name in columns]) for number, cells in unfolded
    ]


def _dict(path: Path, number: int, name: str, text: str) -> Mapping[str, Any]:
    """A dict as Python or JSON prints it; raises ResultsError for anything else."""
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text or "{}")
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    raise ResultsError(f"{path}, line {number}: {name} is not a dict of names and values")


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif value is not None:
        yield name, str(value)
