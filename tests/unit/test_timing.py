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
from elsa_tune.specs.trial import EpochResult, PrefixCache
from elsa_tune.training.forward import runner, timing
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.loop import train
from tests.unit.tiny_trials import data_for, make_trial, tiny_bert


@pytest.fixture
def model(tmp_path: Path) -> ModelSpec:
    return tiny_bert(tmp_path / "bert")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what was found is kept; CPUs are timed too, and have room as a GPU has."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(folder))
    monkeypatch.setattr(timing, "_TIMED_ON", ("cpu",))
    monkeypatch.setattr(runner, "room", lambda device: 2**40)
    return folder


def trained(model: ModelSpec, frozen: int | str = 2, **changes: Any) -> list[EpochResult]:
    trial = make_trial(model, frozen, **{"epochs": 1, **changes})
    return list(train(trial, data_for("bert", train=40), device="cpu"))


def let_steps_take(patch: pytest.MonkeyPatch, packed: float, padded: float) -> list[str]:
    """Seconds of each step that is timed; gives what ran in each."""
    now, ran = [0.0], []

    def step(runs: Any, rows: Any) -> None:
        ran.append(f"{runs.model.how} {runs.prefix}")
        now[0] += packed if isinstance(runs.model, PackedModel) else padded

    patch.setattr(timing, "_step", step)
    patch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return ran


def remembered(cache: Path) -> list[float]:
    paths = list(cache.glob("steps-*.json"))
    return [share for path in paths for share in json.loads(path.read_text()).values()]


@pytest.mark.parametrize(
    ("packed", "padded", "way"), [(1.0, 0.8, "padded"), (1.0, 0.95, "packed"), (0.8, 1.0, "packed")]
)
@pytest.mark.parametrize("frozen", ["embeddings", 2, 4])
def test_the_clearly_faster_way_trains_and_stays(
    model: ModelSpec,
    cache: Path,
    frozen: int | str,
    packed: float,
    padded: float,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefix = "none" if frozen == "embeddings" else "cached"
    with monkeypatch.context() as patch:
        ran = let_steps_take(patch, packed, padded)
        first = trained(model, frozen)[-1]
    # One of each more, for what has a deterministic form.
    assert ran.count(f"packed {prefix}") == ran.count(f"padded {prefix}") == timing._STEPS + 1
    assert len(ran) == 2 * timing._STEPS + 2
    assert remembered(cache) == [pytest.approx(padded / packed)]
    with monkeypatch.context() as patch:
        ran = let_steps_take(patch, padded, packed)  # the other way round now
        second = trained(model, frozen, seed=2, epochs=3, eval_batch_size=5)[-1]
        assert not ran
    note = "padded batches: on this GPU a step takes 80 % of the time that packed rows take"
    for result in (first, second):
        assert result.batches == way and (note in result.notes) == (way == "padded")
        assert result.prefix == prefix


def test_each_depth_is_timed_by_itself_and_the_full_model_is_not(
    model: ModelSpec, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_steps_take(monkeypatch, 1.0, 0.5)
    assert trained(model, 1)[-1].batches == "padded"
    # Its padded batches would train the whole word table.
    assert trained(model, 0)[-1].batches == "packed"
    let_steps_take(monkeypatch, 1.0, 2.0)
    assert trained(model, 2)[-1].batches == "packed"
    assert remembered(cache) == [0.5, 2.0]


@pytest.mark.parametrize("fits", [True, False])
def test_nothing_is_timed_where_the_prefix_of_all_rows_finds_no_room(
    model: ModelSpec, cache: Path, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a few rows would, and shorter steps would be timed than those that train."""
    shape = runner._shape(
        32, data_for("bert", train=40), SimpleNamespace(recipe=make_trial(model).recipe)
    )
    room = shape.bytes / runner._MEMORY_SHARE * (1.01 if fits else 0.99)
    monkeypatch.setattr(runner, "room", lambda device: room)
    ran = let_steps_take(monkeypatch, 1.0, 2.0)
    trained(model)
    assert bool(ran) == fits


@pytest.mark.parametrize("enough", [0.0, math.inf])
@pytest.mark.parametrize("kept_as", [PrefixCache.FP32, PrefixCache.NONE])
def test_timing_leaves_no_trace_in_a_trials_losses(
    model: ModelSpec,
    cache: Path,
    enough: float,
    kept_as: PrefixCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "_CLEARLY", enough)
    timed, again = (trained(model, prefix_cache=kept_as) for _ in range(2))
    monkeypatch.setattr(timing, "_TIMED_ON", ())
    packed = trained(model, prefix_cache=kept_as)
    assert [r.train_loss for r in timed] == [r.train_loss for r in again]
    assert timed[-1].predictions == again[-1].predictions
    assert timed[-1].batches == ("padded" if enough else "packed")
    assert timed[-1].trainable_parameters == packed[-1].trainable_parameters
    assert ([r.train_loss for r in timed] == [r.train_loss for r in packed]) == (enough == 0)


def out_of_memory(*_: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def undeterministic(runs: Any, rows: Any) -> None:
    if runs.model.how == "padded":
        raise RuntimeError("cumsum does not have a deterministic implementation")


@pytest.mark.parametrize("trouble", [out_of_memory, undeterministic])
def test_packed_rows_stay_where_padding_is_no_choice(
    model: ModelSpec, cache: Path, trouble: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_step", trouble)
    for _ in range(2):
        last = trained(model)[-1]
        assert last.batches == "packed" and not last.notes and last.prefix == "cached"
    assert remembered(cache) == [math.inf]


def test_packed_rows_stay_where_nothing_can_be_remembered(
    model: ModelSpec, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = let_steps_take(monkeypatch, 1.0, 0.5)
    cache.write_text("a file where the folder should be")
    assert trained(model)[-1].batches == "packed"
    assert not ran


@pytest.mark.parametrize("damage", ['{"half a line', "[]", "null", "3"])
def test_a_damaged_memory_is_written_anew(
    model: ModelSpec, cache: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_steps_take(monkeypatch, 1.0, 0.5)
    trained(model)
    [path] = cache.glob("steps-*.json")
    path.write_text(damage)
    assert trained(model)[-1].batches == "padded"
    assert remembered(cache) == [0.5]


def test_memory_is_given_back_and_counted_anew_behind_what_is_timed(
    model: ModelSpec, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def noting(name: str, where: Any) -> None:
        real = getattr(where, name)

        def noted(*given: Any) -> Any:
            done.append(name)
            return real(*given)

        monkeypatch.setattr(where, name, noted)

    noting("_share", timing)
    noting("release", timing.machine)
    noting("PeakMemory", timing.machine)
    trained(model)
    assert done == ["PeakMemory", "_share", "release", "PeakMemory", "release"]
