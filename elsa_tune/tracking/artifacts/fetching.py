"""What a session sees to before it begins: that a search's folder and its copy agree."""

import contextlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from elsa_tune.errors import ElsaTuneError, StorageError, quoted
from elsa_tune.files import write_aside
from elsa_tune.tracking.artifacts.contents import (
    SPECIFICATION,
    check_no_other_files,
    is_file_of_search,
    part_name,
    stored_journal,
    stored_parts,
    stored_sizes,
    whole_lines,
)
from elsa_tune.tracking.artifacts.lease import WATCHED_S, Lease
from elsa_tune.tracking.artifacts.places import artifacts_at, asked, check, check_apart
from elsa_tune.tracking.artifacts.store import ArtifactStore, read
from elsa_tune.tracking.paths import SearchPaths

# How long a copy of one search may take to arrive: checkpoints of large models take their time.
_FETCH_S = 3600.0
# At its end a command waits no longer for a store.
_GIVE_BACK_S = 5.0

Say = Callable[[str], None]


@contextlib.contextmanager
def prepared(url: str | None, paths: SearchPaths, say: Say) -> Iterator[bool]:
    """See that a search can be copied to a store and gone on with; yield whether it was fetched.

    Where this machine has no such search and the store has one, it is fetched. From then on the
    store says that this process runs it, until the block ends: whoever goes on then need not wait
    until this driver seems dead. url: None for no copy. Raises UsageErrors where the store lies
    among the records or cannot be written in time, where other files have the copy's place, where
    another driver runs the search, and where what it has is not what this machine has, or an
    earlier part of that.
    """
    if url is None:
        yield False
        return
    check_apart(url, paths)
    store = artifacts_at(url)
    check(store)
    asked(store, lambda: check_no_other_files(store, paths.name))
    # By a way of its own to the store: it is renewed while files are on theirs.
    lease = Lease(artifacts_at(url), paths.name)
    try:
        asked(store, lambda: lease.claim(say), WATCHED_S + 60)
        with lease.renewed():
            is_fetched = False
            if paths.exists:
                asked(store, lambda: check_not_behind(paths, store), _FETCH_S)
            else:
                is_fetched = asked(store, lambda: _copy_search(paths, store, say), _FETCH_S)
            yield is_fetched
    finally:
        _give_back(store, lease)


def fetch(url: str, paths: SearchPaths, say: Say) -> bool:
    """Do as `prepared` and give the search back at once; return whether it was fetched."""
    with prepared(url, paths, say) as is_fetched:
        return is_fetched


def _give_back(store: ArtifactStore, lease: Lease) -> None:
    with contextlib.suppress(ElsaTuneError):  # it is given up as too old
        asked(store, lease.release, _GIVE_BACK_S)


def check_not_behind(paths: SearchPaths, store: ArtifactStore) -> None:
    """Raise StorageError unless what the store has of a search, this machine has, too."""
    stored_id = _id_of(read(store, f"{paths.name}/{SPECIFICATION}"))
    if not stored_id:
        return  # it has none
    own_id = recorded_id(paths)
    if own_id and own_id != stored_id:
        raise StorageError(
            f"`artifacts` {store.url} has another search named '{paths.name}'; choose another "
            "`name`, or another place there"
        )
    if _is_behind(paths, store):
        raise StorageError(
            f"`artifacts` {store.url} has records of search '{paths.name}' that "
            f"{paths.journal} lacks: another driver went on with it; move {paths.folder} away "
            "to go on from there, or give `artifacts` none to go on here alone"
        )


def _is_behind(paths: SearchPaths, store: ArtifactStore) -> bool:
    """Whether a store has records of a search that this machine lacks."""
    own = whole_lines(paths.journal)
    sizes = stored_sizes(store, paths.name)
    for begin in stored_parts(sizes):
        content = read(store, f"{paths.name}/{part_name(begin)}")
        end = begin + len(content or b"")
        if content is not None and own[begin:end] != content:
            return True
    return False


def _copy_search(paths: SearchPaths, store: ArtifactStore, say: Say) -> bool:
    """Copy a search from a store into its folder; False where it has none of this name."""
    sizes = stored_sizes(store, paths.name)
    if SPECIFICATION not in sizes:
        return False
    wanted = sorted(name for name in sizes if is_file_of_search(name))
    say(f"search '{paths.name}' is not on this machine: fetching it from {store.url}")
    aside = paths.storage / f".fetched-{paths.name}-{uuid.uuid4().hex[:8]}"
    try:
        for name in wanted:
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                _copy_file(store, f"{paths.name}/{name}", aside / name)
        journal = stored_journal(store, paths.name, sizes)
        write_aside(aside / paths.journal.name, journal)
        aside.rename(paths.folder)  # a folder in its place must be empty
    except OSError as error:
        if error.filename is None or not str(error.filename).startswith(str(paths.storage)):
            raise  # the store's
        raise StorageError(
            f"search '{paths.name}' cannot be written to {paths.folder}: {error.strerror}; choose "
            "another place with `storage_path`"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    records = journal.count(b"\n")
    say(f"search '{paths.name}': {records} records and {len(wanted)} files are here now")
    return True


def _copy_file(store: ArtifactStore, name: str, file: Path) -> None:
    with store.open_reader(name) as source:
        write_aside(file, partial(shutil.copyfileobj, source))


def recorded_id(paths: SearchPaths) -> str:
    """Return the id of the search that a folder has, "" for none. Raises StorageError."""
    try:
        specification = paths.specification.read_bytes()
    except FileNotFoundError:
        return ""
    return _id_of(specification)


def _id_of(specification: bytes | None) -> str:
    """Return the search's id in a specification, "" where there is none. Raises StorageError."""
    if specification is None:
        return ""
    try:
        return str(json.loads(specification)["search_id"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"a specification cannot be read: {quoted(specification[:40])}"
        ) from error


@contextlib.contextmanager
def held_copy(url: str, paths: SearchPaths, say: Say) -> Iterator[bool]:
    """Hold the copy of a search that is to be deleted, so that no driver goes on with it meanwhile.

    Yields False where the store has no copy of this name, and where it has another search's, which
    stays. Raises StorageError where another driver runs the search, or went on with it beyond what
    this machine has.
    """
    store = artifacts_at(url)
    stored_id = asked(store, lambda: _id_of(read(store, f"{paths.name}/{SPECIFICATION}")))
    # A deletion that was cut short leaves parts of the journal.
    if not stored_id and not asked(store, lambda: stored_parts(stored_sizes(store, paths.name))):
        yield False
        return
    if stored_id and stored_id != recorded_id(paths):
        say(f"`artifacts` {url} has another search named '{paths.name}', which stays")
        yield False
        return
    lease = Lease(artifacts_at(url), paths.name)
    try:
        asked(store, lambda: lease.claim(say), WATCHED_S + 60)
        if asked(store, lambda: _is_behind(paths, store), _FETCH_S):
            raise StorageError(
                f"`artifacts` {url} has records of search '{paths.name}' that this machine lacks: "
                "another driver went on with it"
            )
        yield True
    finally:
        _give_back(store, lease)


def delete_copy(url: str, search: str) -> None:
    """Delete what a store has of a search. Raises UsageErrors where it does not let itself.

    Other files in the place of the copy stay.
    """
    store = artifacts_at(url)

    def delete() -> bool:
        sizes = stored_sizes(store, search)
        parts = [part_name(begin) for begin in stored_parts(sizes)]
        # The specification first: what is left after a cut is no search. The journal last: its
        # parts show that what is left is a copy.
        files = [name for name in sizes if name not in parts and name != SPECIFICATION]
        for name in (SPECIFICATION, *files, *parts):
            store.remove(f"{search}/{name}")
        return True

    asked(store, delete, _FETCH_S)
