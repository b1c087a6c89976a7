"""The MLflow store, read: the runs of trials and searches as plain values.

It must not know what their params mean. Importing MLflow's client takes seconds, so that what a
journal says is asked there (docs/decisions.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from elsa_tune.errors import TrackingError
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.connection import Connection, all_pages, unusable
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.names import (
    ATTEMPT_STARTED_TAG,
    ATTEMPT_TAG,
    CHANGED_PARAM_PREFIX,
    EXPERIMENT_PREFIX,
    SEARCH_ID_TAG,
    SEARCH_TAG,
    STATUS_TAG,
    TRIAL_TAG,
)
from elsa_tune.tracking.paths import SEARCH_NAME, sqlite_file


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """One run: params and metrics of the last attempt, metrics as they stood at the highest step.

    trial: its key, "" for a search's parent run. started: milliseconds since the epoch.
    """

    run_id: str
    trial: str
    started: int
    params: dict[str, str]
    tags: dict[str, str]
    metrics: dict[str, float]


def read_runs(
    tracking_uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> list[StoredRun]:
    """All active runs of these tasks and this search; None asks for every one.

    Ordered by start. Raises TrackingError when the store is missing or does not answer.
    """
    if search is not None and not SEARCH_NAME.fullmatch(search):
        return []  # no search can have such a name, and no query needs to quote it
    if is_unmade(tracking_uri):
        raise TrackingError(
            f"nothing is recorded in {sqlite_file(tracking_uri)}; `elsa-tune search` makes it, "
            "`tracking_uri` or MLFLOW_TRACKING_URI names another store"
        )
    connection = Connection(tracking_uri)
    if sqlite_file(tracking_uri) is None:
        connection.check()
    # Every run of ours has the search's tag; MLflow's filter language has no plain "exists".
    condition = f"tags.`{SEARCH_TAG}` " + ("LIKE '%'" if search is None else f"= '{search}'")
    try:
        client = connection.client()
        runs = [_stored_run(client, run) for run in _runs(client, condition, tasks)]
    except Exception as error:  # the client's, the server's and the network's: no common base
        raise unusable(tracking_uri, error) from error
    return sorted(runs, key=lambda run: (run.started, run.run_id))


def is_lost(tracking_uri: str, search_id: str) -> bool:
    """Whether the store has nothing of a search; one that cannot be read has not lost it."""
    if is_unmade(tracking_uri):
        return True
    try:
        client = Connection(tracking_uri).client()
        return not any(runs_of(client, search_id))
    except Exception:  # as in read_runs; whoever asks has other things to do
        return False


def is_unmade(tracking_uri: str) -> bool:
    """Whether it is an SQLite store that is not there yet: a question must not make it."""
    database = sqlite_file(tracking_uri)
    return database is not None and not (database.is_file() and database.stat().st_size)


def read_metric(
    tracking_uri: str, runs: Sequence[StoredRun], metric: str
) -> dict[str, tuple[float, ...]]:
    """By run id: one metric at every step of the run's last attempt, in the order of the steps.

    Of a step that was logged twice the later value. Raises TrackingError when the store does not
    answer.
    """
    found = {}
    try:
        client = Connection(tracking_uri).client()
        for run in runs:
            points = _of_last_attempt(client, run.run_id, metric, run.tags)
            values = {step: value for step, _, value in points if math.isfinite(value)}
            found[run.run_id] = tuple(values.values())
    except Exception as error:  # as in read_runs
        raise unusable(tracking_uri, error) from error
    return found


def runs_of(client: Any, search_id: str) -> Iterator[Any]:
    """MLflow's own runs of one search, the parent's and the trials', that are not deleted."""
    return _runs(client, f"tags.`{SEARCH_ID_TAG}` = '{search_id}'")


def _runs(client: Any, condition: str, tasks: Iterable[str] | None = None) -> Iterator[Any]:
    names = None if tasks is None else {f"{EXPERIMENT_PREFIX}{task}" for task in tasks}
    experiments = [
        experiment.experiment_id
        for experiment in all_pages(client.search_experiments)
        if experiment.name.startswith(EXPERIMENT_PREFIX)
        and (names is None or experiment.name in names)
    ]
    if experiments:
        question = {"experiment_ids": experiments, "filter_string": condition, "max_results": 1000}
        yield from all_pages(client.search_runs, **question)


def _stored_run(client: Any, run: Any) -> StoredRun:
    tags = dict(run.data.tags)
    if not {SEARCH_TAG, SEARCH_ID_TAG} <= tags.keys():
        raise ValueError(f"run {run.info.run_id} lacks the tags of a search")
    if STATUS_TAG in tags:
        (TrialStatus if TRIAL_TAG in tags else SearchStatus)(tags[STATUS_TAG])
    metrics = {name: float(value) for name, value in run.data.metrics.items()}
    if TRIAL_TAG in tags and tags.get(ATTEMPT_TAG, "1") != "1":
        # Those of an earlier attempt, which may have come further, stand beside the last one's.
        metrics = {
            name: points[-1][2]
            for name in metrics
            if (points := _of_last_attempt(client, run.info.run_id, name, tags))
        }
    changed = {
        name.removeprefix(CHANGED_PARAM_PREFIX): value
        for name, value in tags.items()
        if name.startswith(CHANGED_PARAM_PREFIX)
    }
    return StoredRun(
        run_id=run.info.run_id,
        trial=tags.get(TRIAL_TAG, ""),
        started=run.info.start_time,
        params=dict(run.data.params) | changed,
        tags=tags,
        metrics=metrics,
    )


def _of_last_attempt(
    client: Any, run_id: str, metric: str, tags: dict[str, str]
) -> list[tuple[int, int, float]]:
    """Step, milliseconds and value of a metric's points since the last attempt began, in order."""
    since = int(tags.get(ATTEMPT_STARTED_TAG, "0"))
    return sorted(
        (point.step, point.timestamp, float(point.value))
        for point in client.get_metric_history(run_id, metric)
        if point.timestamp >= since
    )
