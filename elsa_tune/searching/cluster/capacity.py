"""What a machine or a cluster has for trials, and what one trial may take of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from elsa_tune.errors import UsageError
from elsa_tune.specs.search import Resources
from elsa_tune.training.machine import Gpu, look_at_gpu, usable_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the cluster has in all, and on its largest node."""

    cpus: float  # of all nodes
    gpus: float  # of all nodes
    nodes: int  # how many there are
    largest_cpus: float  # of the node with the most
    largest_gpus: float  # of the node with the most
    gpu_kinds: tuple[Gpu, ...] = ()  # what torch finds, one for each node that was asked
    no_gpu: str | None = None  # why torch finds none on this machine, where that is the cluster

    @classmethod
    def of_this_machine(cls) -> Self:
        """Return what a search will find here, without starting Ray."""
        import torch

        cpus = float(usable_cores())
        gpu = look_at_gpu()
        gpus = 0.0 if gpu.fault else float(torch.cuda.device_count())
        return cls(
            cpus=cpus,
            gpus=gpus,
            nodes=1,
            largest_cpus=cpus,
            largest_gpus=gpus,
            gpu_kinds=() if gpu.fault else (gpu,),
            no_gpu=gpu.fault,
        )

    @classmethod
    def of_nodes(cls, nodes: Sequence[Mapping[str, float]]) -> Self:
        """Return what a cluster has. nodes: by resource what each has, as Ray counts it."""
        cpus = [node.get("CPU", 0.0) for node in nodes]
        gpus = [node.get("GPU", 0.0) for node in nodes]
        return cls(
            cpus=sum(cpus),
            gpus=sum(gpus),
            nodes=max(1, len(nodes)),
            largest_cpus=max(cpus, default=0.0),
            largest_gpus=max(gpus, default=0.0),
        )

    def at_once(self, share: Resources) -> int:
        """Return how many trials of this share run side by side."""
        by_cpus = self.cpus / share.cpus
        by_gpus = self.gpus / share.gpus if share.gpus else math.inf
        return max(1, int(min(by_cpus, by_gpus)))

    def resources(self, cpus_per_trial: float | None, gpus_per_trial: float | None) -> Resources:
        """Return one trial's share.

        It is as asked for, else a GPU where there is one, and half a node's CPUs. Raises UsageError
        when no node could ever run such a trial.
        """
        gpus = gpus_per_trial
        if gpus is None:
            gpus = 1.0 if self.gpus >= 1 else 0.0
        cpus = cpus_per_trial
        if cpus is None:
            cpus = self._default_cpus(gpus)
        # Written so that nan, which compares to nothing, is refused too.
        if not 0 < cpus <= self.largest_cpus:
            raise UsageError(
                f"{cpus:g} CPUs per trial were asked for, but the largest node has "
                f"{self.largest_cpus:g}; give `cpus_per_trial` above 0 and up to that"
            )
        if not 0 <= gpus <= min(1.0, self.largest_gpus):
            why = f" ({self.no_gpu})" if self.no_gpu else ""
            raise UsageError(
                f"{gpus:g} GPUs per trial were asked for, but a trial trains on one at most, and "
                f"the largest node has {self.largest_gpus:g}{why}; give `gpus_per_trial` 1, a "
                "share of one, or 0"
            )
        return Resources(cpus=cpus, gpus=gpus)

    def _default_cpus(self, gpus: float) -> float:
        """Return the CPUs of a trial that has this part of a GPU."""
        if not gpus > 0:
            half_a_node = self.cpus / self.nodes // 2
            return max(1.0, half_a_node)
        all_gpus = max(1.0, self.gpus)
        by_gpu = self.cpus * gpus // all_gpus
        most = min(4.0, self.largest_cpus, by_gpu)
        return max(1.0, most)
