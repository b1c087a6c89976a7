"""A trial that was cut short continues at its checkpoint, and gives the same to the last bit."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
import transformers

from elsa_tune.errors import RunError
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.specs.trial import EvaluationResult, Pooling, PrefixCache, Selection, TrialSpec
from elsa_tune.training import loop, machine, progress
from elsa_tune.training.checkpoints import (
    AUTO_SECONDS,
    AUTO_SHARE,
    FolderCheckpoints,
    TrialCheckpoint,
)
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import train
from elsa_tune.training.progress import DamagedError, predicted_bytes, read_file, write_file
from tests.forked import Nursery, nursery
from tests.registering import registered
from tests.unit.tiny_models import ARCHITECTURES, make_tiny
from tests.unit.tiny_trials import (
    REGRESSION,
    data_for,
    make_data,
    make_rows,
    make_trial,
    tiny_bert,
)

EVERY_STEP = 0.0
# 40 examples in batches of 16: three steps an epoch, six in all.
STEPS = 6


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_bert(tmp_path_factory.mktemp("models") / "bert")


class CutShortError(Exception):
    """Ends a trial in the middle."""


def kept_in(folder: Path, trial: TrialSpec, **more: Any) -> TrialCheckpoint:
    return TrialCheckpoint(FolderCheckpoints(folder), trial.key, EVERY_STEP, **more)


def cut_short(trial: TrialSpec, data: TaskData, folder: Path, step: int) -> list[EvaluationResult]:
    """Run a trial until a step has its checkpoint; return its results so far."""

    def on_step(done: int, planned: int) -> None:
        if done == step + 1:
            raise CutShortError

    results = []
    checkpoint = kept_in(folder, trial)
    running = train(trial, data, device="cpu", on_step=on_step, checkpoint=checkpoint)
    with contextlib.suppress(CutShortError):
        for result in running:
            results.append(result)
    return results


def continued(trial: TrialSpec, data: TaskData, folder: Path) -> list[EvaluationResult]:
    return list(train(trial, data, device="cpu", checkpoint=kept_in(folder, trial)))


def numbers(results: list[EvaluationResult]) -> list[dict[str, Any]]:
    """Return all that a trial's results say of its training, and nothing of time and memory."""
    rows = []
    for result in results:
        row = dataclasses.asdict(result)
        for name in ("train_seconds", "examples_per_second", "peak_memory_mb", "restored"):
            del row[name]
        row["notes"] = [note for note in result.notes if "continued from" not in note]
        rows.append(row)
    return rows


def check_every_cut(trial: TrialSpec, data: TaskData, folder: Path, cuts: list[int]) -> None:
    """Cut a trial short behind some steps, and compare with one that nothing disturbed."""
    undisturbed = list(train(trial, data, device="cpu"))
    for step in cuts:
        here = folder / str(step)
        before = cut_short(trial, data, here, step)
        torch.rand(step)  # whatever this process drew meanwhile
        after = continued(trial, data, here)
        assert numbers(after) == numbers(undisturbed), f"cut behind step {step}"
        restored = [result.evaluation for result in after if result.restored]
        assert restored == [result.evaluation for result in before]
        assert f"continued from a checkpoint at step {step} of" in after[-1].notes[-1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("frozen", [0, 1])
def test_every_architecture_continues_to_the_last_bit(
    architecture: str, frozen: int, tmp_path: Path
) -> None:
    model = resolve_model(str(make_tiny(architecture, tmp_path / "model", 2)))
    data = data_for(architecture, train=40)
    check_every_cut(make_trial(model, frozen), data, tmp_path, [4])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prefix_cache": PrefixCache.NONE},
        {"prefix_cache": PrefixCache.BF16},
        {"frozen_dropout": True},
        {"pooling": Pooling.MEAN},
        {"evaluations_per_epoch": 2},
        {"selection": Selection.BEST_EPOCH, "evaluations_per_epoch": 3},
        {"warmup_ratio": 0.9, "max_grad_norm": 0.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("frozen", ["0", "2"])
def test_every_way_to_train_continues_to_the_last_bit(
    changes: dict[str, Any], frozen: str, bert: ModelSpec, tmp_path: Path
) -> None:
    trial = make_trial(bert, candidate=read_candidate(frozen), **changes)
    check_every_cut(trial, make_data(), tmp_path, [3, 5])


@pytest.mark.parametrize("frozen", ["embeddings", "4"])
def test_frozen_embeddings_and_the_head_alone_continue_to_the_last_bit(
    frozen: str, bert: ModelSpec, tmp_path: Path
) -> None:
    trial = make_trial(bert, candidate=read_candidate(frozen))
    check_every_cut(trial, make_data(), tmp_path, [1, 3])


@pytest.mark.parametrize("way", ["lora", "lora-last2", "bitfit"])
def test_every_method_of_the_package_continues_to_the_last_bit(
    way: str, bert: ModelSpec, tmp_path: Path
) -> None:
    trial = make_trial(bert, candidate=read_candidate(way))
    check_every_cut(trial, make_data(), tmp_path, [2, 4])


def test_a_method_that_adds_parameters_continues_to_the_last_bit(
    bert: ModelSpec, tmp_path: Path
) -> None:
    with registered("tests.low_rank") as low_rank:
        trial = make_trial(bert, candidate=low_rank.LowRank(width=4, first=1))
        check_every_cut(trial, make_data(), tmp_path, [2, 4])


def test_padded_batches_continue_to_the_last_bit(
    bert: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elsa_tune.training.forward.runner.packed_doubt", lambda *given: "no")
    for frozen in (0, 3):
        trial = make_trial(bert, frozen)
        check_every_cut(trial, make_data(), tmp_path / str(frozen), [2, 4])
        assert continued(trial, make_data(), tmp_path / "fresh")[-1].batches == "padded"


def test_a_regression_and_a_holdout_continue_to_the_last_bit(
    bert: ModelSpec, tmp_path: Path
) -> None:
    values = make_data(regression=True)
    trial = make_trial(bert, 1, task=REGRESSION, standardize_targets=True)
    check_every_cut(trial, values, tmp_path / "regression", [2, 5])

    held_out = dataclasses.replace(make_data(), holdout=make_rows(20, 3))
    trial = make_trial(bert, selection=Selection.HOLDOUT, evaluations_per_epoch=3, epochs=3)
    check_every_cut(trial, held_out, tmp_path / "holdout", [4, 7])


def test_smaller_micro_batches_and_their_note_continue(
    bert: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory runs out at the second step, in every attempt that comes to it."""
    accumulate = loop._Run._accumulate

    def accumulated(run: loop._Run, batch: np.ndarray) -> torch.Tensor:
        if run.progress.step == 1 and run.progress.micro_batch > 4:
            raise torch.OutOfMemoryError
        return accumulate(run, batch)

    monkeypatch.setattr(loop._Run, "_accumulate", accumulated)
    check_every_cut(make_trial(bert), make_data(), tmp_path, [2])
    [*_, last] = train(make_trial(bert), make_data(), device="cpu")
    assert last.micro_batch_size == 4


def test_a_trial_is_cut_short_again_and_again(bert: ModelSpec, tmp_path: Path) -> None:
    trial = make_trial(bert, 1)
    for step in (1, 2, 5):
        cut_short(trial, make_data(), tmp_path, step)
    after = continued(trial, make_data(), tmp_path)
    assert numbers(after) == numbers(list(train(trial, make_data(), device="cpu")))
    steps = [note.rpartition("at step ")[2] for note in after[-1].notes]
    assert steps == ["1 of 6", "2 of 6", "5 of 6"]


KILLED = """
import os, sys
from pathlib import Path
import torch
from elsa_tune.specs.model import resolve_model
from elsa_tune.training.loop import train
from tests.unit.test_checkpoints import kept_in, random_trial
from tests.unit.tiny_trials import make_data

trial = random_trial(resolve_model(sys.argv[1]))
last = int(sys.argv[3])

def on_step(done, planned):
    if done == last:
        os.kill(os.getpid(), 9)

checkpoint = kept_in(Path(sys.argv[2]), trial)
for result in train(trial, make_data(), device="cpu", on_step=on_step, checkpoint=checkpoint):
    pass
"""


def random_trial(model: ModelSpec) -> TrialSpec:
    changes: dict[str, Any] = {"epochs": 4, "evaluations_per_epoch": 2}
    return make_trial(model, 1, selection=Selection.BEST_EPOCH, **changes)


@pytest.fixture(scope="module")
def fork() -> Iterator[Nursery]:
    with nursery("tests.unit.test_checkpoints") as parent:
        yield parent


@pytest.mark.thorough
def test_trials_killed_at_random_steps_continue_in_another_process(
    fork: Nursery, bert: ModelSpec, tmp_path: Path
) -> None:
    trial = random_trial(bert)
    undisturbed = list(train(trial, make_data(), device="cpu"))
    draw = random.Random(4)
    for number in range(3):
        folder = tmp_path / str(number)
        killed_at = sorted(draw.sample(range(2, 13), 2))
        for step in killed_at:
            ended = fork.run(KILLED, bert.location, str(folder), str(step))
            assert ended.returncode == -9, ended.stderr
        after = continued(trial, make_data(), folder)
        assert numbers(after) == numbers(undisturbed), killed_at
        assert f"at step {killed_at[-1] - 1} of 12" in after[-1].notes[-1]


def test_a_trial_counts_the_time_and_the_memory_of_all_its_attempts(
    bert: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(bert)
    monkeypatch.setattr(machine.PeakMemory, "mib", lambda memory: 9000.0)
    before = cut_short(trial, make_data(), tmp_path, 5)
    monkeypatch.setattr(machine.PeakMemory, "mib", lambda memory: 10.0)
    after = continued(trial, make_data(), tmp_path)
    assert [result.peak_memory_mb for result in after] == [9000.0, 9000.0]
    assert after[0].train_seconds == before[0].train_seconds
    assert after[1].train_seconds > before[0].train_seconds
    rate = STEPS / 3 * 40 / after[1].train_seconds
    assert after[1].examples_per_second == pytest.approx(rate)


class Greedy(FolderCheckpoints):
    """Takes 400 MiB while it reads."""

    def load(self, key: str) -> bytes | None:
        taken = b"1" * (400 * machine.MIB)
        assert taken
        return super().load(key)


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="this kernel resets no peak"
)
def test_what_reading_takes_is_no_part_of_the_peak(bert: ModelSpec, tmp_path: Path) -> None:
    trial = make_trial(bert)
    cut_short(trial, make_data(), tmp_path, 3)
    undisturbed = list(train(trial, make_data(), device="cpu"))[-1]
    checkpoint = TrialCheckpoint(Greedy(tmp_path), trial.key)
    after = list(train(trial, make_data(), device="cpu", checkpoint=checkpoint))[-1]
    assert "continued from a checkpoint" in after.notes[-1]
    assert after.peak_memory_mb < undisturbed.peak_memory_mb + 100


def test_what_was_read_is_not_copied(bert: ModelSpec, tmp_path: Path) -> None:
    cut_short(make_trial(bert), make_data(), tmp_path, 3)
    [file] = tmp_path.iterdir()
    content = file.read_bytes()
    begin = np.frombuffer(content, dtype=np.uint8).ctypes.data
    for name, tensor in read_file(content).tensors.items():
        assert begin < tensor.data_ptr() < begin + len(content), name


@pytest.mark.parametrize(
    "owner, method, error",
    [
        (FolderCheckpoints, "load", MemoryError()),
        (json, "loads", MemoryError()),
        (progress.RunningTrial, "restore", RuntimeError("can't allocate memory")),
    ],
    ids=["reading it", "its header", "taking it over"],
)
def test_a_trial_without_memory_for_its_checkpoint_says_so(
    owner: Any,
    method: str,
    error: Exception,
    bert: ModelSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = make_trial(bert)
    cut_short(trial, make_data(), tmp_path, 3)

    def full(*given: Any) -> None:
        raise error

    monkeypatch.setattr(owner, method, full)
    with pytest.raises(RunError, match=f"{trial.key}: out of memory while its checkpoint was read"):
        continued(trial, make_data(), tmp_path)


def flipped(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        flipped,
        lambda content: content[:-1],
        lambda content: content[:100],
        lambda content: b"",
        lambda content: content + b"more",
        lambda content: content.replace(b'"step\\": 3', b'"step\\": 4', 1),
        lambda content: b"\x10\0\0\0\0\0\0\0" + b"{}" + b" " * 14,
    ],
    ids=["a bit", "the end", "all but the header", "everything", "more", "a number", "other"],
)
def test_a_damaged_checkpoint_is_none_and_is_said_once(
    damage: Callable[[bytes], bytes], bert: ModelSpec, tmp_path: Path
) -> None:
    trial = make_trial(bert)
    cut_short(trial, make_data(), tmp_path, 3)
    [file] = tmp_path.iterdir()
    content = file.read_bytes()
    assert damage(content) != content
    file.write_bytes(damage(content))
    after = continued(trial, make_data(), tmp_path)
    assert not any(result.restored for result in after)
    undisturbed = list(train(trial, make_data(), device="cpu"))
    assert [result.eval_loss for result in after] == [result.eval_loss for result in undisturbed]
    for result in after:
        [note] = result.notes
        assert note.startswith(f"{trial.key}: its checkpoint cannot be read (it")
        assert note.endswith("so it started again")


def test_what_fits_another_model_is_no_checkpoint(bert: ModelSpec, tmp_path: Path) -> None:
    """Its file is complete, and says that it is of this trial."""
    trial = make_trial(bert)
    cut_short(trial, make_data(), tmp_path, 3)
    [file] = tmp_path.iterdir()
    saved = read_file(file.read_bytes())
    name = next(name for name in saved.tensors if name.startswith("optimizer/exp_avg/"))
    header = {**saved.header, "origin": dataclasses.asdict(saved.origin)}
    undisturbed = [result.eval_loss for result in train(trial, make_data(), device="cpu")]
    for tensors in (
        {key: tensor for key, tensor in saved.tensors.items() if key != "random/cpu"},
        {**saved.tensors, "parameter/other": torch.zeros(2)},
        {**saved.tensors, "loss_sum": torch.zeros(2)},
        {**saved.tensors, f"{name}.other": torch.zeros(2)},
    ):
        written = io.BytesIO()
        write_file(written, header, tensors)
        file.write_bytes(written.getvalue())
        after = continued(trial, make_data(), tmp_path)
        assert "so it started again" in after[-1].notes[0]
        assert not any(result.restored for result in after)
        assert [result.eval_loss for result in after] == undisturbed


class Full(FolderCheckpoints):
    """A disk without room, in the middle of a file."""

    def save(self, key: str, write: Callable[[BinaryIO], object]) -> None:
        super().save(key, lambda file: self._fill(file, write))

    @staticmethod
    def _fill(file: BinaryIO, write: Callable[[BinaryIO], object]) -> None:
        write(file)
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_the_checkpoint_and_not_the_trial(
    bert: ModelSpec, tmp_path: Path
) -> None:
    trial = make_trial(bert)
    checkpoint = TrialCheckpoint(Full(tmp_path), trial.key, EVERY_STEP)
    results = list(train(trial, make_data(), device="cpu", checkpoint=checkpoint))
    undisturbed = list(train(trial, make_data(), device="cpu"))
    assert [result.eval_loss for result in results] == [result.eval_loss for result in undisturbed]
    for result in results:
        assert result.notes == (
            f"{trial.key}: its checkpoint cannot be written (No space left on device); it trains "
            "on without",
        )
    assert list(tmp_path.iterdir()) == []


def test_the_checkpoint_before_stays_where_the_next_finds_no_room(
    bert: ModelSpec, tmp_path: Path
) -> None:
    trial = make_trial(bert)
    cut_short(trial, make_data(), tmp_path, 2)
    full = TrialCheckpoint(Full(tmp_path), trial.key, EVERY_STEP)
    list(train(trial, make_data(), device="cpu", checkpoint=full))
    after = continued(trial, make_data(), tmp_path)
    assert "at step 2 of 6" in after[-1].notes[-1]


def test_another_version_starts_again(
    bert: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(bert)
    cut_short(trial, make_data(), tmp_path, 3)
    here = transformers.__version__
    monkeypatch.setattr(progress, "transformers", SimpleNamespace(__version__="9.9.9"))
    after = continued(trial, make_data(), tmp_path)
    note = (
        f"{trial.key}: its checkpoint does not fit (it was written with transformers {here}, here "
        "it is 9.9.9), so it started again"
    )
    assert after[-1].notes == (note,)
    assert not any(result.restored for result in after)


def test_other_code_data_prefixes_and_recipes_start_again(bert: ModelSpec, tmp_path: Path) -> None:
    trial = make_trial(bert, 1)
    data = make_data()
    for what, changed, its_data, version in (
        ("elsa-tune", trial, data, "2"),
        ("data", trial, dataclasses.replace(data, fingerprint="other"), ""),
        ("prefix", make_trial(bert, 1, prefix_cache=PrefixCache.NONE), data, ""),
        ("recipe", make_trial(bert, 1, epochs=5), data, ""),
    ):
        cut_short(trial, data, tmp_path, 3)
        checkpoint = kept_in(tmp_path, trial, version=version)
        after = list(train(changed, its_data, device="cpu", checkpoint=checkpoint))
        assert not any(result.restored for result in after)
        note = after[-1].notes[0]
        assert "its checkpoint does not fit" in note
        if what != "prefix":  # which is the recipe's, too
            assert what in note


def test_another_machine_continues_and_says_so(
    bert: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(bert)
    cut_short(trial, make_data(), tmp_path, 3)
    here = machine.kind(torch.device("cpu"))
    monkeypatch.setattr(machine, "kind", lambda device: "a GPU")
    after = continued(trial, make_data(), tmp_path)
    assert after[0].restored
    assert f"written on another machine ({here}; here a GPU): its losses may" in after[-1].notes[0]


def test_a_checkpoint_is_what_the_configuration_predicts(bert: ModelSpec, tmp_path: Path) -> None:
    for frozen in ("4", "3", "embeddings"):
        trial = make_trial(bert, candidate=read_candidate(frozen))
        cut_short(trial, make_data(), tmp_path / frozen, 3)
        [file] = (tmp_path / frozen).iterdir()
        predicted = predicted_bytes(bert, trial.candidate)
        assert file.stat().st_size == pytest.approx(predicted, rel=0.1)
    # Of the word table only the rows are trained that the data use.
    trial = make_trial(bert)
    cut_short(trial, make_data(), tmp_path / "full", 3)
    [file] = (tmp_path / "full").iterdir()
    assert 0.5 < file.stat().st_size / predicted_bytes(bert, trial.candidate) < 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_checkpoint_in_half_precision_is_trained_and_predicted_in_fp32(
    dtype: str, bert: ModelSpec, tmp_path: Path
) -> None:
    half = tmp_path / "half"
    shutil.copytree(bert.location, half)
    config = json.loads((half / "config.json").read_text())
    (half / "config.json").write_text(json.dumps({**config, "dtype": dtype}))
    for frozen in ("0", "3"):
        candidate = read_candidate(frozen)
        predicted = predicted_bytes(resolve_model(str(half)), candidate)
        assert predicted == predicted_bytes(bert, candidate)


def test_no_checkpoint_is_written_before_it_is_worth_it(tmp_path: Path) -> None:
    seconds = [0.0]
    checkpoint = TrialCheckpoint(FolderCheckpoints(tmp_path), "key", clock=lambda: seconds[0])
    seconds[0] = AUTO_SECONDS - 1
    assert not checkpoint.is_due
    seconds[0] = AUTO_SECONDS
    assert checkpoint.is_due

    def write(file: BinaryIO) -> None:
        file.write(b"large")
        seconds[0] += 20

    checkpoint.save(write)
    written = seconds[0]
    # Where writing takes 20 s, the next is far enough away to cost one percent.
    seconds[0] = written + 20 / AUTO_SHARE - 1
    assert not checkpoint.is_due
    seconds[0] += 1
    assert checkpoint.is_due


def test_a_given_interval_is_kept_whatever_writing_takes(tmp_path: Path) -> None:
    seconds = [0.0]
    checkpoint = TrialCheckpoint(FolderCheckpoints(tmp_path), "key", 30, clock=lambda: seconds[0])
    seconds[0] = 29.0
    assert not checkpoint.is_due
    seconds[0] = 30.0
    assert checkpoint.is_due
    checkpoint.save(lambda file: seconds.__setitem__(0, 50.0))
    seconds[0] = 79.0
    assert not checkpoint.is_due
    seconds[0] = 80.0
    assert checkpoint.is_due


def test_deleting_leaves_the_checkpoints_of_others(tmp_path: Path) -> None:
    kept = FolderCheckpoints(tmp_path / "checkpoints")
    kept.delete("measure-N1")  # nothing is there yet
    for key in ("measure-N1", "measure-N12"):
        kept.save(key, lambda file, key=key: file.write(key.encode()))  # type: ignore[misc]
        part = tmp_path / "checkpoints" / f".{key}.safetensors.1.ab.part"
        part.write_bytes(b"cut short")
    kept.delete("measure-N1")
    assert kept.load("measure-N1") is None
    assert kept.load("measure-N12") == b"measure-N12"
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_the_file_is_one_of_safetensors() -> None:
    from safetensors.torch import load

    tensors = {
        "bytes": torch.arange(3, dtype=torch.uint8),
        "turned": torch.arange(6, dtype=torch.float32).view(2, 3).t(),
        "scalar": torch.tensor(2.5, dtype=torch.bfloat16),
        "empty": torch.empty(0, dtype=torch.float64),
    }
    file = io.BytesIO()
    write_file(file, {"any": "thing"}, tensors)
    again = load(file.getvalue())
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(again[name], tensor)


def test_a_trial_whose_model_is_kept_has_none(bert: ModelSpec, tmp_path: Path) -> None:
    trial = make_trial(bert)
    with pytest.raises(ValueError, match="no checkpoint"):
        next(train(trial, keep=lambda named: None, checkpoint=kept_in(tmp_path, trial)))


def test_an_unknown_format_is_not_read(
    bert: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(bert)
    cut_short(trial, make_data(), tmp_path, 3)
    monkeypatch.setattr(progress, "_FORMAT", 99)
    after = continued(trial, make_data(), tmp_path)
    assert "written with format 1, here it is 99" in after[-1].notes[0]
    with pytest.raises(DamagedError):
        read_file(b"")
