"""Searches that this machine lacks, from the stores that keep copies of their records."""

from collections.abc import Sequence
from pathlib import Path

from elsa_tune.errors import UnknownNameError
from elsa_tune.searching.output import Say
from elsa_tune.searching.request import Request
from elsa_tune.tracking.artifacts.fetching import fetch
from elsa_tune.tracking.artifacts.places import NONE
from elsa_tune.tracking.paths import SearchPaths, find_search


def found_or_fetched(storage: Path, name: str, url: str | None, say: Say) -> SearchPaths:
    """Return the paths of a recorded search, which is fetched where only the store at `url` has it.

    url: as `artifacts_url` returns it, None for no store. Raises UnknownNameError where there is no
    such search, and as `fetch`.
    """
    if url is None or url == NONE:
        return find_search(storage, name)
    paths = SearchPaths(storage, name)
    if not paths.exists and not fetch(url, paths, say):
        raise UnknownNameError(f"unknown search '{name}': neither {storage} nor {url} has it")
    return paths


def fetch_lacking(requests: Sequence[Request], say: Say) -> bool:
    """Fetch the searches that this machine lacks and their stores have; whether there were any.

    Raises as `fetch`.
    """
    is_any = False
    for request in requests:
        url = request.spec.artifacts
        if url is not None and not request.paths.exists:
            is_fetched = fetch(url, request.paths, say)
            is_any = is_any or is_fetched
    return is_any
