"""Where records lie: the store of a working directory, and the folder of one search."""

import os
import shlex
import tempfile
from pathlib import Path

from elsa_tune.errors import StorageError, TrackingError, UnknownNameError
from elsa_tune.files import PLAIN_NAME
from elsa_tune.tracking.uris import (
    DATABASE_SCHEMES,
    SERVER_SCHEMES,
    is_misread,
    scheme_of,
    shown_uri,
)

SEARCH_NAME = PLAIN_NAME
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"


class StorePaths:
    """The default places under a working directory, absolute."""

    def __init__(self, working_directory: Path) -> None:
        self.working_directory = working_directory.absolute()
        self.root = self.working_directory / "mlruns"
        self.database = self.root / "mlflow.db"
        self.artifact_root = self.root / "artifacts"  # for the files of that store
        self.storage = self.root / "searches"  # for journals, unless another place is named

    def storage_at(self, named: str | None) -> Path:
        return self.working_directory / named if named else self.storage

    def tracking_uri(self, explicit: str | None = None) -> str:
        """Return the store to use: the one that is named, else the default.

        Errors as in `named_uri`.
        """
        return self.named_uri(explicit) or self._absolute(f"{_SQLITE}{self.database}")

    def named_uri(self, explicit: str | None = None) -> str | None:
        """Return the store given, else that of MLFLOW_TRACKING_URI, absolute.

        None where there is neither.

        Raises TrackingError for a file store or for a URI that is no store at all.
        """
        given = (explicit or os.environ.get(TRACKING_VARIABLE) or "").strip()
        return self._absolute(given) if given else None

    def artifact_root_for(self, tracking_uri: str) -> Path | None:
        """Where the driver puts files: beside a SQLite store; None where a server decides it."""
        database = sqlite_file(tracking_uri)
        if database is not None:
            return database.parent / "artifacts"
        return self.artifact_root if scheme_of(tracking_uri) in DATABASE_SCHEMES else None

    def _absolute(self, uri: str) -> str:
        scheme = scheme_of(uri)
        if scheme in SERVER_SCHEMES or scheme in DATABASE_SCHEMES or uri == "databricks":
            if is_misread(uri):
                raise TrackingError(
                    f"tracking URI '{shown_uri(uri)}' has a user name or password with a character "
                    "that means something else in a URI; write @ as %40, / as %2F, ? as %3F and "
                    "# as %23"
                )
            head, mark, rest = uri.partition("://")
            return f"{head.lower()}{mark}{rest}".rstrip("/") if mark else uri
        if scheme == "sqlite":
            place = uri.removeprefix(_SQLITE) if uri.startswith(_SQLITE) else ""
            if place in ("", ":memory:"):
                raise TrackingError(
                    f"tracking URI '{shown_uri(uri)}' names no SQLite file; "
                    "write sqlite:///FILE.db, or sqlite:////ABSOLUTE/FILE.db"
                )
            file = self.working_directory / place
            if "?" in str(file) or "%" in str(file):
                raise TrackingError(
                    f"{file} cannot hold an SQLite store: '?' and '%' mean something else in its "
                    "URI; work in another folder, or name another store with `tracking_uri`"
                )
            return f"{_SQLITE}{file}"
        from elsa_tune.tracking import stores  # stores have paths, too

        if stores.is_registered(scheme):
            return uri
        is_file_store = scheme in ("", "file")
        kind = "a file store, which MLflow no longer opens" if is_file_store else "of no known kind"
        raise TrackingError(
            f"tracking URI '{shown_uri(uri)}' is {kind}; write sqlite:///FILE.db, "
            "http(s)://HOST:PORT or postgresql://..."
        )


class SearchPaths:
    """Every file of one search, absolute. Raises StorageError for what is no `SEARCH_NAME`."""

    def __init__(self, storage: Path, name: str) -> None:
        if not SEARCH_NAME.fullmatch(name):
            raise StorageError(
                f"search name '{name}' cannot be used; write letters, digits, '.', '_' and "
                "'-', beginning with a letter or digit, at most 100 of them"
            )
        self.storage = storage.absolute()
        self.name = name
        self.folder = self.storage / name
        self.journal = self.folder / "journal.jsonl"  # what happened, ahead of everything else
        self.lock = lock_of(self.journal)  # held by the one driver that may write the journal
        self.specification = self.folder / "search.json"  # enough to rebuild the search
        self.forwarded = self.folder / "forwarded.json"  # up to where its store has the journal
        self.ray = self.folder / "ray"  # Ray's own state
        self.predictions = self.folder / "predictions"  # of last epochs, one .npz a trial
        self.report = self.folder / "report"  # as the answer stood when the search last ended

    @property
    def exists(self) -> bool:
        return self.journal.exists() or self.specification.exists()

    @property
    def resume(self) -> str:
        """The command that goes on with the search, typed in this working directory."""
        return f"elsa-tune resume {self.arguments}"

    @property
    def arguments(self) -> str:
        """What names the search in a command that is typed in this working directory."""
        name = shlex.quote(self.name)
        is_default = self.storage == StorePaths(Path.cwd()).storage
        return name if is_default else f"{name} --storage-path {shlex.quote(str(self.storage))}"

    def uri_to_keep(self, tracking_uri: str) -> str:
        """Return a store in the folder around the storage, relative to it: both move together."""
        database, around = sqlite_file(tracking_uri), self.storage.parent
        if database is None or around == around.parent or not database.is_relative_to(around):
            return tracking_uri
        return f"{_SQLITE}{database.relative_to(around)}"

    def uri_kept(self, tracking_uri: str) -> str:
        """Return the absolute URI of a store that the specification names."""
        database = sqlite_file(tracking_uri)
        return tracking_uri if database is None else f"{_SQLITE}{self.storage.parent / database}"

    def check_writable(self) -> None:
        """Make the folder and try to write in it; StorageError when that fails."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(b"x")
                probe.flush()
        except OSError as error:
            raise StorageError(
                f"cannot write in {self.folder}: {error.strerror}; choose another place "
                "with `storage_path`"
            ) from error


def lock_of(journal: Path) -> Path:
    return journal.with_suffix(".lock")


def search_names(storage: Path) -> list[str]:
    """Return the names of all searches under a storage folder, sorted; [] if it is not there."""
    names = sorted(entry.name for entry in storage.iterdir()) if storage.is_dir() else []
    return [one for one in names if SEARCH_NAME.fullmatch(one) and SearchPaths(storage, one).exists]


def find_search(storage: Path, name: str) -> SearchPaths:
    """Return the paths of a search that exists; else UnknownNameError with the nearest name."""
    known = search_names(storage)
    if name in known:
        return SearchPaths(storage, name)
    if not known:
        raise UnknownNameError(
            f"unknown search '{name}': no search is recorded in {storage}; "
            "`elsa-tune search` starts one, `storage_path` names another place"
        )
    raise UnknownNameError.among("search", name, known, hint=f"Looked in {storage}.")


def sqlite_file(tracking_uri: str) -> Path | None:
    """Return the file behind a `sqlite:///path` URI, else None."""
    if not tracking_uri.startswith(_SQLITE):
        return None
    return Path(tracking_uri.removeprefix(_SQLITE))
