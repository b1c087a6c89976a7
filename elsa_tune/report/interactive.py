"""Charts on a screen: plotly's traces and layouts for the panels of the page.

It must not compute anything that a chart does not say. Colours are names of the page's CSS
variables (`var:...`), which the page's script puts in, so that one figure serves light and dark.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from elsa_tune.report.charts import INK, Chart, Heat, Look, Panel, Series
from elsa_tune.report.figures import MOST_NUMBERED_COLUMNS
from elsa_tune.report.palette import DASHES, HEAT_SCALE, LIGHT, MARKERS


def chart_object(chart: Chart) -> dict[str, Any]:
    """The chart as plain values for the page's script: per panel plotly's `data` and `layout`."""
    return {
        "key": chart.key,
        "panels": [{"data": _traces(panel), "layout": _layout(panel)} for panel in chart.panels],
    }


def colour_name(slot: int) -> str:
    """The CSS variable of a colour slot, without its dashes."""
    return "ink" if slot == INK else f"series-{slot % len(LIGHT)}"


def _traces(panel: Panel) -> list[dict[str, Any]]:
    if panel.heat is not None:
        return [_heat(panel.heat)]
    # Bands first: they lie under every line.
    bands = [band for series in panel.series for band in _bands(series)]
    return [*bands, *(_trace(series) for series in panel.series)]


def _trace(series: Series) -> dict[str, Any]:
    look = series.look
    modes = {"lines": look.dash, "markers": look.marker, "text": series.labels}
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": series.name,
        "mode": "+".join(mode for mode, wanted in modes.items() if wanted),
        "x": list(series.x),
        "y": [round(y, 6) for y in series.y],
        "line": {"color": _colour(look), "width": look.width},
        "marker": _marker(look),
        "cliponaxis": False,
    }
    if look.dash is not None:
        trace["line"]["dash"] = DASHES[look.dash][1]
    if series.labels:
        trace["text"] = [_safe(text) for text in series.labels]
        trace["textposition"] = "bottom right"
        trace["textfont"] = {"color": "var:ink", "size": 11}
    if series.hover:
        trace["hovertext"] = [_safe(text) for text in series.hover]
        trace["hoverinfo"] = "text"
    else:
        trace["hoverinfo"] = "skip"
    return trace


def _marker(look: Look) -> dict[str, Any]:
    if look.marker is None:
        return {"opacity": 0}
    # Plotly's sizes are pixels, and its stars and diamonds are drawn smaller.
    size = look.size * (1.25 if look.marker in ("star", "diamond", "cross") else 1.15) + 1
    marker: dict[str, Any] = {"symbol": MARKERS[look.marker][1], "size": round(size, 1)}
    if look.hollow:
        ground = "var:clear" if look.size > 10 else "var:ground"
        return {**marker, "color": ground, "line": {"color": _colour(look), "width": 2}}
    return {**marker, "color": _colour(look), "line": {"color": "var:ground", "width": 1}}


def _bands(series: Series) -> list[dict[str, Any]]:
    """The band as filled shapes, one for each stretch; where a point stands alone, as a bar."""
    found = []
    for run in series.band_runs:
        xs = [series.x[at] for at in run]
        low = [series.low[at] for at in run]
        high = [series.high[at] for at in run]
        found.append(
            {
                "type": "scatter",
                "name": series.name,
                "mode": "lines",
                "x": [*xs, *xs[::-1]],
                "y": _rounded([*high, *low[::-1]]),
                "fill": "toself",
                "fillcolor": f"var:{colour_name(series.look.colour)}-band",
                "line": {"color": _colour(series.look), "width": 0 if len(run) > 1 else 1.5},
                "hoverinfo": "skip",
            }
        )
    return found


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 6) for value in values]


def _heat(heat: Heat) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "name": "",
        "x": list(range(len(heat.columns))),
        "y": list(range(len(heat.rows))),
        "z": [_rounded(row) for row in heat.values],
        "colorscale": HEAT_SCALE.capitalize(),
        "hovertext": [[_safe(text) for text in row] for row in heat.hover],
        "hoverinfo": "text",
        "hoverongaps": True,
        "xgap": 2,
        "ygap": 2,
        "showscale": len(heat.columns) > MOST_NUMBERED_COLUMNS,
        "colorbar": {"title": {"text": _safe(heat.unit), "side": "right"}, "thickness": 12},
    }


def _layout(panel: Panel) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _safe(panel.x_title)}},
        "yaxis": {"title": {"text": _safe(panel.y_title)}},
    }
    if panel.ticks:
        layout["xaxis"]["tickvals"] = [at for at, _ in panel.ticks]
        layout["xaxis"]["ticktext"] = [_safe(text) for _, text in panel.ticks]
    elif all(x == int(x) for series in panel.series for x in series.x):
        layout["xaxis"]["tickformat"] = "d"
    if panel.x_from_zero:
        highest = max(x for series in panel.series for x in series.x)
        layout["xaxis"]["range"] = [0, 1.12 * highest or 1]
    if panel.heat is not None:
        layout |= _heat_layout(panel.heat, layout)
    return layout


def _heat_layout(heat: Heat, layout: dict[str, Any]) -> dict[str, Any]:
    frames = [
        {
            "type": "rect",
            "x0": column - 0.47,
            "x1": column + 0.47,
            "y0": row - 0.46,
            "y1": row + 0.46,
            "line": {"color": "var:series-1", "width": 3},
        }
        for row, column in heat.marked
    ]
    notes = [
        {"x": column, "y": row, "showarrow": False, **words}
        for row, cells in enumerate(heat.values)
        for column, value in enumerate(cells)
        if (words := _cell_words(heat, value, heat.notes[row][column]))
    ]
    columns = {"tickvals": list(range(len(heat.columns))), "ticktext": _texts(heat.columns)}
    rows = {"tickvals": list(range(len(heat.rows))), "ticktext": _texts(heat.rows)}
    bare = {"showgrid": False, "zeroline": False}
    return {
        "shapes": frames,
        "annotations": notes,
        "xaxis": {**layout["xaxis"], **columns, **bare},
        "yaxis": {**layout["yaxis"], **rows, **bare},
    }


def _cell_words(heat: Heat, value: float | None, note: str) -> dict[str, Any]:
    """A cell's number where there is room for it, or the note in its place; {} for nothing."""
    if value is None:
        return {"text": _safe(note)} if note else {}
    if len(heat.columns) > MOST_NUMBERED_COLUMNS:
        return {}
    # Plotly's own choice is grey on grey in the middle of the scale.
    colour = "#ffffff" if heat.is_dark(value) else "#000000"
    return {"text": f"{value:.1f}", "font": {"color": colour}}


def _texts(texts: Sequence[str]) -> list[str]:
    return [_safe(text) for text in texts]


def _colour(look: Look) -> str:
    return f"var:{colour_name(look.colour)}"


def _safe(text: str) -> str:
    """Plotly reads a little HTML in its texts: a name shows as it is written."""
    return html.escape(text, quote=False).replace("\n", "<br>")
