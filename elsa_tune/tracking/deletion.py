"""The deletion of a search: its folder, its copy, and what its store has of it."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from elsa_tune.errors import ElsaTuneError, StorageError, TrackingError
from elsa_tune.tracking.artifacts.fetching import delete_copy, held_copy
from elsa_tune.tracking.artifacts.places import recorded_artifacts
from elsa_tune.tracking.journal import take_lock
from elsa_tune.tracking.paths import SearchPaths, find_search
from elsa_tune.tracking.state import read_state
from elsa_tune.tracking.stores import store_at
from elsa_tune.tracking.uris import reason


def delete_search(
    storage: Path,
    name: str,
    tracking_uri: str,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Delete a search's folder, its copy and what its store has of it; returns how many runs.

    Raises UnknownNameError, StorageError while it runs (here or, by its copy, elsewhere) or where
    its copy stays, TrackingError; then its folder is kept. say: called with what is waited for,
    and with what stays.
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
            with _copy_to_delete(paths, say) as url:
                runs = _delete_runs(paths, tracking_uri)
                if url is not None:
                    _delete_copy(paths, url)
            # Out of sight at once: a deletion that is cut short leaves no half of a search.
            grave = paths.storage / f".deleted-{name}"
            shutil.rmtree(grave, ignore_errors=True)
            paths.folder.rename(grave)
            shutil.rmtree(grave)
        except OSError as error:
            why = error.strerror or error
            raise StorageError(f"cannot delete {paths.folder}: {why}") from error
    return runs


@contextlib.contextmanager
def _copy_to_delete(paths: SearchPaths, say: Callable[[str], None]) -> Iterator[str | None]:
    """Hold the copy of a search's record; yield where it is, None where there is none to delete.

    Raises StorageError, before anything is deleted, where the copy is not ours to delete.
    """
    url = recorded_artifacts(paths)
    if url is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            is_ours = stack.enter_context(held_copy(url, paths, say))
        except ElsaTuneError as error:
            raise _kept(paths, error) from error
        yield url if is_ours else None


def _delete_copy(paths: SearchPaths, url: str) -> None:
    """Delete the copy of a search's record, from which its command would fetch it again."""
    try:
        delete_copy(url, paths.name)
    except ElsaTuneError as error:
        raise _kept(paths, error) from error


def _kept(paths: SearchPaths, error: ElsaTuneError) -> StorageError:
    """Return the error for a search whose copy could not be deleted."""
    return StorageError(
        f"{error}; so the copy of search '{paths.name}' was not deleted, and its folder was "
        f"kept (without its store, delete {paths.folder} yourself)"
    )


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
