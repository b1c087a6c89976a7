"""Rows that a program holds, kept as files beside a task file, so that `resume` finds them."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from elsa_tune.errors import DataError, shortlist
from elsa_tune.files import write_aside
from elsa_tune.specs.task import DataSetSource
from elsa_tune.tasks.data_set_task import Wanted, task_of
from elsa_tune.tasks.data_sets import DataSet, split_table


def write_task(
    rows: Any,
    folder: Path,
    name: str,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    cleaning: Mapping[str, Any] | None = None,
) -> Path:
    """Write the rows under the folder, in one named by their content; returns the task file.

    rows: a DataFrame, a pair of them (training, evaluation), a Dataset or DatasetDict of
    `datasets`, or a mapping with `train` and `validation` of what has `to_pandas`. text: one or two
    columns, by default `text`; label: one, by default `label`; a data set may tell them itself, as
    one of the hub does. Numbers with fractions make the task a regression. Missing labels stay
    missing: as in any file, the rows are skipped and counted where they are read. cleaning: fields
    of the task file that drop rows or merge labels. Raises DataError.
    """
    texts = [text] if isinstance(text, str) else list(text or ())
    if (splits := _data_set(rows)) is not None:
        described, frames = _of_data_set(splits, Wanted(name=name, text=tuple(texts), label=label))
        return _written(folder, described, frames, cleaning or {})
    texts = texts or ["text"]
    label = label or "label"
    frames = {part: _checked(frame, part, [*texts, label]) for part, frame in _parts(rows).items()}
    floats = [one for one in frames.values() if pd.api.types.is_float_dtype(one[label])]
    is_regression = any((frame[label].dropna() % 1 != 0).any() for frame in floats)
    for frame in [] if is_regression else floats:
        frame[label] = frame[label].astype("Int64")  # names and whole numbers are classes
    described = {"name": name, "text": texts, "label": label, "regression": is_regression}
    return _written(folder, described, frames, cleaning or {})


def _written(
    folder: Path,
    described: dict[str, Any],
    frames: dict[str, pd.DataFrame],
    cleaning: Mapping[str, Any],
) -> Path:
    content = {part: frame.to_parquet(index=False) for part, frame in frames.items()}
    described["files"] = {part: f"{part}.parquet" for part in content}
    described |= cleaning
    name = described["name"]
    said = yaml.safe_dump(dict(cleaning)).encode() if cleaning else b""
    digest = hashlib.sha256(b"".join([*content.values(), said])).hexdigest()[:12]
    place = folder / f"{name}-{digest}"
    place.mkdir(parents=True, exist_ok=True)
    for part, data in content.items():
        write_aside(place / f"{part}.parquet", data)
    file = place / "task.yaml"
    write_aside(file, yaml.safe_dump(described, sort_keys=False, allow_unicode=True).encode())
    return file


def _data_set(rows: Any) -> dict[str, Any] | None:
    """The splits of a Dataset or a DatasetDict; None for rows of any other kind."""
    splits = dict(rows) if isinstance(rows, Mapping) else {"train": rows}
    are_data_sets = all(
        hasattr(one, "features") and hasattr(one, "to_pandas") for one in splits.values()
    )
    return splits if splits and are_data_sets else None


def _of_data_set(
    splits: dict[str, Any], wanted: Wanted
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The fields of a task file and the rows of its files, classes by their names."""
    found = DataSet("the rows", splits)
    task = task_of(found, wanted)
    source = task.source
    assert isinstance(source, DataSetSource)
    parts = {"train": source.train} | (
        {"evaluation": source.evaluation} if source.evaluation else {}
    )
    columns = [*task.text_columns, task.label_column]
    frames = {
        part: pd.DataFrame(split_table(found, split, columns).columns, dtype="string")
        for part, split in parts.items()
    }
    described: dict[str, Any] = {
        "name": task.name,
        "text": list(task.text_columns),
        "label": task.label_column,
        "regression": not task.classes,
    }
    return described | ({"classes": list(task.classes)} if task.classes else {}), frames


def _parts(rows: Any) -> dict[str, pd.DataFrame]:
    if isinstance(rows, pd.DataFrame):
        return {"train": rows}
    if isinstance(rows, Mapping):
        if not {"train", "validation"} <= set(rows):
            raise DataError(
                f"the rows have the splits {shortlist(rows)}; a task needs `train` and `validation`"
            )
        rows = rows["train"], rows["validation"]
    if not isinstance(rows, tuple | list) or len(rows) != 2:
        raise DataError(
            "a task is a name, a task file, a DataFrame, two of them or a DatasetDict, not a "
            f"{type(rows).__name__}"
        )
    frames = [one.to_pandas() if hasattr(one, "to_pandas") else one for one in rows]
    for frame in frames:
        if not isinstance(frame, pd.DataFrame):
            kind = type(frame).__name__
            raise DataError(f"rows come as a DataFrame or a Dataset, not as a {kind}")
    return dict(zip(("train", "evaluation"), frames, strict=True))


def _checked(frame: pd.DataFrame, part: str, columns: list[str]) -> pd.DataFrame:
    if missing := [name for name in columns if name not in frame.columns]:
        raise DataError(
            f"the {part} rows have no column '{missing[0]}'; they have "
            f"{shortlist(frame.columns)}: name yours with `text` and `label`"
        )
    return frame[columns].reset_index(drop=True)
