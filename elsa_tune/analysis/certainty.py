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
from elsa_tune.analysis.uncertainty import FEWEST_SEEDS

# A search with more seeds than this is not something to suggest.
MOST_SEEDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """All that is sure about one curve's answer; fields as in Answer.

    reason: why nothing is certified. seeds_to_settle: how many measuring seeds a depth would
    certify the operating point, if they spread like those at hand; None where it is certified
    already or MOST_SEEDS would not do. examples_forbid: no number of seeds would do, because the
    evaluation examples are too few.
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
        reason=Reason.TOO_FEW_SEEDS if found.certified is None and found.lacks_seeds else None,
        seeds_to_settle=settle,
        examples_forbid=forbidden,
    )


def step_of(curve: FreezeCurve, point: CurvePoint, target: float, *, corrected: bool) -> Step:
    """A depth of a curve with a full model, as fixed-sequence testing takes it."""
    return Step(
        depth=point.depth,
        fine_tuned_layers=point.fine_tuned_layers,
        contrast=_contrast(curve, point, target, corrected=corrected),
    )


def _contrast(
    curve: FreezeCurve, point: CurvePoint, target: float, *, corrected: bool
) -> Contrast | None:
    full, known = curve.full, curve.uncertainty
    if full is None or known is None or min(point.seeds, full.seeds) < FEWEST_SEEDS:
        return None
    found = known.contrast(point.depth, full.depth, target, corrected=corrected)
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
    """Seeds that would certify the operating point, and whether the examples forbid it."""
    full, known = curve.full, curve.uncertainty
    steps = [p for p in frozen if p.fine_tuned_layers >= operating_point.fine_tuned_layers]
    if full is None or known is None or not steps:
        return None, False

    def lower(point: CurvePoint, seeds: int) -> float | None:
        assert full is not None and known is not None
        found = known.contrast(point.depth, full.depth, target, corrected=False, as_if_seeds=seeds)
        return None if found is None else found.lower

    def certifies(seeds: int) -> bool:
        return all((bound := lower(point, seeds)) is not None and bound > 0 for point in steps)

    least = max(FEWEST_SEEDS, 1 + min(point.seeds for point in [full, *steps]))
    if least <= MOST_SEEDS and certifies(MOST_SEEDS):
        # More seeds never hurt, so that the fewest are found by bisection.
        choices = range(least, MOST_SEEDS + 1)
        return choices[bisect.bisect_left(choices, True, key=certifies)], False
    endless = known.examples is not None and any(
        (bound := lower(point, 10**6)) is not None and bound <= 0 for point in steps
    )
    return None, endless
