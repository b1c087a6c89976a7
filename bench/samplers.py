"""Who finds each depth's learning rate: today's rule, or one Optuna study over rate and depth.

    python bench/samplers.py                                # the product's ways
    python bench/samplers.py --ways "*Sampler*" "TPE*"      # those of Optuna's own
    python bench/samplers.py --aside --name samplers_cola   # CoLA, on which nothing was chosen
    python bench/samplers.py --hunt --name samplers_hunt    # what a hunt explores

Worlds, each with a known expected quality at every depth and rate:

- `recorded`: the laboratory's tables (bench/lab/TASK.parquet), one exploring seed's scores as they
  were recorded; the expected quality is the other seeds' mean.
- `redrawn 6`, `redrawn 12`: the same tables, smooth between recorded rates, with 6 layers or 12 (a
  depth between those of half its number); the expected quality is the mean over all seeds, and each
  trial adds one seed's recorded deviation.
- `synthetic`: 12 layers, drawn surfaces, smooth in the logarithm of the rate, with seeds that
  spread as bench/results/seed_spreads.json has it and a collapse at high rates. Their optimum
  drifts upwards with the depth (`drift`); lies near 1e-5, as large models have it (`low`); is wide
  (`flat`); the deep half learns nothing (`deaf`); or it also jumps from depth to depth, so that
  neighbours say little (`rough`).

Each way explores as a search of one worker does, with the product's early stopping within a depth.
`regret`: expected quality at the depth's best rate minus that at the chosen one, in points of 100.
`cost`: of exploring, in trials of the full model; `trials`: how many; `border`: the share of depths
whose best rate lies at the border of what was tried, of which an answer warns. Each as [mean,
standard error]; `against the rule`: the difference in the same worlds. Tasks count alike. Worlds
with numbers below 100 served to choose constants, those from 1000 on are reported. Results are
written as they end, over those of an earlier run with the same `--name`; others stay.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import functools
import itertools
import json
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import machine
import numpy as np
import optuna
import pandas as pd
from optuna._gp.acqf import LogEI
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, PartialFixedSampler, TPESampler
from optuna.trial import create_trial
from scipy.interpolate import PchipInterpolator

sys.path.insert(0, str(Path(__file__).resolve().parent / "lab"))
from replay import Table

from elsa_tune.searching.inputs import Inputs, SearchOptions
from elsa_tune.searching.planning.known import KnownTrial, is_cheap, relative_cost, tries_of
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.specification import specify
from elsa_tune.searching.tune.asha import PerCandidateAsha
from elsa_tune.searching.tune.trainable import TRIAL
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.border import Border, border
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.rate_space import canonical_rate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus
from elsa_tune.tasks.task_file import resolve_task

LAB = Path(__file__).resolve().parent / "lab"
KEPT_ASIDE = "cola"
TASKS = ("mrpc", "sst2", "stdlib", "stsb")
SYNTHETIC = ("drift", "low", "flat", "deaf", "rough")
RATE = "learning_rate"
DEPTH = "frozen_layers"
LOW = 1e-6
WIDE = "{low: 1e-6, high: 1e-2}"
HIGH = 1e-2
# Rates among which a surface's best one is looked for.
GRID = np.geomspace(LOW, HIGH, 161)
# Today's first rates: the highest of the given range, and its middle.
FIRST_RATES = (5e-5, 2e-5)
# Of a Gaussian process fitted to the tables: of the rate (of 13.3 octaves) and of the depth, the
# latter over the former's order in the study; of standardised scores their level and noise.
LENGTH_SCALES = (0.35, 0.2)
KERNEL_SCALE = 1.7
NOISE_SHARE = 0.02
PRIOR_SPREAD = 0.4
# Nearer to a rate that was tried, another is not worth a trial.
LEAST_STEP = 1.2
EVALUATIONS = 4
EARLY_NOISE = (1.0, 0.6, 0.3, 0.0)  # of seeds, at each evaluation, beside the depth's own
# Of seeds: the median of bench/results/seed_spreads.json, and how far its logarithm spreads.
OF_SEED = 0.0104
SPREAD_OF_SPREAD = 0.6


class World(Protocol):
    """A task whose truth is known."""

    name: str
    layers: int
    depths: tuple[int, ...]
    chance: float
    evaluations: int

    def curve(self, depth: int, rate: float, number: int) -> np.ndarray:
        """Return the scores [evaluations] of a depth's exploring trial of this number."""
        ...

    def expected(self, depth: int, rate: float) -> float:
        """Return what a fresh seed can expect."""
        ...


class Recorded:
    """A table's trials of one exploring seed, as they are; other seeds are the truth."""

    def __init__(self, task: str, seed: int) -> None:
        self._table = Table(LAB / f"{task}.parquet", 6)
        self._seed = seed
        self._others = {other for _, other in self._table.found} - {seed}
        self.name = task
        self.layers = 6
        self.depths = tuple(self._table.depths(seed))
        self.chance = self._table.chance
        self.evaluations = self._table.evaluations

    def curve(self, depth: int, rate: float, number: int) -> np.ndarray:
        return self._table.scores(depth, self._seed, rate)

    def expected(self, depth: int, rate: float) -> float:
        """Return minus what the table says is lost, which is all that is ever compared."""
        return -self._table.lost(depth, rate, self._others) / 100


class Redrawn:
    """A table's mean over seeds, with one seed's deviation drawn for each trial."""

    def __init__(self, task: str, layers: int, number: int) -> None:
        self._table = Table(LAB / f"{task}.parquet", layers)
        self._number = number
        self.name = task
        self.layers = layers
        self.depths = 0, *range(layers // 2, layers + 1)
        self.chance = self._table.chance
        self.evaluations = self._table.evaluations
        self._places: dict[int, np.ndarray] = {}
        self._means: dict[int, PchipInterpolator] = {}
        self._deviations: dict[int, list[list[np.ndarray]]] = {}
        for depth in {recorded for recorded, _ in self._table.found}:
            by_rate: dict[float, list[np.ndarray]] = {}
            for (recorded, _), scores in self._table.found.items():
                for rate, curve in scores.items():
                    if recorded == depth:
                        by_rate.setdefault(rate, []).append(curve)
            rates = sorted(by_rate)
            means = [np.mean(by_rate[rate], axis=0) for rate in rates]
            self._places[depth] = np.log(rates)
            self._means[depth] = PchipInterpolator(np.log(rates), np.stack(means))
            self._deviations[depth] = []
            for rate, mean in zip(rates, means, strict=True):
                curves = by_rate[rate]
                scale = math.sqrt(len(curves) / max(1, len(curves) - 1))
                self._deviations[depth].append([scale * (curve - mean) for curve in curves])

    def _sides(self, depth: int) -> tuple[int, int]:
        place = 6 * depth / self.layers
        return math.floor(place), math.ceil(place)

    def _mean(self, depth: int, rate: float) -> np.ndarray:
        places = self._places[depth]
        mean: np.ndarray = self._means[depth](np.clip(math.log(rate), places[0], places[-1]))
        return mean

    def curve(self, depth: int, rate: float, number: int) -> np.ndarray:
        draw = np.random.default_rng([self._number, depth, number, self.layers])
        side = int(draw.choice(self._sides(depth)))
        nearest = int(np.argmin(np.abs(self._places[side] - math.log(rate))))
        deviations = self._deviations[side][nearest]
        deviation = deviations[int(draw.integers(len(deviations)))]
        if len(deviations) == 1:  # one seed says nothing of their spread
            learns = self._mean(side, rate)[-1] > self.chance + 0.01
            deviation = draw.normal(0, OF_SEED if learns else 0)
        below, above = self._sides(depth)
        return (self._mean(below, rate) + self._mean(above, rate)) / 2 + deviation

    def expected(self, depth: int, rate: float) -> float:
        below, above = self._sides(depth)
        return float(self._mean(below, rate)[-1] + self._mean(above, rate)[-1]) / 2


class Drawn:
    """A surface over the logarithm of the rate and the depth, as `family` has it."""

    def __init__(self, family: str, number: int) -> None:
        draw = np.random.default_rng([SYNTHETIC.index(family), number])
        self._number = number
        self.name = family
        self.layers = 12
        self.depths = (0, *range(6, 13))
        self.evaluations = EVALUATIONS
        self.chance = 0.5
        share = np.array(self.depths) / self.layers
        gain = draw.uniform(0.15, 0.4)
        kept = 1 - draw.uniform(0.1, 0.8) * share ** draw.uniform(2, 5)
        if family == "deaf":
            kept[len(kept) // 2 :] = 0
        first = draw.uniform(math.log2(3e-5), math.log2(2e-4))
        drift = draw.uniform(1, 5) * share ** draw.uniform(0.7, 2)
        width = draw.uniform(1.0, 3.0) + draw.uniform(0, 3) * share
        margin = draw.uniform(1.0, 3.0) + draw.uniform(0, 3) * share
        if family == "low":
            first = draw.uniform(math.log2(4e-6), math.log2(2e-5))
            margin = draw.uniform(0.7, 1.5) + draw.uniform(0, 2) * share
        if family == "flat":
            width = width + 2
            margin = margin + 2
        jump = 1.0 if family == "rough" else 0.2
        centres = first + drift + draw.normal(0, jump, len(share))
        spread = OF_SEED * np.exp(SPREAD_OF_SPREAD * draw.normal(size=len(share)))
        self._best = dict(zip(self.depths, self.chance + gain * kept, strict=True))
        self._centre = dict(zip(self.depths, centres, strict=True))
        self._width = dict(zip(self.depths, width, strict=True))
        self._edge = dict(zip(self.depths, centres + margin, strict=True))
        self._spread = dict(zip(self.depths, spread, strict=True))
        self._decline = draw.uniform(0, 0.08)  # of what is learnt, an octave above the best rate
        self._slow = draw.uniform(0.1, 0.4)
        self._tilt = draw.uniform(0, 0.7)

    def _learnt(self, depth: int, rate: float) -> float:
        """Return the quality of a trial that does not collapse."""
        octaves = math.log2(rate) - self._centre[depth]
        share = 1 - self._decline * octaves
        if octaves < 0:  # too low a rate learns late, and then not at all
            share = math.exp(-0.7 * (octaves / self._width[depth]) ** 2)
        return self.chance + max(0.0, share) * (self._best[depth] - self.chance)

    def _collapses(self, depth: int, rate: float) -> float:
        """Return the probability that training collapses."""
        return 1 / (1 + math.exp(-(math.log2(rate) - self._edge[depth]) / 0.25))

    def expected(self, depth: int, rate: float) -> float:
        lost = self._collapses(depth, rate)
        return (1 - lost) * self._learnt(depth, rate) + lost * self.chance

    def curve(self, depth: int, rate: float, number: int) -> np.ndarray:
        draw = np.random.default_rng([self._number, depth, number])
        gained = self._learnt(depth, rate) - self.chance
        if draw.random() < self._collapses(depth, rate):
            gained = 0.0
        spread = self._spread[depth] * min(1.0, gained / 0.05)
        of_seed = draw.normal(0, spread)
        octaves = math.log2(rate) - self._centre[depth]
        scores = []
        for evaluation in range(1, EVALUATIONS + 1):
            late = (1 - evaluation / EVALUATIONS) ** 1.2
            progress = max(0.02, 1 - self._slow * late * 2 ** (-self._tilt * octaves))
            noise = draw.normal(0, 1) * spread * EARLY_NOISE[evaluation - 1]
            scores.append(self.chance + gained * min(1.0, progress) + of_seed + noise)
        return np.array(scores)


@functools.cache
def base_specification(
    layers: int, depths: tuple[int, ...], evaluations: int, hunt: bool, overrides: tuple[str, ...]
) -> SearchSpec:
    """Return the search `joint`, or `hunt`, over these depths."""
    name = "hunt" if hunt else "joint"
    space = load_space(name, [f"depths={list(depths)}", f"epochs={evaluations}", *overrides])
    with tempfile.TemporaryDirectory() as folder:
        options = SearchOptions(
            model="minilm",
            task=["stdlib"],
            name="replay",
            storage_path=folder,
            tracking_uri="sqlite:////nowhere",
        )
        inputs = Inputs(
            model=resolve_model("minilm"),
            layers=layers,
            task=resolve_task("stdlib"),
            recipe=space.recipe(evaluations),
            space=space,
            space_name=name,
        )
        return specify(options, inputs)


class Run:
    """A search's exploring trials in one world."""

    def __init__(
        self, world: World, hunt: bool, overrides: tuple[str, ...], **policy: float
    ) -> None:
        base = base_specification(world.layers, world.depths, world.evaluations, hunt, overrides)
        changed = dataclasses.replace(Policy(), **policy)  # type: ignore[arg-type]
        self.world = world
        self.spec: SearchSpec = dataclasses.replace(base, chance=world.chance, policy=changed)
        self.strategy = strategy_of(self.spec)
        self.known: list[KnownTrial] = []
        self.cost = 0.0
        exempt = [depth for depth in self.spec.explored if is_cheap(self.spec, depth)]
        self._score = self.spec.recipe.selection.score
        self._scheduler = PerCandidateAsha(
            self.spec.early_stopping, world.evaluations, self._score, exempt
        )

    def train_at(self, depth: Candidate, rate: float) -> None:
        """Run a depth's trial at a rate."""
        self.train(self.spec.trial(Phase.EXPLORE, depth, rate, self.spec.seed))

    def train(self, spec: TrialSpec) -> None:
        """Run one trial to its end, or until it is stopped."""
        depth = spec.candidate
        rate = spec.learning_rate
        number = len(tries_of(self.known, depth))
        controller: Any = None
        trial: Any = SimpleNamespace(trial_id=f"{spec.key} {number}", config={TRIAL: spec})
        self._scheduler.on_trial_add(controller, trial)
        qualities: list[float] = []
        for quality in self.world.curve(int(depth.rank), rate, number):
            qualities.append(float(quality))
            result = {"evaluation": len(qualities), self._score: qualities[-1]}
            if self._scheduler.on_trial_result(controller, trial, result) == "STOP":
                break
        self.cost += relative_cost(self.spec, depth) * len(qualities) / self.world.evaluations
        is_complete = len(qualities) == self.world.evaluations
        status = TrialStatus.COMPLETED if is_complete else TrialStatus.STOPPED_EARLY
        self.known.append(KnownTrial(trial=spec, status=status, qualities=tuple(qualities)))

    def value(self, trial: KnownTrial) -> float:
        """Return the score that a study is told.

        That of a stopped trial lies as far below the best complete one as it was at its last
        evaluation.
        """
        assert trial.score is not None
        if trial.status is TrialStatus.COMPLETED:
            return trial.score
        at_depth = tries_of(self.known, trial.trial.candidate)
        complete = [other for other in at_depth if other.status is TrialStatus.COMPLETED]
        best = max(complete, key=lambda other: other.score or 0.0)
        return (best.score or 0.0) - (best.scores[len(trial.scores) - 1] - trial.score)


def by_plan(run: Run) -> dict[Any, float]:
    """Explore as the product plans it."""
    while slots := run.strategy.slots(run.known):
        run.train(run.strategy.trial_of(slots[0], run.known))
    return run.strategy.best_rates(run.known)


def alone(run: Run) -> dict[Any, float]:
    """Explore as the product plans it, but ask for each depth as if there were no other."""
    rates = run.strategy.rates
    while True:
        begun = len(run.known)
        for depth in run.spec.explored:
            here = tries_of(run.known, depth)
            rate = rates.next_rate(depth, here)
            if rate is not None:
                run.train(run.spec.trial(Phase.EXPLORE, depth, rate, run.spec.seed))
        if len(run.known) == begun:
            return run.strategy.best_rates(run.known)


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to explore by one of Optuna's own samplers."""

    base: str  # gp, or tpe
    sees: str  # joint: one study conditioned on the depth; blind: PartialFixedSampler; alone
    tries: int  # at each depth, at most; 0: as many as the rule had in the same world
    starts: str = "near"  # near: today's first rates at the full model, then a neighbour's; wide
    order: str = "shallow"  # which depth first: shallow, or all by turns
    gain: float = 0.0  # a depth ends once no rate promises more, in points; 0: never before `tries`
    prior: str = "lab"  # of the GP's length scales: as the tables have them, or Optuna's own


# A depth's threshold: as the product has it, lower where trials are cheap.
DEAR = 0.6
# Tries of a depth before it may end so.
LEAST_TRIES = 2
# Proposals lie within this factor of the rates that the depth has tried.
REACH = 4.0


def lab_prior(gp: Any) -> Any:
    """Return the logarithm of a log-normal prior around what fits the laboratory's tables."""
    import torch

    count = len(gp.inverse_squared_lengthscales)
    scales = torch.tensor(LENGTH_SCALES[:count], dtype=torch.float64)
    terms = (gp.inverse_squared_lengthscales * scales**2).log() / 2 / PRIOR_SPREAD
    level = (gp.kernel_scale / KERNEL_SCALE).log() / PRIOR_SPREAD
    noise = (gp.noise_var / NOISE_SHARE).log() / (2 * PRIOR_SPREAD)
    return -((terms**2).sum() + level**2 + noise**2) / 2


def _apart(rate: float, other: float) -> bool:
    return max(rate / other, other / rate) >= LEAST_STEP


def may_try(rate: float, here: Sequence[float], side: Border | None) -> bool:
    """Return whether a depth that has tried `here` may try a rate; side: the only one it may."""
    if not here:
        return True
    if side is Border.HIGH and rate < max(here):
        return False
    if side is Border.LOW and rate > min(here):
        return False
    is_new = all(_apart(rate, other) for other in here)
    return is_new and min(here) / REACH <= rate <= max(here) * REACH


class OfDepth(GPSampler):
    """A GPSampler that proposes at one depth, for the best there.

    Optuna's own would fix the depth by leaving it out of its model (optuna#6620).
    """

    def __init__(self, depth: int, here: Sequence[float], seed: int, way: Way) -> None:
        super().__init__(seed=seed, n_startup_trials=1, warn_independent_sampling=False)
        if way.prior == "lab":
            self._log_prior = lab_prior
        self._depth = depth
        self._here = here
        self.side: Border | None = None  # the only one on which it may propose
        self.promised = 0.0
        self.means: list[float] = []

    def points(self, space: Any, rates: Sequence[float]) -> np.ndarray:
        """Return this depth's points as the model has them."""
        trials: Any = [SimpleNamespace(params={RATE: rate, DEPTH: self._depth}) for rate in rates]
        points: np.ndarray = space.get_normalized_params(trials)
        return points

    def _optimize_acqf(self, acqf: Any, best_params: np.ndarray | None) -> np.ndarray:
        import torch

        gp, space = acqf._gpr, acqf.search_space
        if self._here:
            tried_points = torch.from_numpy(self.points(space, self._here))
            self.means = gp.posterior(tried_points)[0].tolist()
            acqf = LogEI(gp, space, max(self.means))
        rates = [rate for rate in GRID if may_try(rate, self._here, self.side)]
        if not rates:  # the end of the range
            self.promised = -1.0
            return self.points(space, [self._here[0]])[0]
        candidates = self.points(space, rates)
        values = acqf.eval_acqf_no_grad(candidates)
        self.promised = float(np.exp(values.max()))
        chosen: np.ndarray = candidates[int(np.argmax(values))]
        return chosen


class TpeOfDepth(TPESampler):
    """Multivariate TPE that compares its candidates at one depth."""

    at: int

    def _compute_acquisition_func(self, samples: Any, mpe_below: Any, mpe_above: Any) -> Any:
        samples[DEPTH] = np.full_like(samples[DEPTH], self.at)
        return super()._compute_acquisition_func(samples, mpe_below, mpe_above)


def sampler_of(way: Way, depth: int, here: Sequence[float], seed: int) -> BaseSampler:
    """Return the sampler that proposes for this depth."""
    if way.base == "gp" and way.sees in ("joint", "alone"):
        return OfDepth(depth, here, seed, way)
    options: dict[str, Any] = {"seed": seed, "n_startup_trials": 1}
    if way.base == "gp":
        base: BaseSampler = GPSampler(warn_independent_sampling=False, **options)
    else:
        options.update(multivariate=True, warn_independent_sampling=False)
        if way.sees == "joint":
            of_depth = TpeOfDepth(**options)
            of_depth.at = depth
            return of_depth
        base = TPESampler(group=True, **options)
    return PartialFixedSampler({DEPTH: depth}, base)


def ask(
    way: Way, run: Run, depth: Candidate, seed: int, side: Border | None = None
) -> tuple[float, float]:
    """Return the next rate, and the gain that it promises in points."""
    here = tries_of(run.known, depth)
    shown = here if way.sees == "alone" else run.known
    layers = run.spec.layers
    spaces: dict[str, BaseDistribution] = {RATE: FloatDistribution(LOW, HIGH, log=True)}
    spaces[DEPTH] = IntDistribution(0, layers)
    sampler = sampler_of(
        way, depth.frozen_layers, [trial.trial.learning_rate for trial in here], seed
    )
    if isinstance(sampler, OfDepth):
        sampler.side = side
    study = optuna.create_study(direction="maximize", sampler=sampler)
    values = [run.value(trial) for trial in shown]
    if way.base == "tpe":  # or every deep trial would count as a bad one
        tops: dict[Candidate, float] = {}
        for trial, value in zip(shown, values, strict=True):
            tops[trial.trial.candidate] = max(value, tops.get(trial.trial.candidate, -math.inf))
        values = [v - tops[trial.trial.candidate] for trial, v in zip(shown, values, strict=True)]
    for trial, value in zip(shown, values, strict=True):
        params = {RATE: trial.trial.learning_rate, DEPTH: trial.trial.candidate.frozen_layers}
        study.add_trial(create_trial(params=params, distributions=spaces, value=value))
    rate = float(study.ask(spaces).params[RATE])
    scale = float(np.std(values)) if len(values) > 1 else 1.0
    promised = math.inf
    if isinstance(sampler, OfDepth):
        promised = 100 * sampler.promised * scale
    return canonical_rate(rate), promised


def first_rate(way: Way, run: Run, depth: Candidate) -> float | None:
    """Return a rate that no study proposes: today's first ones, or the nearest depth's best."""
    number = len(tries_of(run.known, depth))
    if way.starts == "wide" or not run.known:
        spread = (1e-4, 1e-5, 1e-3) if way.starts == "wide" else FIRST_RATES
        return spread[number] if number < (3 if way.sees == "alone" else 1) else None
    if way.sees == "alone" and number < 2:
        return FIRST_RATES[number]
    if number:
        return FIRST_RATES[1] if len(run.known) == 1 else None
    others = {trial.trial.candidate for trial in run.known}
    nearest = min(others, key=lambda other: abs(other.frozen_layers - depth.frozen_layers))
    best = max(tries_of(run.known, nearest), key=run.value)
    return best.trial.learning_rate


def by_study(way: Way, run: Run, seed: int, counts: dict[Candidate, int]) -> Any:
    """Explore by an Optuna study. counts: how many tries the rule had."""
    ended: set[Candidate] = set()
    depths = list(run.spec.explored)
    asked = 0
    for number in itertools.count():
        open_depths = [depth for depth in depths if depth not in ended]
        if not open_depths:
            break
        depth = open_depths[0]
        if way.order == "turns":
            depth = min(open_depths, key=lambda other: len(tries_of(run.known, other)))
        here = tries_of(run.known, depth)
        most = way.tries or counts[depth]
        rate = first_rate(way, run, depth) if len(here) < most else None
        if rate is None:
            asked += 1
            rate, promised = ask(way, run, depth, seed * 1000 + number)
            cost = relative_cost(run.spec, depth)
            is_promising = promised > way.gain * (1 - DEAR + DEAR * cost)
            is_promising = is_promising or len(here) < LEAST_TRIES
            side = at_border(run, depth)
            if not is_promising and side is not None and len(here) < most:
                rate, promised = ask(way, run, depth, seed * 1000 + number, side)
                is_promising = promised >= 0
            rates = [trial.trial.learning_rate for trial in here]
            if len(here) >= most or not is_promising or rate in rates:
                ended.add(depth)
                continue
        run.train_at(depth, rate)
    return run.strategy.best_rates(run.known)


RULE = "the rule"
STUDY = "one study"
# Of the space: what the product can be asked to do.
PLANS: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
    RULE: (("sampler=tpe",), {}),
    STUDY: (("sampler=gp",), {}),
    "one study, a gain of 3 points": (("sampler=gp",), {"worth_a_trial": 0.03}),
    "one study, a gain of 5 points": (("sampler=gp",), {"worth_a_trial": 0.05}),
    "one study, 2.2 octaves": (("sampler=gp",), {"rate_scale": 2.2}),
    "one study, 3.2 octaves": (("sampler=gp",), {"rate_scale": 3.2}),
    "one study, 0.18 of the layers": (("sampler=gp",), {"rank_scale": 0.18}),
    "one study, 0.35 of the layers": (("sampler=gp",), {"rank_scale": 0.35}),
    "one study, 3 tries": (("sampler=gp", "tries=3", "extend=false", f"learning_rate={WIDE}"), {}),
    "one study, 4 tries": (("sampler=gp", "tries=4", "extend=false", f"learning_rate={WIDE}"), {}),
    "one study, 5 tries": (("sampler=gp", "tries=5", "extend=false", f"learning_rate={WIDE}"), {}),
}
ALONE = "a study per depth, otherwise as one study"
WAYS: dict[str, Way] = {
    "GPSampler on the depth's slice, ends as one study": Way("gp", "joint", 8, "near", "turns", 4),
    "GPSampler on the slice, as many tries": Way("gp", "joint", 0),
    "GPSampler on the slice, 3 tries": Way("gp", "joint", 3),
    "GPSampler on the slice, 4 tries": Way("gp", "joint", 4),
    "GPSampler on the slice, 5 tries": Way("gp", "joint", 5),
    "GPSampler on the slice, as many tries, Optuna's prior": Way("gp", "joint", 0, prior="optuna"),
    "GPSampler on the slice, as many tries, wide start": Way("gp", "joint", 0, "wide"),
    "PartialFixedSampler around GPSampler, as many tries": Way("gp", "blind", 0),
    "GPSampler per depth, as many tries": Way("gp", "alone", 0),
    "TPE on the slice, as many tries": Way("tpe", "joint", 0),
    "TPE on the slice, 3 tries": Way("tpe", "joint", 3),
    "TPE on the slice, 4 tries": Way("tpe", "joint", 4),
    "TPE on the slice, 5 tries": Way("tpe", "joint", 5),
    "PartialFixedSampler around TPE, as many tries": Way("tpe", "blind", 0),
    "TPE per depth, as many tries": Way("tpe", "alone", 0),
}


def at_border(run: Run, depth: Candidate) -> Border | None:
    """Return where the depth's best rate lies, as an answer would warn of it."""
    scores: dict[float, float | None] = {}
    for trial in tries_of(run.known, depth):
        is_complete = trial.status is TrialStatus.COMPLETED
        scores[trial.trial.learning_rate] = trial.score if is_complete else None
    return border(scores, run.spec.chance, run.spec.policy.noise)


def world_of(kind: str, name: str, number: int) -> World:
    """Return one world of a kind."""
    if kind == "recorded":
        return Recorded(name, number)
    if kind == "synthetic":
        return Drawn(name, number)
    return Redrawn(name, int(kind.split()[1]), number)


def studies(job: tuple[str, str, int, tuple[str, ...], bool]) -> list[dict[str, Any]]:
    """Every way in one world: a row for each depth."""
    kind, name, number, ways, hunt = job
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    world = world_of(kind, name, number)
    best = {n: max(world.expected(n, rate) for rate in GRID) for n in world.depths}
    rows = []
    counts: dict[Any, int] = {}
    for way in (RULE, *ways):
        overrides, policy = PLANS.get(way, PLANS[STUDY])
        run = Run(world, hunt, overrides, **policy)
        started = time.process_time()
        if way in WAYS:
            rates = by_study(WAYS[way], run, number, counts)
        else:
            rates = alone(run) if way == ALONE else by_plan(run)
        spent = time.process_time() - started
        if way == RULE:
            counts = {depth: len(tries_of(run.known, depth)) for depth in run.spec.explored}
        for depth in run.spec.explored:
            if depth not in rates:  # a hunt measures nothing where nothing was learnt
                continue
            n = int(depth.rank)
            rows.append(
                {
                    "kind": kind,
                    "task": name,
                    "number": number,
                    "way": way,
                    "frozen_layers": n,
                    "regret": 100 * (best[n] - world.expected(n, rates[depth])),
                    "trials": len(tries_of(run.known, depth)),
                    "border": at_border(run, depth) is not None,
                    "cost": run.cost,
                    "seconds": spent / len(run.known),
                }
            )
    return rows


def mean_and_error(values: pd.Series) -> list[float]:
    """Return the mean over tasks alike, and its standard error."""
    groups = values.groupby("task")
    means = groups.mean()
    variances = groups.var(ddof=1).fillna(0) / groups.size()
    return [round(float(means.mean()), 3), round(math.sqrt(variances.sum()) / len(means), 3)]


def summary(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Each kind of world and way, with every depth."""
    for kind, of_kind in rows.groupby("kind", sort=False):
        rule = of_kind[of_kind.way == RULE].set_index(["task", "number", "frozen_layers"])
        for way, of_way in of_kind.groupby("way", sort=False):
            table = of_way.set_index(["task", "number", "frozen_layers"])
            apart = table[["regret", "trials", "cost"]] - rule[["regret", "trials", "cost"]]
            searches = ["task", "number"]
            found: dict[str, Any] = {"worlds": kind, "way": way}
            found["searches"] = len(of_way.groupby(searches))
            found["regret"] = mean_and_error(table.regret.groupby(searches).mean())
            found["trials"] = mean_and_error(table.trials.groupby(searches).sum())
            found["cost"] = mean_and_error(table.cost.groupby(searches).first())
            found["border"] = mean_and_error(table.border.groupby(searches).mean())
            found["seconds_a_trial"] = round(float(table.seconds.mean()), 4)
            found["against the rule"] = {
                "regret": mean_and_error(apart.regret.groupby(searches).mean()),
                "trials": mean_and_error(apart.trials.groupby(searches).sum()),
                "cost": mean_and_error(apart.cost.groupby(searches).first()),
            }
            found["depths"] = {}
            for depth, at_depth in table.groupby("frozen_layers"):
                moved = apart[apart.index.get_level_values("frozen_layers") == depth]
                found["depths"][int(depth)] = {
                    "regret": mean_and_error(at_depth.regret),
                    "trials": mean_and_error(at_depth.trials),
                    "against the rule": mean_and_error(moved.regret),
                }
            by_task = table.regret.groupby("task").mean()
            found["tasks"] = {str(task): round(float(v), 2) for task, v in by_task.items()}
            yield found


def show(found: dict[str, Any]) -> str:
    """One line."""
    depths = " ".join(f"{n}:{v['regret'][0]:.2f}" for n, v in found["depths"].items())
    moved = found["against the rule"]["regret"]
    return (
        f"{found['worlds']:14} {found['way']:38} regret {found['regret'][0]:5.2f} "
        f"({moved[0]:+.2f} ± {moved[1]:.2f})  trials {found['trials'][0]:5.1f}  "
        f"cost {found['cost'][0]:5.2f}  border {found['border'][0]:.2f}  "
        f"{found['seconds_a_trial'] * 1000:4.0f} ms  [{depths}] {found['tasks']}"
    )


def main() -> None:
    """Every way in every world."""
    names = (STUDY, ALONE, *(name for name in PLANS if name not in (RULE, STUDY)), *WAYS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=40, help="of each task and family")
    parser.add_argument("--kinds", nargs="+", default=["redrawn 6", "redrawn 12", "synthetic"])
    parser.add_argument("--ways", nargs="+", default=[STUDY, ALONE], help="names, or * in them")
    parser.add_argument("--first", type=int, default=1000, help="number of the first world")
    parser.add_argument("--hunt", action="store_true", help="explore what a hunt explores")
    parser.add_argument("--aside", action="store_true", help=f"{KEPT_ASIDE} alone")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--name", default="samplers", help="of the file; '' writes none")
    options = parser.parse_args()
    ways = tuple(
        name for name in names if any(fnmatch.fnmatch(name, wanted) for wanted in options.ways)
    )
    file = machine.RESULTS / f"{options.name}.json"
    kept = {}
    if options.name and file.exists():
        for before in json.loads(file.read_text())["results"]:
            kept[before["worlds"], before["way"]] = before
    note = "regret in points of quality, cost in trials of the full model; [mean, s.e.]"
    with ProcessPoolExecutor(options.processes) as pool:
        for kind in options.kinds:
            tasks: Sequence[str] = SYNTHETIC if kind == "synthetic" else TASKS
            if options.aside and kind == "synthetic":
                continue
            if options.aside:
                tasks = (KEPT_ASIDE,)
            numbers = range(options.first, options.first + options.worlds)
            if kind == "recorded":  # the seeds that explored every depth
                numbers = range(2)
            jobs = []
            for number, task in itertools.product(numbers, tasks):
                jobs.append((kind, task, number, ways, options.hunt))
            rows = []
            for part in pool.map(studies, jobs, chunksize=2):
                rows.extend(part)
            for found in summary(pd.DataFrame(rows)):
                kept[found["worlds"], found["way"]] = found
                print(show(found), flush=True)
            if options.name:
                machine.write(options.name, list(kept.values()), note)


if __name__ == "__main__":
    main()
