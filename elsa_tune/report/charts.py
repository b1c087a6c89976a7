"""The figures of a report as data, which `figures` draws. Qualities are x 100."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elsa_tune.analysis.answer import Action, Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.words import metric_text, number_of, part_text, rate_text, target_text

# Okabe and Ito's colours (2008, "Color Universal Design"), which people with any common colour
# blindness tell apart; yellow is left out, as it vanishes on paper.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK = "#3d4451"
GROUND = "#ffffff"

TUNED_TITLE = "layers fine-tuned"

# Of two runs Student's t makes an interval as wide as the figure.
FEWEST_RUNS = 3

# More ticks run into one another in a panel.
MOST_TICKS = 13
MOST_RATE_TICKS = 6

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
PROBE = look(SERIES[3], marker="", line="-.", width=1.6)
SEEDS = look(SERIES[0], line="", hollow=True, size=4, width=1)
MEANS = look(SERIES[0])
OPERATING = look(SERIES[1], marker="*", line="", size=15)
CORRECTED = look(SERIES[4], marker="v", line="", size=10)
CERTIFIED = look(SERIES[2], marker="D", line="", size=9)
CHOSEN = look(INK, line="", hollow=True, size=12, width=1.2)

# What tells depths apart besides their colour.
MARKERS = ("o", "s", "^", "D", "v", "p")
LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points under one name of the legend; the same name in several panels is one entry.

    x, y: as long as each other. low, high: the ends of a bar through y, None where a point has
    none.
    """

    name: str
    look: Look
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """What the figure is about: a few words that point to one place of it."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes. ticks: (position, text) on the x axis."""

    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    ticks: Ticks
    arrow: Arrow | None = None


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
    """Each named curve with its single runs, the target, the floors, and what was decided."""
    panels = []
    for name, answer in named.items():
        if answer.with_quality:
            panels.append(
                Panel(
                    title=name,
                    x_title=TUNED_TITLE,
                    y_title=_quality_title(answer),
                    series=tuple(_curve_series(answer)),
                    ticks=depth_ticks(answer),
                    arrow=_arrow(answer),
                )
            )
    return Chart(
        key="freeze_curve",
        title="The freeze curve",
        caption="Mean over the measuring seeds; hollow dots are single runs. Bars are 95 % "
        f"intervals, drawn from {FEWEST_RUNS} runs on; a wide one goes on beyond the axis.",
        panels=tuple(panels),
    )


def learning_rates(named: Mapping[str, Answer]) -> Chart:
    """Mean quality of the completed trials over the learning rate, a line a depth."""
    lines: set[tuple[float, str]] = set()
    for answer in named.values():
        lines |= {_depth_name(answer, point) for point in answer.points}
    names = [name for _, name in sorted(lines, reverse=True)]
    panels = []
    for name, answer in named.items():
        rates = sorted({math.log10(rate) for p in answer.points for rate, _ in p.tried.means})
        if len(rates) > 1:
            places = _spaced(rates, MOST_RATE_TICKS)
            panels.append(
                Panel(
                    title=name,
                    x_title="learning rate",
                    y_title=_quality_title(answer),
                    series=tuple(_rate_series(answer, names)),
                    ticks=tuple((x, rate_text(float(f"{10**x:.2g}"))) for x in places),
                )
            )
    return Chart(
        key="learning_rates",
        title="Learning rates",
        caption="Mean of the completed trials at each rate, exploring and measuring. A circle: the "
        "rate that a depth was measured at. Where a line's end is its best, rates beyond it may be "
        "better.",
        panels=tuple(panels),
    )


def _quality_title(answer: Answer) -> str:
    return f"{metric_text(answer.metric)} × 100"


def places(points: Iterable[CurvePoint]) -> dict[Candidate, float]:
    """Where depths stand on the x axis: at their number of fine-tuned layers.

    What is only drawn stands half a layer before its number. What has no number stands between its
    neighbours by rank, or one beyond the last of them.
    """
    ordered = sorted(points, key=lambda point: point.depth)
    places: dict[Candidate, float] = {}
    nameless: list[Candidate] = []  # since the last depth with a number
    before: float | None = None
    for point in ordered:
        if point.fine_tuned_layers is None:
            nameless.append(point.depth)
            continue
        here = point.fine_tuned_layers - (0.0 if point.depth.is_tested else 0.5)
        start = here + len(nameless) + 1 if before is None else before
        step = (start - here) / (len(nameless) + 1)
        for number, depth in enumerate(nameless, 1):
            places[depth] = start - number * step
        places[point.depth] = here
        nameless = []
        before = here
    for number, depth in enumerate(nameless, 1):
        places[depth] = (0.0 if before is None else before) - number
    return places


def depth_ticks(answer: Answer) -> Ticks:
    """A tick at each measured depth that has room for one, the fewest layers among them."""
    numbers: set[float] = set()
    names: list[tuple[float, str]] = []
    for depth, place in places(answer.with_quality).items():
        number = number_of(depth, answer.layers)
        if number is None:
            names.append((place, depth.short))
        else:
            numbers.add(float(number))
    if not numbers:
        return tuple(sorted(names))
    # Counted from the deep end, where the answer lies.
    spaced = _spaced(sorted(-number for number in numbers), MOST_TICKS)
    ticks = [(-number, f"{-number:g}") for number in spaced]
    if max(numbers) - min(numbers) <= MOST_TICKS / 2:
        ticks += names
    return tuple(sorted(ticks))


def _spaced(places: Sequence[float], most: int) -> list[float]:
    """Rising places on an axis that have room; the last is among them."""
    kept = [places[-1]]
    for one in places[-2::-1]:
        if kept[-1] - one >= (places[-1] - places[0]) / most:
            kept.append(one)
    return kept[::-1]


def _curve_series(answer: Answer) -> Iterator[Series]:
    """Return what is drawn of a curve: levels, runs, means, and the depths that were decided."""
    place = places(answer.with_quality)
    drawn = sorted(answer.with_quality, key=lambda point: place[point.depth])
    yield from _levels(answer, place[drawn[0].depth], place[drawn[-1].depth])
    yield from _runs(drawn, place)
    yield _means(drawn, place)
    yield from _decided(answer, drawn, place)


def _runs(drawn: Sequence[CurvePoint], place: Mapping[Candidate, float]) -> Iterator[Series]:
    """Return the single runs, where they are known."""
    x: list[float] = []
    y: list[float] = []
    for point in drawn:
        for quality in point.qualities:
            x.append(place[point.depth])
            y.append(100 * quality)
    if x:
        yield Series(name="single runs", look=SEEDS, x=tuple(x), y=tuple(y))


def _means(drawn: Sequence[CurvePoint], place: Mapping[Candidate, float]) -> Series:
    """Return the means, with intervals where there are seeds enough for them."""
    low: list[float | None] = []
    high: list[float | None] = []
    for point in drawn:
        has_interval = point.seeds >= FEWEST_RUNS
        low.append(_in_points(point.ci_low) if has_interval else None)
        high.append(_in_points(point.ci_high) if has_interval else None)
    return Series(
        name="mean over seeds",
        look=MEANS,
        x=tuple(place[point.depth] for point in drawn),
        y=tuple(100 * (point.quality or 0.0) for point in drawn),
        low=tuple(low),
        high=tuple(high),
    )


def _in_points(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _decided(
    answer: Answer, drawn: Sequence[CurvePoint], place: Mapping[Candidate, float]
) -> Iterator[Series]:
    """Mark the depths that were decided, but for the recommended one, at which the arrow points."""
    decided = [
        ("certified", CERTIFIED, answer.certified),
        ("operating point", OPERATING, answer.operating_point),
    ]
    if answer.corrected_operating_point != answer.operating_point:
        decided.append(("corrected for chance", CORRECTED, answer.corrected_operating_point))
    points = {point.depth: point for point in drawn if point != answer.recommendation.point}
    for name, look, marked in decided:
        point = None if marked is None else points.get(marked.depth)
        if point is not None:
            x = (place[point.depth],)
            yield Series(name=name, look=look, x=x, y=(100 * (point.quality or 0.0),))


def _levels(answer: Answer, first: float, last: float) -> Iterator[Series]:
    """What a depth is compared with, as lines from the first depth to the last."""
    margin = max(0.3, 0.03 * (last - first))
    ends = (first - margin, last + margin)
    full = answer.full
    probe = answer.probe
    levels: list[tuple[str, Look, float | None]] = [
        (
            f"target: {target_text(answer.target)} of the full model's",
            TARGET,
            None if full is None or full.quality is None else answer.target * full.quality,
        ),
        ("linear probe, nothing fine-tuned", PROBE, None if probe is None else probe.quality),
        ("constant answer", CHANCE, answer.chance),
    ]
    for name, how, level in levels:
        if level is not None:
            yield Series(name=name, look=how, x=ends, y=(100 * level, 100 * level))


def _arrow(answer: Answer) -> Arrow | None:
    """To what the answer recommends."""
    advice = answer.recommendation
    probe = answer.probe
    place = places(answer.with_quality)
    if advice.action is Action.LINEAR_MODEL and probe is not None:
        # Toward the line's right end, below which no curve lies that rises, and between its depths.
        first = min(place.values())
        last = max(place.values())
        at = first + 0.8 * (last - first)
        return Arrow(text="answer: fine-tune nothing", x=at, y=100 * probe.quality)
    point = advice.point
    if point is None or point.quality is None:
        return None
    text = f"answer: {part_text(point.depth, answer.layers)}"
    return Arrow(text=text, x=place[point.depth], y=100 * point.quality)


def _depth_name(answer: Answer, point: CurvePoint) -> tuple[float, str]:
    """How a line is called, and a number that grows with the layers it fine-tunes."""
    if point.depth.is_reference:
        return math.inf, "all layers"
    number = number_of(point.depth, answer.layers)
    if number is None:
        return answer.layers - point.depth.rank, point.depth.name(answer.layers)
    return number, f"last {number}" if number else "head alone"


def _rate_series(answer: Answer, names: Sequence[str]) -> Iterator[Series]:
    """A line for each of the figure's depths, and its measured rate; x: the rate's logarithm."""
    tried = [point for point in answer.points if point.tried.means]
    for point in tried:
        _, name = _depth_name(answer, point)
        number = names.index(name)
        means = {rate: 100 * mean for rate, mean in point.tried.means}
        yield Series(
            name=name,
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
