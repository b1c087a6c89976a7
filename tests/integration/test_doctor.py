"""How trials share a machine: really trained, in processes of their own."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.cli.app import app
from elsa_tune.errors import RunError, TrackingError
from elsa_tune.searching.cluster.capacity import Capacity, Node
from elsa_tune.searching.cluster.shares import share
from elsa_tune.searching.request import Request
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.search import Resources
from elsa_tune.specs.trial import Precision
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.stores import store_at
from elsa_tune.training import throughput
from elsa_tune.training.machine import usable_cores
from elsa_tune.training.throughput import Division, Throughput, divisions
from tests.searching import make_bench
from tests.unit.search_examples import make_spec
from tests.unit.tiny_trials import make_data, make_trial, tiny_bert

TWO = Division(trials=2, threads=1)
HERE = Capacity(nodes=(Node(cpus=8),))


def pairs(found: list[Division]) -> list[tuple[int, int]]:
    return [(one.trials, one.threads) for one in found]


def test_divisions_use_all_cores_and_no_more() -> None:
    assert pairs(divisions(1)) == [(1, 1)]
    assert pairs(divisions(2)) == [(1, 2), (2, 1)]
    assert pairs(divisions(6)) == [(1, 6), (1, 4), (3, 2), (6, 1)]
    assert pairs(divisions(16, gpus=1)) == [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1)]
    assert pairs(divisions(16, gpus=8)) == [(1, 2), (2, 1)]
    assert pairs(divisions(4, gpus=8)) == [(1, 1)]


def test_what_does_not_fit_in_memory_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "memory_mb", lambda device: 10_000.0)
    monkeypatch.setattr(throughput.machine, "usable_cores", lambda: 8)
    measured: list[int] = []

    def measure(trainings: object, division: Division, *how: object) -> list[Throughput]:
        measured.append(division.trials)
        peak = 1_500.0 if division.trials == 1 else 2_000.0
        return [Throughput(tokens_per_second=1, peak_memory_mb=peak)]

    monkeypatch.setattr(throughput, "measure", measure)
    monkeypatch.setattr(throughput, "divisions", lambda *_: divisions(8))  # without its GPUs
    trial = make_trial(resolve_model("minilm"))
    told = list(throughput.tune([trial], make_data(), "cpu", 1))
    assert measured == [1, 2, 4]  # four of 2,000 MiB fit into four fifths of the memory
    assert told[-1] == (Division(trials=8, threads=1), "skipped: it would not fit in memory")


def test_what_was_found_holds_for_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert throughput.remembered("cpu") == {}
    throughput.remember(Division(trials=8, threads=1), "cpu", "minilm", "rte")
    throughput.remember(Division(trials=2, threads=4), "cpu", "bert_base", "rte")
    throughput.remember(Division(trials=4, threads=2), "cpu", "minilm", "rte")
    found = {name: one.division.trials for name, one in throughput.remembered("cpu").items()}
    assert found == {"minilm": 4, "bert_base": 2}
    with monkeypatch.context() as other:
        other.setattr(throughput.machine, "usable_cores", lambda: 999)
        assert throughput.remembered("cpu") == {}
    assert throughput.remembered("cpu") != {}
    throughput._path("cpu").write_text("{")
    assert throughput.remembered("cpu") == {}


def test_a_search_takes_what_was_found_unless_told_otherwise(tmp_path: Path) -> None:
    spec = make_spec(model=resolve_model("minilm"))
    request = Request(spec=spec, storage=tmp_path, tracking_uri="")
    said: list[str] = []
    assert share(request, HERE, said.append) == Resources(cpus=4, gpus=0)
    throughput.remember(Division(trials=8, threads=1), "cpu", "minilm", "rte")
    assert said == []
    assert share(request, HERE, said.append) == Resources(cpus=1, gpus=0)
    assert "doctor --tune" in said.pop()
    for faster, precision, words in (
        (1.64, Precision.AUTO, ["precision=bf16 trains the full model 1.6 times as fast"]),
        (1.64, Precision.BF16, []),
        (1.1, Precision.AUTO, []),
    ):
        throughput.remember(Division(trials=8, threads=1), "cpu", "minilm", "rte", faster)
        recipe = make_trial(resolve_model("minilm"), precision=precision).recipe
        trained = dataclasses.replace(spec, recipe=recipe)
        share(dataclasses.replace(request, spec=trained), HERE, said.append)
        assert "doctor --tune" in said.pop(0)
        assert [line.strip() for line in said] == words
        said.clear()
    asked = dataclasses.replace(request, spec=dataclasses.replace(spec, cpus_per_trial=2.0))
    assert share(asked, HERE, said.append) == Resources(cpus=2, gpus=0)
    # It says nothing of other models and of another machine's cores.
    larger = dataclasses.replace(spec, model=resolve_model("bert_large"))
    assert share(dataclasses.replace(request, spec=larger), HERE, said.append) == Resources(
        cpus=4, gpus=0
    )
    elsewhere = dataclasses.replace(spec, address="10.0.0.1:6379")
    assert share(dataclasses.replace(request, spec=elsewhere), HERE, said.append) == Resources(
        cpus=4, gpus=0
    )
    # Of a larger machine with the same name, say in a container with fewer CPUs.
    small = Capacity(nodes=(Node(cpus=0.5),))
    with pytest.raises(Exception, match="CPUs per trial"):
        share(request, small, said.append)
    assert said == []


@pytest.mark.thorough
def test_a_trial_that_is_killed_ends_the_measurement(tmp_path: Path) -> None:
    model = tiny_bert(tmp_path / "bert")

    over = threading.Event()

    def kill_one() -> None:
        while not over.wait(0.05):
            if children := multiprocessing.active_children():
                children[0].kill()
                return

    threading.Thread(target=kill_one, daemon=True).start()
    with pytest.raises(RunError, match=r"2 trials at once with 1 CPU threads each .* killed"):
        throughput.measure([(make_trial(model), make_data())], TWO, "cpu", seconds=60)
    over.set()


def test_one_that_is_killed_while_the_next_one_starts_ends_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = multiprocessing.get_context("forkserver")
    begin = context.Process.start
    begun: list[int | None] = []

    def start(process: Any) -> None:
        begin(process)
        if begun and begun[0] is not None:
            os.kill(begun[0], signal.SIGKILL)
            time.sleep(0.5)  # whoever watches the first hears of it before the second is counted
        begun.append(process.pid)

    monkeypatch.setattr(context.Process, "start", start)
    trial = make_trial(resolve_model("minilm"))
    with pytest.raises(RunError, match="one was killed"):
        throughput.measure([(trial, make_data())], TWO, "cpu", seconds=8)
    assert not multiprocessing.active_children()


def test_tune_trains_in_every_way_and_keeps_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(make_bench(tmp_path / "bench").folder)
    monkeypatch.setattr("elsa_tune.training.machine.has_bf16_units", lambda device: True)
    monkeypatch.setattr("elsa_tune.searching.checkup.examine", lambda checks: iter(()))
    app(["doctor"], standalone_mode=False)
    before = capsys.readouterr().out
    assert "not measured" in before and f"{usable_cores()} cores" in before
    precisions: list[Precision] = []
    measure = throughput.measure

    def watched(trainings: Any, *how: Any) -> list[Throughput]:
        precisions.append(trainings[0][0].recipe.precision)
        return measure(trainings, *how)

    monkeypatch.setattr(throughput, "measure", watched)
    tune = ["doctor", "--tune", "--model", "model", "--task", "task.yaml", "--seconds", "1"]
    app(tune, standalone_mode=False)
    tuned = capsys.readouterr()
    assert precisions == [Precision.AUTO] * len(divisions(usable_cores())) + [Precision.BF16]
    *ways, rounded = [line for line in tuned.err.splitlines() if "tokens/s" in line]
    assert len(ways) == len(divisions(usable_cores()))
    rates = [float(way.split(": ")[1].split(" ")[0].replace(",", "")) for way in ways]
    assert all(rate > 0 for rate in rates)
    best = ways[rates.index(max(rates))].split(":")[0].strip()
    assert f"best {best}" in " ".join(tuned.out.split())
    assert rounded.strip().startswith(f"{best}, in bf16: ")
    faster = throughput.remembered("cpu")["model"].bf16
    assert faster is not None and faster > 0
    assert f"{best}; with precision=bf16 {faster:.2f} times as fast" in " ".join(tuned.out.split())
    app(["doctor"], standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"trials model: {best} (mood, " in shown


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_store_ray_and_data_are_tried_and_left_as_they_were(tmp_path: Path) -> None:
    bench = make_bench(tmp_path / "bench")
    there = sorted(bench.folder.iterdir())
    done = bench.run("doctor", "--task", "task.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "mlflow.db can be made" in lines["store"]
    assert "starts here and runs a task" in lines["Ray"]
    assert f"{usable_cores()} CPUs" in lines["Ray"]
    assert "mood can be read: 96 train, 64 evaluation rows" in lines["data"]
    assert sorted(bench.folder.iterdir()) == there


def test_bad_input_is_refused_before_anything_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from elsa_tune.errors import UsageError

    with pytest.raises(UsageError):
        app(["doctor", "--tune", "--task", "nonsense"], standalone_mode=False)
    assert capsys.readouterr().out == ""


@pytest.mark.thorough
def test_a_store_that_is_there_is_written_to_in_vain(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    uri = f"sqlite:///{file}"
    MlflowStore(uri).initialise()
    before = experiments(file)
    assert store_at(uri).look() == f"{uri} answers and can be written"
    assert experiments(file) == before
    # Another process writes, and does not end.
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("begin immediate")
        with pytest.raises(TrackingError, match=r"cannot be written \(.*database is locked"):
            store_at(uri).look()
        other.execute("rollback")
    other.close()


def experiments(file: Path) -> list[tuple[str, ...]]:
    with sqlite3.connect(file) as store:
        found = store.execute("select name, lifecycle_stage from experiments").fetchall()
    store.close()
    return found
