"""When a trial without news counts as hung, and which ones do."""

import threading
from collections.abc import Sequence

from elsa_tune.searching.eta import longest_evaluation
from elsa_tune.searching.planning.known import KnownTrial, relative_cost
from elsa_tune.specs.search import SearchSpec

# A trial hangs without news for so many times what such an evaluation takes, and at least so long:
# the first step of a trial loads, compiles and fills caches.
TIMES = 10
SHORTEST_HANG = 300.0


def patience(spec: SearchSpec, trials: Sequence[KnownTrial], trial: KnownTrial) -> float | None:
    """Return the seconds without news after which a trial counts as hung; None for never.

    By default that follows from trials of the same candidate, or else of a costlier one. Without
    any it is never: nobody knows what a first trial takes that still loads its weights, and what
    holds up the first trials of a search would hold up their repetition, too.
    """
    if spec.hung_after == "never":
        return None
    if spec.hung_after != "auto":
        return spec.hung_after
    usual = _pace(spec, trials, trial)
    if usual is None:
        return None
    return max(SHORTEST_HANG, TIMES * usual)


def _pace(spec: SearchSpec, trials: Sequence[KnownTrial], trial: KnownTrial) -> float | None:
    """Return the longest that such a trial may take to an evaluation, by those that ran."""
    candidate = trial.candidate
    alike = [other for other in trials if other.candidate == candidate]
    longest = longest_evaluation(alike)
    if longest is not None:
        return longest
    cost = relative_cost(spec, candidate)
    costlier = [other for other in trials if relative_cost(spec, other.candidate) >= cost]
    longest = longest_evaluation(costlier)
    if longest is None:
        return None
    # The first trial of a depth may first pass the whole training set through its frozen layers.
    return longest * max(1, spec.recipe.evaluations_per_epoch)


class Hangs:
    """The trials that the watch found hung, in its thread, until Ray Tune's ends them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, str] = {}
        self._steps = 0
        self._steps_before = 0

    def step(self) -> None:
        """Note that Ray Tune took a step: it takes trials' reports."""
        self._steps += 1

    @property
    def has_stepped(self) -> bool:
        """Whether Ray Tune took a step since this was asked last.

        Where it does not, because the driver waits for a disk or is stopped, no trial can report.
        """
        steps = self._steps
        has_stepped = steps != self._steps_before
        self._steps_before = steps
        return has_stepped

    def add(self, key: str, why: str) -> None:
        """Note a trial that hangs."""
        with self._lock:
            self._found[key] = why

    def take(self) -> dict[str, str]:
        """Return the trials that were found since this was asked last, and why each hangs."""
        with self._lock:
            found = self._found
            self._found = {}
            return found
