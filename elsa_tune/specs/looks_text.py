"""Planned looks as one text: MLflow's params and results tables have them so."""

import re
from collections.abc import Sequence

from elsa_tune.errors import SpaceError
from elsa_tune.specs.policy import SeedCounts
from elsa_tune.specs.search import LOST_LOOKS, MOST_LOOKS, NO_LOOKS, Looks

_NEVER = "never"  # in place of looks that were not planned
_LOST = "not recorded"  # in place of looks that a table left out
_LOOKS = re.compile(r"after (N=\d+|[\w-]+), from seed (\d+), at ([\d.e-]+): ((?:\d+/\d+ ?)+)")
# What two looks can share out between them.
_LEAST_ERROR = 1e-6
_MOST_ERROR = 0.5
_DEPTH = re.compile(r"^N(\d+)$")


def looks_text(looks: Looks) -> str:
    """Return planned looks as MLflow shows them: `after N=6, from seed 1, at 0.05: 4/2 8/3`.

    `never` where none were planned.
    """
    if looks.are_lost:
        return _LOST
    if not looks.are_planned:
        return _NEVER
    pairs: list[str] = []
    for seeds in looks.counts:
        pairs.append(f"{seeds.depth}/{seeds.full}")
    counts = " ".join(pairs)
    error = exact_text(looks.error)
    after = _DEPTH.sub(r"N=\1", str(looks.after))
    return f"after {after}, from seed {looks.first_seed}, at {error}: {counts}"


def read_looks(text: str) -> Looks:
    """Return the inverse of `looks_text`. Raises SpaceError."""
    if text == _NEVER:
        return NO_LOOKS
    if text == _LOST:
        return LOST_LOOKS
    match = _LOOKS.fullmatch(text)
    if match is None:
        raise SpaceError(f"'{text}' does not say when a depth is tested")
    after, first_seed, error_text, pairs = match.groups()
    counts: list[SeedCounts] = []
    for pair in pairs.split():
        depth, full = pair.split("/")
        counts.append(SeedCounts(depth=int(depth), full=int(full)))
    error = float(error_text)
    if not (_can_be_planned(counts) and _LEAST_ERROR <= error <= _MOST_ERROR):
        raise SpaceError(
            f"'{text}' is no plan of one or two looks, with growing numbers of seeds from 1 on and "
            f"an error between {_LEAST_ERROR:g} and {_MOST_ERROR:g}"
        )
    return Looks(
        after=after.replace("=", ""),
        first_seed=int(first_seed),
        counts=tuple(counts),
        error=error,
    )


def _can_be_planned(counts: Sequence[SeedCounts]) -> bool:
    """Whether a search can have planned these looks."""
    if len(counts) > MOST_LOOKS:
        return False
    before = SeedCounts(depth=1, full=1)
    for seeds in counts:
        if seeds.depth < before.depth or seeds.full < before.full:
            return False
        before = seeds
    return True


def exact_text(number: float) -> str:
    """Return a number in six digits, or in as many as it takes to read it back exactly."""
    text = f"{number:g}"
    if float(text) == number:
        return text
    return str(number)
