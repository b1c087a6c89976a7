"""Several tasks in one command: which searches they are, and what is refused before any begins."""

from __future__ import annotations

import errno
import math
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from elsa_tune.cli.app import app
from elsa_tune.errors import NoAnswerError, StorageError, UsageError
from elsa_tune.searching import launch, several
from elsa_tune.searching.inputs import SearchOptions, search_command
from elsa_tune.searching.request import Request, read_requests
from elsa_tune.searching.several import curves_of, rows_of_all
from elsa_tune.searching.specification import (
    check_same,
    keeping,
    load_specification,
    replace_specification,
    save_specification,
    with_seeds,
)
from elsa_tune.searching.specification.changing import Change
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths


def requests(folder: Path, *tasks: str, **more: object) -> list[Request]:
    places = {"storage_path": f"{folder}/searches", "tracking_uri": f"sqlite:///{folder}/store.db"}
    options = {"model": "minilm", "task": list(tasks), "name": "pair", **places, **more}
    return read_requests(SearchOptions(**options))  # type: ignore[arg-type]


def recorded(search: Request) -> SearchPaths:
    search.paths.check_writable()
    save_specification(search.spec, search.paths)
    return search.paths


def test_a_specification_is_written_where_files_have_no_second_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mounted bucket or share has no hard links."""

    def no_links(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(keeping.os, "link", no_links)
    [search] = requests(tmp_path, "stdlib")
    paths = recorded(search)
    assert load_specification(paths).name == "pair"
    with pytest.raises(StorageError, match="a search named 'pair' exists"):
        save_specification(search.spec, paths)
    assert [file.name for file in paths.folder.iterdir()] == ["search.json"]


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    [search] = requests(tmp_path, "stdlib")
    search.paths.check_writable()
    monkeypatch.setattr(keeping, "write_aside", full)
    with pytest.raises(StorageError, match=r"search\.json cannot be written: No space left"):
        save_specification(search.spec, search.paths)


def test_each_task_is_a_search_named_after_it(tmp_path: Path) -> None:
    found = requests(tmp_path, "stdlib", "rte", data_dir=str(tmp_path), seeds=4)
    assert [(one.name, one.spec.task.name, one.seeds) for one in found] == [
        ("pair-stdlib", "stdlib", 4),
        ("pair-rte", "rte", 4),
    ]
    assert [one.name for one in requests(tmp_path, "rte")] == ["pair"]
    first, second = requests(tmp_path, "stdlib", "rte", name=None)
    assert first.name.removesuffix("-stdlib") == second.name.removesuffix("-rte")


def test_a_tables_columns_are_not_for_the_task_beside_it(tmp_path: Path) -> None:
    table = tmp_path / "notes.csv"
    lines = [f"text {n},{n % 2},u{n % 40}" for n in range(200)]
    table.write_text("\n".join(["text,label,user", *lines]) + "\n")
    columns = {"label": "label", "text": ["text"], "group": "user"}
    own, other = requests(tmp_path, str(table), "stdlib", **columns)
    assert own.spec.task.group_column == "user" and other.spec.task.name == "stdlib"


def test_a_search_records_the_command_that_starts_such_a_search(tmp_path: Path) -> None:
    settings = ["epochs=6", "depths=[0,3]"]
    given = {"settings": settings, "seeds": 3, "data_dir": "my data", "cpus_per_trial": 2.0}
    first, second = requests(tmp_path, "stdlib", "rte", **given)
    # Neither its name, which is taken, nor where it is kept: both say nothing of what it finds.
    assert (
        first.spec.command
        == second.spec.command
        == (
            "elsa-tune search --model minilm --task stdlib --task rte --seeds 3 --set epochs=6 "
            "--set 'depths=[0,3]' --data-dir 'my data' --cpus-per-trial 2"
        )
    )
    assert load_specification(recorded(first)).command == first.spec.command
    words = shlex.split(first.spec.command)[1:]
    told = CliRunner().invoke(app, [*words, "--help"])
    assert told.exit_code == 0


def test_a_command_that_is_recorded_has_no_password() -> None:
    options = SearchOptions(model="minilm", task=["https://me:secret@host/my.yaml"])
    assert "secret" not in search_command(options)


def test_a_file_lists_tasks(tmp_path: Path) -> None:
    listed = tmp_path / "tasks.txt"
    listed.write_text("rte\n\n  mrpc \n")
    assert [one.spec.task.name for one in requests(tmp_path, str(listed), "cola")] == [
        "rte", "mrpc", "cola",
    ]  # fmt: skip
    listed.write_text("\n")
    with pytest.raises(UsageError, match="lists no task"):
        requests(tmp_path, str(listed))
    with pytest.raises(UsageError, match="cannot be read as a list of tasks"):
        requests(tmp_path, str(tmp_path / "none.txt"))


@pytest.mark.parametrize(
    ("tasks", "more", "why"),
    [
        (("rte", "rte"), {}, "2 of the tasks would share the search name 'pair-rte'"),
        (("rte", "mrpc"), {"max_time": "1h"}, "`max_time` and `gpu_hours` limit one search"),
        (("rte", "all"), {}, "name each of the tasks"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, tasks: tuple[str, ...], more: dict[str, str], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        requests(tmp_path, *tasks, **more)


def test_a_search_that_goes_on_has_no_time_limit_of_an_earlier_session(tmp_path: Path) -> None:
    """A hunt explores in another order where it has one."""
    first, _ = requests(tmp_path, "rte", "mrpc", space="hunt")
    limited = replace(first.spec, max_time=3600.0)
    assert launch._in_this_session(limited, math.inf, None, print).max_time is None
    assert launch._in_this_session(limited, None, None, print).max_time == 3600
    assert launch._in_this_session(limited, 60.0, None, print).max_time == 60


def test_a_recorded_search_that_was_asked_otherwise_is_refused(tmp_path: Path) -> None:
    first, second = requests(tmp_path, "rte", "mrpc")
    recorded(second)
    check_same(first.spec, first.paths)
    check_same(second.spec, second.paths)
    _, other = requests(tmp_path, "rte", "mrpc", seeds=9)
    with pytest.raises(StorageError, match="seeds 9"):
        check_same(other.spec, other.paths)
    assert curves_of(rows_of_all([first, second])) == []


def test_a_recorded_hunt_is_asked_to_go_on_until_it_is_certified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def resume(paths: SearchPaths, say: object, *, more: Change, **how: object) -> SimpleNamespace:
        before = load_specification(paths)
        asked.append(more(before).until_certified)
        return SimpleNamespace(unsent=0, uncopied="", unwritten="", status=SearchStatus.COMPLETED)

    monkeypatch.setattr(several, "resume", resume)
    first, _ = requests(tmp_path, "rte", "mrpc", space="hunt")
    recorded(first)
    for until in ("certified", None):
        again, _ = requests(tmp_path, "rte", "mrpc", space="hunt", until=until)
        several._go_on(again, print)
    assert asked == [True, False]


def test_a_search_that_has_more_seeds_by_now_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def resume(paths: SearchPaths, say: object, *, more: Change, **how: object) -> SimpleNamespace:
        asked.append(more(load_specification(paths)).seeds)
        return SimpleNamespace(unsent=0, uncopied="", unwritten="", status=SearchStatus.COMPLETED)

    monkeypatch.setattr(several, "resume", resume)
    first, _ = requests(tmp_path, "rte", "mrpc", seeds=3)
    paths = recorded(first)
    replace_specification(with_seeds(first.spec, 5), paths)
    for seeds in (3, 5, 6):
        again, _ = requests(tmp_path, "rte", "mrpc", seeds=seeds)
        several._go_on(again, print)
    assert asked == [5, 5, 6]


def test_export_all_looks_for_the_searches_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded(requests(tmp_path, "rte", name="other-pair-rte")[0])

    def export(*more: str) -> None:
        places = ("--out", "models", "--storage-path", "searches")
        arguments = ["export", "--search", "pair", "--all", *places, *more]
        CliRunner().invoke(app, arguments, catch_exceptions=False)

    with pytest.raises(UsageError, match="no search on several tasks has this name"):
        export()
    recorded(requests(tmp_path, "rte", "mrpc")[0])
    with pytest.raises(NoAnswerError, match="none of the tasks of 'pair' has an answer"):
        export()
    with pytest.raises(UsageError, match="--check and --push are for one"):
        export("--push", "me/it")
