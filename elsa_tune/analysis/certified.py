"""Which numbers of fine-tuned layers surely keep the target, and which may be the answer.

Fixed-sequence testing: the hypotheses D_k <= 0 are tested each at 5 %, from the full model down to
ever fewer fine-tuned layers, until the first that is not rejected. The order is fixed beforehand,
so the family-wise error stays at 5 % without any correction (Maurer, Hothorn and Lehmacher 1995;
Westfall and Krishen 2001, J. Stat. Plan. Inference 99, 25-40). Over several tasks a k is certified
where each task's test rejects, an intersection-union test (Berger 1982, Technometrics 24, 295-300).

It must not know where the contrasts came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import Certified, Contrast
from elsa_tune.analysis.statistics.uncertainty import CONFIDENCE
from elsa_tune.analysis.target import ROUNDING
from elsa_tune.specs.freeze import FreezeDepth

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
