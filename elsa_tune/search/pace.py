"""How long a search's trials will take on this machine: by a like search that ran here, or by a few
seconds of training.

Nothing is started or recorded, and nothing is said of a cluster.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elsa_tune.errors import ElsaTuneError
from elsa_tune.search.planning.known import KnownTrial, known_trial
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

# How long every model and task is trained at each of two depths.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Tokens per second of all trials side by side, padding not counted: training the full model,
    and with everything frozen. at_once: how many trials run side by side.
    """

    full: float
    frozen: float
    at_once: int

    def seconds(
        self, left: Counter[FreezeDepth], request: Request, train: int, evaluation: int
    ) -> float:
        """How long these trials of a search take, by depth; 0.0 for none.

        train, evaluation: tokens of one pass over the training and the evaluation examples. Between
        the two depths measured, the cost of a training token is in proportion to N, as a layer's
        cost is; an evaluation only runs forward, a third of a trained layer's cost.
        """
        if not left:
            return 0.0
        frozen = sum(
            trials * depth.frozen_layers / request.layers for depth, trials in left.items()
        )
        trained = (left.total() - frozen) / self.full
        frozen /= self.frozen
        training = request.recipe.epochs * train * (trained + frozen)
        evaluating = request.recipe.evaluations * evaluation * (trained / 3 + frozen)
        starting = SEARCH_SECONDS + TRIAL_SECONDS * left.total() / self.at_once
        return starting + training + evaluating


def forecast(unfinished: Sequence[tuple[Request, Counter[FreezeDepth]]]) -> dict[str, float]:
    """Seconds that each search's remaining trials take, by the search's name, by training for a few
    seconds.

    Raises DataError or ModelError where data or weights are missing, UsageError for a share of the
    machine that it does not have.
    """
    from elsa_tune.training.data.preparation import prepare

    data = {one.name: prepare(one.model, one.task, one.recipe) for one, _ in unfinished}
    seconds: dict[str, float] = {}
    for location in {request.model.location for request, _ in unfinished}:
        here = [one for one in unfinished if one[0].model.location == location]
        tasks = {request.task.name: request for request, _ in here}
        paces = dict(zip(tasks, _measured(list(tasks.values()), data), strict=True))
        for request, left in here:
            splits = data[request.name].splits().values()
            train, *evaluated = (int(rows.lengths.sum()) for rows in splits)
            pace = paces[request.task.name]
            seconds[request.name] = pace.seconds(left, request, train, sum(evaluated))
    return seconds


def _measured(requests: Sequence[Request], data: Mapping[str, TaskData]) -> list[Pace]:
    """The pace of each task of one model, all trained in the same processes."""
    from elsa_tune.training.throughput import Division, measure

    capacity = Capacity.of_this_machine()
    each = share(requests[0], capacity)
    at_once = capacity.at_once(each)
    device = "cuda" if each.gpus else "cpu"
    # What is measured on one GPU goes for all of them.
    here = min(at_once, int(1 / each.gpus) or 1) if each.gpus else at_once
    division = Division(trials=here, threads=max(1, int(each.cpus)))
    trainings = [
        (specify(one).trial(Phase.MEASURE, depth, learning_rate=2e-5, seed=1), data[one.name])
        for one in requests
        for depth in (FULL_MODEL, FreezeDepth.of(one.layers))
    ]
    rates = [
        one.tokens_per_second * at_once / here
        for one in measure(trainings, division, device, PROBE_SECONDS)
    ]
    return [
        Pace(full=full, frozen=frozen, at_once=at_once)
        for full, frozen in zip(rates[::2], rates[1::2], strict=True)
    ]
