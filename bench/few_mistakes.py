"""Few mistakes: how often a depth that just falls short is certified.

    python bench/few_mistakes.py                    # today's code
    python bench/few_mistakes.py --called before    # an older one, found by PYTHONPATH
    python bench/few_mistakes.py --two-ways         # these cases alone; the others stay as they are

By F1 and Matthews of few rows of a class, and by accuracy of a full model that is all but flawless.
The depth keeps exactly the target of the full model's quality in expectation over fresh rows, so
at most 5 % of its studies may certify it. Nothing is drawn: a study is judged for each number of
positive units that the two may miss, and weighted by how probable these numbers are. The three
seeds of each answer alike, so that only the rows are uncertain. By accuracy all units are positive;
else 200 single rows are evaluated, or 100 units of two rows each. Beside them may be larger units,
of which the depth misses whole ones, as often as single rows, and a flawless full model none.
Of two ways that are compared none is the full model. Writes bench/results/few_mistakes.json.
"""

from __future__ import annotations

import argparse
import functools
import json
from typing import Any, NamedTuple

import machine
import numpy as np
from scipy import optimize, stats

from elsa_tune.analysis.statistics.resampling import ExampleDraws, resample, score
from elsa_tune.analysis.statistics.seeds import CandidateRuns
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.result_row import Predictions

RESULT = machine.RESULTS / "few_mistakes.json"
DEPTH, WAY = FreezeDepth.of(5), FreezeDepth.of(3)
SEEDS = 3
RARE = 2e-3  # numbers of mistakes less probable than this are left out


class Case(NamedTuple):
    """What is simulated."""

    metric: str
    positives: int  # units of class 1
    rows_a_unit: int = 1
    full_misses: float = 0.0  # the share of positive units that the full model misses
    both_miss: int = 0  # positive units that every run misses
    both_invent: int = 0  # rows of class 0 that every run takes for class 1
    target: float = 0.9
    large_units: int = 0
    rows_a_large_unit: int = 0
    two_ways: bool = False  # whether the depth is held against another, and not the full model

    @property
    def units(self) -> int:
        if self.metric == "accuracy":
            return self.positives
        return 200 if self.rows_a_unit == 1 else 100

    @property
    def open(self) -> int:
        """The positive units that a run may miss or not."""
        return self.positives - self.both_miss


CASES = (
    *(Case("f1", positives) for positives in (4, 6, 8, 13, 16, 30, 60, 99, 100, 120, 149, 150)),
    *(Case("f1", positives, rows_a_unit=2) for positives in (4, 8, 16)),
    *(Case("matthews", positives) for positives in (4, 8, 16)),
    *(Case("f1_macro", positives) for positives in (4, 8)),
    Case("f1_macro", 8, target=0.95),
    *(Case("f1", positives, target=0.95) for positives in (30, 60, 100, 120, 149, 150)),
    *(Case("matthews", positives, target=0.95) for positives in (60, 100)),
    Case("f1", 8, full_misses=0.1),
    Case("f1", 16, full_misses=0.05),
    Case("f1", 8, both_invent=1),
    Case("f1", 8, both_miss=1),
    Case("f1", 16, both_miss=1),
    Case("matthews", 8, rows_a_unit=2, both_invent=1),
    *(Case("accuracy", units) for units in (30, 40, 60, 80, 100, 150, 200, 300)),
    *(Case("accuracy", units, target=0.95) for units in (60, 80, 100, 150, 200, 300)),
    *(Case("accuracy", units, target=0.975) for units in (150, 200, 300)),
    *(Case("accuracy", units, full_misses=0.02) for units in (40, 100, 200)),
    *(Case("accuracy", units, full_misses=0.02, target=0.95) for units in (100, 200)),
    *(Case("accuracy", units, both_miss=50, target=0.95) for units in (150, 200)),
    Case("accuracy", 300, both_miss=100, target=0.975),
    Case("accuracy", 50, rows_a_unit=2),
    Case("accuracy", 100, rows_a_unit=2, target=0.95),
    *(Case("accuracy", 500, target=t, large_units=20, rows_a_large_unit=10) for t in (0.9, 0.95)),
    *(Case("accuracy", 1500, target=t, large_units=20, rows_a_large_unit=20) for t in (0.9, 0.95)),
    Case("accuracy", 1000, target=0.95, large_units=1, rows_a_large_unit=50),
    Case("accuracy", 300, large_units=60, rows_a_large_unit=4),
    Case("accuracy", 80, both_miss=20, target=0.95, two_ways=True),
    Case("accuracy", 100, both_miss=60, target=0.95, two_ways=True),
    Case("accuracy", 150, both_miss=60, target=0.95, two_ways=True),
    Case("accuracy", 300, both_miss=100, target=0.95, two_ways=True),
    Case("f1", 160, both_miss=60, target=0.95, two_ways=True),
    Case("matthews", 160, both_miss=60, target=0.95, two_ways=True),
)


def answers(case: Case, missed: int, large_missed: int, *, from_the_end: bool) -> Predictions:
    """Return a run's answers. missed: of the open positives. The two depths miss others.

    Rows of large units are class 1 and come last.
    """
    labels = np.zeros(case.units * case.rows_a_unit, np.int8)
    labels[: case.positives * case.rows_a_unit] = 1
    open_units = range(case.both_miss, case.positives)
    missed_units = [*range(case.both_miss)]
    if missed:
        missed_units += open_units[-missed:] if from_the_end else open_units[:missed]
    given = labels.copy()
    for unit in missed_units:
        given[unit * case.rows_a_unit : (unit + 1) * case.rows_a_unit] = 0
    if case.both_invent:
        given[-case.both_invent * case.rows_a_unit :] = 1
    units = None
    if case.rows_a_unit > 1 or case.large_units:
        units = np.repeat(np.arange(case.units, dtype=np.int32), case.rows_a_unit)
    if case.large_units:
        are_missed = np.arange(case.large_units) < large_missed
        of_large_units = np.where(are_missed, 0, 1).repeat(case.rows_a_large_unit)
        large_units = np.arange(case.large_units).repeat(case.rows_a_large_unit)
        given = np.append(given, of_large_units).astype(np.int8)
        labels = np.append(labels, np.ones_like(of_large_units)).astype(np.int8)
        units = np.append(units, case.units + large_units).astype(np.int32)
    return Predictions(predictions=given, labels=labels, classes=2, units=units)


@functools.cache
def is_certified(case: Case, full_missed: int, depth_missed: int, large_missed: int) -> bool:
    """Whether a study certifies the depth. missed: open positives, and by the depth large units."""
    given: list[Predictions] = []
    runs: dict[FreezeDepth, CandidateRuns] = {}
    columns: dict[FreezeDepth, list[int]] = {}
    other = WAY if case.two_ways else FULL_MODEL
    missed_by = ((other, full_missed, 0), (DEPTH, depth_missed, large_missed))
    for candidate, missed, large in missed_by:
        one = answers(case, missed, large, from_the_end=candidate is other)
        quality = score(one, case.metric)
        columns[candidate] = [len(given)] * SEEDS
        given.append(one)
        runs[candidate] = CandidateRuns(
            candidate=candidate,
            qualities=(quality,) * SEEDS,
            failed=(False,) * SEEDS,
        )
    resampled = resample(given, case.metric)
    draws = ExampleDraws.of(resampled, columns)
    known = Uncertainty(runs=runs, chance=0.0, examples=draws)
    contrast = known.contrast(DEPTH, case.target, against=other)
    assert contrast is not None
    return contrast.lower > known.policy.rounding


def expected_quality(case: Case, missed: float) -> float:
    """Return the score where this share of the open positives is missed, by expected counts."""
    negatives = case.units - case.positives
    misses = case.both_miss + missed * case.open
    hits = case.positives - misses
    if case.metric == "accuracy":
        return hits / case.units
    invented = case.both_invent
    rejected = negatives - invented
    if case.metric == "matthews":
        margins = (hits + invented) * case.positives * negatives * (rejected + misses)
        return float((hits * rejected - misses * invented) / np.sqrt(margins))
    of_class_1 = 2 * hits / (2 * hits + misses + invented)
    if case.metric == "f1":
        return of_class_1
    of_class_0 = 2 * rejected / (2 * rejected + misses + invented)
    return (of_class_1 + of_class_0) / 2


def false_certificates(case: Case) -> float:
    """Return in which share of studies the depth is certified that keeps exactly the target."""
    enough = case.target * expected_quality(case, case.full_misses)
    depth_misses = optimize.brentq(lambda missed: expected_quality(case, missed) - enough, 0, 0.999)
    share = 0.0
    for full_missed in range(case.open // 2 + 1):
        is_probable = stats.binom.pmf(full_missed, case.open, case.full_misses)
        if is_probable < RARE:
            continue
        for large_missed in range(case.large_units + 1):
            weight_of_large = stats.binom.pmf(large_missed, case.large_units, depth_misses)
            if weight_of_large < RARE:
                continue
            for depth_missed in range(case.open // 2 + 1):
                weight = weight_of_large * stats.binom.pmf(depth_missed, case.open, depth_misses)
                if weight < RARE * weight_of_large:
                    continue
                if is_certified(case, full_missed, depth_missed, large_missed):
                    share += is_probable * weight
    return float(share)


def main() -> None:
    """Judge all cases; print and write how often each is certified."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--called", default="now")
    parser.add_argument("--two-ways", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if RESULT.exists():
        results = json.loads(RESULT.read_text())["results"]
    found = []
    if options.two_ways:
        found = [one for one in results[options.called] if not one.get("two_ways")]
    for case in CASES:
        if options.two_ways and not case.two_ways:
            continue
        share = round(false_certificates(case), 4)
        found.append({**case._asdict(), "falsely_certified": share})
        print(found[-1], flush=True)
    results[options.called] = found
    machine.write("few_mistakes", results, "share of studies that certify a depth at the target")


if __name__ == "__main__":
    main()
