"""The MLflow store, read: its runs as the states that a journal gives."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from elsa_tune.errors import TrackingError
from elsa_tune.specs.trial import QUALITY, TrialStatus
from elsa_tune.tracking.journal_records import (
    Report,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.mlflow import names
from elsa_tune.tracking.mlflow.connection import PATIENCE_S, MlflowConnection, unusable
from elsa_tune.tracking.mlflow.pages import page_of
from elsa_tune.tracking.params import read_params
from elsa_tune.tracking.paths import SEARCH_NAME, sqlite_file
from elsa_tune.tracking.record_names import JOURNAL_TAG
from elsa_tune.tracking.state import RecordedTrial, SearchState, is_behind, is_planned
from elsa_tune.tracking.store import may_run
from elsa_tune.tracking.uris import shown_uri

# How much longer the answer may take for each run of a search.
_RUN_S = 0.02


def read_searches(
    tracking_uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> list[SearchState]:
    """Return the searches on these tasks and of this name or id, in the order of their start.

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
        tags = (names.SEARCH_TAG, names.OTHER_SEARCH_TAG, names.SEARCH_ID_TAG)
        conditions = [f"tags.`{tag}` = '{search}'" for tag in tags]
    states: dict[str, SearchState] = {}
    with _client_of(tracking_uri) as client:
        runs: list[Any] = []
        for condition in conditions:
            runs += _runs(client, condition, tasks)
        runs.sort(key=_searches_first)
        for run in runs:
            tags = run.data.tags
            search_id = tags.get(names.SEARCH_ID_TAG, "")
            if search_id not in states:
                states[search_id] = _search_state(run)
            if names.TRIAL_TAG not in tags:
                continue
            state = states[search_id]
            trial = _trial_state(client, run, state.is_alive)
            # A run gets its params a moment after it was made, or from the next driver.
            if _params(run) or trial.status.is_final:
                state.trials[trial.key] = trial
    return sorted(states.values(), key=lambda state: state.started)


def _searches_first(run: Any) -> tuple[bool, int, str]:
    """Return what runs are sorted by: searches before trials, each kind by its start."""
    is_trial = names.TRIAL_TAG in run.data.tags
    return is_trial, run.info.start_time, run.info.run_id


def read_overview(tracking_uri: str) -> list[SearchState]:
    """Return every search that has a run of its own, its trials counted and not read.

    They are in the order of their start. Raises TrackingError as `read_searches` does.

    A run costs MLflow milliseconds, and a search has dozens of trials: they are asked for only
    where their search runs, or ended before its run told their number.
    """
    states: dict[str, SearchState] = {}
    condition = f"tags.`{JOURNAL_TAG}` LIKE '%'"  # trials' runs have no journal
    with _client_of(tracking_uri) as client:
        for run in _runs(client, condition):
            state = _search_state(run)
            search_id = state.search.search_id
            trials_done = run.data.tags.get(names.TRIALS_DONE_TAG, "")
            if state.end is not None and trials_done.isdecimal():
                state.counted = int(trials_done)
                state.counted_running = 0
            else:
                state.counted, running = _counted(client, run, search_id)
                state.counted_running = running if state.is_alive else 0
            states.setdefault(search_id, state)
    return sorted(states.values(), key=lambda state: state.started)


def _counted(client: Any, parent: Any, search_id: str) -> tuple[int, int]:
    """Return how many trials of a search's plan are done, and how many have not ended."""
    condition = f"tags.`{names.SEARCH_ID_TAG}` = '{search_id}'"
    experiment = parent.info.experiment_id
    done = set()
    unended = set()
    for run in _runs(client, condition, within=experiment):
        tags = run.data.tags
        trial = tags.get(names.TRIAL_TAG)
        status = TrialStatus(tags.get(names.STATUS_TAG, TrialStatus.RUNNING))
        if trial is None:
            continue
        phase = _params(run).get("phase")
        if not is_planned(phase):
            continue
        if status.is_final:
            done.add(trial)
        elif status is TrialStatus.RUNNING:
            unended.add(trial)
    return len(done), len(unended)


@contextlib.contextmanager
def _client_of(tracking_uri: str) -> Iterator[Any]:
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
    connection.import_mlflow()
    try:
        yield connection.client()
    except Exception as error:  # the client's, the server's and the network's: no common base
        raise unusable(tracking_uri, error) from error


def _search_state(run: Any) -> SearchState:
    """Return a search without its trials, from its own run; or what a trial's says of it."""
    tags = dict(run.data.tags)
    started = run.info.start_time / 1000
    name = names.search_of(tags)
    if name is None or names.SEARCH_ID_TAG not in tags:
        raise ValueError(f"run {run.info.run_id} lacks the tags of a search")
    params = _params(run)
    search = SearchStarted(
        name=name,
        search_id=tags[names.SEARCH_ID_TAG],
        attempt=0,
        model=params.get("model", ""),
        task=params.get("task", ""),
    )
    if names.TRIAL_TAG in tags:
        return SearchState(search=search, started=started)
    attempt = int(tags.get(names.ATTEMPT_TAG, "1"))
    search = dataclasses.replace(search, attempt=attempt, params=params, tags=tags)
    status = SearchStatus(tags.get(names.STATUS_TAG, SearchStatus.RUNNING))
    end = None
    if status is not SearchStatus.RUNNING:
        end = SearchEnded(status=status)
    decisions = {}
    for what, text in names.after_prefix(names.DECISION_PREFIX, tags).items():
        decisions[what] = _decided(text)
    return SearchState(
        search=search,
        started=started,
        end=end,
        is_alive=may_run(tags),
        decisions=decisions,
    )


def _trial_state(client: Any, run: Any, is_alive: bool) -> RecordedTrial:
    tags = dict(run.data.tags)
    params = _params(run)
    key = tags[names.TRIAL_TAG]
    started = run.info.start_time / 1000
    status = TrialStatus(tags.get(names.STATUS_TAG, TrialStatus.RUNNING))
    metrics = _latest(client, run)
    start = TrialStarted(trial=key, params=read_params(params), tags=tags, time=started)
    reports: tuple[Report, ...] = ()
    evaluation = metrics.get(names.EVALUATION)
    if evaluation is not None:
        last = Report(trial=key, evaluation=int(evaluation), step=0, metrics=metrics)
        reports = (last,)
    end = None
    if status is not TrialStatus.RUNNING:
        at_the_end = dict(metrics)
        if names.TRIAL_QUALITY in metrics:
            at_the_end[QUALITY] = metrics[names.TRIAL_QUALITY]
        artifact = tags.get(names.PREDICTIONS)
        end = TrialEnded(trial=key, status=status, metrics=at_the_end, artifact=artifact)
    return RecordedTrial(
        start=start,
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
    for point_at_highest_step in run.data.to_proto().metrics:
        if point_at_highest_step.timestamp >= since:
            continue
        # A request for each metric of each trial that was begun again would take minutes.
        name = point_at_highest_step.key
        history = client.get_metric_history(run.info.run_id, name)
        points = [point for point in history if point.timestamp >= since]
        if not points:
            del latest[name]
            continue
        highest = max(points, key=lambda point: (point.step, point.timestamp))
        latest[name] = highest.value
    return latest


def _params(run: Any) -> dict[str, str]:
    changed = names.after_prefix(names.CHANGED_PARAM_PREFIX, run.data.tags)
    return {**run.data.params, **changed}


def _decided(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def lacks(tracking_uri: str, sent: SearchState) -> bool:
    """Whether the store has less of a search than it was sent, by the rule of `is_behind`.

    Raises TrackingError for one that does not answer in time, or cannot be read.
    """
    connection = MlflowConnection(tracking_uri)
    connection.check()

    def is_store_behind() -> bool:
        runs: Iterable[Any] = ()
        if not connection.is_empty():
            runs = runs_of(connection.client(), sent.search.search_id)
        return is_behind(reached(runs), sent)

    connection.import_mlflow()
    patience = PATIENCE_S + _RUN_S * len(sent.trials)
    if sqlite_file(tracking_uri) is not None:
        patience = math.inf  # a file answers, however long a slow disk takes
    return connection.within(patience, is_store_behind)


def reached(runs: Iterable[Any]) -> SearchState:
    """Return how far a search has come, by its runs' tags and last evaluations alone."""
    state = SearchState()
    for run in runs:
        with contextlib.suppress(ValueError):  # what somebody else wrote there says nothing
            _add_reached(state, run)
    return state


def _add_reached(state: SearchState, run: Any) -> None:
    tags = run.data.tags
    attempt = int(tags.get(names.ATTEMPT_TAG, "1"))
    status = tags.get(names.STATUS_TAG, TrialStatus.RUNNING.value)
    has_ended = status != TrialStatus.RUNNING.value
    key = tags.get(names.TRIAL_TAG)
    if key is None:
        state.search = dataclasses.replace(state.search, attempt=attempt)
        state.end = SearchEnded(status=SearchStatus(status)) if has_ended else None
        return
    end = None
    if has_ended:
        end = TrialEnded(trial=key, status=TrialStatus(status))
    number = int(run.data.metrics.get(names.EVALUATION, 0))
    last = Report(trial=key, evaluation=number, step=0)
    start = TrialStarted(trial=key, attempt=attempt)
    state.trials[key] = RecordedTrial(start=start, reports=(last,), end=end)


def runs_of(client: Any, search_id: str) -> Iterator[Any]:
    """MLflow's own runs of one search, the parent's and the trials', that are not deleted."""
    return _runs(client, f"tags.`{names.SEARCH_ID_TAG}` = '{search_id}'")


def _runs(
    client: Any, condition: str, tasks: Iterable[str] | None = None, within: str | None = None
) -> Iterator[Any]:
    """Yield the runs that meet a condition. within: the id of the only experiment to look in."""
    experiments = _experiments(client, tasks) if within is None else [within]
    token = None
    while experiments:
        page = client.search_runs(experiments, condition, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _experiments(client: Any, tasks: Iterable[str] | None = None) -> list[str]:
    """Return the ids of the experiments of these tasks, or of all tasks."""
    ours = f"name LIKE '{names.EXPERIMENT_PREFIX}%'"
    experiments = client.search_experiments(filter_string=ours, max_results=50_000)  # its limit
    if tasks is None:
        return [experiment.experiment_id for experiment in experiments]
    wanted = {f"{names.EXPERIMENT_PREFIX}{task}" for task in tasks}
    return [experiment.experiment_id for experiment in experiments if experiment.name in wanted]


def latest_page(client: Any, address: str) -> tuple[str, str] | None:
    """Return the search that started last, and the page of its task's; None without any.

    address: of the server that shows them.
    """
    runs = client.search_runs(
        _experiments(client),
        filter_string=f"tags.`{names.SEARCH_ID_TAG}` LIKE '%'",
        order_by=["attributes.start_time DESC"],
        max_results=1,
    )
    if not runs:
        return None
    latest = runs[0]
    name = names.search_of(latest.data.tags) or ""
    page = page_of(address, latest.info.experiment_id)
    return name, page
