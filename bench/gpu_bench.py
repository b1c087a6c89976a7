"""What the steps of bench/gpu.sh share: what they train on, ways to take a training step, clocks.

Needs torch, transformers, numpy and safetensors; the Trainer's part also accelerate.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import machine
import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import BertConfig, BertForSequenceClassification

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSource, ModelSpec, shipped_configuration
from elsa_tune.specs.task import EmbeddedSource, Metric, TaskKind, TaskSpec
from elsa_tune.specs.trial import Precision, PrefixCache, Recipe, TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.adapt import methods
from elsa_tune.training.data.batches import pad_batch
from elsa_tune.training.data.tokens import TaskData, TokenRows
from elsa_tune.training.forward import runner
from elsa_tune.training.machine import reproducible, torch_device
from elsa_tune.training.model.encoder import load_classifier

TASK = TaskSpec(
    name="made_up",
    kind=TaskKind.CLASSIFICATION,
    text_columns=("text",),
    label_column="label",
    classes=("no", "yes"),
    metric=Metric.ACCURACY,
    source=EmbeddedSource(),
)
RTE = 2490, 277  # its training and evaluation rows
GRID = (0, 3, 6, 8, 9, 10, 11, 12)
# Of a step's limit: behind it nothing new is begun.
BEGUN_WITHIN = 0.85
PACKAGES = ("numpy", "safetensors", "huggingface_hub", "tokenizers", "accelerate", "pytest")
MOST_KERNELS = 15
NEEDS_GPU = "needs a GPU"
# Seconds after which a clock stops, with fewer steps than it would take: some hosts are slow.
WARM_UP, MEASURED = 0.7, 1.5


def rows(count: int, seed: int) -> TokenRows:
    """Made-up tokens with RTE's lengths: a long tail around 70 of at most 128."""
    draw = np.random.default_rng(seed)
    lengths = np.clip(draw.lognormal(4.1, 0.5, count), 12, 128).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = draw.integers(1000, 20000, offsets[-1]).astype(np.int32)
    labels = draw.integers(0, 2, count).astype(np.int64)
    return TokenRows(input_ids=ids, offsets=offsets, token_type_ids=None, labels=labels)


class Bench:
    """One step under way: its options, its model, and what it has found so far.

    sharing: the depths that several trials a GPU are measured at; grid: those of a search. imports:
    seconds from the process's start to this.
    """

    def __init__(self, name: str, options: argparse.Namespace, scratch: Path) -> None:
        self.imports = _seconds_since_start()
        self.tiny, self.device, self._data = options.tiny, options.device, options.data
        self.depths = (0, 2) if options.tiny else (0, 6, 9, 12)
        self.sharing = (0, 2) if options.tiny else (0, 9)
        self.grid = (0, 2) if options.tiny else GRID
        self.found: dict[str, Any] = {}
        self.limit: float = options.limit
        self._path = options.out / f"step_{name}.json"
        self._started = time.monotonic()
        self.model = self._bert(scratch / "bert")

    def _bert(self, folder: Path) -> ModelSpec:
        """BERT-base's configuration with random weights: speed does not care."""
        fields = shipped_configuration("bert_base")
        if self.tiny:
            fields |= {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
            fields |= {"intermediate_size": 64}
        torch.manual_seed(0)
        BertForSequenceClassification(BertConfig(**fields)).save_pretrained(folder)
        return ModelSpec(name="bert_base", source=ModelSource.DIRECTORY, location=str(folder))

    def data(self, train: int = RTE[0], evaluation: int = RTE[1]) -> TaskData:
        """Return the pickled task, or made-up tokens."""
        if self._data:
            data: TaskData = pickle.loads(self._data.read_bytes())
            return data
        if self.tiny:
            train, evaluation = min(train, 48), min(evaluation, 16)
        return TaskData(
            train=rows(train, 1),
            evaluation=rows(evaluation, 2),
            companions={},
            pad_token_id=0,
            padding_side="right",
            pad_token_type_id=0,
            fingerprint="made-up",
            chance=0.5,
        )

    def trial(self, frozen: int, **recipe: Any) -> TrialSpec:
        """One epoch of a trial at a depth."""
        fields = {"epochs": 1, "precision": Precision.AUTO, **recipe}
        return TrialSpec(
            model=self.model,
            task=TASK,
            recipe=Recipe(**fields),
            candidate=FreezeDepth.of(frozen),
            learning_rate=3e-5,
            seed=1,
        )

    def record(self, name: str, what: Callable[[], Any]) -> None:
        """Do one thing, and write what was found, its error included.

        A thing may also yield what it finds, a dictionary at a time: each is written at once.
        """
        if time.monotonic() - self._started > BEGUN_WITHIN * self.limit:
            self._keep(name, "no time was left for it")
            return
        try:
            result = what()
            if not isinstance(result, Iterator):
                self._keep(name, result)
                return
            for part in result:
                self._keep(name, {**self.found.get(name, {}), **part}, part)
        except Exception as error:  # the next thing may work
            failed = {"failed": f"{type(error).__name__}: {error}"[:800]}
            self._keep(name, {**self.found.get(name, {}), **failed}, failed)

    def _keep(self, name: str, found: Any, shown: Any = None) -> None:
        self.found[name] = found
        print(name, json.dumps(found if shown is None else shown)[:600], flush=True)
        content = {"machine": machine.describe(), "results": self.found}
        self._path.write_text(json.dumps(content, indent=1) + "\n")

    def synchronise(self) -> None:
        """Wait for the GPU."""
        if self.device == "cuda":
            torch.cuda.synchronize()


def _seconds_since_start() -> float:
    """Of this process."""
    # proc(5): the 22nd field of stat, behind a name in brackets.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def versions() -> dict[str, Any]:
    """Of what a step runs on, and the GPU as its driver sees it."""
    found: dict[str, Any] = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    if torch.cuda.is_available():
        found["capability"] = torch.cuda.get_device_capability()
        found["memory_gib"] = round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1)
        with contextlib.suppress(FileNotFoundError):
            smi = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False)
            found["nvidia-smi"] = smi.stdout.splitlines()
    return found


# ---- ways to take a training step ----


@contextlib.contextmanager
def running(
    bench: Bench, frozen: int, way: str = "packed", batch_size: int = 16
) -> Iterator[loop._Run]:
    """Yield a trial before its first step.

    way: `packed` as a search would run it, or `padded` from the first layer on.
    """
    cache = PrefixCache.FP32 if way == "packed" else PrefixCache.NONE
    doubt = {"packed": runner.packed_doubt, "padded": lambda *_: "on purpose"}[way]
    trial = bench.trial(frozen, prefix_cache=cache, batch_size=batch_size)
    where = torch_device(bench.device)
    with contextlib.ExitStack() as stack:
        stack.enter_context(reproducible(trial.seed, where, trial.recipe.precision))
        with mock.patch.object(runner, "packed_doubt", doubt):
            run = stack.enter_context(contextlib.closing(loop._Run(trial, bench.data(), where)))
        run.runner.train(True)
        yield run


def batches_of(run: loop._Run) -> Iterator[np.ndarray]:
    """Yield the rows of one training step after the other, without end."""
    return loop.shuffled_batches(run.trial, len(run.data.train))


def steps_of(run: loop._Run) -> Callable[[], object]:
    """Return a function that takes the next training step."""
    batches = batches_of(run)
    return lambda: run.step(next(batches))


@contextlib.contextmanager
def stepping(bench: Bench, frozen: int, way: str = "packed") -> Iterator[Callable[[], object]]:
    """Yield what takes the next step: `running` for who wants steps alone."""
    with running(bench, frozen, way) as run:
        yield steps_of(run)


def not_strict() -> contextlib.AbstractContextManager[object]:
    """Trials that begin within only warn where torch may add up in any order."""
    return mock.patch.object(loop.machine, "try_deterministic", lambda *_: None)


def cudnn_on() -> contextlib.AbstractContextManager[object]:
    """Leave cuDNN's attention as torch has it to trials that begin within.

    A strict one never uses it: that takes `not_strict` too.
    """
    return mock.patch.object(torch.backends.cuda, "enable_cudnn_sdp", lambda enabled: None)


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Training rows by number, as the Trainer asks for them."""

    def __init__(self, data: TaskData, split: TokenRows) -> None:
        self._data, self._rows = data, split

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"number": number}

    def collate(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a padded batch, as Transformers' own collator makes it."""
        numbers = [item["number"] for item in items]
        labels = torch.from_numpy(self._rows.labels[numbers])
        return {**pad_batch(self._rows, numbers, self._data).inputs, "labels": labels}


def trainer(bench: Bench, frozen: int, seed: int, epochs: float, steps: int = -1) -> Any:
    """Return Transformers' Trainer with what a user would write, and nothing saved or reported."""
    from transformers import Trainer, TrainingArguments

    data = bench.data()
    trial = bench.trial(frozen)
    model = load_classifier(trial.model, 2, seed)
    methods.apply(model, trial.candidate)
    train, evaluation = Rows(data, data.train), Rows(data, data.evaluation)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        num_train_epochs=epochs,
        max_steps=steps,
        bf16=bench.device == "cuda",
        use_cpu=bench.device == "cpu",
        seed=seed,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        remove_unused_columns=False,
        disable_tqdm=True,
    )
    return Trainer(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=evaluation,
        data_collator=train.collate,
    )


# ---- clocks ----


def in_steady_state(bench: Bench, step: Callable[[], object]) -> dict[str, float]:
    """Milliseconds a step, the queue waited for only after every block of steps."""
    blocks, size = (2, 1) if bench.tiny else (10, 20)
    _warm_up(step, 2 if bench.tiny else 40)
    bench.synchronise()
    times: list[float] = []
    while len(times) < blocks and sum(times) * size < MEASURED * 1e3:
        started = time.perf_counter()
        for _ in range(size):
            step()
        bench.synchronise()
        times.append((time.perf_counter() - started) / size * 1e3)
    return {"median_ms": round(statistics.median(times), 3), "slowest_ms": round(max(times), 3)}


def _warm_up(step: Callable[[], object], most: int) -> None:
    """Take steps until so many are done, or a host has been slow for long enough."""
    ends = time.perf_counter() + WARM_UP
    for _ in range(most):
        step()
        if time.perf_counter() > ends:
            return


def one_by_one(bench: Bench, step: Callable[[], object]) -> dict[str, float]:
    """Return the median milliseconds of a step that begins with an empty queue.

    host_ms: until all of it is queued. all_ms: until the GPU is done. Where the two are equal, the
    host is the limit. (With many steps queued they always are: the host waits for a full queue.)
    """
    _warm_up(step, 2 if bench.tiny else 10)
    queued: list[float] = []
    done: list[float] = []
    while len(done) < (2 if bench.tiny else 20) and sum(done) < MEASURED * 1e3:
        bench.synchronise()
        started = time.perf_counter()
        step()
        queued.append((time.perf_counter() - started) * 1e3)
        bench.synchronise()
        done.append((time.perf_counter() - started) * 1e3)
    return {
        "host_ms": round(statistics.median(queued), 3),
        "all_ms": round(statistics.median(done), 3),
    }


def clocked(bench: Bench, step: Callable[[], object]) -> dict[str, float]:
    """Both: what a step takes in the long run, and how much of one is the host's."""
    return {**in_steady_state(bench, step), **one_by_one(bench, step)}


def by_kernel(bench: Bench, step: Callable[[], object]) -> dict[str, Any]:
    """Return what the GPU does in a step, by kernel.

    That is launches, milliseconds in all, the share of the time, and the kernels that take most of
    it, each with microseconds and launches a step. (On a CPU: torch's operations, each with those
    that it calls.)
    """
    on_gpu = bench.device == "cuda"
    count = 2 if bench.tiny else 10
    kind = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    for _ in range(count):
        step()
    bench.synchronise()
    with profile(activities=[kind]) as seen:
        started = time.perf_counter()
        for _ in range(count):
            step()
        bench.synchronise()
        milliseconds = (time.perf_counter() - started) * 1e3
    spent: defaultdict[str, list[float]] = defaultdict(list)
    for event in seen.events():
        if not on_gpu or event.device_type == torch.autograd.DeviceType.CUDA:
            spent[event.name].append(event.time_range.elapsed_us())
    most = sorted(spent.items(), key=lambda item: -sum(item[1]))[:MOST_KERNELS]
    gpu_ms = sum(sum(times) for times in spent.values()) / 1e3
    return {
        "launches": round(sum(len(times) for times in spent.values()) / count),
        "gpu_ms": round(gpu_ms / count, 4),
        "ms_profiled": round(milliseconds / count, 3),
        "busy_share": round(gpu_ms / milliseconds, 3),
        "most": {
            name[:90]: {"us": round(sum(times) / count, 1), "launches": len(times) / count}
            for name, times in most
        },
        "attention": sorted({name[:90] for name in spent if _attends(name)}),
    }


def by_call(bench: Bench, step: Callable[[], object]) -> dict[str, Any]:
    """Return what the host does in a step, by operation, slower by what the profiler adds.

    A call's time is its own, without the operations that it calls: `cudaLaunchKernel` is the
    driver's.
    """
    count = 2 if bench.tiny else 10
    for _ in range(count):
        step()
    bench.synchronise()
    kinds = [ProfilerActivity.CPU]
    if bench.device == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    with profile(activities=kinds) as seen:
        for _ in range(count):
            step()
        bench.synchronise()
    calls = sorted(seen.key_averages(), key=lambda call: -call.self_cpu_time_total)
    return {
        call.key[:60]: {
            "us": round(call.self_cpu_time_total / count, 1),
            "calls": call.count / count,
        }
        for call in calls[:MOST_KERNELS]
    }


def _attends(kernel: str) -> bool:
    words = ("attention", "cudnn", "flash", "fmha", "sdpa")
    return any(word in kernel.lower() for word in words)
