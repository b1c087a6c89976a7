"""Trials of one depth trained as one, while Ray, ASHA and MLflow see each by itself.

A trial's own process holds its place in Ray Tune and passes results on; a `Fuser` actor, which has
the GPU, trains the trials that have come to it together. It must not decide which trials there are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
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
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.fused import Event, NotFusableError, train_fused
from elsa_tune.training.loop import train
from elsa_tune.training.memory import release, settle

log = logging.getLogger(__name__)

# A group begins when all have come who can be expected, or when for so long nobody has: a trial's
# process may take so long to start, and a trial that failed before will not come.
PATIENCE_SECONDS = 30.0
# A trial that does not ask for its next result for so long is gone, with its node for instance.
_LOST_SECONDS = 120.0
# Of a trial's CPUs, what the processes that only pass results on are given.
_PLACES_SHARE = 0.1

_DONE = "done"


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
                # For a process that was only slow: it hears why it got no further.
                self._events.append(
                    RunError(f"{self.trial.key} did not ask for its next result in time")
                )
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
        """Wait for the next event; None after the last."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._events or self.left)
            self._taken += 1
            return self._events.pop(0) if self._events else None

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
        self._fitting: dict[FreezeDepth, int] = {}  # how many went together in memory
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
            self._train(self._gather())

    def _gather(self) -> list[_Place]:
        """Wait for a group: the first depth that is complete, or else what has come in time."""
        with self._came:
            came, deadline = 0, 0.0
            while True:
                self._waiting = [place for place in self._waiting if not place.left]
                groups: dict[FreezeDepth, list[_Place]] = {}
                for place in self._waiting:
                    groups.setdefault(place.trial.depth, []).append(place)
                if len(self._waiting) > came:
                    deadline = time.monotonic() + self._patience
                came = len(self._waiting)
                left = deadline - time.monotonic()
                for depth, group in groups.items():
                    if len(group) >= self._wanted(depth) or left <= 0:
                        return self._taken(depth, group)
                self._came.wait(left if groups else None)

    def _wanted(self, depth: FreezeDepth) -> int:
        """Members of the next group of a depth."""
        most = self._fitting.get(depth, self._together)
        return max(1, min(most, self._expected[depth]))

    def _taken(self, depth: FreezeDepth, group: list[_Place]) -> list[_Place]:
        group = group[: self._fitting.get(depth, self._together)]
        self._expected[depth] -= len(group)
        self._waiting = [place for place in self._waiting if place not in group]
        return group

    def _train(self, group: list[_Place]) -> None:
        """Train them, together if that works; whatever goes wrong ends these trials only."""
        try:
            reason = self._train_together(group) if len(group) > 1 else ""
            if reason is None:
                half = len(group) // 2
                self._fitting[group[0].trial.depth] = half
                self._train(group[:half])
                self._train(group[half:])
                return
        except Exception as error:  # of these trials, whatever it is; the next group goes on
            log.exception("a fused group failed")
            for place in group:
                place.give(error)
            if isinstance(error, torch.AcceleratorError):
                os._exit(1)  # CUDA works no more in this process; Ray starts another
            return
        if reason == _DONE:
            for place in group:
                place.give(None)
            return
        for place in group:
            self._train_alone(place, reason)

    def _train_together(self, group: list[_Place]) -> str | None:
        """_DONE, why these trials cannot train as one, or None where memory ran out."""
        places = {place.trial.key: place for place in group}
        events = train_fused(
            [place.trial for place in group],
            self._data,
            device=self._device,
            depths=self._depths,
            wanted=lambda trial: places[trial.key].wants_more(),
        )
        try:
            for trial, event in events:
                places[trial.key].give(event)
        except NotFusableError as error:
            return str(error)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            return _DONE
        # Outside the handler: the exception's traceback would keep the memory in use.
        release()
        return None

    def _train_alone(self, place: _Place, reason: str) -> None:
        results = train(place.trial, self._data, device=self._device, depths=self._depths)
        try:
            while place.wants_more() and (result := next(results, None)) is not None:
                notes = (*result.notes, reason) if reason else result.notes
                place.give(dataclasses.replace(result, notes=notes))
            place.give(None)
        except Exception as error:  # of this trial, whatever it is; the others go on
            place.give(error)
        finally:
            results.close()


@ray.remote(max_restarts=-1)
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
    most: int,
    together: int,
    resources: Resources,
    depths: Sequence[int],
    expected: Mapping[FreezeDepth, int],
) -> list[Any]:
    """Up to `most` actors, one for each depth at most, with the resources of one trial less those
    of its places. data: a reference to the TaskData; the rest as for `Fusing`.
    """
    count = max(1, min(most, len(expected)))
    device = "cuda" if resources.gpus > 0 else "cpu"
    options = {
        "num_cpus": resources.cpus * (1 - _PLACES_SHARE),
        "num_gpus": resources.gpus,
        # All trials that can be under way may wait in one of them, and come and go.
        "max_concurrency": 2 * count * together + 8,
    }
    return [
        Fuser.options(**options).remote(  # type: ignore[attr-defined]  # Ray types no actors
            data, together, device, depths, expected, int(resources.cpus)
        )
        for _ in range(count)
    ]


@dataclass(frozen=True, slots=True)
class TrainInFuser:
    """Stands where `training.loop.train` stands: the trial is trained in the fuser of its depth.

    depths: those of the phase.
    """

    fusers: Sequence[Any]
    depths: Sequence[FreezeDepth]

    def __call__(
        self, trial: TrialSpec, data: TaskData, *, device: str, depths: Sequence[int]
    ) -> Iterator[EpochResult]:
        """As `training.loop.train`; raises RunError where the fuser is lost."""
        fuser = self.fusers[self.depths.index(trial.depth) % len(self.fusers)]
        try:
            ray.get(fuser.join.remote(trial))
            while (result := _asked(fuser, trial.key)) is not None:
                yield result
                if result.is_last:
                    return
        except ray.exceptions.RayActorError as error:
            raise RunError(f"{trial.key}: the process that trained it was lost: {error}") from error
        finally:
            with contextlib.suppress(ray.exceptions.RayError):
                fuser.leave.remote(trial.key)


def _asked(fuser: Any, key: str) -> EpochResult | None:
    try:
        return ray.get(fuser.next.remote(key))  # type: ignore[no-any-return]  # Ray types no actors
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, ElsaTuneError) else error from None
