"""Tables whose rows name methods: what a cell means, what contradicts it, what can be asked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.curve_of_rows import freeze_curve
from elsa_tune.analysis.groups import comparison_groups
from elsa_tune.cli.app import app
from elsa_tune.errors import NoAnswerError, ResultsError, SpaceError
from elsa_tune.results.results_csv import import_results, write_results
from elsa_tune.sources.source import Question
from elsa_tune.sources.tables import Table
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import (
    REFERENCE,
    candidate_fields,
    read_candidate,
    read_way,
    recorded_candidate,
    told_candidate,
)
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.adapt.named_way import NamedWay
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.registering import registered
from tests.unit.result_rows import EMBEDDINGS_ONLY, row

HEADER = "model,task,method,quality,seed"


def table(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    path = tmp_path / "methods.csv"
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


def test_a_table_of_methods_needs_no_layers(tmp_path: Path) -> None:
    path = table(tmp_path, "m,t,full fine-tuning,0.9,1", "m,t,LoRA r=32,0.88,1")
    full, lora = import_results(path).rows
    assert full.candidate == REFERENCE
    assert lora.candidate == NamedWay("LoRA r=32")
    assert full.layers is lora.layers is None


def test_costs_beside_a_method(tmp_path: Path) -> None:
    header = f"{HEADER},train_seconds,peak_memory_mb,trainable_parameters"
    (one,) = import_results(table(tmp_path, "m,t,IA3,0.8,1,12.5,900,1000", header=header)).rows
    assert (one.train_seconds, one.peak_memory_mb, one.trainable_parameters) == (12.5, 900, 1000)


@pytest.mark.parametrize(
    ("text", "layers", "way"),
    [
        ("full", None, REFERENCE),
        ("Full Fine-Tuning", None, REFERENCE),
        ("full-finetuning", 6, REFERENCE),
        ("fine_tuning", 6, REFERENCE),
        ("FT", 6, REFERENCE),
        ("0", None, REFERENCE),
        ("9", 12, FreezeDepth(9, True)),
        ("embeddings", 12, EMBEDDINGS_ONLY),
        ("head", 6, FreezeDepth(6, True)),
        ("head only", 6, FreezeDepth(6, True)),
        ("head", None, NamedWay("head")),  # of how many layers it is the head is not known
        ("fully frozen", 6, NamedWay("fully frozen")),
        # Nothing says of which rank somebody's is, or on which layers.
        ("lora", 6, NamedWay("lora")),
        ("lora-r16", None, NamedWay("lora-r16")),
        ("bitfit", 6, NamedWay("bitfit")),
    ],
)
def test_what_a_method_names(text: str, layers: int | None, way: Candidate) -> None:
    assert read_way(text, layers) == way


def test_a_foreign_way_is_shown_as_it_was_written(tmp_path: Path) -> None:
    path = table(tmp_path, "m,t,full,0.9,1", "m,t,lora,0.95,1", "m,t,bitfit,0.5,1")
    source = Table(path)
    question = Question(each_size=True)
    [curve] = source.ways(question, source.ask(question, print))
    comparison = compare_ways(curve)
    names = [way.candidate.name(curve.layers) for way in comparison.ways]
    assert sorted(names) == ["bitfit", "lora", "the full model"]
    said = str(comparison)
    assert "lora" in said and not re.search("rank|all layers|biases", said)


def test_what_we_trained_is_known_by_the_tag_of_its_run(tmp_path: Path) -> None:
    header = "params.model,params.task,params.layers,params.method,metrics.quality,params.seed"
    ours = "tags.elsa_tune.trial"
    lines = ("m,t,6,lora-last3,0.8,1,measure-lora-last3-s1", "m,t,6,lora-last3,0.7,1,")
    path = table(tmp_path, *lines, header=f"{header},{ours}")
    first, second = (one.candidate for one in import_results(path).rows)
    assert (first, second) == (Lora(last=3), NamedWay("lora-last3"))


def test_a_label_beside_its_candidate_is_no_contradiction(tmp_path: Path) -> None:
    header = "model,task,layers,candidate,method,quality,seed"
    lines = ("m,t,6,lora-last3,lora-last3,0.8,1", "m,t,6,bitfit,BitFit,0.8,1")
    path = table(tmp_path, *lines, header=header)
    assert [one.candidate for one in import_results(path).rows] == [Lora(last=3), BitFit()]
    path = table(tmp_path, "m,t,6,lora-last3,lora-last2,0.8,1", header=header)
    with pytest.raises(ResultsError, match="method is 'lora-last2', but"):
        import_results(path)


def test_a_methods_name_beside_its_candidate_is_no_contradiction(tmp_path: Path) -> None:
    header = "model,task,layers,candidate,method,quality,seed"
    lines = ("m,t,6,lora-last3,lora_last,0.8,1", "m,t,,lora-last3,LoRA,0.8,2")
    path = table(tmp_path, *lines, header=header)
    assert [one.candidate for one in import_results(path).rows] == [Lora(last=3)] * 2
    path = table(tmp_path, "m,t,6,lora,lora_last,0.8,1", header=header)
    with pytest.raises(ResultsError, match="method is 'lora_last', but"):
        import_results(path)
    with registered("tests.low_rank") as low_rank:
        path = table(tmp_path, "m,t,6,low8,low_rank,0.8,1", header=header)
        assert import_results(path).rows[0].candidate == low_rank.LowRank(8)


def test_a_candidate_in_agreement_with_a_depth(tmp_path: Path) -> None:
    header = "model,task,layers,frozen_layers,candidate,quality,seed"
    lines = ("m,t,6,0,0,0.9,1", "m,t,6,3.0,3,0.8,1", "m,t,6,-1,embeddings,0.9,1")
    path = table(tmp_path, *lines, header=header)
    candidates = [one.candidate for one in import_results(path).rows]
    assert candidates == [REFERENCE, FreezeDepth(3, True), EMBEDDINGS_ONLY]


@pytest.mark.parametrize(
    ("frozen", "label", "complaint"),
    [
        ("0", "lora", "candidate is 'lora', but frozen_layers says '0'; leave empty what does not"),
        ("3", "0", "candidate is '0', but frozen_layers says '3'"),
        ("lora", "bitfit", "candidate is 'bitfit', but frozen_layers says 'lora'"),
        ("0", "lore", "candidate is 'lore'; it must be a whole number or 'embeddings', 'lora"),
        ("", "lore", "candidate is 'lore'; it must be a whole number or 'embeddings', 'lora"),
    ],
)
def test_another_candidate_than_the_depth_is_refused(
    tmp_path: Path, frozen: str, label: str, complaint: str
) -> None:
    header = "model,task,layers,frozen_layers,candidate,quality,seed"
    lines = ("m,t,6,0,,0.9,1", f"m,t,6,{frozen},{label},0.8,1")
    path = table(tmp_path, *lines, header=header)
    with pytest.raises(ResultsError, match=f"line 3: {re.escape(complaint)}"):
        import_results(path)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "m,t,,6,0.8,1,",
            "'frozen_layers' is missing; write the depth there, or in a column method",
        ),
        ("m,t,9,,0.8,1,", "field 'layers' is missing; '9' says how many are frozen"),
        ("m,t,9,6,0.8,1,", "frozen_layers is 9, but the model has 6 layers"),
        ("m,t,-3,6,0.8,1,", "frozen_layers is -3; it must be 0 or more"),
        ("m,t,LoRA,six,0.8,1,", "field 'layers' must be a whole number, not 'six'"),
        ("m,t,LoRA,6,0.8,1,3", "method is 'LoRA', but frozen_layers or candidate says '3'"),
        ("m,t,full,6,0.8,1,3", "method is 'full', but frozen_layers or candidate says '3'"),
        ("m,t,head,6,0.8,1,5", "method is 'head', but frozen_layers or candidate says '5'"),
        ("m,t,freeze,6,0.8,1,", "method is 'freeze', and frozen_layers does not say how many"),
        ("m,t,LoRA,6,,1,", "quality is empty; a completed run has one"),
        ("m,t,LoRA,6,88,1,", "'quality' must be a fraction, at most 1, not 88"),
    ],
)
def test_each_complaint_has_its_line(tmp_path: Path, line: str, complaint: str) -> None:
    header = "model,task,method,layers,quality,seed,frozen_layers"
    path = table(tmp_path, "m,t,full,6,0.9,1,", line, header=header)
    with pytest.raises(ResultsError, match=f"line 3: .*{re.escape(complaint)}"):
        import_results(path)


def test_a_method_in_agreement_with_a_depth(tmp_path: Path) -> None:
    header = "model,task,method,layers,quality,seed,frozen_layers"
    path = table(
        tmp_path,
        "m,t,full,6,0.9,1,0",
        "m,t,Freezing,6,0.8,1,3",
        "m,t,head,6,0.7,1,6",
        header=header,
    )
    candidates = [one.candidate for one in import_results(path).rows]
    assert candidates == [REFERENCE, FreezeDepth(3, True), FreezeDepth(6, True)]


def test_methods_in_percent(tmp_path: Path) -> None:
    path = table(tmp_path, "m,t,full,90.5,1", "m,t,LoRA,88,1")
    qualities = [one.quality for one in import_results(path, percent=True).rows]
    assert qualities == [0.905, 0.88]
    with pytest.raises(ResultsError, match="for percentages add `scale` percent"):
        import_results(path)


def test_one_way_in_two_spellings_keeps_both_rates(tmp_path: Path) -> None:
    header = f"{HEADER},learning_rate"
    path = table(tmp_path, "m,t,LoRA r=8,0.8,1,1e-4", "m,t,lora  R=8,0.9,1,1e-3", header=header)
    first, second = import_results(path).rows
    assert first.candidate == second.candidate
    assert hash(first.candidate) == hash(second.candidate)
    assert (first.learning_rate, second.learning_rate) == (1e-4, 1e-3)


def test_a_row_that_is_there_twice_is_kept_for_whoever_compares(tmp_path: Path) -> None:
    first, second = import_results(table(tmp_path, "m,t,LoRA,0.8,1", "m,t,LoRA,0.8,1")).rows
    assert first == second


def test_two_ways_that_differ_in_a_sign_have_different_keys() -> None:
    first, second = NamedWay("LoRA r=32"), NamedWay("LoRA r-32")
    assert first != second and first.key != second.key
    assert re.fullmatch(r"[A-Za-z0-9_-]+", first.key)


def test_a_named_way_is_no_label_and_says_what_it_is() -> None:
    way = NamedWay("LoRA r=32")
    with pytest.raises(SpaceError, match="must be a whole number"):
        read_candidate(way.label)
    assert not way.is_ranked and not way.is_reference and way.is_tested
    assert way.fine_tuned_layers(12) is None and way.check(12) is way
    assert way.relative_cost(12, keeps_prefix=True) == 1
    assert (way.describe(12), way.doing(12)) == ("LoRA r=32", "adapting the model by LoRA r=32")
    assert not way.is_plural(12)
    assert FreezeDepth(12, True) < way
    with pytest.raises(SpaceError, match="a way needs a name"):
        NamedWay("  ")


def test_a_named_way_comes_back_from_every_record() -> None:
    way = NamedWay("Prefix tuning, 20 tokens")
    assert recorded_candidate(way.record()) == way
    fields = json.loads(json.dumps(candidate_fields(way)))
    assert told_candidate(fields) == way
    assert told_candidate(fields).label == "Prefix tuning, 20 tokens"


def test_a_written_table_is_read_back(tmp_path: Path) -> None:
    rows = [
        row(0, 0.9, layers=None, policy=None),
        row(NamedWay("LoRA here"), 0.85, layers=None, policy=None),
        row(NamedWay("=LoRA"), 0.85, layers=None, policy=None),
        row(FreezeDepth(3, True), 0.8, policy=None),
    ]
    text = write_results(rows)
    assert text.splitlines()[0].endswith(",method")
    path = tmp_path / "written.csv"
    path.write_text(text, encoding="utf-8")
    assert import_results(path).rows == rows


def test_a_row_of_a_depth_needs_the_number_of_layers() -> None:
    with pytest.raises(SpaceError, match="'layers' is missing"):
        ResultRow(
            model="m",
            task="t",
            layers=None,
            candidate=FreezeDepth(3, True),
            quality=0.8,
            status=TrialStatus.COMPLETED,
            phase=Phase.MEASURE,
        )


@pytest.mark.parametrize(
    ("lines", "of"),
    [
        (("m,t,full,0.9,1", "m,t,LoRA,0.88,1", "m,t,BitFit,0.8,1"), "LoRA, BitFit"),
        (("m,t,LoRA,0.88,1",), "LoRA"),  # without the full model
        (("m,t,full,0.9,1",), "the full model alone"),
    ],
)
def test_without_depths_there_is_no_curve_and_compare_is_named(
    tmp_path: Path, lines: tuple[str, ...], of: str
) -> None:
    path = table(tmp_path, *lines)
    source = Table(path)
    rows = source.ask(Question(each_size=True), print)
    complaint = f"has results of {of}, and of no frozen layers.*`elsa-tune compare`"
    with pytest.raises(NoAnswerError, match=complaint):
        source.curves(Question(each_size=True), rows)
    result = CliRunner().invoke(app, ["operating-point", "--from", str(path)])
    assert isinstance(result.exception, NoAnswerError)


def test_the_full_model_of_a_table_without_layers_is_all_of_them(tmp_path: Path) -> None:
    path = table(tmp_path, "m,t,full,0.9,1", "m,t,LoRA,0.5,1")
    source = Table(path)
    question = Question(each_size=True)
    [curve] = source.ways(question, source.ask(question, print))
    assert "fine-tune all layers: quality 90.0" in compare_ways(curve).first_lines.headline


def test_without_chance_no_guess_is_named(tmp_path: Path) -> None:
    path = table(tmp_path, "m,t,full,-0.5,1", "m,t,LoRA,-0.4,1")
    source = Table(path)
    question = Question(each_size=True)
    [curve] = source.ways(question, source.ask(question, print))
    headline = compare_ways(curve).first_lines.headline
    assert "has quality -40.0, which is not above 0" in headline and "guessing" not in headline


def test_depths_keep_their_curve_beside_methods(tmp_path: Path) -> None:
    header = "model,task,layers,frozen_layers,method,quality,seed"
    lines = (
        "m,a,6,0,,0.9,1",
        "m,a,6,3,,0.85,1",
        "m,a,,,LoRA r=32,0.89,1",
        "m,b,,,full,0.9,1",
        "m,b,,,LoRA r=32,0.88,1",
    )
    source = Table(table(tmp_path, *lines, header=header))
    rows = source.ask(Question(each_size=True), print)
    assert len(rows) == 5
    (curve,) = source.curves(Question(each_size=True), rows)
    assert (curve.task, curve.layers) == ("a", 6)
    assert [point.candidate.label for point in curve.points] == ["0", "3"]


def test_an_export_of_mlflow_may_name_methods(tmp_path: Path) -> None:
    header = "params.model,params.task,params.method,metrics.eval_accuracy,params.seed"
    imported = import_results(table(tmp_path, "m,t,LoRA,0.8,1", ",,,,", header=header))
    (one,) = imported.rows
    assert one.candidate == NamedWay("LoRA")
    assert "method <- params.method" in imported.notes


def test_without_layers_no_way_counts_any() -> None:
    lora = NamedWay("LoRA")
    rows = [row(0, 0.9, layers=None), row(lora, 0.8, layers=None)]
    (group,) = comparison_groups(rows)
    points = freeze_curve(group).points
    assert [point.fine_tuned_layers for point in points] == [None, None]
    (group,) = comparison_groups([row(lora, 0.8, layers=None), row(0, 0.9)])
    assert group.layers == 6
    assert [point.fine_tuned_layers for point in freeze_curve(group).points] == [6, None]
    with pytest.raises(ResultsError, match="the rows say 6 and 12 layers"):
        comparison_groups([row(0, 0.9), row(lora, 0.8, layers=None), row(0, 0.9, layers=12)])
