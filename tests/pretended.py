"""A trial that trains nothing and whose quality is known, for tests of a search's own decisions.

Its module is loaded by every process that runs trials: it must not import what these do without.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from elsa_tune.errors import DivergedError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.trial import EpochResult, TrialSpec

if TYPE_CHECKING:
    from elsa_tune.training.data.tokens import TaskData

EVALUATIONS = 4
DEEP = FreezeDepth(3, True)


def pretend(
    trial: TrialSpec, data: TaskData, *, device: str, depths: Sequence[int]
) -> Iterator[EpochResult]:
    """A trial whose quality is known: deeper is always worse, and so is a rate away from 3e-5, or
    at the deep depth from 1e-4, which lies beyond the given range.
    """
    if trial.depth == DEEP and trial.learning_rate == 1e-5:
        raise DivergedError(f"{trial.key}: the training loss became nan by step 1")
    for evaluation in range(1, EVALUATIONS + 1):
        start, best = (0.9, 3e-5) if trial.depth.is_full_model else (0.7, 1e-4)
        quality = start - 1000 * abs(trial.learning_rate - best) + 0.01 * evaluation
        yield EpochResult(
            evaluation=evaluation,
            evaluations=EVALUATIONS,
            epoch=evaluation,
            step=evaluation,
            steps=EVALUATIONS,
            quality=quality,
            metrics={"accuracy": quality},
            train_loss=0.5,
            eval_loss=0.5,
            train_seconds=1.0,
            examples_per_second=1.0,
            peak_memory_mb=1.0,
            trainable_parameters=1,
            micro_batch_size=16,
            precision="fp32",
            chance=0.5,
        )


def pretend_and_name_the_process(
    trial: TrialSpec, data: TaskData, *, device: str, depths: Sequence[int]
) -> Iterator[EpochResult]:
    """As `pretend`; the metric `process` says in which one."""
    for result in pretend(trial, data, device=device, depths=depths):
        yield dataclasses.replace(result, metrics={"process": float(os.getpid())})


def pretend_and_fall_silent(
    trial: TrialSpec, data: TaskData, *, device: str, depths: Sequence[int]
) -> Iterator[EpochResult]:
    """As `pretend`; the trial of seed 2 is silent for seconds before its last evaluation."""
    for result in pretend(trial, data, device=device, depths=depths):
        time.sleep(5.0 if trial.seed == 2 and result.evaluation == EVALUATIONS else 0.1)
        yield result
