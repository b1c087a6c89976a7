"""Whether this machine or cluster has what a search asks of GPUs, its hours among them."""

import dataclasses
import time
from typing import TYPE_CHECKING

from elsa_tune.errors import UsageError
from elsa_tune.searching.request import Request
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.state import SearchState

if TYPE_CHECKING:
    # Speaks Ray, which takes seconds to import: only once everything is checked.
    from elsa_tune.searching.cluster.capacity import Capacity


def check_here(request: Request) -> None:
    """Raise where this machine cannot do what a search on it asks for.

    What Ray will find here is known without it; of a cluster nothing is. Raises UsageError for
    GPU-hours on CPUs and for more than there is, SpaceError for a precision it has not.
    """
    from elsa_tune.searching.cluster.capacity import Capacity
    from elsa_tune.searching.cluster.shares import settled_recipe, share

    spec = request.spec
    if spec.address is not None:
        return
    here = Capacity.of_this_machine()
    resources = share(request, here)
    check_gpu_hours(spec.gpu_hours, resources.gpus)
    settled_recipe(dataclasses.replace(spec, resources=resources), here.gpu_kinds, _silent)


def _silent(sentence: str) -> None:
    """Say nothing: the search says it when it begins."""


def with_gpus(capacity: "Capacity", gpus_per_trial: float | None) -> "Capacity":
    """Add what torch finds of the GPUs, unless trials are to train on CPUs. Raises UsageError."""
    from elsa_tune.searching.cluster.nodes import ask_gpus

    if not capacity.gpus or gpus_per_trial == 0:
        return capacity
    return dataclasses.replace(capacity, gpu_kinds=ask_gpus())


def check_gpu_hours(gpu_hours: float | None, gpus_per_trial: float) -> None:
    """Raise UsageError for GPU-hours where trials train on CPUs."""
    if gpu_hours is not None and not gpus_per_trial:
        raise UsageError(
            f"`gpu_hours` is {gpu_hours:g}, but trials train on CPUs here; give `max_time`"
        )


def check_budget(spec: SearchSpec, state: SearchState) -> None:
    """Raise UsageError for a search that has used up its GPU-hours."""
    if spec.gpu_hours is None:
        return
    used = state.gpu_hours(time.time())
    if used >= spec.gpu_hours:
        raise UsageError(
            f"search '{spec.name}' has used {used:.3g} of its {spec.gpu_hours:g} GPU-hours; give a "
            "larger number as `gpu_hours`, which counts earlier sessions, too"
        )
