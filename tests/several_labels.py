"""A type of task whose labels are no class ids: several of them in a row, or none, as topics are.

Labels and predictions are [E, K], 1 where a row has the label. It stands in one file, as another
package would bring it or as one that ships: it needs no change anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

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
    register,
    sums,
    totals,
)

if TYPE_CHECKING:
    from torch import Tensor

SEVERAL = TaskKind.add("several", __name__)
MICRO = Metric.define("labels_f1_micro", __name__, words="micro F1 of labels")
MACRO = Metric.define("labels_f1_macro", __name__, words="macro F1 of labels")
SUBSET = Metric.define("subset_accuracy", __name__, is_share=True)

# Between the labels of a row.
MARK = ";"


class SeveralLabels(TaskType):
    """Some of K labels, or none of them."""

    kind = SEVERAL
    metrics = (MICRO, MACRO, SUBSET)
    usual = (MICRO, MACRO, SUBSET)
    label_dtype = np.int64
    names_classes = True
    blank_is_label = True
    linear_model = LinearModel.LOGISTIC_EACH
    problem_type = "multi_label_classification"
    pipeline_options: ClassVar[dict[str, Any]] = {"top_k": None}
    card_note = "A row has every label whose score is above 0.5."

    def describe(self, task: TaskSpec) -> str:
        return f"several of {len(task.classes)} labels a row"

    def classes_in(self, cell: str) -> Iterable[str]:
        return filter(None, (name.strip() for name in cell.split(MARK)))

    def label_reader(self, task: TaskSpec) -> Callable[[str, str], list[int]]:
        key = folded if task.cleaning.merge_labels else str
        known = {key(name): number for number, name in enumerate(task.classes)}

        def read(label: str, where: str) -> list[int]:
            row = [0] * len(task.classes)
            for name in self.classes_in(label):
                if name in task.cleaning.missing_labels:
                    continue
                if key(name) not in known:
                    raise DataError(
                        f"{where}: label '{name}' is not one of the labels of task "
                        f"'{task.name}': {shortlist(task.classes)}"
                    )
                row[known[key(name)]] = 1
            return row

        return read

    def label_text(self, task: TaskSpec, label: Any) -> list[str]:
        return [task.classes[number] for number in np.flatnonzero(label)]

    def only_label(self, task: TaskSpec, label: Any) -> str:
        return f"labels '{MARK.join(self.label_text(task, label))}'; nothing can be learnt"

    def class_counts(self, labels: Array, classes: int) -> NDArray[np.int64]:
        return labels.sum(axis=0, dtype=np.int64)

    def strata(self, labels: Array) -> NDArray[np.int64]:
        """Return the rarest label of each row, from 1; 0 for none."""
        counts = labels.sum(axis=0)
        rarity = np.where(labels == 1, counts, len(labels) + 1)
        return np.where(labels.any(axis=1), 1 + rarity.argmin(axis=1), 0).astype(np.int64)

    def loss(self, logits: Tensor, labels: Tensor, unit: Unit) -> Tensor:
        from torch.nn import functional as F

        each = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none")
        return each.mean(1).sum()

    def predictions(self, logits: Tensor, unit: Unit) -> Tensor:
        return (logits > 0).long()

    def answers(self, logits: Tensor, names: Sequence[str]) -> tuple[Sequence[str], Tensor]:
        """Return the row's labels, and the least probable choice among them."""
        sure = logits.abs().sigmoid().amin(1)
        return [_joined(row, names) for row in logits.numpy()], sure

    def cells(
        self, logits: NDArray[np.float32], names: Sequence[str], *, probabilities: bool
    ) -> dict[str, Array]:
        joined = [_joined(row, names) for row in logits]
        columns: dict[str, Array] = {"prediction": np.array(joined, dtype=object)}
        if probabilities:
            shares = 1 / (1 + np.exp(-logits))
            columns |= {f"probability_{name}": shares[:, k] for k, name in enumerate(names)}
        return columns


def _joined(logits: NDArray[np.float32], names: Sequence[str]) -> str:
    return MARK.join(names[number] for number in np.flatnonzero(logits > 0))


class MicroF1(Kernel):
    """F1 of all pairs of a row and a label."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        hits = (predictions * labels[:, None]).sum(axis=2).astype(precision)  # [E, M]
        given = predictions.sum(axis=2).astype(precision)
        own = labels.sum(axis=1, keepdims=True).astype(precision)  # [E, 1]

        def scores(weights: Weights) -> Floats:
            both = sums(weights, given) + sums(weights, own)
            return 2 * sums(weights, hits) / np.maximum(both, 1)

        return scores

    def chance(self, labels: Array, classes: int, precision: type[np.floating[Any]]) -> Scorer:
        """Return the best constant's score: it answers the k commonest labels, for some k."""
        own = labels.astype(precision)

        def best(weights: Weights) -> Floats:
            counts = sums(weights, own)  # [R, K]
            hits = np.sort(counts, axis=1)[:, ::-1].cumsum(axis=1)
            given = totals(weights) * np.arange(1, classes + 1)
            whole = counts.sum(axis=1, keepdims=True)
            return np.asarray((2 * hits / (given + whole)).max(axis=1))

        return best


class MacroF1(Kernel):
    """The mean F1 of the labels; of one that no row has or is given, 0."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        def scores(weights: Weights) -> Floats:
            total = np.zeros((len(weights), predictions.shape[1]))
            for k in range(classes):
                given = predictions[:, :, k].astype(precision)
                own = labels[:, None, k].astype(precision)
                both = sums(weights, given) + sums(weights, own)
                total += 2 * sums(weights, given * own) / np.maximum(both, 1)
            return total / classes

        return scores

    def chance(self, labels: Array, classes: int, precision: type[np.floating[Any]]) -> Scorer:
        """Return the best constant's score: it answers every label."""
        own = labels.astype(precision)

        def best(weights: Weights) -> Floats:
            counts = sums(weights, own)
            return np.asarray((2 * counts / (counts + totals(weights))).mean(axis=1))

        return best


class SubsetAccuracy(Kernel):
    """The share of rows whose labels are all right, and no others."""

    def scorer(
        self, predictions: Array, labels: Array, classes: int, precision: type[np.floating[Any]]
    ) -> Scorer:
        right = (predictions == labels[:, None]).all(axis=2).astype(precision)
        return lambda weights: sums(weights, right) / totals(weights)

    def chance(self, labels: Array, classes: int, precision: type[np.floating[Any]]) -> Scorer:
        """Return the best constant's score: it is the commonest set of labels."""
        sets, which = np.unique(labels, axis=0, return_inverse=True)
        own = (which.reshape(-1, 1) == np.arange(len(sets))).astype(precision)
        return lambda weights: np.asarray((sums(weights, own) / totals(weights)).max(axis=1))


register(SeveralLabels(), {MICRO: MicroF1(), MACRO: MacroF1(), SUBSET: SubsetAccuracy()})
