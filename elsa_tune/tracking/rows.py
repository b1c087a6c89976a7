"""Recorded trials as result rows: the same from the MLflow store and from a search's journal.

It must not judge or pool results; that is analysis. What a row needs stands in these params and
metrics: `model task phase seed learning_rate frozen_layers embeddings_frozen layers (or
fine_tuned_layers) metric selection train_size epochs comparison search`, metrics `chance
train_seconds peak_memory_mb trainable_parameters`.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from elsa_tune.errors import ElsaTuneError, ResultsError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.looks import Looks
from elsa_tune.specs.result_row import Histories, ResultRow
from elsa_tune.specs.trial import PROBE_EXAMPLES, Phase, Selection, TrialStatus
from elsa_tune.tracking.lock import is_held
from elsa_tune.tracking.mlflow_reader import StoredRun, read_metric, read_runs
from elsa_tune.tracking.names import (
    EVALUATION,
    HOST_TAG,
    JOURNAL_TAG,
    MACHINE_TAG,
    PREDICTIONS_TAG,
    SEARCH_ID_TAG,
    SEARCH_TAG,
    STATUS_TAG,
    TRIAL_QUALITY,
)
from elsa_tune.tracking.paths import lock_of
from elsa_tune.tracking.predictions import predictions_place
from elsa_tune.tracking.state import SearchState, TrialState

T = TypeVar("T")


def read_rows(
    tracking_uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> list[ResultRow]:
    """One row a trial from the store, in the order of their start; None asks for every one.

    Trials of unfinished searches come with their status; one that has only just begun, without
    params yet, is left out. Raises TrackingError when the store is
    missing or does not answer, ResultsError for a trial that lacks what a row needs.
    """
    runs = read_runs(tracking_uri, tasks, search)
    parents = {run.tags[SEARCH_ID_TAG]: run for run in runs if not run.trial}
    alive = {search_id: driver_may_live(run) for search_id, run in parents.items()}
    rows: list[ResultRow] = []
    for run in runs:
        if not run.trial:
            continue
        status = TrialStatus(run.tags.get(STATUS_TAG, TrialStatus.RUNNING))
        search_id = run.tags[SEARCH_ID_TAG]
        if status is TrialStatus.RUNNING and not alive.get(search_id, True):
            status = TrialStatus.INTERRUPTED
        if not run.params and not status.is_final:
            continue  # a run gets its params a moment after it was made, or from the next driver
        values: dict[str, Any] = {**run.params, **run.metrics}
        values["quality"] = run.metrics.get(TRIAL_QUALITY, run.metrics.get("quality"))
        parent = parents.get(search_id)
        folder = _local_folder(parent) if parent else None
        place = predictions_place(run.tags.get(PREDICTIONS_TAG), folder, run.run_id)
        rows.append(_row(run.tags[SEARCH_TAG], run.trial, values, status, place))
    return rows


def read_histories(
    tracking_uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> Histories:
    """The score at each evaluation of an exploring trial's last attempt.

    Measuring trials are never stopped, so that theirs, which no figure shows, are not read. Raises
    TrackingError like `read_rows`.
    """
    runs = [
        run
        for run in read_runs(tracking_uri, tasks, search)
        if run.trial and run.params.get("phase") == Phase.EXPLORE
    ]
    found: dict[str, tuple[float, ...]] = {}
    for score in sorted({_score(run.params) for run in runs}):
        alike = [run for run in runs if _score(run.params) == score]
        found |= read_metric(tracking_uri, alike, score)
    return {
        (run.params.get("search", run.tags[SEARCH_TAG]), run.trial): found[run.run_id]
        for run in runs
        if found.get(run.run_id)
    }


def read_origins(
    tracking_uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> dict[str, str]:
    """As `origin_of`, by search. Raises TrackingError like `read_rows`."""
    return {
        run.tags[SEARCH_TAG]: _origin(run.started / 1000, run.tags)
        for run in read_runs(tracking_uri, tasks, search)
        if not run.trial
    }


def rows_of(state: SearchState, folder: Path | None = None) -> list[ResultRow]:
    """One row a trial of a replayed search, in the order of their start. folder: the search's."""
    rows = []
    for trial in state.trials.values():
        values: dict[str, Any] = {**trial.params, **trial.latest}
        values[EVALUATION] = max((report.evaluation for report in trial.reports), default=None)
        artifact = trial.end.artifact if trial.end else None
        place = predictions_place(artifact, folder, None)
        rows.append(_row(state.search.name, trial.key, values, trial.status, place))
    return rows


def origin_of(state: SearchState) -> str:
    """When a search started and, where that is recorded, on which machine, as a page says it."""
    return _origin(state.started, state.search.tags)


def _origin(seconds: float, tags: Mapping[str, str]) -> str:
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    return ", ".join(filter(None, [started, tags.get(MACHINE_TAG)]))


def histories_of(state: SearchState) -> Histories:
    """As `read_histories`, of every trial, whatever its phase."""
    return {
        (state.search.name, trial.key): scores
        for trial in state.trials.values()
        if (scores := _scores(trial))
    }


def _scores(trial: TrialState) -> tuple[float, ...]:
    ordered = sorted(trial.reports, key=lambda report: report.evaluation)
    score = _score(trial.params)
    values = (report.metrics.get(score, math.nan) for report in ordered)
    return tuple(value for value in values if math.isfinite(value))


def _score(params: Mapping[str, object]) -> str:
    """The metric that a trial competes by; another tool's run may name no selection we know."""
    is_held_out = params.get("selection") == Selection.HOLDOUT
    return (Selection.HOLDOUT if is_held_out else Selection.LAST).score


def _local_folder(run: StoredRun) -> Path | None:
    """The folder of this parent run's search, if it may be on this machine."""
    journal = run.tags.get(JOURNAL_TAG)
    if journal is None or run.tags.get(HOST_TAG) != socket.gethostname():
        return None
    return Path(journal).parent


def driver_may_live(run: StoredRun) -> bool:
    """Whether this parent run's driver may be alive: False where its journal's lock is free."""
    folder = _local_folder(run)
    # Of another machine's nobody here can tell.
    return folder is None or is_held(lock_of(Path(run.tags[JOURNAL_TAG])))


def rates_text(rates: tuple[float, float]) -> str:
    """The lowest and the highest as one param: `1e-05..5e-05`."""
    return f"{rates[0]:g}..{rates[1]:g}"


def _rates(text: str) -> tuple[float, float]:
    """The inverse of `rates_text`."""
    low, high = text.split("..")
    return float(low), float(high)


def _row(
    search: str,
    trial: str,
    values: Mapping[str, Any],
    status: TrialStatus,
    predictions: str | None,
) -> ResultRow:
    """values: params and metrics by name, as they are or in MLflow's words for them."""

    def known(name: str, kind: Callable[[Any], T]) -> T | None:
        value = values.get(name)
        return None if value in (None, "", "none") else kind(value)

    def needed(name: str, kind: Callable[[Any], T]) -> T:
        value = known(name, kind)
        if value is None:
            raise ValueError(f"it has no {name}")
        return value

    try:
        depth = FreezeDepth(
            needed("frozen_layers", _whole), needed("embeddings_frozen", str).lower() == "true"
        )
        layers = known("layers", _whole)
        if layers is None:
            layers = depth.frozen_layers + needed("fine_tuned_layers", _whole)
        return ResultRow(
            model=needed("model", str),
            task=needed("task", str),
            layers=layers,
            depth=depth,
            quality=known("quality", float),
            status=status,
            phase=Phase(needed("phase", str)),
            metric=known("metric", str),
            selection=known("selection", str),
            chance=known("chance", float),
            learning_rate=known("learning_rate", float),
            seed=known("seed", _whole),
            train_size=known("train_size", _whole),
            epochs=known("epochs", _whole),
            epochs_run=known(EVALUATION, _whole),
            search=known("search", str) or search,
            trial=trial,
            comparison=known("comparison", str) or "",
            train_seconds=known("train_seconds", float),
            peak_memory_mb=known("peak_memory_mb", float),
            trainable_parameters=known("trainable_parameters", _whole),
            examples=known("evaluation_examples", _whole),
            predictions=predictions,
            given_rates=known("given_rates", _rates),
            looks=known("looks", Looks.of),
            probe_examples=known(PROBE_EXAMPLES, _whole),
        )
    except (AttributeError, TypeError, ValueError, OverflowError, ElsaTuneError) as error:
        raise ResultsError(
            f"trial {trial} of search '{search}' is not a complete record: {error}; "
            f"ask another with `search`, or delete it: elsa-tune searches --delete {search}"
        ) from error


def _whole(value: str | int | float) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is no whole number")
    return int(value)
