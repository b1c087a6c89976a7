"""Commands that a test runs in its own process, in a directory with recorded searches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


def runner(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs a command in a directory, and returns what it prints on stdout.

    It takes the command's words, and the exit status that is expected: `run("compare", status=3)`.
    """
    from elsa_tune.cli import app

    monkeypatch.chdir(place)

    def run(*words: str, status: int = 0) -> str:
        monkeypatch.setattr("sys.argv", ["elsa-tune", *words])
        with pytest.raises(SystemExit) as ended:
            app.main()
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == status, printed.err
        return printed.out

    return run
