"""Why a trial ended without a result, and whether it is begun again.

A trial that fails for a reason of its own is given one more try. One whose node went away, or
which hung, did nothing wrong that is known: it was interrupted.
"""

from collections import Counter
from dataclasses import dataclass

import ray

from elsa_tune.errors import LeavingError
from elsa_tune.searching.cluster.hangs import Hangs
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.words import trials_text

# A trial that failed (a full disk, a killed worker) or hung is given one more try before the search
# goes on without it.
ATTEMPTS = 2
# A trial that loses its node so often, without ever getting further than before, may be the reason.
LOSSES = 4
# How many trials may fail before the first one of a search has completed: then its code, its data
# or its machines are broken.
FAILURES_AT_FIRST = 10
# What Ray writes of an actor whose node is gone; it tells nothing else apart (Ray 2.60).
_NODE_DIED = "its node has died"


def lost_its_node(error: BaseException) -> bool:
    """Return whether a trial ended because its node did, or did not answer any more."""
    if isinstance(error, ray.exceptions.NodeDiedError | ray.exceptions.ActorUnavailableError):
        return True
    if not isinstance(error, ray.exceptions.RayActorError):
        return False
    return error.preempted or _NODE_DIED in str(error)


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How a trial ended that has no result."""

    status: TrialStatus  # interrupted or failed
    message: str  # why, in a sentence


class Repeats:
    """What one session knows of trials that ended without a result.

    max_failures: how many trials may fail; None for ten before the first has completed, and any
    number afterwards.
    """

    def __init__(self, max_failures: int | None = None) -> None:
        self._max_failures = max_failures
        self.hangs = Hangs()  # those that the watch found
        self._failures = 0
        self._first_failure = ""
        self._forgiven: Counter[str] = Counter()  # tries that do not count
        self._charged: Counter[str] = Counter()  # those that do
        self._losses: Counter[str] = Counter()  # in a row, without getting further
        self._furthest: dict[str, int] = {}  # the evaluations of a trial's best try
        # Why no further trial begins: more have failed than may.
        self.too_many: str | None = None

    def counted(self, key: str, begun: int) -> int:
        """Return how many of the tries that were begun count towards `ATTEMPTS`."""
        if self._losses[key] >= LOSSES:
            return max(begun, ATTEMPTS)
        return begun - self._forgiven[key]

    def leaves(self, key: str, why: str) -> TrialEnd:
        """Return how a trial ends that leaves its node, which has said that it will end."""
        self._forgiven[key] += 1
        return TrialEnd(TrialStatus.INTERRUPTED, why)

    def lost(self, key: str, evaluations: int, why: str) -> TrialEnd:
        """Return how a trial ends whose node was lost. evaluations: those it had reported."""
        if evaluations > self._furthest.get(key, 0):
            self._furthest[key] = evaluations
            self._losses[key] = 0
        self._losses[key] += 1
        losses = self._losses[key]
        if losses < LOSSES:
            self._forgiven[key] += 1
            return TrialEnd(TrialStatus.INTERRUPTED, f"its node was lost: {why}")
        message = (
            f"its node was lost {losses} times before it got further, so the trial itself may end "
            f"it, as by taking all memory: {why}"
        )
        return TrialEnd(TrialStatus.FAILED, message)

    def hung(self, key: str, why: str) -> TrialEnd:
        """Return how a trial ends that was ended because it hung: once it is begun again."""
        self._charged[key] += 1
        if self._charged[key] < ATTEMPTS:
            return TrialEnd(TrialStatus.INTERRUPTED, why)
        return TrialEnd(TrialStatus.FAILED, why)

    def failed(self, key: str, why: str) -> TrialEnd:
        """Return how a trial ends that failed for a reason of its own."""
        self._charged[key] += 1
        return TrialEnd(TrialStatus.FAILED, why)

    def count(self, end: TrialEnd, *, has_completed: bool) -> None:
        """Count a trial that failed. has_completed: whether any trial of the search did."""
        if end.status is not TrialStatus.FAILED:
            return
        self._failures += 1
        self._first_failure = self._first_failure or end.message
        most = self._max_failures
        if most is None and not has_completed:
            most = FAILURES_AT_FIRST
        if most is None or self._failures <= most:
            return
        limit = f"more than the {most} that may"
        if self._max_failures is None:
            limit = f"more than {most} before any has completed"
        self.too_many = (
            f"{trials_text(self._failures)} failed, {limit}; the first said: {self._first_failure}"
        )

    def end_of(self, key: str, error: BaseException, evaluations: int, why: str) -> TrialEnd:
        """Return how a trial ends that met an error. why: the error, in a line."""
        if isinstance(error, LeavingError):
            return self.leaves(key, str(error))
        if lost_its_node(error):
            return self.lost(key, evaluations, why)
        return self.failed(key, why)
