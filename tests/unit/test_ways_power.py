"""What a comparison can certify, estimated before it trains."""

from __future__ import annotations

from typing import Any

import pytest

from elsa_tune.analysis.comparing.ways_power import WaysPower, ways_power
from elsa_tune.analysis.power import PROBABLY, PlannedTest, Power
from elsa_tune.analysis.wording.ways_power import ways_power_text
from elsa_tune.searching.planning.outlook import plan_warnings, said_before_training, ways_outlook
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Recipe, Selection
from elsa_tune.tasks.task_file import resolve_task
from tests.conftest import Run
from tests.unit.search_examples import make_spec


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


# ---- of a search's plan ----

WAYS = tuple(read_candidate(label) for label in ("0", "3", "lora", "bitfit"))


def planned(**changes: Any) -> SearchSpec:
    """Return a search that compares four ways in accuracy."""
    fields = {"candidates": WAYS, "explored": WAYS, "seeds": 5, "policy": Policy(), **changes}
    return make_spec(**fields)


def test_a_plan_says_what_its_comparison_can_certify() -> None:
    by_hand = ways_power(seeds=5, rows=600, ways=4, guessing=0.5, policy=Policy())
    assert ways_outlook(planned(evaluation_examples=600)) == ways_power_text(by_hand)
    # In a real search it is known how often guessing is right.
    better_guess = ways_power(seeds=5, rows=600, ways=4, guessing=0.8, policy=Policy())
    assert ways_outlook(planned(chance=0.8, evaluation_examples=600)) == ways_power_text(
        better_guess
    )
    assert ways_power_text(better_guess) != ways_power_text(by_hand)


def test_nothing_is_estimated_where_epochs_are_chosen_on_the_judging_rows() -> None:
    by_best = Recipe(selection=Selection.BEST_EPOCH)
    assert ways_outlook(planned(recipe=by_best, evaluation_examples=600)) is None


def test_rows_that_share_units_count_as_these() -> None:
    text = ways_outlook(planned(evaluation_examples=3000, evaluation_units=600))
    assert text is not None and text.startswith("with 600 evaluation units and 5 seeds a way")
    assert "units would probably do" in text and "rows" not in text
    # So few that nothing is certified, which is said of the rows.
    assert ways_outlook(planned(evaluation_examples=3000, evaluation_units=99)) is None
    assert ways_outlook(planned(evaluation_examples=60, evaluation_units=60)) is not None


@pytest.mark.parametrize(
    ("task", "words"),
    [("mrpc", "F1"), ("cola", "Matthews correlation"), ("stsb", "Spearman correlation")],
)
def test_in_another_metric_it_is_said_that_nothing_is_estimated(task: str, words: str) -> None:
    assert ways_outlook(planned(task=resolve_task(task), evaluation_examples=1000)) == (
        f"what this comparison can certify is not estimated in {words}, only in accuracy; if it "
        "certifies nothing, its answer says what would"
    )


def test_nothing_is_said_where_nothing_is_compared_or_certified() -> None:
    depths = WAYS[:2]
    assert ways_outlook(planned(candidates=depths, explored=depths)) is None
    assert ways_outlook(planned(seeds=2)) is None


def test_a_search_says_it_before_it_trains() -> None:
    spec = planned(evaluation_examples=3000, evaluation_units=600)
    *warnings, last = said_before_training(spec)
    assert warnings == list(plan_warnings(spec))
    assert last == ways_outlook(spec)
    # Two seeds certify nothing, which is one of the warnings.
    two_seeds = planned(seeds=2, evaluation_examples=3000, evaluation_units=600)
    assert list(said_before_training(two_seeds)) == list(plan_warnings(two_seeds))


@pytest.mark.parametrize(
    ("metric", "words"),
    [("accuracy", "is certified to keep 95 % of its score"), ("f1", "is not estimated in F1")],
)
def test_a_dry_run_has_it_as_a_line(metric: str, words: str, run: Run) -> None:
    asked = ("--model", "minilm", "--task", "stdlib", "--space", "ways", "--metric", metric)
    done = run("search", *asked, "--dry-run")
    [line] = [line for line in done.out.splitlines() if line.startswith("compares ")]
    assert words in line
