"""The paper's own answers, from its printed means (Lee, Tang, Lin 2019, Tables 3-5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answers import answer_curves, freeze_curves
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.errors import ResultsError
from elsa_tune.results.published import published_rows
from elsa_tune.results.results_csv import import_results
from tests.unit.result_rows import codes, warned

# Fine-tuned layers k, raw and corrected for chance.
EXPECTED = {
    ("bert_base", "cola"): (12, 12),
    ("bert_base", "mnli"): (3, 3),
    ("bert_base", "mrpc"): (0, 12),
    ("bert_base", "qnli"): (3, 3),
    ("bert_base", "qqp"): (3, 3),
    ("bert_base", "rte"): (3, 12),
    ("bert_base", "sst2"): (0, 3),
    ("bert_base", "stsb"): (3, 3),
    ("bert_base", "*"): (3, 12),
    ("bert_large", "cola"): (24, 24),
    ("bert_large", "mrpc"): (0, 24),
    ("bert_large", "sst2"): (0, 6),
    ("bert_large", "stsb"): (6, 6),
    ("bert_large", "*"): (6, 24),
    ("roberta_base", "cola"): (5, 5),
    ("roberta_base", "mrpc"): (5, 12),
    ("roberta_base", "sst2"): (5, 5),
    ("roberta_base", "stsb"): (5, 5),
    ("roberta_base", "*"): (5, 12),
    ("roberta_large", "cola"): (7, 7),
    ("roberta_large", "mrpc"): (7, 7),
    ("roberta_large", "sst2"): (7, 7),
    ("roberta_large", "stsb"): (7, 7),
    ("roberta_large", "*"): (7, 7),
}


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str], Answer]:
    """Every answer of the paper's table, CoLA left out of the joint ones as the paper did."""
    rows = [row for row in published_rows() if row.train_size is None]
    return {
        (answer.model, answer.task): answer
        for answer in answer_curves(freeze_curves(rows), exclude_tasks=["cola"])
    }


def test_every_answer(answers: dict[tuple[str, str], Answer]) -> None:
    found = {
        key: tuple(
            None if point is None else point.fine_tuned_layers
            for point in (answer.operating_point, answer.corrected_operating_point)
        )
        for key, answer in answers.items()
    }
    assert found == EXPECTED


def test_who_decides_the_joint_answers(answers: dict[tuple[str, str], Answer]) -> None:
    decided = {model: answers[model, "*"].decided_by for model in ("bert_base", "bert_large")}
    assert decided == {
        "bert_base": ("stsb", "qqp", "mnli", "qnli", "rte"),
        "bert_large": ("stsb",),
    }


def test_what_nine_frozen_layers_keep_on_mrpc(answers: dict[tuple[str, str], Answer]) -> None:
    answer = answers["bert_base", "mrpc"]
    (nine,) = [point for point in answer.points if point.candidate.frozen_layers == 9]
    assert nine.retention == pytest.approx(0.946, abs=5e-4)
    assert nine.corrected_retention == pytest.approx(0.46, abs=5e-3)
    assert "81.5 of 90.3" in answer.sentence and "all 12 layers" in answer.sentence
    warning = warned(answer, WarningCode.CORRECTED_DISAGREES)
    assert "a constant answer, which alone keeps 89.9 %" in warning


def test_nobody_knows_the_spread_of_these_means(answers: dict[tuple[str, str], Answer]) -> None:
    for (_, task), answer in answers.items():
        if task != "*":
            assert WarningCode.LEARNING_UNTESTED in codes(answer)


@pytest.mark.parametrize("name", ["low_resource_sst2.csv", "low_resource_cola_accuracy.csv"])
def test_the_other_study_is_told_which_columns_are_missing(shared: Path, name: str) -> None:
    with pytest.raises(ResultsError, match=r"missing columns layers, quality, seed .*mean_acc"):
        import_results(shared / "published" / name)
