"""Answers, tables, JSON, CSV, figures and reports of a method of adaptation beside freezing.

Of made-up rows, in every case that there is; tests/integration/test_another_method.py carries one
through a search.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object, answers_csv, as_json, curves_csv
from elsa_tune.analysis.answers import answer_curves, answer_rows, freeze_curves
from elsa_tune.analysis.wording.tables import answer_markdown
from elsa_tune.cli.answer_tables import print_curves
from elsa_tune.errors import ResultsError, UsageError
from elsa_tune.exporting.choice import choose
from elsa_tune.report import charts
from elsa_tune.report.folder import write_report
from elsa_tune.results.results_csv import import_results, write_results
from elsa_tune.sources.source import Question
from elsa_tune.sources.tables import Table
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.policy import UNRECORDED
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tracking.mlflow.names import answer_tags, curve_reports, search_run_name
from elsa_tune.words import depth_cells, number_of, part_text
from tests.registering import registered
from tests.unit.result_rows import as_table_has, falling_curve, row


@pytest.fixture(scope="module")
def biases() -> Iterator[Candidate]:
    with registered("tests.biases") as module:
        yield module.Biases()


def curve_with(biases: Candidate, quality: float) -> list[ResultRow]:
    """Return a curve whose depths keep 90 % up to N = 4, and the biases beside it."""
    runs = [
        row(biases, quality + step, seed=seed, learning_rate=1e-3)
        for seed, step in enumerate((-0.01, 0.0, 0.01), 1)
    ]
    return falling_curve() + runs


def few(biases: Candidate) -> list[ResultRow]:
    """Return a curve of which everything keeps 90 %, the biases too, so that they are certified."""
    return [
        row for row in curve_with(biases, 0.88) if row.candidate.label in ("0", "3", biases.label)
    ]


def answered(rows: list[ResultRow]) -> Answer:
    [answer] = answer_rows(rows)
    return answer


def printed(answer: Answer) -> str:
    stream = io.StringIO()
    print_curves([answer], Console(file=stream, width=160), details=True)
    return stream.getvalue()


def test_the_cheapest_candidate_that_passes_is_the_answer(biases: Candidate) -> None:
    answer = answered(few(biases))
    assert answer.operating_point is not None and answer.operating_point.candidate == biases
    assert answer.operating_point.fine_tuned_layers is None
    assert answer.certified is not None and answer.certified.candidate == biases
    assert answer.recommendation.point is not None
    assert answer.recommendation.point.candidate == biases
    assert answer.sentence.startswith("The biases at 1e-3 keep 97.8 % of the full model's accuracy")
    assert answer.first_lines.headline.startswith("Fine-tune the biases at learning rate 1e-3")
    assert "Certified at 95 %, at the rates found: the biases, and" in answer.certainty
    assert "None" not in f"{answer!r} {printed(answer)} {answer_markdown(answer)}"


def test_where_it_fails_the_answer_is_a_depth_and_it_is_what_fewer_costs(biases: Candidate) -> None:
    alone, beside = answered(falling_curve()), answered(curve_with(biases, 0.61))
    assert alone.operating_point is not None and beside.operating_point is not None
    assert beside.operating_point.candidate == alone.operating_point.candidate
    assert beside.failing_above == alone.failing_above
    assert [point.candidate for point in beside.points][-1] == biases
    assert "the biases" in printed(beside)


def test_what_may_be_the_true_answer_is_told_by_number_and_by_name(biases: Candidate) -> None:
    # By its raw claim: 81 % of .9 may be the target.
    rows = [dataclasses.replace(one, policy=UNRECORDED) for one in curve_with(biases, 0.81)]
    answer = answered(rows)
    assert answer.plausible_candidates is not None and biases in answer.plausible_candidates
    assert answer.plausible == tuple(
        depth.fine_tuned_layers(6) for depth in answer.plausible_candidates if depth != biases
    )
    told = answer_object(answer)
    assert told["plausible_fine_tuned_layers"] == list(answer.plausible)
    assert biases.key in told["plausible_candidates"]
    assert " layers or the biases" in answer.certainty


def test_json_names_it_and_leaves_depths_as_they_are(biases: Candidate) -> None:
    answer = answered(few(biases))
    told = json.loads(as_json([answer_object(answer)]))[0]
    *depths, last = told["curve"]
    assert last["candidate"] == biases.key and last["label"] == biases.label
    names = ("frozen_layers", "embeddings_frozen", "fine_tuned_layers")
    assert [last[name] for name in names] == [None] * 3
    assert not any("candidate" in point or point["frozen_layers"] is None for point in depths)
    for name in ("operating_point", "certified", "recommendation"):
        assert told[name]["candidate"] == biases.key and told[name]["frozen_layers"] is None
    assert "candidate" not in told["best"]


def test_csv_has_a_column_more_where_it_is_there(biases: Candidate) -> None:
    alone, beside = answered(falling_curve()), answered(curve_with(biases, 0.88))
    for text_of in (answers_csv, curves_csv):
        [header, *_] = csv.reader(io.StringIO(text_of([alone])))
        [more, *_] = csv.reader(io.StringIO(text_of([beside])))
        assert more[: len(header)] == header and any("candidate" in name for name in more)
        assert not any("candidate" in name for name in header)
    lines = list(csv.DictReader(io.StringIO(curves_csv([beside]))))
    assert lines[-1]["candidate"] == biases.key and lines[-1]["frozen_layers"] == ""


def test_a_table_that_is_written_is_read_back(biases: Candidate, tmp_path: Path) -> None:
    rows = curve_with(biases, 0.88)
    path = tmp_path / "trials.csv"
    path.write_text(write_results(rows), encoding="utf-8")
    assert import_results(path).rows == as_table_has(rows)
    assert "candidate" not in write_results(falling_curve()).splitlines()[0]


def test_a_table_may_have_candidates_alone(biases: Candidate, tmp_path: Path) -> None:
    path = tmp_path / "trials.csv"
    lines = ["model,task,layers,candidate,quality,seed", "m,t,6,0,0.9,1", "m,t,6,biases,0.8,1"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert [one.candidate.label for one in import_results(path).rows] == ["0", biases.label]
    path.write_text("\n".join([*lines, "m,t,6,prefixes,0.8,1"]) + "\n", encoding="utf-8")
    with pytest.raises(ResultsError, match=r"line 4: .*prefixes.*'biases'"):
        import_results(path)


@pytest.mark.parametrize("quality", [0.88, 0.61])
def test_figures_and_page_have_a_place_for_it(
    biases: Candidate, quality: float, tmp_path: Path
) -> None:
    rows = curve_with(biases, quality)
    answer = answered(rows)
    places = charts.places(answer.with_quality)
    assert places[biases] not in {place for depth, place in places.items() if depth != biases}
    [panel] = charts.freeze_curve({"it": answer}).panels
    assert (places[biases], biases.short) in panel.ticks
    # The cheapest of all stands before the fewest layers.
    assert min(places, key=places.__getitem__) == biases
    page, *_ = write_report([answer], rows, tmp_path)
    assert ">biases<" in page.read_text(encoding="utf-8")
    [again] = answer_curves(Table(tmp_path / "trials.csv").curves(Question(), rows))
    assert answer_object(again) == answer_object(answer)


def test_it_stands_between_the_depths_beside_it_by_rank(biases: Candidate) -> None:
    class Middle(type(biases)):  # type: ignore[misc]  # mypy knows no classes of values
        """One that costs less than N = 3 and more than N = 4."""

        key = "Bmiddle"
        label = "middle"
        rank = 3.5

    [curve] = freeze_curves(curve_with(Middle(), 0.85))
    places = {depth.label: place for depth, place in charts.places(curve.with_quality).items()}
    assert places["3"] == 3 and places["4"] == 2
    assert places["4"] < places["middle"] < places["3"]


def test_what_is_recommended_is_exported_and_a_number_asks_for_a_depth(biases: Candidate) -> None:
    answers = [answered(few(biases))]
    chosen = choose(answers)
    assert chosen.point.candidate == biases and "the biases (" in chosen.in_words
    assert choose(answers, 3).point.fine_tuned_layers == 3
    with pytest.raises(UsageError, match=r"measured: 6, 3$"):
        choose(answers, 5)


def test_a_method_that_counts_layers_is_no_depth(biases: Candidate) -> None:
    class Slowly(type(biases)):  # type: ignore[misc]
        """The last layers, by another method than fine-tuning them."""

        key = "S3"
        label = "slow3"
        rank = 150.0

        def fine_tuned_layers(self, layers: int) -> int:
            return 3

        def describe(self, layers: int) -> str:
            return "the last 3 layers by slow steps"

        def record(self) -> dict[str, int]:
            return {"slow_layers": 3}

    slowly = Slowly()
    answer = answered(curve_with(slowly, 0.88))
    assert choose([answer], 3).point.candidate == FreezeDepth.of(3)
    assert number_of(slowly, 6) is None
    assert part_text(slowly, 6) == "the last 3 layers by slow steps"


def test_what_is_exported_is_asked_for_by_its_label(biases: Candidate) -> None:
    answers = [answered(curve_with(biases, 0.61))]
    assert choose(answers).point.candidate != biases
    assert choose(answers, way="Biases").point.candidate == biases
    assert choose(answers, way="3").point == choose(answers, 3).point
    with pytest.raises(
        UsageError,
        match=r"`way` is 1 \(1 frozen layer, 5 fine-tuned\), .* measured: 0 \(.* biases$",
    ):
        choose(answers, way="1")
    with pytest.raises(UsageError, match=r"`way` is 'nobody', which was not measured, .* biases$"):
        choose(answers, way="nobody")
    with pytest.raises(UsageError, match="exclude each other"):
        choose(answers, 3, "3")


@pytest.mark.parametrize("quality", [0.88, 0.61])
def test_no_line_leads_to_it(biases: Candidate, quality: float) -> None:
    answer = answered(curve_with(biases, quality))
    [panel] = charts.freeze_curve({"it": answer}).panels
    place = charts.places(answer.with_quality)[biases]
    lines = [each for each in panel.series if each.style["linestyle"] and len(each.x) > 2]
    assert lines and not any(place in each.x for each in lines)
    assert any(place in each.x and each.style["marker"] == "s" for each in panel.series)


def test_its_name_has_room_beside_many_layers(biases: Candidate) -> None:
    rows = [row(frozen, 0.9, layers=24) for frozen in (0, *range(12, 25))]
    [curve] = freeze_curves([*rows, row(biases, 0.9, layers=24)])
    [panel] = charts.freeze_curve({"it": answered([*rows, row(biases, 0.9, layers=24)])}).panels
    place = charts.places(curve.with_quality)[biases]
    assert (place, biases.short) in panel.ticks
    assert min(abs(at - place) for at, text in panel.ticks if text != biases.short) > 3


def test_where_it_fails_too_the_sentences_speak_of_more_than_depths(biases: Candidate) -> None:
    rows = [one for one in curve_with(biases, 0.61) if one.candidate.label in ("0", "6", "biases")]
    answer = answered(rows)
    assert answer.operating_point is not None and answer.operating_point.candidate.is_reference
    assert "no measured candidate that costs less keeps" in answer.sentence
    alone = answered([one for one in rows if one.candidate != biases])
    assert "no measured depth with frozen layers keeps" in alone.sentence


def test_mlflow_shows_it(biases: Candidate) -> None:
    told = json.loads(json.dumps([answer_object(answered(few(biases)))]))
    tags = answer_tags(told)
    assert (tags["k"], tags["kept"], tags["rate"]) == ("biases", "97.8 %", "1e-3")
    assert search_run_name("demo", told) == "biases, 97.8 %: demo"
    by_step = {report.step: report.metrics for report in curve_reports(told, 0.0)}
    assert by_step[100]["quality"] == pytest.approx(0.88)
    assert "recommended_fine_tuned_layers" not in by_step[0]


@pytest.mark.parametrize("rank", [3.0, 3.5])
def test_a_step_that_is_taken_or_no_whole_number_is_another(biases: Candidate, rank: float) -> None:
    rows = curve_with(biases, 0.88)
    told = json.loads(json.dumps([answer_object(answered(rows))]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(biases), "rank", rank)
        by_step = {report.step: report.metrics for report in curve_reports(told, 0.0)}
    assert list(by_step) == [0, 3, 4, 5, 6, 7]
    depth = next(point for point in told[0]["curve"] if point["frozen_layers"] == 3)
    assert by_step[3]["quality"] == pytest.approx(depth["quality"])
    assert by_step[7]["quality"] == pytest.approx(0.88)


def test_the_board_shows_its_label(biases: Candidate) -> None:
    assert depth_cells(biases, 6) == ("-", "biases")
    assert depth_cells(FreezeDepth.of(4), 6) == ("4", "2")
    assert depth_cells(FreezeDepth.of("embeddings"), 6) == ("emb.", "6")
