"""When a depth is tested against the full model, as it was planned before anything was measured."""

from __future__ import annotations

import re
from dataclasses import dataclass

from elsa_tune.errors import SpaceError

ERROR = 0.05  # family-wise, of a search that tests every depth in its order

_TEXT = re.compile(r"after N=(\d+), from seed (\d+), at ([\d.]+): ((?:\d+/\d+ ?)+)")
# Of each look: seeds of a depth, seeds of the full model.
Counts = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """The planned looks of one depth.

    after: frozen layers of the depth that is tested before it, 0 for the full model. first_seed: of
    the measuring seeds, which count upwards. counts: for each look, seeds of this depth and of the
    full model, both growing. error: the probability with which any look may reject falsely.
    """

    after: int
    first_seed: int
    counts: Counts
    error: float = ERROR

    def __str__(self) -> str:
        counts = " ".join(f"{here}/{full}" for here, full in self.counts)
        return f"after N={self.after}, from seed {self.first_seed}, at {self.error:g}: {counts}"

    @classmethod
    def of(cls, text: str) -> Looks:
        """The inverse of `str`. Raises SpaceError."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise SpaceError(f"'{text}' does not say when a depth is tested")
        pairs = (map(int, one.split("/")) for one in found[4].split())
        counts = tuple((here, full) for here, full in pairs)
        after, first_seed, error = int(found[1]), int(found[2]), float(found[3])
        return cls(after=after, first_seed=first_seed, counts=counts, error=error)
