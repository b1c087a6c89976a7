"""How long trials take, from those that ran and when; whoever asks says what time it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from elsa_tune.searching.planning.known import KnownTrial, relative_cost, tried
from elsa_tune.searching.planning.plan import planned_trials
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialStatus

# A depth's time is the median of its last trials: the machine may be busier now than it was.
RECENT = 3
# What a trial takes beside its training, roughly: weights, first step, records.
TRIAL_SECONDS = 1.0
# Tries beyond the given rates that a depth is expected to make (bench/results/time_left.json).
FURTHER_TRIES = 2.0

_TO_COME = (TrialStatus.INTERRUPTED, TrialStatus.PLANNED)


def seconds_left(spec: SearchSpec, known: Sequence[KnownTrial], now: float) -> float | None:
    """Seconds to the end of the plan, None before the first evaluation was reported.

    now: seconds since the epoch. A depth's trials are taken to last as long as its last ones did; a
    depth of which nothing ran yet, in proportion to the plan's costs. A time limit is not counted.
    """
    seconds = seconds_per_trial(spec, known)
    if not seconds:
        return None
    # Of each phase: all that is left, and the longest row of trials that wait for one another.
    total, longest = dict.fromkeys(Phase, 0.0), dict.fromkeys(Phase, 0.0)
    for depth in spec.depths:
        here = [one for one in known if one.trial.depth == depth]
        measures = any(one.trial.phase is Phase.MEASURE for one in here)
        rests = [
            _rest(one, seconds[depth], spec.recipe.evaluations, now)
            for one in here
            if one.status is TrialStatus.RUNNING
        ]
        waiting = planned_trials(spec, here, depth) - sum(
            one.status not in _TO_COME for one in here
        )
        measuring = min(waiting, spec.first_seeds(depth))
        # Each further try waits for the one before it.
        further = _further(spec, here, depth) * seconds[depth]
        phase = Phase.MEASURE if measures else Phase.EXPLORE
        total[phase] += sum(rests)
        longest[phase] = max(longest[phase], max(rests, default=0.0) + further)
        total[Phase.EXPLORE] += (waiting - measuring) * seconds[depth] + further
        total[Phase.MEASURE] += measuring * seconds[depth]
        longest[Phase.MEASURE] = max(longest[Phase.MEASURE], (measuring > 0) * seconds[depth])
    workers = _workers(known, now)
    return sum(max(total[phase] / workers, longest[phase]) for phase in total)


def _further(spec: SearchSpec, here: Sequence[KnownTrial], depth: FreezeDepth) -> float:
    """How many more tries beyond the given rates a depth may make: none once it is measured."""
    is_measured = any(one.trial.phase is Phase.MEASURE for one in here)
    if spec.extend is None or depth not in spec.explored or is_measured:
        return 0.0
    return max(0.0, FURTHER_TRIES - max(0, len(tried(here, depth)) - spec.tries))


def seconds_per_trial(spec: SearchSpec, known: Sequence[KnownTrial]) -> dict[FreezeDepth, float]:
    """What a trial of each of the plan's depths takes from start to end, by trials of it or of a
    like search; empty before the first report.
    """
    by_depth: dict[FreezeDepth, list[KnownTrial]] = {}
    for one in sorted((one for one in known if one.reported), key=lambda one: one.reported[-1]):
        by_depth.setdefault(one.trial.depth, []).append(one)
    if not by_depth:
        return {}
    found = {
        depth: statistics.median(_whole(one, spec.recipe.evaluations) for one in here[-RECENT:])
        for depth, here in by_depth.items()
    }
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
