"""How often answers are wrong: synthetic studies with a known truth, judged as real ones are.

    python bench/calibration.py [--studies 1000]
    python bench/calibration.py --metrics f1 matthews --families boundary noisy_full --examples 1000
    python bench/calibration.py --known examples --seeds 5 --examples 1000

Each study is a curve of expected qualities, runs of it with seeds and evaluation examples drawn,
exploring included, and `answer_curve`'s verdict on them. The truth of a depth is the expected
quality of a fresh seed on fresh examples at the rate that the study chose. Writes its cells into
bench/results/calibration.json, others stay: for each family, number of seeds and of evaluation
examples, how often the measured answer and the certified claim are false (of all studies), how
often something is certified, how often the true answer is plausible, and, of the studies in which
a depth with frozen layers can be certified, how often that k or one layer more is (`near`). All of
the claim, which is corrected for chance; `raw_` has the raw score, of which what is certified
beside the claim is in the same sequence of tests, so that `any_certified_false` has an error of
5 %.

What is known of the evaluation examples: `predictions`, as of recorded trials; `examples`, only how
many they are, as in our own tables; `scores`, nothing, as in other tables.

The families: smooth (quality falls ever faster), flat (nothing is lost but at the end), uneven
(rises and falls by turns), near_chance (the full model gains 3 to 10 points), boundary (the least
favourable: one depth misses the claim's target by nothing, and shallower ones gain a tenth more
than the full model, so that they are beyond doubt),
boundary_raw (the same of the raw score), noisy_full and noisy_depth (boundary, with seeds of the
full model, or of the deciding depth, that spread 2.5 times as much as others), plateau (boundary at
every deeper depth, too), collapsing (each study's seeds fail at a rate of .1 to .3, at every depth
that trains a layer), collapsing_alone (a fifth of the seeds of one depth fail, and no
others: nothing in few seeds can show it, which is why claims are made on condition that seeds fail
no more often than they did).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any
from unittest import mock

import machine
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri
from threadpoolctl import threadpool_limits

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.statistics import intervals, resampling
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

FAMILIES = (
    *("smooth", "flat", "uneven", "near_chance", "boundary", "boundary_raw"),
    *("collapsing", "collapsing_alone", "noisy_full", "noisy_depth", "plateau"),
)
SEEDS = (3, 5, 10)
EXAMPLES = (71, 277, 1000, 5463)
DEPTHS = (0, 6, 7, 8, 9, 10, 11, 12)
LAYERS = 12
TARGET = 0.9
RATES = 5
KEY = ("known", "metric", "family", "seeds", "examples")  # which cell it is

# Spread on the probit scale: how examples differ in difficulty, how differently depths see them,
# and how seeds differ: with these, accuracies near .85 have a standard deviation between seeds of
# .008 and two runs agree on 93 % of the examples, as MiniLM's on SST-2 do.
DIFFICULTY, OF_DEPTH, OF_SEED = 1.6, 0.35, 0.06
OWN = 1.0  # what a run's noise adds, per example
NOISY = 2.5  # times the spread between seeds

_weights = resampling._poisson_weights

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Truth:
    """What is true of one study.

    accuracies: [depths, rates], expected accuracy of a seed that does not collapse. collapse:
    [depths], share of seeds that do. prevalence: of the commoner class, what a collapsed seed has.
    of_seed: [depths], spread between seeds on the probit scale.
    """

    metric: str
    accuracies: Floats
    collapse: Floats
    prevalence: float
    of_seed: Floats

    def expected(self, depth: int, rate: int) -> float:
        """Return the expected quality of a fresh seed, collapses included."""
        share = self.collapse[depth]
        constant = self.prevalence if self.metric == "accuracy" else 0.0
        good = quality_of(self.metric, self.accuracies[depth, rate], self.prevalence)
        return float((1 - share) * good + share * constant)

    @property
    def chance(self) -> float:
        """The best constant answer's quality."""
        rarer = 1 - self.prevalence
        return {"accuracy": self.prevalence, "f1": 2 * rarer / (1 + rarer)}.get(self.metric, 0.0)


def quality_of(metric: str, accuracy: float, prevalence: float) -> float:
    """Of answers that are right as often in either class; the rarer class is the positive one."""
    rarer = 1 - prevalence
    hits, wrong = rarer * accuracy, 1 - accuracy
    if metric == "accuracy":
        return accuracy
    if metric == "f1":
        return 2 * hits / (2 * hits + wrong)
    given = hits + prevalence * wrong  # share of positive answers
    return (hits - given * rarer) / np.sqrt(given * (1 - given) * rarer * prevalence)


def draw_truth(family: str, rng: np.random.Generator, metric: str) -> Truth:
    """One study's truth."""
    frozen = np.asarray(DEPTHS) / LAYERS
    prevalence = rng.uniform(0.5, 0.6)
    full = prevalence + rng.uniform(0.2, 0.35)
    if family == "near_chance":
        full = prevalence + rng.uniform(0.03, 0.1)
    gain = full - prevalence
    kept = 1 - rng.uniform(0.3, 0.95) * frozen ** rng.uniform(2, 6)
    if family == "flat":
        kept = 1 - rng.uniform(0.0, 0.06) * frozen
        kept[-1] -= rng.uniform(0.2, 0.8)
    if family == "uneven":
        kept = kept + rng.uniform(-0.08, 0.08, len(DEPTHS)) * (frozen > 0)
    best = np.minimum(prevalence + gain * np.maximum(kept, 0), 0.985)
    at = None
    of_seed = np.full(len(DEPTHS), OF_SEED)
    if family.startswith(("boundary", "noisy", "plateau")):
        at = int(rng.integers(1, len(DEPTHS)))
        # Shallower ones are beyond doubt: else the deciding depth is seldom tested.
        best = prevalence + gain * np.where(np.arange(len(DEPTHS)) < at, 1.1, 0.5)
        best[0] = prevalence + gain
        whole = Truth(metric, best[:, None], np.zeros(len(DEPTHS)), prevalence, of_seed)
        base = 0.0 if family == "boundary_raw" else whole.chance
        least = base + TARGET * (whole.expected(0, 0) - base) - 1e-6
        missed = brentq(lambda a: quality_of(metric, a, prevalence) - least, 0.5, 0.9999)
        best[at : len(DEPTHS) if family == "plateau" else at + 1] = missed
        if family.startswith("noisy"):
            of_seed[0 if family == "noisy_full" else at] *= NOISY
    # Rates: each depth has its own best of five; others lose up to a tenth of its gain.
    loss = rng.uniform(0.0, 0.1, (len(DEPTHS), RATES))
    loss[np.arange(len(DEPTHS)), rng.integers(0, RATES, len(DEPTHS))] = 0
    if at is not None:
        # At any rate the truth lies on the boundary.
        loss[[0, *range(at, len(DEPTHS) if family == "plateau" else at + 1)]] = 0
    accuracies = best[:, None] - loss * (best[:, None] - prevalence)
    collapse = np.zeros(len(DEPTHS))
    if family == "collapsing":
        collapse[:-1] = rng.choice([0.1, 0.2, 0.3])
    if family == "collapsing_alone":
        collapse[rng.integers(1, len(DEPTHS) - 1)] = 0.2
    return Truth(metric, accuracies, collapse, prevalence, of_seed)


def run_study(
    truth: Truth, seeds: int, examples: int, rng: np.random.Generator, known: str
) -> dict[str, Any]:
    """Explore, measure and answer; what was claimed and what is true."""
    labels = (rng.random(examples) >= truth.prevalence).astype(np.int8)
    difficulty = rng.normal(0, DIFFICULTY, examples)
    of_depth = rng.normal(0, OF_DEPTH, (len(DEPTHS), examples))
    rows: list[ResultRow] = []
    answers: dict[str, Predictions] = {}
    expected: dict[int, float] = {}

    def one(depth: int, rate: int) -> NDArray[np.int8]:
        if rng.random() < truth.collapse[depth]:
            return np.zeros(examples, dtype=np.int8)
        of_seed = truth.of_seed[depth]
        total = np.sqrt(OWN + DIFFICULTY**2 + OF_DEPTH**2 + of_seed**2)
        level = ndtri(truth.accuracies[depth, rate]) * total + rng.normal(0, of_seed)
        right = level + difficulty + of_depth[depth] + rng.normal(0, np.sqrt(OWN), examples) > 0
        return np.where(right, labels, 1 - labels).astype(np.int8)

    rarer = float(labels.mean())
    chance = {"accuracy": max(rarer, 1 - rarer), "f1": 2 * rarer / (1 + rarer)}.get(
        truth.metric, 0.0
    )

    def judged(answered: NDArray[np.int8]) -> tuple[Predictions, float]:
        answers = Predictions(predictions=answered, labels=labels, classes=2)
        return answers, resampling.score(answers, truth.metric)

    for number, frozen in enumerate(DEPTHS):
        tried = [judged(one(number, rate))[1] for rate in range(RATES)]
        rate = int(np.argmax(tried))
        expected[frozen] = truth.expected(number, rate)
        for seed in range(1, seeds + 1):
            predictions, quality = judged(one(number, rate))
            name = f"{frozen}-{seed}"
            answers[name] = predictions
            rows.append(
                ResultRow(
                    model="synthetic",
                    task="synthetic",
                    layers=LAYERS,
                    candidate=FreezeDepth.of(frozen),
                    quality=quality,
                    status=TrialStatus.COMPLETED,
                    phase=Phase.MEASURE,
                    metric=truth.metric,
                    chance=chance,
                    seed=seed,
                    trial=name,
                    examples=None if known == "scores" else examples,
                    predictions=name,
                )
            )
    evidence = _Kept(answers) if known == "predictions" else None
    [answer] = answer_rows(rows, TARGET, evidence=evidence)
    return verdict(answer, expected, truth.chance)


@dataclass(frozen=True, eq=False)
class _Kept:
    answers: dict[str, Predictions]

    def __call__(self, row: ResultRow) -> Predictions | None:
        return self.answers.get(row.trial or "")


def verdict(answer: Any, expected: dict[int, float], chance: float) -> dict[str, Any]:
    """Each claim, and whether it is false. A claim that is not made is None."""
    found: dict[str, Any] = {"answered": answer.operating_point is not None}
    for prefix, base, point, certified in (
        ("", chance, answer.corrected_operating_point, answer.corrected_certified),
        ("raw_", 0.0, answer.operating_point, answer.certified),
    ):
        reach = {
            frozen: (quality - base) - TARGET * (expected[0] - base) >= 0
            for frozen, quality in expected.items()
        }
        # What can be certified: a depth, and every shallower one, that reach the target.
        provable = max(
            frozen for frozen in expected if all(reach[n] for n in expected if n <= frozen)
        )
        claimed = 0 if certified is None else _frozen(certified)
        is_false = not all(good for frozen, good in reach.items() if frozen <= claimed)
        near = claimed > 0 and provable - claimed in (0, 1)
        found[f"{prefix}point_false"] = None if point is None else not reach[_frozen(point)]
        found[f"{prefix}certified"] = claimed > 0
        found[f"{prefix}certified_false"] = is_false
        found[f"{prefix}near"] = near if provable > 0 else None
        is_claim = answer.claims_corrected == (prefix == "")
        if is_claim and answer.plausible is not None:
            deepest = max(frozen for frozen, good in reach.items() if good)
            found["plausible_covers"] = LAYERS - deepest in answer.plausible
            found["plausible_width"] = len(answer.plausible)
    found["any_certified_false"] = found["certified_false"] or found["raw_certified_false"]
    return found


def _frozen(point: Any) -> int:
    return int(point.candidate.frozen_layers)


def run_cell(job: tuple[str, str, str, int, int, int]) -> dict[str, Any]:
    """All studies of one family, number of seeds and of examples."""
    known, metric, family, seeds, examples, studies = job
    rng = np.random.default_rng([FAMILIES.index(family), seeds, examples])
    found = [
        run_study(draw_truth(family, rng, metric), seeds, examples, rng, known)
        for _ in range(studies)
    ]

    names = ["answered", "plausible_covers", "plausible_width", "any_certified_false"]
    for name in ("point_false", "certified", "certified_false", "near"):
        names += [name, f"raw_{name}"]
    cell: dict[str, Any] = dict(zip(KEY, job, strict=False))
    cell["studies"] = studies
    for name in names:
        values = [one[name] for one in found if one.get(name) is not None]
        cell[name] = round(float(np.mean(values)), 4) if values else None
    return cell


def _fewer_draws(draws: int) -> None:
    """Make a study cheap: fewer draws, and the same weights of examples made only once.

    The quantiles of 1,000 draws are those of 10,000 to a few per cent of a standard error.
    """
    made = functools.cache(lambda *size: list(_weights(*size)))
    mock.patch.object(resampling, "_poisson_weights", made).start()
    threadpool_limits(1)  # once for all: setting it for each study takes a fifth of its time
    mock.patch.object(resampling, "threadpool_limits", _no_limits).start()
    mock.patch.object(resampling, "RESAMPLES", draws).start()
    mock.patch.object(intervals, "RESAMPLES", draws).start()
    defaults = resampling.resample.__defaults__
    assert defaults is not None
    resampling.resample.__defaults__ = (draws, *defaults[1:])


def _no_limits(*_: object) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def main() -> None:
    """Run every cell, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--known", nargs="+", default=["predictions"])
    parser.add_argument("--metrics", nargs="+", default=["accuracy"])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--examples", nargs="+", type=int, default=list(EXAMPLES))
    parser.add_argument("--name", default="calibration")
    options = parser.parse_args()
    jobs = [
        (*one, options.studies)
        for one in itertools.product(
            options.known, options.metrics, options.families, options.seeds, options.examples
        )
    ]
    note = (
        "synthetic studies; shares of studies; false claims are over all studies; target "
        f"{TARGET}, {RATES} learning rates explored with one seed each; machine and date are those "
        "of the last cells"
    )
    file = machine.RESULTS / f"{options.name}.json"
    before = json.loads(file.read_text())["results"] if file.exists() else []
    cells = {tuple(cell[name] for name in KEY): cell for cell in before}
    with ProcessPoolExecutor(2, initializer=_fewer_draws, initargs=(options.draws,)) as pool:
        for cell in pool.map(run_cell, jobs):
            print(json.dumps(cell), flush=True)
            cells[tuple(cell[name] for name in KEY)] = cell
            machine.write(options.name, list(cells.values()), note)


if __name__ == "__main__":
    main()
