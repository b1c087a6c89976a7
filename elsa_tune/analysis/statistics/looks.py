"""Levels of planned looks: one error, spent over two tests of the same depth.

The second look has the seeds of the first and more. For means over growing samples the correlation
of both test statistics is sqrt(Var2 / Var1), at least sqrt(min(s1 / s2, r1 / r2)) with s seeds of
the depth and r of the full model; evaluation examples are common to both looks and only raise it.
The probability that either rejects falls with the correlation (Slepian 1962), so the least one
there can be is the worst case, and nothing has to be estimated. Pocock 1977 (Biometrika 64) is the
case of equal levels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

# The first look's share of the error: with most of the information there already, it has most.
FIRST_SHARE = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look that was taken.

    number: 1-based, of `planned` ones. level, half: the error that it may spend, one-sided, and
    that either end of a two-sided interval may. seeds, full_seeds: that it uses.
    """

    number: int
    planned: int
    seeds: int
    full_seeds: int
    level: float
    half: float


def levels(counts: Sequence[tuple[int, int]], error: float) -> tuple[float, ...]:
    """One-sided nominal levels of one or two looks, so that either rejects falsely with at most
    `error`.

    counts: for each look, seeds of the depth and of the full model, at least as many as before.
    """
    if len(counts) == 1:
        return (error,)
    (s1, r1), (s2, r2) = counts
    first = FIRST_SHARE * error
    return first, second_level(error, first, math.sqrt(min(s1 / s2, r1 / r2)))


def normal(z: float) -> float:
    """The standard normal distribution's share below z."""
    return math.erfc(-z / math.sqrt(2)) / 2


@functools.cache
def second_level(error: float, first: float, correlation: float) -> float:
    """The level of a second look: P(Z1 > z(first) or Z2 > z(second)) = error for normal Z."""
    from scipy.integrate import quad
    from scipy.optimize import brentq
    from scipy.special import ndtri

    if correlation >= 1:
        return error  # the same seeds once more: the same test
    z1, scale = -float(ndtri(first)), math.sqrt(1 - correlation**2)

    def density(z: float, z2: float) -> float:
        weight = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return weight * normal((z2 - correlation * z) / scale)

    def excess(z2: float) -> float:
        neither, _ = quad(density, -9.0, z1, args=(z2,), epsabs=1e-12)
        return 1 - float(neither) - error

    return normal(-float(brentq(excess, 0.0, 6.0, xtol=1e-12)))
