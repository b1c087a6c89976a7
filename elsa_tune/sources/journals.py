"""The journals of searches, which are read in a fraction of a store's time."""

from dataclasses import replace
from pathlib import Path

from elsa_tune.errors import ResultsError, StorageError, first_few
from elsa_tune.sources.source import (
    Question,
    Say,
    Searches,
    Source,
    has_specification,
    rows_of_searches,
)
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tracking.paths import SearchPaths, find_search, search_names
from elsa_tune.tracking.state import read_state


class Journals(Source):
    """The journals of all searches in a folder, or one journal (.jsonl)."""

    def __init__(self, place: Path, name: str = "") -> None:
        self._place = place
        self.is_record = place.suffix != ".jsonl"
        if name:
            self.name = name
        elif self.is_record:
            self.name = f"the journals under {place}"
        else:
            self.name = str(place)
        self._read: dict[str | None, Searches] = {}
        self._rows: dict[str | None, list[ResultRow]] = {}  # by the search asked for, as above
        self.unread: list[StorageError] = []  # why the journals that were read last could not be

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        """Return the rows of the search asked for, or of all that can be read, by their start.

        What is left out is said once, however often the rows are asked for.
        """
        if question.search in self._rows:
            return self._rows[question.search]
        searches = self.searches(question, say)
        if not self.is_record:
            has_begun = any(state.search.attempt for _, state in searches)
            if not has_begun and not has_specification(self._place.parent):
                raise ResultsError(
                    f"{self.name} holds no record of a search; name the journal.jsonl of one that "
                    "has begun"
                )
        rows = rows_of_searches(searches, question, say)
        self._rows[question.search] = rows
        return rows

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Return the searches; each journal is read once."""
        if question.search in self._read:
            return self._read[question.search]
        searches: Searches = []
        errors = []
        for journal in self._journals(question.search):
            try:
                state = read_state(journal)
            except StorageError as error:
                errors.append(error)
                continue
            if self.is_record:  # its folder may have been renamed, and two have never one name
                state.search = replace(state.search, name=journal.parent.name)
            folder = journal.absolute().parent
            searches.append((folder, state))
        self.unread = errors
        if errors and not searches:
            raise errors[0]
        reasons = [str(error) for error in errors]
        for unread in first_few(reasons):
            say(f"left out: {unread}")
        searches.sort(key=lambda search: search[1].started)
        self._read[question.search] = searches
        return searches

    def _journals(self, search: str | None) -> list[Path]:
        if not self.is_record:
            if not self._place.is_file():
                raise ResultsError(f"journal {self._place} does not exist")
            return [self._place]
        if search is not None:
            paths = find_search(self._place, search)
            return [paths.journal]
        names = search_names(self._place)
        if not names:
            raise ResultsError(
                f"no search is recorded in {self._place}; `storage_path` names the folder that "
                "holds the searches"
            )
        return [SearchPaths(self._place, name).journal for name in names]
