"""What trials answered, example by example: from a search's folder or from MLflow's artifacts."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.tracking.connection import Connection

RUN_SCHEME = "runs:/"

# Broken or half-written files are as good as none.
_UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


class KeptPredictions:
    """Predictions of recorded trials. tracking_uri: the store that rows of the scheme `runs:/` are
    read from.
    """

    def __init__(self, tracking_uri: str | None = None) -> None:
        self._uri = tracking_uri
        self._fetched: dict[str, Predictions | None] = {}  # each look at a depth asks again

    def predictions(self, row: ResultRow) -> Predictions | None:
        """What the row's trial answered; None where it is not kept, or cannot be had any more."""
        if row.predictions is None:
            return None
        if not row.predictions.startswith(RUN_SCHEME):
            return _read(Path(row.predictions))
        if self._uri is None:
            return None
        if row.predictions not in self._fetched:
            self._fetched[row.predictions] = self._fetch(self._uri, row.predictions)
        return self._fetched[row.predictions]

    @staticmethod
    def _fetch(uri: str, place: str) -> Predictions | None:
        run_id, _, artifact = place.removeprefix(RUN_SCHEME).partition("/")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        with tempfile.TemporaryDirectory() as folder:
            try:
                client = Connection(uri).client()
                return _read(Path(client.download_artifacts(run_id, artifact, folder)))
            except Exception:  # MLflow's, the server's and the network's, without a common base
                return None


def predictions_place(
    artifact: str | None, search_folder: Path | None, run_id: str | None
) -> str | None:
    """Where a trial's predictions are read: in the search's folder if there, else in MLflow.

    artifact: their file, relative to either. None where there is neither, or where the file would
    lie outside of them.
    """
    if not artifact or Path(artifact).is_absolute() or ".." in Path(artifact).parts:
        return None
    if search_folder is not None and (file := search_folder / artifact).is_file():
        return str(file)
    return None if run_id is None else f"{RUN_SCHEME}{run_id}/{artifact}"


def _read(file: Path) -> Predictions | None:
    try:
        # Opened here: np.load leaves a broken archive open.
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as kept:
            predictions, labels, classes = kept["predictions"], kept["labels"], int(kept["classes"])
    except _UNREADABLE:
        return None
    if predictions.ndim != 1 or not len(labels) or predictions.shape != labels.shape:
        return None
    return Predictions(predictions=predictions, labels=labels, classes=classes)
