"""Answers and curves as plain, always finite values for JSON and CSV (docs/reference/answer.md)."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve, LinearProbe
from elsa_tune.analysis.statistics.uncertainty import Interval
from elsa_tune.results.results_csv import csv_text
from elsa_tune.specs.trial import PROBE_FEATURES

# 2: warnings are objects of a code and a text; in 1 they were texts.
SCHEMA_VERSION = 2
DECIMALS = 6

# Of curves, of points and of answers: fields as JSON has them, then columns as CSV has them.
_HEADING = ("model", "task", "train_size", "search", "metric", "selection", "layers", "chance")
_FULL = ("quality", "std", "seeds", "failed_seeds", "learning_rate")
_POINT = (
    *("fine_tuned_layers", "quality", "std", "ci_low", "ci_high", "seeds", "failed_seeds"),
    *("learning_rate", "tried", "retention", "corrected_retention", "explored", "stopped_early"),
)
_OPERATING_POINT = (
    *("depth", "fine_tuned_layers", "quality", "retention", "corrected_retention"),
    *("learning_rate", "saves"),
)
CURVE_COLUMNS = (
    *_HEADING,
    *("frozen_layers", "embeddings_frozen"),
    *(name for name in _POINT if name != "tried"),
    "rate_at_border",
)
_OPERATING_POINT_COLUMNS = (
    *("frozen_layers", *_OPERATING_POINT[1:-1]),
    *("saves_trainable_parameters", "saves_train_seconds", "saves_peak_memory_mb"),
)
_CERTIFIED_COLUMNS = ("frozen_layers", "fine_tuned_layers", "confidence", "procedure")
_WITHIN_COLUMNS = ("frozen_layers", "fine_tuned_layers", "quality", "lowest_rate", "highest_rate")
_PROBE_COLUMNS = (*(field.name for field in fields(LinearProbe)), "features")
_RECOMMENDED = ("frozen_layers", "fine_tuned_layers", "quality", "learning_rate")
_RECOMMENDATION_COLUMNS = ("action", *_RECOMMENDED, "basis", "doubts", "headline")
ANSWER_COLUMNS = (
    *_HEADING[:-2],
    *("target", "layers", "chance"),
    *(f"full_{name}" for name in _FULL),
    *("best_frozen_layers", "best_quality"),
    *(f"operating_point_{name}" for name in _OPERATING_POINT_COLUMNS),
    *(f"corrected_operating_point_{name}" for name in _OPERATING_POINT_COLUMNS),
    *(f"certified_{name}" for name in _CERTIFIED_COLUMNS),
    *(f"corrected_certified_{name}" for name in _CERTIFIED_COLUMNS),
    *("plausible_fine_tuned_layers", "every_larger_k_passes", "reason", "decided_by"),
    *(f"linear_probe_{name}" for name in _PROBE_COLUMNS),
    *("next_step", "warnings"),
    *(f"operating_point_within_given_rates_{name}" for name in _WITHIN_COLUMNS),
    *(f"recommendation_{name}" for name in _RECOMMENDATION_COLUMNS),
)


def answer_object(answer: Answer) -> dict[str, Any]:
    """One answer as docs/reference/answer.md has it; `decided_by` only in joint answers."""
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        **_fields(answer, _HEADING),
        "target": answer.target,
        "full": _fields(answer.full, _FULL),
        "best": _fields(answer.best, ("depth", "quality")),
        "operating_point": _fields(answer.operating_point, _OPERATING_POINT),
        "corrected_operating_point": _fields(answer.corrected_operating_point, _OPERATING_POINT),
        "certified": _fields(answer.certified),
        "corrected_certified": _fields(answer.corrected_certified),
        "plausible_fine_tuned_layers": None if answer.plausible is None else list(answer.plausible),
        "operating_point_within_given_rates": _within_given(answer),
        "every_larger_k_passes": answer.every_larger_k_passes,
        "reason": None if answer.reason is None else answer.reason.value,
        "linear_probe": _probe(answer.probe),
        "curve": [
            {
                **curve_object(point),
                "contrast": _contrast(answer.contrasts.get(point.depth)),
                "corrected_contrast": _contrast(answer.corrected_contrasts.get(point.depth)),
            }
            for point in answer.points
        ],
        "warnings": [asdict(warning) for warning in answer.warnings],
        "next_step": answer.next_step,
        "recommendation": _recommendation(answer),
    }
    if answer.decided_by is not None:
        found["decided_by"] = list(answer.decided_by)
    return found


def curve_object(point: CurvePoint) -> dict[str, Any]:
    """One depth of a curve."""
    return {
        "frozen_layers": point.depth.frozen_layers,
        "embeddings_frozen": point.depth.embeddings_frozen,
        **_fields(point, _POINT),
    }


def freeze_curve_object(curve: FreezeCurve) -> dict[str, Any]:
    """A whole curve as `elsa-tune curve --format json` prints it."""
    return {
        "schema_version": SCHEMA_VERSION,
        **_fields(curve, _HEADING),
        "linear_probe": _probe(curve.probe),
        "curve": [curve_object(point) for point in curve.points],
        "warnings": [asdict(warning) for warning in curve.warnings],
    }


def as_json(objects: Sequence[Mapping[str, Any]]) -> str:
    """A JSON list; raises ValueError rather than write NaN."""
    return json.dumps(list(objects), indent=2, allow_nan=False)


def answers_csv(answers: Iterable[Answer]) -> str:
    """One line per answer with the columns ANSWER_COLUMNS; lists are joined by ` | `."""
    return _table(ANSWER_COLUMNS, (_flat(answer_object(answer)) for answer in answers))


def curves_csv(curves: Iterable[FreezeCurve]) -> str:
    """One line per depth with the columns CURVE_COLUMNS."""
    depths = ((curve, point) for curve in curves for point in curve.points)
    lines = ({**_fields(curve, _HEADING), **curve_object(point)} for curve, point in depths)
    return _table(CURVE_COLUMNS, lines)


def _fields(value: Any, names: Sequence[str] = ()) -> Any:
    """A value field by field (names: these alone): rates exact, other numbers rounded."""
    if value is None:
        return None
    found: dict[str, Any] = {}
    for name in names or value.__dataclass_fields__:
        one = getattr(value, name)
        if name == "depth":
            found["frozen_layers"] = one.frozen_layers
        elif name == "tried":
            found["rate_at_border"] = None if one.at_border is None else one.at_border.value
        elif name == "saves":
            found[name] = _fields(one)
        else:
            found[name] = one if isinstance(one, str) or name == "learning_rate" else _number(one)
    return found


def _recommendation(answer: Answer) -> dict[str, Any]:
    """What to do, and the first lines of the answer in words."""
    advice = answer.recommendation
    depth = _fields(advice.point, ("depth", "fine_tuned_layers", "quality", "learning_rate"))
    return {
        "action": advice.action.value,
        **(depth or dict.fromkeys(_RECOMMENDED)),
        "basis": None if advice.basis is None else advice.basis.value,
        "doubts": [doubt.value for doubt in advice.doubts],
        "headline": answer.first_lines.headline,
        "lines": [list(line) for line in answer.first_lines.lines],
    }


def _within_given(answer: Answer) -> dict[str, Any] | None:
    point, rates = answer.within_given, answer.given_rates
    if point is None or rates is None:
        return None
    found = _fields(point, ("depth", "fine_tuned_layers", "quality"))
    return {**found, "lowest_rate": rates[0], "highest_rate": rates[1]}


def _probe(probe: LinearProbe | None) -> dict[str, Any] | None:
    return None if probe is None else {**_fields(probe), "features": PROBE_FEATURES}


def _contrast(found: Interval | None) -> dict[str, Any] | None:
    if found is None:
        return None
    ends = {"ci_low": found.low, "ci_high": found.high, "lower_bound": found.lower}
    rounded = {name: _number(one) for name, one in {"value": found.value, **ends}.items()}
    return {**rounded, "look": _fields(found.look)}


def _number(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    # + 0.0 turns -0.0 into 0.0.
    return value if isinstance(value, int) else round(value, DECIMALS) + 0.0


def _flat(found: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in found.items():
        parts = value if isinstance(value, Mapping) else None
        flat |= {prefix + name: value} if parts is None else _flat(parts, f"{prefix}{name}_")
    return flat


def _table(columns: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> str:
    return csv_text(columns, ([_cell(line.get(name)) for name in columns] for line in lines))


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = " | ".join(one["text"] if isinstance(one, dict) else str(one) for one in value)
    return value
