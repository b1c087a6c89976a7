"""The freeze curve: quality against frozen layers, from the measuring trials of one group."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elsa_tune.analysis import measured
from elsa_tune.analysis.evidence import Evidence, PlannedLooks, curve_uncertainty, planned_looks
from elsa_tune.analysis.groups import ResultGroup
from elsa_tune.analysis.measured import CandidateRates, MeasuredRun
from elsa_tune.analysis.statistics.uncertainty import Uncertainty, interval_of_mean
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import shortlist
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.words import candidates_text, points, rate_text

# Below this two printed qualities are the same number.
SAME_QUALITY = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Saves:
    """Shares of the full model's that a depth saves, below 0 where it costs more, or None."""

    trainable_parameters: float | None = None
    train_seconds: float | None = None
    peak_memory_mb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One depth of the curve; what is not known is None."""

    candidate: Candidate
    fine_tuned_layers: int | None  # k; None where it is not told by that number
    quality: float | None = None  # mean of its measuring runs, in [-1, 1]
    std: float | None = None  # over those runs (ddof 1)
    seeds: int = 0  # how many those are
    # Of them, how many diverged or ended no better than chance; those inside a row that is a mean
    # cannot be seen.
    failed_seeds: int = 0
    learning_rate: float | None = None  # at which they ran
    retention: float | None = None  # of the full model's quality
    corrected_retention: float | None = None  # the same of what both gain over chance
    explored: int = 0  # exploring trials done
    stopped_early: int = 0  # of these, how many early stopping ended
    trainable_parameters: float | None = None  # the median of completed runs, as the next two
    train_seconds: float | None = None
    peak_memory_mb: float | None = None  # MiB
    ci_low: float | None = None  # 95 % interval of the quality that a fresh seed can expect
    ci_high: float | None = None
    saves: Saves = Saves()  # against the full model
    runs: tuple[MeasuredRun, ...] = field(default=(), repr=False)  # the measuring runs that count
    rates: int = 0  # at how many learning rates it was measured: several are a choice
    tried: CandidateRates = field(default=CandidateRates(), repr=False)  # it is frozen

    @property
    def qualities(self) -> tuple[float, ...]:
        """Of each measuring run; () where a row is a mean of several."""
        if any(run.row.runs > 1 for run in self.runs):
            return ()
        return tuple(run.quality for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearProbe:
    """A linear model on what the frozen encoder gives: a floor, never a point of the curve."""

    quality: float
    retention: float | None  # as in CurvePoint
    corrected_retention: float | None
    train_examples: int | None  # the rows it learnt from; None where not known
    evaluation_examples: int | None  # those it was judged by


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeCurve:
    """All depths of one group, the full model first, with what the reader must be told."""

    model: str
    task: str
    train_size: int | None
    search: str | None
    metric: str | None
    selection: str | None
    layers: int
    chance: float | None
    examples: int | None
    points: tuple[CurvePoint, ...]
    warnings: tuple[AnswerWarning, ...]
    # Of the depths whose runs are known one by one.
    uncertainty: Uncertainty = field(default=Uncertainty(runs={}), repr=False, compare=False)
    # None where no plan says when depths are tested.
    looks: PlannedLooks | None = field(default=None, repr=False, compare=False)
    # The lowest and highest rate that the searches were given; None where these are not the same.
    given_rates: tuple[float, float] | None = None
    probe: LinearProbe | None = None
    # What names its one recorded search in a command, as `demo --storage-path runs`; None where its
    # name alone does.
    search_arguments: str | None = None
    # What is odd about the rows that were trained on and evaluated, the gravest first.
    findings: tuple[RowFinding, ...] = ()

    def __repr__(self) -> str:
        measured = f"{len(self.with_quality)} of {len(self.points)} depths measured"
        return f"FreezeCurve({self.model} on {self.task}: {measured})"

    @property
    def policy(self) -> Policy:
        """What its search was planned by, or this version's."""
        return self.uncertainty.policy

    @property
    def full(self) -> CurvePoint | None:
        """The full-model reference, None where it was not measured."""
        return next((point for point in self.measured if point.candidate.is_reference), None)

    @property
    def measured(self) -> tuple[CurvePoint, ...]:
        """The depths with a quality, embeddings-only left out, by frozen layers."""
        return tuple(p for p in self.with_quality if p.candidate.is_tested)

    @property
    def with_quality(self) -> tuple[CurvePoint, ...]:
        """The measured depths, embeddings-only among them."""
        return tuple(point for point in self.points if point.quality is not None)

    @property
    def best(self) -> CurvePoint | None:
        """The depth with the highest quality, of equal ones the deepest; None without any."""
        return max(reversed(self.measured), key=lambda point: point.quality or 0.0, default=None)


def freeze_curve(group: ResultGroup, evidence: Evidence | None = None) -> FreezeCurve:
    """Build the curve of one group of comparable rows. evidence: where their predictions are found.

    Only measuring trials give a quality. A diverged one counts as chance (left out, with a
    warning, where chance is not known); a collapsed one counts as it is. Raises ResultsError where
    two measuring rows of one depth, rate and seed disagree.
    """
    by_candidate: dict[Candidate, list[ResultRow]] = {}
    for row in group.rows:
        by_candidate.setdefault(row.candidate, []).append(row)
    # Of rows that may be pooled they are the same, but where an earlier version recorded none.
    findings = max((row.findings for row in group.rows), key=len, default=())
    warnings = _findings_warned_of(findings)
    points = [
        _point(group, by_candidate[candidate], warnings) for candidate in sorted(by_candidate)
    ]
    full = next((point for point in points if point.candidate.is_reference and point.runs), None)
    runs = {point.candidate: point.runs for point in points if point.qualities}
    uncertainty = curve_uncertainty(group, runs, evidence, warnings)
    # Those of the search: a candidate may have rates of its own.
    given = {row.given_rates for row in group.rows if row.candidate.rates is None}
    if len(group.searches) > 1:
        text = f"pooled from {len(group.searches)} searches: {shortlist(group.searches)}"
        warnings.append(AnswerWarning(WarningCode.POOLED, text))
    return FreezeCurve(
        model=group.first.model,
        task=group.first.task,
        train_size=group.first.train_size,
        search=", ".join(group.searches) or None,
        metric=group.first.metric,
        selection=group.first.selection,
        layers=group.first.layers,
        chance=group.chance,
        examples=group.examples,
        points=tuple(_completed(point, full, group, uncertainty) for point in points),
        warnings=tuple(warnings),
        uncertainty=uncertainty,
        looks=planned_looks(group, runs, evidence),
        given_rates=given.pop() if len(given) == 1 else None,
        probe=_probe(group, full),
        findings=findings,
    )


def _findings_warned_of(findings: Sequence[RowFinding]) -> list[AnswerWarning]:
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
        **_retentions(row.quality, full, group),
    )


def _point(
    group: ResultGroup, rows: Sequence[ResultRow], warnings: list[AnswerWarning]
) -> CurvePoint:
    """Return a depth's point from its rows; nothing of it is known beside other depths yet."""
    candidate = rows[0].candidate
    name = candidates_text([candidate], group.first.layers)
    by_rate = _by_rate(group, rows, name, warnings)
    means = {rate: _mean(runs) for rate, runs in by_rate.items() if rate is not None}
    rate = _chosen_rate(by_rate)
    exploring = [row for row in rows if row.phase is Phase.EXPLORE and row.status.is_final]
    stopped = [row for row in exploring if row.status is TrialStatus.STOPPED_EARLY]
    point = CurvePoint(
        candidate=candidate,
        fine_tuned_layers=candidate.fine_tuned_layers(group.first.layers),
        explored=sum(row.runs for row in exploring),
        stopped_early=sum(row.runs for row in stopped),
        tried=measured.candidate_rates(rows, means, rate, group.chance, group.policy),
    )
    if not by_rate:
        return point
    point = _measured(point, by_rate[rate], rate, group)
    if len(by_rate) > 1:
        point = replace(point, rates=len(by_rate))
        warnings.append(_several_rates(point, name, list(by_rate)))
    failed = [run for run in point.runs if run.is_failed(group.chance, group.policy)]
    if failed:
        text = f"{name}: {measured.failure_text(failed, point.runs, group.chance)}"
        warnings.append(AnswerWarning(WarningCode.SEEDS_FAILED, text))
    return point


def _by_rate(
    group: ResultGroup, rows: Sequence[ResultRow], name: str, warnings: list[AnswerWarning]
) -> dict[float | None, list[MeasuredRun]]:
    """Return a depth's measuring runs that count, by their learning rate."""
    measuring = [row for row in rows if row.phase is Phase.MEASURE]
    measuring = measured.without_copies(measuring, name, warnings)
    by_rate: dict[float | None, list[MeasuredRun]] = {}
    for run in measured.usable_runs(measuring, group.chance, name, warnings):
        by_rate.setdefault(run.row.learning_rate, []).append(run)
    return by_rate


def _chosen_rate(by_rate: Mapping[float | None, Sequence[MeasuredRun]]) -> float | None:
    """Return the rate with the best mean, of equal ones the higher; None also without any."""
    return max(by_rate, key=lambda rate: (_mean(by_rate[rate]), rate or 0.0), default=None)


def _several_rates(
    point: CurvePoint, name: str, measured_rates: Sequence[float | None]
) -> AnswerWarning:
    rates = sorted(measured_rates, key=lambda rate: rate or 0.0)
    text = (
        f"{name}: measured at {len(rates)} learning rates ({', '.join(map(rate_text, rates))}), "
        f"and only runs of the same rate are averaged; the best mean, {points(point.quality)} at "
        f"{rate_text(point.learning_rate)}, was taken, which looks better than a fresh seed will be"
    )
    return AnswerWarning(WarningCode.SEVERAL_RATES, text)


def _measured(
    point: CurvePoint, runs: Sequence[MeasuredRun], rate: float | None, group: ResultGroup
) -> CurvePoint:
    """Return the point with what its measuring runs at one rate give, one run or more."""
    quality = _mean(runs)
    failed = [run for run in runs if run.is_failed(group.chance, group.policy)]
    completed = [run.row for run in runs if run.row.status is TrialStatus.COMPLETED]
    return replace(
        point,
        quality=quality,
        std=_std(runs, quality),
        seeds=sum(run.row.runs for run in runs),
        failed_seeds=sum(run.row.runs for run in failed),
        learning_rate=rate,
        runs=tuple(sorted(runs, key=lambda run: (run.row.seed is None, run.row.seed or 0))),
        rates=1,
        trainable_parameters=_median(row.trainable_parameters for row in completed),
        train_seconds=_median(row.train_seconds for row in completed),
        peak_memory_mb=_median(row.peak_memory_mb for row in completed),
    )


def _mean(runs: Sequence[MeasuredRun]) -> float:
    # fsum, so that the order of the rows cannot change the answer.
    total = math.fsum(run.quality * run.row.runs for run in runs)
    return total / sum(run.row.runs for run in runs)


def _std(runs: Sequence[MeasuredRun], mean: float) -> float | None:
    """Return the standard deviation (ddof 1) over all runs, those inside means included."""
    total = sum(run.row.runs for run in runs)
    # Every diverged run counts as exactly chance.
    means = [run.row for run in runs if run.row.runs > 1 and not run.is_diverged]
    if total < 2 or any(row.std is None for row in means):
        return None
    inside = math.fsum((row.runs - 1) * (row.std or 0.0) ** 2 for row in means)
    between = math.fsum(run.row.runs * (run.quality - mean) ** 2 for run in runs)
    return math.sqrt((inside + between) / (total - 1))


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.median(known) if known else None


def _completed(
    point: CurvePoint, full: CurvePoint | None, group: ResultGroup, uncertainty: Uncertainty
) -> CurvePoint:
    """Return the point with its interval, and beside the full model: what it keeps and saves."""
    quality = point.quality
    if quality is None:
        return point
    interval = uncertainty.quality(point.candidate)
    if interval is None and point.std:
        interval = interval_of_mean(quality, point.std, point.seeds, group.policy.ends)
    if interval is not None:
        # No quality lies beyond its metric's range, however wide so few seeds leave it.
        lowest = _lowest(group.first.metric)
        point = replace(point, ci_low=max(interval.low, lowest), ci_high=min(interval.high, 1.0))
    if full is None:
        return point
    kept = _retentions(quality, full, group)
    return replace(point, saves=saves(full, point), **kept)


def _lowest(metric: str | None) -> float:
    """Return the lower end of a metric's range: 0 of one that is named but not known here."""
    known = Metric.named(metric)
    if known is not None:
        return known.lowest
    return -1.0 if metric is None else 0.0


def _retentions(quality: float, full: CurvePoint | None, group: ResultGroup) -> dict[str, Any]:
    """Return what a quality keeps of the full model's, raw and corrected for chance."""
    chance = group.chance
    raw = corrected = None
    if full is not None and full.quality is not None:
        if full.quality > SAME_QUALITY:
            raw = quality / full.quality
        if chance is not None and full.quality - chance > group.policy.at_chance:
            corrected = (quality - chance) / (full.quality - chance)
    return {"retention": raw, "corrected_retention": corrected}


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
