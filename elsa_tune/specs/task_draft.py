"""A task file to start from: which columns of a table look like texts, and which like the label."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from elsa_tune.errors import DataError
from elsa_tune.specs.known_tasks import KNOWN_TASKS, RESERVED_NAMES
from elsa_tune.specs.table_file import format_of, read_table
from elsa_tune.specs.task import Metric, TaskKind, allowed_metrics
from elsa_tune.specs.task_file import number_then_text

# A word of a column's name that says it is the label.
LABEL_WORDS = frozenset(
    {"label", "labels", "class", "category", "target", "intent", "sentiment", "score", "rating"}
)
# More different numbers than this are values, not classes; more classes are not written out.
MOST_CLASSES = 20


@dataclass(frozen=True, slots=True)
class _Column:
    """cells: those that are not blank."""

    name: str
    cells: tuple[str, ...]

    @property
    def values(self) -> set[str]:
        return set(self.cells)

    @property
    def is_named_label(self) -> bool:
        return bool(LABEL_WORDS & set(re.split(r"[^a-z]+", self.name.lower())))

    @property
    def numbers(self) -> list[float] | None:
        """None where a cell is no finite number."""
        try:
            found = [float(cell) for cell in self.cells]
        except ValueError:
            return None
        return found if all(map(math.isfinite, found)) else None

    @property
    def words(self) -> float:
        """Of a cell, on average."""
        return sum(len(cell.split()) for cell in self.cells) / max(1, len(self.cells))


def draft_task(path: Path) -> str:
    """The YAML of a task file for a table, with what was guessed as comments.

    The table is named as `path` is, so that the file belongs where this one is read from. Raises
    DataError for what is no readable table, and where nothing looks like a text or a label.
    """
    format = format_of(path)
    assert format is not None
    table = read_table(path, format, None)
    columns = [
        _Column(name, tuple(cell for cell in cells if cell is not None and cell.strip()))
        for name, cells in table.columns.items()
    ]
    label = _label(columns)
    texts = _texts([column for column in columns if column is not label])
    if label is None or not texts:
        what = "label (values that repeat, or a column named so)" if label is None else "text"
        raise DataError(
            f"no column of {path} looks like a {what}; its columns are "
            f"{', '.join(table.columns) or 'none'}: write the task file by hand"
        )
    numbers = label.numbers
    is_regression = numbers is not None and (
        len(label.values) > MOST_CLASSES or not all(map(float.is_integer, numbers))
    )
    kind = TaskKind.REGRESSION if is_regression else TaskKind.CLASSIFICATION
    metric = Metric.SPEARMAN if is_regression else Metric.ACCURACY
    others = [one for one in allowed_metrics(kind, len(label.values)) if one is not metric]
    unused = [column.name for column in columns if column is not label and column not in texts]
    why = (
        "by its name; different values:" if label.is_named_label else "the fewest different values:"
    )
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", path.stem).strip("._-") or "task"
    taken = name in KNOWN_TASKS or name in RESERVED_NAMES
    lines = [
        f"# Guessed from {len(table):,} rows: check each line. Paths are relative to this file.",
        _line("name", f"{name}_own" if taken else name),
        _line("files", str(path), "a fifth is held out; or {train: ..., evaluation: ...}"),
        _line(
            "text",
            [text.name for text in texts] if len(texts) > 1 else texts[0].name,
            "the longest texts" + (f"; not used: {', '.join(unused)}" if unused else ""),
        ),
        _line("label", label.name, f"{why}: {len(label.values):,}"),
    ]
    if is_regression:
        lines.append(_line("regression", True))
    elif len(label.values) <= MOST_CLASSES:
        lines.append(_line("classes", sorted(label.values, key=number_then_text), "in id order"))
    lines.append(_line("metric", metric.value, f"or {', '.join(others)}"))
    return "\n".join(lines) + "\n"


def _label(columns: Sequence[_Column]) -> _Column | None:
    """A column named so, else that with the fewest different values that repeat, the last of
    equals.
    """
    differing = [column for column in columns if len(column.values) > 1]
    repeating = [column for column in differing if 2 * len(column.values) <= len(column.cells)]
    named = [
        column
        for column in differing
        if column.is_named_label and (column in repeating or column.numbers is not None)
    ]
    return min(reversed(named or repeating), key=lambda one: len(one.values), default=None)


def _texts(columns: Sequence[_Column]) -> list[_Column]:
    """The one or two columns with the most words, in the table's order."""
    texts = [column for column in columns if column.cells and column.numbers is None]
    by_words = sorted(texts, key=lambda column: -column.words)
    chosen = [*by_words[:1], *(column for column in by_words[1:2] if column.words >= 3)]
    return [column for column in columns if column in chosen]


def _line(name: str, value: object, comment: str = "") -> str:
    several = value if isinstance(value, list) else [value]
    text = yaml.safe_dump(several, default_flow_style=True, allow_unicode=True, width=math.inf)
    text = f"{name}: {text.strip() if isinstance(value, list) else text.strip()[1:-1]}"
    return f"{text}  # {' '.join(comment.split())}" if comment else text
