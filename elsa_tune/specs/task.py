"""A task: its texts, labels and metric, and where its data lies."""

import re
from dataclasses import dataclass, field
from typing import ClassVar, Self

from elsa_tune.specs.names import OpenName


def folded(text: str) -> str:
    """Return a text without what people overlook: case, and blanks but one between two words."""
    return " ".join(text.split()).casefold()


_WHOLE_NUMBER = re.compile(r"([+-]?\d+)\.0+")


def label_key(label: str) -> str:
    """Return what labels share that people take for one: `Fonts` and ` fonts`, `1` and `1.0`."""
    key = folded(label)
    whole = _WHOLE_NUMBER.fullmatch(key)
    return key if whole is None else whole[1]


# It loads each type of task that ships, which adds its own kind and metrics.
_TYPES = "elsa_tune.tasks.types.registry"


class TaskKind(OpenName):
    """What the head predicts; `tasks/types` has a file for each."""

    shipped_by = _TYPES
    CLASSIFICATION: ClassVar["TaskKind"]
    REGRESSION: ClassVar["TaskKind"]


TaskKind.CLASSIFICATION = TaskKind.add("classification", "elsa_tune.tasks.types.classification")
TaskKind.REGRESSION = TaskKind.add("regression", "elsa_tune.tasks.types.regression")


class Metric(OpenName):
    """Headline metrics, `lowest`..1, larger is better; `tasks/types` computes them.

    Those of one type of task alone are defined in its own file.
    """

    shipped_by = _TYPES
    ACCURACY: ClassVar["Metric"]
    F1: ClassVar["Metric"]
    F1_MACRO: ClassVar["Metric"]
    MATTHEWS: ClassVar["Metric"]
    PEARSON: ClassVar["Metric"]
    SPEARMAN: ClassVar["Metric"]

    # What it is called in a sentence.
    words: str
    # The lower end of its range; the upper end is 1.
    lowest: float
    # What every constant answer scores; None where that depends on the labels.
    of_constants: float | None
    # Whether it is a share of the examples, each of which scores 1 or 0 alone: their number tells
    # how far it can be trusted.
    is_share: bool
    # What scores best of all that knows nothing of the texts, and so has the quality of chance.
    guess: str

    @classmethod
    def define(
        cls,
        name: str,
        home: str,
        *,
        words: str | None = None,
        lowest: float = 0.0,
        of_constants: float | None = None,
        is_share: bool = False,
    ) -> Self:
        """Add a metric with its facts, and return it.

        home: the caller's module. words: by default the name's own. Raises ValueError where
        another module defined one of this name.
        """
        metric = cls.add(name, home)
        if metric.home != home:
            raise ValueError(f"{metric.home} has a metric '{name}' already; choose another name")
        metric.words = words or name.replace("_", " ")
        metric.lowest = lowest
        metric.of_constants = of_constants
        metric.is_share = is_share
        metric.guess = "constant answer"
        return metric

    @classmethod
    def named(cls, name: str | None) -> Self | None:
        """Return the metric that a record names; None where it names none that is known here."""
        if name is None:
            return None
        try:
            return cls(name)
        except ValueError:
            return None


def guess_words(metric: str | None) -> str:
    """Return what has the quality of chance by a metric, as a record names it."""
    known_metric = Metric.named(metric)
    return "constant answer" if known_metric is None else known_metric.guess


_CLASSES = "elsa_tune.tasks.types.classification"
_VALUES = "elsa_tune.tasks.types.regression"
Metric.ACCURACY = Metric.define("accuracy", _CLASSES, is_share=True)
Metric.F1 = Metric.define("f1", _CLASSES, words="F1")  # of label 1; two classes only
Metric.F1_MACRO = Metric.define("f1_macro", _CLASSES, words="macro F1")
# Drawn with the labels' own shares it scores 1 / the number of classes, and no constant as much.
Metric.F1_MACRO.guess = "blind answer"
Metric.MATTHEWS = Metric.define(
    "matthews", _CLASSES, words="Matthews correlation", lowest=-1.0, of_constants=0.0
)
Metric.PEARSON = Metric.define(
    "pearson", _VALUES, words="Pearson correlation", lowest=-1.0, of_constants=0.0
)
Metric.SPEARMAN = Metric.define(
    "spearman", _VALUES, words="Spearman correlation", lowest=-1.0, of_constants=0.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueSource:
    """One of GLUE's tasks: on the hub, or in a folder."""

    config: str  # on the hub it is `nyu-mll/glue:CONFIG`
    folder: str  # where it lies in `data_dir`: `RTE`, `SST-2`, ...
    data_dir: str | None = None  # local and absolute; None for the hub


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSource:
    """The user's own files, absolute paths.

    Several files of one split are read one after the other.
    """

    format: str  # csv, tsv, jsonl or parquet
    train: tuple[str, ...]  # the files of the training rows
    evaluation: tuple[str, ...] = ()  # and of the evaluation rows
    # Without an evaluation file a stratified share of the training rows, above 0 and below 1, that
    # is held out by `subset_seed`.
    evaluation_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSource:
    """The task made from Python's standard library, whose rows ship with the package."""

    shuffled_labels: bool = False  # a control, from which nothing can be learnt


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSetSource:
    """What the package `datasets` reads: a data set of the hub, or a folder on this machine."""

    location: str  # `owner/name`, or an absolute folder
    # The hub's commit, so that a search goes on with the rows it began with; None for a folder.
    revision: str | None
    config: str | None  # which of a data set's configurations
    train: str  # the name of the split to train on
    evaluation: str | None = None  # and of the one to evaluate on
    evaluation_share: float | None = None  # without such a split, held out as in `FilesSource`

    @property
    def text(self) -> str:
        """What is read, in a few words."""
        if self.revision is None:
            return self.location
        return f"hub {self.location}:{self.config} at {self.revision}"


TaskSource = GlueSource | FilesSource | EmbeddedSource | DataSetSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What is done to a task's rows before anything else sees them.

    Texts are compared with case and blanks folded, a pair as a pair. Evaluation rows of a file
    are never dropped.
    """

    drop_leaked: bool = False  # from training, rows whose text is evaluated
    drop_duplicates: bool = False  # from training, all but the first row with a text and label
    drop_contradictions: bool = False  # from training, rows whose text has another label elsewhere
    merge_labels: bool = False  # labels of one `label_key` are one class
    missing_labels: tuple[str, ...] = ()  # those that mean that there is none; left out


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A task: what is read, what is predicted, how it is scored."""

    name: str  # as tables and MLflow show it
    kind: TaskKind  # what kind of label is predicted
    text_columns: tuple[str, ...]  # the names of one or two columns
    label_column: str  # the name of the column that is predicted
    # Names as they stand in the data, in id order; () where labels name none, as a regression's.
    classes: tuple[str, ...]
    metric: Metric  # the headline one
    source: TaskSource  # where the rows come from
    companions: tuple[Metric, ...] = ()  # metrics logged beside the headline one
    # Chance on the official evaluation split, where it is known in advance: by metric, and for a
    # second evaluation split (`mnli_mismatched`) by its name, in the headline metric.
    published_chance: dict[str, float] = field(default_factory=dict)
    cleaning: Cleaning = Cleaning()  # what is done to its rows first
    # Rows with the same cell in this column are one unit of the certificate; None where only
    # repeated texts are.
    group_column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once: texts, label, and the group's if there is one."""
        columns = (*self.text_columns, self.label_column)
        if self.group_column is None or self.group_column in columns:
            return columns
        return (*columns, self.group_column)

    @property
    def class_count(self) -> int:
        """How many classes there are, as metrics ask for it: 0 where labels name none."""
        return len(self.classes)

    @property
    def outputs(self) -> int:
        """C, the width of the head: a logit for each class, or one where there are no classes."""
        return self.class_count or 1

    @property
    def is_published(self) -> bool:
        """Whether its rows are everybody's, to be compared on, and not the user's own to mend."""
        return isinstance(self.source, GlueSource | EmbeddedSource)

    @property
    def known_chance(self) -> float | None:
        """Chance of the headline metric, by name alone; None where only the data tells."""
        if self.metric.of_constants is not None:
            return self.metric.of_constants
        return self.published_chance.get(self.metric.value)
