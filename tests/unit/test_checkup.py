"""What `elsa-tune doctor` tries beside the machine: store, Ray, data, each in its own process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from elsa_tune.errors import DataError, TrackingError
from elsa_tune.searching import checkup
from elsa_tune.searching.checkup import Finding, examine
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.stores import store_at
from tests import checks
from tests.conftest import Run
from tests.searching import make_bench


def test_each_is_told_in_its_order_whatever_becomes_of_the_others() -> None:
    asked: dict[str, checkup.Check] = {
        "broken": (checks.broken, ()),
        "killed": (checks.killed, ()),
        "refused": (checks.refused, ()),
        "well": (checks.well, ("it answers",)),
    }
    assert list(examine(asked)) == [
        Finding("broken", "ValueError: a library's words", False),
        Finding("killed", "the process that tried it was killed: is memory short?", False),
        Finding("refused", "give another one", False),
        Finding("well", "it answers", True),
    ]


@pytest.mark.thorough
def test_one_that_hangs_is_ended_and_costs_the_others_nothing(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    asked: dict[str, checkup.Check] = {
        "hangs": (checks.hanging, (str(pid),)),
        "well": (checks.well, ("yes",)),
    }
    found = list(examine(asked, seconds=25))
    assert found == [
        Finding("hangs", "nothing came within 25 s", False),
        Finding("well", "yes", True),
    ]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_cluster_that_accepts_and_never_answers_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        [found] = examine({"Ray": (checkup.ray, (address,))}, seconds=5)
    assert not found.is_well


def test_a_store_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlruns/mlflow.db"
    assert store_at(uri).look().endswith("mlflow.db can be made: the first search does it")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # to root every folder can be written
    with pytest.raises(TrackingError, match=r"cannot be made: .* cannot be written; work in"):
        store_at(f"sqlite:///{tmp_path}/mlruns/mlflow.db").look()


def test_the_rows_of_a_task_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_bench(tmp_path, train=20, evaluation=10).folder)
    task = resolve_task("task.yaml")
    assert checkup.task_rows(task) == "mood can be read: 20 train, 10 evaluation rows"
    Path("train.csv").unlink()
    with pytest.raises(DataError, match=r"train\.csv"):
        checkup.task_rows(task)


def test_which_of_glue_can_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no folder"):
        checkup.glue_rows(str(tmp_path))
    folder = tmp_path / "RTE"
    folder.mkdir()
    rows = "index\tsentence1\tsentence2\tlabel\n0\ta b\tc\tentailment\n1\td\te f\tnot_entailment\n"
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text(rows)
    assert checkup.glue_rows(str(tmp_path)) == "1 of GLUE's 9 tasks can be read: rte"


def test_what_lies_in_the_hubs_cache_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert checkup.cached_glue().startswith("no GLUE in the hub's cache")
    snapshot = tmp_path / "datasets--nyu-mll--glue" / "snapshots" / "a"
    for config, splits in (("rte", ("train", "validation")), ("sst2", ("train",))):
        for split in splits:
            file = snapshot / config / f"{split}-00000-of-00001.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    assert checkup.cached_glue() == "in the hub's cache: rte; `stdlib` needs no data"


def test_what_does_not_work_is_a_line_with_its_remedy_and_status_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [
        Finding("store", "http://u:secret@h does not answer; leave `tracking_uri` out", False),
        Finding("Ray", "starts here", True),
    ]
    monkeypatch.setattr(checkup, "examine", lambda _: iter(found))
    done = run("doctor")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[-1] == "Ray starts here"
    assert lines[-2].startswith("store does not work: http://") and "secret" not in lines[-2]
    assert lines[-2].endswith("leave --tracking-uri out")
    assert done.status == 1
    assert done.err == "elsa-tune: a search would not work here yet: see store\n"


@pytest.mark.parametrize(
    "options",
    [("--task", "nonsense"), ("--tracking-uri", "file:///here"), ("--tracking-uri", "x:y")],
)
def test_a_question_that_makes_no_sense_is_refused_first(run: Run, options: list[str]) -> None:
    refused = run("doctor", *options)
    assert (refused.status, refused.out) == (2, "")
