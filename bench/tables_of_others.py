"""What other tools' tables leave out, and how often answers are wrong by it.

    python bench/tables_of_others.py    # two minutes

- `stopped`: a table of depth x seed at one learning rate, of which a scheduler stopped the half
  that scored worst in the middle of training. A depth lies exactly at the target. The share of
  studies in which it is certified: with the rows of the stopped runs, and without them, as if they
  had never been.
- `means`: equally good ways in F1, each a mean of some runs with its standard deviation. The share
  of tables in which `Differ?` says of some way that it differs from the full model: printed with
  one decimal of a percentage, and with four.

At most 5 % should. Writes bench/results/tables_of_others.json.
"""

from __future__ import annotations

from typing import Any

import machine
import numpy as np
from numpy.random import Generator

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.ways import way_curves
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

LAYERS, GUESSING = 12, 0.5
DEPTH = FreezeDepth.of(6)
FULL_ACCURACY = 0.9
# Shares of the variance p(1-p)/E of an accuracy: what all ways share, what is a way's own, and what
# a run's answers flip.
SHARED, OF_WAY, OF_RUN = 0.45, 0.175, 0.2
SPREAD = 0.03  # of a depth's seeds
CORRELATION = 0.8  # of a run's score in the middle with the one at its end
STUDIES = 200
# Seeds, evaluation rows, target.
STOPPED = ((20, 5000, 0.9), (20, 1000, 0.9), (10, 5000, 0.9), (10, 5000, 0.95))
# Runs, their spread in points, ways.
MEANS = ((10, 0.10, 2), (20, 0.10, 2), (20, 0.06, 6), (30, 0.08, 6))


def row(candidate: FreezeDepth, quality: float, **more: Any) -> ResultRow:
    """Return a row of a table that names no phases."""
    return ResultRow(
        model="m",
        task="t",
        layers=LAYERS,
        candidate=candidate,
        quality=quality,
        learning_rate=5e-5,
        chance=GUESSING,
        **{"status": TrialStatus.COMPLETED, "phase": Phase.MEASURE, **more},
    )


def stopped_table(random: Generator, seeds: int, examples: int, target: float) -> list[ResultRow]:
    """Return the runs of the full model and of a depth at the target, the lower half stopped."""
    row_variance = FULL_ACCURACY * (1 - FULL_ACCURACY) / examples
    shared = random.normal(0, np.sqrt(SHARED * row_variance))
    runs: list[tuple[FreezeDepth, int, float, float]] = []
    at_target = GUESSING + target * (FULL_ACCURACY - GUESSING)
    for candidate, mean in ((FULL_MODEL, FULL_ACCURACY), (DEPTH, at_target)):
        own = random.normal(0, np.sqrt(OF_WAY * row_variance))
        of_seeds = random.normal(0, SPREAD, seeds)
        flips = random.normal(0, np.sqrt(OF_RUN * row_variance), seeds)
        ends = np.clip(mean + shared + own + of_seeds + flips, 0, 1)
        others = np.sqrt(1 - CORRELATION**2) * random.normal(0, SPREAD, seeds)
        middles = mean + CORRELATION * of_seeds + others
        for seed, (end, middle) in enumerate(zip(ends, middles, strict=True)):
            rounded = round(end * examples) / examples
            runs.append((candidate, seed, rounded, float(middle)))
    cut = np.median([middle for *_, middle in runs])
    rows: list[ResultRow] = []
    for candidate, seed, end, middle in runs:
        common = {"seed": seed, "metric": "accuracy", "examples": examples}
        if middle < cut:
            common["status"] = TrialStatus.STOPPED_EARLY
        rows.append(row(candidate, middle if middle < cut else end, **common))
    return rows


def is_certified(rows: list[ResultRow], target: float) -> bool:
    """Whether the depth at the target is certified."""
    [answer] = answer_rows(rows, target)
    certified = answer.corrected_certified
    return certified is not None and certified.candidate == DEPTH


def stopped() -> list[dict[str, Any]]:
    """Return how often a depth at the target is certified beside stopped runs, and without."""
    results = []
    for seeds, examples, target in STOPPED:
        random = np.random.default_rng(7)
        beside = without = 0
        for _ in range(STUDIES):
            rows = stopped_table(random, seeds, examples, target)
            ended = [one for one in rows if one.status is TrialStatus.COMPLETED]
            beside += is_certified(rows, target)
            without += is_certified(ended, target)
        results.append(
            {
                "seeds": seeds,
                "rows": examples,
                "target": target,
                "falsely_certified": beside / STUDIES,
                "falsely_certified_without_the_stopped": without / STUDIES,
            }
        )
        print(results[-1], flush=True)
    return results


def differs(random: Generator, runs: int, spread: float, ways: int, decimals: int) -> bool:
    """Whether `Differ?` tells some of equally good ways from the full model."""
    mean = 0.85 + random.uniform(0, 0.001)
    rows = []
    for frozen in range(ways):
        qualities = mean + random.normal(0, spread / 100, runs)
        printed = {"std": round(float(qualities.std(ddof=1)), decimals), "runs": runs}
        quality = round(float(qualities.mean()), decimals)
        rows.append(row(FreezeDepth.of(frozen), quality, metric="f1", seed=None, **printed))
    [curve] = way_curves(rows, None)
    found = compare_ways(curve).differences
    return found is not None and bool(found.above_full or found.below_full)


def means() -> list[dict[str, Any]]:
    """Return how often equally good ways are said to differ, by what is printed of them."""
    results = []
    for runs, spread, ways in MEANS:
        found: dict[str, Any] = {"runs": runs, "spread": spread, "ways": ways}
        for name, decimals in (("one_decimal", 3), ("four_decimals", 6)):
            random = np.random.default_rng(1)
            said = sum(differs(random, runs, spread, ways, decimals) for _ in range(STUDIES))
            found[name] = said / STUDIES
        results.append(found)
        print(found, flush=True)
    return results


def main() -> None:
    """Simulate both."""
    results = {"stopped": stopped(), "means": means()}
    print(machine.write("tables_of_others", results, f"shares of {STUDIES} studies a line"))


if __name__ == "__main__":
    main()
