"""Trials on a GPU give what they give on a CPU, keep to their share of it, and leave nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from elsa_tune.errors import RunError, SpaceError
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import EvaluationResult, Pooling, Precision, TrialSpec
from elsa_tune.training import loop, machine
from elsa_tune.training.bundle.members import alone, read_members
from elsa_tune.training.bundle.together import Bundle
from elsa_tune.training.forward import equality
from elsa_tune.training.loop import train
from elsa_tune.training.machine import CONTEXT_MIB, MIB, PeakMemory, free_bytes, take_share
from elsa_tune.training.probe import linear_probe
from elsa_tune.training.saved import predict, save_classifier, save_onnx
from tests.pairs import one_of_each
from tests.standin import standin
from tests.standin.launches import training
from tests.unit.tiny_models import ARCHITECTURES
from tests.unit.tiny_trials import REGRESSION, calm, data_for, make_data, make_trial, tiny_bert

GIB = 2**30
CUDA = torch.device("cuda", 0)


@pytest.fixture
def model(tmp_path: Path) -> ModelSpec:
    return tiny_bert(tmp_path / "bert")


def on(device: str, trial: TrialSpec, data: Any) -> list[EvaluationResult]:
    return list(train(trial, data, device=device))


@pytest.mark.parametrize(("architecture", "frozen"), one_of_each(ARCHITECTURES, (0, 2)))
def test_losses_are_the_cpus(architecture: str, frozen: int | str, tmp_path: Path) -> None:
    trial = make_trial(calm(architecture, tmp_path / "calm"), frozen, learning_rate=1e-4)
    data = data_for(architecture)
    there, here = on("cuda", trial, data), on("cpu", trial, data)
    assert there[-1].batches == here[-1].batches and there[-1].prefix == here[-1].prefix
    for a, b in zip(there, here, strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-5)
        assert a.eval_loss == pytest.approx(b.eval_loss, rel=1e-5)
    assert there[-1].predictions == here[-1].predictions


@pytest.mark.parametrize(
    "change",
    [
        {"pooling": Pooling.MEAN},
        {"task": REGRESSION, "standardize_targets": True},
        {"precision": Precision.BF16},
    ],
)
def test_so_are_those_of_other_recipes(change: dict[str, Any], tmp_path: Path) -> None:
    trial = make_trial(calm("bert", tmp_path / "calm"), 2, learning_rate=1e-4, **change)
    data = make_data(regression="task" in change)
    near = 2e-2 if "precision" in change else 1e-5
    for a, b in zip(on("cuda", trial, data), on("cpu", trial, data), strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, rel=near)
        assert a.eval_loss == pytest.approx(b.eval_loss, rel=near)


def test_a_trial_is_strict_to_its_end_and_puts_the_process_back(model: ModelSpec) -> None:
    """With warnings alone torch's attention adds up in any order."""
    running = train(make_trial(model, 2, precision=Precision.BF16), data_for("bert"), device="cuda")
    next(running)
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    running.close()
    assert not torch.are_deterministic_algorithms_enabled()


def test_what_has_no_deterministic_form_is_told_and_allowed(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = loop.Objective.loss

    def unordered(self: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return loss(self, logits.cumsum(0).diff(dim=0, prepend=0 * logits[:1]), labels)

    monkeypatch.setattr(loop.Objective, "loss", unordered)
    *_, last = on("cuda", make_trial(model), data_for("bert"))
    [note] = last.notes
    assert note.startswith("the same seed may give other losses on this GPU: cumsum")


def test_an_epoch_waits_once_for_its_losses_and_once_for_its_logits(model: ModelSpec) -> None:
    trial = make_trial(model, 2, precision=Precision.BF16, epochs=3)
    running = train(trial, data_for("bert"), device="cuda")
    with contextlib.closing(running):
        next(running)
        with standin.watched() as seen:
            next(running)
    # The training loss, the evaluation loss, the predictions.
    assert seen.waits == {"_local_scalar_dense": 2, "a copy to the host": 1}


def test_a_trial_leaves_no_memory(model: ModelSpec) -> None:
    on("cuda", make_trial(model), data_for("bert"))
    gc.collect()
    before = torch.cuda.memory_allocated()
    stopped = train(make_trial(model, 2, precision=Precision.BF16), data_for("bert"), device="cuda")
    result = next(stopped)
    assert result.peak_memory_mb > 0
    stopped.close()
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_whoever_draws_random_numbers_on_it_changes_no_trial_and_no_trial_theirs(
    model: ModelSpec,
) -> None:
    trial = make_trial(model)
    untouched = [r.train_loss for r in on("cuda", trial, data_for("bert"))]
    torch.cuda.manual_seed(5)
    expected = torch.rand(3, device=CUDA)
    torch.cuda.manual_seed(5)
    disturbed = []
    for result in train(trial, data_for("bert"), device="cuda"):
        with torch.random.fork_rng(devices=[]):
            torch.rand(7, device=CUDA)
        disturbed.append(result.train_loss)
    assert disturbed == untouched
    assert torch.equal(torch.rand(3, device=CUDA), expected)


def test_an_older_gpu_trains_in_fp32_what_it_would_emulate_in_bf16(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch counts a T4 among those that support bf16."""
    t4 = dataclasses.replace(standin.gpu, name="Stand-in T4", capability=(7, 5))
    monkeypatch.setattr(standin, "gpu", t4)
    assert torch.cuda.is_bf16_supported()
    found = machine.look_at_gpu()
    assert found.name == "Stand-in T4" and not found.has_bf16 and not found.has_flash
    *_, last = on("cuda", make_trial(model, precision=Precision.AUTO), data_for("bert"))
    assert (last.precision, last.batches, last.notes) == ("fp32", "packed", ())
    with pytest.raises(SpaceError, match="a GPU that would train has no units for it"):
        on("cuda", make_trial(model, precision=Precision.BF16), data_for("bert"))


# ---- memory ----


@pytest.fixture
def whole_gpu() -> Any:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.usefixtures("whole_gpu")
def test_trials_that_share_a_gpu_share_its_memory() -> None:
    gc.collect()
    taken = torch.cuda.memory_reserved()
    assert take_share(1) == "cuda" and torch.cuda.get_per_process_memory_fraction(0) == 1
    assert free_bytes(CUDA) == 80 * GIB - CONTEXT_MIB * MIB - taken
    assert take_share(0.25) == "cuda"
    # CUDA's own part of a process comes out of its share.
    fraction = torch.cuda.get_per_process_memory_fraction(0)
    assert fraction == pytest.approx(0.25 - CONTEXT_MIB / (80 * 1024))
    # Whatever is free now, the other trials' part is not for this one.
    assert free_bytes(CUDA) == pytest.approx(20 * GIB - CONTEXT_MIB * MIB - taken, abs=1)
    assert take_share(0) == "cpu" and free_bytes(torch.device("cpu")) == 0


def test_no_trial_takes_what_others_have_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standin, "gpu", dataclasses.replace(standin.gpu, others_gib=78.0))
    gc.collect()
    assert free_bytes(CUDA) == 2 * GIB - CONTEXT_MIB * MIB - torch.cuda.memory_reserved()


def test_what_a_trial_takes_of_a_gpu_is_more_than_its_tensors() -> None:
    memory = PeakMemory(CUDA)
    there = torch.zeros(2**20, device=CUDA)
    assert memory.mib() == torch.cuda.max_memory_allocated() / MIB >= there.nbytes / MIB
    assert memory.taken_mib() == memory.mib() + CONTEXT_MIB


@pytest.mark.parametrize("test", ["packed_doubt", "packed_layout"])
def test_a_full_moment_while_a_model_is_tested_says_nothing_of_the_model(
    model: ModelSpec, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(model, 2, precision=Precision.BF16)
    asked = {"packed_doubt": "_difference", "packed_layout": "_varlen_difference"}[test]

    def full(*_: Any) -> None:
        torch.empty(2**50, dtype=torch.uint8, device=CUDA)

    with monkeypatch.context() as once:
        once.setattr(equality, "_doubts", {})  # whatever other tests asked
        once.setattr(equality, asked, full)
        with pytest.raises(RunError, match="out of memory before the first step"):
            on("cuda", trial, data_for("bert"))
    *_, last = on("cuda", trial, data_for("bert"))
    assert last.batches == "packed" and last.notes == ()


# ---- beside trials ----


def test_the_linear_probe_finds_what_it_finds_on_a_cpu(tmp_path: Path) -> None:
    trial = make_trial(calm("bert", tmp_path / "calm"))
    found = [
        linear_probe(trial.model, trial.task, trial.recipe, make_data(), device=device)
        for device in ("cuda", "cpu")
    ]
    assert found[0].predictions.tolist() == found[1].predictions.tolist()
    assert found[0].metrics == found[1].metrics


def test_a_model_trained_there_is_saved_and_answers_as_it_did(tmp_path: Path) -> None:
    trial = make_trial(calm("bert", tmp_path / "calm"), 2, epochs=1)
    data = make_data()
    weights: dict[str, torch.Tensor] = {}

    def keep(trained: Any) -> None:
        weights.update({name: value.detach().cpu().clone() for name, value in trained.items()})

    *_, result = train(trial, data, device="cuda", keep=keep)
    folder = tmp_path / "saved"
    folder.mkdir()
    save_classifier(folder, trial, data, weights)
    again = AutoModelForSequenceClassification.from_pretrained(folder)
    for name, value in weights.items():
        assert torch.equal(again.get_parameter(name), value)
    assert result.quality >= 0
    texts = ["good film", "bad film", "it is good"]
    assert len(predict(folder, [texts])) == 3
    save_onnx(folder)
    assert (folder / "onnx" / "model.onnx").exists()
    # A bundle answers on the CPU, also where there is a GPU.
    expected = alone(read_members(folder)["saved"], texts)
    [found] = Bundle(read_members(folder), packed=True).predict(texts).values()
    assert found.logits == pytest.approx(expected, abs=1e-6)


def test_steps_run_on_while_nobody_looks(model: ModelSpec) -> None:
    trial = make_trial(model, precision=Precision.BF16)
    with training(trial, data_for("bert")) as go_on:
        go_on()
        with standin.watched() as seen:
            for _ in range(5):
                go_on()
    assert not seen.waits


def test_what_a_gpu_is_like_is_told_without_taking_memory_of_it() -> None:
    found = machine.look_at_gpu()
    assert found.name == "Stand-in H100" and found.memory == 80 * GIB and found.free is None
    assert found.has_bf16 and found.has_flash and found.fault is None
    assert machine.look_at_gpu(ask_free=True).free == free_bytes(CUDA)
