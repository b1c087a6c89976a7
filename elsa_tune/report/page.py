"""The report as one HTML page that needs nothing else: words, interactive figures, sortable tables.

It must not compute what it shows. Everything is in the file, plotly's script too, and a content
security policy forbids it the network; without scripts the words and the tables still work. The
same input gives the same bytes.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from plotly.offline import get_plotlyjs

from elsa_tune.report.charts import Chart, Look
from elsa_tune.report.interactive import chart_object, colour_name
from elsa_tune.report.palette import DARK, DASHES, LIGHT
from elsa_tune.report.story import Card
from elsa_tune.report.tables import Cell, Table

# Nothing may be fetched, from anywhere; what runs and what styles stands in the page itself.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)

# More than this would stand between the answers and their figures.
MOST_WARNINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One subject's words and its table. name: what it is about."""

    name: str
    told: str
    next_step: str | None
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that the page shows, in its order.

    notes: sentences that stand above all others. story: paragraphs. cards: the one answer at a
    glance, () where there are several. overview: the table of answers. warnings: each with the
    names of the answers it belongs to. commands: what makes this report again, a line each.
    """

    heading: str
    notes: tuple[str, ...]
    story: tuple[str, ...]
    cards: tuple[Card, ...]
    overview: Table
    warnings: Mapping[str, Sequence[str]]
    charts: tuple[Chart, ...]
    sections: tuple[Section, ...]
    trials: Table
    rules: tuple[str, ...]
    commands: tuple[str, ...]


def page_html(page: Page) -> str:
    """The whole file."""
    drawn = [chart for chart in page.charts if chart.panels]
    body = "\n".join(
        [
            f"<h1>{_safe(page.heading)}</h1>",
            *(f'<p class="note">{_safe(text)}</p>' for text in page.notes),
            '<div class="story">',
            *(f"<p>{_safe(text)}</p>" for text in page.story),
            "</div>",
            _cards(page.cards),
            _table(page.overview),
            _contents(page),
            _warnings(page),
            '<h2 id="figures">Figures</h2>',
            "<noscript><p>The figures on this page need JavaScript; the same ones lie as images in "
            "the folder <code>figures</code> beside it.</p></noscript>",
            '<div class="charts">',
            *(_chart(chart, number) for number, chart in enumerate(drawn)),
            "</div>",
            *(_left_out(chart) for chart in page.charts if not chart.panels),
            '<h2 id="curves">Freeze curves</h2>',
            '<div class="curves">',
            *(_section(section, alone=len(page.sections) == 1) for section in page.sections),
            "</div>",
            '<h2 id="trials">Trials</h2>',
            _table(page.trials, tall=True),
            '<h2 id="rules">How it was decided</h2>',
            "<ol>",
            *(f"<li>{_safe(rule)}</li>" for rule in page.rules),
            "</ol>",
            '<h2 id="again">How to reproduce it</h2>',
            f"<pre><code>{_safe(chr(10).join(page.commands))}</code></pre>",
        ]
    )
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="elsa-tune">\n'
        f"<title>{_safe(page.heading)}</title>\n"
        f"<style>\n{_colours()}{_asset('page.css')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n"
        f"{_scripts(drawn)}</body>\n</html>\n"
    )


def _colours() -> str:
    """The palette as CSS variables; on paper always the light one."""
    light, dark = (
        "".join(f"--series-{slot}:{colour};" for slot, colour in enumerate(colours))
        for colours in (LIGHT, DARK)
    )
    return (
        f":root{{{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not(.paper){{{dark}}}}}\n"
    )


def _scripts(charts: Sequence[Chart]) -> str:
    values = json.dumps(
        [chart_object(chart) for chart in charts], allow_nan=False, separators=(",", ":")
    )
    # No name may end the element that holds it.
    values = values.replace("<", "\\u003c")
    plotly = f"<script>{get_plotlyjs()}</script>\n" if charts else ""
    return (
        f'<script type="application/json" id="charts">{values}</script>\n'
        f"{plotly}<script>\n{_asset('page.js')}</script>\n"
    )


def _cards(cards: Sequence[Card]) -> str:
    items = "".join(
        f"<div><dt>{_safe(card.name)}</dt><dd><strong>{_safe(card.number)}</strong> "
        f"{_safe(card.note)}</dd></div>"
        for card in cards
    )
    return f'<dl class="cards">{items}</dl>' if cards else ""


def _contents(page: Page) -> str:
    names = {"figures": "Figures", "curves": "Freeze curves", "trials": "Trials"}
    names |= {"rules": "How it was decided", "again": "How to reproduce it"}
    if page.warnings:
        names = {"warnings": "Warnings", **names}
    items = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name in names.items())
    return f'<nav aria-label="On this page"><ul>{items}</ul></nav>'


def _warnings(page: Page) -> str:
    """Each once, with what it belongs to where the page is about several answers."""
    if not page.warnings:
        return ""
    items = "".join(
        f"<li>{_safe(text)}{_whose(names, page)}</li>" for text, names in page.warnings.items()
    )
    listed = f'<div class="warnings"><ul>{items}</ul></div>'
    if len(page.warnings) > MOST_WARNINGS:
        told = f"{len(page.warnings)} warnings; each answer's gravest also stands with its curve"
        listed = f"<details><summary>{told}</summary>\n{listed}</details>"
    return f'<h2 id="warnings">Warnings</h2>\n{listed}'


def _whose(names: Sequence[str], page: Page) -> str:
    if len(page.sections) == 1:
        return ""
    return f' <span class="quiet">({_safe(", ".join(names))})</span>'


def _chart(chart: Chart, number: int) -> str:
    few = ' class="single"' if len(chart.panels) == 1 else ""
    panels = "".join(
        f'<figure class="panel"><figcaption>{_safe(panel.title)}</figcaption>'
        f'<div class="plot" id="{_safe(chart.key)}-{place}" data-chart="{number}" '
        f'data-panel="{place}" role="img" aria-label="{_safe(chart.title)}: {_safe(panel.title)}; '
        'the numbers stand in the tables below"></div></figure>\n'
        for place, panel in enumerate(chart.panels)
    )
    title = f'<h3 id="{_safe(chart.key)}">{_safe(chart.title)}</h3>'
    drawn = (
        f'<p class="caption">{_safe(chart.caption)}</p>\n{_legend(chart, number)}'
        f'<div class="panels">\n{panels}</div>\n{_sentences(chart)}'
    )
    if chart.folded:
        drawn = f"<details><summary>{title}</summary>\n{drawn}</details>"
    else:
        drawn = f"{title}\n{drawn}"
    return f'<section{few} aria-labelledby="{_safe(chart.key)}">\n{drawn}</section>'


def _left_out(chart: Chart) -> str:
    return f"<section><h3>{_safe(chart.title)}</h3>{_sentences(chart)}</section>"


def _sentences(chart: Chart) -> str:
    return "".join(
        f'<p class="quiet">{"Not drawn" if not chart.panels else "Left out"}. {_safe(text)}</p>\n'
        for text in chart.left_out
    )


def _legend(chart: Chart, number: int) -> str:
    """One for all panels of a chart; each entry is a button that hides and shows its series."""
    if not chart.legend:
        return ""
    entries = "".join(
        f'<button type="button" disabled aria-pressed="true" data-chart="{number}" '
        f'data-series="{_safe(name)}">{_swatch(look)}{_safe(name)}</button>'
        for name, look in chart.legend
    )
    label = f"Legend of {chart.title}: press to hide or show"
    return f'<div class="legend" role="group" aria-label="{_safe(label)}">{entries}</div>\n'


# Each marker in a box of 34 x 14 around (17, 7).
_SHAPES = {
    "circle": '<circle cx="17" cy="7" r="4"/>',
    "square": '<rect x="13" y="3" width="8" height="8"/>',
    "triangle": '<path d="M17 2 22 11 12 11Z"/>',
    "diamond": '<path d="M17 1 23 7 17 13 11 7Z"/>',
    "down": '<path d="M17 12 22 3 12 3Z"/>',
    "pentagon": '<path d="M17 2 22 6 20 12 14 12 12 6Z"/>',
    "star": '<path d="M17 0 18.9 4.6 23.7 4.9 20 8 21.2 12.8 17 10.2 12.8 12.8 14 8 10.3 4.9 '
    '15.1 4.6Z"/>',
    "cross": '<path d="M13 3 21 11M21 3 13 11" stroke-width="3"/>',
}


def _swatch(look: Look) -> str:
    colour = f"var(--{colour_name(look.colour)})"
    parts = []
    if look.dash is not None:
        dashes = "" if look.dash == "solid" else DASHES[look.dash][1].replace("px", "")
        parts.append(
            f'<path d="M1 7H33" style="stroke:{colour};stroke-dasharray:{dashes or "none"}" '
            'stroke-width="2"/>'
        )
    if look.marker is not None:
        fill = "var(--ground)" if look.hollow else colour
        parts.append(f'<g style="fill:{fill};stroke:{colour}">{_SHAPES[look.marker]}</g>')
    return f'<svg width="34" height="14" aria-hidden="true">{"".join(parts)}</svg>'


def _section(section: Section, *, alone: bool) -> str:
    heading = "" if alone else f"<h3>{_safe(section.name)}</h3>\n<p>{_safe(section.told)}</p>\n"
    step = ""
    if section.next_step is not None:
        step = (
            '<p class="quiet">What is open, this would settle: '
            f"<code>{_safe(section.next_step)}</code></p>\n"
        )
    return f"<section>{heading}{step}{_table(section.table)}</section>"


def _table(table: Table, *, tall: bool = False) -> str:
    """Sortable by the buttons in its head; it scrolls within its own box."""
    heads = "".join(
        f'<th scope="col" aria-sort="none"{_text_class(is_text)}>'
        f'<button type="button" disabled>{_safe(name)}</button></th>'
        for name, is_text in zip(table.names, table.is_text, strict=True)
    )
    rows = "\n".join(
        _row(cells, table.is_text, is_chosen=number in table.chosen)
        for number, cells in enumerate(table.rows)
    )
    box = "table tall" if tall else "table"
    return (
        f'<div class="{box}" role="region" tabindex="0" aria-label="{_safe(table.caption)}">'
        f"<table><caption><span>{_safe(table.caption)}</span></caption>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _row(cells: Sequence[Cell], is_text: Sequence[bool], *, is_chosen: bool) -> str:
    first, *others = (
        (
            cell,
            _text_class(text),
            "" if cell.value is None else f' data-value="{float(cell.value)!r}"',
        )
        for cell, text in zip(cells, is_text, strict=True)
    )
    head = f'<th scope="row"{first[1]}{first[2]}>{_safe(first[0].text)}</th>'
    rest = "".join(f"<td{kind}{value}>{_safe(cell.text)}</td>" for cell, kind, value in others)
    return f"<tr{' class=chosen' if is_chosen else ''}>{head}{rest}</tr>"


def _text_class(is_text: bool) -> str:
    return ' class="text"' if is_text else ""


def _asset(name: str) -> str:
    return (resources.files("elsa_tune.report") / "assets" / name).read_text(encoding="utf-8")


def _safe(text: str) -> str:
    return html.escape(text)
