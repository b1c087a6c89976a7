"""What reading frozen layers' output saves where batches stay padded.

Measured on DeBERTa-v3's and ModernBERT's architectures, twelve layers of 384, with random weights
(speed does not care).

    python bench/padded_prefix.py

Seconds per step of batch 16 with RTE's lengths, two threads, medians; with the cache and without,
step by step in turns. Writes bench/results/padded_prefix.json.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
import torch
from gpu_bench import TASK, rows
from transformers import AutoConfig, AutoModel

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSource, ModelSpec
from elsa_tune.specs.trial import Precision, PrefixCache, Recipe, TrialSpec
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.forward.prefix_store import PrefixStore
from elsa_tune.training.loop import steps

STEPS = 7
COMMON = {
    "vocab_size": 30000,
    "num_hidden_layers": 12,
    "hidden_size": 384,
    "num_attention_heads": 6,
}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "deberta-v2": {
        "intermediate_size": 1536,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
        "max_relative_positions": -1,
    },
    "modernbert": {"intermediate_size": 1024, "pad_token_id": 0, "classifier_pooling": "mean"},
}


def main() -> None:
    """Measure both architectures at N = 6, 9 and 12."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ELSA_TUNE_CACHE"] = f"{scratch}/cache"
        for name, fields in CONFIGURATIONS.items():
            folder = Path(scratch) / name
            torch.manual_seed(0)
            config = AutoConfig.for_model(name, **COMMON, **fields)
            AutoModel.from_config(config).save_pretrained(folder)
            model = ModelSpec(name=name, source=ModelSource.DIRECTORY, location=str(folder))
            for n in (6, 9, 12):
                results[f"{name} N={n}"] = _seconds(model, n)
                print(name, n, results[f"{name} N={n}"], flush=True)
    note = (
        "seconds per step, batch 16, RTE's lengths, fp32, two threads, medians; prefix built before"
    )
    print(machine.write("padded_prefix", results, note))


def _seconds(model: ModelSpec, n: int) -> dict[str, float]:
    data = TaskData(
        train=rows(16 * 4, 1),
        evaluation=rows(32, 2),
        companions={},
        pad_token_id=0,
        padding_side="right",
        pad_token_type_id=0,
        fingerprint="made-up",
        chance=0.5,
        notes=(),
    )
    training = {}
    for cache in (PrefixCache.FP32, PrefixCache.NONE):
        trial = TrialSpec(
            model=model,
            task=TASK,
            recipe=Recipe(epochs=1, precision=Precision.FP32, prefix_cache=cache),
            candidate=FreezeDepth.of(n),
            learning_rate=3e-5,
            seed=1,
        )
        training[cache.value] = steps(trial, data, device="cpu")
        next(training[cache.value])
        kept = [entry for entry in PrefixStore().entries() if model.name in entry.what]
        if cache is PrefixCache.FP32 and not kept:
            raise RuntimeError(f"{model.name} does not read its frozen layers' output")
    found: dict[str, list[float]] = {name: [] for name in training}
    for _ in range(STEPS):
        for name, one in training.items():
            started = time.perf_counter()
            next(one)
            found[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(times) for name, times in found.items()}
    for one in training.values():
        one.close()
    return {
        "read": round(medians["fp32"], 3),
        "computed": round(medians["none"], 3),
        "times_faster": round(medians["none"] / medians["fp32"], 1),
    }


if __name__ == "__main__":
    main()
