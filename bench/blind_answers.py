"""What is claimed of answers that know nothing, and of best epochs.

    python bench/blind_answers.py                    # today's code; ten minutes
    python bench/blind_answers.py --called before    # an older one, found by PYTHONPATH

- `blind`: every run of every depth draws its answers, whatever the texts, with shares near those of
  the labels. Nothing is learnt, so that each "learnt" and each certificate is false.
- `blind_epochs`: the same for accuracy and two even classes, where a run has several evaluations
  that share half of their noise, and its quality is its last one's or its best one's.
- `epochs`: the full model has .85, and N = 6 keeps exactly 90 % of its gain over guessing on fresh
  rows; N = 3 keeps 98 %. Half of the noise of N = 6 is new at each of ten evaluations, and a
  twentieth of the full model's. Certifying 6 is false. Rows differ as in calibration.py.

Writes bench/results/blind_answers.json: for each case the shares of studies in which the full model
is said to have learnt, and in which a depth is certified falsely of what it gains over guessing.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any, NamedTuple

import calibration
import machine
import numpy as np
from calibration import DIFFICULTY, OF_DEPTH, OF_SEED, OWN, Floats
from scipy.special import ndtri

from elsa_tune.analysis.answers import answer_curve, freeze_curves
from elsa_tune.analysis.learnt import has_surely_learnt
from elsa_tune.analysis.statistics.resampling import score
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tasks.types.scores import chance

RESULT = machine.RESULTS / "blind_answers.json"
DEPTHS = (0, 6, 9, 11, 12)  # of 12 layers
LIKENESS = 50.0  # of a run's shares of answers to the labels': Dirichlet's concentration
FULL, GUESSING, TARGET = 0.85, 0.5, 0.9
OF_EVALUATION = 0.03  # what evaluations of a run differ by as a whole, on the probit scale
# Of each depth in `epochs`: the accuracy on fresh rows, and the share of noise that is new.
KEPT = {
    0: (FULL, 0.05),
    3: (GUESSING + 0.98 * (FULL - GUESSING), 0.05),
    6: (GUESSING + TARGET * (FULL - GUESSING) - 1e-9, 0.5),
    9: (0.65, 0.5),
}


class Case(NamedTuple):
    """What is drawn, and how it is judged."""

    kind: str  # blind, blind_epochs or epochs
    metric: str
    shares: tuple[float, ...]  # of the classes
    rows: int
    seeds: int
    evaluations: int = 1
    selection: str = "last"


EVEN = (0.5, 0.5)
CASES = (
    Case("blind", "f1_macro", EVEN, 277, 3),
    Case("blind", "f1_macro", EVEN, 1000, 5),
    Case("blind", "f1_macro", (0.8, 0.2), 277, 3),
    Case("blind", "f1_macro", (0.9, 0.1), 1000, 5),
    Case("blind", "f1_macro", (0.2,) * 5, 1000, 5),
    Case("blind", "f1_macro", (0.6, 0.1, 0.1, 0.1, 0.1), 1000, 5),
    Case("blind", "accuracy", EVEN, 1000, 5),
    Case("blind", "f1", EVEN, 1000, 5),
    Case("blind", "matthews", EVEN, 1000, 5),
    Case("blind_epochs", "accuracy", EVEN, 277, 3, 10, "last"),
    Case("blind_epochs", "accuracy", EVEN, 277, 3, 10, "best_epoch"),
    Case("blind_epochs", "accuracy", EVEN, 1000, 5, 10, "best_epoch"),
    Case("blind_epochs", "accuracy", EVEN, 1000, 5, 30, "best_epoch"),
    Case("epochs", "accuracy", EVEN, 1000, 5, 10, "last"),
    Case("epochs", "accuracy", EVEN, 1000, 5, 10, "best_epoch"),
)


def blind_runs(case: Case, labels: Floats, rng: np.random.Generator) -> dict[int, list[Floats]]:
    """Return a run's answers for each depth and seed, of its last or its best evaluation."""
    runs: dict[int, list[Floats]] = {}
    for frozen in DEPTHS:
        runs[frozen] = []
        for _ in range(case.seeds):
            if case.kind == "blind":
                shares = rng.dirichlet(np.asarray(case.shares) * LIKENESS)
                answers = rng.choice(len(shares), case.rows, p=shares)
            else:
                answers = chosen(_blind_evaluations(case, rng), labels, case.selection)
            runs[frozen].append(answers)
    return runs


def _blind_evaluations(case: Case, rng: np.random.Generator) -> list[Floats]:
    lasting = rng.normal(0, 1, case.rows)
    evaluations = []
    for _ in range(case.evaluations):
        new = rng.normal(0, 1, case.rows)
        latent = math.sqrt(0.5) * (lasting + new) + rng.normal(0, 0.3)
        evaluations.append((latent > 0).astype(int))
    return evaluations


def learning_runs(case: Case, labels: Floats, rng: np.random.Generator) -> dict[int, list[Floats]]:
    """Return the same of depths that keep what `KEPT` says."""
    difficulty = rng.normal(0, DIFFICULTY, case.rows)
    spreads = (DIFFICULTY, OF_DEPTH, OF_SEED, OF_EVALUATION)
    scale = math.sqrt(OWN + sum(spread**2 for spread in spreads))
    runs: dict[int, list[Floats]] = {}
    for frozen, (accuracy, new_share) in KEPT.items():
        seen = difficulty + rng.normal(0, OF_DEPTH, case.rows)
        runs[frozen] = []
        for _ in range(case.seeds):
            level = ndtri(accuracy) * scale + rng.normal(0, OF_SEED)
            lasting = rng.normal(0, 1, case.rows)
            evaluations = []
            for _ in range(case.evaluations):
                new = rng.normal(0, 1, case.rows)
                noise = math.sqrt(1 - new_share) * lasting + math.sqrt(new_share) * new
                of_all = level + rng.normal(0, OF_EVALUATION)
                is_right = of_all + seen + noise * math.sqrt(OWN) > 0
                evaluations.append(np.where(is_right, labels, 1 - labels))
            runs[frozen].append(chosen(evaluations, labels, case.selection))
    return runs


def chosen(evaluations: list[Floats], labels: Floats, selection: str) -> Floats:
    """Return the evaluation that the selection takes: the last, or the one most often right."""
    if selection == "last":
        return evaluations[-1]
    return max(evaluations, key=lambda answers: float((answers == labels).mean()))


def judged(case: Case, rng: np.random.Generator) -> tuple[bool, bool]:
    """Return whether a study finds the full model to have learnt, and certifies falsely."""
    classes = len(case.shares)
    counts = np.floor(np.asarray(case.shares) * case.rows).astype(int)
    counts[0] += case.rows - counts.sum()
    labels = rng.permutation(np.repeat(np.arange(classes), counts))
    draw = learning_runs if case.kind == "epochs" else blind_runs
    guessing = chance(Metric(case.metric), labels, classes)
    answers: dict[str, Predictions] = {}
    rows = []
    for frozen, runs in draw(case, labels, rng).items():
        for seed, predictions in enumerate(runs, 1):
            name = f"{frozen}-{seed}"
            answers[name] = Predictions(predictions=predictions, labels=labels, classes=classes)
            row = ResultRow(
                model="m",
                task="t",
                layers=12,
                candidate=FreezeDepth.of(frozen),
                quality=score(answers[name], case.metric),
                status=TrialStatus.COMPLETED,
                phase=Phase.MEASURE,
                metric=case.metric,
                selection=case.selection,
                chance=guessing,
                learning_rate=1e-4,
                seed=seed,
                trial=name,
                examples=case.rows,
                predictions=name,
            )
            rows.append(row)
    [curve] = freeze_curves(rows, calibration._Kept(answers))
    certified = answer_curve(curve, TARGET).corrected_certified
    deepest = 0 if certified is None else certified.candidate.frozen_layers
    first_false = 6 if case.kind == "epochs" else 1
    return has_surely_learnt(curve), deepest >= first_false


def main() -> None:
    """Judge all cases; print and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--called", default="now")
    parser.add_argument("--studies", type=int, default=200)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if RESULT.exists():
        results = json.loads(RESULT.read_text())["results"]
    calibration._fewer_draws(1000)
    found = []
    for number, case in enumerate(CASES):
        rng = np.random.default_rng([number, case.rows])
        # Cheap, and near 5 %: more of them tell more.
        count = options.studies * (5 if case.kind == "epochs" else 1)
        verdicts = [judged(case, rng) for _ in range(count)]
        learnt, certified = np.mean(verdicts, axis=0).round(4).tolist()
        found.append(
            {**case._asdict(), "studies": count, "learnt": learnt, "falsely_certified": certified}
        )
        print(found[-1], flush=True)
    results[options.called] = found
    note = "shares of studies; 1,000 resamples where the product takes 10,000"
    machine.write("blind_answers", results, note)


if __name__ == "__main__":
    main()
