"""The tasks with names: GLUE's nine, with the metrics of Lee, Tang, Lin 2019, and two embedded."""

from dataclasses import dataclass

from elsa_tune.specs.task import EmbeddedSource, GlueSource, Metric, TaskKind, TaskSpec

HUB_REPOSITORY = "nyu-mll/glue"
MISMATCHED = "mnli_mismatched"  # MNLI's second evaluation split, judged beside its own
RESERVED_NAMES = ("all",)  # `--task all` asks for every task at once


@dataclass(frozen=True, slots=True)
class GlueLayout:
    """How a task's local files differ from the hub's columns."""

    text_columns: tuple[str, ...]  # names in the file's header
    label_column: str  # likewise
    header: tuple[str, ...] | None = None  # the columns of a file without a header line (CoLA)
    # What the hub calls each split, behind the name that it is logged under.
    splits: tuple[tuple[str, str], ...] = (("train", "train"), ("evaluation", "validation"))


_ACCURACY = (Metric.ACCURACY,)
_F1 = (Metric.F1, Metric.ACCURACY)
_SINGLE = ("sentence",)
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")


def _task(
    config: str,
    folder: str,
    chance: dict[str, float],
    texts: tuple[str, ...] = _PAIR,
    classes: tuple[str, ...] = ("0", "1"),
    metrics: tuple[Metric, ...] = _ACCURACY,
) -> TaskSpec:
    return TaskSpec(
        name=config,
        kind=TaskKind.CLASSIFICATION if classes else TaskKind.REGRESSION,
        text_columns=texts,
        label_column="label",
        classes=classes,
        metric=metrics[0],
        companions=metrics[1:],
        source=GlueSource(config=config, folder=folder),
        published_chance=chance,
    )


def _all_positive(positive: int, rows: int) -> float:
    """Return F1 of label 1 when every answer is 1: precision p, recall 1, so 2 p / (1 + p)."""
    return 2 * positive / (positive + rows)


_COLA = {"matthews": 0.0, "accuracy": 721 / 1043}
_MRPC = {"f1": _all_positive(279, 408), "accuracy": 279 / 408}
_STSB = {"spearman": 0.0, "pearson": 0.0}
_QQP = {"f1": _all_positive(14885, 40430), "accuracy": (40430 - 14885) / 40430}
_MNLI = {"accuracy": 3479 / 9815, MISMATCHED: 3463 / 9832}

# The counts are those of the official evaluation splits.
GLUE_TASKS: dict[str, TaskSpec] = {
    task.name: task
    for task in (
        _task("cola", "CoLA", _COLA, _SINGLE, metrics=(Metric.MATTHEWS, Metric.ACCURACY)),
        _task("sst2", "SST-2", {"accuracy": 444 / 872}, _SINGLE),
        _task("mrpc", "MRPC", _MRPC, metrics=_F1),
        _task("stsb", "STS-B", _STSB, classes=(), metrics=(Metric.SPEARMAN, Metric.PEARSON)),
        _task("qqp", "QQP", _QQP, ("question1", "question2"), metrics=_F1),
        _task("mnli", "MNLI", _MNLI, ("premise", "hypothesis"), _NLI),
        _task("qnli", "QNLI", {"accuracy": 2761 / 5463}, ("question", "sentence"), _ENTAILMENT),
        _task("rte", "RTE", {"accuracy": 146 / 277}, classes=_ENTAILMENT),
        _task("wnli", "WNLI", {"accuracy": 40 / 71}),
    )
}

LAYOUTS = {name: GlueLayout(task.text_columns, "label") for name, task in GLUE_TASKS.items()} | {
    # No header; the second column is the label, the third the linguists' own star.
    "cola": GlueLayout(_SINGLE, "label", header=("source", "label", "star", "sentence")),
    "mrpc": GlueLayout(("#1 String", "#2 String"), "Quality"),
    "stsb": GlueLayout(_PAIR, "score"),
    "qqp": GlueLayout(("question1", "question2"), "is_duplicate"),
    "mnli": GlueLayout(
        _PAIR,
        "gold_label",
        splits=(
            ("train", "train"),
            ("evaluation", "validation_matched"),
            (MISMATCHED, "validation_mismatched"),
        ),
    ),
}


def _embedded(name: str, *, shuffled_labels: bool) -> TaskSpec:
    return TaskSpec(
        name=name,
        kind=TaskKind.CLASSIFICATION,
        text_columns=("name", "sentence"),
        label_column="label",
        classes=("other", "own"),
        metric=Metric.ACCURACY,
        source=EmbeddedSource(shuffled_labels=shuffled_labels),
        published_chance={"accuracy": 0.5},
    )


KNOWN_TASKS: dict[str, TaskSpec] = {
    **GLUE_TASKS,
    "stdlib": _embedded("stdlib", shuffled_labels=False),
    "stdlib_shuffled": _embedded("stdlib_shuffled", shuffled_labels=True),
}
