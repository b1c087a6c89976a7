"""The specification of a search on disk: `search.json`, which `resume` reads back."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from elsa_tune.errors import ElsaTuneError, SpaceError, StorageError, quoted
from elsa_tune.files import write_aside
from elsa_tune.searching.planning.strategies import strategy_named
from elsa_tune.specs.checked import problems
from elsa_tune.specs.names import UNKNOWN
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.paths import SEARCH_NAME, SearchPaths
from elsa_tune.tracking.uris import shown_uri

_SPECIFICATION = TypeAdapter(SearchSpec)


def replace_specification(spec: SearchSpec, paths: SearchPaths) -> SearchSpec:
    """Write a specification over the recorded one.

    The caller holds the search's journal, and has held it since it read the one that it changed.
    Raises StorageError where nothing can be written.
    """
    try:
        _write(spec, paths, paths.specification)
    except OSError as error:
        raise _unwritten(paths, error, "make room there and ask again") from error
    return spec


def save_specification(spec: SearchSpec, paths: SearchPaths) -> None:
    """Write a new specification.

    Raises StorageError where such a search began meanwhile, or nothing can be written.
    """
    aside = paths.specification.with_suffix(f".{os.getpid()}.tmp")
    try:
        _write(spec, paths, aside)
        _give_free_name(aside, paths.specification)
    except FileExistsError:
        raise taken(paths) from None
    except OSError as error:
        remedy = "make room there, or choose another `storage_path`"
        raise _unwritten(paths, error, remedy) from error
    finally:
        aside.unlink(missing_ok=True)


def _unwritten(paths: SearchPaths, error: OSError, remedy: str) -> StorageError:
    """Return the error for a specification that found no room, or no right to be written."""
    why = error.strerror or error
    return StorageError(f"{paths.specification} cannot be written: {why}; {remedy}")


def _give_free_name(file: Path, name: Path) -> None:
    """Give a file a name that no other has. Raises FileExistsError where one has it."""
    try:
        os.link(file, name)  # unlike a rename it fails where the name is taken
    except FileExistsError:
        raise
    except OSError:  # mounted buckets and shares have no links
        if name.exists():
            raise FileExistsError(name) from None
        # Of two drivers that come here at once, the journal's lock lets one run.
        file.replace(name)


def _write(spec: SearchSpec, paths: SearchPaths, file: Path) -> None:
    without_secrets = dataclasses.replace(spec, tracking_uri=paths.uri_to_keep(spec.tracking_uri))
    write_aside(file, _SPECIFICATION.dump_json(without_secrets, indent=1))


def load_specification(paths: SearchPaths) -> SearchSpec:
    """Read a search's specification. Raises StorageError where it is missing or damaged."""
    if not paths.specification.exists():
        raise StorageError(
            f"search '{paths.name}' has no specification ({paths.specification}), so that it "
            "cannot go on; delete it, or start it again under another name"
        )
    try:
        spec = _SPECIFICATION.validate_json(paths.specification.read_bytes())
        if not SEARCH_NAME.fullmatch(spec.name):  # it goes into commands that are printed
            raise StorageError(f"{quoted(spec.name)} is no search's name")
        strategy = strategy_named(spec.strategy)  # raises for one of a newer version
        strategy.settings_of(spec.strategy_settings)  # likewise
        # An earlier version may have kept what is a secret.
        uri = shown_uri(paths.uri_kept(spec.tracking_uri))
        return dataclasses.replace(spec, tracking_uri=uri)
    except (OSError, ValidationError, ElsaTuneError) as error:
        reason = problems(error) if isinstance(error, ValidationError) else str(error)
        if _names_what_is_unknown(error):
            reason += (
                "; install or import the package that brings what is not known here, or use the "
                "version that recorded it"
            )
        raise StorageError(
            f"the specification of search '{paths.name}' ({paths.specification}) cannot be read: "
            f"{reason}"
        ) from error


def _names_what_is_unknown(error: Exception) -> bool:
    """Whether a sound record names a strategy, a kind of task or a metric that nothing here has."""
    if isinstance(error, ValidationError):
        return any(problem["type"] == UNKNOWN for problem in error.errors(include_url=False))
    return isinstance(error, SpaceError)


def taken(paths: SearchPaths, why: Sequence[str] = ()) -> StorageError:
    """Return the error for a name that a search has already. why: its other settings."""
    otherwise = f", but with other settings: {'; '.join(why)}" if why else ""
    return StorageError(
        f"a search named '{paths.name}' exists in {paths.storage}{otherwise}; go on with it by "
        f"`{paths.resume}`, or choose another `name`"
    )
