"""Few far labels: how often a depth of a regression that just falls short is certified.

    python bench/far_labels.py                    # today's code
    python bench/far_labels.py --called before    # an older one, found by PYTHONPATH

A correlation rests on the rows whose labels are far from the others: few, where most labels are 0
or the largest are many times the usual one. A resample of few such rows shows too little of how
they may be answered, and one of a depth that luck has carried close to 1 hardly moves at all. The
depth keeps exactly the target of the full model's correlation in expectation over fresh rows, so
at most 5 % of its studies may certify it; with `keeps` above the target, as many as can should. The
three seeds of each answer alike, so that only the rows are uncertain. Each study has 2,000
resamples in place of 10,000.
Writes bench/results/far_labels.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import machine
import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from elsa_tune.analysis.statistics import intervals, resampling
from elsa_tune.analysis.statistics.resampling import ExampleDraws, resample
from elsa_tune.analysis.statistics.seeds import CandidateRuns
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.result_row import Predictions
from elsa_tune.tasks.types.registry import kernel_of

RESULT = machine.RESULTS / "far_labels.json"
DEPTH = FreezeDepth.of(5)
SEEDS = 3
TARGET = 0.9
RESAMPLES = 2000
STUDIES = 500
# Rows in all, by which the depth's error is chosen.
ROWS_TO_CHOOSE_BY = 600_000

Floats = NDArray[np.float64]


class Drawn(NamedTuple):
    """What is drawn of some studies, each [N, E]."""

    labels: Floats
    of_full: Floats  # the full model's errors, standard normal
    of_depth: Floats  # likewise, what the depth adds
    shares: Floats  # of 0..1


class Case(NamedTuple):
    """What is simulated."""

    metric: str
    labels: str  # as LABELS
    errors: str  # as ERRORS
    rows: int
    keeps: float = TARGET  # the share of the full model's correlation that the depth has


def few_nonzero(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return labels of which 5 % are not 0."""
    values = 0.3 + 0.7 * generator.random(shape)
    return np.where(generator.random(shape) < 0.05, values, 0.0)


def like_prices(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.exp(generator.normal(size=shape))


def heavy_tails(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return draws of Student's t with three degrees of freedom."""
    return generator.standard_t(3, size=shape)


def normal(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return generator.normal(size=shape)


def zero_to_five(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.clip(np.round(1.2 * generator.normal(size=shape) + 2.5), 0, 5)


def skewed_counts(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return whole numbers of 1 to 10, two thirds of them 1."""
    return np.clip(np.round(np.exp(0.8 * generator.normal(size=shape))), 1, 10)


LABELS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "95 % are 0": few_nonzero,
    "like prices": like_prices,
    "heavy tails": heavy_tails,
    "normal": normal,
    "0 to 5": zero_to_five,
    "skewed counts": skewed_counts,
}
# About the standard deviation of the usual labels.
SCALES = {
    "95 % are 0": 0.05,
    "like prices": 0.6,
    "heavy tails": 0.76,
    "normal": 0.67,
    "0 to 5": 1.0,
    "skewed counts": 1.0,
}


def answered_as_usual(drawn: Drawn, full: Floats, scale: float, worse: float) -> Floats:
    """Return the answers of a depth that takes a share of the far labels for the usual one."""
    return np.where(drawn.shares < worse, full - drawn.labels, full)


def not_told_apart(drawn: Drawn, full: Floats, scale: float, worse: float) -> Floats:
    """Return the answers of a depth that does not tell a share of the largest labels apart."""
    most = np.quantile(drawn.labels, 1 - 0.5 * worse)
    return np.minimum(drawn.labels, most) + full - drawn.labels


def grow_with_label(drawn: Drawn, full: Floats, scale: float, worse: float) -> Floats:
    return full + 1.5 * worse * drawn.labels * drawn.of_depth


def alike(drawn: Drawn, full: Floats, scale: float, worse: float) -> Floats:
    """Return the answers of a depth whose errors are of one size."""
    return full + 3 * worse * scale * drawn.of_depth


ERRORS: dict[str, Callable[[Drawn, Floats, float, float], Floats]] = {
    "answered as usual": answered_as_usual,
    "not told apart": not_told_apart,
    "grow with the label": grow_with_label,
    "alike": alike,
}
BY_ROWS = (100, 300, 1000)
CASES = (
    *(Case("pearson", "95 % are 0", "answered as usual", rows) for rows in BY_ROWS),
    *(Case("spearman", "95 % are 0", "answered as usual", rows) for rows in BY_ROWS),
    *(Case("pearson", "like prices", "not told apart", rows) for rows in BY_ROWS),
    *(Case("spearman", "like prices", "not told apart", rows) for rows in BY_ROWS[:2]),
    *(Case("pearson", "like prices", "grow with the label", rows) for rows in BY_ROWS),
    *(Case("pearson", "heavy tails", "grow with the label", rows) for rows in BY_ROWS),
    *(Case("pearson", "normal", "alike", rows) for rows in (50, *BY_ROWS)),
    *(Case("spearman", "normal", "alike", rows) for rows in BY_ROWS[:2]),
    *(Case("pearson", "0 to 5", "alike", rows) for rows in BY_ROWS),
    *(Case("spearman", "0 to 5", "alike", rows) for rows in BY_ROWS[:2]),
    *(Case("spearman", "skewed counts", "grow with the label", rows) for rows in BY_ROWS),
    # What it costs.
    *(Case("pearson", "normal", "alike", rows, keeps=0.95) for rows in BY_ROWS),
    *(Case("pearson", "0 to 5", "alike", rows, keeps=0.95) for rows in BY_ROWS),
    *(Case("spearman", "0 to 5", "alike", rows, keeps=0.95) for rows in BY_ROWS),
    *(Case("pearson", "like prices", "grow with the label", rows, keeps=0.95) for rows in BY_ROWS),
)


def drawn_for(case: Case, studies: int, seed: int) -> Drawn:
    """Return what is drawn of studies."""
    generator = np.random.default_rng(seed)
    shape = (studies, case.rows)
    return Drawn(
        labels=LABELS[case.labels](generator, shape),
        of_full=generator.normal(size=shape),
        of_depth=generator.normal(size=shape),
        shares=generator.random(shape),
    )


def answers(case: Case, drawn: Drawn, worse: float) -> tuple[Floats, Floats]:
    """Return the answers of the full model and of the depth, [N, E] each."""
    scale = SCALES[case.labels]
    full = drawn.labels + 0.3 * scale * drawn.of_full
    return full, ERRORS[case.errors](drawn, full, scale, worse)


def correlations(case: Case, given: Floats, labels: Floats) -> Floats:
    """Return those of answers with labels, [N]."""
    if case.metric == "spearman":
        given, labels = rankdata(given, axis=1), rankdata(labels, axis=1)
    given = given - given.mean(axis=1, keepdims=True)
    labels = labels - labels.mean(axis=1, keepdims=True)
    below = np.sqrt((given**2).sum(axis=1) * (labels**2).sum(axis=1))
    return np.asarray((given * labels).sum(axis=1) / np.maximum(below, 1e-30))


def error_that_keeps(case: Case) -> float:
    """Return how much worse the depth is that keeps this share in expectation."""
    drawn = drawn_for(case, ROWS_TO_CHOOSE_BY // case.rows, seed=99)
    least, most = 0.0, 1.0
    for _ in range(11):
        middle = (least + most) / 2
        full, depth = answers(case, drawn, middle)
        of_full = correlations(case, full, drawn.labels)
        of_depth = correlations(case, depth, drawn.labels)
        if of_depth.mean() > case.keeps * of_full.mean():
            least = middle
        else:
            most = middle
    return (least + most) / 2


def is_certified(case: Case, labels: Floats, full: Floats, depth: Floats) -> bool:
    """Whether a study certifies the depth. Each argument: [E]."""
    given: list[Predictions] = []
    runs: dict[FreezeDepth, CandidateRuns] = {}
    columns: dict[FreezeDepth, list[int]] = {}
    for candidate, answered in ((FULL_MODEL, full), (DEPTH, depth)):
        one = Predictions(
            predictions=answered.astype(np.float32), labels=labels.astype(np.float32), classes=0
        )
        quality = kernel_of(case.metric).score(one.predictions, one.labels, 0)
        columns[candidate] = [len(given)] * SEEDS
        given.append(one)
        runs[candidate] = CandidateRuns(
            candidate=candidate,
            qualities=(quality,) * SEEDS,
            failed=(False,) * SEEDS,
        )
    resampled = resample(given, case.metric, RESAMPLES)
    known = Uncertainty(runs=runs, chance=0.0, examples=ExampleDraws.of(resampled, columns))
    contrast = known.contrast(DEPTH, TARGET)
    assert contrast is not None
    return contrast.lower > known.policy.rounding


def certificates(case: Case, studies: int) -> float:
    """Return in which share of studies the depth is certified."""
    drawn = drawn_for(case, studies, seed=1)
    full, depth = answers(case, drawn, error_that_keeps(case))
    certified = 0
    for at in range(studies):
        if np.ptp(drawn.labels[at]) > 0:  # else nothing is scored
            certified += is_certified(case, drawn.labels[at], full[at], depth[at])
    return certified / studies


def main() -> None:
    """Judge all cases; print and write how often each is certified."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--called", default="now")
    parser.add_argument("--studies", type=int, default=STUDIES)
    options = parser.parse_args()
    resampling.RESAMPLES = intervals.RESAMPLES = RESAMPLES
    found = []
    for case in CASES:
        share = round(certificates(case, options.studies), 4)
        found.append({**case._asdict(), "certified": share})
        print(found[-1], flush=True)
    results: dict[str, Any] = {}
    if RESULT.exists():
        results = json.loads(RESULT.read_text())["results"]
    results[options.called] = found
    note = f"share of {options.studies} studies that certify the depth; target {TARGET}"
    machine.write("far_labels", results, note)


if __name__ == "__main__":
    main()
