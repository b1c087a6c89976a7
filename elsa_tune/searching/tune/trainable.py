"""What Ray runs in a worker: the trial's generator, each of its results reported.

What trains is imported where a trial needs it: a worker is ready before it has loaded all of that,
Ray Tune starts the next one meanwhile, and a trial that only pretends (`elsa_tune.testing`) never
needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import ray
from ray import tune

from elsa_tune.errors import DivergedError, LeavingError
from elsa_tune.searching.cluster.notice import notice_of_this_node
from elsa_tune.searching.tune.checkpoints import DriversFolder, checkpoint_of
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.trial import EvaluationResult, Phase, TrialSpec
from elsa_tune.training.checkpoints import LEAVING

if TYPE_CHECKING:
    from elsa_tune.training.checkpoints import TrialCheckpoint
    from elsa_tune.training.data.tokens import TaskData

# In Ray's config of a trial: its TrialSpec.
TRIAL = "trial"
# In a report: the node it comes from; and of a trial that diverged, all else, the reason.
NODE = "node"
DIVERGED = "diverged"


class Train(Protocol):
    """What trains a trial in a worker: `train_here`, or what a test puts in its place."""

    def __call__(
        self,
        trial: TrialSpec,
        data: TaskData,
        *,
        share: Resources,
        candidates: Sequence[Candidate],
        checkpoint: TrialCheckpoint | None,
    ) -> Iterator[EvaluationResult]:
        """Yield a result for each evaluation; DivergedError if the trial diverges.

        share: of this node, for this trial. candidates: all that the search compares. checkpoint:
        the trial's, None where it writes none.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every trial of a search shares; it travels once per node, through Ray's object store."""

    spec: SearchSpec  # the search
    data: TaskData  # its rows, tokenised
    mailbox: Any  # handle of the driver's `Mailbox` actor
    train: Train  # what a trial does
    checkpoints: DriversFolder | None = None  # where trials keep theirs; None: nowhere


class NeverRestored:
    """What Ray pickles beside its own state, which we never restore from."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


def run_trial(config: dict[str, Any], work: Work) -> None:
    """Report every evaluation of a trial to Ray, and if it diverges, that it did.

    A diverged trial does not raise: Ray would end this process with it, and the next trial would
    wait for another to import its libraries. NaN reaches neither Ray nor Optuna. Raises
    LeavingError on a node that is being taken away: the trial goes on in a worker elsewhere.
    """
    trial: TrialSpec = config[TRIAL]
    notice = notice_of_this_node()
    if notice.is_given():
        # An earlier trial's worker, which Ray uses again.
        raise LeavingError(LEAVING)
    if trial.phase is Phase.PROBE:
        _probe(trial, work)
        return
    spec = work.spec
    try:
        for result in work.train(
            trial,
            work.data,
            share=spec.resources,
            candidates=spec.candidates,
            checkpoint=checkpoint_of(trial, spec, work.checkpoints, notice.is_given),
        ):
            if result.predictions is not None:
                _leave(work, trial, np.asarray(result.predictions))  # [E, ...]
            report = dataclasses.asdict(dataclasses.replace(result, predictions=None))
            report[NODE] = _node()
            tune.report(report)
    except DivergedError as error:
        tune.report({DIVERGED: str(error), NODE: _node()})


def train_here(
    trial: TrialSpec,
    data: TaskData,
    *,
    share: Resources,
    candidates: Sequence[Candidate],
    checkpoint: TrialCheckpoint | None,
) -> Iterator[EvaluationResult]:
    """Train a trial on its share of this node."""
    from elsa_tune.training.loop import train

    _freeze_gc_once()
    device = device_of(share)
    yield from train(trial, data, device=device, candidates=candidates, checkpoint=checkpoint)


def _probe(trial: TrialSpec, work: Work) -> None:
    """Do the part of a linear probe that needs the model, and so the GPU."""
    from elsa_tune.training.probe import probe_features

    _freeze_gc_once()
    spec = work.spec
    device = device_of(spec.resources)
    features = probe_features(spec.model, spec.task, spec.recipe, work.data, device=device)
    _leave(work, trial, (features, _node()))
    tune.report({NODE: _node()})  # Ray prints a line for a trial that reports nothing


@functools.cache
def _freeze_gc_once() -> None:
    """Keep the garbage collector from what is loaded, once all that trains is imported."""
    from elsa_tune.training.machine import freeze_gc

    freeze_gc()


def _leave(work: Work, trial: TrialSpec, what: Any) -> None:
    """Put it into the mailbox and wait: after the last report Ray may end this process at once."""
    with contextlib.suppress(ray.exceptions.RayError):  # it must not cost the trial
        ray.get(work.mailbox.put.remote(trial.key, what))


def _node() -> str:
    return str(ray.get_runtime_context().get_node_id())[:8]


def device_of(share: Resources) -> str:
    """Keep this process to its share of the machine; returns where it trains, `cpu` or `cuda`."""
    import torch

    from elsa_tune.training.machine import take_share

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(max(1, int(share.cpus)))
    return take_share(share.gpus)
