"""What each figure of a report says, as data: right numbers, and nothing where there is nothing."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from elsa_tune.analysis.answer import Certified
from elsa_tune.report import figures, freeze_charts, search_charts
from elsa_tune.report.charts import Chart, Panel, Series
from elsa_tune.report.folder import all_charts
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.report_examples import searched, subjects
from tests.unit.result_rows import EMBEDDINGS_ONLY, falling_curve, row, seeds


def by_name(panel: Panel) -> dict[str, Series]:
    return {series.name: series for series in panel.series}


def only(chart: Chart) -> Panel:
    (panel,) = chart.panels
    return panel


def svg_of(chart: Chart) -> ElementTree.Element:
    """The chart's first panel as the page has it."""
    return ElementTree.fromstring(figures.panel_svg(chart, 0))


def test_relative_change_is_against_the_full_model_in_percent() -> None:
    panel = only(freeze_charts.relative_change(subjects(falling_curve()), []))
    line = by_name(panel)["minilm"]
    assert line.x == (0, 3, 4, 5, 6)
    assert line.y == pytest.approx((0, -100 * 2 / 90, -100 * 7 / 90, -100 * 14 / 90, -100 / 3))
    # One standard deviation of .01 around each mean, on the scale of the full model's .9.
    assert line.low[1] == pytest.approx(line.y[1] - 100 * 0.01 / 0.9)
    assert line.high[1] == pytest.approx(line.y[1] + 100 * 0.01 / 0.9)
    assert by_name(panel)["target"].y == pytest.approx((-10, -10))
    assert panel.ticks == ((0, "0"), (3, "3"), (4, "4"), (5, "5"), (6, "6"))


def test_models_share_a_panel_and_differ_in_more_than_colour() -> None:
    rows = [one for model in "abcdef" for one in falling_curve(model=model)]
    chart = freeze_charts.relative_change(subjects(rows), [])
    looks = [series.look for series in only(chart).series if series.name != "target"]
    assert len({(look.marker, look.line) for look in looks}) == len(looks) == 6


def test_the_freeze_curve_marks_what_was_decided() -> None:
    (subject,) = subjects(falling_curve())
    sure = Certified(
        depth=FreezeDepth(3, True), fine_tuned_layers=3, confidence=0.95, procedure="a test"
    )
    decided = replace(subject, answer=replace(subject.answer, certified=sure))
    series = by_name(only(freeze_charts.freeze_curve([decided], [])))
    assert series["mean over seeds"].y == pytest.approx((90, 88, 83, 76, 60))
    assert (series["operating point"].x, series["operating point"].y) == (
        (4,),
        pytest.approx((83,)),
    )
    assert (series["corrected for chance"].x, series["certified"].x) == ((3,), (3,))
    assert series["target"].y == pytest.approx((81, 81))
    assert series["constant answer"].y == (50, 50)
    assert "keeps 92.2 %" in series["mean over seeds"].hover[2]


def test_the_freeze_curve_has_its_interval_and_its_seeds() -> None:
    (subject,) = subjects(falling_curve())
    points = tuple(
        replace(point, ci_low=0.7, ci_high=0.9)
        if point.depth.frozen_layers in (3, 4)
        else replace(point, ci_low=None, ci_high=None)
        for point in subject.answer.points
    )
    told = replace(subject, answer=replace(subject.answer, points=points))
    series = by_name(only(freeze_charts.freeze_curve([told], [])))
    mean = series["mean over seeds"]
    assert mean.low == (None, 70, 70, None, None)
    assert mean.high == (None, 90, 90, None, None)
    assert series["single seeds"].x[:4] == (0, 0, 0, 3)
    assert series["single seeds"].y[:4] == pytest.approx((89, 90, 91, 87))


def test_a_wide_interval_does_not_squeeze_what_was_measured() -> None:
    (subject,) = subjects(seeds(0, [0.9, 0.86], chance=None) + seeds(3, [0.85, 0.8], chance=None))
    points = tuple(replace(one, ci_low=0.0, ci_high=1.0) for one in subject.answer.points)
    wide = replace(subject, answer=replace(subject.answer, points=points))
    texts = svg_of(freeze_charts.freeze_curve([wide], [])).iter("text")
    ticks = [float(text.text or "") for text in texts if "end" in text.get("style", "")]
    # From the target, 79.2, to the best seed, 90.
    assert len(ticks) >= 3 and 75 < min(ticks) < max(ticks) < 95


def test_published_numbers_are_drawn_where_model_and_task_match() -> None:
    mine = subjects(falling_curve())
    printed = [
        replace(mine[0].answer, train_size=None),
        replace(mine[0].answer, train_size=50, task="rte", points=()),
        replace(mine[0].answer, task="cola"),
    ]
    for make in (freeze_charts.relative_change, freeze_charts.freeze_curve):
        legend = make(mine, printed).legend
        assert [look.hollow for name, look in legend.items() if "published" in name] == [True]
        assert not [name for name in make(mine, printed[2:]).legend if "published" in name]


def test_embeddings_only_stands_between_the_full_model_and_the_first_layer() -> None:
    rows = falling_curve() + seeds(EMBEDDINGS_ONLY, [0.89, 0.89])
    panel = only(freeze_charts.freeze_curve(subjects(rows), []))
    assert by_name(panel)["mean over seeds"].x[:3] == (0, 0.5, 3)
    assert (0.5, "emb.") in panel.ticks


def test_ticks_leave_one_another_room() -> None:
    depths = {FreezeDepth(n, n > 0) for n in range(25)} | {EMBEDDINGS_ONLY}
    ticks = freeze_charts.depth_ticks(depths)
    assert ticks[-1] == (24, "24")
    assert all(after[0] - before[0] >= 2 for before, after in itertools.pairwise(ticks))


def test_time_is_drawn_where_it_is_known() -> None:
    rows = [
        replace(one, train_seconds=60.0 - 9 * one.depth.frozen_layers) for one in falling_curve()
    ]
    panel = only(freeze_charts.training_time(subjects(rows)))
    assert by_name(panel)["minilm"].x == (60, 33, 24, 15, 6)
    assert by_name(panel)["minilm"].labels == ("N=0", "N=3", "N=4", "N=5", "N=6")
    assert by_name(panel)["operating point"].x == (24,)
    nothing = freeze_charts.training_time(subjects(falling_curve()))
    assert nothing.panels == () and nothing.left_out == (
        "The results do not tell the training times.",
    )


def test_the_heat_map_holds_completed_trials_and_marks_the_rate() -> None:
    rows, _ = searched()
    heat = only(search_charts.learning_rates(subjects(rows))).heat
    assert heat is not None
    assert heat.rows == ("1e-05", "3e-05")
    # The other rate was stopped early: the largest one is the best.
    assert heat.columns == ("0↑", "3↑", "4↑", "5↑", "6↑")
    # 1e-05 was stopped everywhere: no value, a sign that it was tried.
    stopped, completed = heat.cells[:5], heat.cells[5:]
    assert {(cell.row, cell.value, cell.note) for cell in stopped} == {(0, None, "×")}
    assert completed[0].value == pytest.approx(100 * (0.89 + 0.9 + 0.91 + 0.8) / 4)
    assert [cell.is_framed for cell in heat.cells] == 5 * [False] + 5 * [True]
    assert "1 stopped early" in stopped[0].hover


def test_many_rates_are_put_together() -> None:
    rates = [1e-5 * 1.1**step for step in range(40)]
    rows = falling_curve() + [
        row(3, 0.8, phase=Phase.EXPLORE, learning_rate=float(f"{rate:.4e}")) for rate in rates
    ]
    heat = only(search_charts.learning_rates(subjects(rows))).heat
    assert heat is not None and len(heat.rows) == search_charts.MOST_RATES
    assert heat.rows[0].startswith("1e-05 to ")


@pytest.mark.parametrize("rate", [None, 3e-5])
def test_without_a_choice_of_rates_there_is_no_heat_map(rate: float | None) -> None:
    chart = search_charts.learning_rates(subjects(falling_curve(learning_rate=rate)))
    assert chart.panels == () and "learning rate" in chart.left_out[0]


def test_early_stopping_ends_lines_where_trials_were_stopped() -> None:
    rows, histories = searched()
    chart = search_charts.early_stopping(subjects(rows), histories)
    assert [panel.title for panel in chart.panels] == [
        "the full model",
        *(f"N = {n}" for n in (3, 4, 5, 6)),
    ]
    series = by_name(chart.panels[0])
    assert series["chosen rate"].y == pytest.approx((60, 70, 80))
    assert series["stopped early"].y == pytest.approx((60, 70))
    assert (series["stopped here"].x, series["stopped here"].y) == ((2,), pytest.approx((70,)))
    assert chart.panels[0].y_title == "accuracy × 100"


def test_early_stopping_says_where_trials_competed_on_a_holdout() -> None:
    rows, histories = searched()
    held_out = [replace(row, selection="holdout") for row in rows]
    chart = search_charts.early_stopping(subjects(held_out), histories)
    assert {panel.y_title for panel in chart.panels} == {"accuracy on the holdout × 100"}
    assert "on the holdout at each evaluation" in chart.caption


def test_long_names_keep_their_ends() -> None:
    name = "organisation/a-model-whose-name-is-longer-than-any-panel-of-a-figure-could-be-v2 on rte"
    start, end = figures.shortened(name).split("…")
    assert name.startswith(start) and name.endswith(end) and min(len(start), len(end)) > 10
    assert len(figures.shortened(name)) == figures.LONGEST_NAME
    assert figures.shortened("minilm on rte") == "minilm on rte"


def test_a_sign_without_a_font_is_text_on_the_page_and_warns_of_nothing() -> None:
    # From a private plane of Unicode: no font has it. Warnings are errors here.
    chart = freeze_charts.freeze_curve(subjects(falling_curve(task="\U000f1234")), ())
    assert set(figures.draw(chart)) == {"png", "svg"}
    assert "\U000f1234".encode() in figures.draw(chart)["svg"]


def test_a_panel_of_the_page_has_text_variables_and_a_title_for_each_point() -> None:
    chart = freeze_charts.freeze_curve(subjects(falling_curve()), [])
    drawn = svg_of(chart)
    texts = [element.text for element in drawn.iter("text")]
    assert {"frozen layers N", "accuracy × 100", "3"} <= set(texts)
    titles = [element.text or "" for element in drawn.iter("title")]
    # Two ends of each line, and the five depths, at one of which three series tell of it.
    assert len(titles) == 2 + 2 + 5
    (told,) = (title for title in titles if "operating point" in title)
    assert "minilm: N = 4, k = 2 of 6\naccuracy 83.0 ± 1.0" in told
    assert "keeps 92.2 %" in told and "operating point: k = 2 of 6" in told
    written = figures.panel_svg(chart, 0)
    assert "var(--series-0)" in written and not re.search("#[0-9a-f]{6}\\b", written)


def test_each_cell_of_a_heat_map_has_its_title_and_its_label_whole() -> None:
    rows, _ = searched()
    drawn = svg_of(search_charts.learning_rates(subjects(rows)))
    titles = [element.text or "" for element in drawn.iter("title")]
    assert len(titles) == 2 * 5 and titles[0].startswith("N = 0, learning rate 1e-05")
    assert {"1e-05", "3e-05", "87.5", "×"} <= {element.text for element in drawn.iter("text")}


@pytest.mark.parametrize("evaluations", [1, 2, 3, 4, 7, 12])
def test_evaluations_have_whole_ticks(evaluations: int) -> None:
    trial = row(3, 0.7, phase=Phase.EXPLORE, search="first", trial="explore")
    history = {("first", "explore"): tuple(0.5 + n / 100 for n in range(evaluations))}
    rows = [*falling_curve(), trial]
    chart = search_charts.early_stopping(subjects(rows), history)
    texts = [text for text in svg_of(chart).iter("text") if "transform" not in text.attrib]
    ticks = [text.text or "" for text in texts if "middle" in text.get("style", "")]
    assert ticks.pop() == "evaluation"
    assert ticks and all(tick.isdigit() for tick in ticks) and len(set(ticks)) == len(ticks)


def test_early_stopping_is_drawn_of_one_answer() -> None:
    rows, histories = searched()
    more, others = searched("second", task="cola")
    chart = search_charts.early_stopping(subjects(rows + more), {**histories, **others})
    assert chart.panels == () and "one answer" in chart.left_out[0]
    chart = search_charts.early_stopping(subjects(rows), {})
    assert chart.panels == () and "no quality per evaluation" in chart.left_out[0]


def big() -> list[ResultRow]:
    """Nine tasks, four models, 24 layers."""
    return [
        one
        for model in ("bert_base", "bert_large", "roberta_base", "roberta_large")
        for task in ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
        for frozen in (0, *range(12, 25))
        for one in seeds(frozen, [0.9 - frozen / 200] * 2, model=model, task=task, layers=24)
    ]


POOR = {
    "one depth": seeds(0, [0.8, 0.81]),
    "no full model": seeds(3, [0.8, 0.81]),
    "no chance": falling_curve(chance=None),
    "a negative full model": seeds(0, [-0.1, -0.2]) + seeds(3, [-0.1, 0.1]),
    "a full model of nought": seeds(0, [0.0, 0.0], chance=0.0) + seeds(3, [0.1, 0.1], chance=0.0),
    "means without seeds": [row(n, 0.9 - n / 30, runs=5, seed=None) for n in (0, 3, 6)],
    "no rates": falling_curve(learning_rate=None),
    "nothing measured": [row(0, 0.8, phase=Phase.EXPLORE), row(3, 0.7, phase=Phase.EXPLORE)],
    "all failed": [
        row(0, None, status=TrialStatus.FAILED),
        row(3, None, status=TrialStatus.FAILED),
    ],
    "embeddings only": seeds(EMBEDDINGS_ONLY, [0.8, 0.81]),
    "several sizes": falling_curve(train_size=50) + falling_curve(),
    "nine tasks and four models": big(),
}


@pytest.mark.parametrize("rows", POOR.values(), ids=POOR.keys())
def test_every_figure_is_drawn_or_says_why_not(rows: list[ResultRow]) -> None:
    for chart in all_charts(subjects(rows), {}):
        assert chart.panels or chart.left_out
        for panel in chart.panels:
            for series in panel.series:
                assert len(series.x) == len(series.y) > 0
                assert len(series.low) == len(series.high) and len(series.low) in (0, len(series.x))
                assert len(series.hover) in (0, len(series.x))
