"""Packed rows or padded batches: where a model runs on both, a few steps of each decide, once."""

import contextlib
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from filelock import FileLock

from elsa_tune.files import cache_dir, write_aside
from elsa_tune.training import machine
from elsa_tune.training.data.tokens import IndexArray, TaskData
from elsa_tune.training.forward.equality import Setting
from elsa_tune.training.model.encoder import unchanged_checkpoint

if TYPE_CHECKING:
    from elsa_tune.training.forward.runner import Runner

# On a CPU, which never waits for launches, packed rows have always been faster.
_TIMED_ON = ("cuda",)
# Of these steps the first ones do not count.
_STEPS, _WARM = 12, 3
# The two round differently. Unless padding is faster by this much, chance would decide which of
# two equally good losses a trial has.
_CLEARLY = 0.9


def padding_is_faster(
    build: Callable[[TaskData, str | None], "Runner"], data: TaskData, setting: Setting
) -> str | None:
    """Why to train this depth on padded batches rather than on packed rows; None for packed rows.

    Timed once on this machine for each checkpoint, task, depth and way of training, and remembered;
    trials that share a GPU wait for the one that times. build: a runner for other data of the task,
    on padded batches if there is a reason. Packed rows stay where the steps do not fit in memory,
    where nothing can be remembered, and where padded batches have no deterministic form.
    """
    if setting.device.type not in _TIMED_ON:
        return None
    path = cache_dir() / f"steps-{machine.identity(setting.device.type)}.json"
    try:
        way = (setting.depth.label, setting.precision, setting.recipe)
        key = " ".join(map(str, (unchanged_checkpoint(), data.fingerprint, *way)))
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            known: dict[str, float] = {}
            with contextlib.suppress(OSError, ValueError):
                known = json.loads(path.read_bytes())
            if key not in known:
                share = machine.within_memory(partial(_share, build, data, setting))
                if share is None:
                    return None
                known[key] = share
                write_aside(path, json.dumps(known, indent=1).encode())
    except OSError:
        return None
    if known[key] >= _CLEARLY:
        return None
    return f"on this GPU a step takes {known[key]:.0%} of the time that packed rows take"


def _share(
    build: Callable[[TaskData, str | None], "Runner"], data: TaskData, setting: Setting
) -> float:
    """Seconds of a step on padded batches, of those on packed rows: medians of steps in turn."""
    size = min(setting.recipe.batch_size, len(data.train))
    batches = np.arange(len(data.train) // size * size).reshape(-1, size)[:_STEPS]
    rows = data.train.take(batches.reshape(-1))
    # Rows of all lengths: what is found equal on them is not asked again of this process.
    few = replace(data, train=rows, evaluation=rows, companions={}, holdout=None)
    runners = packed, padded = build(few, None), build(few, "it is timed")
    seconds: tuple[list[float], list[float]] = ([], [])
    try:
        if machine.made_strict(partial(_step, padded, batches[0]), setting.device):
            return math.inf
        machine.made_strict(partial(_step, packed, batches[0]), setting.device)
        for number in range(_STEPS):
            for runner, times in zip(runners, seconds, strict=True):
                started = time.perf_counter()
                _step(runner, batches[number % len(batches)])
                times.append(time.perf_counter() - started)
    finally:
        for runner in runners:
            runner.model.zero_grad(set_to_none=True)
            runner.close()
    of_packed, of_padded = (statistics.median(times[_WARM:]) for times in seconds)
    return of_padded / of_packed


def _step(runner: "Runner", rows: IndexArray) -> None:
    """Forwards and backwards; the optimiser's step is nearly the same for both."""
    runner.train(True)
    logits, _ = runner.logits("train", rows)
    logits.sum().backward()
    if logits.is_cuda:
        torch.cuda.synchronize()
