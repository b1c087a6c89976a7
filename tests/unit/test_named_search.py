"""Which search `export` and `resume` take: the one that is named, either way, or the latest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elsa_tune.errors import UsageError
from elsa_tune.exporting import model
from elsa_tune.searching import launch
from tests.conftest import Run
from tests.recorded_search import searched

COMMANDS = (("export", "--out", "folder"), ("resume",))


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the searches that were taken; nothing is done with them."""
    monkeypatch.chdir(tmp_path)
    names: list[str] = []

    def go_on(paths: Any, *_: object, **__: object) -> None:
        names.append(paths.name)
        raise UsageError("no further than this")

    def write(request: Any, *_: object) -> None:
        go_on(request.paths)

    monkeypatch.setattr(launch, "resume", go_on)
    monkeypatch.setattr(model, "export", write)
    return names


@pytest.mark.parametrize("command", COMMANDS)
def test_the_one_that_is_named_or_the_latest(
    run: Run, taken: list[str], command: tuple[str, ...]
) -> None:
    storage = Path.cwd() / "mlruns" / "searches"
    nothing = run(*command)
    assert nothing.status == 2 and f"no search is recorded in {storage}" in nothing.err
    for name, began in (("first", 1.0), ("second", 2.0)):
        searched(storage, name, began)
    run(*command, "first")
    run(*command, "--search", "first")
    assert f"search 'second', the latest in {storage}" in run(*command).err
    assert taken == ["first", "first", "second"]
    unset = run(*command, "")
    assert unset.status == 2 and "unknown search ''" in unset.err
    assert taken == ["first", "first", "second"]
    no_place = run(*command, "--storage-path", "")
    assert no_place.status == 2 and "the storage path is empty" in no_place.err
    url = run(*command, "first", "--storage-path", "s3://bucket/x")
    assert url.status == 2 and "the storage path s3://bucket/x is a URL" in url.err
    assert "as --artifacts" in url.err and not Path("s3:").exists()
    for two in (("first", "--search", "second"), ("--search", "first", "--search", "second")):
        both = run(*command, *two)
        assert both.status == 2 and "first and second are 2 searches; name one" in both.err
    assert "did you mean 'first'" in run(*command, "frist").err


def test_several_searches_at_once_are_never_the_latest(run: Run, taken: list[str]) -> None:
    searched(Path.cwd() / "mlruns" / "searches", "glue-rte")
    refused = run("export", "--all", "--out", "folder")
    assert refused.status == 2 and "give the name it was started by" in refused.err
    assert taken == []


def test_a_search_is_not_begun_in_a_folder_that_is_called_as_a_url(
    run: Run, taken: list[str]
) -> None:
    options = ("--model", "minilm", "--task", "stdlib", "--storage-path", "gs://bucket/x")
    refused = run("search", *options)
    assert refused.status == 2 and "the storage path gs://bucket/x is a URL" in refused.err
    assert not Path("gs:").exists()
