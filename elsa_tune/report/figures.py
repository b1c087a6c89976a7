"""The one renderer: matplotlib draws a chart as files (PNG, SVG) and its panels for the page.

The bytes are the same at every run: no dates, and a fixed salt for the names inside an SVG.
"""

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib import font_manager, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from elsa_tune.errors import shortened
from elsa_tune.report.charts import GROUND, INK, SERIES, Arrow, Chart, Panel
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
LEGEND_HEIGHT = 19.0
LONGEST_NAME = 40  # longer ones are shortened in the middle
NAME_WIDTH = 6.0  # of a character, and of what stands before a name
HANDLE_WIDTH = 50.0
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
    """Return the chart as `{"png": ..., "svg": ...}`, all panels under one legend.

    It must have a panel.

    Signs that DejaVu Sans and the machine's CJK fonts lack are boxes in the PNG.
    """
    with _drawing(chart.key):
        figure = _figure(chart)
        return {kind: _saved(figure, kind) for kind in ("png", "svg")}


def page_svgs(chart: Chart) -> list[str]:
    """Draw a chart's panels for the page, each under its own legend."""
    svgs = []
    for number, panel in enumerate(chart.panels):
        # Names inside an SVG are the page's: two panels must not have the same.
        with _drawing(f"{chart.key}-{number}"):
            figure = _figure(replace(chart, panels=(panel,)))
            text = _saved(figure, "svg", facecolor="none").decode()
        for colour, variable in VARIABLES.items():
            text = text.replace(colour, variable)
        text = re.sub(r"\s*\n\s*", " ", _NEEDLESS.sub("", text))
        svgs.append(text.replace("> <", "><").strip())
    return svgs


@contextmanager
def _drawing(salt: str) -> Iterator[None]:
    for_other_scripts = sorted(name for name in font_manager.get_font_names() if "CJK" in name)
    families = ["DejaVu Sans", *for_other_scripts]
    with (
        style.context([STYLE, {"font.family": families, "svg.hashsalt": salt}]),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _saved(figure: Figure, kind: str, **how: Any) -> bytes:
    target = io.BytesIO()
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    figure.savefig(target, format=kind, dpi=PNG_DPI, metadata=metadata, **how)
    return target.getvalue()


def _figure(chart: Chart) -> Figure:
    """Set panels in rows under one legend, by fixed margins: layout engines are too slow."""
    count = len(chart.panels)
    of_axes, height_of_axes = ALONE if count == 1 else BESIDE
    columns = min(count, 2 if count == 4 else MOST_COLUMNS)
    rows = math.ceil(count / columns)
    series = [one for panel in chart.panels for one in panel.series]
    legend = {_name(one.name): one.look for one in series}
    width = columns * (LEFT + of_axes + RIGHT)
    in_a_row = int(width / (HANDLE_WIDTH + NAME_WIDTH * max(map(len, legend))))
    in_a_row = max(1, min(len(legend), in_a_row))
    panels_height = rows * (TOP + height_of_axes + BOTTOM)
    height = panels_height + LEGEND_HEIGHT * math.ceil(len(legend) / in_a_row)
    figure = Figure((width / 72, height / 72))
    axes = figure.subplots(rows, columns, squeeze=False).flat
    figure.subplots_adjust(
        left=LEFT / width,
        right=1 - RIGHT / width,
        bottom=BOTTOM / height,
        top=(panels_height - TOP) / height,
        wspace=(LEFT + RIGHT) / of_axes,
        hspace=(BOTTOM + TOP) / height_of_axes,
    )
    for panel, of in zip(chart.panels, axes, strict=False):
        _draw(of, panel)
    for of in axes[count:]:
        of.remove()
    figure.legend(
        handles=[Line2D([], [], label=name, **look) for name, look in legend.items()],
        loc="upper center",
        ncols=in_a_row,
        frameon=False,
        handlelength=2.6,
    )
    return figure


def _name(text: str) -> str:
    """Return a name as a figure has it: an SVG with a control character cannot be opened."""
    return shortened(visible(text), LONGEST_NAME)


def _draw(axes: Axes, panel: Panel) -> None:
    # A given y spares a search for the best one.
    axes.set_title(_name(panel.title), loc="left", y=1.0)
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(visible(panel.y_title))
    for layer, series in enumerate(panel.series, 2):
        for x, low, high in zip(series.x, series.low, series.high, strict=False):
            if low is not None and high is not None:
                how: dict[str, Any] = {"color": series.look["color"], "linewidth": 4}
                axes.vlines(x, low, high, alpha=0.3, zorder=1, **how)
        axes.plot(series.x, series.y, zorder=layer, **series.look)
    axes.set_xticks([at for at, _ in panel.ticks], [text for _, text in panel.ticks])
    # A wide interval may be most of what there is: it must not squeeze what was measured.
    ys = [y for series in panel.series for y in series.y]
    room = WIDEST_BAR * (max(ys) - min(ys) or 1.0)
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, min(ys) - room), min(top, max(ys) + room))
    if panel.arrow is not None:
        _point_to(axes, panel.arrow, [one.y[0] for one in panel.series if not one.look["marker"]])


def _point_to(axes: Axes, arrow: Arrow, levels: Sequence[float]) -> None:
    """Draw the arrow's words to the right of their place and below it, or above without room.

    A curve that rises leaves room below. levels: of lines across the axes, which they leave clear.
    """
    (left, right) = axes.get_xlim()
    (bottom, top) = axes.get_ylim()
    a_point = (top - bottom) / (72 * axes.bbox.height / axes.figure.dpi)
    is_left = arrow.x - left < 0.6 * (right - left)
    down = arrow.y - bottom > 90 * a_point
    offsets = [-size if down else size for size in (50, 35, 65, 80)]
    heights = [arrow.y + offset * a_point for offset in offsets]
    distances = [min((abs(y - level) for level in levels), default=math.inf) for y in heights]
    clear = [far > 11 * a_point for far in distances]
    height = heights[clear.index(True)] if any(clear) else heights[0]
    axes.annotate(
        visible(arrow.text),
        xy=(arrow.x, arrow.y),
        xytext=(arrow.x + 0.04 * (right - left) if is_left else right, height),
        horizontalalignment="left" if is_left else "right",
        verticalalignment="center",
        fontweight="bold",
        bbox={"boxstyle": "square,pad=0.2", "facecolor": GROUND, "edgecolor": "none"},
        arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.6, "shrinkB": 6},
        zorder=20,
    )
