"""The driver's machine is gone, with the disk that its record was on: another one goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.tracking.artifacts.places import artifacts_at
from tests.artifact_stores import needs_s3, serving
from tests.searching import ONE_AT_A_TIME, Bench, family, make_bench, of_kind, wait_for

# A quick one is in tests/integration/test_pretended.py.
pytestmark = [pytest.mark.timeout(1200), pytest.mark.thorough]

SETTINGS = (
    *("--set", "epochs=20", "--set", "depths=[0, 1]", "--set", "asha=null", "--set", "seed=0"),
    *("--set", "learning_rate=[0.002, 0.003]", "--set", "tries=2", "--seeds", "2"),
    *("--checkpoint", "0.5", *ONE_AT_A_TIME),
)
TRIALS = 8
# What two searches of the same trials may have otherwise.
OF_THE_MACHINE = ("train_seconds", "examples_per_second", "peak_memory_mb")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("first machine"), train=320)


@pytest.fixture(scope="module")
def undisturbed(bench: Bench) -> dict[str, Any]:
    done = bench.run(*bench.search("undisturbed", *SETTINGS), timeout=600)
    assert done.returncode in (0, 3), done.stderr
    found = finished(bench, "undisturbed")
    assert len(found) == TRIALS
    return found


@pytest.fixture(params=["folder", pytest.param("s3", marks=needs_s3)])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "kept")
        return
    with serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.client.create_bucket(Bucket="bucket")
        yield "s3://bucket/searches"


def finished(bench: Bench, name: str) -> dict[str, Any]:
    """Return what each finished trial reported, but for what is the machine's.

    Fails where one was finished twice.
    """
    reports: dict[str, list[Any]] = {}
    ended: dict[str, Any] = {}
    for record in bench.records(name):
        if record["kind"] == "trial_started":
            reports[record["trial"]] = []
        if record["kind"] == "report":
            metrics = dict(record["metrics"])
            for metric in OF_THE_MACHINE:
                metrics.pop(metric)
            reports[record["trial"]].append({"step": record["step"], **metrics})
        if record["kind"] == "trial_ended" and record["status"] == "completed":
            assert record["trial"] not in ended, f"{record['trial']} ended twice"
            ended[record["trial"]] = reports[record["trial"]]
    return ended


def kill_all(pid: int) -> None:
    """Kill a command and every process that it has started, the supervisor first."""
    for process in (pid, *family(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def runs(database: Path) -> tuple[int, int, int]:
    """Return how many trials' runs MLflow has, of how many trials, and how many read RUNNING."""
    with sqlite3.connect(database, timeout=30) as store:
        ((count, trials),) = store.execute(
            "select count(*), count(distinct value) from tags where key = 'elsa_tune.trial'"
        ).fetchall()
        ((running,),) = store.execute(
            "select count(*) from runs where status = 'RUNNING'"
        ).fetchall()
    return count, trials, running


def copied_checkpoints(bench: Bench, name: str, url: str) -> list[str]:
    """Return the trials whose checkpoint is copied while they run."""
    copied = artifacts_at(url).sizes(name)
    records = bench.records(name)  # after the store: what has ended since then does not count
    running = {record["trial"] for record in of_kind(records, "trial_started")}
    running -= {record["trial"] for record in of_kind(records, "trial_ended")}
    return [trial for trial in running if f"{name}/checkpoints/{trial}.safetensors" in copied]


def test_a_search_whose_machine_is_gone_goes_on_elsewhere(
    bench: Bench, undisturbed: dict[str, Any], url: str, tmp_path: Path
) -> None:
    """Twice: the folder is deleted after each, and the same trials have the same losses."""
    database = tmp_path / "server" / "mlflow.db"
    database.parent.mkdir()
    mlflow = ("--tracking-uri", f"sqlite:///{database}")
    search = bench.search("lost", *SETTINGS, *mlflow, "--artifacts", url)
    driver = bench.start(*search)
    wait_for(lambda: len(finished(bench, "lost")) >= 2, 300)
    seen = len(bench.records("lost"))
    wait_for(lambda: bool(of_kind(bench.records("lost")[seen:], "report")), 100)
    kill_all(driver.pid)
    driver.communicate(timeout=200)
    shutil.rmtree(bench.journal("lost").parent)

    second = Bench(tmp_path / "second machine")
    second.folder.mkdir()
    command = ("resume", "lost", "--artifacts", url)
    driver = second.start(*command)
    wait_for(lambda: len(finished(second, "lost")) >= 4, 300)
    wait_for(lambda: bool(copied_checkpoints(second, "lost", url)), 100)
    assert len(of_kind(second.records("lost"), "search_started")) >= 2  # it was fetched
    kill_all(driver.pid)
    driver.communicate(timeout=200)
    shutil.rmtree(second.folder)

    third = Bench(tmp_path / "third machine")
    third.folder.mkdir()
    done = third.run(*command, timeout=400)
    assert done.returncode in (0, 3), done.stderr
    assert finished(third, "lost") == undisturbed
    assert runs(database) == (TRIALS, TRIALS, 0)
    again = [report for report in of_kind(third.records("lost"), "report") if report["attempt"] > 1]
    assert any(report["restored"] for report in again)  # it went on inside a trial

    # The complete search, too: by the command that started it, which has its files elsewhere.
    fourth = Bench(tmp_path / "fourth machine")
    shutil.copytree(bench.folder, fourth.folder, ignore=shutil.ignore_patterns("mlruns"))
    again = fourth.run(*search, timeout=400)
    assert again.returncode == done.returncode and "it is complete" in again.stderr
    assert str(fourth.folder) in (fourth.journal("lost").parent / "search.json").read_text()
    assert finished(fourth, "lost") == undisturbed
    assert len(list((fourth.journal("lost").parent / "predictions").iterdir())) == TRIALS
    assert runs(database) == (TRIALS, TRIALS, 0)
