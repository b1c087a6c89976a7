"""Kept predictions: read from a search's folder, and what is computed from them kept there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from elsa_tune.tracking import predictions
from elsa_tune.tracking.predictions import KeptPredictions, predictions_place
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
    found = KeptPredictions([asked], tmp_path / "cache").predictions(asked)
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
        assert KeptPredictions([asked], tmp_path).predictions(asked) is None
    unknown = row(3, 0.5)
    assert KeptPredictions([unknown], tmp_path).predictions(unknown) is None


def test_a_store_that_is_gone_gives_none(tmp_path: Path) -> None:
    asked = row(3, 0.5, trial="t", predictions="runs:/run7/predictions/t.npz")
    uri = f"sqlite:///{tmp_path}/none.db"
    assert KeptPredictions([asked], tmp_path, uri).predictions(asked) is None
    assert KeptPredictions([asked], tmp_path).predictions(asked) is None


def test_draws_are_kept_with_a_single_search_else_in_the_cache(tmp_path: Path) -> None:
    rows = []
    for search in ("one", "two"):
        write(tmp_path / search, "t")
        place = predictions_place("predictions/t.npz", tmp_path / search, None)
        rows.append(row(3, 2 / 3, search=search, trial="t", predictions=place))
    draws = {"3": np.arange(4, dtype=np.float32)}
    alone = KeptPredictions(rows[:1], tmp_path / "cache")
    assert alone.load("key") is None
    alone.save("key", draws)
    assert (tmp_path / "one" / "draws" / "key.npz").is_file()
    again = KeptPredictions(rows[:1], tmp_path / "cache").load("key")
    assert again is not None and again["3"].tolist() == [0, 1, 2, 3]
    both = KeptPredictions(rows, tmp_path / "cache")
    assert both.load("key") is not None
    both.save("key", draws)
    assert [file.name for file in (tmp_path / "cache" / "draws").iterdir()] == ["key.npz"]


def test_the_oldest_draws_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "DRAWS_KEPT", 2)
    kept = KeptPredictions([], tmp_path)
    for key, time in (("old", 2), ("older", 1)):
        kept.save(key, {"3": np.zeros(2, dtype=np.float32)})
        os.utime(tmp_path / "draws" / f"{key}.npz", ns=(time, time))
    kept.save("new", {"3": np.zeros(2, dtype=np.float32)})
    assert {file.stem for file in (tmp_path / "draws").iterdir()} == {"old", "new"}


def test_a_file_that_was_written_again_has_another_stamp(tmp_path: Path) -> None:
    write(tmp_path, "t")
    asked = row(
        3, 2 / 3, trial="t", predictions=predictions_place("predictions/t.npz", tmp_path, None)
    )
    kept = KeptPredictions([asked], tmp_path)
    before = kept.stamp(asked)
    file = tmp_path / "predictions" / "t.npz"
    os.utime(file, ns=(1, 1))
    assert kept.stamp(asked) != before
    file.unlink()
    assert kept.stamp(asked) == str(file)


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    kept = KeptPredictions([], tmp_path / "file")
    kept.save("key", {"3": np.zeros(2, dtype=np.float32)})
    assert kept.load("key") is None
