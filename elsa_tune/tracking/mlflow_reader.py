"""The MLflow store, read: its runs as the states that a journal gives."""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from elsa_tune.errors import TrackingError
from elsa_tune.specs.trial import QUALITY, TrialStatus
from elsa_tune.tracking import mlflow_names as names
from elsa_tune.tracking.journal_records import (
    Report,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.mlflow_connection import PATIENCE_S, MlflowConnection, unusable
from elsa_tune.tracking.mlflow_pages import page_of
from elsa_tune.tracking.params import read_params
from elsa_tune.tracking.paths import SEARCH_NAME, sqlite_file
from elsa_tune.tracking.record_names import JOURNAL_TAG
from elsa_tune.tracking.state import RecordedTrial, SearchState, is_planned
from elsa_tune.tracking.store import may_run
from elsa_tune.tracking.uris import shown_uri


def read_searches(
    tracking_uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> list[SearchState]:
    """Return the searches on these tasks and of this name, in the order of their start.

    None asks for every one. Trials whose search was deleted are in a state without a session
    (attempt 0).

    A trial's reports are one, of its last values; a trial without params yet is
    left out. Raises TrackingError when the store is missing, damaged or does not answer.
    """
    if search is not None and not SEARCH_NAME.fullmatch(search):
        return []  # no search can have such a name, and no query needs to quote it
    # Every run of ours has the search's id. MLflow's filters have no plain "exists" and no "or".
    conditions = [f"tags.`{names.SEARCH_ID_TAG}` LIKE '%'"]
    if search is not None:
        tags = (names.SEARCH_TAG, names.OTHER_SEARCH_TAG)
        conditions = [f"tags.`{tag}` = '{search}'" for tag in tags]
    states: dict[str, SearchState] = {}
    with _asked(tracking_uri) as client:
        found = (run for condition in conditions for run in _runs(client, condition, tasks))
        runs = sorted(found, key=lambda run: run.info.run_id)
        runs.sort(key=lambda run: run.info.start_time)
        runs.sort(key=lambda run: names.TRIAL_TAG in run.data.tags)  # searches before their trials
        for run in runs:
            search_id = run.data.tags.get(names.SEARCH_ID_TAG, "")
            if search_id not in states:
                states[search_id] = _search_state(run)
            state = states[search_id]
            if names.TRIAL_TAG in run.data.tags:
                trial = _trial_state(client, run, state.is_alive)
                # A run gets its params a moment after it was made, or from the next driver.
                if _params(run) or trial.status.is_final:
                    state.trials[trial.key] = trial
    return sorted(states.values(), key=lambda state: state.started)


def read_overview(tracking_uri: str) -> list[SearchState]:
    """Return every search that has a run of its own, its trials counted and not read.

    They are in the order of their start. Raises TrackingError as `read_searches` does.

    A run costs MLflow milliseconds, and a search has dozens of trials: they are asked for only
    where their search runs, or ended before its run told their number.
    """
    states: dict[str, SearchState] = {}
    with _asked(tracking_uri) as client:
        # Trials' runs have no journal.
        for run in _runs(client, f"tags.`{JOURNAL_TAG}` LIKE '%'"):
            state = _search_state(run)
            told = run.data.tags.get(names.TRIALS_DONE_TAG, "")
            if state.end is not None and told.isdecimal():
                state.counted = int(told)
            else:
                state.counted = _trials_done(client, run, state.search.search_id)
            states.setdefault(state.search.search_id, state)
    return sorted(states.values(), key=lambda state: state.started)


def _trials_done(client: Any, parent: Any, search_id: str) -> int:
    condition = f"tags.`{names.SEARCH_ID_TAG}` = '{search_id}'"
    done = set()
    for run in _runs(client, condition, within=parent.info.experiment_id):
        tags = run.data.tags
        status = TrialStatus(tags.get(names.STATUS_TAG, TrialStatus.RUNNING))
        if names.TRIAL_TAG in tags and status.is_final and is_planned(_params(run).get("phase")):
            done.add(tags[names.TRIAL_TAG])
    return len(done)


@contextlib.contextmanager
def _asked(tracking_uri: str) -> Iterator[Any]:
    """Return a client of a store that answers and holds something.

    Whatever fails inside becomes a TrackingError.
    """
    connection = MlflowConnection(tracking_uri)
    connection.check()
    if connection.is_empty():
        place = sqlite_file(tracking_uri) or shown_uri(tracking_uri)
        raise TrackingError(
            f"nothing is recorded in {place}; `elsa-tune search` makes it, "
            "`tracking_uri` or MLFLOW_TRACKING_URI names another store"
        )
    try:
        yield connection.client()
    except Exception as error:  # the client's, the server's and the network's: no common base
        raise unusable(tracking_uri, error) from error


def _search_state(run: Any) -> SearchState:
    """Return a search without its trials, from its own run; or what a trial's says of it."""
    tags, started = dict(run.data.tags), run.info.start_time / 1000
    name = names.search_of(tags)
    if name is None or names.SEARCH_ID_TAG not in tags:
        raise ValueError(f"run {run.info.run_id} lacks the tags of a search")
    of_itself = names.TRIAL_TAG not in tags
    params = _params(run)
    search = SearchStarted(
        name=name,
        search_id=tags[names.SEARCH_ID_TAG],
        attempt=int(tags.get(names.ATTEMPT_TAG, "1")) if of_itself else 0,
        model=params.get("model", ""),
        task=params.get("task", ""),
        params=params if of_itself else {},
        tags=tags if of_itself else {},
    )
    if not of_itself:
        return SearchState(search=search, started=started)
    status = SearchStatus(tags.get(names.STATUS_TAG, SearchStatus.RUNNING))
    decided = names.after_prefix(names.DECISION_PREFIX, tags)
    return SearchState(
        search=search,
        started=started,
        end=None if status is SearchStatus.RUNNING else SearchEnded(status=status),
        is_alive=may_run(tags),
        decisions={name: _decided(text) for name, text in decided.items()},
    )


def _trial_state(client: Any, run: Any, is_alive: bool) -> RecordedTrial:
    tags = dict(run.data.tags)
    params = _params(run)
    key = tags[names.TRIAL_TAG]
    started = run.info.start_time / 1000
    status = TrialStatus(tags.get(names.STATUS_TAG, TrialStatus.RUNNING))
    metrics = _latest(client, run)
    reports: tuple[Report, ...] = ()
    if (last := metrics.get(names.EVALUATION)) is not None:
        reports = (Report(trial=key, evaluation=int(last), step=0, metrics=metrics),)
    end = None
    if status is not TrialStatus.RUNNING:
        quality = {QUALITY: metrics[names.TRIAL_QUALITY]} if names.TRIAL_QUALITY in metrics else {}
        artifact = tags.get(names.PREDICTIONS)
        end = TrialEnded(trial=key, status=status, metrics=metrics | quality, artifact=artifact)
    return RecordedTrial(
        start=TrialStarted(trial=key, params=read_params(params), tags=tags, time=started),
        reports=reports,
        end=end,
        cut_off=None if is_alive else started,
        run_id=run.info.run_id,
    )


def _latest(client: Any, run: Any) -> dict[str, float]:
    """Return the metrics of the last attempt as they stood at the highest step."""
    latest = dict(run.data.metrics)
    if run.data.tags.get(names.ATTEMPT_TAG, "1") == "1":
        return latest
    # Points of an earlier attempt, which may have come further, stand beside the last one's.
    since = int(run.data.tags.get(names.ATTEMPT_STARTED_TAG, "0"))
    for name in run.data.metrics:
        history = client.get_metric_history(run.info.run_id, name)
        if points := [point for point in history if point.timestamp >= since]:
            latest[name] = max(points, key=lambda point: (point.step, point.timestamp)).value
        else:
            del latest[name]
    return latest


def _params(run: Any) -> dict[str, str]:
    return {**run.data.params, **names.after_prefix(names.CHANGED_PARAM_PREFIX, run.data.tags)}


def _decided(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def is_lost(tracking_uri: str, search_id: str) -> bool:
    """Whether the store has nothing of a search.

    Raises TrackingError for one that does not answer in time, or cannot be read.
    """
    connection = MlflowConnection(tracking_uri)
    connection.check()

    def has_nothing() -> bool:
        if connection.is_empty():
            return True
        client = connection.client()
        condition = f"tags.`{names.SEARCH_ID_TAG}` = '{search_id}'"
        return not client.search_runs(_experiments(client), condition, max_results=1)

    connection.import_mlflow()
    # A file answers, however long a slow disk takes.
    is_file = sqlite_file(tracking_uri) is not None
    return connection.within(math.inf if is_file else PATIENCE_S, has_nothing)


def runs_of(client: Any, search_id: str) -> Iterator[Any]:
    """MLflow's own runs of one search, the parent's and the trials', that are not deleted."""
    return _runs(client, f"tags.`{names.SEARCH_ID_TAG}` = '{search_id}'")


def _runs(
    client: Any, condition: str, tasks: Iterable[str] | None = None, within: str | None = None
) -> Iterator[Any]:
    """Yield the runs that meet a condition. within: the id of the only experiment to look in."""
    experiments = _experiments(client, tasks) if within is None else [within]
    page = None
    while experiments:
        found = client.search_runs(experiments, condition, max_results=1000, page_token=page)
        yield from found
        if not (page := found.token):
            return


def _experiments(client: Any, tasks: Iterable[str] | None = None) -> list[str]:
    wanted = None if tasks is None else {f"{names.EXPERIMENT_PREFIX}{task}" for task in tasks}
    ours = f"name LIKE '{names.EXPERIMENT_PREFIX}%'"
    found = client.search_experiments(filter_string=ours, max_results=50_000)  # MLflow's limit
    return [one.experiment_id for one in found if wanted is None or one.name in wanted]


def latest_page(client: Any, address: str) -> tuple[str, str] | None:
    """Return the search that started last, and the page of its task's; None without any."""
    found = client.search_runs(
        _experiments(client),
        filter_string=f"tags.`{names.SEARCH_ID_TAG}` LIKE '%'",
        order_by=["attributes.start_time DESC"],
        max_results=1,
    )
    if not found:
        return None
    name = names.search_of(found[0].data.tags) or ""
    return name, page_of(address, found[0].info.experiment_id)
