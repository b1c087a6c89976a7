"""A task guessed from a table: which column is its label, which are its texts."""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from elsa_tune.errors import DataError, UnknownNameError, shortlist
from elsa_tune.files import slug
from elsa_tune.specs.task import Metric, TaskKind
from elsa_tune.tasks.data_set_task import check_texts, number_then_text
from elsa_tune.tasks.hub import is_built_in
from elsa_tune.tasks.labels import are_values, check_no_lists, is_not_agreed, means_no_label
from elsa_tune.tasks.table_file import NO_LISTS, Table, format_of, read_table
from elsa_tune.visible import visible

# A word of a column's name that says it is the label.
LABEL_WORDS = re.compile(
    r"(?<![a-z])(labels?|class|category|target|intent|sentiment|score|rating|stars)(?![a-z])"
)
# A number as people write it, its decimals behind a comma or a point.
WRITTEN_NUMBER = re.compile(r"\s*[+-]?(\d*[.,])?\d+\s*")
# More classes are not written out.
MOST_WRITTEN = 20
# A column that lacks more of its cells is rather not the label: those rows would be left out.
FEW_MISSING = 0.05
# Where no more labels than this are no numbers, they are slips among values to predict.
FEW_ODD = 0.05
# From so many rows of the commonest class to one of the rarest on, classes are uneven: accuracy
# then mostly says how the commonest is told. Of two classes the rarer has a fifth of the rows.
UNEVEN = 4
MOST_CANDIDATES = 6


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table that its user names; what is not named is guessed."""

    label: str | None = None  # its column
    texts: tuple[str, ...] = ()  # up to two
    group: str | None = None  # what rows of one unit share; never guessed


# Nothing is named.
GUESSED = Columns()


@dataclass(frozen=True, eq=False)
class Column:
    """A table's column."""

    name: str  # in the header
    cells: Sequence[str]  # those that hold anything
    rows: int  # of the table

    @property
    def missing(self) -> float:
        """The share of its cells that hold nothing."""
        if self.rows == 0:
            return 0.0
        return 1 - len(self.cells) / self.rows

    @functools.cached_property
    def values(self) -> int:
        """How many different values it has."""
        return len(set(self.cells))

    @functools.cached_property
    def words(self) -> float:
        """The mean number of words in a cell that holds anything."""
        words = 0
        for cell in self.cells:
            words += len(cell.split())
        return words / max(1, len(self.cells))

    @functools.cached_property
    def labels(self) -> Sequence[str]:
        """Its cells but for words that mean no label."""
        return [cell for cell in self.cells if not means_no_label(cell)]

    @functools.cached_property
    def are_numbers(self) -> bool:
        """Whether every cell holds a finite number, but for empty ones and words for no label."""
        if self.cells and not self.labels:
            return False
        return None not in map(_finite_number, self.labels)

    @functools.cached_property
    def odd_labels(self) -> Sequence[str]:
        """Its labels that are no finite numbers, where they are few and the rest are values.

        `other` beside the classes 1, 2 and 3 is none.
        """
        numbers: set[float] = set()
        odd: list[str] = []
        for label in self.labels:
            number = _finite_number(label)
            if number is None:
                odd.append(label)
            else:
                numbers.add(number)
        if len(odd) <= FEW_ODD * len(self.labels) and are_values(numbers, self.name):
            return odd
        return []

    @functools.cached_property
    def number_with_comma(self) -> str | None:
        """The first number with a decimal comma, None unless every label is a number."""
        if not all(map(WRITTEN_NUMBER.fullmatch, self.labels)):
            return None
        return next((label for label in self.labels if "," in label), None)

    @property
    def is_named_label(self) -> bool:
        """Whether its name says that it is the label."""
        return LABEL_WORDS.search(self.name.lower()) is not None

    @functools.cached_property
    def may_be_label(self) -> bool:
        """Whether values repeat, or are numbers in a column that is named as a label.

        Numbers with commas or with slips among them too, so that an error can say what is wrong.
        """
        if self.values < 2:
            return False
        values_repeat = 2 * self.values <= len(self.cells)
        if values_repeat:
            return True
        if not self.is_named_label:
            return False
        if self.are_numbers or self.number_with_comma is not None:
            return True
        return len(self.odd_labels) > 0

    @property
    def why_passed_over(self) -> str:
        """Why it is not taken for the label, where `may_be_label` is false."""
        if not self.cells:
            return f"'{self.name}' is empty"
        if self.values < 2:
            return f"'{self.name}' has one value alone"
        return (
            f"'{self.name}' has {self.values:,} values in {len(self.cells):,} rows, which are no "
            "numbers and repeat too seldom for classes"
        )

    def __str__(self) -> str:
        size = f"{self.values:,} values"
        if self.missing >= 0.005:
            size += f", {100 * self.missing:.0f} % missing"
        return f"{self.name} ({size})"


@dataclass(frozen=True, slots=True)
class Guess:
    """What a table's task may be."""

    path: Path  # as it was given
    fields: Mapping[str, Any]  # of a task file
    label: Column  # the one given, else the likeliest
    candidates: tuple[Column, ...]  # all that may be the label, the likeliest first
    is_given: bool  # the user named the label
    columns: tuple[str, ...]  # of the table
    uneven: str  # why the metric is macro F1; "" where it is the usual one
    rows: int  # of the table

    def check_label(self) -> None:
        """Raise DataError where another column may as well be the label."""
        if self.is_given or len(self.candidates) == 1:
            return
        likely = []
        for column in self.candidates:
            is_complete = column.missing <= FEW_MISSING
            if is_complete and column.is_named_label:
                likely.append(column)
        if likely != [self.label]:
            raise DataError(
                f"more than one column of {self.path} may be the label: {listed(self.candidates)}; "
                "name it by `label`"
            )

    def yaml(self) -> str:
        """Return a task file, with what was guessed in comments."""
        lines: list[str] = []
        for comment in self._comments():
            one_line = " ".join(comment.split())
            lines.append(f"# {one_line}\n")
        drafted = _dumped(self.fields, as_ascii=False)
        if visible(drafted) != drafted:
            # What is not seen YAML writes out in quotes, so that the file still names the column.
            drafted = _dumped(self.fields, as_ascii=True)
        return "".join(lines) + drafted

    def _comments(self) -> Iterator[str]:
        """Say what was guessed, a line each."""
        yield f"Guessed from {self.rows:,} rows: check each line. Paths are relative to this file."
        if isinstance(self.fields["files"], str):
            yield "files: a fifth is held out; or {train: ..., evaluation: ...}"
        else:
            yield "files: evaluation rows by the file's name; without them a fifth is held out"
        used = [
            self.label.name,
            *self.fields["text"],
            self.fields.get("group"),
        ]
        unused = [name for name in self.columns if name not in used]
        shown = ", ".join(unused) or "none"
        yield f"text: one or two columns, not used: {shown}"
        others = [column for column in self.candidates if column is not self.label]
        hint = ""
        if others:
            hint = f"; --label takes another: {listed(others)}"
        yield f"label: {self.label}{hint}"
        why = ""
        if self.uneven:
            why = f"; {self.uneven}"
        yield f"classes: in id order. metric: {self._metrics()}{why}"

    def _metrics(self) -> str:
        """Return the metrics that can score such a task, the usual ones first."""
        from elsa_tune.tasks.types.registry import type_of  # numpy, which names do without

        kind = TaskKind.CLASSIFICATION
        if "regression" in self.fields:
            kind = TaskKind.REGRESSION
        task_type = type_of(kind)
        names: list[str] = []
        for metric in dict.fromkeys((*task_type.usual, *task_type.metrics)):
            name = metric.value
            if metric is Metric.F1:
                name += " (of two classes)"
            names.append(name)
        return ", ".join(names)


def _finite_number(cell: str) -> float | None:
    """Return the number that a cell holds, None where it holds none or an infinite one."""
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def listed(columns: Sequence[Column]) -> str:
    """Write `category (7 values), priority (3 values, 24 % missing)`, and how many more."""
    shown = ", ".join(map(str, columns[:MOST_CANDIDATES]))
    more = len(columns) - MOST_CANDIDATES
    if more <= 0:
        return shown
    return f"{shown} and {more} more"


def guess_task(path: Path, given: Columns = GUESSED) -> Guess:
    """Return the task that a table may be of, its columns as given or guessed.

    The table is named as `path` is. Raises DataError for columns that no task has, for what is no
    readable table and where nothing looks like a text or a label, UnknownNameError for a column
    that is not there.
    """
    check_texts(given.texts, given.label)
    # One of another ending is read as CSV.
    table = read_table(path, format_of(path) or "csv", wanted=None)
    columns = _columns(table)
    for name in (given.label, *given.texts, given.group):
        if name in table.lists:
            raise DataError(f"column '{name}' of {path} holds lists; {NO_LISTS}")
        if name is not None and name not in columns:
            hint = "Columns of times, bytes or lists are left out."
            raise UnknownNameError.among(f"column of {path}", name, columns, hint)
    in_order = list(columns.values())
    candidates = _label_candidates(in_order, (*given.texts, given.group))
    label = None
    if given.label is not None:
        label = columns[given.label]
    elif candidates:
        label = candidates[0]
    if label is None:
        raise _no_label(in_order, (*given.texts, given.group), table)
    if not label.cells:
        raise DataError(
            f"column '{label.name}' of {path} is empty in every row; name another one by `label`"
        )
    others = [column for column in in_order if column.name != given.group]
    texts = list(given.texts) or _texts(others, label)
    if not texts:
        raise _nothing_looks_like("text", table)
    label_fields, uneven = _of_label(label, path)
    fields = {
        **_named(path),
        "text": texts,
        "label": label.name,
        **label_fields,
    }
    if given.group is not None:
        fields["group"] = given.group
    return Guess(
        path=path,
        fields=fields,
        label=label,
        candidates=tuple(candidates),
        is_given=given.label is not None,
        columns=tuple(columns),
        uneven=uneven,
        rows=label.rows,
    )


def _no_label(columns: Sequence[Column], others: Sequence[str | None], table: Table) -> DataError:
    """Return the error for a table without a label. others: columns that are named as others."""
    passed_over = []
    for column in columns:
        if column.is_named_label and column.name not in others:
            passed_over.append(column.why_passed_over)
    why = "; ".join(passed_over) or "values that repeat, or a name that says so"
    return _nothing_looks_like(f"label ({why})", table)


def _nothing_looks_like(what: str, table: Table) -> DataError:
    fault = f"no column of {table.path} looks like a {what}"
    if table.columns:
        shown = shortlist(table.columns)
        fault += (
            f"; its columns are {shown}: name them by `label` and `text`, or write the task file "
            "by hand"
        )
    else:
        fault += "; it has no column of plain values"
    if table.lists:
        fault += f"; columns of lists are left out ({shortlist(table.lists)}); {NO_LISTS}"
    return DataError(fault)


def _columns(table: Table) -> dict[str, Column]:
    """Return a table's columns by their names."""
    rows = len(table)
    columns: dict[str, Column] = {}
    for name, cells in table.columns.items():
        filled = []
        for cell in cells:
            if cell is not None and cell.strip():
                filled.append(cell)
        columns[name] = Column(name, filled, rows)
    return columns


def _named(path: Path) -> dict[str, Any]:
    """Return name and files, among these the evaluation rows beside the table, if there are."""
    name = slug(path.stem) or "task"
    if is_built_in(name):
        name = f"{name}_own"
    evaluation = _evaluation_beside(path)
    if evaluation is None:
        return {"name": name, "files": str(path)}
    files = {
        "train": str(path),
        "evaluation": str(evaluation),
    }
    return {"name": name, "files": files}


def _of_label(label: Column, path: Path) -> tuple[dict[str, Any], str]:
    """Return the fields that follow from a label, and why macro F1, if that is the metric.

    Raises DataError for numbers with decimal commas or slips among them and for lists, which would
    look like classes.
    """
    if label.number_with_comma is not None:
        raise DataError(
            f"column '{label.name}' of {path} holds numbers with commas, such as "
            f"'{label.number_with_comma}'; write them with points"
        )
    if label.odd_labels:
        different = shortlist(map(repr, dict.fromkeys(label.odd_labels)))
        raise DataError(
            f"column '{label.name}' of {path} holds numbers to predict, but "
            f"{len(label.odd_labels):,} of {len(label.labels):,} labels are no finite numbers: "
            f"{different}; correct them, or write the task file by hand: with `regression: true` "
            "and these as `missing_labels`, or with `regression: false` where all are classes"
        )
    rows = Counter(cell for cell in label.cells if not is_not_agreed(cell, label.name))
    check_no_lists(rows, f"column '{label.name}' of {path}")
    fields: dict[str, Any] = {}
    if label.are_numbers:
        no_labels = sorted(filter(means_no_label, rows))
        for value in no_labels:
            del rows[value]
        if no_labels:
            fields["missing_labels"] = no_labels
        numbers = set(map(float, rows))
        if are_values(numbers, label.name):
            return {"regression": True, **fields, "metric": "spearman"}, ""
    commonest_first = rows.most_common()
    values = [value for value, _ in commonest_first]
    if len(values) <= MOST_WRITTEN:
        fields["classes"] = sorted(values, key=number_then_text)
    fields["metric"] = "accuracy"
    why = ""
    commonest, most = commonest_first[0]
    rarest, fewest = commonest_first[-1]
    if most >= UNEVEN * fewest:
        fields["metric"] = "f1_macro"
        why = f"f1_macro since '{commonest}' has {most:,} rows and '{rarest}' {fewest:,}"
    return fields, why


def _label_candidates(
    columns: Sequence[Column],
    others: Sequence[str | None],
) -> list[Column]:
    """Return the columns that may be the label, the likeliest first. others: those that are not.

    That is one named so, with few cells missing and few values, else the last of the table.
    """

    def unlikeliness(column: Column) -> tuple[bool, bool, int]:
        lacks_many = column.missing > FEW_MISSING
        return (not column.is_named_label, lacks_many, column.values)

    candidates: list[Column] = []
    for column in reversed(columns):
        if column.may_be_label and column.name not in others:
            candidates.append(column)
    return sorted(candidates, key=unlikeliness)


def _texts(columns: Sequence[Column], label: Column) -> list[str]:
    """Return the column with the most words, and a second one if it has several, in their order."""
    candidates: list[Column] = []
    for column in columns:
        is_filled = len(column.cells) > 0
        if is_filled and column is not label and not column.are_numbers:
            candidates.append(column)
    wordiest_first = sorted(
        candidates,
        key=lambda column: column.words,
        reverse=True,
    )
    chosen = wordiest_first[:1]
    if len(wordiest_first) > 1:
        second = wordiest_first[1]
        if second.words >= 3:
            chosen.append(second)
    return [column.name for column in columns if column in chosen]


def _evaluation_beside(path: Path) -> Path | None:
    """Find tickets_dev.csv beside tickets.csv or tickets_train.csv, dev.csv beside train.csv."""
    stem = re.sub(r"[-_.]?train(ing)?$", "", path.stem, flags=re.IGNORECASE)
    ends = r"[-_.]?(dev|val(id(ation)?)?|eval(uation)?)"
    pattern = re.escape(stem) + ends
    of_evaluation = re.compile(pattern, re.IGNORECASE)
    of_same_format = path.parent.glob(f"*{path.suffix}")
    for file in sorted(of_same_format):
        if of_evaluation.fullmatch(file.stem):
            return file
    return None


def _dumped(fields: Mapping[str, Any], *, as_ascii: bool) -> str:
    text = yaml.safe_dump(
        dict(fields),
        sort_keys=False,
        allow_unicode=not as_ascii,
        default_flow_style=None,
        width=math.inf,
    )
    return str(text)
