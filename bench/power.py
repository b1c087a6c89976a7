"""Whether `--dry-run` estimates rightly what will be certified: predicted against simulated.

    python bench/power.py --data-dir ../shared/glue [--studies 500]

A study has the full model and one depth that truly lies a margin above the target, each with its
planned seeds and predictions on the same drawn examples, and is answered as a search is. Of two
worlds `laboratory` is as `analysis/power.py` assumes, `calibration` as bench/calibration.py has it,
where seeds of one depth differ on more examples, and depths on fewer. Writes
bench/results/power.json: the shares of studies in which the depth is certified beside those that
are estimated, and under `constants` what PAIRED_SHARE and FLIPPED_SHARE are on the laboratory's
tables, for each depth that lies within 6 points above the target. Where guessing is right nine
times out of ten, mistakes are few: there the claim is that the depth keeps the target of the gain.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import calibration
import machine
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.evidence import levels
from elsa_tune.analysis.power import FLIPPED_SHARE, PAIRED_SHARE, PlannedTest, Power
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.policy import Policy, SeedCounts
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.search import Looks
from elsa_tune.specs.trial import Phase, TrialStatus

TARGET = 0.9
FULL = 0.75
ROWS = (71, 277, 1000, 5463)
MARGINS = (0.015, 0.03, 0.05)
Counts = tuple[SeedCounts, ...]  # of each planned look

EVEN: Counts = (SeedCounts(3, 3),)
# An even search with fewer and with more seeds, and a hunt that takes every look.
OTHER_PLANS: tuple[Counts, ...] = ((SeedCounts(2, 2),), (SeedCounts(5, 5),), Policy().looks)
# Where mistakes are few.
GOOD_GUESS = 0.9
ROWS_OF_GOOD_GUESS = (100, 200, 400, 800)
LAYERS = 12
FROZEN = 8
DRAWS = 1000
ACCURACY_TASKS = ("sst2", "stdlib", "mrpc", "cola")
# Depths that lie further above the target are certified in any case, and those below it never.
NEAR = 0.06

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """How examples and runs differ, on the probit scale."""

    name: str
    difficulty: float  # of examples, the same for all depths
    of_depth: float  # how differently depths see them
    of_seed: float  # how seeds differ on all examples
    own: float = 1.0  # what a run's noise adds, per example

    @property
    def total(self) -> float:
        squares = self.difficulty**2 + self.of_depth**2 + self.of_seed**2 + self.own**2
        return math.sqrt(squares)


# The laboratory's was found by `shares_of`: its shares are those that are assumed, and its seeds
# spread by a point.
WORLDS = (
    World("laboratory", difficulty=4.4, of_depth=1.55, of_seed=0.15),
    World(
        "calibration",
        difficulty=calibration.DIFFICULTY,
        of_depth=calibration.OF_DEPTH,
        of_seed=calibration.OF_SEED,
    ),
)


def shares_of(world: World, margin: float = 0.03, examples: int = 400_000) -> dict[str, float]:
    """Return the assumed shares, and the spread of seeds in points, as a world has them."""
    generator = np.random.default_rng(0)
    difficulty = generator.normal(0, world.difficulty, examples)
    quality = TARGET * FULL + margin
    right: list[Floats] = []
    for accuracy in (FULL, quality):
        seen = difficulty + generator.normal(0, world.of_depth, examples)
        right.append(ndtr((ndtri(accuracy) * world.total + seen) / world.own))
    full, depth = right
    of_one_example = FULL * (1 - FULL)
    slope = math.exp(-(ndtri(FULL) ** 2) / 2) / math.sqrt(2 * math.pi) / world.total
    return {
        "paired_share": float(np.var(depth - TARGET * full)) / of_one_example,
        "flipped_share": float(np.mean(full * (1 - full))) / of_one_example,
        "points_of_seeds": 100 * world.of_seed * slope,
    }


def is_certified(
    world: World,
    rows: int,
    margin: float,
    counts: Counts,
    generator: np.random.Generator,
    guessing: float,
) -> bool:
    """Whether one study certifies its depth: of the gain with GOOD_GUESS, else of the score."""
    full_quality = (1 + guessing) / 2
    of_gain = guessing == GOOD_GUESS
    enough = TARGET * full_quality
    if of_gain:
        enough = guessing + TARGET * (full_quality - guessing)
    labels = (generator.random(rows) >= guessing).astype(np.int8)
    difficulty = generator.normal(0, world.difficulty, rows)
    looks = Looks(after=0, first_seed=1, counts=counts, error=error_of(counts))
    seeds, full_seeds = counts[-1]
    kept: dict[str, Predictions] = {}
    measured: list[ResultRow] = []
    depths = ((0, full_quality, full_seeds), (FROZEN, enough + margin, seeds))
    for frozen, accuracy, count in depths:
        seen = difficulty + generator.normal(0, world.of_depth, rows)
        for seed in range(1, count + 1):
            level = ndtri(accuracy) * world.total + generator.normal(0, world.of_seed)
            right = level + seen + generator.normal(0, world.own, rows) > 0
            name = f"{frozen}-{seed}"
            kept[name] = Predictions(
                predictions=np.where(right, labels, 1 - labels).astype(np.int8),
                labels=labels,
                classes=2,
            )
            measured.append(
                ResultRow(
                    model="synthetic",
                    task="synthetic",
                    layers=LAYERS,
                    candidate=FreezeDepth.of(frozen),
                    quality=float(right.mean()),
                    status=TrialStatus.COMPLETED,
                    phase=Phase.MEASURE,
                    metric="accuracy",
                    chance=max(float(labels.mean()), 1 - float(labels.mean())),
                    search="synthetic",
                    seed=seed,
                    looks=looks,
                    trial=name,
                    examples=rows,
                    predictions=name,
                )
            )
    [answer] = answer_rows(measured, TARGET, evidence=calibration._Kept(kept))
    certified = answer.corrected_certified if of_gain else answer.certified
    return certified is not None and not certified.candidate.is_reference


def error_of(counts: Counts) -> float:
    """Return the error that a search plans for tests of so many seeds."""
    return Policy().test_error(min(min(look) for look in counts))


def cell(
    world: World,
    rows: int,
    margin: float,
    counts: Counts,
    studies: int,
    guessing: float = 2 * FULL - 1,
) -> dict[str, Any]:
    """Return what is predicted and what is simulated for a world, rows, margin and looks."""
    policy = Policy()
    by_look = levels(counts, error_of(counts), policy.first_look_share)
    tests = []
    for (seeds, full_seeds), level in zip(counts, by_look, strict=True):
        tests.append(PlannedTest(seeds=seeds, full_seeds=full_seeds, level=level))
    power = Power(
        guessing=guessing,
        target=TARGET,
        tests=tuple(tests),
        seed_spread=policy.seed_spread,
    )
    generator = np.random.default_rng([rows, round(1000 * margin), *counts[-1]])
    certified = 0
    for _ in range(studies):
        certified += is_certified(world, rows, margin, counts, generator, guessing)
    return {
        "world": world.name,
        "guessing": guessing,
        "rows": rows,
        "points_above": 100 * margin,
        "looks": counts,
        "predicted": round(power.share_certified(rows, margin), 3),
        "simulated": round(certified / studies, 3),
    }


def constants_of(name: str, data_dir: str) -> list[dict[str, Any]]:
    """Return what examples bring into contrasts of a laboratory task near the target."""
    sys.path.insert(0, str(Path(__file__).parent / "lab"))
    import curves

    table = pd.read_parquet(curves.FOLDER / f"{name}.parquet")
    task = curves.read_task(name, table, data_dir)
    right: dict[int, Floats] = {}  # by frozen layers, [S, E]
    for frozen, choice in curves.choices(task.trials, "fair", "quality").items():
        answered = []
        for trial in task.measuring(frozen, choice.learning_rate):
            if trial.quality is not None:
                answered.append(task.predictions(trial).predictions == task.labels)
        if len(answered) > 1:
            right[frozen] = np.asarray(answered, dtype=float)
    full = right.pop(0)
    quality = float(full.mean())
    of_full = float(full.var(axis=0, ddof=1).mean())
    found = []
    for frozen, of_depth in right.items():
        above = float(of_depth.mean()) - TARGET * quality
        if not 0 <= above <= NEAR:
            continue
        flipped = float(of_depth.var(axis=0, ddof=1).mean())
        paired = float((of_depth.mean(axis=0) - TARGET * full.mean(axis=0)).var(ddof=1))
        paired -= flipped / len(of_depth) + TARGET**2 * of_full / len(full)
        of_one_example = quality * (1 - quality)
        found.append(
            {
                "task": name,
                "frozen_layers": frozen,
                "points_above": round(100 * above, 1),
                "paired_share": round(paired / of_one_example, 3),
                "flipped_share": round((flipped + of_full) / 2 / of_one_example, 3),
            }
        )
    return found


def main() -> None:
    """Run every cell and measure the constants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--data-dir", default="../shared/glue")
    options = parser.parse_args()
    constants: list[dict[str, Any]] = []
    for name in ACCURACY_TASKS:
        constants += constants_of(name, options.data_dir)
    calibration._fewer_draws(DRAWS)
    cells = []
    for world in WORLDS:
        for rows in ROWS:
            for margin in MARGINS:
                cells.append(cell(world, rows, margin, EVEN, options.studies))
                print(cells[-1], flush=True)
    for counts in OTHER_PLANS:
        for rows in ROWS:
            cells.append(cell(WORLDS[0], rows, 0.03, counts, options.studies))
            print(cells[-1], flush=True)
    for rows in ROWS_OF_GOOD_GUESS:
        cells.append(cell(WORLDS[0], rows, 0.03, EVEN, options.studies, GOOD_GUESS))
        print(cells[-1], flush=True)
    results = {
        "assumed": {"paired_share": PAIRED_SHARE, "flipped_share": FLIPPED_SHARE},
        "constants": constants,
        "worlds": {world.name: shares_of(world) for world in WORLDS},
        "cells": cells,
    }
    note = (
        f"{options.studies} synthetic studies a cell; shares certified of a depth that truly lies "
        f"so far above the target; target {TARGET}, full model halfway between guessing and 1"
    )
    print(machine.write("power", results, note))


if __name__ == "__main__":
    main()
