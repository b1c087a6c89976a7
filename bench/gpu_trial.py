"""The single checks of bench/gpu.sh; runs on a machine with torch and transformers alone.

    python bench/gpu_trial.py speed --out OUT [--device cpu]

`--device cpu` runs the same checks small, to see that they work before a GPU is at hand.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import compiled
import machine
import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSource, ModelSpec, shipped_configuration
from elsa_tune.specs.task import EmbeddedSource, Metric, TaskKind, TaskSpec
from elsa_tune.specs.trial import Precision, Recipe, TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.data.tokens import TaskData, TokenRows
from elsa_tune.training.forward import runner

TASK = TaskSpec(
    name="made_up",
    kind=TaskKind.CLASSIFICATION,
    text_columns=("text",),
    label_column="label",
    classes=("no", "yes"),
    metric=Metric.ACCURACY,
    source=EmbeddedSource(),
)
STEPS = 40
# After which no further way is compiled: gpu.sh would end the step, and nothing would be written.
COMPILE_SECONDS = 420
STEP_NAMES = ("determinism", "memory", "speed", "compile")


def rows(count: int, seed: int) -> TokenRows:
    """Made-up tokens with RTE's lengths: a long tail around 70 of at most 128."""
    draw = np.random.default_rng(seed)
    lengths = np.clip(draw.lognormal(4.1, 0.5, count), 12, 128).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = draw.integers(1000, 20000, offsets[-1]).astype(np.int32)
    labels = draw.integers(0, 2, count).astype(np.int64)
    return TokenRows(input_ids=ids, offsets=offsets, token_type_ids=None, labels=labels)


def task_data(options: argparse.Namespace, train: int) -> TaskData:
    """The packed task, or made-up tokens."""
    if options.data:
        return TaskData.load(options.data)
    return TaskData(
        train=rows(train, 1),
        evaluation=rows(64, 2),
        companions={},
        pad_token_id=0,
        padding_side="right",
        pad_token_type_id=0,
        fingerprint="made-up",
        chance=0.5,
        notes=(),
    )


def bert_base(folder: Path, layers: int = 12, **changes: float) -> ModelSpec:
    """BERT-base's configuration with random weights: speed does not care."""
    fields = {**shipped_configuration("bert_base"), "num_hidden_layers": layers, **changes}
    config = BertConfig(**fields)
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(folder)
    return ModelSpec(name="bert_base", source=ModelSource.DIRECTORY, location=str(folder))


def trial(model: ModelSpec, frozen: int, precision: Precision) -> TrialSpec:
    """One epoch of a trial at a depth."""
    return TrialSpec(
        model=model,
        task=TASK,
        recipe=Recipe(epochs=1, precision=precision, frozen_dropout=False),
        depth=FreezeDepth.of(frozen),
        learning_rate=3e-5,
        seed=1,
    )


def determinism(model: ModelSpec, options: argparse.Namespace) -> dict[str, Any]:
    """Losses of a run, of the same again, and of one after a stopped trial: equal to the bit?"""
    data = task_data(options, 16 * 8)
    one = trial(model, 3, Precision.AUTO)

    def losses() -> list[str]:
        results = loop.train(one, data, device=options.device)
        return [value.hex() for r in results for value in (r.train_loss, r.eval_loss)]

    first, second = losses(), losses()
    stopped = loop.train(trial(model, 0, Precision.AUTO), data, device=options.device)
    next(stopped)
    stopped.close()
    return {"again": first == second, "after_a_stopped_trial": first == losses(), "losses": first}


def memory(model: ModelSpec, options: argparse.Namespace) -> dict[str, Any]:
    """Peak of a trial at each depth, what stays allocated, and halving under a small limit."""
    data = task_data(options, 16 * 4)
    found: dict[str, Any] = {}
    for frozen in (0, 6, 11):
        *_, last = loop.train(trial(model, frozen, Precision.AUTO), data, device=options.device)
        found[f"peak_mb N={frozen}"] = round(last.peak_memory_mb)
    if options.device == "cuda":
        found["left_mb"] = round(torch.cuda.memory_allocated() / 2**20, 1)
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(found["peak_mb N=0"] * 0.9 * 2**20 / total)
        *_, last = loop.train(trial(model, 0, Precision.AUTO), data, device="cuda")
        found["micro_batch_under_limit"] = last.micro_batch_size
        found["notes"] = list(last.notes)
    return found


def speed(model: ModelSpec, options: argparse.Namespace) -> dict[str, Any]:
    """Steps per second by way, precision and depth: `train_seconds` of an epoch after a warm-up.

    The ways: packed tokens with the frozen prefix from the cache, and padded batches that compute
    everything, as Transformers does.
    """
    steps = STEPS if options.device == "cuda" else 2
    data = task_data(options, 16 * steps)
    found: dict[str, Any] = {}
    cpu = options.device == "cpu"
    for precision in (Precision.FP32,) if cpu else (Precision.BF16, Precision.FP32):
        for frozen in (0, 12) if cpu else (0, 6, 9, 11, 12):
            for way in ("fast", "padded"):
                warm = dataclasses.replace(data, train=rows(32, 3))
                for each in (warm, data):
                    one = trial(model, frozen, precision)
                    with mock.patch.object(runner, "packed_doubt", _WAYS[way]):
                        *_, last = loop.train(one, each, device=options.device)
                found[f"{way} {precision.value} N={frozen}"] = {
                    "steps_per_second": round(last.steps / last.train_seconds, 2),
                    "batches": last.batches,
                    "prefix": last.prefix,
                    "peak_mb": round(last.peak_memory_mb),
                    "notes": list(last.notes),
                }
    return found


def compiling(model: ModelSpec, options: argparse.Namespace) -> dict[str, Any]:
    """Compiled steps against eager ones, and the seconds that compiling takes; with CUDA graphs
    too, which need padded batches: a graph is of one shape.
    """
    cpu = options.device == "cpu"
    count = 3 if cpu else STEPS
    data = task_data(options, 16 * count)
    ways = {"packed, blocks but for attention": compiled.WAYS["packed, blocks but for attention"]}
    if not cpu:
        graphs = compiled.Way(packed=False, options={"mode": "reduce-overhead", "dynamic": False})
        ways = {**compiled.WAYS, "padded, CUDA graphs": graphs}
    found: dict[str, Any] = {}
    started = time.monotonic()
    for frozen in (11,) if cpu else (9, 0):
        for name, way in ways.items():
            if time.monotonic() - started > COMPILE_SECONDS:
                found[f"{name} N={frozen}"] = {"failed": "no time left for it"}
                continue
            one = trial(model, frozen, Precision.AUTO)
            try:
                with compiled.empty_cache():
                    result = compiled.compare(one, data, way, options.device, count)
            except Exception as error:
                # One that the compiler cannot do must not take the others with it.
                result = {"failed": f"{type(error).__name__}: {error}"[:500]}
            found[f"{name} N={frozen}"] = result
            print(name, frozen, result, file=sys.stderr, flush=True)
    return found


_WAYS: dict[str, Any] = {"fast": runner.packed_doubt, "padded": lambda *_: "padded on purpose"}


def collect(options: argparse.Namespace) -> None:
    """Put the steps' results into one file, with the machine."""
    parts = {p.stem: json.loads(p.read_text()) for p in sorted(options.out.glob("step_*.json"))}
    content = {"note": "bench/gpu.sh", "machine": machine.describe(), "results": parts}
    (options.out / "gpu.json").write_text(json.dumps(content, indent=1) + "\n")


def pack(target: Path) -> None:
    """Tokenise RTE for BERT's vocabulary (MiniLM's tokenizer) where `datasets` is installed."""
    from elsa_tune.specs.model import resolve_model
    from elsa_tune.specs.tasks import resolve_task
    from elsa_tune.training.data.preparation import prepare

    task = resolve_task("rte", data_dir="../shared/glue")
    prepare(resolve_model("minilm"), task, Recipe(train_size=500)).save(target)


def main() -> None:
    """Run one step and write OUT/step_NAME.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", nargs="?", choices=[*STEP_NAMES, "collect"])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--pack", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.pack:
        pack(options.pack)
        return
    if options.step == "collect":
        collect(options)
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu_trial.py: no CUDA device here; --device cpu tries the checks small")
    steps = dict(zip(STEP_NAMES, (determinism, memory, speed, compiling), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        result = steps[options.step](bert_base(Path(folder) / "bert"), options)
    (options.out / f"step_{options.step}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
