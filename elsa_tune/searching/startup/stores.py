"""The store of records that a search is sent to, opened or put together from what was kept."""

import contextlib
from pathlib import Path

from elsa_tune.errors import TrackingError
from elsa_tune.searching.output import Say
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.places import StorePaths, check_credentials
from elsa_tune.tracking.store import RecordStore
from elsa_tune.tracking.stores import store_at
from elsa_tune.tracking.uris import shown_uri, without_credentials


def open_store(tracking_uri: str, say: Say) -> RecordStore:
    """Return the store of a new search, which answers and is ready. Raises TrackingError."""
    store = store_at(tracking_uri)
    store.check()
    store.initialise(say)
    return store


def open_again(uri: str, say: Say, *, is_remembered: bool) -> RecordStore:
    """Open the store of a recorded search. Raises TrackingError.

    is_remembered: the URI is made of what was kept of it, which is never its password.
    """
    try:
        return open_store(uri, say)
    except TrackingError as error:
        if not is_remembered:
            raise
        raise TrackingError(
            f"{error}; the password or token that the search was started with is never kept: give "
            f"it again, {store_at(uri).credentials_hint}"
        ) from error


def store_of(spec: SearchSpec) -> RecordStore:
    """Return the store that a saved search names. It is not asked whether it answers.

    Raises TrackingError where it would be sent another server's credentials.
    """
    return store_at(remembered(spec.tracking_uri))


def remembered(stored: str) -> str:
    """Return the store that a specification names, with its credentials, which are never stored.

    Raises TrackingError where the environment has another server's.
    """
    check_credentials(stored)
    # They are in MLFLOW_TRACKING_URI, where it is this store's, or wherever else its client looks.
    if without_credentials(stored) == stored:
        return stored
    with contextlib.suppress(TrackingError):  # it names no store
        given = StorePaths(Path.cwd()).named_uri()
        if given is not None and shown_uri(given) == shown_uri(stored):
            return given
    return without_credentials(stored)
