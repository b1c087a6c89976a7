"""The trial that gives the exported model: trained here, recorded, counted in no answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from elsa_tune.errors import DivergedError
from elsa_tune.search.record import SearchRecord, end_metrics, params_of, report_record
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import QUALITY, TrialSpec, TrialStatus
from elsa_tune.tracking.journal_records import TrialEnded, TrialStarted
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import train
from elsa_tune.words import points


def fresh_seed(record: SearchRecord) -> int:
    """One that no trial of the search had; the same however often a model is exported."""
    used = {known.trial.seed for known in record.known_trials()}
    return max(used | set(record.spec.measuring_seeds)) + 1


def train_final(
    spec: SearchSpec,
    trial: TrialSpec,
    data: TaskData,
    record: SearchRecord,
    say: Callable[[str], None],
) -> tuple[float, dict[str, Tensor]]:
    """Train to the end and record it, whatever the end is; returns the trial's quality, and what
    trained, by name. spec: with the sizes of these data. Raises RunErrors as `train` does.
    """
    key = trial.key
    before = record.state().trials.get(key)
    attempt = before.start.attempt + 1 if before else 1
    weights: dict[str, Tensor] = {}

    def keep(trained: Mapping[str, Tensor]) -> None:
        weights.update({name: value.detach().cpu().clone() for name, value in trained.items()})

    params, tags = params_of(spec, trial), dict(spec.versions)
    record.write(TrialStarted(trial=key, attempt=attempt, params=params, tags=tags))
    results: list[dict[str, Any]] = []
    status, message, artifact = TrialStatus.INTERRUPTED, "", None
    metrics: dict[str, float] = {}
    try:
        for result in train(trial, data, keep=keep):
            fields = dataclasses.fields(result)
            results.append({field.name: getattr(result, field.name) for field in fields})
            record.write(report_record(key, attempt, results[-1], {}))
            quality = f"{trial.task.metric.value} {points(result.quality)}"
            say(f"epoch {result.epoch:g} of {trial.recipe.epochs}: {quality}")
        predictions = np.asarray(results[-1]["predictions"])
        artifact = record.keep_predictions(key, predictions, data.evaluation.labels)
        status = TrialStatus.COMPLETED
    except Exception as error:  # whatever ends it is recorded and goes on to the caller
        is_diverged = isinstance(error, DivergedError)
        status = TrialStatus.DIVERGED if is_diverged else TrialStatus.FAILED
        message = f"{type(error).__name__}: {error}"
        raise
    finally:
        metrics = end_metrics(trial.recipe.selection, results)
        end = TrialEnded(trial=key, attempt=attempt, status=status, metrics=metrics)
        record.write(dataclasses.replace(end, message=message, artifact=artifact))
    return metrics[QUALITY], weights
