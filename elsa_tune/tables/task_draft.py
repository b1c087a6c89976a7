"""A task file to start from: which columns of a table look like texts, and which like the label."""

from __future__ import annotations

import math
import re
from pathlib import Path

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

_Columns = dict[str, list[str]]


def draft_task(path: Path) -> str:
    """The YAML of a task file for a table, with what was guessed as comments.

    The table is named as `path` is, so that the file belongs where this one is read from. Raises
    DataError for what is no readable table, and where nothing looks like a text or a label.
    """
    table = read_table(path, format_of(path) or "csv", None)
    columns: _Columns = {
        name: [cell for cell in cells if cell is not None and cell.strip()]
        for name, cells in table.columns.items()
    }
    label = _label(columns)
    texts = _texts({name: cells for name, cells in columns.items() if name != label})
    if label is None or not texts:
        lacks = "label (values that repeat, or a name that says so)" if label is None else "text"
        raise DataError(
            f"no column of {path} looks like a {lacks}; its columns are "
            f"{', '.join(columns) or 'none'}: write the task file by hand"
        )
    values = set(columns[label])
    are_few = len(values) <= MOST_CLASSES
    is_regression = _are_numbers(columns[label]) and not (
        are_few and all(float(one).is_integer() for one in values)
    )
    name = slug(path.stem) or "task"
    own_name = f"{name}_own" if name in (*KNOWN_TASKS, *RESERVED_NAMES) else name
    unused = ", ".join(name for name in columns if name not in (label, *texts)) or "none"
    lines = [
        f"# Guessed from {len(table):,} rows: check each line. Paths are relative to this file.",
        _line("name", own_name, "of the task"),
        _line("files", str(path), "a fifth is held out; or {train: ..., evaluation: ...}"),
        _line("text", texts if len(texts) > 1 else texts[0], f"the most words; not used: {unused}"),
        _line("label", label, f"{len(values):,} different values"),
    ]
    if is_regression:
        lines += [_line("regression", True, "numbers"), _line("metric", "spearman", "or pearson")]
        return "\n".join(lines) + "\n"
    if are_few:
        lines.append(_line("classes", sorted(values, key=number_then_text), "in id order"))
    lines.append(_line("metric", "accuracy", "or f1 (of two classes), f1_macro, matthews"))
    return "\n".join(lines) + "\n"


def _label(columns: _Columns) -> str | None:
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


def _texts(columns: _Columns) -> list[str]:
    """The one or two columns with the most words, in the table's order."""
    words = {
        name: sum(len(cell.split()) for cell in cells) / len(cells)
        for name, cells in columns.items()
        if cells and not _are_numbers(cells)
    }
    first, *others = sorted(words, key=lambda name: -words[name]) or [""]
    chosen = [first, *(name for name in others[:1] if words[name] >= 3)]
    return [name for name in columns if name in chosen]


def _are_numbers(cells: list[str]) -> bool:
    try:
        return all(math.isfinite(float(cell)) for cell in cells)
    except ValueError:
        return False


def _line(name: str, value: object, comment: str) -> str:
    several = value if isinstance(value, list) else [value]
    text = yaml.safe_dump(several, default_flow_style=True, allow_unicode=True, width=math.inf)
    shown = text.strip() if several is value else text.strip()[1:-1]
    return f"{name}: {shown}  # {' '.join(comment.split())}"
