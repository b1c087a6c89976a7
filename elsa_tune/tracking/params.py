"""What a trial or search is: as a journal's typed JSON, and as the texts that MLflow calls params.

Nothing else in the package makes or reads such a text; planned looks, which results tables have,
too, are written in `specs/looks_text.py`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter

from elsa_tune.errors import SpaceError, UnknownMethodError, quoted
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import recorded_candidate
from elsa_tune.specs.checked import problems
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.looks_text import exact_text, looks_text, read_looks
from elsa_tune.specs.trial_facts import TrialFacts

_FACTS = TypeAdapter(TrialFacts)
_FIELDS = frozenset(TrialFacts.__dataclass_fields__) - {"others"}
# How MLflow shows what is not known.
_NONE = "none"
# k of a candidate: shown in MLflow, and in old records what L is found by.
_FINE_TUNED = "fine_tuned_layers"
# The label of a candidate that is no depth: MLflow's exports are tables, whose readers ask for it.
_METHOD = "method"


@dataclass(frozen=True, slots=True)
class UnreadParams:
    """Values that do not say what a trial is."""

    values: Mapping[str, Any]  # by their names, as they were recorded
    why: str  # in a sentence
    is_of_unknown_method: bool = False  # and of nothing else: the record may be sound

    @property
    def phase(self) -> object:
        """What is recorded as the trial's phase, whatever that is."""
        return self.values.get("phase")


def read_params(values: object) -> TrialFacts | UnreadParams:
    """Return what a journal's params, or MLflow's, say of a trial.

    Raises ValueError for what is no table.
    """
    if isinstance(values, TrialFacts | UnreadParams):
        return values
    if not isinstance(values, Mapping):
        came = quoted(values)
        raise ValueError(f"must be a table of `field: value`, not {came}")
    try:
        fields = _as_recorded_today(values)
        return _FACTS.validate_python(fields)
    except (TypeError, ValueError, OverflowError) as error:
        return UnreadParams(
            values=dict(values),
            why=problems(error),
            is_of_unknown_method=isinstance(error, UnknownMethodError),
        )


# As a record's field, read by pydantic.
Params = Annotated[TrialFacts | UnreadParams, PlainValidator(read_params)]


def _as_recorded_today(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of TrialFacts, by what this version, MLflow or an older one recorded."""
    candidate = _described_candidate(values)
    fields: dict[str, Any] = {"candidate": candidate}
    others: dict[str, Any] = {}
    names_of_candidate = {"candidate", _FINE_TUNED, *candidate.record()}
    if values.get(_METHOD) == candidate.label:
        names_of_candidate.add(_METHOD)
    for name, value in values.items():
        if name in names_of_candidate:
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


def _described_candidate(values: Mapping[str, Any]) -> Candidate:
    """Return the candidate of a record, which has it as a table or beside the other fields.

    Raises SpaceError for a record of no candidate: UnknownMethodError where it names a method.
    """
    described = values.get("candidate", values)
    if not isinstance(described, Mapping | Candidate):
        came = quoted(described)
        raise SpaceError(f"field 'candidate' must be a table, not {came}")
    try:
        return recorded_candidate(described)
    except UnknownMethodError:
        # Whatever wrote another method's candidate beside the other fields also wrote its label.
        if "candidate" in values or _METHOD in values:
            raise
        raise SpaceError("the record names no candidate") from None


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
            beside = _flat(params)
            values.update(beside)
    values["comparison"] = params.comparison.record()
    values.update(params.others)
    return values


def param_texts(params: TrialFacts | UnreadParams) -> dict[str, str]:
    """Return MLflow's params."""
    if isinstance(params, UnreadParams):
        return _texts(params.values)
    values: dict[str, Any] = {}
    for name in _names(params):
        if name == "candidate":
            of_candidate = _flat(params)
            values.update(of_candidate)
            if not params.candidate.is_depth:
                values[_METHOD] = params.candidate.label
        else:
            values[name] = getattr(params, name)
    if params.given_rates is not None:
        values["given_rates"] = _rates_text(params.given_rates)
    if params.looks is not None:
        values["looks"] = looks_text(params.looks)
    values.update(params.others)
    return _texts(values)


def _rates_text(rates: tuple[float, float]) -> str:
    """Write the lowest and the highest rate, as `1e-05..5e-05`."""
    lowest = exact_text(rates[0])
    highest = exact_text(rates[1])
    return f"{lowest}..{highest}"


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values as MLflow shows them, by their names."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        texts[name] = param_text(value)
    return texts


def _flat(facts: TrialFacts) -> dict[str, Any]:
    """Return a candidate's own fields, and how many layers it fine-tunes."""
    values = dict(facts.candidate.record())
    if facts.layers is not None:
        values[_FINE_TUNED] = facts.candidate.fine_tuned_layers(facts.layers)
    return values


def search_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Return MLflow's params of a search; texts, as earlier versions journalled them, stay."""
    texts: dict[str, str] = {}
    for name, value in params.items():
        texts[name] = _search_text(name, value)
    return texts


def _search_text(name: str, value: object) -> str:
    """Return a search's param as MLflow shows it."""
    if isinstance(value, str):
        return str(value)
    if name == "comparison" and isinstance(value, Mapping):
        comparison = Comparison.of(value)
        return str(comparison)
    if name == "depths" and isinstance(value, Sequence):
        labels = [str(label) for label in value]
        return " ".join(labels)
    if name == "asha":
        return _asha_text(value)
    if name == "chance" and isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _asha_text(value: object) -> str:
    """Return a search's early stopping as MLflow shows it: `off`, or its settings."""
    if value is None:
        return "off"
    if not isinstance(value, Mapping):
        return str(value)
    settings: list[str] = []
    for setting, number in value.items():
        text = exact_text(number)
        settings.append(f"{setting} {text}")
    return ", ".join(settings)


def param_text(value: object) -> str:
    """Return a parameter as MLflow shows it: `true`, `none`, numbers that read back exactly."""
    text = str(value)
    if value is None or isinstance(value, bool):
        return text.lower()
    return text


def _names(facts: TrialFacts) -> list[str]:
    """Return the names of a trial's facts, without the others."""
    names: list[str] = []
    for field in dataclasses.fields(facts):
        if field.name != "others":
            names.append(field.name)
    return names
