"""The trial that gives the exported model: trained here, recorded, counted in no answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from elsa_tune.errors import DivergedError
from elsa_tune.search.record import SearchRecord, end_metrics, params_of, report_record
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import QUALITY, EpochResult, TrialSpec, TrialStatus
from elsa_tune.tracking.journal_records import TrialEnded, TrialStarted
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import train
from elsa_tune.words import points


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A trial that completed: its quality, and what trained, by name."""

    trial: TrialSpec
    quality: float
    weights: dict[str, Tensor]


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
) -> Trained:
    """Train to the end and record it, whatever the end is. spec: with the sizes of these data.

    Raises RunErrors as `train` does.
    """
    before = record.state().trials.get(trial.key)
    attempt = before.start.attempt + 1 if before else 1
    weights: dict[str, Tensor] = {}

    def keep(trained: Mapping[str, Tensor]) -> None:
        weights.update({name: value.detach().cpu().clone() for name, value in trained.items()})

    def ended(status: TrialStatus, message: str = "", artifact: str | None = None) -> None:
        record.write(
            TrialEnded(
                trial=trial.key,
                attempt=attempt,
                status=status,
                metrics=end_metrics(trial.recipe.selection, results),
                message=message,
                artifact=artifact,
            )
        )

    record.write(
        TrialStarted(
            trial=trial.key,
            attempt=attempt,
            params=params_of(spec, trial),
            tags=dict(spec.versions),
        )
    )
    results: list[dict[str, Any]] = []
    predictions: np.ndarray | None = None
    try:
        for result in train(trial, data, keep=keep):
            results.append(_fields(result))
            record.write(report_record(trial.key, attempt, results[-1], {}))
            say(
                f"epoch {result.epoch:g} of {trial.recipe.epochs}: "
                f"{trial.task.metric.value} {points(result.quality)}"
            )
            if result.predictions is not None:
                predictions = np.asarray(result.predictions)
    except DivergedError as error:
        ended(TrialStatus.DIVERGED, str(error))
        raise
    except Exception as error:
        ended(TrialStatus.FAILED, f"{type(error).__name__}: {error}")
        raise
    except BaseException:
        ended(TrialStatus.INTERRUPTED)
        raise
    assert predictions is not None
    artifact = record.keep_predictions(trial.key, predictions, data.evaluation.labels)
    ended(TrialStatus.COMPLETED, artifact=artifact)
    quality = end_metrics(trial.recipe.selection, results)[QUALITY]
    return Trained(trial=trial, quality=quality, weights=weights)


def _fields(result: EpochResult) -> dict[str, Any]:
    return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
