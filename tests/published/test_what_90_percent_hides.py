"""The numbers in the sentences of docs/concepts/what-90-percent-hides.md.

Its tables are compared in tests/repo/test_reference.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.what_90_percent_hides import paper_answers, percent


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "concepts" / "what-90-percent-hides.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("model", "task", "frozen_layers", "raw", "corrected"),
    [("bert_base", "mrpc", 9, "94.6 %", "46.0 %"), ("bert_base", "rte", 9, "92.2 %", "64.4 %")],
)
def test_the_numbers_in_its_sentences(
    page: str, model: str, task: str, frozen_layers: int, raw: str, corrected: str
) -> None:
    (answer,) = [a for a in paper_answers() if (a.model, a.task) == (model, task)]
    (point,) = [p for p in answer.points if p.candidate.frozen_layers == frozen_layers]
    assert f"{percent(point.retention)} %" == raw
    assert f"{percent(point.corrected_retention)} %" == corrected
    assert raw in page and corrected in page


def test_what_a_constant_answer_keeps(page: str) -> None:
    (mrpc,) = [a for a in paper_answers() if (a.model, a.task) == ("bert_base", "mrpc")]
    assert mrpc.chance is not None and mrpc.full is not None and mrpc.full.quality is not None
    assert f"{percent(mrpc.chance / mrpc.full.quality)} %" == "89.9 %"
    assert "89.9 %" in page
