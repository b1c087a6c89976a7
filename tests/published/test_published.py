"""The packaged numbers: whole, in range, and the same as the files they were taken from."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from elsa_tune.specs.known_tasks import GLUE_TASKS
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tables.published import (
    published_rows,
    published_values,
)
from elsa_tune.tables.results_csv import import_results

LAYERS = {"bert_base": 12, "roberta_base": 12, "bert_large": 24, "roberta_large": 24}

# Three decimals of a fraction: the true mean lies within half a step.
PRINTED_STEP = 1e-3


def lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def test_nothing_is_missing() -> None:
    counts = Counter((value.study, value.table) for value in published_values())
    assert counts == {
        ("elsa", 2): 32,  # 4 models x 8 tasks, the best run of the full model
        ("elsa", 3): 27,  # BERT-base: 3 depths x (8 tasks and mnli_mismatched)
        ("elsa", 4): 24,  # 2 base models x 3 depths x 4 tasks
        ("elsa", 5): 24,  # 2 large models x 3 depths x 4 tasks
        ("low-resource", None): 7 * (5 + 4),  # depths x sizes of SST-2 and CoLA
    }


def test_every_value_is_possible() -> None:
    for value in published_values():
        assert value.layers == LAYERS[value.model]
        value.depth.check(value.layers)
        assert 0 <= value.quality <= 1
        assert abs(value.quality / PRINTED_STEP - round(value.quality / PRINTED_STEP)) < 1e-6
        assert (value.study == "low-resource") is (value.train_size is not None)
        assert value.runs == (None if value.table == 2 else 5)
        spread = (value.std, value.median, value.minimum, value.maximum)
        assert spread.count(None) in (0, 4)
        if value.minimum is not None and value.maximum is not None:
            assert value.minimum <= value.quality <= value.maximum
            assert value.minimum <= (value.median or 0.0) <= value.maximum
            # Five numbers between two ends cannot spread further, rounding of the ends aside.
            assert (value.std or 0.0) <= 0.55 * (value.maximum - value.minimum) + PRINTED_STEP


def test_the_paper_table_is_what_was_printed(shared: Path) -> None:
    printed = [
        (
            int(cells["table"]),
            cells["model"],
            cells["task"],
            int(cells["layers"]),
            int(cells["frozen_layers"]),
            cells["metric"],
            round(float(cells["quality_percent"]) * 10),
            cells["kind"],
        )
        for cells in lines(shared / "published" / "elsa_paper_tables.csv")
    ]
    packaged = [
        (
            value.table,
            value.model,
            value.task,
            value.layers,
            value.depth.frozen_layers,
            value.metric,
            round(value.quality * 1000),
            value.kind,
        )
        for value in published_values()
        if value.study == "elsa"
    ]
    assert packaged == printed


@pytest.mark.parametrize("name", ["sst2", "cola_accuracy"])
def test_the_blog_tables_are_what_was_printed(name: str, shared: Path) -> None:
    task = name.removesuffix("_accuracy")
    printed = [
        (
            int(cells["train_size"]),
            "embeddings" if cells["frozen_layers"] == "-1" else cells["frozen_layers"],
            *(
                float(cells[column])
                for column in ("mean_accuracy", "median_accuracy", "std", "min", "max")
            ),
        )
        for cells in lines(shared / "published" / f"low_resource_{name}.csv")
    ]
    packaged = [
        (v.train_size, v.depth.label, v.quality, v.median, v.std, v.minimum, v.maximum)
        for v in published_values()
        if v.study == "low-resource" and v.task == task
    ]
    assert packaged == printed


def test_the_rows_are_those_that_a_table_would_give(shared: Path) -> None:
    def facts(row: ResultRow) -> tuple[object, ...]:
        return (row.model, row.task, row.layers, row.depth, row.metric, row.quality, row.runs)

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
