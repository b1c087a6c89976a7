"""What a trial or search is: as a journal's typed JSON, and as the texts that MLflow calls params.

Nothing else in the package makes or reads such a text; planned looks, which results tables have,
too, are written in `specs/looks_text.py`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter

from elsa_tune.errors import SpaceError, quoted
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import recorded_candidate
from elsa_tune.specs.checked import problems
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.looks_text import exact_text, looks_text, read_looks
from elsa_tune.specs.trial_facts import TrialFacts

_FACTS = TypeAdapter(TrialFacts)
_FIELDS = frozenset(spec.name for spec in dataclasses.fields(TrialFacts)) - {"others"}
# How MLflow shows what is not known.
_NONE = "none"
# k of a candidate: shown in MLflow, and in old records what L is found by.
_FINE_TUNED = "fine_tuned_layers"


@dataclass(frozen=True, slots=True)
class UnreadParams:
    """Values that do not say what a trial is."""

    values: Mapping[str, Any]
    why: str  # in a sentence

    @property
    def phase(self) -> object:
        return self.values.get("phase")


def read_params(values: object) -> TrialFacts | UnreadParams:
    """Return what a journal's params, or MLflow's, say of a trial.

    Raises ValueError for what is no table.
    """
    if isinstance(values, TrialFacts | UnreadParams):
        return values
    if not isinstance(values, Mapping):
        raise ValueError(f"must be a table of `field: value`, not {quoted(values)}")
    try:
        return _FACTS.validate_python(_as_recorded_today(values))
    except (TypeError, ValueError, OverflowError) as error:
        return UnreadParams(dict(values), problems(error))


# As a record's field, read by pydantic.
Params = Annotated[TrialFacts | UnreadParams, PlainValidator(read_params)]


def _as_recorded_today(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of TrialFacts, by what this version, MLflow or an older one recorded."""
    described = values.get("candidate", values)
    if not isinstance(described, Mapping | Candidate):
        raise SpaceError(f"field 'candidate' must be a table, not {quoted(described)}")
    candidate = recorded_candidate(described)
    known: dict[str, Any] = {"candidate": candidate}
    others = {}
    of_candidate = {"candidate", _FINE_TUNED, *candidate.record()}
    for name, value in values.items():
        if name in of_candidate:
            continue
        if name not in _FIELDS:
            others[name] = value
        elif value not in (None, "", _NONE):
            known[name] = value
    if "layers" not in known and _FINE_TUNED in values:
        # Recorded before there were methods other than freezing, whose rank is its frozen layers.
        known["layers"] = int(values[_FINE_TUNED]) + int(candidate.rank)
    if isinstance(known.get("given_rates"), str):
        known["given_rates"] = known["given_rates"].split("..")
    if isinstance(known.get("looks"), str):
        known["looks"] = read_looks(known["looks"])
    return {**known, "others": others}


def params_record(params: TrialFacts | UnreadParams) -> dict[str, Any]:
    """Return what a journal's line keeps, ready for JSON."""
    if isinstance(params, UnreadParams):
        return dict(params.values)
    values: dict[str, Any] = {}
    for name in _names(params):
        values[name] = getattr(params, name)
        if name == "candidate":
            values[name] = params.candidate.record()
            # Beside it, too, where those look who read journals of earlier versions.
            values |= _flat(params)
    values["comparison"] = params.comparison.record()
    return {**values, **params.others}


def param_texts(params: TrialFacts | UnreadParams) -> dict[str, str]:
    """Return MLflow's params."""
    if isinstance(params, UnreadParams):
        return {name: param_text(value) for name, value in params.values.items()}
    values: dict[str, Any] = {}
    for name in _names(params):
        value = getattr(params, name)
        if name == "candidate":
            values |= _flat(params)
        elif name == "given_rates" and value is not None:
            values[name] = "..".join(map(exact_text, value))
        elif name == "looks" and value is not None:
            values[name] = looks_text(value)
        else:
            values[name] = value
    return {name: param_text(value) for name, value in {**values, **params.others}.items()}


def _flat(facts: TrialFacts) -> dict[str, Any]:
    """Return a candidate's own fields, and how many layers it fine-tunes."""
    values = dict(facts.candidate.record())
    if facts.layers is not None:
        values[_FINE_TUNED] = facts.candidate.fine_tuned_layers(facts.layers)
    return values


def search_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Return MLflow's params of a search; texts, as earlier versions journalled them, stay."""
    return {name: _search_text(name, value) for name, value in params.items()}


def _search_text(name: str, value: object) -> str:
    if name == "comparison" and isinstance(value, Mapping):
        return str(Comparison.of(value))
    if name == "depths" and isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(str, value))
    if name == "asha" and isinstance(value, Mapping):
        return ", ".join(f"{part} {exact_text(number)}" for part, number in value.items())
    if name == "asha" and value is None:
        return "off"
    if name == "chance" and isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def param_text(value: object) -> str:
    """Return a parameter as MLflow shows it: `true`, `none`, numbers that read back exactly."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _names(facts: TrialFacts) -> list[str]:
    return [spec.name for spec in dataclasses.fields(facts) if spec.name != "others"]
