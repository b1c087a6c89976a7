"""The user's own task: every field of the YAML file, every format.

And what is said when one is wrong.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elsa_tune.errors import DataError
from elsa_tune.specs.task import FilesSource, Metric, TaskKind
from elsa_tune.tasks.table_file import check_readable
from elsa_tune.tasks.task_file import read_task_file, resolve_task
from elsa_tune.training.data.texts import read_texts

CSV = 'subject,body,urgent\nHelp,"My, screen\nis dark",yes\nHello,null,no\nBye,nan,no\n'
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return what writes a task file beside `rows.csv` and gives its path; None removes a field."""

    def _write(**fields: object) -> Path:
        (tmp_path / "rows.csv").write_text(CSV, encoding="utf-8")
        values: dict[str, object] = {
            "name": "tickets",
            "files": {"train": "rows.csv"},
            "text": ["subject", "body"],
            "label": "urgent",
            **fields,
        }
        kept = {key: value for key, value in values.items() if value is not None}
        path = tmp_path / "tickets.yaml"
        path.write_text(json.dumps(kept), encoding="utf-8")  # JSON is YAML
        return path

    return _write


def test_everything_written_out(tmp_path: Path, write: Write) -> None:
    (tmp_path / "dev.csv").write_text(CSV)
    task = read_task_file(
        write(
            files={"train": ["rows.csv"], "evaluation": "dev.csv"},
            classes=["no", "yes"],
            metric="f1",
            format="csv",
        )
    )
    assert (task.name, task.kind, task.metric) == ("tickets", TaskKind.CLASSIFICATION, Metric.F1)
    assert task.text_columns == ("subject", "body")
    assert task.classes == ("no", "yes")
    assert task.companions == (Metric.ACCURACY,)
    assert task.source == FilesSource(
        format="csv", train=(str(tmp_path / "rows.csv"),), evaluation=(str(tmp_path / "dev.csv"),)
    )
    split = read_texts(task)["train"]
    assert split.texts == (["Help", "Hello", "Bye"], ["My, screen\nis dark", "null", "nan"])
    assert split.labels.tolist() == [1, 0, 0]
    assert split.notes == ()


def test_the_short_form(write: Write) -> None:
    task = resolve_task(str(write(text="body")))
    assert task.text_columns == ("body",)
    assert task.classes == ("no", "yes")  # the training file's, sorted
    assert task.metric is Metric.ACCURACY
    assert isinstance(task.source, FilesSource)
    assert task.source.evaluation_share == 0.2


def test_files_without_a_word_are_those_to_train_on(tmp_path: Path, write: Write) -> None:
    (tmp_path / "more.csv").write_text(CSV)
    whole = read_task_file(write(files={"train": ["rows.csv", "more.csv"]}))
    assert read_task_file(write(files=["rows.csv", "more.csv"])) == whole
    assert read_task_file(write(files="rows.csv")) == read_task_file(write())


def test_yaml_as_people_write_it(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("text\tlabel\na\tno\nb\tyes\n")
    path = tmp_path / "t.yml"
    # YAML 1.1 would read [no, yes] as False and True, and 1.10 as a number.
    path.write_text(
        "name: yes_no\nfiles: {train: rows.tsv}\ntext: text\nlabel: label\n"
        "classes: [no, yes, 1.10]\nregression: false\nevaluation_share: 0.5\n"
    )
    task = resolve_task(str(path))
    assert task.classes == ("no", "yes", "1.10")
    assert isinstance(task.source, FilesSource)
    assert (task.source.format, task.source.evaluation_share) == ("tsv", 0.5)


def test_number_classes_are_sorted_as_numbers(tmp_path: Path, write: Write) -> None:
    (tmp_path / "n.csv").write_text("t,l\na,10\nb,2\nc,-1\nd,other\n")
    task = read_task_file(write(files={"train": "n.csv"}, text="t", label="l"))
    assert task.classes == ("-1", "2", "10", "other")


def test_a_regression(tmp_path: Path, write: Write) -> None:
    (tmp_path / "n.csv").write_text("t,score\na,0.5\nb,2\n")
    task = read_task_file(write(files={"train": "n.csv"}, text="t", label="score", regression=True))
    assert (task.kind, task.outputs, task.classes) == (TaskKind.REGRESSION, 1, ())
    assert (task.metric, task.companions) == (Metric.SPEARMAN, (Metric.PEARSON,))
    assert read_texts(task)["train"].labels.tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [1.7e9 + n for n in range(100)],
            r"as large as 1\.7e\+09 .* subtract a constant",
        ),
        ([1e39, 1.0, 2.0], "label '1e.39' .* not a finite number of 32 bits; divide all labels"),
        ([2e7 + 1e5 * n for n in range(100)], ""),
    ],
)
def test_values_that_32_bits_would_blur_are_refused(
    tmp_path: Path, write: Write, values: list[float], words: str
) -> None:
    lines = [f"text {n},{value!r}\n" for n, value in enumerate(values)]
    (tmp_path / "n.csv").write_text("t,score\n" + "".join(lines))
    task = write(files={"train": "n.csv"}, text="t", label="score", regression=True)
    refused = pytest.raises(DataError, match=words) if words else contextlib.nullcontext()
    with refused:
        read_texts(read_task_file(task))


ROWS = [
    {"text": "null", "label": 0, "extra": None},
    {"text": "two\u2028lines", "label": 1, "extra": "x"},
    {"text": None, "label": 1, "extra": "y"},
    {"text": "ok", "label": 1, "extra": "z"},
]


@pytest.mark.parametrize("suffix", ["jsonl", "ndjson", "parquet"])
def test_typed_files(tmp_path: Path, write: Write, suffix: str) -> None:
    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    task = read_task_file(write(files={"train": path.name}, text="text", label="label"))
    assert task.classes == ("0", "1")
    split = read_texts(task)["train"]
    assert split.texts == (["null", "two\u2028lines", "ok"],)
    assert split.labels.tolist() == [0, 1, 1]
    assert split.notes == (f"1 of 4 rows of rows.{suffix} skipped: missing text (line 3)",)


def test_several_files_are_one_split(tmp_path: Path, write: Write) -> None:
    (tmp_path / "more.csv").write_text("subject,body,urgent\nLast,row,yes\n, ,no\n")
    task = read_task_file(write(files={"train": ["rows.csv", "more.csv"]}))
    split = read_texts(task)["train"]
    assert split.texts[0] == ["Help", "Hello", "Bye", "Last"]
    assert split.notes == ("1 of 2 rows of more.csv skipped: missing subject, body (line 3)",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": None}, "field 'name' is missing"),
        ({"label": None}, "field 'label' is missing"),
        ({"files": {}}, "field 'files.train' is missing"),
        ({"files": {"train": []}}, "field 'files.train' must be a list of 1 or more"),
        ({"files": {"train": "rows.csv", "dev": "x"}}, r"'files.dev': known: evaluation, train"),
        ({"lable": "urgent"}, r"unknown field 'lable': did you mean 'label'\?$"),
        ({"label": None, "lable": "urgent"}, r"yaml: unknown field 'lable'.*'label'\?$"),
        ({"text": ["a", "b", "c"]}, r"field 'text' must be a list of 2 or fewer, not \['a', 'b'"),
        ({"text": []}, r"field 'text' must be a list of 1 or more, not \[\]"),
        ({"name": None, "label": None}, r"field 'name' is missing; field 'label' is missing$"),
        ({"name": "rte", "format": "x", "metric": "f2"}, r"'rte' is .*'metric' .*'format'"),
        (
            {"name": None, "regression": "x"},
            r"field 'name' is missing; field 'regression' must be true or",
        ),
        ({"text": ["body", "body"]}, "each must be another column"),
        ({"text": "urgent"}, "columns urgent, urgent; each must be another column"),
        ({"name": "my task"}, r"field 'name' must be letters, .*, not 'my task'"),
        ({"name": "rte"}, "built-in name"),
        ({"name": "all"}, "built-in name"),
        ({"format": "xlsx"}, r"'format' must be one of csv, tsv, jsonl, parquet, not 'xlsx'"),
        ({"classes": ["no"]}, r"field 'classes' must name two or more labels"),
        ({"classes": ["no", "no"]}, r"labels, each once, not \['no', 'no'\]"),
        ({"classes": ["no", "yes"], "regression": True}, "give one of the two"),
        ({"metric": "f2"}, r"'metric' must be one of accuracy, f1, .*, not 'f2'"),
        ({"metric": "macro_f1"}, r"not 'macro_f1': did you mean 'f1_macro'\?"),
        ({"metric": "pearson"}, r"matthews \(a task of numbers has `regression: true`\)"),
        ({"metric": "f1", "regression": True}, "which is a regression; allowed: pearson, spearman"),
        ({"evaluation_share": 0}, r"field 'evaluation_share' must be above 0, not '0'"),
        ({"evaluation_share": 1}, r"field 'evaluation_share' must be below 1, not '1'"),
        ({"evaluation_share": "half"}, r"field 'evaluation_share' must be a number, not 'half'"),
        ({"files": {"train": "gone.csv"}}, r"gone.csv does not exist; its folder holds rows.csv"),
        ({"files": {"train": "gone/gone.csv"}}, r"data file .*gone\.csv does not exist$"),
        ({"files": {"train": "."}}, "is a folder, not a data file"),
        ({"files": {"train": "rows.csv", "evaluation": "rows.csv"}}, "both a training and an"),
        ({"label": "urgency"}, r"no column 'urgency'; its columns are 'subject', 'body', 'urgent'"),
    ],
)
def test_what_is_wrong_is_said(write: Write, fields: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_task_file(write(**fields))
    assert "tickets.yaml" in str(caught.value) or "rows.csv" in str(caught.value)
    assert "GLUE" not in str(caught.value)


def test_an_evaluation_file_and_a_share(tmp_path: Path, write: Write) -> None:
    (tmp_path / "dev.csv").write_text(CSV)
    files = {"train": "rows.csv", "evaluation": "dev.csv"}
    with pytest.raises(DataError, match="give one of the two"):
        read_task_file(write(files=files, evaluation_share=0.3))


def test_formats_that_differ_or_are_unknown(tmp_path: Path, write: Write) -> None:
    (tmp_path / "dev.jsonl").write_text("{}")
    (tmp_path / "dev.xlsx").write_text("")
    with pytest.raises(DataError, match=r"different ones of \.csv"):
        read_task_file(write(files={"train": "rows.csv", "evaluation": "dev.jsonl"}))
    with pytest.raises(DataError, match=r"or in none of them; .*set format"):
        read_task_file(write(files={"train": "dev.xlsx"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [unclosed", "is not readable YAML"),
        ("- a list", r"it must be a table of `field: value`, not \['a list'\]"),
        ("", "it must be a table of `field: value`, not None"),
        ("name: \xff", "is not readable YAML"),
    ],
)
def test_no_yaml_at_all(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        read_task_file(path)


def test_a_task_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        resolve_task(str(tmp_path / "gone.yaml"))


def test_a_link_to_what_is_not_there_is_said_to_be_one(tmp_path: Path) -> None:
    link = tmp_path / "link.csv"
    link.symlink_to("moved/rows.csv")
    with pytest.raises(DataError, match=r"/link\.csv is a link to moved/rows\.csv, where nothing"):
        check_readable(link)


def test_one_class_only_when_classes_are_left_out(tmp_path: Path, write: Write) -> None:
    (tmp_path / "one.csv").write_text("t,l\na,x\nb,x\n")
    with pytest.raises(DataError, match=r"1 different labels in column 'l' \(x\)"):
        read_task_file(write(files={"train": "one.csv"}, text="t", label="l"))


def test_numbers_taken_for_classes(tmp_path: Path, write: Write) -> None:
    rows = "\n".join(f"text {n},{n / 7}" for n in range(1200))
    (tmp_path / "many.csv").write_text(f"t,l\n{rows}\n")
    with pytest.raises(DataError, match=r"1200 different labels.*regression: true"):
        read_task_file(write(files={"train": "many.csv"}, text="t", label="l"))


def test_data_dir_is_not_for_a_task_file(tmp_path: Path, write: Write) -> None:
    with pytest.raises(DataError, match="is a folder of GLUE tasks"):
        resolve_task(str(write()), data_dir=str(tmp_path))


def test_metric_replaced_from_outside(write: Write) -> None:
    assert resolve_task(str(write()), metric="f1_macro").metric is Metric.F1_MACRO


def test_what_annotators_did_not_agree_on_is_no_class_however_the_table_is_named(
    tmp_path: Path, write: Write
) -> None:
    rows = "text,gold_label\n" + "a,neutral\nb,entailment\nc,contradiction\n" * 20 + "d,-\n"
    (tmp_path / "nli.csv").write_text(rows)
    named = resolve_task(str(tmp_path / "nli.csv"))
    described = read_task_file(write(files="nli.csv", text="text", label="gold_label"))
    for task in (named, described):
        assert task.classes == ("contradiction", "entailment", "neutral")
        assert task.metric is Metric.ACCURACY


def test_declared_classes_that_merge_into_one_are_said_to(write: Write) -> None:
    path = write(classes=["yes", "Yes"], merge_labels=True)
    with pytest.raises(DataError, match="labels that are alike merged, there are 1 classes"):
        read_task_file(path)


def test_a_data_set_may_lie_in_the_users_home(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset

    monkeypatch.setenv("HOME", str(tmp_path))
    rows = {"text": ["a", "b"] * 10, "label": ["x", "y"] * 10}
    Dataset.from_dict(rows).save_to_disk(tmp_path / "moods")
    task = read_task_file(write(files="~/moods", text="text", label="label"))
    assert task.classes == ("x", "y")
