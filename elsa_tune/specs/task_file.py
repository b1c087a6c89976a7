"""The user's own task: a YAML file becomes a TaskSpec, or an error that names file and field.

It must not be imported by `training`: workers get the finished TaskSpec, and need neither pydantic
nor YAML.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from elsa_tune.errors import DataError, nearest
from elsa_tune.specs.checked import problems, read_yaml
from elsa_tune.specs.known_tasks import KNOWN_TASKS, RESERVED_NAMES
from elsa_tune.specs.table_file import FORMATS, SUFFIXES, check_readable, format_of, read_table
from elsa_tune.specs.task import (
    FilesSource,
    Metric,
    TaskKind,
    TaskSpec,
    allowed_metrics,
    check_metric,
)

DEFAULT_EVALUATION_SHARE = 0.2
# More distinct labels than this in a file without declared classes are numbers or texts, not
# classes.
MOST_INFERRED_CLASSES = 1000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
UNLABELLED = "-"  # MNLI and SNLI: the annotators did not agree


def _as_list(value: Any) -> Any:
    """One file or one column may be written without the brackets."""
    return [value] if isinstance(value, str) else value


def _as_files(value: Any) -> Any:
    """Files without a word are those to train on."""
    return {"train": value} if isinstance(value, str | list) else value


def _one_or_two(columns: list[str]) -> list[str]:
    if not 1 <= len(columns) <= 2:
        raise ValueError(
            f"{len(columns)} columns came ({', '.join(columns) or 'none'}), and a model reads one "
            "text or a pair of them; put several into one column beforehand"
        )
    return columns


Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], BeforeValidator(_as_list)]


class Files(BaseModel):
    """Where the rows lie; relative paths are relative to the YAML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: Annotated[Texts, Field(min_length=1)]
    evaluation: Texts = []


class TaskFile(BaseModel):
    """The fields of a task file; `read_task_file` says what is done with each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    files: Annotated[Files, BeforeValidator(_as_files)]
    format: str | None = None
    text: Annotated[Texts, AfterValidator(_one_or_two)]
    label: Text
    classes: Texts | None = None
    regression: bool = False
    metric: str | None = None
    evaluation_share: Annotated[float, Field(gt=0, lt=1)] | None = None


FIELDS = {"": TaskFile.model_fields, "files": Files.model_fields}


def read_task_file(path: Path) -> TaskSpec:
    """Read and check a task file::

        name: support_tickets
        files:
          train: tickets.csv            # or a list; .csv, .tsv, .jsonl, .parquet
          evaluation: tickets_dev.csv   # without it `evaluation_share` of the rows is held out
        text: [subject, body]           # one or two columns
        label: urgent
        classes: ["no", "yes"]          # in id order; left out: the training file's, sorted
        metric: f1                      # of the second class; default accuracy

    For a regression write `regression: true` and no classes; the metric is then spearman unless
    pearson is asked for. Every file is checked to exist; the labels of the training files are read
    only where the classes are left out. Raises DataError.
    """
    path = path.expanduser()
    described = _validated(path, _parsed(path))
    _check_name(path, described.name)
    columns = [*described.text, described.label]
    if len(set(columns)) < len(columns):
        raise DataError(
            f"task file {path}: fields 'text' and 'label' name the columns {', '.join(columns)}; "
            "each must be another column"
        )
    source = _source(path, described)
    kind = TaskKind.REGRESSION if described.regression else TaskKind.CLASSIFICATION
    classes = _classes(path, described, source)
    metric = _metric(path, described, kind, len(classes))
    others = [m for m in _companions(kind, len(classes)) if m is not metric]
    task = TaskSpec(
        name=described.name,
        kind=kind,
        text_columns=tuple(described.text),
        label_column=described.label,
        classes=classes,
        metric=metric,
        companions=tuple(others),
        source=source,
    )
    check_metric(metric, task)
    return task


def _parsed(path: Path) -> dict[str, Any]:
    check_readable(path)
    try:
        # BaseLoader leaves every scalar the text it is: classes [no, yes, 1.0] must not become
        # False, True and a number; pydantic reads the few numbers and the one boolean.
        values = read_yaml(path.read_text(encoding="utf-8-sig"), yaml.BaseLoader)
    except (ValueError, OSError) as error:
        raise DataError(f"task file {path} is not readable YAML: {error}") from error
    if not isinstance(values, dict):
        raise DataError(
            f"task file {path} must hold fields such as name, files, text, label; it holds no "
            "mapping"
        )
    return values


def _validated(path: Path, values: dict[str, Any]) -> TaskFile:
    try:
        return TaskFile.model_validate(values)
    except ValidationError as error:
        raise DataError(f"task file {path}: {problems(error, FIELDS)}") from error


def _check_name(path: Path, name: str) -> None:
    if not NAME.fullmatch(name):
        raise DataError(
            f"task file {path}: field 'name' is {name!r}; it may hold letters, digits, '.', '_' "
            "and '-', and begins with a letter or digit"
        )
    if name in KNOWN_TASKS or name in RESERVED_NAMES:
        raise DataError(
            f"task file {path}: field 'name' is '{name}', which is a built-in name; results of "
            "different tasks must not share one: choose another"
        )


def _source(path: Path, described: TaskFile) -> FilesSource:
    folder = path.resolve().parent

    def absolute(names: list[str]) -> tuple[str, ...]:
        return tuple(str((folder / Path(name).expanduser()).resolve()) for name in names)

    train, evaluation = absolute(described.files.train), absolute(described.files.evaluation)
    for file in (*train, *evaluation):
        try:
            check_readable(Path(file))
        except DataError as error:
            raise DataError(f"task file {path}: {error}") from None
    twice = sorted(set(train) & set(evaluation))
    if twice:
        raise DataError(
            f"task file {path}: {twice[0]} is both a training and an evaluation file; leave "
            "files.evaluation out and set evaluation_share to hold out a part of it"
        )
    share = described.evaluation_share
    if evaluation and share is not None:
        raise DataError(
            f"task file {path}: evaluation_share is {share:g}, but files.evaluation names the "
            "evaluation rows; give one of the two"
        )
    if not evaluation and share is None:
        share = DEFAULT_EVALUATION_SHARE
    return FilesSource(
        format=_format(path, described.format, (*train, *evaluation)),
        train=train,
        evaluation=evaluation,
        evaluation_share=share,
    )


def _format(path: Path, given: str | None, files: tuple[str, ...]) -> str:
    if given is not None:
        if given not in FORMATS:
            raise DataError(
                f"task file {path}: field 'format' is '{given}'; it must be one of "
                f"{', '.join(FORMATS)}"
            )
        return given
    found = {file: format_of(Path(file)) for file in files}
    for file, format in found.items():
        if format is None:
            raise DataError(
                f"task file {path}: {file} ends in none of {', '.join(SUFFIXES)}; set format to "
                f"one of {', '.join(FORMATS)}"
            )
    formats = sorted({format for format in found.values() if format})
    if len(formats) > 1:
        raise DataError(
            f"task file {path}: its files are of different formats ({', '.join(formats)}); convert "
            "them to one"
        )
    return formats[0]


def _classes(path: Path, described: TaskFile, source: FilesSource) -> tuple[str, ...]:
    given = described.classes
    if described.regression:
        if given is not None:
            raise DataError(
                f"task file {path}: classes are {given}, but regression is true; give one of the "
                "two"
            )
        return ()
    if given is None:
        return _classes_found(path, described.label, source)
    if len(given) < 2:
        raise DataError(
            f"task file {path}: field 'classes' is {given}; it must name two or more labels"
        )
    if len(set(given)) < len(given):
        raise DataError(
            f"task file {path}: field 'classes' is {given}; each label must stand there once"
        )
    return tuple(given)


def _classes_found(path: Path, label: str, source: FilesSource) -> tuple[str, ...]:
    found: set[str] = set()
    for file in source.train:
        cells = read_table(Path(file), source.format, [label]).columns[label]
        found.update(cell for cell in cells if cell is not None and cell.strip())
    if label == "gold_label":
        found.discard(UNLABELLED)
    if len(found) < 2:
        raise DataError(
            f"task file {path}: the training rows have {len(found)} different labels in column "
            f"'{label}' ({', '.join(sorted(found)) or 'none'}); a classification needs two classes"
        )
    if len(found) > MOST_INFERRED_CLASSES:
        raise DataError(
            f"task file {path}: the training rows have {len(found)} different labels in column "
            f"'{label}'; write regression: true for numbers, or list the classes"
        )
    return tuple(sorted(found, key=number_then_text))


def number_then_text(label: str) -> tuple[int, float, str]:
    """2 before 10, and numbers before words."""
    return (0, float(label), label) if re.fullmatch(r"-?\d+(\.\d+)?", label) else (1, 0.0, label)


def _metric(path: Path, described: TaskFile, kind: TaskKind, classes: int) -> Metric:
    given = described.metric
    if given is None:
        return Metric.SPEARMAN if kind is TaskKind.REGRESSION else Metric.ACCURACY
    allowed = allowed_metrics(kind, classes)
    if given not in allowed:
        shape = "a regression" if kind is TaskKind.REGRESSION else f"{classes} classes"
        near = nearest(given, allowed)
        hint = f": did you mean '{near}'?" if near else ""
        raise DataError(
            f"task file {path}: field 'metric' is '{given}'; for {shape} it must be one of "
            f"{', '.join(allowed)}{hint}"
        )
    return Metric(given)


def _companions(kind: TaskKind, classes: int) -> tuple[Metric, ...]:
    """Logged beside the headline: the other correlation, or accuracy."""
    if kind is TaskKind.REGRESSION:
        return (Metric.SPEARMAN, Metric.PEARSON)
    return (Metric.ACCURACY,)
