"""Artifact stores as they are named, found and tried."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from elsa_tune.errors import StorageError, UsageError
from elsa_tune.files import expanded
from elsa_tune.tracking import waiting
from elsa_tune.tracking.artifacts import remote
from elsa_tune.tracking.artifacts.folder import FolderArtifacts
from elsa_tune.tracking.artifacts.remote import RemoteArtifacts
from elsa_tune.tracking.artifacts.store import ArtifactStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.remote_errors import trouble
from elsa_tune.tracking.uris import shown_uri

# What is given for "no store", where a search has one already.
NONE: Final = "none"
# How long a store has to answer before a search starts.
PATIENCE_S = 30.0
_LOCAL = ("file://", "local://")


def artifacts_url(text: str, working_directory: Path) -> str:
    """Return the store that is named: a folder as its absolute path, else a URL; NONE for none.

    Raises UsageError for what names no place, or has a secret in it.
    """
    given = text.strip()
    if given == NONE:
        return NONE
    for beginning in _LOCAL:
        if given.lower().startswith(beginning):
            given = given[len(beginning) :]
    scheme, mark, place = given.partition("://")
    if not given or (mark and not place.strip("/")):
        raise UsageError(
            f"`artifacts` '{shown_uri(text)}' names no place; give a folder, or a URL such as "
            "s3://BUCKET/PREFIX"
        )
    if not mark:
        folder = expanded(given)
        if given.startswith("~") and not folder.is_absolute():
            raise UsageError(
                f"`artifacts` '{given}' begins with a user who is not known here; give the path of "
                "a folder"
            )
        return str((working_directory / folder).absolute())
    if "::" in given:
        raise UsageError(f"`artifacts` {shown_uri(given)} is a chain of URLs; give a single one")
    if shown_uri(given) != given:
        raise UsageError(
            f"`artifacts` {shown_uri(given)} has a part that may be a secret (ahead of an @, or "
            "behind a ?), and it would be written down; leave it out, and set credentials in the "
            "environment"
        )
    return f"{scheme.lower()}://{place.rstrip('/')}"


def asked_artifacts(text: str | None, working_directory: Path) -> str | None:
    """Return the store that a search is asked to have; None for none. Raises as `artifacts_url`."""
    if text is None:
        return None
    url = artifacts_url(text, working_directory)
    return None if url == NONE else url


def check_apart(url: str, paths: SearchPaths) -> None:
    """Raise UsageError where a search's copy would lie among the records, or around its own."""
    if "://" in url:
        return
    artifacts = Path(url).resolve()
    storage = paths.storage.resolve()
    copy = artifacts / paths.name
    if artifacts.is_relative_to(storage) or storage.is_relative_to(copy):
        raise UsageError(
            f"`artifacts` {url} would mix the copy of search '{paths.name}' with the records in "
            f"{paths.storage}; give another folder, best on another disk"
        )


def recorded_artifacts(paths: SearchPaths) -> str | None:
    """Return the store that a recorded search has; None for none, or where that cannot be read."""
    try:
        artifacts = json.loads(paths.specification.read_bytes())["artifacts"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return artifacts if isinstance(artifacts, str) else None


def artifacts_at(url: str) -> ArtifactStore:
    """Return the store that `artifacts_url` names. It is not asked whether it answers.

    Raises UsageError where its scheme is unknown, its package is missing, or it cannot be opened.
    """
    if "://" not in url:
        return FolderArtifacts(url)
    return RemoteArtifacts(url)


def check_scheme(url: str) -> None:
    """Raise UsageError where `artifacts_at` knows no such scheme. Its package may be missing."""
    if "://" in url:
        remote.check_scheme(url)


def check(store: ArtifactStore) -> None:
    """Raise StorageError unless a file can be written there, listed and removed, in time."""

    def attempt() -> None:
        folder = f".elsa-tune-{uuid.uuid4().hex}"
        name = f"{folder}/probe"
        store.write(name, b"x")
        store.sizes(folder)
        store.remove(name)

    asked(store, attempt)


def asked(store: ArtifactStore, question: Callable[[], Any], patience_s: float = 0) -> Any:
    """Return what is found in a store. Raises StorageError where it cannot be had in time.

    patience_s: 0 takes PATIENCE_S.
    """
    try:
        return waiting.answer(question, patience_s or PATIENCE_S, "artifacts")
    except StorageError:
        raise
    except Exception as error:  # of any library
        raise StorageError(f"`artifacts` {store.url} {trouble(store.url, error)}") from error
