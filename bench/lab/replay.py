"""How well ways of exploring find each depth's learning rate, replayed on the laboratory's tables.

    python bench/lab/replay.py                 # MiniLM's six layers
    python bench/lab/replay.py --layers 12     # each depth between those of half its number
    python bench/lab/replay.py --model mpnet   # twelve recorded ones

The search's own plan, proposals and early stopping run over recorded trials
(bench/lab/TASK.parquet) instead of training. One seed explores. `missed`: that seed's best recorded
score minus its score at the chosen rate. `regret`: the same of the other seeds' means, where others
were recorded at three rates or more. Both in points of quality, 0 is best. A rate that was not
recorded is read off between its neighbours of the same seed. Cost is in trials of the full model;
`whole`: of each task's search, its measuring trials included (of a hunt, the first looks'). A hunt
gives its ladder rates between those that it explored, and explores only the full model where that
learns nothing.
CoLA is kept aside, and so is every other model than MiniLM: they are reported, and no constant was
chosen on them.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pandas as pd
from record import LAYERS, folder_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import machine

from elsa_tune.searching.inputs import Inputs, SearchOptions
from elsa_tune.searching.planning import samplers
from elsa_tune.searching.planning.known import KnownTrial, Trials, is_cheap, relative_cost, tries_of
from elsa_tune.searching.planning.outward import outward
from elsa_tune.searching.planning.proposals import propose
from elsa_tune.searching.planning.rates import GivenThenOutward, Rates
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.specification import specify
from elsa_tune.searching.tune.asha import PerCandidateAsha
from elsa_tune.searching.tune.trainable import TRIAL
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.rate_space import canonical_rate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tasks.task_file import resolve_task

CHOSEN_ON, KEPT_ASIDE = "minilm", "cola"  # a model, and one of its tasks
BEFORE = ("tries=5", "extend=false", "asha={grace: 1, reduction_factor: 2}")
HUNT = "asha={{grace: {}, reduction_factor: 2, margin: 0.005}}"
WIDE = ("learning_rate={low: 1e-6, high: 1e-2}", "extend=false")
# Name: overrides of the space `joint`, and noise where another than the product's is tried.
WAYS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "before: five rates, rung at a quarter": (BEFORE, None),
    "five rates, rung at half": ((*BEFORE[:2], "asha={grace: 2}"), None),
    "three rates, rung at half": (("tries=3", "extend=false"), None),
    "two rates and outward (the default)": ((), None),
    "two rates and outward, no early stopping": (("asha=null",), None),
    "two rates and outward, rung at a quarter": (("asha={grace: 1}",), None),
    "two rates and outward, rung at three quarters": (("asha={grace: 3}",), None),
    "two lower rates and outward": (("learning_rate=[1e-5, 3e-5]",), None),
    "three rates and outward": (("tries=3",), None),
    "five rates and outward": (("tries=5",), None),
    "outward, noise 0": ((), 0.0),
    "outward, noise 0.0025": ((), 0.0025),
    "outward, noise 0.01": ((), 0.01),
    "hunt": (("strategy=hunt", HUNT.format(0.33)), None),
    "hunt, rung at a quarter": (("strategy=hunt", HUNT.format(1)), None),
    "TPE over 1e-6..1e-2, 5 tries": ((*WIDE, "tries=5"), None),
    "TPE over 1e-6..1e-2, 7 tries": ((*WIDE, "tries=7"), None),
    "TPE over 1e-6..1e-2, 9 tries": ((*WIDE, "tries=9"), None),
}


class FromNeighbour(GivenThenOutward):
    """Begins at the best rate of the next shallower depth and at twice that, then goes outward.

    A depth waits until its neighbour has explored. Where that learnt nothing, it tries the given
    rates, as the default does.
    """

    def planned(self, candidate: Candidate) -> int:
        return super().planned(candidate) if candidate.is_reference else 0

    def most(self, candidate: Candidate) -> int:
        assert self.spec.extend is not None
        return self.spec.tries + self.spec.extend.tries

    def next_rate(self, candidate: Candidate, exploring: Trials) -> float | None:
        if candidate.is_reference:
            return super().next_rate(candidate, exploring)
        place = self.spec.explored.index(candidate)
        neighbour = self.spec.explored[place - 1]
        if self.next_rate(neighbour, exploring) is not None:
            return None
        tries = tries_of(exploring, candidate)
        lent_rate = self._lent(candidate, exploring)
        if len(tries) < self.spec.tries:
            if lent_rate is None:
                return propose(self.spec, candidate, tries)
            return canonical_rate(lent_rate * 2 ** len(tries))
        if len(tries) >= self.most(candidate):
            return None
        patience = self._patience(candidate)
        may_learn = self._reference_may_learn(exploring)
        return outward(self.spec, tries, patience, lent_rate, may_learn)


class Lowest(GivenThenOutward):
    """Measures at the lowest rate that scored at most a point less than the best."""

    def _best_of(self, compared: Trials) -> float:
        shared_age = min(len(trial.scores) for trial in compared)
        merits = {one.learning_rate: self.score_at(shared_age, one) for one in compared}
        best = max(merits.values())
        return min(rate for rate, merit in merits.items() if merit >= best - 0.01)


# Another class of rates than the product's, by the name under which it is reported.
OTHER_RATES: dict[str, type[Rates]] = {
    "from the neighbour's best rate": FromNeighbour,
    "the lowest rate within a point of the best": Lowest,
}


class Table:
    """One task's recorded trials: scores [evaluations] by depth, seed and rate."""

    def __init__(self, file: Path, layers: int, recorded_layers: int) -> None:
        self.task, self.layers, self.recorded_layers = file.stem, layers, recorded_layers
        rows = pd.read_parquet(file)
        self.chance = float(rows.chance.dropna().iloc[0])
        self.evaluations = int(rows.evaluations.max())
        self.found: dict[tuple[int, int], dict[float, np.ndarray]] = {}
        for key, trial in rows.groupby(["frozen_layers", "seed", "learning_rate"]):
            depth, seed, rate = key
            scores = trial.sort_values("evaluation").quality.to_numpy(float)
            if trial.status.iloc[0] == "diverged" or len(scores) < self.evaluations:
                scores = np.full(self.evaluations, self.chance)
            self.found.setdefault((int(depth), int(seed)), {})[float(rate)] = scores

    def depths(self, seed: int) -> list[int]:
        """Those of the default, N = 0 and L/2..L, with three rates or more of this seed."""
        there = {d for d, s in self.found if s == seed and len(self.found[d, s]) > 2}
        depths = [0, *range(self.layers // 2, self.layers + 1)]
        return [n for n in depths if set(self._recorded(n)) <= there]

    def _recorded(self, depth: int) -> tuple[int, int]:
        """Return the recorded depths on both sides of one of `layers`."""
        place = self.recorded_layers * depth / self.layers
        return math.floor(place), math.ceil(place)

    def scores(self, depth: int, seed: int, rate: float) -> np.ndarray:
        """Of each evaluation, between recorded rates by their logarithms, and between depths."""
        below, above = self._recorded(depth)
        return (self._scores(below, seed, rate) + self._scores(above, seed, rate)) / 2

    def _scores(self, depth: int, seed: int, rate: float) -> np.ndarray:
        found = self.found[depth, seed]
        rates = np.array(sorted(found))
        curves = np.stack([found[one] for one in rates])
        places = np.log(rates)
        at = np.log(rate)
        return np.array([np.interp(at, places, curve) for curve in curves.T])

    def lost(self, depth: int, rate: float, seeds: Iterable[int]) -> float:
        """Return how far these seeds end below the best recorded rate, on average.

        That is at their last evaluations; NaN without any seed.
        """
        there = [seed for seed in seeds if depth in self.depths(seed)]
        if not there:
            return float("nan")
        near = self._recorded(depth)
        rates = {one for (d, _), found in self.found.items() if d in near for one in found}

        def mean(rate: float) -> float:
            return float(np.mean([self.scores(depth, seed, rate)[-1] for seed in there]))

        return 100 * (max(map(mean, rates)) - mean(rate))


def tables_of(model: str, layers: int | None = None) -> list[Table]:
    """Return a model's recorded tasks. layers: how many it shall have, unless its own."""
    recorded = LAYERS[model]
    files = sorted(folder_of(model).glob("*.parquet"))
    return [Table(file, layers or recorded, recorded) for file in files]


def explored(table: Table, spec: SearchSpec, seed: int) -> list[KnownTrial]:
    """Return what the plan explores, one trial after another."""
    score = spec.recipe.selection.score
    exempt = [depth for depth in spec.explored if is_cheap(spec, depth)]
    scheduler = PerCandidateAsha(spec.early_stopping, table.evaluations, score, exempt)
    known: list[KnownTrial] = []
    controller: Any = None
    while slots := strategy_of(spec).slots(known):
        slot = slots[0]
        one = strategy_of(spec).trial_of(slot, known)
        trial: Any = SimpleNamespace(trial_id=one.key, config={TRIAL: one})
        scheduler.on_trial_add(controller, trial)
        qualities: list[float] = []
        for quality in table.scores(slot.candidate.frozen_layers, seed, one.learning_rate):
            qualities.append(float(quality))
            result = {"evaluation": len(qualities), score: qualities[-1]}
            if scheduler.on_trial_result(controller, trial, result) == "STOP":
                break
        whole = len(qualities) == table.evaluations
        status = TrialStatus.COMPLETED if whole else TrialStatus.STOPPED_EARLY
        known.append(KnownTrial(trial=one, status=status, qualities=tuple(qualities)))
    return known


def specification(
    table: Table, overrides: tuple[str, ...], seed: int, policy: Policy
) -> SearchSpec:
    """Return the search `joint` over the table's depths."""
    depths = table.depths(seed)
    space = load_space("joint", [f"depths={depths}", f"epochs={table.evaluations}", *overrides])
    model = resolve_model("minilm")
    with tempfile.TemporaryDirectory() as folder:
        options = SearchOptions(
            model="minilm",
            task=["stdlib"],
            name="replay",
            storage_path=folder,
            tracking_uri="sqlite:////nowhere",
        )
        inputs = Inputs(
            model=model,
            layers=table.layers,
            task=resolve_task("stdlib"),
            recipe=space.recipe(table.evaluations),
            space=space,
            space_name="joint",
        )
        spec = specify(options, inputs, policy=policy)
        return dataclasses.replace(spec, chance=table.chance, seed=seed)


def replays(table: Table, overrides: tuple[str, ...], policy: Policy) -> Iterator[dict[str, Any]]:
    """Yield a row for each exploring seed and depth."""
    for seed in sorted({seed for _, seed in table.found}):
        if 0 not in table.depths(seed) or len(table.depths(seed)) < 4:
            continue
        others = {one for _, one in table.found} - {seed}
        spec = specification(table, overrides, seed, policy)
        known = explored(table, spec, seed)
        rates = strategy_of(spec).best_rates(known)
        for depth in rates:
            here = [one for one in known if one.trial.candidate == depth]
            epochs = sum(len(one.qualities) for one in here) / table.evaluations
            n, rate = depth.frozen_layers, rates[depth]
            seeds = strategy_of(spec).seeds_at(0, depth)
            yield {
                "task": table.task,
                "seed": seed,
                "frozen_layers": n,
                "rate": rate,
                "tries": len(here),
                "cost": epochs * relative_cost(spec, depth),
                "whole": (epochs + seeds) * relative_cost(spec, depth),
                "missed": table.lost(n, rate, [seed]),
                "regret": table.lost(n, rate, others),
            }


def rounded(value: float) -> float | None:
    """Two decimals; None for NaN."""
    return None if math.isnan(value) else round(float(value), 2)


def main() -> None:
    """Every way on every table; prints means over seeds, writes a rate_search_*.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=list(LAYERS), default="minilm")
    parser.add_argument("--layers", type=int, choices=(6, 12), help="unless the model's own")
    parser.add_argument("--rows", action="store_true", help="print every row too")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    layers = options.layers or LAYERS[options.model]
    tables = tables_of(options.model, layers)
    results = []
    ways = {**WAYS, **dict.fromkeys(OTHER_RATES, ((), None))}
    products = dict(samplers._RATES)
    for name, (overrides, noise) in ways.items():
        kind = OTHER_RATES.get(name)
        samplers._RATES.update(products if kind is None else dict.fromkeys(products, kind))
        policy = Policy() if noise is None else Policy(noise=noise)
        rows = pd.DataFrame([row for table in tables for row in replays(table, overrides, policy)])
        if options.rows:
            print(rows.to_string())
        aside = (rows.task == KEPT_ASIDE) | (options.model != CHOSEN_ON)
        summary: dict[str, Any] = {"way": name}
        for what, part in (("chosen on", rows[~aside]), ("kept aside", rows[aside])):
            if part.empty:
                continue
            searches = part.groupby(["task", "seed"])
            whole = searches.whole.sum().groupby("task").mean()
            by_depth = part.groupby("frozen_layers").missed.mean()
            summary[what] = {
                "missed": round(float(part.missed.mean()), 2),
                "missed_by_depth": {int(n): round(float(v), 2) for n, v in by_depth.items()},
                "regret": rounded(part.regret.mean()),
                "tries": round(float(searches.tries.sum().mean()), 1),
                "cost": round(float(searches.cost.sum().mean()), 2),
                "searches": len(searches),
                "whole": {str(task): round(float(cost), 2) for task, cost in whole.items()},
            }
            found = summary[what]
            depths = "  ".join(f"{n}: {v:5.2f}" for n, v in found["missed_by_depth"].items())
            print(
                f"{name:48} {what:10} missed {found['missed']:5.2f}  [{depths}]  "
                f"regret {found['regret']}  tries {found['tries']:5.1f}  cost {found['cost']:5.2f}",
                flush=True,
            )
        results.append(summary)
    note = "exploring replayed on bench/lab; missed and regret in points of quality, cost in trials"
    name = f"{layers}_layers" if options.model == "minilm" else options.model
    print(machine.write(f"rate_search_{name}", results, note))


if __name__ == "__main__":
    main()
