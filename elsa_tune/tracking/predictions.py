"""What trials answered, example by example: from a search's folder or from MLflow's artifacts."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.files import write_aside
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.tracking.connection import Connection

RUN_SCHEME = "runs:/"
DRAWS_FOLDER = "draws"

# Sets of draws, half a megabyte each, that a folder keeps: every added seed makes a new one.
DRAWS_KEPT = 128

# Broken or half-written files are as good as none: what is computed from them is computed anew.
_UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


class KeptPredictions:
    """Predictions of recorded trials, and a folder for what was computed from them.

    rows: those that will be asked about. What is computed is looked for with their searches, where
    these are at hand, and in `cache`; it is kept with the search where all rows are of one, else in
    `cache`. tracking_uri: the store that rows of the scheme
    `runs:/` are read from.
    """

    def __init__(
        self, rows: Iterable[ResultRow], cache: Path, tracking_uri: str | None = None
    ) -> None:
        searches = dict.fromkeys(_search_folder(row) for row in rows if row.predictions is not None)
        at_hand = [folder for folder in searches if folder is not None]
        self._folders = [folder / DRAWS_FOLDER for folder in (*at_hand, cache)]
        self._kept_in = self._folders[0] if len(searches) == 1 else self._folders[-1]
        self._uri = tracking_uri

    def predictions(self, row: ResultRow) -> Predictions | None:
        """What the row's trial answered; None where it is not kept, or cannot be had any more."""
        if row.predictions is None:
            return None
        if not row.predictions.startswith(RUN_SCHEME):
            return _read(Path(row.predictions))
        run_id, _, artifact = row.predictions.removeprefix(RUN_SCHEME).partition("/")
        if self._uri is None:
            return None
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        with tempfile.TemporaryDirectory() as folder:
            try:
                client = Connection(self._uri).client()
                return _read(Path(client.download_artifacts(run_id, artifact, folder)))
            except Exception:  # MLflow's, the server's and the network's, without a common base
                return None

    def load(self, key: str) -> Mapping[str, NDArray[np.float32]] | None:
        """Arrays kept under a key; None where there are none."""
        for folder in self._folders:
            with contextlib.suppress(*_UNREADABLE):
                return _arrays(folder / f"{key}.npz")
        return None

    def stamp(self, row: ResultRow) -> str:
        """Tells a row's predictions from others that may stand in the same place."""
        place = row.predictions or ""
        if not place or place.startswith(RUN_SCHEME):
            return place
        try:
            about = Path(place).stat()
        except OSError:
            return place
        return f"{place} {about.st_size} {about.st_mtime_ns}"

    def save(self, key: str, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep arrays under a key, if there is a place to write; the oldest others go."""
        with contextlib.suppress(OSError):
            # numpy's stub, before 2.1: its arrays could be its options
            write = functools.partial(np.savez, **arrays)  # type: ignore[arg-type]
            write_aside(self._kept_in / f"{key}.npz", write)
            by_age = sorted(self._kept_in.glob("*.npz"), key=lambda kept: kept.stat().st_mtime_ns)
            for old in by_age[:-DRAWS_KEPT]:
                old.unlink(missing_ok=True)


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


def _search_folder(row: ResultRow) -> Path | None:
    assert row.predictions is not None
    if row.predictions.startswith(RUN_SCHEME):
        return None
    return Path(row.predictions).parents[1]


def _read(file: Path) -> Predictions | None:
    try:
        kept = _arrays(file)
        predictions, labels, classes = kept["predictions"], kept["labels"], int(kept["classes"])
    except _UNREADABLE:
        return None
    if predictions.ndim != 1 or not len(labels) or predictions.shape != labels.shape:
        return None
    return Predictions(predictions=predictions, labels=labels, classes=classes)


def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    # Opened here: np.load leaves a broken archive open.
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as kept:
        return {name: kept[name] for name in kept.files}
