"""A data set that has been read: its splits, what its columns hold, and their cells as texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsa_tune.errors import DataError
from elsa_tune.tasks.table_file import CellTexts, Table, plain_cells


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set that can be read."""

    location: str  # `owner/name` of the hub, or an absolute folder
    splits: Mapping[str, Any]  # each a `datasets.Dataset`, by its name
    config: str | None = None  # the configuration that was read
    revision: str | None = None  # the commit that was read; None for a folder
    notes: tuple[str, ...] = ()  # what its reader should know
    train: str | None = None  # the split that is trained on; None before it is known

    @property
    def where(self) -> str:
        """What messages call it."""
        if not self.revision:
            return self.location
        config = "" if self.config == "default" else f"/{self.config}"
        return f"{self.location}{config} at {self.revision[:12]}"

    @property
    def features(self) -> Mapping[str, Any]:
        """What its columns hold, by name: those of the split that is trained on.

        Another split may hold its labels otherwise, as a test split without any does.
        """
        train = self.train or next(iter(self.splits))
        features: Mapping[str, Any] = self.splits[train].features
        return features


def columns_of(features: Mapping[str, Any]) -> dict[str, str]:
    """Return what each column holds, in a few words."""
    return {name: _kind(feature) for name, feature in features.items()}


def listed_columns(features: Mapping[str, Any]) -> str:
    """Write the columns and what they hold, for a message."""
    texts = []
    for name, kind in columns_of(features).items():
        texts.append(f"'{name}' ({kind})")
    return ", ".join(texts)


def is_list(feature: Any) -> bool:
    """Whether a column holds several values a row."""
    return isinstance(feature, list | dict) or hasattr(feature, "feature")


def class_names(feature: Any) -> tuple[str, ...] | None:
    """Return the names of a column's classes, in id order; None where it declares none."""
    import datasets

    if not isinstance(feature, datasets.ClassLabel):
        return None
    return tuple(feature.names)


def is_text(feature: Any) -> bool:
    """Whether a column holds texts."""
    return getattr(feature, "dtype", "") in ("string", "large_string")


def is_float(feature: Any) -> bool:
    """Whether a column holds numbers that need not be whole."""
    dtype = str(getattr(feature, "dtype", ""))
    return dtype.startswith("float")


def split_table(data_set: DataSet, split: str, columns: Sequence[str]) -> Table:
    """Return the wanted columns of a split, classes by their names; rows count from 1.

    A class id of -1, as the hub marks rows without a label, is a missing cell. Raises DataError.
    """
    rows = data_set.splits[split]
    where = f"{data_set.where} {split}"
    for name in columns:
        if name not in rows.features:
            raise DataError(
                f"split '{split}' of data set '{data_set.where}' has no column '{name}'; it has "
                f"{listed_columns(rows.features)}: all splits that are read need the same columns"
            )
    arrow_rows = rows.select_columns(list(columns)).with_format("arrow")
    table = arrow_rows[:]
    cells = {}
    for name in columns:
        values = table.column(name).to_pylist()
        names = class_names(rows.features[name])
        if names is None:
            cells[name] = plain_cells(values, where, name)
        else:
            cells[name] = _class_cells(values, names, where, name)
    numbers = range(1, len(rows) + 1)
    return Table(Path(where), cells, list(numbers))


def _class_cells(
    values: list[int | None],
    names: Sequence[str],
    where: str,
    column: str,
) -> CellTexts:
    """Return the names of class ids. Raises DataError for an id that the column lacks."""
    cells: CellTexts = []
    for row, value in enumerate(values, start=1):
        if value is None or value < 0:
            cells.append(None)
        elif value < len(names):
            cells.append(names[value])
        else:
            raise DataError(
                f"{where} row {row} has class {value} in column '{column}', which declares "
                f"{len(names)} classes; correct the data set"
            )
    return cells


def _kind(feature: Any) -> str:
    """Write what a column holds, in a few words."""
    names = class_names(feature)
    if names is not None:
        return f"{len(names)} classes: {shown_names(names, 5)}"
    if is_list(feature):
        inner = getattr(feature, "feature", None)
        if inner is None:
            return "several values"
        return f"list of {_kind(inner)}"
    return str(getattr(feature, "dtype", type(feature).__name__))


def shown_names(names: Sequence[str], most: int) -> str:
    """Write at most so many names, and `…` where there are more."""
    text = ", ".join(names[:most])
    if len(names) <= most:
        return text
    return f"{text}, …"
