"""What a person sees of a search; and whoever watches may go away or stop reading: it goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest
from rich.console import Console

from elsa_tune.cli.printing import with_options
from elsa_tune.errors import StorageError
from elsa_tune.fitted_table import fitted_table
from elsa_tune.searching import board as boards
from elsa_tune.searching.board import Board
from elsa_tune.searching.board_lines import candidate_lines, counts_of
from elsa_tune.searching.output import printing, say
from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.searching.planning.plan import planned_trials, trial_range
from elsa_tune.specs.adapt.freeze import FULL_MODEL
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.searching import wait_for
from tests.shown_board import DEPTHS, made_up
from tests.unit.search_examples import make_spec

COUNTED = "9/20 trials: 8 done, 1 stopped, 1 running, 10 waiting"
# With the rates beyond those given, and what the running trial does.
SHOWN = r"9 of 20 to 44 trials: 8 done, 1 stopped, 1 running \(epoch 1/2 for \d+ s\), 10 waiting"


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stderr is a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream:
        monkeypatch.setattr("sys.stderr", stream)
        yield
        monkeypatch.undo()


def test_words_that_nobody_reads_end_nothing(unread: None) -> None:
    say("one")
    say("two")


def test_results_that_nobody_reads_end_nothing(
    unread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", sys.stderr)
    with printing():
        print("a line " * 10_000)
        print("another")


def test_results_that_a_full_disk_refuses_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(StorageError, match="No space left"), printing():
            print("a line")
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


def test_a_program_without_stderr_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a daemon, or after `2>&-`."""
    monkeypatch.setattr("sys.stderr", None)
    say("a line")
    with Board(make_spec(), lambda: "so far nothing") as board:
        board.phase("exploring")
        board.say("a line")
        board.ended(made_up(0.0)[1][0])
    with printing():
        print("a line", file=sys.stderr)
        say("a line")


def test_settings_are_named_as_whoever_reads_gives_them(capsys: pytest.CaptureFixture[str]) -> None:
    message = "the store does not answer; name another with `tracking_uri`"
    say(message)
    assert capsys.readouterr().err == f"{message}\n"
    with printing(with_options):
        say(message)
        with Board(make_spec(), lambda: None) as board:
            board.say(message)
    typed = "the store does not answer; name another with --tracking-uri"
    assert capsys.readouterr().err.splitlines()[:2] == [typed, typed]
    say(message)
    assert capsys.readouterr().err == f"{message}\n"


def test_a_file_of_results_is_utf8_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with printing():
        print("é 日")
    assert written.getvalue().decode("utf-8") == "é 日\n"


def test_a_terminal_of_another_encoding_shows_question_marks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = os.openpty()
    with open(master, "rb", buffering=0) as shown, open(slave, "w", encoding="latin-1") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        with printing():
            print("é 日")
        monkeypatch.undo()
        assert shown.read(100) == "é ?\r\n".encode("latin-1")


def test_results_without_a_stdout_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with printing():
        say("a line")
    with pytest.raises(StorageError, match="stdout cannot be written: it is closed"), printing():
        print("a line")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_board_that_nobody_reads_ends_nothing(
    unread: None, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    board = Board(make_spec(), lambda: "so far nothing")
    assert board._console.is_terminal is terminal
    with board:
        board.phase("exploring")
        board.say("a line " * 10_000)
        board.ended(made_up(0.0)[1][0])
        board.say("another")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_terminal_that_takes_nothing_holds_nobody_up(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-S, or a pipe to something that hangs."""
    monkeypatch.setattr(boards, "_PATIENCE", 0.1)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(writer, "w") as stream:
        console = Console(file=stream, force_terminal=terminal, force_interactive=terminal)
        board = Board(make_spec(), lambda: None, console)
        with board:
            for _ in range(100):
                board.say("a line " * 1000)
            board.phase("measuring")
        assert board._thread.is_alive()
        taken = threading.Thread(target=lambda: [*iter(lambda: os.read(reader, 65536), b"")])
        taken.start()
        board._thread.join(200)
        assert not board._thread.is_alive()
    taken.join()
    os.close(reader)


@pytest.mark.parametrize("width", [60, 80])
def test_a_note_leaves_the_frame_below_it_whole(width: int) -> None:
    """The frame that is drawn with a note wraps its lines as every other does."""
    spec, known = made_up(time.time())
    text = io.StringIO()
    console = Console(
        file=text, width=width, force_terminal=True, force_interactive=True, color_system=None
    )
    board = Board(spec, lambda: None, console)
    board.follow(SimpleNamespace(known=known))
    phase = "exploring: 10 trials over 5 depths, then outward from the best rate of each depth"
    note = "a note that is longer than any window here is wide: " + "word " * 20
    with board:
        board.phase(phase)
        board.say(note)
    _, after_note = text.getvalue().split(note)
    frame, *_ = after_note.split("\x1b[2K")  # which erases a line of it for the next
    assert phase in " ".join(frame.split())


def piped() -> tuple[Board, io.StringIO, list[KnownTrial]]:
    spec, known = made_up(time.time())
    text = io.StringIO()
    board = Board(spec, lambda: None, Console(file=text))
    board.follow(SimpleNamespace(known=known))
    return board, text, known


def test_a_pipe_is_told_of_each_end_with_the_counts_and_the_time_left() -> None:
    board, text, known = piped()
    with board:
        board.phase("exploring: 10 trials over 5 depths")
        for one in known[:-1]:  # the last one is still running
            board.ended(one)
    first, *ends = text.getvalue().splitlines()
    assert first == "exploring: 10 trials over 5 depths"
    assert len(ends) == 9
    assert re.fullmatch(
        r"\[9 of 20 to 44\] explore-N0-lr2e-05-s0: completed at 81.5 after 2/2 evaluations"
        r", about \d+ to \d+ min left",
        ends[0],
    )


def test_a_trial_that_ends_before_its_first_evaluation_has_no_quality_to_show() -> None:
    board, text, known = piped()
    known[0] = dataclasses.replace(known[0], status=TrialStatus.INTERRUPTED, qualities=())
    with board:
        board.ended(known[0])
    assert "explore-N0-lr2e-05-s0: interrupted after 0/2 evaluations" in text.getvalue()


def test_trials_are_timed_by_the_clock_of_their_record() -> None:
    """It stays behind the machine's where the machine slept."""
    then = time.time() - 8 * 3600
    spec, known = made_up(then)
    board = Board(spec, lambda: None, Console(file=io.StringIO()))
    board.follow(SimpleNamespace(known=known), now=lambda: then)
    progress = board._progress(known, candidate_lines(spec, known))
    assert "(epoch 1/2 for 0 s)" in progress


def test_no_more_time_is_left_than_the_limit_leaves() -> None:
    spec, known = made_up(time.time())
    spec = dataclasses.replace(spec, max_time=50.0)
    assert re.search(r"evaluations(, about \d\d? s left)?$", said_of_an_end(spec, known))


def test_no_more_time_is_left_than_the_gpu_hours_leave() -> None:
    """One trial at a time, on half a GPU: 0.005 GPU-hours are 36 seconds of it."""
    spec, known = made_up(time.time())
    half = dataclasses.replace(spec.resources, gpus=0.5)
    without = dataclasses.replace(spec, resources=half)
    assert re.search(r", about \d+ to \d+ min left$", said_of_an_end(without, known))
    spec = dataclasses.replace(without, gpu_hours=2.005)
    assert re.search(r", about (35|40) s left$", said_of_an_end(spec, known, used=2.0))
    assert said_of_an_end(spec, known, used=2.1).endswith("evaluations")
    # The last one at work has ended, too, and another is about to begin.
    ended = [
        dataclasses.replace(trial, status=TrialStatus.COMPLETED, ended=time.time())
        if trial.status is TrialStatus.RUNNING
        else trial
        for trial in known
    ]
    assert re.search(r", about (35|40) s left$", said_of_an_end(spec, ended, used=2.0))


def said_of_an_end(spec: SearchSpec, known: Sequence[KnownTrial], used: float = 0.0) -> str:
    """Return what is said as the first of these trials ends. used: the search's GPU-hours."""
    text = io.StringIO()
    board = Board(spec, lambda: None, Console(file=text))
    board.follow(SimpleNamespace(known=known), lambda: used)
    with board:
        board.ended(known[0])
    return text.getvalue().strip()


def test_a_pipe_hears_a_heartbeat_while_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "HEARTBEAT_SECONDS", 0.01)
    board, text, _ = piped()
    with board:
        board.phase("exploring")
        wait_for(lambda: text.getvalue().count("\n") > 3)
        board.stopping("Ctrl-C once more stops at once")
        wait_for(lambda: text.getvalue().splitlines()[-1].endswith("elapsed"))
    lines = text.getvalue().splitlines()
    beat = re.compile(rf"{SHOWN}; \d+ s elapsed, about .* left")
    assert any(map(beat.fullmatch, lines))
    kept = "stopping: 9 trials saved; what runs begins anew when resumed"
    assert lines.count(f"{kept} (Ctrl-C once more stops at once)") == 1
    assert "left" not in lines[-1]


def test_what_runs_is_shown_by_its_epoch_and_by_how_long_nothing_was_heard() -> None:
    spec, known = made_up(1000.0)
    spec = dataclasses.replace(
        spec, recipe=dataclasses.replace(spec.recipe, epochs=3, evaluations_per_epoch=2)
    )
    running = [
        dataclasses.replace(known[-1], started=900.0 + number, reported=reported)
        for number, reported in enumerate([(), (950.0,), (950.0, 960.0), (0.0,) * 5 + (999.0,)])
    ]
    assert boards.running_text(spec, running, 1000.0) == (
        "epoch 1/3 for 1 min 40 s, epoch 1/3 for 50 s, epoch 2/3 for 40 s, epoch 3/3 for 1 s"
    )
    assert boards.running_text(spec, running * 4, 1000.0).endswith(", and 12 more")
    assert boards.running_text(spec, known[:3], 1000.0) == ""  # they have ended


@pytest.mark.parametrize(
    ("done", "with_checkpoint", "said"),
    [
        (0, 0, "no trial has ended; what runs begins anew when resumed"),
        (1, 0, "1 trial saved; what runs begins anew when resumed"),
        (1, 1, "1 trial saved; 1 of 2 that run continue at checkpoints when resumed"),
        (1, 2, "1 trial saved; what runs continues at its checkpoint when resumed"),
    ],
)
def test_an_early_end_says_what_is_kept(done: int, with_checkpoint: int, said: str) -> None:
    board, text, known = piped()
    two = [dataclasses.replace(known[number], status=TrialStatus.RUNNING) for number in (8, 9)]
    known[:] = known[:done] + two
    saved = [trial.key for trial in two[:with_checkpoint]]
    plan = SimpleNamespace(known=known)
    board.follow(plan, saved=lambda key: 5.0 if key in saved else None)
    with board:
        board.stopping("a hint")
    assert f"stopping: {said} (a hint)" in text.getvalue()


def test_a_total_that_may_grow_is_a_range() -> None:
    spec, known = made_up(1000.0)
    # Eight rates beyond those given, at each of the three depths that still explore.
    assert trial_range(spec, known) == (20, 44)
    assert trial_range(spec, []) == (20, 60)
    assert trial_range(dataclasses.replace(spec, exploring_limit=14), known) == (20, 24)
    assert trial_range(dataclasses.replace(spec, extend=None), known) == (20, 20)
    hunt = dataclasses.replace(
        spec, strategy="hunt", extend=None, seeds=8, planned_seeds=8, explored=DEPTHS
    )
    # One seed of the full model at least; at most every depth's second look.
    assert trial_range(hunt, known) == (10 + 1, 10 + 3 + 4 * 8)
    lines = candidate_lines(hunt, known)
    told = counts_of(lines, trial_range(hunt, known))[1]
    assert told.startswith("9 of 11 to 45 trials: ") and told.endswith("up to 18 waiting")


def test_every_trial_is_counted_once_and_the_counts_add_up() -> None:
    spec, known = made_up(0.0)
    lines = candidate_lines(spec, known)
    assert counts_of(lines) == ("9/20", COUNTED)
    for line in lines:
        here = [one for one in known if one.trial.candidate == line.candidate]
        planned = planned_trials(spec, here, line.candidate)
        assert line.counts.total() == planned


def test_a_trial_that_failed_or_diverged_has_ended_and_one_that_was_interrupted_waits() -> None:
    spec = make_spec(candidates=(FULL_MODEL,), explored=(FULL_MODEL,), seeds=1)
    known = [
        KnownTrial(trial=spec.trial(phase, FULL_MODEL, rate, 0), status=status, qualities=())
        for phase, rate, status in (
            (Phase.EXPLORE, 1e-5, TrialStatus.FAILED),
            (Phase.EXPLORE, 2e-5, TrialStatus.DIVERGED),
            (Phase.MEASURE, 3e-5, TrialStatus.INTERRUPTED),
        )
    ]
    assert counts_of(candidate_lines(spec, known))[1] == "2/3 trials: 2 failed, 1 waiting"


def headings(width: int) -> list[str]:
    columns = {
        "frozen": ["0", "12"],
        "running": ["1", "-"],
        "failed": ["-", ""],
        "rate": ["1", "2"],
    }
    table = fitted_table(columns, width, short={"running": "run"}, spared=("rate", "frozen"))
    console = Console(file=io.StringIO(), width=max(1, width))
    console.print(table)
    printed = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in printed)
    return printed[0].split()


def test_a_narrow_table_moves_together_then_takes_short_headings_then_drops_columns() -> None:
    assert headings(80) == headings(23) == headings(20) == ["frozen", "running", "rate"]
    assert headings(19) == headings(16) == ["frozen", "run", "rate"]
    assert headings(15) == headings(11) == ["frozen", "run"]
    assert headings(10) == ["run"]
