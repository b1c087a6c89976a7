"""What Ray runs in a worker: the trial's generator, each of its results reported."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch
from ray import tune

from elsa_tune.errors import DivergedError
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.trial import EpochResult, Phase, TrialSpec
from elsa_tune.training.adapt.methods import first_trained_layers
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.machine import freeze_gc, take_share

# In Ray's config of a trial: its TrialSpec.
TRIAL = "trial"
# In a report: the node it comes from; and of a trial that diverged, all else, the reason.
NODE = "node"
DIVERGED = "diverged"

_freeze_gc_once = functools.cache(freeze_gc)

# As `training.loop.train` is called: with a trial, its data, a device and the depths to keep.
Train = Callable[..., Iterator[EpochResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every trial of a search shares; it travels once per node, through Ray's object store.

    mailbox: handle of the driver's `Mailbox` actor. train: the generator that trains one trial; a
    test may put another in its place.
    """

    spec: SearchSpec
    data: TaskData
    mailbox: Any
    train: Train


class NeverRestored:
    """What Ray pickles beside its own state, which we never restore from."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


def run_trial(config: dict[str, Any], work: Work) -> None:
    """Ray's trainable: reports every evaluation of a trial, and where it diverges that it did.

    A diverged trial does not raise: Ray would end this process with it, and the next trial would
    wait for another to import its libraries. NaN reaches neither Ray nor Optuna.
    """
    _freeze_gc_once()
    device = device_of(work.spec.resources)
    trial: TrialSpec = config[TRIAL]
    if trial.phase is Phase.PROBE:
        _probe(trial, work, device)
        return
    # One pass keeps the frozen layers' output of all of them.
    depths = first_trained_layers(work.spec.depths, work.spec.layers)
    try:
        for result in work.train(trial, work.data, device=device, depths=depths):
            if result.predictions is not None:
                dtype = np.int16 if isinstance(result.predictions[0], int) else np.float32
                _leave(work, trial, np.asarray(result.predictions, dtype=dtype))
            told = dataclasses.asdict(dataclasses.replace(result, predictions=None))
            tune.report({**told, NODE: _node()})
    except DivergedError as error:
        tune.report({DIVERGED: str(error), NODE: _node()})


def _probe(trial: TrialSpec, work: Work, device: str) -> None:
    """The part of a linear probe that needs the model, and so the GPU."""
    # Here, as with the trials' own function: a worker is ready before it has loaded all of this,
    # and Ray Tune starts the next one meanwhile.
    from elsa_tune.training.probe import probe_features

    spec = work.spec
    features = probe_features(spec.model, spec.task, spec.recipe, work.data, device=device)
    _leave(work, trial, (features, _node()))
    tune.report({NODE: _node()})  # Ray prints a line for a trial that reports nothing


def _leave(work: Work, trial: TrialSpec, what: Any) -> None:
    """Into the mailbox, waited for: after the last report Ray may end this process at once."""
    with contextlib.suppress(ray.exceptions.RayError):  # it must not cost the trial
        ray.get(work.mailbox.put.remote(trial.key, what))


def _node() -> str:
    return str(ray.get_runtime_context().get_node_id())[:8]


def device_of(share: Resources) -> str:
    """Where this worker trains, `cpu` or `cuda`, kept to its share of the machine."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(max(1, int(share.cpus)))
    return take_share(share.gpus)
