"""What each figure of a report says, as data: right numbers, and nothing where there is nothing."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from elsa_tune.analysis.answer import Certified
from elsa_tune.errors import shortened
from elsa_tune.report import charts, figures
from elsa_tune.report.charts import Chart, Panel, Series, all_charts
from elsa_tune.report.tables import curve_table, overview
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.report_examples import named, searched
from tests.unit.result_rows import EMBEDDINGS_ONLY, falling_curve, row, seeds
from tests.unit.test_probe_answer import probe


def by_name(panel: Panel) -> dict[str, Series]:
    return {series.name: series for series in panel.series}


def by_legend(chart: Chart) -> dict[str, charts.Style]:
    return {series.name: series.style for panel in chart.panels for series in panel.series}


def only(chart: Chart) -> Panel:
    (panel,) = chart.panels
    return panel


def svg_of(chart: Chart) -> ElementTree.Element:
    """Return the chart's first panel as the page has it."""
    return ElementTree.fromstring(figures.page_svgs(chart)[0])


def test_the_freeze_curve_marks_what_was_decided() -> None:
    ((name, answer),) = named(falling_curve()).items()
    sure = Certified(
        candidate=FreezeDepth(3, True), fine_tuned_layers=3, confidence=0.95, procedure="a test"
    )
    decided = replace(answer, certified=sure)
    series = by_name(only(charts.freeze_curve({name: decided})))
    assert series["mean over seeds"].x == (0, 1, 2, 3, 6)
    assert series["mean over seeds"].y == pytest.approx((60, 76, 83, 88, 90))
    assert (series["operating point"].x, series["operating point"].y) == (
        (2,),
        pytest.approx((83,)),
    )
    assert series["target: 90 % of the full model's"].y == pytest.approx((81, 81))
    assert series["constant answer"].y == (50, 50)
    # The certified depth is the answer: one arrow says it, and no marks stand below the arrow.
    panel = only(charts.freeze_curve({name: decided}))
    assert panel.arrow == charts.Arrow(text="answer: 3 of 6 layers", x=3, y=pytest.approx(88))
    assert not {"corrected for chance", "certified"} & set(series)
    assert panel.x_title == "layers fine-tuned"


def test_the_full_model_is_never_certified() -> None:
    ((name, answer),) = named(falling_curve()).items()
    nothing = Certified(
        candidate=FreezeDepth(0, False), fine_tuned_layers=6, confidence=0.95, procedure="a test"
    )
    decided = replace(answer, certified=nothing, corrected_certified=nothing)
    assert decided.claimed == nothing and decided.certified_depth is None
    assert "certified" not in by_name(only(charts.freeze_curve({name: decided})))
    plain = replace(answer, certified=None, corrected_certified=None)
    assert overview([(decided, "")]).rows == overview([(plain, "")]).rows


def test_of_a_score_below_zero_there_is_no_target_to_draw() -> None:
    scores = {"metric": "neg_rmse", "chance": -0.52}
    rows = [*seeds(0, [-0.3, -0.31], **scores), *seeds(3, [-0.34, -0.33], **scores)]
    series = by_name(only(charts.freeze_curve(named(rows))))
    assert series["constant answer"].y == (-52, -52)
    assert not any(name.startswith("target") for name in series)


def test_the_linear_probe_is_a_line_and_no_depth() -> None:
    series = by_name(only(charts.freeze_curve(named([*falling_curve(), probe(0.7)]))))
    line = series["linear probe, nothing fine-tuned"]
    assert line.y == pytest.approx((70, 70)) and line.style["marker"] == ""
    assert line.x[0] < 0 and line.x[1] > 6
    assert series["mean over seeds"].x == (0, 1, 2, 3, 6)


def test_where_a_linear_model_is_enough_the_arrow_points_at_its_line() -> None:
    ((name, answer),) = named([*falling_curve(), probe(0.89)]).items()
    arrow = only(charts.freeze_curve({name: answer})).arrow
    assert arrow is not None and (arrow.text, arrow.y) == (
        "answer: fine-tune nothing",
        pytest.approx(89),
    )
    assert arrow.x not in (0, 1, 2, 3, 6)  # no depth's place
    assert curve_table(name, answer).chosen is None


def test_without_an_answer_nothing_is_pointed_at() -> None:
    assert only(charts.freeze_curve(named(seeds(3, [0.8, 0.81])))).arrow is None


def test_two_runs_have_no_interval_and_three_have() -> None:
    rows = seeds(0, [0.9, 0.91, 0.89]) + seeds(3, [0.85, 0.83])
    ((name, answer),) = named(rows).items()
    assert all(point.ci_low is not None for point in answer.points)
    mean = by_name(only(charts.freeze_curve({name: answer})))["mean over seeds"]
    assert mean.x == (3, 6)
    assert mean.low[0] is None and mean.high[0] is None
    assert mean.low[1] is not None and mean.high[1] is not None


def test_the_freeze_curve_has_its_interval_and_its_seeds() -> None:
    ((name, answer),) = named(falling_curve()).items()
    points = tuple(
        replace(point, ci_low=0.7, ci_high=0.9)
        if point.candidate.frozen_layers in (3, 4)
        else replace(point, ci_low=None, ci_high=None)
        for point in answer.points
    )
    told = {name: replace(answer, points=points)}
    series = by_name(only(charts.freeze_curve(told)))
    mean = series["mean over seeds"]
    assert mean.low == (None, None, 70, 70, None)
    assert mean.high == (None, None, 90, 90, None)
    assert series["single runs"].x[-4:] == (3, 6, 6, 6)
    assert series["single runs"].y[-3:] == pytest.approx((89, 90, 91))


def test_a_wide_interval_does_not_squeeze_what_was_measured() -> None:
    rows = seeds(0, [0.9, 0.9, 0.86], chance=None) + seeds(3, [0.85, 0.85, 0.8], chance=None)
    ((name, answer),) = named(rows).items()
    points = tuple(replace(one, ci_low=0.0, ci_high=1.0) for one in answer.points)
    wide = {name: replace(answer, points=points)}
    texts = svg_of(charts.freeze_curve(wide)).iter("text")
    ticks = [float(text.text or "") for text in texts if "end" in text.get("style", "")]
    # From the target, 79.8, to the best seed, 90.
    assert len(ticks) >= 3 and 75 < min(ticks) < max(ticks) < 95


def test_embeddings_only_stands_before_the_full_model() -> None:
    rows = falling_curve() + seeds(EMBEDDINGS_ONLY, [0.89, 0.89])
    panel = only(charts.freeze_curve(named(rows)))
    assert by_name(panel)["mean over seeds"].x[-3:] == (3, 5.5, 6)
    assert (5.5, "emb.") in panel.ticks


def test_ticks_leave_one_another_room() -> None:
    ticks = charts.depth_ticks(range(25), [(23.5, "emb.")])
    assert ticks[0] == (0, "0")
    assert all(after[0] - before[0] >= 2 for before, after in itertools.pairwise(ticks))


def test_a_line_holds_the_completed_trials_of_a_depth_and_marks_its_rate() -> None:
    rows = [*searched(), row(3, 0.7, phase=Phase.EXPLORE, learning_rate=1e-4, search="first")]
    panel = only(charts.learning_rates(named(rows)))
    series = by_name(panel)
    assert list(series) == ["all layers", "last 3", "last 2", "last 1", "head alone", "measured"]
    # 1e-05 was stopped everywhere.
    assert series["all layers"].x == pytest.approx((math.log10(3e-5),))
    assert series["all layers"].y == pytest.approx((100 * (0.89 + 0.9 + 0.91 + 0.8) / 4,))
    assert series["last 3"].x == pytest.approx((math.log10(3e-5), -4))
    assert series["last 3"].y[1] == pytest.approx(70.0)
    marks = [one for one in panel.series if one.name == "measured"]
    assert len(marks) == 5 and {one.x for one in marks} == {series["all layers"].x}
    assert [text for _, text in panel.ticks] == ["3e-5", "1e-4"]


def test_depths_differ_in_more_than_colour() -> None:
    rows = [
        one
        for rate in (1e-5, 3e-5)
        for frozen in (0, *range(12, 25))
        for one in seeds(frozen, [0.8], layers=24, learning_rate=rate)
    ]
    styles = by_legend(charts.learning_rates(named(rows)))
    assert len({(one["marker"], one["linestyle"]) for one in styles.values()}) == 14 + 1


def test_many_rates_leave_one_another_room() -> None:
    rates = [1e-5 * 1.1**step for step in range(40)]
    rows = falling_curve() + [
        row(3, 0.8, phase=Phase.EXPLORE, learning_rate=float(f"{rate:.4e}")) for rate in rates
    ]
    panel = only(charts.learning_rates(named(rows)))
    assert 4 < len(panel.ticks) <= charts.MOST_RATE_TICKS + 1


@pytest.mark.parametrize("rate", [None, 3e-5])
def test_without_a_choice_of_rates_there_is_no_figure_of_them(rate: float | None) -> None:
    chart = charts.learning_rates(named(falling_curve(learning_rate=rate)))
    assert chart.panels == ()


def test_long_names_keep_their_ends() -> None:
    name = "organisation/a-model-whose-name-is-longer-than-any-panel-of-a-figure-could-be-v2 on rte"
    start, end = shortened(name, figures.LONGEST_NAME).split("…")
    assert name.startswith(start) and name.endswith(end) and min(len(start), len(end)) > 10
    assert len(shortened(name, figures.LONGEST_NAME)) == figures.LONGEST_NAME
    assert shortened("minilm on rte", figures.LONGEST_NAME) == "minilm on rte"


def test_panels_whose_titles_are_shortened_alike_have_them_in_full() -> None:
    long = "my-organisation/bert-base-uncased-epoch{}"
    rows: list[ResultRow] = []
    for number in (1, 2, 3):
        rows += falling_curve(model=long.format(number), task="sentiment_of_reviews_en")
    other = f"{long.format(4)} on rte"
    rows += falling_curve(model=long.format(4))
    chart = charts.freeze_curve(named(rows))
    names = [panel.title for panel in chart.panels]
    assert len({shortened(name, figures.LONGEST_NAME) for name in names}) == 2
    with figures._drawing("test"):
        figure = figures._figure(chart)
        [legend] = figure.legends
        titles = [axes._left_title for axes in figure.axes]
        boxes = [title.get_window_extent() for title in titles]
        shown = [title.get_text().replace("\n", " ") for title in titles]
        lowest_entry = legend.get_window_extent().y0
        tops = [axes.get_tightbbox().y1 for axes in figure.axes]
    assert shown == [*names[:3], shortened(other, figures.LONGEST_NAME)]
    # None is cut, nor stands on what is above it.
    assert all(box.x1 <= figure.bbox.width for box in boxes)
    assert boxes[0].y1 <= lowest_entry
    assert tops[2] <= figure.axes[0].get_tightbbox().y0


def test_a_sign_without_a_font_is_text_on_the_page_and_warns_of_nothing() -> None:
    # From a private plane of Unicode: no font has it. Warnings are errors here.
    chart = charts.freeze_curve(named(falling_curve(task="\U000f1234")))
    assert set(figures.draw(chart)) == {"png", "svg"}
    assert "\U000f1234".encode() in figures.draw(chart)["svg"]


def test_a_panel_of_the_page_has_text_and_variables() -> None:
    chart = charts.freeze_curve(named(falling_curve()))
    drawn = svg_of(chart)
    texts = [element.text for element in drawn.iter("text")]
    assert {"layers fine-tuned", "accuracy × 100", "3"} <= set(texts)
    written = figures.page_svgs(chart)[0]
    assert "var(--series-0)" in written and not re.search("#[0-9a-f]{6}\\b", written)


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
    "a depth that diverged": [
        *falling_curve(),
        *(row(1, None, seed=seed, status=TrialStatus.DIVERGED) for seed in (1, 2)),
        row(1, 0.6, phase=Phase.EXPLORE, learning_rate=1e-5),
    ],
    "embeddings only": seeds(EMBEDDINGS_ONLY, [0.8, 0.81]),
    "several sizes": falling_curve(train_size=50) + falling_curve(),
    "nine tasks and four models": big(),
}


@pytest.mark.parametrize("rows", POOR.values(), ids=POOR.keys())
def test_every_figure_that_there_is_has_points(rows: list[ResultRow]) -> None:
    for chart in all_charts(named(rows)):
        assert chart.panels
        for panel in chart.panels:
            for series in panel.series:
                assert len(series.x) == len(series.y) > 0
                assert len(series.low) == len(series.high) and len(series.low) in (0, len(series.x))
