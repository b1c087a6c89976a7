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
ELAPSED = r"(\d+) s elapsed, about \d+ to \d+ min left"
HEARD = r"1 running \(epoch 1/2 for (\d+) s\)"
LONG = ["frozen", "tuned", "done", "stopped", "running", "waiting", "best", "rate"]
SHORT = ["frozen", "tuned", "done", "stop", "run", "wait", "best", "rate"]


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
        """The same with its lines joined."""
        return " ".join(self.lines)

    def resize(self, width: int) -> None:
        self.run("resize-window", "-x", str(width), "-y", "24")

    def settled(self) -> list[str]:
        """Return the screen once it was drawn again."""
        before = elapsed(self.text)
        wait_for(lambda: elapsed(self.text) > before)
        return self.lines


def elapsed(text: str) -> int:
    found = re.search(ELAPSED, text)
    return int(found[1]) if found else -1


def heard(text: str) -> int:
    """For how long nothing was heard of the running trial."""
    found = re.search(HEARD, text)
    assert found is not None
    return int(found[1])


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


def check(lines: list[str], headings: list[str]) -> None:
    """One board and nothing else: whole headings, whole rows, no column that says nothing."""
    assert sum("example: minilm on stdlib" in line for line in lines) == 1
    (head,) = (number for number, line in enumerate(lines) if "frozen" in line)
    assert lines[head].split() == headings
    rows = [line.split() for line in lines[head + 1 :]]
    assert [row[0] for row in rows] == ["0", "3", "4", "5", "6"]
    assert all(set(column) != {"-"} for column in zip(*rows, strict=True))
    counts = [[int(cell.replace("-", "0")) for cell in row[2:6]] for row in rows]
    done, stopped, running, waiting = map(sum, zip(*counts, strict=True))
    total = done + running + waiting + stopped
    told = rf"{done + stopped} of {total} to 44 trials: {done} done, {stopped} stopped, {HEARD}"
    assert running == 1
    assert re.search(f"{told}, {waiting} waiting", " ".join(line.strip() for line in lines))


def test_nothing_is_cut_and_nothing_is_empty(terminal: Terminal) -> None:
    check([line for line in terminal.lines if "note: a line that stays" not in line], LONG)


@pytest.mark.thorough
@pytest.mark.parametrize("width", [60, 140])
def test_nor_is_it_in_a_window_of_another_width(width: int, tmp_path: Path) -> None:
    with opened(tmp_path, width) as shown:
        check([line for line in shown.lines if "note: a line that stays" not in line], LONG)


def test_the_clock_moves_while_nothing_happens(terminal: Terminal) -> None:
    before = terminal.text
    after = " ".join(terminal.settled())
    assert elapsed(after) > elapsed(before) and heard(after) > heard(before)


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
        lines = terminal.settled()
        check([line for line in lines if "note: a line that stays" not in line], headings)


def test_ctrl_c_is_answered_on_the_screen(terminal: Terminal) -> None:
    terminal.run("send-keys", "C-c")
    wait_for(
        lambda: "stopping: 9 trials saved; what runs begins anew when resumed" in terminal.text
    )
    assert "left" not in terminal.text
