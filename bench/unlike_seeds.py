"""How often Welch's test certifies falsely where two depths have unlike numbers of seeds.

    python bench/unlike_seeds.py        # two minutes

Only tables of results have such depths and one test: a search plans as many seeds for each, and a
hunt's looks are simulated by bench/certificate.py. A depth lies exactly at 90 % of the full model,
runs scatter normally and seeds alone decide, as with many evaluation rows or with seeds that spread
by more than a point. Tested is at `Policy.test_error`, as a table is. Writes
bench/results/unlike_seeds.json: by the seeds of the depth and of the full model the share of
studies that certify it, in %, where both spread alike and where the worst of the ratios does.
"""

from __future__ import annotations

import machine
import numpy as np
from scipy import stats

from elsa_tune.analysis.answer import DEFAULT_TARGET
from elsa_tune.specs.policy import Policy

PAIRS = ((2, 2), (2, 3), (2, 5), (2, 10), (2, 20), (3, 3), (3, 5), (3, 10), (3, 20), (5, 20))
RATIOS = (0.25, 0.33, 0.5, 0.7, 1.0, 1.4, 2.0, 2.5, 4.0)  # the depth's spread, in the full model's
STUDIES = 200_000


def certified_share(seeds: int, full_seeds: int, ratio: float, level: float) -> float:
    """Return the share of studies that certify a depth which lies exactly at the target."""
    generator = np.random.default_rng([seeds, full_seeds, RATIOS.index(ratio)])
    depth = generator.normal(0, ratio, (STUDIES, seeds))
    full = generator.normal(0, 1, (STUDIES, full_seeds))
    of_depth = depth.var(1, ddof=1) / seeds
    of_full = DEFAULT_TARGET**2 * full.var(1, ddof=1) / full_seeds
    variance = of_depth + of_full
    freedom = variance**2 / (of_depth**2 / (seeds - 1) + of_full**2 / (full_seeds - 1))
    contrast = depth.mean(1) - DEFAULT_TARGET * full.mean(1)
    p_values = stats.t.sf(contrast / np.sqrt(variance), freedom)
    return float((p_values < level).mean())


def main() -> None:
    """Simulate each pair of numbers of seeds, in both orders."""
    results = []
    orders = {order for pair in PAIRS for order in (pair, pair[::-1])}
    for seeds, full_seeds in sorted(orders):
        level = Policy().test_error(min(seeds, full_seeds))
        shares = {
            ratio: round(100 * certified_share(seeds, full_seeds, ratio, level), 2)
            for ratio in RATIOS
        }
        worst = max(shares, key=lambda ratio: shares[ratio])
        found = {
            "seeds": seeds,
            "full_model_seeds": full_seeds,
            "level": level,
            "equal_spreads": shares[1.0],
            "worst": shares[worst],
            "worst_ratio": worst,
        }
        print(found, flush=True)
        results.append(found)
    note = (
        f"{STUDIES:,} studies a cell of a depth exactly at the target; false certificates in %, "
        "standard error .05; at most 5 are promised"
    )
    print(machine.write("unlike_seeds", results, note))


if __name__ == "__main__":
    main()
