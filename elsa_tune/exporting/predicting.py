"""An exported model or a bundle, and the columns that it adds to rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import DataError, UnknownNameError, UsageError, quoted
from elsa_tune.files import why_no_folder
from elsa_tune.tasks.row_files import Chunk
from elsa_tune.tasks.types.base import Logits
from elsa_tune.training.bundle.fastest import fastest_alone
from elsa_tune.training.bundle.members import ABOUT, Member, read_members
from elsa_tune.training.bundle.texts import Text
from elsa_tune.training.bundle.together import Bundle, Cells, Prediction, load_bundle
from elsa_tune.words import listed

Names = tuple[str, ...]  # of columns or tasks
Lists = dict[str, list[Any]]  # columns of cells, by name
Types = dict[str, type]  # of columns, `str` or `float`, by name


# What the columns of a list's texts are called where tasks name theirs unlike.
_BY_PLACE: Names = ("text", "text_pair")


class Predictor:
    """An exported model or a bundle, and the columns that it adds to rows.

    Of a model `prediction` and, of classes, `confidence`, the predicted one's probability, and
    `probability_LABEL` of each where they are asked for, or what else its type of task has; of a
    bundle each task's, as `TASK_prediction`. empty: rows so far of which a text has no word; they
    are predicted as any other. cut: rows so far that have more tokens than a task's model reads.
    """

    def __init__(
        self,
        folder: Path,
        tasks: Sequence[str] | None = None,
        text: Sequence[str] | None = None,
        *,
        probabilities: bool = False,
    ) -> None:
        """Raise UsageErrors for a folder, tasks or columns that do not go together."""
        self._folder = folder
        self._probabilities = probabilities
        self.empty = 0
        self.cut = 0
        fault = why_no_folder(folder)
        if fault is not None:
            raise UsageError(f"{fault}; `elsa-tune export` and `elsa-tune bundle` write one")
        self._is_bundle = (folder / ABOUT).is_file()
        self._member: Member | None = None  # a single one, until it is known how it runs fastest
        if self._is_bundle:
            self._bundle = load_bundle(folder)
        elif tasks is not None:
            raise UsageError(f"{folder} is one model and no bundle; leave `task` out")
        else:
            members = read_members(folder)
            [(name, self._member)] = members.items()
            self._bundle = Bundle(members, packed=False)
        self._tasks = self._bundle.tasks
        if tasks is not None:
            self._tasks = tuple(dict.fromkeys(tasks))
        for name in self._tasks:
            if name not in self._bundle.tasks:
                raise UnknownNameError.among("task", name, self._bundle.tasks)
        widths = {self._bundle.texts_read(name) for name in self._tasks}
        self._is_mixed = len(widths) > 1  # some read a text, others a pair
        self._reads: dict[str, Names] = {}  # by task, the columns with its texts
        for name in self._tasks:
            self._reads[name] = self._columns_read(name, text)

    @property
    def bundle(self) -> Bundle:
        """What answers; a single model is a bundle of one."""
        return self._bundle

    def read_by_place(self, width: int) -> None:
        """Have each task read its first or second text by its place in rows of a list.

        width: how many texts a row has. Where tasks name theirs unlike, the columns are called
        `text` and `text_pair`. Raises DataError where a task reads another number of texts.
        """
        for task, columns in self._reads.items():
            if len(columns) != width:
                given = "a text" if width == 1 else "a pair of texts"
                raise DataError(
                    f"each row is {given}, but {self._who(task)} reads {listed(columns)}"
                    f"{self._apart}"
                )
        names = set(self._reads.values())
        if len(names) > 1:
            self._reads = dict.fromkeys(self._tasks, _BY_PLACE[:width])

    @property
    def columns(self) -> Names:
        """The columns that have the texts, each once."""
        names: dict[str, None] = {}
        for columns in self._reads.values():
            names |= dict.fromkeys(columns)
        return tuple(names)

    @property
    def remarks(self) -> list[str]:
        """Say how many rows so far have an empty text, and how many a text that was cut."""
        remarks = []
        if self.empty == 1:
            remarks.append("1 row has an empty text, and was predicted as such")
        elif self.empty:
            remarks.append(f"{self.empty:,} rows have an empty text, and were predicted as such")
        if self.cut:
            rows = "1 row has" if self.cut == 1 else f"{self.cut:,} rows have"
            limits = {self._bundle.facts(task)["max_length"] for task in self._tasks}
            limit = " or ".join(map(str, sorted(limits)))
            remarks.append(f"{rows} more than {limit} tokens, of which no more were read")
        return remarks

    def added(self, names: Sequence[str], where: str) -> Types:
        """Return the columns that are added to rows with these, and their types, `str` or `float`.

        where: what has the rows. Raises DataError for a column that is missing, there twice, or
        there already.
        """
        for name in self.columns:
            count = list(names).count(name)
            if count == 0:
                own = ", ".join(f"'{name}'" for name in names)
                readers = [task for task, columns in self._reads.items() if name in columns]
                raise DataError(
                    f"{where} has no column '{name}', which {self._who(readers[0])} reads; its "
                    f"columns are {own}: name the right one with `text`{self._apart}"
                )
            if count > 1:
                raise DataError(f"{where} has the column '{name}' twice; rename or drop one")
        added: Types = {}
        for task in self._tasks:
            added |= self._added(task)
        for name in names:
            if name in added:
                raise DataError(
                    f"{where} has a column '{name}' already, which predictions are to have; rename "
                    "or drop it"
                )
        return added

    @property
    def unknown_kinds(self) -> list[str]:
        """A line for each task whose kind of label nothing here knows."""
        lines = []
        for task in self._tasks:
            kind = self._bundle.unknown_kind(task)
            if kind is not None:
                taken = self._bundle.type_of(task).kind
                lines.append(
                    f"! the labels of {self._who(task)} are of kind {quoted(kind)}, which nothing "
                    f"here knows: they are predicted as those of a {taken}; install the package "
                    "that brings the kind"
                )
        return lines

    def _added(self, task: str) -> Types:
        """Return the columns that a task adds, and their types: those of no rows are the same."""
        no_rows: list[Text] = []
        predictions = self._bundle.predict(no_rows, [task])
        columns = self._columns(task, predictions[task].logits)
        types: Types = {}
        for name, cells in columns.items():
            types[name] = float
            if _are_texts(cells):
                types[name] = str
        return types

    def predict(self, chunk: Chunk, where: Path) -> Lists:
        """Return the added columns of some rows.

        where: what has them. Raises DataError for bad texts.
        """
        columns = {name: chunk.texts(name, where) for name in self.columns}
        rows = zip(*columns.values(), strict=True)
        for row in rows:
            is_complete = all(text.strip() for text in row)
            if not is_complete:
                self.empty += 1
        predictions: dict[str, Prediction] = {}
        for names, tasks in self._tasks_by_columns().items():
            parts = [columns[name] for name in names]
            texts: list[Text] = list(parts[0])
            if len(parts) > 1:
                texts = list(zip(*parts, strict=True))
            if texts and self._member is not None:
                self._bundle = fastest_alone(tasks[0], self._member, texts)
                self._member = None
            predictions |= self._bundle.predict(texts, tasks)
        is_cut = np.zeros(len(chunk.rows), np.bool_)
        for prediction in predictions.values():
            is_cut |= prediction.is_cut
        self.cut += int(is_cut.sum())
        added: Lists = {}
        for task in self._tasks:
            added |= self._cells(task, predictions[task])
        return added

    def _tasks_by_columns(self) -> dict[Names, list[str]]:
        """Return the tasks that read the same texts, which are predicted at once."""
        groups: dict[Names, list[str]] = {}
        for task, names in self._reads.items():
            groups.setdefault(names, []).append(task)
        return groups

    def _cells(self, task: str, prediction: Prediction) -> Lists:
        lists: Lists = {}
        columns = self._columns(task, prediction.logits)
        for name, cells in columns.items():
            if _are_texts(cells):
                lists[name] = cells.tolist()
            else:
                lists[name] = _numbers(cells)
        return lists

    def _columns_read(self, task: str, text: Sequence[str] | None) -> Names:
        """Return the columns that a task reads. text: other names of them. Raises UsageError."""
        recorded: Sequence[str] | None = self._bundle.facts(task).get("text_columns")
        if text is None and recorded is None:
            raise UsageError(
                f"{self._folder} was exported before exports kept the names of the text columns; "
                "name them with `text`"
            )
        names = tuple(text or recorded or ())
        expected = len(recorded or names)
        has_each_once = len(names) == len(set(names)) == expected
        if has_each_once and expected in (1, 2):
            return names
        named = listed(names) or "nothing"
        wanted = "two different columns"
        if expected == 1:
            wanted = "one column"
        raise UsageError(
            f"`text` names {named}; give {wanted}, as {self._who(task)} reads{self._apart}"
        )

    def _who(self, task: str) -> str:
        """Return what messages call the reader of a column."""
        if self._is_mixed:
            return f"'{task}'"
        return str(self._folder)

    @property
    def _apart(self) -> str:
        """What errors advise, at their end, where no columns do for all tasks."""
        if self._is_mixed:
            return ", and ask tasks that read pairs apart from the others, by `task`"
        return ""

    def _columns(self, task: str, logits: Logits) -> Cells:
        """Return the columns that a task's logits [E, C] add, by their names in the rows."""
        columns = self._bundle.cells(
            task,
            logits,
            probabilities=self._probabilities,
        )
        if not self._is_bundle:
            return columns
        return {f"{task}_{name}": cells for name, cells in columns.items()}


def _are_texts(cells: NDArray[Any]) -> bool:
    """Whether a column has texts; any other has numbers."""
    return cells.dtype.kind == "O"


def _numbers(values: NDArray[np.float32]) -> list[float]:
    """Return a number with as few digits as tell a float32 from its neighbours."""
    return [float(str(value)) for value in values]
