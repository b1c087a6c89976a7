"""Tables of results: one's own, peft's, and those that the two studies printed."""

import os
from collections.abc import Sequence
from pathlib import Path

from elsa_tune.errors import ResultsError, UsageError, shortlist
from elsa_tune.results.peft_benchmark import is_benchmark, read_benchmark
from elsa_tune.results.published import published_rows
from elsa_tune.results.results_csv import import_results
from elsa_tune.sources.source import Question, Say, Source
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tracking.paths import default_storage, search_names


class Table(Source):
    """A CSV of results, or the JSON files of peft's method_comparison."""

    def __init__(self, path: Path, columns: Sequence[str] = (), *, percent: bool = False) -> None:
        self.name = str(path)
        self._path = path
        self._columns = columns
        self._percent = percent

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        _check_no_searches(self._path)
        if is_benchmark(self._path):
            if self._columns or self._percent:
                raise UsageError(
                    f"{self._path} holds JSON results, whose fields are known and are fractions; "
                    "leave out `map` and `scale`, which are for a CSV"
                )
            imported = read_benchmark(self._path)
        else:
            imported = import_results(self._path, percent=self._percent, mapping=self._columns)
        if imported.notes:
            say("\n  ".join(imported.notes))
        return imported.rows


def _check_no_searches(folder: Path) -> None:
    """Raise ResultsError for a folder that searches are recorded in: its JSON is no benchmark's."""
    for storage in (folder, folder / "searches", default_storage(folder)):
        names = search_names(storage) if os.path.isdir(storage) else []
        if names:
            raise ResultsError(
                f"{folder} is no results table, but has recorded searches: {shortlist(names)}; "
                f"give the folder of one, such as {storage / names[0]}"
            )


class Published(Source):
    """What the two studies printed."""

    name = "the published tables"

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        return published_rows()

    def ask(self, question: Question, say: Say) -> list[ResultRow]:
        rows = super().ask(question, say)
        studies: dict[str, None] = {}  # each once, in the rows' order
        for row in rows:
            studies[str(row.comparison)] = None
        printed = " and ".join(studies)
        say(
            f"as printed by {printed}; both used one learning rate for all depths, so that few "
            "fine-tuned layers may look worse than they are"
        )
        return rows
