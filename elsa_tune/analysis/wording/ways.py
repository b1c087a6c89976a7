"""How ways, their costs and their numbers are written."""

from collections.abc import Iterable, Sequence

from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.cost import Cost
from elsa_tune.words import duration, listed

# More ways than this are counted rather than named.
_MOST_NAMED = 6


def cost_text(cost: float | None, unit: Cost) -> str:
    """Return `12 s of training a run`, with what is counted."""
    cell = cost_cell(cost, unit)
    behind = {
        Cost.TIME: "of training a run",
        Cost.MEMORY: "of peak memory",
        Cost.PARAMETERS: "trained parameters",
        Cost.LATENCY: "for one input, alone",
        Cost.BUNDLE: "for one input of one task, in a bundle",
    }
    return f"{cell} {behind[unit]}"


def cost_cell(cost: float | None, unit: Cost) -> str:
    """Return a cost as a table has it: `12 s`, `1,204 MiB`, `885,000`, `3.2 ms`; `-` for none."""
    if cost is None:
        return "-"
    if unit is Cost.MEMORY:
        return f"{cost:,.0f} MiB"
    if unit is Cost.PARAMETERS:
        return f"{cost:,.0f}"
    if unit in (Cost.LATENCY, Cost.BUNDLE):
        milliseconds = 1000 * cost
        return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds:,.0f} ms"
    if cost < 10:
        return f"{cost:.2g} s"
    return duration(cost)


def name_of(curve: FreezeCurve, candidate: Candidate) -> str:
    """Return what a sentence calls a way: `the last 2 layers`."""
    return candidate.name(curve.layers)


def names_of(curve: FreezeCurve, candidates: Sequence[Candidate]) -> str:
    """Return the names of some ways, or of many only how many they are."""
    if len(candidates) > _MOST_NAMED:
        return f"{len(candidates)} ways"
    return listed(name_of(curve, candidate) for candidate in candidates)


def are_plural(curve: FreezeCurve, candidates: Sequence[Candidate]) -> bool:
    """Whether the names of some ways, one or more, take their verb in the plural."""
    if len(candidates) > 1:
        return True
    [candidate] = candidates
    # `the full model` is one, and so described `all 6 layers`, which are several.
    is_described = candidate.name(curve.layers) == candidate.describe(curve.layers)
    return is_described and candidate.is_plural(curve.layers)


def range_text(numbers: Iterable[int]) -> str:
    """Return `4`, or `3 to 5`."""
    rising = sorted(numbers)
    if rising[0] == rising[-1]:
        return str(rising[0])
    return f"{rising[0]} to {rising[-1]}"
