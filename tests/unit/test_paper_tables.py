"""The studies' tables: their printed numbers in their own layout, and ours beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import pytest

from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.studies.paper_tables import (
    OURS,
    PAPER,
    SPREAD,
    elsa_tables,
    low_resource_tables,
    matched,
)
from elsa_tune.studies.table import PaperTable
from elsa_tune.tables.published import published_values
from tests.unit.result_rows import EMBEDDINGS_ONLY, row, seeds


def curves(rows: Sequence[ResultRow]) -> list[FreezeCurve]:
    return freeze_curves(rows)


def bert_rows(task: str = "rte") -> list[ResultRow]:
    """BERT-base, five exploring trials and two seeds at three depths."""
    is_bert = {"model": "bert_base", "task": task, "layers": 12}
    rates = {1e-5: 0.60, 2e-5: 0.68, 3e-5: 0.68, 4e-5: 0.5}
    explored = [
        row(0, quality, **is_bert, phase=Phase.EXPLORE, learning_rate=rate, seed=0)
        for rate, quality in rates.items()
    ]
    # Better than all, and not to its end.
    explored.append(
        row(
            0,
            0.9,
            **is_bert,
            phase=Phase.EXPLORE,
            learning_rate=5e-5,
            seed=0,
            status=TrialStatus.INTERRUPTED,
        )
    )
    return [
        *explored,
        *seeds(0, [0.66, 0.68], **is_bert),
        *seeds(9, [0.62, 0.62], **is_bert),
        *seeds(12, [0.55, 0.56], **is_bert),
    ]


def named(tables: Sequence[PaperTable]) -> dict[str, PaperTable]:
    return {table.name: table for table in tables}


def line(table: PaperTable, *head: str) -> dict[str, object]:
    """The cells of the one row that begins so, by column; the source's column has no name."""
    names = [name or "source" for name, _ in table.columns]
    found = [dict(zip(names, cells, strict=True)) for cells in table.rows]
    (only,) = [one for one in found if tuple(one.values())[: len(head)] == head]
    return only


def test_table_2_has_the_best_of_the_line_search_and_its_rate() -> None:
    rows = bert_rows()
    table = named(elsa_tables(curves(rows), rows, published_values()))["table2"]
    # Of two equally good rates the lower one.
    assert line(table, "bert_base", OURS)["RTE"] == 0.68
    assert line(table, "bert_base", "rate")["RTE"] == "2e-05"
    assert line(table, "bert_base", PAPER)["RTE"] == 0.682
    assert line(table, "bert_base", OURS)["CoLA"] is None


def test_table_3_has_the_papers_rows_and_columns_and_ours_above_them() -> None:
    rows = bert_rows()
    tables = named(elsa_tables(curves(rows), rows, published_values()))
    table = tables["table3"]
    names = [name for name, _ in table.columns]
    assert names == [
        *("model", "frozen", "", "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "MNLI-mm"),
        *("QNLI", "RTE"),
    ]
    assert [cells[1:3] for cells in table.rows] == [
        (f"{frozen} of 12", source) for frozen in (0, 9, 12) for source in (OURS, SPREAD, PAPER)
    ]
    assert line(table, "bert_base", "9 of 12", OURS)["RTE"] == pytest.approx(0.62)
    assert line(table, "bert_base", "0 of 12", SPREAD)["RTE"] == pytest.approx(0.0141, abs=1e-4)
    assert line(table, "bert_base", "9 of 12", PAPER)["RTE"] == 0.623
    # Table 4 has BERT-base too, and is printed with RoBERTa's lines; Table 5 has nothing of ours.
    assert {cells[0] for cells in tables["table4"].rows} == {"bert_base", "roberta_base"}
    assert "table5" not in tables


def test_a_companion_split_has_its_own_column() -> None:
    rows = [*bert_rows("mnli"), *bert_rows("mnli_mismatched")]
    table = named(elsa_tables(curves(rows), rows, published_values()))["table3"]
    ours = line(table, "bert_base", "9 of 12", OURS)
    assert ours["MNLI"] == ours["MNLI-mm"] == pytest.approx(0.62)


def test_every_printed_number_of_tables_2_to_5_is_where_the_paper_has_it() -> None:
    """Golden: as if each model had been reproduced on one task."""
    rows = [
        one
        for model, layers in (
            *(("bert_base", 12), ("roberta_base", 12)),
            *(("bert_large", 24), ("roberta_large", 24)),
        )
        for one in seeds(0, [0.6, 0.7], model=model, layers=layers)
    ]
    tables = named(elsa_tables(curves(rows), rows, published_values()))
    shown = {
        "CoLA": "cola",
        "SST-2": "sst2",
        "MRPC": "mrpc",
        "STS-B": "stsb",
        "QQP": "qqp",
        "MNLI": "mnli",
        "MNLI-mm": "mnli_mismatched",
        "QNLI": "qnli",
        "RTE": "rte",
    }
    for number in (2, 3, 4, 5):
        table = tables[f"table{number}"]
        heads = 2 if number == 2 else 3
        found = {
            (cells[0], "0" if number == 2 else str(cells[1]).split()[0], shown[name]): cell
            for cells in table.rows
            if cells[heads - 1] == PAPER
            for (name, _), cell in zip(table.columns[heads:], cells[heads:], strict=True)
            if cell is not None
        }
        printed = {
            (value.model, value.depth.label, value.task): value.quality
            for value in published_values()
            if value.table == number
        }
        assert found == printed


def test_another_model_stands_beside_bert_base_at_the_same_shares() -> None:
    rows = [*seeds(0, [0.6, 0.62]), *seeds(4, [0.58, 0.58]), *seeds(6, [0.53, 0.53])]
    tables = named(elsa_tables(curves(rows), rows, published_values()))
    assert set(tables) == {"table2", "table3-minilm", "figure1"}
    table = tables["table3-minilm"]
    assert [name for name, _ in table.columns] == ["model", "frozen", "", "RTE"]
    assert [cells[:3] for cells in table.rows if cells[2] != SPREAD] == [
        ("minilm", "0 of 6", OURS),
        ("bert_base", "0 of 12", PAPER),
        ("minilm", "4 of 6", OURS),
        ("bert_base", "9 of 12", PAPER),
        ("minilm", "6 of 6", OURS),
        ("bert_base", "12 of 12", PAPER),
    ]
    assert "does not have minilm" in table.notes[0]


def test_printed_depths_that_are_one_of_ours_are_named() -> None:
    rows = [*seeds(0, [0.6, 0.62], layers=1), *seeds(1, [0.53, 0.53], layers=1)]
    tables = named(elsa_tables(curves(rows), rows, published_values()))
    table = tables["table3-minilm"]
    assert [cells[:3] for cells in table.rows if cells[2] != SPREAD] == [
        ("minilm", "0 of 1", OURS),
        ("bert_base", "0 of 12", PAPER),
        ("minilm", "1 of 1", OURS),
        ("bert_base", "9 of 12", PAPER),
    ]
    assert table.notes[1] == (
        "Printed depths that have no place of their own in 1 layer: 12 of 12."
    )
    rows = seeds(0, [0.6, 0.62], layers=2, task="sst2", train_size=50)
    (appendix,) = low_resource_tables(curves(rows), published_values())
    assert [cells[1] for cells in appendix.rows] == ["emb.", "0", "1", "2"]
    assert appendix.notes[1].endswith("in 2 layers: 4, 8 and 10 of 12.")


def test_figure_1_is_the_change_against_the_full_model() -> None:
    rows = bert_rows()
    table = named(elsa_tables(curves(rows), rows, published_values()))["figure1"]
    assert line(table, "bert_base", "9 of 12", OURS)["RTE"] == pytest.approx(0.62 / 0.67 - 1)
    assert line(table, "bert_base", "9 of 12", PAPER)["RTE"] == pytest.approx(0.623 / 0.676 - 1)
    # STS-B stands in Tables 3 and 4, with another full model; Table 3 is taken.
    paper = line(table, "bert_base", "12 of 12", PAPER)
    assert paper["STS-B"] == pytest.approx(0.781 / 0.888 - 1)


def test_a_task_of_ones_own_has_a_column_and_no_empty_paper_lines() -> None:
    rows = [*seeds(0, [0.8, 0.9], task="mood"), *seeds(6, [0.7, 0.7], task="mood")]
    tables = elsa_tables(curves(rows), rows, published_values())
    for table in tables:
        assert [name for name, _ in table.columns][-1] == "mood"
        assert all(PAPER not in cells for cells in table.rows)


def test_the_appendix_has_the_blogs_columns_and_statistics() -> None:
    rows = [
        one
        for depth in (0, EMBEDDINGS_ONLY, 1)
        for one in seeds(depth, [0.5, 0.6, 0.8], task="sst2", train_size=50, selection="best_epoch")
    ]
    (table,) = low_resource_tables(curves(rows), published_values())
    assert table.name == "appendix-minilm-sst2"
    names = [name for name, _ in table.columns]
    assert names[:8] == ["examples", "frozen", "seeds", "mean", "50 %", "std", "min", "max"]
    # Embeddings-only first, as the blog has it; 2 of 12 layers are 1 of 6, and so on.
    assert [cells[1] for cells in table.rows] == ["emb.", "0", "1", "2", "4", "5", "6"]
    one = line(table, "50", "1")
    assert one["mean"] == pytest.approx(1.9 / 3)
    assert (one["50 %"], one["min"], one["max"]) == (0.6, 0.5, 0.8)
    assert one["std"] == pytest.approx(0.1527525)
    assert (one["paper mean"], one["paper 50 %"], one["paper std"]) == (0.695, 0.709, 0.0713)
    assert line(table, "50", "6")["mean"] is None
    assert "roberta_base" in table.notes[0]


def test_the_blogs_numbers_are_written_as_it_writes_them() -> None:
    rows = seeds(0, [0.6, 0.7], model="roberta_base", layers=12, task="sst2", train_size=1000)
    (table,) = low_resource_tables(curves(rows), published_values())
    full = next(texts for texts in table.texts if texts[1] == "0")
    assert full[3:] == [
        *("0.650", "0.650", "0.0707", "0.600", "0.700"),
        *("0.905", "0.902", "0.0063", "0.899", "0.912"),
    ]
    assert not table.notes


def test_what_repeats_is_written_once_and_the_csv_has_it_all() -> None:
    rows = bert_rows()
    table = named(elsa_tables(curves(rows), rows, published_values()))["table3"]
    assert [texts[:3] for texts in table.texts[:4]] == [
        ["bert_base", "0 of 12", OURS],
        ["", "", SPREAD],
        ["", "", PAPER],
        ["", "9 of 12", OURS],
    ]
    lines = list(csv.reader(io.StringIO(table.csv)))
    assert lines[3][:3] == ["bert_base", "0 of 12", PAPER]
    assert lines[3][-1] == "0.676" and lines[1][3] == ""


@pytest.mark.parametrize(
    ("printed", "layers", "ours"),
    [(0, 6, 0), (2, 6, 1), (9, 6, 4), (9, 24, 18), (12, 6, 6), (2, 4, 1), (9, 1, 1)],
)
def test_shares_of_layers_are_rounded_down_but_not_to_the_full_model(
    printed: int, layers: int, ours: int
) -> None:
    depths, _ = matched([FreezeDepth.of(printed)], 12, layers)
    assert depths == {FreezeDepth.of(ours): FreezeDepth.of(printed)}


def test_embeddings_only_stays_embeddings_only() -> None:
    assert matched([EMBEDDINGS_ONLY], 12, 6) == ({EMBEDDINGS_ONLY: EMBEDDINGS_ONLY}, ())


@pytest.mark.parametrize("task", ["sst2", "cola"])
def test_every_printed_number_of_the_appendix_is_there(task: str) -> None:
    printed = [
        value
        for value in published_values()
        if value.study == "low-resource" and value.task == task
    ]
    rows = [
        one
        for size in {value.train_size for value in printed}
        for one in seeds(0, [0.6, 0.7], model="roberta_base", layers=12, task=task, train_size=size)
    ]
    (table,) = low_resource_tables(curves(rows), published_values())
    found = {(cells[0], cells[1]): cells[-5:] for cells in table.rows}
    assert found == {
        (
            f"{value.train_size:,}",
            "emb." if value.depth.is_embeddings_only else value.depth.label,
        ): (*(value.quality, value.median, value.std, value.minimum, value.maximum),)
        for value in printed
    }
