"""The command line from the outside, for every test of what a command prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from elsa_tune.cli import app


class Outcome(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process, through `main` and its exit statuses."""

    def command(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["elsa-tune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        captured = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return command
