"""How long a plan of searches will take here, from a few seconds of its own training.

It must not start a search; what it says is for this machine, not for a cluster.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.trial import PrefixCache, TrialSpec
from elsa_tune.studies.reproduction import Part, Place, Standing

if TYPE_CHECKING:
    from elsa_tune.training.data.tokens import TaskData
    from elsa_tune.training.throughput import Division

PROBE_SECONDS = 2.0
# What the probe does not see, roughly: Ray's, MLflow's and the workers' start; a trial's weights,
# first step and records. Any search that is worth a forecast takes many times that.
SEARCH_SECONDS = 20.0
TRIAL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Tokens a second of all trials side by side (padding not counted): training the full model,
    training with everything frozen, and evaluating.
    """

    full: float
    frozen: float
    evaluating: float
    at_once: int

    def seconds_per_token(self, depth: FreezeDepth, layers: int) -> float:
        """Of training at a depth: between the two that were measured, in proportion to N, as a
        layer's cost is.
        """
        share = depth.frozen_layers / layers
        return (1 - share) / self.full + share / self.frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Of one pass over the training examples, and over the evaluation examples."""

    train: int
    evaluation: int


def seconds_of(left: Counter[FreezeDepth], part: Part, tokens: Tokens, pace: Pace) -> float:
    """What is left of a search, in seconds."""
    if not left:
        return 0.0
    recipe = part.recipe
    evaluating = recipe.evaluations * tokens.evaluation / pace.evaluating
    training = sum(
        trials * recipe.epochs * tokens.train * pace.seconds_per_token(depth, part.layers)
        for depth, trials in left.items()
    )
    trials = left.total()
    alone = TRIAL_SECONDS * trials / pace.at_once
    return SEARCH_SECONDS + alone + training + evaluating * trials


def forecast(
    standings: Sequence[Standing], place: Place, seconds: float = PROBE_SECONDS
) -> dict[str, float]:
    """Seconds of what is left of each search, by its name; every model and task is trained for so
    many seconds at two depths, and evaluated.

    Raises DataError or ModelError where data or weights are not there.
    """
    from elsa_tune.training.data.preparation import prepare

    unfinished = [one for one in standings if one.left]
    data = {
        one.search.name: prepare(part.model, part.task, part.recipe)
        for one in unfinished
        for part in (one.search.part,)
    }
    largest: dict[tuple[str, str], Standing] = {}
    for one in sorted(unfinished, key=lambda one: len(data[one.search.name].train)):
        largest[_pair(one.search.part)] = one
    probed = {pair: (one.search.part, data[one.search.name]) for pair, one in largest.items()}
    paces = _paces(probed, place, seconds)
    return {
        one.search.name: seconds_of(
            one.left,
            one.search.part,
            _tokens(data[one.search.name]),
            paces[_pair(one.search.part)],
        )
        for one in unfinished
    }


def _pair(part: Part) -> tuple[str, str]:
    return part.model.location, part.task.name


def _tokens(data: TaskData) -> Tokens:
    everything = sum(int(rows.lengths.sum()) for rows in data.splits().values())
    train = int(data.train.lengths.sum())
    return Tokens(train=train, evaluation=everything - train)


def _paces(
    probed: Mapping[tuple[str, str], tuple[Part, TaskData]], place: Place, seconds: float
) -> dict[tuple[str, str], Pace]:
    """Of every model and task; a model's tasks are trained in the same processes."""
    import torch

    from elsa_tune.training.throughput import measure_each

    gpus = torch.cuda.device_count() if place.gpus_per_trial != 0 else 0
    device = "cuda" if gpus else "cpu"
    paces: dict[tuple[str, str], Pace] = {}
    for location in dict.fromkeys(location for location, _ in probed):
        pairs = [pair for pair in probed if pair[0] == location]
        trainings = [each for pair in pairs for each in _probes(*probed[pair])]
        division = _division(probed[pairs[0]][0], place, device, gpus)
        found = measure_each(trainings, division, device, seconds)
        rates = [one.tokens_per_second * max(1, gpus) for one in found]
        for pair, full, frozen, evaluating in zip(
            pairs, rates[::3], rates[1::3], rates[2::3], strict=True
        ):
            paces[pair] = Pace(
                full=full,
                frozen=frozen,
                evaluating=evaluating,
                at_once=division.trials * max(1, gpus),
            )
    return paces


def _probes(part: Part, data: TaskData) -> list[tuple[TrialSpec, TaskData]]:
    """The full model, everything frozen, and, as `steps` does not evaluate, what costs the same as
    evaluating: the evaluation examples through frozen layers without dropout.
    """
    full = TrialSpec(
        model=part.model,
        task=part.task,
        recipe=part.recipe,
        depth=FULL_MODEL,
        learning_rate=2e-5,
        seed=1,
    )
    frozen = dataclasses.replace(full, depth=FreezeDepth.of(part.layers))
    recipe = dataclasses.replace(
        part.recipe,
        batch_size=part.recipe.eval_batch_size,
        frozen_dropout=False,
        prefix_cache=PrefixCache.NONE,
        # Where a batch holds them all there is one step an epoch.
        evaluations_per_epoch=1,
    )
    evaluating = dataclasses.replace(frozen, recipe=recipe)
    return [
        (full, data),
        (frozen, data),
        (evaluating, dataclasses.replace(data, train=data.evaluation)),
    ]


def _division(part: Part, place: Place, device: str, gpus: int) -> Division:
    """How a search would share this machine (`launch` and `cluster.Capacity` decide it there)."""
    from elsa_tune.training.machine import usable_cores
    from elsa_tune.training.throughput import Division, remembered

    cores = usable_cores()
    tuned = {one.model: one.division for one in remembered(device)}
    asked = place.cpus_per_trial is not None or place.gpus_per_trial is not None
    if not asked and part.model.name in tuned:
        return tuned[part.model.name]
    if device == "cuda":
        trials = int(1 / place.gpus_per_trial) if place.gpus_per_trial else 1
        threads = place.cpus_per_trial or max(1, min(4, cores // gpus))
        return Division(trials=max(1, trials), threads=max(1, int(threads)))
    threads = place.cpus_per_trial or max(1, cores // 2)
    return Division(trials=max(1, int(cores / threads)), threads=max(1, int(threads)))
