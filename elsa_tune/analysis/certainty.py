"""How sure an answer is: contrasts, what is certified, what is plausible, what would settle it.

It must not put anything into words; `certainty_sentences` does.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import Certified, Contrast, Reason
from elsa_tune.analysis.certified import Certification, Step, certify, plausible
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.statistics.uncertainty import FEWEST_SEEDS, Interval

# A search with more seeds than this is not something to suggest.
MOST_SEEDS = 30

# An expected bound just above 0 is missed half the time. For four times out of five it must lie
# above by .84 standard errors, where the bound itself lies 1.64 below the value.
POWER_MARGIN = 0.84 / 1.64


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """All that is sure about one curve's answer; fields as in Answer.

    reason: why nothing is certified. seeds_to_settle: how many measuring seeds a depth would
    certify the operating point in four of five cases, if they spread like those at hand; None where
    it is certified already, MOST_SEEDS would not do, or too few are at hand to tell.
    examples_forbid: no number of seeds would do, for the evaluation examples are too few.
    """

    certified: Certified | None = None
    corrected_certified: Certified | None = None
    plausible: tuple[int, ...] | None = None
    contrasts: tuple[Contrast, ...] = ()
    corrected_contrasts: tuple[Contrast, ...] = ()
    reason: Reason | None = None
    seeds_to_settle: int | None = None
    examples_forbid: bool = False


def certainty_of(
    curve: FreezeCurve, target: float, operating_point: CurvePoint, *, learnt: bool
) -> Certainty:
    """Judge the answer of a curve that has an operating point.

    learnt: the full model was found above chance at 95 %.
    """
    full = curve.full
    assert full is not None and curve.uncertainty is not None
    basis = curve.uncertainty.basis
    frozen = [point for point in curve.measured if not point.depth.is_full_model]
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
    )


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
    found = known.contrast(point.depth, full.depth, target, corrected=corrected, tasks=tasks)
    if found is None:
        return None
    return Contrast(
        depth=point.depth,
        value=found.value,
        low=found.low,
        high=found.high,
        lower=found.lower,
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
            known.contrast(point.depth, full.depth, target, corrected=False, as_if_seeds=seeds)
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
