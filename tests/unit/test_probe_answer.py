"""A linear probe beside an answer: shown, compared, warned of, and never counted."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object, freeze_curve_object
from elsa_tune.analysis.answers import answer_rows, freeze_curves
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.cli.answer_tables import print_curves
from elsa_tune.report.folder import write_report
from elsa_tune.results.results_csv import import_results, write_results
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase
from tests.unit.report_examples import page_of
from tests.unit.result_rows import as_table_has, codes, falling_curve, row, seeds, warned

LINE = "Linear probe on the frozen model: 70.0 (77.8 % kept, 50.0 % corrected), no fine-tuning."


def probe(quality: float, **changes: Any) -> ResultRow:
    """Return the probe's row of the searches in `result_rows`."""
    values = {"phase": Phase.PROBE, "learning_rate": None, "seed": None, "trial": "probe-N6"}
    return row(6, quality, **{**values, "probe_examples": 400, "examples": 277, **changes})


def answered(rows: list[ResultRow]) -> Answer:
    (answer,) = answer_rows(rows)
    return answer


BELOW, REACHES = WarningCode.DEPTHS_BELOW_PROBE, WarningCode.PROBE_REACHES_TARGET


def test_it_changes_nothing_else_of_an_answer() -> None:
    without = answered(falling_curve(examples=500))
    found = answered([probe(0.70), *falling_curve(examples=500)])
    assert found.probe is not None and without.probe is None
    beyond = [one for one in found.warnings if one.code not in (BELOW, REACHES)]
    same = dataclasses.replace(found, probe=None, warnings=tuple(beyond))
    assert same == without


def test_the_json_says_what_it_is() -> None:
    rows = [*falling_curve(), probe(0.70)]
    (curve,) = freeze_curves(rows)
    assert answer_object(answered(rows))["linear_probe"] == {
        "quality": 0.7,
        "retention": 0.777778,
        "corrected_retention": 0.5,
        "train_examples": 400,
        "evaluation_examples": 277,
        "features": "first token and mean over tokens of the last layer",
    }
    assert freeze_curve_object(curve)["linear_probe"]["retention"] == 0.777778


def test_tables_and_the_page_have_its_line() -> None:
    rows = [*falling_curve(), probe(0.70)]
    out = io.StringIO()
    console = Console(file=out, width=200)
    print_curves(answer_rows(rows), console)
    print_curves(freeze_curves(rows), console)
    assert out.getvalue().count(LINE) == 2
    page = page_of(rows)
    assert LINE in page and "<li>The linear probe is a logistic or ridge regression" in page
    assert "linear probe" not in page_of(falling_curve())


def test_a_report_does_not_count_it_among_the_trials(tmp_path: Path) -> None:
    rows = [*falling_curve(), probe(0.70)]
    write_report(answer_rows(rows), rows, tmp_path)
    assert len(import_results(tmp_path / "trials.csv").rows) == len(rows) - 1


def test_the_page_does_not_promise_its_answer_from_a_table_that_lacks_it() -> None:
    promise = "the same answers from the table beside this page"
    curve = falling_curve(policy=Policy())
    assert promise in page_of(curve)
    page = page_of([*curve, probe(0.70, policy=Policy())])
    assert promise not in page and "what it lacks:\n# the linear probe\n" in page


def test_a_table_that_has_one_is_read_without_it(tmp_path: Path) -> None:
    table = tmp_path / "trials.csv"
    table.write_text(write_results([*falling_curve(), probe(0.70)]), encoding="utf-8")
    assert import_results(table).rows == as_table_has(falling_curve())


def test_depths_that_it_clearly_beats_were_not_trained_well() -> None:
    """By the depth's interval: N = 6 has 60 with 57.5..62.5, N = 5 has 76."""
    told = warned(answered([*falling_curve(), probe(0.70)]), BELOW)
    assert (
        "has 70.0, clearly more than the head alone (60.0), which was trained too little: " in told
    )
    told = warned(answered([*falling_curve(), probe(0.95)]), BELOW)
    assert (
        "clearly more than the full model, the last 3, 2 and 1 layers and the head alone (90.0, "
        in told
    )
    # Within its interval.
    assert BELOW not in codes(answered([*falling_curve(), probe(0.61)]))


@pytest.mark.parametrize(("quality", "examples", "said"), [(0.66, 400, True), (0.63, 400, False)])
def test_of_a_single_run_it_takes_two_standard_errors(
    quality: float, examples: int, said: bool
) -> None:
    """.60 against .66 +- 2 x .0237, and against .63."""
    rows = [*seeds(0, [0.9]), *seeds(6, [0.6]), probe(quality, examples=examples)]
    assert (BELOW in codes(answered(rows))) == said
    assert BELOW not in codes(answered([*rows[:-1], probe(quality, examples=None)]))


@pytest.mark.parametrize(("deep", "said"), [(0.90, True), (0.91, False)])
def test_near_the_top_a_share_is_known_the_more_exactly(deep: float, said: bool) -> None:
    """.95 of 100 examples: 2 x sqrt(.95 x .05 / 100) is .0436, where half of them gave .1."""
    rows = [*seeds(0, [0.99]), *seeds(6, [deep]), probe(0.95, examples=100)]
    assert (BELOW in codes(answered(rows))) == said


def test_a_correlation_below_zero_is_compared_as_it_is() -> None:
    rows = [*seeds(0, [0.5]), *seeds(6, [-0.2]), probe(-0.1)]
    rows = [dataclasses.replace(one, metric="matthews", chance=0.0) for one in rows]
    assert BELOW in codes(answered(rows))


def test_one_that_reaches_the_target_is_said_raw_and_corrected() -> None:
    told = warned(answered([*falling_curve(), probe(0.82)]), REACHES)
    assert "keeps 91.1 % of the full model's accuracy" in told
    assert told.endswith("corrected for chance 80.0 %, which does not")
    told = warned(answered([*falling_curve(), probe(0.88)]), REACHES)
    assert told.endswith("corrected for chance 95.0 %")
    assert REACHES not in codes(answered([*falling_curve(), probe(0.80)]))
    unknown = [*falling_curve(chance=None), probe(0.82, chance=None)]
    told = warned(answered(unknown), REACHES)
    assert told.endswith("keeps 91.1 % of the full model's accuracy")


def test_without_a_full_model_it_stands_alone() -> None:
    found = answered([*seeds(6, [0.6, 0.61, 0.62]), probe(0.7)])
    assert found.probe is not None and found.probe.retention is None
    out = io.StringIO()
    print_curves([found], Console(file=out, width=200))
    assert "Linear probe on the frozen model: 70.0, no fine-tuning." in out.getvalue()


def test_a_search_that_has_only_been_probed_has_no_results_yet() -> None:
    assert answer_rows([probe(0.7)]) == []


def test_of_several_searches_the_first_probe_stands_for_all() -> None:
    first = [probe(0.7, search="a"), *seeds(0, [0.9, 0.91, 0.92], search="a")]
    more = [row(0, 0.9, seed=seed, search="b") for seed in (4, 5, 6)]
    found = answered([*first, *more, probe(0.71, search="b")])
    assert found.probe is not None and found.probe.quality == 0.7
    assert found.full is not None and found.full.seeds == 6
