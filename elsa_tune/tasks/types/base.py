"""What a type of task and a metric have to say: the one place where a kind of label is known.

A type adds its own kind and metrics to the names there are (`TaskKind.add`, `Metric.define`), and
registers itself at the end of its file (`register`). So does a metric for types that do not name it
(`register_metric`).

Letters in shape comments: E examples, M runs, R resamples, C outputs of the head, B a batch. Labels
and predictions are arrays [E, ...]: what stands behind E is the type's affair, as [E] for one class
id or value a row, [E, C] for a 0 or 1 of each class.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from elsa_tune.specs.task import Metric, TaskKind, TaskSpec

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]
Floats = NDArray[np.float64]
Logits = NDArray[np.float32]
# The type of numbers that a metric computes with.
Precision = type[np.floating[Any]]
# How often each example counts [R, E]: one row of ones where each counts once.
Weights = NDArray[np.floating[Any]]
# Turns weights [R, E] into qualities [R, M].
Scorer = Callable[[Weights], Floats]
ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]


class Kernel(ABC):
    """One metric, from what each example gives by itself: statistics that weights add up.

    Training weighs every example once, in double precision. The bootstrap weighs them as often as
    they were drawn, in single precision: its products are of thousands of rows.
    """

    @abstractmethod
    def scorer(
        self,
        predictions: Array,
        labels: Array,
        classes: int,
        precision: Precision,
    ) -> Scorer:
        """Return how runs are scored under weights of this precision.

        predictions: [E, M, ...], of M runs. labels: [E, ...]. classes: of the task, 0 without such.
        """

    def score(self, predictions: Array, labels: Array, classes: int) -> float:
        """Return the quality of one run's predictions [E, ...], each example counted once."""
        one_run = predictions[:, None]
        scores = self.scorer(one_run, labels, classes, np.float64)
        weights = np.ones((1, len(labels)))
        [[quality]] = scores(weights)
        return float(quality)

    def chance(self, labels: Array, classes: int, precision: Precision) -> Scorer:
        """Return how the best blind answer scores under weights, as [R]; 0 unless overridden.

        Blind: it knows nothing of the texts. It is a constant one wherever that is the best.
        """
        return lambda weights: np.zeros(len(weights))

    def spread_at(self, quality: float) -> float:
        """Return how far examples move a score of this quality, in any unit; 1 unless overridden.

        A depth above a target is tested as if they moved it as far as one at the target.
        """
        return 1.0

    def cost_of_far_labels(self, labels: Array, units: float) -> float:
        """Return how much quality a run may lose on one more far label; 0 unless overridden.

        A far label is one that few others are near: few examples show how a run answers those.
        labels: [E], values. units: how many independent units of one size the examples are.
        """
        return 0.0


def totals(weights: Weights) -> Floats:
    """Return the sum of each row's weights, [R, 1]."""
    total = weights.sum(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(total)


def sums(weights: Weights, statistic: Array) -> Floats:
    """Return the weighted sums [R, n] of a statistic [E, n] in the weights' precision."""
    weighted = weights @ statistic
    return weighted.astype(np.float64)


def ratio(above: Floats, squared_below: Floats) -> Floats:
    """Return above / sqrt(squared_below) within -1..1, and 0 where that is not defined."""
    least = 1e-12
    below = np.sqrt(np.maximum(squared_below, least))
    quotients = np.where(squared_below > least, above / below, 0.0)
    return quotients.clip(-1, 1)


class LinearModel(enum.Enum):
    """What a linear probe fits to the frozen model's output."""

    LOGISTIC = "logistic"  # one class of each row, labels [E]
    LOGISTIC_EACH = "logistic_each"  # 0 or 1 in each column of labels [E, C], one fit for each
    RIDGE = "ridge"  # one value of each row, labels [E]; of whole numbers the nearest one


@dataclass(frozen=True, slots=True)
class Unit:
    """What a logit of 0 and a step of 1 stand for on the scale of a task's labels."""

    mean: float = 0.0  # the label at a logit of 0
    std: float = 1.0  # how far apart labels are whose logits differ by 1


class TaskType(ABC):
    """One kind of task: its labels, how they are learnt and scored, what an exported model says."""

    kind: ClassVar[TaskKind]
    # Those that can score it; the first is the headline one, and others of `usual` go beside it.
    metrics: ClassVar[tuple[Metric, ...]]
    # The metrics of a task that names none.
    usual: ClassVar[tuple[Metric, ...]]
    # What arrays of labels hold, and of predictions: whole numbers or values.
    label_dtype: ClassVar[type[np.generic]]
    # Whether labels name classes: a task file may list them, and the head has an output for each.
    names_classes: ClassVar[bool]
    # Whether an empty cell is a label, as of a row that has none of several, and not a missing one.
    blank_is_label: ClassVar[bool] = False
    # Of strata that are bins of values, too small to be rounded alike: how many; else None.
    bins: ClassVar[int | None] = None
    linear_model: ClassVar[LinearModel]
    # What transformers calls a model of such a task: `problem_type` in its configuration. Where the
    # type is not known, an export is read as transformers reads such a model.
    problem_type: ClassVar[ProblemType]
    # What its text-classification pipeline is to be given beside the model, by name.
    pipeline_options: ClassVar[Mapping[str, Any]] = {}
    # What a model's card says of its answers beside their names; a sentence, or nothing.
    card_note: ClassVar[str] = ""

    def describe(self, task: TaskSpec) -> str:
        """Return what the task is, for a message: `a regression`."""
        return f"a task of kind {self.kind.value}"

    def allowed_metrics(self, task: TaskSpec) -> list[Metric]:
        """Return those that can score this task."""
        return list(self.metrics)

    def classes_in(self, cell: str) -> Iterable[str]:
        """Return the classes that a label's text names; they are a task's where it lists none."""
        return (cell,)

    @abstractmethod
    def label_reader(self, task: TaskSpec) -> Callable[[str, str], Any]:
        """Return what turns (a label's text, where it stands) into a label [...].

        The reader raises DataError, with the place, for a text that is no label of the task.
        """

    @abstractmethod
    def label_text(self, task: TaskSpec, label: Any) -> Any:
        """Return a label [...] for a reader: a text, a number or a list of them."""

    @abstractmethod
    def only_label(self, task: TaskSpec, label: Any) -> str:
        """Return what is wrong with a split whose rows all have this label [...]."""

    def class_counts(self, labels: Array, classes: int) -> NDArray[np.int64] | None:
        """Return how many of the rows with labels [E, ...] have each class, [C].

        None where rows cannot be counted so. The default counts class ids [E].
        """
        if not self.names_classes:
            return None
        return np.bincount(labels, minlength=classes)

    @abstractmethod
    def strata(self, labels: Array) -> NDArray[np.int64]:
        """Return a small number, from 0, for each of labels [E, ...]: subsets keep their shares.

        None of the numbers may be rare: of a set of labels its rarest one rather than the set.
        """

    def unit(self, labels: Array) -> Unit:
        """Return the unit in which labels [E, ...] to be trained on are best learnt."""
        return Unit()

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor, unit: Unit) -> Tensor:
        """Return the sum of the examples' losses, of logits [B, C] and labels [B, ...].

        An example's is the mean over its outputs, as transformers has it. unit: as `unit` gave it.
        """

    @abstractmethod
    def predictions(self, logits: Tensor, unit: Unit) -> Tensor:
        """Return predictions [B, ...] as labels are, of logits [B, C] that learnt in this unit.

        An exported model's logits are on the scale of the labels: their unit is `Unit()`.
        """

    @abstractmethod
    def answers(self, logits: Tensor, names: Sequence[str]) -> tuple[Sequence[str], Tensor]:
        """Return what an exported model's logits [E, C] say: a label and a score of each row, [E].

        names: of the outputs, [C]. A score is the label's probability, or a value.
        """

    @abstractmethod
    def cells(
        self,
        logits: Logits,
        names: Sequence[str],
        *,
        probabilities: bool,
    ) -> dict[str, Array]:
        """Return the columns that `predict` adds to rows, from logits [E, C], by name.

        Each is [E], of texts (dtype object) or of float32 numbers; E may be 0. names: of the
        outputs, [C]. probabilities: whether those of each class are asked for.
        """


_TYPES: dict[TaskKind, TaskType] = {}
_KERNELS: dict[Metric, Kernel] = {}
# The kinds that a metric scores beside those whose types name it.
_FURTHER_KINDS: dict[Metric, tuple[TaskKind, ...]] = {}


def register(task_type: TaskType, kernels: Mapping[Metric, Kernel]) -> None:
    """Let tasks be of this type, and be scored by these metrics.

    A type whose file is loaded again replaces itself. A record has a metric's name alone, so that
    one name is one metric in every type of task: another type's may be used, but not computed
    anew. A worker that is given a task imports the `home` of its kind: the module that calls this.
    Raises ValueError for a metric that another module computes.
    """
    for metric, kernel in kernels.items():
        _add_kernel(metric, kernel)
    _TYPES[task_type.kind] = task_type


def register_metric(metric: Metric, kernel: Kernel, *kinds: TaskKind) -> None:
    """Let tasks of these kinds be scored by a metric that their types do not name.

    So a metric of one's own scores kinds that ship. It is computed alike for all of them. A worker
    that is given a task imports the metric's `home`: the module that calls this. Raises ValueError
    for a metric that another module computes.
    """
    _add_kernel(metric, kernel)
    _FURTHER_KINDS[metric] = kinds


def _add_kernel(metric: Metric, kernel: Kernel) -> None:
    registered = _KERNELS.get(metric, kernel)
    home = type(registered).__module__
    if home != type(kernel).__module__:
        raise ValueError(f"{home} computes metric '{metric}'; give yours another name")
    _KERNELS[metric] = kernel


def stacked(runs: Sequence[Array]) -> Array:
    """Return the predictions [E, M, ...] of M runs [E, ...] each."""
    return np.stack(runs, axis=1)
