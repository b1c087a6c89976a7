"""Whether this node is being taken away: a cluster drains a node before it ends it."""

import contextlib
import functools
import threading
from collections.abc import Callable, Collection

import ray

LOOK_SECONDS = 2.0


class Notice:
    """A look every few seconds, in a thread of its own, whether this node is being drained.

    The thread keeps a Ray that does not answer from holding up a trial. A look takes less than a
    millisecond.
    """

    def __init__(
        self,
        node: str,
        draining: Callable[[], Collection[str]],
        seconds: float = LOOK_SECONDS,
    ) -> None:
        """Prepare to look. node: Ray's id of this one. draining: gives those of drained nodes."""
        self._node = node
        self._draining = draining
        self._seconds = seconds
        self._given = threading.Event()

    def start(self) -> "Notice":
        """Begin to look."""
        self.look()
        threading.Thread(target=self._look_on, name="notice", daemon=True).start()
        return self

    def look(self) -> None:
        """Look once; whatever Ray answers instead is no notice."""
        with contextlib.suppress(Exception):
            if self._node in self._draining():
                self._given.set()

    def is_given(self) -> bool:
        """Return whether this node is being taken away."""
        return self._given.is_set()

    def _look_on(self) -> None:
        while not self._given.wait(self._seconds):
            self.look()


@functools.cache
def notice_of_this_node() -> Notice:
    """Return this process's notice, which looks from the first call on."""
    node = ray.get_runtime_context().get_node_id()
    return Notice(node, draining_nodes).start()


def draining_nodes() -> Collection[str]:
    """Return Ray's ids of the nodes that are being drained, and end by themselves."""
    from ray._private.state import state  # Ray has no public question for it

    nodes: dict[str, int] = state.get_draining_nodes()
    return nodes.keys()
