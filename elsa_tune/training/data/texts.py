"""A task's rows as texts and labels, from wherever its source says, with every oddity reported.

E is the number of rows of a split.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from elsa_tune.errors import DataError
from elsa_tune.specs.row_findings import MOST_NAMED, FindingCode, RowFinding
from elsa_tune.specs.task import DataSetSource, EmbeddedSource, FilesSource, GlueSource, TaskSpec
from elsa_tune.tasks.data_sets.data_set import split_table
from elsa_tune.tasks.data_sets.reading import read_data_set
from elsa_tune.tasks.known import LAYOUTS, GlueLayout
from elsa_tune.tasks.labels import is_not_agreed
from elsa_tune.tasks.table_file import Table, check_characters, read_table
from elsa_tune.tasks.types.registry import type_of
from elsa_tune.training.data.embedded import read_embedded
from elsa_tune.training.data.glue import glue_tables
from elsa_tune.training.data.keys import key_bytes
from elsa_tune.training.data.tokens import Split, Splits

MOST_LINES_SHOWN = 10
# Of the spread of values: a larger step of their 32-bit numbers changes what is learnt and scored.
COARSEST = 1e-3
# Before what stands for an empty cell: no cell has it.
_NO_CELL = "\0"

# The line of a row that can be used, and its cells, the label last.
_Row = tuple[Any, ...]
# The lines of rows that cannot be used, by the reason.
_Skipped = dict[str, list[int]]
# What labels share that mean the same.
_KeyOf = Callable[[str], object]


def read_texts(task: TaskSpec) -> Splits:
    """Read `train`, the companions by name, and `evaluation` where the task has one.

    Rows with a missing (absent, null or blank) label, or without any text, are left out and counted
    in the split's notes; one empty text of two is an empty text, and a blank label is one where the
    type of task says so. Raises DataError for missing
    files, splits or columns, labels the task does not declare, unlabelled test data, and splits
    without rows or with one class only.
    """
    match task.source:
        case GlueSource():
            texts = _glue(task, task.source)
        case FilesSource():
            texts = _files(task, task.source)
        case DataSetSource():
            texts = _data_set(task, task.source)
        case EmbeddedSource():
            texts = read_embedded(shuffled_labels=task.source.shuffled_labels)
    for split in texts.values():
        check_variety(task, split)
    return texts


def check_variety(task: TaskSpec, split: Split) -> None:
    """Raise DataError for a split without rows, with one label only, or with blurred values."""
    skipped = ""
    if split.notes:
        notes = "; ".join(split.notes)
        skipped = f" ({notes})"
    if not len(split):
        raise DataError(f"task '{task.name}': {split.where} has no usable row{skipped}")
    first_label = split.labels[0]
    if (split.labels == first_label).all():
        what = type_of(task.kind).only_label(task, first_label)
        raise DataError(f"task '{task.name}': every row of {split.where} has the {what}{skipped}")
    if split.labels.dtype.kind == "f":
        _check_sharpness(task, split)


def _check_sharpness(task: TaskSpec, split: Split) -> None:
    """Raise DataError for values that are so large that rounding blurs how they differ."""
    largest = np.abs(split.labels).max()
    step = float(np.spacing(largest))
    spread = float(split.labels.std(dtype=np.float64))
    if step > COARSEST * spread:
        raise DataError(
            f"task '{task.name}': labels of {split.where} are as large as {largest:.6g} and differ "
            f"by about {spread:.3g}, but 32-bit numbers round them by {step:.3g}; subtract a "
            "constant from all of them"
        )


def _glue(task: TaskSpec, source: GlueSource) -> Splits:
    layout = None
    if source.data_dir is not None:
        layout = LAYOUTS[source.config]
    splits = {}
    for name, tables in glue_tables(task, source):
        splits[name] = to_split(task, tables, layout)
    return splits


def _files(task: TaskSpec, source: FilesSource) -> Splits:
    splits = {}
    for name, paths in (("train", source.train), ("evaluation", source.evaluation)):
        if not paths:
            continue
        tables = []
        for path in paths:
            table = read_table(Path(path), source.format, task.columns)
            tables.append(table)
        splits[name] = to_split(task, tables)
    return splits


def _data_set(task: TaskSpec, source: DataSetSource) -> Splits:
    data_set = read_data_set(source.location, source.config, source.revision)
    splits = {}
    for name, split in (("train", source.train), ("evaluation", source.evaluation)):
        if split is not None:
            table = split_table(data_set, split, task.columns)
            splits[name] = to_split(task, [table])
    notes = data_set.notes
    if str(source.evaluation).startswith("test"):
        notes += (
            f"no validation split: '{source.evaluation}' is evaluated, and chooses learning rate "
            "and evaluation, too, unless selection is holdout",
        )
    train = splits["train"]
    splits["train"] = replace(train, notes=(*notes, *train.notes))
    return splits


def to_split(
    task: TaskSpec,
    tables: Sequence[Table],
    layout: GlueLayout | None = None,
) -> Split:
    """Return the complete rows of one or more tables, labels as numbers; the rest are counted.

    layout: names the columns where they are not the task's.
    """
    columns = layout or task
    names = (*columns.text_columns, columns.label_column)
    task_type = type_of(task.kind)
    key_of: _KeyOf = str if task_type.names_classes else _value_or_text
    missing_labels = {key_of(label): label for label in task.cleaning.missing_labels}
    # Rows that the task itself leaves out are none that are lost.
    meant = {_meant(columns.label_column, label) for label in missing_labels.values()}
    read_label = task_type.label_reader(task)
    texts: list[list[str]] = [[] for _ in columns.text_columns]
    labels: list[Any] = []
    notes: list[str] = []
    lost: Counter[str] = Counter()
    groups: list[int] = []
    for table in tables:
        rows, skipped = _sorted_out(
            table,
            names,
            missing_labels,
            key_of,
            blank_is_label=task_type.blank_is_label,
        )
        for line, *row_texts, label in rows:
            where = f"{table.path} line {line}"
            labels.append(read_label(label, where))
            for column, text in zip(texts, row_texts, strict=True):
                check_characters(text, where)
                column.append(text)
        if task.group_column is not None:
            lines = [row[0] for row in rows]
            groups += _group_keys(table, task.group_column, lines)
        notes += _skip_notes(table, skipped)
        for reason, lines_left_out in skipped.items():
            if reason not in meant:
                lost[reason] += len(lines_left_out)
    group_keys = None
    if task.group_column is not None:
        group_keys = np.asarray(groups, dtype=np.uint64)
    return Split(
        where=" + ".join(str(table.path) for table in tables),
        texts=tuple(texts),
        labels=np.asarray(labels, dtype=task_type.label_dtype),
        notes=tuple(notes),
        lost=_lost(tables, lost),
        groups=group_keys,
    )


def _group_keys(table: Table, column: str, lines: Sequence[int]) -> Iterator[int]:
    """Yield a key of the group of each of these lines: the same for equal cells, in any table.

    A row with an empty cell is a group of its own.
    """
    cell_by_line = dict(zip(table.lines, table.columns[column], strict=True))
    for line in lines:
        cell = cell_by_line[line]
        if cell is None or not cell.strip():
            cell = f"{_NO_CELL}{table.path} line {line}"
        yield int.from_bytes(key_bytes(cell), "little")


def _sorted_out(
    table: Table,
    names: Sequence[str],
    missing_labels: Mapping[object, str],
    key_of: _KeyOf,
    *,
    blank_is_label: bool,
) -> tuple[list[_Row], _Skipped]:
    """Return the rows that can be used, and the lines of the others by the reason.

    names: of the columns, the label's last. missing_labels: those that mean that there is none, by
    their keys. key_of: the key of a label.
    """
    skipped: _Skipped = {}
    for line, reason in table.malformed:
        skipped.setdefault(reason, []).append(line)
    columns = [table.columns[name] for name in names]
    rows: list[_Row] = []
    for line, *cells in zip(table.lines, *columns, strict=True):
        lacks = _incomplete(
            names,
            cells,
            missing_labels,
            key_of,
            blank_is_label=blank_is_label,
        )
        if lacks is None:
            rows.append((line, *(cell or "" for cell in cells)))
        else:
            skipped.setdefault(lacks, []).append(line)
    return rows, skipped


def _incomplete(
    names: Sequence[str],
    cells: Sequence[str | None],
    missing_labels: Mapping[object, str],
    key_of: _KeyOf,
    *,
    blank_is_label: bool,
) -> str | None:
    """Return why a row (texts, then label) cannot be used. "null" and "nan" are texts."""
    is_blank = [not (cell and cell.strip()) for cell in cells]
    if blank_is_label:
        is_blank[-1] = False
    lacks_label = is_blank[-1]
    lacks_all_texts = all(is_blank[:-1])
    if lacks_label or lacks_all_texts:
        missing = itertools.compress(names, is_blank)
        return f"missing {', '.join(missing)}"
    label = cells[-1] or ""
    label_name = names[-1]
    if is_not_agreed(label, label_name):
        return "the annotators agreed on no gold_label ('-')"
    given = missing_labels.get(key_of(label))
    if given is not None:
        return _meant(label_name, given)
    return None


def _value_or_text(label: str) -> object:
    """Return a number's value, for -999 and -999.0 are the same, any other label as it is."""
    try:
        value = float(label)
    except ValueError:
        return label
    return label if math.isnan(value) else value


def _meant(column: str, label: str) -> str:
    """Return the reason for leaving out a row whose label means that there is none."""
    return f"{column} is '{label}'"


def _lost(tables: Sequence[Table], reasons: Counter[str]) -> RowFinding | None:
    """Return the rows that were left out, the commonest reasons first."""
    if not reasons:
        return None
    names = []
    for reason, count in reasons.most_common(MOST_NAMED):
        names.append(f"{count:,} {reason}")
    return RowFinding(
        code=FindingCode.ROWS_LOST,
        count=reasons.total(),
        of=sum(map(_rows_of_file, tables)),
        where=", ".join(table.path.name for table in tables),
        names=tuple(names),
        named=len(reasons),
    )


def _rows_of_file(table: Table) -> int:
    return len(table) + len(table.malformed)


def _skip_notes(table: Table, skipped: _Skipped) -> list[str]:
    rows = _rows_of_file(table)
    name = table.path.name
    notes = []
    for reason, lines in skipped.items():
        count = len(lines)
        noun = "line" if count == 1 else "lines"
        shown = ", ".join(map(str, lines[:MOST_LINES_SHOWN]))
        if count > MOST_LINES_SHOWN:
            shown += f" and {count - MOST_LINES_SHOWN:,} more"
        notes.append(f"{count:,} of {rows:,} rows of {name} skipped: {reason} ({noun} {shown})")
    return notes
