"""Trials of one depth trained as one, while Ray, ASHA and MLflow see each by itself.

A trial's own process holds its place in Ray Tune and passes results on; a `Fuser` actor, which has
the GPU, trains the trials that have come to it together. It must not decide which trials there are.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
import torch

from elsa_tune.errors import ElsaTuneError, RunError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import Resources
from elsa_tune.specs.trial import EpochResult, TrialSpec
from elsa_tune.training.course import is_out_of_memory
from elsa_tune.training.fused import Event, NotFusableError, train_fused
from elsa_tune.training.loop import train
from elsa_tune.training.memory import release, settle
from elsa_tune.training.tokens import TaskData

log = logging.getLogger(__name__)

# A group begins when all have come who can be expected, or when for so long nobody has: a trial's
# process may take so long to start, and a trial that failed before will not come.
PATIENCE_SECONDS = 30.0
# A trial that does not ask for its next result for so long is gone, with its node for instance.
_LOST_SECONDS = 120.0
# Of a trial's CPUs, what the processes that only pass results on are given.
_PLACES_SHARE = 0.1

_END = None


def share_of_place(resources: Resources, together: int) -> dict[str, float]:
    """What Ray Tune reserves for one trial that trains in a fuser."""
    return {"cpu": resources.cpus * _PLACES_SHARE / together, "gpu": 0.0}


class _Place:
    """A trial's place in a fuser: what came for it, and whether it waits for more."""

    def __init__(self, trial: TrialSpec) -> None:
        self.trial = trial
        self.left = False
        self._events: list[Event | Exception | None] = []
        self._asked = self._taken = 0  # events
        self._delivered = 0  # evaluations
        self._changed = threading.Condition()

    def wants_more(self) -> bool:
        """Wait until the trial has dealt with all it was given; False when it has gone."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: self.left or self._asked > self._taken + len(self._events), _LOST_SECONDS
            ):
                self.left = True
            return not self.left

    def give(self, event: Event | Exception | None) -> None:
        """Hand over an event; an evaluation once, though a group that begins again repeats it."""
        with self._changed:
            if isinstance(event, EpochResult):
                if event.evaluation <= self._delivered:
                    return
                self._delivered = event.evaluation
            self._events.append(event)
            self._changed.notify_all()

    def take(self) -> Event | Exception | None:
        """Wait for the next event."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._events)
            self._taken += 1
            return self._events.pop(0)

    def leave(self) -> None:
        """Nothing more is wanted."""
        with self._changed:
            self.left = True
            self._changed.notify_all()


class Fusing:
    """Gathers trials and trains them in groups, in a thread of its own; any thread may call it."""

    def __init__(
        self,
        data: TaskData,
        together: int,
        device: str,
        depths: Sequence[int],
        expected: Mapping[FreezeDepth, int],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """together: members of a group at most. expected: how many trials of each depth will come.
        patience: seconds to wait for one of them.
        """
        self._data = data
        self._expected = Counter(expected)
        self._together = together
        self._device = device
        self._depths = depths
        self._patience = patience
        self._places: dict[str, _Place] = {}
        self._waiting: list[_Place] = []
        self._came = threading.Condition()
        threading.Thread(target=self._work, name="fusing", daemon=True).start()

    def join(self, trial: TrialSpec) -> None:
        """Take a trial into the next group of its depth."""
        place = _Place(trial)
        with self._came:
            self._places[trial.key] = place
            self._waiting.append(place)
            self._came.notify()

    def next(self, key: str) -> EpochResult | None:
        """A trial's next result; None after its last. Raises what ended it."""
        event = self._places[key].take()
        if isinstance(event, Exception):
            raise event
        return event

    def leave(self, key: str) -> None:
        """A trial needs no more: its scheduler ended it, or it has everything."""
        place = self._places.pop(key, None)
        if place is not None:
            place.leave()

    # ---- the thread ----

    def _work(self) -> None:
        while True:
            group = self._gather()
            try:
                self._train([place for place in group if not place.left])
            except Exception as error:  # whatever it is ends these trials, not the next ones
                log.exception("a fused group failed")
                for place in group:
                    place.give(error)
            else:
                for place in group:
                    place.give(_END)

    def _gather(self) -> list[_Place]:
        """Wait for trials; those of the first one's depth, as many as go together."""
        with self._came:
            while not self._waiting:
                self._came.wait()
            came, deadline = 0, 0.0
            while True:
                depth = self._waiting[0].trial.depth
                group = [place for place in self._waiting if place.trial.depth == depth]
                if len(group) >= max(1, min(self._together, self._expected[depth])):
                    break
                if len(self._waiting) != came:
                    came, deadline = len(self._waiting), time.monotonic() + self._patience
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self._came.wait(left)
            group = group[: self._together]
            self._expected[depth] -= len(group)
            self._waiting = [place for place in self._waiting if place not in group]
            return group

    def _train(self, group: list[_Place]) -> None:
        if len(group) > 1:
            try:
                self._train_together(group)
                return
            except NotFusableError as error:
                reason = str(error)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = ""
            # Outside the handler: the exception's traceback would keep the memory in use.
            release()
            if not reason:
                half = len(group) // 2
                self._train(group[:half])
                self._train(group[half:])
                return
        for place in group:
            self._train_alone(place)

    def _train_together(self, group: list[_Place]) -> None:
        places = {place.trial.key: place for place in group}
        events = train_fused(
            [place.trial for place in group],
            self._data,
            device=self._device,
            depths=self._depths,
            wanted=lambda trial: places[trial.key].wants_more(),
        )
        for trial, event in events:
            places[trial.key].give(event)

    def _train_alone(self, place: _Place) -> None:
        try:
            for result in train(place.trial, self._data, device=self._device, depths=self._depths):
                if not place.wants_more():
                    return
                place.give(result)
        except ElsaTuneError as error:
            place.give(error)


@ray.remote
class Fuser(Fusing):
    """A `Fusing` in a process of its own, with a trial's GPU and CPUs."""

    def __init__(
        self,
        data: TaskData,
        together: int,
        device: str,
        depths: Sequence[int],
        expected: Mapping[FreezeDepth, int],
        threads: int,
    ) -> None:
        torch.set_num_threads(max(1, threads))
        settle()
        super().__init__(data, together, device, depths, expected)


def start_fusers(
    data: Any,
    count: int,
    together: int,
    resources: Resources,
    depths: Sequence[int],
    expected: Mapping[FreezeDepth, int],
) -> list[Any]:
    """So many actors, each with the resources of one trial less those of its places. data: a
    reference to the TaskData; the rest as for `Fusing`.
    """
    device = "cuda" if resources.gpus > 0 else "cpu"
    options = {
        "num_cpus": resources.cpus * (1 - _PLACES_SHARE),
        "num_gpus": resources.gpus,
        # One for each trial that waits for its next result, and for those who come and go.
        "max_concurrency": 2 * together + 8,
    }
    return [
        Fuser.options(**options).remote(  # type: ignore[attr-defined]
            data, together, device, depths, expected, int(resources.cpus)
        )
        for _ in range(count)
    ]


@dataclass(frozen=True, slots=True)
class TrainInFuser:
    """Stands where `training.loop.train` stands: the trial is trained in the fuser of its depth."""

    fusers: Sequence[Any]

    def __call__(
        self, trial: TrialSpec, data: TaskData, *, device: str, depths: Sequence[int]
    ) -> Iterator[EpochResult]:
        """As `training.loop.train`; raises RunError where the fuser is lost."""
        order = (0, *depths)
        number = trial.depth.frozen_layers
        place = order.index(number) if number in order else 0
        fuser = self.fusers[place % len(self.fusers)]
        try:
            ray.get(fuser.join.remote(trial))
            while (result := _asked(fuser, trial.key)) is not None:
                yield result
        except ray.exceptions.RayActorError as error:
            raise RunError(f"{trial.key}: the process that trained it was lost: {error}") from error
        finally:
            with contextlib.suppress(ray.exceptions.RayError):
                fuser.leave.remote(trial.key)


def _asked(fuser: Any, key: str) -> EpochResult | None:
    try:
        return ray.get(fuser.next.remote(key))  # type: ignore[no-any-return]
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, ElsaTuneError) else error from None
