"""Which settings make a search another one than the one that is recorded under its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from elsa_tune.errors import StorageError, UsageError
from elsa_tune.searching import launch, several
from elsa_tune.searching.cluster import ray_session
from elsa_tune.searching.request import Request
from elsa_tune.searching.specification import (
    differing_settings,
    load_specification,
    replace_specification,
    save_specification,
)
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.tracking import journal
from elsa_tune.tracking.deletion import delete_search
from elsa_tune.tracking.journal import is_held
from tests.unit.search_examples import planned_request


class Joined(Exception):
    """Ray was to be opened at an address."""


@pytest.fixture
def on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """Return a search that began on a cluster at `auto`, of which nothing is done."""

    def open_ray(address: str | None, packages: list[str]) -> None:
        raise Joined(address)

    monkeypatch.setattr(ray_session, "ray_session", open_ray)
    monkeypatch.setattr(launch, "open_again", lambda *given, **named: None)  # the store
    request = planned_request(tmp_path, load_space("joint"), "joint", address="auto", name="own")
    request.paths.check_writable()
    save_specification(request.spec, request.paths)
    return request


@pytest.mark.parametrize(
    ("given", "joined"), [(None, "auto"), ("none", None), ("head:6379", "head:6379")]
)
def test_a_search_of_a_cluster_is_resumed_there_or_where_it_is_told(
    on_a_cluster: Request, given: str | None, joined: str | None
) -> None:
    said: list[str] = []
    with pytest.raises(Joined) as opened:
        launch.resume(on_a_cluster.paths, said.append, address=given)
    assert opened.value.args == (joined,)
    local = "this session trains on this machine, not on the cluster at auto"
    assert (local in said) == (given == "none")


@pytest.mark.parametrize("typed", [None, "http://other:5000"])
@pytest.mark.parametrize("is_one_of_several", [False, True])
def test_a_search_that_is_typed_again_stays_in_its_store_unless_an_option_names_another(
    on_a_cluster: Request,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    typed: str | None,
    is_one_of_several: bool,
) -> None:
    began_at = load_specification(on_a_cluster.paths).tracking_uri
    opened: list[str] = []
    left: list[str] = []
    monkeypatch.setattr(launch, "open_again", lambda uri, say, **named: opened.append(uri))
    monkeypatch.setattr(
        launch, "leave_store", lambda spec, *given, **named: left.append(spec.tracking_uri)
    )
    # As for `resume`, the variable is for searches that begin.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://of-another-shell:5000")
    joint = load_space("joint")
    again = planned_request(tmp_path, joint, "joint", tracking_uri=typed, name="own")
    said: list[str] = []
    go_on = several._go_on if is_one_of_several else launch.start
    with pytest.raises(Joined):
        go_on(again, said.append)
    is_at = typed or began_at
    assert opened == [is_at]
    assert left == ([began_at] if typed else [])
    assert load_specification(on_a_cluster.paths).tracking_uri == is_at
    moved = f"search 'own' was sent to {began_at}; from now on it is sent to {typed}"
    assert (moved in said) == (typed is not None)


def test_while_a_resume_starts_nobody_else_changes_or_deletes_the_search(
    on_a_cluster: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second resume that is refused has changed nothing, its store included."""
    paths = on_a_cluster.paths
    before = load_specification(paths)
    left: list[str] = []
    monkeypatch.setattr(
        launch, "leave_store", lambda spec, *given, **named: left.append(spec.tracking_uri)
    )

    def open_ray(address: str | None, packages: list[str]) -> None:
        with pytest.raises(StorageError, match="search 'own' is running"):
            launch.resume(paths, print, tracking_uri="http://other:5000")
        with pytest.raises(StorageError, match="search 'own' is running"):
            delete_search(paths.storage, "own", "sqlite:////nowhere/mlflow.db")
        raise Joined(address)

    monkeypatch.setattr(ray_session, "ray_session", open_ray)
    with pytest.raises(Joined):
        launch.resume(paths, print)
    assert load_specification(paths) == before and not left
    assert not is_held(paths.lock)


def test_a_resume_goes_on_from_what_another_one_has_just_changed(
    on_a_cluster: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = on_a_cluster.paths
    changed = replace(load_specification(paths), tracking_uri="http://other:5000")

    take_lock = journal.take_lock

    def take_it_later(path: Path) -> BinaryIO:
        replace_specification(changed, paths)
        return take_lock(path)

    monkeypatch.setattr(journal, "take_lock", take_it_later)
    with pytest.raises(Joined):
        launch.resume(paths, print, more=lambda spec: replace(spec, seeds=spec.seeds + 1))
    assert load_specification(paths) == replace(changed, seeds=changed.seeds + 1)


@pytest.mark.parametrize("given", [None, "none", "auto"])
def test_a_search_that_is_typed_again_runs_where_that_says(
    on_a_cluster: Request, tmp_path: Path, given: str | None
) -> None:
    again = planned_request(tmp_path, load_space("joint"), "joint", address=given, name="own")
    with pytest.raises(Joined) as opened:
        launch.start(again, print)
    assert opened.value.args == ("auto" if given == "auto" else None,)


def test_an_address_that_was_not_typed_is_said_to_be_the_search_s(on_a_cluster: Request) -> None:
    spec = on_a_cluster.spec
    said = f"no cluster answers; search '{spec.name}' began at that address"
    with pytest.raises(UsageError) as refused, launch._address_told(spec):
        raise UsageError("no cluster answers", "node a")
    assert refused.value.args == (said, "node a")
    with pytest.raises(UsageError, match=r"^no cluster answers$"), launch._address_told(None):
        raise UsageError("no cluster answers")


def asked(folder: Path, *settings: str) -> SearchSpec:
    space = load_space("joint", settings)
    return planned_request(folder, space, "joint").spec


@pytest.mark.parametrize("settings", [(), ("strategy=hunt",)])
def test_the_same_options_are_the_same_search(tmp_path: Path, settings: tuple[str, ...]) -> None:
    assert differing_settings(asked(tmp_path, *settings), asked(tmp_path, *settings)) == []


def test_rates_for_every_depth_are_not_those_of_the_full_model_for_all(tmp_path: Path) -> None:
    everywhere = asked(tmp_path, "learning_rate=[2e-5,5e-5]")
    of_full_model = asked(
        tmp_path, "learning_rate=from_full_model", "full_model_learning_rate=[2e-5,5e-5]"
    )
    for wanted, recorded in ((everywhere, of_full_model), (of_full_model, everywhere)):
        (difference,) = differing_settings(wanted, recorded)
        assert difference.startswith("explored ")


def test_a_search_without_a_probe_is_not_one_with_it(tmp_path: Path) -> None:
    difference = differing_settings(asked(tmp_path, "linear_probe=false"), asked(tmp_path))
    assert difference == ["linear_probe False (recorded: True)"]
