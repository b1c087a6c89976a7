"""The methods of adaptation that a search can compare, and how their candidates are read."""

from collections.abc import Mapping
from typing import Any

from elsa_tune.errors import SpaceError, quoted
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.freeze import EMBEDDINGS, FULL_MODEL, FreezeDepth, default_depths

# What every candidate is compared with.
REFERENCE: Candidate = FULL_MODEL

# The fields by which JSON and CSV tell a depth; another method's candidate has none of them.
DEPTH_FIELDS = ("frozen_layers", "embeddings_frozen")

_METHODS: dict[str, type[Candidate]] = {}


def register(method: type[Candidate]) -> type[Candidate]:
    """Let searches compare candidates of this method; of one name the last registered counts."""
    _METHODS[method.method] = method
    return method


register(FreezeDepth)


def default_candidates(layers: int) -> tuple[Candidate, ...]:
    """Return what a search of a model with so many layers compares unless told otherwise."""
    return default_depths(layers)


def read_candidate(given: int | str) -> Candidate:
    """Return the candidate that YAML or the command line names. Raises SpaceError."""
    text = str(given).strip().lower()
    for method in reversed(_METHODS.values()):
        candidate = method.read(text)
        if candidate is not None:
            return candidate
    examples = [f"'{EMBEDDINGS}'"]
    for name, method in _METHODS.items():
        if name == FreezeDepth.method:
            continue
        example = method.example or name
        examples.append(f"'{example}'")
    allowed = ", ".join(examples)
    shown = quoted(str(given))
    raise SpaceError(f"frozen_layers is {shown}; it must be a whole number or {allowed}")


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


def candidate_fields(candidate: Candidate) -> dict[str, Any]:
    """Return what JSON and CSV tell of a candidate.

    A depth has DEPTH_FIELDS, and nothing else. For a candidate of another method these are null,
    and `candidate` (its key) and `label` name it.
    """
    recorded = candidate.record()
    fields: dict[str, Any] = {}
    for name in DEPTH_FIELDS:
        fields[name] = recorded.get(name)
    if not is_depth(candidate):
        fields["candidate"] = candidate.key
        fields["label"] = candidate.label
    return fields


def told_candidate(fields: Mapping[str, Any]) -> Candidate:
    """Return the candidate of which JSON tells `candidate_fields`. Raises SpaceError."""
    label = fields.get("label")
    if label is None:
        return recorded_candidate(fields)
    return read_candidate(label)


def is_depth(candidate: Candidate) -> bool:
    """Return whether DEPTH_FIELDS tell all of it."""
    recorded = candidate.record()
    return recorded.keys() <= set(DEPTH_FIELDS)
