"""Both planned looks of a hunt, by metric: how often they certify a depth that falls short.

    python bench/looks_by_metric.py                             # 300 studies of each kind
    python bench/looks_by_metric.py --studies 1000 --kinds "Pearson .97"

Each depth keeps exactly the target in expectation over fresh rows and seeds, so that whichever is
tested first is certified falsely, if it is. Of the product run the resamples, the contrasts, the
levels of both looks and the rule that leaves out the ladder; what a second look promises is written
here once more, and it is taken from 2 % on, as under `--until certified`. The learning rates of a
depth are equally good but for a luck of their own with these rows. One exploring run each chooses,
two of the full model and four of the first deep depth. That of the ladder is given. No policy,
worker or stopping rule is simulated: for these, by accuracy, there is bench/strategy.py. Each study
has 1,000 resamples in place of 10,000. Writes bench/results/looks_by_metric.json.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
from typing import Any, NamedTuple

import machine
import numpy as np
from far_labels import Floats
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from elsa_tune.analysis.evidence import levels
from elsa_tune.analysis.statistics import intervals, resampling
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.analysis.statistics.resampling import ExampleDraws, resample
from elsa_tune.analysis.statistics.seeds import CandidateRuns
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import Policy, SeedCounts
from elsa_tune.specs.result_row import Predictions
from elsa_tune.tasks.types.registry import kernel_of

DEPTH = FreezeDepth.of(9)
TARGET = 0.9
POLICY = Policy()
NORMAL = statistics.NormalDist()
RESAMPLES = 1000
STUDIES = 300
ROWS = (100, 277, 1000)
TRIES_OF_FULL, TRIES_OF_DEPTH = 2, 4
FRESH = 60_000  # rows or more, by which expectations are found

# What makes a run right or wrong on an example, on the probit scale: its difficulty, the luck of a
# depth, that of a rate (the mean found by rates_on_rows.py), and a seed's own.
DIFFICULTY, OF_DEPTH, OF_RATE, OWN = 1.6, 0.35, 0.5, 1.0
# The same of values, as shares of an error's variance; the rest is a seed's own.
SHARED, DEPTHS, RATES = 0.45, 0.2, 0.05
# How far seeds spread: on the probit scale, and of values the logarithm of their error.
SEEDS_OF_CLASSES, SEEDS_OF_VALUES = 0.06, 0.05

Answers = NDArray[Any]


class Kind(NamedTuple):
    """What is predicted, and how well."""

    metric: str
    full: tuple[float, ...]  # of classes recall and specificity of the full model; a correlation
    positives: float = 0.0  # share of class 1; 0: values
    misses_alone: bool = False  # whether depths are worse on class 1 alone
    labels: str = "normal"
    tails: bool = False  # whether errors are like Student's t of three degrees of freedom


KINDS = {
    "accuracy 63 %": Kind("accuracy", (0.63, 0.63), 0.48),
    "accuracy 99 %": Kind("accuracy", (0.99, 0.99), 0.48),
    "accuracy 99 %, a tenth class 1": Kind("accuracy", (0.94, 0.9956), 0.1),
    "F1 .90": Kind("f1", (0.9, 0.975), 0.2),
    "F1 .97": Kind("f1", (0.97, 0.9925), 0.2, misses_alone=True),
    "macro F1 .90": Kind("f1_macro", (0.87, 0.968), 0.2),
    "Matthews .88": Kind("matthews", (0.9, 0.975), 0.2),
    "Pearson .60": Kind("pearson", (0.60,)),
    "Pearson .90": Kind("pearson", (0.90,)),
    "Pearson .97": Kind("pearson", (0.97,)),
    "Pearson .90, labels 0 to 5": Kind("pearson", (0.90,), labels="0 to 5"),
    "Pearson .90, labels like prices": Kind("pearson", (0.90,), labels="like prices"),
    "Pearson .90, heavy tails": Kind("pearson", (0.90,), tails=True),
    "Spearman .90": Kind("spearman", (0.90,)),
    "Spearman .97": Kind("spearman", (0.97,)),
}


class Luck(NamedTuple):
    """How a depth and one of its rates do on the rows at hand, each [E], standard normal."""

    of_depth: Floats
    of_rate: Floats


def labels_of(kind: Kind, draw: np.random.Generator, rows: int) -> Answers:
    """Return labels [E]: classes, or values of variance 1 or so."""
    if kind.positives:
        return (draw.random(rows) < kind.positives).astype(np.int8)
    drawn = draw.normal(size=rows)
    if kind.labels == "0 to 5":
        return (np.clip(np.round(1.2 * drawn + 2.5), 0, 5) - 2.5) / 1.2
    if kind.labels == "like prices":
        return np.exp(drawn) / 2.16
    return drawn


def given_values(kind: Kind, labels: Answers, size: Floats | float, errors: Floats) -> Floats:
    """Return answers [..., E]. errors: [E], standard normal. Those of prices grow with them."""
    if kind.tails:
        errors = np.sinh(0.8 * errors) / 1.2
    if kind.labels == "like prices":
        errors = errors * np.abs(labels)
    return np.asarray(labels + size * errors)


def rates_at(kind: Kind, shift: float) -> tuple[float, float]:
    """Return recall and specificity so far below the full model's, on the probit scale."""
    recall, specificity = kind.full
    lower = float(ndtr(ndtri(recall) - shift))
    if kind.misses_alone:
        return lower, specificity
    return lower, float(ndtr(ndtri(specificity) - shift))


@functools.cache
def expectations(kind: Kind, rows: int) -> tuple[Floats, Floats, float]:
    """Return shifts, the quality to expect at each, and that of the best constant answer.

    A shift is taken from the probit of being right, or added to the logarithm of the errors' size.
    """
    draw = np.random.default_rng(5)
    if kind.positives:
        return _expected_of_classes(kind, rows, draw)
    sizes = np.linspace(-3.5, 3.5, 43)
    total = np.zeros(len(sizes))
    studies = max(60, FRESH // rows)
    for _ in range(studies):
        labels = labels_of(kind, draw, rows)
        given = given_values(kind, labels, np.exp(sizes)[:, None], draw.normal(size=rows))
        total += _correlations(kind.metric, given, labels)
    return sizes, total / studies, 0.0


def _expected_of_classes(
    kind: Kind, rows: int, draw: np.random.Generator
) -> tuple[Floats, Floats, float]:
    shifts = np.linspace(-0.6, 3.6, 43)
    positives = np.repeat(draw.binomial(rows, kind.positives, 400), 40)
    qualities = []
    for shift in shifts:
        recall, specificity = rates_at(kind, shift)
        fresh = np.random.default_rng(6)
        hits = fresh.binomial(positives, recall)
        rejected = fresh.binomial(rows - positives, specificity)
        qualities.append(_scores(kind.metric, hits, rejected, positives, rows).mean())
    share = positives / rows
    of_constant = {
        "accuracy": np.maximum(share, 1 - share),
        "f1": 2 * share / (1 + share),
        "f1_macro": np.maximum(share / (1 + share), (1 - share) / (2 - share)),
    }
    chance = float(of_constant.get(kind.metric, np.zeros(1)).mean())
    return shifts, np.asarray(qualities), chance


def _scores(metric: str, hits: Any, rejected: Any, positives: Any, rows: int) -> Floats:
    """Return scores by counts."""
    negatives = rows - positives
    missed, invented = positives - hits, negatives - rejected
    if metric == "accuracy":
        return np.asarray((hits + rejected) / rows)
    of_1 = 2 * hits / np.maximum(2 * hits + missed + invented, 1)
    if metric == "f1":
        return np.asarray(of_1)
    if metric == "f1_macro":
        return np.asarray((of_1 + 2 * rejected / (2 * rejected + missed + invented)) / 2)
    margins = (hits + invented) * positives * negatives * (rejected + missed)
    return np.asarray((hits * rejected - missed * invented) / np.sqrt(np.maximum(margins, 1e-9)))


def _correlations(metric: str, given: Floats, labels: Answers) -> Floats:
    """Return those of answers [N, E] with labels [E]."""
    if metric == "spearman":
        given, labels = rankdata(given, axis=1), rankdata(labels)
    given = given - given.mean(axis=1, keepdims=True)
    labels = labels - labels.mean()
    return np.asarray(given @ labels / np.sqrt((given**2).sum(axis=1) * (labels**2).sum()))


class Study:
    """One study: its rows, and the runs made on them."""

    def __init__(self, kind: Kind, rows: int, draw: np.random.Generator) -> None:
        self.kind, self.rows, self.draw = kind, rows, draw
        self.classes = 2 if kind.positives else 0
        self.kernel = kernel_of(kind.metric)
        labels = labels_of(kind, draw, rows)
        while np.ptp(labels) == 0:
            labels = labels_of(kind, draw, rows)
        self.labels = labels if kind.positives else labels.astype(np.float32)
        each_once = np.ones((1, rows))
        self.chance = float(self.kernel.chance(self.labels, self.classes, np.float64)(each_once)[0])
        shifts, qualities, chance = expectations(kind, rows)
        rising = np.argsort(qualities)

        def shift_of(quality: float) -> float:
            return float(np.interp(quality, qualities[rising], shifts[rising]))

        of_full = 0.0 if kind.positives else shift_of(kind.full[0])
        full = float(np.interp(of_full, shifts, qualities))
        self.shifts = {FULL_MODEL: of_full, DEPTH: shift_of(chance + TARGET * (full - chance))}
        self.difficulty = draw.normal(size=rows)
        # Each study's seeds spread more or less than the usual ones.
        of_seeds = SEEDS_OF_CLASSES if kind.positives else SEEDS_OF_VALUES
        self.spreads = {
            candidate: of_seeds * math.exp(0.35 * draw.normal()) for candidate in self.shifts
        }

    def luck(self) -> Luck:
        """Draw that of a depth and one of its rates."""
        return Luck(self.draw.normal(size=self.rows), self.draw.normal(size=self.rows))

    def run(self, candidate: FreezeDepth, luck: Luck) -> Answers:
        """Return the answers [E] of a fresh seed."""
        noise = self.draw.normal(0, self.spreads[candidate])
        own = self.draw.normal(size=self.rows)
        shift = self.shifts[candidate]
        if self.kind.positives:
            recall, specificity = rates_at(self.kind, shift)
            total = math.hypot(DIFFICULTY, OF_DEPTH, OF_RATE, OWN, self.spreads[candidate])
            level = np.where(self.labels == 1, ndtri(recall), ndtri(specificity)) * total + noise
            level += DIFFICULTY * self.difficulty + OF_DEPTH * luck.of_depth
            level += OF_RATE * luck.of_rate + OWN * own
            return np.where(level > 0, self.labels, 1 - self.labels).astype(np.int8)
        errors = math.sqrt(SHARED) * self.difficulty + math.sqrt(DEPTHS) * luck.of_depth
        errors += math.sqrt(RATES) * luck.of_rate + math.sqrt(1 - SHARED - DEPTHS - RATES) * own
        given = given_values(self.kind, self.labels, math.exp(shift + noise), errors)
        return given.astype(np.float32)

    def score(self, answered: Answers) -> float:
        return float(self.kernel.score(answered, self.labels, self.classes))

    def explored(self, candidate: FreezeDepth, tries: int) -> tuple[float, Luck]:
        """Return the score of the best of some exploring runs, each at a rate, and its luck."""
        of_depth = self.draw.normal(size=self.rows)
        found = []
        for _ in range(tries):
            luck = Luck(of_depth, self.draw.normal(size=self.rows))
            found.append((self.score(self.run(candidate, luck)), luck))
        return max(found, key=lambda one: one[0])

    def seen(self, full: list[Answers], depth: list[Answers]) -> Uncertainty:
        """Return what a look sees of these runs."""
        given: list[Predictions] = []
        runs: dict[FreezeDepth, CandidateRuns] = {}
        columns: dict[FreezeDepth, list[int]] = {}
        for candidate, answered in ((FULL_MODEL, full), (DEPTH, depth)):
            columns[candidate] = list(range(len(given), len(given) + len(answered)))
            for one in answered:
                given.append(Predictions(predictions=one, labels=self.labels, classes=self.classes))
            runs[candidate] = CandidateRuns(
                candidate=candidate,
                qualities=tuple(self.score(one) for one in answered),
                failed=(False,) * len(answered),
            )
        drawn = ExampleDraws.of(resample(given, self.kind.metric, RESAMPLES), columns)
        return Uncertainty(runs=runs, chance=self.chance, examples=drawn, policy=POLICY)


def contrast_of(
    seen: Uncertainty, level: float, as_if_seeds: tuple[int, int] | None = None
) -> Interval:
    """Return how far the depth lies above the target, corrected for chance, with this lower end."""
    ends = (level / 2, 1 - level / 2, level)
    found = seen.contrast(DEPTH, TARGET, corrected=True, as_if_seeds=as_if_seeds, ends=ends)
    assert found is not None
    return found


def promise(seen: Uncertainty, counts: tuple[SeedCounts, ...], level: float) -> float:
    """Return in which share of cases a second look certifies, as the first one sees it."""
    expected = contrast_of(seen, level, as_if_seeds=counts[1])
    now, then = (
        seen.spread(DEPTH, seeds).variance + TARGET**2 * seen.spread(FULL_MODEL, of_full).variance
        for seeds, of_full in counts
    )
    return NORMAL.cdf(expected.lower / math.sqrt(max(now - then, 1e-12)))


def certified_by_look(study: Study) -> tuple[bool, bool]:
    """Return whether the first look certifies the depth tested first, and whether any does."""
    of_full, luck_of_full = study.explored(FULL_MODEL, TRIES_OF_FULL)
    of_deep, luck = study.explored(DEPTH, TRIES_OF_DEPTH)
    full = [study.run(FULL_MODEL, luck_of_full) for _ in range(4)]
    depth = [study.run(DEPTH, luck) for _ in range(3)]
    seen = study.seen(full[:3], depth)
    # Where the first deep depth scores far above the target, the ladder is left out.
    enough = study.chance + TARGET * (of_full - study.chance)
    error = math.sqrt(seen.example_variance(FULL_MODEL) or 0.0) * math.hypot(1, TARGET)
    counts = POLICY.looks
    if of_deep - enough <= POLICY.clear * error:
        counts = POLICY.ladder_looks
        luck = study.luck()
        depth = [study.run(DEPTH, luck) for _ in range(3)]
        seen = study.seen(full[:3], depth)
    of_test = round(POLICY.test_error(3) - POLICY.ladder_error, 3)
    first, second = levels(counts, of_test, POLICY.first_look_share)
    if contrast_of(seen, first).lower > POLICY.rounding:
        return True, True
    if promise(seen, counts, second) < POLICY.no_promise:
        return False, False
    more = counts[1].depth - len(depth)
    depth += [study.run(DEPTH, luck) for _ in range(more)]
    seen = study.seen(full, depth)
    return False, contrast_of(seen, second).lower > POLICY.rounding


def main() -> None:
    """Judge all kinds; print and write how often each is certified."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    resampling.RESAMPLES = intervals.RESAMPLES = RESAMPLES
    # The same weights are drawn for every study: once is enough.
    weights = functools.cache(lambda *size: list(_poisson_weights(*size)))
    _poisson_weights = resampling._poisson_weights
    resampling._poisson_weights = weights
    found = []
    for number, (name, kind) in enumerate(KINDS.items()):
        if name not in options.kinds:
            continue
        for rows in ROWS:
            looks = []
            for seed in range(options.studies):
                draw = np.random.default_rng([number, rows, seed])
                looks.append(certified_by_look(Study(kind, rows, draw)))
            of_first, of_any = np.mean(looks, axis=0)
            found.append(
                {
                    "kind": name,
                    "rows": rows,
                    "falsely_certified_first": round(float(of_first), 4),
                    "falsely_certified": round(float(of_any), 4),
                }
            )
            print(found[-1], flush=True)
    note = f"share of {options.studies} studies whose looks certify a depth at the target {TARGET}"
    machine.write("looks_by_metric", found, note)


if __name__ == "__main__":
    main()
