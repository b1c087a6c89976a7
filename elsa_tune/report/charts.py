"""The figures of a report as data, which `figures` draws. Qualities are x 100."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elsa_tune.analysis.answer import Answer
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.words import depths_text, metric_text

# Okabe and Ito's colours (2008, "Color Universal Design"), which people with any common colour
# blindness tell apart; yellow is left out, as it vanishes on paper.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK, GROUND = "#3d4451", "#ffffff"

FROZEN_TITLE = "frozen layers N"

# More ticks run into one another in a panel.
MOST_TICKS, MOST_RATE_TICKS = 13, 6

Look = Mapping[str, Any]
Ticks = tuple[tuple[float, str], ...]


def look(
    colour: str,
    *,
    marker: str = "o",
    line: str = "-",
    hollow: bool = False,
    size: float = 6.0,
    width: float = 2.0,
) -> Look:
    """How a series is told from the others, always by more than its colour, in matplotlib's words.

    marker, line: "" for none. size: of the marker, width: of the line, in points.
    """
    return {
        "color": colour,
        "linewidth": width,
        "linestyle": line,
        "marker": marker,
        "markersize": size,
        # What a large hollow mark surrounds is seen through it.
        "markerfacecolor": colour if not hollow else "none" if size > 10 else GROUND,
        "markeredgecolor": colour if hollow else GROUND,
        "markeredgewidth": max(width, 1.0) if hollow else 0.6,
        "clip_on": False,
    }


TARGET = look(INK, marker="", line="--", width=1.4)
CHANCE = look(INK, marker="", line=":", width=1.4)
SEEDS = look(SERIES[0], line="", hollow=True, size=4, width=1)
MEANS = look(SERIES[0])
OPERATING = look(SERIES[1], marker="*", line="", size=15)
CORRECTED = look(SERIES[4], marker="v", line="", size=10)
CERTIFIED = look(SERIES[2], marker="D", line="", hollow=True, size=15, width=2)
CHOSEN = look(INK, line="", hollow=True, size=12, width=1.2)

# What tells depths apart besides their colour.
MARKERS = ("o", "s", "^", "D", "v", "p")
LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points under one name of the legend; the same name in several panels is one entry.

    x, y: as long as each other. low, high: a band around y, None where a point has none.
    """

    name: str
    look: Look
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes. ticks: (position, text) on the x axis."""

    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    ticks: Ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure with its panels. key: its name in file names. caption: how to read it."""

    key: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


def all_charts(named: Mapping[str, Answer]) -> list[Chart]:
    """Every figure of a report for which there is something to draw."""
    return [chart for chart in (freeze_curve(named), learning_rates(named)) if chart.panels]


def freeze_curve(named: Mapping[str, Answer]) -> Chart:
    """Each named curve with its interval, the target, chance, and the points that were decided."""
    panels = []
    for name, answer in named.items():
        if answer.with_quality:
            series = _curve_series(answer)
            ticks = depth_ticks({point.depth for point in answer.with_quality})
            panels.append(_panel(name, answer, FROZEN_TITLE, series, ticks))
    return Chart(
        key="freeze_curve",
        title="The freeze curve",
        caption="Mean over the measuring seeds with its 95 % interval (a wide one goes on beyond "
        "the axis); hollow dots are single seeds.",
        panels=tuple(panels),
    )


def learning_rates(named: Mapping[str, Answer]) -> Chart:
    """Mean quality of the completed trials over the learning rate, a line a depth."""
    depths = sorted({point.depth for answer in named.values() for point in answer.points})
    panels = []
    for name, answer in named.items():
        rates = sorted({math.log10(rate) for p in answer.points for rate, _ in p.tried.means})
        if len(rates) > 1:
            ticks = tuple((x, f"{10**x:.2g}") for x in _spaced(rates, MOST_RATE_TICKS))
            series = _rate_series(answer, depths)
            panels.append(_panel(name, answer, "learning rate", series, ticks))
    return Chart(
        key="learning_rates",
        title="Learning rates",
        caption="Mean of the completed trials at each rate, exploring and measuring. A circle: the "
        "rate that a depth was measured at. Where a line's end is its best, rates beyond it may be "
        "better.",
        panels=tuple(panels),
    )


def _panel(
    name: str, answer: Answer, x_title: str, series: Iterable[Series], ticks: Ticks
) -> Panel:
    y_title = f"{metric_text(answer.metric)} × 100"
    return Panel(title=name, x_title=x_title, y_title=y_title, series=tuple(series), ticks=ticks)


def depth_ticks(depths: set[FreezeDepth]) -> Ticks:
    """A tick at each measured depth that has room for one."""
    whole = sorted({d.frozen_layers for d in depths if not d.is_embeddings_only})
    if not whole:
        return ((0.5, "emb."),)
    ticks = [(float(number), f"{number:g}") for number in _spaced(whole, MOST_TICKS)]
    if whole[-1] - whole[0] <= MOST_TICKS / 2 and any(depth.is_embeddings_only for depth in depths):
        ticks.append((0.5, "emb."))
    return tuple(sorted(ticks))


def _spaced(places: Sequence[float], most: int) -> list[float]:
    """Rising places on an axis that have room; the last, where the answer lies, is among them."""
    kept = [places[-1]]
    for place in places[-2::-1]:
        if kept[-1] - place >= (places[-1] - places[0]) / most:
            kept.append(place)
    return kept[::-1]


def _curve_series(answer: Answer) -> Iterator[Series]:
    found = answer.with_quality
    first, last = _position(found[0].depth), _position(found[-1].depth)
    margin = max(0.3, 0.03 * (last - first))
    ends = (first - margin, last + margin)
    if answer.full is not None and answer.full.quality is not None:
        goal = 100 * answer.target * answer.full.quality
        yield Series(name="target", look=TARGET, x=ends, y=(goal, goal))
    if answer.chance is not None:
        level = 100 * answer.chance
        yield Series(name="constant answer", look=CHANCE, x=ends, y=(level, level))
    seeds = [(_position(point.depth), 100 * one) for point in found for one in point.qualities]
    if seeds:
        x, y = zip(*seeds, strict=True)
        yield Series(name="single seeds", look=SEEDS, x=x, y=y)
    yield Series(
        name="mean over seeds",
        look=MEANS,
        x=tuple(_position(point.depth) for point in found),
        y=tuple(100 * (point.quality or 0.0) for point in found),
        low=tuple(None if p.ci_low is None else 100 * p.ci_low for p in found),
        high=tuple(None if p.ci_high is None else 100 * p.ci_high for p in found),
    )
    decided = [
        ("certified", CERTIFIED, answer.certified),
        ("operating point", OPERATING, answer.operating_point),
    ]
    if answer.corrected_operating_point != answer.operating_point:
        decided.append(("corrected for chance", CORRECTED, answer.corrected_operating_point))
    heights = {point.depth: 100 * (point.quality or 0.0) for point in found}
    for name, how, point in decided:
        if point is not None and point.depth in heights:
            place, height = _position(point.depth), heights[point.depth]
            yield Series(name=name, look=how, x=(place,), y=(height,))


def _position(depth: FreezeDepth) -> float:
    """Where a depth stands on the x axis; embeddings-only between the full model and N = 1."""
    return 0.5 if depth.is_embeddings_only else float(depth.frozen_layers)


def _rate_series(answer: Answer, depths: Sequence[FreezeDepth]) -> Iterator[Series]:
    """A line for each of the figure's depths, and its measured rate; x: the rate's logarithm."""
    tried = [point for point in answer.points if point.tried.means]
    for point in tried:
        number = depths.index(point.depth)
        means = {rate: 100 * mean for rate, mean in point.tried.means}
        yield Series(
            name=depths_text([point.depth], answer.layers),
            look=look(
                SERIES[number % len(SERIES)],
                marker=MARKERS[number % len(MARKERS)],
                line=LINES[number // len(MARKERS) % len(LINES)],
                width=1.6,
            ),
            x=tuple(map(math.log10, means)),
            y=tuple(means.values()),
        )
    for point in tried:
        rate = point.learning_rate or 0.0
        # Without a mean all runs at that rate diverged.
        if (mean := dict(point.tried.means).get(rate)) is not None:
            yield Series(name="measured", look=CHOSEN, x=(math.log10(rate),), y=(100 * mean,))
