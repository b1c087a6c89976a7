"""Classification: one of the task's classes for each row. Labels and predictions are ids [E]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import DataError, shortlist
from elsa_tune.specs.task import Metric, TaskKind, TaskSpec, label_key
from elsa_tune.tasks.types.base import (
    Array,
    Floats,
    Kernel,
    LinearModel,
    Logits,
    Precision,
    Scorer,
    TaskType,
    Unit,
    Weights,
    ratio,
    register,
    sums,
    totals,
)
from elsa_tune.tasks.types.class_counts import ByClass, OfClass, class_counter, counts_of

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
        allowed = []
        for metric in self.metrics:
            if has_two or metric is not Metric.F1:
                allowed.append(metric)
        return allowed

    def label_reader(self, task: TaskSpec) -> Callable[[str, str], int]:
        """Return what gives a class's id; with `merge_labels` by the label as people see it."""
        merges = task.cleaning.merge_labels
        ids: dict[str, int] = {}
        for id, name in enumerate(task.classes):
            key = label_key(name) if merges else name
            ids[key] = id

        def read(label: str, where: str) -> int:
            key = label_key(label) if merges else label
            if key not in ids:
                raise _unknown(task, label, where)
            return ids[key]

        return read

    def label_text(self, task: TaskSpec, label: Any) -> str:
        return task.classes[int(label)]

    def only_label(self, task: TaskSpec, label: Any) -> str:
        name = self.label_text(task, label)
        return f"label '{name}'; a classification needs two classes"

    def strata(self, labels: Array) -> NDArray[np.int64]:
        return labels.astype(np.int64)

    def loss(self, logits: Tensor, labels: Tensor, unit: Unit) -> Tensor:
        from torch.nn import functional as F

        return F.cross_entropy(logits, labels, reduction="sum")

    def predictions(self, logits: Tensor, unit: Unit) -> Tensor:
        return logits.argmax(-1)

    def answers(self, logits: Tensor, names: Sequence[str]) -> tuple[Sequence[str], Tensor]:
        chosen = logits.numpy().argmax(1)
        labels = tuple(names[number] for number in chosen)
        probabilities = logits.softmax(1)
        return labels, probabilities.amax(1)

    def cells(
        self,
        logits: Logits,
        names: Sequence[str],
        *,
        probabilities: bool,
    ) -> dict[str, Array]:
        """Return `prediction`, `confidence`, and `probability_NAME` of each class if asked for."""
        shares = _softmax(logits)
        chosen = logits.argmax(axis=1)
        labels = np.array(names, dtype=object)
        columns: dict[str, Array] = {}
        columns["prediction"] = labels[chosen]
        columns["confidence"] = shares.max(axis=1)
        if probabilities:
            for c, name in enumerate(names):
                columns[f"probability_{name}"] = shares[:, c]
        return columns


def _softmax(logits: Logits) -> Logits:
    """Return probabilities [E, C] of logits [E, C]."""
    highest = logits.max(axis=1, keepdims=True)
    powers = np.exp(logits - highest)
    shares: Logits = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _unknown(task: TaskSpec, label: str, where: str) -> DataError:
    names = [f"'{name}'" for name in task.classes]
    allowed = shortlist(names)
    if label == "-1":
        return DataError(
            f"{where}: label -1 marks the unlabelled rows of a test split; nothing can be trained "
            f"or scored on it. Give a labelled split (labels {allowed})"
        )
    sentence = (
        f"{where}: label '{label}' is not one of the classes of task '{task.name}': {allowed}"
    )
    for name in task.classes:
        if label_key(name) == label_key(label):
            return DataError(f"{sentence}; `merge_labels: true` takes it for '{name}'")
    return DataError(sentence)


class Accuracy(Kernel):
    """The share of right answers."""

    def scorer(
        self,
        predictions: Array,
        labels: Array,
        classes: int,
        precision: Precision,
    ) -> Scorer:
        is_right = predictions == labels[:, None]
        right = is_right.astype(precision)  # [E, M]

        def scores(weights: Weights) -> Floats:
            return sums(weights, right) / totals(weights)

        return scores

    def chance(self, labels: Array, classes: int, precision: Precision) -> Scorer:
        labelled = ByClass(labels, np.arange(len(labels)), classes)

        def best(weights: Weights) -> Floats:
            actual = labelled.sums(np.ascontiguousarray(weights.T)).T  # [R, C]
            shares = actual / actual.sum(axis=1, keepdims=True)
            largest = shares.max(axis=1)
            return np.asarray(largest)

        return best


class F1(Kernel):
    """The harmonic mean of precision and recall of class 1."""

    def scorer(
        self,
        predictions: Array,
        labels: Array,
        classes: int,
        precision: Precision,
    ) -> Scorer:
        def scores(weights: Weights) -> Floats:
            hits, actual, predicted = counts_of(weights, predictions, labels, 1, precision)
            return _f1(hits, actual, predicted)

        return scores

    def chance(self, labels: Array, classes: int, precision: Precision) -> Scorer:
        """Return the quality of answering 1 always: no other constant has any."""
        labelled = ByClass(labels, np.arange(len(labels)), classes)

        def of_answer_1(weights: Weights) -> Floats:
            actual = labelled.sums(np.ascontiguousarray(weights.T)).T
            of_each_class = _f1_of_constants(actual)
            return of_each_class[:, 1]

        return of_answer_1


class MacroF1(Kernel):
    """The mean F1 of the classes that occur as a label or as an answer, as scikit-learn has it."""

    def scorer(
        self,
        predictions: Array,
        labels: Array,
        classes: int,
        precision: Precision,
    ) -> Scorer:
        blocks = class_counter(predictions, labels, classes, precision)

        def scores(weights: Weights) -> Floats:
            return np.hstack([_mean_f1(block) for block in blocks(weights)])

        return scores

    def chance(self, labels: Array, classes: int, precision: Precision) -> Scorer:
        """Return what the best blind answer scores: 1 / the number of classes that occur.

        Answers drawn with shares r_c, where classes have shares p_c, have an expected macro F1 of
        the mean of 2 p_c r_c / (p_c + r_c), which is largest at r = p. A constant answer has less.
        """
        labelled = ByClass(labels, np.arange(len(labels)), classes)

        def best(weights: Weights) -> Floats:
            actual = labelled.sums(np.ascontiguousarray(weights.T)).T
            occurring = (actual > 0).sum(axis=1)
            return np.asarray(1 / occurring)

        return best


class Matthews(Kernel):
    """Gorodkin's R_K (2004), for two classes Matthews' correlation; 0 where a side is constant."""

    def scorer(
        self,
        predictions: Array,
        labels: Array,
        classes: int,
        precision: Precision,
    ) -> Scorer:
        blocks = class_counter(predictions, labels, classes, precision)

        def scores(weights: Weights) -> Floats:
            total = totals(weights)
            return np.hstack([_correlation(total, block) for block in blocks(weights)])

        return scores


def _mean_f1(counts: Iterable[OfClass]) -> Floats:
    """Return the mean F1 of the classes that occur, [R, M]. counts: class by class."""
    total: Any = 0.0
    occurring: Any = 0.0
    for hits, actual, predicted in counts:
        total = total + _f1(hits, actual, predicted)
        occurring = occurring + (actual + predicted > 0)
    return np.asarray(total / occurring)


def _correlation(total: Floats, counts: Iterable[OfClass]) -> Floats:
    """Return Gorodkin's R_K, [R, M]. total: all weights, [R, 1]. counts: class by class."""
    all_hits: Any = 0.0
    products: Any = 0.0
    squares: Any = 0.0
    own_squares: Any = 0.0
    for hits, actual, predicted in counts:
        all_hits = all_hits + hits
        products = products + actual * predicted
        squares = squares + predicted**2
        own_squares = own_squares + actual**2
    covariance = all_hits * total - products
    own_spread = total**2 - own_squares
    spread = total**2 - squares
    return ratio(covariance, own_spread * spread)


def _f1(hits: Floats, actual: Floats, predicted: Floats) -> Floats:
    """Return F1 [R, M] from what `counts_of` gives; 0 for a class that does not occur."""
    occurrences = np.maximum(actual + predicted, 1)
    return 2 * hits / occurrences


def _f1_of_constants(actual: Floats) -> Floats:
    """Return each class's F1 where it is the answer to everything. actual: its labels, [R, C]."""
    total = actual.sum(axis=1, keepdims=True)
    occurrences = actual + total
    return np.asarray(2 * actual / occurrences)


register(
    Classification(),
    {
        Metric.ACCURACY: Accuracy(),
        Metric.F1: F1(),
        Metric.F1_MACRO: MacroF1(),
        Metric.MATTHEWS: Matthews(),
    },
)
