"""The ways of one group: every candidate, ranked or not, with what its trials say.

A way is a candidate in a comparison. Ways have no order of tests: each is compared with all others.
What only freeze depths claim is decided elsewhere, and is the same whatever else was compared.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from elsa_tune.analysis.answer import FirstLines, QualityClaimed, Reason, WouldCertify
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.curve_of_rows import freeze_curve
from elsa_tune.analysis.evidence import Evidence, curve_uncertainty
from elsa_tune.analysis.groups import ResultGroup, comparison_groups, require_one_each
from elsa_tune.analysis.measured import MeasuredRun
from elsa_tune.analysis.warning import AnswerWarning
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.border import Border
from elsa_tune.specs.cost import Cost, Latencies
from elsa_tune.specs.policy import Claim, Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import Looks
from elsa_tune.words import points

# What a comparison claims unless another share is asked for. The claim is named for it before the
# first trial, so that nothing is certified above it.
COMPARED_TARGET = 0.95

# Two seeds leave the spread of a way to one number: too little where each is compared with all.
FEWEST_SEEDS = 3

# Why there is no answer at all.
NO_ANSWER = (
    Reason.NO_MEASUREMENTS,
    Reason.ONE_WAY,
    Reason.NO_WAY_LEARNT,
    Reason.NO_WAY_ABOVE_ZERO,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to adapt the model, beside the others."""

    point: CurvePoint  # what its trials say
    kept: float | None = None  # of the best way's score
    gain_kept: float | None = None  # of what that one gains over chance
    reaches_target: bool = False  # as measured, of what the comparison claims
    # Of the hypothesis that it does not keep the target of the best; None where nothing is claimed.
    p_value: float | None = None
    certified: bool = False  # to keep the target of what is claimed
    score_p_value: float | None = None  # likewise, of the score itself
    score_certified: bool = False  # which `certified` implies
    cost: float | None = None  # in the comparison's unit; None where it is not known
    # Seconds of the exported model for one input, where they were measured.
    latency: float | None = None  # alone
    bundle_latency: float | None = None  # of one task in a bundle

    @property
    def candidate(self) -> Candidate:
        return self.point.candidate

    @property
    def border(self) -> Border | None:
        """The place of its best rate among those tried; None also if it learnt nothing at any."""
        rates = self.point.known_rates
        return rates.at_border if rates.learnt else None


class WayBasis(enum.StrEnum):
    """What speaks for the recommended way."""

    CERTIFIED = "certified"  # surely keeps the target of what is claimed
    # Surely keeps it of the score itself; was measured to keep it of what is claimed.
    SCORE_CERTIFIED = "score_certified"
    MEASURED = "measured"  # was measured to keep it; nothing is certain


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """How much better than this way any other may be."""

    way: Way
    most: float  # in fractions of quality, at least 0: with 95 % confidence no way gains more
    other: Way  # of which that much may be true
    # From here on a bound leaves open all that could be, or that another way gains twice as much.
    nothing_from: float

    @property
    def tells_nothing(self) -> bool:
        """Whether the bound is too wide to say anything."""
        return self.most >= self.nothing_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """What a rerun of two ways needs to find their measured difference, if it is the true one.

    It finds it four times out of five. None: not known, as nothing tells how far runs or rows move.
    """

    way: Way
    other: Way
    difference: float  # by how much the first scores higher, above 0
    seeds: int | None  # of each
    # Evaluation rows, or units where rows belong together, with so many seeds; where that is None
    # at least so many.
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Differences between ways that are more than the noise of seeds and rows, at 95 %."""

    # The ways of which one is the truly best, if it is none of the untested: the highest first.
    possible: tuple[Way, ...]
    untested: tuple[Way, ...]  # of which nothing tells how far seeds or rows would move them
    above_full: tuple[Way, ...]  # that score higher than the full model, the cheapest first
    below_full: tuple[Way, ...]  # that score lower
    counts_rows: bool  # whether it is known how far other evaluation rows would move the scores
    without_spread: tuple[Way, ...]  # of which nothing tells how far another seed would move them
    rerun: Rerun | None = None  # that would tell the best from the full model, or from the next


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRatio:
    """The best learning rate of a way, in those of the full model."""

    way: Way
    factor: float  # between the rates at which both were measured
    # Where the factor between the best of the tried rates lies at 95 %; None where too few seeds
    # tell how far single runs differ, or where exploring runs at two rates or more are not known.
    low: float | None = None
    high: float | None = None
    # Whether the best rate of either way, or one that may be it, is the lowest or highest tried.
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WayComparison:
    """All ways of one model, task and training size, and what was decided from them."""

    # Every way as a point; its `uncertainty` sees the seeds that were planned, and no others.
    curve: FreezeCurve = field(repr=False)
    target: float  # the share of the best way's quality to keep
    unit: Cost  # of `cost`
    ways: tuple[Way, ...] = ()  # measured ones, the cheapest first, then those of unknown cost
    claim: QualityClaimed | None = None  # of which quality; None where chance is not known
    best: Way | None = None  # the highest quality, of equal ones the cheapest
    # Ways that lack seeds which were planned, or scores of a table's runs: these are still to come,
    # or their trials broke off. Those without any score are not among `ways`.
    unfinished: tuple[CurvePoint, ...] = ()
    # Ways of which seeds failed, and which may for all that is known be far better than `best`.
    unsettled: tuple[Way, ...] = ()
    recommended: Way | None = None
    basis: WayBasis | None = None  # what speaks for it, or for all that may be the cheapest
    reason: Reason | None = None  # why there is no answer, or nothing is certified
    equivalence: Equivalence | None = None  # of the recommended way
    # What would probably certify the recommended way of what is claimed, and of the score itself;
    # None where it is certified, and where more of the same would not mend what is wrong.
    would_certify: WouldCertify | None = None
    score_would_certify: WouldCertify | None = None
    rate_ratios: tuple[RateRatio, ...] = ()  # of the best way of each method but freezing
    differences: Differences | None = None  # None where nothing tells how far noise goes
    # All that in words.
    first_lines: FirstLines = field(default_factory=lambda: FirstLines(""))
    warnings: tuple[AnswerWarning, ...] = ()

    def __repr__(self) -> str:
        what = f"{self.curve.model} on {self.curve.task}"
        if self.recommended is None:
            return f"WayComparison({what}: no way)"
        basis = str(self.basis).replace("_", " ")
        return f"WayComparison({what}: {self.recommended.candidate.label}, {basis})"

    def __str__(self) -> str:
        return str(self.first_lines)

    def _repr_markdown_(self) -> str:
        return self.first_lines.markdown

    @property
    def certified(self) -> tuple[Way, ...]:
        """The ways that are certified to keep the target, the cheapest first."""
        return tuple(way for way in self.ways if way.certified)

    @property
    def score_certified(self) -> tuple[Way, ...]:
        """The ways that are certified to keep it of the score itself."""
        return tuple(way for way in self.ways if way.score_certified)

    @property
    def good(self) -> tuple[Way, ...]:
        """The ways that keep the target on the comparison's basis, the cheapest first."""
        if self.basis is WayBasis.CERTIFIED:
            return self.certified
        measured = tuple(way for way in self.ways if way.reaches_target)
        if self.basis is WayBasis.SCORE_CERTIFIED:
            return tuple(way for way in measured if way.score_certified)
        return measured

    @property
    def is_answered(self) -> bool:
        """Whether ways that learnt were compared, though perhaps nothing is certified."""
        return self.best is not None and self.reason not in NO_ANSWER

    @property
    def pools_searches(self) -> bool:
        """Whether seeds of several searches, which planned their own, were put together."""
        rows = rows_of(self.ways)
        searches = {row.search_key for row in rows}
        return len(searches) > 1 and len(recorded_looks(rows)) > 0

    @property
    def has_single_runs(self) -> bool:
        """Whether each way ran once, so that nothing tells how far another run would differ."""
        return bool(self.ways) and all(way.point.seeds == 1 for way in self.ways)

    @property
    def claims_corrected(self) -> bool:
        """Whether the claim is of what is gained over chance."""
        return self.claim is QualityClaimed.CORRECTED


def way_curves(
    rows: Iterable[ResultRow],
    evidence: Evidence | None = None,
    *,
    train_sizes_apart: bool = True,
) -> list[FreezeCurve]:
    """Return all ways of each (model, task, train_size) as the points of a curve.

    Arguments and errors as of `freeze_curves`. Embeddings-only, which is never an answer, is left
    out.
    """
    judged: list[ResultRow] = []
    for row in rows:
        if row.candidate.is_tested:
            judged.append(_judged(row))
    groups = comparison_groups(judged)
    require_one_each(groups, _in_short, train_sizes_apart=train_sizes_apart)
    return [way_curve(group, evidence) for group in groups]


def way_curve(group: ResultGroup, evidence: Evidence | None = None) -> FreezeCurve:
    """Return the ways of one group; what is claimed of them rests on the planned seeds."""
    curve = freeze_curve(group, evidence)
    seeds = planned_seeds(group.rows)
    if seeds is None:
        return curve
    planned: dict[Candidate, tuple[MeasuredRun, ...]] = {}
    has_more = False
    for point in curve.points:
        if not point.qualities:
            continue
        runs = tuple(run for run in point.runs if run.row.seed in seeds)
        has_more = has_more or len(runs) < len(point.runs)
        if runs:
            planned[point.candidate] = runs
    if not has_more:
        return curve
    uncertainty = curve_uncertainty(group, planned, evidence, [])
    return replace(curve, uncertainty=uncertainty)


def _judged(row: ResultRow) -> ResultRow:
    """Return a row with the policy that its comparison is judged by.

    Searches of versions that compared nothing are judged by this version's.
    """
    if row.policy is None or row.policy.claim is not Claim.BOTH:
        return row
    return replace(row, policy=Policy())


def rows_of(ways: Iterable[Way]) -> list[ResultRow]:
    """Return the rows that the ways' means are of."""
    rows: list[ResultRow] = []
    for way in ways:
        for run in way.point.runs:
            rows.append(run.row)
    return rows


def recorded_looks(rows: Iterable[ResultRow]) -> list[Looks]:
    """Return the distinct planned looks of these rows."""
    distinct: dict[Looks, None] = {}
    for row in rows:
        if row.looks is not None:
            distinct[row.looks] = None
    return list(distinct)


def planned_seeds(rows: Iterable[ResultRow]) -> range | None:
    """Return the measuring seeds that a search planned for each way; None where none are known.

    Seeds that were added later, when the first results were known, decide nothing.
    """
    numbers: set[tuple[int, int]] = set()
    for looks in recorded_looks(rows):
        if not looks.are_planned or len(looks.counts) > 1:
            return None
        [seeds] = looks.counts
        numbers.add((looks.first_seed, seeds.depth))
    if len(numbers) != 1:
        return None
    [(first_seed, count)] = numbers
    return range(first_seed, first_seed + count)


def cost_of(point: CurvePoint, unit: Cost, latencies: Latencies) -> float | None:
    """Return what a way costs; None where it is not known."""
    if unit is Cost.TIME:
        return point.train_seconds
    if unit is Cost.MEMORY:
        return point.peak_memory_mb
    if unit is Cost.PARAMETERS:
        return point.trainable_parameters
    return latencies.get(unit, {}).get(point.candidate)


def _in_short(group: ResultGroup) -> str:
    """Write what a group of rows says, beside others that must not be pooled with it."""
    curve = freeze_curve(group)
    best = curve.best
    if best is None:
        return "nothing measured"
    ways = len(curve.with_quality)
    return f"{ways} ways, the best scores {points(best.quality)}"
