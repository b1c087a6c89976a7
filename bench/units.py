"""How often certificates are false where evaluation rows are not independent of one another.

    python bench/units.py [--studies 1000]

The studies of calibration.py's family `boundary` (one depth misses the target by nothing, shallower
ones are beyond doubt), whose evaluation rows are `repeated` (each text as often as `size` says, and
each run answers all of its copies alike), come in `documents` of that size, whose sentences share a
part of their difficulty, of how depths see them, and of a seed's luck, or in `topics`, which share
all of the former two and nothing of a seed's luck. Each study is judged by
rows, as if each were independent; by units; and, where these are few, by units as the bootstrap has
them, without what few of them are widened for (`plain`). Shares of studies in which something is
certified, and in which something of the claim or of the raw score is certified falsely. Of few
units it is what would be certified if the policy's `fewest_units` did not forbid it.

The second table is about what a run's seed flips: how much a run's accuracy spreads because seeds
answer single examples differently, as it is (`spread`), and as 5 seeds' predictions tell by rows
and by units (`ExampleDraws.flips`): standard deviations in points.

Writes bench/results/units.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from unittest import mock

import calibration
import machine
import numpy as np
from calibration import DEPTHS, DIFFICULTY, LAYERS, OF_DEPTH, OWN, TARGET, Floats, Truth
from numpy.typing import NDArray
from scipy.special import ndtri

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.statistics import resampling
from elsa_tune.analysis.statistics.resampling import ExampleDraws, resample
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

# What rows are alike, how many rows a unit has, and how many rows there are.
CELLS = (
    ("independent", 1, 1000),
    ("repeated", 3, 1000),
    ("repeated", 5, 1000),
    ("repeated", 5, 5463),
    ("documents", 5, 1000),
    ("topics", 5, 1000),
    ("topics", 10, 1000),
    ("topics", 20, 1000),
    ("topics", 33, 1000),
    ("topics", 50, 1000),
)
SEEDS = 5
# Units from so many rows on are few here: they are judged without widening, too.
MANY_ROWS = 33
# The part of variance that the rows of a document share.
SHARED = 0.8


class Rows:
    """The evaluation rows of one study, and what depths and seeds find hard of them."""

    def __init__(self, kind: str, size: int, count: int, rng: np.random.Generator) -> None:
        self.kind = kind
        self.rng = rng
        self.units = (np.arange(count) // size).astype(np.int32)

    def normal(self, scale: float) -> Floats:
        """Draw a value for each row: the same for copies, in part for those of a document."""
        by_unit = self.rng.normal(0, scale, int(self.units.max()) + 1)[self.units]
        if self.kind in ("repeated", "topics"):
            return by_unit
        own = self.rng.normal(0, scale, len(self.units))
        if self.kind == "independent":
            return own
        return np.sqrt(SHARED) * by_unit + np.sqrt(1 - SHARED) * own

    def luck(self, scale: float) -> Floats:
        """Draw what a seed's noise adds to each row."""
        if self.kind == "topics":
            return self.rng.normal(0, scale, len(self.units))
        return self.normal(scale)

    def labels(self, prevalence: float) -> NDArray[np.int8]:
        """Draw a label for each row, the same for copies."""
        drawn = self.rng.random(len(self.units)) >= prevalence
        if self.kind == "repeated":
            drawn = drawn[self.units * int(np.bincount(self.units)[0])]
        return drawn.astype(np.int8)


def study(kind: str, size: int, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Measure, and answer by rows, by units, and by units without widening."""
    truth = calibration.draw_truth("boundary", rng, "accuracy")
    rows = Rows(kind, size, count, rng)
    labels = rows.labels(truth.prevalence)
    difficulty = rows.normal(DIFFICULTY)
    chance = float(max(labels.mean(), 1 - labels.mean()))
    results: list[ResultRow] = []
    answers: dict[str, Predictions] = {}
    expected: dict[int, float] = {}
    for number, frozen in enumerate(DEPTHS):
        rate = int(np.argmax(truth.accuracies[number]))
        expected[frozen] = truth.expected(number, rate)
        of_depth = rows.normal(OF_DEPTH)
        for seed in range(1, SEEDS + 1):
            right = _right(truth, number, rate, rows, difficulty + of_depth)
            predictions = np.where(right, labels, 1 - labels).astype(np.int8)
            name = f"{frozen}-{seed}"
            answers[name] = Predictions(
                predictions=predictions, labels=labels, classes=2, units=rows.units
            )
            results.append(_row(name, frozen, seed, float(right.mean()), chance))
    by_rows = {name: dataclasses.replace(kept, units=None) for name, kept in answers.items()}
    found = {"rows": _verdict(results, by_rows, expected, truth.chance)}
    if kind != "independent":
        found["units"] = _verdict(results, answers, expected, truth.chance)
    if size >= MANY_ROWS:
        with mock.patch.object(resampling, "_stretch", lambda resampled: 1.0):
            found["plain"] = _verdict(results, answers, expected, truth.chance)
    return found


def _right(truth: Truth, depth: int, rate: int, rows: Rows, seen: Floats) -> NDArray[np.bool_]:
    """Return which rows a seed of a depth gets right. seen: how hard its depth finds each."""
    of_seed = truth.of_seed[depth]
    total = np.sqrt(OWN + DIFFICULTY**2 + OF_DEPTH**2 + of_seed**2)
    level = ndtri(truth.accuracies[depth, rate]) * total + rows.rng.normal(0, of_seed)
    return np.asarray(level + seen + rows.luck(np.sqrt(OWN)) > 0)


def _row(name: str, frozen: int, seed: int, quality: float, chance: float) -> ResultRow:
    return ResultRow(
        model="synthetic",
        task="synthetic",
        layers=LAYERS,
        candidate=FreezeDepth.of(frozen),
        quality=quality,
        status=TrialStatus.COMPLETED,
        phase=Phase.MEASURE,
        metric="accuracy",
        chance=chance,
        seed=seed,
        trial=name,
        predictions=name,
    )


def _verdict(
    rows: list[ResultRow],
    answers: dict[str, Predictions],
    expected: dict[int, float],
    chance: float,
) -> dict[str, Any]:
    with mock.patch.object(FreezeCurve, "has_too_few_units", False):
        [answer] = answer_rows(rows, TARGET, evidence=calibration._Kept(answers))
    return calibration.verdict(answer, expected, chance)


def claims_of(kind: str, size: int, count: int, studies: int) -> dict[str, Any]:
    """Judge all studies of one kind of rows."""
    rng = np.random.default_rng([len(kind), size, count])
    found = [study(kind, size, count, rng) for _ in range(studies)]
    shares: dict[str, Any] = {"kind": kind, "size": size, "rows": count}
    for judged in found[0]:
        for claim in ("any_certified_false", "certified", "near"):
            values = [one[judged][claim] for one in found if one[judged][claim] is not None]
            shares[f"{judged}_{claim}"] = float(np.mean(values))
    return shares


def flips(kind: str, size: int, count: int, studies: int) -> dict[str, Any]:
    """Compare what seeds flip with what 5 seeds' predictions say of it."""
    rng = np.random.default_rng([7, len(kind), size, count])
    frozen = FreezeDepth.of(0)
    variances: dict[str, list[float]] = {"spread": [], "rows": [], "units": []}
    for _ in range(studies):
        truth = calibration.draw_truth("boundary", rng, "accuracy")
        truth.of_seed[:] = 0
        rows = Rows(kind, size, count, rng)
        labels = rows.labels(truth.prevalence)
        seen = rows.normal(DIFFICULTY) + rows.normal(OF_DEPTH)
        qualities: list[float] = []
        runs: list[Predictions] = []
        for _ in range(100):
            right = _right(truth, 0, 0, rows, seen)
            qualities.append(float(right.mean()))
            if len(runs) < SEEDS:
                predictions = np.where(right, labels, 1 - labels).astype(np.int8)
                run = Predictions(
                    predictions=predictions, labels=labels, classes=2, units=rows.units
                )
                runs.append(run)
        variances["spread"].append(float(np.var(qualities, ddof=1)))
        by_rows = [dataclasses.replace(run, units=None) for run in runs]
        for name, judged in (("rows", by_rows), ("units", runs)):
            draws = ExampleDraws.of(resample(judged, "accuracy"), {frozen: range(SEEDS)})
            variances[name].append(draws.flips[frozen])
    table: dict[str, Any] = {"kind": kind, "size": size, "rows": count}
    for name, values in variances.items():
        table[f"{name}_points"] = round(100 * float(np.sqrt(np.mean(values))), 3)
    return table


def main() -> None:
    """Run every cell, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--kinds", nargs="+", default=[kind for kind, _, _ in CELLS])
    parser.add_argument("--name", default="units")
    options = parser.parse_args()
    calibration._fewer_draws(options.draws)
    claims: list[dict[str, Any]] = []
    flipped: list[dict[str, Any]] = []
    cells = [one for one in CELLS if one[0] in options.kinds]
    by_cell = [(*one, options.studies) for one in cells]
    start = functools.partial(calibration._fewer_draws, options.draws)
    with ProcessPoolExecutor(2, initializer=start) as pool:
        for found in pool.map(claims_of, *zip(*by_cell, strict=True)):
            claims.append(found)
            print(json.dumps(found), flush=True)
    for kind, size, count in cells:
        if count == 1000:
            flipped.append(flips(kind, size, count, options.studies // 10))
            print(json.dumps(flipped[-1]), flush=True)
    note = (
        f"{options.studies} synthetic studies a cell, of the family `boundary`, {SEEDS} seeds; "
        f"shares of studies, false claims over all of them; target {TARGET}; "
        f"documents share {SHARED} of the variance"
    )
    print(machine.write(options.name, {"claims": claims, "flips": flipped}, note))


if __name__ == "__main__":
    main()
