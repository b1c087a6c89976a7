"""The one renderer: matplotlib draws a chart as files (PNG, SVG) and its panels for the page.

The bytes are the same at every run: no dates, and a fixed salt for the names inside an SVG.
"""

import io
import math
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib import font_manager, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from elsa_tune.errors import shortened
from elsa_tune.report.charts import GROUND, INK, SERIES, Arrow, Chart, Panel, Series, Style
from elsa_tune.report.words_place import Box, Drawn, Place, place_words
from elsa_tune.visible import visible

GRID = "#e3e5e9"
# On the page every colour is a variable of its style sheet, which knows light from dark.
VARIABLES = {
    INK: "var(--ink)",
    GRID: "var(--grid)",
    GROUND: "var(--ground)",
    **{colour: f"var(--series-{slot})" for slot, colour in enumerate(SERIES)},
}

PNG_DPI = 160
MOST_COLUMNS = 3
# Of a pair of axes, in points: alone, as on the page, and beside others.
ALONE = (430.0, 250.0)
BESIDE = (300.0, 217.0)
LEFT = 52.0  # around it
RIGHT = 8.0
BOTTOM = 38.0
TOP = 28.0
TITLE_LINE = 13.0  # of a panel's title, each line after the first
LEGEND_HEIGHT = 19.0
LONGEST_NAME = 40  # longer ones are shortened in the middle, unless that makes them alike
NAME_WIDTH = 6.0  # of a character, and of what stands before a name
HANDLE_WIDTH = 50.0
WORDS_PAD = 0.2  # around an arrow's words, in parts of their font's size
WIDEST_BAR = 0.25  # how far beyond all points the axis goes for a bar, in parts of their range

STYLE = Path(__file__).parent / "assets" / "figures.mplstyle"

# What an SVG in a page can do without: metadata and a style for the whole page, names of groups,
# turns by nothing, digits that nobody sees, its size and font, which are the page's.
_NEEDLESS = re.compile(
    r"(?s)^.*?(?=<svg)|<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>"
    r'| id="[\w.]+_\d+"| transform="rotate\(-0 [^"]*"|(?<=\.\d)\d+(?=[^<>]*>)'
    r'| (?:width|height)="[\d.]+pt"| xmlns(?::xlink)?="[^"]*"| version="1.1"|xlink:(?=href)'
    r'|font-size: 10.5px;| font-family: [^;"]*;| fill: var\(--ink\)(?=")'
)


def draw(chart: Chart) -> dict[str, bytes]:
    """Return a chart with a panel or more as `{"png": ..., "svg": ...}`, under one legend.

    Signs that DejaVu Sans and the machine's CJK fonts lack are boxes in the PNG.
    """
    files = {}
    with _drawing(chart.key):
        figure = _figure(chart)
        for kind in ("png", "svg"):
            files[kind] = _saved(figure, kind)
    return files


def page_svgs(chart: Chart) -> list[str]:
    """Draw a chart's panels for the page, each under its own legend."""
    svgs = []
    for number, panel in enumerate(chart.panels):
        alone = replace(chart, panels=(panel,))
        # Names inside an SVG are the page's: two panels must not have the same.
        with _drawing(f"{chart.key}-{number}"):
            figure = _figure(alone)
            text = _saved(figure, "svg", facecolor="none").decode()
        svgs.append(_for_page(text))
    return svgs


def _for_page(svg: str) -> str:
    """Return an SVG in one line, in the page's colours, without what a page can do without."""
    coloured = svg
    for colour, variable in VARIABLES.items():
        coloured = coloured.replace(colour, variable)
    bare = _NEEDLESS.sub("", coloured)
    in_one_line = re.sub(r"\s*\n\s*", " ", bare)
    without_gaps = in_one_line.replace("> <", "><")
    return without_gaps.strip()


@contextmanager
def _drawing(salt: str) -> Iterator[None]:
    """Draw in the package's style while inside. salt: for the names inside an SVG."""
    names = font_manager.get_font_names()
    for_other_scripts = [name for name in names if "CJK" in name]
    fonts = ["DejaVu Sans", *sorted(for_other_scripts)]
    settings = {
        "font.family": fonts,
        "svg.hashsalt": salt,
    }
    with style.context([STYLE, settings]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _saved(figure: Figure, kind: str, **how: Any) -> bytes:
    """Return a figure as a file of this kind, without what differs from run to run."""
    target = io.BytesIO()
    left_out = ["Date", "Creator"]
    if kind == "png":
        left_out = ["Software"]
    figure.savefig(
        target,
        format=kind,
        dpi=PNG_DPI,
        metadata=dict.fromkeys(left_out),
        **how,
    )
    return target.getvalue()


def _figure(chart: Chart) -> Figure:
    """Set panels in rows under one legend, by fixed margins: layout engines are too slow."""
    count = len(chart.panels)
    columns = min(count, MOST_COLUMNS)
    if count == 4:
        columns = 2
    axes_width, axes_height = BESIDE
    if count == 1:
        axes_width, axes_height = ALONE
    rows = math.ceil(count / columns)
    titles = _titles(chart)
    top = TOP + TITLE_LINE * max(title.count("\n") for title in titles)
    panel_width = LEFT + axes_width + RIGHT
    panel_height = top + axes_height + BOTTOM
    width = columns * panel_width
    panels_height = rows * panel_height
    legend = _legend(chart, width)
    names_in_a_row = _names_in_a_row(legend, width)
    # A name in several lines fills the width, so that it has rows of its own.
    lines = sum(len(name.splitlines()) for name in legend)
    legend_rows = math.ceil(lines / names_in_a_row)
    height = panels_height + LEGEND_HEIGHT * legend_rows
    figure = Figure((width / 72, height / 72))
    all_axes = figure.subplots(rows, columns, squeeze=False).flat
    figure.subplots_adjust(
        left=LEFT / width,
        right=1 - RIGHT / width,
        bottom=BOTTOM / height,
        top=(panels_height - top) / height,
        wspace=(LEFT + RIGHT) / axes_width,
        hspace=(BOTTOM + top) / axes_height,
    )
    for number, axes in enumerate(all_axes):
        if number < count:
            _draw(axes, chart.panels[number], titles[number])
        else:
            axes.remove()
    handles = []
    for name, how in legend.items():
        handle = Line2D([], [], label=name, **how)
        handles.append(handle)
    figure.legend(
        handles=handles,
        loc="upper center",
        ncols=names_in_a_row,
        frameon=False,
        handlelength=2.6,
    )
    return figure


def _legend(chart: Chart, width: float) -> dict[str, Style]:
    """Return how each series of a chart is drawn, by its name as the legend has it."""
    styles: dict[str, Style] = {}
    for panel in chart.panels:
        for series in panel.series:
            styles[visible(series.name)] = series.style
    most = int((width - HANDLE_WIDTH) / NAME_WIDTH)
    shown = _told_apart(styles, most)
    return {shown[name]: how for name, how in styles.items()}


def _titles(chart: Chart) -> list[str]:
    """Return the title of each panel as the figure has it."""
    # An SVG with a control character cannot be opened.
    names = [visible(panel.title) for panel in chart.panels]
    shown = _told_apart(names, LONGEST_NAME)
    return [shown[name] for name in names]


def _told_apart(names: Iterable[str], most: int) -> dict[str, str]:
    """Return how each name is shown.

    A long one is shortened, unless others would then look alike: those are in full, in lines of
    at most so many characters.
    """
    shown = {name: shortened(name, LONGEST_NAME) for name in names}
    alike = Counter(shown.values())
    for name, short in shown.items():
        if alike[short] > 1:
            shown[name] = textwrap.fill(name, most)
    return shown


def _names_in_a_row(names: Collection[str], width: float) -> int:
    """Return how many names of a legend stand beside one another, at least 1."""
    longest = max(len(line) for name in names for line in name.splitlines())
    widest_entry = HANDLE_WIDTH + NAME_WIDTH * longest
    room_for = int(width / widest_entry)
    in_a_row = min(len(names), room_for)
    return max(1, in_a_row)


def _draw(axes: Axes, panel: Panel, title: str) -> None:
    """Draw a panel in a pair of axes, under its title."""
    # A given y spares a search for the best one.
    axes.set_title(title, loc="left", y=1.0)
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(visible(panel.y_title))
    ys: list[float] = []
    for layer, series in enumerate(panel.series, 2):
        _draw_bars(axes, series)
        axes.plot(series.x, series.y, zorder=layer, **series.style)
        ys += series.y
    tick_places = [place for place, _ in panel.ticks]
    tick_texts = [text for _, text in panel.ticks]
    axes.set_xticks(tick_places, tick_texts)
    _fit_to_points(axes, ys)
    _keep_in_figure(axes)
    if panel.arrow is not None:
        _point_to(axes, panel, panel.arrow)


def _fit_to_points(axes: Axes, ys: Sequence[float]) -> None:
    """Cut the axes to the points' range and a margin around it.

    A wide interval may be most of what there is: it must not squeeze what was measured.
    """
    lowest = min(ys)
    highest = max(ys)
    height = highest - lowest
    room = WIDEST_BAR * (height or 1.0)
    bottom, top = axes.get_ylim()
    axes.set_ylim(
        bottom=max(bottom, lowest - room),
        top=min(top, highest + room),
    )


def _keep_in_figure(axes: Axes) -> None:
    """Have the last tick's text end at its tick where the figure's edge would cut it."""
    for label in axes.get_xticklabels()[-1:]:
        if label.get_window_extent().x1 > axes.figure.bbox.x1:
            label.set_horizontalalignment("right")


def _draw_bars(axes: Axes, series: Series) -> None:
    """Draw the bars of each point that has any, upright and level."""
    bar = {"color": series.style["color"], "linewidth": 4, "alpha": 0.3, "zorder": 1}
    for x, low, high in zip(series.x, series.low, series.high, strict=False):
        if low is not None and high is not None:
            axes.vlines(x, low, high, **bar)
    for y, left, right in zip(series.y, series.left, series.right, strict=False):
        if left is not None and right is not None:
            axes.hlines(y, left, right, **bar)


def _point_to(axes: Axes, panel: Panel, arrow: Arrow) -> None:
    """Draw the arrow and its words, where they hide nothing that was measured."""
    words = visible(arrow.text)
    target = _in_points(axes, arrow.x, arrow.y)
    place = place_words(target, _size(axes, words), drawn(axes, panel))
    box = {
        "boxstyle": f"square,pad={WORDS_PAD}",
        "facecolor": GROUND,
        "edgecolor": "none",
    }
    line = {
        "arrowstyle": "-|>",
        "color": INK,
        "linewidth": 1.6,
        "shrinkB": 6,
    }
    axes.annotate(
        words,
        xy=(arrow.x, arrow.y),
        xytext=place,
        textcoords="axes points",
        horizontalalignment="center",
        verticalalignment="center",
        fontweight="bold",
        bbox=box,
        arrowprops=line,
        zorder=20,
    )


def drawn(axes: Axes, panel: Panel) -> Drawn:
    """Return what of a panel stands where in its axes, in points."""
    width, height = _in_points_of(axes, axes.bbox.width, axes.bbox.height)
    points: list[Place] = []
    levels: list[float] = []
    bars: list[Box] = []
    for series in panel.series:
        has_marker = bool(series.style["marker"])
        places = [_in_points(axes, x, y) for x, y in zip(series.x, series.y, strict=True)]
        if has_marker:
            points += places
        else:
            _, level = places[0]
            levels.append(level)
        bars += _bars(axes, series)
    return Drawn(width=width, height=height, points=points, levels=levels, bars=bars)


def _bars(axes: Axes, series: Series) -> Iterator[Box]:
    """Yield the intervals of a series, as far as the axes show them."""
    upright = zip(series.x, series.low, series.high, strict=False)
    for x, low, high in upright:
        if low is not None and high is not None:
            yield Box(*_in_points(axes, x, low), *_in_points(axes, x, high))
    level = zip(series.y, series.left, series.right, strict=False)
    for y, left, right in level:
        if left is not None and right is not None:
            yield Box(*_in_points(axes, left, y), *_in_points(axes, right, y))


def _in_points(axes: Axes, x: float, y: float) -> Place:
    """Return where a place of the data stands in the axes."""
    x_pixels, y_pixels = axes.transData.transform((x, y))
    return _in_points_of(axes, x_pixels - axes.bbox.x0, y_pixels - axes.bbox.y0)


def _in_points_of(axes: Axes, x_pixels: float, y_pixels: float) -> Place:
    a_pixel = 72 / axes.figure.dpi
    return float(x_pixels * a_pixel), float(y_pixels * a_pixel)


def _size(axes: Axes, words: str) -> Place:
    """Return how wide and high the words of an arrow are, with the box around them."""
    text = axes.text(0, 0, words, fontweight="bold")
    extent = text.get_window_extent()
    pad = 2 * WORDS_PAD * float(text.get_fontsize())
    text.remove()
    width, height = _in_points_of(axes, extent.width, extent.height)
    return width + pad, height + pad
