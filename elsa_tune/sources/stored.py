"""What a store has recorded, MLflow's or another."""

import contextlib
import functools
from pathlib import Path

from elsa_tune.sources.meant import has_own, meant, own_id
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

    def __init__(self, tracking_uri: str, storage: Path | None = None) -> None:
        """Take the address of a store.

        storage: the folder of journals whose search a name means where several have it.
        """
        self._storage = storage
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
            rows = self._without_others(question, rows)
        for line in lines:
            say(line)
        return rows

    def _without_others(self, question: Question, rows: list[ResultRow]) -> list[ResultRow]:
        """Leave out the searches of the name asked for that are not the one that is meant."""
        ids = {state.search.search_id for _, state in self.searches(question)}
        if not ids:
            return rows
        return [row for row in rows if row.search != question.search or row.search_id in ids]

    def _rows(self, question: Question, say: Say) -> list[ResultRow]:
        searches: Searches = []
        for _, state in self.searches(question):
            folder = local_folder(state.search.tags)
            searches.append((folder, state))
        return rows_of_searches(searches, question, say)

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Return the searches, with their folders on this machine; the store is asked once."""
        states = self._read(question.tasks, question.search)
        if question.search is not None and len(states) > 1:
            own = own_id(self._storage, question.search)  # reads a journal
            states = meant(states, question.search, question.model, own, self.name)
        return [(_folder_here(state), state) for state in states]

    def has_that_of_folder(self, question: Question) -> bool:
        """Whether the search asked for is the folder's own, as far as its id is known there."""
        own = own_id(self._storage, question.search or "")
        states = [state for _, state in self.searches(question)]
        return has_own(states, own)

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
