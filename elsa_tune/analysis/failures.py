"""Measuring runs that failed: they diverged, guess, or lie far below the others of their depth.

A failure is another event than the ordinary spread of seeds: it is rare, large, and mostly missing
from the few seeds that a depth has. So it is counted over all depths, and not only measured.
"""

import math
import statistics
from collections.abc import Mapping

from elsa_tune.analysis.measured import MeasuredRun, Runs
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.policy import Policy

# A normal distribution's standard deviation in units of its median absolute deviation.
DEVIATIONS_IN_SPREAD = 1.4826

# With fewer runs nobody can say which of them is the odd one.
FEWEST_RUNS = 3

# Which runs of each depth failed, in their order.
Failed = dict[Candidate, tuple[bool, ...]]


def failed_runs(
    measured: Runs,
    chance: float | None,
    policy: Policy,
) -> Failed:
    """Return for each depth which of its runs failed, in their order."""
    failed: Failed = {}
    for candidate, runs in measured.items():
        flags = [run.is_failed(chance, policy) for run in runs]
        failed[candidate] = tuple(flags)
    if policy.failed_loss is None or chance is None:
        return failed
    medians = _medians(measured, failed)
    spread = _common_spread(measured, failed, medians)
    lost_by_luck = policy.failed_spreads * spread
    for candidate, median in medians.items():
        gain = median - chance
        most_lost = max(policy.failed_loss * gain, lost_by_luck)
        least = median - most_lost
        flags = []
        for run, is_failed in zip(measured[candidate], failed[candidate], strict=True):
            is_single_run = run.row.runs == 1
            is_far_below = is_single_run and run.quality < least
            flags.append(is_failed or is_far_below)
        failed[candidate] = tuple(flags)
    return failed


def _medians(measured: Runs, failed: Failed) -> dict[Candidate, float]:
    """Return the median of each depth's runs that did not fail, where there are enough of them."""
    medians: dict[Candidate, float] = {}
    for candidate in measured:
        working = _working(measured, failed, candidate)
        if len(working) >= FEWEST_RUNS:
            qualities = [run.quality for run in working]
            medians[candidate] = statistics.median(qualities)
    return medians


def _common_spread(
    measured: Runs,
    failed: Failed,
    medians: Mapping[Candidate, float],
) -> float:
    """Return how seeds spread over all depths, by the median of their distances to their depth's.

    A few failures do not move it. The run that is its depth's median itself is left out.
    """
    all_distances: list[float] = []
    for candidate, median in medians.items():
        working = _working(measured, failed, candidate)
        distances = [abs(run.quality - median) for run in working]
        distances.sort()
        has_middle = len(working) % 2 == 1
        if has_middle:
            distances = distances[1:]  # the first is the median's own
        all_distances += distances
    if not all_distances:
        return math.inf
    usual_distance = statistics.median(all_distances)
    return DEVIATIONS_IN_SPREAD * usual_distance


def _working(
    measured: Runs,
    failed: Failed,
    candidate: Candidate,
) -> list[MeasuredRun]:
    """Return a depth's runs, each a row of its own, that did not fail."""
    working: list[MeasuredRun] = []
    for run, is_failed in zip(measured[candidate], failed[candidate], strict=True):
        is_single_run = run.row.runs == 1
        if is_single_run and not is_failed:
            working.append(run)
    return working
