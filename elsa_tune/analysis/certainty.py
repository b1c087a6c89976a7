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
from dataclasses import dataclass

from elsa_tune.analysis.answer import Certified, Contrast, Reason
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.planned import Look
from elsa_tune.analysis.statistics.looks import levels, normal
from elsa_tune.analysis.statistics.uncertainty import CONFIDENCE, ENDS, FEWEST_SEEDS, Interval
from elsa_tune.analysis.target import ROUNDING
from elsa_tune.specs.freeze import FreezeDepth

# A search with more seeds than this is not something to suggest.
MOST_SEEDS = 30

# An expected bound just above 0 is missed half the time. For four times out of five it must lie
# above by .84 standard errors, where the bound itself lies 1.64 below the value.
POWER_MARGIN = 0.84 / 1.64

PROCEDURE = "fixed-sequence testing from the full model down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One measured depth in the order of testing; contrast: None where it has too few seeds."""

    depth: FreezeDepth
    fine_tuned_layers: int
    contrast: Contrast | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certification:
    """certified: None where nothing is. lacks_seeds: because a depth has fewer than three seeds."""

    certified: Certified | None
    lacks_seeds: bool


def certify(steps: Sequence[Step], full: Step, *, learnt: bool, basis: str) -> Certification:
    """Test the depths with frozen layers, given in the order of testing (fewest frozen first).

    learnt: the full model is above chance at 95 %, which is D > 0 for k = L; else nothing is
    certified. basis: what the contrasts rest on, in words. The full model itself is what is
    certified where no frozen depth is.
    """
    if not learnt or full.contrast is None:
        return Certification(certified=None, lacks_seeds=full.contrast is None)
    passed = full
    lacks_seeds = False
    for step in steps:
        if step.contrast is None:
            lacks_seeds = True
            break
        if step.contrast.lower <= ROUNDING:
            break
        passed = step
    if passed is full and lacks_seeds:
        return Certification(certified=None, lacks_seeds=True)
    certified = Certified(
        depth=passed.depth,
        fine_tuned_layers=passed.fine_tuned_layers,
        confidence=CONFIDENCE,
        procedure=f"{PROCEDURE}, by {basis}, if seeds fail no more often than here",
    )
    return Certification(certified=certified, lacks_seeds=lacks_seeds)


def plausible(steps: Sequence[Step], full: Step) -> tuple[int, ...] | None:
    """The numbers of fine-tuned layers, among those measured, that may be the true answer, at 95 %.

    Half of the error goes to calling a depth too small that is not (its two-sided interval lies
    below 0), half to certifying one too small (as `certify`, at 97.5 %), so that the true answer is
    left out at most once in twenty times. None where a depth has too few seeds to tell.
    """
    if any(step.contrast is None for step in [*steps, full]):
        return None
    largest = full.fine_tuned_layers
    for step in steps:
        assert step.contrast is not None
        if step.contrast.low <= ROUNDING:
            break
        largest = step.fine_tuned_layers
    return tuple(
        sorted(
            step.fine_tuned_layers
            for step in [*steps, full]
            if step.fine_tuned_layers <= largest
            and (step is full or (step.contrast is not None and step.contrast.high >= -ROUNDING))
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """All that is sure about one curve's answer; fields as in Answer.

    reason: why nothing is certified. seeds_to_settle: how many measuring seeds a depth would
    certify the operating point in four of five cases, if they spread like those at hand; None where
    it is certified already, MOST_SEEDS would not do, or too few are at hand to tell.
    examples_forbid: no number of seeds would do, for the evaluation examples are too few.
    open_look: a planned look at the first depth that is not certified has not been taken.
    """

    certified: Certified | None = None
    corrected_certified: Certified | None = None
    plausible: tuple[int, ...] | None = None
    contrasts: tuple[Contrast, ...] = ()
    corrected_contrasts: tuple[Contrast, ...] = ()
    reason: Reason | None = None
    seeds_to_settle: int | None = None
    examples_forbid: bool = False
    open_look: bool = False


def certainty_of(
    curve: FreezeCurve, target: float, operating_point: CurvePoint, *, learnt: bool
) -> Certainty:
    """Judge the answer of a curve that has an operating point.

    learnt: the full model was found above chance at 95 %.
    """
    full = curve.full
    assert full is not None and curve.uncertainty is not None
    basis = curve.uncertainty.basis
    frozen = _tested(curve)
    if not frozen:
        return Certainty(reason=Reason.LOOKS_NOT_PLANNED)
    raw = [step_of(curve, point, target, corrected=False) for point in frozen]
    corrected = [step_of(curve, point, target, corrected=True) for point in frozen]
    contrasts = tuple(step.contrast for step in raw if step.contrast is not None)
    corrected_contrasts = tuple(step.contrast for step in corrected if step.contrast is not None)
    if any(point.rates > 1 for point in [full, *frozen]):
        return Certainty(
            contrasts=contrasts,
            corrected_contrasts=corrected_contrasts,
            reason=Reason.RATES_NOT_FRESH,
        )
    top = step_of(curve, full, target, corrected=False)
    found = certify(raw, top, learnt=learnt, basis=basis)
    for_chance = Certification(certified=None, lacks_seeds=False)
    if curve.chance is not None:
        corrected_top = step_of(curve, full, target, corrected=True)
        for_chance = certify(corrected, corrected_top, learnt=learnt, basis=basis)
    settle, forbidden = None, False
    certified_layers = None if found.certified is None else found.certified.fine_tuned_layers
    if learnt and certified_layers != operating_point.fine_tuned_layers:
        settle, forbidden = _what_settles(curve, target, operating_point, frozen)
    return Certainty(
        certified=found.certified,
        corrected_certified=for_chance.certified,
        plausible=plausible(raw, top) if learnt else None,
        contrasts=contrasts,
        corrected_contrasts=corrected_contrasts,
        reason=_why_not(curve, found),
        seeds_to_settle=settle,
        examples_forbid=forbidden,
        open_look=_open_look(curve, raw),
    )


def _tested(curve: FreezeCurve) -> list[CurvePoint]:
    """The depths with frozen layers in the order of testing; () where they were planned for other
    results.
    """
    measured = {point.depth: point for point in curve.measured if not point.depth.is_full_model}
    if curve.looks is None:
        return list(measured.values())
    return [measured[depth] for depth in curve.looks.order()]


def _open_look(curve: FreezeCurve, steps: Sequence[Step]) -> bool:
    if curve.looks is None:
        return False
    for step in steps:
        if step.contrast is not None and step.contrast.lower > ROUNDING:
            continue
        taken = (
            0 if step.contrast is None or step.contrast.look is None else step.contrast.look.number
        )
        return 1 < len(curve.looks.of[step.depth].counts) > taken
    return False


def _why_not(curve: FreezeCurve, found: Certification) -> Reason | None:
    if found.certified is not None:
        return None
    if found.lacks_seeds:
        return Reason.TOO_FEW_SEEDS
    return Reason.CHANCE_UNKNOWN if curve.chance is None else None


def step_of(
    curve: FreezeCurve, point: CurvePoint, target: float, *, corrected: bool, tasks: int = 1
) -> Step:
    """A depth of a curve with a full model, as fixed-sequence testing takes it. tasks: how many
    are asked about together.
    """
    return Step(
        depth=point.depth,
        fine_tuned_layers=point.fine_tuned_layers,
        contrast=_contrast(curve, point, target, corrected=corrected, tasks=tasks),
    )


def _contrast(
    curve: FreezeCurve, point: CurvePoint, target: float, *, corrected: bool, tasks: int
) -> Contrast | None:
    full, known = curve.full, curve.uncertainty
    if full is None or known is None or min(point.seeds, full.seeds) < FEWEST_SEEDS:
        return None
    if curve.looks is None or point is full:
        low, high, lower = ENDS
        ends = low, 1 - (1 - high) / tasks, lower
        found = known.contrast(point.depth, full.depth, target, corrected=corrected, ends=ends)
        return None if found is None else _as_contrast(point.depth, found, None)
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
        contrast = _as_contrast(point.depth, found, look)
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


def _as_contrast(depth: FreezeDepth, found: Interval, look: Look | None) -> Contrast:
    return Contrast(
        depth=depth,
        value=found.value,
        low=found.low,
        high=found.high,
        lower=found.lower,
        look=look,
    )


def _what_settles(
    curve: FreezeCurve, target: float, operating_point: CurvePoint, frozen: Sequence[CurvePoint]
) -> tuple[int | None, bool]:
    """Seeds that would probably certify the operating point, and whether examples forbid it."""
    full, known = curve.full, curve.uncertainty
    steps = [p for p in frozen if p.fine_tuned_layers >= operating_point.fine_tuned_layers]
    if full is None or known is None or not steps:
        return None, False
    if any(step_of(curve, point, target, corrected=False).contrast is None for point in steps):
        return None, False  # too few seeds, or means, say nothing of how seeds spread

    def expected(seeds: int) -> list[Interval]:
        assert full is not None and known is not None
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
        return choices[bisect.bisect_left(choices, True, key=certifies)], False
    endless = expected(10**6)
    examples_alone = all(one.value - one.allowance > 0 for one in endless)
    return None, examples_alone and any(one.lower <= 0 for one in endless)
