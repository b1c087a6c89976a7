"""What a search must not wait for in silence: a node that is gone, room that others have taken, a
worker that never begins, news of a trial.
"""

import contextlib
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import ray

from elsa_tune.searching.output import Say
from elsa_tune.searching.pace import evaluation_seconds
from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.trial import TrialSpec, TrialStatus
from elsa_tune.words import duration

LOOK_SECONDS = 5.0
# A cluster may bring another node in the place of a lost one.
REPLACEMENT_SECONDS = 300.0
# Ray itself waits a minute for its gcs_server before it ends the driver.
ANSWER_SECONDS = 120.0
# Without news of a trial for so many times what such an evaluation takes.
TIMES = 10
SHORTEST_SILENCE = 60.0
# Where nothing has reported yet, and so nothing is known.
UNKNOWN_SILENCE = 1800.0
# Until a trial that could begin has: for room, and for a worker to load its libraries.
ROOM_SECONDS, BEGIN_SECONDS = 25.0, 120.0
AGAIN_SECONDS = 600.0
# Ray's workers exchange at least this much through shared memory.
LITTLE_SHARED_MEMORY = 16 * 2**20
SHARED_MEMORY = Path("/dev/shm")


class LostNodes(BaseException):
    """No node can train. Ray Tune, which ends its trials at any Exception, is to leave them: Ray
    would wait for a lost node's without end.
    """


class Waiting(Protocol):
    """What the trials that were asked for wait for."""

    @property
    def under_way(self) -> Sequence[TrialSpec]:
        """Those that Ray Tune was given and that have not ended."""


class Watch:
    """Looks every few seconds, in a thread of its own, until its `with` ends.

    known: gives the trials so far. waiting: what Ray Tune was given. has_workers: whether Ray has
    given the search a worker. give_up: ends this process where Ray hangs, and the driver with it.

    Time is counted in looks: neither Ctrl-Z nor a machine that sleeps is a silence.
    """

    def __init__(
        self,
        spec: SearchSpec,
        known: Callable[[], Sequence[KnownTrial]],
        waiting: Waiting,
        has_workers: Callable[[], bool],
        say: Say,
        give_up: Callable[[], object],
    ) -> None:
        self._spec, self._known, self._waiting = spec, known, waiting
        self._has_workers, self._say, self._give_up = has_workers, say, give_up
        self._here = ray.get_runtime_context().get_node_id()
        self._logs = _logs(self._here)
        self._over = threading.Event()
        self._unanswered = 0.0  # seconds for which Ray has not answered a look
        self._without_node = 0.0
        self._without_trial = 0.0
        self._said_waiting = 0.0  # `_without_trial` when that was said last
        self._silent: dict[tuple[str, float, int], float] = {}  # by trial, attempt and evaluations
        self._told: set[tuple[str, float]] = set()
        # Why nothing can train any more; the search ends.
        self.lost: str | None = None

    def __enter__(self) -> Self:
        for loop in (self._look_on, self._guard):
            threading.Thread(target=loop, name="watch", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            # Ray's own errors, as while it goes down: the next look is soon.
            with contextlib.suppress(Exception):
                self._look_at_nodes(ray.nodes())
                if self.lost is not None:
                    continue  # the guard sees to it that the search ends
                self._unanswered = 0.0
                known = self._known()
                self._look_at_beginning(known)
                self._look_at_news(known)

    def _guard(self) -> None:
        """Where gcs_server hangs no question comes back; without nodes the search's may not."""
        while not self._over.wait(LOOK_SECONDS):
            self._unanswered += LOOK_SECONDS
            if self._unanswered >= ANSWER_SECONDS:
                self._give_up()

    def _look_at_nodes(self, nodes: Sequence[dict[str, Any]]) -> None:
        alive = [node for node in nodes if node["Alive"]]
        if all(node["NodeID"] != self._here for node in alive):
            self.lost = (
                "Ray's node on this machine does not answer and was given up (its raylet was "
                "stopped or killed, or the machine paused or swapped)"
            )
        elif any(_fits(node["Resources"], self._spec.resources) for node in alive):
            self._without_node = 0.0
        else:
            if not self._without_node:
                self._say(
                    f"no node that could train a trial answers; waiting "
                    f"{duration(REPLACEMENT_SECONDS)} for another"
                )
            self._without_node += LOOK_SECONDS
            if self._without_node >= REPLACEMENT_SECONDS:
                self.lost = (
                    f"no node of the cluster that could train a trial has answered for "
                    f"{duration(REPLACEMENT_SECONDS)}"
                )

    def _look_at_beginning(self, known: Sequence[KnownTrial]) -> None:
        """Say it where trials are to run and none does."""
        runs = any(one.status is TrialStatus.RUNNING for one in known)
        if runs or not self._waiting.under_way:
            self._without_trial = self._said_waiting = 0.0
            return
        self._without_trial += LOOK_SECONDS
        if self._said_waiting and self._without_trial < self._said_waiting + AGAIN_SECONDS:
            return
        since, share, free = self._without_trial, self._spec.resources, ray.available_resources()
        if not self._has_workers() and not _fits(free, share):
            if since >= ROOM_SECONDS:
                self._said_waiting = since
                self._say(
                    f"waiting for room: a trial takes {_shown(share)}, and of Ray's "
                    f"{_free(share, free)} free; others have the rest"
                )
        elif since >= BEGIN_SECONDS:
            self._said_waiting = since
            self._say(
                f"no trial has begun for {duration(since)}, though there is room for one"
                f"{_little_shared_memory()}; Ray's logs in {self._logs} say more, and Ctrl-C ends "
                "the search"
            )

    def _look_at_news(self, known: Sequence[KnownTrial]) -> None:
        """Say it once of a trial that has sent nothing for long."""
        running = [one for one in known if one.status is TrialStatus.RUNNING]
        news = {(one.trial.key, one.started, len(one.reported)): one for one in running}
        self._silent = {key: self._silent.get(key, 0.0) + LOOK_SECONDS for key in news}
        for (key, started, _), silence in self._silent.items():
            one = news[key, started, _]
            usual = evaluation_seconds(self._spec, known, one.trial)
            limit = UNKNOWN_SILENCE if usual is None else max(SHORTEST_SILENCE, TIMES * usual)
            if silence < limit or (key, started) in self._told:
                continue
            self._told.add((key, started))
            like = "" if usual is None else f", and such an evaluation takes {duration(usual)}"
            self._say(
                f"no news of {key} for {duration(silence)}{like}: see whether its process "
                f"(ray::ImplicitFunc) still works, as `top` shows it, and Ray's logs in "
                f"{self._logs}; Ctrl-C and `resume` start it again"
            )


def _fits(free: dict[str, float], share: Resources) -> bool:
    return free.get("CPU", 0.0) >= share.cpus and free.get("GPU", 0.0) >= share.gpus


def _shown(share: Resources) -> str:
    gpus = f" and {share.gpus:g} GPU" if share.gpus else ""
    return f"{share.cpus:g} CPU{gpus}"


def _free(share: Resources, free: dict[str, float]) -> str:
    total = ray.cluster_resources()
    kinds = ("CPU", "GPU") if share.gpus else ("CPU",)
    return " and ".join(
        f"{total.get(kind, 0):g} {kind} {free.get(kind, 0):g} are" for kind in kinds
    )


def _logs(node: str) -> str:
    """The folder of Ray's own logs on this machine; its default place where Ray does not say."""
    sockets = [one["ObjectStoreSocketName"] for one in ray.nodes() if one["NodeID"] == node]
    return str(Path(*sockets).parent.parent / "logs") if sockets else "/tmp/ray"


def _little_shared_memory() -> str:
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(SHARED_MEMORY).free
        if free < LITTLE_SHARED_MEMORY:
            return f" ({SHARED_MEMORY} has only {free / 2**20:.1f} MiB free, which Ray needs)"
    return ""
