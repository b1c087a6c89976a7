"""The decision which way to adapt a model is the cheapest that keeps the target of the best.

The best is not known, so that way m is tested against every other way j, with D_mj = (q_m - b) -
t (q_j - b): the hypothesis that some D_mj is below 0 is rejected if each one is, and its p value is
the largest of theirs (intersection-union, Berger 1982, Technometrics 24, 295-300). Holm's procedure
over the ways keeps the family-wise error (Holm 1979, Scand. J. Statist. 6, 65-70).

What is weaker than the claim (the score itself, a lower target) is then tested of the ways that are
left, at the error divided by their number. The claim implies what is weaker, so that of each way
whose claim is false one event covers all false rejections, with a probability of at most the error
divided by the number of such ways: together they err in 5 %.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from elsa_tune.analysis.answer import Reason, check_target, quality_claimed, reaches
from elsa_tune.analysis.certainty import counts_too_few_units
from elsa_tune.analysis.comparing.differences import differences_of
from elsa_tune.analysis.comparing.rate_ratio import rate_ratios
from elsa_tune.analysis.comparing.ways import (
    COMPARED_TARGET,
    FEWEST_SEEDS,
    Equivalence,
    Way,
    WayBasis,
    WayComparison,
    cost_of,
    planned_seeds,
    recorded_looks,
    rows_of,
)
from elsa_tune.analysis.comparing.ways_forecast import would_certify
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.learnt import verdict_on_point
from elsa_tune.analysis.statistics.intervals import SAME_QUALITY
from elsa_tune.analysis.statistics.learning import Learnt
from elsa_tune.analysis.wording.comparison import comparison_lines
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.cost import Cost, Latencies

# Where other methods stand in the order: the full model is 0, N frozen layers are -N.
_BETWEEN_DEPTHS_AND_FULL = -0.5


class _Order(NamedTuple):
    """What ways are sorted by, one field after the other, each rising."""

    cost: float  # infinite where it is not known
    minus_quality: float  # of ways whose cost is known; else 0
    trained: float  # how little: from the most frozen layers over other methods to the full model
    minus_quality_last: float  # of ways whose cost is not known; else 0
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _PValues:
    """The p values of each way at one target."""

    claim: Mapping[Candidate, float]  # of what is claimed
    score: Mapping[Candidate, float]  # of the score itself


@dataclass(frozen=True, slots=True, kw_only=True)
class _Certificates:
    """What is certified of the ways."""

    tested: _PValues  # at the asked target
    claimed: frozenset[Candidate]  # to keep the target of what is claimed
    of_score: frozenset[Candidate]  # of the score itself


def compare_ways(
    curve: FreezeCurve,
    target: float = COMPARED_TARGET,
    unit: Cost = Cost.TIME,
    *,
    latencies: Latencies | None = None,
) -> WayComparison:
    """Compare the ways of one curve, as `ways.way_curves` gives them.

    latencies: of each way's exported model, for the units that results do not record. Raises
    UsageError for a target outside (0, 1].
    """
    check_target(target)
    ways = _measured_ways(curve, unit, latencies or {})
    comparison = WayComparison(
        curve=curve,
        target=target,
        unit=unit,
        ways=ways,
        claim=quality_claimed(curve),
        best=_best(ways),
        unfinished=_unfinished(curve, ways),
        warnings=curve.warnings,
    )
    comparison = _beside_the_best(comparison)
    reason = _why_no_answer(comparison)
    if reason is None:
        reason = _why_no_claim(comparison)
        if reason is None:
            comparison = _with_certificates(comparison)
        comparison = _with_recommendation(comparison)
        comparison = replace(
            comparison,
            rate_ratios=rate_ratios(comparison),
            differences=differences_of(comparison),
        )
    comparison = replace(comparison, reason=reason)
    comparison = _with_forecast(comparison)
    return replace(comparison, first_lines=comparison_lines(comparison))


def _measured_ways(curve: FreezeCurve, unit: Cost, latencies: Latencies) -> tuple[Way, ...]:
    """Return the ways that were measured, the cheapest first."""
    ways: list[Way] = []
    for point in curve.measured:
        way = Way(
            point=point,
            cost=cost_of(point, unit, latencies),
            latency=cost_of(point, Cost.LATENCY, latencies),
            bundle_latency=cost_of(point, Cost.BUNDLE, latencies),
        )
        ways.append(way)
    return tuple(sorted(ways, key=_cheapest_first))


def _unfinished(curve: FreezeCurve, ways: Sequence[Way]) -> tuple[CurvePoint, ...]:
    """Return the ways that lack planned seeds, or without any plan the scores of some runs."""
    rows = rows_of(ways)
    if not recorded_looks(rows):
        return curve.lacking_scores
    planned = planned_seeds(rows)
    if planned is None:
        return ()
    lacking: list[CurvePoint] = []
    for way in ways:
        there = {run.row.seed for run in way.point.runs}
        if not there.issuperset(planned):
            lacking.append(way.point)
    return tuple(lacking)


def _cheapest_first(way: Way) -> _Order:
    """Order by cost, of equal ones the highest score first; ways of unknown cost come last.

    What is left equal, and what has no known cost, goes by how little is trained: depths by their
    frozen layers, the most first, then other methods by their scores, the highest first, and the
    full model at the end. Labels decide only where all of that is equal.
    """
    candidate = way.candidate
    trained = -candidate.rank if candidate.is_depth else _BETWEEN_DEPTHS_AND_FULL
    minus_quality = -_quality(way)
    if way.cost is None:
        return _Order(
            cost=math.inf,
            minus_quality=0.0,
            trained=trained,
            minus_quality_last=minus_quality,
            label=candidate.label,
        )
    return _Order(
        cost=way.cost,
        minus_quality=minus_quality,
        trained=trained,
        minus_quality_last=0.0,
        label=candidate.label,
    )


def _best(ways: tuple[Way, ...]) -> Way | None:
    """Return the way with the highest quality, of equal ones the cheapest."""
    best: Way | None = None
    for way in ways:
        if best is None or _quality(way) > _quality(best):
            best = way
    return best


def _quality(way: Way) -> float:
    assert way.point.quality is not None  # a measured way has one
    return way.point.quality


def _beside_the_best(comparison: WayComparison) -> WayComparison:
    """Return the comparison with what each way keeps of the best one."""
    best = comparison.best
    if best is None:
        return comparison
    curve = comparison.curve
    chance = curve.chance
    best_quality = _quality(best)
    ways: list[Way] = []
    for way in comparison.ways:
        quality = _quality(way)
        kept = None
        if best_quality > SAME_QUALITY:
            kept = quality / best_quality
        gain_kept = None
        if chance is not None and best_quality - chance > curve.policy.at_chance:
            gain_kept = (quality - chance) / (best_quality - chance)
        base = chance or 0.0
        reaches_target = reaches(
            quality, best_quality, comparison.target, base, policy=curve.policy
        )
        beside = replace(way, kept=kept, gain_kept=gain_kept, reaches_target=reaches_target)
        ways.append(beside)
    return replace(comparison, ways=tuple(ways), best=_best(tuple(ways)))


def _why_no_answer(comparison: WayComparison) -> Reason | None:
    """Return why nothing can be recommended; None where something can."""
    best = comparison.best
    if best is None:
        return Reason.NO_MEASUREMENTS
    if len(comparison.ways) == 1:
        return Reason.ONE_WAY
    verdicts = {verdict_on_point(comparison.curve, way.point) for way in comparison.ways}
    if verdicts == {Learnt.NO}:
        return Reason.NO_WAY_LEARNT
    if comparison.curve.chance is None and _quality(best) <= SAME_QUALITY:
        return Reason.NO_WAY_ABOVE_ZERO
    return None


def _why_no_claim(comparison: WayComparison) -> Reason | None:
    """Return why nothing can be certified; None where something can."""
    curve = comparison.curve
    full = curve.full
    if comparison.has_single_runs:
        return Reason.TOO_FEW_SEEDS
    if curve.chance is None:
        return Reason.CHANCE_UNKNOWN
    if full is not None and verdict_on_point(curve, full) is Learnt.NO:
        return Reason.FULL_MODEL_DID_NOT_LEARN
    not_planned = _why_seeds_are_not_planned(comparison)
    if not_planned is not None:
        return not_planned
    if counts_too_few_units(curve, [curve.uncertainty]):
        return Reason.TOO_FEW_UNITS
    if any(way.point.measured_at_rates > 1 for way in comparison.ways):
        return Reason.RATES_NOT_FRESH
    if curve.judges_best_epochs:
        return Reason.EPOCHS_NOT_FRESH
    if comparison.unfinished:
        return Reason.SEEDS_MISSING
    if _has_too_few_seeds(comparison):
        return Reason.TOO_FEW_SEEDS
    if not curve.uncertainty.has_examples and not curve.policy.by_seeds_alone:
        return Reason.EXAMPLES_UNKNOWN
    if comparison.target > COMPARED_TARGET:
        return Reason.TARGET_NOT_PLANNED
    return None


def _why_seeds_are_not_planned(comparison: WayComparison) -> Reason | None:
    """Return why the number of seeds may depend on their results; None where it does not."""
    looks = recorded_looks(rows_of(comparison.ways))
    if any(planned.are_lost for planned in looks):
        return Reason.LOOKS_NOT_RECORDED
    if any(len(planned.counts) > 1 for planned in looks):
        return Reason.SEEDS_BY_RESULTS
    if not all(planned.are_planned for planned in looks):
        return Reason.NOT_PLANNED_TO_CERTIFY
    if comparison.pools_searches:
        return Reason.LOOKS_NOT_PLANNED
    return None


def _has_too_few_seeds(comparison: WayComparison) -> bool:
    """Whether some way has too few planned seeds, each a row of its own, to be compared."""
    runs = comparison.curve.uncertainty.runs
    for way in comparison.ways:
        of_way = runs.get(way.candidate)
        if of_way is None or of_way.count < FEWEST_SEEDS:
            return True
    return False


def _with_certificates(comparison: WayComparison) -> WayComparison:
    """Return the comparison with what is certified of each way."""
    certificates = _certificates(comparison)
    ways: list[Way] = []
    for way in comparison.ways:
        candidate = way.candidate
        judged = replace(
            way,
            p_value=certificates.tested.claim[candidate],
            certified=candidate in certificates.claimed,
            score_p_value=certificates.tested.score[candidate],
            score_certified=candidate in certificates.of_score,
        )
        ways.append(judged)
    comparison = replace(comparison, ways=tuple(ways), best=_best(tuple(ways)))
    return replace(comparison, unsettled=_unsettled(comparison))


def _unsettled(comparison: WayComparison) -> tuple[Way, ...]:
    """Return the ways with failed seeds beside which the best is not certain to keep the target.

    A seed that failed widens the interval of its way to both sides, so that one such way may keep
    everything from being certified.
    """
    best = comparison.best
    assert best is not None
    ways: list[Way] = []
    for way in comparison.ways:
        if way.candidate == best.candidate or not way.point.failed_seeds:
            continue
        p = comparison.curve.uncertainty.p_value(
            best.candidate,
            comparison.target,
            against=way.candidate,
            corrected=comparison.claims_corrected,
        )
        if p is not None and p >= comparison.curve.policy.error:
            ways.append(way)
    return tuple(ways)


def _certificates(comparison: WayComparison) -> _Certificates:
    """Return what is certified at the asked target, which is the planned one or lower."""
    error = comparison.curve.policy.error
    # Then the claim does not imply it, and nothing is certified of it.
    is_stronger_of_score = comparison.curve.score_is_stronger
    at_plan = _tested_at(comparison, COMPARED_TARGET)
    claimed = holm(at_plan.claim, error)
    # Of the ways whose claim is left, each is tested at its part of the error.
    left = len(at_plan.claim) - len(claimed)
    level = error / max(left, 1)
    tested = at_plan
    if comparison.target < COMPARED_TARGET:
        tested = _tested_at(comparison, comparison.target)
        in_order = tested.claim
        if not is_stronger_of_score:
            # The score at the planned target is tested before what is gained at a lower one.
            in_order = {
                candidate: max(p, at_plan.score[candidate]) for candidate, p in tested.claim.items()
            }
        claimed |= below(in_order, level)
    of_score: frozenset[Candidate] = frozenset()
    if not is_stronger_of_score:
        of_score = claimed | below(tested.score, level)
    return _Certificates(tested=tested, claimed=claimed, of_score=of_score)


def _tested_at(comparison: WayComparison, target: float) -> _PValues:
    """Return the p values of each way at a target."""
    score = _p_values(comparison, target, corrected=False)
    claim = score
    if comparison.claims_corrected:
        claim = _p_values(comparison, target, corrected=True)
    return _PValues(claim=claim, score=score)


def _p_values(
    comparison: WayComparison, target: float, *, corrected: bool
) -> dict[Candidate, float]:
    """Return for each way the largest of its p values against the others.

    1 for a way that was not found above chance: of nothing, nothing is kept.
    """
    curve = comparison.curve
    p_values: dict[Candidate, float] = {}
    for way in comparison.ways:
        if verdict_on_point(curve, way.point) is not Learnt.YES:
            p_values[way.candidate] = 1.0
            continue
        largest = 0.0
        for other in comparison.ways:
            if other.candidate == way.candidate:
                continue
            p = curve.uncertainty.p_value(
                way.candidate, target, against=other.candidate, corrected=corrected
            )
            largest = max(largest, 1.0 if p is None else p)
        p_values[way.candidate] = largest
    return p_values


def holm(p_values: Mapping[Candidate, float], error: float) -> frozenset[Candidate]:
    """Return whose hypotheses Holm's procedure rejects, with this family-wise error."""
    rejected: set[Candidate] = set()
    rising = sorted(p_values, key=lambda candidate: p_values[candidate])
    for place, candidate in enumerate(rising):
        left = len(rising) - place
        if p_values[candidate] * left >= error:
            break
        rejected.add(candidate)
    return frozenset(rejected)


def below(p_values: Mapping[Candidate, float], level: float) -> frozenset[Candidate]:
    """Return whose p values lie below a level."""
    return frozenset(candidate for candidate, p in p_values.items() if p < level)


def _with_recommendation(comparison: WayComparison) -> WayComparison:
    """Return the comparison with the cheapest way on the best basis that there is.

    None is recommended where several are as good and no cost of theirs is known.
    """
    for basis in WayBasis:
        comparison = replace(comparison, basis=basis)
        if comparison.good:
            break
    good = comparison.good
    priced = [way for way in good if way.cost is not None]
    if len(good) == 1:
        priced = list(good)
    if not priced:
        return comparison
    recommended = priced[0]
    return replace(
        comparison,
        recommended=recommended,
        equivalence=_equivalence(comparison, recommended),
    )


def _with_forecast(comparison: WayComparison) -> WayComparison:
    """Return the comparison with what would certify the recommended way that is not."""
    way = comparison.recommended
    if way is None or comparison.reason is not None:
        return comparison
    of_claim = None
    if not way.certified:
        of_claim = would_certify(comparison, way, corrected=comparison.claims_corrected)
    of_score = of_claim
    if way.score_certified or comparison.curve.score_is_stronger:
        of_score = None
    elif comparison.claims_corrected:
        of_score = would_certify(comparison, way, corrected=False)
    return replace(comparison, would_certify=of_claim, score_would_certify=of_score)


def _equivalence(comparison: WayComparison, way: Way) -> Equivalence | None:
    """Return by how much any other way may be better; None where nothing is certified.

    The largest of one-sided bounds, each of which has the complete error, is one for the best of
    the others, whichever it is. The error is divided by the number of ways because the results say
    which of them is asked about.
    """
    uncertainty = comparison.curve.uncertainty
    policy = comparison.curve.policy
    if way.p_value is None:
        return None
    most = -math.inf
    widest: Way | None = None
    for other in comparison.ways:
        if other.candidate == way.candidate:
            continue
        runs = uncertainty.runs
        fewest_seeds = min(runs[way.candidate].count, runs[other.candidate].count)
        level = policy.test_error(fewest_seeds) / len(comparison.ways)
        ends = (level / 2, 1 - level / 2, level)
        contrast = uncertainty.contrast(way.candidate, 1.0, against=other.candidate, ends=ends)
        if contrast is None:
            return None
        if -contrast.lower > most:
            most = -contrast.lower
            widest = other
    assert widest is not None  # there are two ways at least
    quality = _quality(way)
    gain = quality - (comparison.curve.chance or 0.0)
    may_lose = (1 - comparison.target) * gain
    # Where the measured score leaves less room than a way may lose, a bound of that much tells.
    room = max(1 - quality, may_lose)
    return Equivalence(
        way=way,
        most=max(most, 0.0),
        other=widest,
        nothing_from=min(room, gain),
    )
