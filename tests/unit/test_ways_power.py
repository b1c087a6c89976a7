"""What a comparison can certify, estimated before it trains."""

from __future__ import annotations

import pytest

from elsa_tune.analysis.power import PROBABLY, PlannedTest, Power
from elsa_tune.analysis.ways_power import WaysPower, ways_power
from elsa_tune.analysis.wording.ways_power import ways_power_text
from elsa_tune.specs.policy import Policy


def six_ways(seeds: int, rows: int) -> WaysPower:
    """Return the estimate for six ways and two classes alike."""
    return ways_power(seeds=seeds, rows=rows, ways=6, guessing=0.5, policy=Policy())


def test_an_equal_way_is_a_depth_that_lies_as_far_above_the_target_as_it_may_lose() -> None:
    # The full model is assumed at .75: 95 % of it leaves 3.75 points, of its gain 1.25.
    test = PlannedTest(seeds=5, full_seeds=5, level=0.045 / 6)
    power = Power(guessing=0.5, target=0.95, tests=(test,), seed_spread=Policy().seed_spread)
    found = six_ways(5, 872)
    of_score = power.share_certified(872, 0.0375)
    of_gain = power.share_certified(872, 0.0125)
    assert found.of_score.share_of_equal == pytest.approx(of_score)
    assert found.of_gain.share_of_equal == pytest.approx(of_gain)
    assert of_gain < of_score < PROBABLY


def test_the_gap_is_the_last_that_is_probably_certified() -> None:
    found = six_ways(5, 5463)
    gap = found.of_score.gap
    assert gap is not None and found.of_score.rows_needed is None
    test = PlannedTest(seeds=5, full_seeds=5, level=0.045 / 6)
    power = Power(guessing=0.5, target=0.95, tests=(test,), seed_spread=Policy().seed_spread)
    assert power.share_certified(5463, 0.0375 - gap) >= PROBABLY
    assert power.share_certified(5463, 0.0375 - gap - 0.001) < PROBABLY
    more = six_ways(10, 5463)
    assert more.of_score.gap is not None and more.of_score.gap > gap


def test_words_say_what_would_do() -> None:
    few = ways_power_text(six_ways(5, 277))
    assert few.startswith(
        "with 277 evaluation rows and 5 seeds a way, a way as good as the best is certified to "
        "keep 95 % of its score in only "
    )
    assert "(1,300 rows would probably do)" in few and few.endswith("(an estimate)")
    many = ways_power_text(six_ways(5, 5463))
    assert "a way that lies within 0.8 points of the best is probably certified" in many
