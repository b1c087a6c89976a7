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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from elsa_tune.files import slug
from elsa_tune.tracking import mlflow_names as names
from elsa_tune.tracking import mlflow_pages
from elsa_tune.tracking.journal_records import (
    Report,
    SearchEnded,
    SearchStarted,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.mlflow_connection import MlflowConnection
from elsa_tune.tracking.mlflow_reader import runs_of
from elsa_tune.tracking.params import param_texts, search_texts
from elsa_tune.tracking.paths import artifact_root_for
from elsa_tune.tracking.record_names import REPORT
from elsa_tune.tracking.store import StoreGoneError

_PARAM_LENGTH = 6000  # MLflow's limit (mlflow/utils/validation.py)
_BAD_IN_KEYS = re.compile(r"[^\w./: -]", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run in the store. params: as they stand there, or in the tags that replace them."""

    run_id: str
    params: dict[str, str]


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

        metrics = [
            Metric(_key(name), value, report.milliseconds, report.step)
            for report in reports
            for name, value in report.metrics.items()
            if math.isfinite(value)
        ]
        every = {name: value for one in reports for name, value in one.tags.items()} | dict(tags)
        pairs = [RunTag(*pair) for pair in _as_tags(every).items()]
        self.client().log_batch(self.run_id(search, trial), metrics=metrics, tags=pairs)

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
        trial = record.trial if isinstance(record, TrialEnded) else ""
        message = {"message": record.message} if record.message else {}
        every = {**(tags or {}), names.STATUS_TAG: record.status.value, **message}
        self.log(search, trial, reports, every)
        run_id = self.run_id(search, trial)
        status = names.RUN_STATUS[record.status]
        if name is not None:
            self.client().update_run(run_id, name=name)
        self.client().set_terminated(run_id, status=status, end_time=record.milliseconds)
        if not trial:
            self.forget()
            self._runs_of(search)
            mlflow_pages.describe(self.client(), self._experiment_id)

    def add_artifact(self, search: SearchStarted, trial: str, source: Path) -> None:
        """Keep a file with the trial's run, or a folder ("" for trial) with the search's.

        Once more replaces it. A store on this file system gets a hard link, so that nothing
        lies there twice.
        """
        client = self.client()
        run_id = self.run_id(search, trial)
        folder = names.PREDICTIONS if trial else REPORT
        place = urlsplit(client.get_run(run_id).info.artifact_uri)
        if place.scheme != "file":
            send = client.log_artifact if source.is_file() else client.log_artifacts
            send(run_id, str(source), folder)
            return
        target = Path(url2pathname(place.path)) / folder
        target.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            _link(source, target / source.name)
        else:
            shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)

    def run_id(self, search: SearchStarted, trial: str = "") -> str:
        """Return the id of a trial's run, or of the search's own.

        StoreGoneError where there is none.
        """
        try:
            return self._runs_of(search)[trial].run_id
        except KeyError:
            raise StoreGoneError(
                f"search '{search.name}' has no run for {trial or 'itself'} in this store"
            ) from None

    def forget(self) -> None:
        """Drop everything remembered, so that runs are looked up in the store again."""
        self._search_id = self._experiment_id = ""
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

        trial = record.trial if isinstance(record, TrialStarted) else ""
        is_new = trial not in self._runs_of(search)
        name = search.name
        if isinstance(record, TrialStarted):
            name = names.run_name(trial, record.params)
        attempt = {names.STATUS_TAG: "running", names.ATTEMPT_TAG: str(record.attempt)}
        tags = {**record.tags, **tags, **attempt}
        if is_new:
            own = {
                names.SEARCH_ID_TAG: search.search_id,
                names.SEARCH_TAG: search.name,
                "mlflow.source.name": "elsa-tune",
                "mlflow.user": "unknown",
            }
            with contextlib.suppress(KeyError, OSError):  # no name is known of this process's user
                own["mlflow.user"] = getpass.getuser()
            every = _as_tags(tags | own | ({names.TRIAL_TAG: trial} if trial else {}))
            self._search_id = ""  # without an answer it may exist all the same
            made = self.client().create_run(
                self._experiment_id, record.milliseconds, every, run_name=name
            )
            self._search_id = search.search_id
            self._runs[trial] = _Run(made.info.run_id, {})
        run = self._runs[trial]
        params = {_key(param): _cut(value, _PARAM_LENGTH) for param, value in params.items()}
        missing = [Param(param, params[param]) for param in params if param not in run.params]
        self.client().log_batch(run.run_id, params=missing)
        if not is_new:
            changed = {
                f"{names.CHANGED_PARAM_PREFIX}{param}": value
                for param, value in params.items()
                if run.params.get(param, value) != value
            }
            self.log(search, trial, [], tags | changed)
            self.client().update_run(run.run_id, status="RUNNING", name=name)
        run.params.update(params)

    def _runs_of(self, search: SearchStarted) -> dict[str, _Run]:
        """Return a search's runs, looked up once. Of two for one trial the fuller one stays."""
        if search.search_id == self._search_id:
            return self._runs
        self._experiment_id = self._experiment(search.task)
        found: dict[str, list[Any]] = {}
        for run in runs_of(self.client(), search.search_id):
            found.setdefault(run.data.tags.get(names.TRIAL_TAG, ""), []).append(run)
        self._runs = {}
        for trial, runs in found.items():
            runs.sort(key=lambda run: len(run.data.params) + len(run.data.metrics), reverse=True)
            keep, *others = runs
            for run in others:
                self.client().delete_run(run.info.run_id)
            changed = names.after_prefix(names.CHANGED_PARAM_PREFIX, keep.data.tags)
            self._runs[trial] = _Run(keep.info.run_id, {**keep.data.params, **changed})
        self._search_id = search.search_id
        return self._runs

    def _experiment(self, task: str) -> str:
        """Return the experiment's id; created, or restored when somebody deleted it."""
        from mlflow.exceptions import MlflowException

        client = self.client()
        name = f"{names.EXPERIMENT_PREFIX}{task}"
        if (found := client.get_experiment_by_name(name)) is None:
            root = self.artifact_root
            location = None if root is None else (root / slug(task)).absolute().as_uri()
            try:
                client.create_experiment(name, location, mlflow_pages.experiment_tags())
            except MlflowException as error:
                # Another search was faster.
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            found = client.get_experiment_by_name(name)
            assert found is not None
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        mlflow_pages.add_view(client, found)
        return str(found.experiment_id)


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
    return text if len(text) <= length else text[: length - 1] + "…"
