"""Answers and curves as plain, always finite values for JSON and CSV (docs/reference/answer.md)."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve, LinearProbe
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.results.results_csv import csv_text
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import candidate_fields
from elsa_tune.specs.trial import PROBE_FEATURES

# 2: warnings are objects of a code and a text; in 1 they were texts.
SCHEMA_VERSION = 2
DECIMALS = 6

# Fields of an object in the order of JSON; `_fields` takes `candidate`, `known_rates` and `saves`
# apart.
_HEADING = ("model", "task", "train_size", "search", "metric", "selection", "layers", "chance")
# Behind it, where it is known: how many rows were evaluated, and how many units these are.
_EVALUATED = ("evaluation_examples", "evaluation_units")
_FULL = ("quality", "std", "seeds", "failed_seeds", "learning_rate")
_BEST = ("candidate", "quality")
_POINT = (
    "fine_tuned_layers",
    "quality",
    "std",
    "ci_low",
    "ci_high",
    "seeds",
    "failed_seeds",
    "learning_rate",
    "known_rates",
    "retention",
    "corrected_retention",
    "exploring_trials",
    "stopped_early",
)
# What JSON and CSV call a field, where that is not its name.
_KEYS = {"known_rates": "rate_at_border", "exploring_trials": "explored"}
_OPERATING_POINT = (
    "candidate",
    "fine_tuned_layers",
    "quality",
    "retention",
    "corrected_retention",
    "learning_rate",
    "saves",
)
_RECOMMENDED = ("candidate", "fine_tuned_layers", "quality", "learning_rate")
_WITHIN = ("candidate", "fine_tuned_layers", "quality")

# Columns as CSV has them.
CURVE_COLUMNS = (
    *_HEADING,
    "frozen_layers",
    "embeddings_frozen",
    *(_KEYS.get(name, name) for name in _POINT if name != "known_rates"),
    "rate_at_border",
)
_OPERATING_POINT_COLUMNS = (
    "frozen_layers",
    *_OPERATING_POINT[1:-1],
    "saves_trainable_parameters",
    "saves_train_seconds",
    "saves_peak_memory_mb",
)
_CERTIFIED_COLUMNS = ("frozen_layers", "fine_tuned_layers", "confidence", "procedure")
_WITHIN_COLUMNS = ("frozen_layers", "fine_tuned_layers", "quality", "lowest_rate", "highest_rate")
_PROBE_COLUMNS = (*(field.name for field in fields(LinearProbe)), "features")
_RECOMMENDATION_COLUMNS = (
    "action",
    "frozen_layers",
    *_RECOMMENDED[1:],
    "basis",
    "doubts",
    "headline",
)


def _prefixed(prefix: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{prefix}_{name}" for name in names)


ANSWER_COLUMNS = (
    *_HEADING[:-2],
    "target",
    "layers",
    "chance",
    *_prefixed("full", _FULL),
    "best_frozen_layers",
    "best_quality",
    *_prefixed("operating_point", _OPERATING_POINT_COLUMNS),
    *_prefixed("corrected_operating_point", _OPERATING_POINT_COLUMNS),
    *_prefixed("certified", _CERTIFIED_COLUMNS),
    *_prefixed("corrected_certified", _CERTIFIED_COLUMNS),
    "plausible_fine_tuned_layers",
    "every_larger_k_passes",
    "reason",
    "decided_by",
    *_prefixed("linear_probe", _PROBE_COLUMNS),
    "next_step",
    "warnings",
    *_prefixed("operating_point_within_given_rates", _WITHIN_COLUMNS),
    *_prefixed("recommendation", _RECOMMENDATION_COLUMNS),
)

# Fields that an answer has only where there is something to say: of which quality its one claim is,
# and the searches that asked the same before.
_CLAIM = "claim"
_EARLIER = "earlier_searches"

# Columns that a table has only where a line has something there: how many units were evaluated,
# those of candidates that are no depths, and those fields.
_DEPTH_COLUMN = "frozen_layers"
_NAMING_COLUMNS = ("candidate", "label")
_PLAUSIBLE_CANDIDATES = "plausible_candidates"


def answer_object(answer: Answer) -> dict[str, Any]:
    """Return one answer as docs/reference/answer.md has it; `decided_by` only in joint answers."""
    values: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        **curve_heading(answer),
        "target": answer.target,
        "full": _fields(answer.full, _FULL),
        "best": _fields(answer.best, _BEST),
        "operating_point": _fields(answer.operating_point, _OPERATING_POINT),
        "corrected_operating_point": _fields(answer.corrected_operating_point, _OPERATING_POINT),
        "certified": _fields(answer.certified),
        "corrected_certified": _fields(answer.corrected_certified),
        **_plausible(answer),
        "operating_point_within_given_rates": _within_given(answer),
        "every_larger_k_passes": answer.every_larger_k_passes,
        "reason": None if answer.reason is None else answer.reason.value,
        "linear_probe": _probe(answer.probe),
        "curve": [_answered_point(answer, point) for point in answer.points],
        "warnings": [asdict(warning) for warning in answer.warnings],
        "next_step": answer.next_step,
        "recommendation": _recommendation(answer),
    }
    if answer.claim is not None:
        values[_CLAIM] = answer.claim.value
    if answer.earlier.names:
        values[_EARLIER] = list(answer.earlier.names)
    if answer.decided_by is not None:
        values["decided_by"] = list(answer.decided_by)
    return values


def curve_object(point: CurvePoint) -> dict[str, Any]:
    """Return one depth of a curve."""
    return {**candidate_fields(point.candidate), **_fields(point, _POINT)}


def freeze_curve_object(curve: FreezeCurve) -> dict[str, Any]:
    """Return a curve as `elsa-tune curve --format json` prints it."""
    return {
        "schema_version": SCHEMA_VERSION,
        **curve_heading(curve),
        "linear_probe": _probe(curve.probe),
        "curve": [curve_object(point) for point in curve.points],
        "warnings": [asdict(warning) for warning in curve.warnings],
    }


def as_json(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return a JSON list. Raises ValueError rather than write NaN."""
    return json.dumps(list(objects), indent=2, allow_nan=False)


def answers_csv(answers: Iterable[Answer]) -> str:
    """Return one line per answer with the columns ANSWER_COLUMNS; lists are joined by ` | `."""
    lines = [_flat(answer_object(answer)) for answer in answers]
    return _table(ANSWER_COLUMNS, lines)


def curves_csv(curves: Iterable[FreezeCurve]) -> str:
    """Return one line per depth with the columns CURVE_COLUMNS."""
    lines = []
    for curve in curves:
        heading = curve_heading(curve)
        for point in curve.points:
            lines.append({**heading, **curve_object(point)})
    return _table(CURVE_COLUMNS, lines)


def curve_heading(curve: FreezeCurve) -> dict[str, Any]:
    """Return what a curve is of; the units are known of searches, but not of earlier ones."""
    heading: dict[str, Any] = _fields(curve, _HEADING)
    if curve.units is not None:
        heading["evaluation_examples"] = curve.examples
        heading["evaluation_units"] = curve.units
    return heading


def _fields(value: Any, names: Sequence[str] = ()) -> Any:
    """Return a value field by field (names: these alone): rates exact, other numbers rounded."""
    if value is None:
        return None
    plain: dict[str, Any] = {}
    for name in names or value.__dataclass_fields__:
        content = getattr(value, name)
        key = _KEYS.get(name, name)
        if name == "candidate":
            plain |= _candidate(content)
        elif name == "known_rates":
            plain[key] = None if content.at_border is None else content.at_border.value
        elif name in ("saves", "together"):
            plain[key] = _fields(content)
        elif isinstance(content, str) or name == "learning_rate":
            plain[key] = content
        else:
            plain[key] = plain_number(content)
    return plain


def _candidate(candidate: Candidate) -> dict[str, Any]:
    """Return what tells a depth that was measured: embeddings-only is never the answer."""
    fields_of = candidate_fields(candidate)
    fields_of.pop("embeddings_frozen")
    return fields_of


def _plausible(answer: Answer) -> dict[str, Any]:
    """Return the plausible numbers of layers, and the keys of all where one has no number."""
    if answer.plausible is None or answer.plausible_candidates is None:
        return {"plausible_fine_tuned_layers": None}
    plausible: dict[str, Any] = {"plausible_fine_tuned_layers": list(answer.plausible)}
    if len(answer.plausible) < len(answer.plausible_candidates):
        keys = [candidate.key for candidate in answer.plausible_candidates]
        plausible[_PLAUSIBLE_CANDIDATES] = keys
    return plausible


def _answered_point(answer: Answer, point: CurvePoint) -> dict[str, Any]:
    return {
        **curve_object(point),
        "contrast": _contrast(answer.contrasts.get(point.candidate)),
        "corrected_contrast": _contrast(answer.corrected_contrasts.get(point.candidate)),
        "would_certify": _fields(answer.would_certify.get(point.candidate)),
        "corrected_would_certify": _fields(answer.corrected_would_certify.get(point.candidate)),
    }


def _recommendation(answer: Answer) -> dict[str, Any]:
    """Return what to do, and the first lines of the answer in words."""
    advice = answer.recommendation
    nothing = dict.fromkeys((_DEPTH_COLUMN, *_RECOMMENDED[1:]))
    return {
        "action": advice.action.value,
        **(_fields(advice.point, _RECOMMENDED) or nothing),
        "basis": None if advice.basis is None else advice.basis.value,
        "doubts": [doubt.value for doubt in advice.doubts],
        "headline": answer.first_lines.headline,
        "lines": [list(line) for line in answer.first_lines.lines],
    }


def _within_given(answer: Answer) -> dict[str, Any] | None:
    point = answer.within_given
    rates = answer.given_rates
    if point is None or rates is None:
        return None
    low, high = rates
    return {**_fields(point, _WITHIN), "lowest_rate": low, "highest_rate": high}


def _probe(probe: LinearProbe | None) -> dict[str, Any] | None:
    if probe is None:
        return None
    return {**_fields(probe), "features": PROBE_FEATURES}


def _contrast(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {
        "value": plain_number(interval.value),
        "ci_low": plain_number(interval.low),
        "ci_high": plain_number(interval.high),
        "lower_bound": plain_number(interval.lower),
        "look": _fields(interval.look),
    }


def plain_number(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value
    # + 0.0 turns -0.0 into 0.0.
    return round(value, DECIMALS) + 0.0


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values under one name each, its parts joined by `_`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}_")
        else:
            flat[prefix + name] = value
    return flat


def _table(columns: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> str:
    header = [*columns, *_further_columns(columns, lines)]
    rows = []
    for line in lines:
        rows.append([csv_cell(line.get(name)) for name in header])
    return csv_text(header, rows)


def _further_columns(columns: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns that only some tables have, where lines have them."""
    possible = [_CLAIM, _EARLIER, *_EVALUATED]
    for column in columns:
        if column.endswith(_DEPTH_COLUMN):
            prefix = column.removesuffix(_DEPTH_COLUMN)
            possible += [prefix + name for name in _NAMING_COLUMNS]
    possible.append(_PLAUSIBLE_CANDIDATES)
    return [name for name in possible if any(name in line for line in lines)]


def csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        texts = [item["text"] if isinstance(item, dict) else str(item) for item in value]
        return " | ".join(texts)
    return value
