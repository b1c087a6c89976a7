"""Another store of records, in a file of its own: one SQLite table, a row for each record.

A URI names its file: `records:///FOLDER/FILE.db`. It keeps neither predictions nor models.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elsa_tune.errors import TrackingError
from elsa_tune.tracking.journal_records import Record, SearchStarted, decode, encode
from elsa_tune.tracking.state import SearchState, is_behind
from elsa_tune.tracking.store import RefusedError, StoreGoneError, journal_tags, may_run
from elsa_tune.tracking.stores import register
from elsa_tune.tracking.uris import reason

_TABLE = """
CREATE TABLE IF NOT EXISTS records (
    search TEXT, time REAL, record TEXT, PRIMARY KEY (search, time)
)
"""


class TableSink:
    """Takes a journal's records: each is a row, keyed by its search and its time."""

    name = "SQLite"

    def __init__(self, store: TableStore, journal: Path) -> None:
        self.uri = store.uri
        self._store = store
        self._journal = journal
        self.begin_again()

    def begin_again(self) -> None:
        self._state = SearchState()  # what was learnt and sent

    def learn(self, record: Record) -> None:
        self._state.add(record)

    def send(self, batch: Sequence[Record]) -> None:
        if self._store.lacks(self._state):
            raise StoreGoneError(f"{self.uri} lacks a part of the search")
        for record in batch:
            search_id = self._state.search.search_id
            kept = record
            if isinstance(record, SearchStarted):
                search_id = record.search_id
                tags = record.tags | journal_tags(self._journal)
                kept = dataclasses.replace(record, tags=tags)
            elif not search_id:
                raise RefusedError("the record belongs to no search")
            row = (search_id, record.time, encode(kept))
            with self._store.opened() as database:
                database.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", row)
            self._state.add(record)

    def trouble(self, error: Exception) -> str:
        return f"did not take them ({reason(error, self.uri)})"


class TableStore:
    """The table in the file that the URI names."""

    name = "SQLite"
    has_pages = True
    credentials_hint = "by `tracking_uri`"

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._file = Path(uri.removeprefix("records://"))

    @contextlib.contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Open the table, made where it is not there; what was done is kept at the end."""
        with contextlib.closing(sqlite3.connect(self._file)) as database, database:
            database.execute(_TABLE)
            yield database

    def packages(self) -> set[str]:
        return set()

    def check(self) -> None:
        pass

    def initialise(self, say: Callable[[str], None]) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self.opened():
                pass
        except (OSError, sqlite3.Error) as error:
            raise TrackingError(f"{self._file} cannot be written: {reason(error)}") from error

    def look(self) -> str:
        if self.is_unmade():
            return f"{self.uri} can be made: the first search does it"
        if not os.access(self._file, os.W_OK):
            raise TrackingError(f"{self._file} cannot be written")
        return f"{self.uri} answers"

    def is_unmade(self) -> bool:
        return not self._file.exists()

    def lacks(self, sent: SearchState) -> bool:
        kept = self._states().get(sent.search.search_id, SearchState())
        return is_behind(kept, sent)

    def sink(self, journal: Path) -> TableSink:
        return TableSink(self, journal)

    def searches(
        self, tasks: Sequence[str] | None = None, search: str | None = None
    ) -> list[SearchState]:
        if self.is_unmade():
            raise TrackingError(f"nothing is recorded in {self._file}")
        states = []
        for state in self._states().values():
            if search in (None, state.search.name, state.search.search_id) and (
                tasks is None or state.search.task in tasks
            ):
                states.append(state)
        return sorted(states, key=lambda state: state.started)

    def overview(self) -> list[SearchState]:
        return self.searches()

    def show(self, host: str, port: int, say: Callable[[str], None]) -> None:
        for state in self.overview():
            say(f"http://{host}:{port}/{state.search.name}")

    def fetch(self, run_id: str, artifact: str, folder: Path) -> None:
        return None

    def delete(self, search_id: str) -> int:
        deleted = self._states().get(search_id)
        if deleted is None:
            return 0
        with self.opened() as database:
            database.execute("DELETE FROM records WHERE search = ?", (search_id,))
        return 1 + len(deleted.trials)

    def keep_model(
        self,
        search: SearchStarted,
        classifier: Any,
        row: Mapping[str, str],
        options: Mapping[str, Any],
        versions: Mapping[str, str],
    ) -> None:
        return None

    def _states(self) -> dict[str, SearchState]:
        """Return what the table has of every search, by its id."""
        if self.is_unmade():
            return {}
        records: dict[str, list[Record]] = {}
        with self.opened() as database:
            for search_id, line in database.execute(
                "SELECT search, record FROM records ORDER BY time"
            ):
                records.setdefault(search_id, []).append(decode(line))
        states = {}
        for search_id, kept in records.items():
            tags = SearchState.replay(kept).search.tags
            states[search_id] = SearchState.replay(kept, alive=may_run(tags))
        return states


register("records", TableStore)
