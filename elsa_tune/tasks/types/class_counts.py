"""Counts of classes under weights: hits, labels and answers, for metrics that sum over classes.

Shapes: E examples, R rows of weights, M runs, C classes.
"""

from collections.abc import Callable, Iterator

import numpy as np

from elsa_tune.tasks.types.base import Array, Floats, Precision, Weights, sums

# More classes than these are counted example by example, and not by products, which take longer
# from here on (bench/bootstrap_classes.py).
_MOST_DENSE = 20
# Of counts that are held at a time, of some of the runs.
_MOST_NUMBERS = 10_000_000

# A class's weighted hits [R, M], labels [R, 1] and answers [R, M].
OfClass = tuple[Floats, Floats, Floats]


def class_counter(
    predictions: Array,
    labels: Array,
    classes: int,
    precision: Precision,
) -> Callable[[Weights], Iterator[Iterator[OfClass]]]:
    """Return what counts hits, labels and answers by weights: runs in blocks, class by class.

    Of few classes each has products of its own, which are the fastest, and all runs are one block.
    Of many these would take time in proportion to C, though each example has one class.
    """
    if classes > _MOST_DENSE:
        return _CountsOfMany(predictions, labels, classes).blocks

    def by_class(weights: Weights) -> Iterator[OfClass]:
        for c in range(classes):
            yield counts_of(weights, predictions, labels, c, precision)

    def one_block(weights: Weights) -> Iterator[Iterator[OfClass]]:
        yield by_class(weights)

    return one_block


def counts_of(
    weights: Weights,
    predictions: Array,
    labels: Array,
    c: int,
    precision: Precision,
) -> OfClass:
    """Return what counts of one class."""
    own = (labels == c).astype(precision)[:, None]
    given = (predictions == c).astype(precision)  # [E, M]
    hits = sums(weights, given * own)
    actual = sums(weights, own)
    predicted = sums(weights, given)
    return hits, actual, predicted


class _CountsOfMany:
    """Counts the hits, labels and answers of many classes.

    What is summed are whole numbers, so that the sums are those of products.
    """

    def __init__(self, predictions: Array, labels: Array, classes: int) -> None:
        """Take the predictions [E, M] of M runs, and the labels [E]."""
        self._classes = classes
        self._labels = ByClass(labels, np.arange(len(labels)), classes)
        self._answers: list[ByClass] = []  # of each run
        self._hits: list[ByClass] = []
        for of_run in predictions.T:
            right = np.flatnonzero(of_run == labels)
            self._answers.append(ByClass(of_run, np.arange(len(labels)), classes))
            self._hits.append(ByClass(labels[right], right, classes))

    def blocks(self, weights: Weights) -> Iterator[Iterator[OfClass]]:
        """Yield the classes' counts, of some runs at a time."""
        by_example = np.ascontiguousarray(weights.T)  # [E, R]
        actual = self._labels.sums(by_example)[:, :, None]  # [C, R, 1]
        numbers_of_run = self._classes * len(weights)
        at_once = max(1, _MOST_NUMBERS // numbers_of_run)
        for start in range(0, len(self._hits), at_once):
            end = start + at_once
            hits = [of_run.sums(by_example) for of_run in self._hits[start:end]]
            answers = [of_run.sums(by_example) for of_run in self._answers[start:end]]
            yield zip(
                np.stack(hits, axis=2),  # [C, R, m]
                actual,
                np.stack(answers, axis=2),
                strict=True,
            )


class ByClass:
    """Sums the weights of examples by their class."""

    def __init__(self, class_of_each: Array, examples: Array, classes: int) -> None:
        """Take the numbers of the examples that count, and the class of each, both [n]."""
        order = np.argsort(class_of_each, kind="stable")
        self._examples = examples[order].astype(np.int32)
        sizes = np.bincount(class_of_each, minlength=classes)
        self._ends = np.cumsum(sizes)

    def sums(self, by_example: Weights) -> Floats:
        """Return the sums [C, R] of weights [E, R]."""
        in_order = by_example[self._examples]
        of_classes = np.zeros((len(self._ends), by_example.shape[1]))
        start = 0
        for c, end in enumerate(self._ends):
            of_classes[c] = in_order[start:end].sum(axis=0)
            start = end
        return of_classes
