"""The strategies that a search can follow, by the names that spaces and search.json have."""

from elsa_tune.errors import SpaceError, quoted
from elsa_tune.extensions import load_extensions
from elsa_tune.searching.planning.even import Even
from elsa_tune.searching.planning.hunt import Hunt
from elsa_tune.searching.planning.strategy import Strategy
from elsa_tune.specs.search import SearchSpec

_STRATEGIES: dict[str, type[Strategy]] = {}


def register(strategy: type[Strategy]) -> type[Strategy]:
    """Let searches follow this strategy; of one name the last registered counts."""
    _STRATEGIES[strategy.name] = strategy
    return strategy


register(Even)
register(Hunt)


def strategy_named(name: str) -> type[Strategy]:
    """Return the strategy of this name. Raises SpaceError for one that nobody knows."""
    if name not in _STRATEGIES:
        load_extensions()
    if name not in _STRATEGIES:
        names = " or ".join(_STRATEGIES)
        raise SpaceError(f"strategy is {quoted(name)}; it must be {names}")
    return _STRATEGIES[name]


def strategy_of(spec: SearchSpec) -> Strategy:
    """Return the strategy of a search, by which all that it is to do is found."""
    return strategy_named(spec.strategy)(spec)
