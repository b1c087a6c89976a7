"""What few seeds beside many evaluation rows are said to show, where nothing is there to be found.

    python bench/few_seeds.py                    # today's code; ten minutes
    python bench/few_seeds.py --called before    # an older one, found by PYTHONPATH

- `differ`: tables of ways (accuracies, no predictions) that are all equally good. The full model's
  seeds spread by a quarter of a point, others' `times` as much. The share of studies in which
  `Differ?` says of some way that it differs from the full model.
- `far`: two ways of one expected correlation, by predictions. One errs alike on all rows, the other
  on the few whose labels are far from the others (bench/far_labels.py). The same share.
- `learnt`: a full model whose seeds score as guessing does on average. Rows move their mean
  `by_rows` as far as seeds do. The share of draws in which it is said to have learnt.

At most 5 % should. Writes bench/results/few_seeds.json.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import calibration
import far_labels
import machine
import numpy as np

from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.ways import way_curves
from elsa_tune.analysis.statistics.intervals import Spread
from elsa_tune.analysis.statistics.learning import Learnt, learnt
from elsa_tune.analysis.statistics.resampling import score
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

RESULT = machine.RESULTS / "few_seeds.json"
LAYERS = 12
ACCURACY, GUESSING = 0.85, 0.5
OF_FULL = 0.0025  # what the full model's seeds spread by
# Shares of the variance p(1-p)/E of an accuracy: what is a way's own of how it sees the rows, and
# what a run's answers flip. The rest is the same for all ways.
OF_WAY, OF_RUN = 0.175, 0.2
# Ways, seeds, rows, and by how much the others' seeds spread more than the full model's.
TABLES = (
    *((2, 2, 40_000, 4), (6, 2, 10_000, 4), (12, 2, 40_000, 4)),
    *((6, 2, 40_000, 1), (2, 3, 40_000, 4), (12, 3, 40_000, 4), (6, 5, 40_000, 4)),
)
FAR = (("pearson", "like prices", 100), ("pearson", "like prices", 1000))
# Seeds, and what rows move in what seeds move their mean by.
LEARNING = ((2, 0.3), (3, 0.3), (5, 0.5), (10, 1.0))
DRAWS = 40_000


def row(way: int, seed: int, quality: float, examples: int, **more: Any) -> ResultRow:
    """Return a measuring row of one way."""
    return ResultRow(
        model="m",
        task="t",
        layers=LAYERS,
        candidate=FreezeDepth.of(way),
        quality=quality,
        status=TrialStatus.COMPLETED,
        phase=Phase.MEASURE,
        selection="last",
        learning_rate=1e-4,
        seed=seed,
        examples=examples,
        train_seconds=10.0 - way / 2,
        **more,
    )


def differs(rows: list[ResultRow], kept: dict[str, Predictions]) -> bool:
    """Return whether some way is said to differ from the full model."""
    [curve] = way_curves(rows, calibration._Kept(kept) if kept else None)
    found = compare_ways(curve).differences
    return found is not None and bool(found.above_full or found.below_full)


def table(setting: tuple[int, int, int, int], rng: np.random.Generator) -> bool:
    """Draw a table of ways that are equally good."""
    ways, seeds, examples, times = setting
    variance = ACCURACY * (1 - ACCURACY) / examples
    common = rng.normal(0, math.sqrt((1 - OF_WAY - OF_RUN) * variance))
    rows: list[ResultRow] = []
    for way in range(ways):
        own = rng.normal(0, math.sqrt(OF_WAY * variance))
        spread = OF_FULL * (times if way else 1)
        for seed in range(1, seeds + 1):
            moved = rng.normal(0, math.sqrt(OF_RUN * variance)) + rng.normal(0, spread)
            right = round((ACCURACY + common + own + moved) * examples)
            rows.append(
                row(way, seed, right / examples, examples, metric="accuracy", chance=GUESSING)
            )
    return differs(rows, {})


def far(case: far_labels.Case, studies: int) -> float:
    """Return the share of studies in which two ways of one expected correlation differ."""
    scale = far_labels.SCALES[case.labels]
    worse = far_labels.error_that_keeps(case)
    many = far_labels.drawn_for(case, 300_000 // case.rows, 98)
    _, odd = far_labels.answers(case, many, worse)
    wanted = far_labels.correlations(case, odd, many.labels).mean()
    low, high = 0.0, 40.0
    for _ in range(14):
        middle = (low + high) / 2
        even = many.labels + middle * scale * many.of_depth
        if far_labels.correlations(case, even, many.labels).mean() > wanted:
            low = middle
        else:
            high = middle
    drawn = far_labels.drawn_for(case, studies, 5)
    _, odd = far_labels.answers(case, drawn, worse)
    even = drawn.labels + low * scale * drawn.of_depth
    rng = np.random.default_rng(1)
    found = 0
    for study in range(studies):
        labels = drawn.labels[study].astype(np.float32)
        rows: list[ResultRow] = []
        kept: dict[str, Predictions] = {}
        for way, answered in ((0, even[study]), (6, odd[study])):
            for seed in range(1, 4):
                moved = answered + 1e-3 * scale * rng.normal(size=case.rows)
                name = f"{way}-{seed}"
                kept[name] = Predictions(
                    predictions=moved.astype(np.float32), labels=labels, classes=0
                )
                quality = score(kept[name], case.metric)
                more = {"metric": case.metric, "chance": 0.0, "trial": name, "predictions": name}
                rows.append(row(way, seed, quality, case.rows, **more))
        found += differs(rows, kept)
    return found / studies


def falsely_learnt(seeds: int, by_rows: float, rng: np.random.Generator) -> float:
    """Return the share of draws in which a full model at chance is said to have learnt."""
    of_rows = 0.01 * by_rows / math.sqrt(seeds)
    policy = Policy()
    found = 0
    for _ in range(DRAWS):
        scores = GUESSING + rng.normal(0, of_rows) + rng.normal(0, 0.01, seeds)
        spread = Spread(variance=float(scores.var(ddof=1)) / seeds, freedom=seeds - 1)
        verdict = learnt(
            float(scores.mean()),
            chance=GUESSING,
            spread=spread,
            example_variance=of_rows**2,
            policy=policy,
        )
        found += verdict is Learnt.YES
    return found / DRAWS


def main() -> None:
    """Run every cell, and write it beside what was found under other names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--studies", type=int, default=400)
    parser.add_argument("--called", default="now")
    options = parser.parse_args()
    calibration._fewer_draws(1000)
    results = json.loads(RESULT.read_text())["results"] if RESULT.exists() else {}
    found: dict[str, float] = {}
    for seeds, by_rows in LEARNING:
        share = falsely_learnt(seeds, by_rows, np.random.default_rng(seeds))
        found[f"learnt: {seeds} seeds, by_rows {by_rows}"] = round(share, 4)
        print(list(found.items())[-1], flush=True)
    for setting in TABLES:
        rng = np.random.default_rng(setting)
        share = sum(table(setting, rng) for _ in range(options.studies)) / options.studies
        ways, seeds, examples, times = setting
        found[f"differ: {ways} ways, {seeds} seeds, {examples} rows, times {times}"] = share
        print(list(found.items())[-1], flush=True)
    for case in far_labels.CASES:
        if case.keeps == far_labels.TARGET and (case.metric, case.labels, case.rows) in FAR:
            share = far(case, options.studies // 2)
            found[f"far: {case.metric}, {case.labels}, {case.errors}, {case.rows} rows"] = share
            print(list(found.items())[-1], flush=True)
    results[options.called] = found
    note = (
        f"shares of {options.studies} studies a cell, half of it for `far`, {DRAWS:,} draws for "
        "`learnt`; 5 % are allowed"
    )
    print(machine.write("few_seeds", results, note))


if __name__ == "__main__":
    main()
