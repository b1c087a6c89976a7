"""What it costs the certificate that learning rates are chosen on the rows that judge.

    python bench/rates_on_rows.py --data-dir ../shared/glue
    python bench/rates_on_rows.py --only-simulate      # with the committed pattern

Exploring runs choose each depth's rate by their scores on the evaluation rows, and fresh seeds
measure it on the same rows. That removes the luck of the exploring seed. It leaves a rate's luck
with these rows, as far as it persists over seeds, and a depth with more tries gains more by it.

From the laboratory's trials (bench/lab/TASK.parquet), whose seeds share their training rows:

`pattern`: how far rates of one depth answer examples differently, beyond seeds. Of two rates, the
covariance over examples of their difference by one seed and by another one is the variance of
what persists, twice that of one rate (`pattern`, of being right, per example). Rates count whose
mean lies within two points of the depth's best one, in the task's metric, where the depth learns
at all. `flips`: the rest of the difference by one seed, again of one rate: how much an exploring
run's score moves on its own. 95 % intervals by 1,000 resamples of the examples; with two to six
seeds a rate, they say nothing of other seeds.

`by rows`: the product's rule for rates explores on rows that are drawn from the table with
replacement, as many as stated; no trial is stopped early. Other seeds judge the rate that it
chose, on these rows and on the complete table. The difference is the optimism, in points of the
metric: of the full model, of other depths, and of the contrast (a depth's minus .9 times the full
model's), whose standard deviation over drawings stands beside it (`standard error of contrast`).
Rates are moved to the nearest recorded one. `all rates`: the best of all recorded rates instead.
95 % intervals: by 100 resamples of the table's rows, with 100 drawings each (STS-B: 25). `regret`:
what a chosen rate loses against the depth's best one, judged by other seeds on the complete table;
also where held-out training rows choose, a tenth of them, as under `selection: holdout`.

`false`: cells of certificate.py to which the pattern is added. Each rate of a depth has the same
expected quality, which is the worst case, and a luck with these rows of its own; the best score of
one exploring run chooses. `optimism` is that of the cell whose seeds spread alike, `in standard
errors` of the examples. `power`: what choosing on a part of the rows, and judging on the rest,
loses. Even plans with five seeds and more are there a second time, at an error that is one per
cent lower.

Writes bench/results/rates_on_rows.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

sys.path.insert(0, str(Path(__file__).resolve().parent / "lab"))
import certificate
import machine
from calibration import OF_SEED, TARGET
from certificate import Family, Plan, Studies, constants
from curves import read_task
from record import EPOCHS, FOLDER, TASKS, unpacked
from replay import WAYS, Table, specification
from rules import LAYERS
from seeds import LEARNT, NEAR

from elsa_tune.analysis.evidence import levels
from elsa_tune.searching.planning.known import is_cheap
from elsa_tune.searching.planning.outward import outward
from elsa_tune.searching.planning.proposals import first_points
from elsa_tune.searching.planning.rates import best_rate
from elsa_tune.specs.border import has_learnt
from elsa_tune.specs.policy import Policy, SeedCounts
from elsa_tune.specs.search import SearchSpec

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
# Where trials stand among a task's runs, by depth and rate.
Places = dict[tuple[int, float], NDArray[Any]]

SEARCH = "two rates and outward, no early stopping"
EXAMPLES = (71, 150, 277, 1000)
PARTS = (0.2, 0.3)  # of the rows, on which rates could be chosen
OF_INTERVALS = (150, 1000)
OUTER = 100
INNER = 100
CHOSEN_BY = ("planner", "all rates")
FEWEST_DEPTHS = 4  # that a seed explored
FALSE_EXAMPLES = (71, 150, 277, 1000, 5463)
MOST_RATES = (10, 3)  # tries of a depth, and of the full model
MEAN_RATES = (5, 3)
MANY_SEEDS = 10
MANY_ENOUGH = 5  # seeds, from which on an even search is also judged at a lower error
LESS = 0.01
OTHERS = (2,)  # seeds of another depth, which today's rule does not look at
# Where seeds differ little, a rate's luck with the rows decides.
RATIOS = (*certificate.RATIOS, (0.4, 0.4))


# ---- The laboratory's trials -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trials:
    """A task's recorded trials, with what each of them answered in the end."""

    name: str
    metric: str
    labels: NDArray[Any]
    # frozen_layers, learning_rate, seed, quality, holdout_quality of each trial.
    runs: pd.DataFrame
    answers: NDArray[Any]  # [runs, examples]

    def scores(self, rows: Rows) -> Floats:
        """Return each run's score on these rows, which may repeat."""
        if self.metric == "spearman":
            return _correlations(self.answers[:, rows], self.labels[rows])
        weights = np.bincount(rows, minlength=len(self.labels)).astype(float)
        positive = self.labels == 1
        hits = self.answers @ (weights * positive)
        given = self.answers @ weights
        total = weights.sum()
        actual = float(weights[positive].sum())
        return _shares(self.metric, hits, given, actual, total)

    def chance(self, rows: Rows) -> float:
        """Return what a constant answer scores on these rows."""
        share = float(np.mean(self.labels[rows] == 1))
        if self.metric == "accuracy":
            return max(share, 1 - share)
        return 2 * share / (1 + share) if self.metric == "f1" else 0.0

    @property
    def every(self) -> Rows:
        """The places of all examples."""
        return np.arange(len(self.labels))


def _shares(metric: str, hits: Floats, given: Floats, actual: float, total: float) -> Floats:
    """Return scores by counts: of true positives, positive answers, positive labels, and rows."""
    right = total - given - actual + 2 * hits
    if metric == "accuracy":
        return np.asarray(right / total)
    if metric == "f1":
        return np.asarray(2 * hits / np.maximum(given + actual, 1))
    spread = given * (total - given) * actual * (total - actual)
    return np.asarray((total * hits - given * actual) / np.sqrt(np.maximum(spread, 1)))


def _correlations(answers: NDArray[Any], labels: NDArray[Any]) -> Floats:
    """Return Spearman's correlation of each run's answers; 0 where all are equal."""
    here = rankdata(answers, axis=1)
    here = here - here.mean(axis=1, keepdims=True)
    there = rankdata(labels)
    there = there - there.mean()
    spread = np.sqrt((here**2).sum(axis=1) * (there**2).sum())
    return np.asarray(here @ there / np.maximum(spread, 1e-9))


def read_trials(name: str, data_dir: str) -> Trials:
    """Return a task's trials. Raises ValueError where they do not score what was recorded."""
    table = pd.read_parquet(FOLDER / f"{name}.parquet")
    task = read_task(name, table, data_dir)
    table = table[(table.evaluation == table.evaluations) & (table.status == "completed")]
    answers = []
    for packed in table.predictions:
        answers.append(unpacked(packed, len(task.labels)))
    columns = ["frozen_layers", "learning_rate", "seed", "quality", "holdout_quality"]
    trials = Trials(
        name=name,
        metric=task.metric,
        labels=task.labels,
        runs=table[columns].reset_index(drop=True),
        answers=np.asarray(answers, dtype=np.float64 if task.classes else np.float32),
    )
    apart = np.abs(trials.scores(trials.every) - trials.runs.quality)
    # Values are kept in half precision: a run that answers nearly the same everywhere loses ranks.
    if np.median(apart) > 1e-4 or (task.classes and apart.max() > 1e-6):
        raise ValueError(f"{name}: scores by predictions are up to {apart.max()} off")
    return trials


# ---- The pattern -----------------------------------------------------------------------------


def pattern_cells(trials: Trials, draws: int = 1000) -> list[dict[str, Any]]:
    """Return each depth's rate x example variance, with intervals."""
    cells = []
    count = len(trials.labels)
    rng = np.random.default_rng(3)
    shares = rng.multinomial(count, np.full(count, 1 / count), size=draws) / count
    chance = trials.chance(trials.every)
    for depth, runs in trials.runs.groupby("frozen_layers"):
        by_rate = _right_by_rate(trials, runs, chance)
        products = []
        squares = []
        seeds = 0
        for low, high in itertools.combinations(sorted(by_rate), 2):
            common = sorted(by_rate[low].keys() & by_rate[high].keys())
            apart = [by_rate[low][seed] - by_rate[high][seed] for seed in common]
            for here, there in itertools.combinations(apart, 2):
                products.append((here, there))
            squares += apart
            seeds = max(seeds, len(common))
        if not products:
            continue
        whole = np.full((1, count), 1 / count)
        pattern = _pattern(products, whole)
        low, high = np.quantile(_pattern(products, shares), (0.025, 0.975))
        every = np.mean([difference.var() for difference in squares]) / 2
        cells.append(
            {
                "task": trials.name,
                "frozen_layers": int(depth),
                "rates": len(by_rate),
                "most seeds": seeds,
                "pattern": round(float(pattern[0]), 4),
                "low": round(float(low), 4),
                "high": round(float(high), 4),
                "flips": round(float(every - pattern[0]), 4),
            }
        )
    return cells


def _right_by_rate(
    trials: Trials, runs: pd.DataFrame, chance: float
) -> dict[float, dict[int, Floats]]:
    """Return which examples each seed has right, of the rates that come near the best one."""
    means = runs.groupby("learning_rate").quality.agg(["mean", "count"])
    means = means[means["count"] > 1]["mean"]
    if means.empty or means.max() < chance + LEARNT:
        return {}
    found: dict[float, dict[int, Floats]] = {}
    for rate in means.index[means >= means.max() - NEAR]:
        here = runs[runs.learning_rate == rate]
        found[float(rate)] = {}
        for place, seed in zip(here.index, here.seed, strict=True):
            right = trials.answers[place] == trials.labels
            found[float(rate)][int(seed)] = right.astype(float)
    return found


def _pattern(products: Sequence[tuple[Floats, Floats]], weights: Floats) -> Floats:
    """Return half of the mean covariance over weighted examples. weights: [draws, examples]."""
    total = np.zeros(len(weights))
    for here, there in products:
        total += weights @ (here * there) - (weights @ here) * (weights @ there)
    return np.asarray(total / len(products) / 2)


# ---- Optimism, by the product's planner ------------------------------------------------------


class FirstTable(Table):
    """One task's trials of one seed, as far as a specification asks for them."""

    def __init__(self, trials: Trials, seed: int, places: Places) -> None:
        self.task = trials.name
        self.layers = LAYERS
        self.evaluations = EPOCHS
        self.chance = 0.0  # each drawing has its own
        self.found = {}
        for depth, rate in places:
            self.found.setdefault((depth, seed), {})[rate] = np.zeros(EPOCHS)


def tries_of(spec: SearchSpec, curves: dict[int, dict[float, float]]) -> dict[int, list[Any]]:
    """Return the trials that each depth explores: two given rates, then the product's way outward.

    curves: each depth's last score by recorded rate. No trial is stopped early.
    """
    tries: dict[int, list[Any]] = {}
    lent_rate = None
    full_has_learnt = True
    for candidate in spec.explored:
        depth = candidate.frozen_layers
        recorded = curves[depth]
        patience = spec.policy.cheap_patience if is_cheap(spec, candidate) else 1
        tries[depth] = []
        rates = list(first_points(spec.rates_for(candidate)))[: spec.tries]
        rate: float | None = rates.pop(0)
        while rate is not None:
            trial = SimpleNamespace(
                candidate=candidate,
                learning_rate=rate,
                is_diverged=False,
                is_completed=True,
                score=recorded[nearest(rate, recorded)],
            )
            tries[depth].append(trial)
            if rates:
                rate = rates.pop(0)
            else:
                may_learn = bool(depth) and full_has_learnt
                rate = outward(spec, tries[depth], patience, lent_rate, may_learn)
        scores = {trial.learning_rate: trial.score for trial in tries[depth]}
        learns = has_learnt(scores, spec.chance, spec.policy.noise)
        lent_rate = best_rate(scores) if learns else None
        if depth == 0:
            full_has_learnt = learns
    return tries


def places_of(runs: pd.DataFrame) -> Places:
    """Return where the trials of each depth and rate stand."""
    places = {}
    for (depth, rate), here in runs.groupby(["frozen_layers", "learning_rate"]):
        places[int(depth), float(rate)] = here.index.to_numpy()
    return places


def nearest(rate: float, rates: Iterable[float]) -> float:
    """Return the nearest of some rates by its logarithm."""
    return float(min(rates, key=lambda other: (abs(math.log(other / rate)), other)))


@dataclass
class Explored:
    """What one seed's searches found of one depth, drawing by drawing."""

    rates: tuple[float, ...]  # those that other seeds judge
    there: Floats  # [rates], what other seeds score on all rows
    apart: list[Floats]  # [rates] each: by how much more they score on the drawn rows
    # Of each way of choosing: the places of the chosen rates, -1 where no other seed judges one.
    chosen: dict[str, list[int]]
    tries: list[int]

    def optimism(self, way: str) -> float:
        """Return by how much more a chosen rate scores on the rows that chose it, in points.

        What any rate scores more there on average, as often as it is chosen, is left out: it is
        nothing but chance, or a metric's own bias in few rows.
        """
        chosen = np.array(self.chosen[way])
        is_judged = chosen >= 0
        apart = np.array(self.apart)[is_judged]
        chosen = chosen[is_judged]
        count = len(chosen)
        if count < 2:
            return math.nan
        shares = np.bincount(chosen, minlength=len(self.rates)) / count
        gained = apart[np.arange(count), chosen].mean() - apart.mean(axis=0) @ shares
        return float(100 * gained * count / (count - 1))

    def usual(self) -> Floats:
        """Return by how much the rate that is chosen most often scores more on the drawn rows."""
        chosen = np.array(self.chosen["planner"])
        shares = np.bincount(chosen[chosen >= 0], minlength=len(self.rates))
        return np.array(self.apart)[:, int(shares.argmax())]

    def regret(self, way: str) -> float:
        """Return how much the chosen rates score below the best one on all rows, in points."""
        chosen = np.array(self.chosen[way])
        chosen = chosen[chosen >= 0]
        if not len(chosen):
            return math.nan
        return float(100 * (self.there.max() - self.there[chosen].mean()))


class Laboratory:
    """The searches that one task's table can replay."""

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self.specs: dict[int, SearchSpec] = {}
        self.explored: dict[int, Places] = {}
        self.judges: dict[int, Places] = {}
        runs = trials.runs
        for seed in sorted(set(runs.seed)):
            places = places_of(runs[runs.seed == seed])
            table = FirstTable(trials, seed, places)
            if 0 not in table.depths(seed) or len(table.depths(seed)) < FEWEST_DEPTHS:
                continue
            overrides, noise = WAYS[SEARCH]
            self.specs[seed] = specification(table, overrides, seed, noise)
            self.explored[seed] = places
            self.judges[seed] = places_of(runs[runs.seed != seed])

    def searches(
        self, examples: int, draws: int, rng: np.random.Generator, outer: Rows
    ) -> dict[tuple[int, int], Explored]:
        """Search on drawn rows; return what came of it by seed and depth.

        outer: the rows that stand for all there are.
        """
        there = self.trials.scores(outer)
        found: dict[tuple[int, int], Explored] = {}
        for _ in range(draws):
            rows = outer[rng.integers(0, len(outer), examples)]
            here = self.trials.scores(rows)
            for seed in self.specs:
                self._search(seed, rows, here, there, found)
        return found

    def regret_by_holdout(self) -> dict[str, float]:
        """Return the regret of rates chosen on held-out training rows, as `summary` has it."""
        there = self.trials.scores(self.trials.every)
        held_out = self.trials.runs.holdout_quality.to_numpy(float)
        found: dict[tuple[int, int], Explored] = {}
        for seed in self.specs:
            self._search(seed, self.trials.every, held_out, there, found)
        full = [at_depth.regret("planner") for (_, n), at_depth in found.items() if n == 0]
        others = [at_depth.regret("planner") for (_, n), at_depth in found.items() if n]
        return {"regret of full": mean(full), "regret of others": mean(others)}

    def _search(
        self,
        seed: int,
        rows: Rows,
        here: Floats,
        there: Floats,
        found: dict[tuple[int, int], Explored],
    ) -> None:
        """Explore with one seed on some rows, and add what is found."""
        spec = replace(self.specs[seed], chance=self.trials.chance(rows))
        curves: dict[int, dict[float, float]] = {}
        for (depth, rate), places in self.explored[seed].items():
            curves.setdefault(depth, {})[rate] = float(here[places[0]])
        judges = self.judges[seed]
        for depth, tries in tries_of(spec, curves).items():
            rates = tuple(sorted(other for at, other in judges if at == depth))
            if (seed, depth) not in found:
                means = [there[judges[depth, other]].mean() for other in rates]
                found[seed, depth] = Explored(
                    rates=rates,
                    there=np.array(means),
                    apart=[],
                    chosen={way: [] for way in CHOSEN_BY},
                    tries=[],
                )
            at_depth = found[seed, depth]
            moved = [(here - there)[judges[depth, other]].mean() for other in rates]
            at_depth.apart.append(np.array(moved))
            at_depth.tries.append(len(tries))
            scores = {trial.learning_rate: trial.score for trial in tries}
            chosen = nearest(best_rate(scores), curves[depth])
            for way, rate in (("planner", chosen), ("all rates", best_rate(curves[depth]))):
                place = rates.index(rate) if rate in rates else -1
                at_depth.chosen[way].append(place)


def contrasts(found: dict[tuple[int, int], Explored], way: str) -> dict[tuple[int, int], float]:
    """Return the optimism of each depth's contrast, by exploring seed and depth."""
    moved = {}
    for (seed, depth), at_depth in found.items():
        if depth:
            full = found[seed, 0].optimism(way)
            moved[seed, depth] = at_depth.optimism(way) - TARGET * full
    return moved


def example_error(found: dict[tuple[int, int], Explored]) -> float:
    """Return how far drawn rows move a depth's contrast: a standard deviation, in points."""
    variances = []
    for (seed, depth), at_depth in found.items():
        if depth:
            moved = at_depth.usual() - TARGET * found[seed, 0].usual()
            variances.append(float(np.var(moved, ddof=1)))
    return 100 * math.sqrt(mean(variances))


def mean(values: Iterable[float]) -> float:
    """Return the mean of those that are numbers."""
    return float(np.nanmean(list(values)))


def summary(found: dict[tuple[int, int], Explored]) -> dict[str, Any]:
    """Return means over depths: of the full model, of other depths, and of contrasts."""
    full = [at_depth for (_, depth), at_depth in found.items() if depth == 0]
    others = [at_depth for (_, depth), at_depth in found.items() if depth]
    means: dict[str, Any] = {}
    for way in CHOSEN_BY:
        means[way] = {
            "full": mean(at_depth.optimism(way) for at_depth in full),
            "others": mean(at_depth.optimism(way) for at_depth in others),
            "contrast": mean(contrasts(found, way).values()),
            "regret of full": mean(at_depth.regret(way) for at_depth in full),
            "regret of others": mean(at_depth.regret(way) for at_depth in others),
        }
    return means


def rounded(value: Any) -> Any:
    """Return a value, or each one of a dictionary, with three decimals."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return round(float(value), 3)


def sizes() -> list[int]:
    """Return the numbers of rows that rates are chosen on."""
    found = set(EXAMPLES)
    for examples in EXAMPLES:
        for part in PARTS:
            found.add(round(part * examples))
    return sorted(found)


def optimism(job: tuple[str, str, int]) -> dict[str, Any]:
    """Return one task's pattern, and its optimism by the number of rows."""
    name, data_dir, draws = job
    trials = read_trials(name, data_dir)
    inner = INNER
    if trials.metric == "spearman":  # ranks take long
        draws //= 4
        inner //= 4
    laboratory = Laboratory(trials)
    rng = np.random.default_rng(11)
    by_size = {}
    tries: dict[int, list[int]] = {}
    for examples in sizes():
        found = laboratory.searches(examples, draws, rng, trials.every)
        cell = rounded(summary(found))
        cell["standard error of contrast"] = rounded(example_error(found))
        if examples in EXAMPLES:
            moved = contrasts(found, "planner")
            by_depth: dict[int, list[float]] = {}
            for (_, depth), value in moved.items():
                by_depth.setdefault(depth, []).append(value)
            cell["contrast by depth"] = rounded({n: mean(of) for n, of in by_depth.items()})
        if examples in OF_INTERVALS:
            cell["contrast, 95 %"] = interval(laboratory, examples, inner)
        for (_, depth), at_depth in found.items():
            tries.setdefault(depth, []).extend(at_depth.tries)
        by_size[examples] = cell
        print(name, examples, cell, flush=True)
    return {
        "task": name,
        "metric": trials.metric,
        "examples": len(trials.labels),
        "mean tries": rounded({depth: np.mean(counts) for depth, counts in tries.items()}),
        "most tries": {depth: max(counts) for depth, counts in tries.items()},
        "pattern": [] if trials.metric == "spearman" else pattern_cells(trials),
        "by rows": by_size,
        "by held-out training rows": rounded(laboratory.regret_by_holdout()),
    }


def interval(laboratory: Laboratory, examples: int, draws: int) -> list[float]:
    """Return the 95 % interval of the contrast's optimism, over resamples of the table's rows."""
    rng = np.random.default_rng([12, examples])
    count = len(laboratory.trials.labels)
    means = []
    for _ in range(OUTER):
        outer = rng.integers(0, count, count)
        found = laboratory.searches(examples, draws, rng, outer)
        means.append(mean(contrasts(found, "planner").values()))
    return [round(float(end), 3) for end in np.quantile(means, (0.025, 0.975))]


# ---- False claims ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Luck:
    """How rates are chosen, and how far their luck with the rows may carry them."""

    pattern: float  # variance of one rate, per example
    flips: float  # variance of an exploring run's own answers, per example
    rates: int  # that the depth tries
    full_rates: int


def chosen_luck(
    family: Family, luck: Luck, rates: int, spread: float, number: int, rng: np.random.Generator
) -> Floats:
    """Return the luck with the rows of the rate that scores best, all being equally good.

    spread: the standard deviation between seeds, in quality.
    """
    persists = math.sqrt(luck.pattern / family.examples) * rng.normal(size=(number, rates))
    own = math.sqrt(luck.flips / family.examples + spread**2) * rng.normal(size=(number, rates))
    best = np.argmax(persists + own, axis=1)
    return np.asarray(persists[np.arange(number), best])


def with_luck(studies: Studies, family: Family, luck: Luck, seed: int) -> tuple[Studies, float]:
    """Return studies whose rates were chosen on the judging rows, and the contrast's optimism."""
    known = constants()
    rng = np.random.default_rng([17, seed, family.examples])
    number = len(studies.moved)
    of_seed = OF_SEED * known.depth_slope * family.depth_ratio
    of_full_seed = OF_SEED * known.full_slope * family.full_ratio
    depth = chosen_luck(family, luck, luck.rates, of_seed, number, rng)
    full = chosen_luck(family, luck, luck.full_rates, of_full_seed, number, rng)
    shift = depth - TARGET * full
    added = luck.pattern * (1 + TARGET**2) / family.examples
    error = math.sqrt(studies.example_error**2 + added)
    return replace(studies, moved=studies.moved + shift, example_error=error), float(shift.mean())


@dataclass(frozen=True)
class Outcome:
    """What came of a cell's studies."""

    rejected: float  # the share that reject at any look
    optimism: float  # of the contrast
    errors: float  # the optimism in standard errors of the examples


def outcome(plan: Plan, family: Family, luck: Luck, number: int, seed: int = 0) -> Outcome:
    """Return what a plan makes of so many studies."""
    drawn = certificate.draw_studies(family, plan.counts, number, seed)
    studies, moved = with_luck(drawn, family, luck, seed)
    looks = []
    spent = levels(plan.counts, plan.error, plan.first_share)
    for (seeds, full), level in zip(plan.counts, spent, strict=True):
        looks.append(plan.rule(studies, seeds, full, level))
    rejected = float(np.logical_or.reduce(looks).mean())
    return Outcome(rejected, moved, moved / studies.example_error)


def compared() -> list[Plan]:
    """Return today's plans, ten seeds at every depth, and even ones at a lower error."""
    plans = [plan for plan in certificate.plans() if plan.name.startswith("welch")]
    policy = Policy()
    ten = Plan(
        name=f"welch, even, {MANY_SEEDS} seeds",
        rule=certificate.welch,
        counts=(SeedCounts(MANY_SEEDS, MANY_SEEDS),),
        error=policy.test_error(MANY_SEEDS),
        first_share=policy.first_look_share,
    )
    plans.append(ten)
    lower = []
    for plan in plans:
        if plan.counts[0].depth >= MANY_ENOUGH:
            name = f"{plan.name}, error {LESS:g} lower"
            lower.append(replace(plan, name=name, error=plan.error - LESS))
    return [*plans, *lower]


def false_cells(lucks: dict[str, Luck], number: int) -> list[dict[str, Any]]:
    """Return the share of false claims, by plan, number of rows, pattern and ratios of spreads."""
    cells = []
    for plan in compared():
        for examples in FALSE_EXAMPLES:
            for name, luck in lucks.items():
                shares = {}
                for full_ratio, depth_ratio in RATIOS:
                    family = Family(
                        examples=examples,
                        full_ratio=full_ratio,
                        depth_ratio=depth_ratio,
                        others=OTHERS,
                    )
                    found = outcome(plan, family, luck, number)
                    shares[f"{full_ratio}, {depth_ratio}"] = round(found.rejected, 4)
                    if (full_ratio, depth_ratio) == (1, 1):
                        alike = found
                cell = {
                    "plan": plan.name,
                    "examples": examples,
                    "pattern": name,
                    "false": shares,
                    "worst": max(shares.values()),
                    "optimism": round(100 * alike.optimism, 3),
                    "in standard errors": round(alike.errors, 3),
                }
                cells.append(cell)
                print(cell, flush=True)
    return cells


def power_cells(luck: Luck, number: int) -> list[dict[str, Any]]:
    """Return the share of certified studies where the depth lies above the target.

    By all rows, and by those that a part for choosing leaves, with no luck in either.
    """
    fair = replace(luck, rates=1, full_rates=1)
    cells = []
    for plan in compared():
        for examples in FALSE_EXAMPLES:
            for margin in certificate.MARGINS:
                family = Family(examples=examples, margin=margin, others=OTHERS)
                cell: dict[str, Any] = {"plan": plan.name, "examples": examples}
                cell["margin"] = margin
                cell["all rows"] = round(outcome(plan, family, fair, number, 1).rejected, 3)
                for part in PARTS:
                    rest = replace(family, examples=round((1 - part) * examples))
                    share = outcome(plan, rest, fair, number, 1).rejected
                    cell[f"{part:g} of the rows choose"] = round(share, 3)
                cells.append(cell)
    return cells


def main() -> None:
    """Measure, then simulate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only-simulate", action="store_true", help="with the committed pattern")
    options = parser.parse_args()
    if options.only_simulate:
        file = machine.RESULTS / "rates_on_rows.json"
        tasks = json.loads(file.read_text(encoding="utf-8"))["results"]["tasks"]
    else:
        jobs = [(name, options.data_dir, options.draws) for name in TASKS]
        with ProcessPoolExecutor(options.workers) as pool:
            tasks = list(pool.map(optimism, jobs))
    cells = [cell for task in tasks for cell in task["pattern"]]
    pattern = mean(cell["pattern"] for cell in cells)
    flips = mean(cell["flips"] for cell in cells)
    most = max(cell["high"] for cell in cells)
    lucks = {
        "nothing chosen": Luck(pattern, flips, 1, 1),
        "mean, usual tries": Luck(pattern, flips, *MEAN_RATES),
        "mean, most tries": Luck(pattern, flips, *MOST_RATES),
        "highest, most tries": Luck(most, flips, *MOST_RATES),
    }
    results: dict[str, Any] = {
        "tasks": tasks,
        "patterns": {name: vars(luck) for name, luck in lucks.items()},
        "false": false_cells(lucks, options.studies),
        "power": power_cells(lucks["mean, usual tries"], options.studies),
    }
    note = (
        f"optimism and regret in points; {options.draws} drawings of rows a size, "
        f"{options.studies} studies a cell; false by (full, depth) times others' spread"
    )
    print(machine.write("rates_on_rows", results, note))


if __name__ == "__main__":
    main()
