"""A damaged MLflow database is said in one sentence, and a folder may have any name."""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.tracking import MlflowClient

from elsa_tune.cli.app import main
from elsa_tune.errors import ResultsError
from elsa_tune.sources.record import recorded
from elsa_tune.sources.source import Question
from elsa_tune.tracking.mlflow.names import OTHER_SEARCH_TAG, SEARCH_ID_TAG, SEARCH_TAG, STATUS_TAG
from elsa_tune.tracking.mlflow.reader import _search_state, latest_page
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.rows import KeptPredictions
from elsa_tune.tracking.stores import store_at
from tests.recorded_search import record, store_rows, whole_search
from tests.unit.result_rows import row


def test_a_damaged_journal_that_mlflow_stands_in_for_is_said(
    places: StorePaths, store: MlflowStore
) -> None:
    paths = SearchPaths(places.storage, "first")
    record(paths, list(whole_search("first", 3)), store)
    lines = paths.journal.read_text().splitlines(keepends=True)
    lines[1] = "no record\n"
    paths.journal.write_text("".join(lines))
    said: list[str] = []
    source = recorded(Question(search="first"), places, None, said.append)
    (line,) = said
    assert line.startswith(f"left out: {paths.journal}, line 2 cannot be read: ")
    assert line.endswith("; MLflow's record answers in its place")
    assert len(source.ask(Question(search="first"), said.append)) == 3
    assert said == [line]


def test_a_search_whose_tag_has_its_other_name_is_found(
    places: StorePaths, store: MlflowStore
) -> None:
    record(SearchPaths(places.storage, "first"), list(whole_search("first", 3)), store)
    rows = store_rows(store.uri, search="first")
    with closing(sqlite3.connect(places.database)) as connection:
        renamed = (OTHER_SEARCH_TAG, SEARCH_TAG)
        connection.execute("UPDATE tags SET key = ? WHERE key = ?", renamed)
        connection.commit()
    assert len(rows) == 3 and store_rows(store.uri, search="first") == rows
    assert store_rows(store.uri) == rows
    page = latest_page(MlflowClient(store.uri), "http://host")
    assert page is not None and page[0] == "first"


@pytest.mark.parametrize("command", ["operating-point", "report", "searches"])
def test_text_that_is_no_utf8(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    database = StorePaths(tmp_path).database
    database.parent.mkdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE parameters (run TEXT)")
    # In the schema: SQLite's own complaint then repeats what is no text.
    database.write_bytes(database.read_bytes().replace(b"parameters", b"\xff\x80\xfe\xf5metres"))
    more = [] if command == "searches" else ["--search", "mine"]
    more += ["--out", "page"] if command == "report" else []
    monkeypatch.setattr(sys, "argv", ["elsa-tune", command, *more])
    with pytest.raises(SystemExit) as ended:
        main()
    err = capsys.readouterr().err.splitlines()
    assert ended.value.code == (0 if command == "searches" else 2)
    assert "cannot be read" in err[0] and "Traceback" not in err[0]
    assert len(err) == 1


@pytest.mark.parametrize(
    "tags",
    [{}, {SEARCH_TAG: "mine"}, {SEARCH_TAG: "mine", SEARCH_ID_TAG: "1", STATUS_TAG: "compl"}],
)
def test_a_run_whose_tags_are_damaged(tags: dict[str, str]) -> None:
    run = SimpleNamespace(
        info=SimpleNamespace(run_id="r", start_time=1),
        data=SimpleNamespace(tags=tags, params={}, metrics={}),
    )
    with pytest.raises(ValueError):
        _search_state(run)


class Climbing(BaseHTTPRequestHandler):
    """An MLflow server whose only file has a name that leads out of any folder."""

    def do_GET(self) -> None:
        run = {"run_id": "r", "run_uuid": "r", "artifact_uri": "mlflow-artifacts:/0/r/artifacts"}
        answers = {
            "/api/2.0/mlflow/runs/get": {"run": {"info": run, "data": {}}},
            "/api/2.0/mlflow-artifacts/artifacts": {"files": [{"path": "../../out.npz"}]},
        }
        answer = answers.get(self.path.partition("?")[0], "a file")
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: object) -> None:
        """Say nothing."""


def test_a_server_whose_files_climb_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(inner))
    with ThreadingHTTPServer(("127.0.0.1", 0), Climbing) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        kept = KeptPredictions(store_at(f"http://127.0.0.1:{server.server_port}"))
        with pytest.raises(ResultsError, match="does not give them"):
            kept(row(3, 0.5, predictions="runs:/r/predictions/t.npz"))
        server.shutdown()
    assert not list(tmp_path.rglob("*.npz"))


def test_a_folder_of_any_name_can_be_worked_in(tmp_path: Path) -> None:
    places = StorePaths(tmp_path / 'it\'s "mine" #1 & ü')
    places.root.mkdir(parents=True)
    store = MlflowStore(places.tracking_uri())
    assert record(SearchPaths(places.storage, "mine"), whole_search("mine", 1), store) == 0
    assert [row.search for row in store_rows(places.tracking_uri())] == ["mine"]
