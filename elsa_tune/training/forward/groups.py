"""Divides a batch into groups of similar length, so that little of the work is done on padding.

Which examples make up a batch, and so the gradient of its mean loss, stays the same: groups are
forwarded one by one and their gradients add up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def length_groups(
    lengths: Sequence[int] | NDArray[np.int64], largest: int, cost_of_a_group: int, power: int = 1
) -> list[NDArray[np.int64]]:
    """Positions [0, B) in groups whose padded size is least in all, shortest examples first.

    largest: examples in a group at most, >= 1. cost_of_a_group: of one more group, beside its
    tokens, in tokens. power: of a row's length, that its cost grows with (2 for attention; costs
    are then in tokens squared). Exact, by dynamic programming over the batch in order of length:
    O(B x largest). Ties keep the batch's order.
    """
    order = np.argsort(np.asarray(lengths), kind="stable")
    tallest = [int(lengths[position]) for position in order]
    # best[i]: least cost of the first i examples; first[i]: where their last group begins.
    best, first = [0], [0]
    for end in range(1, len(tallest) + 1):
        starts = range(max(0, end - largest), end)
        costs = [
            best[start] + (end - start) * tallest[end - 1] ** power + cost_of_a_group
            for start in starts
        ]
        cheapest = int(np.argmin(costs))
        best.append(costs[cheapest])
        first.append(starts[cheapest])
    groups: list[NDArray[np.int64]] = []
    end = len(tallest)
    while end > 0:
        groups.append(order[first[end] : end])
        end = first[end]
    return groups[::-1]
