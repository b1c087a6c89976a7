"""How sure an answer is: what is certified, what is plausible, what would settle it.

Fixed-sequence testing: the hypotheses D_k <= 0 are tested each at 5 %, from the full model down to
ever fewer fine-tuned layers, until the first that is not rejected. The order is fixed beforehand,
so the family-wise error stays at 5 % without any correction (Maurer, Hothorn and Lehmacher 1995;
Westfall and Krishen 2001, J. Stat. Plan. Inference 99, 25-40). Over several tasks a k is certified
where each task's test rejects, an intersection-union test (Berger 1982, Technometrics 24, 295-300).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import replace

from elsa_tune.analysis.answer import Answer, Certified, Contrasts, Reason
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.statistics.looks import levels, normal
from elsa_tune.analysis.statistics.uncertainty import (
    CONFIDENCE,
    ENDS,
    FEWEST_SEEDS,
    Interval,
    Learnt,
    Spread,
    learnt,
)
from elsa_tune.analysis.target import ROUNDING

# A search with more seeds than this is not something to suggest.
MOST_SEEDS = 30

# An expected bound just above 0 is missed half the time. For four times out of five it must lie
# above by .84 standard errors, where the bound itself lies 1.64 below the value.
POWER_MARGIN = 0.84 / 1.64

PROCEDURE = "fixed-sequence testing from the full model down"


def certify(
    points: Sequence[CurvePoint], contrasts: Contrasts, *, learnt: bool, basis: str
) -> tuple[Certified | None, Reason | None]:
    """Test the points: the full model, then those with frozen layers in the order of testing.

    learnt: the full model is above chance at 95 %, which is D > 0 for k = L; else nothing is
    certified. basis: what the contrasts rest on, in words. The full model itself is what is
    certified where no frozen depth is. The reason says where nothing is, for want of seeds.
    """
    passed = full = points[0]
    if full.depth not in contrasts:
        return None, Reason.TOO_FEW_SEEDS
    if not learnt:
        return None, None
    for point in points[1:]:
        contrast = contrasts.get(point.depth)
        if contrast is None and passed is full:
            return None, Reason.TOO_FEW_SEEDS
        if contrast is None or contrast.lower <= ROUNDING:
            break
        passed = point
    certified = Certified(
        depth=passed.depth,
        fine_tuned_layers=passed.fine_tuned_layers,
        confidence=CONFIDENCE,
        procedure=f"{PROCEDURE}, by {basis}, if seeds fail no more often than here",
    )
    return certified, None


def plausible(points: Sequence[CurvePoint], contrasts: Contrasts) -> tuple[int, ...] | None:
    """The numbers of fine-tuned layers, among the points (as in `certify`), that may be the true
    answer, at 95 %.

    Half of the error goes to calling a depth too small that is not (its two-sided interval lies
    below 0), half to certifying one too small (as `certify`, at 97.5 %), so that the true answer is
    left out at most once in twenty times. None where a depth has too few seeds to tell.
    """
    if any(point.depth not in contrasts for point in points):
        return None
    full, *frozen = points
    largest = full.fine_tuned_layers
    for point in frozen:
        if contrasts[point.depth].low <= ROUNDING:
            break
        largest = point.fine_tuned_layers
    numbers = {
        point.fine_tuned_layers
        for point in points
        if point is full or contrasts[point.depth].high >= -ROUNDING
    }
    return tuple(sorted(number for number in numbers if number <= largest))


def verdict_on(curve: FreezeCurve) -> Learnt | None:
    """Whether the full model learnt; None where it was not measured."""
    full = curve.full
    if full is None or full.quality is None:
        return None
    known, spread = curve.uncertainty, None
    if known is not None and full.depth in known.runs and full.seeds > 1:
        spread = known.spread(full.depth)
    elif full.std is not None and full.seeds > 1:
        spread = Spread(variance=full.std**2 / full.seeds, freedom=full.seeds - 1)
    return learnt(
        full.quality,
        chance=curve.chance,
        spread=spread,
        examples=curve.examples,
        is_accuracy=curve.metric == "accuracy",
        example_variance=None if known is None else known.example_variance(full.depth),
    )


def with_certainty(answer: Answer, *, learnt: bool) -> Answer:
    """An answer that has an operating point, with all that is sure about it.

    learnt: the full model was found above chance at 95 %. `reason` is why nothing is certified.
    """
    full, target = answer.full, answer.target
    assert full is not None and answer.uncertainty is not None
    basis = answer.uncertainty.basis
    points = [full, *_tested(answer)]
    if len(points) == 1:
        return replace(answer, reason=Reason.LOOKS_NOT_PLANNED)
    raw = contrasts_of(answer, points, target)
    corrected = contrasts_of(answer, points, target, corrected=True)
    answer = replace(
        answer,
        contrasts={depth: one for depth, one in raw.items() if depth != full.depth},
        corrected_contrasts={depth: one for depth, one in corrected.items() if depth != full.depth},
    )
    if any(point.rates > 1 for point in points):
        return replace(answer, reason=Reason.RATES_NOT_FRESH)
    certified, reason = certify(points, raw, learnt=learnt, basis=basis)
    if certified is None and reason is None and answer.chance is None:
        reason = Reason.CHANCE_UNKNOWN
    answer = replace(
        answer,
        certified=certified,
        corrected_certified=certify(points, corrected, learnt=learnt, basis=basis)[0],
        plausible=plausible(points, raw) if learnt else None,
        reason=reason,
        open_look=_open_look(answer, points),
    )
    return _with_what_settles(answer, points) if learnt else answer


def _tested(curve: FreezeCurve) -> list[CurvePoint]:
    """The depths with frozen layers in the order of testing; [] where they were planned for other
    results.
    """
    measured = {point.depth: point for point in curve.measured if not point.depth.is_full_model}
    if curve.looks is None:
        return list(measured.values())
    return [measured[depth] for depth in curve.looks.order()]


def _open_look(answer: Answer, points: Sequence[CurvePoint]) -> bool:
    """Whether a planned look at the first depth that does not reject has not been taken."""
    if answer.looks is None:
        return False
    for point in points[1:]:
        contrast = answer.contrasts.get(point.depth)
        if contrast is not None and contrast.lower > ROUNDING:
            continue
        taken = 0 if contrast is None or contrast.look is None else contrast.look.number
        return 1 < len(answer.looks.of[point.depth].counts) > taken
    return False


def contrasts_of(
    curve: FreezeCurve,
    points: Sequence[CurvePoint],
    target: float,
    *,
    corrected: bool = False,
    tasks: int = 1,
) -> Contrasts:
    """D = (q_N - b) - target (q_0 - b) of points of a curve, above 0 where they reach the target;
    those with too few seeds are left out. b: 0, or chance where corrected. tasks: how many are
    asked about together.
    """
    found = {
        point.depth: _contrast(curve, point, target, corrected=corrected, tasks=tasks)
        for point in points
    }
    return {depth: one for depth, one in found.items() if one is not None}


def _contrast(
    curve: FreezeCurve, point: CurvePoint, target: float, *, corrected: bool, tasks: int
) -> Interval | None:
    full, known = curve.full, curve.uncertainty
    if full is None or known is None or min(point.seeds, full.seeds) < FEWEST_SEEDS:
        return None
    if curve.looks is None or point is full:
        low, high, lower = ENDS
        ends = low, 1 - (1 - high) / tasks, lower
        return known.contrast(point.depth, full.depth, target, corrected=corrected, ends=ends)
    contrast = None
    for look, seen in curve.looks.taken(point.depth):
        found = seen.contrast(
            point.depth,
            full.depth,
            target,
            corrected=corrected,
            ends=(look.half, 1 - look.half / tasks, look.level),
        )
        if found is None:
            continue  # so few seeds say nothing of their spread; the next look has more
        contrast = replace(found, look=look)
        if contrast.lower > ROUNDING:
            break  # what a later look would say cannot take it back
    return contrast


def second_look_promises(curve: FreezeCurve, point: CurvePoint, target: float) -> float:
    """The probability that a depth's second look would reject, if its contrast is what it seems to
    be; 0 where it has none.
    """
    full, looks = curve.full, curve.looks
    taken = [] if looks is None else looks.taken(point.depth)
    if full is None or looks is None or len(taken) != 1 or taken[0][0].planned < 2:
        return 0.0
    of, [(_, seen)] = looks.of[point.depth], taken
    level = levels(of.counts, of.error)[1]
    expected = seen.contrast(
        point.depth,
        full.depth,
        target,
        corrected=False,
        as_if_seeds=of.counts[1],
        ends=(level / 2, 1 - level / 2, level),
    )
    if expected is None:
        return 0.0
    now, then = (
        seen.spread(point.depth, here).variance
        + target**2 * seen.spread(full.depth, there).variance
        for here, there in of.counts
    )
    return normal(expected.lower / math.sqrt(max(now - then, 1e-12)))


def _with_what_settles(answer: Answer, points: Sequence[CurvePoint]) -> Answer:
    """With the seeds that would probably certify the operating point, or that examples forbid it;
    neither where it is certified, or too few seeds are there to tell.
    """
    raw, known, target = answer.operating_point, answer.uncertainty, answer.target
    assert raw is not None and known is not None
    full = points[0]
    steps = [point for point in points[1:] if point.fine_tuned_layers >= raw.fine_tuned_layers]
    if answer.certified is not None and answer.certified.depth == raw.depth:
        return answer
    # Too few seeds, or means, say nothing of how seeds spread.
    if not steps or any(point.depth not in answer.contrasts for point in steps):
        return answer

    def expected(seeds: int) -> list[Interval]:
        found = (
            known.contrast(
                point.depth, full.depth, target, corrected=False, as_if_seeds=(seeds, seeds)
            )
            for point in steps
        )
        return [one for one in found if one is not None]

    def certifies(seeds: int) -> bool:
        return all(
            one.lower - POWER_MARGIN * (one.value - one.allowance - one.lower) > 0
            for one in expected(seeds)
        )

    least = 1 + min(point.seeds for point in [full, *steps])
    if least <= MOST_SEEDS and certifies(MOST_SEEDS):
        # More seeds never hurt, so that the fewest are found by bisection.
        choices = range(least, MOST_SEEDS + 1)
        seeds = choices[bisect.bisect_left(choices, True, key=certifies)]
        return replace(answer, seeds_to_settle=seeds)
    endless = expected(10**6)
    examples_alone = all(one.value - one.allowance > 0 for one in endless)
    forbid = examples_alone and any(one.lower <= 0 for one in endless)
    return replace(answer, examples_forbid=forbid)
