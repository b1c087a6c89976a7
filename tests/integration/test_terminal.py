"""The live table as a terminal shows it.

At several widths, second by second, resized, and at Ctrl-C.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.searching import ROOT, wait_for

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        shutil.which("tmux") is None,
        reason="needs tmux (apt-get install tmux): it is the terminal that is looked at",
    ),
]
# As `words.duration` and `words.rough_range` write them, however long the machine takes.
TIME = r"(?:(\d+) min )?(\d+) s"
ELAPSED = rf"{TIME} elapsed, about [\d.]+ [\w. ]*left"
HEARD = rf"1 running \(epoch 1/2 for {TIME}\)"
LONG = ["frozen", "tuned", "done", "stopped", "running", "waiting", "best", "at", "rate"]
SHORT = ["frozen", "tuned", "done", "stop", "run", "wait", "best", "at", "rate"]


class Terminal:
    """A window of tmux, on a server of its own, in which the made-up board runs."""

    def __init__(self, folder: Path, width: int) -> None:
        self._tmux = ("tmux", "-S", str(folder / "socket"), "-f", "/dev/null")
        command = f"cd '{ROOT}' && exec '{sys.executable}' -m tests.shown_board"
        self.run("new-session", "-d", "-x", str(width), "-y", "24", command)

    def run(self, *command: str) -> str:
        done = subprocess.run((*self._tmux, *command), capture_output=True, text=True, check=True)
        return done.stdout

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without empty lines."""
        shown = self.run("capture-pane", "-p").splitlines()
        return [line for line in shown if line.strip()]

    @property
    def text(self) -> str:
        """The same with its lines joined, and single blanks."""
        return " ".join(" ".join(self.lines).split())

    def resize(self, width: int) -> None:
        self.run("resize-window", "-x", str(width), "-y", "24")

    def wait_until_drawn(self) -> None:
        """Return once the screen was drawn again."""
        before = elapsed(self.text)
        wait_for(lambda: elapsed(self.text) > before)


def elapsed(text: str) -> int:
    return seconds(re.search(ELAPSED, text))


def heard(text: str) -> int:
    """For how long nothing was heard of the running trial."""
    return seconds(re.search(HEARD, text))


def seconds(found: re.Match[str] | None) -> int:
    """Return a time of the screen; -1 where it does not stand there."""
    return 60 * int(found[1] or 0) + int(found[2]) if found else -1


@contextlib.contextmanager
def opened(folder: Path, width: int) -> Iterator[Terminal]:
    """Open a window and wait for the board in it; close it with the block."""
    shown = Terminal(folder, width)
    wait_for(lambda: elapsed(shown.text) >= 0 and "note" in shown.text)
    yield shown
    shown.run("kill-server")


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Open one window for the tests of this module, in their order: a board takes seconds."""
    with opened(tmp_path_factory.mktemp("terminal"), 80) as shown:
        yield shown


def faults(lines: list[str], headings: list[str]) -> str:
    """Return what is wrong with a screen; "" where nothing is.

    It has one board and nothing else: whole headings, whole rows, no column that says nothing.
    """
    lines = [line for line in lines if "note: a line that stays" not in line]
    heads = [number for number, line in enumerate(lines) if "frozen" in line]
    if len(heads) != 1 or sum("example: minilm on stdlib" in line for line in lines) != 1:
        return "not one board"
    (head,) = heads
    if lines[head].split() != headings:
        return "other headings"
    rows = [line.split() for line in lines[head + 1 :]]
    if [row[0] for row in rows] != ["0", "3", "4", "5", "6"]:
        return "other rows"
    if len({len(row) for row in rows}) != 1:
        return "rows of unequal length"
    if any(set(column) == {"-"} for column in zip(*rows, strict=True)):
        return "a column says nothing"
    counts = [[int(cell.replace("-", "0")) for cell in row[2:6]] for row in rows]
    done, stopped, running, waiting = map(sum, zip(*counts, strict=True))
    total = done + running + waiting + stopped
    told = rf"{done + stopped} of {total} to 44 trials: {done} done, {stopped} stopped, {HEARD}"
    is_told = re.search(f"{told}, {waiting} waiting", " ".join(line.strip() for line in lines))
    return "" if running == 1 and is_told else "other counts"


def check(shown: Terminal, headings: list[str]) -> None:
    """Wait until nothing is wrong with the screen.

    The board draws once a second: after a change of the window it may first draw as before, and
    whoever looks while it draws sees half of it. What it leaves behind stays.
    """
    last = [""]

    def is_right() -> bool:
        lines = shown.lines
        last[:] = [faults(lines, headings), *lines]
        return not last[0]

    try:
        wait_for(is_right, 200)
    except AssertionError:
        pytest.fail("\n".join(last))


def test_nothing_is_cut_and_nothing_is_empty(terminal: Terminal) -> None:
    check(terminal, LONG)


@pytest.mark.thorough
@pytest.mark.parametrize("width", [60, 140])
def test_nor_is_it_in_a_window_of_another_width(width: int, tmp_path: Path) -> None:
    with opened(tmp_path, width) as shown:
        check(shown, LONG)


def test_the_clock_moves_while_nothing_happens(terminal: Terminal) -> None:
    seen: list[str] = []

    def is_whole() -> bool:
        seen[:] = [terminal.text]
        return elapsed(seen[0]) >= 0 and heard(seen[0]) >= 0

    wait_for(is_whole)
    [before] = seen
    wait_for(lambda: elapsed(terminal.text) > elapsed(before))
    wait_for(lambda: heard(terminal.text) > heard(before))


@pytest.mark.thorough
def test_resizing_leaves_nothing_behind(terminal: Terminal) -> None:
    for width, headings in (
        (80, LONG),
        (60, LONG),
        (46, SHORT),
        (100, LONG),
        (60, LONG),
        (140, LONG),
        (80, LONG),
    ):
        terminal.resize(width)
        # Twice: what is drawn next may have begun before.
        terminal.wait_until_drawn()
        terminal.wait_until_drawn()
        check(terminal, headings)


def test_ctrl_c_is_answered_on_the_screen(terminal: Terminal) -> None:
    terminal.run("send-keys", "C-c")

    def is_answered() -> bool:
        text = terminal.text
        said = "stopping: 9 trials saved; what runs begins anew when resumed" in text
        return said and "left" not in text

    wait_for(is_answered)
