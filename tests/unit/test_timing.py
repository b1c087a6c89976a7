"""Packed rows or padded batches, by timing: as on a GPU, here on a CPU, by a clock of our own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import EpochResult
from elsa_tune.training.forward import timing
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.loop import train
from tests.unit.tiny_trials import data_for, make_trial, tiny_bert


@pytest.fixture
def model(tmp_path: Path) -> ModelSpec:
    return tiny_bert(tmp_path / "bert")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what was found is kept; CPUs are timed too."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(folder))
    monkeypatch.setattr(timing, "_TIMED_ON", ("cpu",))
    return folder


def trained(model: ModelSpec, frozen: int = 0, **changes: Any) -> list[EpochResult]:
    return list(train(make_trial(model, frozen, **changes), data_for("bert"), device="cpu"))


def let_steps_take(patch: pytest.MonkeyPatch, packed: float, padded: float) -> list[str]:
    """Seconds of each step that is timed; gives the ways of all of them."""
    now, ways = [0.0], []

    def step(runner: Any, rows: Any) -> None:
        ways.append(runner.model.how)
        now[0] += packed if isinstance(runner.model, PackedModel) else padded

    patch.setattr(timing, "_step", step)
    patch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return ways


def remembered(cache: Path) -> list[float]:
    [path] = cache.glob("steps-*.json")
    return list(json.loads(path.read_text()).values())


@pytest.mark.parametrize(
    ("packed", "padded", "way"), [(1.0, 0.8, "padded"), (1.0, 0.95, "packed"), (0.8, 1.0, "packed")]
)
@pytest.mark.parametrize("frozen", [0, 2, 4])
def test_the_clearly_faster_way_trains_and_stays(
    model: ModelSpec,
    cache: Path,
    frozen: int,
    packed: float,
    padded: float,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        timed = let_steps_take(patch, packed, padded)
        first = trained(model, frozen)[-1]
    assert timed.count("packed") == timed.count("padded") > timing._STEPS
    assert remembered(cache) == [pytest.approx(padded / packed)]
    with monkeypatch.context() as patch:
        assert not let_steps_take(patch, padded, packed)  # the other way round now
        second = trained(model, frozen, seed=2)[-1]
    note = "padded batches: on this GPU a step takes 80% of the time that packed rows take"
    for result in (first, second):
        assert result.batches == way and (note in result.notes) == (way == "padded")
        assert result.prefix == ("cached" if frozen else "none")


def test_each_depth_is_timed_by_itself(
    model: ModelSpec, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_steps_take(monkeypatch, 1.0, 0.5)
    assert trained(model, 0)[-1].batches == "padded"
    let_steps_take(monkeypatch, 1.0, 2.0)
    assert trained(model, 2)[-1].batches == "packed"
    assert remembered(cache) == [0.5, 2.0]


@pytest.mark.parametrize("frozen", [0, 2])
@pytest.mark.parametrize("enough", [0.0, math.inf])
def test_timing_leaves_no_trace_in_a_trials_losses(
    model: ModelSpec, cache: Path, frozen: int, enough: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_CLEARLY", enough)
    timed, again = trained(model, frozen), trained(model, frozen)
    monkeypatch.setattr(timing, "_TIMED_ON", ())
    packed = trained(model, frozen)
    assert [r.train_loss for r in timed] == [r.train_loss for r in again]
    assert timed[-1].predictions == again[-1].predictions
    if enough:
        assert timed[-1].batches == "padded"
        assert timed[-1].trainable_parameters == packed[-1].trainable_parameters
    else:
        assert [r.train_loss for r in timed] == [r.train_loss for r in packed]


def out_of_memory(*_: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def undeterministic(runner: Any, rows: Any) -> None:
    if runner.model.how == "padded":
        raise RuntimeError("cumsum does not have a deterministic implementation")


@pytest.mark.parametrize("trouble", [out_of_memory, undeterministic])
def test_packed_rows_stay_where_padding_is_no_choice(
    model: ModelSpec, cache: Path, trouble: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_step", trouble)
    last = trained(model)[-1]
    assert last.batches == "packed" and not last.notes
    found = [] if trouble is out_of_memory else [math.inf]
    assert found == (remembered(cache) if list(cache.glob("steps-*.json")) else [])


def test_packed_rows_stay_where_nothing_can_be_remembered(
    model: ModelSpec, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = let_steps_take(monkeypatch, 1.0, 0.5)
    cache.write_text("a file where the folder should be")
    assert trained(model)[-1].batches == "packed"
    assert not timed


def test_a_damaged_memory_is_written_anew(
    model: ModelSpec, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_steps_take(monkeypatch, 1.0, 0.5)
    trained(model)
    [path] = cache.glob("steps-*.json")
    path.write_text('{"half a line')
    assert trained(model)[-1].batches == "padded"
    assert remembered(cache) == [0.5]
