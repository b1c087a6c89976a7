"""`operating-point` and `curve` from the outside: what is printed where, and the exit status."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.cli.answer_tables import print_curves
from elsa_tune.results.results_csv import write_results
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.conftest import Run
from tests.recorded_search import searched
from tests.unit.result_rows import EMBEDDINGS_ONLY, falling_curve, fill_store, row, seeds


@pytest.fixture
def save(tmp_path: Path) -> Callable[[Sequence[ResultRow]], Path]:
    """Write rows as a results table."""

    def write(rows: Sequence[ResultRow]) -> Path:
        path = tmp_path / "results.csv"
        path.write_text(write_results(rows), encoding="utf-8")
        return path

    return write


Save = Callable[[Sequence[ResultRow]], Path]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[ResultRow]], list[str]]:
    """Put rows where the MLflow store would be; returns the URIs it was asked at."""

    def fill(rows: Sequence[ResultRow]) -> list[str]:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///somewhere.db")
        return fill_store(monkeypatch, rows)

    return fill


Store = Callable[[Sequence[ResultRow]], list[str]]


def test_a_search_is_asked_by_its_folder_and_a_folder_of_searches_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = searched(tmp_path / "mlruns" / "searches").folder
    (folder / "ray.json").write_text("{")
    assert run("operating-point", "--from", folder).out == run("operating-point", "first").out
    for place in (".", "mlruns", folder.parent):
        refused = run("curve", "--from", place)
        assert refused.status == 2
        assert f"{place} is no results table, but has recorded searches: first" in refused.err
    empty = run("compare", "--from", "")
    assert (empty.status, empty.out) == (2, "")
    assert "--from is empty; name a results table, or a search's folder" in empty.err


def test_the_table_says_the_answer_first(run: Run, save: Save) -> None:
    found = run("operating-point", "--from", save(falling_curve()))
    lines = found.out.splitlines()
    assert found.status == 0 and found.err == ""
    assert lines[0] == "minilm, task rte (accuracy x 100)"
    assert lines[1] == (
        "Fine-tune the last 3 of 6 layers at learning rate 5e-5: accuracy 88.0 (full model 90.0, "
        "guessing 50.0)."
    )
    assert [line.split()[0] for line in lines[2:6]] == ["How", "Fewer?", "Saves", "Next"]
    assert [line.rstrip() for line in lines if line.startswith("▶")] == [
        "▶      3  88.0 ± 1.0  85.4..90.6   97.8 %     95.0 %  5e-5      3",
        "▶ recommended  ±: spread of seeds  95 %: interval of the mean, by seeds alone  kept: of "
        "the full model's score  gain kept: of its gain over guessing (the best constant answer)",
    ]
    assert lines[-1] == "--details prints the answer in full and 2 more notes."


def test_details_are_the_complete_statement_every_mark_and_every_note(run: Run, save: Save) -> None:
    rows = falling_curve(examples=100_000)
    table = save(rows)
    short = run("operating-point", "--from", table).out.splitlines()
    lines = run("operating-point", "--from", table, "--details").out.splitlines()
    assert lines[:6] == short[:6]
    [answer] = answer_rows(rows)
    assert any(line and answer.sentence.startswith(line) for line in lines)
    marked = [line.split()[:2] for line in lines if line.lstrip()[:1] in "▶○▷✓"]
    # The claim is the one corrected for chance.
    assert ["▶▷✓", "3"] in marked and ["○", "2"] in marked
    assert any("✓ certified (corrected for chance)" in line for line in lines)
    noted = [line for line in lines if line.startswith("! ")]
    for line, warning in zip(noted, answer.warnings, strict=True):
        assert warning.text.startswith(line.removeprefix("! "))
    shown = [line for line in short if line.startswith("! ")]
    assert len(noted) == 1 + len(shown)


def test_json_is_a_list_and_nothing_else_is_on_stdout(run: Run, save: Save) -> None:
    table = save(falling_curve() + falling_curve(task="cola"))
    found = run("operating-point", "--from", table, "--format", "json")
    assert found.status == 0 and found.err == ""
    assert [answer["task"] for answer in json.loads(found.out)] == ["rte", "cola", "*"]


def test_csv_of_both_commands(run: Run, save: Save) -> None:
    table = save(falling_curve())
    answers = run("operating-point", "--from", table, "--format", "csv")
    (line,) = csv.DictReader(io.StringIO(answers.out))
    assert line["operating_point_frozen_layers"] == "4"
    curve = run("curve", "--from", table, "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(curve.out)))) == 5


def test_the_curve_alone(run: Run, save: Save) -> None:
    table = save(falling_curve())
    found = run("curve", "--from", table)
    assert found.status == 0 and "▶" not in found.out
    assert "A constant answer has 50.0." in found.out
    (curve,) = json.loads(run("curve", "--from", table, "--format", "json").out)
    assert curve["schema_version"] == 2 and len(curve["curve"]) == 5
    assert "operating_point" not in curve


def test_no_answer_is_status_three_with_the_reason(run: Run, save: Save) -> None:
    table = save(seeds(3, [0.8, 0.8]))
    found = run("operating-point", "--from", table)
    assert found.status == 3
    machine = run("operating-point", "--from", table, "--format", "json")
    assert machine.status == 3 and json.loads(machine.out)[0]["reason"] == "no_full_model"
    assert "minilm on rte: " in machine.err


def test_every_reason_is_printed_when_nothing_has_an_answer(run: Run, save: Save) -> None:
    rows = seeds(0, [0.5, 0.5]) + seeds(3, [0.5, 0.5]) + seeds(3, [0.8, 0.8], task="cola")
    found = run("operating-point", "--from", save(rows))
    assert found.status == 3
    machine = run("operating-point", "--from", save(rows), "--format", "json")
    reasons = {answer["task"]: answer["reason"] for answer in json.loads(machine.out)}
    assert (reasons["rte"], reasons["cola"]) == ("full_model_did_not_learn", "no_full_model")
    for task in ("rte", "cola"):
        assert f"minilm on {task}: " in found.err


def test_one_answer_among_several_is_enough(run: Run, save: Save) -> None:
    rows = falling_curve() + seeds(3, [0.8, 0.8], task="cola")
    assert run("operating-point", "--from", save(rows)).status == 0


def test_nothing_measured_is_no_curve(run: Run, save: Save) -> None:
    found = run("curve", "--from", save([row(0, 0.8, phase=Phase.EXPLORE)]))
    assert found.status == 3 and "no measuring trial" in found.err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--target", "1.5"], "target is 1.5;"),
        (["--target", "90"], "0.9"),
        (["--target", "0"], "above 0"),
        (["--model", "minlm"], "did you mean 'minilm'"),
        (["--task", "rtee"], "did you mean 'rte'"),
        (["--task", "cola"], "unknown task 'cola'"),
        (["--exclude-task", "cola"], "unknown task 'cola'"),
        (["--exclude-task", "rte"], "every task"),
        (["--search", "first"], "no search"),
        (["--train-size", "many"], "--train-size is 'many'"),
        (["--train-size", "0"], "--train-size is '0'"),
        (["--storage-path", "here"], "--from and --storage-path"),
        (["--tracking-uri", "sqlite:///x.db"], "give one of them"),
        (["--scale", "percent"], "--scale percent"),
        (["--map", "quality"], "OURS=THEIRS"),
        (["--map", "qualty=quality"], "did you mean 'quality'"),
        (["--map", "quality=accuracy"], "unknown column 'accuracy'"),
    ],
)
def test_bad_questions_to_a_table(run: Run, save: Save, options: list[str], complaint: str) -> None:
    found = run("operating-point", "--from", save(falling_curve()), *options)
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("elsa-tune: ") and complaint in found.err


def test_a_bad_table_is_status_two(run: Run, tmp_path: Path) -> None:
    found = run("operating-point", "--from", tmp_path / "nothing.csv")
    assert (found.status, found.out) == (2, "") and "does not exist" in found.err


def test_several_recipes_in_a_table_are_listed(run: Run, save: Save) -> None:
    rows = falling_curve(comparison="epochs=3") + falling_curve(comparison="epochs=10")
    found = run("operating-point", "--from", save(rows))
    assert found.status == 2 and "epochs=10" in found.err and "epochs=3" in found.err


def test_training_sizes_of_a_table_are_answers_of_their_own(run: Run, save: Save) -> None:
    table = save(falling_curve(train_size=50) + falling_curve())
    both = run("operating-point", "--from", table, "--format", "json")
    assert [answer["train_size"] for answer in json.loads(both.out)] == [50, None]
    one = run("operating-point", "--from", table, "--format", "json", "--train-size", "full")
    assert [answer["train_size"] for answer in json.loads(one.out)] == [None]
    none = run("operating-point", "--from", table, "--train-size", "70")
    assert none.status == 3 and "there is 50, full" in none.err


def test_the_record_is_asked_by_model_and_task(run: Run, store: Store) -> None:
    asked = store(falling_curve(search="first") + falling_curve(model="bert_base", search="b"))
    found = run("operating-point", "--model", "minilm", "--task", "rte")
    assert found.status == 0 and found.out.startswith(
        "minilm, task rte (accuracy x 100; search 'first')"
    )
    assert asked == [f"sqlite:///{Path.cwd() / 'somewhere.db'}"]
    store(falling_curve(search="first"))
    assert run("curve", "--search", "first").status == 0


QUESTIONS = ("answer", "operating-point", "curve", "report")


@pytest.mark.parametrize("command", QUESTIONS)
def test_a_search_is_named_as_an_argument_or_as_an_option(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, began in (("first", 1.0), ("second", 2.0)):
        searched(tmp_path / "mlruns" / "searches", name, began)
    out = ("--out", tmp_path / "page") if command == "report" else ()
    by_argument = run(command, "first", *out)
    by_option = run(command, "--search", "first", *out)
    assert by_argument == by_option and by_argument.status == 0, by_argument.err
    assert run(command, "first", "--search", "first", *out) == by_option
    both = run(command, "first", "--search", "second", *out)
    assert both.status == 2 and "first and second are 2 searches" in both.err


@pytest.mark.parametrize("command", QUESTIONS)
def test_the_latest_search_is_taken_where_none_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = tmp_path / "mlruns" / "searches"
    out = ("--out", tmp_path / "page") if command == "report" else ()
    empty = run(command, *out)
    assert empty.status == 2 and str(storage) in empty.err
    # By their beginning, neither by name nor by which was written to last.
    for name, began in (("b", 2.0), ("c", 1.0), ("a", 3.0)):
        searched(storage, name, began)
    os.utime(storage / "c" / "journal.jsonl")
    found = run(command, *out)
    assert found.status == 0, found.err
    assert found.err.splitlines()[0] == f"search 'a', the latest in {storage}"
    assert found.out == run(command, "a", *out).out
    # Whatever else says which results are meant is asked as it was.
    for other in (("--model", "minilm"), ("--task", "rte"), ("--from", tmp_path / "none.csv")):
        asked = run(command, *other, *out)
        assert asked.status == 2 and "the latest" not in asked.err


def test_a_search_whose_beginning_cannot_be_read_is_not_the_latest(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = tmp_path / "mlruns" / "searches"
    damaged = searched(storage, "zz").journal
    damaged.write_bytes(b"{}\n" + damaged.read_bytes())
    assert "line 1 " in run("answer").err
    searched(storage, "good")
    assert run("answer").err.startswith("search 'good', the latest")


def test_the_record_is_asked_for_all_tasks(run: Run, store: Store) -> None:
    store(falling_curve() + falling_curve(task="cola") + falling_curve(model="bert_base"))
    found = run("operating-point", "--model", "minilm", "--task", "all", "--format", "json")
    assert [answer["task"] for answer in json.loads(found.out)] == ["rte", "cola", "*"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "no search is recorded in"),
        (["--tracking-uri", "sqlite:///x.db"], "--model is needed"),
        (["--task", "rte"], "--model is needed"),
        (["--model", "minilm"], "--task (or --task all) is needed"),
        (["--model", "minilm", "--task", "rte", "--scale", "percent"], "--from"),
        (["--search", "x", "--tracking-uri", "u", "--storage-path", "p"], "give one of them"),
        (["--model", "minlm", "--task", "rte"], "did you mean 'minilm'"),
        (["--model", "minilm", "--task", "sst"], "did you mean 'sst2'"),
        (["--search", "frist"], "did you mean 'first'"),
    ],
)
def test_bad_questions_to_the_record(
    run: Run,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)  # the checkout may have searches, as the demo's
    store(falling_curve(search="first"))
    found = run("operating-point", *options)
    assert (found.status, found.out) == (2, "") and complaint in found.err


@pytest.mark.parametrize("options", [["--model", "bert_base", "--task", "rte"], ["--task", "sst2"]])
def test_good_names_without_results_are_status_three(
    run: Run, store: Store, options: list[str]
) -> None:
    store(falling_curve())
    model = [] if "--model" in options else ["--model", "minilm"]
    found = run("operating-point", *model, *options)
    assert found.status == 3 and "nothing is recorded" in found.err
    machine = run("operating-point", *model, *options, "--format", "json")
    assert (machine.status, json.loads(machine.out)) == (3, [])


def test_a_task_without_results_beside_one_with_them_is_told(run: Run, store: Store) -> None:
    store(falling_curve())
    found = run("operating-point", "--model", "minilm", "--task", "rte", "--task", "sst2")
    assert found.status == 0 and "nothing is recorded on sst2" in found.err


def test_the_record_never_averages_unlike_searches(run: Run, store: Store) -> None:
    store(falling_curve(search="a", comparison="x") + falling_curve(search="b", comparison="y"))
    found = run("operating-point", "--model", "minilm", "--task", "rte")
    assert found.status == 2 and "--search" in found.err
    assert "  a: 15 measuring rows; x" in found.err
    store(falling_curve(search="a", train_size=50) + falling_curve(search="b"))
    assert run("operating-point", "--model", "minilm", "--task", "rte").status == 2
    every = run("operating-point", "--model", "minilm", "--task", "rte", "--train-size", "all")
    assert every.status == 0


def test_a_journal_is_read_like_a_table(run: Run, tmp_path: Path) -> None:
    journal = tmp_path / "searches" / "first" / "journal.jsonl"
    missing = run("operating-point", "--from", journal)
    assert missing.status == 2 and "does not exist" in missing.err
    journal.parent.mkdir(parents=True)
    journal.touch()
    empty = run("operating-point", "--from", journal)
    assert empty.status == 2 and "holds no record of a search" in empty.err
    searched(tmp_path / "searches")
    assert run("operating-point", "--from", journal).status == 0
    there = ("--storage-path", tmp_path / "searches")
    assert run("operating-point", "--search", "first", *there).status == 0
    assert run("operating-point", "--model", "minilm", "--task", "rte", *there).status == 0


def test_an_export_is_answered_and_what_was_understood_is_told(run: Run) -> None:
    export = Path(__file__).parent / "exports" / "ray_tune.csv"
    query = ("--from", export, "--map", "chance==0.509", "--map", "layers==6")
    found = run("operating-point", *query, "--format", "json")
    (answer,) = json.loads(found.out)
    assert found.status == 0 and answer["operating_point"]["frozen_layers"] == 3
    assert answer["corrected_operating_point"]["frozen_layers"] == 3
    told = found.err.splitlines()
    assert told[0].startswith("elsa-tune: ") and told[0].endswith("ray_tune.csv:")
    assert "  frozen_layers <- config/frozen_layers" in told
    assert "  chance <- '0.509' in every row" in told
    assert run("curve", *query).err == found.err


def test_a_journal_has_no_columns_to_map(run: Run) -> None:
    found = run("curve", "--from", "journal.jsonl", "--map", "seed=s")
    assert (found.status, found.out) == (2, "") and "--map and --scale percent are" in found.err


def test_what_was_published_is_asked_like_a_table(run: Run) -> None:
    found = run("curve", "--published", "--model", "bert_base", "--task", "mrpc")
    assert found.status == 0 and "as printed by Lee, Tang, Lin 2019" in found.err
    assert found.out.splitlines()[0] == "bert_base, task mrpc (F1 x 100)"
    assert "    3       9     85.4   94.6 %     46.0 %      5" in found.out
    assert "A constant answer has 81.2." in found.out
    query = ("--published", "--model", "roberta_base", "--task", "sst2", "--train-size", "200")
    (curve,) = json.loads(run("curve", *query, "--format", "json").out)
    assert [point["frozen_layers"] for point in curve["curve"]] == [0, 0, 2, 4, 8, 10, 12]
    (answer,) = json.loads(run("operating-point", *query, "--format", "json").out)
    assert answer["operating_point"]["fine_tuned_layers"] == 2
    assert answer["corrected_operating_point"]["fine_tuned_layers"] == 4


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--from", "x.csv"], "--published and --from each say where to look"),
        (["--search", "x"], "the published tables names no search"),
        (["--search", "x", "--storage-path", "y"], "--published and --storage-path each say"),
        (["--tracking-uri", "sqlite:///x.db"], "give one of them"),
        (["--scale", "percent"], "--scale percent are for a results table"),
        (["--map", "seed=s"], "are for a results table given with --from"),
        (["--task", "rtee"], "did you mean 'rte'? known: cola, mnli"),
        (["--model", "bert"], "Looked in the published tables"),
    ],
)
def test_bad_questions_to_what_was_published(run: Run, options: list[str], complaint: str) -> None:
    for command in ("curve", "operating-point"):
        found = run(command, "--published", *options)
        assert (found.status, found.out) == (2, "") and complaint in found.err


def test_the_table_fits_eighty_columns_at_its_fullest() -> None:
    rows = [
        one
        for frozen, mean in ((EMBEDDINGS_ONLY, 0.9), (5, 0.8), (6, 0.6))
        for one in [
            *seeds(frozen, [mean, mean - 0.01], learning_rate=1.2345e-5),
            row(frozen, None, seed=3, status=TrialStatus.DIVERGED, learning_rate=1.2345e-5),
            row(frozen, 0.6, phase=Phase.EXPLORE, status=TrialStatus.STOPPED_EARLY),
        ]
    ]
    # Of a full model that learnt nothing it would not be said what a depth keeps.
    rows += seeds(0, [0.9, 0.9, 0.89], learning_rate=1.2345e-5)
    text = io.StringIO()
    print_curves(
        answer_rows(rows),
        Console(file=text, width=80, highlight=False, force_terminal=True, no_color=True),
        details=True,
    )
    plain = Text.from_ansi(text.getvalue()).plain
    header = next(line for line in plain.splitlines() if line.strip().startswith("tuned"))
    for column in (
        "tuned",
        "quality",
        "95 %",
        "kept",
        "gain kept",
        "rate",
        "seeds",
        "failed",
    ):
        assert column in header
    assert "6 -emb." in plain and "-emb.: the embeddings are frozen" in plain
    assert "…" not in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert "stopped" not in header and "Too narrow for stopped" in plain
    # What is left out is named, and has a place of its own.
    assert "Too narrow for stopped, tries and frozen" in plain


def test_a_question_to_a_table_loads_nothing_heavy(tmp_path: Path, save: Save) -> None:
    table = save(falling_curve())
    code = (
        "import sys\n"
        f"sys.argv = ['elsa-tune', 'operating-point', '--from', {str(table)!r}]\n"
        "from elsa_tune.cli import app\n"
        "try:\n    app.main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "heavy = {'torch', 'transformers', 'mlflow', 'ray', 'pandas', 'optuna', 'scipy.stats'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
