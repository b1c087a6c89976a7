"""The two published studies' printed means, as a results table has them."""

import enum
import functools
from pathlib import Path

from elsa_tune.results.results_csv import import_results
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tasks.known import MISMATCHED


class Study(enum.StrEnum):
    """A published study, whose means are rows here."""

    ELSA = "elsa"  # the whole training set, depths L/2..L: Tables 3-5 (BERT-base from Table 3)
    LOW_RESOURCE = "low-resource"  # RoBERTa-base, 50 to 1,000 examples, depths 0..L; CoLA: accuracy

    @property
    def source(self) -> str:
        """Whose numbers these are, as `comparison` has it in each row."""
        if self is Study.ELSA:
            return "Lee, Tang, Lin 2019 (arXiv 1911.03090)"
        return "the low-resource blog study, appendix"


@functools.cache
def printed_rows(study: Study) -> tuple[ResultRow, ...]:
    """Return the means in the tables' order; MNLI's second split is task `mnli_mismatched`."""
    rows = import_results(Path(__file__).parent / "data" / "published.csv").rows
    return tuple(row for row in rows if str(row.comparison) == study.source)


def published_rows() -> list[ResultRow]:
    """Return the means of both studies on the tasks that a search knows."""
    return [row for study in Study for row in printed_rows(study) if row.task != MISMATCHED]
