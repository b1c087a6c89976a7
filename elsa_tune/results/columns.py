"""A results table's columns: what ours hold, and where each stands in a table of any tool."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from elsa_tune.errors import ResultsError, UnknownNameError, UsageError
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import read_candidate
from elsa_tune.specs.checked import problems
from elsa_tune.specs.freeze import EMBEDDINGS, FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import Phase, TrialStatus, canonical_rate

REQUIRED = ("model", "task", "layers", "frozen_layers", "quality")
COLUMNS = (
    *REQUIRED,
    "seed",
    "runs",
    "learning_rate",
    "train_size",
    "status",
    "phase",
    "embeddings_frozen",
    "chance",
    "metric",
    "std",
    "epochs",
    "selection",
    "search",
    "comparison",
    "examples",
    "train_seconds",
    "peak_memory_mb",
    "trainable_parameters",
)
# The label of a row's candidate, where that is of another method than freezing.
CANDIDATE = "candidate"
_SHARES = ("quality", "chance", "std")
_NUMBERS = (
    *_SHARES,
    "layers",
    "frozen_layers",
    "seed",
    "runs",
    "learning_rate",
    "train_size",
    "epochs",
    "examples",
    "train_seconds",
    "peak_memory_mb",
    "trainable_parameters",
)
_ROW = TypeAdapter(ResultRow)
_FREEZE_DEPTH = TypeAdapter(FreezeDepth)

# Statuses as other tools write them, in lower case.
_STATUSES = {
    **dict.fromkeys(("finished", "terminated"), "completed"),
    **dict.fromkeys(("crashed", "error"), "failed"),
    **dict.fromkeys(("killed", "paused"), "interrupted"),
    **dict.fromkeys(("pending", "scheduled"), "planned"),
}


def read_row(path: Path, number: int, cells: Mapping[str, str], percent: bool) -> ResultRow:
    """Return the row of line `number`, from its cells by our names, empty ones left out.

    percent: quality, std and chance are in percent. Raises ResultsError with what is wrong.
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
        why = problems(error, inlined="depth")
        raise ResultsError(f"{path}, line {number}: {why}") from error


def _values(cells: Mapping[str, str], percent: bool) -> dict[str, Any]:
    """The fields of a row; what has no field of its own goes into `comparison`."""
    values: dict[str, Any] = {"quality": None, "phase": "", "status": "completed", **cells}
    if values.get("frozen_layers", "").lower() == EMBEDDINGS:
        values["frozen_layers"] = "-1"
    for name in _NUMBERS:
        if values.get(name) is not None:
            values[name] = _number(name, values[name], percent)
    if "learning_rate" in values:
        values["learning_rate"] = canonical_rate(values["learning_rate"])
    values["depth"] = _depth(values)
    status = values["status"].lower()
    values["status"] = _STATUSES.get(status, status)
    stopped = values["status"] == TrialStatus.STOPPED_EARLY
    values["phase"] = values["phase"].lower() or (Phase.EXPLORE if stopped else Phase.MEASURE)
    if "metric" in values:
        named = values["metric"].lower()
        values["metric"] = _METRICS.get(named, named)
    if "epochs" in values:
        values.setdefault("comparison", f"epochs={values['epochs']}")
    return values


def _depth(values: dict[str, Any]) -> Candidate:
    """Take the cells that name a row's candidate, and return it."""
    label = values.pop(CANDIDATE, None)
    frozen = values.pop("frozen_layers", None)
    embeddings = values.pop("embeddings_frozen", frozen != 0)
    if frozen == -1:
        return read_candidate(EMBEDDINGS)
    if frozen is None and label is not None:
        return read_candidate(label)
    record = {"embeddings_frozen": embeddings}
    if frozen is not None:
        record["frozen_layers"] = frozen
    return _FREEZE_DEPTH.validate_python(record)


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


# Prefixes of `mlflow.search_runs().to_csv()`, and of Ray Tune's
# `ResultGrid.get_dataframe().to_csv()`, in order of trust; behind one names may be nested.
# elsa-tune's own runs say more in the tag than MLflow's status can.
_PARAMETERS = ("params.", "config/", "tags.", "")
_OUTCOMES = ("metrics.", "", "params.", "tags.")

# Other names of our columns. What is not here is found by its own name only.
_SYNONYMS = {
    "model": ("model_name", "model_name_or_path", "pretrained_model_name_or_path", "base_model"),
    "task": ("task_name", "glue_task"),
    "layers": ("num_layers", "num_hidden_layers", "n_layers"),
    "frozen_layers": (
        "frozen",
        "n_frozen",
        "num_frozen",
        "n_frozen_layers",
        "num_frozen_layers",
        "freeze_layers",
        "num_freeze_layers",
    ),
    "learning_rate": ("lr",),
    "seed": ("random_seed",),
    "epochs": ("num_epochs", "num_train_epochs", "max_epochs", "n_epochs"),
    "train_size": ("max_train_samples", "num_train_examples"),
    "embeddings_frozen": ("freeze_embeddings",),
    "train_seconds": ("train_runtime", "time_total_s"),
    "trainable_parameters": ("trainable_params",),
}

_PREFIXES = {
    "status": ("tags.", ""),
    **dict.fromkeys(("quality", "std", "chance", "train_seconds"), _OUTCOMES),
    **dict.fromkeys(("peak_memory_mb", "trainable_parameters"), _OUTCOMES),
}

_METRICS = {
    **{metric.value: metric.value for metric in Metric},
    "acc": "accuracy",
    "mcc": "matthews",
    "matthews_correlation": "matthews",
    "matthews_corrcoef": "matthews",
    "pearsonr": "pearson",
    "spearmanr": "spearman",
}
_SPLIT = "(?:(?:eval|val|valid|validation|dev|test)_)?"
# Balanced accuracy is another metric than accuracy, though its name ends in that.
_METRIC_COLUMN = re.compile(rf"(?:.*?_)??{_SPLIT}(?<!balanced_)({'|'.join(_METRICS)})")
_EVALUATED = re.compile(rf"{_SPLIT}(?:{'|'.join(_METRICS)}|quality)")


def read_mapping(texts: Sequence[str]) -> dict[str, str]:
    """Return what the user said of our columns: the table's name, or `=` and a value for all rows.

    texts: `OURS=THEIRS` or `OURS==VALUE`. Raises UsageError for any other text or a column named
    twice, UnknownNameError for a column that is not ours.
    """
    mapping: dict[str, str] = {}
    for text in texts:
        column, _, rest = text.partition("=")
        if not column or rest in ("", "="):
            raise UsageError(
                f"`map` is '{text}'; it must be OURS=THEIRS, as in "
                "frozen_layers=config/frozen, or OURS==VALUE, as in model==bert_base"
            )
        if column not in (*COLUMNS, CANDIDATE):
            raise UnknownNameError.among("column", column, COLUMNS, hint="It is in `map`.")
        if column in mapping:
            raise UsageError(f"`map` names {column} twice; leave one out")
        mapping[column] = rest
    return mapping


def lay_out(
    path: Path, header: Sequence[str], mapping: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, str], list[str]]:
    """Find our columns in a header: where the user said (`read_mapping`), else by their names.

    The place of each in a line; the values of those without one; and a line on each, none where a
    table has our names and nothing was mapped. Raises ResultsError where a needed column is
    missing or several can be meant; UnknownNameError where the user named one that is not there.
    """
    constants = {ours: said[1:] for ours, said in mapping.items() if said.startswith("=")}
    sources: dict[str, str] = {}
    for column in (*COLUMNS, CANDIDATE):
        if column in constants:
            continue
        if column in mapping:
            sources[column] = _named(path, header, mapping[column])
        else:
            theirs = _only_one(path, column, candidates(header, column))
            if theirs is not None:
                sources[column] = theirs
    _require(path, header, {*sources, *constants})
    is_ours = all(ours == theirs.lower() for ours, theirs in sources.items())
    told = [f"{ours} <- {theirs}" for ours, theirs in sources.items()]
    told += [f"{ours} <- '{value}' in every row" for ours, value in constants.items()]
    quality = sources.get("quality", "")
    metric = metric_of(quality)
    if metric is not None and "metric" not in {*sources, *constants}:
        constants["metric"] = metric
        told.append(f"metric <- '{metric}', by the name of {quality}")
    places = {ours: header.index(theirs) for ours, theirs in sources.items()}
    return places, constants, [] if is_ours and not mapping else told


def _only_one(path: Path, column: str, names: Sequence[str]) -> str | None:
    """Return the one name there is for our column, None without any. Raises ResultsError."""
    if not names:
        return None
    if len(names) > 1:
        is_twice = len(set(names)) < len(names)
        way = "rename one" if is_twice else f"choose one, as in `map` {column}={names[0]}"
        raise ResultsError(f"{path}, line 1: {column} can be {' or '.join(names)}; {way}")
    return names[0]


def _named(path: Path, header: Sequence[str], name: str) -> str:
    """Return the column that the user named, in whatever case."""
    for theirs in header:
        if theirs.lower() == name.lower() and (theirs == name or name not in header):
            return theirs
    raise UnknownNameError.among("column", name, header, hint=f"Looked in {path}.")


def _require(path: Path, header: Sequence[str], found: set[str]) -> None:
    missing = [name for name in REQUIRED if name not in found]
    if not found & {"seed", "runs"}:
        missing.append("seed (one row a run) or runs (a row is the mean of that many)")
    if not missing:
        return
    name = missing[0].split()[0]
    hint = "runs==1 (a row is a run)" if name == "seed" else f"{name}==VALUE"
    most = 20  # of hundreds that an export can have
    shown = ", ".join([*header[:most], *(["..."] if len(header) > most else [])])
    raise ResultsError(
        f"{path}, line 1: missing columns {', '.join(missing)}; it has, separated by "
        f"commas, {shown}. Name another column with `map` {name}=COLUMN, or a value "
        f"for all rows with `map` {hint}."
    )


def candidates(header: Sequence[str], column: str) -> list[str]:
    """Return the columns of a table that can be meant by one of ours, of equal standing."""
    for prefix in _PREFIXES.get(column, _PARAMETERS):
        rests: dict[str, str] = {}
        lasts: dict[str, str] = {}
        for name in header:
            if not name.startswith(prefix):
                continue
            rest = name.removeprefix(prefix).lower()
            rests[name] = rest
            lasts[name] = re.split("[./]", rest)[-1] if prefix else rest
            if column == "quality":
                lasts[name] = column if _EVALUATED.fullmatch(_plain(rest)) else ""
        # Our own name, and nested, before what others call it.
        synonyms = _SYNONYMS.get(column, ())
        for known, wanted in ((rests, (column,)), (lasts, (column,)), (lasts, synonyms)):
            names = [name for name in header if known.get(name) in wanted]
            if names:
                return names
    return []


def metric_of(column: str) -> str | None:
    """Return the metric that a column's name tells, e.g. `accuracy` of `metrics.eval_accuracy`."""
    found = _METRIC_COLUMN.fullmatch(_plain(column))
    return None if found is None else _METRICS[found[1]]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
