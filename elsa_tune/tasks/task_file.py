"""What `--task` may name: a known task, a data set, a task file in YAML, or a table of rows."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
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

from elsa_tune.errors import DataError, UnknownNameError, quoted, shortlist
from elsa_tune.files import expanded
from elsa_tune.specs.checked import problems, read_yaml_file
from elsa_tune.specs.task import (
    Cleaning,
    FilesSource,
    GlueSource,
    Metric,
    TaskKind,
    TaskSpec,
    label_key,
)
from elsa_tune.tasks.data_set_task import (
    DEFAULT_EVALUATION_SHARE,
    Wanted,
    data_set_task,
    is_data_set,
    named_data_set,
    number_then_text,
    read_reference,
)
from elsa_tune.tasks.draft import GUESSED, Columns, Guess, guess_task
from elsa_tune.tasks.hub import HUB_TASKS, is_built_in
from elsa_tune.tasks.known import KNOWN_TASKS
from elsa_tune.tasks.labels import MOST_CLASSES, check_no_lists, is_not_agreed
from elsa_tune.tasks.table_file import (
    FORMATS,
    REMEDIES,
    SUFFIXES,
    check_readable,
    format_of,
    read_table,
)

YAML_SUFFIXES = (".yaml", ".yml")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def free_name(name: str) -> str:
    """Return a task's name. Raises ValueError where it is none, or a built-in one."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"must be letters, digits, '.', '_' and '-', a letter or digit first, not {name!r}"
        )
    if is_built_in(name):
        raise ValueError(
            f"'{name}' is a built-in name; results of different tasks must not share one: choose "
            "another"
        )
    return name


def _two_or_more(classes: list[str]) -> list[str]:
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise ValueError(f"must name two or more labels, each once, not {quoted(classes)}")
    return classes


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"must be a text without NUL, not {quoted(text)}")
    return text


# No file's name has a NUL in it, nor has any cell.
Text = Annotated[str, Field(min_length=1), AfterValidator(_without_nul)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _for_training(value: Any) -> Any:
    return {"train": value} if isinstance(value, str | list) else value


# One file or one column may be written without the brackets.
Texts = Annotated[list[Text], BeforeValidator(_listed)]


class Files(BaseModel):
    """The files that hold the rows; relative paths are relative to the YAML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: Annotated[Texts, Field(min_length=1)]  # read one after the other
    evaluation: Texts = []  # likewise; none: a share of the training rows is held out


class _Described(BaseModel):
    """The fields that every task file may have, explained in docs/reference/task-files.md."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, AfterValidator(free_name)]  # the task's, in MLflow and in answers
    # In the order of their ids; None: those in the training rows.
    classes: Annotated[Texts, AfterValidator(_two_or_more)] | None = None
    kind: TaskKind | None = None  # what is predicted; None: as `regression` says
    regression: bool = False  # whether labels are numbers
    metric: Metric | None = None  # the headline one; None: the usual one of such a task
    # Of the training rows, the share that is held out to evaluate; None: 0.2 where rows must be.
    evaluation_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    drop_leaked: bool = False  # training rows whose text is evaluated, too
    drop_duplicates: bool = False  # training rows that repeat another's text and label
    drop_contradictions: bool = False  # training rows whose text has another label elsewhere
    merge_labels: bool = False  # whether those equal but for blanks and case are one class
    missing_labels: Texts = []  # those that mean none; their rows are left out
    group: Text | None = None  # a column: rows with the same cell are one unit; None: equal texts

    @property
    def task_kind(self) -> TaskKind:
        """What is predicted: `kind`, or `regression: true` for short."""
        if self.kind is not None:
            return self.kind
        return TaskKind.REGRESSION if self.regression else TaskKind.CLASSIFICATION

    def check_group(self, label: str | None) -> None:
        """Raise ValueError where the label is to tell which rows are one unit."""
        if self.group is not None and self.group == label:
            raise ValueError(
                f"group and label both name the column '{label}'; a group is what rows share, "
                "as their document or user"
            )

    def check_regression(self) -> None:
        """Raise ValueError where a task without classes has fields that are about them."""
        if self.regression and self.kind not in (None, TaskKind.REGRESSION):
            raise ValueError(f"kind is {self.kind}, but regression is true; give one of the two")
        from elsa_tune.tasks.types.registry import type_of

        if type_of(self.task_kind).names_classes:
            return
        is_numbers = self.task_kind is TaskKind.REGRESSION
        but = "regression is true" if is_numbers else f"kind {self.task_kind} has none"
        if self.classes is not None:
            raise ValueError(f"classes are {quoted(self.classes)}, but {but}; give one of the two")
        if self.merge_labels:
            raise ValueError(f"merge_labels is about classes, but {but}; leave it out")
        if self.drop_contradictions:
            raise ValueError(f"drop_contradictions is about classes, but {but}; leave it out")


class TaskFile(_Described):
    """The fields of a task file whose rows lie in files."""

    # Files without a word are those to train on.
    files: Annotated[Files, BeforeValidator(_for_training)]
    # Of all files; None: as the suffix of each says.
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None
    text: Annotated[Texts, Field(min_length=1, max_length=2)]  # a column, or two of a pair
    label: Text  # another column

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        columns = [*self.text, self.label]
        if len(set(columns)) < len(columns):
            raise ValueError(
                f"fields 'text' and 'label' name the columns {', '.join(columns)}; each must be "
                "another column"
            )
        self.check_regression()
        self.check_group(self.label)
        if self.files.evaluation and self.evaluation_share is not None:
            raise ValueError(
                f"evaluation_share is {self.evaluation_share:g}, but files.evaluation names the "
                "evaluation rows; give one of the two"
            )
        return self


class DataSetFile(_Described):
    """The fields of a task file for a data set of the hub, or for one that `save_to_disk` wrote.

    Those that are left out are read from the data set.
    """

    hub: Text | None = None  # `owner/name`; None where `files` is given
    files: Text | None = None  # the folder of a saved data set, or of a copy of a repository
    config: Text | None = None  # one of the configurations of the data set
    revision: Text | None = None  # a branch, tag or commit of the hub's; None: the newest
    train: Text | None = None  # a split's name
    evaluation: Text | None = None  # a split's name
    text: Annotated[Texts, Field(max_length=2)] = []  # a column, or two of a pair
    label: Text | None = None  # a column

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.hub is not None and self.files is not None:
            raise ValueError("hub and files both name the rows; give one of the two")
        if self.files is not None and self.revision is not None:
            raise ValueError(f"revision is {self.revision}, but a folder has none; drop it")
        self.check_regression()
        self.check_group(self.label)
        if self.evaluation is not None and self.evaluation_share is not None:
            raise ValueError(
                f"evaluation_share is {self.evaluation_share:g}, but evaluation names the "
                "evaluation split; give one of the two"
            )
        return self


FIELDS = {"": TaskFile.model_fields, "files": Files.model_fields}
DATA_SET_FIELDS = {"": DataSetFile.model_fields}


def is_table(task: str) -> bool:
    """Whether what `task` names is a table of rows, by its suffix."""
    return format_of(Path(task)) is not None and not is_data_set(task)


def has_columns(task: str) -> bool:
    """Whether `label`, `text` and `group` may name columns of it: of a table, or of a data set."""
    return is_table(task) or is_data_set(task)


def resolve_task(
    text: str,
    data_dir: str | None = None,
    metric: str | None = None,
    columns: Columns = GUESSED,
) -> TaskSpec:
    """Return the task that a name, a data set, a task file or a table stands for.

    metric: replaces the headline one. data_dir: a local GLUE folder in the official layout.
    columns: a table's or data set's. Raises UnknownNameError or DataError.
    """
    remedy = REMEDIES.get(Path(text).suffix.lower())
    if remedy is not None and not is_data_set(text):
        raise DataError(f"task {text} is none of {', '.join(SUFFIXES)}, which are read: {remedy}")
    if columns != GUESSED and not has_columns(text):
        raise DataError(
            "`label`, `text` and `group` name columns of a table or a data set, and task "
            f"'{text}' is neither: a task file names its own"
        )
    if text in KNOWN_TASKS:
        task = KNOWN_TASKS[text]
    elif is_data_set(text):
        task = named_data_set(
            text, Wanted(text=columns.texts, label=columns.label, group=columns.group)
        )
    elif text.lower().endswith(YAML_SUFFIXES):
        task = read_task_file(Path(text))
    elif is_table(text):
        task = read_table_task(Path(text), columns)
    else:
        raise UnknownNameError.among(
            "task",
            text,
            {*KNOWN_TASKS, *HUB_TASKS},
            hint="A data set of the hub is hub:owner/name. Your own task is a .yaml file, or a "
            "table: `elsa-tune tasks YOUR.csv`.",
        )
    if data_dir is not None:
        if not isinstance(task.source, GlueSource):
            raise DataError(
                f"`data_dir` is a folder of GLUE tasks, and task '{task.name}' is none of them; "
                "drop it"
            )
        folder = str(expanded(data_dir).resolve())
        task = replace(task, source=replace(task.source, data_dir=folder))
    if metric is None:
        return task
    from elsa_tune.tasks.types.registry import with_metric  # numpy, which names do without

    return with_metric(task, metric)


def read_table_task(path: Path, columns: Columns = GUESSED) -> TaskSpec:
    """Return the task of a table: the same rows and columns give the same one.

    Raises DataError, with the columns that may be meant, where it is not clear which is the label.
    """
    guess = guess_task(expanded(path), columns)
    guess.check_label()
    return guessed_task(guess)


def guessed_task(guess: Guess) -> TaskSpec:
    """Return the task of a guess. Raises DataError where it cannot be trained on."""
    try:
        return _task(TaskFile.model_validate(guess.fields), Path.cwd())
    except (ValidationError, DataError) as error:
        raise DataError(f"table {guess.path}: {problems(error, FIELDS)}") from error


def read_task_file(path: Path) -> TaskSpec:
    """Read and check a task file (docs/reference/task-files.md). Raises DataError.

    Every file is checked to exist; the labels of the training files are read only where the
    classes are left out.
    """
    path = expanded(path)
    check_readable(path)
    try:
        # BaseLoader leaves every scalar the text it is: classes [no, yes, 1.0] must not become
        # False, True and a number; pydantic reads the few numbers and the one boolean.
        values = read_yaml_file(path, yaml.BaseLoader)
    except (ValueError, OSError) as error:
        raise DataError(f"task file {path} is not readable YAML: {error}") from error
    folder = path.resolve().parent
    is_of_data_set = _is_of_data_set(values, folder)
    fields = DATA_SET_FIELDS if is_of_data_set else FIELDS
    try:
        if is_of_data_set:
            return _data_set_task(DataSetFile.model_validate(values), folder)
        return _task(TaskFile.model_validate(values), folder)
    except (ValidationError, DataError) as error:
        raise DataError(f"task file {path}: {problems(error, fields)}") from error


def _is_of_data_set(values: object, folder: Path) -> bool:
    """Whether the file says `hub`, or `files` is a folder."""
    if not isinstance(values, dict) or "hub" in values:
        return isinstance(values, dict)
    files = values.get("files")
    # os.path, because it takes any text for a path.
    return isinstance(files, str) and bool(files) and os.path.isdir(folder / expanded(files))


def _within(folder: Path, name: str) -> Path:
    return (folder / expanded(name)).resolve()


def _data_set_task(described: DataSetFile, folder: Path) -> TaskSpec:
    if described.hub is not None:
        location, config = read_reference(described.hub)
    else:
        location = str(_within(folder, described.files or ""))
        config = None
    wanted = Wanted(
        name=described.name,
        text=tuple(described.text),
        label=described.label,
        train=described.train,
        evaluation=described.evaluation,
        evaluation_share=described.evaluation_share,
        classes=tuple(described.classes or ()),
        kind=described.kind,
        regression=described.task_kind is TaskKind.REGRESSION,
        metric=described.metric,
        group=described.group,
    )
    cleaning = _cleaning(described)
    task = data_set_task(
        location, wanted, config=described.config or config, revision=described.revision
    )
    if not task.classes and (cleaning.merge_labels or cleaning.drop_contradictions):
        field = "merge_labels" if cleaning.merge_labels else "drop_contradictions"
        raise DataError(
            f"{field} is about classes, but column '{task.label_column}' holds numbers, a "
            "regression's; leave it out, or give classes"
        )
    classes = tuple(_cleaned_names(task.classes, cleaning))
    _check_merged(task.classes, classes)
    return replace(task, classes=classes, cleaning=cleaning)


def _check_merged(declared: Sequence[str], cleaned: Sequence[str]) -> None:
    """Raise DataError where cleaning leaves fewer than two of the declared classes."""
    if declared and len(cleaned) < 2:
        raise DataError(
            f"without missing_labels, and labels that are alike merged, there are {len(cleaned)} "
            "classes; a classification needs two"
        )


def _cleaned_names(names: Sequence[str], cleaning: Cleaning) -> list[str]:
    """Leave out the names of no label, and merge those alike where that is wanted.

    Merged ones are called as the first of them.
    """
    classes = [name for name in names if name not in cleaning.missing_labels]
    if not cleaning.merge_labels:
        return classes
    first_names: dict[str, str] = {}  # of those alike
    for name in classes:
        first_names.setdefault(label_key(name), " ".join(name.split()))
    return list(first_names.values())


def _cleaning(described: _Described) -> Cleaning:
    values = {field.name: getattr(described, field.name) for field in fields(Cleaning)}
    values["missing_labels"] = tuple(described.missing_labels)
    return Cleaning(**values)


def _task(described: TaskFile, folder: Path) -> TaskSpec:
    from elsa_tune.tasks.types.registry import type_of, with_metric

    source = _source(described, folder)
    classes = tuple(described.classes or ())
    cleaning = _cleaning(described)
    task_type = type_of(described.task_kind)
    if task_type.names_classes:
        rows = Counter[str]()
        if not classes:
            for cell in _labels_found(described.label, source):
                rows.update(task_type.classes_in(cell))
        classes = _classes(described.label, classes, rows, cleaning, described.task_kind)
    task = TaskSpec(
        name=described.name,
        kind=described.task_kind,
        text_columns=tuple(described.text),
        label_column=described.label,
        classes=classes,
        metric=task_type.usual[0],
        companions=task_type.usual[1:],
        source=source,
        cleaning=cleaning,
        group_column=described.group,
    )
    return task if described.metric is None else with_metric(task, described.metric)


def _source(described: TaskFile, folder: Path) -> FilesSource:
    def absolute(names: list[str]) -> tuple[str, ...]:
        return tuple(str(_within(folder, name)) for name in names)

    train = absolute(described.files.train)
    evaluation = absolute(described.files.evaluation)
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


def _classes(
    label: str,
    declared: tuple[str, ...],
    rows: Mapping[str, int],
    cleaning: Cleaning,
    kind: TaskKind,
) -> tuple[str, ...]:
    """Return the classes declared, else those of the training files, sorted; alike ones merged.

    rows: how many rows of the training files have each, where none are declared. kind: of the task.
    """
    check_no_lists(rows, f"column '{label}'")
    # The first declared one, or the commonest, names the class.
    by_rows = sorted(rows, key=lambda name: (-rows[name], name))
    names = _cleaned_names(declared or by_rows, cleaning)
    _check_merged(declared, names)
    most = len(names) if declared else MOST_CLASSES
    if not 2 <= len(names) <= most:
        few = f" ({shortlist(sorted(names)) or 'none'})" if len(names) < 2 else ""
        what = "a classification"
        for_numbers = "write regression: true for numbers, or "
        if kind is not TaskKind.CLASSIFICATION:
            what = f"a task of kind {kind}"
            for_numbers = ""
        raise DataError(
            f"the training rows have {len(names)} different labels in column '{label}'{few}; "
            f"{what} needs two classes; {for_numbers}list the classes in a task file where they "
            "are many"
        )
    return tuple(names if declared else sorted(names, key=number_then_text))


def _labels_found(label: str, source: FilesSource) -> Iterator[str]:
    for file in source.train:
        for cell in read_table(Path(file), source.format, [label]).columns[label]:
            if cell is not None and cell.strip() and not is_not_agreed(cell, label):
                yield cell
