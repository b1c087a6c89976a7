"""Which task: its texts, labels and metric, and where its data lies."""

import enum
from dataclasses import dataclass, field, replace
from typing import Self

from elsa_tune.errors import DataError, UnknownNameError


def folded(text: str) -> str:
    """A text without what people overlook: case, and blanks but one between two words."""
    return " ".join(text.split()).casefold()


class TaskKind(enum.StrEnum):
    """What the head predicts."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


class Metric(enum.StrEnum):
    """Headline metrics, `lowest`..1, larger is better."""

    ACCURACY = "accuracy"
    F1 = "f1"  # of label 1; two classes only
    F1_MACRO = "f1_macro"
    MATTHEWS = "matthews"
    PEARSON = "pearson"
    SPEARMAN = "spearman"

    @property
    def is_for_regression(self) -> bool:
        """Correlations score numbers; all others score classes."""
        return self in (Metric.PEARSON, Metric.SPEARMAN)

    @property
    def lowest(self) -> float:
        """The lower end of the metric's range; the upper end is 1."""
        return -1.0 if self.is_for_regression or self is Metric.MATTHEWS else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueSource:
    """One of GLUE's tasks: on the hub `nyu-mll/glue:CONFIG`, or `folder` in a local, absolute
    `data_dir` that holds `RTE/`, `SST-2/`, ...
    """

    config: str
    folder: str
    data_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSource:
    """The user's own files, absolute paths; `format` is csv, tsv, jsonl or parquet.

    Several files of one split are read one after the other. Without an evaluation file a stratified
    `evaluation_share` of the training rows, above 0 and below 1, is held out by `subset_seed`.
    """

    format: str
    train: tuple[str, ...]
    evaluation: tuple[str, ...] = ()
    evaluation_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSource:
    """The task made from this machine's own Python standard library. shuffled_labels: a control,
    from which nothing can be learnt.
    """

    shuffled_labels: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSetSource:
    """What the package `datasets` reads: a data set of the hub, or a folder on this machine.

    location: `owner/name`, or an absolute folder. revision: the hub's commit, so that a search goes
    on with the rows that it began with; None for a folder. config: which of a data set's
    configurations. train, evaluation: names of splits; without the second one `evaluation_share`
    is held out as in `FilesSource`.
    """

    location: str
    revision: str | None
    config: str | None
    train: str
    evaluation: str | None = None
    evaluation_share: float | None = None

    @property
    def text(self) -> str:
        """What is read, in a few words."""
        if self.revision is None:
            return self.location
        return f"hub {self.location}:{self.config} at {self.revision}"


TaskSource = GlueSource | FilesSource | EmbeddedSource | DataSetSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What is done to a task's rows before anything else sees them. Texts are compared with case
    and blanks folded, a pair as a pair. Evaluation rows of a file are never dropped.

    drop_leaked: from training, rows whose text is evaluated. drop_duplicates: from training, all
    but the first row with a text and label. drop_contradictions: from training, rows whose text has
    another label elsewhere. merge_labels: labels equal after blanks and case are one class.
    missing_labels: those that mean that there is none; their rows are left out.
    """

    drop_leaked: bool = False
    drop_duplicates: bool = False
    drop_contradictions: bool = False
    merge_labels: bool = False
    missing_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A task: what is read, what is predicted, how it is scored.

    text_columns: one or two column names. classes: label texts as they stand in the data, in id
    order; () for regression. companions: metrics logged beside the headline one. published_chance:
    chance on the official evaluation split, where it is known in advance: by metric, and for a
    second evaluation split (`mnli_mismatched`) by its name, in the headline metric.
    """

    name: str
    kind: TaskKind
    text_columns: tuple[str, ...]
    label_column: str
    classes: tuple[str, ...]
    metric: Metric
    source: TaskSource
    companions: tuple[Metric, ...] = ()
    published_chance: dict[str, float] = field(default_factory=dict)
    cleaning: Cleaning = Cleaning()

    @property
    def outputs(self) -> int:
        """Width of the head: number of classes C, or 1 for regression."""
        return len(self.classes) if self.kind is TaskKind.CLASSIFICATION else 1

    @property
    def is_published(self) -> bool:
        """Whether its rows are everybody's, to be compared on, and not the user's own to mend."""
        return isinstance(self.source, GlueSource | EmbeddedSource)

    @property
    def known_chance(self) -> float | None:
        """Chance of the headline metric, by name alone; None where only the data tells."""
        if self.metric.is_for_regression or self.metric is Metric.MATTHEWS:
            return 0.0
        return self.published_chance.get(self.metric.value)

    def with_metric(self, metric: str | Metric) -> Self:
        """The same task under another headline metric; the replaced one becomes a companion.

        Raises UnknownNameError for no metric of ours, DataError for one that cannot score the task:
        F1 is that of one of two classes.
        """
        if metric not in tuple(Metric):
            raise UnknownNameError.among("metric", str(metric), [m.value for m in Metric])
        wanted, is_regression = Metric(metric), self.kind is TaskKind.REGRESSION
        allowed = [
            one
            for one in Metric
            if one.is_for_regression is is_regression
            and (one is not Metric.F1 or len(self.classes) == 2)
        ]
        if wanted not in allowed:
            classes = f"a classification with {len(self.classes)} classes"
            shape = "a regression" if is_regression else classes
            hint = " (a task of numbers has `regression: true`)" if wanted.is_for_regression else ""
            raise DataError(
                f"metric '{wanted}' cannot score task '{self.name}', which is {shape}; "
                f"allowed: {', '.join(allowed)}{hint}"
            )
        others = (self.metric, *self.companions)
        companions = tuple(m for m in dict.fromkeys(others) if m is not wanted)
        return replace(self, metric=wanted, companions=companions)
