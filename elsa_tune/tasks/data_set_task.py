"""How a data set that `datasets` reads becomes a task: its columns, its splits, its classes."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elsa_tune.errors import DataError
from elsa_tune.files import expanded, slug
from elsa_tune.specs.task import DataSetSource, Metric, TaskKind, TaskSpec
from elsa_tune.tasks.data_sets.data_set import (
    DataSet,
    class_names,
    columns_of,
    is_float,
    is_list,
    is_text,
    listed_columns,
    split_table,
)
from elsa_tune.tasks.data_sets.reading import read_data_set
from elsa_tune.tasks.hub import HUB_TASKS, PREFIX
from elsa_tune.tasks.known import KNOWN_TASKS, RESERVED_NAMES
from elsa_tune.tasks.labels import MOST_CLASSES, are_values, is_not_agreed
from elsa_tune.words import listed

DEFAULT_EVALUATION_SHARE = 0.2

_EVALUATED = ("validation", "valid", "val", "dev", "eval", "evaluation")
_PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("sentence_A", "sentence_B"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("question", "passage"),
    ("question", "sentence"),
    ("query", "passage"),
    ("title", "content"),
    ("title", "text"),
    ("title", "body"),
    ("subject", "body"),
)
# In order of preference.
_TEXTS = (
    "text",
    "sentence",
    "content",
    "review",
    "review_body",
    "tweet",
    "comment",
    "comment_text",
    "utterance",
    "document",
    "body",
    "message",
    "query",
    "question",
    "headline",
    "abstract",
    "description",
    "title",
)
_LABELS = (
    "label_text",  # first: beside it `label` is only its number
    "label",
    "labels",
    "class",
    "category",
    "target",
    "intent",
    "sentiment",
    "emotion",
    "topic",
    "coarse_label",
    "score",
    "rating",
    "stars",
    "gold_label",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user said of a data set; None and () leave it to the data set itself."""

    name: str | None = None  # the task's
    text: tuple[str, ...] = ()  # one or two columns
    label: str | None = None  # a column
    train: str | None = None  # a split
    evaluation: str | None = None  # a split
    evaluation_share: float | None = None  # of the rows of `train`, where no split is evaluated
    classes: tuple[str, ...] = ()  # in the order of their ids
    kind: TaskKind | None = None  # None: a regression for values, else a classification
    regression: bool = False  # whether it is one, whatever the labels look like
    metric: Metric | None = None  # None: the usual one of such a task
    group: str | None = None  # a column: rows with the same cell are one unit


def is_data_set(text: str) -> bool:
    """Whether a task's name is that of a data set: `hub:owner/name`, a known one, or a folder."""
    if text.startswith(PREFIX) or text in HUB_TASKS:
        return True
    # os.path takes any text for a path. A known task goes before a folder of its name.
    return bool(text) and text not in KNOWN_TASKS and os.path.isdir(expanded(text))


def named_data_set(text: str, wanted: Wanted) -> TaskSpec:
    """Return the task of `hub:owner/name`, `hub:owner/name/config`, a known name or a folder."""
    hub_task = HUB_TASKS.get(text)
    if hub_task is not None:
        wanted = replace(
            wanted,
            name=wanted.name or slug(text),
            text=wanted.text or hub_task.text,
            label=wanted.label or hub_task.label,
            metric=wanted.metric or hub_task.metric,
        )
        return data_set_task(hub_task.repository, wanted, config=hub_task.config)
    if text.startswith(PREFIX):
        repository, config = read_reference(text)
        return data_set_task(repository, wanted, config=config)
    folder = expanded(text).resolve()
    name = slug(folder.name)
    # One called as a task of the hub may be a copy of that, which is to have its name.
    if name in KNOWN_TASKS or name in RESERVED_NAMES:
        name = f"{name}_own"
    wanted = replace(wanted, name=wanted.name or name)
    return data_set_task(str(folder), wanted)


def read_reference(text: str) -> tuple[str, str | None]:
    """Return repository and configuration of `hub:owner/name/config`, or of `owner/name`."""
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:/([\w.+=-]+))?", text.removeprefix(PREFIX))
    if match is None:
        raise DataError(
            f"'{text}' names no data set of the hub: write hub:owner/name, or hub:owner/name/config"
        )
    return match[1], match[2]


def data_set_task(
    location: str, wanted: Wanted, *, config: str | None = None, revision: str | None = None
) -> TaskSpec:
    """Read a data set of the hub, or of a folder, and return its task.

    Raises DataError for one that cannot be had, and as `task_of` does.
    """
    data_set = read_data_set(location, config, revision)
    if not wanted.name:
        name = location.replace("/", "-")
        if config is not None:
            name += f"-{config}"
        wanted = replace(wanted, name=slug(name))
    return task_of(data_set, wanted)


def task_of(data_set: DataSet, wanted: Wanted) -> TaskSpec:
    """Return the task of a data set that was read.

    Raises DataError where it is not plain what is text and what label, and for labels that are not
    learnt here.
    """
    from elsa_tune.tasks.types.registry import type_of, with_metric

    train = _train_split(data_set, wanted)
    data_set = replace(data_set, train=train)
    label = _label(data_set, wanted)
    feature = data_set.features[label]
    source = _source(data_set, wanted, train, label)
    classes = wanted.classes or class_names(feature) or ()
    kind = wanted.kind
    if kind is None and wanted.regression:
        kind = TaskKind.REGRESSION
    cells: list[str | None] = []
    if not classes:
        cells = _labels_of(data_set, source.train, label)
    if kind is None:
        is_regression = False
        if not classes and is_float(feature):
            numbers = {float(cell) for cell in cells if cell is not None}
            is_regression = are_values(numbers, label)
        kind = TaskKind.REGRESSION if is_regression else TaskKind.CLASSIFICATION
    task_type = type_of(kind)
    if not task_type.names_classes:
        classes = ()
    elif not classes:
        classes = _classes(data_set, label, cells, task_type.classes_in)
    metric, *companions = task_type.usual
    task = TaskSpec(
        name=wanted.name or "",
        kind=kind,
        text_columns=_texts(data_set, wanted, label),
        label_column=label,
        classes=tuple(classes),
        metric=metric,
        companions=tuple(companions),
        source=source,
        group_column=_group(data_set, wanted, label),
    )
    if wanted.metric is None:
        return task
    return with_metric(task, wanted.metric)


def _label(data_set: DataSet, wanted: Wanted) -> str:
    """Return the label's column: the one given, the one declared as classes, or one named so."""
    features = data_set.features
    if wanted.label is not None:
        _check_there(data_set, wanted.label, "label")
        if is_list(features[wanted.label]):
            raise several_labels(data_set, wanted.label)
        return wanted.label
    candidates = _label_candidates(features)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        for name, feature in features.items():
            if is_list(feature) and (_says_label(name) or _holds_classes(feature)):
                raise several_labels(data_set, name)
    several = f"has several labels ({', '.join(candidates)})" if candidates else "names no label"
    raise DataError(
        f"data set '{data_set.where}' {several}; name the column by `label`: it has "
        f"{listed_columns(features)}"
    )


def _label_candidates(features: Mapping[str, Any]) -> list[str]:
    """Return the columns that may be the label, more than one where nothing tells which is."""
    single: list[str] = []  # columns with one value a row
    declared: list[str] = []  # those of them that declare classes
    for name, feature in features.items():
        if is_list(feature):
            continue
        single.append(name)
        if class_names(feature) is not None:
            declared.append(name)
    if len(declared) == 1:
        return declared
    # Of several declared ones a name may tell which is meant.
    for name in _LABELS:
        if name in (declared or single):
            return [name]
    return declared


def several_labels(data_set: DataSet, label: str) -> DataError:
    """Return the error for a label column that holds lists: one a token, or several a row."""
    lists: list[str] = []
    single: dict[str, Any] = {}
    for name, feature in data_set.features.items():
        if is_list(feature):
            lists.append(name.lower())
        else:
            single[name] = feature
    what = "several labels a row"
    has_tokens = "tokens" in lists or "words" in lists
    if has_tokens and re.search(r"(ner|pos|chunk|bio)|tags?$", label.lower()):
        what = "token labels, a label for each word"
    return DataError(
        f"column '{label}' of data set '{data_set.where}' has {what}; elsa-tune learns one label a "
        "row: name another column by `label`, or write one label a row into a file; columns with "
        f"one value a row: {listed_columns(single) or 'none'}"
    )


def _says_label(name: str) -> bool:
    pattern = r"label|tag|class|categor|topic|emotion|target"
    return re.search(pattern, name.lower()) is not None


def _holds_classes(feature: Any) -> bool:
    return class_names(getattr(feature, "feature", None)) is not None


def _texts(data_set: DataSet, wanted: Wanted, label: str) -> tuple[str, ...]:
    """Return the one or two columns of texts: those given, a pair that is named so, or one."""
    features = data_set.features
    if wanted.text:
        check_texts(wanted.text, label)
        for name in wanted.text:
            _check_there(data_set, name, "text")
        return wanted.text
    texts: list[str] = []
    for name, feature in features.items():
        if is_text(feature) and name != label and not name.startswith("label"):
            texts.append(name)
    for pair in _PAIRS:
        if set(pair) <= set(texts):
            return pair
    for name in _TEXTS:
        if name in texts:
            return (name,)
    if len(texts) == 1:
        return (texts[0],)
    which = "has several columns of texts" if texts else "holds no column of texts"
    raise DataError(
        f"data set '{data_set.where}' {which}; name one or two by `text`: it has "
        f"{listed_columns(features)}"
    )


def check_texts(texts: Sequence[str], label: str | None) -> None:
    """Raise DataError for more than two texts, and where two, or a text and the label, are one.

    label: its column, None where it is not named.
    """
    if len(texts) > 2:
        raise DataError(
            f"`text` names {len(texts)} columns ({listed(texts)}), but a row is a text or a pair "
            "of texts; name one or two"
        )
    for name in texts:
        if texts.count(name) > 1:
            raise DataError(f"`text` names the column '{name}' twice; give two columns")
    if label in texts:
        raise DataError(f"`text` and `label` both name the column '{label}'; give two columns")


def _check_there(data_set: DataSet, column: str, setting: str) -> None:
    if column not in data_set.features:
        raise DataError(
            f"`{setting}` {column}: data set '{data_set.where}' has no such column; it has "
            f"{listed_columns(data_set.features)}"
        )


def _group(data_set: DataSet, wanted: Wanted, label: str) -> str | None:
    """Return the column whose equal cells make rows one unit; None where none is named."""
    group = wanted.group
    if group is None:
        return None
    _check_there(data_set, group, "group")
    if group == label:
        raise DataError(f"`group` and `label` both name the column '{group}'; give two columns")
    if is_list(data_set.features[group]):
        raise DataError(
            f"`group` {group}: the column holds lists in data set '{data_set.where}'; name one "
            "with one value a row"
        )
    return group


def _source(data_set: DataSet, wanted: Wanted, train: str, label: str) -> DataSetSource:
    evaluation = wanted.evaluation
    share = wanted.evaluation_share
    if evaluation is not None:
        _check_split(data_set, evaluation, "evaluation")
        if evaluation == train:
            raise DataError(
                f"data set '{data_set.where}': split '{train}' is both trained on and evaluated; "
                "name another one"
            )
        if not _is_labelled(data_set, evaluation, label):
            remedy = f"give rows with labels, or none, so that a part of '{train}' is evaluated"
            others = [name for name in data_set.splits if name not in (train, evaluation)]
            if others:
                remedy = f"evaluate on another split: {', '.join(others)}"
            raise DataError(
                f"split '{evaluation}' of data set '{data_set.where}' has no labels in column "
                f"'{label}' (all are empty or -1); {remedy}"
            )
    elif share is None:
        evaluation = _evaluation_split(data_set, train, label)
    if evaluation is None:
        share = share or DEFAULT_EVALUATION_SHARE
    return DataSetSource(
        location=data_set.location,
        revision=data_set.revision,
        config=data_set.config,
        train=train,
        evaluation=evaluation,
        evaluation_share=share,
    )


def _train_split(data_set: DataSet, wanted: Wanted) -> str:
    if wanted.train is not None:
        _check_split(data_set, wanted.train, "train")
        return wanted.train
    if "train" in data_set.splits:
        return "train"
    if len(data_set.splits) == 1:
        return next(iter(data_set.splits))
    raise DataError(
        f"data set '{data_set.where}' has no split 'train', only "
        f"{', '.join(data_set.splits)}; name the one to train on by `train` in a task file"
    )


def _check_split(data_set: DataSet, split: str, field: str) -> None:
    if split not in data_set.splits:
        raise DataError(
            f"`{field}` {split}: data set '{data_set.where}' has no such split; it has "
            f"{', '.join(data_set.splits)}"
        )


def _evaluation_split(data_set: DataSet, train: str, label: str) -> str | None:
    """Return the validation split, else the test split, of those that have labels; or None."""
    validation_splits: list[str] = []
    test_splits: list[str] = []
    for name in data_set.splits:
        first_word = name.split("_")[0]
        if name == train:
            continue
        if first_word in _EVALUATED:
            validation_splits.append(name)
        elif first_word == "test":
            test_splits.append(name)
    validation_splits.sort(key=len)
    for name in validation_splits + test_splits:
        has_column = label in data_set.splits[name].features
        if has_column and _is_labelled(data_set, name, label):
            return name
    return None


def _is_labelled(data_set: DataSet, split: str, label: str) -> bool:
    return any(cell not in (None, "", "-1") for cell in _labels_of(data_set, split, label))


def _labels_of(data_set: DataSet, split: str, label: str) -> list[str | None]:
    return split_table(data_set, split, [label]).columns[label]


def _classes(
    data_set: DataSet,
    label: str,
    cells: list[str | None],
    named: Callable[[str], Iterable[str]],
) -> tuple[str, ...]:
    """Return the classes that the cells name, sorted. named: those of a cell."""
    different: set[str] = set()
    for cell in cells:
        if cell is not None and cell.strip() and not is_not_agreed(cell, label):
            different.update(named(cell))
    if not 2 <= len(different) <= MOST_CLASSES:
        raise DataError(
            f"column '{label}' of data set '{data_set.where}' has {len(different)} different "
            f"labels; a classification needs 2 to {MOST_CLASSES}: name another column by `label`, "
            "or write regression: true in a task file for numbers"
        )
    return tuple(sorted(different, key=number_then_text))


def number_then_text(label: str) -> tuple[int, float, str]:
    """Sort 2 before 10, and numbers before words."""
    if re.fullmatch(r"-?\d+(\.\d+)?", label):
        return (0, float(label), label)
    return (1, 0.0, label)


def shown_columns(source: DataSetSource) -> Mapping[str, str]:
    """Return each column of a data set's training split and what it holds, JSON-ready."""
    data_set = read_data_set(source.location, source.config, source.revision)
    data_set = replace(data_set, train=source.train)
    return columns_of(data_set.features)
