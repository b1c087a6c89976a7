"""What rows say of each way, and the sentences on what they leave open."""

from __future__ import annotations

from typing import Any

import pytest

from elsa_tune.specs.adapt.named_way import NamedWay
from elsa_tune.specs.border import Border
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import TrialStatus
from tests.unit.result_rows import row
from tools.measurements import program

MODULE = program("way_facts.py")
left_open = MODULE.left_open
way_facts = MODULE.way_facts

LORA = NamedWay("LoRA")


def facts_of(rows: list[ResultRow]) -> Any:
    (facts,) = way_facts(rows)
    return facts


def test_runs_at_the_best_rate_give_quality_and_spread() -> None:
    facts = facts_of(
        [
            row(LORA, 0.7, learning_rate=1e-4, seed=1),
            row(LORA, 0.8, learning_rate=1e-3, seed=1),
            row(LORA, 0.9, learning_rate=1e-3, seed=2),
            row(LORA, 0.6, learning_rate=1e-2, seed=1),
        ]
    )
    assert facts.quality == pytest.approx(0.85)
    assert facts.std == pytest.approx(0.0707107)
    assert (facts.runs, facts.runs_at_best, facts.learning_rate) == (4, 2, 1e-3)
    assert [rate for rate, _ in facts.means] == [1e-4, 1e-3, 1e-2]
    assert facts.at_border is None
    assert facts.spread_by_rate == pytest.approx(0.25)
    assert not facts.has_one_rate and not facts.has_one_seed


@pytest.mark.parametrize(
    ("qualities", "at_border"),
    [((0.7, 0.9), Border.HIGH), ((0.9, 0.7), Border.LOW), ((0.9, 0.9), None)],
)
def test_where_the_best_of_two_rates_lies(
    qualities: tuple[float, float], at_border: Border | None
) -> None:
    low, high = qualities
    facts = facts_of([row(LORA, low, learning_rate=1e-4), row(LORA, high, learning_rate=1e-3)])
    assert facts.at_border is at_border


def test_one_rate_has_no_border_and_no_spread() -> None:
    facts = facts_of([row(LORA, 0.9, seed=1), row(LORA, 0.8, seed=2)])
    assert facts.has_one_rate and facts.at_border is None and facts.spread_by_rate is None


def test_rates_that_are_not_named() -> None:
    facts = facts_of([row(LORA, 0.9, learning_rate=None)])
    assert facts.has_one_rate and facts.learning_rate is None and facts.means == ()


def test_means_of_runs_weigh_as_many() -> None:
    facts = facts_of(
        [row(LORA, 0.8, seed=None, runs=3, std=0.02), row(LORA, 0.9, seed=None, runs=1)]
    )
    assert facts.quality == pytest.approx(0.825)
    assert facts.runs_at_best == 4
    assert facts.std is None  # of several means nothing tells the runs' spread
    assert facts_of([row(LORA, 0.8, seed=None, runs=3, std=0.02)]).std == 0.02


def test_only_completed_runs_count() -> None:
    rows = [
        row(LORA, None, status=TrialStatus.DIVERGED),
        row(NamedWay("IA3"), 0.9, status=TrialStatus.STOPPED_EARLY),
        row(0, 0.9),
    ]
    assert [facts.candidate.label for facts in way_facts(rows)] == ["0"]


def test_a_copy_counts_once_and_a_rerun_of_a_seed_is_no_second_seed() -> None:
    facts = facts_of([row(LORA, 0.8), row(LORA, 0.8), row(LORA, 0.9)])
    assert (facts.runs_at_best, facts.seeds_at_best, facts.std) == (2, 1, None)
    assert facts.has_one_seed
    unnamed = facts_of([row(LORA, 0.8, seed=None), row(LORA, 0.8, seed=None)])
    assert (unnamed.runs_at_best, unnamed.seeds_at_best, unnamed.std) == (2, None, 0)
    assert not unnamed.has_one_seed


def test_the_fewest_known_examples_count() -> None:
    facts = facts_of([row(LORA, 0.9, seed=1, examples=100), row(LORA, 0.9, seed=2, examples=90)])
    assert facts.examples == 90


def test_what_single_runs_at_one_rate_leave_open() -> None:
    ways = way_facts([row(0, 0.9), row(LORA, 0.8), row(NamedWay("IA3"), 0.7)])
    once, one_rate, examples = left_open(ways)
    assert once.startswith("3 of 3 ways ran with one seed: ")
    assert one_rate.startswith("3 of 3 ways ran at one learning rate: ")
    assert examples.startswith("The number of evaluation rows is not known")


def test_the_only_way_is_named() -> None:
    rows = [row(0, 0.9, seed=seed, examples=100) for seed in (1, 2)]
    rows += [row(0, 0.8, seed=3, learning_rate=1e-5, examples=100)]
    rows += [row(LORA, 0.8, learning_rate=rate, examples=100) for rate in (1e-5, 1e-4, 1e-3)]
    rows += [row(LORA, 0.9, learning_rate=3e-5, examples=100)]
    assert left_open(way_facts(rows)) == [
        "LoRA ran with one seed: how far another would move the quality is not known, and no "
        "difference from it can be certified.",
        "the full model: the best rate, 3e-5, is the highest that was tried; higher ones may be "
        "better.",
    ]


def test_a_best_rate_at_the_lower_end() -> None:
    rows = [row(LORA, 0.9, learning_rate=1e-5, seed=seed, examples=9) for seed in (1, 2)]
    rows += [row(LORA, 0.8, learning_rate=1e-4, examples=9)]
    assert left_open(way_facts(rows)) == [
        "LoRA: the best rate, 1e-5, is the lowest that was tried; lower ones may be better."
    ]


def test_nothing_is_open_without_ways() -> None:
    assert left_open([]) == []
