"""The planned looks of a curve: what is known of each depth from the seeds that a look may use.

A test is valid however a search was stopped only if it uses the seeds that were planned for it,
and no others: seeds that came later, or sooner, count for the curve alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from elsa_tune.analysis.measured import MeasuredRun
from elsa_tune.analysis.statistics.looks import levels
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.looks import Looks

Runs = Mapping[FreezeDepth, Sequence[MeasuredRun]]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLooks:
    """of: the looks of each measured depth; empty where they were planned for other results than
    these. spreads: what is known at each look, by its number.
    """

    of: Mapping[FreezeDepth, Looks]
    spreads: tuple[Uncertainty, ...] = field(repr=False, default=())

    @property
    def is_walk(self) -> bool:
        """Whether depths were planned to be unlike: each has as many seeds as its tests need."""
        return any(len(looks.counts) > 1 for looks in self.of.values())

    def taken(self, depth: FreezeDepth) -> list[tuple[Look, Uncertainty]]:
        """The looks at this depth whose seeds are all there, in order."""
        looks = self.of.get(depth)
        found: list[tuple[Look, Uncertainty]] = []
        for number, (here, full) in enumerate(looks.counts if looks else (), start=1):
            assert looks is not None
            spread = self.spreads[number - 1]
            counts = [spread.runs[d].count if d in spread.runs else 0 for d in (depth, FULL_MODEL)]
            if counts != [here, full]:
                break
            look = Look(
                number=number,
                planned=len(looks.counts),
                seeds=here,
                full_seeds=full,
                level=levels(looks.counts, looks.error)[number - 1],
                half=levels(looks.counts, looks.error / 2)[number - 1],
            )
            found.append((look, spread))
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

    uncertainty_of: what is known of depths from some of their runs.
    """
    rows = [run.row for runs in measured.values() for run in runs]
    if all(row.looks is None for row in rows):
        return None
    of: dict[FreezeDepth, Looks] = {}
    for depth, runs in measured.items():
        planned = {run.row.looks for run in runs} - {None}
        one = planned.pop() if planned else None
        if planned or one is None or len({row.search for row in rows}) > 1:
            return PlannedLooks(of={})
        if not depth.is_full_model and not depth.is_embeddings_only:
            of[depth] = one
    if not of:
        return PlannedLooks(of={})
    spreads = []
    for number in range(max(len(looks.counts) for looks in of.values())):
        first = next(iter(of.values())).first_seed
        full = max(_count(looks, number)[1] for looks in of.values())
        counts = {depth: _count(looks, number)[0] for depth, looks in of.items()}
        counts[FULL_MODEL] = full
        cut = {
            depth: [run for run in runs if _is_among(run, first, counts[depth])]
            for depth, runs in measured.items()
            if depth in counts
        }
        spreads.append(uncertainty_of({depth: runs for depth, runs in cut.items() if runs}))
    return PlannedLooks(of=of, spreads=tuple(spreads))


def _count(looks: Looks, number: int) -> tuple[int, int]:
    return looks.counts[min(number, len(looks.counts) - 1)]


def _is_among(run: MeasuredRun, first: int, count: int) -> bool:
    return run.row.seed is not None and first <= run.row.seed < first + count
