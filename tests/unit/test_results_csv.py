"""Reading results tables of other tools: what is understood, and every complaint with its line."""

from __future__ import annotations

import csv
import dataclasses
import io
import time
from pathlib import Path

import pytest

from elsa_tune.analysis.answer_json import answers_csv, curves_csv
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.errors import DataError, ResultsError, UsageError
from elsa_tune.results.results_csv import csv_text, import_results, plain_cell, write_results
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.result_rows import EMBEDDINGS_ONLY, as_table_has, falling_curve, row

HEADER = "model,task,layers,frozen_layers,quality,seed"


def table(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    path = tmp_path / "results.csv"
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


def test_a_minimal_table_with_unknown_names(tmp_path: Path) -> None:
    (one,) = import_results(table(tmp_path, "my model,my task,6,3,0.81,7")).rows
    assert (one.model, one.task, one.layers, one.seed, one.runs) == ("my model", "my task", 6, 7, 1)
    assert one.candidate == FreezeDepth(3, True) and one.quality == 0.81
    assert one.phase is Phase.MEASURE and one.status is TrialStatus.COMPLETED
    assert one.chance is one.learning_rate is one.train_size is one.metric is None


def test_every_optional_column(tmp_path: Path) -> None:
    header = f"{HEADER},learning_rate,train_size,status,phase,chance,metric,epochs,notes,search"
    line = "m,t,6,0,0.8,1,3.0000000000000004e-05,100,completed,explore,0.5,F1,3,free text,first"
    (one,) = import_results(table(tmp_path, line, header=header)).rows
    assert one.learning_rate == 3e-5 and one.train_size == 100
    assert one.phase is Phase.EXPLORE and one.metric == "f1" and one.search == "first"
    assert one.epochs == 3 and str(one.comparison) == "epochs=3"


@pytest.mark.parametrize("comparison", ["", "x", "batch=8, epochs=3"])
def test_rows_of_different_epochs_are_never_averaged(tmp_path: Path, comparison: str) -> None:
    header = f"{HEADER},epochs,comparison"
    lines = (f'm,t,6,0,0.8,1,3,"{comparison}"', f'm,t,6,0,0.9,2,10,"{comparison}"')
    rows = import_results(table(tmp_path, *lines, header=header)).rows
    with pytest.raises(ResultsError, match="must not be averaged"):
        answer_rows(rows)
    path = tmp_path / "written.csv"
    path.write_text(write_results(rows), encoding="utf-8")
    assert import_results(path).rows == rows


def test_a_metric_by_another_tools_name(tmp_path: Path) -> None:
    lines = ("m,t,6,0,0.8,1,MCC", "m,t,6,3,0.7,1,mcc")
    rows = import_results(table(tmp_path, *lines, header=f"{HEADER},metric")).rows
    assert {one.metric for one in rows} == {"matthews"}
    (answer,) = answer_rows(rows)
    assert answer.chance == 0.0


@pytest.mark.parametrize(
    ("frozen", "flag", "depth"),
    [
        ("0", "", FULL_MODEL),
        ("0", "false", FULL_MODEL),
        ("0", "True", EMBEDDINGS_ONLY),
        ("-1", "", EMBEDDINGS_ONLY),
        ("-1", "1", EMBEDDINGS_ONLY),
        ("embeddings", "", EMBEDDINGS_ONLY),
        ("3.0", "yes", FreezeDepth(3, True)),
    ],
)
def test_how_depths_are_written(tmp_path: Path, frozen: str, flag: str, depth: FreezeDepth) -> None:
    header = f"{HEADER},embeddings_frozen"
    (one,) = import_results(table(tmp_path, f"m,t,6,{frozen},0.8,1,{flag}", header=header)).rows
    assert one.candidate == depth


def test_percentages_only_when_said(tmp_path: Path) -> None:
    header = "model,task,layers,frozen_layers,quality,runs,std,chance"
    path = table(tmp_path, "m,t,12,0,58.3,5,1.2,50", header=header)
    with pytest.raises(ResultsError, match=r"line 2: .*58\.3.*`scale` percent"):
        import_results(path)
    (one,) = import_results(path, percent=True).rows
    assert (one.quality, one.std, one.chance) == (0.583, 0.012, 0.5)
    fractions = table(tmp_path, "m,t,12,0,0.583,5,0.01,0.5", header=header)
    with pytest.raises(ResultsError, match="leave out `scale` percent"):
        import_results(fractions, percent=True)


def test_every_percentage_is_the_fraction_that_would_be_written_for_it(tmp_path: Path) -> None:
    """84.4 / 100 is another float than .844, and would not look rounded any more."""
    percentages = [f"{tenths // 10}.{tenths % 10}" for tenths in range(1, 1001)]
    lines = [f"m,t,12,0,{text},{seed}" for seed, text in enumerate(percentages)]
    rows = import_results(table(tmp_path, *lines), percent=True).rows
    assert [one.quality for one in rows] == [float(f"{n / 1000:.3f}") for n in range(1, 1001)]


def test_fractions_among_percentages_are_told_of(tmp_path: Path) -> None:
    lines = ("m,t,12,0,91,1", "m,t,12,3,0.9,1", "m,t,12,6,88,1", "m,t,12,9,0,1")
    notes = import_results(table(tmp_path, *lines), percent=True).notes
    told = "1 of 4 qualities lie between 0 and 1 %, as fractions among percentages would"
    assert told in notes
    low = table(tmp_path, "m,t,12,0,4.5,1", "m,t,12,3,0.9,1")
    assert import_results(low, percent=True).notes == ()


def test_runs_without_a_score_do_not_say_that_percentages_are_fractions(tmp_path: Path) -> None:
    header = f"{HEADER},status"
    failed = table(tmp_path, "m,t,12,0,,1,failed", "m,t,12,3,,1,diverged", header=header)
    assert len(import_results(failed, percent=True).rows) == 2
    nothing = table(tmp_path, "m,t,12,0,0,1,completed", header=header)
    assert [one.quality for one in import_results(nothing, percent=True).rows] == [0]


def test_a_quality_above_1_by_rounding_is_1(tmp_path: Path) -> None:
    path = table(tmp_path, "m,t,12,0,1.0000000000000002,1")
    assert [one.quality for one in import_results(path).rows] == [1]
    path = table(tmp_path, "m,t,12,0,100.00000000000001,1")
    assert [one.quality for one in import_results(path, percent=True).rows] == [1]
    path = table(tmp_path, "m,t,12,0,1.00001,1")
    with pytest.raises(ResultsError, match=r"at most 1, not 1\.00001; for percentages"):
        import_results(path)


def test_a_chance_by_hand_is_on_the_scale_of_the_qualities(tmp_path: Path) -> None:
    path = table(tmp_path, "m,t,12,0,90.3,1", "m,t,12,3,81.5,1")
    complaint = r"chance==0\.8122 is 0\.8122 % .* write chance==81\.22 for"
    with pytest.raises(ResultsError, match=complaint):
        import_results(path, percent=True, mapping=["chance==0.8122"])
    (one, _) = import_results(path, percent=True, mapping=["chance==81.22"]).rows
    assert one.chance == pytest.approx(0.8122)
    (one, _) = import_results(path, percent=True, mapping=["chance==0"]).rows
    assert one.chance == 0
    # Of a table with 125 classes it is so low, and is said by a column.
    lines = ("m,t,12,0,90.3,1,0.8", "m,t,12,3,81.5,1,0.8")
    path = table(tmp_path, *lines, header=f"{HEADER},chance")
    (one, _) = import_results(path, percent=True).rows
    assert one.chance == pytest.approx(0.008)


def test_statuses_without_a_phase(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "m,t,6,0,0.8,1,completed",
        "m,t,6,0,0.7,2,stopped_early",
        "m,t,6,0,,3,diverged",
        "m,t,6,0,,4,failed",
        header=f"{HEADER},status",
    )
    phases = [one.phase for one in import_results(path).rows]
    assert phases == [Phase.MEASURE] * 4


def test_rows_whose_phase_counts_in_no_answer_are_left_out_and_counted(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "m,t,6,0,0.8,1,Measure",
        "m,t,6,0,0.7,2,EXPLORE",
        "m,t,6,0,0.9,3,final",
        "m,t,6,0,0.9,4,Final",
        "m,t,6,6,0.6,,Probe",
        header=f"{HEADER},phase",
    )
    imported = import_results(path)
    assert [one.phase for one in imported.rows] == [Phase.MEASURE, Phase.EXPLORE]
    assert imported.notes == (
        f"{path}:",
        "left out: 2 of phase final, which train the model that is exported",
        "left out: 1 linear probes of the frozen model",
    )


def test_a_table_of_which_every_row_is_left_out_is_not_called_empty(tmp_path: Path) -> None:
    path = table(tmp_path, "m,t,6,0,0.9,3,final", header=f"{HEADER},phase")
    with pytest.raises(ResultsError, match="no rows that can be answered; left out: 1 of phase"):
        import_results(path)


def test_spreadsheet_habits_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    text = (
        'Model,Task,Layers,Frozen_Layers,Quality,Seed\r\n"m, 2",t ,6,0, 0.8 ,1.0\r\n\r\n,,,,,\r\n'
    )
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    (one,) = import_results(path).rows
    assert (one.model, one.task, one.quality, one.seed) == ("m, 2", "t", 0.8, 1)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("m,t,6,0,good,1", "field 'quality' must be a number, not 'good'"),
        ("m,t,6,0,nan,1", "field 'quality' must be a finite number, not nan; a run that diverged"),
        ("m,t,6,0,inf,1", "must be a finite number, not inf"),
        ("m,t,6,0,,1", "quality is empty"),
        ("m,t,6,0,-1.5,1", "at most 1"),
        ("m,t,6,0,1e300,1", "at most 1"),
        (",t,6,0,0.8,1", "field 'model' is missing"),
        ("m,,6,0,0.8,1", "field 'task' is missing"),
        ("m,t,,0,0.8,1", "field 'layers' is missing"),
        ("m,t,0,0,0.8,1", "field 'layers' must be 1 or more, not 0"),
        ("m,t,six,0,0.8,1", "field 'layers' must be a whole number, not 'six'"),
        ("m,t,6,,0.8,1", "field 'frozen_layers' is missing"),
        ("m,t,6,7,0.8,1", "frozen_layers is 7, but the model has 6 layers"),
        ("m,t,6,2.5,0.8,1", "field 'frozen_layers' must be a whole number, not 2.5"),
        ("m,t,6,-2,0.8,1", "frozen_layers is -2; it must be 0 or more"),
        ("m,t,6,0,0.8,", "needs a seed, or runs"),
        ("m,t,6,0,0.8,1.5", "field 'seed' must be a whole number, not 1.5"),
        ("m,t,6,0,0.8", "5 fields where the header has 6"),
        ("m,t,6,0,0,8,1", "7 fields where the header has 6"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = table(tmp_path, "m,t,6,0,0.9,9", line)
    with pytest.raises(ResultsError) as caught:
        import_results(path)
    assert complaint in str(caught.value) and f"{path}, line 3: " in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("status", "done", "field 'status' must be one of planned, running, completed"),
        ("phase", "test", "field 'phase' must be one of explore, measure"),
        ("learning_rate", "0", "learning_rate is 0; it must be a number above 0 and up to 1"),
        ("learning_rate", "3", "learning_rate is 3; it must be a number above 0 and up to 1"),
        ("learning_rate", "fast", "learning_rate is 'fast'; it must be a number"),
        (
            "embeddings_frozen",
            "maybe",
            "embeddings_frozen is 'maybe'; it must be true or false",
        ),
        (
            "embeddings_frozen",
            "false",
            "with one or more frozen layers the embeddings are frozen too",
        ),
        ("std", "-0.1", "field 'std' must be 0 or more"),
        ("std", "0.1", "std is given for a single run"),
        ("runs", "0", "field 'runs' must be 1 or more"),
        ("train_seconds", "-1", "field 'train_seconds' must be 0 or more, not -1"),
        ("train_size", "0", "field 'train_size' must be 1 or more"),
        ("epochs", "three", "field 'epochs' must be a whole number"),
        ("chance", "52.7", "field 'chance' must be a fraction, at most 1, not 52.7"),
    ],
)
def test_a_bad_optional_field_is_named(
    tmp_path: Path, column: str, value: str, complaint: str
) -> None:
    path = table(tmp_path, f"m,t,6,3,0.8,1,{value}", header=f"{HEADER},{column}")
    with pytest.raises(ResultsError) as caught:
        import_results(path)
    assert complaint in str(caught.value) and "line 2" in str(caught.value)


def test_more_units_than_examples_are_refused(tmp_path: Path) -> None:
    header = f"{HEADER},examples,evaluation_units"
    path = table(tmp_path, "m,t,6,3,0.8,1,200,200", "m,t,6,3,0.8,2,200,201", header=header)
    complaint = "line 3: evaluation_units is 201, but examples is 200; a unit is one or more"
    with pytest.raises(ResultsError, match=complaint):
        import_results(path)
    for line in ("m,t,6,3,0.8,1,200,200", "m,t,6,3,0.8,1,,300", "m,t,6,3,0.8,1,200,"):
        assert len(import_results(table(tmp_path, line, header=header)).rows) == 1


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("model,task,frozen_layers,quality,seed", "missing columns layers;"),
        ("model,task,layers,frozen_layers,quality", "seed (one row a run) or runs"),
        ("model,task,layers,frozen_layers,acc,f1,seed", "quality can be acc or f1; choose one"),
        ("model|task|layers|frozen_layers|quality|seed", "it has, separated by commas, model|task"),
        (
            "model,model,task,layers,frozen_layers,quality,seed",
            "model can be model or model; rename one",
        ),
    ],
)
def test_a_bad_header_is_named(tmp_path: Path, header: str, complaint: str) -> None:
    with pytest.raises(ResultsError) as caught:
        import_results(table(tmp_path, "m,t,6,0,0.8,1", header=header))
    assert complaint in str(caught.value) and "line 1" in str(caught.value)


@pytest.mark.parametrize(("first", "second"), [("acc", "acc"), ("Acc", "ACC")])
def test_a_column_that_is_there_twice_is_not_chosen_by_map(
    tmp_path: Path, first: str, second: str
) -> None:
    header = f"model,task,layers,frozen_layers,{first},seed,{second}"
    path = table(tmp_path, "m,t,6,0,0.5,1,0.9", header=header)
    complaint = f"line 1: `map` names acc, which can be {first} or {second}; rename one"
    with pytest.raises(ResultsError, match=complaint):
        import_results(path, mapping=["quality=acc"])


def test_map_names_a_column_exactly_or_in_another_case(tmp_path: Path) -> None:
    path = table(tmp_path, "m,t,6,0,0.5,1,0.9", header=HEADER.replace("quality", "ACC") + ",acc")
    for name, quality in (("ACC", 0.5), ("acc", 0.9)):
        (one,) = import_results(path, mapping=[f"quality={name}"]).rows
        assert one.quality == quality
    path = table(tmp_path, "m,t,6,0,0.5,1", header=HEADER.replace("quality", "ACC"))
    (one,) = import_results(path, mapping=["quality=acc"]).rows
    assert one.quality == 0.5


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_spreadsheets_part_cells_by_other_than_commas(tmp_path: Path, delimiter: str) -> None:
    path = table(tmp_path, "m,t,6,0,0.8,1", "m,t,6,3,0.7,1")
    path.write_text(path.read_text().replace(",", delimiter))
    assert [row.quality for row in import_results(path).rows] == [0.8, 0.7]


def test_contradictions_are_refused_when_they_are_answered(tmp_path: Path) -> None:
    good = "m,t,6,0,0.80,1"
    path = table(tmp_path, good, "m,t,6,3,0.7,1", "m,t,6,0,0.81,1")
    with pytest.raises(ResultsError, match=r"the full model.*seed 1: two rows disagree"):
        answer_rows(import_results(path).rows)
    with pytest.raises(ResultsError, match="the rows say 6 and 12 layers"):
        answer_rows(import_results(table(tmp_path, good, "m,t,12,0,0.8,2")).rows)
    assert len(import_results(table(tmp_path, good, good)).rows) == 2


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    for content, complaint in (
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\xff\xfe\x00m", "UTF-8"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "it is no text: save its table as CSV"),
    ):
        path = tmp_path / "results.csv"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=complaint):
            import_results(path)
    with pytest.raises(DataError, match="not valid CSV in the row that begins at line 2"):
        import_results(table(tmp_path, 'm,t,6,0,"0.8,1'))
    with pytest.raises(ResultsError, match="header and no rows"):
        import_results(table(tmp_path))
    with pytest.raises(DataError, match="does not exist"):
        import_results(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="is a folder"):
        import_results(tmp_path)
    with pytest.raises(DataError, match="/dev/null is a device or a pipe, not a data file"):
        import_results(Path("/dev/null"))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    rows = [
        *falling_curve(search="s", comparison="a, b", train_seconds=12.5, examples=277),
        row(EMBEDDINGS_ONLY, None, status=TrialStatus.DIVERGED, seed=9, selection="last"),
        row(3, 0.7, phase=Phase.EXPLORE, status=TrialStatus.STOPPED_EARLY, train_size=50),
        row(4, 0.7, seed=None, runs=5, std=0.01, trainable_parameters=1000),
    ]
    path = tmp_path / "rows.csv"
    path.write_text(write_results(rows), encoding="utf-8")
    assert import_results(path).rows == as_table_has(rows)


@pytest.mark.thorough  # quickly, of another tool's table, in test_bad_tables.py
def test_a_hundred_thousand_rows_are_answered_in_seconds(tmp_path: Path) -> None:
    lines = [
        f"m{model},t,12,{frozen},{0.9 - frozen / 100 + seed / 1e6:.6f},{seed}"
        for model in range(4)
        for frozen in (0, 6, 7, 8, 9, 10, 11, 12)
        for seed in range(3125)
    ]
    assert len(lines) == 100_000
    path = table(tmp_path, *lines)
    started = time.process_time()  # what else runs on the machine does not count
    answers = answer_rows(import_results(path).rows)
    assert time.process_time() - started < 30
    assert [answer.points[0].seeds for answer in answers] == [3125] * 4


@pytest.mark.parametrize(
    "name", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "'=1", "''@x", "'plain", "-", "a=b"]
)
def test_no_spreadsheet_takes_a_name_for_a_formula(name: str, tmp_path: Path) -> None:
    rows = [dataclasses.replace(one, model=name, task=name) for one in falling_curve()]
    answers = answer_rows(rows)
    texts = write_results(rows), answers_csv(answers), curves_csv(answers)
    for text in texts:
        assert name in text or name.replace('"', '""') in text
        for line in csv.reader(text.splitlines()):
            for cell in line:
                assert cell[:1] not in {"=", "+", "-", "@"} or float(cell) <= 0
    path = tmp_path / "trials.csv"
    path.write_text(texts[0], encoding="utf-8")
    assert {(one.model, one.task) for one in import_results(path).rows} == {(name, name)}


def test_a_number_is_no_formula() -> None:
    assert [plain_cell(value) for value in ("-0.5", "+3", -1.5, None, "\tx")] == [
        *("-0.5", "+3", -1.5, None, "'\tx"),
    ]


def test_a_carriage_return_within_a_cell_begins_no_row() -> None:
    text = csv_text(["model", "note"], [["a", "one\rtwo"]])
    rows = csv.reader(io.StringIO(text, newline=""))
    assert list(rows) == [["model", "note"], ["a", "one\rtwo"]]
