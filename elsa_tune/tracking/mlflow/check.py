"""Whether an MLflow store could take a search's record, found out without changing it."""

import os
from pathlib import Path

from elsa_tune.errors import TrackingError
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.files import why_not_written
from elsa_tune.tracking.mlflow.names import EXPERIMENT_PREFIX
from elsa_tune.tracking.paths import artifact_root_for, sqlite_file
from elsa_tune.tracking.uris import reason, shown_uri


def look_at_store(store: MlflowConnection) -> str:
    """Say what a search would find there, in a few words. Raises TrackingError."""
    shown = shown_uri(store.uri)
    file = sqlite_file(store.uri)
    if file is not None and not file.exists():
        place = _nearest_folder(file)
        if not os.access(place, os.W_OK):
            raise TrackingError(
                f"the MLflow store {file} cannot be made: {place} cannot be written; work in "
                "another folder, or name another store with `tracking_uri`"
            )
        return f"{shown} can be made: the first search does it"
    store.check()
    if store.is_empty():
        return f"{shown} answers; the first search makes its tables"
    if file is not None:
        store.initialise()
    try:
        is_written = _takes_writes(store)
        files_uri = _files_uri(store)
    except Exception as error:  # of any library; whatever it was, a search would meet it too
        why = reason(error, store.uri)
        raise TrackingError(
            f"the MLflow store {shown} answers, but cannot be written ({why}); ask "
            "whoever runs it for the right to write, or name another with `tracking_uri`"
        ) from error
    why = why_not_written(files_uri, store.uri)
    if why:
        raise TrackingError(
            f"the MLflow store {shown} answers, but leaves predictions and reports to its clients, "
            f"and {why}"
        )
    return f"{shown} answers{' and can be written' if is_written else ''}"


def _takes_writes(store: MlflowConnection) -> bool:
    """Try to write what cannot be: an experiment of a name that is taken.

    False where there is no experiment whose name to take.
    """
    from mlflow.entities import ViewType
    from mlflow.exceptions import MlflowException

    # A deleted one keeps its name, as `Default` does in a store that we made.
    every = store.client().search_experiments(ViewType.ALL, max_results=1)
    for experiment in every:
        try:
            store.client().create_experiment(experiment.name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return True
    return False


def _files_uri(store: MlflowConnection) -> str:
    """Return where the files of a search go, as far as an experiment tells it; else ""."""
    from mlflow.entities import ViewType

    client = store.client()
    ours = f"name LIKE '{EXPERIMENT_PREFIX}%'"
    found = client.search_experiments(ViewType.ALL, max_results=1, filter_string=ours)
    if not found and artifact_root_for(store.uri, Path.cwd()) is None:
        found = client.search_experiments(ViewType.ALL, max_results=1)
    return found[0].artifact_location if found else ""


def _nearest_folder(file: Path) -> Path:
    return next(folder for folder in file.parents if folder.is_dir())
