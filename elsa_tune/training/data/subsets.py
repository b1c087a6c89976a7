"""Random orders of rows that mirror all of them, and the shares that are held out.

E is the number of rows of a split.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import DataError
from elsa_tune.specs.task import TaskSpec
from elsa_tune.training.data.keys import Keys, numbered
from elsa_tune.training.data.tokens import IndexArray

# Streams of randomness that must not follow one another.
SUBSET = 0
EVALUATION = 1
SELECTION = 2


def stratified_order(strata: IndexArray, seed: int, stream: int = SUBSET) -> IndexArray:
    """Order the rows [E] so that every prefix mirrors all of them: subsets by prefix are nested.

    strata: of each row, as its type of task has them. Within a stratum
    the order is random; a stratum of n rows has its r-th row at place (r + 1/2) / n, so that a
    prefix of K rows holds K n / E of them, give or take one. The same everywhere for one seed.
    """
    shuffled = permutation(len(strata), seed, stream)
    strata = strata[shuffled]
    rank, sizes = _ranks(strata)
    place = (rank + 0.5) / sizes[strata]
    # Equal places (strata of one size) keep the shuffled order, which is random.
    order = np.argsort(place, kind="stable")
    return shuffled[order].astype(np.int64)


def permutation(count: int, seed: int, stream: int) -> NDArray[Any]:
    """Return 0..count-1 in a random order, the same everywhere for one seed and stream."""
    # RandomState and SeedSequence: the streams that numpy promises never to change (NEP 19).
    sequence = np.random.SeedSequence([seed, stream])
    bits = np.random.MT19937(sequence)
    return np.random.RandomState(bits).permutation(count)


def _ranks(strata: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return each row's place within its stratum [E], from 0; and the rows of each stratum."""
    by_stratum = np.argsort(strata, kind="stable")
    sizes = np.bincount(strata)
    starts = np.cumsum(sizes) - sizes  # of each stratum, among the rows by stratum
    start_of_row = starts[strata[by_stratum]]
    rank = np.empty_like(by_stratum)
    rank[by_stratum] = np.arange(len(strata)) - start_of_row
    return rank, sizes


def held_out_rows(
    strata: IndexArray,
    share: float,
    places_of_bins: IndexArray | None,
) -> NDArray[np.bool_]:
    """Return which of the rows, a prefix of `stratified_order`, are held out.

    strata: of these rows, as all training rows have them. Within a stratum every 1/share-th row in
    the order, so that a larger prefix holds out what a smaller one does, and more. Of each class
    the nearest whole number. Bins of values are too small to be rounded alike: each begins at one
    of the `places_of_bins`, 0.. in a random order; None for strata that are no such bins.
    """
    rank, sizes = _ranks(strata)
    start = np.full(len(sizes), 0.5)
    if places_of_bins is not None:
        bins = len(places_of_bins)
        starts = (places_of_bins + 0.5) / bins
        start = starts[: len(sizes)]
    start_of_row = start[strata]
    # How many of a stratum are held out before each row, and with it.
    before = np.floor(rank * share + start_of_row)
    after = np.floor((rank + 1) * share + start_of_row)
    held_out: NDArray[np.bool_] = after > before
    return held_out


def held_out_units(
    units: NDArray[np.int32],
    strata: IndexArray,
    share: float,
    places_of_bins: IndexArray | None,
) -> NDArray[np.bool_]:
    """Return which of the rows are held out, as `held_out_rows` does, without tearing a unit.

    The share is one of units. units: of each row [E], in the same order as `strata`. A unit comes
    where its first row comes, and counts as of that row's stratum: a larger prefix changes neither.
    Where a class has so few units that none would be held out, one is, unless it is the only one;
    of bins, one in all.
    """
    unit_of_row = numbered(units.astype(np.uint64))
    sizes = np.bincount(unit_of_row)
    _, first_rows = np.unique(unit_of_row, return_index=True)
    strata_of_units = strata[first_rows]
    is_held_out = held_out_rows(strata_of_units, share, places_of_bins)
    if places_of_bins is not None:
        strata_of_units = np.zeros_like(strata_of_units)
    for stratum in np.unique(strata_of_units):
        alike = np.flatnonzero(strata_of_units == stratum)
        if len(alike) > 1 and not is_held_out[alike].any():
            wanted = share * sizes[alike].sum()
            nearest = np.abs(sizes[alike] - wanted).argmin()
            is_held_out[alike[nearest]] = True
    return is_held_out[unit_of_row]


def order_of_groups(
    task: TaskSpec,
    groups: Keys,
    strata: IndexArray,
    share: float,
    seed: int,
) -> tuple[IndexArray, int]:
    """Order the rows [E] by groups, those to evaluate first; also return how many these are.

    A group counts as of the stratum that most of its rows are of. In an order that is stratified by
    that, a group is evaluated where this brings the number of rows nearer to the share. Raises
    DataError where there is but one group.
    """
    group_of_row = numbered(groups)
    sizes = np.bincount(group_of_row)
    if len(sizes) < 2:
        raise DataError(
            f"task '{task.name}': all {len(groups):,} rows are of one group (column "
            f"'{task.group_column}'), and none can be evaluated without tearing it; name another "
            "column by `group`, or give evaluation rows"
        )
    stratum_of_group = _commonest_stratum(group_of_row, strata)
    order = stratified_order(stratum_of_group, seed, EVALUATION)
    wanted = share * len(groups)
    evaluated = _groups_nearest_to(wanted, sizes, order)
    is_evaluated = np.isin(group_of_row, evaluated)
    evaluated_first = np.argsort(~is_evaluated, kind="stable")
    held_out = int(is_evaluated.sum())
    return evaluated_first.astype(np.int64), held_out


def _commonest_stratum(group_of_row: IndexArray, strata: IndexArray) -> IndexArray:
    """Return of each group the stratum that most of its rows are of, of equal ones the first."""
    count = int(strata.max()) + 1
    pairs, rows = np.unique(group_of_row * count + strata, return_counts=True)
    groups, strata_of_pairs = np.divmod(pairs, count)
    by_group_and_rows = np.lexsort((strata_of_pairs, -rows, groups))
    _, firsts = np.unique(groups[by_group_and_rows], return_index=True)
    commonest: IndexArray = strata_of_pairs[by_group_and_rows][firsts]
    return commonest


def _groups_nearest_to(
    wanted: float,
    sizes: IndexArray,
    order: IndexArray,
) -> list[int]:
    """Return groups, taken in this order, whose rows come near to the number wanted.

    They are one at least, and never all. sizes: the rows of each group.
    """
    chosen: list[int] = []
    rows = 0
    for group in order.tolist():
        is_last_left = len(chosen) == len(sizes) - 1
        if is_last_left:
            break
        rows_with_group = rows + int(sizes[group])
        distance = abs(rows - wanted)
        if abs(rows_with_group - wanted) < distance:
            chosen.append(group)
            rows = rows_with_group
    if not chosen:
        nearest = np.abs(sizes - wanted).argmin()
        chosen.append(int(nearest))
    return chosen
