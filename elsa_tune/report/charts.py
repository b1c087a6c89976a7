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
MOST_NAMES = MOST_TICKS / 2
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


TARGET = look(INK, marker="", line="--", width=1.4)
CHANCE = look(INK, marker="", line=":", width=1.4)
PROBE = look(SERIES[3], marker="", line="-.", width=1.6)
SEEDS = look(SERIES[0], line="", hollow=True, size=4, width=1)
MEANS = look(SERIES[0])
# Of what has no number of layers: no line leads to it.
OTHER_MEANS = look(SERIES[0], marker="s", line="", size=7)
OPERATING = look(SERIES[1], marker="*", line="", size=15)
CORRECTED = look(SERIES[4], marker="v", line="", size=10)
CERTIFIED = look(SERIES[2], marker="D", line="", size=9)
CHOSEN = look(INK, line="", hollow=True, size=12, width=1.2)

# What tells depths apart besides their colour.
MARKERS = ("o", "s", "^", "D", "v", "p")
LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points under one name of the legend; the same name in several panels is one entry."""

    name: str
    look: Look
    x: tuple[float, ...]
    y: tuple[float, ...]  # as long as x
    low: tuple[float | None, ...] = ()  # the end of a bar through y, None where a point has none
    high: tuple[float | None, ...] = ()  # its other end


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A few words that point to one place of a figure: what it is about."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    ticks: Ticks  # (position, text) on the x axis
    arrow: Arrow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure with its panels."""

    key: str  # its name in file names
    title: str
    caption: str  # how to read it
    panels: tuple[Panel, ...]


def all_charts(named: Mapping[str, Answer]) -> list[Chart]:
    """Return every figure of a report for which there is something to draw."""
    charts = [freeze_curve(named), learning_rates(named)]
    return [chart for chart in charts if chart.panels]


def freeze_curve(named: Mapping[str, Answer]) -> Chart:
    """Draw each named curve with its single runs, the target, the floors and what was decided."""
    panels = []
    for name, answer in named.items():
        if answer.with_quality:
            panels.append(
                Panel(
                    title=name,
                    x_title=TUNED_TITLE,
                    y_title=_quality_title(answer),
                    series=tuple(_curve_series(answer)),
                    ticks=_answer_ticks(answer),
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
    """Draw the completed trials' mean quality over the learning rate, a line a depth."""
    lines: set[tuple[float, str]] = set()
    for answer in named.values():
        lines |= {_depth_name(answer, point) for point in answer.points}
    names = [name for _, name in sorted(lines, reverse=True)]
    panels = []
    for name, answer in named.items():
        ticks = _rate_ticks(answer)
        if ticks is not None:
            panels.append(
                Panel(
                    title=name,
                    x_title="learning rate",
                    y_title=_quality_title(answer),
                    series=tuple(_rate_series(answer, names)),
                    ticks=ticks,
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


def _rate_ticks(answer: Answer) -> Ticks | None:
    """Return a tick at each rate that has room for one; None where fewer than two were tried."""
    logarithms: set[float] = set()
    for point in answer.points:
        logarithms.update(math.log10(rate) for rate, _ in point.tried.means)
    if len(logarithms) < 2:
        return None
    ticks: list[tuple[float, str]] = []
    for logarithm in _spaced(sorted(logarithms), MOST_RATE_TICKS):
        rate = float(f"{10**logarithm:.2g}")
        ticks.append((logarithm, rate_text(rate)))
    return tuple(ticks)


def _quality_title(answer: Answer) -> str:
    return f"{metric_text(answer.metric)} × 100"


def places(points: Iterable[CurvePoint]) -> dict[Candidate, float]:
    """Return where depths stand on the x axis: at their number of fine-tuned layers.

    What is only drawn stands half a layer before its number. What has no number stands between its
    neighbours by rank, or beyond the last of them, where a name below it has room.
    """
    places: dict[Candidate, float] = {}
    unplaced: list[Candidate] = []  # those without a number since the last one with
    last: float | None = None  # where that one stands
    for point in sorted(points, key=lambda point: point.candidate):
        number = point.fine_tuned_layers
        if number is None:
            unplaced.append(point.candidate)
            continue
        place = number if point.candidate.is_tested else number - 0.5
        begin = place + len(unplaced) + 1 if last is None else last
        step = (begin - place) / (len(unplaced) + 1)
        for count, candidate in enumerate(unplaced, 1):
            places[candidate] = begin - count * step
        unplaced = []
        places[point.candidate] = place
        last = place
    span = max(places.values(), default=0.0) - (last or 0.0)
    room = max(1.0, span / MOST_NAMES)
    for count, candidate in enumerate(unplaced, 1):
        places[candidate] = (last or 0.0) - count * room
    return places


def depth_ticks(
    numbers: Iterable[float],
    names: Iterable[tuple[float, str]] = (),
    others: Sequence[tuple[float, str]] = (),
) -> Ticks:
    """Return a tick at each depth that has room for one, the fewest layers among them.

    numbers: of fine-tuned layers, where they stand. names: places of what is drawn between them,
    with a text. others: of what has no number, which always have a tick.
    """
    rising = sorted(set(numbers))
    if not rising:
        return tuple(sorted([*names, *others]))
    # Counted from the deep end, where the answer lies.
    falling = [-number for number in reversed(rising)]
    spaced = _spaced(falling, MOST_TICKS)
    span = rising[-1] - rising[0]
    ticks = list(others)
    for number in spaced:
        if all(abs(-number - place) >= span / MOST_TICKS for place, _ in others):
            ticks.append((-number, f"{-number:g}"))
    if span <= MOST_NAMES:
        ticks += names
    return tuple(sorted(ticks))


def _answer_ticks(answer: Answer) -> Ticks:
    numbers: list[float] = []
    names: list[tuple[float, str]] = []
    others: list[tuple[float, str]] = []
    for candidate, place in places(answer.with_quality).items():
        if candidate.fine_tuned_layers(answer.layers) is None:
            others.append((place, candidate.short))
        elif number_of(candidate, answer.layers) is None:
            names.append((place, candidate.short))
        else:
            numbers.append(place)
    return depth_ticks(numbers, names, others)


def _spaced(places: Sequence[float], most: int) -> list[float]:
    """Return rising places on an axis that have room; the last is among them."""
    least = (places[-1] - places[0]) / most
    falling = [places[-1]]
    for place in reversed(places[:-1]):
        if falling[-1] - place >= least:
            falling.append(place)
    return falling[::-1]


def _curve_series(answer: Answer) -> Iterator[Series]:
    """Yield what is compared with, the single runs, their means, and what was decided."""
    place = places(answer.with_quality)
    points = sorted(answer.with_quality, key=lambda point: place[point.candidate])
    points_x = [place[point.candidate] for point in points]
    yield from _levels(answer, points_x[0], points_x[-1])
    runs_x = []
    runs_y = []
    for x, point in zip(points_x, points, strict=True):
        for quality in point.qualities:
            runs_x.append(x)
            runs_y.append(100 * quality)
    if runs_x:
        yield Series(name="single runs", look=SEEDS, x=tuple(runs_x), y=tuple(runs_y))
    on_curve = [point for point in points if point.fine_tuned_layers is not None]
    beside = [point for point in points if point.fine_tuned_layers is None]
    if on_curve:
        yield _means("mean over seeds", MEANS, on_curve, place)
    if beside:
        yield _means("mean over seeds, another method", OTHER_MEANS, beside, place)
    yield from _decided_series(answer, points, place)


def _means(
    name: str, how: Look, points: Sequence[CurvePoint], place: Mapping[Candidate, float]
) -> Series:
    return Series(
        name=name,
        look=how,
        x=tuple(place[point.candidate] for point in points),
        y=tuple(_height(point) for point in points),
        low=tuple(_bar_end(point, point.ci_low) for point in points),
        high=tuple(_bar_end(point, point.ci_high) for point in points),
    )


def _decided_series(
    answer: Answer, points: Sequence[CurvePoint], place: Mapping[Candidate, float]
) -> Iterator[Series]:
    """Yield a mark at each depth that was decided on; the arrow points to the answer itself."""
    decided = [
        ("certified", CERTIFIED, answer.claimed),
        ("operating point", OPERATING, answer.operating_point),
    ]
    if answer.corrected_operating_point != answer.operating_point:
        decided.append(("corrected for chance", CORRECTED, answer.corrected_operating_point))
    marked = {point.candidate: point for point in points if point != answer.recommendation.point}
    for name, mark, decision in decided:
        if decision is not None and decision.candidate in marked:
            x = place[decision.candidate]
            y = _height(marked[decision.candidate])
            yield Series(name=name, look=mark, x=(x,), y=(y,))


def _height(point: CurvePoint) -> float:
    return 100 * (point.quality or 0.0)


def _bar_end(point: CurvePoint, end: float | None) -> float | None:
    """Return the end of a depth's interval as it is drawn, None where too few runs tell of it."""
    if end is None or point.seeds < FEWEST_RUNS:
        return None
    return 100 * end


def _levels(answer: Answer, first: float, last: float) -> Iterator[Series]:
    """Yield what a depth is compared with, as lines from the first depth to the last."""
    margin = max(0.3, 0.03 * (last - first))
    ends = (first - margin, last + margin)
    full = answer.full
    if full is not None and full.quality is not None:
        name = f"target: {target_text(answer.target)} of the full model's"
        target_quality = answer.target * full.quality
        yield _level(name, TARGET, ends, target_quality)
    if answer.probe is not None:
        yield _level("linear probe, nothing fine-tuned", PROBE, ends, answer.probe.quality)
    if answer.chance is not None:
        yield _level("constant answer", CHANCE, ends, answer.chance)


def _level(name: str, line: Look, ends: tuple[float, float], quality: float) -> Series:
    """Return a line across the axes at one quality."""
    y = 100 * quality
    return Series(name=name, look=line, x=ends, y=(y, y))


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
        return Arrow(text="answer: fine-tune nothing", x=x, y=100 * probe.quality)
    point = advice.point
    if point is None or point.quality is None:
        return None
    text = f"answer: {part_text(point.candidate, answer.layers)}"
    return Arrow(text=text, x=place[point.candidate], y=100 * point.quality)


def _depth_name(answer: Answer, point: CurvePoint) -> tuple[float, str]:
    """Return a number that grows with the layers a line fine-tunes, and what it is called."""
    if point.candidate.is_reference:
        return math.inf, "all layers"
    number = number_of(point.candidate, answer.layers)
    if number is None:
        return answer.layers - point.candidate.rank, point.candidate.name(answer.layers)
    if number == 0:
        return 0, "head alone"
    return number, f"last {number}"


def _line_look(number: int) -> Look:
    """Return how the line of this number is drawn: 24 differ by more than their colour."""
    round_of_markers = number // len(MARKERS)
    return look(
        SERIES[number % len(SERIES)],
        marker=MARKERS[number % len(MARKERS)],
        line=LINES[round_of_markers % len(LINES)],
        width=1.6,
    )


def _rate_series(answer: Answer, names: Sequence[str]) -> Iterator[Series]:
    """Yield a line for each of the figure's depths, and its measured rate.

    x: the rate's logarithm. names: of all lines of the figure.
    """
    tried = [point for point in answer.points if point.tried.means]
    for point in tried:
        _, name = _depth_name(answer, point)
        yield Series(
            name=name,
            look=_line_look(names.index(name)),
            x=tuple(math.log10(rate) for rate, _ in point.tried.means),
            y=tuple(100 * mean for _, mean in point.tried.means),
        )
    for point in tried:
        rate = point.learning_rate or 0.0
        mean = dict(point.tried.means).get(rate)
        # Without a mean all runs at that rate diverged.
        if mean is not None:
            yield Series(name="measured", look=CHOSEN, x=(math.log10(rate),), y=(100 * mean,))
