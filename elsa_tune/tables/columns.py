"""Where each of our columns comes from: its own name, what the user said, or a tool's habit.

The tools' tables: `mlflow.search_runs().to_csv()`; `ResultGrid.get_dataframe().to_csv()` of Ray
Tune; the CSV of W&B's runs table.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.errors import ResultsError, UnknownNameError, UsageError
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tables.result_fields import COLUMNS, REQUIRED
from elsa_tune.tables.table_file import Row

# A header of an export can have hundreds.
SHOWN_COLUMNS = 20


class Tool(enum.StrEnum):
    """Who wrote a table."""

    MLFLOW = "MLflow"
    RAY = "Ray Tune"
    WANDB = "W&B"


@dataclass(frozen=True, slots=True)
class _Naming:
    """Where a tool puts what: prefixes of parameters and of outcomes, in order of trust, what
    separates nested names, and the columns of the status.
    """

    parameters: tuple[str, ...]
    outcomes: tuple[str, ...]
    separators: str
    statuses: tuple[str, ...]


# The column that is added to Ray's table, named after what it is told from.
RAY_STATUS = "training_iteration and done"

_NAMING = {
    # elsa-tune's own runs say more in the tag than MLflow's status can.
    Tool.MLFLOW: _Naming(
        ("params.", "tags."), ("metrics.", "params.", "tags."), "./", ("tags.status", "status")
    ),
    Tool.RAY: _Naming(("config/",), ("",), "/", ("status", RAY_STATUS)),
    Tool.WANDB: _Naming(("",), ("",), ".", ("State",)),
}

# Other names of our columns. What is not here is found by its own name only.
_SYNONYMS = {
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
# Those of a table by hand, for the hint when one is missing.
_LOOKALIKES = _SYNONYMS | {
    "quality": ("mean_accuracy", "accuracy", "score", "value", "quality_percent", "eval_accuracy"),
    "frozen_layers": ("frozen", "n_frozen", "freeze", "frozen_layer"),
    "seed": ("random_seed", "seeds"),
}

_OUTCOMES = frozenset(
    {"quality", "std", "train_seconds", "peak_memory_mb", "trainable_parameters", "chance"}
)

_METRICS = {
    **{metric.value: metric.value for metric in Metric},
    **{"acc": "accuracy", "mcc": "matthews", "matthews_correlation": "matthews"},
    **{"matthews_corrcoef": "matthews", "pearsonr": "pearson", "spearmanr": "spearman"},
}
_SPLIT = "(?:(?:eval|val|valid|validation|dev|test)_)?"
_METRIC_COLUMN = re.compile(rf"(?:.*_)?{_SPLIT}({'|'.join(_METRICS)})")
_EVALUATED = re.compile(rf"{_SPLIT}(?:{'|'.join(_METRICS)}|quality)")


def read_mapping(texts: Sequence[str]) -> dict[str, str]:
    """What the user said of our columns: the name of the table's, or `=` and a value for all rows.

    texts: `OURS=THEIRS`, or `OURS==VALUE` for a value that the table does not have. Raises
    UsageError for any other text or a column named twice, UnknownNameError for a column that is not
    ours.
    """
    mapping: dict[str, str] = {}
    for text in texts:
        column, _, rest = text.partition("=")
        if not column or rest in ("", "="):
            raise UsageError(
                f"`map` is '{text}'; it must be OURS=THEIRS, as in "
                "frozen_layers=config/frozen, or OURS==VALUE, as in model==bert_base"
            )
        if column not in COLUMNS:
            raise UnknownNameError.among("column", column, COLUMNS, hint="It is in `map`.")
        if column in mapping:
            raise UsageError(f"`map` names {column} twice; leave one out")
        mapping[column] = rest
    return mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where in a line each of our columns stands.

    places: index of the cell. constants: the value of columns without one. told: one line per
    column, for the reader; () where a table has our names and nothing was mapped.
    """

    places: Mapping[str, int]
    constants: Mapping[str, str]
    told: tuple[str, ...]

    def cells(self, line: Sequence[str]) -> dict[str, str]:
        """The cells of a line by our names, empty ones left out."""
        found = {name: line[place] for name, place in self.places.items() if line[place]}
        return {**found, **self.constants}


def recognise(header: Sequence[str]) -> Tool | None:
    """Whose export this is, by its header; None for any other table."""

    def any_begins(*prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in header)

    if "run_id" in header and any_begins("params.", "metrics."):
        return Tool.MLFLOW
    if "trial_id" in header and any_begins("config/"):
        return Tool.RAY
    return Tool.WANDB if {"Name", "State"} <= set(header) else None


def lay_out(
    path: Path, header: Sequence[str], mapping: Mapping[str, str], tool: Tool | None
) -> Layout:
    """Find our columns in a header. mapping: as `read_mapping` gives it.

    What the user said counts first, then what a recognised tool's names mean, then our own names.
    Raises ResultsError where a needed column is missing or stands twice, or where several of a
    tool's columns can be meant; UnknownNameError where the user named one that is not there.
    """
    separator = next((s for s in ";\t|" if s in header[0]), "") if len(header) == 1 else ""
    if separator:
        name = {"\t": "tabs"}.get(separator, f"'{separator}'")
        raise ResultsError(f"{path}, line 1: columns are separated by {name}; use commas")
    constants = {ours: said[1:] for ours, said in mapping.items() if said.startswith("=")}
    sources: dict[str, str] = {}
    for column in COLUMNS:
        if column in mapping and column not in constants:
            sources[column] = _named(path, header, mapping[column])
        elif column not in constants and (found := _found(path, header, column, tool)):
            sources[column] = found
    _require(path, header, {*sources, *constants}, tool)
    told = [f"{ours} <- {theirs}" for ours, theirs in sources.items()]
    told += [f"{ours} <- '{value}' in every row" for ours, value in constants.items()]
    quality = sources.get("quality", "")
    metric = metric_of(quality)
    if metric is not None and "metric" not in {*sources, *constants}:
        constants["metric"] = metric
        told.append(f"metric <- '{metric}', by the name of {quality}")
    return Layout(
        places={ours: header.index(theirs) for ours, theirs in sources.items()},
        constants=constants,
        told=() if tool is None and not mapping else tuple(told),
    )


def _named(path: Path, header: Sequence[str], name: str) -> str:
    """The column that the user named, in whatever case."""
    alike = [theirs for theirs in header if theirs.lower() == name.lower()]
    if name in header or len(alike) == 1:
        return name if name in header else alike[0]
    raise UnknownNameError.among("column", name, header, hint=f"Looked in {path}.")


def _found(path: Path, header: Sequence[str], column: str, tool: Tool | None) -> str | None:
    """The column that a tool's habit or our own name tells."""
    found = [] if tool is None else candidates(tool, header, column)
    if len(found) > 1:
        raise ResultsError(
            f"{path}, line 1: {column} can be {' or '.join(found)}; choose one, as in `map` "
            f"{column}={found[0]}"
        )
    own = [name for name in header if name.lower() == column]
    if len(own) > 1 and not found:
        raise ResultsError(f"{path}, line 1: column {column} occurs more than once")
    return next(iter([*found, *own]), None)


def _require(path: Path, header: Sequence[str], found: set[str], tool: Tool | None) -> None:
    missing = [name for name in REQUIRED if name not in found]
    if not found & {"seed", "runs"}:
        missing.append("seed (one row a run) or runs (a row is the mean of so many)")
    if not missing:
        return
    names = [name.split()[0] for name in missing]
    known = [name.lower() for name in header]
    alike = [(n, other) for n in names for other in _LOOKALIKES.get(n, ()) if other in known]
    if alike:
        name, other = alike[0]
        hint = f"Is {other} the {name}? Then add `map` {name}={other}."
    elif names == ["seed"]:
        hint = "Name it with `map` seed=COLUMN; without one, `map` runs==1 says a row is a run."
    else:
        hint = (
            f"Name another column with `map` {names[0]}=COLUMN, or a value for all rows with "
            f"`map` {names[0]}==VALUE."
        )
    shown = ", ".join(header[:SHOWN_COLUMNS])
    if len(header) > SHOWN_COLUMNS:
        shown += f" and {len(header) - SHOWN_COLUMNS} more"
    export = "" if tool is None else f" of an export from {tool}"
    raise ResultsError(
        f"{path}, line 1{export}: missing columns {', '.join(missing)}; it has {shown}. {hint}"
    )


def candidates(tool: Tool, header: Sequence[str], column: str) -> list[str]:
    """The columns of a tool's export that can be meant by one of ours, of equal standing."""
    naming = _NAMING[tool]
    if column == "status":
        return [name for name in naming.statuses if name in header][:1]
    for prefix in naming.outcomes if column in _OUTCOMES else naming.parameters:
        rests = {name: name.removeprefix(prefix) for name in header if name.startswith(prefix)}
        if column in rests.values():
            return [prefix + column]
        if column == "quality":
            found = [name for name, rest in rests.items() if _EVALUATED.fullmatch(_plain(rest))]
        else:
            nested = f"[{re.escape(naming.separators)}]"
            last = {name: re.split(nested, rest)[-1] for name, rest in rests.items()}
            # A nested name of our own before what others call it.
            found = [name for name in last if last[name] == column] or [
                name for name in last if last[name] in _SYNONYMS.get(column, ())
            ]
        if found:
            return found
    return []


def metric_of(column: str) -> str | None:
    """The metric that a column's name tells, e.g. `accuracy` of `metrics.eval_accuracy`."""
    found = _METRIC_COLUMN.fullmatch(_plain(column))
    return None if found is None else _METRICS[found[1]]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def with_ray_status(
    path: Path, header: Sequence[str], lines: Iterable[Row]
) -> tuple[list[str], list[Row], str]:
    """Header and lines with a column of how each trial ended, and what to tell of it.

    Ray's table has every trial's last report alone. With fewer reports than others it is no
    measurement: Tune stopped it where `done` is true (which is false too for functions that ran to
    their end), else it failed. Raises ResultsError for a history, with one row a report.
    """
    rows = list(lines)
    place, trial = header.index("training_iteration"), header.index("trial_id")
    done = header.index("done") if "done" in header else None
    reports = []
    seen: dict[str, int] = {}
    for number, cells in rows:
        name, count = cells[trial], cells[place]
        if seen.setdefault(name, number) != number:
            raise ResultsError(
                f"{path}, line {number}: trial {name} is in line {seen[name]} already; this "
                "is a history with one row a report, and one row a trial is needed, which "
                "ResultGrid.get_dataframe() gives"
            )
        if not (count.isascii() and count.isdigit()):
            raise ResultsError(
                f"{path}, line {number}: training_iteration is '{count}'; it must be a whole number"
            )
        reports.append(int(count))
    most = max(reports, default=0)
    extended = []
    for (number, cells), done_reports in zip(rows, reports, strict=True):
        is_stopped = done is None or cells[done].lower() == "true"
        ended = TrialStatus.STOPPED_EARLY if is_stopped else TrialStatus.FAILED
        status = TrialStatus.COMPLETED if done_reports == most else ended
        extended.append((number, [*cells, status.value]))
    told = f"complete is a trial with {most} reports, as the longest have"
    return [*header, RAY_STATUS], extended, told
