"""What a comparison of ways can certify, estimated before it trains: by how little a way may lose.

By the assumptions of `power.py`, for a metric that is a share of the examples. A way is tested at
the error divided by the number of ways, as the first of Holm's procedure is. How good the estimate
is: bench/results/ways_error.json.
"""

from dataclasses import dataclass

from elsa_tune.analysis.comparing.ways import COMPARED_TARGET
from elsa_tune.analysis.forecast import first
from elsa_tune.analysis.power import PROBABLY, PlannedTest, Power
from elsa_tune.specs.policy import Policy

# Gaps are tried in steps of a tenth of a point.
_STEP = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What is estimated of one claim."""

    # In which share of cases a way that truly is as good as the best is certified.
    share_of_equal: float
    # How far below the best, in fractions of quality, a way may lie to be probably (four times out
    # of five) certified; None where even an equal one is not.
    gap: float | None
    rows_needed: int | None  # with which an equal one would be; None where it is, or for too many


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysPower:
    """What is estimated of a comparison before it trains."""

    rows: int  # evaluation rows, or units
    are_units: bool  # whether these are units of several rows, or some of them are
    seeds: int  # of each way
    target: float  # the share of the best way's quality to keep
    of_gain: Chance  # that it is kept of what the best way gains over guessing
    of_score: Chance  # that it is kept of its score


def ways_power(
    *,
    seeds: int,
    rows: int,
    ways: int,
    guessing: float,
    policy: Policy,
    are_units: bool = False,
) -> WaysPower:
    """Estimate how far below the best a way may lie to be certified.

    seeds: measuring seeds of each way, 2 or more. rows: evaluation rows, or units. ways: how many
    are compared. guessing: the quality of a constant answer.
    """
    test = PlannedTest(
        seeds=seeds,
        full_seeds=seeds,
        level=policy.test_error(seeds) / ways,
    )
    power = Power(
        guessing=guessing,
        target=COMPARED_TARGET,
        tests=(test,),
        seed_spread=policy.seed_spread,
    )
    share_lost = 1 - COMPARED_TARGET
    return WaysPower(
        rows=rows,
        are_units=are_units,
        seeds=seeds,
        target=COMPARED_TARGET,
        of_gain=_chance(power, rows, share_lost * (power.full - guessing)),
        of_score=_chance(power, rows, share_lost * power.full),
    )


def _chance(power: Power, rows: int, most: float) -> Chance:
    """Return what is estimated of a claim by which a way may lose this quality at most."""
    share_of_equal = power.share_certified(rows, most)
    if share_of_equal < PROBABLY:
        needed = power.rows_needed(rows, most)
        return Chance(share_of_equal=share_of_equal, gap=None, rows_needed=needed)
    steps = int(most / _STEP)

    def is_too_wide(step: int) -> bool:
        return power.share_certified(rows, most - step * _STEP) < PROBABLY

    too_wide = first(range(1, steps + 1), is_too_wide)
    widest = steps if too_wide is None else too_wide - 1
    return Chance(share_of_equal=share_of_equal, gap=widest * _STEP, rows_needed=None)
