"""How long a search still takes: from its trials so far and when each of them ran.

It must not read a clock; whoever asks says what time it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.search.planning.plan import UNFINISHED, KnownTrial, exploring_slots, relative_cost
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
    seconds = _seconds_per_trial(spec, known)
    if not seconds:
        return None
    rest = {depth: [0.0] for depth in spec.depths}
    for one in known:
        if one.status is TrialStatus.RUNNING:
            whole = seconds[one.trial.depth]
            rest[one.trial.depth].append(_rest(one, whole, spec.recipe.evaluations, now))
    workers = _workers(known, now)
    exploring = _exploring(spec, known, seconds, rest)
    measuring = _measuring(spec, known, seconds, rest)
    return exploring.shared(workers) + measuring.shared(workers)


def _seconds_per_trial(spec: SearchSpec, known: Iterable[KnownTrial]) -> dict[FreezeDepth, float]:
    """What a trial of each depth takes from start to end; empty before the first report."""
    reported = sorted((one for one in known if one.reported), key=lambda one: one.reported[-1])
    seen: dict[FreezeDepth, list[float]] = {}
    for one in reported:
        seen.setdefault(one.trial.depth, []).append(_whole(one, spec.recipe.evaluations))
    found = {depth: statistics.median(each[-RECENT:]) for depth, each in seen.items()}
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
    known: Sequence[KnownTrial],
    seconds: Mapping[FreezeDepth, float],
    rest: Mapping[FreezeDepth, Sequence[float]],
) -> _Work:
    """Nothing for depths that are being measured. A depth's tries beyond the given rates are made
    one after the other.
    """
    measured = {one.trial.depth for one in known if one.trial.phase is Phase.MEASURE}
    exploring = [one for one in known if one.trial.phase is Phase.EXPLORE]
    waiting = [slot.depth for slot in exploring_slots(spec, known)]
    here = {
        depth: [one for one in exploring if one.trial.depth == depth] for depth in spec.explored
    }
    active = [
        depth
        for depth in spec.explored
        if depth not in measured
        and (
            depth in waiting
            or len(here[depth]) < spec.tries
            or any(one.status is TrialStatus.RUNNING for one in here[depth])
        )
    ]
    further = [len(here[depth]) - spec.tries for depth in spec.explored if depth not in active]
    expected = (FURTHER_TRIES + sum(further)) / (1 + len(further)) if spec.extend else 0.0
    # What early stopping leaves of a trial.
    ended = [len(one.reported) for one in exploring if one.status.is_final and one.reported]
    share = sum(ended) / (len(ended) * spec.recipe.evaluations) if ended else 1.0
    total, longest = 0.0, 0.0
    for depth in active:
        given = max(0, spec.tries - len(here[depth]))
        again = sum(one.status in UNFINISHED for one in here[depth])
        beyond = max(0.0, expected - max(0, len(here[depth]) - spec.tries))
        tries = max(waiting.count(depth), given + again + beyond)
        total += sum(rest[depth]) + tries * seconds[depth] * share
        longest = max(longest, sum(rest[depth]) + (tries - given) * seconds[depth] * share)
    return _Work(total=total, longest=longest)


def _measuring(
    spec: SearchSpec,
    known: Sequence[KnownTrial],
    seconds: Mapping[FreezeDepth, float],
    rest: Mapping[FreezeDepth, Sequence[float]],
) -> _Work:
    begun = [
        one.trial.depth
        for one in known
        if one.trial.phase is Phase.MEASURE
        and (one.status.is_final or one.status is TrialStatus.RUNNING)
    ]
    total, longest = 0.0, 0.0
    for depth in spec.depths:
        left = max(0, spec.seeds - begun.count(depth))
        now = rest[depth] if depth in begun else [0.0]
        total += sum(now) + left * seconds[depth]
        longest = max(longest, *now, seconds[depth] if left else 0.0)
    return _Work(total=total, longest=longest)
