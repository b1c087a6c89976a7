"""Tables of docs/tables, made from bench/results/published_tables.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elsa_tune.words import rate_text
from tools.measurements import measured
from tools.what_90_percent_hides import percent, table

# Ways of the leaderboard that its table shows, from the best on.
SHOWN = 20
# Experiments whose reruns the page shows, by what it calls them.
SHOWN_RERUNS = {
    "full fine-tuning": "full-finetuning/llama-3.2-3B-lr_0.00001",
    "lora rank32": "lora/llama-3.2-3B-rank32",
    "lora rank64-rslora": "lora/llama-3.2-3B-rank64-rslora",
    "lora rank10-target-mlp": "lora/llama-3.2-3B-rank10-target-mlp",
    "lily rank140-mlp-a2-b2-s8.0": "lily/llama-3.2-3B-rank140-mlp-a2-b2-s8.0",
    "delora rank32": "delora/llama-3.2-3B-rank32",
    "ia3/llama-3.2-3B-default": "ia3/llama-3.2-3B-default",
}


def read(which: str) -> dict[str, Any]:
    """Return what was found about a table: `peft` or `glue`."""
    found: dict[str, Any] = measured("published_tables.json")["results"][which]
    return found


def signed(value: float) -> str:
    """Return a difference in points of 100, with its sign and one decimal."""
    return f"{100 * value:+.1f}"


def count(number: int | None) -> str:
    """Return a number with commas, or a dash where no number would do."""
    return "-" if number is None else f"{number:,}"


def peft_top() -> str:
    """Return the leaderboard's first ways, each beside the best."""
    header = ["way", "rate", "accuracy", "from the best", "± rows", "± rows, runs", "from full"]
    rows = []
    for way in read("peft")["listed"][:SHOWN]:
        is_full = way["p_full_holm"] is None
        is_best = way["p_behind_best_corrected"] is None
        rows.append(
            [
                way["way"],
                rate_text(way["learning_rate"]),
                percent(way["quality"]),
                "" if is_best else signed(way["from_best"]),
                "" if is_best else percent(way["half_by_rows"]),
                "" if is_best else percent(way["half"]),
                "" if is_full else signed(way["from_full"]),
            ]
        )
    return table(header, rows)


def peft_rates() -> str:
    """Return the ways that ran at more than one rate."""
    rows = []
    for way in read("peft")["several_rates"]:
        tried = [f"{percent(quality)} at {rate_text(rate)}" for rate, quality in way["means"]]
        rows.append([way["way"], ", ".join(tried), percent(way["spread"])])
    return table(["way", "accuracy at each rate", "apart"], rows)


def peft_reruns() -> str:
    """Return the same configurations, run again under newer libraries."""
    by_experiment = {each["experiment"]: each["runs"] for each in read("peft")["reruns"]}
    rows = []
    for name, experiment in SHOWN_RERUNS.items():
        runs = by_experiment[experiment]
        qualities = [run["quality"] for run in runs]
        listed = ", ".join(f"{percent(run['quality'])} ({run['date'][:7]})" for run in runs)
        rows.append([name, listed, percent(max(qualities) - min(qualities))])
    return table(["way", "accuracy, and when it ran", "apart"], rows)


def peft_needs() -> str:
    """Return what would show a difference between two ways."""
    header = ["true difference", "seeds a way, at least", "rows", "rows, 20 % answered differently"]
    rows = []
    for each in read("peft")["needs"]["by_difference"]:
        rows.append(
            [
                f"{100 * each['difference']:.0f}",
                str(each["seeds"]),
                count(each["rows"]),
                count(each["rows_paired"]),
            ]
        )
    return table(header, rows)


def glue_tasks() -> str:
    """Return LoRA's difference from full fine-tuning on each task."""
    header = ["task (metric)", "rows", "full", "LoRA", "difference", "±", "± at least", "p, Holm"]
    rows = []
    for name, task in read("glue")["tasks"].items():
        least = task["half_at_least"]
        difference = signed(task["difference"])
        exceeds = abs(task["difference"]) > task["half"]
        star = "\\*" if task["from_mnli"] else ""
        rows.append(
            [
                f"{name}{star} ({task['metric']})",
                count(task["rows"]),
                percent(task["full"]),
                percent(task["lora"]),
                f"**{difference}**" if exceeds else difference,
                percent(task["half"]),
                "" if least is None else percent(least),
                p_text(task["p_holm"]),
            ]
        )
    return table(header, rows)


def glue_averages() -> str:
    """Return the averages, with and without tasks whose runs began differently."""
    rows = []
    for name, each in read("glue")["averages"].items():
        means = [f"{100 * each[way]:.2f}" for way in ("full", "lora")]
        difference = f"{100 * each['difference']:+.2f}"
        rows.append([name, *means, difference, f"{100 * each['half']:.2f}"])
    return table(["average of", "full", "LoRA", "difference", "±"], rows)


def glue_kept() -> str:
    """Return whether LoRA is shown to keep 95 % of full fine-tuning, and what a rerun takes."""
    rows = []
    for name, task in read("glue")["tasks"].items():
        rows.append(
            [
                name,
                percent(task["lora"] / task["full"]),
                p_text(task["p_kept_holm"]),
                count(task["rows"]),
                count(task["rows_needed"]),
            ]
        )
    header = ["task", "kept, %", "p, Holm", "rows", "rows that would show the difference"]
    return table(header, rows)


def p_text(p: float) -> str:
    """Return a p value with two digits, or that it is below .001."""
    return "< .001" if p < 0.001 else f"{p:.2f}" if p >= 0.1 else f"{p:.3f}"


_PEFT = "docs/tables/peft-leaderboard.md"
_GLUE = "docs/tables/lora-glue.md"
# Each part's page, and what makes it.
PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "peft top": (_PEFT, peft_top),
    "peft rates": (_PEFT, peft_rates),
    "peft reruns": (_PEFT, peft_reruns),
    "peft needs": (_PEFT, peft_needs),
    "glue tasks": (_GLUE, glue_tasks),
    "glue averages": (_GLUE, glue_averages),
    "glue kept": (_GLUE, glue_kept),
}
