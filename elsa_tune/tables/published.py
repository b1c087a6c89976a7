"""The means printed in the two studies that are reproduced, as results rows.

`elsa` is Lee, Tang, Lin 2019, "What Would Elsa Do? Freezing Layers During Transformer Fine-Tuning",
arXiv 1911.03090, Tables 3-5 (BERT-base, which Table 4 prints again, from Table 3); `low-resource`
is the appendix of a blog study that froze RoBERTa-base on 50 to 1,000 examples (SST-2, and CoLA
scored by accuracy, without its 500).
"""

from __future__ import annotations

import enum
import functools
from pathlib import Path

from elsa_tune.specs.known_tasks import MISMATCHED
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tables.results_csv import import_results


class Study(enum.StrEnum):
    """Which study."""

    ELSA = "elsa"  # Lee, Tang, Lin 2019: the whole training set, depths L/2..L
    LOW_RESOURCE = "low-resource"  # the blog's: 50 to 1,000 examples, depths 0..L

    @property
    def source(self) -> str:
        """Whose numbers these are, as in the `comparison` of its rows."""
        return _SOURCES[self]


_SOURCES = {
    Study.ELSA: "Lee, Tang, Lin 2019 (arXiv 1911.03090)",
    Study.LOW_RESOURCE: "the low-resource blog study, appendix",
}


@functools.cache
def printed_rows(study: Study) -> tuple[ResultRow, ...]:
    """Every mean of a study in the order of its tables; MNLI's second evaluation split is a task
    `mnli_mismatched`.
    """
    rows = import_results(Path(__file__).parent / "data" / "published.csv").rows
    return tuple(row for row in rows if row.comparison == study.source)


def published_rows() -> list[ResultRow]:
    """The means of both studies on the tasks that a search knows."""
    return [row for study in Study for row in printed_rows(study) if row.task != MISMATCHED]
