"""What evaluation examples may hide: mistakes on a label of which there are few.

A run that made no mistake on five rows of a label may make some on the next five. How many, and
what each costs, is what `resampling.py` adds to a bootstrap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.specs.result_row import Predictions
from elsa_tune.specs.task import Metric
from elsa_tune.tasks.types.base import Array
from elsa_tune.tasks.types.registry import kernel_of

# Of a label with fewer units a bootstrap shows too few mistakes (bench/few_positives.py).
FEW_OF_A_LABEL = 150

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class RarestLabel:
    """The label that the fewest units have."""

    example: int  # the first that has it
    units: int  # how many have it
    unit_size: float  # examples that one of these units has with the label, or a usual unit in all
    mistaken_for: Any  # [...], the label of the next fewest; itself where there is no other


def rarest_label(labels: Array, unit_of_example: Integers | None) -> RarestLabel:
    """Return the label that the fewest units have. unit_of_example: [E]; None: each is its own."""
    if unit_of_example is None:
        unit_of_example = np.arange(len(labels))
    kinds, first_examples, kind_of_example, examples_of_kind = np.unique(
        labels,
        axis=0,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    pairs = np.stack([kind_of_example.reshape(-1), unit_of_example], axis=1)
    distinct_pairs = np.unique(pairs, axis=0)
    units_of_kind = np.bincount(distinct_pairs[:, 0])
    rarest_first = np.argsort(units_of_kind, kind="stable")
    rarest = rarest_first[0]
    next_rarest = rarest_first[:2][-1]
    units = int(units_of_kind[rarest])
    all_units = int(unit_of_example.max()) + 1
    own_size = examples_of_kind[rarest] / units
    usual_size = len(labels) / all_units
    return RarestLabel(
        example=int(first_examples[rarest]),
        units=units,
        unit_size=float(max(own_size, usual_size)),
        mistaken_for=kinds[next_rarest],
    )


def flawless_runs(runs: Sequence[Predictions]) -> frozenset[int]:
    """Return the runs, 0..M-1, without a mistake."""
    flawless: list[int] = []
    for number, run in enumerate(runs):
        if np.array_equal(run.predictions, run.labels):
            flawless.append(number)
    return frozenset(flawless)


def unsure_runs(runs: Sequence[Predictions], metric: str, rarest: RarestLabel) -> frozenset[int]:
    """Return the runs, 0..M-1, of which the examples may hide a mistake on a label of few units.

    None by accuracy, which rests on all units alike; and none that always answers the same. That
    all others do, whatever mistakes they made, matters where they share them: then nothing is left
    in a contrast that says how few the units are.
    """
    has_classes = runs[0].classes > 0
    if not has_classes or Metric(metric).is_share or rarest.units >= FEW_OF_A_LABEL:
        return frozenset()
    unsure: list[int] = []
    for number, run in enumerate(runs):
        is_constant = bool((run.predictions == run.predictions[0]).all())
        if not is_constant:
            unsure.append(number)
    return frozenset(unsure)


def cost_of_mistake_on(
    labels: Array,
    classes: int,
    metric: str,
    rarest: RarestLabel,
) -> float:
    """Return what a mistake on all examples of a unit costs at most: one on the rarest label.

    F1 of P examples of class 1 falls by 1 / (2 P - 1) with each, accuracy by 1 / E whatever the
    label; by as much where all labels are alike, and no other is known to be given.
    """
    mistaken = labels.copy()
    mistaken[rarest.example] = rarest.mistaken_for
    cost_of_example = 1 / len(labels)
    if not np.array_equal(mistaken, labels):
        kernel = kernel_of(metric)
        flawless_score = kernel.score(labels, labels, classes)
        score_with_mistake = kernel.score(mistaken, labels, classes)
        cost_of_example = flawless_score - score_with_mistake
    return cost_of_example * rarest.unit_size
