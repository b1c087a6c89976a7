"""A task made of a data set that `datasets` reads: which columns are meant, which splits, and which
classes.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elsa_tune.errors import DataError
from elsa_tune.files import slug
from elsa_tune.specs.task import DataSetSource, Metric, TaskKind, TaskSpec
from elsa_tune.tasks import data_sets
from elsa_tune.tasks.data_sets import DataSet, is_list, is_text, read_data_set, split_table
from elsa_tune.tasks.hub import HUB_TASKS, PREFIX
from elsa_tune.tasks.known import KNOWN_TASKS

DEFAULT_EVALUATION_SHARE = 0.2
# More different labels than this, where no classes are declared, are numbers or texts.
MOST_CLASSES = 1000
# More different numbers than this are values, if some have fractions or none repeats.
MOST_STEPS = 20

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
    *("text", "sentence", "content", "review", "review_body", "tweet", "comment", "comment_text"),
    *("utterance", "document", "body", "message", "query", "question", "headline", "abstract"),
    *("description", "title"),
)
# `label_text` first: beside it `label` is only its number.
_LABELS = ("label_text", "label", "labels", "class", "category", "target", "intent", "sentiment")
_LABELS_MORE = ("emotion", "topic", "coarse_label", "score", "rating", "stars", "gold_label")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user said of a data set; None and () leave it to the data set itself.

    train, evaluation: names of splits. metric: the usual one of the kind of task unless given.
    """

    name: str | None = None
    text: tuple[str, ...] = ()
    label: str | None = None
    train: str | None = None
    evaluation: str | None = None
    evaluation_share: float | None = None
    classes: tuple[str, ...] = ()
    regression: bool = False
    metric: Metric | None = None


def is_data_set(text: str) -> bool:
    """Whether a task's name is that of a data set: `hub:owner/name`, a known one, or a folder."""
    if text.startswith(PREFIX) or text in HUB_TASKS:
        return True
    # os.path takes any text for a path. A known task goes before a folder of its name.
    return bool(text) and text not in KNOWN_TASKS and os.path.isdir(os.path.expanduser(text))


def named_data_set(text: str, wanted: Wanted) -> TaskSpec:
    """The task of `hub:owner/name`, `hub:owner/name/config`, a known name or a folder."""
    if (known := HUB_TASKS.get(text)) is not None:
        usual = {"text": known.text, "label": known.label, "metric": known.metric}
        given = {"text": wanted.text, "label": wanted.label, "metric": wanted.metric}
        chosen: Any = {name: given[name] or value for name, value in usual.items()}
        wanted = replace(wanted, name=wanted.name or slug(text), **chosen)
        return data_set_task(known.repository, wanted, config=known.config)
    if not text.startswith(PREFIX):
        folder = Path(text).expanduser().resolve()
        return data_set_task(str(folder), replace(wanted, name=wanted.name or slug(folder.name)))
    repository, config = read_reference(text)
    return data_set_task(repository, wanted, config=config)


def read_reference(text: str) -> tuple[str, str | None]:
    """Repository and configuration of `hub:owner/name/config`, or of `owner/name`."""
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:/([\w.+=-]+))?", text.removeprefix(PREFIX))
    if match is None:
        raise DataError(
            f"'{text}' names no data set of the hub: write hub:owner/name, or hub:owner/name/config"
        )
    return match[1], match[2]


def data_set_task(
    location: str, wanted: Wanted, *, config: str | None = None, revision: str | None = None
) -> TaskSpec:
    """The task of a data set of the hub, or of a folder, which is read for it. Raises DataError for
    one that cannot be had, and as `task_of` does.
    """
    name = slug("-".join(filter(None, (location.replace("/", "-"), config))))
    return task_of(
        read_data_set(location, config, revision), replace(wanted, name=wanted.name or name)
    )


def task_of(found: DataSet, wanted: Wanted) -> TaskSpec:
    """The task of a data set that was read. Raises DataError where it is not plain what is text and
    what label, and for labels that are not learnt here.
    """
    label = _label(found, wanted)
    names = data_sets.class_names(found.features[label])
    source = _source(found, wanted, label)
    is_regression = wanted.regression
    classes = wanted.classes or names or ()
    if not classes and not is_regression:
        cells = _labels_of(found, source.train, label)
        is_regression = data_sets.is_float(found.features[label]) and _are_values(cells)
        classes = () if is_regression else _classes(found, label, cells)
    usual = [Metric.SPEARMAN, Metric.PEARSON] if is_regression else [Metric.ACCURACY]
    task = TaskSpec(
        name=wanted.name or "",
        kind=TaskKind.REGRESSION if is_regression else TaskKind.CLASSIFICATION,
        text_columns=_texts(found, wanted, label),
        label_column=label,
        classes=tuple(classes),
        metric=usual[0],
        companions=tuple(usual[1:]),
        source=source,
    )
    return task if wanted.metric is None else task.with_metric(wanted.metric)


def _label(found: DataSet, wanted: Wanted) -> str:
    features = found.features
    if wanted.label is not None:
        _check_there(found, wanted.label, "label")
        if is_list(features[wanted.label]):
            raise several_labels(found, wanted.label)
        return wanted.label
    plain = [name for name, feature in features.items() if not is_list(feature)]
    declared = [name for name in plain if data_sets.class_names(features[name]) is not None]
    named = [name for name in (*_LABELS, *_LABELS_MORE) if name in plain]
    if len(declared) > 1:
        # Of several declared ones a name may tell which is meant.
        declared = [name for name in named if name in declared][:1] or declared
    if len(candidates := declared or named[:1]) == 1:
        return candidates[0]
    lists = [name for name in features if is_list(features[name])]
    lists = [name for name in lists if _says_label(name) or _holds_classes(features[name])]
    if not candidates and lists:
        raise several_labels(found, lists[0])
    several = f"has several labels ({', '.join(candidates)})" if candidates else "names no label"
    raise DataError(
        f"data set '{found.where}' {several}; name the column by `label`: it has "
        f"{data_sets.listed_columns(features)}"
    )


def several_labels(found: DataSet, label: str) -> DataError:
    """The error for a label column that holds lists: one a token, or several a row."""
    features = found.features
    by_token = re.search(r"(ner|pos|chunk|bio)|tags?$", label.lower()) and any(
        is_list(feature) and name.lower() in ("tokens", "words")
        for name, feature in features.items()
    )
    what = "token labels, a label for each word" if by_token else "several labels a row"
    plain = {name: one for name, one in features.items() if not is_list(one)}
    return DataError(
        f"column '{label}' of data set '{found.where}' has {what}; elsa-tune learns one label a "
        "row: name another column by `label`, or write one label a row into a file; columns with "
        f"one value a row: {data_sets.listed_columns(plain) or 'none'}"
    )


def _says_label(name: str) -> bool:
    return bool(re.search(r"label|tag|class|categor|topic|emotion|target", name.lower()))


def _holds_classes(feature: Any) -> bool:
    return data_sets.class_names(getattr(feature, "feature", None)) is not None


def _texts(found: DataSet, wanted: Wanted, label: str) -> tuple[str, ...]:
    features = found.features
    if wanted.text:
        for name in wanted.text:
            _check_there(found, name, "text")
        if len(set(wanted.text)) < len(wanted.text):
            raise DataError(f"`text` names the column '{wanted.text[0]}' twice; give two columns")
        if label in wanted.text:
            raise DataError(f"`text` and `label` both name the column '{label}'; give two columns")
        return wanted.text
    texts = [
        name
        for name, feature in features.items()
        if is_text(feature) and name != label and not name.startswith("label")
    ]
    for pair in _PAIRS:
        if set(pair) <= set(texts):
            return pair
    named = [name for name in _TEXTS if name in texts]
    if named or len(texts) == 1:
        return ((named or texts)[0],)
    which = "holds no column of texts" if not texts else "has several columns of texts"
    raise DataError(
        f"data set '{found.where}' {which}; name one or two by `text`: it has "
        f"{data_sets.listed_columns(features)}"
    )


def _check_there(found: DataSet, column: str, setting: str) -> None:
    if column not in found.features:
        raise DataError(
            f"`{setting}` {column}: data set '{found.where}' has no such column; it has "
            f"{data_sets.listed_columns(found.features)}"
        )


def _source(found: DataSet, wanted: Wanted, label: str) -> DataSetSource:
    train = _train_split(found, wanted)
    evaluation, share = wanted.evaluation, wanted.evaluation_share
    if evaluation is not None:
        _check_split(found, evaluation, "evaluation")
        if evaluation == train:
            raise DataError(
                f"data set '{found.where}': split '{train}' is both trained on and evaluated; name "
                "another one"
            )
        if not _is_labelled(found, evaluation, label):
            raise DataError(
                f"split '{evaluation}' of data set '{found.where}' has no labels in column "
                f"'{label}' (all are empty or -1); evaluate on another split: "
                f"{', '.join(found.splits)}"
            )
    elif share is None:
        evaluation = _evaluation_split(found, train, label)
    if evaluation is None:
        share = share or DEFAULT_EVALUATION_SHARE
    return DataSetSource(
        location=found.location,
        revision=found.revision,
        config=found.config,
        train=train,
        evaluation=evaluation,
        evaluation_share=share,
    )


def _train_split(found: DataSet, wanted: Wanted) -> str:
    if wanted.train is not None:
        _check_split(found, wanted.train, "train")
        return wanted.train
    if "train" in found.splits or len(found.splits) == 1:
        return "train" if "train" in found.splits else next(iter(found.splits))
    raise DataError(
        f"data set '{found.where}' has no split 'train', only {', '.join(found.splits)}; name the "
        "one to train on by `train` in a task file"
    )


def _check_split(found: DataSet, split: str, field: str) -> None:
    if split not in found.splits:
        raise DataError(
            f"`{field}` {split}: data set '{found.where}' has no such split; it has "
            f"{', '.join(found.splits)}"
        )


def _evaluation_split(found: DataSet, train: str, label: str) -> str | None:
    """The validation split, else the test split, of those that have labels; or None."""
    others = [name for name in found.splits if name != train]
    named = [name for name in others if name.split("_")[0] in _EVALUATED]
    tests = [name for name in others if name.split("_")[0] == "test"]
    for name in (*sorted(named, key=len), *tests):
        if _is_labelled(found, name, label):
            return name
    return None


def _is_labelled(found: DataSet, split: str, label: str) -> bool:
    return any(cell not in (None, "", "-1") for cell in _labels_of(found, split, label))


def _labels_of(found: DataSet, split: str, label: str) -> list[str | None]:
    return split_table(found, split, [label]).columns[label]


def _are_values(cells: list[str | None]) -> bool:
    """Whether a column of floats is numbers to predict, and not classes written as floats."""
    numbers = {float(cell) for cell in cells if cell is not None}
    return len(numbers) > MOST_STEPS or not all(map(float.is_integer, numbers))


def _classes(found: DataSet, label: str, cells: list[str | None]) -> tuple[str, ...]:
    different = {cell for cell in cells if cell is not None and cell.strip()}
    if not 2 <= len(different) <= MOST_CLASSES:
        raise DataError(
            f"column '{label}' of data set '{found.where}' has {len(different)} different labels; "
            f"a classification needs 2 to {MOST_CLASSES}: name another column by `label`, or write "
            "regression: true in a task file for numbers"
        )
    return tuple(sorted(different, key=number_then_text))


def number_then_text(label: str) -> tuple[int, float, str]:
    """2 before 10, and numbers before words."""
    return (0, float(label), label) if re.fullmatch(r"-?\d+(\.\d+)?", label) else (1, 0.0, label)


def shown_columns(source: DataSetSource) -> Mapping[str, str]:
    """Each column of a data set and what it holds, JSON-ready."""
    found = read_data_set(source.location, source.config, source.revision)
    return data_sets.columns_of(found.features)
