"""The one renderer: matplotlib draws a chart as files (PNG, SVG) and its panels for the page.

The bytes are the same at every run: no dates, and a fixed salt for the names inside an SVG.
"""

import io
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import font_manager, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from elsa_tune.errors import shortened
from elsa_tune.report.charts import GROUND, INK, SERIES, Chart, Panel
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
WIDTH, HEIGHT = 300.0, 217.0  # of a pair of axes, in points, which are pixels on the page
LEFT, RIGHT, BOTTOM, TOP = 52.0, 8.0, 38.0, 28.0  # around it
LEGEND_HEIGHT = 19.0
LONGEST_NAME = 40  # longer ones are shortened in the middle
NAME_WIDTH, HANDLE_WIDTH = 6.0, 50.0  # of a character, and of what stands before a name
WIDEST_BAND = 0.25  # how far beyond all points the axis goes for a band, in parts of their range

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
    """The chart as `{"png": ..., "svg": ...}`, all panels under one legend; it must have a panel.

    Signs that DejaVu Sans and the machine's CJK fonts lack are boxes in the PNG.
    """
    with _drawing(chart.key):
        figure = _figure(chart)
        return {kind: _saved(figure, kind) for kind in ("png", "svg")}


def page_svgs(chart: Chart) -> list[str]:
    """Its panels for the page, each under its own legend."""
    found = []
    for number, panel in enumerate(chart.panels):
        # Names inside an SVG are the page's: two panels must not have the same.
        with _drawing(f"{chart.key}-{number}"):
            figure = _figure(replace(chart, panels=(panel,)))
            text = _saved(figure, "svg", facecolor="none").decode()
        for colour, variable in VARIABLES.items():
            text = text.replace(colour, variable)
        text = re.sub(r"\s*\n\s*", " ", _NEEDLESS.sub("", text))
        found.append(text.replace("> <", "><").strip())
    return found


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
    """Panels in rows under one legend, by fixed margins: layout engines are too slow."""
    count = len(chart.panels)
    columns = min(count, 2 if count == 4 else MOST_COLUMNS)
    rows = math.ceil(count / columns)
    series = [one for panel in chart.panels for one in panel.series]
    legend = {_name(one.name): one.look for one in series}
    width = columns * (LEFT + WIDTH + RIGHT)
    in_a_row = int(width / (HANDLE_WIDTH + NAME_WIDTH * max(map(len, legend))))
    in_a_row = max(1, min(len(legend), in_a_row))
    panels_height = rows * (TOP + HEIGHT + BOTTOM)
    height = panels_height + LEGEND_HEIGHT * math.ceil(len(legend) / in_a_row)
    figure = Figure((width / 72, height / 72))
    axes = figure.subplots(rows, columns, squeeze=False).flat
    figure.subplots_adjust(
        left=LEFT / width,
        right=1 - RIGHT / width,
        bottom=BOTTOM / height,
        top=(panels_height - TOP) / height,
        wspace=(LEFT + RIGHT) / WIDTH,
        hspace=(BOTTOM + TOP) / HEIGHT,
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
    """A name as a figure has it; an SVG with a control character in it could not be opened."""
    return shortened(visible(text), LONGEST_NAME)


def _draw(axes: Axes, panel: Panel) -> None:
    # A given y spares a search for the best one.
    axes.set_title(_name(panel.title), loc="left", y=1.0)
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(visible(panel.y_title))
    for layer, series in enumerate(panel.series, 2):
        if series.low:
            # A depth without a band leaves a gap, beside which only the bar tells of one.
            low, high = np.array(series.low, dtype=float), np.array(series.high, dtype=float)
            band: dict[str, Any] = {"color": series.look["color"], "zorder": 1}
            axes.fill_between(series.x, low, high, alpha=0.2, linewidth=0, **band)
            axes.vlines(series.x, low, high, alpha=0.4, linewidth=1, **band)
        axes.plot(series.x, series.y, zorder=layer, **series.look)
    axes.set_xticks([at for at, _ in panel.ticks], [text for _, text in panel.ticks])
    # Two seeds' interval may be most of what there is: it must not squeeze what was measured.
    ys = [y for series in panel.series for y in series.y]
    room = WIDEST_BAND * (max(ys) - min(ys) or 1.0)
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, min(ys) - room), min(top, max(ys) + room))
