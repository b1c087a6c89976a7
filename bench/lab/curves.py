"""What the rule for choosing learning rates does to a freeze curve, from the laboratory's tables.

    python bench/lab/curves.py --data-dir ../shared/glue     # of what `record.py` has so far
    python bench/lab/curves.py --model mpnet                 # of its twelve layers
    python bench/lab/curves.py --only-read --table           # the committed numbers as Markdown

Three rules, on the same trials:

- paper: of the rates from 1e-5 to 5e-5 the full model's best one, at every depth;
- same_range: of the same rates each depth's own best one;
- fair: of all recorded rates each depth's own best one.

Best is the lowest rate within noise of the highest score (`specs/border.py`): there a search stops
going outward. The rate is chosen on seed 0's final evaluation (`--by holdout_quality`: on the
examples that were held out of training) and measured on the other seeds, never on the one that
chose. Trials are judged as a search's are: the answers are those of `answer_rows`, predictions
included.

Writes bench/results/fair_rates.json and docs/figures/fair_rates.png (of another model
fair_rates_MODEL). What is not recorded yet is left out and named (`missing`, and `lacking` for what
has too few seeds).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from record import FOLDER, LAYERS, TASKS, folder_of, rows_of, unpacked
from rules import RULES, chart, markdown

from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.statistics.intervals import interval_of, spread_of_printed_mean
from elsa_tune.analysis.statistics.resampling import RESAMPLES, resample, score
from elsa_tune.errors import ElsaTuneError
from elsa_tune.report.figures import draw
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.border import plateau
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

ROOT = FOLDER.parents[1]
FIGURES = ROOT / "docs" / "figures"
RESULTS = ROOT / "bench" / "results"

DEPTHS = {"minilm": (0, 3, 4, 5, 6), "mpnet": (0, 6, 7, 8, 9, 10, 11, 12)}  # the default search's
NAMES = {"minilm": "MiniLM", "mpnet": "MPNet"}
TARGET = 0.9
PAPER_RANGE = (1e-5, 5e-5)
CHOOSING_SEED = 0
DISTINCT = 32  # predictions of STS-B: fewer values than these are one answer, give or take
ANSWER_FIELDS = (
    *("full", "operating_point", "corrected_operating_point", "certified", "corrected_certified"),
    *("plausible_fine_tuned_layers", "reason", "warnings"),
)


@dataclass(frozen=True)
class Trial:
    """One recorded trial at its end. quality, holdout: None where it diverged."""

    frozen_layers: int
    learning_rate: float
    seed: int
    quality: float | None
    holdout: float | None
    predictions: bytes


@dataclass(frozen=True)
class Choice:
    """A depth's learning rate.

    tried: those that the rule could choose from. border: `lower` or `upper` where a rate beyond the
    tried ones may be better, `only` where there was one.
    """

    learning_rate: float
    tried: tuple[float, ...]
    border: str | None


@dataclass(frozen=True)
class Task:
    """A task's trials, and what its evaluation split is."""

    model: str
    name: str
    metric: str
    chance: float
    classes: int
    labels: np.ndarray
    trials: tuple[Trial, ...]

    def measuring(self, depth: int, rate: float) -> list[Trial]:
        """Of the seeds that chose nothing."""
        return [
            trial
            for trial in self.trials
            if (trial.frozen_layers, trial.learning_rate) == (depth, rate)
            and trial.seed != CHOOSING_SEED
        ]

    def predictions(self, trial: Trial) -> Predictions:
        """Return what a trial that ended answered."""
        answered = unpacked(trial.predictions, len(self.labels))
        return Predictions(predictions=answered, labels=self.labels, classes=self.classes)

    def quality(self, trial: Trial) -> float:
        """Return a trial's quality as a search counts it: chance where it diverged.

        Values are kept with few digits, so theirs is computed from what is kept.
        """
        if trial.quality is None:
            return self.chance
        if not self.classes:
            return score(self.predictions(trial), self.metric)
        return trial.quality


def trials_of(table: pd.DataFrame, model: str) -> tuple[Trial, ...]:
    """Every trial of the default search's depths that ran to its end or diverged."""
    found = []
    asked = table[table["frozen_layers"].isin(DEPTHS[model])]
    for (depth, rate, seed), rows in asked.groupby(["frozen_layers", "learning_rate", "seed"]):
        last = rows.sort_values("evaluation").iloc[-1]
        diverged = bool((rows["status"] == "diverged").any())
        if not diverged and last["evaluation"] < last["evaluations"]:
            continue
        found.append(
            Trial(
                frozen_layers=int(depth),
                learning_rate=float(rate),
                seed=int(seed),
                quality=None if diverged else float(last["quality"]),
                holdout=None if diverged else float(last["holdout_quality"]),
                predictions=b"" if diverged else last["predictions"],
            )
        )
    return tuple(found)


def choose(
    trials: Iterable[Trial], depth: int, ends: tuple[float, float] | None, by: str = "quality"
) -> Choice | None:
    """Return the depth's best rate between the ends on the seed that chooses.

    That is None where nothing is recorded there.
    """
    known: dict[float, float] = {}
    for trial in trials:
        within = ends is None or ends[0] <= trial.learning_rate <= ends[1]
        if trial.frozen_layers == depth and trial.seed == CHOOSING_SEED and within:
            value = trial.quality if by == "quality" else trial.holdout
            known[trial.learning_rate] = -math.inf if value is None else value
    if not known:
        return None
    tried = tuple(sorted(known))
    best, _ = plateau(known, Policy().noise)
    return Choice(best, tried, border_of(best, tried))


def border_of(rate: float, tried: Sequence[float]) -> str | None:
    """Where a rate lies among the ones tried, if at an end of them."""
    if len(tried) == 1:
        return "only"
    return {tried[0]: "lower", tried[-1]: "upper"}.get(rate)


def choices(trials: Sequence[Trial], rule: str, by: str) -> dict[int, Choice]:
    """Each depth's rate under a rule; depths of which nothing is known are left out."""
    depths = sorted({trial.frozen_layers for trial in trials})
    if rule != "paper":
        ends = PAPER_RANGE if rule == "same_range" else None
        found = {depth: choose(trials, depth, ends, by) for depth in depths}
        return {depth: choice for depth, choice in found.items() if choice is not None}
    full = choose(trials, 0, PAPER_RANGE, by)
    return {} if full is None else dict.fromkeys(depths, full)


# ---- one task ------------------------------------------------------------------------------------


class Kept:
    """A task's predictions, as answers ask for them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._trials = {key_of(trial): trial for trial in task.trials}

    def __call__(self, row: ResultRow) -> Predictions | None:
        """Of the row's trial."""
        return self._task.predictions(self._trials[row.predictions or ""])


def key_of(trial: Trial) -> str:
    """Return a trial's name within its task."""
    return f"N{trial.frozen_layers}-{trial.learning_rate:g}-{trial.seed}"


def row_of(task: Task, trial: Trial) -> ResultRow:
    """Return a measuring trial as a search's results have it."""
    diverged = trial.quality is None
    return ResultRow(
        model=task.model,
        task=task.name,
        layers=LAYERS[task.model],
        candidate=FreezeDepth.of(trial.frozen_layers),
        quality=None if diverged else task.quality(trial),
        status=TrialStatus.DIVERGED if diverged else TrialStatus.COMPLETED,
        phase=Phase.MEASURE,
        metric=task.metric,
        chance=task.chance,
        learning_rate=trial.learning_rate,
        seed=trial.seed,
        examples=len(task.labels),
        trial=key_of(trial),
        predictions=key_of(trial),
    )


def rule_results(task: Task, chosen: Mapping[int, Choice]) -> dict[str, Any]:
    """One rule's curve and answer."""
    depths, missing, rows = [], [], []
    for depth, choice in chosen.items():
        runs = task.measuring(depth, choice.learning_rate)
        if not runs:
            missing.append(f"N = {depth}: no seed but the choosing one at {choice.learning_rate:g}")
            continue
        rows += [row_of(task, trial) for trial in runs]
        qualities = [task.quality(trial) for trial in runs]
        mean = statistics.fmean(qualities)
        std = statistics.stdev(qualities) if len(runs) > 1 else None
        spread = None
        if std:
            of_mean = spread_of_printed_mean(std, len(runs), 0.0)
            spread = interval_of(mean, None, seeds=[of_mean], ends=Policy().ends)
        depths.append(
            {
                "frozen_layers": depth,
                "learning_rate": choice.learning_rate,
                "border": choice.border,
                "tried": list(choice.tried),
                "quality": mean,
                "std": std,
                "low": None if spread is None else spread.low,
                "high": None if spread is None else spread.high,
                "seeds": [trial.seed for trial in runs],
                "qualities": qualities,
            }
        )
    found = {"depths": depths, "missing": missing, "answer": None}
    if rows:
        [answer] = answer_rows(rows, TARGET, evidence=Kept(task))
        asked = answer_object(answer)
        found["answer"] = {field: asked[field] for field in ANSWER_FIELDS}
    return found


def task_results(task: Task, by: str) -> dict[str, Any]:
    """Everything about one task."""
    chosen = {rule: choices(task.trials, rule, by) for rule in RULES}
    cells = {
        (depth, choice.learning_rate) for of in chosen.values() for depth, choice in of.items()
    }
    few = [(depth, rate, len(task.measuring(depth, rate))) for depth, rate in sorted(cells)]
    return {
        "task": task.name,
        "layers": LAYERS[task.model],
        "metric": task.metric,
        "chance": task.chance,
        "examples": len(task.labels),
        "explored": [
            {
                "frozen_layers": trial.frozen_layers,
                "learning_rate": trial.learning_rate,
                "quality": trial.quality,
                "holdout_quality": trial.holdout,
            }
            for trial in task.trials
            if trial.seed == CHOOSING_SEED
        ],
        "rules": {rule: rule_results(task, of) for rule, of in chosen.items()},
        "fair_minus_paper": differences(task, chosen["paper"], chosen["fair"]),
        "lacking": [
            {"frozen_layers": depth, "learning_rate": rate, "measuring_seeds": count}
            for depth, rate, count in few
            if count < Policy().fewest_seeds
        ],
    }


def differences(
    task: Task, paper: Mapping[int, Choice], fair: Mapping[int, Choice]
) -> list[dict[str, Any]]:
    """Return how much more of its own full model each depth keeps under the fair rule.

    That is more than under the paper's: value with a 95 % interval, raw and above chance.

    By the same draws as the tool's own intervals: the mean over S seeds moves by Student's t with
    S - 1 degrees of freedom, all cells together by the evaluation examples. Cells are drawn apart
    though they share seeds, which is on the wide side; one that both rules chose moves with itself.
    """
    pairs = {
        depth: (
            (depth, fair[depth].learning_rate),
            (0, fair[0].learning_rate),
            (depth, paper[depth].learning_rate),
            (0, paper[0].learning_rate),
        )
        for depth in sorted(fair.keys() & paper.keys())
        if depth and 0 in fair and 0 in paper
    }
    cells = sorted({cell for several in pairs.values() for cell in several})
    runs = {cell: task.measuring(*cell) for cell in cells}
    known = [trial for of in runs.values() for trial in of if trial.quality is not None]
    if not known:
        return []
    resampled = resample([task.predictions(trial) for trial in known], task.metric)
    columns = {key_of(trial): number for number, trial in enumerate(known)}
    chance = resampled.chance - resampled.chance.mean() + task.chance
    drawn: dict[tuple[int, float], np.ndarray] = {}
    means: dict[tuple[int, float], float] = {}
    for stream, cell in enumerate(cells):
        qualities = [task.quality(trial) for trial in runs[cell]]
        if len(qualities) < 2:
            continue
        moves = [
            resampled.chance if trial.quality is None else resampled.runs[:, columns[key_of(trial)]]
            for trial in runs[cell]
        ]
        count = len(qualities)
        means[cell] = statistics.fmean(qualities)
        t = np.random.default_rng([7, stream]).standard_t(count - 1, RESAMPLES)
        by_seed = statistics.stdev(qualities) / math.sqrt(count) * t
        by_example = np.mean([move - move.mean() for move in moves], axis=0)
        drawn[cell] = means[cell] + by_seed + by_example
    found = []
    for depth, several in pairs.items():
        if any(cell not in drawn for cell in several):
            continue
        entry: dict[str, Any] = {
            "frozen_layers": depth,
            "seeds": min(len(runs[cell]) for cell in several),
        }
        for name, base, bases in (("raw", 0.0, 0.0), ("corrected", task.chance, chance)):
            value = kept_difference([means[cell] - base for cell in several])
            draws = kept_difference([drawn[cell] - bases for cell in several])
            low, high = np.quantile(draws, (0.025, 0.975))
            entry[name] = {"value": float(value), "low": float(low), "high": float(high)}
        found.append(entry)
    return found


def kept_difference(qualities: Sequence[Any]) -> Any:
    """Retention of the first two minus that of the last two."""
    here, full, there, other = qualities
    return here / full - there / other


def read_task(name: str, table: pd.DataFrame, data_dir: str, model: str = "minilm") -> Task:
    """Return a task's trials with the labels they were judged by.

    Raises ValueError where the recorded qualities are not those of the predictions: the data here
    are then not those of the trials.
    """
    from elsa_tune.specs.model import resolve_model
    from elsa_tune.specs.task import TaskKind
    from elsa_tune.specs.trial import Recipe
    from elsa_tune.tasks.task_file import resolve_task
    from elsa_tune.training.data.preparation import prepare

    is_glue = name != "stdlib"
    spec = resolve_task(name, data_dir=data_dir) if is_glue else resolve_task(name)
    data = prepare(resolve_model(model), spec, Recipe(epochs=1, train_size=rows_of(model, name)))
    task = Task(
        model=model,
        name=name,
        metric=spec.metric.value,
        chance=data.chance,
        classes=spec.outputs if spec.kind is TaskKind.CLASSIFICATION else 0,
        labels=np.asarray(data.evaluation.labels),
        trials=trials_of(table, model),
    )
    # Values are kept in half precision, which ties and moves a few ranks; of a model that collapsed
    # to one answer it ties nearly all of them, and its score says nothing.
    most = Policy().same_score if task.classes else 1e-2
    for trial in task.trials:
        if trial.quality is None:
            continue
        if not task.classes and len(np.unique(task.predictions(trial).predictions)) < DISTINCT:
            continue
        if abs(score(task.predictions(trial), task.metric) - trial.quality) > most:
            raise ValueError(f"{name}: the predictions of {key_of(trial)} do not fit these labels")
    return task


def main() -> None:
    """Compute (or only read) the curves, draw them and print what is asked for."""
    sys.path.insert(0, str(FOLDER.parent))
    import machine

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--model", choices=list(LAYERS), default="minilm")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--by", choices=("quality", "holdout_quality"), default="quality")
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=["paper", "fair"])
    parser.add_argument("--name", help="of the files")
    parser.add_argument("--only-read", action="store_true", help="draw the committed numbers")
    parser.add_argument("--table", action="store_true", help="print Markdown tables")
    options = parser.parse_args()
    model = options.model
    name_of_files = options.name or ("fair_rates" if model == "minilm" else f"fair_rates_{model}")
    if options.only_read:
        content = json.loads((RESULTS / f"{name_of_files}.json").read_text(encoding="utf-8"))
        results = content["results"]
    else:
        results = []
        for name in options.tasks:
            file = folder_of(model) / f"{name}.parquet"
            if not file.exists():
                print(f"{name}: nothing is recorded", file=sys.stderr)
                continue
            try:
                task = read_task(name, pd.read_parquet(file), options.data_dir, model)
            except (ElsaTuneError, ValueError) as error:
                sys.exit(f"curves: {error}")
            found = task_results(task, options.by)
            for rule, of in found["rules"].items():
                for why in of["missing"] or ([] if of["depths"] else ["nothing is recorded"]):
                    print(f"{name}, {rule}: left out: {why}", file=sys.stderr)
            results.append(found)
        rows = "1,000 training rows" + (", CoLA 2,000" if model == "minilm" else "")
        note = (
            f"{NAMES[model]}, bench/lab/record.py's trials ({rows}; four epochs); rates chosen on "
            f"seed {CHOOSING_SEED} by its final {options.by}, measured on the others; "
            f"target {TARGET}; qualities are fractions"
        )
        print(machine.write(name_of_files, results, note), file=sys.stderr)
    drawn = chart(results, options.rules)
    if drawn.panels:
        FIGURES.mkdir(parents=True, exist_ok=True)
        (FIGURES / f"{name_of_files}.png").write_bytes(draw(drawn)["png"])
    if options.table:
        print(markdown(results))


if __name__ == "__main__":
    main()
