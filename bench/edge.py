"""One step below a rate at which training collapses: do seeds fail there, and not one step lower?

    python bench/edge.py recorded laboratory              # from what is committed
    python bench/edge.py fresh --data-dir ../shared/glue  # trains; goes on where it stopped

`recorded`: of the committed comparisons and hunts every way that was measured with two seeds or
more, and gains ten points or more over guessing: how many of its runs failed (diverged, or lost
more than half of the way's median gain), where the next higher rate had collapsed while exploring,
and elsewhere.
`laboratory`: exploring replayed on recorded trials (bench/lab/replay.py), with the step
down and without: how often the measured rates differ, and what other seeds score there.
`fresh`: the two ways of which runs had failed, trained with ten new seeds at the rate that was
measured and at the next lower one.
Writes bench/results/edge.json, each part as it was last measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import machine
import optuna
import pandas as pd

from elsa_tune.searching.planning.edge import away_from_edge, is_at_edge
from elsa_tune.searching.planning.known import (
    KnownTrial,
    exploring_of,
    known_trial,
    scores_of,
    tries_of,
)
from elsa_tune.searching.specification import load_specification
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import read_state

PARTS = ("recorded", "laboratory", "fresh")
RESULT = machine.RESULTS / "edge.json"
FOLDERS = ("minilm", "mpnet", "ways")
LEARNT = 0.1
FRESH = {
    # a search, a way: the rate that was measured, and the next lower one
    ("ways/minilm_stsb", "bitfit"): (8e-3, 4e-3),
    ("ways/mpnet_cola", "lora-last6"): (2e-3, 1e-3),
}
SEEDS = range(100, 110)


def searched(folder: Path) -> tuple[SearchSpec, list[KnownTrial]]:
    """Return a recorded search and its trials, but the linear probe."""
    paths = SearchPaths(folder.parent, folder.name)
    spec = load_specification(paths)
    known = []
    for trial in read_state(paths.journal).trials.values():
        if trial.facts.phase is not Phase.PROBE:
            known.append(known_trial(spec, trial))
    return spec, known


def measured_groups(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each measured way of a search: whether it lies at an edge, and how its runs ended."""
    spec, known = searched(folder)
    for candidate in spec.candidates:
        runs = [one for one in known if one.measures and one.candidate == candidate]
        qualities = [one.quality for one in runs if one.is_completed and one.quality is not None]
        if len(runs) < 2 or not qualities:
            continue
        gain = statistics.median(qualities) - spec.chance
        if gain < LEARNT:
            continue
        [rate] = {one.learning_rate for one in runs}
        kept = [quality for quality in qualities if quality - spec.chance >= gain / 2]
        tries = tries_of(exploring_of(known), candidate)
        explored = rate in scores_of(tries)
        asked = replace(spec, policy=replace(spec.policy, kept_off_edge=Policy().kept_off_edge))
        yield {
            "search": f"{folder.parent.name}/{folder.name}",
            "way": candidate.label,
            "rate": rate,
            "runs": len(runs),
            "failed": len(runs) - len(kept),
            "is_at_edge": explored and is_at_edge(spec, tries, rate),
            "steps_down": explored and away_from_edge(asked, tries, rate) != rate,
        }


def recorded() -> dict[str, Any]:
    """Return how many runs failed at an edge and elsewhere, and the ways at an edge."""
    groups = []
    for kind in FOLDERS:
        for folder in sorted((machine.RESULTS / kind).iterdir()):
            groups += measured_groups(folder)
    parts: dict[str, Any] = {}
    for name, is_edge in (("at_the_edge", True), ("elsewhere", False)):
        part = [group for group in groups if group["is_at_edge"] is is_edge]
        parts[name] = {
            "ways": len(part),
            "runs": sum(group["runs"] for group in part),
            "failed": sum(group["failed"] for group in part),
            "steps_down": sum(group["steps_down"] for group in part),
        }
    parts["ways_at_the_edge"] = [group for group in groups if group["is_at_edge"]]
    parts["other_ways_that_failed"] = [
        group for group in groups if group["failed"] and not group["is_at_edge"]
    ]
    return parts


def laboratory() -> list[dict[str, Any]]:
    """Return what exploring finds on MiniLM's recorded trials with the step down and without."""
    sys.path.insert(0, str(Path(__file__).parent / "lab"))
    import replay

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    tables = [table for model in replay.LAYERS for table in replay.tables_of(model)]
    found = []
    for name, share in (("best", None), ("stepped_down", Policy().kept_off_edge)):
        policy = Policy(kept_off_edge=share)
        rows = [row for table in tables for row in replay.replays(table, (), policy)]
        found.append({"rule": name, "rows": pd.DataFrame(rows)})
    before, after = (one["rows"] for one in found)
    differ = before.rate != after.rate
    return [
        {
            "rule": one["rule"],
            "candidates": len(one["rows"]),
            "where_rates_differ": int(differ.sum()),
            "regret": round(float(one["rows"].regret.mean()), 3),
            "regret_where_rates_differ": one["rows"].regret[differ].round(2).tolist(),
        }
        for one in found
    ]


def trained(search: str, way: str, rate: float, seed: int) -> float | None:
    """Return the quality of one run, with one thread, where data is as recorded; None: diverged."""
    import torch

    from elsa_tune.errors import DivergedError
    from elsa_tune.training.loop import train

    torch.set_num_threads(1)
    spec, _ = searched(machine.RESULTS / search)
    candidate = read_candidate(way)
    trial = spec.trial(Phase.MEASURE, candidate, rate, seed)
    try:
        evaluations = list(train(trial, device="cpu", candidates=(candidate,)))
    except DivergedError:
        return None
    return evaluations[-1].quality


def fresh(data_dir: str, before: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield all runs so far, each time that one has ended. before: those of an earlier call."""
    runs = list(before)
    done = {(run["search"], run["way"], run["rate"], run["seed"]) for run in runs}
    jobs = []
    for seed in SEEDS:
        for (search, way), rates in FRESH.items():
            jobs += [(search, way, rate, seed) for rate in rates]
    # The record calls the data folder `../shared/glue`, or `glue`.
    with TemporaryDirectory() as place:
        (Path(place) / "glue").symlink_to(Path(data_dir).resolve())
        with contextlib.chdir(place), ProcessPoolExecutor(2) as pool:
            waiting = {pool.submit(trained, *job): job for job in jobs if job not in done}
            for ended in as_completed(waiting):
                search, way, rate, seed = waiting[ended]
                run = {"search": search, "way": way, "rate": rate, "seed": seed}
                runs.append({**run, "quality": ended.result()})
                yield runs


def main() -> None:
    """Take the parts asked for; print and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--data-dir", default="glue")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if RESULT.exists():
        results = json.loads(RESULT.read_text())["results"]
    note = "shares of runs that failed one step below a collapse, and what a step down changes"
    if "recorded" in options.parts:
        results["recorded"] = recorded()
        machine.write("edge", results, note)
    if "laboratory" in options.parts:
        results["laboratory"] = laboratory()
        machine.write("edge", results, note)
    if "fresh" in options.parts:
        for runs in fresh(options.data_dir, results.get("fresh", [])):
            results["fresh"] = runs
            machine.write("edge", results, note)
            print(runs[-1], flush=True)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
