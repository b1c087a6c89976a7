"""What evaluation examples may hide: mistakes of which a run made few, or on a label of few rows.

A run that made no mistake on five rows of a label may make some on the next five. How many, and
what each costs, is what `resampling.py` adds to a bootstrap. Of values it is what a run may make of
labels that are far from the others.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.specs.adapt.candidate import Candidate
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

# Examples are asked of a metric one by one, so many at a time: in squares that are fast to compute.
_AT_ONCE = 100

Integers = NDArray[np.integer[Any]]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenMistakes:
    """What the evaluation examples may hide of M runs."""

    flawless: frozenset[int]  # the runs, 0..M-1, without a mistake
    unsure: frozenset[int]  # those with some, of which resamples may show too few
    # [M, E], on which examples a run errs; None where one more mistake of an unsure run counts
    # whole, however many it made.
    mistaken: Booleans | None
    unit_size: float  # how many examples a usual unit has
    cost: float  # what answering one more usual unit wrongly costs, or the value of a far label
    most: int  # how many units there are to be so mistaken about

    def shares(
        self, columns: Mapping[Candidate, Sequence[int | None]]
    ) -> dict[tuple[Candidate, Candidate], float]:
        """Return how much of one more mistake counts of a candidate beside another, 0 to 1.

        Beside itself: of the candidate alone. The mean over its runs. The share of a run falls with
        its mistakes, counted in units of the usual size, to 0 at FEW_MISTAKES. Those that most runs
        of the other make as well are not counted, for they leave a contrast. columns: the runs of
        each candidate; None: it diverged, and hides nothing.
        """
        shares: dict[tuple[Candidate, Candidate], float] = {}
        for other, runs_of_other in columns.items():
            is_hard = self._is_hard(runs_of_other)
            for candidate, runs in columns.items():
                is_counted = ~is_hard
                if candidate == other:
                    is_counted = np.ones_like(is_hard)
                total = sum(self._share(run, is_counted) for run in runs if run is not None)
                shares[candidate, other] = total / len(runs)
        return shares

    def _is_hard(self, runs: Sequence[int | None]) -> Booleans:
        """Return on which examples [E] most of these runs err."""
        if self.mistaken is None:
            return np.zeros(0, dtype=np.bool_)
        known = [run for run in runs if run is not None]
        mistakes: NDArray[np.int64] = self.mistaken[known].sum(axis=0)
        return mistakes > len(known) / 2

    def _share(self, run: int, is_counted: Booleans) -> float:
        """Return how much of one more mistake of a run counts. is_counted: [E], of its mistakes."""
        if run not in self.unsure:
            return 0.0
        if self.mistaken is None:
            return 1.0
        mistakes = int((self.mistaken[run] & is_counted).sum()) / self.unit_size
        return max(0.0, 1 - mistakes / FEW_MISTAKES)


NOTHING_HIDDEN = HiddenMistakes(
    flawless=frozenset(),
    unsure=frozenset(),
    mistaken=None,
    unit_size=1.0,
    cost=0.0,
    most=1,
)


@dataclass(frozen=True, slots=True)
class RarestLabel:
    """The label that the fewest units have."""

    example: int  # the first that has it
    units: int  # how many have it
    unit_size: float  # how many examples one of these units has with the label
    others: Array  # [K, ...], those of the next fewest units, _MOST_OTHERS at most
    # How many units have this label or one of at most twice as many: a mistake on any costs much.
    units_of_rare: int


def hidden_mistakes(
    runs: Sequence[Predictions],
    metric: str,
    unit_of_example: Integers | None,
    equal_units: float,
) -> HiddenMistakes:
    """Return what the examples of runs may hide.

    unit_of_example: [E]; None: each is its own. equal_units: how many units of one size tell as
    much.
    """
    judged = runs[0]
    labels = judged.labels
    examples = len(labels)
    units = examples if unit_of_example is None else int(unit_of_example.max()) + 1
    mistaken = mistaken_examples(runs, metric)
    flawless = flawless_runs(mistaken)
    # Of the unit that an example is in, on average: a large one has more of them.
    unit_size = examples / equal_units
    if judged.are_values:
        cost_of_far_labels = kernel_of(metric).cost_of_far_labels(labels, equal_units)
        if cost_of_far_labels > 0:
            return HiddenMistakes(
                flawless=flawless,
                # Of values a run errs on each example, so that none is sure of the far ones.
                unsure=frozenset(range(len(runs))) - flawless,
                mistaken=None,
                unit_size=unit_size,
                cost=cost_of_far_labels,
                most=units,
            )
    rarest = rarest_label(labels, unit_of_example)
    is_share = Metric(metric).is_share
    unsure = unsure_runs(runs, flawless, is_share=is_share)
    # Where runs share mistakes, nothing else in a contrast says how few units a label has.
    rests_on_few = not is_share and rarest.units < FEW_OF_A_LABEL
    cost = 0.0
    if flawless or unsure:
        cost = cost_of_mistake_on(judged, metric, rarest, unit_size)
    most = rarest.units_of_rare
    if is_share:  # which counts a mistake on any label alike
        most = units
    return HiddenMistakes(
        flawless=flawless,
        unsure=unsure,
        mistaken=None if rests_on_few else mistaken,
        unit_size=unit_size,
        cost=cost,
        most=most,
    )


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
    return RarestLabel(
        example=int(first_examples[rarest]),
        units=units,
        unit_size=float(examples_of_kind[rarest] / units),
        others=kinds[next_rarest],
        units_of_rare=int(units_of_kind[units_of_kind <= 2 * units].sum()),
    )


def mistaken_examples(runs: Sequence[Predictions], metric: str) -> Booleans:
    """Return on which examples each run errs, [M, E].

    A share of the examples says itself which it counts as right: those that score 1 alone. So a
    value may be right that is near its label. By other metrics an answer errs unless it is the
    label.
    """
    if not Metric(metric).is_share:
        return np.stack([_is_unlike(run) for run in runs])
    kernel = kernel_of(metric)
    labels = runs[0].labels
    classes = runs[0].classes
    predictions = stacked([run.predictions for run in runs])  # [E, M, ...]
    parts: list[Booleans] = []
    for start in range(0, len(labels), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        score_runs = kernel.scorer(predictions[part], labels[part], classes, np.float64)
        each_alone = np.eye(len(labels[part]))
        parts.append(score_runs(each_alone) < 1)
    return np.concatenate(parts).T


def _is_unlike(run: Predictions) -> Booleans:
    """Return on which examples [E] an answer of a run is not the label."""
    is_wrong = np.not_equal(run.predictions, run.labels)
    is_unlike: Booleans = is_wrong.reshape(len(is_wrong), -1).any(axis=1)
    return is_unlike


def flawless_runs(mistaken: Booleans) -> frozenset[int]:
    """Return the runs, 0..M-1, without a mistake. mistaken: [M, E]."""
    makes_some = mistaken.any(axis=1)
    return frozenset(np.flatnonzero(~makes_some).tolist())


def unsure_runs(
    runs: Sequence[Predictions],
    flawless: Collection[int],
    *,
    is_share: bool,
) -> frozenset[int]:
    """Return the runs, 0..M-1, of which the examples may hide a mistake beside those they show.

    By a share of the examples these are all that made a mistake. By another metric none of values
    is, for no answer is right to the digit, and no run that always answers the same, which scores
    as if guessed. flawless: the runs without a mistake. is_share: whether the metric is a share.
    """
    unsure: set[int] = set()
    for number, run in enumerate(runs):
        if number in flawless:
            continue
        is_constant = bool((run.predictions == run.predictions[0]).all())
        if is_share or not (run.are_values or is_constant):
            unsure.add(number)
    return frozenset(unsure)


def cost_of_mistake_on(
    judged: Predictions,
    metric: str,
    rarest: RarestLabel,
    unit_size: float,
) -> float:
    """Return what a mistake on all examples of a unit costs: the costliest on the rarest label.

    F1 of P examples of class 1 falls by 1 / (2 P - 1) with each, accuracy by 1 / E whatever the
    label; by as much where all labels are alike, and no other is known to be given. Where classes
    are ordered, what one is mistaken for matters more than how rare that is. Of values it is the
    label next in rareness, as no answer is right to the digit. judged: any run. unit_size: the
    examples of a usual unit.
    """
    labels = judged.labels
    classes = judged.classes
    others = rarest.others[:1] if judged.are_values else rarest.others
    if Metric(metric).is_share or len(others) == 0:
        return unit_size / len(labels)
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
    return (flawless_score - costliest_score) * max(unit_size, rarest.unit_size)
