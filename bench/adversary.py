"""Where whole hunts certify falsely most often: a search over kinds of studies.

    python bench/adversary.py                     # 60 kinds, the best ten longer, the worst anew
    python bench/adversary.py --kinds 8 --studies 20 --anew 50

Each study is a hunt in a world of strategy.py, by the product's own searcher, early stopping and
certificate. Some depth lies just below the target of what is claimed. Everything else is chosen to
make the hunt err:

- how many times more the seeds of the full model, of that depth, and of the depths beside it
  spread than usual: .25 to 4. The laboratory has .4 to 1.4 for the full model against others, and
  up to 3.3 for single depths (bench/results/seed_spreads.json).
- how much seeds spread at all: .02 to .12 of what examples spread, half a point to three points.
- kinds of examples: how hard they are for all depths and for one. The shares of an example's
  variance that stay in a contrast are .05 to .6 so, as in bench/results/power.json.
- where the depth lies, how far above the target those before it do, which further depths lie just
  below the target, and whether deeper ones keep it: depths need not be in order.
- how many of the depth's seeds fail partly, and how much these lose.
- how many evaluation examples there are, and how many workers run at once.

Kinds are drawn at random; the ten with the most false claims go on with three times the studies,
and the three worst of these are drawn anew with so many that luck is gone. False is what is false
even if fresh seeds fail as often as the study's runs did, which is what an answer claims; `false,
failing as truly` has all. Writes bench/results/adversary.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import machine
import numpy as np
import optuna
from calibration import OWN, TARGET, _fewer_draws
from scipy.optimize import brentq
from strategy import Kind, Study, World, metric_of, specification

LAYERS = 12
MOST_RATIO = 4.0
EXAMPLES = (277, 1000, 5463)


@dataclasses.dataclass(frozen=True)
class Adversity:
    """One kind of studies."""

    kind: Kind
    examples: int
    workers: int
    place: float  # of the depth that misses the target: 0 the first with frozen layers, 1 the last
    before: float  # what depths before it keep of the full model's gain
    behind: float  # what deeper ones keep
    further: float  # share of the deeper depths that also lie just below the target
    full_ratio: float  # times that the full model's seeds spread
    depth_ratio: float  # likewise, of the depths just below the target
    others_ratio: float  # likewise, of the others
    fails: bool  # whether seeds of the first of these depths fail partly


def drawn(draw: np.random.Generator) -> Adversity:
    """Draw a kind of studies."""

    def between(low: float, high: float) -> float:
        return float(np.exp(draw.uniform(np.log(low), np.log(high))))

    difficulty = between(1, 5)
    of_depth = between(0.3, 2.5)
    total = math.sqrt(OWN + difficulty**2 + of_depth**2)
    kind = Kind(
        difficulty=difficulty,
        of_depth=of_depth,
        of_seed=total * between(0.02, 0.12),
        partial_rate=float(draw.uniform(0.03, 0.25)),
        partial_loss=float(draw.uniform(0.02, 0.15)),
    )
    return Adversity(
        kind=kind,
        examples=int(draw.choice(EXAMPLES)),
        workers=int(draw.choice([1, 4])),
        place=float(draw.uniform(0, 1)),
        before=float(draw.uniform(0.92, 1)),
        behind=float(draw.choice([0.5, 0.85, 1.0])),
        further=float(draw.choice([0, 0.5, 1])),
        full_ratio=between(1 / MOST_RATIO, MOST_RATIO),
        depth_ratio=between(1 / MOST_RATIO, MOST_RATIO),
        others_ratio=between(1 / MOST_RATIO, MOST_RATIO),
        fails=bool(draw.random() < 0.3),
    )


class Adverse(World):
    """A study of such a kind."""

    def __init__(self, adversity: Adversity, draw: np.random.Generator) -> None:
        self.adversity = adversity
        self._missing: list[int] = []
        super().__init__("boundary", LAYERS, adversity.examples, "accuracy", draw, adversity.kind)

    def _drawn_boundary(self, gain: float) -> Any:
        adversity = self.adversity
        count = len(self.depths)
        self.at = 1 + round(adversity.place * (count - 2))
        best = np.full(count, self.prevalence + gain)
        best[1 : self.at] = self.prevalence + gain * adversity.before
        best[self.at :] = self.prevalence + gain * adversity.behind
        best[0] = self.prevalence + gain
        self._missing = [self.at]
        for place in range(self.at + 1, count):
            if self.draw.random() < adversity.further:
                self._missing.append(place)
        of_full = metric_of(self.metric, best[0], self.prevalence)
        least = self.base + TARGET * (of_full - self.base) - 1e-6
        missed = brentq(lambda a: metric_of(self.metric, a, self.prevalence) - least, 0.5, 0.9999)
        best[self._missing] = missed
        if adversity.fails:
            self.partial_at = self.depths[self.at]
            best[self.at] += self.kind.partial_rate * self.kind.partial_loss
        return best

    def _noisy_places(self) -> dict[int, float]:
        ratios = {place: self.adversity.others_ratio for place in range(len(self.depths))}
        ratios[0] = self.adversity.full_ratio
        for place in self._missing:
            ratios[place] = self.adversity.depth_ratio
        return ratios


def false_claims(job: tuple[Adversity, int, int]) -> dict[str, float]:
    """Return the shares of hunts with a false claim. job: a kind, how many, the first number."""
    adversity, studies, first = job
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    verdicts = []
    for number in range(first, first + studies):
        world = Adverse(adversity, np.random.default_rng([7, number]))
        study = Study(world, specification("hunt, until certified", world), adversity.workers)
        study.search()
        verdicts.append(study.verdict())
    return {
        "false": float(np.mean([verdict["false_as_seen"] for verdict in verdicts])),
        "false, failing as truly": float(np.mean([verdict["false"] for verdict in verdicts])),
        "claims": float(np.mean([verdict["claims"] for verdict in verdicts])),
    }


def worst_first(
    pool: ProcessPoolExecutor, kinds: Iterable[Adversity], studies: int, first: int
) -> list[tuple[dict[str, float], Adversity]]:
    """Return the kinds with their shares, those with the most false claims first."""
    kinds = list(kinds)
    jobs = [(kind, studies, first) for kind in kinds]
    found = []
    for kind, shares in zip(kinds, pool.map(false_claims, jobs), strict=True):
        found.append((shares, kind))
        print(shares, kind, flush=True)
    return sorted(found, key=lambda one: -one[0]["false"])


def main() -> None:
    """Search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", type=int, default=60)
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--anew", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    draw = np.random.default_rng(11)
    kinds = [drawn(draw) for _ in range(options.kinds)]
    start = functools.partial(_fewer_draws, 1000)
    with ProcessPoolExecutor(options.processes, initializer=start) as pool:
        at_random = worst_first(pool, kinds, options.studies, 0)
        best = [kind for _, kind in at_random[:10]]
        longer = worst_first(pool, best, 3 * options.studies, 10**6)
        worst = worst_first(pool, [kind for _, kind in longer[:3]], options.anew, 2 * 10**6)
    results = []
    for shares, kind in worst:
        results.append({**shares, "kind": dataclasses.asdict(kind)})
    note = (
        f"{options.kinds} kinds of {options.studies} hunts until certified; the worst three, "
        f"{options.anew} hunts each drawn anew"
    )
    print(machine.write("adversary", results, note))


if __name__ == "__main__":
    main()
