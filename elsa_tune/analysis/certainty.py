"""How sure an answer is: what is certified, what is plausible, what would settle it.

Fixed-sequence testing: the hypotheses D_k <= 0 are tested each at 5 %, from the full model down,
until the first that is not rejected, which keeps the family-wise error at 5 % (Maurer, Hothorn and
Lehmacher 1995; Westfall and Krishen 2001, J. Stat. Plan. Inference 99, 25-40). Over several tasks
an intersection-union test (Berger 1982, Technometrics 24, 295-300): each task's must reject.
"""

import bisect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from elsa_tune.analysis.answer import (
    Answer,
    Certified,
    Contrasts,
    QualityClaimed,
    Reason,
    quality_claimed,
)
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.evidence import NORMAL, levels
from elsa_tune.analysis.statistics import uncertainty
from elsa_tune.analysis.statistics.uncertainty import Interval, Learnt, Spread
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import REFERENCE
from elsa_tune.specs.policy import Claim, Policy
from elsa_tune.specs.task import Metric

# A search with more seeds than this is not something to suggest.
MOST_SEEDS = 30

# So many that only the examples limit what is known.
ENDLESS_SEEDS = 10**6

# An expected bound just above 0 is missed half the time. For four times out of five it must lie
# above by .84 standard errors, where the bound itself lies 1.64 below the value.
POWER_MARGIN = 0.84 / 1.64

PROCEDURE = "fixed-sequence testing from the full model down"


def certify(
    points: Sequence[CurvePoint],
    contrasts: Contrasts,
    *,
    learnt: bool,
    basis: str,
    policy: Policy,
    certain: Collection[Candidate] | None = None,
) -> tuple[Certified | None, Reason | None]:
    """Test the points: the full model, then those with frozen layers in the order of testing.

    learnt: the full model is above chance at 95 %, which is D > 0 for k = L; else nothing is
    certified. basis: what the contrasts rest on, in words. certain: the depths that count; None for
    those that `rejected` finds. The full model itself is what is certified where no frozen depth
    is. The reason says where nothing is, for want of seeds.
    """
    full, *frozen = points
    if full.candidate not in contrasts:
        return None, Reason.TOO_FEW_SEEDS
    if not learnt:
        return None, None
    if frozen and frozen[0].candidate not in contrasts:
        return None, Reason.TOO_FEW_SEEDS
    passed = full
    if certain is None:
        certain = rejected(points, contrasts, policy)
    for point in frozen:
        if point.candidate not in certain:
            break
        passed = point
    certified = Certified(
        candidate=passed.candidate,
        fine_tuned_layers=passed.fine_tuned_layers,
        confidence=policy.confidence,
        procedure=f"{PROCEDURE}, by {basis}, if seeds fail no more often than here",
    )
    return certified, None


def rejected(
    points: Sequence[CurvePoint],
    contrasts: Contrasts,
    policy: Policy,
    *,
    planned: Contrasts | None = None,
) -> list[Candidate]:
    """Return the depths whose hypotheses are rejected, in their order; points as in `certify`.

    planned: the contrasts at the target that the search was planned for, where that is higher. Both
    targets are one sequence then: at each depth the lower target is tested before the planned one,
    and the first that is not rejected ends it. What is rejected at a target is so at every lower
    one, so that below the planned target a single depth more may be certified (Hsu and Berger
    1999, J. Am. Stat. Assoc. 94, 468-482).
    """
    passed: list[Candidate] = []
    for point in points[1:]:
        is_certain = _is_above(contrasts.get(point.candidate), policy)
        goes_on = is_certain
        if planned is not None:
            goes_on = _is_above(planned.get(point.candidate), policy)
        if not is_certain and not goes_on:
            break
        passed.append(point.candidate)
        if not goes_on:
            break
    return passed


def _is_above(contrast: Interval | None, policy: Policy) -> bool:
    """Whether a depth keeps the target with the confidence that is asked."""
    return contrast is not None and contrast.lower > policy.rounding


def plausible(
    points: Sequence[CurvePoint],
    contrasts: Contrasts,
    policy: Policy,
    reached: Collection[Candidate] | None = None,
) -> tuple[Candidate, ...] | None:
    """Return which points' depths may be the true answer, at 95 %; points as in `certify`.

    Half of the error goes to calling a depth too small that is not (its two-sided interval lies
    below 0), half to certifying one too small (`certify` at 97.5 %). None with too few seeds.
    reached: the depths that may count as certified; None for all.
    """
    if any(point.candidate not in contrasts for point in points):
        return None
    full, *frozen = points
    deepest = full.candidate  # that is certified at 97.5 %
    for point in frozen:
        is_reached = reached is None or point.candidate in reached
        if not is_reached or contrasts[point.candidate].low <= policy.rounding:
            break
        deepest = point.candidate
    possible: list[Candidate] = []
    for point in points:
        is_too_large = point.candidate.rank < deepest.rank
        is_too_small = point is not full and contrasts[point.candidate].high < -policy.rounding
        if not is_too_large and not is_too_small:
            possible.append(point.candidate)
    return tuple(sorted(possible, reverse=True))


def verdict_on(curve: FreezeCurve) -> Learnt | None:
    """Whether the full model learnt; None where it was not measured."""
    full = curve.full
    uncertainty_of = curve.uncertainty
    if full is None or full.quality is None:
        return None
    spread = None
    variance = uncertainty_of.example_variance(full.candidate)
    if full.seeds > 1 and full.candidate in uncertainty_of.runs:
        spread = uncertainty_of.spread(full.candidate)
    elif full.seeds > 1 and full.std is not None:
        spread = Spread(variance=full.std**2 / full.seeds, freedom=full.seeds - 1)
    metric = Metric.named(curve.metric)
    is_share = metric is not None and metric.is_share
    if variance is None and curve.examples is not None and is_share:
        # Of a share of the examples their number tells how far it can be trusted.
        variance = full.quality * (1 - full.quality) / curve.examples
    variance = max(variance or 0.0, 0.0)
    return uncertainty.learnt(
        full.quality,
        chance=curve.chance,
        spread=spread,
        example_variance=variance,
        policy=curve.policy,
    )


def with_certainty(answer: Answer, *, learnt: bool) -> Answer:
    """Return the answer with how sure it is; `reason` says why nothing is certified.

    answer: one with an operating point. learnt: the full model was found above chance at 95 %.
    """
    if answer.looks is not None and not answer.looks.are_planned:
        return replace(answer, reason=Reason.NOT_PLANNED_TO_CERTIFY)
    points = points_tested(answer)
    if len(points) == 1:
        is_planned = answer.looks is not None and answer.looks.by_candidate
        why = Reason.TOO_FEW_SEEDS if is_planned else Reason.LOOKS_NOT_PLANNED
        return replace(answer, reason=why)
    raw = contrasts_of(answer, points, answer.target, corrected=False)
    corrected = contrasts_of(answer, points, answer.target, corrected=True)
    answer = replace(
        answer,
        contrasts=_of_frozen(raw),
        corrected_contrasts=_of_frozen(corrected),
        claim=quality_claimed(answer),
    )
    if any(point.rates > 1 for point in points):
        return replace(answer, reason=Reason.RATES_NOT_FRESH)
    if is_above_plan(answer):
        return replace(answer, reason=Reason.TARGET_NOT_PLANNED)
    certified, reason = _certified(answer, points, learnt=learnt, corrected=False)
    if certified is None and reason is None and answer.chance is None:
        reason = Reason.CHANCE_UNKNOWN
    corrected_certified, _ = _certified(answer, points, learnt=learnt, corrected=True)
    answer = replace(
        answer,
        certified=certified,
        corrected_certified=corrected_certified,
        reason=reason,
        open_look=_open_look(answer, points),
    )
    if not learnt:
        return answer
    claimed = corrected if answer.claims_corrected else raw
    answer = replace(answer, plausible_candidates=plausible(points, claimed, answer.policy))
    return _with_what_settles(answer, points)


def _certified(
    answer: Answer, points: Sequence[CurvePoint], *, learnt: bool, corrected: bool
) -> tuple[Certified | None, Reason | None]:
    """Return what is certified of an answer's points, as `certify` does."""
    return certify(
        points,
        contrasts_of(answer, points, answer.target, corrected=corrected),
        learnt=learnt,
        basis=answer.uncertainty.basis,
        policy=answer.policy,
        certain=certified_in_order(answer, corrected=corrected),
    )


def certified_in_order(
    answer: Answer, *, corrected: bool, two_sided: bool = False
) -> list[Candidate]:
    """Return the frozen depths that an answer's own tests certify, one after the other.

    two_sided: at 97.5 % instead of 95 %.
    """
    points = points_tested(answer)
    contrasts = contrasts_of(answer, points, answer.target, corrected=corrected)
    planned = contrasts_as_planned(answer, points, corrected=corrected)
    if two_sided:
        contrasts = _at_low(contrasts)
        planned = None if planned is None else _at_low(planned)
    return rejected(points, contrasts, answer.policy, planned=planned)


def _at_low(contrasts: Contrasts) -> dict[Candidate, Interval]:
    """Return contrasts whose one-sided bound is the lower end of the two-sided interval."""
    at_low: dict[Candidate, Interval] = {}
    for candidate, contrast in contrasts.items():
        at_low[candidate] = replace(contrast, lower=contrast.low)
    return at_low


def _planned_target(answer: Answer) -> float:
    """Return the target that an answer's search was planned for; its own where none was."""
    looks = answer.looks
    if looks is None or looks.own_target is None or answer.policy.claim is Claim.BOTH:
        return answer.target
    return looks.own_target


def is_above_plan(answer: Answer) -> bool:
    """Whether an answer's target is higher than the one that its search was planned for."""
    return answer.target > _planned_target(answer)


def contrasts_as_planned(
    answer: Answer, points: Sequence[CurvePoint], *, corrected: bool
) -> Contrasts | None:
    """Return the contrasts at the planned target, where the answer has a lower one; else None."""
    planned_target = _planned_target(answer)
    if answer.target >= planned_target:
        return None
    return contrasts_of(answer, points, planned_target, corrected=corrected)


def points_tested(answer: Answer) -> list[CurvePoint]:
    """Return the full model's point and those that are tested, in the order of testing.

    The latter are none where they were planned for other results than these.
    """
    full = answer.full
    assert full is not None  # an answer with an operating point has one
    if answer.looks is None:
        return list(answer.measured)
    measured = {point.candidate: point for point in answer.measured}
    tested = [measured[candidate] for candidate in answer.looks.order()]
    return [full, *tested]


def contrasts_of(
    answer: Answer, points: Sequence[CurvePoint], target: float, *, corrected: bool
) -> dict[Candidate, Interval]:
    """Return the contrast of each point that has seeds enough for one."""
    contrasts: dict[Candidate, Interval] = {}
    for point in points:
        contrast = contrast_of(answer, point.candidate, target, corrected=corrected)
        if contrast is not None:
            contrasts[point.candidate] = contrast
    return contrasts


def _of_frozen(contrasts: Mapping[Candidate, Interval]) -> dict[Candidate, Interval]:
    """Return the contrasts less that of the full model with itself."""
    of_frozen = dict(contrasts)
    of_frozen.pop(REFERENCE, None)
    return of_frozen


def _open_look(answer: Answer, points: Sequence[CurvePoint]) -> bool:
    """Whether the first depth that does not reject has a planned look left that might."""
    if answer.looks is None or answer.looks.own_target not in (None, answer.target):
        return False
    for point in points[1:]:
        contrast = answer.claimed_contrasts.get(point.candidate)
        if contrast is None:
            return len(answer.looks.by_candidate[point.candidate].counts) > 1
        if contrast.lower <= answer.policy.rounding:
            promise = second_look_promises(answer, point.candidate, answer.target)
            return promise >= answer.policy.no_promise
    return False


def contrast_of(
    curve: FreezeCurve,
    candidate: Candidate,
    target: float,
    *,
    corrected: bool = False,
    tasks: int = 1,
) -> Interval | None:
    """Return D = (q_N - b) - target (q_0 - b), above 0 where the depth reaches the target.

    None with too few seeds. b: 0, or chance where corrected. tasks: how many are asked about
    together.
    """
    if curve.looks is None or candidate.is_reference:
        half, _, level = curve.policy.ends
        ends = (half, 1 - half / tasks, level)
        return curve.uncertainty.contrast(candidate, target, corrected=corrected, ends=ends)
    latest = None
    for look, seen in curve.looks.taken(candidate):
        ends = (look.half, 1 - look.half / tasks, look.level)
        contrast = seen.contrast(candidate, target, corrected=corrected, ends=ends)
        if contrast is None:
            continue  # so few seeds say nothing of their spread; the next look has more
        latest = replace(contrast, look=look)
        if latest.lower > curve.policy.rounding:
            break  # what a later look would say cannot take it back
    return latest


def claimed_contrast(curve: FreezeCurve, candidate: Candidate, target: float) -> Interval | None:
    """Return the contrast that the curve's search claims; as `contrast_of`."""
    corrected = quality_claimed(curve) is QualityClaimed.CORRECTED
    return contrast_of(curve, candidate, target, corrected=corrected)


def second_look_promises(curve: FreezeCurve, candidate: Candidate, target: float) -> float:
    """Return the probability that the second look would reject, from the claimed contrast now."""
    if curve.looks is None:
        return 0.0
    taken = curve.looks.taken(candidate)
    if len(taken) != 1:
        return 0.0
    [(first_look, seen)] = taken
    if first_look.planned < 2:
        return 0.0
    planned = curve.looks.by_candidate[candidate]
    _, level = levels(planned.counts, planned.error, curve.policy.first_look_share)
    ends = (level / 2, 1 - level / 2, level)
    expected = seen.contrast(
        candidate,
        target,
        corrected=quality_claimed(curve) is QualityClaimed.CORRECTED,
        as_if_seeds=planned.counts[1],
        ends=ends,
    )
    if expected is None:
        return 0.0
    variances: list[float] = []
    for seeds, full_seeds in planned.counts:
        of_depth = seen.spread(candidate, seeds).variance
        of_full = seen.spread(REFERENCE, full_seeds).variance
        variances.append(of_depth + target**2 * of_full)
    now, then = variances
    # By how much, one standard deviation, the contrast may move until then.
    step = math.sqrt(max(now - then, 1e-12))
    return NORMAL.cdf(expected.lower / step)


def _with_what_settles(answer: Answer, points: Sequence[CurvePoint]) -> Answer:
    """Add the seeds that would probably certify the claimed operating point.

    Or that examples forbid it.
    """
    full = points[0]
    chosen = answer.claimed_point or answer.operating_point
    assert chosen is not None
    if answer.claimed is not None and answer.claimed.candidate == chosen.candidate:
        return answer
    steps: list[CurvePoint] = []  # all that must reject before the operating point is certified
    for point in points[1:]:
        if point.candidate.rank > chosen.candidate.rank:
            continue
        if point.candidate not in answer.claimed_contrasts:
            return answer  # too few seeds, or means, say nothing of how seeds spread
        steps.append(point)
    if not steps:
        return answer
    fewest = _fewest_seeds(answer, [full, *steps], steps)
    if fewest is not None:
        return replace(answer, seeds_to_settle=fewest)
    endless = _expected(answer, steps, ENDLESS_SEEDS)
    would_be_above = all(contrast.value - contrast.allowance > 0 for contrast in endless)
    examples_forbid = would_be_above and any(contrast.lower <= 0 for contrast in endless)
    return replace(answer, examples_forbid=examples_forbid)


def _fewest_seeds(
    answer: Answer, measured: Sequence[CurvePoint], steps: Sequence[CurvePoint]
) -> int | None:
    """Return the seeds a depth that would probably certify every step, more than any has now.

    None where MOST_SEEDS would not.
    """

    def certifies(seeds: int) -> bool:
        expected = _expected(answer, steps, seeds)
        return all(_is_probably_above(contrast) for contrast in expected)

    fewest_now = min(point.seeds for point in measured)
    choices = range(fewest_now + 1, MOST_SEEDS + 1)
    if not choices or not certifies(MOST_SEEDS):
        return None
    # More seeds never hurt, so that the fewest are found by bisection.
    return choices[bisect.bisect_left(choices, True, key=certifies)]


def _expected(answer: Answer, points: Sequence[CurvePoint], seeds: int) -> list[Interval]:
    """Return the points' contrasts as this number of seeds of each would probably give them."""
    contrasts: list[Interval] = []
    for point in points:
        contrast = answer.uncertainty.contrast(
            point.candidate,
            answer.target,
            corrected=answer.claims_corrected,
            as_if_seeds=(seeds, seeds),
        )
        if contrast is not None:
            contrasts.append(contrast)
    return contrasts


def _is_probably_above(contrast: Interval) -> bool:
    """Whether a lower end would lie above 0 with a margin for the luck of the seeds."""
    half_width = contrast.value - contrast.allowance - contrast.lower
    return contrast.lower - POWER_MARGIN * half_width > 0
