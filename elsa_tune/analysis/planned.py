"""The planned looks of a curve: what is known of each depth from the seeds that a look may use.

A test is valid however a search was stopped only if it uses the seeds that were planned for it,
and no others: seeds that came later, or sooner, count for the curve alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from elsa_tune.analysis.measured import MeasuredRun, Runs
from elsa_tune.analysis.statistics.looks import Look, levels
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.looks import Looks


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLooks:
    """of: the looks of each measured depth; empty where they were planned for other results than
    these. seen: what is known at a depth's look, by its place; None where a seed of it is missing.
    """

    of: Mapping[FreezeDepth, Looks]
    seen: Callable[[FreezeDepth, int], Uncertainty | None] = field(repr=False, compare=False)

    @property
    def is_walk(self) -> bool:
        """Whether depths were planned to be unlike: each has as many seeds as its tests need."""
        return any(len(looks.counts) > 1 for looks in self.of.values())

    def taken(self, depth: FreezeDepth) -> list[tuple[Look, Uncertainty]]:
        """The looks at this depth whose seeds are all there, in order."""
        found: list[tuple[Look, Uncertainty]] = []
        if (looks := self.of.get(depth)) is None:
            return found
        for place, (here, full) in enumerate(looks.counts):
            seen = self.seen(depth, place)
            if seen is None:
                break
            look = Look(
                number=place + 1,
                planned=len(looks.counts),
                seeds=here,
                full_seeds=full,
                level=levels(looks.counts, looks.error)[place],
                half=levels(looks.counts, looks.error / 2)[place],
            )
            found.append((look, seen))
        return found

    def order(self) -> list[FreezeDepth]:
        """The depths that are tested, first to last: a depth follows only the one it was planned
        to follow.
        """
        follower = {looks.after: depth for depth, looks in self.of.items()}
        found: list[FreezeDepth] = []
        place = FULL_MODEL.frozen_layers
        while place in follower and follower[place] not in found:
            found.append(follower[place])
            place = found[-1].frozen_layers
        return found


def planned_looks(
    measured: Runs, uncertainty_of: Callable[[Runs], Uncertainty]
) -> PlannedLooks | None:
    """The looks of measured depths; None where no plan says when to look.

    uncertainty_of: what is known from some of the runs. A look sees its own seeds, and of other
    depths those of their first looks, so that no later seed can change it.
    """
    rows = [run.row for runs in measured.values() for run in runs]
    if all(row.looks is None for row in rows):
        return None
    of: dict[FreezeDepth, Looks] = {}
    for depth, runs in measured.items():
        planned = {run.row.looks for run in runs} - {None}
        one = planned.pop() if planned else None
        if planned or one is None or len({row.search for row in rows}) > 1:
            return PlannedLooks(of={}, seen=lambda depth, place: None)
        if not depth.is_full_model and not depth.is_embeddings_only:
            of[depth] = one

    def first_seeds(depth: FreezeDepth, first: int, count: int) -> Sequence[MeasuredRun]:
        """The runs of these planned seeds; none where one is missing."""
        seeds = range(first, first + count)
        runs = [run for run in measured.get(depth, ()) if run.row.seed in seeds]
        return runs if len(runs) == count else ()

    @functools.cache
    def seen(depth: FreezeDepth, place: int) -> Uncertainty | None:
        looks = of[depth]
        here, full = looks.counts[place]
        used = {d: first_seeds(d, one.first_seed, one.counts[0][0]) for d, one in of.items()}
        used[depth] = first_seeds(depth, looks.first_seed, here)
        used[FULL_MODEL] = first_seeds(FULL_MODEL, looks.first_seed, full)
        if not used[depth] or not used[FULL_MODEL]:
            return None
        return uncertainty_of({d: used[d] for d in measured if used.get(d)})

    return PlannedLooks(of=of, seen=seen)
