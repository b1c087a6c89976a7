"""How long a planned search will take, from the trials of a like one that ran on this machine."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence

from elsa_tune.errors import ElsaTuneError
from elsa_tune.search.planning.known import KnownTrial
from elsa_tune.search.planning.time_left import seconds_per_trial
from elsa_tune.search.record import known_trial
from elsa_tune.search.specification import Request, load_specification, specify
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.state import SearchState


def recorded_seconds(
    request: Request, trials: Counter[FreezeDepth]
) -> tuple[SearchSpec, float] | None:
    """The latest search in the same place with the same model, task and recipe, and how long the
    request's trials take at its pace; None without one.
    """
    planned = specify(request)
    alike: list[tuple[float, SearchSpec, list[KnownTrial]]] = []
    for name in search_names(request.storage):
        paths = SearchPaths(request.storage, name)
        with contextlib.suppress(ElsaTuneError):
            spec = load_specification(paths)
            if spec.address is not None or _kind(spec) != _kind(planned):
                continue
            state = SearchState.replay(read_journal(paths.journal), alive=False)
            known = [known_trial(spec, trial) for trial in state.planned_trials]
            if ends := [one.ended for one in known if one.ended and one.reported]:
                alike.append((max(ends), spec, known))
    if not alike:
        return None
    _, spec, known = max(alike, key=lambda one: one[0])
    by_depth: dict[FreezeDepth, list[KnownTrial]] = {}
    for one in known:
        by_depth.setdefault(one.trial.depth, []).append(one)
    each = seconds_per_trial(planned, by_depth)
    total = sum(count * each[depth] for depth, count in trials.items())
    return spec, total / _side_by_side(known)


def _kind(spec: SearchSpec) -> tuple[object, ...]:
    """What must be equal; a recorded precision is what `auto` became."""
    recipe = {**spec.recipe.comparable(), "precision": None}
    return spec.model.location, spec.task.name, recipe


def _side_by_side(known: Sequence[KnownTrial]) -> float:
    """How many trials ran at once, on average, pauses between two sessions left out."""
    spans = sorted((one.started, one.ended) for one in known if one.ended)
    elapsed, until = 0.0, 0.0
    for first, last in spans:
        elapsed += max(0.0, last - max(first, until))
        until = max(until, last)
    return sum(last - first for first, last in spans) / elapsed
