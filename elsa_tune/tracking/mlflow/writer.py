"""The MLflow store, written: an experiment per task, a run per search, a child run per trial.

Every method may be called again with the same record and leaves the store as one call would: runs
are found by their tags, so that no trial has two. Errors come as MLflow raises them.
"""

import contextlib
import getpass
import math
import os
import re
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from elsa_tune.errors import TrackingError
from elsa_tune.files import slug
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal_records import (
    Report,
    SearchEnded,
    SearchStarted,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.mlflow import names, pages
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.reader import reached, runs_of
from elsa_tune.tracking.params import param_texts, search_texts
from elsa_tune.tracking.paths import artifact_root_for
from elsa_tune.tracking.record_names import REPORT
from elsa_tune.tracking.state import SearchState, is_behind
from elsa_tune.tracking.store import StoreGoneError
from elsa_tune.tracking.uris import shown_uri

_PARAM_LENGTH = 6000  # MLflow's limit (mlflow/utils/validation.py)
_BAD_IN_KEYS = re.compile(r"[^\w./: -]", re.ASCII)


@dataclass(slots=True)
class _Run:
    """A run in the store."""

    run_id: str  # MLflow's
    params: dict[str, str]  # as they stand there, or in the tags that replace them
    found: Any = None  # MLflow's, as it was looked up; None where it was made since
    is_running: bool = False  # whether it read so then


class MlflowWriter(MlflowConnection):
    """Writes runs to one MLflow store; not thread-safe, used by one thread at a time.

    uri: absolute. artifact_root: a folder for files where no server decides on it, else None.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.artifact_root = artifact_root_for(uri, Path.cwd())
        self.forget()

    def begin_search(self, record: SearchStarted, tags: dict[str, str]) -> None:
        """Find or create the parent run and let it read RUNNING. tags: beside the record's own."""
        from mlflow.exceptions import MlflowException

        params = {"model": record.model, "task": record.task, "search": record.name}
        params |= search_texts(record.params)
        self._begin(record, record, params, tags)
        run_id = self.run_id(record)
        data = [names.data_input(record)]
        try:
            self.client().log_inputs(run_id, datasets=data)
        except MlflowException:
            # Another search wrote the same data set in this moment: now it is there.
            self.client().log_inputs(run_id, datasets=data)

    def end_lost_trials(self, search: SearchStarted, known: Collection[str]) -> None:
        """End the runs that read RUNNING of trials that the journal does not know.

        A journal that comes from a copy may lack the last ones. Those that begin again, read
        RUNNING again.
        """
        for trial, run in self._runs_of(search).items():
            if trial and trial not in known and run.is_running:
                self.log(search, trial, [], {names.STATUS_TAG: TrialStatus.INTERRUPTED.value})
                status = names.RUN_STATUS[TrialStatus.INTERRUPTED]
                self.client().set_terminated(run.run_id, status)
                run.is_running = False

    def begin_trial(self, search: SearchStarted, record: TrialStarted) -> None:
        """Find or create the trial's run and let it read RUNNING, with this attempt's params."""
        params = param_texts(record.params)
        tags = {
            names.ATTEMPT_STARTED_TAG: str(record.milliseconds),
            # It may be another one since somebody deleted the first.
            names.PARENT_TAG: self.run_id(search),
        }
        self._begin(search, record, params, tags)

    def log(
        self, search: SearchStarted, trial: str, reports: Sequence[Report], tags: Mapping[str, str]
    ) -> None:
        """Add finite metrics and tags to a trial's run ("" for the parent's), each once."""
        from mlflow.entities import Metric, RunTag

        metrics = []
        every: dict[str, str] = {}
        for report in reports:
            every |= report.tags
            for name, value in report.metrics.items():
                if math.isfinite(value):
                    metric = Metric(_key(name), value, report.milliseconds, report.step)
                    metrics.append(metric)
        every |= tags
        pairs = []
        for name, text in _as_tags(every).items():
            pairs.append(RunTag(name, text))
        run_id = self.run_id(search, trial)
        self.client().log_batch(run_id, metrics=metrics, tags=pairs)

    def without_shown(self, search: SearchStarted, reports: Sequence[Report]) -> list[Report]:
        """Return reports less the values that the search's run shows at their steps already."""
        client = self.client()
        run_id = self.run_id(search)
        shown: dict[tuple[str, int], float] = {}
        for name in sorted({name for report in reports for name in report.metrics}):
            history = client.get_metric_history(run_id, _key(name))
            for point in sorted(history, key=lambda point: int(point.timestamp)):
                shown[name, point.step] = point.value
        new = []
        for report in reports:
            metrics = {}
            for name, value in report.metrics.items():
                if shown.get((name, report.step)) != value:
                    metrics[name] = value
            new.append(replace(report, metrics=metrics))
        return new

    def end(
        self,
        search: SearchStarted,
        record: TrialEnded | SearchEnded,
        reports: Sequence[Report] = (),
        tags: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        """Let a run read as ended.

        name: its new one, or None. At a search's end, runs that a lost answer made twice
        are removed, and the experiment's description says what was found.
        """
        trial = ""
        attempt = search.attempt
        if isinstance(record, TrialEnded):
            trial = record.trial
            attempt = record.attempt
        every = dict(tags or {})
        every[names.STATUS_TAG] = record.status.value
        if record.message or attempt > 1:  # an earlier attempt's is true no more
            every["message"] = record.message
        self.log(search, trial, reports, every)
        client = self.client()
        run_id = self.run_id(search, trial)
        status = names.RUN_STATUS[record.status]
        if name is not None:
            client.update_run(run_id, name=name)
        client.set_terminated(run_id, status=status, end_time=record.milliseconds)
        if not trial:
            self.forget()
            self._runs_of(search)
            pages.describe(client, self._experiment_id)

    def try_to_write(self, search: SearchStarted) -> None:
        """Write something that only tells whether the store takes anything now.

        Another value each time: a database is not asked to write what it has.
        """
        self.log(search, "", [], {names.TRIED_TAG: f"{time.time():.3f}"})

    def add_artifact(self, search: SearchStarted, trial: str, source: Path) -> None:
        """Keep a file with the trial's run, or a folder ("" for trial) with the search's.

        Once more replaces it. A store on this file system gets a hard link, so that nothing
        lies there twice.
        """
        client = self.client()
        run_id = self.run_id(search, trial)
        folder = names.PREDICTIONS if trial else REPORT
        run = client.get_run(run_id)
        place = urlsplit(run.info.artifact_uri)
        if place.scheme != "file":
            if source.is_file():
                client.log_artifact(run_id, str(source), folder)
            else:
                client.log_artifacts(run_id, str(source), folder)
            return
        root = url2pathname(place.path)
        target = Path(root, folder)
        target.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            _link(source, target / source.name)
        else:
            shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)

    def run_id(self, search: SearchStarted, trial: str = "") -> str:
        """Return the id of a trial's run, or of the search's own.

        StoreGoneError where there is none.
        """
        run = self._runs_of(search).get(trial)
        if run is None:
            raise StoreGoneError(
                f"search '{search.name}' has no run for {trial or 'itself'} in this store"
            )
        return run.run_id

    def lacks(self, sent: SearchState) -> bool:
        """Whether the store has less of a search than it was sent, by the rule of `is_behind`."""
        runs = [run.found for run in self._runs_of(sent.search).values() if run.found is not None]
        return is_behind(reached(runs), sent)

    def forget(self) -> None:
        """Drop everything remembered, so that runs are looked up in the store again."""
        self._search_id = ""
        self._experiment_id = ""
        self.files_uri = ""  # below which the experiment's files lie
        self._runs: dict[str, _Run] = {}  # of that search: by trial, "" for the search's own

    def _begin(
        self,
        search: SearchStarted,
        record: SearchStarted | TrialStarted,
        params: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        """Find or create a run that reads RUNNING. A changed param stands in a tag."""
        from mlflow.entities import Param

        trial = ""
        name = search.name
        if isinstance(record, TrialStarted):
            trial = record.trial
            name = names.run_name(trial, record.params)
        is_new = trial not in self._runs_of(search)
        every = {**record.tags, **tags}
        every[names.STATUS_TAG] = "running"
        every[names.ATTEMPT_TAG] = str(record.attempt)
        if is_new:
            self._create(search, trial, name, every, record.milliseconds)
        run = self._runs[trial]
        texts = {_key(param): _cut(text, _PARAM_LENGTH) for param, text in params.items()}
        missing = []
        changed = {}
        for param, text in texts.items():
            if param not in run.params:
                missing.append(Param(param, text))
            elif run.params[param] != text:
                tag = f"{names.CHANGED_PARAM_PREFIX}{param}"
                changed[tag] = text
        self.client().log_batch(run.run_id, params=missing)
        if not is_new:
            self.log(search, trial, [], every | changed)
            self.client().update_run(run.run_id, status="RUNNING", name=name)
        run.params.update(texts)

    def _create(
        self, search: SearchStarted, trial: str, name: str, tags: Mapping[str, str], at: int
    ) -> None:
        """Make a run for a trial, "" for the search's own. at: milliseconds since the epoch."""
        every = {
            **tags,
            names.SEARCH_ID_TAG: search.search_id,
            names.SEARCH_TAG: search.name,
            "mlflow.source.name": "elsa-tune",
            "mlflow.user": "unknown",
        }
        with contextlib.suppress(KeyError, OSError):  # no name is known of this process's user
            every["mlflow.user"] = getpass.getuser()
        if trial:
            every[names.TRIAL_TAG] = trial
        self._search_id = ""  # without an answer it may exist all the same
        run = self.client().create_run(self._experiment_id, at, _as_tags(every), run_name=name)
        self._search_id = search.search_id
        self._runs[trial] = _Run(run.info.run_id, {})

    def _runs_of(self, search: SearchStarted) -> dict[str, _Run]:
        """Return a search's runs, looked up once. Of two for one trial the fuller one stays."""
        if search.search_id == self._search_id:
            return self._runs
        self._experiment_id = self._experiment(search.task)
        by_trial: dict[str, list[Any]] = {}
        for run in runs_of(self.client(), search.search_id):
            trial = run.data.tags.get(names.TRIAL_TAG, "")
            by_trial.setdefault(trial, []).append(run)
        self._runs = {}
        for trial, runs in by_trial.items():
            runs.sort(key=_fullness, reverse=True)
            fullest, *others = runs
            for run in others:
                self.client().delete_run(run.info.run_id)
            changed = names.after_prefix(names.CHANGED_PARAM_PREFIX, fullest.data.tags)
            params = {**fullest.data.params, **changed}
            is_running = fullest.info.status == "RUNNING"
            self._runs[trial] = _Run(fullest.info.run_id, params, fullest, is_running)
        self._search_id = search.search_id
        return self._runs

    def _experiment(self, task: str) -> str:
        """Return the experiment's id; created, or restored when somebody deleted it."""
        from mlflow.exceptions import MlflowException

        client = self.client()
        name = f"{names.EXPERIMENT_PREFIX}{task}"
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            location = None
            if self.artifact_root is not None:
                folder = self.artifact_root / slug(task)
                location = folder.absolute().as_uri()
            try:
                client.create_experiment(name, location, pages.experiment_tags())
            except MlflowException as error:
                # Another search was faster.
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            experiment = client.get_experiment_by_name(name)
        if experiment is None:
            raise TrackingError(
                f"experiment '{name}' was made in the MLflow store {shown_uri(self.uri)}, which "
                "does not show it; see whether this user may read it"
            )
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        pages.add_view(client, experiment)
        self.files_uri = experiment.artifact_location
        return str(experiment.experiment_id)


def _fullness(run: Any) -> int:
    """Return how much of a trial MLflow's run has."""
    return len(run.data.params) + len(run.data.metrics)


def _link(source: str | Path, target: str | Path) -> None:
    """Give a file a second name; copy it where the file system has no such thing."""
    Path(target).unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _as_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {_key(name): _cut(value, names.TAG_LENGTH) for name, value in tags.items()}


def _key(name: str) -> str:
    return _BAD_IN_KEYS.sub("_", name)[:250]


def _cut(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    return text[: length - 1] + "…"
