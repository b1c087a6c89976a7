"""A task guessed from a table: which column is its label, which are its texts."""

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from elsa_tune.errors import DataError, UnknownNameError, shortlist
from elsa_tune.files import slug
from elsa_tune.tasks.data_set_task import number_then_text
from elsa_tune.tasks.known import KNOWN_TASKS, RESERVED_NAMES
from elsa_tune.tasks.table_file import format_of, read_table
from elsa_tune.visible import visible

# A word of a column's name that says it is the label.
LABEL_WORDS = re.compile(
    r"(?<![a-z])(labels?|class|category|target|intent|sentiment|score|rating|stars)(?![a-z])"
)
# More different numbers than this are values, not classes; more classes are not written out.
MOST_CLASSES = 20
# A column that lacks more of its cells is rather not the label: those rows would be left out.
FEW_MISSING = 0.05
# From so many rows of the commonest class to one of the rarest on, classes are uneven: accuracy
# then mostly says how the commonest is told. Of two classes the rarer has a fifth of the rows.
UNEVEN = 4
MOST_CANDIDATES = 6


@dataclass(frozen=True, slots=True)
class Columns:
    """Those of a table that its user names. label: None leaves it to a guess, as do no texts."""

    label: str | None = None
    texts: tuple[str, ...] = ()


# Nothing is named.
GUESSED = Columns()


@dataclass(frozen=True, eq=False)
class Column:
    """A table's column. cells: those that hold anything, of `rows`."""

    name: str
    cells: Sequence[str]
    rows: int

    @property
    def missing(self) -> float:
        """The share of its cells that hold nothing."""
        return 1 - len(self.cells) / self.rows if self.rows else 0.0

    @functools.cached_property
    def values(self) -> int:
        """Different ones."""
        return len(set(self.cells))

    @functools.cached_property
    def words(self) -> float:
        """In a cell that holds anything, on average."""
        return sum(len(cell.split()) for cell in self.cells) / max(1, len(self.cells))

    @functools.cached_property
    def are_numbers(self) -> bool:
        try:
            return all(math.isfinite(float(cell)) for cell in self.cells)
        except ValueError:
            return False

    @property
    def is_named_label(self) -> bool:
        return LABEL_WORDS.search(self.name.lower()) is not None

    @functools.cached_property
    def may_be_label(self) -> bool:
        """Its values repeat, or they are numbers and its name says that they are labels."""
        repeat = 2 * self.values <= len(self.cells)
        return self.values > 1 and (repeat or (self.is_named_label and self.are_numbers))

    def __str__(self) -> str:
        missing = f", {100 * self.missing:.0f} % missing" if self.missing >= 0.005 else ""
        return f"{self.name} ({self.values:,} values{missing})"


@dataclass(frozen=True, slots=True)
class Guess:
    """What a table's task may be.

    fields: of a task file, its files as given. label: its column; candidates: all that may be it,
    the likeliest first. is_given: the user named it. columns: of the table. uneven: why macro F1,
    in words; "" where the metric is the usual one. rows: of the table.
    """

    path: Path
    fields: Mapping[str, Any]
    label: Column
    candidates: tuple[Column, ...]
    is_given: bool
    columns: tuple[str, ...]
    uneven: str
    rows: int

    def check_label(self) -> None:
        """Raise DataError where another column may as well be the label."""
        complete = [one for one in self.candidates if one.missing <= FEW_MISSING]
        named = [one for one in complete if one.is_named_label]
        if not (self.is_given or len(self.candidates) == 1 or named == [self.label]):
            raise DataError(
                f"more than one column of {self.path} may be the label: {listed(self.candidates)}; "
                "name it by `label`"
            )

    def yaml(self) -> str:
        """A task file, with what was guessed in comments."""
        texts, files = self.fields["text"], self.fields["files"]
        unused = [name for name in self.columns if name not in (self.label.name, *texts)]
        others = listed([one for one in self.candidates if one is not self.label])
        metrics = "accuracy, f1 (of two classes), f1_macro, matthews"
        if "regression" in self.fields:
            metrics = "spearman, pearson"
        comments = (
            f"Guessed from {self.rows:,} rows: check each line. Paths are relative to this file.",
            "files: a fifth is held out; or {train: ..., evaluation: ...}"
            if isinstance(files, str)
            else "files: evaluation rows by the file's name; without them a fifth is held out",
            f"text: one or two columns, not used: {', '.join(unused) or 'none'}",
            f"label: {self.label}" + (f"; --label takes another: {others}" if others else ""),
            "; ".join(filter(None, [f"classes: in id order. metric: {metrics}", self.uneven])),
        )
        said = "".join(f"# {' '.join(comment.split())}\n" for comment in comments)
        drafted = _dumped(self.fields, as_ascii=False)
        # What is not seen YAML writes out in quotes, so that the file still names the column.
        is_seen = visible(drafted) == drafted
        return said + (drafted if is_seen else _dumped(self.fields, as_ascii=True))


def listed(columns: Sequence[Column]) -> str:
    """`category (7 values), priority (3 values, 24 % missing)`, and how many more."""
    more = len(columns) - MOST_CANDIDATES
    shown = ", ".join(map(str, columns[:MOST_CANDIDATES]))
    return f"{shown} and {more} more" if more > 0 else shown


def guess_task(path: Path, given: Columns = GUESSED) -> Guess:
    """The task that a table may be of, its columns as given or guessed.

    The table is named as `path` is. Raises DataError for what is no readable table and where
    nothing looks like a text or a label, UnknownNameError for a column that is not there.
    """
    table = read_table(path, format_of(path) or "csv", None)
    columns = {
        name: Column(
            name, [cell for cell in cells if cell is not None and cell.strip()], len(table)
        )
        for name, cells in table.columns.items()
    }
    for name in (given.label, *given.texts):
        if name is not None and name not in columns:
            raise UnknownNameError.among(f"column of {path}", name, columns)
    candidates = _label_candidates(list(columns.values()), given.texts)
    label = candidates[0] if candidates else None
    if given.label is not None:
        label = columns[given.label]
    texts = list(given.texts) or _texts(list(columns.values()), label)
    if label is None or not texts:
        lacks = "label (values that repeat, or a name that says so)" if label is None else "text"
        raise DataError(
            f"no column of {path} looks like a {lacks}; its columns are "
            f"{shortlist(columns) or 'none'}: name them by `label` and `text`, or write the task "
            "file by hand"
        )
    about_label, uneven = _of_label(label)
    return Guess(
        path=path,
        fields={**_named(path), "text": texts, "label": label.name, **about_label},
        label=label,
        candidates=tuple(candidates),
        is_given=given.label is not None,
        columns=tuple(columns),
        uneven=uneven,
        rows=len(table),
    )


def _named(path: Path) -> dict[str, Any]:
    """Name and files: the evaluation rows beside the table, if there are."""
    name, beside = slug(path.stem) or "task", _evaluation_beside(path)
    is_taken = name in KNOWN_TASKS or name in RESERVED_NAMES
    return {
        "name": f"{name}_own" if is_taken else name,
        "files": str(path) if beside is None else {"train": str(path), "evaluation": str(beside)},
    }


def _of_label(label: Column) -> tuple[dict[str, Any], str]:
    """The fields that follow from a label, and why macro F1, if that is the metric."""
    counts = Counter(label.cells).most_common()
    are_few = len(counts) <= MOST_CLASSES
    are_whole = label.are_numbers and all(float(one).is_integer() for one, _ in counts)
    if label.are_numbers and not (are_few and are_whole):
        return {"regression": True, "metric": "spearman"}, ""
    names = sorted((name for name, _ in counts), key=number_then_text)
    classes = {"classes": names} if are_few else {}
    (commonest, most), (rarest, fewest) = counts[0], counts[-1]
    if most < UNEVEN * fewest:
        return {**classes, "metric": "accuracy"}, ""
    why = f"f1_macro since '{commonest}' has {most:,} rows and '{rarest}' {fewest:,}"
    return {**classes, "metric": "f1_macro"}, why


def _label_candidates(columns: Sequence[Column], texts: Sequence[str]) -> list[Column]:
    """The likeliest first: named so, few cells missing, few values, the last column."""
    found = [one for one in reversed(columns) if one.may_be_label and one.name not in texts]
    return sorted(
        found, key=lambda one: (not one.is_named_label, one.missing > FEW_MISSING, one.values)
    )


def _texts(columns: Sequence[Column], label: Column | None) -> list[str]:
    """The column with the most words, and a second one if it has several, in their order."""
    may_be = [one for one in columns if one.cells and one != label and not one.are_numbers]
    ordered = sorted(may_be, key=lambda one: one.words, reverse=True)
    chosen = [*ordered[:1], *(one for one in ordered[1:2] if one.words >= 3)]
    return [one.name for one in columns if one in chosen]


def _evaluation_beside(path: Path) -> Path | None:
    """tickets_dev.csv beside tickets.csv or tickets_train.csv, dev.csv beside train.csv."""
    stem = re.sub(r"[-_.]?train(ing)?$", "", path.stem, flags=re.IGNORECASE)
    ends = r"[-_.]?(dev|val(id(ation)?)?|eval(uation)?)"
    named = re.compile(re.escape(stem) + ends, re.IGNORECASE)
    found = sorted(one for one in path.parent.glob(f"*{path.suffix}") if named.fullmatch(one.stem))
    return found[0] if found else None


def _dumped(fields: Mapping[str, Any], *, as_ascii: bool) -> str:
    how: dict[str, Any] = {"default_flow_style": None, "width": math.inf}
    return str(yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=not as_ascii, **how))
