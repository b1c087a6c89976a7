"""A running trial's state as one object, and as one file from which the trial goes on.

A trial that goes on gives the losses of an undisturbed one to the last bit, on the same kind of
machine. The file is one of safetensors: what trains and AdamW's state of it, torch's random
numbers, and in its header everything else. Neither Python's nor NumPy's own random numbers are in
it: no trial draws from them, for nothing seeds them. The order of examples follows from the seed.
"""

import json
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from typing import Any, BinaryIO

import numpy as np
import torch
import transformers
from torch import Tensor, nn

from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import EvaluationResult, TrialSpec
from elsa_tune.training import machine
from elsa_tune.training.adapt import methods
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.forward.runner import Runner
from elsa_tune.training.model.encoder import loaded_checkpoint, skeleton

# Changes whenever an earlier file would be read wrongly.
_FORMAT = 1
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_BY_NAME = {name: dtype for dtype, name in _DTYPES.items()}
# The beginnings of tensors' names in the file, and the names of the rest.
_PARAMETER = "parameter/"
_BUFFER = "buffer/"
_OPTIMIZER = "optimizer/"
_LOSS_SUM = "loss_sum"
_PREDICTIONS = "predictions"
_RANDOM = "random/cpu"
_RANDOM_GPU = "random/gpu"
# In the header: its one entry for us, and the checksum of the file in which this stands instead.
_OURS = "elsa_tune"
_CHECKSUM = "crc32"
_NO_CHECKSUM = "00000000"
# AdamW's two moments, beside the parameter; bytes of a tensor's entry in the header, about.
_TENSORS_EACH = 3
_ENTRY_BYTES = 150


class DamagedError(ValueError):
    """A file that is no checkpoint, or not a complete one."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a trial has come, and what it has gathered on its way."""

    loss_sum: Tensor  # of the examples since the last evaluation; a scalar on the device
    micro_batch: int  # examples per forward pass of training
    eval_batch: int  # examples per forward pass of an evaluation
    notes: list[str]  # what a reader of the results should be told
    step: int = 0  # optimiser steps done
    examples: int = 0  # trained on since the last evaluation
    seen: int = 0  # trained on until the last evaluation
    train_seconds: float = 0.0  # without evaluations, and without writing checkpoints
    peak_mib: float = 0.0  # the most memory of earlier attempts
    scores: list[float] = field(default_factory=list)  # what evaluations are compared by
    # Of the evaluation that gives the trial's quality so far, as the labels are.
    predictions: np.ndarray = field(default_factory=lambda: np.empty(0))
    results: list[EvaluationResult] = field(default_factory=list)  # so far


# The fields of Progress that are in the file's header as they are.
_PLAIN = (
    "micro_batch",
    "eval_batch",
    "notes",
    "step",
    "examples",
    "seen",
    "train_seconds",
    "peak_mib",
    "scores",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOrigin:
    """What a trial's numbers follow from, beside its progress."""

    # What must be the same for a trial to go on, each by its name in a sentence.
    same: Mapping[str, str]
    # The kind of machine, on which the last bits of every sum depend.
    machine: str

    @classmethod
    def of(cls, trial: TrialSpec, data: TaskData, runner: Runner, version: str) -> "TrialOrigin":
        """Return a running trial's. version: of elsa-tune, "" where nobody tells it."""
        setting = runner.setting
        recipe = json.dumps(asdict(trial.recipe), sort_keys=True)
        same = {
            "format": str(_FORMAT),
            "trial": trial.key,
            "recipe": recipe,
            "weights": loaded_checkpoint(),
            "data": data.fingerprint,
            "batches": runner.model.how,
            "prefix": runner.prefix,
            "precision": setting.precision,
            "device": setting.device.type,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "elsa-tune": version,
        }
        for package in trial.candidate.packages:
            same[package] = metadata.version(package)
        return cls(same=same, machine=machine.kind(setting.device))

    def difference(self, there: "TrialOrigin") -> str | None:
        """Return why a trial cannot go on from what has another origin; None where it can."""
        for name, here in self.same.items():
            before = there.same.get(name, "unknown")
            if before == here:
                continue
            if name in ("recipe", "weights", "data"):
                return f"it was written with another {name}"
            return f"it was written with {name} {before}, here it is {here}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint that was read."""

    origin: TrialOrigin  # of the trial that wrote it
    header: Mapping[str, Any]  # beside that
    # By their names in the file, on the CPU: views of what was read, which nobody may change.
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTrial:
    """Everything about a trial that changes while it trains."""

    progress: Progress  # how far it has come
    model: nn.Module  # all that runs, of which some parameters train
    optimizer: torch.optim.Optimizer  # of these
    schedule: torch.optim.lr_scheduler.LRScheduler  # of its learning rates
    device: torch.device  # where the model lies
    memory: machine.PeakMemory  # of this attempt

    def write(self, origin: TrialOrigin, file: BinaryIO) -> None:
        """Write it to a file that can be sought in, a tensor at a time. Raises OSError."""
        progress = self.progress
        progress.peak_mib = max(progress.peak_mib, self.memory.mib())
        results = [asdict(result) for result in progress.results]
        header = {
            "origin": asdict(origin),
            "progress": {name: getattr(progress, name) for name in _PLAIN},
            "results": results,
            "rates": [group["lr"] for group in self.optimizer.param_groups],
        }
        write_file(file, header, self._tensors())

    def restore(self, saved: Saved) -> None:
        """Take over what was saved. Raises DamagedError, and then nothing is changed."""
        self._check(saved)
        tensors = saved.tensors
        with torch.no_grad():
            for name, tensor in self._in_model().items():
                tensor.copy_(tensors[name])
        self._restore_optimizer(saved)
        self._restore_progress(saved)
        torch.set_rng_state(tensors[_RANDOM])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors[_RANDOM_GPU], self.device)

    def _trained(self) -> dict[str, nn.Parameter]:
        """Return the parameters that train, by their names in what runs."""
        trained: dict[str, nn.Parameter] = {}
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                trained[name] = parameter
        return trained

    def _in_model(self) -> dict[str, Tensor]:
        """Return what training may change in the model, by its name in the file.

        Buffers are small, and an architecture may keep sums in them.
        """
        tensors: dict[str, Tensor] = {}
        for name, parameter in self._trained().items():
            tensors[_PARAMETER + name] = parameter
        for name, buffer in self.model.named_buffers():
            tensors[_BUFFER + name] = buffer
        return tensors

    def _tensors(self) -> dict[str, Tensor]:
        tensors = self._in_model()
        for name, parameter in self._trained().items():
            # Empty for one that never had a gradient.
            state = self.optimizer.state.get(parameter, {})
            for key, value in state.items():
                tensors[f"{_OPTIMIZER}{key}/{name}"] = value
        tensors[_LOSS_SUM] = self.progress.loss_sum
        tensors[_PREDICTIONS] = torch.from_numpy(self.progress.predictions)
        tensors[_RANDOM] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors[_RANDOM_GPU] = torch.cuda.get_rng_state(self.device)
        return tensors

    def _check(self, saved: Saved) -> None:
        """Raise DamagedError unless the tensors saved are those of this trial."""
        expected = self._in_model()
        expected[_LOSS_SUM] = self.progress.loss_sum
        expected[_RANDOM] = torch.get_rng_state()
        for name, tensor in expected.items():
            there = saved.tensors.get(name)
            if there is None:
                raise DamagedError(f"it lacks {name}")
            if there.shape != tensor.shape or there.dtype != tensor.dtype:
                raise DamagedError(f"its {name} is of another shape")
        trained = self._trained()
        for name in saved.tensors:
            in_model = name.startswith((_PARAMETER, _BUFFER))
            if in_model and name not in expected:
                raise DamagedError(f"its {name} is of another model")
            if name.startswith(_OPTIMIZER) and _state_of(name)[1] not in trained:
                raise DamagedError(f"its {name} is of another model")

    def _restore_optimizer(self, saved: Saved) -> None:
        trained = self._trained()
        for name, value in saved.tensors.items():
            if not name.startswith(_OPTIMIZER):
                continue
            kind, name_of_parameter = _state_of(name)
            parameter = trained[name_of_parameter]
            # Memory as AdamW itself takes it: what was read may be aligned in another way.
            own = torch.empty_like(value, device=parameter.device)
            if value.shape == parameter.shape:
                own = torch.empty_like(parameter, requires_grad=False)
            self.optimizer.state[parameter][kind] = own.copy_(value)
        rates = saved.header["rates"]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.schedule.last_epoch = saved.header["progress"]["step"]

    def _restore_progress(self, saved: Saved) -> None:
        progress = self.progress
        # What this attempt found already, as that there is no room for a cache.
        new_notes = list(progress.notes)
        for name in _PLAIN:
            setattr(progress, name, saved.header["progress"][name])
        for note in new_notes:
            if note not in progress.notes:
                progress.notes.append(note)
        progress.loss_sum.copy_(saved.tensors[_LOSS_SUM])
        # A copy, for the file's content should not stay in memory.
        progress.predictions = saved.tensors[_PREDICTIONS].numpy().copy()
        progress.results = []
        for fields in saved.header["results"]:
            result = EvaluationResult(**fields)
            progress.results.append(replace(result, notes=tuple(result.notes)))


def _state_of(name: str) -> tuple[str, str]:
    """Return what of AdamW's state a tensor is, and of which parameter, by its name in the file."""
    kind, _, parameter = name.removeprefix(_OPTIMIZER).partition("/")
    return kind, parameter


def write_file(file: BinaryIO, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a file of safetensors, with a checksum of all of it.

    The library's own writer takes another copy of all tensors, which a trial may have no room for.
    """
    # Large elements first, as the library does: each lies where its type may lie.
    names = sorted(tensors, key=lambda name: -tensors[name].element_size())
    metadata = {_CHECKSUM: _NO_CHECKSUM, _OURS: json.dumps(header)}
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in names:
        tensor = tensors[name]
        start = end
        end = start + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    beginning = len(text).to_bytes(8, "little") + text
    file.write(beginning)
    crc = zlib.crc32(beginning)
    for name in names:
        if tensors[name].numel() == 0:
            continue
        on_cpu = tensors[name].detach().cpu().contiguous()
        data = on_cpu.reshape(-1).view(torch.uint8).numpy().data
        file.write(data)
        crc = zlib.crc32(data, crc)
    place = beginning.index(_NO_CHECKSUM.encode())
    file.seek(place)
    file.write(f"{crc:08x}".encode())


def read_file(content: bytes) -> Saved:
    """Return what a file has. Raises DamagedError for any but a complete one.

    The library's own reader takes another copy of all tensors, too.
    """
    try:
        length = int.from_bytes(content[:8], "little")
        entries = json.loads(content[8 : 8 + length])
        metadata = entries["__metadata__"]
        expected = metadata[_CHECKSUM]
        # The checksum comes first in the file: nothing before it is equal to it.
        beginning = content[: 8 + length]
        beginning = beginning.replace(expected.encode(), _NO_CHECKSUM.encode(), 1)
        data = memoryview(content)[8 + length :]
        crc = zlib.crc32(data, zlib.crc32(beginning))
        if f"{crc:08x}" != expected:
            raise DamagedError("its checksum is wrong")
        header = json.loads(metadata[_OURS])
        origin = TrialOrigin(**header["origin"])
        del entries["__metadata__"]
        tensors = _views(data, entries)
    except (DamagedError, MemoryError):
        raise
    except Exception as error:  # of JSON, of torch, and of any kind
        raise DamagedError("it is damaged") from error
    return Saved(origin=origin, header=header, tensors=tensors)


def _views(data: memoryview, entries: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors that lie in a file's data, without copying them."""
    tensors: dict[str, Tensor] = {}
    with warnings.catch_warnings(action="ignore"):  # torch warns that nobody may change them
        for name, entry in entries.items():
            start, end = entry["data_offsets"]
            numbers = torch.from_numpy(np.frombuffer(data[start:end], dtype=np.uint8))
            dtype = _BY_NAME[entry["dtype"]]
            tensors[name] = numbers.view(dtype).reshape(entry["shape"])
    return tensors


def predicted_bytes(model: ModelSpec, candidate: Candidate) -> int:
    """Return about how large a checkpoint of such a trial becomes, by the configuration alone.

    Of a trial that trains the embeddings at most: where rows of the word table are left out that
    no example uses, it is smaller.
    """
    classifier = skeleton(model)
    methods.apply(classifier, candidate)
    in_all = 0
    for parameter in classifier.parameters():
        if parameter.requires_grad:
            tensor_bytes = parameter.numel() * parameter.element_size()
            in_all += _TENSORS_EACH * (tensor_bytes + _ENTRY_BYTES) + _ENTRY_BYTES
    for buffer in classifier.buffers():
        in_all += buffer.numel() * buffer.element_size() + _ENTRY_BYTES
    return in_all + torch.get_rng_state().numel()
