"""The end of a search's session: neither its answer nor its drawings may cost it the end."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elsa_tune.report import folder
from elsa_tune.search import session
from elsa_tune.search.specification import load_specification, save_specification, settled
from elsa_tune.search.tune import cluster
from elsa_tune.specs.search import Resources
from elsa_tune.specs.trial import Precision
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths, StorePaths
from elsa_tune.tracking.state import SearchState
from tests.unit.search_examples import make_spec


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


@pytest.mark.parametrize(
    ("units", "precision"), [([True, True], Precision.BF16), ([True, False], Precision.FP32)]
)
def test_a_mixed_cluster_has_one_precision(
    units: list[bool], precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ask_gpus", lambda share: units)
    spec = make_spec(resources=Resources(cpus=1, gpus=0.5))
    assert settled(spec).precision is precision


def test_a_search_whose_terminal_is_closed_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hung:
        def __init__(self, *given: Any) -> None: ...

        def run(self) -> None:
            os.kill(os.getpid(), signal.SIGHUP)

    def gone(*given: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    nothing: Any = SimpleNamespace(offer=lambda record: None, close=lambda seconds: 0)
    monkeypatch.setattr(session, "SearchRun", Hung)
    monkeypatch.setattr(session, "Forwarder", lambda *given: SimpleNamespace(start=lambda: nothing))
    monkeypatch.setattr(session.Board, "__exit__", gone)
    paths = SearchPaths(tmp_path, "mine")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with pytest.raises(OSError, match="Input/output"):
            session.run_session(make_spec(), paths, nothing, nothing, print)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert SearchState.replay(read_journal(paths.journal)).status is SearchStatus.INTERRUPTED


def test_a_folder_that_was_moved_has_its_store_with_it(tmp_path: Path) -> None:
    here, there = StorePaths(tmp_path / "here"), StorePaths(tmp_path / "there")
    paths = SearchPaths(here.storage, "mine")
    paths.folder.mkdir(parents=True)
    spec = make_spec(tracking_uri=here.default_tracking_uri)
    save_specification(spec, paths)
    assert load_specification(paths) == spec
    here.working_directory.rename(there.working_directory)
    moved = load_specification(SearchPaths(there.storage, "mine"))
    assert moved.tracking_uri == there.default_tracking_uri


def test_a_store_that_was_written_whole_is_read_as_before(tmp_path: Path) -> None:
    paths = SearchPaths(StorePaths(tmp_path).storage, "mine")
    paths.folder.mkdir(parents=True)
    uri = StorePaths(tmp_path).default_tracking_uri
    save_specification(make_spec(tracking_uri=uri), paths)
    text = paths.specification.read_text()
    assert uri not in text
    paths.specification.write_text(text.replace("sqlite:///mlflow.db", uri))
    assert load_specification(paths).tracking_uri == uri
