"""What `--task` may name: a known task, or a YAML file, of which `draft_task` guesses a draft."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from elsa_tune.errors import DataError, UnknownNameError
from elsa_tune.files import slug
from elsa_tune.specs.checked import problems, read_yaml
from elsa_tune.specs.known_tasks import KNOWN_TASKS, RESERVED_NAMES, UNLABELLED
from elsa_tune.specs.task import FilesSource, GlueSource, Metric, TaskKind, TaskSpec
from elsa_tune.tables.table_file import FORMATS, SUFFIXES, check_readable, format_of, read_table

YAML_SUFFIXES = (".yaml", ".yml")
DEFAULT_EVALUATION_SHARE = 0.2
# More distinct labels than this, where no classes are declared, are numbers or texts.
MOST_INFERRED_CLASSES = 1000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# A word of a column's name that says it is the label.
LABEL_WORDS = re.compile(
    r"(?<![a-z])(labels?|class|category|target|intent|sentiment|score|rating|stars)(?![a-z])"
)
# More different numbers than this are values, not classes; more classes are not written out.
MOST_CLASSES = 20


def _free_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"must be letters, digits, '.', '_' and '-', a letter or digit first, not {name!r}"
        )
    if name in KNOWN_TASKS or name in RESERVED_NAMES:
        raise ValueError(
            f"'{name}' is a built-in name; results of different tasks must not share one: choose "
            "another"
        )
    return name


def _two_or_more(classes: list[str]) -> list[str]:
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise ValueError(f"must name two or more labels, each once, not {classes}")
    return classes


Text = Annotated[str, Field(min_length=1)]
# One file or one column may be written without the brackets.
Texts = Annotated[list[Text], BeforeValidator(lambda one: [one] if isinstance(one, str) else one)]


class Files(BaseModel):
    """Where the rows lie; relative paths are relative to the YAML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: Annotated[Texts, Field(min_length=1)]
    evaluation: Texts = []


class TaskFile(BaseModel):
    """The fields of a task file; `read_task_file` says what is done with each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, AfterValidator(_free_name)]
    # Files without a word are those to train on.
    files: Annotated[
        Files, BeforeValidator(lambda one: {"train": one} if isinstance(one, str | list) else one)
    ]
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None
    text: Annotated[Texts, Field(min_length=1, max_length=2)]
    label: Text
    classes: Annotated[Texts, AfterValidator(_two_or_more)] | None = None
    regression: bool = False
    metric: Metric | None = None
    evaluation_share: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        columns = [*self.text, self.label]
        if len(set(columns)) < len(columns):
            raise ValueError(
                f"fields 'text' and 'label' name the columns {', '.join(columns)}; each must be "
                "another column"
            )
        if self.regression and self.classes is not None:
            raise ValueError(
                f"classes are {self.classes}, but regression is true; give one of the two"
            )
        if self.files.evaluation and self.evaluation_share is not None:
            raise ValueError(
                f"evaluation_share is {self.evaluation_share:g}, but files.evaluation names the "
                "evaluation rows; give one of the two"
            )
        return self


FIELDS = {"": TaskFile.model_fields, "files": Files.model_fields}


def resolve_task(text: str, data_dir: str | None = None, metric: str | None = None) -> TaskSpec:
    """Read a known task's name, or a user's task file. metric: replaces the headline metric.

    data_dir: a local GLUE folder in the official layout. Raises UnknownNameError or DataError.
    """
    if text in KNOWN_TASKS:
        task = KNOWN_TASKS[text]
    elif text.lower().endswith(YAML_SUFFIXES):
        task = read_task_file(Path(text))
    else:
        raise UnknownNameError.among(
            "task",
            text,
            KNOWN_TASKS,
            hint="Your own task is a .yaml file; `elsa-tune tasks YOUR.csv` drafts one.",
        )
    if data_dir is not None:
        if not isinstance(task.source, GlueSource):
            raise DataError(
                f"`data_dir` is a folder of GLUE tasks, and task '{task.name}' is none of them; "
                "drop it"
            )
        folder = str(Path(data_dir).expanduser().resolve())
        task = replace(task, source=replace(task.source, data_dir=folder))
    return task if metric is None else task.with_metric(metric)


def read_task_file(path: Path) -> TaskSpec:
    """Read and check a task file (docs/reference/task-files.md). Raises DataError.

    Every file is checked to exist; the labels of the training files are read only where the
    classes are left out.
    """
    path = path.expanduser()
    check_readable(path)
    try:
        # BaseLoader leaves every scalar the text it is: classes [no, yes, 1.0] must not become
        # False, True and a number; pydantic reads the few numbers and the one boolean.
        values = read_yaml(path.read_text(encoding="utf-8-sig"), yaml.BaseLoader)
    except (ValueError, OSError) as error:
        raise DataError(f"task file {path} is not readable YAML: {error}") from error
    try:
        return _task(TaskFile.model_validate(values), path.resolve().parent)
    except (ValidationError, DataError) as error:
        raise DataError(f"task file {path}: {problems(error, FIELDS)}") from error


def _task(described: TaskFile, folder: Path) -> TaskSpec:
    source, classes = _source(described, folder), tuple(described.classes or ())
    kind, usual = TaskKind.REGRESSION, [Metric.SPEARMAN, Metric.PEARSON]
    if not described.regression:
        kind, usual = TaskKind.CLASSIFICATION, [Metric.ACCURACY]
        classes = classes or _classes_found(described.label, source)
    task = TaskSpec(
        name=described.name,
        kind=kind,
        text_columns=tuple(described.text),
        label_column=described.label,
        classes=classes,
        metric=usual[0],
        companions=tuple(usual[1:]),
        source=source,
    )
    return task if described.metric is None else task.with_metric(described.metric)


def _source(described: TaskFile, folder: Path) -> FilesSource:
    def absolute(names: list[str]) -> tuple[str, ...]:
        return tuple(str((folder / Path(name).expanduser()).resolve()) for name in names)

    train, evaluation = absolute(described.files.train), absolute(described.files.evaluation)
    for file in (*train, *evaluation):
        check_readable(Path(file))
    if twice := sorted(set(train) & set(evaluation)):
        raise DataError(
            f"{twice[0]} is both a training and an evaluation file; leave files.evaluation out and "
            "set evaluation_share to hold out a part of it"
        )
    formats = {described.format or format_of(Path(file)) for file in (*train, *evaluation)}
    form, *others = formats
    if form is None or others:
        raise DataError(
            f"its files end in different ones of {', '.join(SUFFIXES)}, or in none of them; "
            f"convert them to one, or set format to one of {', '.join(FORMATS)}"
        )
    share = described.evaluation_share or (None if evaluation else DEFAULT_EVALUATION_SHARE)
    return FilesSource(format=form, train=train, evaluation=evaluation, evaluation_share=share)


def _classes_found(label: str, source: FilesSource) -> tuple[str, ...]:
    found: set[str] = set()
    for file in source.train:
        cells = read_table(Path(file), source.format, [label]).columns[label]
        found.update(cell for cell in cells if cell is not None and cell.strip())
    if label == "gold_label":
        found.discard(UNLABELLED)
    if not 2 <= len(found) <= MOST_INFERRED_CLASSES:
        few = f" ({', '.join(sorted(found)) or 'none'})" if len(found) < 2 else ""
        raise DataError(
            f"the training rows have {len(found)} different labels in column '{label}'{few}; a "
            "classification needs two classes; write regression: true for numbers, or list the "
            "classes where they are many"
        )
    return tuple(sorted(found, key=_number_then_text))


def _number_then_text(label: str) -> tuple[int, float, str]:
    """2 before 10, and numbers before words."""
    return (0, float(label), label) if re.fullmatch(r"-?\d+(\.\d+)?", label) else (1, 0.0, label)


def draft_task(path: Path) -> str:
    """The YAML of a task file for a table, with what was guessed in comments.

    The table is named as `path` is, so that the file belongs where this one is read from. Raises
    DataError for what is no readable table, and where nothing looks like a text or a label.
    """
    table = read_table(path, format_of(path) or "csv", None)
    columns = {
        name: [cell for cell in cells if cell is not None and cell.strip()]
        for name, cells in table.columns.items()
    }
    label = _label(columns)
    words = {
        name: sum(len(cell.split()) for cell in cells) / len(cells)
        for name, cells in columns.items()
        if cells and name != label and not _are_numbers(cells)
    }
    if label is None or not words:
        lacks = "label (values that repeat, or a name that says so)" if label is None else "text"
        raise DataError(
            f"no column of {path} looks like a {lacks}; its columns are "
            f"{', '.join(columns) or 'none'}: write the task file by hand"
        )
    first, *others = sorted(words, key=words.__getitem__, reverse=True)
    chosen = [first, *(name for name in others[:1] if words[name] >= 3)]
    texts = [name for name in columns if name in chosen]
    values = set(columns[label])
    are_few = len(values) <= MOST_CLASSES
    name, beside = slug(path.stem) or "task", _evaluation_beside(path)
    task: dict[str, Any] = {
        "name": f"{name}_own" if name in (*KNOWN_TASKS, *RESERVED_NAMES) else name,
        "files": str(path) if beside is None else {"train": str(path), "evaluation": str(beside)},
        "text": texts,
        "label": label,
    }
    metrics = "accuracy, f1 (of two classes), f1_macro, matthews"
    if _are_numbers(columns[label]) and not (
        are_few and all(float(one).is_integer() for one in values)
    ):
        metrics = "spearman, pearson"
        task["regression"] = True
    elif are_few:
        task["classes"] = sorted(values, key=_number_then_text)
    task["metric"] = metrics.split(",")[0]
    unused = ", ".join(name for name in columns if name not in (label, *texts)) or "none"
    comments = (
        f"Guessed from {len(table):,} rows: check each line. Paths are relative to this file.",
        "files: evaluation rows by the file's name; without them a fifth is held out"
        if beside
        else "files: a fifth is held out; or {train: ..., evaluation: ...}",
        f"text: one or two columns with the most words; not used: {unused}",
        f"label: {len(values):,} different values. classes: in id order. metric: {metrics}",
    )
    said = "".join(f"# {' '.join(comment.split())}\n" for comment in comments)
    return said + yaml.safe_dump(
        task, sort_keys=False, allow_unicode=True, default_flow_style=None, width=math.inf
    )


def _evaluation_beside(path: Path) -> Path | None:
    """tickets_dev.csv beside tickets.csv or tickets_train.csv, dev.csv beside train.csv."""
    stem = re.sub(r"[-_.]?train(ing)?$", "", path.stem, flags=re.IGNORECASE)
    ends = r"[-_.]?(dev|val(id(ation)?)?|eval(uation)?)"
    named = re.compile(re.escape(stem) + ends, re.IGNORECASE)
    found = sorted(one for one in path.parent.glob(f"*{path.suffix}") if named.fullmatch(one.stem))
    return found[0] if found else None


def _label(columns: dict[str, list[str]]) -> str | None:
    """A column named so, else the one with the fewest values that repeat; of equals the last."""
    differing = {name: len(set(cells)) for name, cells in columns.items() if len(set(cells)) > 1}
    repeating = [name for name in differing if 2 * differing[name] <= len(columns[name])]
    named = [
        name
        for name in differing
        if LABEL_WORDS.search(name.lower()) and (name in repeating or _are_numbers(columns[name]))
    ]
    return min(reversed(named or repeating), key=lambda name: differing[name], default=None)


def _are_numbers(cells: list[str]) -> bool:
    try:
        return all(math.isfinite(float(cell)) for cell in cells)
    except ValueError:
        return False
