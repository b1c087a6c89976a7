"""When a depth is good enough: it keeps the target share of the full model's quality."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.errors import UsageError
from elsa_tune.specs.freeze import FreezeDepth

DEFAULT_TARGET = 0.9

# .9 x q_0 computed in binary may miss an exact .9 x q_0 by 1e-17; no quality is known to 1e-9.
ROUNDING = 1e-9


def check_target(target: float) -> float:
    """Return a target above 0 and up to 1, else raise UsageError."""
    if not (math.isfinite(target) and 0 < target <= 1):
        hint = f"; for {target:g} % write {target / 100:g}" if 2 <= target <= 100 else ""
        raise UsageError(f"target is {target:g}; it must be above 0 and up to 1{hint}")
    return target


def reaches(quality: float, full: float, target: float, base: float = 0.0) -> bool:
    """Is the contrast D = (q_N - b) - target (q_0 - b) at least 0? b: 0 raw, chance corrected.

    The contrast, not the ratio: it keeps its meaning where q_0 - b is small or negative.
    """
    return (quality - base) - target * (full - base) >= -ROUNDING


def passing(
    curve: FreezeCurve, target: float, *, corrected: bool = False
) -> frozenset[FreezeDepth]:
    """The measured depths that reach the target; corrected, none where chance is not known."""
    full = curve.full
    base = curve.chance if corrected else 0.0
    if full is None or full.quality is None or base is None:
        return frozenset()
    return frozenset(
        point.depth
        for point in curve.measured
        if point.quality is not None and reaches(point.quality, full.quality, target, base)
    )


def smallest(points: Sequence[CurvePoint], depths: Collection[FreezeDepth]) -> CurvePoint | None:
    """Of the points, the full model first, the last at these depths: the fewest layers tuned."""
    return next((point for point in reversed(points) if point.depth in depths), None)


def failing_above(
    points: Sequence[CurvePoint], depths: Collection[FreezeDepth], fine_tuned_layers: int
) -> tuple[CurvePoint, ...]:
    """The points with more fine-tuned layers than given whose depth is not among `depths`."""
    return tuple(
        point
        for point in points
        if point.fine_tuned_layers > fine_tuned_layers and point.depth not in depths
    )
