"""The numbers printed in the two studies that are reproduced, as values and as results rows.

Sources: `elsa` is Lee, Tang, Lin 2019, "What Would Elsa Do? Freezing Layers During Transformer
Fine-Tuning", arXiv 1911.03090, Tables 1-5. `low-resource` is the appendix of a blog study that
froze RoBERTa-base on 50 to 1,000 examples (SST-2, and CoLA scored by accuracy, without its 500).
"""

from __future__ import annotations

import csv
import enum
import functools
from dataclasses import dataclass
from importlib import resources

from pydantic import TypeAdapter

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.known_tasks import GLUE_TASKS
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus


class Study(enum.StrEnum):
    """Which study."""

    ELSA = "elsa"  # Lee, Tang, Lin 2019: the whole training set, depths L/2..L
    LOW_RESOURCE = "low-resource"  # the blog's: 50 to 1,000 examples, depths 0..L


SOURCES = {
    Study.ELSA: "Lee, Tang, Lin 2019 (arXiv 1911.03090)",
    Study.LOW_RESOURCE: "the low-resource blog study, appendix",
}

# Which epoch's quality a study prints; the paper does not say.
_SELECTIONS = {Study.ELSA: None, Study.LOW_RESOURCE: "best_epoch"}

# Table 4 prints BERT-base again (STS-B as 88.9, not 88.8); a curve must have it once.
_CURVE_TABLES = {"bert_base": 3, "roberta_base": 4, "bert_large": 5, "roberta_large": 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedValue:
    """One printed number.

    table: of the paper, None for the blog. quality, std (ddof 1), median, minimum, maximum:
    fractions, None where not printed. runs: how many the mean stands for, None for a best one.
    train_size: examples, None for the whole training set. kind: what the number is, in words.
    """

    study: Study
    table: int | None
    model: str
    task: str
    layers: int
    depth: FreezeDepth
    metric: str
    quality: float
    std: float | None
    median: float | None
    minimum: float | None
    maximum: float | None
    runs: int | None
    train_size: int | None
    kind: str

    @property
    def is_on_a_curve(self) -> bool:
        """It is a mean that a freeze curve takes, and the one place it is taken from."""
        if self.runs is None or self.task not in GLUE_TASKS:
            return False  # Table 2 prints best runs; mnli_mismatched goes beside MNLI's metric
        return self.study is not Study.ELSA or self.table == _CURVE_TABLES[self.model]


_VALUE = TypeAdapter(PublishedValue)


@functools.cache
def published_values() -> tuple[PublishedValue, ...]:
    """Every printed quality, in the order of the tables: the paper's first."""
    file = resources.files("elsa_tune.tables") / "data" / "published_values.csv"
    lines = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return tuple(
        _VALUE.validate_python(
            {name: cell or None for name, cell in line.items()}
            | {"depth": FreezeDepth.of(line["frozen_layers"])}
        )
        for line in lines
    )


def published_rows() -> list[ResultRow]:
    """The printed means as results rows.

    The paper's are its Tables 3-5 (BERT-base from Table 3); its Table 2, best runs, and
    mnli_mismatched are left out. Chance is that of GLUE's dev splits. The blog's have a train_size.
    """
    return [
        ResultRow(
            model=value.model,
            task=value.task,
            layers=value.layers,
            depth=value.depth,
            quality=value.quality,
            status=TrialStatus.COMPLETED,
            phase=Phase.MEASURE,
            metric=value.metric,
            selection=_SELECTIONS[value.study],
            chance=GLUE_TASKS[value.task].published_chance[value.metric],
            runs=value.runs or 1,
            std=value.std,
            train_size=value.train_size,
            comparison=SOURCES[value.study],
        )
        for value in published_values()
        if value.is_on_a_curve
    ]
