"""Packed rows or padded batches: where a model runs on both, a few steps of each decide, once."""

import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import transformers

from elsa_tune.files import cache_dir, write_aside
from elsa_tune.training import machine
from elsa_tune.training.data.tokens import IndexArray, TaskData
from elsa_tune.training.forward.equality import Setting
from elsa_tune.training.forward.prefix_store import PrefixStore
from elsa_tune.training.model.encoder import unchanged_checkpoint

if TYPE_CHECKING:
    from elsa_tune.training.forward.runner import Runner

_TIMED_ON = ("cuda",)  # on a CPU, which waits for no launches, packed rows are always faster
_STEPS, _WARM = 12, 3  # the first ones do not count
# The two round differently. Unless padding is faster by this much, chance would decide which of
# two equally good losses a trial has.
_CLEARLY = 0.9

# A runner for other data of the task, on padded batches if there is a reason.
Build = Callable[[TaskData, str | None], "Runner"]


def padding_is_faster(build: Build, data: TaskData, setting: Setting) -> str | None:
    """Why to train this depth on padded batches rather than on packed rows; None for packed rows.

    Timed once on this machine for each checkpoint, task, depth and way to run, and remembered; who
    wants to know meanwhile waits. Packed rows stay where a step fails or has no deterministic form,
    where nothing can be remembered, and where the embeddings train: packed rows alone do without
    the words that no example uses.
    """
    depth, recipe, kind = setting.depth, setting.recipe, setting.device.type
    if kind not in _TIMED_ON or not depth.embeddings_frozen:
        return None
    path = cache_dir() / f"steps-{machine.identity(kind)}.json"
    way = (recipe.batch_size, recipe.pooling, recipe.prefix_cache, recipe.frozen_dropout)
    try:
        asked = (transformers.__version__, unchanged_checkpoint(), data.fingerprint, depth.label)
        key = " ".join(map(str, (*asked, setting.precision, *way)))
        if key not in (known := _known(path)):
            with PrefixStore().building(path.stem):
                if key not in (known := _known(path)):
                    try:
                        known[key] = _share(build, data, setting)
                    except RuntimeError:  # out of memory, for one
                        known[key] = math.inf
                    # What was kept for it is not the trial's, nor is the highest use of memory.
                    machine.release()
                    machine.PeakMemory(setting.device)
                    write_aside(path, json.dumps(known, indent=1).encode())
    except OSError:
        return None
    share = known[key]
    if share >= _CLEARLY:
        return None
    return f"on this GPU a step takes {100 * share:.0f} % of the time that packed rows take"


def _known(path: Path) -> dict[str, float]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _share(build: Build, data: TaskData, setting: Setting) -> float:
    """Seconds of a step on padded batches, of those on packed rows: medians of steps in turn."""
    size = min(setting.recipe.batch_size, len(data.train))
    drawn = np.random.default_rng(0).permutation(len(data.train))[: size * _STEPS]
    batches = np.arange(len(drawn) // size * size).reshape(-1, size)
    # Also what stands for the evaluation: what is found equal on it is not asked again.
    rows = data.train.take(drawn)
    few = replace(data, train=rows, evaluation=rows, companions={}, holdout=None)
    runners: list[Runner] = []
    seconds: tuple[list[float], list[float]] = ([], [])
    try:
        for why in (None, "it is timed"):
            runners.append(build(few, why))
            if machine.made_strict(partial(_step, runners[-1], batches[0]), setting.device):
                return math.inf
        for number in range(_STEPS):
            for runner, times in zip(runners, seconds, strict=True):
                started = time.perf_counter()
                _step(runner, batches[number % len(batches)])
                times.append(time.perf_counter() - started)
    finally:
        for runner in runners:
            runner.model.zero_grad(set_to_none=True)
            runner.close()
        torch.use_deterministic_algorithms(True, warn_only=True)
    packed, padded = (statistics.median(times[_WARM:]) for times in seconds)
    return padded / packed


def _step(runner: "Runner", rows: IndexArray) -> None:
    """Forwards and backwards; the optimiser's step is the same for both."""
    runner.train(True)
    logits, _ = runner.logits("train", rows)
    logits.sum().backward()
    if logits.is_cuda:
        torch.cuda.synchronize()
