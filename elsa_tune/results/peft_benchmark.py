"""Results of peft's benchmark `method_comparison` as rows: its JSON files, one a run."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from elsa_tune.errors import ResultsError, quoted
from elsa_tune.results.columns import is_better_when_lower, metric_names
from elsa_tune.results.results_csv import Imported
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.adapt.named_way import NamedWay
from elsa_tune.specs.checked import problems
from elsa_tune.specs.rate_space import canonical_rate
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

SUFFIX = ".json"
# The one suite that trains on text. Its configuration names no data set: it trains on MetaMathQA
# and is tested on GSM8K's test split, which has so many questions.
TEXT_SUITE = "MetaMathQA"
TEXT_SUITE_EXAMPLES = 1319
OTHER_SUITE = "method_comparison"

_SOURCE = "peft's method_comparison"
# What a result has and other JSON files, such as an adapter's configuration, lack.
_PARTS = frozenset({"run_info", "train_info"})
_STATUSES = {
    "success": TrialStatus.COMPLETED,
    "failed": TrialStatus.FAILED,
    "canceled": TrialStatus.INTERRUPTED,
}
# What a configuration of peft has beside what is trained; the model is in `train_config`.
_NO_SETTINGS = frozenset(
    {
        "peft_version",
        "task_type",
        "auto_mapping",
        "inference_mode",
        "revision",
        "base_model_name_or_path",
    }
)
# What a `train_config` has beside what is trained: the run's own model and seed, the learning rate,
# which a way may try several of, and what changes nothing but speed, memory and progress reports.
_NO_TRAINING_SETTINGS = frozenset(
    {
        "model_id",
        "seed",
        "optimizer_kwargs.lr",
        "batch_size_eval",
        "eval_steps",
        "compile",
        "use_gc",
        "attn_implementation",
    }
)
_TEST = "test "
_DEFAULT = "default"  # as an experiment's name calls a configuration without settings of its own
_RATE = re.compile(r"(?:^|[-_])lr[-_]?[0-9][0-9.]*(?:e-?[0-9]+)?(?=$|[-_])", re.IGNORECASE)
_MIB = 2**20
_SMALL = 1e-6


class _Part(BaseModel):
    """An object of a result's file: the fields that are read; it has more."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())


class _TrainConfig(_Part):
    model_config = ConfigDict(extra="allow")  # all of it is compared, whatever a suite names

    model_id: str
    seed: int | None = Field(default=None, ge=0)
    optimizer_kwargs: dict[str, Any] = {}
    # The suites' own fields, by which they are told apart.
    query_template: str | None = None
    dataset_id: str | None = None
    test_size: int | None = Field(default=None, ge=1)


class _RunInfo(_Part):
    experiment_name: str  # METHOD/CONFIGURATION
    train_config: _TrainConfig
    peft_config: dict[str, Any] | None = None  # None for full fine-tuning


class _TrainInfo(_Part):
    status: str
    metrics: list[dict[str, Any]] = []  # the last one has the test's
    train_time: float | None = Field(default=None, ge=0, allow_inf_nan=False)  # seconds
    accelerator_memory_max: float | None = Field(default=None, ge=0, allow_inf_nan=False)  # bytes
    num_trainable_params: int | None = Field(default=None, ge=0)


class _Result(_Part):
    run_info: _RunInfo
    train_info: _TrainInfo


def is_benchmark(path: Path) -> bool:
    """Return whether a path can only be read here: a folder, or a JSON file."""
    return path.suffix.lower() == SUFFIX or path.is_dir()


def read_benchmark(path: Path) -> Imported:
    """Read a JSON result, or all that a folder and the folders in it hold.

    A row is one run, its way the method and what its experiment's name says of the configuration,
    without model and learning rate; full fine-tuning is the full model. In a folder, JSON files of
    other kinds are left out, and counted in `notes`. Raises ResultsError for a file that is no
    such result, a folder without any, whatever is missing or out of its range, and two runs of one
    name, or of full fine-tuning, whose settings contradict each other.
    """
    results: list[tuple[Path, _Result]] = []
    left_out = 0
    for file in _files(path):
        values = _json(file)
        if isinstance(values, dict) and values.keys() >= _PARTS:
            results.append((file, _result(file, values)))
        else:
            left_out += 1
    if not results:
        raise _no_result(path)
    labels = _labels([result for _, result in results])
    _check_settings(results, labels)
    rows: list[ResultRow] = []
    for (file, result), label in zip(results, labels, strict=True):
        rows.append(_row(file, result, label))
    rows = _with_metrics(rows)
    return Imported(rows, tuple(_notes(path, rows, left_out)))


def _files(path: Path) -> list[Path]:
    """Return the JSON files of a folder by their names, or the one file."""
    if path.is_dir():
        return sorted(path.rglob(f"*{SUFFIX}"))
    if not path.is_file():
        raise ResultsError(f"results file {path} does not exist")
    return [path]


def _json(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{file} cannot be read as JSON: {error}") from error
    except RecursionError as error:
        raise ResultsError(f"{file} cannot be read as JSON: it is nested too deeply") from error


def _result(file: Path, values: Mapping[str, Any]) -> _Result:
    try:
        return _Result.model_validate(values)
    except ValueError as error:
        raise ResultsError(f"{file}: {problems(error)}") from error


def _no_result(path: Path) -> ResultsError:
    """Return the error for a file of another kind, or a folder that holds no result."""
    what = "is no result"
    if path.is_dir():
        what = "holds no JSON result"
    return ResultsError(
        f"{path} {what} of {_SOURCE} (an object with run_info and train_info), the only JSON "
        "that is read here; give a CSV for other results, and a search's journal.jsonl for a "
        "search"
    )


def _labels(results: Sequence[_Result]) -> list[str]:
    """Return what each result's way is called.

    Configurations that differ in more than the learning rate under one name keep their
    experiments' complete names.
    """
    labels: list[str] = []
    configurations: dict[tuple[str, str, str], set[str]] = {}
    for result in results:
        config = result.run_info.train_config
        label = _label(result)
        labels.append(label)
        key = (config.model_id, _task(config), label)
        configurations.setdefault(key, set()).add(_configuration(result))
    for place, result in enumerate(results):
        config = result.run_info.train_config
        key = (config.model_id, _task(config), labels[place])
        if len(configurations[key]) > 1:
            labels[place] = result.run_info.experiment_name
    return labels


def _check_settings(results: Sequence[tuple[Path, _Result]], labels: Sequence[str]) -> None:
    """Raise ResultsError where two runs of one way were told to train by unlike settings.

    What one of them does not name is passed over there: versions of peft differ in that.
    """
    # By way, what each setting is, and the first file that names it.
    named_by_way: dict[tuple[str, str, Candidate], dict[str, tuple[Path, Any]]] = {}
    for (file, result), label in zip(results, labels, strict=True):
        config = result.run_info.train_config
        candidate = _candidate(result, label)
        way = (config.model_id, _task(config), candidate)
        named = named_by_way.setdefault(way, {})
        for name, value in _settings(result).items():
            first_file, first_value = named.setdefault(name, (file, value))
            if value != first_value:
                way_name = f"of '{label}'"
                remedy = "give each its own run_info.experiment_name, or remove one"
                if candidate.is_reference:
                    way_name = "full fine-tuning"
                    remedy = "remove one"  # whatever they are called, they are one way
                raise ResultsError(
                    f"{first_file} and {file} are both {way_name}, but {name} is "
                    f"{quoted(first_value)} in one and {quoted(value)} in the other; {remedy}"
                )


def _candidate(result: _Result, label: str) -> Candidate:
    """Return a result's way."""
    if result.run_info.peft_config is None:
        return REFERENCE
    return NamedWay(label)


def _label(result: _Result) -> str:
    """Return what a way is called: of lora/llama-3.2-3B-rank32, lora rank32."""
    method, _, configuration = result.run_info.experiment_name.partition("/")
    _, _, model_name = result.run_info.train_config.model_id.rpartition("/")
    model = _letters(model_name)
    words = configuration.split("-")
    # The model's name comes first, word by word, as far as the experiment repeats it.
    while words and model.startswith(_letters(words[0])):
        model = model.removeprefix(_letters(words.pop(0)))
    settings = _RATE.sub("", "-".join(words)).strip("-_")
    return f"{method} {settings or _DEFAULT}"


def _letters(text: str) -> str:
    """Return a text's letters and digits alone, in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _configuration(result: _Result) -> str:
    """Return what was told to be trained, and how, as a text."""
    return json.dumps(_settings(result), sort_keys=True)


def _settings(result: _Result) -> dict[str, Any]:
    """Return what peft was told to train, and how, by the names of its settings.

    Those of training begin with `train_config`.
    """
    settings: dict[str, Any] = {}
    for name, value in (result.run_info.peft_config or {}).items():
        if name in _NO_SETTINGS:
            continue
        # Peft keeps names of modules as a set, in no order.
        settings[name] = sorted(value, key=str) if isinstance(value, list) else value
    for name, value in _training_settings(result.run_info.train_config).items():
        if name not in _NO_TRAINING_SETTINGS:
            settings[f"train_config.{name}"] = value
    return settings


def _training_settings(config: _TrainConfig) -> dict[str, Any]:
    """Return a file's `train_config`; the values of an inner object have dotted names."""
    settings: dict[str, Any] = {}
    for name, value in config.model_dump(exclude_unset=True).items():
        if isinstance(value, dict):
            for inner_name, inner_value in value.items():
                settings[f"{name}.{inner_name}"] = inner_value
        else:
            settings[name] = value
    return settings


def _row(file: Path, result: _Result, label: str) -> ResultRow:
    """Return a result's row. Raises ResultsError for what it lacks or has out of range."""
    config = result.run_info.train_config
    train = result.train_info
    status = _STATUSES.get(train.status)
    if status is None:
        known = ", ".join(_STATUSES)
        raise ResultsError(f"{file}: train_info.status is '{train.status}'; it must be {known}")
    metric: str | None = None
    quality: float | None = None
    if status is TrialStatus.COMPLETED:
        metric, quality = _tested(file, train)
    peak_memory_mb = None
    if train.accelerator_memory_max is not None:
        peak_memory_mb = train.accelerator_memory_max / _MIB
    return ResultRow(
        model=config.model_id,
        task=_task(config),
        layers=None,
        candidate=_candidate(result, label),
        quality=quality,
        status=status,
        phase=Phase.MEASURE,
        metric=metric,
        learning_rate=_rate(file, config),
        seed=config.seed,
        train_seconds=train.train_time,
        peak_memory_mb=peak_memory_mb,
        trainable_parameters=train.num_trainable_params,
        examples=_examples(config, quality),
    )


def _with_metrics(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows; one without a metric has that of its model and task, where they have one.

    A run that did not succeed was not tested, so that its file names no metric. Rows of different
    metrics are never compared.
    """
    metrics: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if row.metric is not None:
            metrics.setdefault((row.model, row.task), set()).add(row.metric)
    with_metrics: list[ResultRow] = []
    for row in rows:
        of_others = metrics.get((row.model, row.task), set())
        if row.metric is None and len(of_others) == 1:
            [metric] = of_others
            row = replace(row, metric=metric)
        with_metrics.append(row)
    return with_metrics


def _task(config: _TrainConfig) -> str:
    """Return which suite a run is of."""
    if config.dataset_id is not None:
        return config.dataset_id
    if config.query_template is not None:
        return TEXT_SUITE
    return OTHER_SUITE


def _tested(file: Path, train: _TrainInfo) -> tuple[str, float]:
    """Return the test's metric, by our name of it, and its value as a fraction.

    Of several that is the first of which larger is better.
    """
    last = train.metrics[-1] if train.metrics else {}
    for name, value in last.items():
        if not name.startswith(_TEST) or is_better_when_lower(name):
            continue
        if not _is_number(value) or not abs(value) <= 1:
            raise ResultsError(
                f"{file}: '{name}' is {quoted(value)}; it must be a fraction, at most 1"
            )
        metric = name.removeprefix(_TEST)
        return metric_names().get(metric, metric), float(value)
    raise ResultsError(
        f"{file}: train_info.metrics ends without a test metric of which larger is better, such as "
        "'test accuracy', though the run succeeded"
    )


def _rate(file: Path, config: _TrainConfig) -> float | None:
    rate = config.optimizer_kwargs.get("lr")
    if rate is None:
        return None
    if not _is_number(rate) or not 0 < rate <= 1:
        raise ResultsError(
            f"{file}: optimizer_kwargs.lr is {quoted(rate)}; it must be above 0, at most 1"
        )
    return canonical_rate(rate)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _examples(config: _TrainConfig, quality: float | None) -> int | None:
    """Return how many test rows the quality is a mean of, None where that is not known."""
    if config.test_size is not None:
        return config.test_size
    if _task(config) != TEXT_SUITE or quality is None:
        return None
    right = quality * TEXT_SUITE_EXAMPLES
    is_whole = abs(right - round(right)) < _SMALL * TEXT_SUITE_EXAMPLES
    return TEXT_SUITE_EXAMPLES if is_whole else None


def _notes(path: Path, rows: Sequence[ResultRow], left_out: int) -> list[str]:
    """Return what was understood, one line each."""
    notes = [f"{path}: results of {_SOURCE}, each a row, one run"]
    tasks = Counter((row.model, row.task) for row in rows)
    for (model, task), runs in tasks.items():
        ways = {row.candidate for row in rows if (row.model, row.task) == (model, task)}
        run_count = "1 run" if runs == 1 else f"{runs} runs"
        way_count = "1 way" if len(ways) == 1 else f"{len(ways)} ways"
        notes.append(f"{model} on {task}: {run_count} of {way_count}")
    if left_out:
        files = "1 JSON file of another kind" if left_out == 1 else f"{left_out} other JSON files"
        notes.append(f"left out: {files}")
    return notes
