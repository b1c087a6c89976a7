"""The three rules of `curves.py` as people see them: a figure and Markdown tables.

It must not compute what it shows: the results of bench/results/fair_rates.json go in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elsa_tune.report.charts import (
    CHANCE,
    INK,
    SERIES,
    TUNED_TITLE,
    Chart,
    Panel,
    Series,
    depth_ticks,
    style,
)
from elsa_tune.specs.policy import Policy
from elsa_tune.words import metric_text

RULES = {
    "paper": "1e-5 to 5e-5, the full model's rate",
    "same_range": "1e-5 to 5e-5, each depth's own rate",
    "fair": "any rate, each depth's own",
}
STYLES = {
    "paper": style(SERIES[1], marker="s", line="--"),
    "same_range": style(SERIES[4], marker="^", line=":"),
    "fair": style(SERIES[0]),
}
ANSWERED = style(INK, marker="*", line="", hollow=True, size=15, width=1.4)


def chart(results: Sequence[Mapping[str, Any]], rules: Sequence[str]) -> Chart:
    """Return a panel a task, a curve a rule."""
    panels = []
    for of in results:
        layers = of["layers"]
        depths = [point for rule in rules for point in of["rules"][rule]["depths"]]
        places = {tuned(point, layers) for point in depths}
        if not places:
            continue
        ends = (min(places) - 0.3, max(places) + 0.3)
        level = (100 * of["chance"],) * 2
        panels.append(
            Panel(
                title=of["task"],
                x_title=TUNED_TITLE,
                y_title=f"{metric_text(of['metric'])} × 100",
                series=(
                    *(
                        series
                        for rule in rules
                        for series in curve_series(of["rules"][rule], rule, of["chance"], layers)
                    ),
                    Series(name="constant answer", style=CHANCE, x=ends, y=level),
                    *(
                        series
                        for rule in rules
                        for series in answer_series(of["rules"][rule], layers)
                    ),
                ),
                ticks=depth_ticks(places),
            )
        )
    return Chart(
        key="fair_rates",
        title="What the rule for learning rates does to the freeze curve",
        caption="",
        panels=tuple(panels),
    )


def tuned(point: Mapping[str, Any], layers: int) -> float:
    """Where a depth stands: its fine-tuned layers."""
    return float(layers - point["frozen_layers"])


def curve_series(of: Mapping[str, Any], rule: str, chance: float, layers: int) -> list[Series]:
    """Return a rule's means with their intervals."""
    points = of["depths"]
    if not points:
        return []
    # A collapsed seed's interval would reach where no quality is.
    sure = [
        len(point["seeds"]) >= Policy().fewest_seeds and point["low"] is not None
        for point in points
    ]
    return [
        Series(
            name=RULES[rule],
            style=STYLES[rule],
            x=tuple(tuned(point, layers) for point in points),
            y=tuple(100 * point["quality"] for point in points),
            low=tuple(
                100 * max(point["low"], min(chance, point["quality"])) if known else None
                for point, known in zip(points, sure, strict=True)
            ),
            high=tuple(
                100 * min(point["high"], 1.0) if known else None
                for point, known in zip(points, sure, strict=True)
            ),
        )
    ]


def answer_series(of: Mapping[str, Any], layers: int) -> list[Series]:
    """Return a star where a rule's corrected answer lies."""
    point = (of["answer"] or {}).get("corrected_operating_point")
    if point is None:
        return []
    x, y = tuned(point, layers), 100 * point["quality"]
    return [Series(name="fewest layers for 90 %, corrected", style=ANSWERED, x=(x,), y=(y,))]


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Two tables: rates and qualities of each depth, and each rule's answers."""
    lines = [
        "| task | N | paper's range: rate | quality × 100 | any rate: rate | quality × 100 | "
        "kept, fair minus paper (95 %) | corrected |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for of in results:
        curves = {
            rule: {point["frozen_layers"]: point for point in of["rules"][rule]["depths"]}
            for rule in RULES
        }
        moved = {one["frozen_layers"]: one for one in of["fair_minus_paper"]}
        for depth in sorted(curves["same_range"].keys() | curves["fair"].keys()):
            cells = [of["task"], str(depth)]
            for rule in ("same_range", "fair"):
                cells += point_cells(curves[rule].get(depth))
            of_rules = moved.get(depth, {})
            cells += [difference_text(of_rules.get(name)) for name in ("raw", "corrected")]
            lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "| task | rule | k raw | k corrected | certified | certified, corrected | plausible |",
        "|---|---|---|---|---|---|---|",
    ]
    for of in results:
        for rule, words in RULES.items():
            answer = of["rules"][rule]["answer"]
            lines.append(f"| {of['task']} | {words} | {' | '.join(answer_cells(answer))} |")
    lacking = [
        f"{of['task']} N = {one['frozen_layers']} at {one['learning_rate']:g} "
        f"({one['measuring_seeds']})"
        for of in results
        for one in of["lacking"]
    ]
    if lacking:
        lines += ["", f"Fewer than {Policy().fewest_seeds} measuring seeds: {', '.join(lacking)}."]
    return "\n".join(lines)


def point_cells(point: Mapping[str, Any] | None) -> list[str]:
    """Rate, with an arrow where it lies at an end of what was tried, and quality."""
    if point is None:
        return ["–", "–"]
    arrow = {"upper": " ↑", "lower": " ↓"}.get(point["border"], "")
    spread = "" if point["std"] is None else f" ± {100 * point['std']:.1f}"
    text = f"{100 * point['quality']:.1f}{spread} ({len(point['seeds'])})"
    return [f"{point['learning_rate']:.0e}".replace("e-0", "e-") + arrow, text]


def difference_text(moved: Mapping[str, float] | None) -> str:
    """In points of retention."""
    if moved is None:
        return "–"
    low, high = 100 * moved["low"], 100 * moved["high"]
    return f"{100 * moved['value']:+.1f} ({low:+.1f} to {high:+.1f})"


def answer_cells(answer: Mapping[str, Any] | None) -> list[str]:
    """K of each kind of answer, and what is plausible."""
    if answer is None:
        return ["–"] * 5
    names = ("operating_point", "corrected_operating_point", "certified", "corrected_certified")
    found = [
        "–" if answer[name] is None else str(answer[name]["fine_tuned_layers"]) for name in names
    ]
    plausible = answer["plausible_fine_tuned_layers"]
    return [*found, "–" if plausible is None else ", ".join(map(str, plausible))]
