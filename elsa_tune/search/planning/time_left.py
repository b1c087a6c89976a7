"""How long a search still takes: from its trials so far and when each of them ran.

It must not read a clock; whoever asks says what time it is.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.search.planning.known import KnownTrial
from elsa_tune.search.planning.plan import exploring_slots, relative_cost
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialStatus

# A depth's time is the median of its last trials: the machine may be busier now than it was.
RECENT = 3
# What a trial takes beside its training, roughly: weights, first step, records.
TRIAL_SECONDS = 1.0
# Tries beyond the given rates that a depth is expected to make, until others have shown how many
# they took (bench/results/time_left.json).
FURTHER_TRIES = 2.0


_ByDepth = Mapping[FreezeDepth, Sequence[KnownTrial]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Seconds of trials to come: of all of them, and of the longest row of trials that have to wait
    for one another.
    """

    total: float
    longest: float

    def shared(self, workers: int) -> float:
        return max(self.total / workers, self.longest)


def seconds_left(spec: SearchSpec, known: Sequence[KnownTrial], now: float) -> float | None:
    """Seconds to the end of the plan, None before the first evaluation was reported.

    now: seconds since the epoch. A depth's trials are taken to last as long as its last ones did; a
    depth of which nothing ran yet, in proportion to the plan's costs. A time limit is not counted.
    """
    by_depth: dict[FreezeDepth, list[KnownTrial]] = {depth: [] for depth in spec.depths}
    for one in known:
        by_depth[one.trial.depth].append(one)
    seconds = seconds_per_trial(spec, by_depth)
    if not seconds:
        return None
    running = {
        depth: [
            _rest(one, seconds[depth], spec.recipe.evaluations, now)
            for one in here
            if one.status is TrialStatus.RUNNING
        ]
        for depth, here in by_depth.items()
    }
    waiting = Counter(slot.depth for slot in exploring_slots(spec, known))
    workers = _workers(known, now)
    exploring = _exploring(spec, by_depth, waiting, seconds, running)
    measuring = _measuring(spec, by_depth, seconds, running)
    return exploring.shared(workers) + measuring.shared(workers)


def seconds_per_trial(spec: SearchSpec, by_depth: _ByDepth) -> dict[FreezeDepth, float]:
    """What a trial of each of the plan's depths takes from start to end, by trials of it or of a
    like search; empty before the first report.
    """
    found = {}
    for depth, here in by_depth.items():
        reported = sorted((one for one in here if one.reported), key=lambda one: one.reported[-1])
        if reported:
            last = [_whole(one, spec.recipe.evaluations) for one in reported[-RECENT:]]
            found[depth] = statistics.median(last)
    if not found:
        return {}
    training = sum(max(0.0, each - TRIAL_SECONDS) for each in found.values())
    full = training / sum(relative_cost(spec, depth) for depth in found)
    return {
        depth: found.get(depth, TRIAL_SECONDS + full * relative_cost(spec, depth))
        for depth in spec.depths
    }


def _whole(one: KnownTrial, evaluations: int) -> float:
    """Seconds of a trial with all its evaluations, at the pace of those that it has reported.

    The first trials also import libraries and keep the frozen layers' output; that is seen in their
    first evaluation, and not expected of others.
    """
    until = one.ended if one.ended and one.status.is_final else one.reported[-1]
    pace = (until - one.started) / len(one.reported)
    if len(one.reported) > 1:
        later = (until - one.reported[0]) / (len(one.reported) - 1)
        pace = min(pace, later + TRIAL_SECONDS / evaluations)
    return pace * evaluations


def _rest(one: KnownTrial, whole: float, evaluations: int, now: float) -> float:
    """Seconds that a running trial still takes: by its own last evaluations, as soon as it has two.

    whole: what a trial of its depth takes.
    """
    count = len(one.reported)
    if not count:
        return max(0.0, whole - (now - one.started))
    pace = whole / evaluations
    if count > 1:
        pace = (one.reported[-1] - one.reported[0]) / (count - 1)
    return max(0.0, (evaluations - count) * pace - (now - one.reported[-1]))


def _workers(known: Sequence[KnownTrial], now: float) -> int:
    """Trials side by side: those that run, or ran half-way through the one that ended last."""
    running = sum(one.status is TrialStatus.RUNNING for one in known)
    ended = [(one.ended, one.started) for one in known if one.ended and one.status.is_final]
    middle = sum(max(ended, default=(now, now))) / 2
    before = sum(one.started <= middle < (one.ended or now) for one in known)
    return max(1, running, before)


def _exploring(
    spec: SearchSpec,
    by_depth: _ByDepth,
    waiting: Mapping[FreezeDepth, int],
    seconds: Mapping[FreezeDepth, float],
    running: Mapping[FreezeDepth, Sequence[float]],
) -> _Work:
    """Nothing for depths that are being measured. A depth's tries beyond the given rates are made
    one after the other.

    waiting: exploring trials that could start now. running: the rest of those that run, in seconds.
    """
    tried: dict[FreezeDepth, list[KnownTrial]] = {}  # of depths that go on
    further = []  # tries beyond the given rates, of depths that do not
    evaluations = []
    for depth in spec.explored:
        here = [one for one in by_depth[depth] if one.trial.phase is Phase.EXPLORE]
        evaluations += [len(one.reported) for one in here if one.reported and one.status.is_final]
        is_measured = len(here) < len(by_depth[depth])
        if is_measured or not (waiting.get(depth) or running[depth] or len(here) < spec.tries):
            further.append(len(here) - spec.tries)
        else:
            tried[depth] = here
    expected = (FURTHER_TRIES + sum(further)) / (1 + len(further)) if spec.extend else 0.0
    # What early stopping leaves of a trial.
    share = statistics.mean(evaluations) / spec.recipe.evaluations if evaluations else 1.0
    total, longest = 0.0, 0.0
    for depth, here in tried.items():
        given = max(0, spec.tries - len(here))
        again = sum(one.is_unfinished for one in here)
        beyond = max(0.0, expected - max(0, len(here) - spec.tries))
        after = max(waiting.get(depth, 0) - given, again + beyond) * seconds[depth] * share
        rest = sum(running[depth])
        total += rest + given * seconds[depth] * share + after
        longest = max(longest, rest + after)
    return _Work(total=total, longest=longest)


def _measuring(
    spec: SearchSpec,
    by_depth: _ByDepth,
    seconds: Mapping[FreezeDepth, float],
    running: Mapping[FreezeDepth, Sequence[float]],
) -> _Work:
    total, longest = 0.0, 0.0
    for depth, here in by_depth.items():
        measuring = [one for one in here if one.trial.phase is Phase.MEASURE]
        begun = [
            one for one in measuring if one.status.is_final or one.status is TrialStatus.RUNNING
        ]
        left = max(0, spec.first_seeds(depth) - len(begun))
        rest = running[depth] if measuring else []
        total += sum(rest) + left * seconds[depth]
        longest = max(longest, *rest, seconds[depth] if left else 0.0)
    return _Work(total=total, longest=longest)
