"""The steps of bench/gpu.sh; each runs on a machine with torch and transformers alone.

    python bench/gpu_trial.py speed --out OUT [--data TASK.pickle] [--tiny]

Every step writes OUT/step_NAME.json anew after each thing it has measured, so that a limit or a
failure loses nothing, and begins no further one after LIMIT_SECONDS. `--tiny` runs all of it on a
CPU with a model of toy size, which measures nothing and shows that the steps work.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import machine
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile
from transformers import BertConfig, BertForSequenceClassification

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSource, ModelSpec, shipped_configuration
from elsa_tune.specs.task import EmbeddedSource, Metric, TaskKind, TaskSpec
from elsa_tune.specs.trial import Precision, PrefixCache, Recipe, TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.data.tokens import TaskData, TokenRows, pad_batch
from elsa_tune.training.forward import runner, timing
from elsa_tune.training.machine import usable_cores
from elsa_tune.training.model.encoder import load_classifier
from elsa_tune.training.model.parts import freeze
from elsa_tune.training.throughput import Division, measure

TASK = TaskSpec(
    name="made_up",
    kind=TaskKind.CLASSIFICATION,
    text_columns=("text",),
    label_column="label",
    classes=("no", "yes"),
    metric=Metric.ACCURACY,
    source=EmbeddedSource(),
)
LIMIT_SECONDS = 420.0
RTE = 2490, 277  # its training and evaluation rows
GRID = (0, 3, 6, 8, 9, 10, 11, 12)
SEEDS = 5


def rows(count: int, seed: int) -> TokenRows:
    """Made-up tokens with RTE's lengths: a long tail around 70 of at most 128."""
    draw = np.random.default_rng(seed)
    lengths = np.clip(draw.lognormal(4.1, 0.5, count), 12, 128).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = draw.integers(1000, 20000, offsets[-1]).astype(np.int32)
    labels = draw.integers(0, 2, count).astype(np.int64)
    return TokenRows(input_ids=ids, offsets=offsets, token_type_ids=None, labels=labels)


class Bench:
    """One step under way: its options, its model, and what it has found so far."""

    def __init__(self, name: str, options: argparse.Namespace, scratch: Path) -> None:
        self.tiny, self.out, self._data = options.tiny, options.out, options.data
        self.device = "cpu" if options.tiny else "cuda"
        self.depths = (0, 2) if options.tiny else (0, 6, 9, 12)
        self.grid = (0, 2) if options.tiny else GRID
        self.found: dict[str, Any] = {}
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
        """The pickled task, or made-up tokens."""
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
            depth=FreezeDepth.of(frozen),
            learning_rate=3e-5,
            seed=1,
        )

    def record(self, name: str, what: Callable[[], Any]) -> None:
        """Do one thing, and write what was found, its error included."""
        if time.monotonic() - self._started > LIMIT_SECONDS:
            self.found[name] = "no time was left for it"
        else:
            try:
                self.found[name] = what()
            except Exception as error:  # the next thing may work
                self.found[name] = {"failed": f"{type(error).__name__}: {error}"[:800]}
        print(name, json.dumps(self.found[name])[:600], flush=True)
        content = {"machine": machine.describe(), "results": self.found}
        self._path.write_text(json.dumps(content, indent=1) + "\n")

    def synchronise(self) -> None:
        """Wait for the GPU."""
        if self.device == "cuda":
            torch.cuda.synchronize()


# ---- ways to run a training step ----


@contextlib.contextmanager
def stepping(bench: Bench, way: str, frozen: int) -> Iterator[Callable[[], object]]:
    """A function that takes one training step: `packed` with what a search would run, `padded` from
    the first layer on.
    """
    cache = PrefixCache.FP32 if way == "packed" else PrefixCache.NONE
    doubt = {"packed": runner.packed_doubt, "padded": lambda *_: "on purpose"}[way]
    with (
        mock.patch.object(runner, "packed_doubt", doubt),
        mock.patch.object(runner, "padding_is_faster", lambda *_: None),
    ):
        steps = loop.steps(
            bench.trial(frozen, prefix_cache=cache), bench.data(), device=bench.device
        )
        next(steps)
    with contextlib.closing(steps):
        yield lambda: next(steps)


def milliseconds_a_step(bench: Bench, step: Callable[[], object]) -> dict[str, float]:
    """Of steady state: the queue is only waited for after every block of steps."""
    blocks, size = (2, 1) if bench.tiny else (10, 20)
    for _ in range(2 if bench.tiny else 40):
        step()
    bench.synchronise()
    times = []
    for _ in range(blocks):
        started = time.perf_counter()
        for _ in range(size):
            step()
        bench.synchronise()
        times.append((time.perf_counter() - started) / size * 1e3)
    return {"median_ms": round(statistics.median(times), 3), "slowest_ms": round(max(times), 3)}


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Training rows by number, as the Trainer asks for them."""

    def __init__(self, data: TaskData, split: TokenRows) -> None:
        self._data, self._rows = data, split

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"number": number}

    def collate(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """A padded batch, as Transformers' own collator makes it."""
        numbers = [item["number"] for item in items]
        labels = torch.from_numpy(self._rows.labels[numbers])
        return {**pad_batch(self._rows, numbers, self._data).inputs, "labels": labels}


def trainer(bench: Bench, frozen: int, seed: int, epochs: float, steps: int = -1) -> Any:
    """Transformers' Trainer with what a user would write, and nothing saved or reported."""
    from transformers import Trainer, TrainingArguments

    data = bench.data()
    trial = bench.trial(frozen)
    model = load_classifier(trial.model, 2, seed, trial.depth)
    freeze(model, trial.depth)
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


def trainers_milliseconds(bench: Bench, frozen: int) -> dict[str, float]:
    """Its steps after the first ones, from one callback to the next."""
    from transformers import TrainerCallback

    skipped, counted = (1, 2) if bench.tiny else (40, 200)
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *given: Any, **named: Any) -> None:
            if len(ends) in (skipped - 1, skipped + counted - 1):
                bench.synchronise()
            ends.append(time.perf_counter())

    one = trainer(bench, frozen, seed=1, epochs=1.0, steps=skipped + counted)
    one.add_callback(Clock())
    one.train()
    return {"mean_ms": round((ends[-1] - ends[skipped - 1]) / counted * 1e3, 3)}


# ---- the steps ----


def facts(bench: Bench) -> None:
    """What is here, which attention kernel torch chooses, how many launches a step has, and for how
    much of it the GPU is busy.
    """
    bench.record("versions", _versions)
    if bench.device == "cuda":
        bench.record("attention chosen", _choices)
        bench.record("seconds of cuDNN's plans", _plans)
    for way, frozen in itertools.product(("packed", "padded"), bench.depths):
        bench.record(f"{way} N={frozen}", lambda way=way, n=frozen: _profiled(bench, way, n))
    # With nothing frozen packed rows stay.
    for precision, frozen in itertools.product((Precision.AUTO, Precision.FP32), bench.depths[1:]):
        key = f"padded of packed in {precision.value}, N={frozen}"
        bench.record(key, lambda n=frozen, p=precision: _padded_of_packed(bench, n, p))


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    if torch.cuda.is_available():
        found["capability"] = torch.cuda.get_device_capability()
        found["memory_gib"] = round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1)
        smi = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False)
        found["nvidia-smi"] = smi.stdout.splitlines()
    return found


def _shaped(rows: int, width: int, dtype: torch.dtype, masked: bool) -> dict[str, Any]:
    q, k, v = (
        torch.randn(rows, 12, width, 64, device="cuda", dtype=dtype, requires_grad=True)
        for _ in range(3)
    )
    mask = torch.zeros(rows, 1, 1, width, device="cuda", dtype=dtype) if masked else None
    return {"query": q, "key": k, "value": v, "attn_mask": mask}


def _choices() -> dict[str, str]:
    found = {}
    for cudnn, dtype, masked, dropout in itertools.product(
        (True, False), (torch.bfloat16, torch.float32), (True, False), (0.0, 0.1)
    ):
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        chosen = torch._fused_sdp_choice(**_shaped(16, 128, dtype, masked), dropout_p=dropout)
        key = f"cudnn {cudnn}, {dtype}, mask {masked}, dropout {dropout}"
        found[key] = SDPBackend(chosen).name
    torch.backends.cuda.enable_cudnn_sdp(True)
    return found


def _plans() -> list[float]:
    seconds = []
    for width in (72, 88, 104):
        given = _shaped(16, width, torch.bfloat16, True)
        started = time.perf_counter()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            scaled_dot_product_attention(**given).sum().backward()
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - started, 3))
    return seconds


def _padded_of_packed(bench: Bench, frozen: int, precision: Precision) -> float:
    """A step's time on padded batches behind the kept prefix, of that on packed rows: what decides
    how a trial trains.
    """
    trial = bench.trial(frozen, precision=precision)
    room = (lambda device: 2**40) if bench.tiny else runner.room
    with (
        tempfile.TemporaryDirectory() as cache,
        mock.patch.object(runner, "room", room),
        mock.patch.dict(os.environ, ELSA_TUNE_CACHE=cache),
        mock.patch.object(timing, "_TIMED_ON", (bench.device,)),
        contextlib.closing(loop.steps(trial, bench.data(), device=bench.device)) as steps,
    ):
        next(steps)
        [path] = Path(cache).glob("steps-*.json")
        [share] = json.loads(path.read_text()).values()
    return round(share, 3)


def _profiled(bench: Bench, way: str, frozen: int) -> dict[str, Any]:
    count = 2 if bench.tiny else 10
    kind = ProfilerActivity.CPU if bench.tiny else ProfilerActivity.CUDA
    with stepping(bench, way, frozen) as step:
        for _ in range(count):
            step()
        bench.synchronise()
        with profile(activities=[kind]) as seen:
            started = time.perf_counter()
            for _ in range(count):
                step()
            bench.synchronise()
            seconds = time.perf_counter() - started
    on_gpu = torch.autograd.DeviceType.CUDA
    events = [event for event in seen.events() if bench.tiny or event.device_type == on_gpu]
    busy = sum(event.time_range.elapsed_us() for event in events) / 1e6
    return {
        "launches_a_step": round(len(events) / count),
        "ms_a_step_profiled": round(seconds / count * 1e3, 3),
        "busy_share": round(busy / seconds, 3),
        "most": dict(Counter(event.name[:80] for event in events).most_common(12)),
    }


def speed(bench: Bench) -> None:
    """Milliseconds a step by way and depth, beside Transformers' Trainer; and with cuDNN's
    attention, which trials turn off.
    """

    def timed(way: str, frozen: int) -> dict[str, Any]:
        with stepping(bench, way, frozen) as step:
            return milliseconds_a_step(bench, step)

    for frozen in bench.depths:
        bench.record(f"packed N={frozen}", lambda n=frozen: timed("packed", n))
        bench.record(f"padded N={frozen}", lambda n=frozen: timed("padded", n))
    for frozen in bench.depths:
        bench.record(f"Trainer N={frozen}", lambda n=frozen: trainers_milliseconds(bench, n))
    if bench.device == "cuda":
        keep = mock.patch.object(torch.backends.cuda, "enable_cudnn_sdp", lambda enabled: None)
        for frozen in bench.depths:
            with keep:
                bench.record(f"padded, cuDNN on, N={frozen}", lambda n=frozen: timed("padded", n))


def determinism(bench: Bench) -> None:
    """Losses of a run, of the same again, and of one after a stopped trial: equal to the bit? In
    strict mode, and where torch only warns.
    """
    data = bench.data(16 * 8, 64)

    def losses(trial: TrialSpec) -> list[str]:
        results = list(loop.train(trial, data, device=bench.device))
        bench.found[f"notes of {trial.key}"] = list(results[-1].notes)
        return [value.hex() for r in results for value in (r.train_loss, r.eval_loss)]

    def equal(precision: Precision, frozen: int) -> dict[str, Any]:
        trial = bench.trial(frozen, precision=precision)
        first, second = losses(trial), losses(trial)
        stopped = loop.train(bench.trial(0), data, device=bench.device)
        next(stopped)
        stopped.close()
        return {"again": first == second, "after_a_stopped_trial": first == losses(trial)}

    cases = list(itertools.product((Precision.AUTO, Precision.FP32), bench.depths[:2]))
    for precision, frozen in cases[-1:] if bench.tiny else cases:
        key = f"{precision.value} N={frozen}"
        bench.record(f"strict {key}", lambda p=precision, n=frozen: equal(p, n))
        with mock.patch.object(loop.machine, "made_strict", lambda *_: None):
            bench.record(f"warning {key}", lambda p=precision, n=frozen: equal(p, n))


def memory(bench: Bench) -> None:
    """Peak of a trial at each depth, what stays allocated, and halving under a small limit."""
    data = bench.data(16 * 4, 64)

    def last(frozen: int) -> Any:
        *_, result = loop.train(bench.trial(frozen), data, device=bench.device)
        return result

    for frozen in bench.depths:
        bench.record(f"peak_mb N={frozen}", lambda n=frozen: round(last(n).peak_memory_mb))
    if bench.device == "cpu":
        return
    bench.record("left_mb", lambda: round(torch.cuda.memory_allocated() / 2**20, 1))

    def limited(share: float) -> dict[str, Any]:
        total = torch.cuda.get_device_properties(0).total_memory
        allowed = bench.found["peak_mb N=0"] * share * 2**20
        torch.cuda.set_per_process_memory_fraction(allowed / total)
        try:
            result = last(0)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return {"micro_batch": result.micro_batch_size, "notes": list(result.notes)}

    for share in (1.2, 1.0, 0.9):
        bench.record(f"limited to {share} of the peak", lambda share=share: limited(share))


def grid(bench: Bench) -> None:
    """40 trials on RTE-shaped data, three epochs each, one after another in this process; then the
    Trainer, one at each depth.
    """
    data = bench.data()

    def whole(frozen: int, seed: int) -> dict[str, Any]:
        started = time.perf_counter()
        trial = replace(bench.trial(frozen, epochs=1 if bench.tiny else 3), seed=seed)
        *_, result = loop.train(trial, data, device=bench.device, depths=bench.grid)
        seconds = time.perf_counter() - started
        found = {"seconds": round(seconds, 3), "training": round(result.train_seconds, 3)}
        return {**found, "batches": result.batches}

    def trainers(frozen: int) -> dict[str, float]:
        started = time.perf_counter()
        one = trainer(bench, frozen, seed=1, epochs=1.0 if bench.tiny else 3.0)
        one.train()
        one.evaluate()
        return {"seconds": round(time.perf_counter() - started, 3)}

    for frozen, seed in itertools.product(bench.grid, range(1, 2 if bench.tiny else SEEDS + 1)):
        bench.record(f"N={frozen} s={seed}", lambda n=frozen, s=seed: whole(n, s))
    for frozen in bench.grid:
        bench.record(f"Trainer N={frozen}", lambda n=frozen: trainers(n))


def shares(bench: Bench) -> None:
    """Tokens a second of several trials on one GPU, each a process with a share of it."""

    def together(frozen: int, trials: int) -> dict[str, float]:
        division = Division(trials=trials, threads=max(1, usable_cores() // trials))
        seconds = 0.1 if bench.tiny else 15.0
        training = (bench.trial(frozen), bench.data())
        [found] = measure([training], division, bench.device, seconds)
        tokens, peak = round(found.tokens_per_second), round(found.peak_memory_mb)
        return {"tokens_per_second": tokens, "peak_mb": peak}

    for frozen, trials in [(2, 2)] if bench.tiny else itertools.product((0, 9), (1, 2, 4)):
        bench.record(f"{trials} trials, N={frozen}", lambda n=frozen, k=trials: together(n, k))


STEPS = {step.__name__: step for step in (facts, speed, determinism, memory, grid, shares)}


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.tiny and not torch.cuda.is_available():
        sys.exit("gpu_trial.py: no CUDA device here; --tiny shows on a CPU that the steps work")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ELSA_TUNE_CACHE"] = f"{scratch}/cache"
        STEPS[options.step](Bench(options.step, options, Path(scratch)))


if __name__ == "__main__":
    main()
