"""The end of a search's session: neither its answer nor its drawings may cost it the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elsa_tune.report import folder
from elsa_tune.search import session
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState


def fail(*args: Any, **named: Any) -> None:
    raise ValueError("operands could not be broadcast")


def test_whatever_the_answer_meets_is_said_and_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "answer_rows", fail)
    said: list[str] = []
    paths = SearchPaths(tmp_path, "mine")
    assert session.answers_of(SearchState.replay([]), paths, said.append) == []
    assert said == ["no answer could be computed: ValueError: operands could not be broadcast"]


def test_a_drawing_that_fails_is_said_and_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "write_report", fail)
    said: list[str] = []
    paths = SearchPaths(tmp_path, "mine")
    assert session._report(SearchState.replay([]), paths, [], said.append) is None
    assert said == ["no report was drawn: ValueError: operands could not be broadcast"]
