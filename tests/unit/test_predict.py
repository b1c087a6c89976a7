"""`elsa-tune predict`: the rows that come out, in every format, from models and bundles."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import pipeline

import elsa_tune
from elsa_tune.errors import DataError, ModelError, UsageError
from elsa_tune.exporting import predicted_file, predicting, progress_line
from elsa_tune.specs.task import Metric, TaskKind, TaskSpec
from elsa_tune.tasks import row_files, written_rows
from elsa_tune.tasks.table_file import csv_rows
from elsa_tune.training.bundle import fastest
from elsa_tune.training.bundle.members import read_members
from tests.conftest import Run
from tests.exporting import exported_model
from tests.unit.test_saved import task_of
from tests.unit.tiny_models import make_tiny

MAP = pa.map_(pa.string(), pa.float64())
TEXTS = ["good film", 'the "best", of\nall: never', "a dull plot " * 20, "é", "bad", "fun fun"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the base model `base` and the exported model `mood`."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ELSA_TUNE_CACHE", str(folder / "cache"))
        environment.chdir(folder)
        base = make_tiny("bert", Path("base"))
        exported_model(folder / "mood", base, task_of(folder / "task"), 2)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With copies of them that may be changed, and `rows.csv`."""
    monkeypatch.chdir(tmp_path)
    for name in ("base", "mood", "task"):
        shutil.copytree(made / name, tmp_path / name)
    with open("rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *enumerate(TEXTS)])
    return tmp_path


def of_pairs(task: TaskSpec, place: Path) -> TaskSpec:
    """Return the same task with its text beside itself."""
    for name in ("train", "dev"):
        frame = pd.read_csv(place / f"{name}.csv").assign(other=lambda one: one["text"])
        frame.to_csv(place / f"{name}.csv", index=False)
    return dataclasses.replace(task, text_columns=("other", "text"))


def by_transformers(folder: str, rows: list[Any]) -> tuple[list[str], list[float]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pipeline("text-classification", folder, truncation=True)(rows)
    return [one["label"] for one in found], [one["score"] for one in found]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("chunk", [1024, 2])
def test_rows_keep_their_order_and_columns_and_answers_are_the_pipelines(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(row_files, "ROWS", chunk)
    status, out, said = run("predict", "mood", "rows.csv", "--probabilities")
    assert status == 0, said
    rows = rows_of(out)
    names = ["id", "text", "prediction", "confidence", "probability_bad", "probability_good"]
    assert list(rows[0]) == names
    assert [(row["id"], row["text"]) for row in rows] == [
        (str(number), text) for number, text in enumerate(TEXTS)
    ]
    labels, scores = by_transformers("mood", TEXTS)
    assert [row["prediction"] for row in rows] == labels
    assert [float(row["confidence"]) for row in rows] == pytest.approx(scores, abs=1e-5)
    for row in rows:
        assert row["confidence"] == row[f"probability_{row['prediction']}"]
        assert float(row["probability_bad"]) + float(row["probability_good"]) == pytest.approx(1)
    assert "6 rows in" in said


def test_a_model_of_an_earlier_version_whose_kind_was_not_recorded_answers_alike(
    folder: Path, run: Run
) -> None:
    _, now, _ = run("predict", "mood", "rows.csv", "--probabilities")
    file = folder / "mood" / "config.json"
    config = json.loads(file.read_text())
    assert config["elsa_tune"].pop("kind") == "classification"
    file.write_text(json.dumps(config))
    status, out, said = run("predict", "mood", "rows.csv", "--probabilities")
    assert status == 0, said
    assert out == now and rows_of(out)[0]["probability_bad"]


def of_unknown_method(folder: Path) -> dict[str, Any]:
    """Have a model say that it was adapted by a method that nobody here knows; return its facts."""
    file = folder / "mood" / "config.json"
    config: dict[str, Any] = json.loads(file.read_text())
    facts: dict[str, Any] = config["elsa_tune"]
    del facts["frozen_layers"], facts["embeddings_frozen"]
    facts["norms_last"] = 1
    file.write_text(json.dumps(config))
    return facts


def test_a_model_of_a_method_that_nobody_here_knows_answers_alike(folder: Path, run: Run) -> None:
    _, now, _ = run("predict", "mood", "rows.csv", "--probabilities")
    [before] = read_members(folder / "mood").values()
    facts = of_unknown_method(folder)
    status, out, said = run("predict", "mood", "rows.csv", "--probabilities")
    assert status == 0, said
    assert out == now
    [after] = read_members(folder / "mood").values()
    assert (
        after.trainable.record()
        == before.trainable.record()
        == {
            "first_trained_layer": facts["first_trained_layer"],
            "embeddings_train": False,
        }
    )
    assert after.frozen().keys() == before.frozen().keys()
    assert after.candidate == before.candidate  # the depth with as much of its own


def test_an_early_model_of_such_a_method_is_refused(folder: Path, run: Run) -> None:
    of_unknown_method(folder)
    file = folder / "mood" / "config.json"
    config = json.loads(file.read_text())
    good = config["elsa_tune"].pop("first_trained_layer")
    file.write_text(json.dumps(config))
    status, _, said = run("predict", "mood", "rows.csv")
    assert status == 2 and "install or import the package that brings its method" in said
    for wrong in (99, -1, "2"):
        assert wrong != good
        config["elsa_tune"]["first_trained_layer"] = wrong
        file.write_text(json.dumps(config))
        status, _, said = run("predict", "mood", "rows.csv")
        assert status == 2 and f"first_trained_layer is {wrong!r}; the model has" in said


def test_a_kind_that_nobody_here_knows_is_said(folder: Path, run: Run) -> None:
    file = folder / "mood" / "config.json"
    config = json.loads(file.read_text())
    config["elsa_tune"]["kind"] = "cost_sensitive"
    file.write_text(json.dumps(config))
    told = (
        "! the labels of mood are of kind 'cost_sensitive', which nothing here knows: they are "
        "predicted as those of a classification; install the package that brings the kind"
    )
    status, _, said = run("predict", "mood", "rows.csv")
    assert status == 0 and told in said.splitlines()


@pytest.mark.parametrize(
    "architecture", ["distilbert", "xlnet", "deberta-v2", "longformer", "mobilebert"]
)
def test_other_architectures_and_pairs_of_texts(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = of_pairs(task_of(tmp_path / "task"), tmp_path / "task")
    exported_model(tmp_path / "mood", make_tiny(architecture, tmp_path / "base"), task, 2)
    rows = pd.DataFrame({"text": TEXTS, "other": TEXTS[::-1]}, index=range(7, 13))
    found = elsa_tune.predict("mood", rows)
    pairs = [{"text": b, "text_pair": a} for a, b in zip(TEXTS, TEXTS[::-1], strict=True)]
    labels, scores = by_transformers("mood", pairs)
    assert list(found["prediction"]) == labels
    assert list(found["confidence"]) == pytest.approx(scores, abs=1e-5)
    assert list(found.index) == list(rows.index)


def test_packed_rows_that_differ_are_run_padded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastest, "LIMIT", -1.0)
    predictor = predicting.Predictor(Path("mood"))
    chunk = row_files.Chunk(("text",), [[text] for text in TEXTS], list(range(6)))
    found = predictor.predict(chunk, Path("rows"))
    assert repr(predictor.bundle) == "Bundle(mood; padded)"
    labels, scores = by_transformers("mood", TEXTS)
    assert found["prediction"] == labels
    assert found["confidence"] == pytest.approx(scores, abs=1e-5)


def test_a_regression_has_values_alone(folder: Path, run: Run) -> None:
    task = task_of(folder / "numbers")
    for name in ("train.csv", "dev.csv"):
        file = folder / "numbers" / name
        file.write_text(file.read_text().replace(",good", ",105.0").replace(",bad", ",95.0"))
    task = dataclasses.replace(
        task, kind=TaskKind.REGRESSION, classes=(), metric=Metric.PEARSON, companions=()
    )
    exported_model(folder / "heat", folder / "base", task, 2, standardize_targets=True)
    status, out, said = run("predict", "heat", "rows.csv", "--probabilities")
    assert status == 0, said
    rows = rows_of(out)
    assert list(rows[0]) == ["id", "text", "prediction"]
    _, values = by_transformers("heat", TEXTS)
    assert [float(row["prediction"]) for row in rows] == pytest.approx(values, rel=1e-5)


def test_every_format_is_read_and_written(folder: Path, run: Run) -> None:
    labels, _ = by_transformers("mood", TEXTS)
    records = [
        {"text": text, "n": n, "more": {"a": [n]}, "part": n / 3} for n, text in enumerate(TEXTS)
    ]
    del records[2]["n"]
    Path("rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    status, out, said = run("predict", "mood", "rows.jsonl")
    assert status == 0, said
    back = [json.loads(line) for line in out.splitlines()]
    assert [one.pop("prediction") for one in back] == labels
    assert all(0.5 <= one.pop("confidence") <= 1 for one in back)
    assert back == records  # values as they came, and what lacks lacks

    frame = pd.DataFrame(
        {
            "text": TEXTS,
            "day": [datetime.date(2026, 1, 2)] * 6,
            "n": pd.array([1, None] * 3, "Int8"),
        }
    )
    frame.to_parquet("rows.parquet")
    assert run("predict", "mood", "rows.parquet", "--out", "scored.parquet")[:2] == (0, "")
    scored = pd.read_parquet("scored.parquet")
    assert list(scored.pop("prediction")) == labels
    assert scored.pop("confidence").dtype == float
    pd.testing.assert_frame_equal(scored, pd.read_parquet("rows.parquet"))

    for out_name in ("a.csv", "b.jsonl", "c.parquet"):
        for source in ("rows.csv", "rows.jsonl", "rows.parquet"):
            done = run("predict", "mood", source, "--out", out_name, "--overwrite")
            assert (done.status, done.out) == (0, ""), done.err
            suffix = Path(out_name).suffix
            if suffix == ".csv":
                found = rows_of(Path(out_name).read_text())
            elif suffix == ".jsonl":
                found = list(map(json.loads, Path(out_name).read_text().splitlines()))
            else:
                found = pd.read_parquet(out_name).to_dict("records")
            assert [one["prediction"] for one in found] == labels
            assert [one["text"] for one in found] == TEXTS

    Path("rows.tsv").write_text('text\tn\n"quoted\t1\nplain\t2\n')
    status, out, _ = run("predict", "mood", "rows.tsv")
    assert [line.split("\t")[:2] for line in out.splitlines()[1:]] == [
        ['"quoted', "1"],
        ["plain", "2"],
    ]
    status, _, said = run("predict", "mood", "rows.csv", "--format", "tsv")
    assert status == 2 and "line 3 has a tab or a line break in a cell" in said


def test_what_is_written_is_json_whatever_lists_and_tables_hold(folder: Path, run: Run) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    nan, inf = float("nan"), float("inf")
    rows = {"text": ["good"], "list": [[1.0, nan]], "table": [{"a": -inf, "b": [[inf]]}]}
    pq.write_table(pa.table({**rows, "map": pa.array([[("k", nan)]], MAP)}), "rows.parquet")
    status, out, said = run("predict", "mood", "rows.parquet", "--format", "jsonl")
    assert status == 0, said
    found = json.loads(out, parse_constant=refuse)
    assert found["list"] == [1.0, None] and found["table"] == {"a": None, "b": [[None]]}
    assert found["map"] == [["k", None]]
    status, out, said = run("predict", "mood", "rows.parquet", "--format", "csv")
    assert status == 0, said
    [row] = rows_of(out)
    for name in ("list", "table", "map"):
        assert json.loads(row[name], parse_constant=refuse) == found[name]
    Path("rows.jsonl").write_text('{"text": "good", "list": [NaN]}\n')
    status, out, said = run("predict", "mood", "rows.jsonl")
    assert status == 0, said
    assert json.loads(out, parse_constant=refuse)["list"] == [None]


def test_half_of_a_character_in_a_name_is_refused_where_it_cannot_be_written(
    folder: Path, run: Run
) -> None:
    rows = '{"text": "good", "a\\ud800": 1}\n'
    Path("half.jsonl").write_text(rows)
    said = r"a column's name in half\.jsonl has half of a character \('\\ud800'\)"
    for to in ("csv", "tsv", "parquet"):
        found = run("predict", "mood", "half.jsonl", "--out", f"scored.{to}")
        assert found.status == 2 and re.search(said, found.err), found.err
        assert not Path(f"scored.{to}").exists()
    with pytest.raises(DataError, match=said):
        elsa_tune.predict("mood", "half.jsonl")
    found = run("predict", "mood", "half.jsonl")
    assert found.status == 0 and "a\ud800" in json.loads(found.out)


def test_rows_on_stdin_and_none_at_all(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stdin:
        buffer = io.BytesIO(b"\xef\xbb\xbftext\r\ngood\r\n")

    monkeypatch.setattr(sys, "stdin", Stdin)
    status, out, said = run("predict", "mood", "-", "--input-format", "csv")
    assert status == 0 and "reading rows from stdin" in said
    assert out.splitlines()[1].startswith("good,")
    Path("none.csv").write_text("id,text\n")
    assert run("predict", "mood", "none.csv")[:2] == (0, "id,text,prediction,confidence\n")


def test_cells_parted_by_semicolons_are_read_as_tasks_reads_them(folder: Path, run: Run) -> None:
    (folder / "comma.csv").write_text("\ntext,other\ngood words,1\nbad words,2\n")
    (folder / "semicolon.csv").write_text("\ntext;other\ngood words;1\nbad words;2\n")
    first, second = (run("predict", "mood", name) for name in ("comma.csv", "semicolon.csv"))
    assert first.status == second.status == 0, second.err
    assert first.out.startswith("text,other,prediction,")
    assert second.out == first.out.replace(",", ";")  # so are they written
    # Excel's own first line says what parts them.
    (folder / "excel.csv").write_text("sep=;\ntext;other\ngood words;1\nbad words;2\n")
    assert run("predict", "mood", "excel.csv").out == second.out
    (folder / "excel.csv").write_text("sep=;\ntext;other\ngood words;1;2\n")
    assert "header in line 3" in run("predict", "mood", "excel.csv").err


@pytest.mark.parametrize("header", ["text|other", "text|a,b"])
def test_what_parts_cells_is_written_where_the_header_does_not_tell_it(
    folder: Path, run: Run, header: str
) -> None:
    (folder / "excel.csv").write_text(f"\ufeffsep=|\n{header}\ngood words|1\n", "utf-8")
    assert run("predict", "mood", "excel.csv", "--out", "scored.csv").status == 0
    sep, names, _ = Path("scored.csv").read_text("utf-8").splitlines()
    assert (sep, names) == ("\ufeffsep=|", f"{header}|prediction|confidence")
    [(_, found), _] = csv_rows(Path("scored.csv"))
    assert found == names.split("|")


def test_a_spreadsheets_file_is_written_as_it_came(folder: Path, run: Run) -> None:
    rows = 'text;price\r\n"good; words";1,50\r\n'
    (folder / "excel.csv").write_bytes(rows.encode("utf-8-sig"))
    assert run("predict", "mood", "excel.csv", "--out", "scored.csv").status == 0
    header, row = Path("scored.csv").read_bytes().decode().splitlines()
    assert header == "\ufefftext;price;prediction;confidence"
    assert row.startswith('"good; words";1,50;')
    # Another format has its own ways.
    assert run("predict", "mood", "excel.csv", "--out", "scored.tsv").status == 0
    assert Path("scored.tsv").read_bytes().startswith(b"text\tprice\tprediction")


@pytest.mark.parametrize("name", ["latin.csv", "latin.tsv"])
def test_a_file_of_another_encoding_is_refused_as_a_tasks_is(
    folder: Path, run: Run, name: str
) -> None:
    Path(name).write_bytes("text\ngood\nnaïve\n".encode("cp1252"))
    _, _, said = run("predict", "mood", name)
    assert (
        "is not UTF-8: byte 0xef in line 3; it looks like WINDOWS-1252: save it as UTF-8, or "
        f"convert it: iconv -f WINDOWS-1252 -t UTF-8 {name} > FILE"
    ) in said


@pytest.mark.thorough
def test_a_pipe_gets_the_data_as_a_file_does(folder: Path, run: Run) -> None:
    """Marks of the order of writing and carriage returns are written out for terminals alone."""
    with open("odd.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], ["\u200fgood\r\nwords"], ["\u200bbad"]])
    assert run("predict", "mood", "odd.csv", "--out", "scored.csv").status == 0
    code = "from elsa_tune.cli.app import main; main()"
    with open("piped.csv", "wb") as piped:
        asked = [sys.executable, "-c", code, "predict", "mood", "odd.csv"]
        subprocess.run(asked, stdout=piped, stderr=subprocess.DEVNULL, check=True)
    piped_rows, scored_rows = (
        [row["text"] for row in rows_of(Path(name).read_bytes().decode())]
        for name in ("piped.csv", "scored.csv")
    )
    assert piped_rows == scored_rows == ["\u200fgood\r\nwords", "\u200bbad"]


def test_an_exported_folder_may_have_any_name(folder: Path, run: Run) -> None:
    (folder / "mood").rename(folder / "my möod")
    assert run("predict", "my möod", "rows.csv").status == 0


def test_what_is_no_file_is_not_replaced(folder: Path, run: Run) -> None:
    os.mkfifo("pipe")
    found = run("predict", "mood", "rows.csv", "--out", "pipe", "--overwrite")
    assert found.status == 2 and "is not a file" in found.err and Path("pipe").is_fifo()
    found = run("predict", "mood", "missing.csv", "--out", "rows.csv", "--overwrite")
    assert found.status == 2 and "missing.csv does not exist" in found.err


def test_a_link_stays_and_the_file_behind_it_is_written(folder: Path, run: Run) -> None:
    Path("kept").mkdir()
    Path("kept/scored.csv").write_text("earlier")
    link = Path("latest.csv")
    link.symlink_to("kept/scored.csv")
    refused = run("predict", "mood", "rows.csv", "--out", "latest.csv")
    assert refused.status == 2 and Path("kept/scored.csv").read_text() == "earlier"
    found = run("predict", "mood", "rows.csv", "--out", "latest.csv", "--overwrite")
    assert found.status == 0, found.err
    assert link.is_symlink() and "prediction" in Path("kept/scored.csv").read_text()
    assert [file.name for file in Path("kept").iterdir()] == ["scored.csv"]


def test_an_own_prediction_in_later_rows_is_not_overwritten(folder: Path, run: Run) -> None:
    rows = [{"text": "good"}] * 1100 + [{"text": "bad", "prediction": "mine"}]
    Path("late.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = run("predict", "mood", "late.jsonl", "--out", "scored.jsonl")
    assert found.status == 2 and "has its own 'prediction' in later rows" in found.err
    assert not Path("scored.jsonl").exists()


def test_texts_that_are_cut_are_counted(folder: Path, run: Run) -> None:
    limit = json.loads((folder / "mood" / "config.json").read_text())["elsa_tune"]["max_length"]
    texts = ["good", " ".join(["good"] * limit), " ".join(["bad"] * (limit - 2))]
    Path("long.csv").write_text("text\n" + "\n".join(texts) + "\n")
    status, _, said = run("predict", "mood", "long.csv")
    assert status == 0
    assert f"predict: 1 row has more than {limit} tokens, of which no more were read" in said
    Path("short.csv").write_text("text\ngood\n")
    assert "tokens" not in run("predict", "mood", "short.csv").err


def test_empty_texts_are_predicted_and_counted(folder: Path, run: Run) -> None:
    Path("gaps.csv").write_text("id,text\n1,good\n2,\n3\n4,  \n")
    status, out, said = run("predict", "mood", "gaps.csv")
    assert status == 0
    assert [row["id"] for row in rows_of(out)] == ["1", "2", "3", "4"]
    labels, _ = by_transformers("mood", ["good", "", "", "  "])
    assert [row["prediction"] for row in rows_of(out)] == labels
    assert "3 rows have an empty text, and were predicted as such" in said
    Path("gap.csv").write_text('text\ngood\n\n""\n\n')  # an empty line is no row
    status, out, said = run("predict", "mood", "gap.csv")
    assert status == 0 and [row["text"] for row in rows_of(out)] == ["good", ""]
    assert "predict: 1 row has an empty text, and was predicted as such" in said


def test_a_bundle_answers_for_each_task(folder: Path, run: Run) -> None:
    task = task_of(folder / "pairs")
    pair = of_pairs(task, folder / "pairs")
    exported_model(folder / "tone", Path("base"), pair, 3)
    elsa_tune.bundle(["mood", "tone"], "both")
    with open("more.csv", "w", newline="") as file:
        csv.writer(file).writerows([["other", "text"], *zip(TEXTS[::-1], TEXTS, strict=True)])
    status, out, said = run("predict", "both", "more.csv")
    assert status == 0, said
    added = ["mood_prediction", "mood_confidence", "tone_prediction", "tone_confidence"]
    assert list(rows_of(out)[0]) == ["other", "text", *added]
    for name in ("mood", "tone"):
        _, alone, _ = run("predict", name, "more.csv")
        expected = [row["prediction"] for row in rows_of(alone)]
        assert [row[f"{name}_prediction"] for row in rows_of(out)] == expected
    status, out, _ = run("predict", "both", "rows.csv", "--task", "mood")
    assert (status, list(rows_of(out)[0])) == (0, ["id", "text", *added[:2]])
    status, _, said = run("predict", "both", "rows.csv", "--task", "mod")
    assert status == 2 and "unknown task 'mod': did you mean 'mood'" in said
    status, _, said = run("predict", "both", "rows.csv")
    assert status == 2 and "rows.csv has no column 'other', which 'tone' reads" in said


def reading(name: str, *columns: str) -> None:
    """Make a copy of `mood` that was trained on these columns."""
    shutil.copytree("mood", name)
    config = Path(name, "config.json")
    facts = json.loads(config.read_text())
    facts["elsa_tune"]["text_columns"] = columns
    config.write_text(json.dumps(facts))


def test_each_task_reads_a_list_by_the_places_of_its_texts(folder: Path) -> None:
    """What a task calls its columns orders no pair, and parts none between tasks."""
    reading("qa", "question", "text")
    reading("nli", "text", "other")
    reading("body", "body")
    elsa_tune.bundle(["qa", "nli"], "pairs")
    elsa_tune.bundle(["mood", "body"], "texts")
    elsa_tune.bundle(["mood", "qa"], "mixed")
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    found = elsa_tune.predict("pairs", pairs)
    assert list(found.columns)[:3] == ["text", "text_pair", "qa_prediction"]
    assert list(found["text"]) == TEXTS and list(found["text_pair"]) == TEXTS[::-1]
    for name in ("qa", "nli"):
        alone = elsa_tune.predict(name, pairs)
        assert list(found[f"{name}_confidence"]) == pytest.approx(list(alone["confidence"]))
    alone = elsa_tune.predict("pairs", pairs, task="nli")
    assert list(alone.columns)[:2] == ["text", "other"]

    found = elsa_tune.predict("texts", TEXTS)
    alone = elsa_tune.predict("mood", TEXTS)
    for name in ("mood", "body"):
        assert list(found[f"{name}_confidence"]) == pytest.approx(list(alone["confidence"]))
    for name, rows, words in (
        ("texts", pairs, "each row is a pair of texts, but texts reads text$"),
        ("mood", pairs, "each row is a pair of texts, but mood reads text$"),
        ("pairs", TEXTS, "each row is a text, but pairs reads question and text"),
        ("mixed", TEXTS, "each row is a text, but 'qa' reads question and text.* by `task`"),
        ("mixed", pairs, "each row is a pair of texts, but 'mood' reads text.* by `task`"),
    ):
        with pytest.raises(DataError, match=words):
            elsa_tune.predict(name, rows)
    assert len(elsa_tune.predict("mixed", [])) == 0


def test_columns_that_cannot_do_for_all_tasks_are_named_for_some(folder: Path, run: Run) -> None:
    reading("nli", "text", "second")
    elsa_tune.bundle(["mood", "nli"], "router")
    apart = ", and ask tasks that read pairs apart from the others, by --task"
    for texts, words in (
        ((), "rows.csv has no column 'second', which 'nli' reads; its columns are 'id', 'text': "),
        (("text",), "--text names text; give two different columns, as 'nli' reads"),
        (("text", "id"), "--text names text and id; give one column, as 'mood' reads"),
    ):
        options = [part for name in texts for part in ("--text", name)]
        status, _, said = run("predict", "router", "rows.csv", *options)
        assert status == 2 and words in said and said.endswith(f"{apart}\n")
    asked = ("predict", "router", "rows.csv", "--text", "text", "--text", "id", "--task", "nli")
    assert run(*asked).status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "rows.csv"], "there is no folder nowhere; `elsa-tune export` and"),
        (["task", "rows.csv"], "task cannot be read as an exported model"),
        (["base", "rows.csv"], "base cannot be read as an exported model"),
        (["mood", "no.csv"], "data file no.csv does not exist"),
        (["mood", "rows.txt"], "rows.txt ends in none of .csv, .tsv, .jsonl, .parquet"),
        (["mood", "-"], "say what they are with --input-format: csv, tsv, jsonl, parquet"),
        (["mood", "-", "--input-format", "parquet", "--out", "x.csv"], "stdin has none: name the"),
        (["mood", "other.csv"], "no column 'text', which mood reads; its columns are 'a', 'b'"),
        (["mood", "rows.csv", "--text", "body"], "no column 'body'"),
        (["mood", "rows.csv", "--text", "id", "--text", "text"], "give one column, as mood reads"),
        (["mood", "rows.csv", "--task", "mood"], "mood is one model and no bundle; leave --task"),
        (["mood", "scored.csv"], "has a column 'prediction' already"),
        (["mood", "twice.csv"], "has the column 'text' twice"),
        (["mood", "same.csv", "--format", "jsonl"], "has the column 'x' twice, which jsonl"),
        (["mood", "empty.csv"], "empty.csv is empty"),
        (["mood", "long.csv"], "has more fields than its header in line 3"),
        (["mood", "latin.csv"], "latin.csv is not UTF-8"),
        (["mood", "half.jsonl"], "half.jsonl line 1 has half of a character"),
        (["mood", "list.jsonl"], "list.jsonl line 1 holds a list in column 'text'"),
        (["mood", "rows.csv", "--out", "rows.csv"], "--out rows.csv is the file with the rows"),
        (["mood", "rows.csv", "--out", "other.csv"], "other.csv is there already"),
        (["mood", "rows.csv", "--out", "no/x.csv"], "there is no folder no; create it first"),
        (["mood", "rows.csv", "--out", "s3://bucket/x.csv"], "--out s3:/bucket/x.csv is a URL"),
        (["mood", "s3://bucket/rows.csv"], "a URL is not read, so save its file on this machine"),
        (["mood", "rows.csv", "--format", "parquet"], "Parquet is not written to stdout: name a"),
    ],
)
def test_what_cannot_be_predicted_is_one_sentence(
    arguments: list[str], words: str, folder: Path, run: Run
) -> None:
    Path("other.csv").write_text("a,b\n1,2\n")
    Path("scored.csv").write_text("text,prediction\na,b\n")
    Path("twice.csv").write_text("text,text\na,b\n")
    Path("same.csv").write_text("text,x,x\na,b,c\n")
    Path("empty.csv").write_text("")
    Path("long.csv").write_text("text\na\nb,c\n")
    Path("latin.csv").write_bytes(b"text\ncaf\xe9\n")
    Path("half.jsonl").write_text('{"text": "a \\ud800 b"}\n')
    Path("list.jsonl").write_text('{"text": ["a"]}\n')
    Path("rows.txt").write_text("text\na\n")
    status, _, said = run("predict", *arguments)
    assert status == 2
    assert words in said
    [line] = [line for line in said.splitlines() if line.startswith("elsa-tune: ")]
    assert said.splitlines()[-1] == line
    assert not Path("x.csv").exists()


def test_what_was_exported_before_needs_its_columns(folder: Path, run: Run) -> None:
    config = Path("mood/config.json")
    facts = json.loads(config.read_text())
    del facts["elsa_tune"]["text_columns"]
    config.write_text(json.dumps(facts))
    status, _, said = run("predict", "mood", "rows.csv")
    assert status == 2 and "name them with --text" in said
    assert run("predict", "mood", "rows.csv", "--text", "text").status == 0


def test_rows_come_as_they_are_read(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with a late row costs no earlier one on stdout, and leaves no file."""
    monkeypatch.setattr(row_files, "ROWS", 2)
    Path("late.csv").write_text("text\n" + "good\n" * 5 + "a,b\n")
    status, out, said = run("predict", "mood", "late.csv")
    assert status == 2 and "more fields than its header in line 7" in said
    assert len(rows_of(out)) == 4
    assert run("predict", "mood", "late.csv", "--out", "late-scored.csv").status == 2
    assert not list(folder.glob("*late-scored*"))
    records = [{"text": "a"}, {"text": "b"}, {"text": "c", "new": 1}]
    Path("late.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    status, _, said = run("predict", "mood", "late.jsonl", "--format", "csv")
    assert status == 2 and "has 'new' in later rows only" in said
    assert run("predict", "mood", "late.jsonl").status == 0


def test_how_far_it_is_goes_to_stderr(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_line, "EVERY", 0.0)
    monkeypatch.setattr(row_files, "ROWS", 3)
    for source in ("rows.csv", "rows.parquet"):
        pd.read_csv("rows.csv").to_parquet("rows.parquet")
        _, _, said = run("predict", "mood", source, "--format", "csv")
        lines = [line for line in said.splitlines() if " a second, " in line]
        assert lines[-1].startswith("predict: 6 rows, ") and lines[-1].endswith(" a second, 100%")


def test_a_full_disk_is_one_sentence(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(written_rows.Written, "write", full)
    status, _, said = run("predict", "mood", "rows.csv", "--out", "x.csv")
    assert status == 2 and "cannot be written to x.csv: No space left on device" in said
    assert not list(folder.glob("*x.csv*"))


def test_nobody_is_predicted_for_who_left(folder: Path) -> None:
    class Left(io.StringIO):
        is_gone = True

    predictor = predicting.Predictor(Path("mood"))
    source = row_files.RowFile(Path("rows.csv"), "csv")
    scoring = predicted_file._Scoring(source, predictor, print)
    assert list(scoring.chunks(Left())) == []
    assert len(list(scoring.chunks(io.StringIO()))) == 1


def test_from_python_texts_a_frame_or_a_file(folder: Path) -> None:
    labels, scores = by_transformers("mood", TEXTS)
    found = elsa_tune.predict("mood", TEXTS)
    assert list(found.columns) == ["text", "prediction", "confidence"]
    assert list(found["prediction"]) == labels
    assert list(found["confidence"]) == pytest.approx(scores, abs=1e-5)
    frame = pd.DataFrame({"said": TEXTS, "n": range(6)})
    again = elsa_tune.predict(Path("mood"), frame, text="said", probabilities=True)
    assert list(again["prediction"]) == labels and list(again["n"]) == list(range(6))
    assert "prediction" not in frame
    numbered = elsa_tune.predict("mood", pd.DataFrame({0: TEXTS}), text="0")
    assert list(numbered["prediction"]) == labels
    for source in ("rows.csv", Path("rows.csv")):
        assert list(elsa_tune.predict("mood", source)["prediction"]) == labels


def test_from_python_a_missing_text_is_empty_and_a_mapping_is_no_list(folder: Path) -> None:
    found = elsa_tune.predict("mood", ["good", None])  # type: ignore[list-item]
    assert list(found["text"]) == ["good", ""]
    with pytest.raises(DataError, match="give a list of texts"):
        elsa_tune.predict("mood", {"text": TEXTS})  # type: ignore[arg-type]


def test_from_python_a_column_that_is_there_twice(folder: Path) -> None:
    Path("twice.csv").write_text("text,text\ngood,bad\n")
    with pytest.raises(DataError, match=r"twice\.csv has the column 'text' twice"):
        elsa_tune.predict("mood", "twice.csv")
    Path("others.csv").write_text("x,text,x\n1,good,2\n")
    found = elsa_tune.predict("mood", "others.csv")
    assert list(found.columns) == ["x", "text", "x", "prediction", "confidence"]
    assert list(found.iloc[0])[:3] == ["1", "good", "2"]


def test_a_carriage_return_within_a_text_begins_no_row(folder: Path, run: Run) -> None:
    text = "first line\rsecond line"
    Path("rows.jsonl").write_text(json.dumps({"text": text, "n": 1}) + "\n")
    status, out, said = run("predict", "mood", "rows.jsonl", "--format", "csv")
    assert status == 0, said
    assert [row["text"] for row in rows_of(out)] == [text]
    assert run("predict", "mood", "rows.jsonl", "--out", "scored.csv").status == 0
    assert list(pd.read_csv("scored.csv")["text"]) == [text]
    [chunk] = row_files.RowFile(Path("scored.csv"), "csv")
    assert chunk.texts("text", Path("scored.csv")) == [text]


def test_rows_on_stdout_are_utf8_whatever_the_environment_says(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    status, _, said = run("predict", "mood", "rows.csv")
    assert status == 0, said
    assert [row["text"] for row in rows_of(written.getvalue().decode("utf-8"))] == TEXTS


def test_nanoseconds_that_python_does_not_have_are_kept(folder: Path, run: Run) -> None:
    at = pa.array([1, 999_999_999, None], pa.time64("ns"))
    rows = pa.table({"text": ["good", "bad", None], "at": at})
    pq.write_table(rows, "rows.parquet")
    assert run("predict", "mood", "rows.parquet", "--out", "scored.parquet").status == 0
    scored = pq.read_table("scored.parquet")
    assert scored.select(["text", "at"]).equals(rows)


def test_a_time_that_python_does_not_have_is_one_sentence(folder: Path, run: Run) -> None:
    far = pa.array([2**58], pa.timestamp("us"))  # in the year 11103
    pq.write_table(pa.table({"text": ["good"], "at": far}), "far.parquet")
    status, _, said = run("predict", "mood", "far.parquet", "--format", "csv")
    assert status == 2 and "data file far.parquet cannot be read as Parquet: " in said


def test_from_python_a_file_of_another_ending(folder: Path) -> None:
    shutil.copy("rows.csv", "rows.txt")
    with pytest.raises(UsageError, match="say what they are with `input_format`: csv, tsv"):
        elsa_tune.predict("mood", "rows.txt")
    found = elsa_tune.predict("mood", "rows.txt", input_format="csv")
    assert list(found["text"]) == TEXTS
    with pytest.raises(UsageError, match="`input_format` is of a file, and the rows are none"):
        elsa_tune.predict("mood", TEXTS, input_format="csv")


def test_a_model_whose_name_no_folder_can_have_is_refused() -> None:
    name = "a" * 300
    said = f"the folder {name} cannot be read: File name too long; `elsa-tune"
    with pytest.raises(UsageError, match=said):
        elsa_tune.predict(name, ["x"])
    with pytest.raises(ModelError, match=said):
        elsa_tune.load_bundle(name)
    with pytest.raises(UsageError, match=said):
        elsa_tune.bundle([name], "out")
    with pytest.raises(UsageError, match="name the folder to create"):
        elsa_tune.bundle([name])
