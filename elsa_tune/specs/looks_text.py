"""Planned looks as one text: MLflow's params and results tables have them so."""

import re

from elsa_tune.errors import SpaceError
from elsa_tune.specs.search import LOST_LOOKS, NO_LOOKS, Looks

_NEVER = "never"  # in place of looks that were not planned
_LOST = "not recorded"  # in place of looks that a table left out
_LOOKS = re.compile(r"after (N=\d+|[\w-]+), from seed (\d+), at ([\d.e-]+): ((?:\d+/\d+ ?)+)")
_DEPTH = re.compile(r"^N(\d+)$")


def looks_text(looks: Looks) -> str:
    """Return planned looks as MLflow shows them: `after N=6, from seed 1, at 0.05: 4/2 8/3`.

    `never` where none were planned.
    """
    if looks == NO_LOOKS:
        return _NEVER
    if looks == LOST_LOOKS:
        return _LOST
    counts = " ".join(f"{here}/{full}" for here, full in looks.counts)
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
    counts = []
    for pair in match[4].split():
        here, full = pair.split("/")
        counts.append((int(here), int(full)))
    after = match[1].replace("=", "")
    error = float(match[3])
    return Looks(after=after, first_seed=int(match[2]), counts=tuple(counts), error=error)


def exact_text(number: float) -> str:
    """Return a number in six digits, or in as many as it takes to read it back exactly."""
    text = f"{number:g}"
    return text if float(text) == number else str(number)
