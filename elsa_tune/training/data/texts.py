"""A task's rows as texts and labels, from wherever its source says, with every oddity reported.

E is the number of rows of a split.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import constants

from elsa_tune.errors import DataError, first_line
from elsa_tune.specs.row_findings import MOST_NAMED, FindingCode, RowFinding
from elsa_tune.specs.task import (
    DataSetSource,
    EmbeddedSource,
    FilesSource,
    GlueSource,
    TaskSpec,
)
from elsa_tune.tasks.data_sets import read_data_set, split_table
from elsa_tune.tasks.known import HUB_REPOSITORY, LAYOUTS, UNLABELLED, GlueLayout
from elsa_tune.tasks.table_file import Table, listing, read_table
from elsa_tune.tasks.types.registry import type_of
from elsa_tune.training.data.standard_library import read_standard_library
from elsa_tune.training.data.tokens import Split
from elsa_tune.training.hub import fetch

MOST_LINES_SHOWN = 10
_CACHED = f"datasets--{HUB_REPOSITORY.replace('/', '--')}"
_WAYS_OUT = (
    "Give a local GLUE folder with `data_dir`, take `task` stdlib, which needs no download, "
    "or run once with network access"
)


def read_texts(task: TaskSpec) -> dict[str, Split]:
    """`train`, the companions by name, and `evaluation` where the task has one.

    Rows with a missing (absent, null or blank) label, or without any text, are left out and counted
    in the split's notes; one empty text of two is an empty text. Raises DataError for missing
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
            texts = read_standard_library(task.source.shuffled_labels)
    for split in texts.values():
        check_variety(task, split)
    return texts


def check_variety(task: TaskSpec, split: Split) -> None:
    """Raise DataError for a split without rows or with one label only."""
    skipped = f" ({'; '.join(split.notes)})" if split.notes else ""
    if not len(split):
        raise DataError(f"task '{task.name}': {split.where} has no usable row{skipped}")
    if (split.labels == split.labels[0]).all():
        what = type_of(task.kind).only_label(task, split.labels[0])
        raise DataError(f"task '{task.name}': every row of {split.where} has the {what}{skipped}")


def _glue(task: TaskSpec, source: GlueSource) -> dict[str, Split]:
    layout = LAYOUTS[source.config]
    splits = dict(layout.splits)
    if source.data_dir is not None:
        folder = _task_folder(Path(source.data_dir), source.folder)
        return {name: _local_split(task, layout, folder, split) for name, split in splits.items()}
    folder = _hub_folder(task, source.config, list(splits.values()))
    return {
        name: to_split(
            task, [_hub_table(task, f) for f in _hub_files(folder, source.config, split)]
        )
        for name, split in splits.items()
    }


def _task_folder(data_dir: Path, name: str) -> Path:
    if not data_dir.is_dir():
        raise DataError(f"the data folder {data_dir} does not exist on this machine")
    for entry in sorted(data_dir.iterdir()):
        if entry.is_dir() and entry.name.lower() == name.lower():
            return entry
    hint = "; give the folder above it" if (data_dir / "train.tsv").is_file() else ""
    raise DataError(
        f"the data folder {data_dir} has no folder '{name}'; it holds {listing(data_dir)}{hint}"
    )


def _local_split(task: TaskSpec, layout: GlueLayout, folder: Path, split: str) -> Split:
    path = folder / f"{split.replace('validation', 'dev')}.tsv"
    if not path.is_file():
        raise DataError(
            f"task '{task.name}' needs {path.name} in {folder}, which holds {listing(folder)} (no "
            "test file can stand in for it: GLUE's server keeps the labels)"
        )
    wanted = [*layout.text_columns, layout.label_column]
    table = read_table(path, "tsv", wanted, layout.header)
    return to_split(task, [table], layout)


def _hub_folder(task: TaskSpec, config: str, splits: Sequence[str]) -> Path:
    """Where the files of these splits of `nyu-mll/glue:CONFIG` lie: in the hub's cache, or fetched
    into it. Raises DataError within seconds where neither can be.
    """
    # The cache first: searches must not ask the hub each time, nor see other data in between.
    if (cached := _cached_folder(config, splits)) is not None:
        return cached
    try:
        ours = tuple(f"{config}/{split}-" for split in splits)
        folder = fetch(
            HUB_REPOSITORY, lambda names: [n for n in names if n.startswith(ours)], kind="dataset"
        )
        lacking = [split for split in splits if not _hub_files(folder, config, split)]
        if lacking:
            raise FileNotFoundError(f"it has no complete {config}/{lacking[0]}")
    except Exception as error:  # the many ways of a hub, a proxy or a mirror to fail
        raise DataError(
            f"task '{task.name}' is not in the hub's local cache, and {HUB_REPOSITORY} could not "
            f"be loaded from {constants.ENDPOINT} ({type(error).__name__}: "
            f"{first_line(error)[:300]}). {_WAYS_OUT}"
        ) from error
    return folder


def cached_tasks() -> list[str]:
    """The tasks of GLUE that lie in the hub's cache: they need no download."""
    return [
        config
        for config, layout in LAYOUTS.items()
        if _cached_folder(config, [split for _, split in layout.splits]) is not None
    ]


def _cached_folder(config: str, splits: Sequence[str]) -> Path | None:
    """The latest snapshot in the hub's cache that has all of these splits."""
    folders = Path(constants.HF_HUB_CACHE, _CACHED, "snapshots").glob("*")
    for folder in sorted(folders, key=lambda one: one.stat().st_mtime, reverse=True):
        if all(_hub_files(folder, config, split) for split in splits):
            return folder
    return None


def _hub_files(folder: Path, config: str, split: str) -> list[Path]:
    """All of a split's, or none: the end of their names says how many there are."""
    found = sorted((folder / config).glob(f"{split}-*-of-*.parquet"))
    return found if found and found[0].stem.endswith(f"-{len(found):05}") else []


def _hub_table(task: TaskSpec, file: Path) -> Table:
    """Labels as their texts, so that hub and files go through the same judgement; -1 stays -1."""
    table = read_table(file, "parquet", [*task.text_columns, task.label_column])
    if task.classes:
        names = {str(number): name for number, name in enumerate(task.classes)}
        labels = table.columns[task.label_column]
        table.columns[task.label_column] = [names.get(label or "", label) for label in labels]
    return replace(table, path=Path(HUB_REPOSITORY, file.parent.name, file.name.split("-")[0]))


def _files(task: TaskSpec, source: FilesSource) -> dict[str, Split]:
    wanted = [*task.text_columns, task.label_column]
    splits = {}
    for name, paths in (("train", source.train), ("evaluation", source.evaluation)):
        if paths:
            tables = [read_table(Path(path), source.format, wanted) for path in paths]
            splits[name] = to_split(task, tables)
    return splits


def _data_set(task: TaskSpec, source: DataSetSource) -> dict[str, Split]:
    found = read_data_set(source.location, source.config, source.revision)
    wanted = [*task.text_columns, task.label_column]
    splits = {}
    for name, split in (("train", source.train), ("evaluation", source.evaluation)):
        if split is not None:
            splits[name] = to_split(task, [split_table(found, split, wanted)])
    notes = found.notes
    if str(source.evaluation).startswith("test"):
        notes += (
            f"no validation split: '{source.evaluation}' is evaluated, and chooses learning rate "
            "and evaluation, too, unless selection is holdout",
        )
    splits["train"] = replace(splits["train"], notes=(*notes, *splits["train"].notes))
    return splits


def to_split(task: TaskSpec, tables: Sequence[Table], layout: GlueLayout | None = None) -> Split:
    """The complete rows of one or more tables, labels as ids or values; the rest are counted.

    layout: names the columns where they are not the task's.
    """
    text_columns, label_column = (layout or task).text_columns, (layout or task).label_column
    texts: tuple[list[str], ...] = tuple([] for _ in text_columns)
    labels: list[Any] = []
    notes: list[str] = []
    reasons: Counter[str] = Counter()
    task_type = type_of(task.kind)
    read_label = task_type.label_reader(task)
    for table in tables:
        skipped: dict[str, list[int]] = {}
        for line, reason in table.malformed:
            skipped.setdefault(reason, []).append(line)
        cells = [table.columns[name] for name in (*text_columns, label_column)]
        for line, *row in zip(table.lines, *cells, strict=True):
            lacks = _incomplete(text_columns, label_column, row, task.cleaning.missing_labels)
            if lacks is not None:
                skipped.setdefault(lacks, []).append(line)
                continue
            *row_texts, label = (cell or "" for cell in row)
            labels.append(read_label(label, f"{table.path} line {line}"))
            for column, text in zip(texts, row_texts, strict=True):
                column.append(text)
        notes += _skip_notes(table, skipped)
        # Those that the task itself leaves out are none that are lost.
        asked = {_meant(label_column, one) for one in task.cleaning.missing_labels}
        reasons.update({why: len(lines) for why, lines in skipped.items() if why not in asked})
    where = " + ".join(str(table.path) for table in tables)
    lost = _lost(tables, reasons)
    return Split(where, texts, np.asarray(labels, dtype=task_type.label_dtype), tuple(notes), lost)


def _incomplete(
    texts: Sequence[str], label: str, row: Sequence[str | None], missing_labels: Sequence[str]
) -> str | None:
    """Why a row (texts, then label) cannot be used. "null" and "nan" are texts; blanks are not."""
    is_blank = [not (cell and cell.strip()) for cell in row]
    if is_blank[-1] or all(is_blank[:-1]):
        blank = [name for name, one in zip((*texts, label), is_blank, strict=True) if one]
        return f"missing {', '.join(blank)}"
    if label == "gold_label" and row[-1] == UNLABELLED:
        return "the annotators agreed on no gold_label ('-')"
    return _meant(label, str(row[-1])) if row[-1] in missing_labels else None


def _meant(column: str, label: str) -> str:
    """The reason for leaving out a row whose label means that there is none."""
    return f"{column} is '{label}'"


def _lost(tables: Sequence[Table], reasons: Mapping[str, int]) -> RowFinding | None:
    """The rows that were left out, the commonest reasons first."""
    if not reasons:
        return None
    ordered = sorted(reasons.items(), key=lambda one: -one[1])
    return RowFinding(
        code=FindingCode.ROWS_LOST,
        count=sum(reasons.values()),
        of=sum(len(table) + len(table.malformed) for table in tables),
        where=", ".join(table.path.name for table in tables),
        names=tuple(f"{count:,} {reason}" for reason, count in ordered[:MOST_NAMED]),
        named=len(ordered),
    )


def _skip_notes(table: Table, skipped: Mapping[str, Sequence[int]]) -> list[str]:
    rows = len(table) + len(table.malformed)
    notes = []
    for reason, lines in skipped.items():
        shown = ", ".join(str(line) for line in lines[:MOST_LINES_SHOWN])
        more = len(lines) - MOST_LINES_SHOWN
        tail = f" and {more:,} more" if more > 0 else ""
        noun = "line" if len(lines) == 1 else "lines"
        notes.append(
            f"{len(lines):,} of {rows:,} rows of {table.path.name} skipped: {reason} ({noun} "
            f"{shown}{tail})"
        )
    return notes
