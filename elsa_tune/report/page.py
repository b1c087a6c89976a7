"""The report as one HTML page that needs nothing else: words, figures, sortable tables.

Everything is in the file, and a content security policy forbids it the network; without scripts
only the sorting of tables is missing. The same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from elsa_tune.report.charts import Chart
from elsa_tune.report.figures import panel_svg, swatch
from elsa_tune.report.story import Card
from elsa_tune.report.tables import Table

# Nothing may be fetched, from anywhere; what runs and what styles stands in the page itself.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"

# More than this would stand between the answers and their figures.
MOST_WARNINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One subject's words and its table. name: what it is about. next_step: a command."""

    name: str
    told: str
    next_step: str | None
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that the page shows, in its order.

    notes: sentences that stand above all others. cards: the one answer at a glance, () where there
    are several. story: paragraphs. facts: where the numbers come from, texts by name. overview: the
    table of answers, None where the cards say it. warnings: each with the names of the answers it
    belongs to. commands: what makes this report again, a line each.
    """

    heading: str
    notes: tuple[str, ...]
    cards: tuple[Card, ...]
    story: tuple[str, ...]
    facts: Mapping[str, Sequence[str]]
    overview: Table | None
    warnings: Mapping[str, Sequence[str]]
    charts: tuple[Chart, ...]
    sections: tuple[Section, ...]
    trials: Table
    rules: tuple[str, ...]
    commands: tuple[str, ...]


def page_html(page: Page) -> str:
    """The whole file. Every name in it is text: the template escapes all but our own drawings."""
    environment = Environment(
        loader=PackageLoader("elsa_tune.report", "assets"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    template = environment.get_template("page.html.jinja")
    return template.render(
        page=page,
        policy=POLICY,
        most_warnings=MOST_WARNINGS,
        panel_svg=panel_svg,
        swatch=swatch,
    )
