"""Which runs failed: those that guess, diverged, or lie far below the others of their depth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elsa_tune.analysis.failures import failed_runs
from elsa_tune.analysis.measured import MeasuredRun
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.policy import UNRECORDED, Policy
from elsa_tune.specs.trial import TrialStatus
from tests.unit.result_rows import row

CHANCE = 0.5
DEPTHS = (0, 3, 4, 5)


def measured(
    qualities: dict[int, list[float]], **changes: object
) -> dict[Candidate, list[MeasuredRun]]:
    """Return measuring runs with these qualities, by their number of frozen layers."""
    runs: dict[Candidate, list[MeasuredRun]] = {}
    for frozen, of_depth in qualities.items():
        rows = [row(frozen, quality, seed=seed, **changes) for seed, quality in enumerate(of_depth)]
        runs[rows[0].candidate] = [MeasuredRun(one, one.quality or 0.0) for one in rows]
    return runs


def failed_at(frozen: int, qualities: dict[int, list[float]], **changes: object) -> list[bool]:
    """Return which runs of a depth failed."""
    found = failed_runs(measured(qualities, **changes), CHANCE, Policy())
    return list(found[measured({frozen: [0.8]}).popitem()[0]])


def test_a_run_far_below_its_depths_others_failed() -> None:
    qualities = {0: [0.85, 0.86, 0.84], 3: [0.80, 0.81, 0.70, 0.79]}
    assert failed_at(3, qualities) == [False, False, True, False]
    assert failed_at(0, qualities) == [False, False, False]


def test_guessing_and_diverging_are_failures_as_before() -> None:
    runs = measured({0: [0.85, 0.86], 3: [0.80, 0.5]})
    diverged = row(3, None, seed=9, status=TrialStatus.DIVERGED)
    runs[FreezeDepth(3, True)].append(MeasuredRun(diverged, CHANCE))
    for policy in (Policy(), UNRECORDED):
        assert failed_runs(runs, CHANCE, policy)[FreezeDepth(3, True)] == (False, True, True)


def test_early_searches_called_guessing_alone_a_failure() -> None:
    runs = measured({0: [0.85, 0.86, 0.84], 3: [0.80, 0.81, 0.70, 0.79]})
    assert not any(failed_runs(runs, CHANCE, UNRECORDED)[FreezeDepth(3, True)])


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_seeds_that_merely_differ_have_not_failed(seeds: int) -> None:
    draw = np.random.default_rng(seeds)
    flagged = 0
    for _ in range(300):
        qualities = {n: list(0.8 + draw.normal(0, 0.008, seeds)) for n in DEPTHS}
        found = failed_runs(measured(qualities), CHANCE, Policy())
        flagged += sum(sum(flags) for flags in found.values())
    assert flagged <= 300 * len(DEPTHS) * seeds / 500


def test_noise_near_chance_is_no_failure() -> None:
    """A quarter of a small gain is less than what seeds differ by."""
    draw = np.random.default_rng(1)
    flagged = 0
    for _ in range(300):
        qualities = {n: list(0.55 + draw.normal(0, 0.01, 5)) for n in DEPTHS}
        found = failed_runs(measured(qualities), CHANCE, Policy())
        flagged += sum(sum(flags) for flags in found.values())
    assert flagged <= 300 * len(DEPTHS) * 5 / 200


def test_of_two_runs_nobody_can_say_which_is_odd() -> None:
    assert failed_at(3, {0: [0.85, 0.86, 0.84], 3: [0.80, 0.60]}) == [False, False]


def test_of_three_runs_the_odd_one_failed() -> None:
    qualities = {0: [0.85, 0.86, 0.84, 0.85], 3: [0.80, 0.81, 0.60]}
    assert failed_at(3, qualities) == [False, False, True]


def test_a_mean_of_several_runs_never_failed() -> None:
    means = {3: [0.80, 0.81, 0.70, 0.79]}
    assert not any(failed_at(3, means, runs=3, std=0.01))


def test_a_mean_beside_single_runs_neither_failed_nor_counts() -> None:
    mean = MeasuredRun(row(3, 0.60, seed=9, runs=3, std=0.01), 0.60)
    runs = measured({0: [0.85, 0.86, 0.84], 3: [0.80, 0.81, 0.79]})
    runs[FreezeDepth(3, True)].append(mean)
    assert not any(failed_runs(runs, CHANCE, Policy())[FreezeDepth(3, True)])
    # With two single runs there is no odd one, whatever a mean beside them says.
    good = MeasuredRun(row(3, 0.81, seed=9, runs=3, std=0.01), 0.81)
    runs = measured({0: [0.85, 0.86, 0.84], 3: [0.80, 0.60]})
    runs[FreezeDepth(3, True)].append(good)
    assert not any(failed_runs(runs, CHANCE, Policy())[FreezeDepth(3, True)])


def test_without_chance_only_diverging_is_known() -> None:
    runs = measured({0: [0.85, 0.86, 0.84], 3: [0.80, 0.81, 0.30, 0.79]})
    assert not any(failed_runs(runs, None, Policy())[FreezeDepth(3, True)])


def test_the_policy_says_what_is_far() -> None:
    runs = measured({0: [0.85, 0.86, 0.84], 3: [0.80, 0.81, 0.70, 0.79]})
    milder = dataclasses.replace(Policy(), failed_loss=0.5)
    assert not any(failed_runs(runs, CHANCE, milder)[FreezeDepth(3, True)])
