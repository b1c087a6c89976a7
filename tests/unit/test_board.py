"""Whoever watches a search may go away: it goes on, in silence."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import pytest

from elsa_tune.search import board as boards
from elsa_tune.search.board import Board
from elsa_tune.search.saying import results_piped, say
from tests.unit.search_examples import make_spec


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """stderr is a pipe that nobody reads any more."""
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
    with results_piped():
        print("a line " * 10_000)
        print("another")


def test_results_that_a_full_disk_refuses_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(OSError, match="No space left"), results_piped():
            print("a line")
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_board_that_nobody_reads_ends_nothing(
    unread: None, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "REFRESH_SECONDS", 0.0)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    board = Board(make_spec(), lambda: {}, lambda: "so far nothing")
    assert board._console.is_terminal is terminal
    with board:
        board.phase("exploring")
        board.say("a line " * 10_000)
        board.changed("explore-N0-t0")
        board.say("another")
