"""How often a comparison of ways certifies what is not so, and how often it finds what is.

    python bench/ways_error.py [--studies 2000] [--draws 2000] [--minutes 25] [--cells NAME...]

Six ways with made-up answers, judged by `compare_ways` as a search's are: seeds and examples drawn,
ways right on much the same examples, as MiniLM's depths are on SST-2 (calibration.py has the
scales), accuracy, guessing .5, target .95. Costs rise from the first way to the last. Profiles:

- gain_boundary: the dearest is the best (.85), and the five others miss 95 % of what it gains over
  guessing by nothing: each that is certified of the claim is false;
- score_boundary: likewise, of the score itself;
- two_best: the two dearest are equally good, the four others at the score's boundary;
- null: no way has learnt anything, and any certificate counts as false;
- power: the cheapest is bad (.70), the five others are equally good (.85).

For each cell: how often any way is certified falsely, of the claim (`claim_false`), of the score
(`score_false`) or of either (`false`, with its standard error); how often any is certified, and how
often the cheapest way that truly keeps the target is the cheapest that is certified (`found`).
Beside it what three plain rules do with the score's p values: `cheapest_first` takes the first way,
in the order of cost, whose p is below .05; `dearest_first` tests the ways in falling cost, each at
.05, until the first that is not rejected; `uncorrected` certifies each way whose p is below .05.

Writes bench/results/ways_error.json after each cell and leaves out those that it has already.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import time
from dataclasses import dataclass
from typing import Any
from unittest import mock

import calibration
import machine
import numpy as np
from calibration import DIFFICULTY, OF_DEPTH, OWN, Floats
from numpy.typing import NDArray
from scipy.special import ndtri

from elsa_tune.analysis.comparing import comparison
from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.ways import WayComparison, way_curve
from elsa_tune.analysis.groups import comparison_groups
from elsa_tune.analysis.statistics import intervals
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

NAME = "ways_error"
LAYERS = 12
# From the cheapest to the dearest, the full model.
WAYS = tuple(read_candidate(label) for label in (12, 11, 10, 8, 6, 0))
TARGET = 0.95
GUESSING = 0.5
BEST = 0.85
# A quality at the boundary lies below it by so little that nothing can tell.
NOTHING = 1e-9

EXAMPLES = (277, 872, 2000, 5463)
SEEDS = (3, 5)
SPREADS = (0.005, 0.01, 0.02)  # standard deviations of a seed's expected accuracy


@dataclass(frozen=True)
class Cell:
    """One kind of studies."""

    profile: str
    examples: int
    seeds: int
    spread: float  # of a seed's expected accuracy

    @property
    def name(self) -> str:
        """What the results call it."""
        return f"{self.profile}-{self.examples}-{self.seeds}-{self.spread:g}"


def cells() -> list[Cell]:
    """Return all cells, those first that say most."""
    in_order: list[Cell] = []
    for profile, seeds, spread, sizes in (
        ("score_boundary", 5, 0.01, EXAMPLES),
        ("power", 5, 0.01, EXAMPLES),
        ("score_boundary", 3, 0.02, (277, 5463)),
        ("gain_boundary", 5, 0.01, (872, 5463)),
        ("score_boundary", 3, 0.01, EXAMPLES),
        ("score_boundary", 3, 0.005, (872, 5463)),
        ("two_best", 3, 0.01, (872, 5463)),
        ("null", 5, 0.01, (277, 5463)),
        ("gain_boundary", 3, 0.005, (872, 5463)),
        ("power", 3, 0.01, EXAMPLES),
        ("score_boundary", 5, 0.02, EXAMPLES),
        ("power", 5, 0.005, EXAMPLES),
        ("score_boundary", 5, 0.005, EXAMPLES),
        ("gain_boundary", 5, 0.005, (277, 2000)),
        # Fewer rows than units are asked for where rows share some.
        ("score_boundary", 5, 0.01, (60,)),
        ("gain_boundary", 5, 0.01, (60,)),
    ):
        for examples in sizes:
            in_order.append(Cell(profile, examples, seeds, spread))
    return in_order


def qualities(profile: str) -> Floats:
    """Return each way's expected accuracy, from the cheapest way to the dearest."""
    of_gain = GUESSING + TARGET * (BEST - GUESSING) - NOTHING
    of_score = TARGET * BEST - NOTHING
    by_profile = {
        "gain_boundary": [of_gain] * 5 + [BEST],
        "score_boundary": [of_score] * 5 + [BEST],
        "two_best": [of_score] * 4 + [BEST] * 2,
        "null": [GUESSING] * 6,
        "power": [0.70] + [BEST] * 5,
    }
    return np.asarray(by_profile[profile])


def study(cell: Cell, rng: np.random.Generator) -> WayComparison:
    """Measure six ways, and compare them."""
    labels = (rng.random(cell.examples) < GUESSING).astype(np.int8)
    difficulty = rng.normal(0, DIFFICULTY, cell.examples)
    share = float(labels.mean())
    chance = max(share, 1 - share)
    rows: list[ResultRow] = []
    answers: dict[str, Predictions] = {}
    for place, quality in enumerate(qualities(cell.profile)):
        seen = difficulty + rng.normal(0, OF_DEPTH, cell.examples)
        for seed in range(1, cell.seeds + 1):
            right = _right(float(quality), cell, seen, rng)
            predictions = np.where(right, labels, 1 - labels).astype(np.int8)
            name = f"{place}-{seed}"
            answers[name] = Predictions(predictions=predictions, labels=labels, classes=2)
            rows.append(_row(name, place, seed, float(right.mean()), chance, cell.examples))
    [group] = comparison_groups(rows)
    curve = way_curve(group, calibration._Kept(answers))
    return compare_ways(curve, TARGET)


def _right(quality: float, cell: Cell, seen: Floats, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which examples a seed gets right: in expectation over seeds this share of them."""
    others = OWN + DIFFICULTY**2 + OF_DEPTH**2
    z = float(ndtri(quality))
    density = math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    # The spread on the probit scale that makes this one of accuracy: its own variance is in the
    # scale, too.
    slope = cell.spread / density
    of_seed = slope * math.sqrt(others / (1 - slope**2))
    total = math.sqrt(others + of_seed**2)
    level = z * total + rng.normal(0, of_seed)
    noise = rng.normal(0, math.sqrt(OWN), cell.examples)
    return np.asarray(level + seen + noise > 0)


def _row(
    name: str, place: int, seed: int, quality: float, chance: float, examples: int
) -> ResultRow:
    return ResultRow(
        model="synthetic",
        task="synthetic",
        layers=LAYERS,
        candidate=WAYS[place],
        quality=quality,
        status=TrialStatus.COMPLETED,
        phase=Phase.MEASURE,
        metric="accuracy",
        chance=chance,
        learning_rate=1e-4,
        seed=seed,
        trial=name,
        examples=examples,
        train_seconds=float(place + 1),
        predictions=name,
    )


def verdict(cell: Cell, compared: WayComparison) -> dict[str, bool]:
    """Say what was certified, by the product and by plain rules, and whether it is so."""
    expected = qualities(cell.profile)
    has_learnt = expected > GUESSING
    gains = expected - GUESSING
    keeps_gain = (gains >= TARGET * gains.max()) & has_learnt
    keeps_score = (expected >= TARGET * expected.max()) & has_learnt
    by_candidate = {way.candidate: way for way in compared.ways}
    ways = [by_candidate[candidate] for candidate in WAYS]
    claimed = [way.certified for way in ways]
    of_score = [way.score_certified for way in ways]
    small = [way.score_p_value is not None and way.score_p_value < 0.05 for way in ways]
    found: dict[str, bool] = {}
    found |= _judged("claim", claimed, keeps_gain)
    found |= _judged("score", of_score, keeps_score)
    found["false"] = found["claim_false"] or found["score_false"]
    found |= _judged("uncorrected", small, keeps_score)
    found |= _judged("cheapest_first", _first_alone(small), keeps_score)
    found |= _judged("dearest_first", _until_the_first_failure(small), keeps_score)
    return found


def _judged(rule: str, claims: list[bool], truly: NDArray[np.bool_]) -> dict[str, bool]:
    """Return whether any claim is false, whether any is made, and whether the cheapest is right."""
    false = [claim and not is_true for claim, is_true in zip(claims, truly, strict=True)]
    cheapest = claims.index(True) if any(claims) else None
    is_right = cheapest is not None and bool(truly[cheapest]) and not truly[:cheapest].any()
    return {
        f"{rule}_false": any(false),
        f"{rule}_any": any(claims),
        f"{rule}_found": is_right,
    }


def _first_alone(small: list[bool]) -> list[bool]:
    """Return the first way, in the order of cost, whose p is small, and no other."""
    claims = [False] * len(small)
    if any(small):
        claims[small.index(True)] = True
    return claims


def _until_the_first_failure(small: list[bool]) -> list[bool]:
    """Return the ways that are certified from the dearest down until the first that is not."""
    claims = [False] * len(small)
    for place in reversed(range(len(small))):
        if not small[place]:
            break
        claims[place] = True
    return claims


def judge(cell: Cell, studies: int) -> dict[str, Any]:
    """Judge all studies of one cell."""
    seed = [len(cell.profile), cell.examples, cell.seeds, round(1000 * cell.spread)]
    rng = np.random.default_rng(seed)
    began = time.monotonic()
    verdicts = [verdict(cell, study(cell, rng)) for _ in range(studies)]
    shares: dict[str, Any] = {
        "profile": cell.profile,
        "examples": cell.examples,
        "seeds": cell.seeds,
        "spread": cell.spread,
        "studies": studies,
    }
    for name in verdicts[0]:
        shares[name] = round(float(np.mean([found[name] for found in verdicts])), 4)
    false = shares["false"]
    shares["standard_error"] = round(math.sqrt(max(false * (1 - false), 0.0) / studies), 4)
    shares["seconds"] = round(time.monotonic() - began, 1)
    return shares


def _few_students() -> None:
    """Draw Student's t once for each tenth of a degree of freedom, which is enough to tell."""

    exactly = intervals._student

    @functools.cache
    def drawn(tenths: int, stream: int) -> Floats:
        return exactly(tenths / 10, stream)

    def student(freedom: float, stream: int) -> Floats:
        return drawn(max(10, round(10 * freedom)), stream)

    mock.patch.object(intervals, "_student", student).start()


def _kept() -> dict[str, Any]:
    """Return the cells that are there already, by name."""
    path = machine.RESULTS / f"{NAME}.json"
    if not path.exists():
        return {}
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["results"]
    return results


def main() -> None:
    """Run the cells that are missing, until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--cells", nargs="+")
    options = parser.parse_args()
    calibration._fewer_draws(options.draws)
    _few_students()
    # What would certify more decides nothing, and takes longer than all that does.
    mock.patch.object(comparison, "_with_forecast", lambda compared: compared).start()
    ends = time.monotonic() + 60 * options.minutes
    results = _kept()
    note = (
        f"synthetic studies of six ways, {options.draws} draws each where the product takes "
        f"10,000; shares of studies; target {TARGET}"
    )
    for cell in cells():
        is_asked = options.cells is None or cell.name in options.cells
        if not is_asked or cell.name in results or time.monotonic() > ends:
            continue
        results[cell.name] = judge(cell, options.studies)
        machine.write(NAME, results, note)
        print(cell.name, json.dumps(results[cell.name]), flush=True)


if __name__ == "__main__":
    main()
