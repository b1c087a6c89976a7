"""The deletion of a search: its folder, its copy, and what its store has of it."""

import shutil
from pathlib import Path

from elsa_tune.errors import ElsaTuneError, StorageError, TrackingError
from elsa_tune.tracking.artifacts.fetching import delete_copy
from elsa_tune.tracking.artifacts.places import recorded_artifacts
from elsa_tune.tracking.journal import take_lock
from elsa_tune.tracking.paths import SearchPaths, find_search
from elsa_tune.tracking.state import read_state
from elsa_tune.tracking.stores import store_at
from elsa_tune.tracking.uris import reason


def delete_search(storage: Path, name: str, tracking_uri: str) -> int:
    """Delete a search's folder, its copy and what its store has of it; returns how many runs.

    Raises UnknownNameError, StorageError while it runs or where its copy stays, TrackingError; then
    its folder is kept.
    """
    # A search that only the store knows is another machine's: it is not ours to delete.
    paths = find_search(storage, name)
    if paths.folder.is_symlink():
        raise StorageError(
            f"cannot delete {paths.folder}: it is a link to {paths.folder.resolve()}, and "
            "what a link leads to is not ours; remove both yourself"
        )
    with take_lock(paths.journal):
        try:
            runs = _delete_runs(paths, tracking_uri)
            _delete_copy(paths)
            # Out of sight at once: a deletion that is cut short leaves no half of a search.
            grave = paths.storage / f".deleted-{name}"
            shutil.rmtree(grave, ignore_errors=True)
            paths.folder.rename(grave)
            shutil.rmtree(grave)
        except OSError as error:
            why = error.strerror or error
            raise StorageError(f"cannot delete {paths.folder}: {why}") from error
    return runs


def _delete_copy(paths: SearchPaths) -> None:
    """Delete the copy of a search's record, from which its command would fetch it again."""
    url = recorded_artifacts(paths)
    if url is None:
        return
    try:
        delete_copy(url, paths.name)
    except ElsaTuneError as error:
        raise StorageError(
            f"{error}; so the copy of search '{paths.name}' was not deleted, and its folder was "
            f"kept (without its store, delete {paths.folder} yourself)"
        ) from error


def _delete_runs(paths: SearchPaths, tracking_uri: str) -> int:
    try:
        search_id = read_state(paths.journal).search.search_id
    except StorageError:
        return 0  # a journal that cannot be read names no runs; deleting is the way out of it
    if not search_id:
        return 0
    store = store_at(tracking_uri)
    store.check()
    try:
        return store.delete(search_id)
    except Exception as error:  # of any library; the folder is kept whatever it was
        raise TrackingError(
            f"the runs of search '{paths.name}' could not be deleted "
            f"({reason(error, tracking_uri)}); its folder was kept"
        ) from error
