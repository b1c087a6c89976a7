"""How far seeds spread at each depth, and whether equal seeds move together, in the laboratory.

    python bench/lab/seeds.py                 # MiniLM's
    python bench/lab/seeds.py --model mpnet

From the recorded trials (bench/lab/TASK.parquet), all run to their end. Of each task and depth the
rates count whose mean lies within two points of the best one's, where the depth learns at all; at
each of them the seeds' deviations from their mean are pooled. Tasks that learn at fewer than three
depths are left out. `spread`: their standard deviation, in points, with its degrees of freedom.
`ratio`: the full model's over the other depths' pooled one.
`prior_freedom`: over a task's depths, the degrees of freedom of the prior that their variances
would be moderated with (Smyth 2004, section 6.2; infinite where they differ less than by chance).
`correlation`: of the same seeds' deviations at the full model and at a depth, each at its best
rate, over all tasks. Writes bench/results/seed_spreads.json (of another model
seed_spreads_MODEL.json).
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import LAYERS, folder_of
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import machine

NEAR = 0.02
LEARNT = 0.02  # above a constant answer


def deviations(rows: pd.DataFrame) -> list[pd.Series]:
    """Of each rate that counts the seeds' deviations from its mean, by seed; the best rate first.

    rows: of one depth.
    """
    by_rate = [one.set_index("seed").quality for _, one in rows.groupby("learning_rate")]
    by_rate = sorted((one for one in by_rate if len(one) > 1), key=lambda one: -one.mean())
    if not by_rate or by_rate[0].mean() < rows.chance.iloc[0] + LEARNT:
        return []
    best = by_rate[0].mean()
    return [one - one.mean() for one in by_rate if one.mean() >= best - NEAR]


def prior_freedom(variances: dict[int, tuple[float, int]]) -> float | None:
    """Of a prior whose variances these could be; None for infinitely many."""
    freedom = np.array([one for _, one in variances.values()], float)
    logs = np.log([one for one, _ in variances.values()]) - digamma(freedom / 2)
    logs += np.log(freedom / 2)
    left = float(np.var(logs, ddof=1) - np.mean(polygamma(1, freedom / 2)))
    if left <= 0:
        return None
    return float(2 * brentq(lambda half: polygamma(1, half) - left, 1e-3, 1e6))


def main() -> None:
    """Every task's table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=list(LAYERS), default="minilm")
    model = parser.parse_args().model
    results: dict[str, Any] = {}
    together: dict[int, list[tuple[float, float]]] = {}
    for file in sorted(folder_of(model).glob("*.parquet")):
        rows = pd.read_parquet(file)
        rows = rows[(rows.evaluation == rows.evaluations) & (rows.status == "completed")]
        found = {int(n): deviations(one) for n, one in rows.groupby("frozen_layers")}
        variances = {}
        for depth, rates in found.items():
            freedom = sum(len(one) - 1 for one in rates)
            if freedom:
                variances[depth] = sum(float((one**2).sum()) for one in rates) / freedom, freedom
        if len(variances) < 3:
            print(file.stem, "learns at too few depths")
            continue
        others = [one for depth, one in variances.items() if depth]
        pooled = sum(v * f for v, f in others) / sum(f for _, f in others)
        freedom = prior_freedom(variances)
        results[file.stem] = {
            "spread": {
                depth: [round(100 * math.sqrt(variance), 2), freedom]
                for depth, (variance, freedom) in variances.items()
            },
            "ratio": round(math.sqrt(variances[0][0] / pooled), 2) if 0 in variances else None,
            "prior_freedom": None if freedom is None else round(freedom, 1),
        }
        for depth, rates in found.items():
            if depth and rates and found[0]:
                full, here = found[0][0].align(rates[0], join="inner")
                scale = math.sqrt(variances[0][0] * variances[depth][0])
                together.setdefault(depth, []).extend(zip(full, here / scale, strict=True))
        print(file.stem, results[file.stem], flush=True)
    correlations = {}
    for depth, pairs in sorted(together.items()):
        full, here = np.array(pairs).T
        correlations[depth] = [round(float(np.corrcoef(full, here)[0, 1]), 2), len(pairs)]
    print(correlations)
    results = {"tasks": results, "correlation_with_full_model": correlations}
    note = "spreads in points with degrees of freedom; correlations with the number of pairs"
    name = "seed_spreads" if model == "minilm" else f"seed_spreads_{model}"
    print(machine.write(name, results, note))


if __name__ == "__main__":
    main()
