"""The default places of a working directory, and the store that a URI means there."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from elsa_tune.errors import StorageError, TrackingError
from elsa_tune.files import expanded, is_url
from elsa_tune.tracking.database_drivers import database_url
from elsa_tune.tracking.paths import DATABASE, default_root, default_storage
from elsa_tune.tracking.stores import is_registered, registered_schemes
from elsa_tune.tracking.uris import (
    DATABASE_SCHEMES,
    SERVER_SCHEMES,
    SQLITE,
    TRACKING_VARIABLE,
    is_misread,
    scheme_of,
    server_of,
    shown_uri,
)

# Secrets that MLflow sends to every server that it asks.
_CREDENTIALS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
_FILE_URL = re.compile(r"file:(//)?/(?!/)", re.IGNORECASE)


class StorePaths:
    """The default places under a working directory, absolute."""

    def __init__(self, working_directory: Path) -> None:
        self.working_directory = working_directory.absolute()
        self.root = default_root(working_directory)
        self.database = self.root / DATABASE
        self.artifact_root = self.root / "artifacts"  # for the files of that store
        # For journals, unless another place is named.
        self.storage = default_storage(working_directory)

    def storage_at(self, named: str | None) -> Path:
        """Return the folder of journals: the one named, else the default.

        Errors as in `storage_path`.
        """
        if named is None:
            return self.storage
        return self.working_directory / expanded(storage_path(named))

    def rows_of(self, storage: Path) -> Path:
        """Return the folder for rows that a program gives to searches of this storage."""
        if storage == self.storage:
            return self.root / "tasks"
        return storage / "_tasks"  # no search has a name with such a beginning

    def tracking_uri(self, explicit: str | None = None) -> str:
        """Return the store to use: the one that is named, else the default.

        Errors as in `named_uri`.
        """
        return self.named_uri(explicit) or self._absolute(f"{SQLITE}{self.database}")

    def named_uri(self, explicit: str | None = None) -> str | None:
        """Return the store given, else that of MLFLOW_TRACKING_URI, absolute.

        None where there is neither.

        Raises TrackingError for a file store, for a URI that is no store at all, and for one of a
        database that SQLAlchemy cannot read.
        """
        given = (explicit or os.environ.get(TRACKING_VARIABLE) or "").strip()
        return self._absolute(given) if given else None

    def _absolute(self, uri: str) -> str:
        scheme = scheme_of(uri)
        if uri == "databricks":
            return uri
        head, _, behind = uri.partition(":")
        lowered = f"{head.lower()}:{behind}".rstrip("/")
        is_remote = scheme in SERVER_SCHEMES or scheme in DATABASE_SCHEMES or is_registered(scheme)
        if is_remote and not behind.startswith("//"):
            # Without the rest: where a password would stand in it cannot be told.
            raise TrackingError(f"tracking URI '{scheme}:...' has no '//'; write {scheme}://...")
        if scheme in SERVER_SCHEMES or scheme in DATABASE_SCHEMES:
            if is_misread(uri):
                raise TrackingError(
                    f"tracking URI '{shown_uri(uri)}' has a user name or password with a character "
                    "that means something else in a URI; write @ as %40, / as %2F, ? as %3F and "
                    "# as %23"
                )
            if scheme in DATABASE_SCHEMES:
                database_url(uri)  # raises for what cannot be read
            return lowered
        if scheme == "sqlite":
            return self._absolute_file(uri)
        if is_registered(scheme):
            return lowered
        is_file_store = scheme in ("", "file")
        kind = "a file store, which MLflow no longer opens" if is_file_store else "of no known kind"
        others = [f"{name}://..." for name in ("postgresql", *registered_schemes())]
        first = ", ".join(["sqlite:///FILE.db", "http(s)://HOST:PORT", *others[:-1]])
        raise TrackingError(
            f"tracking URI '{shown_uri(uri)}' is {kind}; write {first} or {others[-1]}"
        )

    def _absolute_file(self, uri: str) -> str:
        """Return the URI of an SQLite file, absolute. Raises TrackingError where it cannot be."""
        place = uri.removeprefix(SQLITE) if uri.startswith(SQLITE) else ""
        if place in ("", ":memory:"):
            raise TrackingError(
                f"tracking URI '{shown_uri(uri)}' names no SQLite file; "
                "write sqlite:///FILE.db, or sqlite:////ABSOLUTE/FILE.db"
            )
        file = self.working_directory / expanded(place)
        if "?" in str(file) or "%" in str(file):
            raise TrackingError(
                f"{file} cannot hold an SQLite store: '?' and '%' mean something else in its "
                "URI; work in another folder, or name another store with `tracking_uri`"
            )
        return f"{SQLITE}{file}"


def check_credentials(recorded: str) -> None:
    """Raise TrackingError where a recorded store would be sent another server's credentials.

    MLflow gives those of the environment to whichever server it asks, and a search that somebody
    else recorded may name any. Where MLFLOW_TRACKING_URI names none, nobody knows whose they are.
    """
    variables = [name for name in _CREDENTIALS if os.environ.get(name)]
    server = server_of(recorded)
    own_server = server_of((os.environ.get(TRACKING_VARIABLE) or "").strip())
    if not variables or not server or own_server in ("", server):
        return
    raise TrackingError(
        f"the search is recorded at {server}, which would be sent {' and '.join(variables)} of the "
        f"environment, though {TRACKING_VARIABLE} names {own_server}; if it may have that, set "
        f"{TRACKING_VARIABLE} to {server}, else unset what it may not have"
    )


def storage_path(named: str) -> str:
    """Return the path of the folder that is named for journals, by itself or as file:///PATH.

    Raises StorageError for an empty name, which an unset variable leaves, and for any other URL.
    """
    if not named:
        raise StorageError("the storage path is empty; name a folder, or leave it out")
    file_url = _FILE_URL.match(named)
    if file_url is not None:
        return "/" + unquote(named[file_url.end() :])
    if is_url(named):
        raise StorageError(
            f"the storage path {shown_uri(named)} is a URL, and a journal needs a folder; name "
            "one, and give the URL as `artifacts`, which keeps a copy there"
        )
    return named
