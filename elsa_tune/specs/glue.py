"""The nine GLUE tasks: their columns, labels, files, metrics and published chance.

It must not read any data; where the files of the official layout differ from the hub's columns, it
says how. Sources: Wang et al. 2018 (GLUE); the metrics are those of Lee, Tang, Lin 2019, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from elsa_tune.specs.task import GlueSource, Metric, TaskKind, TaskSpec

HUB_REPOSITORY = "nyu-mll/glue"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueSplit:
    """One split: its hub name and its file in the official layout."""

    hub: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueLayout:
    """How a task's local files differ from the hub's columns.

    text_columns, label_column: names in the file's header. header: the columns of a file that has
    no header line (CoLA). evaluation: the split that gives the quality; companions: further ones,
    by the name they are logged under.
    """

    text_columns: tuple[str, ...]
    label_column: str
    header: tuple[str, ...] | None = None
    train: GlueSplit = GlueSplit(hub="train", file="train.tsv")
    evaluation: GlueSplit = GlueSplit(hub="validation", file="dev.tsv")
    companions: tuple[tuple[str, GlueSplit], ...] = ()


LAYOUTS: dict[str, GlueLayout] = {
    # No header; the second column is the label, the third the linguists' own star.
    "cola": GlueLayout(
        text_columns=("sentence",),
        label_column="label",
        header=("source", "label", "star", "sentence"),
    ),
    "sst2": GlueLayout(text_columns=("sentence",), label_column="label"),
    "mrpc": GlueLayout(text_columns=("#1 String", "#2 String"), label_column="Quality"),
    "stsb": GlueLayout(text_columns=("sentence1", "sentence2"), label_column="score"),
    "qqp": GlueLayout(text_columns=("question1", "question2"), label_column="is_duplicate"),
    "mnli": GlueLayout(
        text_columns=("sentence1", "sentence2"),
        label_column="gold_label",
        evaluation=GlueSplit(hub="validation_matched", file="dev_matched.tsv"),
        companions=(
            (
                "mnli_mismatched",
                GlueSplit(hub="validation_mismatched", file="dev_mismatched.tsv"),
            ),
        ),
    ),
    "qnli": GlueLayout(text_columns=("question", "sentence"), label_column="label"),
    "rte": GlueLayout(text_columns=("sentence1", "sentence2"), label_column="label"),
    "wnli": GlueLayout(text_columns=("sentence1", "sentence2"), label_column="label"),
}


def _classification(
    config: str,
    folder: str,
    texts: tuple[str, ...],
    classes: tuple[str, ...],
    metrics: tuple[Metric, ...],
    chance: dict[str, float],
) -> TaskSpec:
    return TaskSpec(
        name=config,
        kind=TaskKind.CLASSIFICATION,
        text_columns=texts,
        label_column="label",
        classes=classes,
        metric=metrics[0],
        companions=metrics[1:],
        source=GlueSource(config=config, folder=folder),
        published_chance=chance,
    )


def _f1_of_all_positive(positive: int, rows: int) -> float:
    """F1 of label 1 when every answer is 1: precision p, recall 1, so 2 p / (1 + p)."""
    return 2 * positive / (positive + rows)


_YES_NO = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_ACCURACY = Metric.ACCURACY

# The counts are those of the official evaluation splits.
GLUE_TASKS: dict[str, TaskSpec] = {
    task.name: task
    for task in (
        _classification(
            "cola",
            "CoLA",
            ("sentence",),
            _YES_NO,
            (Metric.MATTHEWS, _ACCURACY),
            {"matthews": 0.0, "accuracy": 721 / 1043},
        ),
        _classification(
            "sst2", "SST-2", ("sentence",), _YES_NO, (_ACCURACY,), {"accuracy": 444 / 872}
        ),
        _classification(
            "mrpc",
            "MRPC",
            ("sentence1", "sentence2"),
            _YES_NO,
            (Metric.F1, _ACCURACY),
            {"f1": _f1_of_all_positive(279, 408), "accuracy": 279 / 408},
        ),
        TaskSpec(
            name="stsb",
            kind=TaskKind.REGRESSION,
            text_columns=("sentence1", "sentence2"),
            label_column="label",
            classes=(),
            metric=Metric.SPEARMAN,
            companions=(Metric.PEARSON,),
            source=GlueSource(config="stsb", folder="STS-B"),
            published_chance={"spearman": 0.0, "pearson": 0.0},
        ),
        _classification(
            "qqp",
            "QQP",
            ("question1", "question2"),
            _YES_NO,
            (Metric.F1, _ACCURACY),
            {
                "f1": _f1_of_all_positive(14885, 40430),
                "accuracy": (40430 - 14885) / 40430,
            },
        ),
        _classification(
            "mnli",
            "MNLI",
            ("premise", "hypothesis"),
            ("entailment", "neutral", "contradiction"),
            (_ACCURACY,),
            {"accuracy": 3479 / 9815, "mnli_mismatched": 3463 / 9832},
        ),
        _classification(
            "qnli",
            "QNLI",
            ("question", "sentence"),
            _ENTAILMENT,
            (_ACCURACY,),
            {"accuracy": 2761 / 5463},
        ),
        _classification(
            "rte",
            "RTE",
            ("sentence1", "sentence2"),
            _ENTAILMENT,
            (_ACCURACY,),
            {"accuracy": 146 / 277},
        ),
        _classification(
            "wnli",
            "WNLI",
            ("sentence1", "sentence2"),
            _YES_NO,
            (_ACCURACY,),
            {"accuracy": 40 / 71},
        ),
    )
}
