"""The columns of a results table: what ours are called, and where another table has each."""

import contextlib
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.errors import ExtensionError, ResultsError, UnknownNameError, UsageError
from elsa_tune.extensions import load_extensions

# What every table of depths has that is read here.
REQUIRED = ("model", "task", "layers", "frozen_layers", "quality")
# What every table has that elsa-tune wrote before there were columns of the certificate.
EARLIER_COLUMNS = (
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
# When a depth is tested, and by which constants: without these a hunt's certificate is lost.
LOOKS = "looks"
POLICY = "search_policy"
# What every table that is written here has.
COLUMNS = (*EARLIER_COLUMNS, LOOKS, POLICY)
# The share of quality that a row's search was planned to keep, in a table of searches.
PLANNED_TARGET = "planned_target"
# What is odd about the rows of a task, and which searches asked the same before, each as JSON, in a
# table of searches that found any.
FINDINGS = "row_findings"
EARLIER = "earlier_searches"
# The label of a candidate that is no depth, in a table that has such: its `frozen_layers` is empty.
CANDIDATE = "candidate"
# What was done to the model, in the table's own words: instead of a depth, or beside it.
METHOD = "method"
# How many independent units the evaluation examples are, in a table of searches that know it.
UNITS = "evaluation_units"
# The id of a row's search, in a table where several searches have one name.
SEARCH_ID = "search_id"
READ_COLUMNS = (*COLUMNS, CANDIDATE, METHOD, UNITS, PLANNED_TARGET, FINDINGS, EARLIER, SEARCH_ID)

# Prefixes of `mlflow.search_runs().to_csv()`, and of Ray Tune's
# `ResultGrid.get_dataframe().to_csv()`, in order of trust; behind one names may be nested.
# elsa-tune's own runs say more in the tag than MLflow's status can.
_SETTING_PREFIXES = ("params.", "config/", "tags.", "")
_OUTCOME_PREFIXES = ("metrics.", "", "params.", "tags.")
_PREFIXES = {
    "status": ("tags.", ""),
    "quality": _OUTCOME_PREFIXES,
    "std": _OUTCOME_PREFIXES,
    "chance": _OUTCOME_PREFIXES,
    "train_seconds": _OUTCOME_PREFIXES,
    "peak_memory_mb": _OUTCOME_PREFIXES,
    "trainable_parameters": _OUTCOME_PREFIXES,
}

# What Ray Tune and its examples, and Transformers' scripts and callbacks, call a column of ours;
# and the plainest name where none of them has one. Others are the user's to say with `map`.
_OTHER_NAMES = {
    "model": ("model_name_or_path",),
    "task": ("task_name",),
    "frozen_layers": ("num_frozen_layers",),
    "layers": ("num_hidden_layers",),
    "learning_rate": ("lr",),
    "epochs": ("num_train_epochs",),
    "train_seconds": ("train_runtime", "time_total_s"),
    "examples": ("evaluation_examples",),  # as our runs have it in MLflow
}

# All of these, in lower case.
_KNOWN_NAMES = frozenset((*READ_COLUMNS, *itertools.chain.from_iterable(_OTHER_NAMES.values())))

_OTHER_METRIC_NAMES = {
    "acc": "accuracy",
    "mcc": "matthews",
    "matthews_correlation": "matthews",
    "matthews_corrcoef": "matthews",
    "macro_f1": "f1_macro",
    "pearsonr": "pearson",
    "spearmanr": "spearman",
}
_SPLIT = "(?:(?:eval|val|valid|validation|dev|test)_)?"
_METRIC_COLUMN = rf"(?P<before>(?:.*?_)??){_SPLIT}"
# With such a word before it, a name is another metric's: `balanced_accuracy`, `weighted_f1`.
_OTHER_METRICS_WORDS = frozenset(
    (
        *("balanced", "bal", "macro", "micro", "weighted", "class", "classwise", "worst"),
        *("token", "topk", "top2", "top3", "top5", "top10"),
    )
)

# What is better when lower, by the words of its name, and what turns such a score around.
_ERRORS = frozenset(
    (
        *("error", "errors", "err", "loss", "losses", "perplexity", "ppl", "nll", "wer", "cer"),
        *("mse", "rmse", "mae", "msle", "rmsle", "mape"),
        *("entropy", "crossentropy", "logloss", "deviance", "brier", "ece", "eer"),
    )
)
_TURNS = frozenset(
    (
        *("neg", "negative", "negated", "minus", "inverse", "inverted"),
        *("skill", "explained"),  # `brier_skill_score`, `deviance_explained`
    )
)
_TURNED = re.compile(r"^-|(?<![a-z0-9])1\s*-")  # `-rmse`, `1-error`, but not `top1-error`

# Said of a name that is an error's.
LARGER_IS_BETTER = (
    "which is better when lower, but larger must be better; give a score that rises, such as "
    "accuracy, R2 or 1 - error, under a name that says so"
)

# Between the words of `evalLoss`.
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

MOST_NAMED = 20  # of the hundreds of columns that an export can have


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of our columns in a table."""

    places: Mapping[str, int]  # the place of each in a line
    constants: Mapping[str, str]  # the value, in every row, of those without a place
    understood: tuple[str, ...]  # a line on each; () where a table has our names alone
    troubles: tuple[str, ...] = ()  # a line on what keeps some metrics from being known


def read_mapping(texts: Sequence[str]) -> dict[str, str]:
    """Return what the user said of our columns: the table's name, or `=` and a value for all rows.

    texts: `OURS=THEIRS` or `OURS==VALUE`. Raises UsageError for any other text, one with half of a
    character or a column named twice, UnknownNameError for a column that is not ours.
    """
    mapping: dict[str, str] = {}
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"`map` is '{text}', with half of a character ({text[error.start]!r}), which no "
                "file can hold; take it out"
            ) from None
        column, _, rest = text.partition("=")
        if not column or rest in ("", "="):
            raise UsageError(
                f"`map` is '{text}'; it must be OURS=THEIRS, as in "
                "frozen_layers=config/frozen, or OURS==VALUE, as in model==bert_base"
            )
        if column not in READ_COLUMNS:
            raise UnknownNameError.among("column", column, READ_COLUMNS, hint="It is in `map`.")
        if column in mapping:
            raise UsageError(f"`map` names {column} twice; leave one out")
        mapping[column] = rest
    return mapping


def lay_out(path: Path, header: Sequence[str], mapping: Mapping[str, str]) -> Layout:
    """Find our columns in a header: where the user said (`read_mapping`), else by their names.

    Raises ResultsError where a needed column is missing or several can be meant, UnknownNameError
    where the user named one that is not there.
    """
    trouble = _load_metrics(header, mapping)
    constants: dict[str, str] = {}
    for ours, given in mapping.items():
        if given.startswith("="):
            constants[ours] = given[1:]
    sources: dict[str, str] = {}
    for ours in READ_COLUMNS:
        theirs = None if ours in constants else _source(path, header, ours, mapping)
        if theirs is not None:
            sources[ours] = theirs
    if trouble is not None and "quality" not in {*sources, *constants}:
        raise trouble  # what cannot be imported may bring the metric
    _require(path, header, {*sources, *constants})
    understood = [f"{ours} <- {theirs}" for ours, theirs in sources.items()]
    understood += [f"{ours} <- '{value}' in every row" for ours, value in constants.items()]
    quality = sources.get("quality", "")
    if is_better_when_lower(quality):
        raise ResultsError(f"{path}, line 1: quality is column {quality}, {LARGER_IS_BETTER}")
    metric = metric_of(quality)
    if metric is not None and "metric" not in sources and "metric" not in constants:
        constants["metric"] = metric
        understood.append(f"metric <- '{metric}', by the name of {quality}")
    has_our_names = all(ours == theirs.lower() for ours, theirs in sources.items())
    if has_our_names and not mapping:
        understood = []
    return Layout(
        places={ours: header.index(theirs) for ours, theirs in sources.items()},
        constants=constants,
        understood=tuple(understood),
        troubles=() if trouble is None else (f"! metrics may be unknown: {trouble}",),
    )


def _load_metrics(header: Sequence[str], mapping: Mapping[str, str]) -> ExtensionError | None:
    """Load what may bring the metric of a column that nothing here explains.

    Returns why some of it cannot be loaded. Loading takes seconds, which other tables do without.
    """
    names = header
    if "quality" in mapping:
        names = [mapping["quality"]]
    elif _has_plain_quality(header):
        names = []
    if all(_is_explained(name) for name in names):
        return None
    try:
        load_extensions()
    except ExtensionError as error:
        return error
    return None


def _has_plain_quality(header: Sequence[str]) -> bool:
    """Return whether no metric's name is looked for, as a column is called quality."""
    names = {name.lower() for name in header}
    trusted = _OUTCOME_PREFIXES[0]
    if any(name.startswith(trusted) for name in names):
        return f"{trusted}quality" in names
    return "quality" in names


def _is_explained(name: str) -> bool:
    """Return whether a column's name is one of ours, another tool's for it, or tells a metric."""
    rest = name.lower()
    for prefix in _SETTING_PREFIXES + _OUTCOME_PREFIXES:
        if prefix and rest.startswith(prefix):
            rest = rest.removeprefix(prefix)
            break
    last = re.split("[./]", rest)[-1]
    return last in _KNOWN_NAMES or _is_quality(rest)


def _source(path: Path, header: Sequence[str], ours: str, mapping: Mapping[str, str]) -> str | None:
    """Return the table's column that is ours, None where it has none. Raises as `lay_out`."""
    if ours in mapping:
        return _named(path, header, mapping[ours])
    possible = possible_columns(header, ours)
    if not possible:
        return None
    if len(possible) > 1:
        remedy = f"choose one, as in `map` {ours}={possible[0]}"
        if len(set(possible)) < len(possible):
            remedy = "rename one"
        raise ResultsError(f"{path}, line 1: {ours} can be {' or '.join(possible)}; {remedy}")
    return possible[0]


def _named(path: Path, header: Sequence[str], name: str) -> str:
    """Return the column that the user named, exactly or else in whatever case."""
    found = [theirs for theirs in header if theirs == name]
    if not found:
        found = [theirs for theirs in header if theirs.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise ResultsError(
            f"{path}, line 1: `map` names {name}, which can be {' or '.join(found)}; rename one"
        )
    raise UnknownNameError.among("column", name, header, hint=f"Looked in {path}.")


def _require(path: Path, header: Sequence[str], ours: Collection[str]) -> None:
    """Raise ResultsError where a needed column is missing. ours: those of our columns it has."""
    not_needed: set[str] = set()
    if CANDIDATE in ours:
        not_needed.add("frozen_layers")
    if METHOD in ours:
        not_needed.update(("frozen_layers", "layers"))
    missing = [name for name in REQUIRED if name not in {*ours, *not_needed}]
    if "seed" not in ours and "runs" not in ours:
        missing.append("seed (one row a run) or runs (a row is the mean of that many)")
    if not missing:
        return
    name = missing[0].split()[0]
    if "frozen_layers" in missing:
        missing[missing.index("frozen_layers")] = "frozen_layers (a depth) or method (in words)"
    hint = "runs==1 (a row is a run)" if name == "seed" else f"{name}==VALUE"
    shown = list(header[:MOST_NAMED])
    if len(header) > MOST_NAMED:
        shown.append("...")
    raise ResultsError(
        f"{path}, line 1: missing columns {', '.join(missing)}; it has, separated by "
        f"commas, {', '.join(shown)}. Name another column with `map` {name}=COLUMN, or a value "
        f"for all rows with `map` {hint}."
    )


def possible_columns(header: Sequence[str], column: str) -> list[str]:
    """Return the columns of a table that can be meant by one of ours, of equal standing.

    They stand behind the most trusted prefix that has any; our own name goes before a nested one,
    and both before another tool's.
    """
    other_names = _OTHER_NAMES.get(column, ())
    for prefix in _PREFIXES.get(column, _SETTING_PREFIXES):
        plain: list[str] = []
        nested: list[str] = []
        others: list[str] = []
        for name in header:
            if not name.startswith(prefix):
                continue
            rest = name.removeprefix(prefix).lower()
            last = re.split("[./]", rest)[-1] if prefix else rest
            if rest == column:
                plain.append(name)
            elif column == "quality":
                if _is_quality(rest):
                    nested.append(name)
            elif last == column:
                nested.append(name)
            elif last in other_names:
                others.append(name)
        possible = plain or nested or others
        if possible:
            return possible
    return []


def metric_of(column: str) -> str | None:
    """Return the metric that a column's name tells, e.g. `accuracy` of `metrics.eval_accuracy`.

    Metrics of extensions are known once these are loaded, as `lay_out` does.
    """
    match = re.fullmatch(rf"{_METRIC_COLUMN}(?P<metric>{_any_metric()})", _words(column))
    if match is None or not _OTHER_METRICS_WORDS.isdisjoint(match["before"].split("_")):
        return None
    return metric_names()[match["metric"]]


def is_better_when_lower(name: str) -> bool:
    """Return whether a metric's or a column's name is that of an error, such as `eval_loss`."""
    separated = _CAMEL.sub("_", name).lower()
    words = set(re.split(r"[^a-z]+", separated))
    if words.isdisjoint(_ERRORS) or not words.isdisjoint(_TURNS) or _TURNED.search(separated):
        return False
    if metric_of(separated) is not None:
        return False  # `error_detection_f1` is an F1
    with contextlib.suppress(ExtensionError):
        load_extensions()  # one may bring a metric of that name
    return metric_of(separated) is None


def metric_names() -> dict[str, str]:
    """Return our name of a metric, of those that are loaded, by each name that tables give it."""
    from elsa_tune.tasks.types.registry import loaded_metrics  # numpy, which names do without

    names = {metric.value: metric.value for metric in loaded_metrics()}
    return {**names, **_OTHER_METRIC_NAMES}


def _any_metric() -> str:
    """Return a regular expression for the names of metrics."""
    return "|".join(re.escape(name) for name in metric_names())


def _is_quality(name: str) -> bool:
    """Return whether a column without its prefix is called quality, or as a metric of a split."""
    return re.fullmatch(rf"{_SPLIT}(?:{_any_metric()}|quality)", _words(name)) is not None


def _words(name: str) -> str:
    """Return a name's words in lower case, with `_` between them."""
    words = re.sub(r"[^a-z0-9]+", "_", name.lower())
    return words.strip("_")
