"""Nodes that join a cluster while a search runs: asked for their versions, as the first ones were.

Ray lets any node join that runs the same Ray and Python. Where that has no elsa-tune every trial
fails at once, and with another torch it trains otherwise than the rest.
"""

from collections.abc import Iterable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elsa_tune.searching.cluster import node_versions
from elsa_tune.words import listed


class JoiningNodes:
    """What nodes answer, each asked once.

    Those that were there before the first trial are asked again: one may have been too busy to
    answer then, or have joined since.
    """

    def __init__(self, packages: Iterable[str] = ()) -> None:
        """Look at no node yet. packages: as of `node_versions.question`."""
        self._question = node_versions.question(packages)
        self._known: set[str] = set()
        self._asked: dict[str, Any] = {}  # the answers that are to come, by the node's id

    def look(self, nodes: Iterable[str]) -> str | None:
        """Ask nodes that were not asked yet, and wait for none of them.

        nodes: the ids of those that train. Returns why one of them must get no trial, if any.
        """
        for node in nodes:
            if node in self._known:
                continue
            self._known.add(node)
            on_node = NodeAffinitySchedulingStrategy(node, soft=False)
            task = ray.remote(self._question).options(num_cpus=0, scheduling_strategy=on_node)
            self._asked[node] = task.remote()
        for node, answer in list(self._asked.items()):
            ready, _ = ray.wait([answer], timeout=0)
            if not ready:
                continue
            del self._asked[node]
            try:
                versions = ray.get(answer)
            except ray.exceptions.RayError:  # it has left again
                continue
            differences = node_versions.differing_versions(versions, self._question())
            if differences:
                return (
                    f"node {node[:8]} of the cluster has other versions than this machine: "
                    f"{listed(differences)}; install the same ones there"
                )
        return None
