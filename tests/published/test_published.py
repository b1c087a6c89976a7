"""The packaged numbers: whole, in range, and the same as the files they were taken from."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from elsa_tune.results.published import Study, printed_rows, published_rows
from elsa_tune.results.results_csv import import_results
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tasks.known import GLUE_TASKS

LAYERS = {"bert_base": 12, "roberta_base": 12, "bert_large": 24, "roberta_large": 24}

PRINTED = [row for study in Study for row in printed_rows(study)]

# Three decimals of a fraction: the true mean lies within half a step.
PRINTED_STEP = 1e-3


def lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def test_nothing_is_missing() -> None:
    counts = Counter((str(row.comparison), row.model) for row in PRINTED)
    assert counts == {
        (Study.ELSA.source, "bert_base"): 27,  # 3 depths x (8 tasks and mnli_mismatched)
        (Study.ELSA.source, "roberta_base"): 12,  # 3 depths x 4 tasks
        (Study.ELSA.source, "bert_large"): 12,
        (Study.ELSA.source, "roberta_large"): 12,
        (Study.LOW_RESOURCE.source, "roberta_base"): 7 * (5 + 4),  # depths x sizes, two tasks
    }


def test_every_value_is_possible() -> None:
    for row in PRINTED:
        assert row.layers == LAYERS[row.model]
        row.candidate.check(row.layers)
        assert row.quality is not None and 0 <= row.quality <= 1
        assert abs(row.quality / PRINTED_STEP - round(row.quality / PRINTED_STEP)) < 1e-6
        is_blog = str(row.comparison) == Study.LOW_RESOURCE.source
        assert (row.train_size is not None) is (row.std is not None) is is_blog
        assert row.runs == 5


def test_the_paper_tables_are_what_was_printed(shared: Path) -> None:
    printed = [
        (
            cells["model"],
            cells["task"],
            int(cells["layers"]),
            int(cells["frozen_layers"]),
            cells["metric"],
            round(float(cells["quality_percent"]) * 10),
        )
        for cells in lines(shared / "published" / "elsa_paper_tables.csv")
        # Table 2 has best runs, and Table 4 prints BERT-base again.
        if cells["table"] != "2" and (cells["table"], cells["model"]) != ("4", "bert_base")
    ]
    packaged = [
        (
            row.model,
            row.task,
            row.layers,
            row.candidate.frozen_layers,
            row.metric,
            round((row.quality or 0.0) * 1000),
        )
        for row in printed_rows(Study.ELSA)
    ]
    assert packaged == printed


@pytest.mark.parametrize("name", ["sst2", "cola_accuracy"])
def test_the_blog_tables_are_what_was_printed(name: str, shared: Path) -> None:
    task = name.removesuffix("_accuracy")
    printed = [
        (
            int(cells["train_size"]),
            "embeddings" if cells["frozen_layers"] == "-1" else cells["frozen_layers"],
            float(cells["mean_accuracy"]),
            float(cells["std"]),
        )
        for cells in lines(shared / "published" / f"low_resource_{name}.csv")
    ]
    packaged = [
        (row.train_size, row.candidate.label, row.quality, row.std)
        for row in printed_rows(Study.LOW_RESOURCE)
        if row.task == task
    ]
    assert packaged == printed


def test_the_rows_are_those_that_a_table_would_give(shared: Path) -> None:
    def facts(row: ResultRow) -> tuple[object, ...]:
        return (row.model, row.task, row.layers, row.candidate, row.metric, row.quality, row.runs)

    read = import_results(shared / "published" / "elsa_paper_curves.csv").rows
    rows = [row for row in published_rows() if row.train_size is None]
    assert sorted(map(facts, rows), key=str) == sorted(map(facts, read), key=str)
    told = {row.task: row.chance for row in read if row.chance is not None}
    for row in rows:
        assert row.chance == pytest.approx(told.get(row.task, row.chance), abs=5e-5)


def test_chance_is_known_for_every_row() -> None:
    for row in published_rows():
        assert row.metric is not None
        assert row.chance == GLUE_TASKS[row.task].published_chance[row.metric]
