"""Finds the search that a name means: the folder's own, else the only one of that name.

People who share a store may give their searches the same name there; an id is never in doubt. In a
folder no two have one name: it is their folder's, which may have been renamed.
"""

import contextlib
from pathlib import Path

from elsa_tune.errors import ResultsError, StorageError, first_few
from elsa_tune.specs.result_row import SearchKey
from elsa_tune.tracking.artifacts.fetching import recorded_id
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.record_names import JOURNAL_TAG
from elsa_tune.tracking.rows import origin_of
from elsa_tune.tracking.state import SearchState, read_state


def is_called(search: SearchKey, asked: str) -> bool:
    """Whether a search is the one asked for: by its name, or by its id."""
    return asked in search


def own_id(storage: Path | None, name: str) -> str | None:
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


def has_own(states: list[SearchState], own: str | None) -> bool:
    """Whether the folder's own search is among those of its name, as far as its id is known."""
    if own is None:
        return bool(states)
    return any(state.search.search_id == own for state in states)


def meant(
    states: list[SearchState], name: str, model: str | None, own: str | None, place: str
) -> list[SearchState]:
    """Return the search that is meant, of those in a place that have the name asked for.

    It is the folder's own, or the only one, of the model if one is asked for. Raises ResultsError
    where several may be meant.
    """
    of_folder = [state for state in states if state.search.search_id == own]
    if of_folder:
        return of_folder
    of_model = [state for state in states if model in (None, state.search.model)]
    if len(of_model) < 2:
        return of_model or states  # of another model: an error will name theirs
    described = [told_apart(state) for state in of_model]
    raise ResultsError(
        f"{len(described)} searches in {place} are named '{name}'; ask for the one that is "
        "meant by its id, in place of the name:",
        *first_few(described),
    )


def told_apart(state: SearchState, folder: Path | None = None) -> str:
    """Return what tells a search from others of its name: its id, and when and where it ran.

    folder: its own; None for the one that a store names.
    """
    search = state.search
    place = origin_of(state).place
    journal = search.tags.get(JOURNAL_TAG)
    if folder is None and journal is not None:
        folder = Path(journal).parent
    if folder is not None:
        place += f", {folder}"
    return f"{search.search_id}: {search.model} on {search.task}, begun {place}"
