"""How often something is false where several things are asked of one question's results.

    python bench/questions.py [--studies 2000]

Each study has one search: the full model, and depths that lie exactly where a claim is decided (a
millionth below it), with runs of seeds that spread by SPREAD and an accuracy that E examples move,
judged as a table that says E. Writes bench/results/questions.json: shares of studies in which
anything that was claimed is false, once where raw and corrected, every target and every common
depth have 5 % each, and once as today's are judged (one sequence).

targets: asked at .95, .90 and .85, where one depth each lies at each of them; planned for one of
these; once where a constant answer has nothing, once where it has a half. claims: raw and
corrected, one depth at each. joint: a task that misses the target at its first depth and at a
deeper one, another that keeps it and left the first one out; false if the first task's answer or
the joint one is. searches: three of one question, each with its own seeds, on the same examples;
any of their answers.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import machine
import numpy as np
from calibration import _fewer_draws

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answers import answer_curve, answer_curves, freeze_curves
from elsa_tune.analysis.certainty import certify
from elsa_tune.analysis.contrasts import contrast_of
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.policy import Claim, Policy, SeedCounts
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import Looks
from elsa_tune.specs.trial import Phase, TrialStatus

LAYERS = 12
FULL = 0.9
CHANCE = 0.5
SPREAD = 0.008  # of seeds, one standard deviation
EXAMPLES = (1000, 5463)
SEEDS = (3, 5)
TARGETS = (0.95, 0.9, 0.85)
JUST_BELOW = 1e-6
POLICIES = {"before": Policy(claim=Claim.BOTH), "now": Policy()}

# Expected accuracies, by frozen layers in the order of tests.
Truth = Mapping[int, float]


def moved(truth: Truth, examples: int, draw: np.random.Generator) -> dict[int, float]:
    """Return the accuracies of a study's examples, whatever the seeds."""
    found = {}
    for frozen, accuracy in truth.items():
        error = np.sqrt(accuracy * (1 - accuracy) / examples)
        found[frozen] = accuracy + float(draw.normal(0, error))
    return found


def rows_of(
    accuracies: Truth, seeds: int, examples: int, chance: float, draw: np.random.Generator
) -> list[ResultRow]:
    """Return the runs of a search that tests its depths in this order, once each."""
    rows = []
    order = list(accuracies)
    for place, frozen in enumerate(order):
        before = order[max(0, place - 1)]
        looks = Looks(
            after=FreezeDepth.of(before).key,
            first_seed=1,
            counts=(SeedCounts(seeds, seeds),),
            error=Policy().test_error(seeds),
        )
        for seed in range(1, seeds + 1):
            quality = accuracies[frozen] + float(draw.normal(0, SPREAD))
            row = ResultRow(
                model="model",
                task="a",
                layers=LAYERS,
                candidate=FreezeDepth.of(frozen),
                quality=quality,
                status=TrialStatus.COMPLETED,
                phase=Phase.MEASURE,
                metric="accuracy",
                chance=chance,
                learning_rate=3e-5,
                seed=seed,
                search="s",
                examples=examples,
                looks=looks,
            )
            rows.append(row)
    return rows


def judged_by(policy: Policy, rows: Iterable[ResultRow], own_target: float) -> list[FreezeCurve]:
    """Return the curves of rows whose search was planned for a target by a policy."""
    curves = freeze_curves([dataclasses.replace(row, policy=policy) for row in rows])
    planned = []
    for curve in curves:
        assert curve.looks is not None
        looks = dataclasses.replace(curve.looks, own_target=own_target)
        planned.append(dataclasses.replace(curve, looks=looks))
    return planned


def frozen_certified(certified: Any) -> int:
    """Return the frozen layers of what is certified; 0 for nothing."""
    return 0 if certified is None else int(certified.candidate.frozen_layers)


def is_false(certified: Any, truth: Truth, target: float, base: float = 0.0) -> bool:
    """Whether a certified depth, or one before it in the order, misses the target."""
    deepest = frozen_certified(certified)
    for frozen, accuracy in truth.items():
        if 0 < frozen <= deepest and (accuracy - base) < target * (truth[0] - base):
            return True
    return False


def is_claimed_falsely(answer: Answer, truth: Truth) -> bool:
    """Whether an answer certifies anything false, raw or corrected."""
    raw = is_false(answer.certified, truth, answer.target)
    corrected = answer.corrected_certified
    return raw or is_false(corrected, truth, answer.target, answer.chance or 0.0)


def at(targets: Iterable[float], base: float = 0.0) -> dict[int, float]:
    """Return a truth with one depth just below each target, the highest first."""
    truth = {0: FULL}
    for number, target in enumerate(targets):
        truth[6 + 2 * number] = base + target * (FULL - base) - JUST_BELOW
    return truth


def targets_cell(
    policy: Policy,
    seeds: int,
    examples: int,
    draw: np.random.Generator,
    *,
    own: float,
    chance: float = 0.0,
) -> bool:
    """Whether any of the three targets' answers is false."""
    truth = at(TARGETS, chance)
    rows = rows_of(moved(truth, examples, draw), seeds, examples, chance, draw)
    [curve] = judged_by(policy, rows, own)
    return any(is_claimed_falsely(answer_curve(curve, target), truth) for target in TARGETS)


def claims_cell(policy: Policy, seeds: int, examples: int, draw: np.random.Generator) -> bool:
    """Whether anything is false where one depth lies at the corrected target, one at the raw."""
    target = 0.9
    truth = {
        0: FULL,
        6: CHANCE + target * (FULL - CHANCE) - JUST_BELOW,
        8: target * FULL - JUST_BELOW,
    }
    rows = rows_of(moved(truth, examples, draw), seeds, examples, CHANCE, draw)
    [curve] = judged_by(policy, rows, target)
    return is_claimed_falsely(answer_curve(curve, target), truth)


def joint_cell(policy: Policy, seeds: int, examples: int, draw: np.random.Generator) -> bool:
    """Whether the answer of the task that misses, or the joint one, is false."""
    target = 0.9
    missing = target * FULL - JUST_BELOW
    of_a = {0: FULL, 6: missing, 11: missing}
    of_b = {0: FULL, 11: 0.99 * FULL}
    rows = rows_of(moved(of_a, examples, draw), seeds, examples, 0.0, draw)
    for row in rows_of(moved(of_b, examples, draw), seeds, examples, 0.0, draw):
        rows.append(dataclasses.replace(row, task="b", search="t"))
    curves = judged_by(policy, rows, target)
    a, b, joint = answer_curves(curves, target)
    together = joint.claimed
    if policy.claim is Claim.BOTH:
        together = tested_by_depth([a, b], joint)
    return is_claimed_falsely(a, of_a) or frozen_certified(together) > 0


def tested_by_depth(tasks: Sequence[Answer], joint: Answer) -> Any:
    """Return what the common depths' own tests certify, in order of depth, as they were before."""
    least = {}
    for point in joint.points:
        contrasts = []
        for task in tasks:
            contrast = contrast_of(task, point.candidate, task.target)
            assert contrast is not None
            contrasts.append(contrast)
        least[point.candidate] = min(contrasts, key=lambda contrast: contrast.lower)
    certain = [
        candidate for candidate, contrast in least.items() if contrast.lower > joint.policy.rounding
    ]
    certified, _ = certify(
        joint.points, least, certain, full_model_learnt=True, basis="", policy=joint.policy
    )
    return certified


def searches_cell(
    policy: Policy, seeds: int, examples: int, draw: np.random.Generator, *, count: int
) -> bool:
    """Whether any of several searches with fresh seeds answers falsely."""
    truth = at([0.9])
    accuracies = moved(truth, examples, draw)
    for _ in range(count):
        [curve] = judged_by(policy, rows_of(accuracies, seeds, examples, 0.0, draw), 0.9)
        if is_claimed_falsely(answer_curve(curve, 0.9), truth):
            return True
    return False


def shares(
    studies: int, seeds: int, examples: int, run: Any, policies: Iterable[str]
) -> dict[str, float]:
    """Return the share of false studies by policy; each policy judges the same studies."""
    found = {}
    for name in policies:
        draw = np.random.default_rng([seeds, examples])
        false = [run(POLICIES[name], seeds, examples, draw) for _ in range(studies)]
        found[name] = float(np.mean(false))
    return found


def cell(job: tuple[str, Any, int, int, int]) -> dict[str, Any]:
    """Return the shares of one cell: what is asked, its function, seeds, examples, studies."""
    kind, run, seeds, examples, studies = job
    policies = ["now"] if kind == "3 searches" else ["before", "now"]
    false = shares(studies, seeds, examples, run, policies)
    return {"asked": kind, "seeds": seeds, "examples": examples, "false": false}


def main() -> None:
    """Run every cell, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    kinds: dict[str, Any] = {"claims": claims_cell, "joint": joint_cell}
    for own in TARGETS[:2]:
        name = f"targets, planned for {own:g}"
        kinds[name] = functools.partial(targets_cell, own=own)
        kinds[f"{name}, with chance"] = functools.partial(targets_cell, own=own, chance=CHANCE)
    kinds["3 searches"] = functools.partial(searches_cell, count=3)
    jobs = []
    for (kind, run), seeds, examples in itertools.product(kinds.items(), SEEDS, EXAMPLES):
        jobs.append((kind, run, seeds, examples, options.studies))
    results = []
    # With all draws of the product: a quantile of 1,000 lies off by a tenth of the error.
    start = functools.partial(_fewer_draws, 10_000)
    with ProcessPoolExecutor(options.processes, initializer=start) as pool:
        for found in pool.map(cell, jobs):
            results.append(found)
            print(json.dumps(found), flush=True)
    note = (
        f"{options.studies} synthetic studies a row; shares of studies in which anything claimed "
        "is false, with an error for each claim (before) and in one sequence (now)"
    )
    print(machine.write("questions", results, note))


if __name__ == "__main__":
    main()
