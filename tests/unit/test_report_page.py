"""The page itself: what it says.

Nothing in it can be taken for markup, and it needs no network.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

from markupsafe import escape

from elsa_tune.analysis.answers import answer_curves, freeze_curves
from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.ways import way_curves
from elsa_tune.analysis.curve import Saves
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.report.charts import SERIES, all_charts
from elsa_tune.report.page import Origins, facts, in_full, joint_by_name, page_html, summary
from elsa_tune.report.tables import cost_table, curve_table, overview
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.policy import UNRECORDED
from elsa_tune.specs.result_row import Origin, ResultRow
from elsa_tune.specs.trial import Phase
from tests.unit.report_examples import NASTY, answers_of, named, page_of, searched
from tests.unit.result_rows import as_table_has, falling_curve, row, seeds
from tests.unit.test_probe_answer import probe
from tests.unit.ways import ADAPTER, FULL, compared, four_ways, way_rows

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


def test_the_card_of_one_answer_has_its_first_lines_and_the_rest_is_folded() -> None:
    (answer,) = answers_of(falling_curve())
    page = page_of(falling_curve())
    card = page.split('<div class="card">')[1].split("</div>")[0]
    lines = answer.first_lines
    assert f'<p class="headline">{escape(lines.headline)}</p>' in card
    for label, text in lines.lines:
        assert f"<dt>{label}</dt><dd>{escape(text)}</dd>" in card
    folded = page.split("<details>")[1].split("</details>")[0]
    assert escape(in_full(answer)) in folded
    assert answer.sentence in in_full(answer) and answer.certainty in in_full(answer)


def test_without_an_answer_the_card_says_why() -> None:
    rows = seeds(3, [0.8, 0.81])
    card = page_of(rows).split('<div class="card">')[1].split("</div>")[0]
    assert "was not measured" in card


def test_what_is_not_saved_is_no_saving() -> None:
    (answer,) = answers_of(falling_curve())
    point = answer.operating_point
    assert point is not None
    saves = Saves(trainable_parameters=0.64, train_seconds=0.302, peak_memory_mb=-0.002)
    said = in_full(replace(answer, operating_point=replace(point, saves=saves)))
    assert (
        "Saves 64.0 % of the trained parameters, 30.2 % of the training time and no memory." in said
    )


def test_the_page_names_search_machine_date_data_and_what_comes_next() -> None:
    rows = [
        replace(
            one,
            search="first",
            trial=f"t{n}",
            train_size=480,
            examples=600,
            comparison=Comparison.read(data),
            policy=UNRECORDED,
        )
        for data in ["weights=de70, data=949eccf9c86c, metric=accuracy"]
        for n, one in enumerate(seeds(0, [0.9, 0.89]) + seeds(3, [0.88, 0.87]))
    ]
    command = "elsa-tune search --model minilm --task rte --set 'epochs=6'"
    origin = Origin(place="2026-11-21 12:04 UTC, lab3, 2 cores", command=command)
    origins: Origins = {("first", None): origin}
    assert facts(rows, origins) == {
        "Search": ["first, 2026-11-21 12:04 UTC, lab3, 2 cores"],
        "Data": ["rte, 480 training rows, 600 evaluation rows, fingerprint 949eccf9c86c"],
    }
    text = " ".join(Elements(page_of(rows, origins=origins)).texts)
    assert "the same search once more with --seeds 5" in text and "949eccf9c86c" in text
    # What to type to have all of it again.
    again = page_of(rows, origins=origins).split('id="again"')[1]
    assert escape(command) in again
    assert "elsa-tune export first --out first-model" in again
    # Nor of a search that the folder holds, and the page is not about.
    other = Origin(place="2026-11-20 09:00 UTC, lab3", command="elsa-tune search --name other")
    assert "--name other" not in page_of(rows, origins={**origins, ("other", None): other})


def test_a_page_of_rows_without_a_search_names_no_command_that_needs_one() -> None:
    again = page_of(falling_curve()).split('id="again"')[1]
    assert "elsa-tune search" not in again and "elsa-tune export" not in again
    assert "elsa-tune report --from trials.csv" in again


def test_the_command_for_the_same_answers_excludes_the_same_tasks() -> None:
    rows = [*falling_curve(), *falling_curve(task="my task"), *falling_curve(task="cola")]
    answers = answer_curves(freeze_curves(rows), exclude_tasks=["my task"])
    again = page_html(answers, rows, []).split('id="again"')[1]
    command = "elsa-tune report --from trials.csv --target 0.9 --exclude-task 'my task' --out again"
    assert escape(command) in again


SAME_ANSWERS = "# the same answers from the table beside this page"


def test_the_page_of_an_unfinished_search_names_the_trials_that_are_left() -> None:
    rows = as_table_has(four_ways())
    left = AnswerWarning(WarningCode.INCOMPLETE, "search 'first' is not complete")
    comparison = compared(rows)
    assert SAME_ANSWERS in page_html([], rows, [], comparisons=[comparison])
    unfinished = replace(comparison, warnings=(*comparison.warnings, left))
    page = page_html([], rows, [], comparisons=[unfinished])
    assert SAME_ANSWERS not in page and "# the trials that are left" in page
    # Of nothing measured yet the advice is to wait, and no doubt of it is said.
    [curve] = freeze_curves(as_table_has(seeds(3, [0.8, 0.81])))
    [waiting] = answer_curves([replace(curve, warnings=(left,))])
    assert waiting.recommendation.doubts == ()
    assert "# the trials that are left" in page_html([waiting], rows, [])


def test_the_page_of_a_search_by_an_earlier_rule_names_that() -> None:
    earlier_rule = "an earlier version's rule"
    rows = falling_curve(metric="f1")
    page = page_of(rows)
    assert f"# {escape(earlier_rule)}" in page and SAME_ANSWERS not in page
    assert SAME_ANSWERS in page_of(as_table_has(rows))
    kept = [replace(one, predictions="kept") for one in rows]
    page = page_of(kept)
    assert "# predictions" in page and escape(earlier_rule) not in page


def test_the_summary_of_several_counts_them() -> None:
    rows = falling_curve() + falling_curve(task="cola") + seeds(3, [0.8, 0.8], task="sst2")
    assert summary(answers_of(rows)) == (
        "2 of 3 questions have an answer; there is none for minilm on sst2, and the reason stands "
        "with each."
    )
    assert "minilm, all tasks together" in page_of(rows) and "No joint answer" in page_of(rows)
    none = summary(answers_of(seeds(3, [0.8, 0.8]) + seeds(3, [0.8, 0.8], task="cola")))
    assert none.startswith("0 of 2 questions")
    assert summary(answers_of(falling_curve())) == ""


def test_a_question_that_ways_answer_is_answered() -> None:
    # The full model and adapters alone: of depths there is no answer.
    rows = [*way_rows(FULL, 0.9), *way_rows(ADAPTER, 0.9)]
    other = falling_curve(task="cola")
    answers = answers_of([*rows, *other])
    comparison = compared(rows)
    assert summary(answers) == (
        "1 of 2 questions have an answer; there is none for minilm on rte, and the reason stands "
        "with each."
    )
    assert summary(answers, [comparison]) == "2 of 2 questions have an answer."
    page = page_html(answers, [*rows, *other], [], comparisons=[comparison])
    assert ">no frozen depth; ways compared: adapters of size 8</td>" in page
    # Nor does a comparison that says nothing take an answer away.
    [full_alone] = way_curves(way_rows(FULL, 0.9, task="cola"))
    assert summary(answers, [compare_ways(full_alone)]).startswith("1 of 2 questions")


def test_joint_answers_of_several_training_sizes_name_theirs() -> None:
    rows: list[ResultRow] = []
    for size in (50, 100):
        rows += falling_curve(train_size=size) + falling_curve(task="cola", train_size=size)
    page = page_of(rows)
    assert "minilm, all tasks together (50 examples)" in page
    assert "minilm, all tasks together (100 examples)" in page


def test_a_joint_answer_of_unlike_training_sizes_names_none() -> None:
    of_two = falling_curve(train_size=50) + falling_curve(task="cola", train_size=100)
    assert list(joint_by_name(answers_of(of_two))) == ["minilm, all tasks together"]
    others = [replace(one, model="bert") for one in falling_curve() + falling_curve(task="cola")]
    assert list(joint_by_name(answers_of([*of_two, *others]))) == [
        "minilm, all tasks together",
        "bert, all tasks together (all examples)",
    ]


def test_each_of_several_answers_is_a_section_that_the_overview_leads_to() -> None:
    rows = falling_curve() + falling_curve(task="cola")
    elements = Elements(page_of(rows))
    sections = [a["id"] for tag, a in elements.found if tag == "section" and "id" in a]
    links = [a["href"] for tag, a in elements.found if tag == "a"]
    assert sections == ["answer-1", "answer-2"] and links == ["#answer-1", "#answer-2"]


def test_chance_is_called_what_the_metric_has_it_of() -> None:
    by_accuracy = falling_curve()
    by_macro_f1 = falling_curve(task="cola", metric="f1_macro")
    page = page_of(by_accuracy)
    assert "above the quality of\na constant answer with" in page and "blind" not in page
    page = page_of([*by_macro_f1, *falling_curve(task="mrpc", metric="f1_macro")])
    assert ">blind answer</th>" in page and ">constant answer</th>" not in page
    assert "gain kept: of its gain over a blind answer." in page
    assert "above the quality of\na blind answer with" in page
    assert "counted from that of a blind answer:" in page
    both = page_of([*by_accuracy, *by_macro_f1])
    assert ">constant answer or blind answer</th>" in both
    assert "gain over a constant answer or a blind answer." in both
    rows = [replace(one, metric="f1_macro") for one in four_ways()]
    ways = page_html([], rows, [], comparisons=[compared(rows)])
    assert "what it gains over a blind answer is at" in ways


def test_the_overview_shows_what_each_answer_recommends() -> None:
    # The raw operating point has two layers; corrected for chance it takes three.
    [answer] = answers_of(falling_curve())
    assert answer.operating_point is not None and answer.operating_point.fine_tuned_layers == 2
    table = overview([(answer, "answer-1")])
    found = dict(zip(table.names, table.rows[0], strict=True))
    assert (found["recommended"], found["kept"]) == ("3", "97.8 %")
    assert (found["operating point"], found["corrected for chance"]) == ("2", "3")
    [answer] = answers_of([*falling_curve(), probe(0.89)])
    table = overview([(answer, "answer-1")])
    found = dict(zip(table.names, table.rows[0], strict=True))
    assert (found["recommended"], found["kept"]) == ("linear model", "98.9 %")


def test_the_page_says_how_it_was_decided_and_by_which_target() -> None:
    text = " ".join(" ".join(Elements(page_of(falling_curve())).texts).split())
    assert "at least 90 % of the full model's" in text


def test_a_warning_stands_with_its_answer_and_what_decides_nothing_is_folded() -> None:
    page = page_of(falling_curve(chance=None) + falling_curve(task="cola"))
    first, second = page.split('class="answer"')[1:]
    warning = str(escape("chance is not known for this task: what a constant answer keeps"))
    assert first.split('class="warnings"')[1].split("</div>")[0].count(warning) == 1
    assert warning not in second
    shown, folded = second.split("<details>")
    remark = "raw and corrected answers disagree"
    assert remark in folded and remark not in shown


def test_the_curve_table_points_out_the_answer() -> None:
    ((name, answer),) = named(falling_curve()).items()
    table = curve_table(name, answer)
    # Of what the model learnt above chance, only three layers keep the target.
    assert table.rows[table.chosen or 0][:2] == ("3", "3")
    found = dict(zip(table.names, table.rows[2], strict=True))
    assert (found["frozen"], found["kept"]) == ("4", "92.2 %")
    assert found["quality"] == "83.0 ± 1.0"
    # Nothing is known of what it took.
    assert cost_table(name, answer).rows == ()
    ((name, answer),) = named(searched()).items()
    assert cost_table(name, answer).names == (
        *("tuned", "trained parameters", "seconds", "tries", "stopped"),
    )


def test_the_row_of_the_answer_has_a_sign_and_signs_are_explained() -> None:
    ((name, answer),) = named(searched()).items()
    table = curve_table(name, answer)
    # The answer's depth was measured at the highest rate that was explored.
    page = page_of(searched())
    mark = '<span role="img" aria-label="recommended">▶</span>'
    row = page.split('<tr class="chosen">')[1].split("</tr>")[0]
    assert row.count(mark) == 1 and mark not in page.split("<table>")[0]
    assert table.legend.startswith("▶ recommended; ↑ higher rates may be better")
    assert f"{table.caption} {table.legend}." in page


def test_no_heading_is_skipped() -> None:
    warned = falling_curve(chance=None)
    for rows in (warned, [*warned, *falling_curve(task="cola")]):
        page = page_of(rows)
        assert ">Warnings</h" in page
        levels = [int(tag[1]) for tag, _ in Elements(page).found if re.fullmatch("h[1-6]", tag)]
        assert all(after - before <= 1 for before, after in pairwise(levels))


def test_the_page_is_the_same_at_every_run() -> None:
    assert page_of(falling_curve()) == page_of(falling_curve())
