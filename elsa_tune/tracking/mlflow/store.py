"""An MLflow store as the rest of the package sees it."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elsa_tune.errors import TrackingError
from elsa_tune.tracking.database_drivers import driver_package
from elsa_tune.tracking.journal_records import SearchStarted
from elsa_tune.tracking.mlflow import reader, server
from elsa_tune.tracking.mlflow.check import look_at_store
from elsa_tune.tracking.mlflow.connection import MlflowConnection, is_missing, may_pass
from elsa_tune.tracking.mlflow.files import files_at, why_not_at
from elsa_tune.tracking.mlflow.models import log_model
from elsa_tune.tracking.mlflow.names import TRIAL_TAG
from elsa_tune.tracking.mlflow.pages import describe
from elsa_tune.tracking.mlflow.reader import runs_of
from elsa_tune.tracking.mlflow.sink import MlflowSink
from elsa_tune.tracking.mlflow.writer import MlflowWriter
from elsa_tune.tracking.paths import sqlite_file
from elsa_tune.tracking.state import SearchState

# Before each time that a file is asked for: MLflow's own retries would hold up what is sent, too.
_PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0)
# No time is begun after that: clients of object stores try again for seconds by themselves.
_PATIENCE_S = 40.0


class MlflowStore(MlflowConnection):
    """A `RecordStore` in MLflow: an SQLite file, a database server or a tracking server."""

    name = "MLflow"
    has_pages = True
    credentials_hint = (
        "by `tracking_uri`, or for a server by MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD (or MLFLOW_TRACKING_TOKEN) in the environment"
    )

    def packages(self) -> set[str]:
        driver = driver_package(self.uri)
        return set() if driver is None else {driver}

    def look(self) -> str:
        return look_at_store(self)

    def is_unmade(self) -> bool:
        return sqlite_file(self.uri) is not None and self.is_empty()

    def lacks(self, sent: SearchState) -> bool:
        return reader.lacks(self.uri, sent)

    def sink(self, journal: Path) -> MlflowSink:
        return MlflowSink(journal, MlflowWriter(self.uri))

    def searches(
        self, tasks: Sequence[str] | None = None, search: str | None = None
    ) -> list[SearchState]:
        return reader.read_searches(self.uri, tasks, search)

    def overview(self) -> list[SearchState]:
        return reader.read_overview(self.uri)

    def show(self, host: str, port: int, say: Callable[[str], None]) -> None:
        server.show(self, host, port, say)

    def fetch(self, run_id: str, artifact: str, folder: Path) -> Path | None:
        file = sqlite_file(self.uri)
        if file is not None and file.parent.is_dir() and self.is_empty():
            return None  # MLflow would make a store first
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        uri = ""
        why = ""
        until = time.monotonic() + _PATIENCE_S
        for pause in _PAUSES_S:
            if time.monotonic() + pause > until:
                break
            time.sleep(pause)
            try:
                uri = uri or self.client().get_run(run_id).info.artifact_uri
                return Path(files_at(uri, self.uri).download_artifacts(artifact, str(folder)))
            except Exception as error:  # the server's, the network's and the files' own
                if is_missing(error):
                    return None
                why = why_not_at(uri, error, self.uri)
                if not may_pass(error):
                    break
        raise TrackingError(why)

    def delete(self, search_id: str) -> int:
        if self.is_empty():
            return 0
        runs = list(runs_of(self.client(), search_id))
        # The parent goes last: while it stands, a deletion that was cut short can be repeated.
        for run in sorted(runs, key=lambda run: TRIAL_TAG not in run.data.tags):
            self.client().delete_run(run.info.run_id)
        for experiment in {run.info.experiment_id for run in runs}:
            describe(self.client(), experiment)
        return len(runs)

    def keep_model(
        self,
        search: SearchStarted,
        classifier: Any,
        row: Mapping[str, str],
        options: Mapping[str, Any],
        versions: Mapping[str, str],
    ) -> str:
        run_id = MlflowWriter(self.uri).run_id(search)
        return log_model(self, run_id, classifier, row, options, versions)
