"""How long a search's trials will take on this machine, from a few seconds of training here.

Nothing is started or recorded, and nothing is said of a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elsa_tune.search.planning.time_left import TRIAL_SECONDS
from elsa_tune.search.specification import Request, specify
from elsa_tune.search.tune.cluster import Capacity, share
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.trial import Phase

if TYPE_CHECKING:
    from elsa_tune.training.data.tokens import TaskData

# How long every model and task is trained at each of two depths.
PROBE_SECONDS = 2.0
# What the probe does not see, roughly: Ray's, MLflow's and the workers' start.
SEARCH_SECONDS = 20.0


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
    """Seconds that each search's remaining trials take, by the search's name.

    Raises DataError or
    ModelError where data or weights are missing, UsageError for a share of the machine that it does
    not have.
    """
    from elsa_tune.training.data.preparation import prepare

    data = {
        request.name: prepare(request.model, request.task, request.recipe)
        for request, _ in unfinished
    }
    pairs = {_pair(request): request for request, _ in unfinished}
    paces: dict[tuple[str, str], Pace] = {}
    for location in {location for location, _ in pairs}:
        alike = {pair: request for pair, request in pairs.items() if pair[0] == location}
        paces |= zip(alike, _measured(list(alike.values()), data), strict=True)
    return {
        request.name: paces[_pair(request)].seconds(left, request, *_tokens(data[request.name]))
        for request, left in unfinished
    }


def _pair(request: Request) -> tuple[str, str]:
    return request.model.location, request.task.name


def _tokens(data: TaskData) -> tuple[int, int]:
    """Of one pass over the training examples, and over all those that are evaluated."""
    train, *evaluated = (int(rows.lengths.sum()) for rows in data.splits().values())
    return train, sum(evaluated)


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
