"""Where the rows of a question come from: the MLflow store, journals, a results table, or print.

It must not compute anything from the rows; it finds them, and says which names are not known.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elsa_tune.errors import NoAnswerError, ResultsError, UnknownNameError, UsageError
from elsa_tune.specs.known_tasks import KNOWN_TASKS
from elsa_tune.specs.model import KNOWN_MODELS
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.tasks import YAML_SUFFIXES, resolve_task

if TYPE_CHECKING:
    from elsa_tune.tracking.predictions import KeptPredictions

ALL = "all"
FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What `operating-point` and `curve` are asked about.

    tasks: None for every task. train_sizes: None where not asked for, () for all, else those (None
    in it stands for the whole training set). table: a CSV, or a search's journal (.jsonl).
    columns: what the table calls its columns, as `ColumnMapping.of` reads it. published: the two
    studies' printed numbers are asked, and nothing else.
    """

    model: str | None
    tasks: tuple[str, ...] | None
    train_sizes: tuple[int | None, ...] | None
    search: str | None
    table: Path | None
    columns: tuple[str, ...] = ()
    published: bool
    percent: bool
    tracking_uri: str | None
    storage_path: Path | None

    @property
    def train_sizes_apart(self) -> bool:
        """A table answers for each of its training sizes; recorded ones are chosen from."""
        return self.table is not None or self.published or self.train_sizes is not None

    @property
    def where(self) -> str:
        """The source as a sentence names it."""
        if self.table is not None:
            return str(self.table)
        if self.published:
            return "the published tables"
        if self.storage_path is not None:
            return f"the journals under {self.storage_path}"
        return "the record"


def read_tasks(texts: Sequence[str]) -> tuple[str, ...] | None:
    """The `--task` options; None for every task. A YAML file stands for the task it describes."""
    if not texts or ALL in texts:
        return None
    names = (
        resolve_task(text).name if text.lower().endswith(YAML_SUFFIXES) else text for text in texts
    )
    return tuple(dict.fromkeys(names))


def read_train_sizes(texts: Sequence[str]) -> tuple[int | None, ...] | None:
    """The `--train-size` options: numbers, `full` for the whole training set, `all`."""
    if not texts:
        return None
    sizes: list[int | None] = []
    for text in texts:
        if text == ALL:
            return ()
        if text != FULL and not (text.isascii() and text.isdigit() and int(text) > 0):
            raise UsageError(
                f"--train-size is '{text}'; it must be a number of examples, '{FULL}' for the "
                f"whole training set, or '{ALL}'"
            )
        sizes.append(None if text == FULL else int(text))
    return tuple(dict.fromkeys(sizes))


def find_rows(query: Query) -> list[ResultRow]:
    """The rows the question is about, never empty.

    Raises UsageErrors for unknown names and unreadable sources, NoAnswerError where the names are
    good but nothing is recorded under them.
    """
    if query.published:
        return _from_print(query)
    if query.table is not None:
        rows = _from_table(query, query.table)
    elif query.storage_path is not None:
        rows = _select(query, _from_storage(query, query.storage_path), recorded=True)
    else:
        rows = _from_store(query)
    return _of_train_sizes(query, rows)


def evidence_for(rows: Sequence[ResultRow], query: Query) -> KeptPredictions | None:
    """Where the rows' predictions are; None for results that have none."""
    if not any(row.predictions for row in rows):
        return None
    from elsa_tune.tracking.paths import StorePaths
    from elsa_tune.tracking.predictions import KeptPredictions
    from elsa_tune.training.cache import cache_dir

    store = StorePaths(Path.cwd()).tracking_uri(query.tracking_uri)
    return KeptPredictions(rows, cache_dir(), store)


def _from_table(query: Query, table: Path) -> list[ResultRow]:
    if table.suffix == ".jsonl":
        return _select(query, _from_journal(table), recorded=False)
    from elsa_tune.tables.column_mapping import ColumnMapping
    from elsa_tune.tables.results_csv import import_results

    mapping = ColumnMapping.of(query.columns)
    imported = import_results(table, percent=query.percent, mapping=mapping)
    for number, line in enumerate(imported.told):
        print(f"  {line}" if number else f"elsa-tune: {line}", file=sys.stderr)
    return _select(query, imported.rows, recorded=False)


def _from_print(query: Query) -> list[ResultRow]:
    from elsa_tune.tables.published import published_rows

    rows = _of_train_sizes(query, _select(query, published_rows(), recorded=False))
    printed = " and ".join(dict.fromkeys(row.comparison for row in rows))
    print(
        f"elsa-tune: as printed by {printed}; both used one learning rate for all depths, so that "
        "few fine-tuned layers may look worse than they are",
        file=sys.stderr,
    )
    return rows


def _from_journal(journal: Path) -> list[ResultRow]:
    if not journal.is_file():
        raise ResultsError(f"journal {journal} does not exist")
    from elsa_tune.tracking.journal import read_journal
    from elsa_tune.tracking.rows import read_journal_rows

    rows = read_journal_rows(journal)
    if not rows and not read_journal(journal):
        raise ResultsError(f"{journal} holds no record of a search; name a search's journal.jsonl")
    if not rows:
        raise NoAnswerError(f"no trial is recorded in {journal}")
    return rows


def _from_storage(query: Query, storage: Path) -> list[ResultRow]:
    from elsa_tune.tracking.paths import SearchPaths, find_search, search_names
    from elsa_tune.tracking.rows import read_journal_rows

    if query.search is not None:
        return _from_journal(find_search(storage, query.search).journal)
    names = search_names(storage)
    if not names:
        raise ResultsError(
            f"no search is recorded in {storage}; --storage-path names the folder that holds the "
            "searches"
        )
    return [row for name in names for row in read_journal_rows(SearchPaths(storage, name).journal)]


def _from_store(query: Query) -> list[ResultRow]:
    from elsa_tune.tracking import rows as results
    from elsa_tune.tracking.paths import StorePaths

    store = StorePaths(Path.cwd()).tracking_uri(query.tracking_uri)
    tasks = None if query.tasks is None else list(query.tasks)
    rows = results.read_rows(store, query.model, tasks, query.search)
    found = {row.task for row in rows}
    if rows and (tasks is None or found >= set(tasks)):
        return rows
    # Only now, on the way to a complaint, is the whole store worth reading.
    everything = results.read_rows(store)
    return _select(query, everything, recorded=True)


def _select(query: Query, rows: Sequence[ResultRow], *, recorded: bool) -> list[ResultRow]:
    """Narrow to what was asked for; `recorded`: known names may have no rows yet."""
    if query.search is not None:
        searches = {row.search for row in rows if row.search is not None}
        if query.search not in searches:
            raise _unknown("search", query.search, searches, query)
        rows = [row for row in rows if row.search == query.search]
    models = {row.model for row in rows}
    if query.model is not None:
        if query.model not in models:
            _complain("model", query.model, models, KNOWN_MODELS if recorded else (), query)
        rows = [row for row in rows if row.model == query.model]
    if query.tasks is None:
        return _not_empty(query, rows)
    tasks = {row.task for row in rows}
    missing = [name for name in query.tasks if name not in tasks]
    for name in missing:
        # A known task without results spoils the question only if no other task has any.
        if not recorded or name not in KNOWN_TASKS or len(missing) == len(query.tasks):
            _complain("task", name, tasks, KNOWN_TASKS if recorded else (), query)
        print(f"elsa-tune: nothing is recorded on {name}", file=sys.stderr)
    return [row for row in rows if row.task in query.tasks]


def _not_empty(query: Query, rows: Sequence[ResultRow]) -> list[ResultRow]:
    if not rows:
        raise NoAnswerError(f"no trial is recorded in {query.where}; `elsa-tune search` runs them")
    return list(rows)


def _complain(
    what: str, name: str, there: Iterable[str], known: Iterable[str], query: Query
) -> None:
    """A good name without results has no answer (3); a name that nobody knows is a slip (2)."""
    there = sorted(there)
    if name in known:
        model = f" for {query.model}" if what == "task" and query.model is not None else ""
        others = f"; there is {', '.join(there)}" if there else ""
        raise NoAnswerError(
            f"no answer: nothing is recorded on {what} {name}{model} in {query.where}{others}; "
            "`elsa-tune search` runs the trials"
        )
    raise _unknown(what, name, {*there, *known}, query)


def _unknown(what: str, name: str, known: Iterable[str], query: Query) -> UsageError:
    names = sorted(known)
    if not names:
        return ResultsError(f"{what} '{name}' was asked for, but {query.where} names no {what}")
    return UnknownNameError.among(what, name, names, hint=f"Looked in {query.where}.")


def _size_name(train_size: int | None) -> str:
    return FULL if train_size is None else str(train_size)


def _of_train_sizes(query: Query, rows: list[ResultRow]) -> list[ResultRow]:
    if not query.train_sizes:
        return rows
    found = {row.train_size for row in rows}
    for size in query.train_sizes:
        if size not in found:
            there = ", ".join(map(_size_name, sorted(found, key=lambda size: size or math.inf)))
            raise NoAnswerError(
                f"no answer: no result in {query.where} has --train-size {_size_name(size)}; "
                f"there is {there}"
            )
    return [row for row in rows if row.train_size in query.train_sizes]
