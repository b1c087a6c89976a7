"""How long a search's trials will take on this machine: by a like search that ran here, or by a few
seconds of training.

Nothing is started or recorded, and nothing is said of a cluster.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from elsa_tune.errors import ElsaTuneError
from elsa_tune.search.planning.known import KnownTrial, known_trial, relative_cost
from elsa_tune.search.planning.time_left import TRIAL_SECONDS, seconds_per_trial
from elsa_tune.search.specification import Request, load_specification, specify
from elsa_tune.search.tune.cluster import Capacity, share
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.state import SearchState

if TYPE_CHECKING:
    from elsa_tune.training.data.tokens import TaskData

# How long every model is trained on every task.
PROBE_SECONDS = 2.0
# What the probe does not see, roughly: Ray's, MLflow's and the workers' start.
SEARCH_SECONDS = 20.0


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


def forecast(unfinished: Sequence[tuple[Request, Counter[FreezeDepth]]]) -> dict[str, float]:
    """Seconds that each search's remaining trials take, by the search's name, by training each full
    model for a few seconds.

    Raises DataError or ModelError where data or weights are missing, UsageError for a share of the
    machine that it does not have.
    """
    from elsa_tune.training.data.preparation import prepare

    data = {one.name: prepare(one.model, one.task, one.recipe) for one, _ in unfinished}
    seconds: dict[str, float] = {}
    for location in {request.model.location for request, _ in unfinished}:
        here = [one for one in unfinished if one[0].model.location == location]
        tasks = {request.task.name: request for request, _ in here}
        rates, at_once = _tokens_per_second(list(tasks.values()), data)
        for request, left in here:
            train, *evaluated = (
                int(rows.lengths.sum()) for rows in data[request.name].splits().values()
            )
            spec, rate = specify(request), rates[request.task.name]
            training = training_seconds(spec, left, train, sum(evaluated), rate)
            starting = SEARCH_SECONDS + TRIAL_SECONDS * left.total() / at_once
            seconds[request.name] = starting + training
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


def _tokens_per_second(
    requests: Sequence[Request], data: Mapping[str, TaskData]
) -> tuple[dict[str, float], int]:
    """Of all trials side by side, padding not counted, by the tasks of one model, all trained in
    the same processes; and how many trials run side by side.
    """
    from elsa_tune.training.throughput import Division, measure

    capacity = Capacity.of_this_machine()
    each = share(requests[0], capacity)
    at_once = capacity.at_once(each)
    device = "cuda" if each.gpus else "cpu"
    # What is measured on one GPU goes for all of them.
    here = min(at_once, int(1 / each.gpus) or 1) if each.gpus else at_once
    division = Division(trials=here, threads=max(1, int(each.cpus)))
    trainings = [
        (specify(one).trial(Phase.MEASURE, FULL_MODEL, learning_rate=2e-5, seed=1), data[one.name])
        for one in requests
    ]
    measured = measure(trainings, division, device, PROBE_SECONDS)
    rates = [one.tokens_per_second * at_once / here for one in measured]
    return dict(zip((one.task.name for one in requests), rates, strict=True)), at_once
