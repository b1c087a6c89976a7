"""Kept predictions: read from a search's folder, or from MLflow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elsa_tune.tracking.rows import KeptPredictions, predictions_place
from elsa_tune.tracking.stores import store_at
from tests.unit.result_rows import row


def write(folder: Path, trial: str) -> None:
    (folder / "predictions").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        folder / "predictions" / f"{trial}.npz",
        predictions=np.array([0, 1, 1], dtype=np.int8),
        labels=np.array([0, 1, 0], dtype=np.int8),
        classes=np.int64(2),
        metric=np.str_("accuracy"),
    )


def test_they_are_read_from_the_searchs_folder(tmp_path: Path) -> None:
    write(tmp_path / "mine", "measure-N3")
    place = predictions_place("predictions/measure-N3.npz", tmp_path / "mine", "run7")
    asked = row(3, 2 / 3, trial="measure-N3", predictions=place)
    found = KeptPredictions()(asked)
    assert found is not None and found.classes == 2
    assert found.predictions.tolist() == [0, 1, 1] and found.labels.tolist() == [0, 1, 0]


def test_without_the_folder_mlflow_is_the_place(tmp_path: Path) -> None:
    file = "predictions/t.npz"
    assert predictions_place(file, tmp_path, "run7") == "runs:/run7/predictions/t.npz"
    assert predictions_place(file, None, "run7") == "runs:/run7/predictions/t.npz"
    assert predictions_place(file, tmp_path, None) is None


@pytest.mark.parametrize("file", ["../secret.npz", "predictions/../../secret.npz", "{}/secret.npz"])
def test_a_file_outside_of_the_folder_is_no_place(file: str, tmp_path: Path) -> None:
    (tmp_path / "secret.npz").write_text("of another search")
    (tmp_path / "mine" / "predictions").mkdir(parents=True)
    assert predictions_place(file.format(tmp_path), tmp_path / "mine", "run7") is None


def test_a_broken_file_or_one_of_an_older_version_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "predictions"
    folder.mkdir(parents=True)
    (folder / "broken.npz").write_bytes(b"PK\x03\x04 half a file")
    np.savez_compressed(folder / "old.npz", predictions=np.array([0, 1]))
    np.savez_compressed(
        folder / "uneven.npz", predictions=np.zeros(3), labels=np.zeros(4), classes=np.int64(2)
    )
    for trial in ("broken", "old", "uneven"):
        asked = row(3, 0.5, trial=trial, predictions=str(folder / f"{trial}.npz"))
        assert KeptPredictions()(asked) is None
    unknown = row(3, 0.5)
    assert KeptPredictions()(unknown) is None


def test_a_store_that_is_gone_gives_none(tmp_path: Path) -> None:
    asked = row(3, 0.5, trial="t", predictions="runs:/run7/predictions/t.npz")
    uri = f"sqlite:///{tmp_path}/none.db"
    assert KeptPredictions(store_at(uri))(asked) is None
    assert list(tmp_path.iterdir()) == []  # a question makes no store
    assert KeptPredictions()(asked) is None
