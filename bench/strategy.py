"""Whole searches in virtual time: what a certified answer costs, and how often it is right.

    python bench/strategy.py                       # `hunt` and `even` on all families
    python bench/strategy.py --studies 50 --families smooth flat --workers 8

The product's own searcher, plan, early stopping and certificate run; only training is replaced, by
draws from a world with a known truth: quality by depth and learning rate, seeds that spread,
examples that differ in difficulty (the probit model of calibration.py), learning curves that
flatter high rates early, and costs of trials as `relative_cost` has them. What is claimed is what a
depth keeps of the full model's gain over a constant answer; `--claims both` has the raw score
instead, which was the first of the two claims of searches that were recorded without one. Writes
bench/results/strategy.json: for each family and plan the mean cost in trials of the full model
(`cost`), the virtual time with so many workers in the same unit (`time`), the share of studies with
a false claim at the chosen rates (`false`), and against the full model at its best rate
(`strong_false`), the share in which the deepest provable depth, or one layer more, is certified
(`near`, of the studies where there is one), and what the full model's rate costs (`regret`).

Families: smooth, flat, cliff, uneven, near_chance, all_needed, rough_rates, unlearnt, minilm (the
first table that was measured, 6 layers), boundary, noisy_full, noisy_depth, plateau (as in
calibration.py), noisy_full_4, noisy_depth_4, noisy_both_4 (the same with seeds that spread 4 times
as much as others), partial (boundary, where a tenth of the deciding depth's seeds lose 10 points),
trap (the first depth of a hunt's ladder and the first deep one both miss the target by nothing, so
that whichever is tested first may be claimed falsely). 24 layers were kept aside from every choice
of a constant. `false_as_seen`: the share of studies with a claim that is false even if fresh seeds
fail as often as the study's runs did, which is what an answer claims.

`--first-look-shares .25`: what a depth's first look has of the error that its two looks share.

`--metrics f1 matthews`: the same studies, judged by another metric of their answers. Cells are
written as they end, over those of an earlier run with the same `--name`; others stay.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import heapq
import itertools
import json
import math
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace
from typing import Any

import machine
import numpy as np
import optuna
from calibration import DIFFICULTY, NOISY, OF_DEPTH, OF_SEED, OWN, TARGET, _fewer_draws, _Kept
from calibration import quality_of as metric_of
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from elsa_tune.analysis.answers import answer_rows, freeze_curves
from elsa_tune.analysis.statistics import resampling
from elsa_tune.analysis.statistics.resampling import Floats
from elsa_tune.searching.inputs import Inputs, SearchOptions
from elsa_tune.searching.planning.known import KnownTrial, is_cheap, relative_cost
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.planning.strategy import Findings
from elsa_tune.searching.specification import specify
from elsa_tune.searching.tune.asha import PerCandidateAsha
from elsa_tune.searching.tune.searcher import PlanSearcher
from elsa_tune.searching.tune.trainable import TRIAL
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.policy import Claim, Policy
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus
from elsa_tune.tasks.task_file import resolve_task

FAMILIES = (
    *("smooth", "flat", "cliff", "uneven", "near_chance", "all_needed", "rough_rates", "unlearnt"),
    *("minilm", "boundary", "noisy_full", "noisy_depth", "plateau"),
    *("noisy_full_4", "noisy_depth_4", "noisy_both_4", "partial", "trap"),
)
AT_BOUNDARY = (
    *("boundary", "noisy_full", "noisy_depth", "plateau", "noisy_full_4", "noisy_depth_4"),
    *("noisy_both_4", "partial", "trap"),
)
PARTIAL_RATE = 0.1  # share of the seeds of one depth that lose
PARTIAL_LOSS = 0.1  # so much accuracy
NOISIEST = 4.0  # times the spread between seeds of other depths
# The space, and what is set in it.
PLANS: dict[str, tuple[str, tuple[str, ...]]] = {
    "hunt": ("hunt", ()),
    "hunt, until certified": ("hunt", ()),
    "hunt, thorough": ("hunt", ("thorough=true",)),
    "even, 3 seeds": ("joint", ()),
    "even, 5 seeds": ("joint", ("seeds=5",)),
}
EPOCHS = 3
EARLY_NOISE = (1.0, 0.6, 0.0)  # of seeds, at each epoch, beside the depth's own
SPREAD_OF_SPREAD = 0.35  # of the logarithm, between depths
# MiniLM on SST-2, 1,000 examples, at 1e-5 .. 5e-5; what lies beyond is as at 5e-5.
MINILM = {
    0: (0.545, 0.781, 0.791, 0.799, 0.805),
    3: (0.54, 0.765, 0.778, 0.785, 0.789),
    4: (0.53, 0.742, 0.768, 0.780, 0.788),
    5: (0.512, 0.53, 0.60, 0.65, 0.689),
    6: (0.5115, 0.5115, 0.5115, 0.5115, 0.5115),
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is claimed; how examples and seeds differ, on the probit scale; how seeds fail."""

    claim: Claim = Claim.CORRECTED
    first_look_share: float = Policy().first_look_share  # of the error that two looks share
    difficulty: float = DIFFICULTY  # standard deviation of examples, for every depth and seed
    of_depth: float = OF_DEPTH  # of examples at one depth, for all of its seeds
    of_seed: float = OF_SEED  # of seeds
    partial_rate: float = PARTIAL_RATE  # share of one depth's seeds that lose ...
    partial_loss: float = PARTIAL_LOSS  # ... so much accuracy


def noisy_places(family: str, at: int | None) -> dict[int, float]:
    """Return how many times others' seeds spread at depths where they spread more, by place."""
    times = NOISIEST if family.endswith("_4") else NOISY
    places: dict[int, float] = {}
    if family.startswith(("noisy_full", "noisy_both")):
        places[0] = times
    if family.startswith(("noisy_depth", "noisy_both")) and at is not None:
        places[at] = times
    return places


def constant_answer(metric: str, rarer: float) -> float:
    """Return what the best constant answer scores. rarer: the share of the rarer of two classes."""
    if metric == "accuracy":
        return 1 - rarer
    return 2 * rarer / (1 + rarer) if metric == "f1" else 0.0


class World:
    """One study's truth, its examples, and every run that is made in it."""

    def __init__(
        self,
        family: str,
        layers: int,
        examples: int,
        metric: str,
        draw: np.random.Generator,
        kind: Kind,
    ) -> None:
        self.metric = metric
        self.kind = kind
        self.layers = 6 if family == "minilm" else layers
        half = math.ceil(self.layers / 2)
        self.depths = (0, *range(half, self.layers + 1))
        self.family, self.draw, self.examples = family, draw, examples
        count = len(self.depths)
        frozen = np.array(self.depths) / self.layers
        self.prevalence = 0.509 if family == "minilm" else draw.uniform(0.5, 0.6)
        self.base = 0.0
        if kind.claim is Claim.CORRECTED:
            self.base = constant_answer(metric, 1 - self.prevalence)
        self.at: int | None = None
        self.partial_at: int | None = None
        gain = self._drawn_gain()
        best = self._drawn_best(frozen, gain)
        if family in AT_BOUNDARY:
            best = self._drawn_boundary(gain)
        self.best = dict(zip(self.depths, best, strict=True))
        slope = draw.uniform(0.6, 2.6), draw.uniform(0, 1.2)
        centres = slope[0] + slope[1] * frozen + draw.normal(0, 0.15, count)
        self.centres = dict(zip(self.depths, centres, strict=True))
        self.curvature = draw.uniform(0.02, 0.12)
        self.rough = draw.uniform(0, 0.1, (count, 5))
        self.rough[np.arange(count), draw.integers(0, 5, count)] = 0
        self.slow, self.tilt = draw.uniform(0.1, 0.4), draw.uniform(0, 0.7)
        spread = kind.of_seed * np.exp(SPREAD_OF_SPREAD * draw.normal(size=count))
        for place, times in self._noisy_places().items():
            spread[place] = times * kind.of_seed
        self.spread = dict(zip(self.depths, spread, strict=True))
        labels = draw.random(examples) >= self.prevalence
        self.labels = (labels if labels.mean() < 0.5 else ~labels).astype(np.int8)
        self.chance = constant_answer(metric, float(self.labels.mean()))
        self.difficulty = draw.normal(0, kind.difficulty, examples)
        self.of_depth = {n: draw.normal(0, kind.of_depth, examples) for n in self.depths}

    def _noisy_places(self) -> dict[int, float]:
        """Return how many times others' seeds spread at depths where they spread more, by place."""
        return noisy_places(self.family, self.at)

    def _drawn_gain(self) -> float:
        """Draw what the full model gains over a constant answer."""
        gain = self.draw.uniform(0.2, 0.35)
        if self.family == "near_chance":
            gain = self.draw.uniform(0.03, 0.1)
        return 0.002 if self.family == "unlearnt" else float(gain)

    def _drawn_best(self, frozen: Floats, gain: float) -> Floats:
        """Draw each depth's accuracy at its best rate. frozen: shares of the layers."""
        draw = self.draw
        family = self.family
        count = len(frozen)
        kept = 1 - draw.uniform(0.3, 0.95) * frozen ** draw.uniform(2, 6)
        if family == "flat":
            kept = 1 - draw.uniform(0, 0.06) * frozen
            kept[-1] -= draw.uniform(0.2, 0.8)
        if family == "uneven":
            kept = kept + draw.uniform(-0.08, 0.08, count) * (frozen > 0)
        if family == "all_needed":
            kept = 1 - draw.uniform(0.45, 0.6) - draw.uniform(0.1, 0.4) * (frozen - 0.5).clip(0)
            kept[0] = 1
        if family == "cliff":
            at = int(draw.integers(1, count))
            low = draw.uniform(0.1, 0.5)
            kept = np.where(np.arange(count) < at, 1 - draw.uniform(0, 0.08) * frozen, low)
        return np.minimum(self.prevalence + gain * np.maximum(kept, 0), 0.985)

    def _drawn_boundary(self, gain: float) -> Floats:
        """Draw which depth lies just below the target, and return the accuracies."""
        count = len(self.depths)
        at = int(self.draw.integers(1, count))
        if self.family == "trap":
            at = 1
        self.at = at
        # Shallower ones are beyond doubt: else this depth is seldom tested.
        best = self.prevalence + gain * np.where(np.arange(count) < at, 1.1, 0.5)
        best[0] = self.prevalence + gain
        of_full = metric_of(self.metric, best[0], self.prevalence)
        least = self.base + TARGET * (of_full - self.base) - 1e-6
        missed = brentq(lambda a: metric_of(self.metric, a, self.prevalence) - least, 0.5, 0.9999)
        best[at : count if self.family == "plateau" else at + 1] = missed
        if self.family == "trap":
            best[count - math.ceil(self.layers / 4) - 1] = missed
        if self.family == "partial":
            self.partial_at = self.depths[at]
            best[at] += self.kind.partial_rate * self.kind.partial_loss
        return best

    def quality(self, frozen: int, rate: float, failing: float | None = None) -> float:
        """Return what a fresh seed can expect. failing: how often seeds fail partly."""
        accuracy = self._accuracy(frozen, rate)
        if frozen == self.partial_at:
            rate_of_failing = self.kind.partial_rate if failing is None else failing
            accuracy -= self.kind.partial_loss * rate_of_failing
        return metric_of(self.metric, accuracy, self.prevalence)

    def _accuracy(self, frozen: int, rate: float) -> float:
        place = math.log2(rate / 1e-5)
        if self.family == "minilm":
            return float(np.interp(place, np.log2([1, 2, 3, 4, 5]), MINILM[frozen]))
        best = self.best[frozen]
        if self.at is not None and frozen in (0, *self.depths[self.at :]):
            return best  # at any rate the truth lies on the boundary
        if self.family == "rough_rates":
            nearest = int(np.argmin(np.abs(np.log2([1, 2, 3, 4, 5]) - place)))
            loss = self.rough[self.depths.index(frozen)][nearest] if place < 2.5 else 0.1
        else:
            loss = min(self.curvature * (place - self.centres[frozen]) ** 2, 0.6)
        return best - loss * (best - self.prevalence)

    def full_at_its_best(self) -> float:
        """Return the full model's expected quality at its best rate."""
        return max(self.quality(0, rate) for rate in np.geomspace(5e-6, 4e-4, 60))

    def misses(self, quality: float, full: float) -> bool:
        """Whether an expected quality misses the target of what is claimed."""
        return quality - self.base < TARGET * (full - self.base)

    def run(self, trial: TrialSpec) -> tuple[list[float], np.ndarray]:
        """Return a trial's qualities at each epoch, and its last answers."""
        frozen = trial.candidate.frozen_layers
        spread = self.spread[frozen]
        kind = self.kind
        total = math.sqrt(OWN + kind.difficulty**2 + kind.of_depth**2 + spread**2)
        expected = self._accuracy(frozen, trial.learning_rate)
        if frozen == self.partial_at and self.draw.random() < kind.partial_rate:
            expected -= kind.partial_loss
        place = math.log2(trial.learning_rate / 1e-5)
        of_seed = self.draw.normal(0, spread)
        qualities: list[float] = []
        answered = self.labels
        for epoch in range(1, EPOCHS + 1):
            late = (1 - epoch / EPOCHS) ** 1.2
            progress = min(max(1 - self.slow * late * 2 ** (self.tilt * (1.6 - place)), 0.02), 1)
            quality = self.prevalence + (expected - self.prevalence) * progress
            level = ndtri(quality) * total + of_seed
            level += self.draw.normal(0, spread * EARLY_NOISE[epoch - 1])
            share = ndtr(level + self.difficulty + self.of_depth[frozen])
            right = self.draw.random(self.examples) < share
            answered = np.where(right, self.labels, 1 - self.labels).astype(np.int8)
            qualities.append(resampling.score(self.answers(answered), self.metric))
        return qualities, answered

    def answers(self, answered: np.ndarray) -> Predictions:
        """Return a run's answers, as they are kept."""
        return Predictions(predictions=answered, labels=self.labels, classes=2)


class Study:
    """A search in a world, by the product's own searcher, with so many workers."""

    def __init__(self, world: World, spec: SearchSpec, workers: int) -> None:
        self.world, self.spec, self.workers = world, spec, workers
        self.known: dict[str, KnownTrial] = {}
        self.rows: list[ResultRow] = []
        self.answers: dict[str, Predictions] = {}
        self.rates: dict[Any, float] = {}
        self.cost = self.time = 0.0
        self.strategy = strategy_of(spec)
        self.decisions: dict[str, Any] = {}
        self._judged: tuple[int, Any] = (-1, None)

    def search(self) -> None:
        """Until the searcher has finished."""
        spec = self.spec
        searcher = PlanSearcher(
            self.strategy,
            lambda: list(self.known.values()),
            {},
            self.rates.update,
            measuring=self._measuring,
        )
        exempt = [depth for depth in spec.explored if is_cheap(spec, depth)]
        scheduler = PerCandidateAsha(spec.early_stopping, EPOCHS, exempt=exempt)
        # (time, number, trial, epochs run): ends of epochs.
        running: list[tuple[float, int, Any, int]] = []
        numbers = itertools.count()
        controller: Any = None
        while True:
            while len(running) < self.workers:
                number = next(numbers)
                config = searcher.suggest(str(number))
                if not isinstance(config, dict):
                    break
                trial = config[TRIAL]
                ray_trial: Any = SimpleNamespace(trial_id=str(number), config=config)
                scheduler.on_trial_add(controller, ray_trial)
                one = SimpleNamespace(ray=ray_trial, spec=trial, run=self.world.run(trial))
                heapq.heappush(running, (self.time + self._epoch(trial), number, one, 1))
            if not running:
                return
            self.time, number, one, epoch = heapq.heappop(running)
            self.cost += self._epoch(one.spec)
            result = {"evaluation": epoch, "quality": one.run[0][epoch - 1]}
            is_stopped = scheduler.on_trial_result(controller, one.ray, result) == "STOP"
            is_over = is_stopped or epoch == EPOCHS
            self._record(one, epoch, is_over)
            if is_over:
                searcher.on_trial_complete(str(number))
            else:
                heapq.heappush(running, (self.time + self._epoch(one.spec), number, one, epoch + 1))

    def _epoch(self, trial: TrialSpec) -> float:
        return relative_cost(self.spec, trial.candidate) / EPOCHS

    def _record(self, one: Any, epoch: int, is_over: bool) -> None:
        trial: TrialSpec = one.spec
        qualities, answered = one.run
        status = TrialStatus.RUNNING
        if is_over:
            status = TrialStatus.COMPLETED if epoch == EPOCHS else TrialStatus.STOPPED_EARLY
        self.known[trial.key] = KnownTrial(
            trial=trial, status=status, qualities=tuple(qualities[:epoch])
        )
        if not is_over or trial.phase is Phase.EXPLORE:
            return
        self.answers[trial.key] = self.world.answers(answered)
        self.rows.append(
            ResultRow(
                model="synthetic",
                task="synthetic",
                layers=self.world.layers,
                candidate=trial.candidate,
                quality=qualities[-1],
                status=status,
                phase=trial.phase,
                metric=self.world.metric,
                chance=self.world.chance,
                learning_rate=trial.learning_rate,
                seed=trial.seed,
                search="study",
                trial=trial.key,
                examples=self.world.examples,
                predictions=trial.key,
                looks=self.strategy.looks(trial.candidate, self.decisions),
                policy=self.spec.policy,
            )
        )

    def _measuring(self, rates: Any, known: Any) -> Any:
        findings = Findings(
            known=known, chosen_rates=rates, curve=self._curve, decisions=self.decisions
        )
        step = self.strategy.next(findings)
        if step.decision is not None:
            self.decisions[step.decision.what] = step.decision.value
        return step

    def _curve(self) -> Any:
        if self._judged[0] != len(self.rows):
            curves = freeze_curves(self.rows, _Kept(self.answers))
            self._judged = len(self.rows), next(iter(curves), None)
        return self._judged[1]

    def verdict(self) -> dict[str, Any]:
        """Return what was claimed, and what is true at the chosen rates."""
        [answer] = answer_rows(self.rows, TARGET, evidence=_Kept(self.answers))
        world, rates = self.world, {d.frozen_layers: rate for d, rate in self.rates.items()}
        full, best = world.quality(0, rates[0]), world.full_at_its_best()
        measured = sorted({row.candidate.frozen_layers for row in self.rows} - {0})
        certified = answer.claimed.candidate.frozen_layers if answer.claimed else 0
        claimed = [n for n in measured if n <= certified]
        tops = {
            n: max(world.quality(n, r) for r in np.geomspace(5e-6, 4e-4, 60)) for n in world.depths
        }
        reach = [n for n in world.depths if not world.misses(tops[n] + 1e-9, best)]
        provable = [n for n in world.depths if set(m for m in world.depths if m <= n) <= set(reach)]
        truths = {max(provable), max(reach)}
        failed, count = answer.uncertainty.failures()
        seen = failed / count if count else 0.0
        as_seen = [n for n in claimed if world.misses(world.quality(n, rates[n], seen), full)]
        return {
            "cost": self.cost,
            "time": self.time,
            "trials": len(self.known),
            "claims": certified > 0,
            "false": any(world.misses(world.quality(n, rates[n]), full) for n in claimed),
            "false_as_seen": bool(as_seen),
            "strong_false": any(world.misses(world.quality(n, rates[n]), best) for n in claimed),
            "near": certified > 0 and any(t - certified in (0, 1) for t in truths)
            if max(reach) > 0
            else None,
            "regret": best - full,
        }


def specification(plan: str, world: World) -> SearchSpec:
    """Return the search of a plan in a world."""
    name, overrides = PLANS[plan]
    space = load_space(name, ["epochs=3", *overrides])
    with tempfile.TemporaryDirectory() as folder:
        options = SearchOptions(
            model="minilm",
            task=["stdlib"],
            name="study",
            storage_path=folder,
            tracking_uri="sqlite:////nowhere",
            until="certified" if plan.endswith("until certified") else None,
        )
        inputs = Inputs(
            model=resolve_model("minilm"),
            layers=world.layers,
            task=resolve_task("stdlib"),
            recipe=space.recipe(EPOCHS),
            space=space,
            space_name=name,
        )
        policy = dataclasses.replace(
            Policy(), claim=world.kind.claim, first_look_share=world.kind.first_look_share
        )
        spec = specify(options, inputs, policy=policy)
    return dataclasses.replace(spec, chance=world.chance, evaluation_examples=world.examples)


def cell(job: tuple[str, str, int, int, int, str, Claim, float, int]) -> dict[str, Any]:
    """All studies of one family and plan."""
    family, plan, layers, examples, workers, metric, claim, first_look_share, studies = job
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    started, found = time.monotonic(), []
    kind = Kind(claim=claim, first_look_share=first_look_share)
    for number in range(studies):
        # The same worlds for every plan.
        key = [FAMILIES.index(family), layers, examples, number]
        world = World(family, layers, examples, metric, np.random.default_rng(key), kind)
        study = Study(world, specification(plan, world), workers)
        study.search()
        found.append(study.verdict())

    def mean(name: str) -> float | None:
        values = [one[name] for one in found if one[name] is not None]
        return round(float(np.mean(values)), 4) if values else None

    costs = sorted(one["cost"] for one in found)
    return {
        "family": family,
        "plan": plan,
        "layers": layers,
        "examples": examples,
        "workers": workers,
        "metric": metric,
        "claim": claim.value,
        "first_look_share": first_look_share,
        "studies": studies,
        **{name: mean(name) for name in found[0]},
        "cost_90": round(costs[int(0.9 * (len(costs) - 1))], 2),
        "seconds": round(time.monotonic() - started, 1),
    }


def main() -> None:
    """Every cell, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--plans", nargs="+", default=list(PLANS))
    parser.add_argument("--layers", nargs="+", type=int, default=[12])
    parser.add_argument("--examples", nargs="+", type=int, default=[1000])
    parser.add_argument("--workers", nargs="+", type=int, default=[1])
    parser.add_argument("--metrics", nargs="+", default=["accuracy"])
    parser.add_argument("--claims", nargs="+", type=Claim, default=[Claim.CORRECTED])
    of_first = [Policy().first_look_share]
    parser.add_argument("--first-look-shares", nargs="+", type=float, default=of_first)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--name", default="strategy")
    options = parser.parse_args()
    jobs = [
        (*one, options.studies)
        for one in itertools.product(
            *(options.families, options.plans, options.layers, options.examples),
            *(options.workers, options.metrics, options.claims, options.first_look_shares),
        )
    ]
    note = (
        "synthetic studies; cost and time in trials of the full model, shares of studies; machine "
        "and date are those of the last cells"
    )
    file = machine.RESULTS / f"{options.name}.json"
    cells = (
        {_key(one): one for one in json.loads(file.read_text())["results"]} if file.exists() else {}
    )
    start = functools.partial(_fewer_draws, 1000)
    with ProcessPoolExecutor(options.processes, initializer=start) as pool:
        for found in pool.map(cell, jobs):
            cells[_key(found)] = found
            print(json.dumps(found), flush=True)
            machine.write(options.name, list(cells.values()), note)


def _key(found: dict[str, Any]) -> tuple[Any, ...]:
    """Which cell this is; one that is there already is written over, others stay."""
    names = ("family", "plan", "layers", "examples", "workers")
    metric = found.get("metric", "accuracy")
    claim = found.get("claim", Claim.BOTH.value)
    return (*(found[name] for name in names), metric, claim, found.get("first_look_share"))


if __name__ == "__main__":
    main()
