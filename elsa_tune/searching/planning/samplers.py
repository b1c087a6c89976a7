"""The ways to choose learning rates, by the names that a space's `sampler` gives them."""

from elsa_tune.errors import SpaceError
from elsa_tune.searching.planning.one_study import OneStudy
from elsa_tune.searching.planning.rates import GivenThenOutward, Rates
from elsa_tune.specs.search import SamplerName, SearchSpec

# By the space's `sampler`. Which of the given rates come first is what the last three differ in.
_RATES: dict[str, type[Rates]] = {
    SamplerName.GP: OneStudy,
    SamplerName.TPE: GivenThenOutward,
    SamplerName.RANDOM: GivenThenOutward,
    SamplerName.GRID: GivenThenOutward,
}


def rates_of(spec: SearchSpec) -> Rates:
    """Return what chooses a search's rates. Raises SpaceError for a sampler that is none."""
    kind = _RATES.get(spec.sampler)
    if kind is None:
        names = " or ".join(_RATES)
        raise SpaceError(f"sampler is '{spec.sampler}'; it must be {names}")
    return kind(spec)
