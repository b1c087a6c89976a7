"""Others' names, labels and errors reach a terminal, a page and a drawing as plain text.

The characters that command these are left out; our own styles, and what JSON means, stay.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from elsa_tune.errors import UsageError
from elsa_tune.searching.board import Board
from elsa_tune.searching.console import SafeConsole
from elsa_tune.searching.output import say
from elsa_tune.tracking.journal_records import Decision
from elsa_tune.visible import progress_visible, visible, visible_cell
from tests.conftest import Outcome, Run
from tests.recorded_search import journal_of, search_started, whole_search
from tests.unit.search_examples import make_spec
from tests.unit.tiny_models import make_tiny

# A title, a copy to the clipboard, a clear screen (twice, once by C1), a reset, a turned order,
# a hidden mark; and a formula.
EVIL = "m\x1b]0;title\x07\x1b]52;c;cm0=\x07\x1b[2J\x9b2J\x1bcover\u202egnp\u2066\u200b$x_1$\x7f"
SHOWN = (
    r"m\u001b]0;title\u0007\u001b]52;c;cm0=\u0007\u001b[2J\u009b2J\u001bcover\u202egnp"
    r"\u2066\u200b$x_1$\u007f"
)
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069]")


# ---- the function ----


def test_what_commands_a_terminal_is_written_out() -> None:
    assert visible(EVIL) == SHOWN
    assert visible(SHOWN) == SHOWN
    assert visible("\x00\ud800\U000e0041") == r"\u0000\ud800\udb40\udc41"
    assert visible_cell("a\nb\tc\x1b") == r"a\nb\tc\u001b"


def test_what_is_written_in_any_script_stays() -> None:
    for text in ("line\n\tnext", "Größe, 模型, नमूना, نموذج, می‌خواهم", "👩‍💻 → ▶ ✓ ±", r"C:\u001b"):
        assert visible(text) == text


def test_json_means_the_same_afterwards() -> None:
    every = "".join(map(chr, range(0x3100))) + "\ufeff\ufffa\U000e0041\udfff"
    printed = visible(json.dumps({"name": every}, ensure_ascii=False))
    assert not UNSEEN.search(printed)
    assert json.loads(printed) == {"name": every}


def test_a_librarys_colours_and_progress_stay_and_nothing_else_does() -> None:
    progress = "\r 40%|███ | \x1b[A\x1b[32mgreen\x1b[0m\x1b[K"
    assert progress_visible(progress) == progress
    assert progress_visible("\x1b]52;c;cm0=\x07\x1b[2J\x9b2J\u202e") == (
        r"\u001b]52;c;cm0=\u0007\u001b[2J\u009b2J\u202e"
    )


# ---- every way out ----


def seen(outcome: Outcome) -> str:
    """Return what a command printed, in which nothing is unseen."""
    printed = outcome.out + outcome.err
    assert not UNSEEN.search(printed), ascii(UNSEEN.findall(printed))
    return printed


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of a model, a task and a search by evil names, in the working directory."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"model": EVIL, "task": f"task {EVIL}", "search": f"search {EVIL}", "layers": 6}
        | {"frozen_layers": frozen, "quality": quality + seed / 1000, "seed": seed}
        for frozen, quality in ((0, 0.9), (3, 0.88), (6, 0.7))
        for seed in (1, 2, 3)
    ]
    file = tmp_path / "results.csv"
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return file


@pytest.mark.parametrize("command", ["operating-point", "curve"])
@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_answers_show_names(command: str, form: str, table: Path, run: Run) -> None:
    answered = run(command, "--from", table, "--format", form)
    assert answered.status == 0 and (SHOWN if form != "csv" else SHOWN[:20]) in seen(answered)
    if form == "json":
        (found,) = json.loads(answered.out)
        assert (found["model"], found["task"]) == (EVIL, f"task {EVIL}")


def test_our_own_styles_stay(table: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("COLUMNS", "200")
    answered = run("operating-point", "--from", table)
    styled = re.sub(r"\x1b\[[\d;]*m", "", answered.out)
    assert len(styled) < len(answered.out) and not UNSEEN.search(styled)


def test_a_report_shows_names(table: Path, run: Run) -> None:
    made = run("report", "--from", table, "--out", f"out {EVIL}")
    assert made.status == 0 and SHOWN in seen(made)
    folder = table.parent / f"out {EVIL}"
    assert not UNSEEN.search((folder / "index.html").read_text())
    for figure in (folder / "figures").glob("*.svg"):
        ET.parse(figure)  # a control character would be no XML
    with (folder / "trials.csv").open(newline="") as kept:
        assert {row["model"] for row in csv.DictReader(kept)} == {EVIL}  # data are not changed


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_list_of_searches_shows_names(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    named = dataclasses.replace(search_started("first"), model=f"{EVIL}\nanother", task=EVIL)
    _, *rest = whole_search("first", 2)
    answer = Decision(what="answer", value=EVIL)
    journal_of(tmp_path / "mlruns" / "searches", "first", [named, *rest, answer])
    listed = run("searches", "--format", form)
    assert listed.status == 0 and SHOWN in seen(listed)
    if form == "json":
        assert json.loads(listed.out)[0]["model"] == f"{EVIL}\nanother"
    else:
        assert len(listed.out.splitlines()) == 2  # a heading and a row


def test_tasks_show_labels_columns_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(f"rows {EVIL.replace('/', '')}.csv")
    with file.open("w", newline="") as opened:
        lines = [[f"text {EVIL}", f"label {EVIL}"]]
        lines += [[f"words and words, number {n}", f"{n % 2} {EVIL}"] for n in range(40)]
        csv.writer(opened).writerows(lines)
    drafted = run("tasks", file)
    assert drafted.status == 0
    seen(drafted)
    # The draft names what the file has.
    Path("task.yaml").write_text(drafted.out, newline="")
    for form in ("table", "json"):
        described = run("tasks", "task.yaml", "--format", form)
        assert described.status == 0, described.err
        assert SHOWN in seen(described)
    assert EVIL in str(json.loads(described.out)["classes"][0])


def test_a_folder_with_a_model_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    make_tiny("bert", tmp_path / EVIL, layers=2)
    for form in ("table", "json"):
        assert SHOWN in seen(run("models", f"./{EVIL}", "--format", form))


@pytest.mark.parametrize(
    "command",
    [
        ("operating-point", "--from", f"{EVIL}.csv"),
        ("operating-point", "--from", f"{EVIL}.jsonl"),
        ("resume", EVIL),
        ("search", "--model", EVIL, "--task", "stdlib"),
        ("search", "--model", "minilm", "--task", EVIL),
        ("search", "--model", "minilm", "--task", "stdlib", "--space", EVIL),
        ("search", "--model", "minilm", "--task", "stdlib", "--set", f"{EVIL}=1"),
        ("search", "--model", "minilm", "--task", "stdlib", "--name", EVIL),
        ("search", "--model", "minilm", "--task", "stdlib", "--tracking-uri", EVIL),
        ("trial", "--model", "minilm", "--task", EVIL, "--learning-rate", "1e-5"),
        ("export", "--search", EVIL, "--out", EVIL),
        ("bundle", EVIL, EVIL, "--out", EVIL),
        ("models", EVIL),
        ("tasks", EVIL),
        ("spaces", EVIL),
        ("searches", "--storage-path", EVIL),
        ("cache", "prune", EVIL),
        (EVIL,),
        ("search", f"--{EVIL.replace('=', '')}"),
    ],
    ids=lambda command: " ".join(word for word in command if EVIL not in word)[:40] or "evil",
)
def test_what_is_refused_is_shown(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run(*command)
    assert refused.status == (0 if command[0] == "searches" else 2)
    assert "]0;title" in seen(refused)


def test_a_file_name_that_is_no_utf_8_is_shown(run: Run) -> None:
    refused = run("tasks", os.fsdecode(b"rows-\xff.csv"))
    assert refused.status == 2 and r"rows-\udcff.csv" in seen(refused)


def test_words_for_a_person_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"note: {EVIL}")
    assert capsys.readouterr().err == f"note: {SHOWN}\n"
    # Where another program prints it.
    assert str(UsageError(f"no file {EVIL}")) == f"no file {SHOWN}"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_board_shows_names(is_terminal: bool) -> None:
    stream = io.StringIO()
    console = SafeConsole(
        stream, force_terminal=is_terminal, force_interactive=is_terminal, width=300, height=30
    )
    spec = make_spec()
    spec = dataclasses.replace(spec, model=dataclasses.replace(spec.model, name=EVIL))
    with Board(spec, lambda: f"answer {EVIL}", console) as board:
        board.phase(f"phase {EVIL}")
        board.say(f"said {EVIL}")
    printed = stream.getvalue()
    # What rich itself writes: styles, the cursor's moves, its hiding.
    plain = re.sub(r"\x1b\[\??[\d;]*[ABHJKhlm]|\r", "", printed)
    assert not UNSEEN.search(plain)
    assert f"said {SHOWN}" in plain and f"phase {SHOWN}" in plain
    assert (f"answer {SHOWN}" in plain and f"example: {SHOWN} on" in plain) == is_terminal
