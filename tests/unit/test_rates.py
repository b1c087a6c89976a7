"""Learning rates in the answer: the border of what was tried, and what the given ones would say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elsa_tune.analysis.answer_json import answer_object, as_json
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.analysis.wording.tables import point_cells
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.words import rate_text
from tests.unit.result_rows import falling_curve, row, seeds

GIVEN = {"given_rates": (1e-5, 5e-5)}


def tried(frozen: int, scores: dict[float, float | None], **changes: Any) -> list[ResultRow]:
    """Return an exploring run at each rate; None was stopped early."""
    return [
        row(
            frozen,
            0.4 if score is None else score,
            phase=Phase.EXPLORE,
            status=TrialStatus.STOPPED_EARLY if score is None else TrialStatus.COMPLETED,
            learning_rate=rate,
            seed=0,
            **{**GIVEN, **changes},
        )
        for rate, score in scores.items()
    ]


def searched() -> list[ResultRow]:
    """Return a search whose best rates lie inside and outside what was tried.

    The full model's lies inside, N = 5's beyond the given rates, N = 6's nowhere.
    """
    return [
        *tried(0, {1e-5: 0.7, 2e-5: 0.9, 5e-5: None}),
        *tried(4, {1e-5: 0.6, 2e-5: 0.7, 5e-5: 0.82}),
        *tried(5, {1e-5: 0.5, 5e-5: 0.6, 1e-4: 0.8, 2e-4: 0.84, 4e-4: 0.83}),
        *tried(6, {1e-5: 0.5, 5e-5: 0.5}),
        *seeds(0, [0.89, 0.9, 0.91], learning_rate=2e-5, **GIVEN),
        *seeds(4, [0.82, 0.83, 0.84], learning_rate=5e-5, **GIVEN),
        *seeds(5, [0.83, 0.83, 0.84], learning_rate=2e-4, **GIVEN),
        *seeds(6, [0.5, 0.5, 0.51], learning_rate=1e-5, **GIVEN),
    ]


def answered(rows: list[ResultRow]) -> dict[str, Any]:
    (found,) = json.loads(as_json([answer_object(one) for one in answer_rows(rows)]))
    assert isinstance(found, dict)
    return found


def texts(found: dict[str, Any], code: WarningCode) -> list[str]:
    """Return the warnings of this code."""
    return [one["text"] for one in found["warnings"] if one["code"] == code]


def test_borders_are_marked_and_said() -> None:
    found = answered(searched())
    borders = {point["frozen_layers"]: point["rate_at_border"] for point in found["curve"]}
    assert borders == {0: None, 4: "high", 5: None, 6: "high"}
    assert (
        "higher learning rates than those tried may be better at the last 2 layers and "
        "the head alone;" in texts(found, WarningCode.RATE_AT_BORDER)[0]
    )
    lowest = answered(
        [*searched(), *tried(3, {1e-5: 0.9, 5e-5: 0.8}), row(3, 0.9, learning_rate=1e-5)]
    )
    assert (
        "lower learning rates than those tried may be better at the last 3 layers;"
        in texts(lowest, WarningCode.RATE_AT_BORDER)[1]
    )


def test_what_the_given_rates_would_have_said_is_said_where_it_differs() -> None:
    (answer,) = answer_rows(searched())
    assert answer.sentence.startswith("1 of 6 layers at 2e-4 keeps 92.6 %")
    assert answer.sentence.endswith(
        "Within 1e-5..5e-5 (the paper's range) it would be 2 of 6 layers, by single exploring runs."
    )
    assert answered(searched())["operating_point_within_given_rates"] == {
        "frozen_layers": 4,
        "fine_tuned_layers": 2,
        "quality": pytest.approx(0.83),  # measured, as its rate is a given one
        "lowest_rate": 1e-5,
        "highest_rate": 5e-5,
    }


def test_what_the_given_rates_would_have_said_is_no_measurement() -> None:
    (answer,) = answer_rows(searched())
    point = answer.within_given
    assert point is not None
    assert (point.seeds, point.failed_seeds, point.measured_at_rates) == (0, 0, 0)
    assert point.qualities == ()
    tries_within_given = point.known_rates.tries_within_given
    assert (point.exploring_trials, point.stopped_early, tries_within_given) == (0, 0, 0)


def test_a_run_that_was_stopped_hides_none_of_those_behind_it() -> None:
    rows = [*seeds(0, [0.9, 0.9]), *tried(4, {1e-5: None, 2e-5: 0.8, 5e-5: 0.7})]
    (answer,) = answer_rows(rows)
    _, point = answer.points
    assert point.known_rates.means == ((2e-5, 0.8), (5e-5, 0.7))
    assert point.known_rates.quality_within_given == 0.8


def test_the_lowest_and_the_highest_given_rate_are_given() -> None:
    rates = dict.fromkeys((0.9e-5, 1e-5, 5e-5, 5.1e-5), 0.8)
    (answer,) = answer_rows([*seeds(0, [0.9, 0.9]), *tried(4, rates)])
    assert answer.points[1].known_rates.tries_within_given == 2


def test_within_the_given_rates_nothing_is_added() -> None:
    rows = [one for one in searched() if one.candidate.frozen_layers != 5]
    (answer,) = answer_rows(rows)
    assert answer.within_given is None and "Within" not in answer.sentence
    older = [*searched(), *tried(3, {1e-5: 0.9}, given_rates=None)]  # a search of before
    assert answer_rows(older)[0].within_given is None


def test_tries_beyond_the_given_rates_are_no_unequal_treatment() -> None:
    rows = [one for one in searched() if one.candidate.frozen_layers in (0, 4)]
    rows += tried(4, {1e-4: 0.8, 2e-4: 0.8})
    assert not texts(answered(rows), WarningCode.TRIES_DIFFER)
    assert texts(answered(rows + tried(4, {4e-5: 0.8})), WarningCode.TRIES_DIFFER)


def test_one_rate_for_all_depths_is_said_unless_it_was_explored_there() -> None:
    one_rate = falling_curve(learning_rate=3e-5)
    assert "(3e-5)" in texts(answered(one_rate), WarningCode.ONE_RATE)[0]
    explored = [*one_rate, *tried(4, {1e-5: 0.5, 3e-5: 0.8, 5e-5: 0.7})]
    assert not texts(answered(explored), WarningCode.ONE_RATE)
    assert not texts(answered(falling_curve()), WarningCode.ONE_RATE)


def test_a_depth_whose_rate_is_not_named_hides_none_of_those_behind_it() -> None:
    rows = [*seeds(0, [0.9, 0.9], learning_rate=None), *seeds(4, [0.8, 0.8], learning_rate=2e-5)]
    assert "(2e-5)" in texts(answered(rows), WarningCode.ONE_RATE)[0]


def test_a_table_of_several_rates_tells_its_own_border() -> None:
    rows = [*falling_curve(), *seeds(4, [0.84, 0.84, 0.86], learning_rate=1e-4)]
    found = answered(rows)
    assert {p["frozen_layers"]: p["rate_at_border"] for p in found["curve"]}[4] == "high"
    (told,) = texts(found, WarningCode.SEVERAL_RATES)
    assert told.startswith("the last 2 layers: ") and "(5e-5, 1e-4)" in told


def test_a_table_shows_each_depths_rate_and_where_it_lies() -> None:
    [answer] = answer_rows(searched())
    cells = {point.candidate.frozen_layers: point_cells(point)["rate"] for point in answer.points}
    rates = {point.candidate.frozen_layers: point.learning_rate for point in answer.points}
    assert all(cells[n].startswith(rate_text(rate or 0.0)) for n, rate in rates.items())
    assert {n for n, cell in cells.items() if cell != rate_text(rates[n] or 0.0)} == {4, 6}
