"""How many trials a search runs at once where other searches share its cluster."""

import math
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import ray
from ray._private.state import available_resources_per_node

from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.cluster.nodes import nodes_that_train
from elsa_tune.specs.search import Resources

# Of the actors by which the searches of a cluster find one another.
NAMESPACE = "elsa-tune"
# Looks at which room must have been free before a search takes more than its part. Ray gives it to
# whoever waits for it within one.
FREE_LOOKS = 2


def actor_name(search_id: str) -> str:
    """Return a name for the actor that stands for a session of a search.

    No other has it: that of a session that was killed may be there for a while.
    """
    return f"{search_id}/{uuid.uuid4().hex}"


def fits(free: Mapping[str, float], share: Resources) -> bool:
    """Return whether a trial's share fits in what a node has, or has free."""
    free_cpus = free.get("CPU", 0.0)
    free_gpus = free.get("GPU", 0.0)
    return free_cpus >= share.cpus and free_gpus >= share.gpus


def free_by_node() -> list[dict[str, float]]:
    """Return what each node of the cluster has free: a trial takes all of its share from one."""
    return list(available_resources_per_node().values())


def part_of(trials: int, searches: Collection[str], own: str) -> int:
    """Return how many of the trials that a cluster has room for are one search's, 1 or more.

    All searches have equally many; those whose ids come first have what is left over.
    """
    ordered = sorted({*searches, own})
    each, left_over = divmod(trials, len(ordered))
    if ordered.index(own) < left_over:
        each += 1
    return max(1, each)


class FairPart:
    """Says whether one more trial may begin beside those of this search that are under way.

    Ray gives room to whoever asked first, and a search keeps the room of its ended trials for its
    next ones: without this the first search of a cluster would have all of it until its end.
    """

    def __init__(
        self,
        share: Resources,
        own: str,
        *,
        most: int | None,
        is_shared: bool,
        release: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare for a search that is alone until `look` finds others.

        share: what a trial takes. own: the search's id. most: trials at once that it was asked to
        keep to. is_shared: whether other searches may use its Ray. release: lets go of the workers
        that wait for a trial.
        """
        self._share = share
        self._own = own
        self._most = math.inf if most is None else most
        self._is_shared = is_shared
        self._release = release
        self._part = math.inf
        self._free_looks = 0

    def look(self) -> None:
        """Ask Ray who else is there, and whether room stands free."""
        if not self._is_shared:
            return
        there = ray.util.list_named_actors(all_namespaces=True)
        names = [actor["name"] for actor in there if actor["namespace"] == NAMESPACE]
        searches = {name.split("/")[0] for name in names}
        nodes = [node["Resources"] for node in nodes_that_train()]
        self.see(searches, nodes, free_by_node())

    def see(
        self,
        searches: Collection[str],
        nodes: Sequence[Mapping[str, float]],
        free: Iterable[Mapping[str, float]],
    ) -> None:
        """Take in what a look found: searches' ids, what each node has, what it has free."""
        if not set(searches) - {self._own}:
            self._part = math.inf
            return
        room = Capacity.of_nodes(nodes).room(self._share)
        self._part = part_of(room, searches, self._own)
        if any(fits(of_node, self._share) for of_node in free):
            self._free_looks += 1
        else:
            self._free_looks = 0

    def allows(self, under_way: int) -> bool:
        """Return whether a trial may begin beside so many."""
        if under_way >= self._most:
            return False
        if under_way < self._part:
            return True
        if self._free_looks < FREE_LOOKS:
            return False
        self._free_looks = 0  # what was free is taken by this trial
        return True

    def leave(self) -> None:
        """Leave to others, where there are some, what no trial of this search takes now."""
        if self._part < math.inf:
            self._release()
