"""A task file to start from: which columns of a table look like texts, and which like the label."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml

from elsa_tune.errors import DataError
from elsa_tune.files import slug
from elsa_tune.specs.known_tasks import KNOWN_TASKS, RESERVED_NAMES
from elsa_tune.tables.table_file import format_of, read_table
from elsa_tune.tables.task_file import number_then_text

# A word of a column's name that says it is the label.
LABEL_WORDS = re.compile(
    r"(?<![a-z])(labels?|class|category|target|intent|sentiment|score|rating|stars)(?![a-z])"
)
# More different numbers than this are values, not classes; more classes are not written out.
MOST_CLASSES = 20


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
    name = slug(path.stem) or "task"
    task: dict[str, Any] = {
        "name": f"{name}_own" if name in (*KNOWN_TASKS, *RESERVED_NAMES) else name,
        "files": str(path),
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
        task["classes"] = sorted(values, key=number_then_text)
    task["metric"] = metrics.split(",")[0]
    unused = ", ".join(name for name in columns if name not in (label, *texts)) or "none"
    comments = (
        f"Guessed from {len(table):,} rows: check each line. Paths are relative to this file.",
        "files: a fifth is held out; or {train: ..., evaluation: ...}",
        f"text: one or two columns with the most words; not used: {unused}",
        f"label: {len(values):,} different values. classes: in id order. metric: {metrics}",
    )
    said = "".join(f"# {' '.join(comment.split())}\n" for comment in comments)
    return said + yaml.safe_dump(
        task, sort_keys=False, allow_unicode=True, default_flow_style=None, width=math.inf
    )


def _label(columns: dict[str, list[str]]) -> str | None:
    """A column named so, else that with the fewest different values that repeat, the last of
    equals.
    """
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
