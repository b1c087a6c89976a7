"""What a machine or a cluster has for trials, and what one trial may take of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from elsa_tune.errors import UsageError
from elsa_tune.specs.search import Resources
from elsa_tune.training.machine import Gpu, look_at_gpu, usable_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What one node of a cluster has for trials, or this machine."""

    cpus: float
    gpus: float = 0.0

    @classmethod
    def of(cls, resources: Mapping[str, float]) -> Self:
        """Return the node that has these resources, as Ray counts them."""
        return cls(cpus=resources.get("CPU", 0.0), gpus=resources.get("GPU", 0.0))

    def room(self, share: Resources) -> int:
        """Return how many trials of this share run on it side by side.

        A trial takes all of its share from one node, and its part of a GPU from one GPU.
        """
        by_cpus = _times(self.cpus, share.cpus)
        if not share.gpus:
            return by_cpus
        on_each_gpu = _times(1.0, share.gpus)
        return min(by_cpus, int(self.gpus) * on_each_gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the nodes of a cluster have for trials, or this machine alone."""

    nodes: tuple[Node, ...]
    gpu_kinds: tuple[Gpu, ...] = ()  # what torch finds, one for each node that was asked
    no_gpu: str | None = None  # why torch finds none on this machine, where that is the cluster

    @classmethod
    def of_this_machine(cls) -> Self:
        """Return what a search will find here, without starting Ray."""
        import torch

        gpu = look_at_gpu()
        gpus = 0.0 if gpu.fault else float(torch.cuda.device_count())
        here = Node(cpus=float(usable_cores()), gpus=gpus)
        return cls(
            nodes=(here,),
            gpu_kinds=() if gpu.fault else (gpu,),
            no_gpu=gpu.fault,
        )

    @classmethod
    def of_nodes(cls, nodes: Sequence[Mapping[str, float]]) -> Self:
        """Return what a cluster has. nodes: by resource what each has, as Ray counts it."""
        return cls(nodes=tuple(Node.of(resources) for resources in nodes))

    @property
    def cpus(self) -> float:
        """The CPUs of all nodes."""
        return sum(node.cpus for node in self.nodes)

    @property
    def gpus(self) -> float:
        """The GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def largest_cpus(self) -> float:
        """The CPUs of the node with the most."""
        return max((node.cpus for node in self.nodes), default=0.0)

    @property
    def largest_gpus(self) -> float:
        """The GPUs of the node with the most."""
        return max((node.gpus for node in self.nodes), default=0.0)

    @property
    def cpus_a_gpu(self) -> float:
        """The CPUs for each GPU on the node that has the fewest; infinite without GPUs.

        With more than these for each GPU, trials would leave some of that node's GPUs idle.
        """
        return min((node.cpus / node.gpus for node in self.nodes if node.gpus), default=math.inf)

    def room(self, share: Resources) -> int:
        """Return how many trials of this share the nodes have room for."""
        return sum(node.room(share) for node in self.nodes)

    def at_once(self, share: Resources) -> int:
        """Return how many trials of this share run side by side, 1 or more."""
        return max(1, self.room(share))

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
        share = Resources(cpus=cpus, gpus=gpus)
        if not self.room(share):
            beside_gpus = max(node.cpus for node in self.nodes if node.gpus)
            raise UsageError(
                f"{cpus:g} CPUs per trial were asked for, but of the nodes with GPUs the largest "
                f"has {beside_gpus:g}; give `cpus_per_trial` up to that, or `gpus_per_trial` 0"
            )
        return share

    def _default_cpus(self, gpus: float) -> float:
        """Return the CPUs of a trial that has this part of a GPU."""
        if not gpus > 0:
            half_a_node = self.cpus / max(1, len(self.nodes)) // 2
            return max(1.0, half_a_node)
        by_gpu = self.cpus_a_gpu * gpus
        most = min(4.0, self.largest_cpus, by_gpu)
        return max(1.0, most // 1)


def share_text(share: Resources) -> str:
    """Write what a trial takes: `2 CPU and 1 GPU`."""
    cpus = f"{share.cpus:g} CPU"
    if not share.gpus:
        return cpus
    return f"{cpus} and {share.gpus:g} GPU"


def _times(amount: float, part: float) -> int:
    """Return how many times a part goes into an amount.

    Ray counts in ten-thousandths: 1.6 goes into 4.8 three times, however floats divide.
    """
    return int(round(amount / part, 6))
