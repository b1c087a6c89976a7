"""What a later session may change of a recorded search: it then does more."""

import functools
from collections.abc import Callable

from elsa_tune.errors import UsageError
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.specs.search import SearchSpec


def with_seeds(spec: SearchSpec, seeds: int) -> SearchSpec:
    """Return the search with this number of measuring seeds, at least as many as now.

    Those beyond the planned ones count for the curve, not for the certificate. Raises SpaceError.
    """
    return strategy_of(spec).with_seeds(seeds)


def until_certain(spec: SearchSpec) -> SearchSpec:
    """Return the search that takes every look it planned. Raises SpaceError without any."""
    return strategy_of(spec).until_certain()


def more_of(seeds: int | None, until_certified: bool) -> Callable[[SearchSpec], SearchSpec] | None:
    """Return what `seeds` and `until` ask of a recorded search; None for nothing.

    Raises UsageError for both at once.
    """
    if seeds is not None and until_certified:
        raise UsageError("`seeds` and `until` exclude each other: a hunt chooses its own seeds")
    if seeds is not None:
        return functools.partial(with_seeds, seeds=seeds)
    if until_certified:
        return until_certain
    return None
