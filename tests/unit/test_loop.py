"""One trial: it learns, follows its seed, and freezes what it should.

It follows nothing but its seed, and survives little memory.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Trainer

from elsa_tune.errors import DivergedError, RunError, SpaceError
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.specs.trial import EvaluationResult, Precision, Recipe, TrialSpec
from elsa_tune.training import loop, machine
from elsa_tune.training.adapt.methods import apply
from elsa_tune.training.forward import runner
from elsa_tune.training.loop import (
    clip_in_step,
    evaluation_steps,
    few_steps,
    train,
    warmup_steps,
)
from elsa_tune.training.machine import (
    is_out_of_memory,
    reproducible,
    resolve_precision,
    try_deterministic,
)
from elsa_tune.training.model.encoder import load_classifier
from tests import bare_machine
from tests.unit.tiny_models import ARCHITECTURES, make_tiny
from tests.unit.tiny_trials import REGRESSION, make_data, make_trial, tiny_bert

Run = list[EvaluationResult]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_bert(tmp_path_factory.mktemp("models") / "bert")


def run(trial: TrialSpec, **data: Any) -> Run:
    return list(train(trial, make_data(**data), device="cpu"))


def losses(results: Run) -> list[tuple[float, float, float]]:
    return [(r.train_loss, r.eval_loss, r.quality) for r in results]


def test_a_trial_learns_and_reports_every_epoch(model: ModelSpec) -> None:
    results = run(make_trial(model, epochs=6), train=200)
    assert [r.epoch for r in results] == [1, 2, 3, 4, 5, 6]
    assert [(r.evaluation, r.evaluations) for r in results] == [(n, 6) for n in range(1, 7)]
    assert results[-1].step == results[-1].steps == 6 * 13
    assert results[-1].train_loss < results[0].train_loss
    assert results[-1].quality > 0.8
    assert set(results[-1].metrics) == {"accuracy", "f1"}
    assert results[0].predictions is None
    predictions = results[-1].predictions
    assert predictions is not None and len(predictions) == 30
    labels = make_data().evaluation.labels
    assert np.mean(np.asarray(predictions) == labels) == pytest.approx(results[-1].quality)


def test_regression_learns_by_its_own_loss(model: ModelSpec) -> None:
    results = run(make_trial(model, epochs=10, task=REGRESSION), train=200, regression=True)
    assert results[-1].quality > 0.5
    assert results[-1].train_loss < results[0].train_loss


def test_standardised_targets_start_at_the_mean_and_predict_on_the_labels_scale(
    model: ModelSpec,
) -> None:
    data = make_data(train=40, regression=True)
    for rows in (data.train, data.evaluation):
        rows.labels[:] = 500 + 100 * rows.labels
    found = {}
    for standardize in (False, True):
        trial = make_trial(
            model, 4, task=REGRESSION, epochs=1, learning_rate=1e-5, standardize_targets=standardize
        )
        *_, last = train(trial, data)
        assert last.predictions is not None
        found[standardize] = np.mean(last.predictions)
    mean, spread = data.train.labels.mean(), data.train.labels.std()
    # After three steps of hardly any size; a tiny model's head is drawn ten times as wide as most.
    assert abs(found[True] - mean) < 3 * spread
    assert abs(found[False]) < 10  # where a fresh head begins
    # Its loss is in units of the spread, where the mean alone has 1; here it would have 1,000.
    assert last.eval_loss < 10


def test_labels_without_a_spread_keep_their_unit(model: ModelSpec) -> None:
    data = make_data(train=40, regression=True)
    data.train.labels[:] = 0.1
    trial = make_trial(model, 4, task=REGRESSION, epochs=1, standardize_targets=True)
    *_, last = train(trial, data)
    assert last.predictions is not None and 0 < np.std(last.predictions) < 10


def test_a_trial_of_one_step_trains(model: ModelSpec) -> None:
    untrained = run(make_trial(model, epochs=1, learning_rate=1e-12), train=16)
    trained = run(make_trial(model, epochs=1, learning_rate=1e-2), train=16)
    assert trained[-1].steps == 1
    assert trained[-1].train_loss == untrained[-1].train_loss
    assert abs(trained[-1].eval_loss - untrained[-1].eval_loss) > 1e-2


@pytest.mark.parametrize(
    "ratio, steps, expected",
    [(0.1, 1, 0), (0.1, 2, 1), (0.1, 10, 1), (0.1, 11, 2), (0.0, 10, 0), (1.0, 10, 9)],
)
def test_the_last_step_is_never_warm_up(ratio: float, steps: int, expected: int) -> None:
    assert warmup_steps(Recipe(warmup_ratio=ratio), steps) == expected


def test_classes_are_learnt_as_before_whatever_is_said_of_targets(model: ModelSpec) -> None:
    plain = run(make_trial(model))
    assert losses(run(make_trial(model, standardize_targets=True))) == losses(plain)


def test_two_runs_are_identical_and_another_seed_is_not(model: ModelSpec) -> None:
    first = run(make_trial(model, 2))
    assert losses(first) == losses(run(make_trial(model, 2)))
    assert losses(first) != losses(run(make_trial(model, 2, seed=2)))


def test_a_consumer_that_draws_random_numbers_changes_nothing(model: ModelSpec) -> None:
    untouched = losses(run(make_trial(model)))
    disturbed = []
    for result in train(make_trial(model), make_data(), device="cpu"):
        torch.rand(7)
        disturbed.append((result.train_loss, result.eval_loss, result.quality))
    assert disturbed == untouched


def settings() -> tuple[Any, ...]:
    """Return what a trial changes of the process."""
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
        torch.get_float32_matmul_precision(),
    )


def test_cudnns_attention_is_off_and_products_are_exact_while_a_trial_lasts(
    model: ModelSpec,
) -> None:
    before = settings()
    assert torch.backends.cuda.cudnn_sdp_enabled()
    torch.set_float32_matmul_precision("medium")
    try:
        running = train(make_trial(model), make_data(), device="cpu")
        next(running)
        assert settings() == (True, True, False, "highest")
        running.close()
        assert settings() == (*before[:3], "medium")
    finally:
        torch.set_float32_matmul_precision("highest")


def test_tf32_is_what_a_trial_asks_for_and_no_others() -> None:
    with reproducible(1, torch.device("cpu"), Precision.TF32):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_check_of_packed_rows_is_silent_about_the_order_of_sums(
    monkeypatch: pytest.MonkeyPatch, model: ModelSpec
) -> None:
    """As torch 2.11 warned on an H100, where the check is the first to go backwards."""
    build = loop.runner_for
    texts = (
        "Flash Attention defaults to a non-deterministic algorithm. To explicitly enable",
        "something else",
    )

    def warning(*given: Any) -> Any:
        for text in texts:
            warnings.warn(text, UserWarning, stacklevel=1)
        return build(*given)

    monkeypatch.setattr(loop, "runner_for", warning)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        next(train(make_trial(model), make_data(), device="cpu"))
    assert [str(one.message) for one in seen] == ["something else"]


def test_a_step_of_which_torch_knows_no_deterministic_form_is_told_and_allowed() -> None:
    here = torch.device("cpu")

    def adds_up_in_any_order() -> None:
        torch.rand(3)
        # What torch's own operations do in C++.
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation\n-")

    with reproducible(1, here):
        expected = torch.rand(2)
    with reproducible(1, here):
        assert try_deterministic(lambda: torch.rand(3), here) is None
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        note = try_deterministic(adds_up_in_any_order, here)
        assert note is not None and note.endswith("does not have a deterministic implementation")
        assert settings()[:2] == (True, True)
        with pytest.raises(RuntimeError, match="size"):
            try_deterministic(lambda: torch.rand(3) @ torch.rand(2), here)
        # Whatever the steps drew, the trial draws what it would have drawn.
        assert torch.equal(torch.rand(2), expected)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_tried_step_leaves_no_trace(model: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    untouched = losses(run(make_trial(model)))
    monkeypatch.setattr(loop, "_TRIED_ON", ("cpu",))
    told = run(make_trial(model))
    assert losses(told) == untouched and told[-1].notes == ()


def test_the_process_keeps_its_own_random_state(model: ModelSpec) -> None:
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    run(make_trial(model))
    assert torch.equal(torch.rand(3), expected)
    assert not torch.are_deterministic_algorithms_enabled()


FRESH = """
import sys
import warnings
import torch
from elsa_tune.specs.model import resolve_model
from elsa_tune.training.loop import train
from elsa_tune.training.model.encoder import load_tokenizer
from tests.unit.tiny_trials import make_data, make_trial
model = resolve_model(sys.argv[1])
print(load_tokenizer(model)("it is good", return_tensors="pt")["input_ids"].shape)
trial = make_trial(model, 2, seed=5)
for r in train(trial, make_data(), device="cpu"):
    print(r.train_loss.hex(), r.eval_loss.hex(), r.quality.hex())
"""


@pytest.mark.thorough
def test_a_third_trial_on_a_reused_worker_equals_a_fresh_process(
    model: ModelSpec, root: Path
) -> None:
    """A trial is the same after others.

    Those are a whole trial, and one that was stopped in the middle as ASHA does it. The fresh
    process has torch and transformers, and nothing else of what the package needs.
    """
    run(make_trial(model, 0, seed=3))
    stopped = train(make_trial(model, 1, seed=4, epochs=5), make_data(), device="cpu")
    next(stopped)
    stopped.close()
    here = [
        f"{r.train_loss.hex()} {r.eval_loss.hex()} {r.quality.hex()}"
        for r in run(make_trial(model, 2, seed=5))
    ]
    fresh = subprocess.run(
        [sys.executable, "-c", FRESH, model.location],
        capture_output=True,
        text=True,
        cwd=root,
        env=bare_machine.environment("pytest"),
        timeout=200,
        check=True,
    )
    assert fresh.stdout.splitlines() == ["torch.Size([1, 5])", *here]
    assert fresh.stderr == ""


def test_a_stopped_trial_frees_its_model(model: ModelSpec) -> None:
    stopped = train(make_trial(model), make_data(), device="cpu")
    next(stopped)
    frame = stopped.gi_frame
    assert frame is not None
    held = frame.f_locals["run"]
    stopped.close()
    assert not hasattr(held, "runner") and not hasattr(held, "optimizer")


@pytest.mark.parametrize("frozen_dropout", [True, False])
@pytest.mark.parametrize("frozen", [0, "embeddings", 2, 4])
def test_frozen_tensors_are_bit_identical_and_the_rest_moves(
    model: ModelSpec, frozen: int | str, frozen_dropout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[dict[str, Any]] = []

    def keep(*args: Any, **kwargs: Any) -> Any:
        loaded = load_classifier(*args, **kwargs)
        held.append(dict(loaded.named_parameters()))
        return loaded

    monkeypatch.setattr(loop, "load_classifier", keep)
    # The whole word table stays: the parameters are then the loaded ones to the end.
    monkeypatch.setattr(runner, "use_compact_vocabulary", lambda packed, data: None)
    trial = make_trial(model, frozen, frozen_dropout=frozen_dropout)
    results = run(trial)
    fresh = load_classifier(model, 2, trial.seed)
    trained = apply(fresh, FreezeDepth.of(frozen)).parameters
    after = held[0]
    moved = {n for n, p in fresh.named_parameters() if not torch.equal(p, after[n])}
    # Rows of unused positions and words keep their value, but some row of each tensor moves.
    assert moved == trained
    assert results[-1].trainable_parameters == sum(after[name].numel() for name in trained)


def test_frozen_dropout_is_a_setting(model: ModelSpec) -> None:
    on = losses(run(make_trial(model, 3, frozen_dropout=True)))
    off = losses(run(make_trial(model, 3, frozen_dropout=False)))
    assert on != off
    # The full model has no frozen prefix: the setting cannot matter.
    full_on = losses(run(make_trial(model, frozen_dropout=True)))
    assert full_on == losses(run(make_trial(model, frozen_dropout=False)))


def without_dropout(model: ModelSpec, folder: Path) -> ModelSpec:
    import json
    import shutil

    shutil.copytree(model.location, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    path.write_text(json.dumps(config))
    return dataclasses.replace(model, location=str(folder))


def memory_for(examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a forward pass of more than so many examples run out of memory, as a GPU does."""
    logits = runner.Runner.logits

    def limited(self: Any, split: str, indices: Any) -> Any:
        if len(indices) > examples:
            raise torch.OutOfMemoryError("CUDA out of memory (made up)")
        return logits(self, split, indices)

    monkeypatch.setattr(runner.Runner, "logits", limited)


def test_little_memory_halves_micro_batches_and_keeps_the_effective_batch(
    model: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = without_dropout(model, tmp_path / "calm")
    whole = run(make_trial(calm))
    memory_for(5, monkeypatch)
    small = run(make_trial(calm))
    assert small[-1].micro_batch_size == 4
    assert any("micro-batches halved to 4" in note for note in small[-1].notes)
    assert any("effective batch stays 16" in note for note in small[-1].notes)
    assert small[-1].steps == whole[-1].steps
    # Without dropout only rounding tells the two apart.
    for a, b in zip(whole, small, strict=True):
        assert b.train_loss == pytest.approx(a.train_loss, rel=1e-5)
        assert b.eval_loss == pytest.approx(a.eval_loss, rel=1e-5)


def test_no_memory_for_one_example_is_said_plainly(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory_for(0, monkeypatch)
    with pytest.raises(RunError, match="out of memory with one example at a time"):
        run(make_trial(model))


class OutOfMemoryBackwards(torch.autograd.Function):
    """Gives back what it gets, holds the activations, and has no memory for its gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, activations: torch.Tensor) -> torch.Tensor:
        ctx.activations = activations
        return logits.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory (made up)")


def test_a_backward_pass_without_memory_holds_none_while_half_a_batch_is_tried(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = runner.Runner.logits
    held: list[weakref.ref[torch.Tensor]] = []

    def limited(self: Any, split: str, indices: Any) -> Any:
        assert not any(activations() is not None for activations in held)
        out, rows = logits(self, split, indices)
        if split == "train" and len(indices) > 5:
            activations = torch.zeros(1)
            held.append(weakref.ref(activations))
            out = OutOfMemoryBackwards.apply(out, activations)
        return out, rows

    monkeypatch.setattr(runner.Runner, "logits", limited)
    assert run(make_trial(model))[-1].micro_batch_size == 4
    assert len(held) == 2  # 16 and 8


def test_no_memory_for_the_optimiser_is_said_plainly(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_memory(*args: Any, **kwargs: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory (made up)")

    monkeypatch.setattr(torch.optim.AdamW, "step", without_memory)
    with pytest.raises(RunError, match="out of memory in the optimiser's step"):
        run(make_trial(model))


@pytest.mark.parametrize(
    "words",
    [
        "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory",
        "CUDA error: out of memory",
        "CUDA driver error: cudaErrorMemoryAllocation",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        # Several trials share a GPU, and the last one to come makes its first handle.
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    ],
)
def test_every_library_says_in_its_own_words_that_memory_ran_out(words: str) -> None:
    assert is_out_of_memory(RuntimeError(words))


def test_another_runtime_error_is_not_taken_for_memory(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(runner.Runner, "logits", broken)
    with pytest.raises(RuntimeError, match="mat1"):
        run(make_trial(model))


def test_a_diverging_trial_ends_with_a_named_error(model: ModelSpec) -> None:
    data = make_data(regression=True)
    # Squares of these overflow fp32: the loss is infinite, as with a rate that is far too high.
    far_off = dataclasses.replace(data.train, labels=data.train.labels * np.float32(1e30))
    with pytest.raises(DivergedError, match=r"N0-lr3e-03-s1: the training loss became (nan|inf)"):
        list(train(make_trial(model, task=REGRESSION), dataclasses.replace(data, train=far_off)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weight_decay_is_of_what_transformers_trainer_decays_and_the_rate_is_the_trials(
    architecture: str, tmp_path: Path
) -> None:
    model = resolve_model(str(make_tiny(architecture, tmp_path / "model")))
    trial = make_trial(model, weight_decay=0.3, learning_rate=1e-4)
    classifier = load_classifier(model, 2, 1)
    named = dict(classifier.named_parameters())
    groups = loop.adamw(named, trial).param_groups
    assert {group["lr"] for group in groups} == {1e-4}
    decays: dict[int, float] = {}
    for group in groups:
        for parameter in group["params"]:
            decays[id(parameter)] = group["weight_decay"]
    assert len(decays) == len(named)
    trainer: Any = Trainer
    decayed = set(trainer.get_decay_parameter_names(None, classifier))
    for name, parameter in named.items():
        assert decays[id(parameter)] == (0.3 if name in decayed else 0.0), name


def test_a_bias_of_positions_does_not_decay_on_packed_tokens_either(tmp_path: Path) -> None:
    model = resolve_model(str(make_tiny("mpnet", tmp_path / "model")))
    run = loop._Run(make_trial(model, weight_decay=0.3), make_data(), torch.device("cpu"))
    assert run.runner.model.how == "packed"
    table = run.runner.model.get_parameter("head.mpnet.encoder.relative_attention_bias.weight")
    [group] = [g for g in run.optimizer.param_groups if any(p is table for p in g["params"])]
    assert group["weight_decay"] == 0
    run.close()


def test_each_epoch_has_an_order_of_its_own_and_each_seed_another(model: ModelSpec) -> None:
    def two_epochs(seed: int) -> list[list[int]]:
        batches = loop.shuffled_batches(make_trial(model, seed=seed), 40)
        epochs: list[list[int]] = []
        for _ in range(2):
            of_epoch = [next(batches).tolist() for _ in range(3)]
            epochs.append([row for batch in of_epoch for row in batch])
        return epochs

    first, second = two_epochs(1)
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second
    assert two_epochs(1) == [first, second]
    assert two_epochs(2)[0] != first


def test_an_evaluation_that_is_not_finite_is_no_result(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes can be read off logits that are no numbers, and would score as if learnt."""
    evaluate = loop._Run._evaluate

    def not_finite(run: Any, split: Any) -> Any:
        return evaluate(run, split) * float("nan")

    monkeypatch.setattr(loop._Run, "_evaluate", not_finite)
    said = r"N0-lr3e-03-s1: the evaluation loss became nan at step 3"
    with pytest.raises(DivergedError, match=said):
        next(train(make_trial(model), make_data(), device="cpu"))


def test_clipping_inside_the_fused_step_equals_torchs_own() -> None:
    draw = torch.Generator().manual_seed(0)
    start = [torch.randn(50, 30, generator=draw), torch.randn(30, generator=draw)]
    ours, theirs = ([torch.nn.Parameter(p.clone()) for p in start] for _ in range(2))
    optimizers = [torch.optim.AdamW(params, lr=1e-2, fused=True) for params in (ours, theirs)]
    for step in range(20):
        for a, b in zip(ours, theirs, strict=True):
            # Far above the norm and far below it in turns.
            a.grad = torch.randn(a.shape, generator=draw) * (1e-4 if step % 2 else 3)
            b.grad = a.grad.clone()
        norm = torch.nn.utils.get_total_norm([p.grad for p in ours if p.grad is not None])
        clip_in_step(optimizers[0], norm, 1.0)
        assert float(torch.nn.utils.clip_grad_norm_(theirs, 1.0)) > (0 if step % 2 else 100)
        for optimizer in optimizers:
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-6)
    assert not torch.allclose(ours[0], start[0], atol=1e-2)


def test_evaluation_points_fall_on_parts_of_an_epoch() -> None:
    assert evaluation_steps(Recipe(epochs=2), 40) == (3, 6)
    halves = Recipe(epochs=2, evaluations_per_epoch=2)
    assert evaluation_steps(halves, 40) == (2, 3, 5, 6)
    with pytest.raises(SpaceError, match="only 1 steps an epoch"):
        evaluation_steps(halves, 10)


def test_few_steps_are_said_with_what_makes_more_of_them() -> None:
    recipe = Recipe(epochs=2)
    steps = evaluation_steps(recipe, 400)[-1]
    note = few_steps(recipe, steps)
    assert steps == 50 and note is not None and note.startswith("50 optimiser steps per trial")
    epochs = int(note.partition("set epochs=")[2].partition(",")[0])
    assert few_steps(recipe, 25 * epochs) is None
    assert few_steps(recipe, 25 * (epochs - 1)) is not None


def test_half_epochs_are_reported_as_such(model: ModelSpec) -> None:
    results = run(make_trial(model, evaluations_per_epoch=2))
    assert [r.epoch for r in results] == [0.5, 1.0, 1.5, 2.0]


def test_auto_is_fp32_on_a_cpu_and_bf16_runs_there_too(model: ModelSpec) -> None:
    assert resolve_precision(Precision.AUTO, "cpu") is Precision.FP32
    results = run(make_trial(model, precision=Precision.BF16))
    assert results[-1].precision == "bf16"
    assert losses(results) != losses(run(make_trial(model)))


def test_a_gpu_without_the_units_gets_fp32_and_refuses_what_it_would_emulate() -> None:
    assert resolve_precision(Precision.AUTO, "cuda", has_units=False) is Precision.FP32
    for precision in (Precision.BF16, Precision.TF32):
        with pytest.raises(SpaceError, match=f"precision is {precision}, but a GPU .* use fp32"):
            resolve_precision(precision, "cuda", has_units=False)
    assert resolve_precision(Precision.AUTO, "cuda", has_units=True) is Precision.BF16
    with pytest.raises(SpaceError, match="tf32, which only GPUs have"):
        resolve_precision(Precision.TF32, "cpu")


@pytest.mark.parametrize(
    ("device", "has_units", "in_fp32"),
    [
        ("cpu", False, {Precision.TF32}),
        ("cuda", False, {Precision.TF32, Precision.BF16}),
        ("cuda", True, set()),
    ],
)
def test_one_more_trial_is_in_fp32_where_the_search_s_precision_is_not_to_be_had(
    device: str, has_units: bool, in_fp32: set[Precision], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "has_bf16_units", lambda: has_units)
    for precision in Precision:
        expected = Precision.FP32 if precision in in_fp32 else precision
        assert machine.precision_here(precision, device) is expected


def test_the_order_of_examples_does_not_depend_on_the_depth(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[list[int]]] = {}
    gradients = loop._Run._gradients

    def spy(self: Any, batch: Any) -> Any:
        seen.setdefault(self.trial.key, []).append(batch.tolist())
        return gradients(self, batch)

    monkeypatch.setattr(loop._Run, "_gradients", spy)
    run(make_trial(model, 0))
    run(make_trial(model, 4))
    first, second = seen.values()
    assert first == second
    first_epoch = [index for batch in first[:3] for index in batch]
    assert sorted(first_epoch) == list(range(40))
