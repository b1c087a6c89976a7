"""What evaluation examples may hide: mistakes of which a run made few, or on a label of few rows.

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
from elsa_tune.tasks.types.base import Array, stacked
from elsa_tune.tasks.types.registry import kernel_of

# Of a label with fewer units a bootstrap shows too few mistakes (bench/few_mistakes.py).
FEW_OF_A_LABEL = 150

# Of fewer mistakes a bootstrap shows too little of how many there may be (bench/few_mistakes.py).
FEW_MISTAKES = 50

# A label may be mistaken for any other; of thousands, the rare ones cost the most.
_MOST_OTHERS = 100

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class RarestLabel:
    """The label that the fewest units have."""

    example: int  # the first that has it
    units: int  # how many have it
    unit_size: float  # examples that one of these units has with the label, or a usual unit in all
    others: Array  # [K, ...], those of the next fewest units, _MOST_OTHERS at most


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
    next_rarest = rarest_first[1 : 1 + _MOST_OTHERS]
    units = int(units_of_kind[rarest])
    all_units = int(unit_of_example.max()) + 1
    own_size = examples_of_kind[rarest] / units
    usual_size = len(labels) / all_units
    return RarestLabel(
        example=int(first_examples[rarest]),
        units=units,
        unit_size=float(max(own_size, usual_size)),
        others=kinds[next_rarest],
    )


def flawless_runs(runs: Sequence[Predictions]) -> frozenset[int]:
    """Return the runs, 0..M-1, without a mistake."""
    flawless: list[int] = []
    for number, run in enumerate(runs):
        if np.array_equal(run.predictions, run.labels):
            flawless.append(number)
    return frozenset(flawless)


def unsure_runs(
    runs: Sequence[Predictions],
    metric: str,
    rarest: RarestLabel,
    unit_of_example: Integers | None,
) -> dict[int, float]:
    """Return the runs, 0..M-1, of which the examples may hide a mistake, each with a share.

    The share, above 0 and at most 1, says how much of one more mistake counts. It is 1 for a metric
    that rests on a label of few units, whatever mistakes were made: where runs share them, nothing
    else in a contrast says how few the units are. Else it falls with the units answered wrongly, to
    0 at FEW_MISTAKES. A run that always answers the same, or without a mistake, is not among them.
    """
    if runs[0].classes == 0:
        return {}
    rests_on_few = not Metric(metric).is_share and rarest.units < FEW_OF_A_LABEL
    shares: dict[int, float] = {}
    for number, run in enumerate(runs):
        mistakes = _mistaken_units(run, unit_of_example)
        is_constant = bool((run.predictions == run.predictions[0]).all())
        if mistakes == 0 or is_constant:
            continue
        share = 1.0
        if not rests_on_few:
            share = 1 - mistakes / FEW_MISTAKES
        if share > 0:
            shares[number] = share
    return shares


def _mistaken_units(run: Predictions, unit_of_example: Integers | None) -> int:
    """Return of how many units a run answers an example wrongly."""
    is_wrong = run.predictions != run.labels
    if is_wrong.ndim > 1:
        is_wrong = is_wrong.any(axis=1)
    if unit_of_example is None:
        return int(is_wrong.sum())
    return len(np.unique(unit_of_example[is_wrong]))


def cost_of_mistake_on(
    labels: Array,
    classes: int,
    metric: str,
    rarest: RarestLabel,
) -> float:
    """Return what a mistake on all examples of a unit costs: the costliest on the rarest label.

    F1 of P examples of class 1 falls by 1 / (2 P - 1) with each, accuracy by 1 / E whatever the
    label; by as much where all labels are alike, and no other is known to be given. Where classes
    are ordered, what one is mistaken for matters more than how rare that is. Without classes it is
    the label next in rareness, as no answer is right to the digit.
    """
    others = rarest.others if classes > 0 else rarest.others[:1]
    if len(others) == 0:
        return rarest.unit_size / len(labels)
    mistaken: list[Array] = []
    for other in others:
        with_mistake = labels.copy()
        with_mistake[rarest.example] = other
        mistaken.append(with_mistake)
    kernel = kernel_of(metric)
    score_with_mistakes = kernel.scorer(stacked(mistaken), labels, classes, np.float64)
    each_once = np.ones((1, len(labels)))
    flawless_score = kernel.score(labels, labels, classes)
    costliest_score = float(score_with_mistakes(each_once).min())
    return (flawless_score - costliest_score) * rarest.unit_size
