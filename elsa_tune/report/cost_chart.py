"""The figure of a comparison of ways as data: quality against cost, one point a way."""

import math
from collections.abc import Mapping, Sequence

from elsa_tune.analysis.answer import score_at_target
from elsa_tune.analysis.comparing.ways import Way, WayBasis, WayComparison
from elsa_tune.report.charts import (
    CHOSEN,
    FEWEST_RUNS,
    TARGET,
    Arrow,
    Chart,
    Panel,
    Series,
    Style,
    Tick,
    Ticks,
    point_style,
)
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.cost import Cost
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.words import metric_text, target_text

KEY = "quality_by_cost"

_X_TITLES = {
    Cost.TIME: "seconds of a training run",
    Cost.MEMORY: "peak memory of a training run, MiB",
    Cost.PARAMETERS: "trained parameters",
    Cost.LATENCY: "seconds for one input",
    Cost.BUNDLE: "seconds for one input of one task, in a bundle",
}

# Of a decade the ticks, where the axis has one decade or less, and where it has more.
_MANY_TICKS = (1, 2, 5)
_FEW_TICKS = (1,)


def quality_by_cost(named: Mapping[str, WayComparison]) -> Chart:
    """Draw each named comparison whose costs are known of two ways or more."""
    drawn: dict[str, list[Way]] = {}
    for name, comparison in named.items():
        priced = [way for way in comparison.ways if way.cost is not None and way.cost > 0]
        if len(priced) >= 2:
            drawn[name] = priced
    styles = _styles(named, drawn)
    panels = [_panel(name, named[name], ways, styles) for name, ways in drawn.items()]
    return Chart(
        key=KEY,
        title="Quality and cost",
        caption="Each way by its mean over the measuring seeds and the median cost of its runs. "
        f"Upright bars are 95 % intervals, drawn from {FEWEST_RUNS} runs on; level ones reach from "
        "the cheapest run to the most expensive. A circle: the recommended way.",
        panels=tuple(panels),
    )


def _styles(
    named: Mapping[str, WayComparison], drawn: Mapping[str, Sequence[Way]]
) -> dict[str, Style]:
    """Return how each way is drawn, by its name: alike in every panel, and like no other way.

    The same ways look alike by every cost: they are numbered in the order of candidates.
    """
    candidates: dict[str, Candidate] = {}
    for panel in drawn:
        # Also those without a cost: another unit may price them.
        for way in named[panel].ways:
            candidates[_way_name(named[panel], way)] = way.candidate
    in_order = sorted(candidates.items(), key=lambda item: (item[1].rank, item[1].key, item[0]))
    return {name: point_style(number) for number, (name, _) in enumerate(in_order)}


def _way_name(comparison: WayComparison, way: Way) -> str:
    """Return what the legend calls a way."""
    return way.candidate.name(comparison.curve.layers)


def _panel(
    name: str, comparison: WayComparison, ways: Sequence[Way], styles: Mapping[str, Style]
) -> Panel:
    """Return one pair of axes; the cost is drawn as its logarithm. styles: by a way's name."""
    series = [_point(comparison, way, styles) for way in ways]
    xs = [x for one in series for x in one.x]
    ends = (min(xs) - 0.1, max(xs) + 0.1)
    target = _target(comparison, ends)
    if target is not None:
        series.insert(0, target)
    arrow = None
    recommended = comparison.recommended
    if recommended is not None and recommended in ways:
        x, y = _place(recommended)
        series.append(Series(name="recommended", style=CHOSEN, x=(x,), y=(y,)))
        is_certain = comparison.basis is not WayBasis.MEASURED
        how = "cheapest certified" if is_certain else "cheapest measured"
        arrow = Arrow(text=how, x=x, y=y)
    return Panel(
        title=name,
        x_title=_X_TITLES[comparison.unit],
        y_title=f"{metric_text(comparison.curve.metric)} × 100",
        series=tuple(series),
        ticks=_ticks(min(xs), max(xs)),
        arrow=arrow,
    )


def _point(comparison: WayComparison, way: Way, styles: Mapping[str, Style]) -> Series:
    """Return a way as a series of one point, with its bars."""
    point = way.point
    low = None
    high = None
    has_runs_enough = point.seeds >= FEWEST_RUNS
    if has_runs_enough and point.ci_low is not None and point.ci_high is not None:
        low = 100 * point.ci_low
        high = 100 * point.ci_high
    x, y = _place(way)
    costs = _run_costs(comparison.unit, way)
    left = None
    right = None
    if len(costs) > 1:
        left = math.log10(min(costs))
        right = math.log10(max(costs))
    name = _way_name(comparison, way)
    return Series(
        name=name,
        style=styles[name],
        x=(x,),
        y=(y,),
        low=(low,),
        high=(high,),
        left=(left,),
        right=(right,),
    )


def _place(way: Way) -> tuple[float, float]:
    """Return where a way of known cost stands."""
    assert way.cost is not None
    return math.log10(way.cost), 100 * (way.point.quality or 0.0)


def _run_costs(unit: Cost, way: Way) -> list[float]:
    """Return what each measuring run of a way took, as far as that is recorded."""
    costs: list[float] = []
    for run in way.point.runs:
        cost = _run_cost(unit, run.row)
        if cost is not None and math.isfinite(cost) and cost > 0:
            costs.append(cost)
    return costs


def _run_cost(unit: Cost, row: ResultRow) -> float | None:
    if unit is Cost.TIME:
        return row.train_seconds
    if unit is Cost.MEMORY:
        return row.peak_memory_mb
    if unit is Cost.PARAMETERS:
        return row.trainable_parameters
    return None


def _target(comparison: WayComparison, ends: tuple[float, float]) -> Series | None:
    """Return the line of the quality that keeps the target of the best way's."""
    best = comparison.best
    if best is None or best.point.quality is None:
        return None
    base = comparison.curve.chance or 0.0
    if best.point.quality <= base:  # of no gain, and of a score below 0, no share can be kept
        return None
    quality = score_at_target(best.point.quality, comparison.target, base)
    of_what = "gain" if comparison.curve.chance else "score"
    share = target_text(comparison.target)
    y = 100 * quality
    return Series(name=f"{share} of the best {of_what}", style=TARGET, x=ends, y=(y, y))


def _ticks(lowest: float, highest: float) -> Ticks:
    """Return ticks at round costs. lowest, highest: logarithms."""
    span = highest - lowest
    steps = _MANY_TICKS if span <= 1.5 else _FEW_TICKS
    first = math.floor(lowest)
    last = math.ceil(highest)
    ticks: list[Tick] = []
    for decade in range(first, last + 1):
        for step in steps:
            place = decade + math.log10(step)
            if lowest - 0.3 <= place <= highest + 0.3:
                ticks.append((place, _tick_text(step * 10.0**decade)))
    return tuple(ticks)


def _tick_text(cost: float) -> str:
    """Return `0.5`, `2,000` or `20 M`, which trained parameters come to."""
    if cost >= 1e6:
        return f"{cost / 1e6:,.6g} M"
    return f"{cost:,.6g}"
