"""A name that a search has already, asked again: for the same rows and weights, or others."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from elsa_tune.errors import DataError, ModelError, StorageError
from elsa_tune.searching import launch, several
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.request import Request, read_request
from elsa_tune.searching.specification import load_specification, save_specification
from elsa_tune.searching.startup import fingerprints
from elsa_tune.specs.model import ModelSource
from elsa_tune.specs.task import FilesSource
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training.data import preparation
from elsa_tune.training.model import model_files
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


def test_a_model_goes_on_wherever_it_lies_and_keeps_its_name(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by another name than it was typed, as a path of another machine is."""
    there = begun / "there" / "bert"
    there.parent.mkdir()
    (begun / "model").rename(there)
    changes = []
    monkeypatch.setattr(launch, "resume", lambda *_, more, **__: changes.append(more))
    request = asked("tickets.csv", str(there))
    start(request)
    [change] = changes
    recorded = load_specification(request.paths)
    spec = change(recorded)
    assert (spec.model.name, spec.model.location) == ("model", str(there))
    # What goes on, is exported and is pooled is the same model as before.
    _, found = fingerprints.inputs_of(spec)
    fingerprints.check_unchanged(spec, found)
    assert spec.comparison == recorded.comparison


def test_a_model_named_like_a_commit_goes_on_under_another_name(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"  # as the folders of the hub's cache are
    (begun / "model").rename(begun / commit)
    request = asked("tickets.csv", commit)
    spec, _ = launch._with_data(request.spec)
    assert spec.fingerprints["weights"].endswith("@0123456789ab")
    request.paths.specification.unlink()
    save_specification(spec, request.paths)
    (begun / commit).rename(begun / "bert")
    changes = []
    monkeypatch.setattr(launch, "resume", lambda *_, more, **__: changes.append(more))
    start(asked("tickets.csv", "bert"))
    [change] = changes
    moved = change(load_specification(request.paths))
    _, found = fingerprints.inputs_of(moved)
    fingerprints.check_unchanged(moved, found)


@pytest.mark.parametrize("folder", ["_ray_pkg_0a", "elsewhere"])
def test_files_that_a_job_had_are_said_to_be_gone_with_it(begun: Path, folder: str) -> None:
    spec = asked("tickets.csv").spec
    model = dataclasses.replace(spec.model, location=str(begun / folder / "model"))
    source = spec.task.source
    assert isinstance(source, FilesSource)
    source = dataclasses.replace(source, train=(str(begun / folder / "tickets.csv"),))
    task = dataclasses.replace(spec.task, source=source)
    with pytest.raises(DataError, match=r"tickets\.csv does not exist") as no_rows:
        fingerprints.inputs_of(dataclasses.replace(spec, task=task))
    with pytest.raises(ModelError, match=r"holds no config\.json") as no_model:
        fingerprints.inputs_of(dataclasses.replace(spec, model=model))
    hint = "; it lay in the folder of a submitted job, which is gone: to go on, submit the same"
    for error in (no_rows, no_model):
        assert (hint in str(error.value)) == (folder != "elsewhere")


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


@pytest.fixture
def complete(begun: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return what `begun` does; the search counts as complete."""
    ended = SimpleNamespace(is_complete=True)
    monkeypatch.setattr(several, "plan_of_recorded", lambda search: ended)
    return begun


def test_of_several_a_complete_one_is_refused_with_other_rows(complete: Path) -> None:
    several.carry_out([asked("tickets.csv")], print)
    (complete / "tickets.csv").write_text(ROWS.replace("row 7 of", "line 7 of"))
    with pytest.raises(DataError, match="data of task 'tickets' are not those that search 'own'"):
        several.carry_out([asked("tickets.csv")], print)


def test_of_several_a_complete_one_notes_where_its_files_are_now(complete: Path) -> None:
    there = complete / "there"
    there.mkdir()
    for name in ("tickets.csv", "model"):
        (complete / name).rename(there / name)
    request = asked("there/tickets.csv", str(there / "model"))
    assert several.carry_out([request], print) == {}
    recorded = load_specification(request.paths)
    assert recorded.model.location == str(there / "model")
    assert isinstance(recorded.task.source, FilesSource)
    assert recorded.task.source.train == (str(there / "tickets.csv"),)


def test_other_weights_are_refused(begun: Path) -> None:
    weights = begun / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ModelError, match="weights of 'model' are not those that search 'own'"):
        start(asked("tickets.csv"))


def test_other_weights_in_another_folder_are_another_search(begun: Path) -> None:
    other = begun / "other"
    shutil.copytree(begun / "model", other)
    weights = other / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(StorageError, match=r"with other settings: model \S+ \(recorded: "):
        start(asked("tickets.csv", "other"))


def test_what_the_package_has_is_not_read_again(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SearchOptions(model="minilm", task=["stdlib"], name="packaged", seeds=3)
    request = read_request(options, "stdlib")
    request.paths.folder.mkdir(parents=True)
    save_specification(dataclasses.replace(request.spec, fingerprints={}), request.paths)
    assert load_specification(request.paths).fingerprints == {}
    monkeypatch.setattr(preparation, "fingerprint_of", None)
    with pytest.raises(WentOn):
        start(request)


def test_a_search_that_runs_is_not_compared(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = SearchPaths(begun / "mlruns" / "searches", "own")
    monkeypatch.setattr(preparation, "fingerprint_of", None)
    with Journal(paths.journal), pytest.raises(StorageError, match="is running"):
        start(asked("tickets.csv"))


def test_without_the_model_at_hand_a_complete_search_still_answers(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> str:
        raise ModelError("the hub cannot be reached")

    monkeypatch.setattr(preparation, "fingerprint_of", unreachable)
    said: list[str] = []
    with pytest.raises(WentOn):
        launch.start(asked("tickets.csv"), said.append)
    assert "whether the rows are those of search 'own' is not known: the hub" in said[0]


def test_the_fingerprint_is_the_one_of_the_tokenised_data(begun: Path) -> None:
    spec = load_specification(SearchPaths(begun / "mlruns" / "searches", "own"))
    found = preparation.fingerprint_of(spec.model, spec.task, spec.recipe)
    assert found == preparation.prepare(spec.model, spec.task, spec.recipe).fingerprint


def test_weights_that_do_not_fit_are_refused_before_the_search(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked("tickets.csv")
    config = begun / "model" / "config.json"
    fields = json.loads(config.read_text())
    config.write_text(json.dumps({**fields, "num_hidden_layers": 9}))
    with pytest.raises(ModelError, match="weights do not fit the architecture"):
        asked("tickets.csv")
    # Those of the hub are fetched later.
    monkeypatch.setattr(model_files, "_hub_folder", lambda *_: begun / "model")
    of_hub = dataclasses.replace(request.spec.model, source=ModelSource.HUB)
    with pytest.raises(ModelError, match="weights do not fit the architecture"):
        launch._with_data(dataclasses.replace(request.spec, model=of_hub))


def test_a_tokenizer_of_another_model_is_refused_before_the_search(begun: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(begun / "model")
    tokenizer.add_tokens([f"added{n}" for n in range(5)])
    tokenizer.save_pretrained(begun / "model")
    with pytest.raises(ModelError, match=r"has \d+ entries, but the model only \d+ embeddings"):
        asked("tickets.csv")
