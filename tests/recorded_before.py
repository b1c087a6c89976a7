"""The searches of `tests/recorded`, put where a test can ask and resume them."""

from __future__ import annotations

import json
import lzma
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"
STORE = "mlflow.sql.xz"
# What stands in the files for the folder in which they were recorded, and for its machine.
HERE, HOST = "@HERE@", "@HOST@"
# Of a point of an answer's curve: what was added since answers were recorded. It says what a new
# search would take, not what the recorded one found.
NEW_KEYS = ("would_certify", "corrected_would_certify")


def recorded_work(folder: Path) -> Path:
    """Make a folder the working directory in which the searches were recorded; return it."""
    places = {HERE: str(folder), HOST: socket.gethostname()}
    folder.mkdir(parents=True)
    for file in (*RECORDED.glob("*.csv"), *RECORDED.glob("*.yaml")):
        shutil.copy(file, folder)
    shutil.copytree(RECORDED / "model", folder / "model")
    storage = folder / "mlruns" / "searches"
    shutil.copytree(RECORDED / "searches", storage)
    for file in (*storage.glob("*/*.json"), *storage.glob("*/*.jsonl")):
        file.write_text(_replaced(file.read_text(encoding="utf-8"), places), encoding="utf-8")
    _make_store(folder / "mlruns", places)
    return folder


def _make_store(root: Path, places: dict[str, str]) -> None:
    """Make the MLflow database of its SQL, and the folder of its files."""
    sql = lzma.decompress((RECORDED / STORE).read_bytes()).decode("utf-8")
    with closing(sqlite3.connect(root / "mlflow.db")) as store:
        store.executescript(_replaced(sql, places))
        named = store.execute(
            "select r.artifact_uri, s.value, t.value from runs r "
            "join tags s on s.run_uuid = r.run_uuid and s.key = 'elsa_tune.search' "
            "join tags t on t.run_uuid = r.run_uuid and t.key = 'predictions'"
        ).fetchall()
    for uri, search, artifact in named:
        target = Path(uri.removeprefix("file://")) / artifact
        target.parent.mkdir(parents=True)
        shutil.copy(root / "searches" / search / artifact, target)


def _replaced(text: str, places: dict[str, str]) -> str:
    for mark, place in places.items():
        text = text.replace(mark, place)
    return text


def without_new_keys(text: str) -> str:
    """Return printed answers without the keys that are newer than the recorded ones."""
    answers = json.loads(text)
    for answer in answers:
        for point in answer["curve"]:
            for key in NEW_KEYS:
                point.pop(key, None)
    return json.dumps(answers, indent=2)
