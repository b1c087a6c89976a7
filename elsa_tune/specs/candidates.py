"""The methods of adaptation that a search can compare, and how their candidates are read."""

from collections.abc import Mapping
from typing import Any

from elsa_tune.errors import SpaceError, quoted
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.freeze import EMBEDDINGS, FULL_MODEL, FreezeDepth

# What every candidate is compared with.
REFERENCE: Candidate = FULL_MODEL

_METHODS: dict[str, type[Candidate]] = {}


def register(method: type[Candidate]) -> type[Candidate]:
    """Let searches compare candidates of this method; of one name the last registered counts."""
    _METHODS[method.method] = method
    return method


register(FreezeDepth)


def read_candidate(given: int | str) -> Candidate:
    """Return the candidate that YAML or the command line names. Raises SpaceError."""
    text = str(given).strip().lower()
    for method in reversed(_METHODS.values()):
        candidate = method.read(text)
        if candidate is not None:
            return candidate
    others = [f", '{name}'" for name in _METHODS if name != FreezeDepth.method]
    raise SpaceError(
        f"frozen_layers is {quoted(str(given))}; it must be a whole number or "
        f"'{EMBEDDINGS}'{''.join(others)}"
    )


def recorded_candidate(values: Candidate | Mapping[str, Any]) -> Candidate:
    """Return the candidate that search.json, a journal or MLflow describes. Raises SpaceError."""
    if isinstance(values, Candidate):
        return values
    if isinstance(values, Mapping):
        for method in reversed(_METHODS.values()):
            candidate = method.of_record(values)
            if candidate is not None:
                return candidate
    raise SpaceError("the record names no candidate that this elsa-tune knows")
