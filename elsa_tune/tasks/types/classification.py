"""Classification: one of the task's classes for each row. Labels and predictions are ids [E]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import DataError, shortlist
from elsa_tune.specs.task import Metric, TaskKind, TaskSpec, folded
from elsa_tune.tasks.types.base import (
    Array,
    Floats,
    Kernel,
    LinearModel,
    Scorer,
    TaskType,
    Unit,
    Weights,
    ratio,
    register,
    sums,
    totals,
)

if TYPE_CHECKING:
    from torch import Tensor


class Classification(TaskType):
    """One class of two or more."""

    kind = TaskKind.CLASSIFICATION
    metrics = (Metric.ACCURACY, Metric.F1, Metric.F1_MACRO, Metric.MATTHEWS)
    usual = (Metric.ACCURACY,)
    label_dtype = np.int64
    names_classes = True
    linear_model = LinearModel.LOGISTIC
    problem_type = "single_label_classification"

    def describe(self, task: TaskSpec) -> str:
        return f"a classification with {len(task.classes)} classes"

    def allowed_metrics(self, task: TaskSpec) -> list[Metric]:
        """Return those that can score this task: F1 is that of one of two classes."""
        has_two = len(task.classes) == 2
        return [metric for metric in self.metrics if has_two or metric is not Metric.F1]

    def label_reader(self, task: TaskSpec) -> Callable[[str, str], int]:
        """Return what gives a class's id; with `merge_labels` by the label as people see it."""
        merges = task.cleaning.merge_labels
        ids = {folded(name) if merges else name: id for id, name in enumerate(task.classes)}

        def read(label: str, where: str) -> int:
            number = ids.get(folded(label) if merges else label)
            if number is None:
                raise _unknown(task, label, where)
            return number

        return read

    def label_text(self, task: TaskSpec, label: Any) -> str:
        return task.classes[int(label)]

    def only_label(self, task: TaskSpec, label: Any) -> str:
        return f"label '{task.classes[int(label)]}'; a classification needs two classes"

    def strata(self, labels: Array) -> NDArray[np.int64]:
        return labels.astype(np.int64)

    def loss(self, logits: Tensor, labels: Tensor, unit: Unit) -> Tensor:
        from torch.nn import functional as F

        return F.cross_entropy(logits, labels, reduction="sum")

    def predictions(self, logits: Tensor, unit: Unit) -> Tensor:
        return logits.argmax(-1)

    def answers(self, logits: Tensor, names: Sequence[str]) -> tuple[Sequence[str], Tensor]:
        labels = tuple(names[number] for number in logits.numpy().argmax(1))
        return labels, logits.softmax(1).amax(1)

    def cells(
        self, logits: NDArray[np.float32], names: Sequence[str], *, probabilities: bool
    ) -> dict[str, Array]:
        """Return `prediction`, `confidence`, and `probability_NAME` of each class if asked for."""
        shares = _softmax(logits)
        columns: dict[str, Array] = {
            "prediction": np.array(names, dtype=object)[logits.argmax(axis=1)],
            "confidence": shares.max(axis=1),
        }
        if probabilities:
            columns |= {f"probability_{name}": shares[:, c] for c, name in enumerate(names)}
        return columns


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return probabilities [E, C] of logits [E, C]."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]  # numpy's


def _unknown(task: TaskSpec, label: str, where: str) -> DataError:
    allowed = shortlist(f"'{name}'" for name in task.classes)
    if label == "-1":
        return DataError(
            f"{where}: label -1 marks the unlabelled rows of a test split; nothing can be trained "
            f"or scored on it. Give a labelled split (labels {allowed})"
        )
    alike = next((name for name in task.classes if folded(name) == folded(label)), None)
    hint = f"; `merge_labels: true` takes it for '{alike}'" if alike is not None else ""
    return DataError(
        f"{where}: label '{label}' is not one of the classes of task '{task.name}': {allowed}{hint}"
    )


class Accuracy(Kernel):
    """The share of right answers."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        right = (predictions == labels[:, None]).astype(precision)  # [E, M]
        return lambda weights: sums(weights, right) / totals(weights)

    def chance(self, labels: Array, classes: int, precision: type[np.floating[Any]]) -> Scorer:
        own = _indicators(labels, classes, precision)

        def best(weights: Weights) -> Floats:
            actual = sums(weights, own)  # [R, C]
            shares = actual / actual.sum(axis=1, keepdims=True)
            return np.asarray(shares.max(axis=1))

        return best


class F1(Kernel):
    """The harmonic mean of precision and recall of class 1."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        def scores(weights: Weights) -> Floats:
            hits, actual, predicted = _counts(weights, predictions, labels, 1, precision)
            return 2 * hits / np.maximum(actual + predicted, 1)

        return scores

    def chance(self, labels: Array, classes: int, precision: type[np.floating[Any]]) -> Scorer:
        """Return the quality of answering 1 always: no other constant has any."""
        own = _indicators(labels, classes, precision)
        return lambda weights: np.asarray(_f1_of_constants(sums(weights, own))[:, 1])


class MacroF1(Kernel):
    """The mean F1 of the classes that occur as a label or as an answer, as scikit-learn has it."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        runs = predictions.shape[1]

        def scores(weights: Weights) -> Floats:
            # Class by class: memory does not grow with C.
            total = np.zeros((len(weights), runs))
            occurring = np.zeros((len(weights), runs))
            for c in range(classes):
                hits, actual, predicted = _counts(weights, predictions, labels, c, precision)
                total += 2 * hits / np.maximum(actual + predicted, 1)
                occurring += actual + predicted > 0
            return total / occurring

        return scores

    def chance(self, labels: Array, classes: int, precision: type[np.floating[Any]]) -> Scorer:
        own = _indicators(labels, classes, precision)

        def best(weights: Weights) -> Floats:
            actual = sums(weights, own)
            occurring = (actual > 0).sum(axis=1, keepdims=True) + (actual == 0)
            return np.asarray((_f1_of_constants(actual) / occurring).max(axis=1))

        return best


class Matthews(Kernel):
    """Gorodkin's R_K (2004), for two classes Matthews' correlation; 0 where a side is constant."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        runs = predictions.shape[1]

        def scores(weights: Weights) -> Floats:
            total = totals(weights)
            all_hits = np.zeros((len(weights), runs))
            products = np.zeros((len(weights), runs))
            squares = np.zeros((len(weights), runs))
            own_squares = np.zeros_like(total)
            for c in range(classes):
                hits, actual, predicted = _counts(weights, predictions, labels, c, precision)
                all_hits += hits
                products += actual * predicted
                squares += predicted**2
                own_squares += actual**2
            spread = (total**2 - own_squares) * (total**2 - squares)
            return ratio(all_hits * total - products, spread)

        return scores


def _counts(
    weights: Weights, predictions: Array, labels: Array, c: int, precision: type[np.floating[Any]]
) -> tuple[Floats, Floats, Floats]:
    """Return a class's weighted hits [R, M], labels [R, 1] and answers [R, M]."""
    own = (labels == c).astype(precision)[:, None]
    given = (predictions == c).astype(precision)  # [E, M]
    return sums(weights, given * own), sums(weights, own), sums(weights, given)


def _indicators(labels: Array, classes: int, precision: type[np.floating[Any]]) -> Array:
    """Return 1 for each label's own class, else 0: [E, C]."""
    own: Array = (labels[:, None] == np.arange(classes)).astype(precision)
    return own


def _f1_of_constants(actual: Floats) -> Floats:
    """Return each class's F1 where it is the answer to everything. actual: its labels, [R, C]."""
    return np.asarray(2 * actual / (actual + actual.sum(axis=1, keepdims=True)))


register(
    Classification(),
    {
        Metric.ACCURACY: Accuracy(),
        Metric.F1: F1(),
        Metric.F1_MACRO: MacroF1(),
        Metric.MATTHEWS: Matthews(),
    },
)
