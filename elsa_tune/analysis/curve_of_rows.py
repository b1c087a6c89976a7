"""The freeze curve of one group of rows: each depth's point from its measuring trials."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from elsa_tune.analysis import measured
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve, LinearProbe, Saves
from elsa_tune.analysis.evidence import Evidence, curve_uncertainty, planned_looks
from elsa_tune.analysis.failures import failed_runs
from elsa_tune.analysis.groups import ResultGroup
from elsa_tune.analysis.measured import MeasuredRun, failure_text, run_count
from elsa_tune.analysis.statistics.intervals import (
    SAME_QUALITY,
    interval_of,
    rounding_variance,
    spread_of_printed_mean,
)
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import shortlist
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.search import NONE_EARLIER, Earlier
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.words import candidates_text, points, rate_text


def freeze_curve(group: ResultGroup, evidence: Evidence | None = None) -> FreezeCurve:
    """Build the curve of one group of comparable rows. evidence: where their predictions are found.

    Only measuring trials give a quality. A diverged one counts as chance (left out, with a
    warning, where chance is not known); a collapsed one counts as it is. Raises ResultsError where
    two measuring rows of one depth, rate and seed disagree.
    """
    # Of rows that may be pooled they are the same, but where an earlier version recorded none.
    findings = max((row.findings for row in group.rows), key=len, default=())
    warnings = _findings_warned_of(findings)
    points = _points_by_rank(group, warnings)
    full = None
    runs: dict[Candidate, tuple[MeasuredRun, ...]] = {}
    for point in points:
        if point.candidate.is_reference and point.runs:
            full = point
        if point.qualities:
            runs[point.candidate] = point.runs
    uncertainty = curve_uncertainty(group, runs, evidence, warnings)
    points = [_compared(point, full, group, uncertainty) for point in points]
    warnings += measured.warning_of_doubled_rows(group.rows)
    warnings += _warning_of_left_out_examples(group, points, uncertainty)
    if len(group.searches) > 1:
        text = f"pooled from {len(group.searches)} searches: {shortlist(group.searches)}"
        warnings.append(AnswerWarning(WarningCode.POOLED, text))
    return FreezeCurve(
        model=group.first.model,
        task=group.first.task,
        train_size=group.first.train_size,
        search=", ".join(group.searches) or None,
        search_ids=group.search_ids,
        metric=group.first.metric,
        selection=group.first.selection,
        layers=group.layers,
        chance=group.chance,
        examples=group.examples,
        units=group.units,
        points=tuple(points),
        warnings=tuple(warnings),
        uncertainty=uncertainty,
        looks=planned_looks(group, runs, evidence),
        given_rates=_common_given_rates(group.rows),
        probe=_probe(group, full),
        findings=findings,
        earlier=_earlier(group),
    )


def _warning_of_left_out_examples(
    group: ResultGroup, points: Sequence[CurvePoint], uncertainty: Uncertainty
) -> list[AnswerWarning]:
    """Warn where intervals have the spread between seeds alone; of this version's answers only."""
    if group.policy.by_seeds_alone:
        return []
    counted = uncertainty.examples.candidates if uncertainty.examples is not None else {}
    by_seeds = []
    for point in points:
        if point.ci_low is not None and point.candidate not in counted:
            by_seeds.append(point)
    if not by_seeds:
        return []
    what = "the intervals leave"
    metric = Metric.named(group.first.metric)
    number_counts = metric is not None and metric.is_share and group.examples is not None
    has_full = any(point.candidate.is_reference for point in by_seeds)
    if has_full and group.chance is not None and not number_counts:
        what = "the intervals, and the test that the full model learnt, leave"
    text = f"{what} out the evaluation rows: by seeds alone they are too sure"
    return [AnswerWarning(WarningCode.EXAMPLES_LEFT_OUT, text)]


def _earlier(group: ResultGroup) -> Earlier:
    """Return which searches asked the same before the one that a group is of."""
    if len(group.searches) > 1:
        return NONE_EARLIER
    return group.first.earlier


def _points_by_rank(group: ResultGroup, warnings: list[AnswerWarning]) -> list[CurvePoint]:
    """Return the point of each depth that has rows, the full model first."""
    by_candidate: dict[Candidate, list[ResultRow]] = {}
    for row in group.rows:
        by_candidate.setdefault(row.candidate, []).append(row)
    points: list[CurvePoint] = []
    warnings_by_candidate: dict[Candidate, list[AnswerWarning]] = {}
    for candidate in sorted(by_candidate):
        of_depth: list[AnswerWarning] = []
        points.append(_point(group, by_candidate[candidate], of_depth))
        warnings_by_candidate[candidate] = of_depth
    points = _with_failures(points, group, warnings_by_candidate)
    points = _with_rounding(points, group)
    for of_depth in warnings_by_candidate.values():
        warnings += of_depth
    return points


def _with_failures(
    points: Sequence[CurvePoint],
    group: ResultGroup,
    warnings: Mapping[Candidate, list[AnswerWarning]],
) -> list[CurvePoint]:
    """Return the points with how many of their runs failed. warnings: to which this adds."""
    measured_runs = {point.candidate: point.runs for point in points if point.runs}
    failed = failed_runs(measured_runs, group.chance, group.policy)
    counted: list[CurvePoint] = []
    for point in points:
        failed_here: list[MeasuredRun] = []
        flags = failed.get(point.candidate, ())
        for run, is_failed in zip(point.runs, flags, strict=True):
            if is_failed:
                failed_here.append(run)
        counted.append(replace(point, failed_seeds=run_count(failed_here)))
        if failed_here:
            name = candidates_text([point.candidate], group.layers)
            text = f"{name}: {failure_text(failed_here, point.runs, group.chance, group.policy)}"
            warnings[point.candidate].append(AnswerWarning(WarningCode.SEEDS_FAILED, text))
    return counted


def _with_rounding(points: Sequence[CurvePoint], group: ResultGroup) -> list[CurvePoint]:
    """Return the points with what rounding hides of those that are printed means."""
    printed = [row.quality for row in group.rows if row.quality is not None]
    rounding = rounding_variance(printed, group.policy.exact_decimals)
    rounded: list[CurvePoint] = []
    for point in points:
        is_printed = point.quality is not None and not point.qualities
        rounded.append(replace(point, rounding=rounding) if is_printed else point)
    return rounded


def _common_given_rates(rows: Sequence[ResultRow]) -> tuple[float, float] | None:
    """Return the lowest and highest rate that the searches were given; None where they differ."""
    # Those of the search: a candidate may have rates of its own.
    given = {row.given_rates for row in rows if row.candidate.rates is None}
    return given.pop() if len(given) == 1 else None


def _findings_warned_of(findings: Sequence[RowFinding]) -> list[AnswerWarning]:
    """Return a warning for each finding that an answer's reader must know."""
    warnings: list[AnswerWarning] = []
    for finding in findings:
        if finding.concerns_answers:
            warnings.append(AnswerWarning(WarningCode(finding.code), finding.text))
    return warnings


def _probe(group: ResultGroup, full: CurvePoint | None) -> LinearProbe | None:
    row = group.probe
    if row is None or row.quality is None:
        return None
    return LinearProbe(
        quality=row.quality,
        train_examples=row.probe_examples,
        evaluation_examples=row.examples,
        retention=_retention(row.quality, full),
        corrected_retention=_corrected_retention(row.quality, full, group),
    )


def _point(
    group: ResultGroup, rows: Sequence[ResultRow], warnings: list[AnswerWarning]
) -> CurvePoint:
    """Return a depth's point from its rows; nothing of it is known beside other depths yet."""
    candidate = rows[0].candidate
    name = candidates_text([candidate], group.layers)
    measuring = [row for row in rows if row.phase is Phase.MEASURE]
    measuring = measured.without_copies(measuring, name, warnings)
    usable = measured.usable_runs(measuring, group.chance, name, warnings)
    lacking = measured.without_score(measuring, usable)
    by_rate: dict[float | None, list[MeasuredRun]] = {}
    for run in usable:
        by_rate.setdefault(run.row.learning_rate, []).append(run)
    mean_by_rate = {rate: _mean(runs) for rate, runs in by_rate.items() if rate is not None}
    rate = _chosen_rate(by_rate)
    exploring = measured.explored(rows, rate)
    stopped = [row for row in exploring if row.status is TrialStatus.STOPPED_EARLY]
    fine_tuned_layers = None
    if group.layers:
        fine_tuned_layers = candidate.fine_tuned_layers(group.layers)
    point = CurvePoint(
        candidate=candidate,
        fine_tuned_layers=fine_tuned_layers,
        exploring_trials=sum(row.runs for row in exploring),
        stopped_early=sum(row.runs for row in stopped),
        known_rates=measured.candidate_rates(rows, mean_by_rate, rate, group.chance, group.policy),
    )
    if not by_rate:
        return replace(point, runs_without_score=sum(row.runs for row in lacking))
    lacking_here = [row for row in lacking if row.learning_rate in (rate, None)]
    point = replace(
        _measured(point, by_rate[rate]),
        learning_rate=rate,
        measured_at_rates=len({*by_rate, *measured.stopped_rates(measuring)}),
        runs_without_score=sum(row.runs for row in lacking_here),
    )
    if len(by_rate) > 1:
        warnings.append(_several_rates(point, name, list(by_rate)))
    return point


def _chosen_rate(by_rate: Mapping[float | None, Sequence[MeasuredRun]]) -> float | None:
    """Return the rate with the best mean, of equal ones the higher; None also without any."""

    def preference(rate: float | None) -> tuple[float, float]:
        return _mean(by_rate[rate]), rate or 0.0

    return max(by_rate, key=preference, default=None)


def _several_rates(
    point: CurvePoint, name: str, measured_rates: Sequence[float | None]
) -> AnswerWarning:
    rates = sorted(measured_rates, key=lambda rate: rate or 0.0)
    names = ", ".join(rate_text(rate) for rate in rates)
    text = (
        f"{name}: measured at {len(rates)} learning rates ({names}), "
        f"and only runs of the same rate are averaged; the best mean, {points(point.quality)} at "
        f"{rate_text(point.learning_rate)}, was taken, which looks better than a fresh seed will be"
    )
    return AnswerWarning(WarningCode.SEVERAL_RATES, text)


def _measured(point: CurvePoint, runs: Sequence[MeasuredRun]) -> CurvePoint:
    """Return the point with what its measuring runs at one rate give, one run or more."""
    quality = _mean(runs)
    completed = [run.row for run in runs if run.row.status is TrialStatus.COMPLETED]
    by_seed = sorted(runs, key=lambda run: (run.row.seed is None, run.row.seed or 0))
    return replace(
        point,
        quality=quality,
        std=_std(runs, quality),
        seeds=run_count(runs),
        runs=tuple(by_seed),
        trainable_parameters=_median_count(row.trainable_parameters for row in completed),
        train_seconds=_median(row.train_seconds for row in completed),
        peak_memory_mb=_median(row.peak_memory_mb for row in completed),
    )


def _mean(runs: Sequence[MeasuredRun]) -> float:
    # fsum, so that the order of the rows cannot change the answer.
    total = math.fsum(run.quality * run.row.runs for run in runs)
    return total / run_count(runs)


def _std(runs: Sequence[MeasuredRun], mean: float) -> float | None:
    """Return the standard deviation (ddof 1) over all runs, those inside means included.

    None for a single run, and where a row that is a mean does not give its own.
    """
    squares_inside: list[float] = []  # of rows that are means
    squares_between: list[float] = []
    for run in runs:
        count = run.row.runs
        squares_between.append(count * (run.quality - mean) ** 2)
        # Every diverged run counts as exactly chance.
        if count == 1 or run.is_diverged:
            continue
        if run.row.std is None:
            return None
        squares_inside.append((count - 1) * run.row.std**2)
    total = run_count(runs)
    if total < 2:
        return None
    squares = math.fsum(squares_inside) + math.fsum(squares_between)
    std = math.sqrt(squares / (total - 1))
    # The mean of equal numbers may differ from them in its last digit.
    return 0.0 if std <= SAME_QUALITY else std


def _median(values: Iterable[float | None]) -> float | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.median(finite) if finite else None


def _median_count(counts: Iterable[int | None]) -> int | None:
    """Return the median, the lower of two in the middle, so that it stays a whole number."""
    known = [count for count in counts if count is not None]
    return statistics.median_low(known) if known else None


def _compared(
    point: CurvePoint, full: CurvePoint | None, group: ResultGroup, uncertainty: Uncertainty
) -> CurvePoint:
    """Return the point with its interval, and beside the full model: what it keeps and saves."""
    quality = point.quality
    if quality is None:
        return point
    interval = uncertainty.quality(point.candidate)
    if interval is None and point.std:
        of_mean = spread_of_printed_mean(point.std, point.seeds, point.rounding)
        interval = interval_of(quality, None, seeds=[of_mean], ends=group.policy.ends)
    if interval is not None:
        # No quality lies beyond its metric's range, however wide so few seeds leave it.
        lowest = _lowest(group)
        ci_low = min(max(interval.low, lowest), 1.0)
        ci_high = min(max(interval.high, lowest), 1.0)
        point = replace(point, ci_low=ci_low, ci_high=ci_high)
    if full is None:
        return point
    return replace(
        point,
        saves=saves(full, point),
        retention=_retention(quality, full),
        corrected_retention=_corrected_retention(quality, full, group),
    )


def _lowest(group: ResultGroup) -> float:
    """Return the lower end of the metric's range.

    Of one that is named but not known here it is 0, unless some quality lies below that.
    """
    known_metric = Metric.named(group.first.metric)
    if known_metric is not None:
        return known_metric.lowest
    has_negative = any(row.quality is not None and row.quality < 0 for row in group.rows)
    if group.first.metric is None or has_negative:
        return -1.0
    return 0.0


def _retention(quality: float, full: CurvePoint | None) -> float | None:
    """Return what a quality keeps of the full model's; None where that is 0 or not known."""
    if full is None or full.quality is None or full.quality <= SAME_QUALITY:
        return None
    return quality / full.quality


def _corrected_retention(
    quality: float, full: CurvePoint | None, group: ResultGroup
) -> float | None:
    """Return what a quality keeps of what the full model gains over chance.

    None where it gains nothing, or one of the two is not known.
    """
    chance = group.chance
    if chance is None or full is None or full.quality is None:
        return None
    gain_of_full = full.quality - chance
    if gain_of_full <= group.policy.at_chance:
        return None
    return (quality - chance) / gain_of_full


def saves(full: CurvePoint, point: CurvePoint) -> Saves:
    """Return what a depth saves against the full model."""

    def saved(of_full: float | None, of_point: float | None) -> float | None:
        if of_full is None or of_point is None or of_full <= 0:
            return None
        return 1 - of_point / of_full

    return Saves(
        trainable_parameters=saved(full.trainable_parameters, point.trainable_parameters),
        train_seconds=saved(full.train_seconds, point.train_seconds),
        peak_memory_mb=saved(full.peak_memory_mb, point.peak_memory_mb),
    )
