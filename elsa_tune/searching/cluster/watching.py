"""Watches what a search must not wait for in silence.

That is: a node that is gone, room that others have taken, a worker that never begins, news of a
trial.
"""

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import ray

from elsa_tune.searching.cluster.capacity import share_text
from elsa_tune.searching.cluster.fair_part import fits, free_by_node
from elsa_tune.searching.cluster.hangs import TIMES, Hangs, patience
from elsa_tune.searching.cluster.joining import JoiningNodes
from elsa_tune.searching.cluster.nodes import nodes_that_train
from elsa_tune.searching.eta import evaluation_seconds
from elsa_tune.searching.output import Say
from elsa_tune.searching.planning.known import KnownTrial, KnowsTrials
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.trial import TrialSpec, TrialStatus
from elsa_tune.tracking.record_names import WAITS_FOR_NODE
from elsa_tune.words import duration

LOOK_SECONDS = 5.0
# A cluster may bring another node in the place of a lost one.
REPLACEMENT_SECONDS = 300.0
# Ray itself waits a minute for its gcs_server before it ends the driver.
ANSWER_SECONDS = 120.0
# A trial is silent without news for `TIMES` times what such an evaluation takes.
SHORTEST_SILENCE = 60.0
# Where nothing has reported yet, so that nobody knows what an evaluation takes.
UNKNOWN_SILENCE = 1800.0
# How long a trial may wait before that is said: for room, and for a worker to load its libraries.
ROOM_SECONDS = 25.0
BEGIN_SECONDS = 120.0
AGAIN_SECONDS = 600.0  # until it is said again
# Ray's workers exchange at least this much through shared memory.
LITTLE_SHARED_MEMORY = 16 * 2**20
SHARED_MEMORY = Path("/dev/shm")


class LostNodes(BaseException):
    """No node can train.

    It is no Exception: Ray Tune ends its trials at any, and Ray would wait for those of a lost node
    without end.
    """


class _News(NamedTuple):
    """The last that was heard of a trial."""

    key: str  # the trial's
    started: float  # when this attempt began
    evaluations: int  # how many it has reported
    saved: float | None  # when its checkpoint was written


class Waiting(Protocol):
    """Knows which trials Ray Tune has to run."""

    @property
    def under_way(self) -> Sequence[TrialSpec]:
        """The trials that Ray Tune was given and that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchHooks:
    """What a watch asks the session that it watches over, and tells it."""

    has_workers: Callable[[], bool]  # whether Ray has given the search a worker
    saved: Callable[[str], float | None]  # when a trial's checkpoint was written
    look_around: Callable[[], object]  # called at each look
    joining: JoiningNodes | None  # looks at a cluster's nodes; None asks no node
    hangs: Hangs  # takes the trials that hang
    # Takes what the search waits for before a trial can run, and None once it waits no more.
    note_waiting: Callable[[str | None], object]
    say: Say
    give_up: Callable[[], object]  # ends this process where Ray hangs


class Watch:
    """A look at nodes and trials every few seconds, in a thread of its own, until its `with` ends.

    Time is counted in looks: neither Ctrl-Z nor a machine that sleeps is a silence.
    """

    def __init__(
        self,
        spec: SearchSpec,
        plan: KnowsTrials,
        waiting: Waiting,
        hooks: WatchHooks,
    ) -> None:
        """Prepare a watch; it begins with `with`.

        plan: knows the trials so far. waiting: what Ray Tune was given.
        """
        self._spec = spec
        self._plan = plan
        self._waiting = waiting
        self._hooks = hooks
        self._noted: str | None = None  # what the search was last noted to wait for
        self._here = ray.get_runtime_context().get_node_id()
        self._logs = _logs(self._here)
        self._over = threading.Event()
        self._asks_ray = False  # whether a question to Ray is open, or the last one failed
        # Seconds for which Ray has not answered a look, no node could train and no trial ran.
        self._unanswered = 0.0
        self._without_node = 0.0
        self._without_trial = 0.0
        self._said_waiting = 0.0  # `_without_trial` when that was said last
        self._begun = 0.0  # when the last trial began, by the clock of its record
        # Seconds of silence by what was heard last of a trial.
        self._silent: dict[_News, float] = {}
        self._said_silent: set[tuple[str, float]] = set()  # trials and attempts
        self._said_hung: set[tuple[str, float]] = set()  # likewise
        # Why nothing can train any more; the search ends.
        self.lost: str | None = None
        # Why a node that has joined must get no trial; the search ends, and Ray is as it was.
        self.unfit: str | None = None

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
                self._look()

    def _look(self) -> None:
        """Look at nodes and trials once."""
        with self._asking_ray():
            nodes = ray.nodes()
        self._look_at_nodes(nodes)
        if self.lost is not None:
            return  # the guard sees to it that the search ends
        with self._asking_ray():
            if self._hooks.joining is not None and self.unfit is None:
                training = [node["NodeID"] for node in nodes_that_train()]
                self.unfit = self._hooks.joining.look(training)
            self._hooks.look_around()
        trials = self._plan.known
        self._look_at_beginning(trials)
        self._look_at_news(trials)

    @contextlib.contextmanager
    def _asking_ray(self) -> Iterator[None]:
        """Ask Ray something; the guard counts until an answer has come, also to a later look.

        What a look waits for besides, such as the disk of the record, is no silence of Ray's.
        """
        self._asks_ray = True
        yield
        self._asks_ray = False
        if self.lost is None:
            self._unanswered = 0.0

    def _guard(self) -> None:
        """Give up where looks have no answer for long: Ray hangs, or the search waits for it.

        Where gcs_server hangs no question comes back; without nodes the search's own may not.
        """
        while not self._over.wait(LOOK_SECONDS):
            self._count_silence()

    def _count_silence(self) -> None:
        """Count another while without an answer, and give up after the last."""
        if not self._asks_ray and self.lost is None:
            return
        self._unanswered += LOOK_SECONDS
        if self._unanswered >= ANSWER_SECONDS:
            self._hooks.give_up()

    def _look_at_nodes(self, nodes: Sequence[dict[str, Any]]) -> None:
        """Note in `lost` that no node can train, at once or after a while."""
        alive = [node for node in nodes if node["Alive"]]
        is_here = any(node["NodeID"] == self._here for node in alive)
        can_train = any(fits(node["Resources"], self._spec.resources) for node in alive)
        if not is_here:
            self.lost = (
                "Ray's node on this machine does not answer and was given up (its raylet was "
                "stopped or killed, or the machine paused or swapped)"
            )
        elif can_train:
            self._without_node = 0.0
            if self._noted == WAITS_FOR_NODE:
                self._waits(None)
        else:
            if not self._without_node:
                self._hooks.say(
                    f"no node that could train a trial answers; waiting "
                    f"{duration(REPLACEMENT_SECONDS)} for another"
                )
                self._waits(WAITS_FOR_NODE)
            self._without_node += LOOK_SECONDS
            if self._without_node >= REPLACEMENT_SECONDS:
                self.lost = (
                    f"no node of the cluster that could train a trial has answered for "
                    f"{duration(REPLACEMENT_SECONDS)}"
                )

    def _look_at_beginning(self, trials: Sequence[KnownTrial]) -> None:
        """Say why nothing happens where trials are to run and none does."""
        is_running = any(trial.status is TrialStatus.RUNNING for trial in trials)
        begun = max((trial.started for trial in trials), default=0.0)
        has_begun = begun > self._begun  # since the last look; it may have ended, too
        self._begun = begun
        if is_running or has_begun or not self._waiting.under_way:
            self._without_trial = 0.0
            self._said_waiting = 0.0
            if self._noted is not None and not self._without_node:
                self._waits(None)
            return
        self._without_trial += LOOK_SECONDS
        say_again = self._said_waiting + AGAIN_SECONDS
        if self._said_waiting and self._without_trial < say_again:
            return
        since = self._without_trial
        share = self._spec.resources
        has_room = self._hooks.has_workers()
        if not has_room:
            with self._asking_ray():
                has_room = any(fits(free, share) for free in free_by_node())
        if has_room and self._noted is not None:
            self._waits(None)
        if not has_room:
            if since >= ROOM_SECONDS:
                self._said_waiting = since
                with self._asking_ray():
                    room = _lacking_room(share)
                self._hooks.say(f"waiting for {room}")
                self._waits(room)
        elif since >= BEGIN_SECONDS:
            self._said_waiting = since
            self._hooks.say(
                f"no trial has begun for {duration(since)}, though there is room for one"
                f"{_little_shared_memory()}; Ray's logs in {self._logs} say more, and Ctrl-C ends "
                "the search"
            )

    def _waits(self, what: str | None) -> None:
        """Have noted what the search waits for."""
        self._noted = what
        self._hooks.note_waiting(what)

    def _look_at_news(self, trials: Sequence[KnownTrial]) -> None:
        """Say once of each trial that it has sent nothing for long, and end it where it hangs."""
        if not self._hooks.hangs.has_stepped:
            return  # the driver hears nothing
        silent_before = self._silent
        self._silent = {}
        for trial in trials:
            if trial.status is TrialStatus.RUNNING:
                saved = self._hooks.saved(trial.key)
                news = _News(trial.key, trial.started, len(trial.reported), saved)
                silence = silent_before.get(news, 0.0) + LOOK_SECONDS
                self._silent[news] = silence
                allowed = patience(self._spec, trials, trial)
                self._look_at_silence(trial, silence, trials, allowed)
                if allowed is not None and silence >= allowed:
                    self._end_hung(trial, silence, trials)

    def _end_hung(self, trial: KnownTrial, silence: float, trials: Sequence[KnownTrial]) -> None:
        """Have a trial ended that hangs."""
        attempt = (trial.key, trial.started)
        if attempt in self._said_hung:
            return
        self._said_hung.add(attempt)
        usual = evaluation_seconds(self._spec, trials, trial.trial)
        why = f"hung: no report for {duration(silence)}"
        if usual is not None:
            why += f", and such an evaluation takes {duration(usual)}"
        self._hooks.hangs.add(trial.key, why)

    def _look_at_silence(
        self,
        trial: KnownTrial,
        silence: float,
        trials: Sequence[KnownTrial],
        allowed: float | None,
    ) -> None:
        """Say that this trial has sent nothing for long, if so and if it was not said.

        allowed: the seconds of silence after which it is ended, None for never.
        """
        key = trial.trial.key
        usual = evaluation_seconds(self._spec, trials, trial.trial)
        if usual is None:
            limit = UNKNOWN_SILENCE
            comparison = ""
        else:
            limit = max(SHORTEST_SILENCE, TIMES * usual)
            comparison = f", and such an evaluation takes {duration(usual)}"
        attempt = (key, trial.started)
        if silence < limit or attempt in self._said_silent:
            return
        self._said_silent.add(attempt)
        then = "Ctrl-C and `resume` start it again"
        if self._hooks.saved(key) is not None:
            then = "Ctrl-C and `resume` continue it at its checkpoint"
        if allowed is not None:
            then = f"after {duration(allowed)} it counts as hung and is begun again"
        self._hooks.say(
            f"no news of {key} for {duration(silence)}{comparison}: see whether its process "
            f"(ray::ImplicitFunc) still works, as `top` shows it, and Ray's logs in "
            f"{self._logs}; {then}"
        )


def _lacking_room(share: Resources) -> str:
    """Write what a trial waits for: `room: a trial takes 2 CPU, and of Ray's 8 CPU 1 are ...`."""
    free = ray.available_resources()
    room = (
        f"room: a trial takes {share_text(share)}, and of Ray's {_free(share, free)} free; others "
        "have the rest"
    )
    if fits(free, share):  # of all nodes together
        room += ", and no node has as much free"
    return room


def _free(share: Resources, free: dict[str, float]) -> str:
    """Write how much Ray has free of what a trial takes: `2 CPU 1 are and 1 GPU 0 are`."""
    total = ray.cluster_resources()
    kinds = ["CPU"]
    if share.gpus:
        kinds.append("GPU")
    parts = []
    for kind in kinds:
        in_all = total.get(kind, 0)
        free_now = free.get(kind, 0)
        parts.append(f"{in_all:g} {kind} {free_now:g} are")
    return " and ".join(parts)


def _logs(node_id: str) -> str:
    """Return the folder of Ray's logs on this machine, its default one where Ray does not say."""
    for node in ray.nodes():
        if node["NodeID"] == node_id:
            socket = Path(node["ObjectStoreSocketName"])
            return str(socket.parent.parent / "logs")
    return "/tmp/ray"


def _little_shared_memory() -> str:
    """Say in brackets that too little shared memory is free; "" where there is enough."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(SHARED_MEMORY).free
        if free < LITTLE_SHARED_MEMORY:
            mebibytes = free / 2**20
            return f" ({SHARED_MEMORY} has only {mebibytes:.1f} MiB free, which Ray needs)"
    return ""
