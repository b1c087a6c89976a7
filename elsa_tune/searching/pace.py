"""How long trials will take on this machine: by a like search that ran here, or by a probe."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence

from elsa_tune.errors import ElsaTuneError
from elsa_tune.searching.inputs import Request
from elsa_tune.searching.planning.known import KnownTrial, known_trial, relative_cost
from elsa_tune.searching.planning.time_left import TRIAL_SECONDS, seconds_per_trial
from elsa_tune.searching.specification import load_specification, specify
from elsa_tune.searching.tune.cluster import Capacity, share
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.state import SearchState
from elsa_tune.words import duration

# How long every model is trained on every task.
PROBE_SECONDS = 2.0
# What the probe does not see, roughly: Ray's, MLflow's and the workers' start.
SEARCH_SECONDS = 15.0


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
    each = seconds_per_trial(planned, known)
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


Unfinished = Sequence[tuple[Request, Counter[FreezeDepth]]]


def probed_time(unfinished: Unfinished) -> str:
    """About how long these trials of these searches take here, in words, by training each full
    model for a few seconds; why that is not known where it cannot be.
    """
    try:
        return f"about {duration(_probed_seconds(unfinished))} on this machine, from a short probe"
    except (ElsaTuneError, OSError) as error:
        return f"not known, {error}"


def _probed_seconds(unfinished: Unfinished) -> float:
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.throughput import Division, measure

    data = {one.name: prepare(one.model, one.task, one.recipe) for one, _ in unfinished}
    capacity = Capacity.of_this_machine()
    seconds = 0.0
    for location in {request.model.location for request, _ in unfinished}:
        here = [one for one in unfinished if one[0].model.location == location]
        tasks = {request.task.name: request for request, _ in here}
        each = share(here[0][0], capacity)
        at_once = capacity.at_once(each)
        # What is measured on one GPU goes for all of them.
        beside = min(at_once, int(1 / each.gpus) or 1) if each.gpus else at_once
        measured = measure(
            [(one.trial(), data[one.name]) for one in tasks.values()],
            Division(trials=beside, threads=max(1, int(each.cpus))),
            "cuda" if each.gpus else "cpu",
            PROBE_SECONDS,
        )
        rates = dict(zip(tasks, (one.tokens_per_second for one in measured), strict=True))
        for request, left in here:
            train, *evaluated = (
                int(rows.lengths.sum()) for rows in data[request.name].splits().values()
            )
            rate = rates[request.task.name] * at_once / beside
            seconds += training_seconds(specify(request), left, train, sum(evaluated), rate)
            seconds += SEARCH_SECONDS + TRIAL_SECONDS * left.total() / at_once
    return seconds


def training_seconds(
    spec: SearchSpec, left: Counter[FreezeDepth], train: int, evaluation: int, rate: float
) -> float:
    """How long these trials of a search train and evaluate, by depth.

    train, evaluation: tokens of one pass over the training and the evaluation examples. rate:
    tokens of the full model's training a second, of all trials side by side. An evaluation only
    runs forward, a third of the cost.
    """
    tokens = spec.recipe.epochs * train + spec.recipe.evaluations * evaluation / 3
    return sum(count * relative_cost(spec, depth) for depth, count in left.items()) * tokens / rate
