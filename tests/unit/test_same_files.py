"""A name that a search has already, asked again: for the same rows and weights, or others."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.errors import DataError, ModelError
from elsa_tune.searching import launch
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.request import Request, read_request
from elsa_tune.searching.specification import load_specification, save_specification
from elsa_tune.tracking.paths import SearchPaths
from tests.searching import make_bench

ROWS = "text,label\n" + "".join(f"row {n} of them,{'ab'[n % 2]}\n" for n in range(40))


class WentOn(Exception):
    """A recorded search was gone on with."""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with rows, a model, and the record of a search of both."""
    make_bench(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tickets.csv").write_text(ROWS)
    request = asked("tickets.csv")
    spec, _ = launch._with_data(request.spec)
    request.paths.folder.mkdir(parents=True)
    save_specification(spec, request.paths)

    def go_on(*_: Any, **__: Any) -> None:
        raise WentOn

    monkeypatch.setattr(launch, "resume", go_on)
    return tmp_path


def asked(task: str, model: str = "model") -> Request:
    options = SearchOptions(model=model, task=[task], label="label", name="own", seeds=3)
    return read_request(options, task)


def start(request: Request) -> None:
    launch.start(request, lambda line: None)


def test_the_same_rows_go_on_wherever_they_lie(begun: Path) -> None:
    with pytest.raises(WentOn):
        start(asked("tickets.csv"))
    (begun / "moved").mkdir()
    (begun / "tickets.csv").rename(begun / "moved" / "tickets.csv")
    with pytest.raises(WentOn):
        start(asked("moved/tickets.csv"))


@pytest.mark.parametrize("place", ["tickets.csv", "other/tickets.csv"])
def test_other_rows_are_refused_and_nothing_is_changed(begun: Path, place: str) -> None:
    """The same file with another row, and a file of the same name."""
    paths = SearchPaths(begun / "mlruns" / "searches", "own")
    before = paths.specification.read_bytes()
    (begun / place).parent.mkdir(exist_ok=True)
    (begun / place).write_text(ROWS.replace("row 7 of", "line 7 of"))
    message = r"data of task 'tickets' are not those that search 'own' began with.* another `name`"
    with pytest.raises(DataError, match=message):
        start(asked(place))
    assert paths.specification.read_bytes() == before


def test_other_weights_are_refused(begun: Path) -> None:
    weights = begun / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ModelError, match="weights of 'model' are not those that search 'own'"):
        start(asked("tickets.csv"))


def test_what_the_package_has_is_not_read_again(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SearchOptions(model="minilm", task=["stdlib"], name="packaged", seeds=3)
    request = read_request(options, "stdlib")
    request.paths.folder.mkdir(parents=True)
    save_specification(dataclasses.replace(request.spec, fingerprints={}), request.paths)
    assert load_specification(request.paths).fingerprints == {}
    monkeypatch.setattr(launch, "inputs_of", None)
    with pytest.raises(WentOn):
        start(request)
