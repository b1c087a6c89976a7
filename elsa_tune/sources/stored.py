"""What a store has recorded, MLflow's or another."""

import contextlib
import functools
from pathlib import Path

from elsa_tune.sources.source import (
    Question,
    Say,
    Searches,
    Source,
    has_specification,
    rows_of_searches,
)
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import RecordStore, local_folder
from elsa_tune.tracking.stores import store_at


class Stored(Source):
    """What a store has, MLflow's or another."""

    name = "the record"
    is_record = True

    def __init__(self, tracking_uri: str) -> None:
        self.store: RecordStore = store_at(tracking_uri)
        self._read = functools.cache(self.store.searches)

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        """Return the rows of the search and tasks asked for, in the order of their start."""
        lines: list[str] = []
        rows = self._rows(question, lines.append)
        if not question.is_met_by(rows):
            # Only on the way to a complaint is the complete store worth reading.
            lines.clear()
            rows = self._rows(Question(), lines.append)
        for line in lines:
            say(line)
        return rows

    def _rows(self, question: Question, say: Say) -> list[ResultRow]:
        searches: Searches = []
        for _, state in self.searches(question):
            folder = local_folder(state.search.tags)
            searches.append((folder, state))
        return rows_of_searches(searches, question, say)

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Return the searches, with their folders on this machine; the store is asked once."""
        states = self._read(question.tasks, question.search)
        return [(_folder_here(state), state) for state in states]

    def overview(self) -> Searches:
        """Return every search, its trials only counted: reading ten thousand runs takes minutes."""
        return [(None, state) for state in self.store.overview()]


def _folder_here(state: SearchState) -> Path | None:
    """Return a search's folder; None where it is another machine's, is gone or is not ours."""
    folder = local_folder(state.search.tags)
    if folder is None:
        return None
    with contextlib.suppress(OSError):  # another user's
        if has_specification(folder):
            return folder
    return None
