"""Whether the best of some learning rates lies at the border of what was tried."""

import enum
from collections.abc import Mapping


class Border(enum.StrEnum):
    """Where the best rate lies among those that were tried."""

    LOW = "low"  # at the lowest: lower ones may be better
    HIGH = "high"  # at the highest, or nothing has learnt yet: higher ones may be better


def plateau(scores: Mapping[float, float], noise: float) -> tuple[float, float]:
    """The lowest and the highest rate whose score is the best one or lies within noise of it.

    scores: of the rates that ran to their end, one or more. noise: as in `Policy`, what
    one run scores above another by chance alone.
    """
    best = max(scores.values())
    alike = [rate for rate, score in scores.items() if score >= best - noise]
    return min(alike), max(alike)


def has_learnt(scores: Mapping[float, float], chance: float, noise: float) -> bool:
    """Whether any rate is better than a constant answer by more than noise."""
    return max(scores.values(), default=chance) > chance + noise


def border(
    tried: Mapping[float, float | None], chance: float | None, noise: float
) -> Border | None:
    """Where the best rate lies; None where rates on either side were tried and gained nothing.

    tried: the score of each rate, None where its trial diverged or was stopped early. chance: of a
    constant answer, None where it is not known.
    """
    scores = {rate: score for rate, score in tried.items() if score is not None}
    if not scores:
        return None
    if chance is not None and not has_learnt(scores, chance, noise):
        return Border.HIGH
    low, high = plateau(scores, noise)
    if low == max(tried):
        return Border.HIGH
    return Border.LOW if high == min(tried) else None
