"""Charts on paper: matplotlib draws them, as PNG and as SVG.

It must not compute anything that a chart does not say, and it never opens a window. The bytes are
the same at every run: no dates, and a fixed salt for the names inside an SVG.
"""

from __future__ import annotations

import functools
import io
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from elsa_tune.report.charts import Chart, Heat, Look, Panel, Series
from elsa_tune.report.palette import DASHES, HEAT_SCALE, LIGHT_INK, MARKERS, light_colour

PNG_DPI = 160
MOST_COLUMNS = 3
PANEL_WIDTH, PANEL_HEIGHT = 4.3, 3.3  # inches
ALONE_WIDTH, ALONE_HEIGHT = 6.6, 4.4
LEGEND_WIDTH, LEGEND_HEIGHT = 1.75, 0.26  # of an entry


class Margins(NamedTuple):
    """Around a panel's axes, in inches."""

    left: float
    right: float
    bottom: float
    top: float


MARGINS = Margins(left=0.8, right=0.15, bottom=0.62, top=0.36)
# Learning rates stand where numbers do elsewhere, and a bar of colours on the right.
HEAT_MARGINS = Margins(left=1.0, right=0.85, bottom=0.62, top=0.36)

# With more columns the numbers in a heat map's cells run into one another.
MOST_NUMBERED_COLUMNS = 13

LEGEND_SIZE, TITLE_SIZE = 9.0, 10.5  # points
# Inches: names up to the first need no more than LEGEND_WIDTH on average, none is wider than the
# second, and a handle with the space around it takes the third.
LEGEND_COMMON, LEGEND_LONGEST, LEGEND_HANDLE = 1.5, 2.7, 0.7

FONT = "DejaVu Sans"  # comes with matplotlib
# For the signs that it lacks; those that are on the machine are used.
OTHER_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic"),
    *("Malgun Gothic", "SimHei", "Noto Sans", "Noto Sans Devanagari", "Noto Sans Bengali"),
    *("Noto Sans Tamil", "Noto Sans Thai", "Nirmala UI", "Arial Unicode MS"),
)

# SVG text as paths looks the same on every machine.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "elsa-tune",
    "svg.fonttype": "path",
    "font.size": 9.5,
    "axes.titlesize": TITLE_SIZE,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": LIGHT_INK,
    "xtick.color": LIGHT_INK,
    "ytick.color": LIGHT_INK,
    "text.color": "#1c2027",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100.0,
    # A panel whose name has a dollar sign is no formula.
    "text.parse_math": False,
}


def draw(chart: Chart) -> dict[str, bytes]:
    """The chart as `{"png": ..., "svg": ...}`; it must have a panel."""
    with matplotlib.rc_context({**STYLE, "font.family": _families()}), warnings.catch_warnings():
        # The caller asks `cannot_show`.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = _figure(chart)
        return {
            "png": _saved(figure, "png", {"Software": None}),
            "svg": _saved(figure, "svg", {"Date": None, "Creator": None}),
        }


def cannot_show(texts: Iterable[str]) -> str:
    """The signs of these texts that no font on this machine has: boxes stand for them in a figure.
    Each once, in their order; "" where all can be shown.
    """
    fonts = [font_manager.get_font(font_manager.findfont(name)) for name in _families()]
    signs = dict.fromkeys(sign for text in texts for sign in text if not sign.isspace())
    return "".join(
        sign for sign in signs if not any(font.get_char_index(ord(sign)) for font in fonts)
    )


@functools.cache
def _families() -> list[str]:
    there = set(font_manager.get_font_names())
    return [FONT, *(name for name in OTHER_FONTS if name in there)]


def _fitted(text: str, inches: float, size: float) -> str:
    """Text of so many points, shortened in the middle where it is wider than so many inches."""
    kept = len(text)
    shown = text
    while kept > 2 and _width(shown, size) > inches:
        kept -= 1
        shown = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
    return shown


def _width(text: str, size: float) -> float:
    """In inches."""
    return sum(map(_advance, text)) * size / 72


@functools.cache
def _advance(sign: str) -> float:
    """The width of a sign in ems; a box is as wide as an em."""
    font = font_manager.get_font(font_manager.findfont(FONT))
    if not font.get_char_index(ord(sign)):
        return 1.0
    font.set_size(100, 72)
    return float(font.load_char(ord(sign)).linearHoriAdvance / 6553600)


def _saved(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=kind, dpi=PNG_DPI, metadata=metadata)
    return target.getvalue()


def _figure(chart: Chart) -> Figure:
    """Panels in rows under one legend.

    The margins are fixed rather than fitted (matplotlib's layout engines take most of a minute for
    a hundred panels); they hold every text that a chart has.
    """
    count = len(chart.panels)
    columns = min(count, 2 if count == 4 else MOST_COLUMNS)
    rows = math.ceil(count / columns)
    width, height = (ALONE_WIDTH, ALONE_HEIGHT) if count == 1 else (PANEL_WIDTH, PANEL_HEIGHT)
    legend = [(_fitted(name, LEGEND_LONGEST, LEGEND_SIZE), look) for name, look in chart.legend]
    widest = max((_width(name, LEGEND_SIZE) for name, _ in legend), default=0.0)
    entry = LEGEND_WIDTH if widest <= LEGEND_COMMON else widest + LEGEND_HANDLE
    legend_columns = max(1, min(len(legend), int(columns * width / entry)))
    above = 0.1 + LEGEND_HEIGHT * math.ceil(len(legend) / legend_columns)
    whole = rows * height + above
    figure = Figure(figsize=(columns * width, whole))
    margins = HEAT_MARGINS if chart.panels[0].heat is not None else MARGINS
    for number, panel in enumerate(chart.panels):
        row, column = divmod(number, columns)
        place = (
            (column * width + margins.left) / (columns * width),
            ((rows - 1 - row) * height + margins.bottom) / whole,
            (width - margins.left - margins.right) / (columns * width),
            (height - margins.bottom - margins.top) / whole,
        )
        axes = figure.add_axes(place)
        _panel(axes, panel)
        # A given y spares a search for the best one.
        title = _fitted(panel.title, width - margins.left - margins.right, TITLE_SIZE)
        axes.set_title(title, loc="left", y=1.0)
    if legend:
        figure.legend(
            handles=[_entry(name, look) for name, look in legend],
            loc="upper center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=legend_columns,
            frameon=False,
            fontsize=LEGEND_SIZE,
            handlelength=2.6,
        )
    return figure


def _panel(axes: Axes, panel: Panel) -> None:
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(panel.y_title)
    if panel.heat is not None:
        _heat(axes, panel.heat)
        return
    axes.grid(True, color="#e3e5e9", linewidth=0.7)
    axes.set_axisbelow(True)
    for layer, series in enumerate(panel.series):
        _series(axes, series, 2 + layer)
    if panel.ticks:
        axes.set_xticks([at for at, _ in panel.ticks], [text for _, text in panel.ticks])
    elif all(x == int(x) for series in panel.series for x in series.x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.x_from_zero:
        axes.margins(x=0.09, y=0.12)
        axes.set_xlim(left=0)


def _series(axes: Axes, series: Series, layer: int) -> None:
    colour = light_colour(series.look.colour)
    for run in series.band_runs:
        xs = [series.x[at] for at in run]
        low: Sequence[float] = [series.low[at] or 0.0 for at in run]
        high: Sequence[float] = [series.high[at] or 0.0 for at in run]
        if len(run) > 1:
            axes.fill_between(xs, low, high, color=colour, alpha=0.16, linewidth=0, zorder=1)
        else:
            axes.vlines(xs, low, high, color=colour, linewidth=1.2, zorder=1)
    axes.plot(series.x, series.y, zorder=layer, label=series.name, **_drawn(series.look))
    for x, y, text in zip(series.x, series.y, series.labels, strict=False):
        axes.annotate(
            text, (x, y), xytext=(5, -11), textcoords="offset points", fontsize=8, color=LIGHT_INK
        )


def _entry(name: str, look: Look) -> Line2D:
    return Line2D([], [], label=name, **_drawn(look))


def _drawn(look: Look) -> dict[str, Any]:
    """A look in matplotlib's words."""
    colour = light_colour(look.colour)
    return {
        "color": colour,
        "linewidth": look.width,
        "linestyle": "none" if look.dash is None else DASHES[look.dash][0],
        "marker": "none" if look.marker is None else MARKERS[look.marker][0],
        "markersize": look.size,
        "markerfacecolor": colour if not look.hollow else "none" if look.size > 10 else "white",
        "markeredgecolor": colour if look.hollow else "white",
        "markeredgewidth": max(look.width, 1.0) if look.hollow else 0.6,
    }


def _heat(axes: Axes, heat: Heat) -> None:
    values = [[math.nan if value is None else value for value in row] for row in heat.values]
    lowest, highest = heat.ends
    image = axes.imshow(
        values,
        cmap=HEAT_SCALE,
        aspect="auto",
        origin="lower",
        vmin=lowest,
        vmax=highest if highest > lowest else lowest + 1,
    )
    axes.set_xticks(range(len(heat.columns)), heat.columns)
    axes.set_yticks(range(len(heat.rows)), heat.rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    numbered = len(heat.columns) <= MOST_NUMBERED_COLUMNS
    for row, cells in enumerate(heat.values):
        for column, value in enumerate(cells):
            if value is None:
                axes.text(column, row, heat.notes[row][column], ha="center", va="center")
            elif numbered:
                axes.text(
                    column,
                    row,
                    f"{value:.1f}",
                    ha="center",
                    va="center",
                    fontsize=9 if len(heat.columns) <= 8 else 7,
                    color="white" if heat.is_dark(value) else "black",
                )
    for row, column in heat.marked:
        axes.add_patch(
            Rectangle(
                (column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor="#D55E00", lw=2.2
            )
        )
    bar = axes.inset_axes((1.03, 0.0, 0.035, 1.0))
    axes.figure.colorbar(image, cax=bar, label=heat.unit)
    bar.spines[:].set_visible(False)
