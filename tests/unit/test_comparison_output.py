"""What a comparison looks like: JSON, CSV, tables, Markdown, the command and the function."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import elsa_tune
from elsa_tune.analysis.answer_json import as_json
from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.comparison_json import COLUMNS, comparison_object, comparisons_csv
from elsa_tune.analysis.comparing.ways import WayComparison
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.wording.comparison_tables import comparison_markdown
from elsa_tune.analysis.wording.fairness import times_text
from elsa_tune.analysis.wording.ways import cost_cell
from elsa_tune.cli.comparison_tables import print_comparisons
from elsa_tune.errors import UsageError
from elsa_tune.results.results_csv import write_results
from elsa_tune.specs.adapt import candidates
from elsa_tune.specs.adapt.named_way import NamedWay
from elsa_tune.specs.cost import Cost
from elsa_tune.specs.result_row import ResultRow
from tests.conftest import Run
from tests.recorded_search import searched
from tests.unit.ways import (
    ADAPTER,
    FULL,
    HEAD,
    LAST_TWO,
    Adapter,
    compared,
    explored,
    four_ways,
    way_rows,
)

Save = Callable[[Sequence[ResultRow]], Path]


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Save]:
    """Write rows as a results table, where adapters are known."""
    methods = {**candidates._METHODS, Adapter.method: Adapter}
    monkeypatch.setattr(candidates, "_METHODS", methods)

    def write(rows: Sequence[ResultRow]) -> Path:
        path = tmp_path / "results.csv"
        path.write_text(write_results(rows), encoding="utf-8")
        return path

    yield write


def accurate(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return rows of which a table alone certifies something."""
    return [replace(one, examples=100_000) for one in rows]


def printed(comparison: WayComparison, *, width: int = 200, details: bool = False) -> str:
    stream = io.StringIO()
    print_comparisons([comparison], Console(file=stream, width=width), details=details)
    return stream.getvalue()


def numbers(value: Any) -> Iterator[float]:
    """Yield every number of a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    if isinstance(value, float):
        yield value


def test_json_has_every_way_and_what_was_decided() -> None:
    rows = [*explored(FULL, {1e-5: 0.8, 3e-5: 0.9}), *explored(ADAPTER, {3e-5: 0.9, 1e-3: 0.7})]
    [told] = json.loads(as_json([comparison_object(compared([*rows, *four_ways()]))]))
    assert (told["schema_version"], told["claim"], told["cost_unit"]) == (1, "corrected", "time")
    assert (told["target"], told["confidence"], told["reason"]) == (0.95, 0.95, None)
    assert told["recommended"] == {
        "frozen_layers": 4,
        "embeddings_frozen": True,
        "method": "freeze",
        "label": "4",
        "fine_tuned_layers": 2,
        "quality": 0.898,
        "learning_rate": 3e-5,
        "cost": 20.0,
    }
    assert told["certified"] == ["4", "adapter-8", "0"] and told["basis"] == "certified"
    assert [way["label"] for way in told["ways"]] == ["6", "4", "adapter-8", "0"]
    head, last_two, adapter, _ = told["ways"]
    assert adapter["method"] == "adapter" and adapter["candidate"] == "A8"
    assert adapter["frozen_layers"] is None and adapter["fine_tuned_layers"] is None
    assert adapter["rates_explored"] == 2 and adapter["rate_at_border"] == "low"
    assert (head["certified"], head["reaches_target"], head["p_value"]) == (False, False, 1.0)
    assert last_two["recommended"] is True and last_two["p_value"] < 0.05 / 4
    assert told["unsettled"] == []
    assert told["equivalence"]["label"] == "4" and 0 < told["equivalence"]["most_better"] < 0.01
    assert told["rate_ratios"][0]["method"] == "adapter" and told["rate_ratios"][0]["at_border"]
    assert told["headline"] == compared(four_ways()).first_lines.headline
    assert set(COLUMNS) <= {*told, *adapter}


@pytest.mark.parametrize(
    "rows",
    [
        four_ways(),
        [replace(one, chance=None) for one in four_ways()],
        way_rows(FULL, 0.9),
        explored(FULL, {1e-5: 0.9}),
        [*way_rows(FULL, 0.5), *way_rows(HEAD, 0.4)],
        [replace(one, train_seconds=math.nan) for one in four_ways()],
        [replace(one, quality=0.0, chance=0.0, metric="matthews") for one in four_ways()],
    ],
)
def test_json_is_valid_whatever_is_missing(rows: list[ResultRow]) -> None:
    comparison = compared(rows)
    told = json.loads(as_json([comparison_object(comparison)]))
    assert all(math.isfinite(number) for number in numbers(told))
    shown = f"{printed(comparison, details=True)}{comparison_markdown(comparison)}{comparison!r}"
    assert "None" not in shown and "nan" not in shown
    assert list(csv.DictReader(io.StringIO(comparisons_csv([comparison])))) is not None


def test_csv_has_a_line_for_each_way() -> None:
    lines = list(csv.DictReader(io.StringIO(comparisons_csv([compared(four_ways())]))))
    assert tuple(lines[0]) == COLUMNS
    assert [line["label"] for line in lines] == ["6", "4", "adapter-8", "0"]
    assert [line["recommended"] for line in lines] == ["false", "true", "false", "false"]
    assert lines[2]["frozen_layers"] == "" and float(lines[2]["cost"]) == 60.0


def test_the_table_marks_what_is_recommended_and_what_is_certified() -> None:
    lines = printed(compared(four_ways())).splitlines()
    assert lines[0] == "minilm, task rte (accuracy x 100)"
    assert lines[1].startswith("Fine-tune the last 2 of 6 layers at learning rate 3e-5: accuracy")
    [chosen] = [line for line in lines if line.startswith("▶✓")]
    assert chosen.split()[1:6] == ["the", "last", "2", "layers", "89.8"]
    [header] = [line for line in lines if line.lstrip().startswith("way")]
    assert "memory" not in header and "tries" not in header
    assert "  Differ?" not in "\n".join(lines)
    assert any("✓ certified to keep 95 % of the best gain over guessing" in line for line in lines)
    assert lines[-1] == "--details prints every line and column."


def test_a_way_that_learnt_nothing_has_no_best_rate_that_lies_at_a_border() -> None:
    rows = [
        *explored(FULL, {1e-5: 0.8, 3e-5: 0.9, 1e-4: 0.7}),
        *explored(ADAPTER, {1e-4: 0.5, 3e-4: 0.5, 1e-3: 0.5}),
        *way_rows(FULL, 0.9, learning_rate=3e-5),
        *way_rows(ADAPTER, 0.5, learning_rate=1e-4),
    ]
    text = printed(compared(rows))
    assert "learnt nothing at any of 3 rates from 1e-4 to 1e-3" in text
    assert "↑" not in text and "higher rates may be better" not in text


def test_details_have_every_column() -> None:
    text = printed(compared([*explored(FULL, {1e-5: 0.9}), *four_ways()]), details=True)
    [header] = [line for line in text.splitlines() if line.lstrip().startswith("way")]
    assert re.split(r"  +", header.strip()) == [
        *(
            "way",
            "quality",
            "95 %",
            "kept",
            "gain kept",
            "time",
            "rate",
            "seeds",
            "tries",
            "p",
            "p of score",
        )
    ]
    assert "each way by itself" in text and "--details" not in text
    assert "  Differ?" in text


def test_a_narrow_window_does_without_columns() -> None:
    text = printed(compared(four_ways()), width=60)
    assert all(len(line) <= 60 for line in text.splitlines() if "▶✓" in line)


def test_markdown_keeps_a_name_with_a_border_in_its_cell() -> None:
    named = NamedWay("LoRA r=8 | q, v")
    rows = [
        replace(one, candidate=named) if one.candidate == ADAPTER else one for one in four_ways()
    ]
    assert r"LoRA r=8 \| q, v | 90.0" in comparison_markdown(compared(rows))


def test_markdown_has_the_lines_and_the_table() -> None:
    latencies = {Cost.LATENCY: {HEAD: 0.01}}
    text = comparison_markdown(compared(four_ways(), unit=Cost.LATENCY, latencies=latencies))
    assert text.startswith("**The last 2 layers, adapters of size 8 and the full model are certif")
    assert (
        "| way | quality | 95 % | kept | gain kept | time | parameters | latency | rate |" in text
    )
    assert "| the head alone |" in text and "10 ms" in text
    bold = comparison_markdown(compared(four_ways()))
    assert "| **the last 2 layers** | **89.8 ± 0.1** |" in bold


def test_alone_and_in_a_bundle_stand_side_by_side_where_both_are_known() -> None:
    ways = (FULL, ADAPTER, LAST_TWO, HEAD)
    latencies = {
        Cost.LATENCY: dict.fromkeys(ways, 0.012),
        Cost.BUNDLE: {FULL: 0.012, ADAPTER: 0.011, LAST_TWO: 0.005, HEAD: 0.002},
    }
    comparison = compared(four_ways(), unit=Cost.BUNDLE, latencies=latencies)
    text = printed(comparison, width=160)
    [header] = [line for line in text.splitlines() if line.lstrip().startswith("way")]
    assert "latency  bundle" in header
    [chosen] = [line for line in text.splitlines() if "▶" in line and "the last 2" in line]
    assert "12 ms    5 ms" in chosen
    assert "bundle: likewise per task, in a bundle of eight" in text
    assert "| latency | bundle | rate |" in comparison_markdown(comparison)
    costs = [
        (way["latency_seconds"], way["bundle_seconds"], way["cost"])
        for way in comparison_object(comparison)["ways"]
    ]
    assert costs[0] == (0.012, 0.002, 0.002)
    # A narrow window does without the other one.
    narrow = printed(comparison, width=62)
    [header] = [line for line in narrow.splitlines() if line.lstrip().startswith("way")]
    assert "bundle" in header and "latency" not in header
    # Nothing is known of either.
    bare = compared(four_ways())
    assert "latency" not in printed(bare, width=160)
    assert comparison_object(bare)["ways"][0]["latency_seconds"] is None


@pytest.mark.parametrize(
    ("cost", "unit", "text"),
    [
        (None, Cost.TIME, "-"),
        (0.39, Cost.TIME, "0.39 s"),
        (20.0, Cost.TIME, "20 s"),
        (219.0, Cost.TIME, "3 min 39 s"),
        (1204.4, Cost.MEMORY, "1,204 MiB"),
        (884736.0, Cost.PARAMETERS, "884,736"),
        (0.0032, Cost.LATENCY, "3.2 ms"),
        (1.5, Cost.LATENCY, "1,500 ms"),
        (0.0011, Cost.BUNDLE, "1.1 ms"),
    ],
)
def test_costs_are_written_in_their_unit(cost: float | None, unit: Cost, text: str) -> None:
    assert cost_cell(cost, unit) == text


@pytest.mark.parametrize(
    ("factor", "text"), [(1.0, "1"), (12.4, "12"), (99.4, "99"), (99.7, "100"), (131.2, "131")]
)
def test_factors_between_rates_have_no_powers_of_ten(factor: float, text: str) -> None:
    assert times_text(factor) == text


# ---- the command ----


def test_the_command_compares_a_table(run: Run, save: Save) -> None:
    found = run("compare", "--from", save(accurate(four_ways())))
    assert found.status == 0 and found.err == ""
    assert "certified with 95 % confidence to keep 95 % of what the best of these 4" in found.out


def test_the_command_takes_target_cost_and_format(run: Run, save: Save) -> None:
    rows = [replace(one, trainable_parameters=7) for one in accurate(four_ways())]
    query = ("compare", "--from", save(rows), "--target", "0.2", "--cost", "parameters")
    found = run(*query, "--format", "json")
    [told] = json.loads(found.out)
    assert (found.status, told["target"], told["cost_unit"]) == (0, 0.2, "parameters")
    lines = list(csv.DictReader(io.StringIO(run(*query, "--format", "csv").out)))
    assert len(lines) == 4 and lines[0]["cost"] == "7"
    assert run(*query, "--cost", "money").status == 2


def test_a_comparison_that_certifies_nothing_is_an_answer(run: Run, save: Save) -> None:
    rows = [one for one in four_ways() if one.seed == 1]
    assert run("compare", "--from", save(rows)).status == 0


def test_nothing_to_compare_is_status_3_and_says_why(run: Run, save: Save) -> None:
    table = save(way_rows(FULL, 0.9))
    found = run("compare", "--from", table)
    assert (found.status, found.err) == (3, "")
    assert found.out.splitlines()[1].startswith("No answer: only the full model was measured")
    machine = run("compare", "--from", table, "--format", "json")
    assert machine.status == 3 and json.loads(machine.out)[0]["reason"] == "one_way"
    assert "minilm on rte: No answer: only the full model was measured" in machine.err


def test_bad_input_is_status_2(run: Run, save: Save) -> None:
    table = save(four_ways())
    too_large = run("compare", "--from", table, "--target", "95")
    assert (too_large.status, too_large.out) == (2, "")
    assert "for 95 % write 0.95" in too_large.err
    # It is refused before anything is measured for the cost.
    before = run("compare", "--from", table, "--target", "95", "--cost", "latency")
    assert (before.status, before.err) == (2, too_large.err)
    assert run("compare", "--from", table, "--published").status == 2
    assert run("compare", "no-such-search").status == 2


def test_a_recorded_search_is_compared(run: Run, tmp_path: Path) -> None:
    searched(tmp_path / "searches")
    found = run("compare", "first", "--storage-path", tmp_path / "searches", "--format", "json")
    assert json.loads(found.out)[0]["search"] == "first"


def test_what_was_published_is_compared(run: Run) -> None:
    query = ("compare", "--published", "--model", "bert_base", "--task", "sst2")
    found = run(*query, "--format", "json")
    [told] = json.loads(found.out)
    assert found.status == 0 and told["reason"] == "too_few_seeds"
    assert told["recommended"] is None and "no training times" in told["headline"]


# ---- from Python ----


def test_compare_takes_a_table_of_a_program(save: Save) -> None:
    table = pd.read_csv(save(accurate(four_ways())))
    found = elsa_tune.compare(table)
    [comparison] = found
    assert comparison.recommended is not None
    assert comparison.recommended.candidate == LAST_TWO
    frame = found.to_dataframe()
    assert list(frame["label"]) == ["6", "4", "adapter-8", "0"]
    shown = found._repr_html_()
    assert "adapters of size 8" in shown and "<b>How sure</b>" in shown
    assert str(comparison).startswith("Fine-tune the last 2 of 6 layers")


def test_a_notebook_names_the_training_size_of_each_comparison(save: Save) -> None:
    rows = accurate(four_ways())
    sizes = [replace(one, train_size=size) for size in (500, 2000) for one in rows]
    shown = elsa_tune.compare(save(sizes))._repr_html_()
    assert "<p>minilm on rte (500 examples)</p>" in shown
    assert "<p>minilm on rte (2,000 examples)</p>" in shown


def test_compare_takes_latencies_by_label(save: Save) -> None:
    path = save(accurate(four_ways()))
    [comparison] = elsa_tune.compare(path, cost="latency", latencies={"adapter-8": 1.0, "0": 2.0})
    assert comparison.recommended is not None
    assert comparison.recommended.candidate == ADAPTER


def test_a_depth_of_a_latency_may_be_a_number(save: Save) -> None:
    path = save(accurate(four_ways()))
    latencies: Any = {"adapter-8": 1.0, 0: 2, 4: 0.5}
    [comparison] = elsa_tune.compare(path, cost="latency", latencies=latencies)
    assert comparison.recommended is not None
    assert comparison.recommended.candidate == LAST_TWO


def test_a_task_may_lack_a_way_whose_latency_is_given(save: Save) -> None:
    rows = accurate(four_ways())
    others = [replace(row, task="other") for row in rows if row.candidate != LAST_TWO]
    path = save([*rows, *others])
    latencies = {"adapter-8": 1.0, "0": 2.0, "4": 0.5}
    found = elsa_tune.compare(path, cost="latency", latencies=latencies)
    cheapest = {one.curve.task: one.recommended and one.recommended.candidate for one in found}
    assert cheapest == {rows[0].task: LAST_TWO, "other": ADAPTER}
    with pytest.raises(UsageError, match="unknown way '5': known: 0, 4, 6, adapter-8"):
        elsa_tune.compare(path, cost="latency", latencies={"5": 1.0})


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0, "a", True, None])
def test_a_latency_that_is_no_time_is_refused(seconds: Any, save: Save) -> None:
    path = save(accurate(four_ways()))
    latencies = {"0": 1.0, "adapter-8": seconds}
    with pytest.raises(UsageError, match=r"`latencies` has .* for 'adapter-8'; give the seconds"):
        elsa_tune.compare(path, cost="latency", latencies=latencies)


@pytest.mark.parametrize("cost", ["time", "memory", "parameters"])
def test_latencies_are_refused_where_the_cost_counts_none(cost: Any, save: Save) -> None:
    with pytest.raises(UsageError, match=f"`cost` is {cost}, which counts none"):
        elsa_tune.compare(save(four_ways()), cost=cost, latencies={"0": 1.0})


def test_compare_refuses_what_it_cannot_answer(save: Save) -> None:
    path = save(four_ways())
    with pytest.raises(UsageError, match="target is 2"):
        elsa_tune.compare(path, 2.0)
    with pytest.raises(UsageError, match="target is 2"):
        elsa_tune.compare(path, 2.0, cost="latency")
    with pytest.raises(UsageError, match="cost"):
        elsa_tune.compare(path, cost="money")  # type: ignore[arg-type]  # what is refused


def test_a_comparison_of_nothing_says_so() -> None:
    curve = compared(four_ways()).curve
    empty = compare_ways(replace(curve, points=()))
    assert repr(empty) == "WayComparison(minilm on rte: no way)"
    point = CurvePoint(candidate=FULL, fine_tuned_layers=6)
    assert not compare_ways(replace(curve, points=(point,))).is_answered
