"""How often the numbers of layers that a hunt cannot rule out lack the true one.

    python bench/plausible.py          # a quarter of an hour on two cores

Whole hunts of twelve layers by the product's own strategy, in the made-up worlds of
bench/strategy.py. The truth is the deepest measured depth that keeps 90 % of what the full model
gains over guessing, each at the rate that the hunt chose. Of the sets it also counts those in which
a depth was measured that the tests did not come to, those that would lack the truth if such depths
were left out (as they once were), and those without the depth that the answer names. Writes
bench/results/plausible.json.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import calibration
import machine
import numpy as np
import optuna
import strategy

from elsa_tune.analysis.answers import answer_rows

WORLDS = ("flat", "uneven", "smooth")
ROWS = (100, 277, 1000)
STUDIES = 300
LAYERS = 12
DRAWS = 1000


def begin() -> None:
    """Make studies cheap in a worker process, and keep Optuna quiet."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    calibration._fewer_draws(DRAWS)


def cell(job: tuple[str, int]) -> dict[str, Any]:
    """Return the counts of one world with so many evaluation rows."""
    family, rows = job
    counts: Counter[str] = Counter()
    for number in range(STUDIES):
        draw = np.random.default_rng([77, WORLDS.index(family), rows, number])
        world = strategy.World(family, LAYERS, rows, "accuracy", draw, strategy.Kind())
        counts += counted(world)
    names = ("sets", "with_untested", "truth_missing", "truth_missing_of_tested", "answer_missing")
    found = {name: counts[name] for name in names}
    return {"world": family, "rows": rows, "studies": STUDIES, **found}


def counted(world: strategy.World) -> Counter[str]:
    """Hunt once; return what of its set is to be counted."""
    study = strategy.Study(world, strategy.specification("hunt", world), 1)
    study.search()
    [answer] = answer_rows(
        study.rows, calibration.TARGET, evidence=calibration._Kept(study.answers)
    )
    if answer.plausible_candidates is None:
        return Counter()
    plausible = {candidate.frozen_layers for candidate in answer.plausible_candidates}
    measured = {point.candidate.frozen_layers for point in answer.measured}
    rates = {depth.frozen_layers: rate for depth, rate in study.rates.items()}
    full = world.quality(0, rates[0])
    keeping = {n for n in measured if n == 0 or not world.misses(world.quality(n, rates[n]), full)}
    assert answer.looks is not None and answer.claimed_point is not None
    tested = {0, *(candidate.frozen_layers for candidate in answer.looks.order())}
    truth = max(keeping)
    return Counter(
        sets=1,
        with_untested=int(not measured <= tested),
        truth_missing=int(truth not in plausible),
        truth_missing_of_tested=int(truth not in plausible & tested),
        answer_missing=int(answer.claimed_point.candidate.frozen_layers not in plausible),
    )


def main() -> None:
    """Simulate every world with every number of rows."""
    jobs = [(family, rows) for family in WORLDS for rows in ROWS]
    results = []
    with ProcessPoolExecutor(2, initializer=begin) as pool:
        for found in pool.map(cell, jobs):
            results.append(found)
            print(json.dumps(found), flush=True)
    note = (
        f"{STUDIES} hunts of {LAYERS} layers a row, in accuracy, by predictions ({DRAWS:,} draws); "
        "sets: those that say which numbers of layers cannot be ruled out"
    )
    print(machine.write("plausible", results, note))


if __name__ == "__main__":
    main()
