"""Rows that a program holds, kept as files beside a task file, so that `resume` finds them."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml

from elsa_tune.errors import DataError, StorageError, first_line, shortlist
from elsa_tune.files import LONGEST_NAME, write_aside
from elsa_tune.specs.task import DataSetSource, TaskKind
from elsa_tune.tasks.data_set_task import Wanted, check_texts, task_of
from elsa_tune.tasks.data_sets.data_set import DataSet, split_table
from elsa_tune.tasks.labels import are_values
from elsa_tune.tasks.task_file import free_name
from elsa_tune.words import listed

_Fields = dict[str, Any]  # of a task file
_Frames = dict[str, pd.DataFrame]  # by the part of the task: `train`, `evaluation`

# What messages call the second of a pair.
_EVALUATION = "evaluation"
# What pandas calls a column of objects that are floats, perhaps whole numbers among them.
_FLOATS = ("floating", "mixed-integer-float", "decimal")
# What pandas and Arrow raise for a column that no Parquet file can hold.
_UNWRITABLE = (pa.ArrowException, TypeError, ValueError, OverflowError)


def write_task(
    rows: Any,
    folder: Path,
    name: str,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    further: Mapping[str, Any] | None = None,
) -> Path:
    """Write the rows under the folder, in one named by their content, and return the task file.

    rows: a DataFrame, a pair of them (training, evaluation), a Dataset or DatasetDict of
    `datasets`, a pair of Datasets, or a mapping with `train` and `validation` of what has
    `to_pandas`. text: one or two columns, by default `text`; label: one, by default `label`; a data
    set may tell them itself, as one of the hub does. Missing labels stay missing: as in any file,
    the rows are skipped and counted where they are read. further: other fields of the task file:
    `group`, those that drop rows or merge labels, and `regression`, which says whether labels are
    numbers to predict. Without it floats count as such where `tasks/labels.py` says so; all other
    labels are classes. Raises DataError; StorageError where the folder cannot be written.
    """
    name = _plain(name)
    label = _plain(label)
    further = {field: _plain(value) for field, value in (further or {}).items()}
    _check_name(name)
    group = further.get("group")
    regression = further.get("regression")
    texts = _plain([text] if isinstance(text, str) else list(text or ()))
    splits = _data_set(rows)
    if splits is not None:
        wanted = Wanted(
            name=name,
            text=tuple(texts),
            label=label,
            group=group,
            kind=_kind_of(regression),
            # Whoever gives a second data set wants it evaluated, and nothing else.
            evaluation=_EVALUATION if _are_two(rows) else None,
        )
        fields, frames = _of_data_set(splits, wanted)
    else:
        fields, frames = _of_frames(
            rows,
            name,
            texts=texts or ["text"],
            label=label or "label",
            group=group,
            regression=regression,
        )
    return _written(folder, fields, frames, further)


def _plain(value: Any) -> Any:
    """Return texts as Python's own: a numpy array's are of another kind, which YAML refuses."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _check_name(name: str) -> None:
    """Raise DataError for a name that cannot be a task's: it becomes a part of a path."""
    try:
        free_name(name)
    except ValueError as error:
        raise DataError(f"`task_name` {error}") from None
    if len(name) > LONGEST_NAME:
        raise DataError(
            f"`task_name` has {len(name)} characters; give one of at most {LONGEST_NAME}"
        )


def _of_frames(
    rows: Any,
    name: str,
    *,
    texts: list[str],
    label: str,
    group: str | None,
    regression: bool | None,
) -> tuple[_Fields, _Frames]:
    """Return the fields of a task file and the rows of its files."""
    check_texts(texts, label)
    if group == label:
        raise DataError(f"`group` and `label` both name the column '{label}'; give two columns")
    frames = {}
    numbers: set[float] = set()  # those of labels that are floats
    columns = [*texts, label]
    if group is not None and group not in columns:
        columns.append(group)
    for part, rows_of_part in _parts(rows).items():
        frame = _checked(rows_of_part, part, columns)
        frames[part] = frame
        if group is not None:
            # A number that lacks in some rows of one part is the same in the other.
            frame[group] = _without_points(frame[group])
        if _are_floats(frame[label]):
            numbers.update(_numbers(frame[label]))
    is_regression = regression
    if is_regression is None:
        is_regression = are_values(numbers, label)
    if not is_regression:  # names and whole numbers are classes
        for frame in frames.values():
            frame[label] = _without_points(frame[label])
    fields = {
        "name": name,
        "text": texts,
        "label": label,
        "regression": is_regression,
    }
    return fields, frames


def _kind_of(regression: bool | None) -> TaskKind | None:
    """Return what kind of task was asked for; None leaves it to the data set."""
    if regression is None:
        return None
    return TaskKind.REGRESSION if regression else TaskKind.CLASSIFICATION


def _are_floats(column: pd.Series) -> bool:
    """Whether a column holds floats, also where its dtype does not say so."""
    if pd.api.types.is_object_dtype(column):
        return pd.api.types.infer_dtype(column, skipna=True) in _FLOATS
    return bool(pd.api.types.is_float_dtype(column))


def _numbers(column: pd.Series) -> list[float]:
    """Return the different numbers of a column of floats."""
    with_nan = pd.to_numeric(column).to_numpy(dtype="float64", na_value=math.nan)
    numbers: list[float] = np.unique(with_nan[~np.isnan(with_nan)]).tolist()
    return numbers


def _without_points(column: pd.Series) -> pd.Series:
    """Return a column of whole numbers as texts where they are floats; any other as it is.

    pandas makes floats of whole numbers where some are missing.
    """
    if not _are_floats(column):
        return column
    if not all(number.is_integer() for number in _numbers(column)):
        return column
    is_there = column.notna()
    texts = pd.Series(pd.NA, index=column.index, dtype="string")
    texts[is_there] = [str(int(number)) for number in column[is_there]]
    return texts


def _written(
    folder: Path,
    fields: Mapping[str, Any],
    frames: _Frames,
    further: Mapping[str, Any],
) -> Path:
    """Write a task file and its rows in a folder named by their content; return the task file."""
    contents: dict[str, bytes] = {}  # by file name
    files: dict[str, str] = {}  # file names by part
    digest = hashlib.sha256()
    for part, frame in frames.items():
        file_name = f"{part}.parquet"
        files[part] = file_name
        content = _parquet(frame, part)
        contents[file_name] = content
        digest.update(content)
    if further:
        digest.update(yaml.safe_dump(dict(further)).encode())
    task = {**fields, "files": files, **further}
    text = yaml.safe_dump(task, sort_keys=False, allow_unicode=True)
    name = fields["name"]
    key = digest.hexdigest()[:12]
    task_folder = folder / f"{name}-{key}"
    task_file = task_folder / "task.yaml"
    contents[task_file.name] = text.encode()  # last: it names the others
    try:
        for file_name, content in contents.items():
            write_aside(task_folder / file_name, content)
    except OSError as error:
        why = error.strerror or error
        raise StorageError(
            f"rows cannot be kept in {task_folder}: {why}; name another `storage_path`"
        ) from error
    return task_file


def _parquet(frame: pd.DataFrame, part: str) -> bytes:
    """Return rows as a Parquet file. Raises DataError where a column cannot be in one."""
    try:
        content: bytes = frame.to_parquet(index=False)
        return content
    except _UNWRITABLE as error:
        raise _unwritable(frame, part, error) from error


def _unwritable(frame: pd.DataFrame, part: str, error: Exception) -> DataError:
    """Return the error for rows that are no Parquet file, with the column that is to blame."""
    fault = f"the {part} rows"
    for name in frame.columns:
        try:
            frame[[name]].to_parquet(index=False)
        except _UNWRITABLE:
            fault = f"column '{name}' of the {part} rows"
            kinds = sorted({type(value).__name__ for value in frame[name].dropna()})
            if len(kinds) > 1:
                return DataError(
                    f"{fault} holds {listed(kinds)}, and a column has one kind of value; convert "
                    "it, as astype('string') does"
                )
            break
    return DataError(
        f"{fault} cannot be kept in a file ({first_line(error)}); convert it to texts or numbers"
    )


def _are_two(rows: Any) -> bool:
    """Whether rows are a pair: those to train on, and those to evaluate."""
    return isinstance(rows, tuple | list) and len(rows) == 2


def _data_set(rows: Any) -> dict[str, Any] | None:
    """Return the splits of a Dataset, a pair of them or a DatasetDict; None for other rows.

    Raises DataError for one that streams.
    """
    splits = {"train": rows}
    if isinstance(rows, Mapping):
        splits = dict(rows)
    elif _are_two(rows):
        train, evaluation = rows
        splits = {"train": train, _EVALUATION: evaluation}
    for split in splits.values():
        is_data_set = hasattr(split, "features") and hasattr(split, "to_pandas")
        if not is_data_set:
            return None
        if not hasattr(split, "__len__"):
            kind = type(split).__name__
            raise DataError(
                f"rows are an {kind}, which streams; load the data set without `streaming`"
            )
    return splits or None


def _of_data_set(
    splits: dict[str, Any],
    wanted: Wanted,
) -> tuple[_Fields, _Frames]:
    """Return the fields of a task file and the rows of its files, classes by their names."""
    data_set = DataSet("the rows", splits)
    task = task_of(data_set, wanted)
    source = task.source
    assert isinstance(source, DataSetSource)
    parts = {"train": source.train}
    if source.evaluation:
        parts["evaluation"] = source.evaluation
    frames = {}
    for part, split in parts.items():
        table = split_table(data_set, split, task.columns)
        frames[part] = pd.DataFrame(table.columns, dtype="string")
    fields: _Fields = {
        "name": task.name,
        "text": list(task.text_columns),
        "label": task.label_column,
        "regression": not task.classes,
    }
    if task.classes:
        fields["classes"] = list(task.classes)
    return fields, frames


def _parts(rows: Any) -> _Frames:
    """Return the rows of `train`, and of `evaluation` where they are given. Raises DataError."""
    if isinstance(rows, pd.DataFrame):
        return {"train": rows}
    if isinstance(rows, Mapping):
        if "train" not in rows or "validation" not in rows:
            raise DataError(
                f"the rows have the splits {shortlist(rows)}; a task needs `train` and `validation`"
            )
        rows = [rows["train"], rows["validation"]]
    if not _are_two(rows):
        kind = type(rows).__name__
        raise DataError(
            "a task is a name, a task file, a DataFrame, two of them or a DatasetDict, not a "
            f"{kind}"
        )
    train, evaluation = rows
    return {"train": _frame(train), "evaluation": _frame(evaluation)}


def _frame(rows: Any) -> pd.DataFrame:
    frame = rows.to_pandas() if hasattr(rows, "to_pandas") else rows
    if not isinstance(frame, pd.DataFrame):
        kind = type(frame).__name__
        raise DataError(f"rows come as a DataFrame or a Dataset, not as a {kind}")
    return frame


def _checked(frame: pd.DataFrame, part: str, columns: list[str]) -> pd.DataFrame:
    """Return these columns, called by texts. Raises DataError for one missing or there twice."""
    names = [str(name) for name in frame.columns]  # of a file without a header they are numbers
    for name in columns:
        count = names.count(name)
        if count > 1:
            raise DataError(
                f"the {part} rows have {count} columns '{name}'; rename or drop all but one"
            )
        if count == 0:
            raise DataError(
                f"the {part} rows have no column '{name}'; they have "
                f"{shortlist(frame.columns)}: name yours with `text`, `label` and `group`"
            )
    places = [names.index(name) for name in columns]
    checked = frame.iloc[:, places].reset_index(drop=True)
    checked.columns = pd.Index(columns)
    checked.attrs = {}  # a program's own notes, which may be nothing that a file can hold
    return checked
