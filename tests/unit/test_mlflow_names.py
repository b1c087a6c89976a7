"""What MLflow's lists say of a search's answer, in a few words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.comparing.comparison_json import comparison_object
from elsa_tune.tracking.mlflow.names import (
    answer_tags,
    comparison_tags,
    curve_reports,
    search_run_name,
)
from elsa_tune.tracking.mlflow.pages import page_of
from tests.unit.report_examples import answers_of
from tests.unit.result_rows import EMBEDDINGS_ONLY, falling_curve, seeds
from tests.unit.test_probe_answer import probe
from tests.unit.ways import ADAPTER, FULL, HEAD, LAST_TWO, compared, way_rows


def recorded(rows: list[Any]) -> Any:
    """Answers as a journal has them."""
    return json.loads(json.dumps([answer_object(answer) for answer in answers_of(rows)]))


def recorded_ways(rows: list[Any]) -> Any:
    """Return their comparison as a journal has it."""
    return json.loads(json.dumps([comparison_object(compared(rows))]))


def test_an_answer_in_four_cells_and_a_name() -> None:
    rows = falling_curve(learning_rate=3e-5) + seeds(EMBEDDINGS_ONLY, [0.89], learning_rate=3e-5)
    found = recorded(rows)
    tags = answer_tags(found)
    assert tags["k"] == "3 of 6" and tags["kept"] == "97.8 %" and tags["rate"] == "3e-5"
    assert search_run_name("demo", found) == "3 of 6, 97.8 %: demo"


@pytest.mark.parametrize(
    ("basis", "said"),
    [
        ("corrected_certified", "yes"),
        ("raw_certified", "yes, raw"),
        ("measured", "no"),
        ("full_model", "-"),
    ],
)
def test_what_speaks_for_it(basis: str, said: str) -> None:
    [answer] = recorded(falling_curve())
    answer["recommendation"]["basis"] = basis
    assert answer_tags([answer])["certified"] == said


def test_a_linear_model_that_will_do_is_the_answer() -> None:
    found = recorded([*falling_curve(learning_rate=3e-5), probe(0.89)])
    shown = {"k": "0 of 6 (linear model)", "kept": "98.9 %", "certified": "no", "rate": "-"}
    assert answer_tags(found) == shown


def test_without_an_answer_the_name_says_so() -> None:
    found = recorded(seeds(3, [0.8, 0.81]))
    assert answer_tags(found) == {"k": "no answer", "kept": "-", "certified": "-", "rate": "-"}
    assert search_run_name("demo", found) == "no answer: demo"


def test_a_comparison_names_its_way() -> None:
    recommended = {"label": "lora-last3", "quality": 0.8}
    assert comparison_tags([{"recommended": recommended}]) == {"way": "lora-last3"}
    assert comparison_tags([{"recommended": None}]) == {"way": "no answer"}
    for nothing in (None, [], [{}, {}], "none"):
        assert comparison_tags(nothing) == {}


def test_without_depths_the_way_is_the_answer() -> None:
    rows = [*way_rows(FULL, 0.9), *way_rows(ADAPTER, 0.9)]
    answers, ways = recorded(rows), recorded_ways(rows)
    tags = answer_tags(answers) | comparison_tags(ways, answers)
    nothing = dict.fromkeys(("k", "kept", "certified", "rate"), "-")
    assert tags == {**nothing, "way": "adapter-8"}
    assert search_run_name("demo", answers, ways) == "adapter-8: demo"
    ways[0]["recommended"] = None
    assert search_run_name("demo", answers, ways) == "no answer: demo"


def test_a_way_stands_before_the_depths_that_were_compared_with_it() -> None:
    rows = [*way_rows(FULL, 0.9), *way_rows(ADAPTER, 0.9), *way_rows(HEAD, 0.6)]
    answers, ways = recorded(rows), recorded_ways(rows)
    assert "k" not in comparison_tags(ways, answers)
    assert search_run_name("demo", answers, ways) == "adapter-8; depths 6 of 6, 100.0 %: demo"
    ways[0]["recommended"] = None
    assert search_run_name("demo", answers, ways) == "6 of 6, 100.0 %: demo"


def test_a_way_that_is_a_depth_is_told_by_its_fine_tuned_layers() -> None:
    rows = [*way_rows(FULL, 0.9), *way_rows(ADAPTER, 0.6), *way_rows(LAST_TWO, 0.898)]
    answers, ways = recorded(rows), recorded_ways(rows)
    assert comparison_tags(ways, answers) == {"way": "2 of 6"}
    assert search_run_name("demo", answers, ways) == "2 of 6, 99.8 %: demo"


def test_the_recommended_number_is_a_metric_beside_the_operating_point() -> None:
    [first, *_] = curve_reports(recorded(falling_curve()), 0.0)
    assert first.metrics["recommended_fine_tuned_layers"] == 3
    assert first.metrics["fine_tuned_layers"] == 2
    [bare, *_] = curve_reports(recorded(seeds(3, [0.8, 0.81])), 0.0)
    assert not {"recommended_fine_tuned_layers", "fine_tuned_layers"} & bare.metrics.keys()


@pytest.mark.parametrize("answers", [None, [], [{"layers": 6}], [{}, {}], "none"])
def test_a_record_without_one_recommendation_leaves_the_name(answers: Any) -> None:
    assert answer_tags(answers) == {}
    assert search_run_name("demo", answers) == "demo"


def test_the_page_has_no_filter_for_mlflow_then_leaves_the_view_alone() -> None:
    page = page_of("http://here:5000/", "7")
    assert page.startswith("http://here:5000/#/experiments/7/runs?")
    assert "viewStateShareKey=elsa-tune" in page and "searchFilter" not in page
