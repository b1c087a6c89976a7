"""Length groups: every example once, never more padding than one group.

And the best division there is.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from elsa_tune.training.forward.packed import length_buckets


def cost(lengths: list[int], groups: list[list[int]], each: int) -> int:
    return sum(len(group) * max(lengths[i] for i in group) + each for group in groups)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("largest", "each"), [(16, 0), (16, 16), (4, 16), (1, 16), (16, 10_000)])
def test_every_example_once_and_groups_within_their_size(
    seed: int, largest: int, each: int
) -> None:
    lengths = np.random.default_rng(seed).integers(3, 90, 16).tolist()
    groups = length_buckets(lengths, largest, each)
    assert sorted(int(i) for group in groups for i in group) == list(range(16))
    assert max(len(group) for group in groups) <= largest


def test_it_is_the_cheapest_of_all_divisions() -> None:
    lengths = [5, 40, 7, 9, 38, 6, 41]
    order = sorted(range(7), key=lambda i: lengths[i])
    found = [[int(i) for i in group] for group in length_buckets(lengths, 7, 16)]
    divisions = []
    for cuts in itertools.product([False, True], repeat=6):
        groups = [[order[0]]]
        for index, cut in zip(order[1:], cuts, strict=True):
            if cut:
                groups.append([])
            groups[-1].append(index)
        divisions.append(cost(lengths, groups, 16))
    assert cost(lengths, found, 16) == min(divisions)
    assert found == [[0, 5, 2, 3], [4, 1, 6]]


def test_equal_lengths_and_costly_groups_stay_together() -> None:
    assert len(length_buckets([9] * 16, 16, 1)) == 1
    assert len(length_buckets([5, 50, 100], 16, 10_000)) == 1
