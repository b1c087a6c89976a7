"""The report's folder: which files, what they hold, and that nobody meets half of one."""

from __future__ import annotations

import csv
import dataclasses
import json
import threading
from pathlib import Path

import pytest

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.errors import StorageError
from elsa_tune.files import write_aside
from elsa_tune.locks import alone_at
from elsa_tune.report import folder as report_folder
from elsa_tune.report.folder import check_folder, write_report
from elsa_tune.results.results_csv import import_results
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import TrialStatus
from tests.unit.report_examples import NASTY, answers_of, searched
from tests.unit.result_rows import as_table_has, falling_curve, seeds

TABLES = {"index.html", "curve.csv", "answers.csv", "answers.json", "trials.csv"}
SMALL = seeds(0, [0.9, 0.9]) + seeds(3, [0.88, 0.86])


def write(rows: list[ResultRow], folder: Path) -> list[Path]:
    return write_report(answers_of(rows), rows, folder)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_file_is_written_and_nothing_else(tmp_path: Path) -> None:
    rows = searched(NASTY, model=NASTY)
    rows.append(dataclasses.replace(rows[-1], learning_rate=1e-4, status=TrialStatus.COMPLETED))
    folder = tmp_path / "a place" / "report"
    written = write_report(answers_of(rows), rows, folder)
    assert written[0] == folder / "index.html"
    assert {str(path.relative_to(folder)) for path in written} == names(folder)
    assert names(folder) == TABLES | {
        f"figures/{chart}.{kind}"
        for chart in ("freeze_curve", "learning_rates")
        for kind in ("png", "svg")
    }
    assert (folder / "figures/freeze_curve.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (folder / "figures/freeze_curve.svg").read_bytes()


def test_two_reports_into_one_folder_are_written_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "report"
    monkeypatch.setattr(report_folder, "PATIENCE_S", 0.1)
    with alone_at(place), pytest.raises(StorageError, match="another process has locked it"):
        write(SMALL, place)
    assert not place.exists()
    with alone_at(place):
        monkeypatch.setattr(report_folder, "PATIENCE_S", 60.0)
        waiting = threading.Thread(target=write, args=(SMALL, place))
        waiting.start()
        waiting.join(1.0)
        assert not place.exists() and waiting.is_alive()
    waiting.join(60.0)
    assert (place / "index.html").exists() and list(tmp_path.iterdir()) == [place]


def test_the_tables_read_back(tmp_path: Path) -> None:
    rows = as_table_has(falling_curve() + falling_curve(task="cola"))
    write(rows, tmp_path)
    trials = import_results(tmp_path / "trials.csv").rows
    again, before = answer_rows(trials), answers_of(rows)
    assert [one.operating_point for one in again] == [one.operating_point for one in before]
    with (tmp_path / "curve.csv").open(newline="") as file:
        depths = list(csv.DictReader(file))
    assert [(line["task"], line["frozen_layers"]) for line in depths] == [
        (task, n) for task in ("rte", "cola") for n in ("0", "3", "4", "5", "6")
    ]
    with (tmp_path / "answers.csv").open(newline="") as file:
        tasks = [line["task"] for line in csv.DictReader(file)]
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert tasks == [answer["task"] for answer in answers] == ["rte", "cola", "*"]


def test_the_bytes_are_the_same_at_every_run(tmp_path: Path) -> None:
    first, second = write(SMALL, tmp_path / "a"), write(SMALL, tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert b"<dc:date>" not in (tmp_path / "a/figures/freeze_curve.svg").read_bytes()


def test_an_older_report_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    figures.mkdir()
    for name in ("early_stopping.svg", "learning_rates.png", "mine.png"):
        (figures / name).write_text("old")
    (tmp_path / "index.html").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    write(SMALL, tmp_path)
    kept = {path.name for path in figures.iterdir()}
    assert "mine.png" in kept and "freeze_curve.png" in kept
    assert not kept & {"early_stopping.svg", "learning_rates.png"}
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert "<html" in (tmp_path / "index.html").read_text()


def test_without_any_answer_there_is_still_a_report(tmp_path: Path) -> None:
    written, *_ = write(seeds(3, [0.8, 0.81]), tmp_path)
    text = written.read_text()
    assert "the full model (0 frozen layers) was not measured" in text
    assert "Learning rates" not in text


@pytest.mark.parametrize("place", ["file", "file/below", "dangling", "n" * 300])
def test_a_place_that_takes_nothing_is_found_before_anything_is_drawn(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "report")
    with pytest.raises(StorageError, match=r"cannot be written to .*; name another folder"):
        check_folder(tmp_path / place)
    check_folder(tmp_path / "new" / "below")
    assert {file.name for file in tmp_path.iterdir()} == {"file", "dangling"}


@pytest.mark.parametrize("place", ["file", "file/below", "folder"])
def test_a_place_that_takes_nothing_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "figures").touch()
    with pytest.raises(StorageError, match=r"cannot be written to .*; name another folder"):
        write(SMALL, tmp_path / place)


def test_a_disk_that_fails_is_told_and_no_half_of_a_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        write(SMALL, tmp_path)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("room", [0, 1, 4])
def test_a_report_that_found_no_room_is_replaced(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has room for so many files."""
    written: list[Path] = []

    def fuller(path: Path, content: bytes) -> None:
        if len(written) == room:
            raise OSError(28, "No space left on device")
        write_aside(path, content)
        written.append(path)

    out = tmp_path / "report"
    with monkeypatch.context() as full:
        full.setattr(report_folder, "write_aside", fuller)
        out.mkdir()
        with pytest.raises(StorageError, match="No space left"):
            write(SMALL, out)
    assert len(names(out)) == room
    check_folder(out)
    write(SMALL, out)
    assert names(out) > TABLES
    assert "cut short" not in (out / "index.html").read_text()


def test_what_is_not_of_a_report_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("old")
    write_report(answers_of(SMALL), SMALL, tmp_path)
    assert names(tmp_path) >= TABLES | {"mine.csv"}
