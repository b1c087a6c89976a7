"""The figures of a report as data, which `figures` draws. Qualities are x 100."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elsa_tune.analysis.answer import Action, Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.task import guess_words
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
MOST_NAMES = MOST_TICKS / 2
MOST_RATE_TICKS = 6

Style = Mapping[str, Any]
Tick = tuple[float, str]  # its position, and its text
Ticks = tuple[Tick, ...]
# Where depths stand on the x axis.
Places = Mapping[Candidate, float]


def style(
    colour: str,
    *,
    marker: str = "o",
    line: str = "-",
    hollow: bool = False,
    size: float = 6.0,
    width: float = 2.0,
) -> Style:
    """Return how a series is drawn, in matplotlib's words: it differs by more than its colour.

    marker, line: "" for none. size: of the marker, width: of the line, in points.
    """
    face = colour
    edge = GROUND
    edge_width = 0.6
    if hollow:
        # What a large hollow mark surrounds is seen through it.
        face = "none" if size > 10 else GROUND
        edge = colour
        edge_width = max(width, 1.0)
    return {
        "color": colour,
        "linewidth": width,
        "linestyle": line,
        "marker": marker,
        "markersize": size,
        "markerfacecolor": face,
        "markeredgecolor": edge,
        "markeredgewidth": edge_width,
        "clip_on": False,
    }


TARGET = style(INK, marker="", line="--", width=1.4)
CHANCE = style(INK, marker="", line=":", width=1.4)
PROBE = style(SERIES[3], marker="", line="-.", width=1.6)
SEEDS = style(SERIES[0], line="", hollow=True, size=4, width=1)
MEANS = style(SERIES[0])
# Of what has no number of layers: no line leads to it.
OTHER_MEANS = style(SERIES[0], marker="s", line="", size=7)
OPERATING = style(SERIES[1], marker="*", line="", size=15)
CORRECTED = style(SERIES[4], marker="v", line="", size=10)
CERTIFIED = style(SERIES[2], marker="D", line="", size=9)
CHOSEN = style(INK, line="", hollow=True, size=12, width=1.2)

# What tells depths apart besides their colour.
MARKERS = ("o", "s", "^", "D", "v", "p")
LINES = ("-", "--", "-.", ":")
# What tells points apart that no line joins: by their shapes alone where a print is grey.
POINT_MARKERS = (*MARKERS, "X", "P", "<", ">", "*", "h")
POINT_COLOURS = (*SERIES, INK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points under one name of the legend; the same name in several panels is one entry."""

    name: str  # as the legend has it
    style: Style  # how its points and bars are drawn
    x: tuple[float, ...]  # numbers of layers, or log10 of a rate or a cost
    y: tuple[float, ...]  # qualities x 100, as long as x
    low: tuple[float | None, ...] = ()  # the end of a bar through y, None where a point has none
    high: tuple[float | None, ...] = ()  # its other end
    left: tuple[float | None, ...] = ()  # the end of a level bar through x, likewise
    right: tuple[float | None, ...] = ()  # its other end


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A few words that point to one place of a figure: what it is about."""

    text: str  # the words
    x: float  # the place that it points to, as in a Series
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str  # above the axes
    x_title: str  # below the x axis
    y_title: str  # beside the y axis
    series: tuple[Series, ...]  # in the order of the legend; a later one is drawn over earlier ones
    ticks: Ticks  # on the x axis
    arrow: Arrow | None = None  # None where nothing is pointed out


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure with its panels."""

    key: str  # its name in file names
    title: str  # its heading on the page
    caption: str  # how to read it
    panels: tuple[Panel, ...]  # an answer or a comparison each


def all_charts(named: Mapping[str, Answer]) -> list[Chart]:
    """Return every figure of a report for which there is something to draw."""
    charts = []
    for chart in (freeze_curve(named), learning_rates(named)):
        if chart.panels:
            charts.append(chart)
    return charts


def freeze_curve(named: Mapping[str, Answer]) -> Chart:
    """Draw each named curve with its single runs, the target, the floors and what was decided."""
    panels = []
    for name, answer in named.items():
        if not answer.with_quality:
            continue
        series = _curve_series(answer)
        panel = Panel(
            title=name,
            x_title=TUNED_TITLE,
            y_title=_quality_title(answer),
            series=tuple(series),
            ticks=_answer_ticks(answer),
            arrow=_arrow(answer),
        )
        panels.append(panel)
    return Chart(
        key="freeze_curve",
        title="The freeze curve",
        caption="Mean over the measuring seeds; hollow dots are single runs. Bars are 95 % "
        f"intervals, drawn from {FEWEST_RUNS} runs on; a wide one goes on beyond the axis.",
        panels=tuple(panels),
    )


def learning_rates(named: Mapping[str, Answer]) -> Chart:
    """Draw the completed trials' mean quality over the learning rate, a line a depth."""
    lines = set()
    for answer in named.values():
        for point in answer.points:
            line = _depth_name(answer, point)
            lines.add(line)
    deepest_first = sorted(lines, reverse=True)
    names = [name for _, name in deepest_first]
    panels = []
    for name, answer in named.items():
        ticks = _rate_ticks(answer)
        if ticks is None:
            continue
        series = _rate_series(answer, names)
        panel = Panel(
            title=name,
            x_title="learning rate",
            y_title=_quality_title(answer),
            series=tuple(series),
            ticks=ticks,
        )
        panels.append(panel)
    return Chart(
        key="learning_rates",
        title="Learning rates",
        caption="Mean of the completed trials at each rate, exploring and measuring. A circle: the "
        "rate that a depth was measured at. Where a line's end is its best, rates beyond it may be "
        "better.",
        panels=tuple(panels),
    )


def _rate_ticks(answer: Answer) -> Ticks | None:
    """Return a tick at each rate that has room for one; None where fewer than two were tried."""
    logarithms = set()
    for point in answer.points:
        for rate, _ in point.known_rates.means:
            logarithms.add(math.log10(rate))
    if len(logarithms) < 2:
        return None
    rising = sorted(logarithms)
    ticks = []
    for logarithm in _spaced(rising, MOST_RATE_TICKS):
        rate = float(f"{10**logarithm:.2g}")
        ticks.append((logarithm, rate_text(rate)))
    return tuple(ticks)


def _quality_title(answer: Answer) -> str:
    return f"{metric_text(answer.metric)} × 100"


def places(points: Iterable[CurvePoint]) -> Places:
    """Return where depths stand on the x axis: at their number of fine-tuned layers.

    What is only drawn stands half a layer before its number. What has no number stands between its
    neighbours by rank, or beyond the last of them, where a name below it has room.
    """
    places: dict[Candidate, float] = {}
    unplaced = []  # those without a number since the last one with
    last: float | None = None  # where that one stands
    by_rank = sorted(points, key=lambda point: point.candidate)
    for point in by_rank:
        candidate = point.candidate
        number = point.fine_tuned_layers
        if number is None:
            unplaced.append(candidate)
            continue
        place: float = number
        if not candidate.is_tested:
            place = number - 0.5
        gaps = len(unplaced) + 1
        begin = place + gaps if last is None else last
        step = (place - begin) / gaps
        places |= _in_steps(unplaced, begin, step)
        unplaced = []
        places[candidate] = place
        last = place
    end = last or 0.0
    span = max(places.values(), default=0.0) - end
    room = max(1.0, span / MOST_NAMES)
    return places | _in_steps(unplaced, end, -room)


def _in_steps(candidates: Iterable[Candidate], begin: float, step: float) -> dict[Candidate, float]:
    """Return places for these, a step apart, the first a step behind the beginning."""
    places = {}
    for count, candidate in enumerate(candidates, 1):
        places[candidate] = begin + count * step
    return places


def depth_ticks(
    numbers: Iterable[float],
    names: Iterable[Tick] = (),
    others: Sequence[Tick] = (),
) -> Ticks:
    """Return a tick at each depth that has room for one, the fewest layers among them.

    numbers: of fine-tuned layers, where they stand. names: places of what is drawn between them,
    with a text. others: of what has no number, which always have a tick.
    """
    rising = sorted(set(numbers))
    ticks = list(others)
    if not rising:
        ticks += names
        return tuple(sorted(ticks))
    # Counted from the deep end, where the answer lies.
    falling = [-number for number in reversed(rising)]
    span = rising[-1] - rising[0]
    room = span / MOST_TICKS
    for negative in _spaced(falling, MOST_TICKS):
        number = -negative
        distances = [abs(number - place) for place, _ in others]
        if min(distances, default=math.inf) >= room:
            ticks.append((number, f"{number:g}"))
    if span <= MOST_NAMES:
        ticks += names
    return tuple(sorted(ticks))


def _answer_ticks(answer: Answer) -> Ticks:
    numbers = []
    names = []
    others = []
    for candidate, place in places(answer.with_quality).items():
        tick = (place, candidate.short)
        if candidate.fine_tuned_layers(answer.layers) is None:
            others.append(tick)
        elif number_of(candidate, answer.layers) is None:
            names.append(tick)
        else:
            numbers.append(place)
    return depth_ticks(numbers, names, others)


def _spaced(places: Sequence[float], most: int) -> list[float]:
    """Return rising places on an axis that have room; the last is among them."""
    first = places[0]
    last = places[-1]
    room = (last - first) / most
    falling = [last]
    for place in reversed(places[:-1]):
        if falling[-1] - place >= room:
            falling.append(place)
    return falling[::-1]


def _curve_series(answer: Answer) -> Iterator[Series]:
    """Yield what is compared with, the single runs, their means, and what was decided."""
    place = places(answer.with_quality)

    def place_of(point: CurvePoint) -> float:
        return place[point.candidate]

    points = sorted(answer.with_quality, key=place_of)
    first = place[points[0].candidate]
    last = place[points[-1].candidate]
    yield from _levels(answer, first, last)
    runs_x = []
    runs_y = []
    on_curve = []
    beside = []
    for point in points:
        for quality in point.qualities:
            runs_x.append(place[point.candidate])
            runs_y.append(100 * quality)
        if point.fine_tuned_layers is None:
            beside.append(point)
        else:
            on_curve.append(point)
    if runs_x:
        yield _series("single runs", SEEDS, runs_x, runs_y)
    if on_curve:
        yield _means("mean over seeds", MEANS, on_curve, place)
    if beside:
        yield _means("mean over seeds, another method", OTHER_MEANS, beside, place)
    yield from _decided_series(answer, points, place)


def _means(name: str, how: Style, points: Sequence[CurvePoint], place: Places) -> Series:
    x = []
    y = []
    low = []
    high = []
    for point in points:
        x.append(place[point.candidate])
        y.append(_height(point))
        low.append(_bar_end(point, point.ci_low))
        high.append(_bar_end(point, point.ci_high))
    return Series(
        name=name,
        style=how,
        x=tuple(x),
        y=tuple(y),
        low=tuple(low),
        high=tuple(high),
    )


def _decided_series(
    answer: Answer, points: Sequence[CurvePoint], place: Places
) -> Iterator[Series]:
    """Yield a mark at each depth that was decided on; the arrow points to the answer itself."""
    corrected = answer.corrected_operating_point
    decided = [
        ("certified", CERTIFIED, answer.certified_depth),
        ("operating point", OPERATING, answer.operating_point),
    ]
    if corrected != answer.operating_point:
        decided.append(("corrected for chance", CORRECTED, corrected))
    recommended = answer.recommendation.point
    points_by_candidate = {point.candidate: point for point in points}
    for name, mark, decision in decided:
        if decision is None:
            continue
        candidate = decision.candidate
        point = points_by_candidate.get(candidate)
        if point is not None and point != recommended:
            x = place[candidate]
            y = _height(point)
            yield _series(name, mark, [x], [y])


def _height(point: CurvePoint) -> float:
    return 100 * (point.quality or 0.0)


def _bar_end(point: CurvePoint, end: float | None) -> float | None:
    """Return the end of a depth's interval as it is drawn, None where too few runs tell of it."""
    if end is None or point.seeds < FEWEST_RUNS:
        return None
    return 100 * end


def _levels(answer: Answer, first: float, last: float) -> Iterator[Series]:
    """Yield what a depth is compared with, as lines from the first depth to the last."""
    span = last - first
    margin = max(0.3, 0.03 * span)
    ends = (first - margin, last + margin)
    full = answer.full
    # Of a score below 0 no share can be kept.
    if full is not None and full.quality is not None and full.quality >= 0:
        share = target_text(answer.target)
        target_quality = answer.target * full.quality
        yield _level(f"target: {share} of the full model's", TARGET, ends, target_quality)
    if answer.probe is not None:
        yield _level("linear probe, nothing fine-tuned", PROBE, ends, answer.probe.quality)
    if answer.chance is not None:
        yield _level(guess_words(answer.metric), CHANCE, ends, answer.chance)


def _level(name: str, line: Style, ends: Sequence[float], quality: float) -> Series:
    """Return a line across the axes at one quality."""
    y = 100 * quality
    return _series(name, line, ends, [y, y])


def _series(name: str, how: Style, x: Sequence[float], y: Sequence[float]) -> Series:
    """Return points without bars."""
    return Series(name=name, style=how, x=tuple(x), y=tuple(y))


def _arrow(answer: Answer) -> Arrow | None:
    """Return the arrow to what the answer recommends."""
    advice = answer.recommendation
    probe = answer.probe
    place = places(answer.with_quality)
    if advice.action is Action.LINEAR_MODEL and probe is not None:
        # Toward the line's right end, below which no curve lies that rises, and between its depths.
        first = min(place.values())
        last = max(place.values())
        x = first + 0.8 * (last - first)
        y = 100 * probe.quality
        return Arrow(text="answer: fine-tune nothing", x=x, y=y)
    point = advice.point
    if point is None or point.quality is None:
        return None
    part = part_text(point.candidate, answer.layers)
    x = place[point.candidate]
    y = 100 * point.quality
    return Arrow(text=f"answer: {part}", x=x, y=y)


def _depth_name(answer: Answer, point: CurvePoint) -> tuple[float, str]:
    """Return a number that grows with the layers a line fine-tunes, and what it is called."""
    candidate = point.candidate
    if candidate.is_reference:
        return math.inf, "all layers"
    number = number_of(candidate, answer.layers)
    if number is None:
        height = answer.layers - candidate.rank
        return height, candidate.name(answer.layers)
    if number == 0:
        return 0, "head alone"
    return number, f"last {number}"


def line_style(number: int) -> Style:
    """Return how the line of this number is drawn: 24 differ by more than their colour."""
    round_of_markers, place = divmod(number, len(MARKERS))
    return style(
        SERIES[number % len(SERIES)],
        marker=MARKERS[place],
        line=LINES[round_of_markers % len(LINES)],
        width=1.6,
    )


def point_style(number: int) -> Style:
    """Return how the point of this number is drawn.

    24 differ by more than their colour, and of these the first 7 by their colour too.
    """
    round_of_markers, place = divmod(number, len(POINT_MARKERS))
    return style(
        POINT_COLOURS[number % len(POINT_COLOURS)],
        marker=POINT_MARKERS[place],
        line="",
        hollow=round_of_markers % 2 == 1,
        size=7.5,
        width=1.6,
    )


def _rate_series(answer: Answer, names: Sequence[str]) -> Iterator[Series]:
    """Yield a line for each of the figure's depths, and its measured rate.

    x: the rate's logarithm. names: of all lines of the figure.
    """
    tried = [point for point in answer.points if point.known_rates.means]
    for point in tried:
        x = []
        y = []
        for rate, mean in point.known_rates.means:
            x.append(math.log10(rate))
            y.append(100 * mean)
        _, name = _depth_name(answer, point)
        number = names.index(name)
        yield _series(name, line_style(number), x, y)
    for point in tried:
        for rate, mean in point.known_rates.means:
            # Without a mean all runs at that rate diverged.
            if rate == point.learning_rate:
                x = [math.log10(rate)]
                y = [100 * mean]
                yield _series("measured", CHOSEN, x, y)
