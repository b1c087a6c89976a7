"""The places of a search's record on disk, and of what lies beside a store that is a file."""

import os
import shlex
import tempfile
from pathlib import Path

from elsa_tune.errors import StorageError, UnknownNameError
from elsa_tune.files import PLAIN_NAME
from elsa_tune.tracking.uris import DATABASE_SCHEMES, HIDDEN, SQLITE, scheme_of

SEARCH_NAME = PLAIN_NAME
JOURNAL = "journal.jsonl"  # of a search, in its folder
# The file of the default store, in the folder around the default storage.
DATABASE = "mlflow.db"


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
        self.journal = self.folder / JOURNAL  # what happened, ahead of everything else
        self.lock = lock_of(self.journal)  # held by the one driver that may write the journal
        self.specification = self.folder / "search.json"  # enough to rebuild the search
        self.forwarded = self.folder / "forwarded.json"  # up to where its store has the journal
        self.ray = self.folder / "ray"  # Ray's own state
        self.predictions = self.folder / "predictions"  # behind the qualities, one .npz a trial
        self.checkpoints = self.folder / "checkpoints"  # of trials that run or were cut short
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
        if self.storage == default_storage(Path.cwd()):
            return name
        storage = shlex.quote(str(self.storage))
        return f"{name} --storage-path {storage}"

    def uri_to_keep(self, tracking_uri: str) -> str:
        """Return a store in the folder around the storage, relative to it: both move together."""
        database = sqlite_file(tracking_uri)
        around = self.storage.parent
        is_root = around == around.parent
        if database is None or is_root or not database.is_relative_to(around):
            return tracking_uri
        relative = database.relative_to(around)
        return f"{SQLITE}{relative}"

    def uri_kept(self, tracking_uri: str) -> str:
        """Return the absolute URI of a store that the specification names."""
        database = sqlite_file(tracking_uri)
        if database is None:
            return tracking_uri
        if database.name.endswith(HIDDEN):
            # An earlier version cut a path at an & or #; most were the default store's.
            database = Path(DATABASE)
        absolute = self.storage.parent / database
        return f"{SQLITE}{absolute}"

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


def journal_at(path: Path) -> Path | None:
    """Return the journal that a path names, itself or as a search's folder; None for neither."""
    if path.suffix == Path(JOURNAL).suffix:
        return path
    journal = path / JOURNAL
    is_there = os.path.isfile(journal)  # no error either where no file can have such a name
    return journal if is_there else None


def search_names(storage: Path) -> list[str]:
    """Return the names of all searches under a storage folder, sorted; [] if it is not there."""
    names: list[str] = []
    if not storage.is_dir():
        return names
    for entry in storage.iterdir():
        if not SEARCH_NAME.fullmatch(entry.name):
            continue
        paths = SearchPaths(storage, entry.name)
        if paths.exists:
            names.append(entry.name)
    return sorted(names)


def find_search(storage: Path, name: str) -> SearchPaths:
    """Return the paths of a search that exists; else UnknownNameError with the nearest name."""
    names = search_names(storage)
    if name in names:
        return SearchPaths(storage, name)
    if not names:
        raise UnknownNameError(
            f"unknown search '{name}': no search is recorded in {storage}; "
            "`elsa-tune search` starts one, `storage_path` names another place"
        )
    raise UnknownNameError.among("search", name, names, hint=f"Looked in {storage}.")


def sqlite_file(tracking_uri: str) -> Path | None:
    """Return the file behind a `sqlite:///path` URI, else None."""
    if not tracking_uri.startswith(SQLITE):
        return None
    return Path(tracking_uri.removeprefix(SQLITE))


def default_root(working_directory: Path) -> Path:
    """Return the folder of everything that is recorded in a working directory, absolute."""
    return working_directory.absolute() / "mlruns"


def default_storage(working_directory: Path) -> Path:
    """Return the folder of the journals, unless another place is named."""
    return default_root(working_directory) / "searches"


def artifact_root_for(tracking_uri: str, working_directory: Path) -> Path | None:
    """Return where the driver puts files: beside a SQLite store; None where a server decides."""
    database = sqlite_file(tracking_uri)
    if database is not None:
        return database.parent / "artifacts"
    if scheme_of(tracking_uri) in DATABASE_SCHEMES:
        return default_root(working_directory) / "artifacts"
    return None
