"""What --task may name, and what `elsa-tune tasks` prints.

No data set is read except small local ones.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from elsa_tune.cli.commands.catalogue import tasks
from elsa_tune.errors import DataError, UnknownNameError, UsageError
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.request import read_requests
from elsa_tune.searching.startup.rows import rows_in_use
from elsa_tune.specs.task import FilesSource, GlueSource, Metric, TaskKind
from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.draft import Columns, guess_task
from elsa_tune.tasks.hub import HUB_TASKS
from elsa_tune.tasks.known import GLUE_TASKS, KNOWN_TASKS, LAYOUTS
from elsa_tune.tasks.table_file import read_table
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tasks.types.classification import Classification
from elsa_tune.training.data.preparation import read_splits
from elsa_tune.training.data.texts import read_texts
from tests.unit.tiny_models import make_tiny

app = typer.Typer()
app.command()(tasks)
run = CliRunner()

RTE_ROWS = (
    "index\tsentence1\tsentence2\tlabel\n0\tA cat.\tAn animal.\tentailment\n"
    "1\tA\tB\tnot_entailment\n"
)


@pytest.fixture
def rte_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text(RTE_ROWS)
    return folder.parent


def test_the_nine_tasks_have_the_papers_metrics() -> None:
    metrics = {name: task.metric.value for name, task in GLUE_TASKS.items()}
    assert metrics == {
        "cola": "matthews",
        "sst2": "accuracy",
        "mrpc": "f1",
        "stsb": "spearman",
        "qqp": "f1",
        "mnli": "accuracy",
        "qnli": "accuracy",
        "rte": "accuracy",
        "wnli": "accuracy",
    }
    assert set(LAYOUTS) == set(GLUE_TASKS)


def test_published_chance_is_the_designs() -> None:
    chance = {name: task.known_chance for name, task in GLUE_TASKS.items()}
    assert chance["rte"] == 146 / 277
    assert chance["sst2"] == 444 / 872
    assert chance["mrpc"] == pytest.approx(0.8122, abs=5e-5)
    assert chance["qqp"] == pytest.approx(0.538, abs=5e-4)  # all positive, not the majority class
    assert chance["mnli"] == 3479 / 9815
    assert GLUE_TASKS["mnli"].published_chance["mnli_mismatched"] == 3463 / 9832
    assert (chance["cola"], chance["stsb"]) == (0.0, 0.0)


@pytest.mark.parametrize("name", sorted(KNOWN_TASKS))
def test_every_known_task_resolves(name: str) -> None:
    assert resolve_task(name).name == name


def test_a_local_folder_becomes_absolute(rte_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rte_folder.parent)
    source = resolve_task("rte", data_dir="glue").source
    assert isinstance(source, GlueSource)
    assert source.data_dir == str(rte_folder.resolve())


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("tickets.csv.gz", "unpack it"),
        ("tickets.JSON", r"as a line of its own, as a \.jsonl file"),
        ("tickets.xlsx", "save it as CSV"),
    ],
)
def test_a_table_of_another_ending_is_refused_with_what_mends_it(
    name: str, remedy: str, tmp_path: Path
) -> None:
    for columns in (Columns(), Columns("label")):
        with pytest.raises(DataError, match=rf"none of \.csv, .*, which are read: .*{remedy}"):
            resolve_task(name, columns=columns)
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match="is no data set"):
        resolve_task(str(tmp_path / name))


def test_an_unknown_task_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"'sst-2'.*'sst2'"):
        resolve_task("sst-2")
    with pytest.raises(UnknownNameError, match=r"YOUR.csv"):
        resolve_task("tickets")
    with pytest.raises(DataError, match=r"tickets\.csv"):
        resolve_task("tickets.csv")


def test_a_folder_for_a_task_that_reads_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none"):
        resolve_task("stdlib", data_dir=str(tmp_path))


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        read_texts(resolve_task("rte", data_dir=str(tmp_path / "nowhere")))


def test_a_replaced_metric_keeps_the_old_one_beside_it() -> None:
    task = resolve_task("cola", metric="accuracy")
    assert task.metric is Metric.ACCURACY
    assert task.companions == (Metric.MATTHEWS,)
    assert task.known_chance == 721 / 1043
    assert resolve_task("cola", metric="f1").known_chance is None  # only the data tells


@pytest.mark.parametrize(
    ("task", "metric", "message"),
    [
        ("mnli", "f1", r"3 classes; allowed: accuracy, f1_macro, matthews"),
        ("stsb", "accuracy", r"a regression; allowed: pearson, spearman"),
        ("rte", "spearman", r"2 classes; allowed: accuracy, f1, f1_macro, matthews"),
    ],
)
def test_a_metric_that_cannot_score_the_task(task: str, metric: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        resolve_task(task, metric=metric)


def test_an_unknown_metric_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"'acuracy'.*'accuracy'"):
        resolve_task("rte", metric="acuracy")


def test_the_heads_width() -> None:
    assert [resolve_task(t).outputs for t in ("mnli", "stsb", "stdlib")] == [3, 1, 2]
    assert GLUE_TASKS["stsb"].kind is TaskKind.REGRESSION


def test_resolving_a_known_name_imports_nothing_heavy(root: Path) -> None:
    code = (
        "import sys; from elsa_tune.tasks.task_file import resolve_task; resolve_task('rte');"
        "print([m for m in ('numpy', 'torch', 'datasets') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


# --- The command ---------------------------------------------------------------------------------


def test_the_list_as_json_has_every_task() -> None:
    listed = json.loads(run.invoke(app, ["--format", "json"], catch_exceptions=False).stdout)
    assert [task["name"] for task in listed] == [*KNOWN_TASKS, *HUB_TASKS]
    stdlib = next(task for task in listed if task["name"] == "stdlib")
    assert stdlib["chance"] == 0.5
    assert stdlib["source"] == "Python 3.11's standard library, shipped with elsa-tune"


def test_the_list_as_a_table_is_plain_in_a_pipe() -> None:
    printed = run.invoke(app, [], catch_exceptions=False).stdout
    assert "\x1b" not in printed
    line = next(line for line in printed.splitlines() if line.split()[:1] == ["qqp"])
    assert line.split()[:6] == ["qqp", "classification", "question1,", "question2", "f1", "53.8"]


def test_one_task_looked_at(rte_folder: Path) -> None:
    dev = rte_folder / "RTE" / "dev.tsv"
    dev.write_text(RTE_ROWS + "2\tOnly one text\n")
    arguments = ["rte", "--data-dir", str(rte_folder)]
    shown = json.loads(
        run.invoke(app, [*arguments, "--format", "json"], catch_exceptions=False).stdout
    )
    assert shown["splits"]["evaluation"]["rows"] == 2
    assert shown["splits"]["train"]["labels"] == {"entailment": 1, "not_entailment": 1}
    assert shown["chance"] == 0.5  # measured on this split, not the published one
    assert shown["notes"] == ["1 of 3 rows of dev.tsv skipped: missing sentence2, label (line 4)"]
    table = run.invoke(app, arguments, catch_exceptions=False).stdout
    assert "A cat.     An animal.  entailment" in table
    assert "notes                1 of 3 rows of dev.tsv skipped" in table


def test_a_regression_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "STS-B"
    folder.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("sentence1\tsentence2\tscore\na\tb\t0.5\nc\td\t5.000\n")
    shown = run.invoke(app, ["stsb", "--data-dir", str(tmp_path)], catch_exceptions=False).stdout
    words = " ".join(shown.split())
    assert "rows 2" in words and "lowest 0.5 mean 2.75 highest 5" in words


TICKETS = [
    {
        "id": n,
        "title": f"Ticket {n} is here",
        "body": f"The {n}. is dark: it\nstays",
        "urgent": "no",
    }
    for n in range(30)
]
TICKETS[3]["urgent"] = TICKETS[8]["urgent"] = "yes"


def _write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path = folder / name
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if ".csv" in name else "\t")
            writer.writeheader()
            writer.writerows(rows)


@pytest.mark.parametrize("name", ["tickets.csv", "rte.tsv", "my tickets.jsonl", "t.parquet"])
def test_a_table_becomes_a_task_file_that_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tsv = [{**row, "body": row["body"].replace("\n", " ")} for row in TICKETS]
    rows = tsv if name.endswith("tsv") else [{**row, "more": ["a"]} for row in TICKETS]
    if name.endswith("csv"):
        rows = TICKETS
    _write(tmp_path, name, rows)
    done = run.invoke(app, [name], catch_exceptions=False)
    assert "not used: id" in done.stdout and "next: save it" in done.stderr
    (tmp_path / "drafted.yaml").write_text(done.stdout, encoding="utf-8")
    task = resolve_task("drafted.yaml")
    assert task.text_columns == ("title", "body")
    assert (task.label_column, task.classes) == ("urgent", ("no", "yes"))
    assert len(read_texts(task)["train"]) == 30


@pytest.mark.parametrize(
    ("values", "kind", "outputs"),
    [
        ([n / 7 for n in range(40)], TaskKind.REGRESSION, 1),
        ([n % 30 for n in range(60)], TaskKind.REGRESSION, 1),
        ([n % 5 for n in range(60)], TaskKind.CLASSIFICATION, 5),
        ([f"c {n % 30}: '~'" for n in range(60)], TaskKind.CLASSIFICATION, 30),
        # A number for nearly each row, and a word where there is none.
        (["NA", "n/a", *(n / 7 for n in range(40))], TaskKind.REGRESSION, 1),
        (["NA", *(n % 3 for n in range(60))], TaskKind.CLASSIFICATION, 3),
    ],
)
def test_numbers_are_values_where_they_are_many(
    values: list[object], kind: TaskKind, outputs: int, tmp_path: Path
) -> None:
    rows = [{"text # one": f"row {n}", "a score": value} for n, value in enumerate(values)]
    _write(tmp_path, "rows.csv", rows)
    drafted = tmp_path / "drafted.yaml"
    drafted.write_text(guess_task(tmp_path / "rows.csv").yaml())
    task = resolve_task(str(drafted))
    assert (task.kind, task.outputs, task.text_columns) == (kind, outputs, ("text # one",))
    assert len(read_splits(task, Recipe())["train"]) >= 30


@pytest.mark.parametrize(
    ("column", "values", "classes"),
    [
        ("label", [n % 77 for n in range(160)], 77),  # ids of many classes
        ("label", [1 + n % 77 for n in range(160)], 77),
        ("label", [n % 1200 for n in range(2400)], 0),  # too many
        ("label", [n % 77 * 2 for n in range(160)], 0),  # counts nothing
        ("score", [n % 77 for n in range(160)], 0),  # says that it is none
    ],
)
def test_many_whole_numbers_without_a_gap_are_classes(
    column: str, values: list[object], classes: int, tmp_path: Path
) -> None:
    _write(tmp_path, "rows.csv", [{"text": f"t {n}", column: v} for n, v in enumerate(values)])
    task = resolve_task(str(tmp_path / "rows.csv"), columns=Columns(column))
    assert len(task.classes) == classes


def test_a_column_that_the_first_line_lacks_is_one_all_the_same(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [{"text": "first", "list": [1]}]
    lines += [{"text": f"t {n}", "label": "ab"[n % 2], "list": 1, "late": 1} for n in range(19)]
    lines.append({"text": "last", "label": "a", "late": {"by": 1}})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    guess = guess_task(tmp_path / "rows.jsonl", Columns("label"))
    assert guess.columns == ("text", "label")
    assert (guess.rows, guess.label.values) == (21, 2)
    assert guess.label.missing == pytest.approx(1 / 21)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": f"row {n}", "id": n} for n in range(9)], "like a label .* columns are text, id"),
        ([{"label": str(n % 2), "id": n} for n in range(9)], "looks like a text"),
    ],
)
def test_a_table_without_a_text_or_a_label(
    rows: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    _write(tmp_path, "rows.csv", rows)
    with pytest.raises(DataError, match=message):
        guess_task(tmp_path / "rows.csv")


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (["a"] * 9, r"\('label' has one value alone\)"),
        ([f"word {n}" for n in range(9)], r"\('label' has 9 values in 9 rows, which are no numb"),
        ([""] * 9, r"\('label' is empty\)"),
        ([], r"\('label' is empty\)"),
    ],
)
def test_a_column_called_label_that_is_none_is_named(
    labels: list[str], why: str, tmp_path: Path
) -> None:
    rows = "".join(f"row {n},{label}\n" for n, label in enumerate(labels))
    (tmp_path / "rows.csv").write_text(f"text,label\n{rows}")
    with pytest.raises(DataError, match=rf"looks like a label {why}.*; its columns are text, lab"):
        guess_task(tmp_path / "rows.csv")


def test_a_draft_names_the_metrics_of_its_type_of_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, "rows.csv", [{"text": f"row {n}", "label": "ab"[n % 2]} for n in range(20)])
    guess = guess_task(tmp_path / "rows.csv")
    assert "metric: accuracy, f1 (of two classes), f1_macro, matthews\n" in guess.yaml()
    monkeypatch.setattr(Classification, "metrics", (Metric.MATTHEWS, Metric.ACCURACY))
    assert "metric: accuracy, matthews\n" in guess.yaml()
    _write(tmp_path, "values.csv", [{"text": f"row {n}", "score": n / 7} for n in range(20)])
    assert "metric: spearman, pearson\n" in guess_task(tmp_path / "values.csv").yaml()


def test_a_label_that_is_empty_in_every_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,team\nno words at all,\nand some more,\n")
    with pytest.raises(DataError, match=r"'team' of .*empty"):
        guess_task(tmp_path / "rows.csv", Columns(label="team"))


@pytest.mark.parametrize(
    ("name", "beside", "is_named"),
    [
        ("tickets.csv", "tickets_dev.csv", True),
        ("tickets-train.csv", "tickets-validation.csv", True),
        ("train.csv", "dev.csv", True),
        ("tickets.csv", "tickets_test.csv", False),
        ("tickets.csv", "other_dev.csv", False),
    ],
)
def test_evaluation_rows_beside_a_table_are_found_by_their_name(
    name: str, beside: str, is_named: bool, tmp_path: Path
) -> None:
    for one in (name, beside):
        _write(tmp_path, one, TICKETS)
    drafted = tmp_path / "drafted.yaml"
    drafted.write_text(guess_task(tmp_path / name).yaml())
    source = resolve_task(str(drafted)).source
    assert isinstance(source, FilesSource)
    assert [Path(file).name for file in source.evaluation] == [beside] * is_named


def test_options_about_no_task() -> None:
    with pytest.raises(UsageError, match="--metric"):
        run.invoke(app, ["--metric", "f1"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("a", "b", "c"), r"`text` names 3 columns \(a, b and c\), but a row is a text or a pair"),
        (("a", "a"), "`text` names the column 'a' twice"),
        (("a", "label"), "`text` and `label` both name the column 'label'"),
    ],
)
def test_a_draft_that_no_task_can_be_is_refused(
    texts: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    _write(tmp_path, "t.csv", [dict(a="x", b="y", c="z", label="pq"[n % 2]) for n in range(20)])
    with pytest.raises(DataError, match=said):
        guess_task(tmp_path / "t.csv", Columns("label", texts))


def test_a_table_is_drafted_as_yaml_alone(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,label\ngood words,good\nbad words,bad\n")
    with pytest.raises(UsageError, match="of a table a YAML file is printed; leave it out"):
        run.invoke(app, [str(table), "--format", "json"], catch_exceptions=False)


def test_a_time_that_python_does_not_have_is_one_sentence(tmp_path: Path) -> None:
    far = pa.array([2**58], pa.timestamp("us"))  # in the year 11103
    pq.write_table(pa.table({"text": ["good"], "at": far}), tmp_path / "far.parquet")
    with pytest.raises(DataError, match=r"far\.parquet cannot be read as Parquet: "):
        read_table(tmp_path / "far.parquet", "parquet", ["text", "at"])


def test_the_embedded_task_knows_its_chance() -> None:
    assert KNOWN_TASKS["stdlib"].known_chance == 0.5


# --- A table as a task ---------------------------------------------------------------------------

UNEVEN = [
    {
        "id": n,
        "title": f"ticket {n} is about a thing",
        "team": ("mail", "mail", "mail", "mail", "mail", "web")[n % 6],
        "priority": "" if n % 4 == 0 else f"P{n % 3}",
        "channel": "abcd"[n % 4],
    }
    for n in range(60)
]


def test_columns_that_may_be_the_label_are_named_with_their_counts(tmp_path: Path) -> None:
    _write(tmp_path, "t.csv", UNEVEN)
    guess = guess_task(tmp_path / "t.csv")
    # Two values and every cell filled; three values, but a fourth of the cells are empty.
    assert guess.label.name == "team"
    assert [str(one) for one in guess.candidates] == [
        "team (2 values)",
        "channel (4 values)",
        "priority (3 values, 25 % missing)",
    ]
    assert "channel (4 values), priority (3 values, 25 % missing)" in guess.yaml()


def test_a_column_with_few_values_and_many_gaps_is_not_preferred(tmp_path: Path) -> None:
    rows = [{name: row[name] for name in ("title", "priority", "channel")} for row in UNEVEN]
    _write(tmp_path, "t.csv", rows)
    assert guess_task(tmp_path / "t.csv").label.name == "channel"


def test_columns_are_named_by_options(tmp_path: Path) -> None:
    _write(tmp_path, "t.csv", UNEVEN)
    arguments = [str(tmp_path / "t.csv"), "--label", "channel", "--text", "team", "--text", "title"]
    done = run.invoke(app, arguments, catch_exceptions=False)
    assert "text: [team, title]\nlabel: channel\n" in done.stdout
    with pytest.raises(UnknownNameError, match="'channel'"):
        run.invoke(app, [arguments[0], "--label", "chanel"], catch_exceptions=False)
    with pytest.raises(UsageError, match="--label"):
        run.invoke(app, ["--label", "channel"], catch_exceptions=False)
    with pytest.raises(DataError, match="`group`"):
        run.invoke(app, ["stdlib", "--text", "channel"], catch_exceptions=False)


@pytest.mark.parametrize("name", ["imdb", "rte", "all"])
def test_a_table_that_is_called_as_a_built_in_task_has_a_name_of_its_own(
    name: str, tmp_path: Path
) -> None:
    _write(tmp_path, f"{name}.csv", UNEVEN)
    draft = tmp_path / "task.yaml"
    draft.write_text(guess_task(tmp_path / f"{name}.csv").yaml())
    assert resolve_task(str(draft)).name == f"{name}_own"


def test_uneven_classes_are_scored_by_macro_f1(tmp_path: Path) -> None:
    _write(tmp_path, "t.csv", UNEVEN)
    guess = guess_task(tmp_path / "t.csv")
    assert guess.fields["metric"] == "f1_macro"
    assert "f1_macro since 'mail' has 50 rows and 'web' 10" in guess.yaml()
    # Just below four rows of the commonest to one of the rarest.
    even = [{"title": f"row {n}", "team": "web" if n % 5 == 0 else "mail"} for n in range(59)]
    _write(tmp_path, "even.csv", [row for row in even if row != even[1]])
    assert guess_task(tmp_path / "even.csv").fields["metric"] == "accuracy"


def test_a_table_is_a_task_where_its_label_is_clear(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    _write(tmp_path, "t.csv", UNEVEN)
    with pytest.raises(DataError, match=r"team \(2 .*channel .*`label`"):
        resolve_task(str(path))
    task = resolve_task(str(path), columns=Columns("team"))
    assert (task.name, task.text_columns, task.classes) == ("t", ("title",), ("mail", "web"))
    assert task.metric is Metric.F1_MACRO and task.companions == (Metric.ACCURACY,)
    assert task == resolve_task(str(path), columns=Columns("team"))
    assert isinstance(task.source, FilesSource)
    assert (task.source.train, task.source.evaluation_share) == ((str(path),), 0.2)
    named = [{"label": row["team"], **row} for row in UNEVEN]
    _write(tmp_path, "named.csv", named)
    assert resolve_task(str(tmp_path / "named.csv")).label_column == "label"


def test_evaluation_rows_of_a_table_are_held_out_alike_and_stratified(tmp_path: Path) -> None:
    _write(tmp_path, "t.csv", UNEVEN)
    task = resolve_task(str(tmp_path / "t.csv"), columns=Columns("team"))
    once, again = (read_splits(task, Recipe())["evaluation"] for _ in range(2))
    assert once.texts == again.texts
    assert sorted(once.labels.tolist()) == [0] * 10 + [1] * 2


@pytest.mark.parametrize(
    "values",
    [
        [f"{n},5" for n in range(40)],
        ["NA", *(f"{n},5" for n in range(40)), "n/a"],
        [f"{n % 3},5" for n in range(40)],  # few, as classes have
        ["1,5", *(f"{n % 3}" for n in range(40))],
        [("1.5", "2,5", "3")[n % 3] for n in range(40)],  # those of two people
        [f"{n}.25" for n in range(40)] + [",5", "NA"],
    ],
)
def test_numbers_with_commas_are_no_classes(tmp_path: Path, values: list[str]) -> None:
    _write(tmp_path, "t.csv", [{"text": f"t {n}", "score": v} for n, v in enumerate(values)])
    with pytest.raises(DataError, match=r"column 'score' .* numbers with commas, such as '\d*,5'"):
        guess_task(tmp_path / "t.csv", Columns("score"))


def test_a_column_named_as_a_label_is_found_by_its_numbers_with_commas(tmp_path: Path) -> None:
    _write(tmp_path, "t.csv", [{"text": f"t {n}", "score": f"{n},5"} for n in range(40)])
    with pytest.raises(DataError, match=r"column 'score' .* numbers with commas"):
        guess_task(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([*(n / 7 for n in range(40)), "inf"], "1 of 41 .*: 'inf'"),
        ([*(n % 30 for n in range(60)), "NA", "a note", "oops"], "2 of 62 .*: 'a note', 'oops'"),
        ([*(n % 5 + 0.5 for n in range(60)), "bad"], "1 of 61 .*: 'bad'"),
    ],
)
def test_a_slip_among_numbers_makes_no_classes_of_them(
    values: list[object], shown: str, tmp_path: Path
) -> None:
    _write(tmp_path, "t.csv", [{"text": f"t {n}", "score": v} for n, v in enumerate(values)])
    for columns in (Columns("score"), Columns()):
        with pytest.raises(DataError, match=rf"'score' of .* numbers to predict, but {shown}; "):
            guess_task(tmp_path / "t.csv", columns)
    # What the sentence names.
    task_file = tmp_path / "task.yaml"
    fields = "name: t\nfiles: t.csv\ntext: text\nlabel: score\n"
    missing = "missing_labels: [inf, NA, a note, oops, bad]\n"
    task_file.write_text(f"{fields}regression: true\n{missing}")
    numbers = read_texts(resolve_task(str(task_file)))["train"]
    assert len(numbers) == sum(not isinstance(value, str) for value in values)
    task_file.write_text(f"{fields}regression: false\n")
    assert resolve_task(str(task_file)).kind is TaskKind.CLASSIFICATION


@pytest.mark.parametrize(
    "values",
    [
        [*("123"[n % 3] for n in range(60)), "other"],
        [*(n % 77 for n in range(160)), "other"],  # ids of many classes
        [(n % 30, "other")[n % 3 == 0] for n in range(90)],
        [("3.8", "3.9", "other")[n % 3] for n in range(60)],
    ],
)
def test_numbers_and_words_are_classes(values: list[object], tmp_path: Path) -> None:
    _write(tmp_path, "t.csv", [{"text": f"t {n}", "label": v} for n, v in enumerate(values)])
    assert set(resolve_task(str(tmp_path / "t.csv")).classes) == set(map(str, values))


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["['a', 'b']", "['a']", "[]"], r"as \['a', 'b'\];"),
        (["[a, b]", "[a]", "[c]", "NA"], r"as \[a, b\];"),
        (["[1 2]", "[1]"], r"as \[1 2\];"),
        (["('a', 'b')", "('c',)", "()", "NA"], r"as \('a', 'b'\);"),
        (["(2, 3)", "(1,)"], r"as \(1,\);"),
        (["(3, 2)", "(1, 2)"], r"as \(3, 2\);"),
        (["('18', '25')", "('25', '40')"], r"as \('18', '25'\);"),
    ],
)
def test_lists_written_as_texts_are_no_classes(
    tmp_path: Path, values: list[str], shown: str
) -> None:
    rows = [{"text": f"t {n}", "labels": values[n % len(values)]} for n in range(40)]
    _write(tmp_path, "t.csv", rows)
    with pytest.raises(DataError, match=rf"column 'labels' of .* are lists, {shown} .*support"):
        guess_task(tmp_path / "t.csv", Columns("labels"))
    task_file = tmp_path / "task.yaml"
    task_file.write_text("name: t\nfiles: t.csv\ntext: text\nlabel: labels\n")
    with pytest.raises(DataError, match=rf"column 'labels' are lists, {shown} .*support"):
        resolve_task(str(task_file))


@pytest.mark.parametrize(
    "classes",
    [
        ("[good]", "[spam]"),
        ("(good)", "(spam, or worse)"),
        ("(0, 10]", "(10, 20]"),  # parts of a range, as pandas writes them
        ("(-inf, 17.5)", "(18, 25)"),
        ("('a', 'b')", "good"),
    ],
)
def test_classes_in_brackets_are_no_lists(tmp_path: Path, classes: tuple[str, ...]) -> None:
    rows = [{"text": f"t {n}", "label": classes[n % 2]} for n in range(40)]
    _write(tmp_path, "t.csv", rows)
    assert resolve_task(str(tmp_path / "t.csv")).classes == classes


def test_a_draft_says_what_is_odd_about_the_rows(tmp_path: Path) -> None:
    _write(tmp_path, "t.csv", UNEVEN * 2)
    done = run.invoke(app, [str(tmp_path / "t.csv"), "--label", "team"], catch_exceptions=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("!")]
    assert "evaluation rows" in lines[0] and "`drop_leaked: true`" in lines[0]
    assert "!" not in done.stdout


def test_a_task_looked_at_has_its_findings_on_top(tmp_path: Path) -> None:
    _write(tmp_path, "t.csv", UNEVEN * 2)
    drafted = tmp_path / "drafted.yaml"
    drafted.write_text(guess_task(tmp_path / "t.csv").yaml())
    table = run.invoke(app, [str(drafted)], catch_exceptions=False).stdout
    assert table.startswith("! ") and "name                 t" in table
    shown = run.invoke(app, [str(drafted), "--format", "json"], catch_exceptions=False).stdout
    findings = json.loads(shown)["findings"]
    assert findings[0]["code"] == "leaked_rows" and findings[0]["of"] == 24
    assert f"! {findings[0]['text']}; {findings[0]['remedy']}" == table.splitlines()[0]


def test_each_note_has_its_own_line(tmp_path: Path) -> None:
    _write(tmp_path, "t.csv", [*UNEVEN, {"title": "without a team"}])
    drafted = tmp_path / "drafted.yaml"
    drafted.write_text(guess_task(tmp_path / "t.csv", Columns("team")).yaml())
    *_, first, second = run.invoke(app, [str(drafted)], catch_exceptions=False).stdout.splitlines()
    assert first.startswith("notes                1 of 61 rows of t.csv skipped")
    assert second.startswith(" " * 21 + "no evaluation file")


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_spreadsheets_csv_is_read(tmp_path: Path, delimiter: str) -> None:
    text = '\ufefftitle;label\n"one; or, two";a\nthree;b\nfour;a\nfive;b\n'
    (tmp_path / "t.csv").write_text(text.replace(";", delimiter), encoding="utf-8")
    task = resolve_task(str(tmp_path / "t.csv"))
    assert read_texts(task)["train"].texts[0][0] == f"one{delimiter} or, two"


@pytest.mark.parametrize("first", ["sep=|", '"sep=|"', "SEP=|"])
def test_the_line_by_which_excel_names_what_parts_cells_is_no_header(
    tmp_path: Path, first: str
) -> None:
    rows = ["title;text|label", *(f"{n}, word|{'ab'[n % 2]}" for n in range(40)), "one|two|three"]
    (tmp_path / "t.csv").write_text("\r\n".join([f"\ufeff{first}", *rows]), encoding="utf-8")
    table = read_table(tmp_path / "t.csv", "csv", wanted=None)
    assert list(table.columns) == ["title;text", "label"]
    assert table.columns["title;text"][0] == "0, word"
    # Lines are the file's own.
    assert table.lines[0] == 3
    assert table.malformed == [(43, "more fields than the header")]


@pytest.mark.parametrize(
    ("encoding", "likely"), [("cp1252", "WINDOWS-1252"), ("utf-16", "UTF-16"), ("cp437", "")]
)
def test_another_encoding_is_named_with_the_way_to_utf8(
    tmp_path: Path, encoding: str, likely: str
) -> None:
    (tmp_path / "t.csv").write_bytes("text,label\nf\u00fcr,a\n\u00e9,b\n".encode(encoding))
    with pytest.raises(DataError, match="UTF-8") as caught:
        resolve_task(str(tmp_path / "t.csv"))
    assert (f"it looks like {likely}" in str(caught.value)) is bool(likely)
    assert ("iconv -f" in str(caught.value)) is bool(likely)


def test_a_search_takes_a_table_and_says_what_is_odd_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_tiny("bert", tmp_path / "model")
    _write(tmp_path, "t.csv", UNEVEN * 2)
    options = SearchOptions(model="model", task=["t.csv"], label="team", text=["title"])
    [request] = read_requests(options)
    assert request.spec.task == resolve_task("t.csv", columns=Columns("team", ("title",)))
    said: list[str] = []
    rows = rows_in_use(request.spec.task, request.spec.recipe, said.append)
    # By macro F1, of two classes.
    assert rows == (96, 24, 23, pytest.approx(1 / 2))
    assert said and all(line.startswith("! ") for line in said)
    # A name that nobody gave is no one's fault.
    long = "a_table_with_a_name_" * 4
    _write(tmp_path, f"{long}.csv", UNEVEN * 2)
    of_long = dataclasses.replace(options, task=[f"{long}.csv"])
    for asked in (of_long, dataclasses.replace(of_long, task=[f"{long}.csv", "stdlib"])):
        named = [one.spec.name for one in read_requests(asked)]
        assert all(name.startswith("mod") and len(name) <= 100 for name in named)
    # A table's columns are not for tasks beside it.
    two = read_requests(dataclasses.replace(options, task=["t.csv", "stdlib"]))
    assert [one.spec.task.name for one in two] == ["t", "stdlib"]
    with pytest.raises(DataError, match="'stdlib'"):
        read_requests(dataclasses.replace(options, task=["stdlib"]))


def test_columns_that_are_no_plain_values_are_not_in_the_way(tmp_path: Path) -> None:
    rows = range(40)
    table = pa.table(
        {
            "text": [f"text {n}" for n in rows],
            "created": pa.array([n * 10**6 for n in rows], pa.timestamp("us")),
            "raw": pa.array([b"\x00"] * 40),
            "words": [["a"]] * 40,
            "label": pa.array(["bad", "good"] * 20).dictionary_encode(),
            "price": pa.array([Decimal(n) / 4 for n in rows], pa.decimal128(10, 2)),
        }
    )
    file = tmp_path / "tickets.parquet"
    pq.write_table(table, file)
    task = resolve_task(str(file), columns=Columns("label", ("text",)))
    assert (task.text_columns, task.classes) == (("text",), ("bad", "good"))
    priced = resolve_task(str(file), columns=Columns("price", ("text",)))
    assert priced.kind is TaskKind.REGRESSION
    labels = read_texts(priced)["train"].labels.tolist()
    assert labels == [n / 4 for n in rows]


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_a_table_of_lists_says_that_they_are_not_supported(tmp_path: Path, name: str) -> None:
    rows: list[dict[str, Any]] = [{"tokens": ["a", "b"], "tags": ["B", "O"]}] * 9
    _write(tmp_path, name, rows)
    with pytest.raises(DataError, match=r"no column of plain .*\(tokens, tags\).* support"):
        guess_task(tmp_path / name)
    with pytest.raises(DataError, match=r"column 'tags' of .* holds lists; .* not supported"):
        guess_task(tmp_path / name, Columns("tags", ("tokens",)))
    with pytest.raises(UnknownNameError, match=r"'tag': known: none\."):
        guess_task(tmp_path / name, Columns("tag"))
    _write(tmp_path, name, [{"id": n, **row} for n, row in enumerate(rows)])
    with pytest.raises(DataError, match=r"columns are id: .* lists .*\(tokens, tags\).* support"):
        guess_task(tmp_path / name)


def test_nameless_columns_behind_the_last_are_not_in_the_way(tmp_path: Path) -> None:
    lines = ["text,label,,", *(f"text {n},{'bad' if n % 2 else 'good'},," for n in range(40))]
    file = tmp_path / "tickets.csv"
    file.write_text("\n".join(lines))
    task = resolve_task(str(file))
    assert (task.text_columns, task.label_column) == (("text",), "label")
