"""Parameter counts against Table 1 of "What Would Elsa Do?" (arXiv 1911.03090), as printed.

The printed digits say how far a count is rounded.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from elsa_tune.specs.model import resolve_model
from elsa_tune.training.model.encoder import facts

MODELS = ("bert_base", "roberta_base", "bert_large", "roberta_large")
COLUMNS = {
    "embedding": "embedding_millions",
    "layer": "layer_millions",
    "output": "output_millions",
    "total": "total_millions",
}


def printed_unit(text: str) -> float:
    """Millions that one step of the last printed digit stands for.

    A last zero of a whole number says nothing: the table's 110 for BERT-base, which has 109.48
    million, is the usual round figure, so its unit is 10.
    """
    if "." in text:
        return 10.0 ** -len(text.split(".")[1])
    return 10.0 ** (len(text) - len(text.rstrip("0")))


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, str]]:
    lines = Path(__file__).with_name("table1.csv").read_text(encoding="utf-8").splitlines()
    return {row["model"]: row for row in csv.DictReader(lines)}


@pytest.mark.parametrize("part", COLUMNS)
@pytest.mark.parametrize("model", MODELS)
def test_counts_match_the_printed_ones(
    model: str, part: str, table: dict[str, dict[str, str]]
) -> None:
    text = table[model][COLUMNS[part]]
    counted = getattr(facts(resolve_model(model)), part) / 1e6
    assert abs(counted - float(text)) <= printed_unit(text) / 2


def test_the_table_names_all_four_models(table: dict[str, dict[str, str]]) -> None:
    assert set(table) == set(MODELS)


@pytest.mark.parametrize(
    ("text", "unit"), [("24", 1), ("0.6", 0.1), ("110", 10), ("335", 1), ("1", 1)]
)
def test_printed_precision(text: str, unit: float) -> None:
    assert printed_unit(text) == pytest.approx(unit)
