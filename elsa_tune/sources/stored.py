"""What a store has recorded, MLflow's or another."""

import contextlib
import functools
from pathlib import Path

from elsa_tune.errors import ResultsError, StorageError, first_few
from elsa_tune.sources.source import (
    Question,
    Say,
    Searches,
    Source,
    has_specification,
    rows_of_searches,
    told_apart,
)
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tracking.artifacts.fetching import recorded_id
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.state import SearchState, read_state
from elsa_tune.tracking.store import RecordStore, local_folder
from elsa_tune.tracking.stores import store_at


class Stored(Source):
    """What a store has, MLflow's or another."""

    name = "the record"
    is_record = True

    def __init__(self, tracking_uri: str, storage: Path | None = None) -> None:
        """Know a store.

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
        meant = {state.search.search_id for _, state in self.searches(question)}
        if not meant:
            return rows
        return [row for row in rows if row.search != question.search or row.search_id in meant]

    def _rows(self, question: Question, say: Say) -> list[ResultRow]:
        searches: Searches = []
        for _, state in self.searches(question):
            folder = local_folder(state.search.tags)
            searches.append((folder, state))
        return rows_of_searches(searches, question, say)

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Return the searches, with their folders on this machine; the store is asked once."""
        states = self._read(question.tasks, question.search)
        if question.search is not None:
            states = self._meant(question.search, question.model, states)
        return [(_folder_here(state), state) for state in states]

    def _meant(self, name: str, model: str | None, states: list[SearchState]) -> list[SearchState]:
        """Return the search that is meant, of those that have its name.

        It is the folder's own, or the only one, of the model if one is asked for. Raises
        ResultsError where several may be meant.
        """
        if len(states) < 2:
            return states
        own_id = id_in_folder(self._storage, name)
        own = [state for state in states if state.search.search_id == own_id]
        if own:
            return own
        possible = [state for state in states if model in (None, state.search.model)]
        described = {state.search.search_id: told_apart(state) for state in possible}
        if len(described) < 2:
            return possible or states
        raise ResultsError(
            f"{len(described)} searches in {self.name} are named '{name}'; ask for the one that is "
            "meant by its id, in place of the name:",
            *first_few(list(described.values())),
        )

    def has_that_of_folder(self, question: Question) -> bool:
        """Whether the search asked for is the folder's own, as far as its id is known there."""
        own_id = id_in_folder(self._storage, question.search or "")
        ids = {state.search.search_id for _, state in self.searches(question)}
        return own_id in ids or (own_id is None and len(ids) > 0)

    def overview(self) -> Searches:
        """Return every search, its trials only counted: reading ten thousand runs takes minutes."""
        return [(None, state) for state in self.store.overview()]


def id_in_folder(storage: Path | None, name: str) -> str | None:
    """Return the id of the search of this name in a folder; None where none is known."""
    if storage is None or name not in search_names(storage):
        return None
    paths = SearchPaths(storage, name)
    search_id = ""
    with contextlib.suppress(StorageError):
        search_id = read_state(paths.journal).search.search_id
    if not search_id:  # its journal is lost, or cannot be read
        with contextlib.suppress(StorageError, OSError):
            search_id = recorded_id(paths)
    return search_id or None


def _folder_here(state: SearchState) -> Path | None:
    """Return a search's folder; None where it is another machine's, is gone or is not ours."""
    folder = local_folder(state.search.tags)
    if folder is None:
        return None
    with contextlib.suppress(OSError):  # another user's
        if has_specification(folder):
            return folder
    return None
