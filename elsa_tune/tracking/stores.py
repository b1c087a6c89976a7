"""The stores that there are, found by the schemes of their URIs."""

from collections.abc import Callable

from elsa_tune.extensions import load_extensions
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.store import RecordStore
from elsa_tune.tracking.uris import DATABASE_SCHEMES, SERVER_SCHEMES, scheme_of

# Of MLflow's own stores, which no extension is asked for.
_MLFLOWS = frozenset({"sqlite", *SERVER_SCHEMES, *DATABASE_SCHEMES})
# MLflow takes every other scheme that `StorePaths` lets through.
_STORES: dict[str, Callable[[str], RecordStore]] = {}


def register(scheme: str, store: Callable[[str], RecordStore]) -> None:
    """Let absolute URIs of this scheme name such stores; of one scheme the last registered counts.

    scheme: in lower case. store: makes one of its URI.
    """
    _STORES[scheme] = store


def is_registered(scheme: str) -> bool:
    """Whether URIs of this scheme name a store other than MLflow's."""
    if scheme not in _STORES and scheme not in _MLFLOWS:
        load_extensions()
    return scheme in _STORES


def registered_schemes() -> list[str]:
    """Return the schemes of all stores other than MLflow's."""
    load_extensions()
    return sorted(_STORES)


def store_at(uri: str) -> RecordStore:
    """Return the store that an absolute URI names. It is not asked whether it answers."""
    scheme = scheme_of(uri)
    if is_registered(scheme):
        return _STORES[scheme](uri)
    return MlflowStore(uri)
