"""Reading: GLUE's official files with all their quirks, and the user's files.

And every kind of bad input.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elsa_tune.errors import DataError
from elsa_tune.specs.task import FilesSource, Metric, TaskKind, TaskSpec
from elsa_tune.tasks.known import GLUE_TASKS
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tasks.types.scores import chance
from elsa_tune.training.data.texts import read_texts
from elsa_tune.training.data.tokens import Split


def tsv(*lines: str, end: str = "\n", last_end: bool = True) -> str:
    """Lines whose fields are written with bars between them."""
    text = end.join(lines).replace("|", "\t")
    return text + end if last_end else text


MRPC_HEADER = "Quality|#1 ID|#2 ID|#1 String|#2 String"
QQP_HEADER = "id|qid1|qid2|question1|question2|is_duplicate"
TWO_SENTENCES = "index|sentence1|sentence2|label"
QNLI = tsv("index|question|sentence|label", "0|Who?|He.|entailment", "1|Why?|So.|not_entailment")
WNLI = tsv(TWO_SENTENCES, "0|a|b|1", "1|c|d|0")
RTE_LINES = (TWO_SENTENCES, "0|a|b|entailment", "1|c|d|not_entailment")
MNLI_HEADER = "index|promptID|sentence1|sentence2|label1|gold_label"
STSB_HEADER = "index|genre|sentence1|sentence2|score"

GLUE_FILES = {
    # Header-less, and the last line without its end.
    "CoLA/train.tsv": tsv("g|1||It ran.", "g|0|*|Ran it the.", "g|1||null", last_end=False),
    "CoLA/dev.tsv": tsv("g|1||It ran.", "g|0|*|Ran it the.", last_end=False),
    "SST-2/train.tsv": tsv("sentence|label", "nan |1", '"quoted , and open |0'),
    "SST-2/dev.tsv": tsv("sentence|label", "good |1", "bad |0"),
    # A byte order mark in dev alone; a quote that nothing closes.
    "MRPC/train.tsv": tsv(MRPC_HEADER, '1|7|8|" He said|NA', "0|1|2|a|b"),
    "MRPC/dev.tsv": "\ufeff" + tsv(MRPC_HEADER, "1|7|8|x|y", "0|1|2|a|b"),
    "STS-B/train.tsv": tsv(STSB_HEADER, "0|n|a|b|5.000", "1|n|c|d|0.25"),
    "STS-B/dev.tsv": tsv(STSB_HEADER, "0|n|a|b|1", "1|n|c|d|4.5"),
    # The real file has rows that a line break in a question tore apart.
    "QQP/train.tsv": tsv(
        QQP_HEADER, "1|2|3|Why?|How?|0", "2|4|5|Torn", "3|6|7|Same?|Same?|1", "4|8|9|Gap?||0"
    ),
    "QQP/dev.tsv": tsv(QQP_HEADER, "1|2|3|A?|B?|0", "2|2|3|A?|A?|1"),
    "MNLI/train.tsv": tsv(
        MNLI_HEADER,
        "0|1|a|b|neutral|neutral",
        "1|1|c|d|entailment|entailment",
        "2|1|e|f|neutral|-",
        "3|1|g|h|contradiction|contradiction",
    ),
    "MNLI/dev_matched.tsv": tsv(
        MNLI_HEADER, "0|1|a|b|neutral|neutral", "1|1|c|d|neutral|entailment"
    ),
    "MNLI/dev_mismatched.tsv": tsv(
        MNLI_HEADER,
        "0|1|a|b|neutral|contradiction",
        "1|1|c|d|entailment|entailment",
        "2|1|c|d|entailment|neutral",
    ),
    "QNLI/train.tsv": QNLI,
    "QNLI/dev.tsv": QNLI,
    "RTE/train.tsv": tsv(*RTE_LINES),
    "RTE/dev.tsv": tsv(*RTE_LINES, end="\r\n"),
    "WNLI/train.tsv": WNLI,
    "WNLI/dev.tsv": WNLI,
}


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    """Return the official layout in small, every quirk in it."""
    for name, text in GLUE_FILES.items():
        path = tmp_path / "glue" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))
    return tmp_path / "glue"


def read(name: str, folder: Path) -> dict[str, Split]:
    return read_texts(resolve_task(name, data_dir=str(folder)))


@pytest.mark.parametrize("name", sorted(GLUE_TASKS))
def test_all_nine_are_read(glue: Path, name: str) -> None:
    task = resolve_task(name, data_dir=str(glue))
    texts = read_texts(task)
    assert len(texts["train"].texts) == len(task.text_columns)
    assert len(texts["train"]) >= 2 and len(texts["evaluation"]) == 2
    if task.kind is TaskKind.CLASSIFICATION:
        assert texts["train"].labels.min() >= 0 and texts["train"].labels.max() < task.outputs


def test_texts_stay_the_texts_they_are(glue: Path) -> None:
    assert read("cola", glue)["train"].texts == (["It ran.", "Ran it the.", "null"],)
    assert read("cola", glue)["train"].labels.tolist() == [1, 0, 1]
    assert read("sst2", glue)["train"].texts == (["nan ", '"quoted , and open '],)
    assert read("mrpc", glue)["train"].texts == (['" He said', "a"], ["NA", "b"])


def test_a_byte_order_mark_is_no_part_of_the_first_column(glue: Path) -> None:
    evaluation = read("mrpc", glue)["evaluation"]
    assert evaluation is not None
    assert evaluation.labels.tolist() == [1, 0]


def test_a_regressions_values(glue: Path) -> None:
    labels = read("stsb", glue)["train"].labels
    assert labels.dtype == "float32"
    assert labels.tolist() == [5.0, 0.25]


def test_torn_rows_are_reported_and_one_empty_text_of_two_is_a_text(glue: Path) -> None:
    train = read("qqp", glue)["train"]
    assert train.texts == (["Why?", "Same?", "Gap?"], ["How?", "Same?", ""])
    assert train.notes == (
        "1 of 4 rows of train.tsv skipped: missing question2, is_duplicate (line 3)",
    )
    assert train.lost is not None
    assert (train.lost.count, train.lost.of) == (1, 4)
    assert train.lost.names == ("1 missing question2, is_duplicate",)


def test_many_skipped_rows_are_counted_not_listed(glue: Path) -> None:
    with (glue / "RTE" / "train.tsv").open("a") as file:
        file.write("".join(f"{n}\tonly one\n" for n in range(1200)))
    assert read("rte", glue)["train"].notes == (
        "1,200 of 1,202 rows of train.tsv skipped: missing sentence2, label "
        "(lines 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 and 1,190 more)",
    )


def test_a_row_too_wide_is_reported(glue: Path) -> None:
    with (glue / "RTE" / "train.tsv").open("a") as file:
        file.write("2\ta\ttab\tin it\tentailment\n")
    assert read("rte", glue)["train"].notes == (
        "1 of 3 rows of train.tsv skipped: more fields than the header (line 4)",
    )


def test_mnli_has_two_evaluations_and_rows_without_gold(glue: Path) -> None:
    texts = read("mnli", glue)
    assert texts["train"].labels.tolist() == [1, 0, 2]
    assert texts["train"].notes == (
        "1 of 4 rows of train.tsv skipped: the annotators agreed on no gold_label ('-') (line 4)",
    )
    assert len(texts["evaluation"]) == 2
    assert texts["mnli_mismatched"].labels.tolist() == [2, 0, 1]


def test_folders_are_found_in_any_case(glue: Path) -> None:
    (glue / "RTE").rename(glue / "rte")
    assert len(read("rte", glue)["train"]) == 2


def test_other_line_ends_of_unicode_are_characters(glue: Path) -> None:
    rows = "sentence\tlabel\none\u2028still one\u0085and\x0bhere\rtoo\t1\nbad\t0\n"
    (glue / "SST-2" / "train.tsv").write_bytes(rows.encode())
    assert read("sst2", glue)["train"].texts == (
        ["one\u2028still one\u0085and\x0bhere\rtoo", "bad"],
    )


# --- The real files ------------------------------------------------------------------------------

REAL = {"rte": (2490, 277), "cola": (8551, 1043), "sst2": (67349, 872), "mrpc": (3668, 408)}


@pytest.mark.parametrize("name", sorted(REAL))
def test_the_real_files_whole_and_their_chance(shared: Path, name: str) -> None:
    task = resolve_task(name, data_dir=str(shared / "glue"))
    texts = read_texts(task)
    assert (len(texts["train"]), len(texts["evaluation"])) == REAL[name]
    assert texts["train"].notes == texts["evaluation"].notes == ()
    for metric in (task.metric, *task.companions):
        found = chance(metric, texts["evaluation"].labels, task.outputs)
        assert found == pytest.approx(task.published_chance[metric.value], abs=1e-12)


@pytest.mark.parametrize("name", ["cola", "mrpc", "rte", "sst2"])
def test_the_real_files_as_datasets_reads_them(
    shared: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader gives the same texts as `datasets`' own, to the character.

    That one is told of the same quirks.
    """
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    task = resolve_task(name, data_dir=str(shared / "glue"))
    texts = read_texts(task)["evaluation"]
    assert texts is not None
    folder = {"cola": "CoLA", "mrpc": "MRPC", "rte": "RTE", "sst2": "SST-2"}[name]
    columns = {"cola": [3], "mrpc": ["#1 String", "#2 String"], "sst2": ["sentence"]}
    theirs = load_dataset(
        "csv",
        data_files=str(shared / "glue" / folder / "dev.tsv"),
        split="train",
        delimiter="\t",
        quoting=3,
        keep_default_na=False,
        header=None if name == "cola" else 0,
        cache_dir=str(tmp_path),
    )
    names = columns.get(name, ["sentence1", "sentence2"])
    assert [list(theirs[str(column)]) for column in names] == list(texts.texts)


# --- Bad input -----------------------------------------------------------------------------------


def test_the_folder_without_the_task(glue: Path) -> None:
    for path in (glue / "QQP").iterdir():
        path.unlink()
    (glue / "QQP").rmdir()
    with pytest.raises(DataError, match=r"'QQP'.*CoLA, MNLI, MRPC"):
        read("qqp", glue)
    with pytest.raises(DataError, match="folder above"):
        read("qqp", glue / "RTE")


def test_the_folder_without_the_split(glue: Path) -> None:
    (glue / "RTE" / "dev.tsv").unlink()
    with pytest.raises(DataError, match=r"dev\.tsv .*RTE, .*train\.tsv"):
        read("rte", glue)


def test_only_the_unlabelled_test_file(glue: Path) -> None:
    (glue / "RTE" / "dev.tsv").rename(glue / "RTE" / "test.tsv")
    with pytest.raises(DataError, match=r"test\.tsv, train\.tsv"):
        read("rte", glue)


def test_a_test_file_renamed_to_dev(glue: Path) -> None:
    (glue / "RTE" / "dev.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    with pytest.raises(DataError, match=r"'label'; .*'index', 'sentence1'"):
        read("rte", glue)
    (glue / "CoLA" / "dev.tsv").write_text("index\tsentence\n0\tBill ran.\n")
    with pytest.raises(DataError, match=r"2 of 2 .*dev\.tsv .*missing"):
        read("cola", glue)


def test_labels_of_minus_one_are_refused_with_the_reason(glue: Path) -> None:
    (glue / "WNLI" / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\t-1\n")
    with pytest.raises(DataError, match=r"dev\.tsv line 2: label -1"):
        read("wnli", glue)


def test_a_label_outside_the_classes(glue: Path) -> None:
    with (glue / "RTE" / "train.tsv").open("a") as file:
        file.write("2\ta\tb\tmaybe\n")
    with pytest.raises(
        DataError, match=r"RTE/train.tsv line 4: label 'maybe'.*'entailment', 'not_entailment'"
    ):
        read("rte", glue)


@pytest.mark.parametrize("label", ["five", "nan", "inf"])
def test_a_value_that_is_no_number(glue: Path, label: str) -> None:
    with (glue / "STS-B" / "train.tsv").open("a") as file:
        file.write(f"2\tn\ta\tb\t{label}\n")
    with pytest.raises(DataError, match=f"line 4: label '{label}'"):
        read("stsb", glue)


def test_missing_columns_say_what_is_there(glue: Path) -> None:
    (glue / "QNLI" / "train.tsv").write_text("index\tq\tsentence\tlabel\n")
    with pytest.raises(DataError, match=r"'question'; .*'index', 'q'"):
        read("qnli", glue)


def test_empty_splits(glue: Path) -> None:
    path = glue / "RTE" / "train.tsv"
    path.write_text("index\tsentence1\tsentence2\tlabel\n")
    with pytest.raises(DataError, match=r"RTE/train\.tsv"):
        read("rte", glue)
    path.write_text("index\tsentence1\tsentence2\tlabel\n0\ta\n")
    with pytest.raises(DataError, match=r"1 of 1 rows of train\.tsv"):
        read("rte", glue)
    path.write_text("")
    with pytest.raises(DataError, match=r"train\.tsv is empty"):
        read("rte", glue)


def test_one_class_only(glue: Path) -> None:
    (glue / "SST-2" / "dev.tsv").write_text("sentence\tlabel\na\t1\nb\t1\n")
    with pytest.raises(DataError, match=r"dev\.tsv .*label '1'"):
        read("sst2", glue)
    (glue / "STS-B" / "train.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t2\nc\td\t2.0\n")
    with pytest.raises(DataError, match=r"train\.tsv .*value 2"):
        read("stsb", glue)


def test_a_file_that_is_not_utf8(glue: Path) -> None:
    rows = "sentence\tlabel\n" + "fine\t1\n" * 5000 + "caf\u00e9\t0\n"
    (glue / "SST-2" / "train.tsv").write_bytes(rows.encode("latin-1"))
    with pytest.raises(DataError, match=r"UTF-8: .*0xe9 .*5002"):
        read("sst2", glue)


# --- The user's own files ------------------------------------------------------------------------


def own(path: Path, format: str, **changes: object) -> TaskSpec:
    fields: dict[str, object] = {
        "name": "own",
        "kind": TaskKind.CLASSIFICATION,
        "text_columns": ("text",),
        "label_column": "label",
        "classes": ("0", "1"),
        "metric": Metric.ACCURACY,
        "source": FilesSource(format=format, train=(str(path),), evaluation_share=0.5),
        **changes,
    }
    return TaskSpec(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("format", "content", "message"),
    [
        ("csv", "text,label,text\na,1,b\n", r"'text' twice"),
        ("csv", 'text,label\n"open,1\n', r"CSV .*line 2"),
        ("csv", 'text,label\na,1\n"b"x,0\n', r"CSV .*line 3"),
        ("jsonl", '{"text": "a", "label": 1}\n{"text": \n', r"line 2 .*JSON"),
        ("jsonl", '["a", 1]\n', r"line 1 holds a list; .*object"),
        ("jsonl", '{"text": "a \\ud83d", "label": 1}\n', r"line 1 has half of a character"),
        ("jsonl", '{"text": ["a"], "label": 1}\n', r"line 1 holds a list in column 'text'"),
        (
            "jsonl",
            '{"txt": "a", "label": 1}\n',
            r"'text'; .*'txt', 'label'",
        ),
        ("jsonl", "\n", r"is empty"),
        ("parquet", "PAR1 but no more", r"Parquet"),
        ("csv", "id,txt,label\n1,a,1\n", r"'id', 'txt', 'label'$"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, format: str, content: str, message: str) -> None:
    path = tmp_path / f"rows.{format}"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_texts(own(path, format))


def test_parquet_with_a_column_twice(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    columns = [pa.array(["a"]), pa.array([1]), pa.array(["b"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["text", "label", "text"]), path)
    with pytest.raises(DataError, match="'text' twice"):
        read_texts(own(path, "parquet"))


def test_a_cell_may_be_a_book(tmp_path: Path) -> None:
    """Python's own reader refuses one of more than 131,072 characters."""
    path = tmp_path / "rows.csv"
    book = "word " * 40_000
    path.write_text(f'text,label\n"{book}",1\nb,0\n')
    splits = read_texts(own(path, "csv"))
    assert list(splits["train"].texts[0]) == [book, "b"]


def test_labels_keep_their_form(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"text": "a", "label": 1.0}\n{"text": "b", "label": true}\n{"text": "c", "label": "007"}\n'
        '{"text": "d", "label": NaN}\n'
    )
    train = read_texts(own(path, "jsonl", classes=("1", "true", "007")))["train"]
    assert train.labels.tolist() == [0, 1, 2]
    assert train.notes == ("1 of 4 rows of rows.jsonl skipped: missing label (line 4)",)


def test_a_worker_without_the_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv"):
        read_texts(own(tmp_path / "gone.csv", "csv"))


def test_a_worker_without_the_glue_folder_says_so(tmp_path: Path, glue: Path) -> None:
    task = resolve_task("rte", data_dir=str(glue))
    glue.rename(tmp_path / "moved")
    with pytest.raises(DataError, match="this machine"):
        read_texts(task)
