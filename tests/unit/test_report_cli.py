"""`elsa-tune report` from the outside: what it writes, prints and refuses."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from elsa_tune.results.results_csv import write_results
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal_records import Record
from tests.conftest import Run
from tests.recorded_search import (
    journal_of,
    report,
    search_started,
    trial_ended,
    trial_started,
    whole_trial,
)
from tests.unit.result_rows import falling_curve, fill_store, seeds


@pytest.fixture
def drawn(run: Run) -> Run:
    """Run `elsa-tune report` as `run` does."""
    return functools.partial(run, "report")


def saved(folder: Path, rows: Sequence[ResultRow]) -> Path:
    path = folder / "results.csv"
    path.write_text(write_results(rows), encoding="utf-8")
    return path


def test_it_prints_the_page_and_says_the_command(drawn: Run, tmp_path: Path) -> None:
    table, out = saved(tmp_path, falling_curve()), tmp_path / "report"
    found = drawn("--from", table, "--target", "0.95", "--out", out)
    assert (found.status, found.out) == (0, f"{out / 'index.html'}\n")
    assert "more files in" in found.err
    page = (out / "index.html").read_text()
    assert f"elsa-tune report --from {table} --target 0.95" in page
    assert "fine-tuned to keep 95 %: minilm on rte" in page


def test_no_answer_is_status_three_with_a_report(drawn: Run, tmp_path: Path) -> None:
    found = drawn("--from", saved(tmp_path, seeds(3, [0.8, 0.81])), "--out", tmp_path / "report")
    assert found.status == 3 and "was not measured" in found.err
    assert Path(found.out.strip()).is_file()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--target", "2"], "target is 2"),
        (["--task", "rtee"], "did you mean 'rte'"),
        (["--exclude-task", "rte"], "every task is excluded"),
    ],
)
def test_bad_questions_write_nothing(
    drawn: Run, tmp_path: Path, options: list[str], complaint: str
) -> None:
    out = tmp_path / "report"
    found = drawn("--from", saved(tmp_path, falling_curve()), "--out", out, *options)
    assert (found.status, found.out) == (2, "") and complaint in found.err
    assert not out.exists()


def of_methods(folder: Path, *methods: str) -> Path:
    """Save a table of one run of each method, which says nothing of depths."""
    path = folder / "methods.csv"
    lines = [f"m,t,{method},0.9,1,{number}" for number, method in enumerate(methods, 1)]
    path.write_text("\n".join(["model,task,method,quality,seed,train_seconds", *lines]) + "\n")
    return path


def test_a_table_of_methods_without_an_answer_says_why(drawn: Run, tmp_path: Path) -> None:
    found = drawn("--from", of_methods(tmp_path, "LoRA r=8"), "--out", tmp_path / "report")
    assert found.status == 3 and Path(found.out.strip()).is_file()
    assert "nothing that was asked can be compared: m on t: " in found.err
    assert not found.err.rstrip().endswith("m on t:")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--target", "0.8"], "`elsa-tune compare --target 0.8` asks it of other ways"),
        (["--exclude-task", "t"], "--exclude-task is of the joint answer on freeze depths"),
        (["--exclude-task", "cola"], "--task names the tasks to report on"),
    ],
)
def test_of_a_table_of_methods_no_depth_is_asked(
    drawn: Run, tmp_path: Path, options: list[str], complaint: str
) -> None:
    table, out = of_methods(tmp_path, "LoRA r=8", "BitFit"), tmp_path / "report"
    refused = drawn("--from", table, "--out", out, *options)
    assert (refused.status, refused.out) == (2, "") and complaint in refused.err
    assert not out.exists()
    drawn("--from", table, "--out", out)
    again = (out / "index.html").read_text().split('id="again"')[1]
    assert "elsa-tune report --from trials.csv --out again" in again


def test_a_file_is_no_folder(drawn: Run, tmp_path: Path) -> None:
    table = saved(tmp_path, falling_curve())
    found = drawn("--from", table, "--out", table)
    assert (found.status, found.out) == (2, "") and "name another folder with --out" in found.err
    assert "--out" in drawn("--from", table).err


def test_files_that_no_report_wrote_are_not_replaced(drawn: Run, tmp_path: Path) -> None:
    table, out = saved(tmp_path, falling_curve()), tmp_path / "mine"
    out.mkdir()
    (out / "trials.csv").write_text("precious")
    found = drawn("--from", table, "--out", out)
    assert (found.status, found.out) == (2, "") and "holds other files than" in found.err
    assert [one.name for one in out.iterdir()] == ["trials.csv"]
    assert (out / "trials.csv").read_text() == "precious"
    (out / "trials.csv").unlink()
    for _ in range(2):  # a new one, and then an older report
        assert drawn("--from", table, "--out", out).status == 0


def test_a_url_is_no_folder(drawn: Run, tmp_path: Path) -> None:
    rows = saved(tmp_path, falling_curve())
    found = drawn("--from", rows, "--out", "s3://bucket/report")
    assert (found.status, found.out) == (2, "") and "s3:/bucket/report is a URL" in found.err
    assert not Path("s3:").exists()


def test_the_working_directory_is_no_default(drawn: Run, tmp_path: Path) -> None:
    found = drawn("--from", saved(tmp_path, falling_curve()), "--out", "")
    assert (found.status, found.out) == (2, "") and "--out is empty; name a folder" in found.err


def test_a_journal_without_a_record_is_bad_input(drawn: Run, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("not json\n")
    found = drawn("--from", path, "--out", tmp_path / "report")
    assert (found.status, found.out) == (2, "") and "holds no record of a search" in found.err
    assert len(found.err.splitlines()) == 1


SEARCHED = "elsa-tune search --model minilm --task rte --seeds 2"


def journal(storage: Path) -> Path:
    """Record a search with a measured curve and one exploring trial that was stopped."""
    begun = search_started()
    begun.params["command"] = SEARCHED
    records: list[Record] = [begun]
    for number, quality in ((0, 0.9), (0, 0.89), (3, 0.88), (3, 0.87)):
        key = f"measure-N{number}-s{len(records)}"
        records += whole_trial(key, quality)
    key = "explore-N3-s0"
    records += [trial_started(key), report(key, 1, 0.61), report(key, 2, 0.62)]
    records.append(trial_ended(key, TrialStatus.STOPPED_EARLY, 0.62))
    return journal_of(storage, "first", records).journal


def test_a_journal_also_tells_when_and_where_it_was_written(drawn: Run, tmp_path: Path) -> None:
    path = journal(tmp_path / "searches")
    ways = (
        ("--from", path),
        ("--search", "first", "--storage-path", tmp_path / "searches"),
        ("--model", "minilm", "--task", "rte", "--storage-path", tmp_path / "searches"),
    )
    for number, way in enumerate(ways):
        out = tmp_path / f"report-{number}"
        found = drawn(*way, "--out", out)
        assert found.status == 0, found.err
        page = (out / "index.html").read_text()
        assert SEARCHED in page.split('id="again"')[1]
        assert re.search(r"<dd>first, 20\d\d-\d\d-\d\d \d\d:\d\d UTC, lab3, 2 cores</dd>", page)


def test_a_password_does_not_get_into_the_page(
    drawn: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_store(monkeypatch, falling_curve(search="first"))
    out = tmp_path / "report"
    # The shell's quotes come between the quote in the password and what stands after it.
    uri = "https://someone:it's secret@tracking.example"
    for given in (["--tracking-uri", uri], [f"--tracking-uri={uri}"]):
        found = drawn("--search", "first", *given, "--out", out)
        assert found.status == 0
        page = (out / "index.html").read_text()
        assert "secret" not in page and "https://***@tracking.example" in page


def test_a_report_of_a_table_loads_nothing_that_trains(tmp_path: Path) -> None:
    table = saved(tmp_path, seeds(0, [0.9, 0.9]) + seeds(3, [0.88, 0.86]))
    code = (
        "import sys\n"
        f"sys.argv = ['elsa-tune', 'report', '--from', {str(table)!r}, "
        f"'--out', {str(tmp_path / 'report')!r}]\n"
        "from elsa_tune.cli import app\n"
        "try:\n    app.main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "heavy = {'torch', 'transformers', 'mlflow', 'ray', 'optuna', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
