"""The page itself: what it says, that nothing in it can be taken for markup, and that it needs no
network.
"""

from __future__ import annotations

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from elsa_tune.analysis.curve import Saves
from elsa_tune.report.charts import SERIES, all_charts
from elsa_tune.report.page import curve_table, facts, story
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.trial import Phase
from tests.unit.report_examples import NASTY, answers_of, named, page_of, searched
from tests.unit.result_rows import falling_curve, row, seeds

CSS = Path(__file__).parents[2] / "elsa_tune" / "report" / "assets" / "page.css"


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


def test_names_are_text_and_never_markup() -> None:
    rows = searched(NASTY, model=NASTY, task=NASTY)
    page = page_of(rows, f"report {NASTY}")
    assert '<b onclick="x">' not in page and "<script" not in page and "</script>" not in page
    elements = Elements(page)
    text = " ".join(elements.texts)
    assert f"{NASTY} on {NASTY}" in text and f"report {NASTY}" in text
    assert "b" not in {tag for tag, _ in elements.found}


def test_nothing_is_fetched() -> None:
    page = page_of(falling_curve())
    elements = Elements(page)
    for tag, attributes in elements.found:
        assert tag not in ("link", "img", "image", "iframe", "object", "embed")
        assert not attributes.get("src")
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"https?://|@import|url\((?!#)", page)
    policies = [a["content"] for t, a in elements.found if a.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_no_two_elements_have_one_name() -> None:
    elements = Elements(page_of(searched() + searched("second", task="cola")))
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(set(ids)) == len(ids) > 10


def test_the_style_sheet_knows_the_colours_of_the_figures() -> None:
    light, dark = CSS.read_text().split("@media screen", 1)
    for slot, colour in enumerate(SERIES):
        assert f"--series-{slot}: {colour};" in light and f"--series-{slot}:" in dark


def test_a_search_is_a_page_of_less_than_a_megabyte() -> None:
    depths = [one.frozen_layers for one in map(FreezeDepth.of, range(25))]
    rows = [one for n in depths for one in seeds(n, [0.9 - n / 90] * 5, layers=24, search="s")]
    for n in depths:
        for rate in range(1, 9):
            key = f"explore-N{n}-{rate}"
            told = {"layers": 24, "search": "s", "trial": key, "learning_rate": rate * 1e-5}
            rows.append(row(n, 0.8, phase=Phase.EXPLORE, **told))
    assert [len(chart.panels) for chart in all_charts(named(rows))] == [1, 1]
    assert len(page_of(rows).encode()) < 1_000_000


def test_words_tables_and_figures_are_there_without_scripts() -> None:
    text = " ".join(Elements(page_of(falling_curve(), "elsa-tune report --x")).texts)
    assert "How many layers must be fine-tuned to keep 90 %: minilm on rte" in text
    assert "elsa-tune report --x" in text and "--from trials.csv --target 0.9" in text
    assert "Raw and corrected answers disagree".lower() in text.lower()
    assert "accuracy × 100" in text


def test_the_story_of_one_answer_is_its_sentence_and_how_sure_it_is() -> None:
    (answer,) = answers_of(falling_curve())
    first, beside = story([answer])
    assert first == answer.sentence and beside == answer.certainty
    elements = Elements(page_of(falling_curve()))
    assert ("p", {"class": "answer"}) in elements.found and first in elements.texts
    assert " ".join(elements.texts).count(first) == 1


def test_without_an_answer_the_story_says_why() -> None:
    rows = seeds(3, [0.8, 0.81])
    (told,) = story(answers_of(rows))
    assert "was not measured" in told


def test_what_is_not_saved_is_no_saving() -> None:
    (answer,) = answers_of(falling_curve())
    point = answer.operating_point
    assert point is not None
    saves = Saves(trainable_parameters=0.64, train_seconds=0.302, peak_memory_mb=-0.002)
    _, beside = story([replace(answer, operating_point=replace(point, saves=saves))])
    assert beside.startswith(
        "Saves 64.0 % of the trained parameters, 30.2 % of the training time and no memory."
    )


def test_the_page_names_search_machine_date_data_and_what_comes_next() -> None:
    rows = [
        replace(one, search="first", trial=f"t{n}", train_size=480, examples=600, comparison=data)
        for data in ["weights=de70, data=949eccf9c86c, metric=accuracy"]
        for n, one in enumerate(seeds(0, [0.9, 0.89]) + seeds(3, [0.88, 0.87]))
    ]
    origins = {"first": "2026-11-21 12:04 UTC, lab3, 2 cores"}
    assert facts(rows, origins) == {
        "Search": ["first, 2026-11-21 12:04 UTC, lab3, 2 cores"],
        "Data": ["rte, 480 training rows, 600 evaluation rows, fingerprint 949eccf9c86c"],
    }
    text = " ".join(Elements(page_of(rows, origins=origins)).texts)
    assert "elsa-tune resume first --seeds" in text and "949eccf9c86c" in text


def test_the_story_of_several_counts_them() -> None:
    rows = falling_curve() + falling_curve(task="cola") + seeds(3, [0.8, 0.8], task="sst2")
    overview, joint = story(answers_of(rows))
    assert overview == (
        "2 of 3 questions have an answer; there is none for minilm on sst2, and the reason stands "
        "with each."
    )
    assert joint.startswith("minilm, all tasks together: No joint answer")
    none, *_ = story(answers_of(seeds(3, [0.8, 0.8]) + seeds(3, [0.8, 0.8], task="cola")))
    assert none.startswith("0 of 2 questions")


def test_the_page_says_how_it_was_decided_and_by_which_target() -> None:
    text = " ".join(" ".join(Elements(page_of(falling_curve())).texts).split())
    assert "at least 90 % of the full model's" in text


def test_a_warning_of_many_answers_is_told_once() -> None:
    rows = falling_curve(chance=None) + falling_curve(chance=None, task="cola")
    page = page_of(rows)
    warning = html.escape("chance is not known for this task: what a constant answer keeps")
    listed = page.split('class="warnings"')[1].split("</div>")[0]
    assert listed.count(warning) == 1 and "minilm on rte, minilm on cola" in listed


def test_the_curve_table_points_out_the_operating_point() -> None:
    ((name, answer),) = named(falling_curve()).items()
    table = curve_table(name, answer)
    assert table.chosen == 2
    found = dict(zip(table.names, table.rows[2], strict=True))
    assert (found["frozen"], found["kept"]) == ("4", "92.2 %")
    assert found["quality"] == "83.0 ± 1.0"
    assert "seconds" not in table.names  # nothing to show in it


def test_the_page_is_the_same_at_every_run() -> None:
    assert page_of(falling_curve()) == page_of(falling_curve())
