"""The MLflow store, read: the runs of trials and searches as plain values.

It must not know what their params mean. A SQLite store is read with the standard library, because
importing MLflow's own reader takes longer (3.0 s on the machine of docs/decisions.md) than a whole
answer may; every other store, and a SQLite schema that is not the expected one, is read through
MLflow's client.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from elsa_tune.errors import TrackingError
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.connection import Connection, all_pages, first_line
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
from elsa_tune.tracking.paths import SEARCH_NAME, shown_uri, sqlite_file

# What reading a file of another schema, or a damaged one, may raise; SQLite's own complaints are
# among them as text that is not UTF-8.
_UNEXPECTED = (sqlite3.Error, ValueError, TypeError, KeyError)
_CHUNK = 500  # SQLite takes 999 variables in one statement, in old versions


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """One run: params and metrics of the last attempt, metrics as they stood at the highest step.

    trial: its key, "" for a search's parent run. started: milliseconds since the epoch.
    """

    run_id: str
    trial: str
    run_status: str
    started: int
    params: dict[str, str]
    tags: dict[str, str]
    metrics: dict[str, float]


# metric name -> (step, milliseconds, value) of every point
_History = dict[str, list[tuple[int, int, float]]]


def read_runs(
    tracking_uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> list[StoredRun]:
    """All active runs of these tasks and this search; None asks for every one.

    Ordered by start. Raises TrackingError when the store is missing or does not answer.
    """
    if search is not None and not SEARCH_NAME.fullmatch(search):
        return []  # no search can have such a name, and no query needs to quote it
    names = None if tasks is None else [f"{EXPERIMENT_PREFIX}{task}" for task in tasks]
    database = sqlite_file(tracking_uri)
    if database is not None:
        if not database.is_file():
            raise TrackingError(
                f"nothing is recorded in {database}; `elsa-tune search` makes it, --tracking-uri "
                "or MLFLOW_TRACKING_URI names another store"
            )
        try:
            runs = list(_from_sqlite(database, names, search))
        except _UNEXPECTED:
            runs = list(_from_client(tracking_uri, names, search))
    else:
        Connection(tracking_uri).check()
        runs = list(_from_client(tracking_uri, names, search))
    return sorted(runs, key=lambda run: (run.started, run.run_id))


def is_lost(tracking_uri: str, search: str, search_id: str) -> bool:
    """Whether the store has nothing of a search; one that cannot be read has not lost it."""
    database = sqlite_file(tracking_uri)
    if database is not None and not database.exists():
        return True
    try:
        runs = read_runs(tracking_uri, search=search)
    except Exception:  # of any library; whoever asks has other things to do
        return False
    return all(run.tags.get(SEARCH_ID_TAG) != search_id for run in runs)


def read_metric(
    tracking_uri: str, runs: Sequence[StoredRun], metric: str
) -> dict[str, tuple[float, ...]]:
    """By run id: one metric at every step of the run's last attempt, in the order of the steps.

    Raises TrackingError when the store does not answer.
    """
    ids = [run.run_id for run in runs]
    database = sqlite_file(tracking_uri)
    if database is None:
        histories = _histories_from_client(tracking_uri, ids, metric)
    else:
        try:
            histories = _histories_from_sqlite(database, ids, metric)
        except _UNEXPECTED:
            histories = _histories_from_client(tracking_uri, ids, metric)
    return {
        run.run_id: _at_each_step(histories.get(run.run_id, {}).get(metric, []), run.tags)
        for run in runs
    }


def _at_each_step(points: list[tuple[int, int, float]], tags: dict[str, str]) -> tuple[float, ...]:
    """The values since the last attempt began; of a step that was logged twice the later one."""
    since = int(tags.get(ATTEMPT_STARTED_TAG, "0"))
    values = {
        step: value
        for step, time, value in sorted(points)
        if time >= since and math.isfinite(value)
    }
    return tuple(values.values())


def _stored_run(
    run_id: str,
    run_status: str,
    started: int,
    values: tuple[dict[str, str], dict[str, str]],
    metrics: dict[str, float],
) -> StoredRun:
    params, tags = values
    if not {SEARCH_TAG, SEARCH_ID_TAG} <= tags.keys():
        raise ValueError(f"run {run_id} lacks the tags of a search")
    if STATUS_TAG in tags:
        (TrialStatus if TRIAL_TAG in tags else SearchStatus)(tags[STATUS_TAG])
    changed = {
        name.removeprefix(CHANGED_PARAM_PREFIX): value
        for name, value in tags.items()
        if name.startswith(CHANGED_PARAM_PREFIX)
    }
    return StoredRun(
        run_id=run_id,
        trial=tags.get(TRIAL_TAG, ""),
        run_status=run_status,
        started=started,
        params=params | changed,
        tags=tags,
        metrics=metrics,
    )


def _was_restarted(tags: dict[str, str]) -> bool:
    """Whether metrics of an earlier attempt may stand beside the last one's."""
    return TRIAL_TAG in tags and tags.get(ATTEMPT_TAG, "1") != "1"


def _of_last_attempt(history: _History, tags: dict[str, str]) -> dict[str, float]:
    """Each metric's value at its highest step, of the points since the last attempt began."""
    since = int(tags.get(ATTEMPT_STARTED_TAG, "0"))
    return {
        name: max(point for point in points if point[1] >= since)[2]
        for name, points in history.items()
        if any(point[1] >= since for point in points)
    }


# ---- SQLite --------------------------------------------------------------------------------------


def _from_sqlite(
    database: Path, names: Sequence[str] | None, search: str | None
) -> Iterator[StoredRun]:
    with _read_only(database) as connection:
        connection.execute("BEGIN")  # one consistent look, also while a search writes
        runs = _sqlite_runs(connection, names, search)
        for start in range(0, len(runs), _CHUNK):
            chunk = runs[start : start + _CHUNK]
            ids = [run_id for run_id, _, _ in chunk]
            params = _pairs(connection, "params", ids)
            tags = _pairs(connection, "tags", ids)
            latest = _latest(connection, ids)
            restarted = [run_id for run_id in ids if _was_restarted(tags.get(run_id, {}))]
            histories = _histories(connection, restarted)
            for run_id, status, started in chunk:
                own = tags.get(run_id, {})
                metrics = latest.get(run_id, {})
                if run_id in restarted:
                    metrics = _of_last_attempt(histories.get(run_id, {}), own)
                yield _stored_run(run_id, status, started, (params.get(run_id, {}), own), metrics)


def _read_only(database: Path) -> closing[sqlite3.Connection]:
    # mode=ro: a question must never create or change a store.
    uri = f"file:{quote(str(database))}?mode=ro"
    return closing(sqlite3.connect(uri, uri=True, timeout=20))


def _sqlite_runs(
    connection: sqlite3.Connection, names: Sequence[str] | None, search: str | None
) -> list[tuple[str, str, int]]:
    question = (
        "SELECT r.run_uuid, r.status, r.start_time FROM runs r "
        "JOIN experiments e ON e.experiment_id = r.experiment_id "
        "JOIN tags t ON t.run_uuid = r.run_uuid AND t.key = ? "
        "WHERE r.lifecycle_stage = 'active' AND e.lifecycle_stage = 'active' AND t.value LIKE ? "
    )
    values: list[str] = [SEARCH_TAG, "%"]
    if search is not None:
        question = question.replace("t.value LIKE ?", "t.value = ?")
        values[1] = search
    if names is None:
        question += "AND e.name LIKE ?"
        values.append(f"{EXPERIMENT_PREFIX}%")
    else:
        question += f"AND e.name IN ({_marks(names)})"
        values += names
    return connection.execute(question, values).fetchall()


def _pairs(
    connection: sqlite3.Connection, table: str, ids: Sequence[str]
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    question = f"SELECT run_uuid, key, value FROM {table} WHERE run_uuid IN ({_marks(ids)})"
    for run_id, key, value in connection.execute(question, list(ids)):
        found.setdefault(run_id, {})[key] = value
    return found


def _latest(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    question = (
        "SELECT run_uuid, key, value FROM latest_metrics "
        f"WHERE is_nan = 0 AND run_uuid IN ({_marks(ids)})"
    )
    for run_id, key, value in connection.execute(question, list(ids)):
        found.setdefault(run_id, {})[key] = float(value)
    return found


def _histories_from_sqlite(database: Path, ids: Sequence[str], metric: str) -> dict[str, _History]:
    found: dict[str, _History] = {}
    with _read_only(database) as connection:
        for start in range(0, len(ids), _CHUNK):
            found |= _histories(connection, ids[start : start + _CHUNK], metric)
    return found


def _histories(
    connection: sqlite3.Connection, ids: Sequence[str], metric: str | None = None
) -> dict[str, _History]:
    """Of all metrics, or of one."""
    found: dict[str, _History] = {}
    question = (
        "SELECT run_uuid, key, step, timestamp, value FROM metrics "
        f"WHERE is_nan = 0 AND run_uuid IN ({_marks(ids)})"
    )
    values = list(ids)
    if metric is not None:
        question += " AND key = ?"
        values.append(metric)
    for run_id, key, step, milliseconds, value in connection.execute(question, values):
        points = found.setdefault(run_id, {}).setdefault(key, [])
        points.append((step, milliseconds, float(value)))
    return found


def _marks(values: Sequence[str]) -> str:
    return ",".join("?" * len(values))


# ---- MLflow's client -----------------------------------------------------------------------------


def _from_client(
    tracking_uri: str, names: Sequence[str] | None, search: str | None
) -> Iterator[StoredRun]:
    try:
        client = Connection(tracking_uri).client()
        experiments = [
            experiment.experiment_id
            for experiment in all_pages(client.search_experiments)
            if experiment.name.startswith(EXPERIMENT_PREFIX)
            and (names is None or experiment.name in names)
        ]
        if not experiments:
            return
        # Every run of ours has the search's tag; MLflow's filter language has no plain "exists".
        condition = f"tags.`{SEARCH_ID_TAG}` LIKE '%'"
        if search is not None:
            condition = f"tags.`{SEARCH_TAG}` = '{search}'"
        question = {"experiment_ids": experiments, "filter_string": condition, "max_results": 1000}
        for run in all_pages(client.search_runs, **question):
            tags = dict(run.data.tags)
            metrics = {name: float(value) for name, value in run.data.metrics.items()}
            if _was_restarted(tags):
                metrics = _of_last_attempt(_history(client, run.info.run_id, metrics), tags)
            yield _stored_run(
                run.info.run_id,
                run.info.status,
                run.info.start_time,
                (dict(run.data.params), tags),
                metrics,
            )
    except (
        Exception
    ) as error:  # the client's, the server's and the network's, without a common base
        raise _unreadable(tracking_uri, error) from error


def _histories_from_client(
    tracking_uri: str, ids: Sequence[str], metric: str
) -> dict[str, _History]:
    try:
        client = Connection(tracking_uri).client()
        return {run_id: _history(client, run_id, [metric]) for run_id in ids}
    except Exception as error:  # as in _from_client
        raise _unreadable(tracking_uri, error) from error


def _unreadable(tracking_uri: str, error: Exception) -> TrackingError:
    return TrackingError(
        f"the MLflow store {shown_uri(tracking_uri)} cannot be read: {first_line(error)}"
    )


def _history(client: Any, run_id: str, names: Iterable[str]) -> _History:
    return {
        name: [
            (point.step, point.timestamp, float(point.value))
            for point in client.get_metric_history(run_id, name)
        ]
        for name in names
    }
