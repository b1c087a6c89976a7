"""How often a depth exactly at the target is certified falsely: rules of the test, side by side.

    python bench/certificate.py grid        # bench/results/certificate.json
    python bench/certificate.py adversary   # bench/results/certificate_adversary.json

Vectorised: a study is one depth exactly at the target (or `margin` above it), the full model, and
other depths that spread as most do. Runs are normal, with the means, spreads and examples of the
probit model of calibration.py at accuracies of .85 and .765: a run's seed moves it, single examples
flip, and the examples that all runs share move the contrast. Every planned look is taken, so that
a study is false if any look rejects.

Rules: `before`, the first one (other depths lend their spread, two Student's t are drawn);
`welch`, today's (each depth's own spread, Welch's degrees of freedom). `grid` runs both over
looks, numbers of evaluation examples, and how many times more the full model's or the depth's seeds
spread than others'. It gives the share of false claims, and the power 1.5 and 3 points above the
target where all spread alike. `adversary` searches ratios, margins between ratios, correlations of
seeds, and partial failures for what makes the rule false most often.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import machine
import numpy as np
from calibration import DIFFICULTY, OF_DEPTH, OF_SEED, OWN, TARGET
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit
from scipy.stats import norm

from elsa_tune.analysis.evidence import levels
from elsa_tune.specs.policy import UNRECORDED, Policy, SeedCounts

Floats = NDArray[np.float64]
Counts = tuple[SeedCounts, ...]  # of each planned look

FULL_ACCURACY = 0.85
EXAMPLES = (71, 277, 1000, 5463, 40_000)
# Times that the seeds of (full model, depth) spread as much as those of other depths.
RATIOS = ((1, 1), (2.5, 1), (4, 1), (1, 2.5), (1, 4), (4, 4), (0.4, 1), (1, 0.4))
MARGINS = (0.015, 0.03)
# Grid points of tables of quantiles.
FREEDOMS = np.array([0.7, 1, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 15, 25, 50, 200])
SHARES = np.linspace(0, 1, 21)


@dataclass(frozen=True)
class Constants:
    """What one accuracy of each depth means for a run."""

    full_slope: float  # quality a unit on the probit scale, of the full model
    depth_slope: float
    full_flips: float  # variance of one run's quality by single examples, times examples
    depth_flips: float
    examples: float  # variance of the contrast by the examples, times examples


@functools.cache
def constants() -> Constants:
    """Return them, by drawing 400,000 examples."""
    total = math.sqrt(OWN + DIFFICULTY**2 + OF_DEPTH**2)
    draw = np.random.default_rng(1)
    difficulty = draw.normal(0, DIFFICULTY, 400_000)
    shares = []
    for accuracy in (FULL_ACCURACY, TARGET * FULL_ACCURACY):
        of_depth = draw.normal(0, OF_DEPTH, difficulty.size)
        shares.append(ndtr(ndtri(accuracy) * total + difficulty + of_depth))
    full, depth = shares

    def slope(right: Floats) -> float:
        level = ndtri(np.clip(right, 1e-12, 1 - 1e-12))
        return float(np.mean(norm.pdf(level)))

    return Constants(
        full_slope=slope(full),
        depth_slope=slope(depth),
        full_flips=float(np.mean(full * (1 - full))),
        depth_flips=float(np.mean(depth * (1 - depth))),
        examples=float(np.var(depth - TARGET * full)),
    )


@dataclass(frozen=True)
class Family:
    """One kind of study."""

    examples: int
    full_ratio: float = 1.0  # times that the full model's seeds spread as others' do
    depth_ratio: float = 1.0
    margin: float = 0.0  # how far above the target the depth lies
    correlation: float = 0.0  # of equal seeds of the two depths
    fail_rate: float = 0.0  # share of the depth's seeds that lose `fail_loss`; D stays at `margin`
    fail_loss: float = 0.0
    others: tuple[int, ...] = (4,)  # seeds of other depths that learn


@dataclass(frozen=True)
class Studies:
    """Drawn qualities, about the depth's and the full model's expected ones."""

    full: Floats  # [N, R]
    depth: Floats  # [N, S]
    others: tuple[Floats, ...]  # [N, seeds] each
    moved: Floats  # [N], by the examples that all share
    example_error: float  # its standard deviation, which a study knows by resampling
    full_flips: float  # the least that a run's variance can be
    depth_flips: float


def draw_studies(family: Family, counts: Counts, number: int, seed: int = 0) -> Studies:
    """Return so many studies of a family, with the seeds of the last look."""
    known = constants()
    draw = np.random.default_rng([seed, family.examples, *map(hash, counts[-1])])
    seeds, full_seeds = counts[-1]
    common = draw.normal(size=(number, max(seeds, full_seeds)))

    def levels_of(count: int) -> Floats:
        own = draw.normal(size=(number, count))
        shared = common[:, :count]
        weight = family.correlation
        return np.asarray(math.sqrt(weight) * shared + math.sqrt(1 - weight) * own)

    def qualities(slope: float, ratio: float, flips: float, count: int) -> Floats:
        of_seed = slope * OF_SEED * ratio * levels_of(count)
        of_flips = math.sqrt(flips / family.examples) * draw.normal(size=(number, count))
        return np.asarray(of_seed + of_flips)

    full = qualities(known.full_slope, family.full_ratio, known.full_flips, full_seeds)
    depth = qualities(known.depth_slope, family.depth_ratio, known.depth_flips, seeds)
    failed = draw.random((number, seeds)) < family.fail_rate
    depth = depth + family.margin + family.fail_loss * (family.fail_rate - failed)
    others = []
    for count in family.others:
        others.append(qualities(known.depth_slope, 1.0, known.depth_flips, count))
    error = math.sqrt(known.examples / family.examples)
    return Studies(
        full=full,
        depth=depth,
        others=tuple(others),
        moved=error * draw.normal(size=number),
        example_error=error,
        full_flips=known.full_flips / family.examples,
        depth_flips=known.depth_flips / family.examples,
    )


Rule = Callable[[Studies, int, int, float], Any]


def contrast(studies: Studies, seeds: int, full_seeds: int) -> Floats:
    """Return the measured contrast of each study."""
    of_depth = studies.depth[:, :seeds].mean(axis=1)
    of_full = studies.full[:, :full_seeds].mean(axis=1)
    return np.asarray(of_depth - TARGET * of_full + studies.moved)


def welch(studies: Studies, seeds: int, full_seeds: int, level: float) -> Any:
    """Return which studies reject: own spreads, Welch's degrees of freedom."""
    of_depth = studies.depth[:, :seeds].var(axis=1, ddof=1)
    of_full = studies.full[:, :full_seeds].var(axis=1, ddof=1)
    depth_part = np.maximum(of_depth, studies.depth_flips) / seeds
    full_part = TARGET**2 * np.maximum(of_full, studies.full_flips) / full_seeds
    by_seeds = depth_part + full_part
    inverse = depth_part**2 / (seeds - 1) + full_part**2 / (full_seeds - 1)
    variance = by_seeds + studies.example_error**2
    quantile = _welch_quantile(level, by_seeds / variance, by_seeds**2 / inverse)
    return contrast(studies, seeds, full_seeds) > np.sqrt(variance) * quantile


def before(studies: Studies, seeds: int, full_seeds: int, level: float) -> Any:
    """Return which studies reject: spreads lent by other depths, two Student's t drawn."""
    squares = np.zeros(len(studies.moved))
    freedom = 0
    for other in studies.others:
        squares = squares + other.var(axis=1) * other.shape[1]
        freedom += other.shape[1] - 1
    depth_squares = studies.depth[:, :seeds].var(axis=1) * seeds
    full_squares = studies.full[:, :full_seeds].var(axis=1) * full_seeds

    def moderated(
        own: Floats, own_freedom: int, lent: Floats, lent_freedom: int
    ) -> tuple[Floats, float]:
        most = UNRECORDED.prior_freedom
        prior = most * lent_freedom / (most + lent_freedom)
        total = prior + own_freedom
        return (prior * lent / lent_freedom + own) / total, total

    of_depth, depth_freedom = moderated(
        depth_squares, seeds - 1, squares + full_squares, freedom + full_seeds - 1
    )
    of_full, full_freedom = moderated(
        full_squares, full_seeds - 1, squares + depth_squares, freedom + seeds - 1
    )
    depth_part = np.maximum(of_depth, studies.depth_flips) / seeds
    full_part = TARGET**2 * np.maximum(of_full, studies.full_flips) / full_seeds
    variance = depth_part + full_part + studies.example_error**2
    quantile = _drawn_quantile(
        level, depth_part / variance, full_part / variance, depth_freedom, full_freedom
    )
    return contrast(studies, seeds, full_seeds) > np.sqrt(variance) * quantile


def _interpolated(table: Floats, x: Floats, y: Floats) -> Floats:
    """Return values between the points of a table, at places in units of its steps."""
    i = np.minimum(x.astype(int), table.shape[0] - 2)
    j = np.minimum(y.astype(int), table.shape[1] - 2)
    u, v = x - i, y - j
    near = (1 - u) * (1 - v) * table[i, j] + u * (1 - v) * table[i + 1, j]
    return np.asarray(near + (1 - u) * v * table[i, j + 1] + u * v * table[i + 1, j + 1])


def _welch_quantile(level: float, share: Floats, freedom: Floats) -> Floats:
    """Return upper quantiles of a normal plus a Student's t that has this share of the variance."""
    table = _welch_table(round(level, 6))
    logs = np.log(np.clip(freedom, FREEDOMS[0], FREEDOMS[-1]))
    x = np.interp(logs, np.log(FREEDOMS), np.arange(len(FREEDOMS)))
    return _interpolated(table, x, np.clip(share, 0, 1) * (len(SHARES) - 1))


@functools.cache
def _welch_table(level: float) -> Floats:
    """Return the quantiles [FREEDOMS, SHARES], by integration over 4,000 strata of t."""
    middles = (np.arange(4000) + 0.5) / 4000
    table = np.empty((len(FREEDOMS), len(SHARES)))
    for i, freedom in enumerate(FREEDOMS):
        student = stdtrit(freedom, middles)
        for j, share in enumerate(SHARES):
            if share == 1:
                table[i, j] = -stdtrit(freedom, level)
                continue
            low, high = 0.0, 400.0
            for _ in range(50):
                end = (low + high) / 2
                beyond = ndtr((math.sqrt(share) * student - end) / math.sqrt(1 - share)).mean()
                low, high = (end, high) if beyond > level else (low, end)
            table[i, j] = end
    return table


def _drawn_quantile(
    level: float, depth_share: Floats, full_share: Floats, depth_freedom: float, full_freedom: float
) -> Floats:
    """Return upper quantiles of a normal and two Student's t, by their shares of the variance."""
    table = _drawn_table(round(level, 6), round(depth_freedom, 4), round(full_freedom, 4))
    last = len(table) - 1
    return _interpolated(table, depth_share * last, full_share * last)


@functools.cache
def _drawn_table(level: float, depth_freedom: float, full_freedom: float) -> Floats:
    draw = np.random.default_rng(5)
    middles = (np.arange(40_000) + 0.5) / 40_000
    normal = draw.permutation(ndtri(middles))
    of_depth = draw.permutation(stdtrit(depth_freedom, middles))
    of_full = draw.permutation(stdtrit(full_freedom, middles))
    table = np.empty((13, 13))
    for i in range(13):
        for j in range(13):
            a, b = i / 12, j / 12
            if a + b > 1:
                a, b = a / (a + b), b / (a + b)
            rest = math.sqrt(max(0.0, 1 - a - b))
            total = rest * normal + math.sqrt(a) * of_depth + math.sqrt(b) * of_full
            table[i, j] = np.quantile(total, 1 - level)
    return table


@dataclass(frozen=True)
class Plan:
    """How a depth is tested."""

    name: str
    rule: Rule
    counts: Counts
    error: float
    first_share: float

    def rejected(self, family: Family, number: int, seed: int = 0) -> tuple[Any, Any]:
        """Return which of so many studies reject at the first look, and at any."""
        studies = draw_studies(family, self.counts, number, seed)
        looks = []
        for (seeds, full), level in zip(
            self.counts, levels(self.counts, self.error, self.first_share), strict=True
        ):
            looks.append(self.rule(studies, seeds, full, level))
        return looks[0], np.logical_or.reduce(looks)


def plans() -> list[Plan]:
    """Return the plans that are compared: a hunt's deep depth and ladder, and even searches."""
    now = Policy()
    found = []
    for name, policy, rule in (("before", UNRECORDED, before), ("welch", now, welch)):
        share = policy.first_look_share
        for part, counts in (("deep", policy.looks), ("ladder", policy.ladder_looks)):
            fewest = min(min(look) for look in counts)
            error = policy.test_error(fewest) - policy.ladder_error
            found.append(Plan(f"{name}, {part}", rule, counts, error, share))
        for seeds in (2, 3, 5):
            counts = (SeedCounts(seeds, seeds),)
            error = policy.test_error(seeds)
            found.append(Plan(f"{name}, even, {seeds} seeds", rule, counts, error, share))
    return found


def grid(number: int) -> list[dict[str, Any]]:
    """Return every cell."""
    cells = []
    for plan in plans():
        others = (plan.counts[0].depth,) * (6 if "even" in plan.name else 1)
        for examples in EXAMPLES:
            false = {}
            for full_ratio, depth_ratio in RATIOS:
                family = Family(
                    examples=examples,
                    full_ratio=full_ratio,
                    depth_ratio=depth_ratio,
                    others=others,
                )
                _, any_look = plan.rejected(family, number)
                false[f"{full_ratio}, {depth_ratio}"] = round(float(any_look.mean()), 4)
            power = {}
            for margin in MARGINS:
                alike = Family(examples=examples, margin=margin, others=others)
                first, any_look = plan.rejected(alike, number, seed=1)
                shares = [round(float(first.mean()), 3), round(float(any_look.mean()), 3)]
                power[f"{100 * margin:g} points"] = shares
            cell = {"plan": plan.name, "examples": examples, "false": false, "power": power}
            cells.append(cell)
            print(cell, flush=True)
    return cells


def adversary(number: int, tries: int) -> list[dict[str, Any]]:
    """Return the worst family found for each plan of this version: random tries, then steps."""
    worst = []
    for plan in plans():
        if not plan.name.startswith("welch"):
            continue
        draw = np.random.default_rng(0)
        best: tuple[float, Family] | None = None
        for attempt in range(tries):
            if best is None or attempt < tries // 2:
                family = _random_family(draw, plan.counts)
            else:
                family = _near(draw, best[1])
            _, rejected = plan.rejected(family, number, seed=attempt)
            share = float(rejected.mean())
            if best is None or share > best[0]:
                best = (share, family)
        assert best is not None
        # Anew, since the worst of many draws looks worse than it is.
        _, rejected = plan.rejected(best[1], 10 * number, seed=10**6)
        found = {
            "plan": plan.name,
            "false": round(float(rejected.mean()), 4),
            "while searching": round(best[0], 4),
            "family": vars(best[1]),
        }
        worst.append(found)
        print(found, flush=True)
    return worst


def _random_family(draw: np.random.Generator, counts: Counts) -> Family:
    """Return a family whose seeds all work: ratios of .25 to 4, as the laboratory's at the most."""
    return Family(
        examples=int(draw.choice(EXAMPLES)),
        full_ratio=float(np.exp(draw.uniform(np.log(0.25), np.log(4)))),
        depth_ratio=float(np.exp(draw.uniform(np.log(0.25), np.log(4)))),
        correlation=float(draw.uniform(0, 0.3)),
        others=(counts[0].depth,),
    )


def _near(draw: np.random.Generator, family: Family) -> Family:
    def moved(ratio: float) -> float:
        return float(np.clip(ratio * np.exp(draw.normal(0, 0.2)), 0.25, 4))

    return replace(
        family,
        full_ratio=moved(family.full_ratio),
        depth_ratio=moved(family.depth_ratio),
        correlation=float(np.clip(family.correlation + draw.normal(0, 0.05), 0, 0.3)),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("grid", "adversary"))
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--tries", type=int, default=200)
    options = parser.parse_args(arguments)
    if options.what == "grid":
        note = f"{options.studies} studies a cell; false by (full, depth) times others' spread"
        print(machine.write("certificate", grid(options.studies), note))
    else:
        note = f"{options.tries} families of {options.studies} studies; the worst, drawn anew"
        results = adversary(options.studies, options.tries)
        print(machine.write("certificate_adversary", results, note))


if __name__ == "__main__":
    main()
