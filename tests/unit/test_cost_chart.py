"""The figure of quality against cost, and the reports that have it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import escape
from matplotlib.text import Text

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.errors import shortened
from elsa_tune.report import charts, figures
from elsa_tune.report.charts import Chart, Series
from elsa_tune.report.cost_chart import quality_by_cost
from elsa_tune.report.folder import write_report
from elsa_tune.report.page import by_name, comparisons_by_name
from elsa_tune.report.tables import ways_table
from elsa_tune.results.results_csv import write_results
from elsa_tune.specs.adapt import candidates
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.adapt.named_way import NamedWay
from elsa_tune.specs.cost import Cost
from elsa_tune.specs.result_row import ResultRow
from tests.conftest import Run
from tests.unit.result_rows import seeds
from tests.unit.ways import ADAPTER, LAST_TWO, Adapter, compared, four_ways, way_rows


def spread_times(rows: list[ResultRow]) -> list[ResultRow]:
    """Return rows whose second run takes as long as recorded, the others a tenth less or more."""
    return [
        replace(one, train_seconds=(one.train_seconds or 0.0) * (1 + 0.1 * ((one.seed or 0) - 2)))
        for one in rows
    ]


def series_of(rows: list[ResultRow], unit: Cost = Cost.TIME) -> dict[str, Series]:
    chart = quality_by_cost({"minilm on rte": compared(rows, unit=unit)})
    [panel] = chart.panels
    return {series.name: series for series in panel.series}


def test_each_way_is_a_point_with_bars_both_ways() -> None:
    drawn = series_of(spread_times(four_ways()))
    adapter = drawn["adapters of size 8"]
    assert adapter.x == (pytest.approx(math.log10(60)),)
    assert adapter.y == (pytest.approx(90.0),)
    assert adapter.left == (pytest.approx(math.log10(54)),)
    assert adapter.right == (pytest.approx(math.log10(66)),)
    [low], [high] = adapter.low, adapter.high
    assert low is not None and high is not None and low < 90 < high
    target = drawn["95 % of the best gain"]
    assert target.y == (pytest.approx(88.0),) * 2
    assert drawn["recommended"].x == drawn["the last 2 layers"].x


def test_of_a_score_below_zero_no_target_is_drawn() -> None:
    below = [replace(one, quality=one.quality - 2, chance=None) for one in four_ways()]
    assert not [name for name in series_of(below) if name.startswith("95 %")]


def ways_as_measured() -> list[ResultRow]:
    """Return seven ways that stand as they do in a recorded study, with runs' own spread."""
    found = {
        FreezeDepth(6, True): (0.701, 0.4),
        FreezeDepth(4, True): (0.808, 8.8),
        Lora(last=3): (0.803, 11.4),
        FreezeDepth(3, True): (0.809, 14.9),
        BitFit(): (0.780, 21.9),
        Lora(): (0.815, 25.5),
        FreezeDepth(0, False): (0.805, 33.2),
    }
    rows: list[ResultRow] = []
    for candidate, (quality, seconds) in found.items():
        rows += way_rows(candidate, quality, train_seconds=seconds, chance=0.509)
    return rows


def test_each_way_has_a_look_of_its_own() -> None:
    chart = quality_by_cost({"minilm on sst2": compared(ways_as_measured())})
    styles = [one.style for one in chart.panels[0].series if one.style["marker"] and one.low]
    assert len(styles) == 7
    # A grey print has the shapes alone.
    assert len({style["marker"] for style in styles}) == 7
    assert len({style["color"] for style in styles}) == 7
    many = [charts.point_style(number) for number in range(24)]
    shapes = {(style["marker"], style["markerfacecolor"] == style["color"]) for style in many}
    assert len(shapes) == 24


def legend_of(names: Sequence[str]) -> list[str]:
    """Return the legend's entries for ways of these names."""
    rows: list[ResultRow] = []
    for number, name in enumerate(names, 1):
        rows += way_rows(NamedWay(name), 0.8, train_seconds=float(number))
    chart = quality_by_cost({"minilm on rte": compared(rows)})
    with figures._drawing("test"):
        figure = figures._figure(chart)
        [legend] = figure.legends
        width = figure.bbox.width
        boxes = [text.get_window_extent() for text in legend.get_texts()]
    assert all(box.x0 >= 0 and box.x1 <= width for box in boxes)
    return [text.get_text() for text in legend.get_texts()]


def test_ways_that_are_shortened_alike_keep_an_entry_each() -> None:
    long = "LoRA on the query and value projections, rank {}, of all layers, with a warm up of .06"
    alike = [long.format(rank) for rank in (8, 16, 32)]
    assert len({shortened(name, figures.LONGEST_NAME) for name in alike}) == 1
    found = [name.replace("\n", " ") for name in legend_of([*alike, "BitFit"])]
    assert {*alike, "BitFit"} <= set(found)
    # One that is like no other is short.
    assert shortened(alike[0], figures.LONGEST_NAME) in legend_of([alike[0], "BitFit"])


def test_a_way_looks_alike_in_every_panel() -> None:
    rows = ways_as_measured()
    swapped = {"bitfit": 1.0, "6": 30.0}
    others = [
        replace(one, train_seconds=swapped.get(one.candidate.label, one.train_seconds))
        for one in rows
        if one.candidate.label != "4"
    ]
    first, second = quality_by_cost({"one": compared(rows), "two": compared(others)}).panels
    styles = {one.name: one.style for one in first.series}
    assert [one.name for one in first.series] != [one.name for one in second.series]
    assert all(one.style == styles[one.name] for one in second.series)
    # Nor does another order of costs change it.
    other_order = [
        replace(one, train_seconds=100 / (one.train_seconds or 1.0)) for one in ways_as_measured()
    ]
    turned = series_of(other_order)
    assert all(turned[name].style == style for name, style in styles.items() if name in turned)


def hidden_points(chart: Chart) -> int:
    """Return how many points stand behind an arrow's words."""
    with figures._drawing("test"):
        figure = figures._figure(chart)
        [axes] = figure.axes
        [panel] = chart.panels
        [words] = axes.texts
        words_box = Text.get_window_extent(words)
    points = [
        axes.transData.transform((x, y))
        for series in panel.series
        if series.style["marker"]
        for x, y in zip(series.x, series.y, strict=True)
    ]
    radius = 4
    return sum(words_box.padded(radius).contains(x, y) for x, y in points)


def test_no_point_is_hidden_by_the_words_of_an_arrow() -> None:
    chart = quality_by_cost({"minilm on sst2": compared(ways_as_measured())})
    assert chart.panels[0].arrow is not None
    assert hidden_points(chart) == 0
    # Nor where another way stands at the words' own place.
    other = way_rows(ADAPTER, 0.74, train_seconds=25.0, chance=0.509)
    crowded = compared([*ways_as_measured(), *other])
    assert hidden_points(quality_by_cost({"minilm on sst2": crowded})) == 0


def test_ticks_are_round_costs() -> None:
    chart = quality_by_cost({"minilm on rte": compared(four_ways())})
    assert [text for _, text in chart.panels[0].ticks] == ["1", "10", "100"]
    assert chart.panels[0].arrow is not None
    assert chart.panels[0].arrow.text == "cheapest certified"
    near = [one for one in four_ways() if one.candidate.label in ("adapter-8", "0")]
    chart = quality_by_cost({"minilm on rte": compared(near)})
    assert [text for _, text in chart.panels[0].ticks] == ["50", "100"]
    many = [replace(one, train_seconds=1e5 * (one.train_seconds or 0.0)) for one in four_ways()]
    chart = quality_by_cost({"minilm on rte": compared(many)})
    assert [text for _, text in chart.panels[0].ticks] == ["100,000", "1 M", "10 M"]


def test_without_costs_there_is_no_figure() -> None:
    rows = [replace(one, train_seconds=None) for one in four_ways()]
    assert quality_by_cost({"minilm on rte": compared(rows)}).panels == ()
    free = [replace(one, train_seconds=0.0) for one in four_ways()]
    assert quality_by_cost({"minilm on rte": compared(free)}).panels == ()


def test_one_run_has_no_bars() -> None:
    drawn = series_of([one for one in four_ways() if one.seed == 1])
    adapter = drawn["adapters of size 8"]
    assert (adapter.low, adapter.high, adapter.left, adapter.right) == ((None,),) * 4


def test_level_bars_are_drawn() -> None:
    chart = quality_by_cost({"minilm on rte": compared(spread_times(four_ways()))})
    [panel] = chart.panels
    bare = [replace(series, left=(), right=()) for series in panel.series]
    without = replace(chart, panels=(replace(panel, series=tuple(bare)),))
    bars = [figures.draw(one)["svg"].decode().count("LineCollection") for one in (chart, without)]
    # One for each of the four ways.
    assert bars[0] - bars[1] == 4


def test_the_last_tick_s_text_is_not_cut() -> None:
    rows = [replace(one, train_seconds=5.05 * (one.train_seconds or 0.0)) for one in four_ways()]
    comparison = compared(rows)
    alone = quality_by_cost({"minilm on rte": comparison})
    beside = quality_by_cost({"one": comparison, "two": comparison})
    for chart in (alone, beside):
        with figures._drawing("test"):
            figure = figures._figure(chart)
            for axes in figure.axes:
                text = axes.get_xticklabels()[-1]
                assert text.get_text() == "1,000"
                assert text.get_window_extent().x1 <= figure.bbox.x1


def test_a_report_has_it_where_ways_are_compared(tmp_path: Path) -> None:
    rows = four_ways()
    answers = answer_rows(rows)
    comparison = compared(rows)
    write_report(answers, rows, tmp_path, comparisons=[comparison])
    assert (tmp_path / "figures" / "quality_by_cost.svg").exists()
    page = (tmp_path / "index.html").read_text()
    assert "The cheapest way" in page and "adapters of size 8: 1 min 00 s" in page
    [told] = json.loads((tmp_path / "ways.json").read_text())
    assert told["recommended"]["label"] == "4"
    assert len((tmp_path / "ways.csv").read_text().splitlines()) == 5
    # Written again without, it leaves no figure behind.
    write_report(answers, rows, tmp_path)
    assert not (tmp_path / "figures" / "quality_by_cost.svg").exists()
    assert not (tmp_path / "ways.json").exists() and not (tmp_path / "ways.csv").exists()
    assert "The cheapest way" not in (tmp_path / "index.html").read_text()


def test_the_page_has_a_row_for_each_way(tmp_path: Path) -> None:
    rows = four_ways()
    table = ways_table("minilm on rte", compared(rows))
    assert [row[0] for row in table.rows] == [
        *("the head alone", "the last 2 layers", "adapters of size 8", "the full model"),
    ]
    assert table.chosen == 1
    found = dict(zip(table.names, table.rows[1], strict=True))
    assert (found["quality"], found["kept"], found["certified"]) == ("89.8 ± 0.1", "99.8 %", "yes")
    for answers in (answer_rows(rows), []):
        [page, *_] = write_report(answers, rows, tmp_path, comparisons=[compared(rows)])
        assert page.read_text().count(escape(table.caption)) == 2  # its caption and its label


def test_the_comparison_warns_of_what_the_answer_beside_it_does_not_know(tmp_path: Path) -> None:
    rows = [
        *(row for row in four_ways() if row.candidate not in (ADAPTER, LAST_TWO)),
        *seeds(ADAPTER, [0.9, 0.9, 0.5], train_seconds=60.0),
        *seeds(LAST_TWO, [0.9, 0.9, 0.5], train_seconds=20.0),
    ]
    comparison = compared(rows)
    of_both, of_ways = [str(escape(one.text)) for one in comparison.warnings if "of 3" in one.text]
    [page, *_] = write_report(answer_rows(rows), rows, tmp_path, comparisons=[comparison])
    text = page.read_text()
    above, below = text.split("Warnings of the comparison")
    assert of_both in above and of_ways in below
    # Each once.
    assert of_both not in below and of_ways not in above
    [page, *_] = write_report([], rows, tmp_path, comparisons=[comparison])
    text = page.read_text()
    assert of_both in text and of_ways in text


def test_a_comparison_stands_beside_the_answer_on_the_same_task() -> None:
    rows = four_ways()
    other = [replace(one, task="cola") for one in way_rows(ADAPTER, 0.9)]
    named = by_name(answer_rows(rows))
    found = comparisons_by_name(named, [compared(other), compared(rows)])
    # Without an answer it is named as one would be.
    assert list(found) == ["minilm on cola", "minilm on rte"]


def test_a_report_of_ways_alone_has_their_sections_and_figures(tmp_path: Path) -> None:
    rows = four_ways()
    [page, *_] = write_report([], rows, tmp_path, comparisons=[compared(rows)])
    text = page.read_text()
    assert (
        "<h1>The cheapest way to adapt the model that keeps 95 % of the best: minilm on rte" in text
    )
    assert "adapters of size 8: 1 min 00 s" in text
    assert "It keeps the target where what it gains" in text and "operating" not in text
    assert text.count("<svg") == 1
    assert (tmp_path / "figures" / "quality_by_cost.svg").exists()


def test_a_task_without_a_freeze_curve_is_counted_and_has_a_section(tmp_path: Path) -> None:
    rows = four_ways()
    other = [replace(one, task="cola") for one in rows]
    comparisons = [compared(rows), compared(other)]
    [page, *_] = write_report(answer_rows(rows), rows, tmp_path, comparisons=comparisons)
    text = page.read_text()
    assert "minilm on 2 tasks" in text and "2 of 2 questions have an answer." in text
    assert '<a href="#answer-2">cola</a>' in text and "ways compared, no freeze curve" in text
    of_cola = text.split('<section id="answer-2"')[1].split("</section>")[0]
    assert "<h2>minilm on cola</h2>" in of_cola and of_cola.count("<svg") == 1


def test_the_command_writes_it_where_a_way_has_no_place_on_the_curve(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = {**candidates._METHODS, Adapter.method: Adapter}
    monkeypatch.setattr(candidates, "_METHODS", methods)
    for name, rows in (
        ("ways", four_ways()),
        ("depths", [one for one in four_ways() if one.candidate.is_ranked]),
    ):
        table = tmp_path / f"{name}.csv"
        table.write_text(write_results(rows), encoding="utf-8")
        assert run("report", "--from", table, "--out", tmp_path / name).status == 0
    assert (tmp_path / "ways" / "figures" / "quality_by_cost.png").exists()
    assert not (tmp_path / "depths" / "figures" / "quality_by_cost.png").exists()
    with_ways = (tmp_path / "ways" / "curve.csv").read_text()
    assert with_ways == (tmp_path / "depths" / "curve.csv").read_text()


def test_a_report_takes_the_cost_that_compare_takes(run: Run, tmp_path: Path) -> None:
    rows = [
        replace(one, trainable_parameters={"0": 100.0, "4": 50.0, "6": 1.0}[one.candidate.label])
        for one in four_ways()
        if one.candidate.is_ranked
    ]
    table = tmp_path / "depths.csv"
    table.write_text(write_results(rows), encoding="utf-8")
    asked = ("report", "--from", table, "--out", tmp_path / "report")
    assert run(*asked, "--cost", "parameters").status == 0
    # Depths alone are compared too where a cost is asked for.
    [told] = json.loads((tmp_path / "report" / "ways.json").read_text())
    assert told["cost_unit"] == "parameters"
    figure = (tmp_path / "report" / "figures" / "quality_by_cost.svg").read_text()
    assert "trained parameters" in figure
    assert "--cost parameters --out again" in (tmp_path / "report" / "index.html").read_text()
    refused = run(*asked, "--cost", "latency")
    assert refused.status == 2 and "ask for time, memory or parameters" in refused.err
    assert run(*asked, "--cost", "money").status == 2
