"""A secret in a tracking URI is used, and neither said nor stored."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import stat
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from elsa_tune.cli.app import main
from elsa_tune.errors import TrackingError
from elsa_tune.searching import launch
from elsa_tune.searching.answering import Finished
from elsa_tune.searching.specification import save_specification
from elsa_tune.searching.startup import stores
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.space import load_space
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Decision, SearchStatus
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.record_names import REPORT
from elsa_tune.tracking.uris import reason, shown_uri
from tests.conftest import Run
from tests.recorded_search import search_started, whole_search
from tests.unit.search_examples import make_spec, planned_request

SECRET = "s3cret"
CLOSED = f"http://me:{SECRET}@127.0.0.1:9"
ASKED = ("--search", "mine", "--tracking-uri", CLOSED)


def test_an_error_that_repeats_the_uri_does_not_show_it() -> None:
    with pytest.raises(TrackingError, match="does not answer") as refused:
        MlflowConnection(CLOSED).check()
    assert SECRET not in str(refused.value) and "http://***@127.0.0.1" in str(refused.value)
    assert reason(ValueError(f"no {CLOSED}/x?token=abc")) == (
        "no http://***@127.0.0.1:9/x?token=***"
    )


def test_the_command_line_does_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["elsa-tune", "operating-point", *ASKED])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and "does not answer" in err
    assert SECRET not in out + err and len(err.splitlines()) == 1


def test_a_specification_never_has_it(tmp_path: Path) -> None:
    space = load_space("demo")
    request = planned_request(tmp_path, space, "demo", tracking_uri=CLOSED)
    request.paths.check_writable()
    save_specification(request.spec, request.paths)
    text = request.paths.specification.read_text()
    assert SECRET not in text
    assert json.loads(text)["tracking_uri"] == "http://***@127.0.0.1:9"


def test_resume_asks_for_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    paths = SearchPaths(tmp_path, "mine")
    paths.check_writable()
    save_specification(make_spec(tracking_uri="http://me:***@127.0.0.1:9"), paths)
    with pytest.raises(TrackingError, match=r"MLFLOW_TRACKING_PASSWORD") as refused:
        launch.resume(paths, print)
    assert "***" not in str(refused.value) and "\n" not in str(refused.value)
    # The environment's own URI is used where it names this store.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", CLOSED)
    assert stores.remembered("http://me:***@127.0.0.1:9") == CLOSED
    assert stores.remembered("http://me:***@other:9") == "http://other:9"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", CLOSED.replace("http", "HTTP") + "/")
    assert stores.remembered("http://***@127.0.0.1:9") == CLOSED
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "no store")
    assert stores.remembered("http://***@other:9") == "http://other:9"
    assert stores.remembered("sqlite:////a.db") == "sqlite:////a.db"


@pytest.mark.parametrize("variable", ["MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"])
def test_no_server_that_a_record_names_is_sent_the_secret_of_another(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """Whoever made the search may have written any server into it."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://team.example:5000/mlflow")
    monkeypatch.setenv(variable, SECRET)
    paths = SearchPaths(tmp_path, "mine")
    paths.check_writable()
    save_specification(make_spec(name="mine", tracking_uri="http://127.0.0.1:9"), paths)
    sentence = (
        f"the search is recorded at http://127.0.0.1:9, which would be sent {variable} of the "
        "environment, though MLFLOW_TRACKING_URI names https://team.example:5000; if it may have "
        "that, set MLFLOW_TRACKING_URI to http://127.0.0.1:9, else unset what it may not have"
    )
    with pytest.raises(TrackingError) as refused:
        launch.resume(paths, print)
    assert str(refused.value) == sentence
    deleted = run("searches", "--delete", "mine", "--storage-path", tmp_path)
    assert deleted.status == 2 and sentence in deleted.err and paths.exists
    # The team's own server gets it, and so does whichever is named.
    for uri in ("https://team.example:5000", "https://***@TEAM.example:5000/mlflow", "sqlite:///a"):
        stores.remembered(uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9/")
    stores.remembered("http://127.0.0.1:9")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    stores.remembered("http://127.0.0.1:9")


def _finished(folder: Path, uri: str) -> SearchPaths:
    """Return a complete search that was recorded at this store."""
    paths = SearchPaths(folder / "mlruns" / "searches", "mine")
    paths.report.mkdir(parents=True)
    with Journal(paths.journal) as journal:
        forwarder = Forwarder(paths, MlflowStore(uri).sink(paths.journal))
        for one in (*whole_search("mine", 3), Decision(what=REPORT, value="report")):
            stamped = journal.append(one)
        forwarder.offer(stamped)
        forwarder._drop([stamped])  # the store has everything
    depths = tuple(FreezeDepth.of(frozen) for frozen in range(3))
    spec = make_spec(name="mine", seeds=1, tracking_uri=shown_uri(uri))
    save_specification(dataclasses.replace(spec, candidates=depths, explored=depths), paths)
    return paths


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql+psycopg://me@server:{SECRET}@127.0.0.1:9/x",
        f"postgresql+psycopg://me:5432/{SECRET}@127.0.0.1:9/x",
        f"postgresql+psycopg://127.0.0.1:9/x?user=me&password={SECRET}&sslmode=disable",
        f"http://{SECRET}:@127.0.0.1:9",
        f"https://{SECRET}:x-oauth@127.0.0.1:9",
        f"HTTP://{SECRET}@127.0.0.1:9",
        f"http://127.0.0.1:9/x?access={SECRET}",
        f"http://127.0.0.1:9?jwt={SECRET}",
        f"http://me:12/{SECRET}@127.0.0.1:9",  # refused
        f"postgresql+psycopg://me:a@{SECRET}@127.0.0.1:9/x",  # refused
        f"ftp://me:{SECRET}@127.0.0.1:9",  # refused
    ],
)
def test_no_command_says_or_writes_it(
    uri: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _finished(tmp_path, uri)
    asked = ("--tracking-uri", uri)
    found = [
        run("searches", *asked),
        run("operating-point", "--search", "mine", *asked),
        run("report", "--search", "mine", *asked, "--out", "page"),
        run("resume", "mine", *asked),
        run("searches", "--delete", "mine", *asked),
    ]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    found += [run("resume", "mine"), run("searches"), run("curve", "--search", "other")]
    assert {one.status for one in found} <= {0, 2, 3}
    for one in found:
        assert "127.0.0.1:9" in one.out + one.err, one.err
        assert SECRET not in one.out + one.err and "Traceback" not in one.err
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes(), file
    forwarded = tmp_path / "mlruns" / "searches" / "mine" / "forwarded.json"
    assert stat.S_IMODE(forwarded.stat().st_mode) == 0o600


def test_a_proxys_password_is_not_said(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://me:{SECRET}@127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    found = run("operating-point", "--search", "mine", "--tracking-uri", "http://mlflow.example")
    assert found.status == 2 and "does not answer" in found.err
    assert SECRET not in found.err


class _Server(BaseHTTPRequestHandler):
    """Answers every question about a run with one run."""

    def do_GET(self) -> None:
        info = {"run_id": "r", "experiment_id": "0", "status": "RUNNING", "start_time": 1}
        body = json.dumps({"run": {"info": info, "data": {}}, "run_info": info}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Closed(_Server):
    """MLflow's own words to whoever is not logged in, or may not write."""

    status = 401

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("WWW-Authenticate", 'Basic realm="mlflow"')
        self.end_headers()
        self.wfile.write(b"You are not authenticated. Please see https://mlflow.org/docs")

    do_POST = do_GET


class _Forbidden(_Closed):
    status = 403


@pytest.mark.parametrize(("server", "status"), [(_Closed, 401), (_Forbidden, 403)])
def test_a_refusal_is_said_with_its_reason(
    server: type[_Server], status: int, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again would be refused again."""
    monkeypatch.chdir(tmp_path)
    with _served(server) as port:
        uri = f"http://me:{SECRET}@127.0.0.1:{port}"
        found = run("operating-point", "--search", "mine", "--tracking-uri", uri)
        assert found.status == 2 and f"refuses access ({status}: " in found.err
        assert "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRA" in found.err
        assert "start it" not in found.err
        # A store that closes while a search runs, which is said then, and once.
        paths = SearchPaths(tmp_path, "mine")
        said: list[str] = []
        with Journal(paths.journal) as journal:
            sink = MlflowStore(uri).sink(paths.journal)
            forwarder = Forwarder(paths, sink, [], say=said.append).start()
            forwarder.offer(journal.append(search_started("mine")))
            while not said:
                time.sleep(0.05)
            time.sleep(0.5)  # it is asked again meanwhile
            assert forwarder.close(0.2) == 1
        (line,) = said
        assert line.startswith("MLflow at http://***@127.0.0.1:")
        assert f"refuses access ({status}: " in line and "the search goes on" in line
        assert SECRET not in line
    ended = Finished(make_spec(), paths, SearchStatus.COMPLETED, "", ())
    ended = dataclasses.replace(ended, unsent=1, why_unsent=forwarder.trouble)
    assert "1 record did not reach MLflow at" in ended.unsent_words
    assert f", which refuses access ({status}: " in ended.unsent_words
    assert SECRET not in found.err + ended.unsent_words


@contextlib.contextmanager
def _served(handler: type[_Server] = _Server) -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_an_ended_run_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "false")
    with _served() as port:
        client = MlflowConnection(f"http://me:{SECRET}@127.0.0.1:{port}").client()
        client.set_terminated("r", status="FINISHED", end_time=2)
    out, err = capsys.readouterr()
    assert out == "" and SECRET not in err
