"""A study's table: the printed means beside ours, at the same depths or the same shares."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.results.published import Study, printed_rows
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.studies.reproduction import ComparisonRow, compared, table_text
from tests.unit.result_rows import EMBEDDINGS_ONLY, seeds

ELSA, BLOG = Study.ELSA, Study.LOW_RESOURCE


def lines(rows: Sequence[ResultRow], study: Study = ELSA) -> list[ComparisonRow]:
    printed = freeze_curves(printed_rows(study))
    return compared(freeze_curves(rows), printed)


def bert_rows(task: str = "rte") -> list[ResultRow]:
    """BERT-base, two seeds at three depths."""
    is_bert = {"model": "bert_base", "task": task, "layers": 12}
    return [
        *seeds(0, [0.66, 0.68], **is_bert),
        *seeds(9, [0.62, 0.62], **is_bert),
        *seeds(12, [0.55, 0.56], **is_bert),
    ]


def test_a_model_of_the_study_stands_beside_itself() -> None:
    full, nine, _ = lines(bert_rows())
    assert (full.candidate.label, full.ours.quality) == ("0", pytest.approx(0.67))
    assert full.ours.std == pytest.approx(0.0141, abs=1e-4)
    assert nine.ours.retention == pytest.approx(0.62 / 0.67)
    assert nine.printed is not None and nine.printed.candidate.label == "9"
    assert nine.printed.quality == 0.623
    assert nine.printed.retention == pytest.approx(0.623 / 0.676)


def test_mnlis_second_split_has_lines_of_its_own() -> None:
    found = lines([*bert_rows("mnli"), *bert_rows("mnli_mismatched")])
    printed = [one for one in found if one.printed is not None and one.ours.quality == 0.62]
    assert [one.curve.task for one in printed] == ["mnli", "mnli_mismatched"]


@pytest.mark.parametrize("study", Study)
def test_every_printed_number_is_where_it_belongs(study: Study) -> None:
    """Golden: as if the full model of each search had been reproduced."""
    printed = printed_rows(study)
    places = dict.fromkeys((one.model, one.task, one.layers, one.train_size) for one in printed)
    rows = [
        one
        for model, task, layers, size in places
        for one in seeds(0, [0.6, 0.7], model=model, task=task, layers=layers, train_size=size)
    ]
    found = {
        (one.curve.model, one.curve.task, one.curve.train_size, one.candidate): (
            one.printed.quality,
            one.printed.std,
        )
        for one in lines(rows, study)
        if one.printed is not None
    }
    assert found.keys() == {(one.model, one.task, one.train_size, one.candidate) for one in printed}
    for one in printed:
        quality, std = found[one.model, one.task, one.train_size, one.candidate]
        assert quality == pytest.approx(one.quality) and std == one.std


def test_a_model_task_or_depth_that_only_one_of_them_has_is_there_all_the_same() -> None:
    (other,) = lines(seeds(0, [0.6, 0.62]))
    assert other.printed is None
    is_bert = {"model": "bert_base", "layers": 12}
    (own,) = lines(seeds(0, [0.8, 0.9], task="mood", **is_bert))
    assert own.printed is None
    found = lines([*seeds(0, [0.6, 0.62], **is_bert), *seeds(5, [0.58, 0.58], **is_bert)])
    assert [one.candidate.label for one in found] == ["0", "5", "9", "12"]
    assert [one.ours.quality is None for one in found] == [False, False, True, True]
    assert [one.printed is None for one in found] == [False, True, False, False]


def test_the_blogs_sizes_stand_beside_their_own_means() -> None:
    is_roberta = {"model": "roberta_base", "layers": 12, "task": "sst2"}
    rows = [
        one
        for size in (50, 200)
        for depth in (0, EMBEDDINGS_ONLY, 2)
        for one in seeds(depth, [0.5, 0.6, 0.8], train_size=size, **is_roberta)
    ]
    found = lines(rows, BLOG)
    labels = ["0", "embeddings", "2", "4", "8", "10", "12"]
    assert [(one.curve.train_size, one.candidate.label) for one in found] == [
        (size, label) for size in (50, 200) for label in labels
    ]
    assert found[2].printed is not None
    assert (found[2].printed.quality, found[2].printed.std) == (0.695, 0.0713)
    # The paper prints one size, beside which any of ours stands.
    (full, *_) = lines(
        seeds(0, [0.6, 0.7], model="bert_base", layers=12, task="sst2", train_size=1000)
    )
    assert full.printed is not None and full.printed.quality == pytest.approx(0.927)


def test_what_repeats_is_written_once() -> None:
    found = lines(bert_rows())
    texts = [" ".join(text.split()) for text in table_text(found).splitlines()]
    assert texts[1] == "bert_base rte all 0 of 12 2 67.0 ± 1.4 100.0 % 67.6 100.0 %"
    assert texts[2].startswith("bert_base rte all 9 of 12 2 62.0")
