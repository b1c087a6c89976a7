"""What a GPU must do.

On one (`pytest -m gpu`, the first thing that `bench/gpu.sh` runs), and on the stand-in for one
(`make standin`); skipped where neither is.

It needs torch, transformers and pytest alone. ELSA_TUNE_GPU_TESTS=cpu rehearses the tests
themselves.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from elsa_tune.errors import RunError
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import EvaluationResult, Precision, PrefixCache, TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.checkpoints import FolderCheckpoints, TrialCheckpoint
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.forward import runner
from elsa_tune.training.forward.prefix_store import Reading
from elsa_tune.training.loop import train
from elsa_tune.training.throughput import Division, measure
from tests.pairs import one_of_each
from tests.unit.tiny_trials import calm, data_for, make_trial, tiny_bert

DEVICE = os.environ.get("ELSA_TUNE_GPU_TESTS", "cuda")
MORE_THAN_ANY_HAS = 2**50

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE == "cuda" and not torch.cuda.is_available(),
        reason="needs a CUDA device; `make standin` runs it on a stand-in for one",
    ),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path: Path) -> ModelSpec:
    return tiny_bert(tmp_path / "bert")


def run(trial: TrialSpec, data: TaskData | None = None) -> list[EvaluationResult]:
    return list(train(trial, data or data_for("bert"), device=DEVICE))


def losses(results: list[EvaluationResult]) -> list[tuple[str, str]]:
    return [(r.train_loss.hex(), r.eval_loss.hex()) for r in results]


@pytest.mark.parametrize(
    ("architecture", "frozen", "precision"),
    one_of_each(("bert", "distilbert", "mpnet"), (0, 2, 4), (Precision.FP32, Precision.BF16)),
)
def test_packed_rows_train_as_the_whole_model_on_padded_batches(
    architecture: str,
    frozen: int,
    precision: Precision,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = calm(architecture, tmp_path / "calm", layers=4)
    trial = make_trial(spec, frozen, precision=precision, learning_rate=1e-4)
    data = data_for(architecture)
    fast = run(trial, data)
    assert fast[-1].batches == "packed" and fast[-1].precision == precision.value
    assert not any("square" in note for note in fast[-1].notes)
    monkeypatch.setattr(runner, "packed_doubt", lambda *_: "this test wants the plain way")
    none = dataclasses.replace(trial.recipe, prefix_cache=PrefixCache.NONE)
    plain = run(dataclasses.replace(trial, recipe=none), data)
    assert plain[-1].batches == "padded"
    near = 1e-4 if precision is Precision.FP32 else 3e-2
    for a, b in zip(fast, plain, strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, rel=near)
        assert a.eval_loss == pytest.approx(b.eval_loss, rel=near)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.AUTO])
def test_a_seed_gives_the_same_losses_to_the_bit(model: ModelSpec, precision: Precision) -> None:
    trial = make_trial(model, 2, precision=precision, epochs=3)
    first = run(trial)
    assert not any("the same seed" in note for note in first[-1].notes)
    stopped = train(make_trial(model, 0, seed=5), data_for("bert"), device=DEVICE)
    next(stopped)
    stopped.close()
    assert losses(run(trial)) == losses(first)


@pytest.mark.parametrize("frozen", [0, 2])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.AUTO])
def test_a_trial_that_is_cut_short_continues_to_the_last_bit(
    precision: Precision, frozen: int, model: ModelSpec, tmp_path: Path
) -> None:
    """Cut in the second epoch, behind a checkpoint: dropout goes on where it was."""
    trial = make_trial(model, frozen, precision=precision, epochs=3)
    data = data_for("bert")
    undisturbed = run(trial)
    cut_at = undisturbed[0].step + 3
    kept = FolderCheckpoints(tmp_path / "checkpoints")

    def on_step(done: int, planned: int) -> None:
        if done == cut_at:
            raise InterruptedError

    checkpoint = TrialCheckpoint(kept, trial.key, every=0.0)
    with pytest.raises(InterruptedError):
        list(train(trial, data, device=DEVICE, on_step=on_step, checkpoint=checkpoint))
    torch.rand(5, device=DEVICE)  # whatever this process drew meanwhile
    after = list(train(trial, data, device=DEVICE, checkpoint=checkpoint))
    assert [result.restored for result in after] == [True, False, False]
    assert f"continued from a checkpoint at step {cut_at - 1} of" in after[-1].notes[-1]
    assert losses(after) == losses(undisturbed)
    assert after[-1].predictions == undisturbed[-1].predictions


def out_of_memory() -> None:
    """As the device's own allocator says it."""
    torch.empty(MORE_THAN_ANY_HAS, dtype=torch.uint8, device=DEVICE)


def in_forward(logits: torch.Tensor) -> torch.Tensor:
    out_of_memory()
    return logits


def in_backward(logits: torch.Tensor) -> torch.Tensor:
    logits.register_hook(lambda gradient: out_of_memory())
    return logits


@pytest.mark.parametrize("where", [in_forward, in_backward])
def test_a_pass_that_runs_out_of_memory_is_halved(
    where: Callable[[torch.Tensor], torch.Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = make_trial(calm("bert", tmp_path / "calm"))
    complete = run(trial)
    logits = runner.Runner.logits

    def limited(self: Any, split: str, indices: Any) -> Any:
        out, rows = logits(self, split, indices)
        return (where(out) if split == "train" and len(indices) > 5 else out), rows

    monkeypatch.setattr(runner.Runner, "logits", limited)
    halved = run(trial)
    assert halved[-1].micro_batch_size == 4
    for a, b in zip(halved, complete, strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-3)


def test_a_step_that_runs_out_of_memory_is_said(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *_: out_of_memory())
    with pytest.raises(RunError, match="out of memory in the optimiser's step"):
        run(make_trial(model))


@pytest.mark.skipif(DEVICE != "cuda", reason="a CPU's memory has no such limit")
def test_under_a_real_limit_a_trial_goes_on_in_smaller_parts(tmp_path: Path) -> None:
    trial = make_trial(calm("bert", tmp_path / "calm", layers=8), batch_size=64, epochs=1)
    data = data_for("bert", train=640)
    complete = run(trial, data)
    total = torch.cuda.get_device_properties(0).total_memory
    baseline = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((baseline + 24 * 2**20) / total)
    try:
        limited = run(trial, data)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert limited[-1].train_loss == pytest.approx(complete[-1].train_loss, rel=1e-3)
    assert limited[-1].micro_batch_size <= complete[-1].micro_batch_size
    # Nothing of it stays.
    assert torch.cuda.memory_allocated() <= baseline + 2**20


def test_two_trials_share_a_gpu(model: ModelSpec) -> None:
    trial = make_trial(model, precision=Precision.AUTO)
    two = Division(trials=2, threads=1)
    [found] = measure([(trial, data_for("bert"))], two, DEVICE, seconds=2)
    assert found.tokens_per_second > 0 and found.peak_memory_mb > 0


def test_the_prefix_lies_in_the_gpus_memory(
    model: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Reading] = []
    reading = runner.Prefix.reading

    def kept(self: Any, *given: Any) -> Reading:
        read.append(reading(self, *given))
        assert {hidden.device.type for hidden in read[-1].hidden.values()} == {DEVICE}
        return read[-1]

    monkeypatch.setattr(runner.Prefix, "reading", kept)
    if DEVICE == "cpu":
        monkeypatch.setattr(runner, "free_bytes", lambda device: 2**40)
    trial = make_trial(model, 2, precision=Precision.FP32)
    cached = run(trial)
    assert cached[-1].prefix == "cached" and len(read) == 1
    assert not (tmp_path / "cache" / "prefix").exists()
    none = dataclasses.replace(trial.recipe, prefix_cache=PrefixCache.NONE)
    computed = run(dataclasses.replace(trial, recipe=none))
    assert computed[-1].prefix == "recomputed"
    for a, b in zip(cached, computed, strict=True):
        assert a.eval_loss == pytest.approx(b.eval_loss, rel=1e-4)


@pytest.mark.skipif(DEVICE != "cuda", reason="a GPU's queue is asked")
def test_a_step_never_waits_for_the_gpu(model: ModelSpec) -> None:
    """Torch raises where the host would wait."""
    training = loop.steps(make_trial(model, 2), data_for("bert"), device=DEVICE)
    for _ in range(3):
        next(training)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            next(training)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        training.close()
