"""Measuring runs that failed: they diverged, guess, or lie far below the others of their depth.

A failure is another event than the ordinary spread of seeds: it is rare, large, and mostly missing
from the few seeds that a depth has. So it is counted over all depths, and not only measured.
"""

import math
import statistics
from collections.abc import Mapping

from elsa_tune.analysis.measured import MeasuredRun, Runs
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.policy import Policy

# A normal distribution's standard deviation in units of its median absolute deviation.
DEVIATIONS_IN_SPREAD = 1.4826

# With fewer runs nobody can say which of them is the odd one.
FEWEST_RUNS = 3


def failed_runs(
    measured: Runs, chance: float | None, policy: Policy
) -> dict[Candidate, tuple[bool, ...]]:
    """Return for each depth which of its runs failed, in their order."""
    failed: dict[Candidate, tuple[bool, ...]] = {}
    for candidate, runs in measured.items():
        failed[candidate] = tuple(run.is_failed(chance, policy) for run in runs)
    if policy.failed_loss is None or chance is None:
        return failed
    medians = _medians(measured, failed)
    spread = _common_spread(measured, failed, medians)
    for candidate, median in medians.items():
        most_lost = max(policy.failed_loss * (median - chance), policy.failed_spreads * spread)
        flags: list[bool] = []
        for run, is_failed in zip(measured[candidate], failed[candidate], strict=True):
            is_far_below = run.row.runs == 1 and run.quality < median - most_lost
            flags.append(is_failed or is_far_below)
        failed[candidate] = tuple(flags)
    return failed


def _medians(
    measured: Runs, failed: Mapping[Candidate, tuple[bool, ...]]
) -> dict[Candidate, float]:
    """Return the median of each depth's runs that did not fail, where there are enough of them."""
    medians: dict[Candidate, float] = {}
    for candidate in measured:
        qualities = [run.quality for run in _working(measured, failed, candidate)]
        if len(qualities) >= FEWEST_RUNS:
            medians[candidate] = statistics.median(qualities)
    return medians


def _common_spread(
    measured: Runs,
    failed: Mapping[Candidate, tuple[bool, ...]],
    medians: Mapping[Candidate, float],
) -> float:
    """Return how seeds spread over all depths, by the median of their distances to their depth's.

    A few failures do not move it. The run that is its depth's median itself is left out.
    """
    distances: list[float] = []
    for candidate, median in medians.items():
        runs = _working(measured, failed, candidate)
        from_median = sorted(abs(run.quality - median) for run in runs)
        is_the_median = len(runs) % 2
        distances += from_median[is_the_median:]
    if not distances:
        return math.inf
    return DEVIATIONS_IN_SPREAD * statistics.median(distances)


def _working(
    measured: Runs, failed: Mapping[Candidate, tuple[bool, ...]], candidate: Candidate
) -> list[MeasuredRun]:
    """Return a depth's runs, each a row of its own, that did not fail."""
    working: list[MeasuredRun] = []
    for run, is_failed in zip(measured[candidate], failed[candidate], strict=True):
        if run.row.runs == 1 and not is_failed:
            working.append(run)
    return working
