"""Two published tables of methods, read with error bars: peft's method_comparison, LoRA's GLUE.

    python bench/published_tables.py --peft GIT_DIR [--commit 5d602fdb]

GIT_DIR: the git directory of a clone of huggingface/peft. Its results are read as
`--from` reads them, at the commit, and every earlier version of each file as a rerun. LoRA's
numbers stand below, as microsoft/LoRA's README prints them.

Two accuracies over E rows differ by chance with variance p(1-p)/E each, as if the methods were
right on rows of their own; being right on the same rows makes that too wide rather than too narrow
(`ExampleDraws.counted`). To this come the runs' own spreads. `half` is half of the 95 % interval
of a difference, `p` two-sided. Everything is in fractions.

Writes bench/results/published_tables.json.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import re
import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import machine
from way_facts import WayFacts, left_open, way_facts

from elsa_tune.analysis.statistics.differences import (
    FOUND,
    DifferenceTest,
    corrected_by_holm,
    difference_test,
    fewest_seeds,
    rows_needed,
)
from elsa_tune.analysis.statistics.intervals import Spread
from elsa_tune.results.peft_benchmark import TEXT_SUITE, read_benchmark
from elsa_tune.specs.result_row import ResultRow

COMMIT = "5d602fdbff04c33c1c4de55cda9d4ae1d7cb7e40"
FULL = "full-finetuning"
SUITE = "method_comparison/MetaMathQA"
LEVEL = 0.95
Z = 1.95996  # of a normal variable at that level, two-sided
TARGET = 0.95
DIFFER = 0.2  # of the rows on which two ways may differ, as an example
LEARNT = 0.3  # a run above this has learnt the task; others tell nothing of how learning spreads

# microsoft/LoRA, README.md at 0039e88, RoBERTa-base: full fine-tuning (taken over from Liu et al.
# 2019), LoRA and its ±, in percent. MNLI is the matched split, STS-B Pearson.
GLUE_SOURCE = "microsoft/LoRA, README.md at 0039e8828eb986d9832e1c5bbee3bc51961fcb83"
GLUE = {
    "MNLI": ("accuracy", 9815, 87.6, 87.5, 0.3),
    "SST-2": ("accuracy", 872, 94.8, 95.1, 0.2),
    "MRPC": ("accuracy", 408, 90.2, 89.7, 0.7),
    "CoLA": ("Matthews", 1043, 63.6, 63.4, 1.2),
    "QNLI": ("accuracy", 5463, 92.8, 93.3, 0.3),
    "QQP": ("accuracy", 40430, 91.9, 90.8, 0.1),
    "RTE": ("accuracy", 277, 78.7, 86.6, 0.7),
    "STS-B": ("Pearson", 1500, 91.2, 91.5, 0.2),
}
# Whose LoRA runs began with an adapter trained on MNLI (microsoft/LoRA#77), and whose full
# fine-tuning did not (fairseq#1166).
FROM_MNLI = ("RTE", "MRPC", "STS-B")
SEEDS = 5  # of LoRA's runs (Hu et al. 2022, appendix D); the full model's are taken to be so
COLA_ACCEPTABLE = 721 / 1043  # of the development rows; the share of a model's answers is alike


def variance_of(metric: str, quality: float, rows: int) -> float:
    """Return the variance of a quality by its rows alone."""
    if metric == "accuracy":
        return quality * (1 - quality) / rows
    if metric == "Pearson":  # of two normal variables
        return (1 - quality**2) ** 2 / rows
    return phi_variance(quality, COLA_ACCEPTABLE) / rows


def phi_variance(phi: float, share: float) -> float:
    """Return the variance of a Matthews correlation, times the rows, by the delta method.

    share: of the first class, among labels and answers alike. Bishop, Fienberg, Holland 1975,
    Discrete Multivariate Analysis, equation 11.3-14.
    """
    skew = (2 * share - 1) ** 2 / (share * (1 - share))
    return 1 - phi**2 + (phi + phi**3 / 2) * skew - 1.5 * phi**2 * skew


def part_of(variance: float, freedom: float = math.inf) -> Spread:
    """Return an independent part of a difference's variance."""
    return Spread(variance=variance, freedom=freedom)


def glue() -> dict[str, Any]:
    """Read LoRA's table: each task's difference, and the averages."""
    tasks: dict[str, dict[str, Any]] = {}
    for name, (metric, rows, full_percent, lora_percent, spread_percent) in GLUE.items():
        full = full_percent / 100
        lora = lora_percent / 100
        spread = spread_percent / 100
        by_seeds = spread**2 / SEEDS
        of_full = variance_of(metric, full, rows)
        of_lora = variance_of(metric, lora, rows)
        seeds_of_lora = part_of(by_seeds, SEEDS - 1)
        # The full model's spread is not printed: it is taken to be LoRA's.
        seeds_of_full = seeds_of_lora
        difference = lora - full
        tested = difference_test(
            difference, [part_of(of_full + of_lora), seeds_of_lora, seeds_of_full]
        )
        kept = lora - TARGET * full
        keeps = difference_test(
            kept,
            [
                part_of(of_lora + TARGET**2 * of_full),
                seeds_of_lora,
                part_of(TARGET**2 * by_seeds, SEEDS - 1),
            ],
        )
        tasks[name] = {
            "metric": metric,
            "rows": rows,
            "full": full,
            "lora": lora,
            "spread": spread,
            "from_mnli": name in FROM_MNLI,
            "difference": difference,
            "error": tested.error,
            "half": tested.half,
            "p": tested.p,
            "p_above": tested.p_above,
            "half_at_least": half_at_least(metric, difference, rows, 2 * by_seeds),
            "kept": kept,
            "p_kept": keeps.p_above,
            # How many rows would show the printed difference, were it the true one, with any seeds.
            "rows_needed": rows_needed(difference, (of_full + of_lora) * rows),
        }
    corrected = corrected_by_holm({name: task["p"] for name, task in tasks.items()})
    kept_corrected = corrected_by_holm({name: task["p_kept"] for name, task in tasks.items()})
    for name, task in tasks.items():
        task["p_holm"] = corrected[name]
        task["p_kept_holm"] = kept_corrected[name]
    averages = {
        "all eight": average(tasks, ()),
        "without RTE": average(tasks, ("RTE",)),
        "without RTE, MRPC, STS-B": average(tasks, FROM_MNLI),
    }
    return {"source": GLUE_SOURCE, "tasks": tasks, "averages": averages}


def half_at_least(metric: str, difference: float, rows: int, by_seeds: float) -> float | None:
    """Return the least that `half` can be: the better model is right wherever the other one is.

    None for correlations, which are no shares of rows.
    """
    if metric != "accuracy":
        return None
    return Z * math.sqrt(abs(difference) * (1 - abs(difference)) / rows + by_seeds)


def average(tasks: Mapping[str, dict[str, Any]], left_out: Sequence[str]) -> dict[str, Any]:
    """Return the average over tasks, and how far rows and seeds may move its difference."""
    counted = [task for name, task in tasks.items() if name not in left_out]
    full = statistics.fmean(task["full"] for task in counted)
    lora = statistics.fmean(task["lora"] for task in counted)
    error = math.sqrt(sum(task["error"] ** 2 for task in counted)) / len(counted)
    difference = lora - full
    return {
        "tasks": len(counted),
        "full": full,
        "lora": lora,
        "difference": difference,
        "half": Z * error,
    }


class Clone:
    """A git directory of huggingface/peft."""

    def __init__(self, git_dir: Path) -> None:
        self._git_dir = git_dir

    def _output(self, *arguments: str) -> bytes:
        command = ["git", f"--git-dir={self._git_dir}", *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def unpack(self, commit: str, under: str, into: Path) -> None:
        """Write a folder as it is at a commit."""
        archive = self._output("archive", commit, under)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(into, filter="data")

    def versions(self, commit: str, under: str) -> dict[str, list[str]]:
        """Return the commits, up to this one, that changed each JSON file of a folder."""
        lines = self._output("log", "--format=@%H", "--name-only", commit, "--", under).decode()
        commits: dict[str, list[str]] = {}
        current = ""
        for line in lines.splitlines():
            if line.startswith("@"):
                current = line[1:]
            elif line.endswith(".json"):
                commits.setdefault(line, []).append(current)
        return commits

    def result(self, commit: str, path: str) -> dict[str, Any] | None:
        """Return a result as it was at a commit; None where that commit deleted it."""
        try:
            values: dict[str, Any] = json.loads(self._output("show", f"{commit}:{path}"))
        except subprocess.CalledProcessError:
            return None
        return values


def reruns(clone: Clone, commit: str) -> list[dict[str, Any]]:
    """Return each configuration's runs of the same seed, earliest first.

    Two results are of one configuration when experiment, optimiser's settings, steps, batch, seed
    and number of trained parameters agree.
    """
    runs_by_configuration: dict[str, dict[str, tuple[float, str]]] = {}
    for path, commits in clone.versions(commit, f"{SUITE}/results").items():
        for each in commits:
            result = clone.result(each, path)
            if result is None or not result["train_info"]["metrics"]:
                continue
            quality = result["train_info"]["metrics"][-1].get("test accuracy")
            parameters = result["train_info"].get("num_trainable_params")
            if quality is None or parameters is None:
                continue
            run = result["run_info"]
            config = run["train_config"]
            same = {name: config[name] for name in ("max_steps", "batch_size", "seed")}
            same |= {
                "experiment": run["experiment_name"],
                "optimizer": config["optimizer_kwargs"],
                "parameters": parameters,
            }
            key = json.dumps(same, sort_keys=True)
            torch = result["meta_info"]["package_info"]["torch-version"].partition("+")[0]
            runs_by_configuration.setdefault(key, {})[run["created_at"]] = (quality, torch)
    configurations = []
    for key, runs in runs_by_configuration.items():
        if len(runs) < 2:
            continue
        in_order = [
            {"date": date[:10], "torch": torch, "quality": quality}
            for date, (quality, torch) in sorted(runs.items())
        ]
        configurations.append({"experiment": json.loads(key)["experiment"], "runs": in_order})
    return sorted(configurations, key=lambda each: each["experiment"])


def spread_of(configurations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how reruns differ: all of them, and between the last two versions of torch."""
    that_learnt = [each for each in configurations if learnt(each)]
    squares = 0.0
    degrees = 0
    versions: set[str] = set()
    for each in that_learnt:
        qualities = [run["quality"] for run in each["runs"]]
        squares += statistics.variance(qualities) * (len(qualities) - 1)
        degrees += len(qualities) - 1
        versions |= {run["torch"] for run in each["runs"]}
    before, latest = sorted(versions, key=version_numbers)[-2:]
    steps: list[float] = []
    for each in that_learnt:
        first, second = each["runs"][-2:]
        if (first["torch"], second["torch"]) == (before, latest):
            steps.append(second["quality"] - first["quality"])
    return {
        "configurations": len(that_learnt),
        "pooled": math.sqrt(squares / degrees),
        "last_step": {
            "configurations": len(steps),
            "torch": [before, latest],
            "fell": sum(step < 0 for step in steps),
            "mean": statistics.fmean(steps),
            # What is left of a run's spread once the step that all share is taken away.
            "of_a_run": statistics.stdev(steps) / math.sqrt(2),
        },
    }


def version_numbers(version: str) -> list[int]:
    """Return what versions are sorted by."""
    return [int(part) for part in version.split(".")]


def learnt(configuration: dict[str, Any]) -> bool:
    """Whether every run of a configuration has learnt the task."""
    return all(run["quality"] >= LEARNT for run in configuration["runs"])


def leaderboard(rows: Sequence[ResultRow], of_a_run: float) -> dict[str, Any]:
    """Read peft's table: what each way is, and how far it lies from the best and from the full."""
    ways = sorted(way_facts(rows), key=lambda way: way.quality, reverse=True)
    best = ways[0]
    [full] = [way for way in ways if way.candidate.is_reference]
    several = [way for way in ways if not way.has_one_rate]
    rates_by_method: dict[str, set[float]] = {}
    for way in ways:
        rates = rates_by_method.setdefault(method_of(way), set())
        rates.update(rate for rate, _ in way.means)
    methods_at_one_rate = [method for method, rates in rates_by_method.items() if len(rates) == 1]
    listed = [compared(way, best, full, of_a_run) for way in ways]
    others = [each for each in listed if each["way"] != name_of(full)]
    unlike_full = corrected_by_holm({each["way"]: each["p_full"] for each in others})
    for each in listed:
        each["p_behind_best_corrected"] = None
        each["p_full_holm"] = unlike_full.get(each["way"])
    for each in listed[1:]:
        # By Bonferroni, because the best was chosen for being so (Gupta 1965).
        each["p_behind_best_corrected"] = min(1.0, each["p_behind_best"] * len(listed[1:]))
    from_full = [each["from_full"] for each in others if each["p_full_holm"] <= 1 - LEVEL]
    return {
        "runs": len(rows),
        "ways": len(ways),
        "methods": len(rates_by_method),
        "methods_at_one_rate": len(methods_at_one_rate),
        "seeds": sorted({row.seed for row in rows if row.seed is not None}),
        "examples": best.examples,
        "ways_at_one_rate": sum(way.has_one_rate for way in ways),
        "several_rates": [
            {
                "way": name_of(way),
                "means": way.means,
                "spread": way.spread_by_rate,
                "at_border": way.at_border,
            }
            for way in several
        ],
        "left_open": left_open(ways),
        "listed": listed,
        "not_below_best_by_rows": sum(not each["beyond_rows"] for each in listed[1:]),
        "not_below_best_at_least": sum(
            abs(each["from_best"]) <= each["half_at_least"] for each in listed[1:]
        ),
        "not_below_best": sum(each["p_behind_best_corrected"] >= 1 - LEVEL for each in listed[1:]),
        "above_full": sum(difference > 0 for difference in from_full),
        "below_full": sum(difference < 0 for difference in from_full),
    }


def compared(way: WayFacts, best: WayFacts, full: WayFacts, of_a_run: float) -> dict[str, Any]:
    """Return a way's differences from the best and from the full model."""
    assert way.examples is not None
    own = way.quality * (1 - way.quality) / way.examples

    def against(other: WayFacts) -> tuple[float, float, DifferenceTest]:
        variance = own + other.quality * (1 - other.quality) / way.examples
        difference = way.quality - other.quality
        tested = difference_test(difference, [part_of(variance), part_of(2 * of_a_run**2)])
        return difference, Z * math.sqrt(variance), tested

    behind, by_rows, from_best = against(best)
    ahead, _, from_full = against(full)
    return {
        "way": name_of(way),
        "method": method_of(way),
        "learning_rate": way.learning_rate,
        "quality": way.quality,
        "from_best": behind,
        "half_by_rows": by_rows,
        "half": from_best.half,
        "half_at_least": half_at_least("accuracy", behind, way.examples, 2 * of_a_run**2),
        "beyond_rows": abs(behind) > by_rows,
        # One-sided: whether it lies below the best of all, which was chosen for being so.
        "p_behind_best": 1 - from_best.p_above,
        "from_full": ahead,
        "p_full": from_full.p,
    }


def name_of(way: WayFacts) -> str:
    """Return what the page calls a way."""
    return "full fine-tuning" if way.candidate.is_reference else way.candidate.label


def method_of(way: WayFacts) -> str:
    """Return a way's method, as its experiments' folder is called."""
    if way.candidate.is_reference:
        return FULL
    # Of "lora rank32" or of an experiment's complete name, "lora/llama-3.2-3B-rank32".
    return re.split("[ /]", way.candidate.label)[0]


def needs(examples: int, of_a_run: float) -> dict[str, Any]:
    """Return what shows a true difference between two ways near 50 %, four times out of five.

    rows: at five seeds each, for ways that are right on rows of their own, and for ways that differ
    on a share DIFFER of the rows, which published predictions would tell.
    """
    by_difference: list[dict[str, float | None]] = []
    for difference in (0.01, 0.02, 0.03, 0.05):
        by_seeds = 2 * of_a_run**2 / SEEDS
        by_difference.append(
            {
                "difference": difference,
                # The fewest seeds with any number of rows.
                "seeds": fewest_seeds(difference, 2 * of_a_run**2),
                "rows": rows_needed(difference, 0.5, by_seeds),
                "rows_paired": rows_needed(difference, DIFFER - difference**2, by_seeds),
            }
        )
    by_rows = 0.5 / examples
    return {
        "by_difference": by_difference,
        # The least difference that these rows can show, with any number of seeds, and with five.
        "least_any_seeds": least_found(by_rows),
        "least_five_seeds": least_found(by_rows + 2 * of_a_run**2 / SEEDS),
    }


def least_found(variance: float) -> float:
    """Return the least true difference that is found, from the variance of a difference."""
    return math.sqrt(FOUND * variance)


def finite(value: Any) -> Any:
    """Return a value with None for what no number would do: JSON has no infinity."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def peft(git_dir: Path, commit: str) -> dict[str, Any]:
    """Read peft's results at a commit, and the reruns before it."""
    clone = Clone(git_dir)
    configurations = reruns(clone, commit)
    spread = spread_of(configurations)
    of_a_run = spread["last_step"]["of_a_run"]
    with tempfile.TemporaryDirectory() as folder:
        clone.unpack(commit, "method_comparison", Path(folder))
        imported = read_benchmark(Path(folder))
    rows = [row for row in imported.rows if row.task == TEXT_SUITE]
    others = [row for row in imported.rows if row.task != TEXT_SUITE]
    read = leaderboard(rows, of_a_run)
    return {
        "source": "huggingface/peft, method_comparison",
        "commit": commit,
        "model": rows[0].model,
        "task": TEXT_SUITE,
        **read,
        "images": {
            "runs": len(others),
            "examples": others[0].examples,
            "seeds": sorted({row.seed for row in others if row.seed is not None}),
        },
        "reruns": configurations,
        "spread": spread,
        "needs": needs(read["examples"], of_a_run),
    }


def main() -> None:
    """Read both tables and write what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peft", type=Path, required=True, metavar="GIT_DIR")
    parser.add_argument("--commit", default=COMMIT)
    options = parser.parse_args()
    results = {"peft": peft(options.peft, options.commit), "glue": glue()}
    path = machine.write(
        "published_tables",
        finite(results),
        "two published tables read with error bars; qualities are fractions",
    )
    print(path)


if __name__ == "__main__":
    main()
