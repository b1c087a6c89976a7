"""Whether the best of some learning rates lies at the border of what was tried."""

import enum
from collections.abc import Mapping


class Border(enum.StrEnum):
    """The place of the best rate among those that were tried, where it is at an end of them."""

    LOW = "low"  # at the lowest: lower ones may be better
    HIGH = "high"  # at the highest, or nothing has learnt yet: higher ones may be better


def plateau(scores: Mapping[float, float], noise: float) -> tuple[float, float]:
    """Return the lowest and the highest rate whose score lies within noise of the best one.

    scores: of the rates that ran to their end, one or more. noise: as in `Policy`, what
    one run scores above another by chance alone.
    """
    best = max(scores.values())
    least = best - noise
    alike: list[float] = []
    for rate, score in scores.items():
        if score >= least:
            alike.append(rate)
    return min(alike), max(alike)


def has_learnt(scores: Mapping[float, float], chance: float, noise: float) -> bool:
    """Return whether any rate is better than a constant answer by more than noise."""
    best = max(scores.values(), default=chance)
    return best > chance + noise


def border(
    tried: Mapping[float, float | None],
    chance: float | None,
    noise: float,
) -> Border | None:
    """Return where the best rate lies; None if rates on either side were tried and gained nothing.

    tried: the score of each rate, None where its trial diverged or was stopped early. chance: of a
    constant answer, None where it is not known.
    """
    scores: dict[float, float] = {}
    for rate, score in tried.items():
        if score is not None:
            scores[rate] = score
    if not scores:
        return None
    if chance is not None and not has_learnt(scores, chance, noise):
        return Border.HIGH
    lowest_best, highest_best = plateau(scores, noise)
    if lowest_best == max(tried):
        return Border.HIGH
    if highest_best == min(tried):
        return Border.LOW
    return None


def alike_ends(
    tried: Mapping[float, float | None],
    chance: float | None,
    noise: float,
) -> tuple[Border, ...]:
    """Return the ends of what was tried that score as well as the best rate, which is at neither.

    Rates beyond such an end may be better still. Arguments as of `border`; () where that tells one.
    """
    scores = {rate: score for rate, score in tried.items() if score is not None}
    if not scores or border(tried, chance, noise) is not None:
        return ()
    lowest_best, highest_best = plateau(scores, noise)
    ends: list[Border] = []
    if lowest_best == min(tried):
        ends.append(Border.LOW)
    if highest_best == max(tried):
        ends.append(Border.HIGH)
    return tuple(ends)
