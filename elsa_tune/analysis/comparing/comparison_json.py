"""Comparisons of ways as plain, always finite values for JSON and CSV."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from elsa_tune.analysis.answer import WouldCertify
from elsa_tune.analysis.answer_json import csv_cell, curve_heading, plain_number
from elsa_tune.analysis.comparing.ways import (
    Differences,
    Equivalence,
    RateRatio,
    Rerun,
    Way,
    WayComparison,
)
from elsa_tune.results.results_csv import csv_text
from elsa_tune.specs.adapt.candidates import candidate_fields

SCHEMA_VERSION = 1

# What a line says of its comparison.
_HEADING = (
    *("model", "task", "train_size", "search", "metric", "selection", "layers", "chance"),
    *("target", "claim", "cost_unit"),
)

# What a line says of its way, as JSON does.
_WAY = (
    *("method", "label", "frozen_layers", "embeddings_frozen", "fine_tuned_layers"),
    *("quality", "std", "ci_low", "ci_high", "seeds", "failed_seeds"),
    *(
        "learning_rate",
        "rate_at_border",
        "alike_ends",
        "explored",
        "rates_explored",
        "stopped_early",
    ),
    *("kept", "gain_kept", "reaches_target", "p_value", "certified"),
    *("score_p_value", "score_certified"),
    *("recommended", "cost", "train_seconds", "peak_memory_mb", "trainable_parameters"),
    *("latency_seconds", "bundle_seconds"),
)
COLUMNS = (*_HEADING, *_WAY)


def comparison_object(comparison: WayComparison) -> dict[str, Any]:
    """Return a comparison as `elsa-tune compare --format json` prints it."""
    first = comparison.first_lines
    return {
        "schema_version": SCHEMA_VERSION,
        **_heading(comparison),
        "best": _name(comparison.best),
        "recommended": _name(comparison.recommended),
        "basis": None if comparison.basis is None else comparison.basis.value,
        "confidence": plain_number(comparison.curve.policy.confidence),
        "certified": [way.candidate.label for way in comparison.certified],
        "score_certified": [way.candidate.label for way in comparison.score_certified],
        "unsettled": [way.candidate.label for way in comparison.unsettled],
        "reason": None if comparison.reason is None else comparison.reason.value,
        "equivalence": _equivalence(comparison.equivalence),
        "would_certify": _would_certify(comparison.would_certify),
        "score_would_certify": _would_certify(comparison.score_would_certify),
        "rate_ratios": [_rate_ratio(ratio) for ratio in comparison.rate_ratios],
        "differences": _differences(comparison.differences),
        "ways": [way_object(comparison, way) for way in comparison.ways],
        "headline": first.headline,
        "lines": [list(line) for line in first.lines],
        "warnings": [asdict(warning) for warning in comparison.warnings],
    }


def comparisons_csv(comparisons: Iterable[WayComparison]) -> str:
    """Return one line per way with the columns COLUMNS."""
    lines: list[list[Any]] = []
    for comparison in comparisons:
        heading = _heading(comparison)
        for way in comparison.ways:
            values = {**heading, **way_object(comparison, way)}
            lines.append([csv_cell(values.get(name)) for name in COLUMNS])
    return csv_text(COLUMNS, lines)


def way_object(comparison: WayComparison, way: Way) -> dict[str, Any]:
    """Return one way of a comparison."""
    point = way.point
    recommended = comparison.recommended
    border = point.known_rates.at_border
    is_recommended = recommended is not None and recommended.candidate == way.candidate
    told = {
        **candidate_fields(way.candidate),
        "method": way.candidate.method,
        "label": way.candidate.label,
        "fine_tuned_layers": point.fine_tuned_layers,
        "learning_rate": point.learning_rate,
        "rate_at_border": None if border is None else border.value,
        "alike_ends": [end.value for end in point.known_rates.alike_ends],
        "rates_explored": len(point.known_rates.explored),
        "reaches_target": way.reaches_target,
        "certified": way.certified,
        "score_certified": way.score_certified,
        "recommended": is_recommended,
    }
    numbers = {
        "quality": point.quality,
        "std": point.std,
        "ci_low": point.ci_low,
        "ci_high": point.ci_high,
        "seeds": point.seeds,
        "failed_seeds": point.failed_seeds,
        "explored": point.exploring_trials,
        "stopped_early": point.stopped_early,
        "kept": way.kept,
        "gain_kept": way.gain_kept,
        "p_value": way.p_value,
        "score_p_value": way.score_p_value,
        "cost": way.cost,
        "train_seconds": point.train_seconds,
        "peak_memory_mb": point.peak_memory_mb,
        "trainable_parameters": point.trainable_parameters,
        "latency_seconds": way.latency,
        "bundle_seconds": way.bundle_latency,
    }
    values = {**told, **{name: plain_number(number) for name, number in numbers.items()}}
    return _in_order(values)


def _in_order(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values in the order of a table's columns, others behind them."""
    ordered = {name: values.pop(name) for name in _WAY}
    return {**ordered, **values}


def _heading(comparison: WayComparison) -> dict[str, Any]:
    return {
        **curve_heading(comparison.curve),
        "layers": comparison.curve.layers or None,  # a table of methods need not know them
        "target": plain_number(comparison.target),
        "claim": None if comparison.claim is None else comparison.claim.value,
        "cost_unit": comparison.unit.value,
    }


def _name(way: Way | None) -> dict[str, Any] | None:
    """Return what names a way, its quality, rate and cost; None where there is none."""
    if way is None:
        return None
    return {
        **candidate_fields(way.candidate),
        "method": way.candidate.method,
        "label": way.candidate.label,
        "fine_tuned_layers": way.point.fine_tuned_layers,
        "quality": plain_number(way.point.quality),
        "learning_rate": way.point.learning_rate,
        "cost": plain_number(way.cost),
    }


def _equivalence(equivalence: Equivalence | None) -> dict[str, Any] | None:
    if equivalence is None:
        return None
    return {
        "label": equivalence.way.candidate.label,
        "most_better": plain_number(equivalence.most),
        "other": equivalence.other.candidate.label,
        "tells_nothing": equivalence.tells_nothing,
    }


def _differences(differences: Differences | None) -> dict[str, Any] | None:
    if differences is None:
        return None
    return {
        "possible_best": _labels(differences.possible),
        "untested": _labels(differences.untested),
        "above_full": _labels(differences.above_full),
        "below_full": _labels(differences.below_full),
        "counts_rows": differences.counts_rows,
        "without_spread": _labels(differences.without_spread),
        "rerun": _rerun(differences.rerun),
    }


def _labels(ways: Iterable[Way]) -> list[str]:
    return [way.candidate.label for way in ways]


def _rerun(rerun: Rerun | None) -> dict[str, Any] | None:
    if rerun is None:
        return None
    return {
        "label": rerun.way.candidate.label,
        "other": rerun.other.candidate.label,
        "difference": plain_number(rerun.difference),
        "seeds": rerun.seeds,
        "rows": rerun.rows,
    }


def _would_certify(needed: WouldCertify | None) -> dict[str, Any] | None:
    return None if needed is None else asdict(needed)


def _rate_ratio(ratio: RateRatio) -> dict[str, Any]:
    return {
        "method": ratio.way.candidate.method,
        "label": ratio.way.candidate.label,
        "factor": plain_number(ratio.factor),
        "ci_low": plain_number(ratio.low),
        "ci_high": plain_number(ratio.high),
        "at_border": ratio.is_open,
    }
