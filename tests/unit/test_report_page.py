"""The page itself: what it says, that nothing in it can be taken for markup, and that it needs no
network.
"""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from typing import Any

import plotly.graph_objects
import pytest

from elsa_tune.report.folder import make_page
from elsa_tune.report.interactive import chart_object
from elsa_tune.report.page import POLICY, page_html
from elsa_tune.report.story import cards, rules, story
from elsa_tune.report.tables import MOST_TRIALS, curve_table, trials_table
from elsa_tune.specs.result_row import ResultRow
from tests.unit.report_examples import NASTY, answers_of, searched, subjects
from tests.unit.result_rows import falling_curve, row, seeds


def page_of(rows: list[ResultRow], command: str = "") -> str:
    return page_html(make_page(answers_of(rows), rows, {}, command=command))


class Elements(HTMLParser):
    """The elements of a page, with their attributes and the text they hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._inside):
            self.texts.append(data)


def without_plotly(page: str) -> str:
    """The page without plotly's script, which names addresses that it never asks for here."""
    return "".join(
        part for part in re.split(r"(?s)(<script>.*?</script>)", page) if len(part) < 1e6
    )


def test_names_are_text_and_never_markup() -> None:
    rows, histories = searched(NASTY, model=NASTY, task=NASTY)
    page = page_html(make_page(answers_of(rows), rows, histories, command=f"report {NASTY}"))
    own = without_plotly(page)
    assert '<b onclick="x">' not in own
    assert html.escape(f"{NASTY} on {NASTY}") in own
    # Three scripts, as without a nasty name: data, plotly, ours.
    assert page.count("</script>") == page_of(falling_curve()).count("</script>") == 3
    (values,) = re.findall(r'(?s)<script type="application/json" id="charts">(.*?)</script>', page)
    hover = json.loads(values)[0]["panels"][0]["data"][-1]["hovertext"]
    assert all("<b onclick" not in text for text in hover)


def test_nothing_is_fetched() -> None:
    page = page_of(falling_curve())
    elements = Elements(page)
    for tag, attributes in elements.found:
        assert tag not in ("link", "img", "iframe", "object", "embed")
        assert not attributes.get("src")
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"https?://|@import|url\(", without_plotly(page))
    policies = [a["content"] for t, a in elements.found if a.get("http-equiv")]
    assert policies == [POLICY] and POLICY.startswith("default-src 'none'")


def test_the_tables_can_be_sorted_and_are_marked_up_for_it() -> None:
    elements = Elements(page_of(falling_curve()))
    heads = [attributes for tag, attributes in elements.found if tag == "th"]
    columns = [attributes for attributes in heads if attributes["scope"] == "col"]
    assert {attributes["aria-sort"] for attributes in columns} == {"none"}
    # One button in each head; the others are the legends'.
    buttons = [attributes for tag, attributes in elements.found if tag == "button"]
    assert len([b for b in buttons if "data-series" not in b]) == len(columns) > 20
    boxes = [attributes for tag, attributes in elements.found if attributes.get("role") == "region"]
    assert len(boxes) == 3 and all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    values = [a["data-value"] for tag, a in elements.found if "data-value" in a]
    assert len([float(value or "not a number") for value in values]) > 100


def test_words_and_tables_are_there_without_scripts() -> None:
    text = " ".join(Elements(page_of(falling_curve(), "elsa-tune report --x")).texts)
    assert "2 of 6 layers at 5e-05 keep 92.2 % of the full model's accuracy (83.0 of 90.0)." in text
    assert (
        "Corrected for chance (50.0) that is 82.5 %, and 3 of 6 layers are needed (95.0 %)." in text
    )
    assert "elsa-tune report --x" in text and "--from trials.csv --target 0.9" in text
    assert "Raw and corrected answers disagree".lower() in text.lower()
    assert "need JavaScript" in text


def test_the_story_of_one_answer_is_a_paragraph() -> None:
    (told,) = story(answers_of(falling_curve()), subjects(falling_curve()))
    assert told.startswith("How many of the last layers of minilm must be fine-tuned on rte")
    assert "The full model is also the best" in told
    assert "One warning goes with it: raw and corrected answers disagree" in told
    names = {card.name: card.number for card in cards(subjects(falling_curve())[0])}
    assert names["operating point"] == "2 of 6 layers"
    assert names["corrected for chance"] == "3 of 6 layers"
    assert names["full model"] == "90.0 ± 1.0"


def test_a_table_of_means_is_certified_by_single_runs_and_not_by_waiting() -> None:
    means = [row(n, 0.9 - n / 100, runs=5, seed=None) for n in (0, 3)]
    few = [row(n, 0.9 - n / 100) for n in (0, 3)]
    for rows, note in ((means, "needs single runs"), (few, "yet")):
        (card,) = (card for card in cards(subjects(rows)[0]) if card.name == "certified")
        assert (card.number, card.note) == ("nothing", note)


def test_the_story_of_several_counts_them() -> None:
    rows = falling_curve() + falling_curve(task="cola") + seeds(3, [0.8, 0.8], task="sst2")
    overview, joint = story(answers_of(rows), subjects(rows))
    assert overview.startswith("2 of 3 questions have an answer")
    assert "Corrected for chance, 2 of them need more layers" in overview
    assert "There is no answer for minilm on sst2" in overview
    assert joint.startswith("minilm, all tasks together: No joint answer")
    none, *_ = story([], subjects(seeds(3, [0.8, 0.8]) + seeds(3, [0.8, 0.8], task="cola")))
    assert none.startswith("None of the 2 questions")


def test_the_rules_name_the_target() -> None:
    assert any(
        "at least 90 % of the full model's" in rule for rule in rules(answers_of(falling_curve()))
    )


def test_a_warning_of_many_answers_is_told_once() -> None:
    rows = falling_curve(chance=None) + falling_curve(chance=None, task="cola")
    page = page_of(rows)
    warning = html.escape("chance is not known for this task: what a constant answer keeps")
    listed = page.split('class="warnings"')[1].split("</div>")[0]
    assert listed.count(warning) == 1 and "minilm on rte, minilm on cola" in listed


def test_the_curve_table_points_out_the_operating_point() -> None:
    (subject,) = subjects(falling_curve())
    table = curve_table(subject.answer, subject.name)
    (chosen,) = table.chosen
    cells = dict(zip(table.names, table.rows[chosen], strict=True))
    assert cells["frozen layers"].text == "4" and cells["kept"].text == "92.2 %"
    assert cells["quality"].value == pytest.approx(0.83)
    assert "seconds" not in table.names  # nothing to show in it


def test_a_page_holds_no_more_trials_than_it_can_bear() -> None:
    table = trials_table([row(0, 0.8, seed=seed) for seed in range(MOST_TRIALS + 5)])
    assert len(table.rows) == MOST_TRIALS and "trials.csv has all" in table.caption


def figure_of(panel: dict[str, Any]) -> plotly.graph_objects.Figure:
    """The panel as plotly's own classes check it; colours by name are the page's."""
    text = re.sub(r'"var:[a-z0-9-]+"', '"#123456"', json.dumps(panel))
    return plotly.graph_objects.Figure(json.loads(text))


def test_plotly_knows_every_attribute_of_every_figure() -> None:
    rows, histories = searched()
    page = make_page(answers_of(rows), rows, histories)
    panels = [panel for chart in page.charts for panel in chart_object(chart)["panels"]]
    assert len(panels) == 5 + 5
    for panel in panels:
        assert len(figure_of(panel).data) >= 1


def test_the_page_is_the_same_at_every_run() -> None:
    assert page_of(falling_curve()) == page_of(falling_curve())
