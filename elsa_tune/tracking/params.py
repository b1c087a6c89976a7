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

    values: Mapping[str, Any]  # by their names, as they were recorded
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
        fields = _as_recorded_today(values)
        return _FACTS.validate_python(fields)
    except (TypeError, ValueError, OverflowError) as error:
        why = problems(error)
        return UnreadParams(dict(values), why)


# As a record's field, read by pydantic.
Params = Annotated[TrialFacts | UnreadParams, PlainValidator(read_params)]


def _as_recorded_today(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of TrialFacts, by what this version, MLflow or an older one recorded."""
    described = values.get("candidate", values)
    if not isinstance(described, Mapping | Candidate):
        raise SpaceError(f"field 'candidate' must be a table, not {quoted(described)}")
    candidate = recorded_candidate(described)
    fields: dict[str, Any] = {"candidate": candidate}
    others = {}
    of_candidate = {"candidate", _FINE_TUNED, *candidate.record()}
    for name, value in values.items():
        if name in of_candidate:
            continue
        if name not in _FIELDS:
            others[name] = value
        elif value not in (None, "", _NONE):
            fields[name] = value
    fields["others"] = others
    if "layers" not in fields and _FINE_TUNED in values:
        # Recorded before there were methods other than freezing, whose rank is its frozen layers.
        fine_tuned = int(values[_FINE_TUNED])
        frozen = int(candidate.rank)
        fields["layers"] = fine_tuned + frozen
    rates = fields.get("given_rates")
    if isinstance(rates, str):
        fields["given_rates"] = rates.split("..")
    looks = fields.get("looks")
    if isinstance(looks, str):
        fields["looks"] = read_looks(looks)
    return fields


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
        return _texts(params.values)
    values: dict[str, Any] = {}
    for name in _names(params):
        if name == "candidate":
            values |= _flat(params)
        else:
            values[name] = getattr(params, name)
    if params.given_rates is not None:
        lowest, highest = params.given_rates
        values["given_rates"] = f"{exact_text(lowest)}..{exact_text(highest)}"
    if params.looks is not None:
        values["looks"] = looks_text(params.looks)
    values |= params.others
    return _texts(values)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: param_text(value) for name, value in values.items()}


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
    if isinstance(value, str):
        return str(value)
    if name == "comparison" and isinstance(value, Mapping):
        comparison = Comparison.of(value)
        return str(comparison)
    if name == "depths" and isinstance(value, Sequence):
        labels = [str(label) for label in value]
        return " ".join(labels)
    if name == "asha" and isinstance(value, Mapping):
        parts = []
        for part, number in value.items():
            parts.append(f"{part} {exact_text(number)}")
        return ", ".join(parts)
    if name == "asha" and value is None:
        return "off"
    if name == "chance" and isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def param_text(value: object) -> str:
    """Return a parameter as MLflow shows it: `true`, `none`, numbers that read back exactly."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _names(facts: TrialFacts) -> list[str]:
    return [spec.name for spec in dataclasses.fields(facts) if spec.name != "others"]
