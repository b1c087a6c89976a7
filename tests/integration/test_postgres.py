"""A PostgreSQL server of our own as the store: empty, asked at once by two, stopped, and closed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from elsa_tune.errors import TrackingError
from elsa_tune.searching.specification import save_specification
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.tracking.journal_records import SearchStarted
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.uris import shown_uri
from tests.conftest import ROOT, Run
from tests.integration.conftest import free_port
from tests.recorded_search import journal_rows, record, store_rows, store_runs, whole_search
from tests.unit.search_examples import make_spec

PASSWORD = "s3/cr:et#1"

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]


def programs() -> Path:
    """Where initdb and postgres are; Debian keeps them off the path."""
    places = [*map(Path, os.environ["PATH"].split(":")), *Path("/usr/lib/postgresql").glob("*/bin")]
    for place in places:
        if (place / "initdb").is_file() and (place / "postgres").is_file():
            return place
    pytest.skip("needs PostgreSQL's initdb and postgres, which are not here")


class Postgres:
    """A cluster in a folder of its own. It refuses to run as root: then it is another user's."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("psycopg", reason="needs psycopg, the driver of PostgreSQL")
        self._bin, self._folder, self.port = programs(), folder, free_port()
        self._as_user: list[str] = []
        if os.getuid() == 0:
            if not shutil.which("setpriv"):
                pytest.skip("needs setpriv, as PostgreSQL does not run as root")
            self._as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(folder, 65534, 65534)
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._call("initdb", "-U", "me", "-A", "scram-sha-256", f"--pwfile={password}", "-N")
        self.start()

    def start(self) -> None:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command("postgres"), "-F", *where],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        import psycopg

        while True:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.uri().replace("+psycopg", "")).close()
                return
            time.sleep(0.1)

    def uri(self, database: str = "postgres", password: str = PASSWORD) -> str:
        information = f"me:{quote(password, safe='')}"
        return f"postgresql+psycopg://{information}@127.0.0.1:{self.port}/{database}"

    def new(self, database: str) -> str:
        """Make an empty database of this name; return its URI."""
        self.execute(f"CREATE DATABASE {database}")
        return self.uri(database)

    def execute(self, statement: str) -> None:
        """Carry out a statement as the server's owner."""
        import psycopg

        address = self.uri().replace("+psycopg", "")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """As on a machine that is paused: connections are taken, and nothing answers."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGQUIT)
        self._process.wait()

    def _call(self, program: str, *arguments: str) -> None:
        command = [*self._command(program), *arguments]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True)

    def _command(self, program: str) -> list[str]:
        return [*self._as_user, str(self._bin / program), "-D", str(self._folder / "data")]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    # Not in pytest's own folder, which no other user may enter.
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        Path(folder).chmod(0o755)
        server = Postgres(Path(folder))
        yield server
        server.close()


def test_an_empty_database_is_set_up_and_used(postgres: Postgres, tmp_path: Path) -> None:
    store = MlflowStore(postgres.new("empty"))
    # However long the tables take: to answer is all that the seconds are for.
    store.check()
    assert store.is_empty()
    with pytest.raises(TrackingError, match=r"nothing is recorded in postgresql\+psycopg://me:\*"):
        store_rows(store.uri)
    assert store.is_empty()
    said: list[str] = []
    store.initialise(said.append)
    store.initialise(said.append)
    assert said == [
        f"setting up MLflow's tables in {shown_uri(store.uri)}; this takes up to a minute"
    ]
    paths = SearchPaths(tmp_path, "first")
    assert record(paths, whole_search("first", 2), store) == 0
    assert len(store_rows(store.uri)) == 2
    assert "s3" not in paths.forwarded.read_text()


TWO = """
import sys
from pathlib import Path
from elsa_tune.searching.startup.stores import open_store
from elsa_tune.tracking.paths import SearchPaths
from tests.recorded_search import record, whole_search
name = sys.argv[1]
store = open_store(sys.stdin.read(), print)
assert record(SearchPaths(Path.cwd(), name), whole_search(name, 3), store) == 0
"""


def test_two_searches_begin_at_once_on_an_empty_database(
    postgres: Postgres, tmp_path: Path
) -> None:
    uri, names = postgres.new("two"), ("first", "second")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, name],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for one in both:
        assert one.stdin is not None
        one.stdin.write(uri)
        one.stdin.close()
        one.stdin = None
    for one in both:
        out, err = one.communicate()
        assert one.returncode == 0, err
        assert "s3" not in out + err
    for name in names:
        assert len(store_runs(uri, name)) == 4
        assert store_rows(uri, search=name) == journal_rows(tmp_path / name / "journal.jsonl")


def test_a_killed_set_up_is_done_again(postgres: Postgres, tmp_path: Path) -> None:
    uri = postgres.new("killed")
    setting_up = [sys.executable, "-c", TWO, "first"]
    with subprocess.Popen(
        setting_up,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as one:
        assert one.stdin is not None and one.stdout is not None
        one.stdin.write(uri)
        one.stdin.close()
        assert "setting up MLflow's tables" in one.stdout.readline()
        one.kill()
    MlflowStore(uri).initialise()
    assert not MlflowConnection(uri).is_empty()


def finished(postgres: Postgres, folder: Path, database: str) -> SearchPaths:
    """Return a complete search whose record is in that database."""
    store = MlflowStore(postgres.new(database))
    store.initialise()
    paths = SearchPaths(folder / "mlruns" / "searches", "first")
    paths.report.mkdir(parents=True)
    records = list(whole_search("first", 3))
    assert record(paths, records, store) == 0
    (started,) = (one for one in records if isinstance(one, SearchStarted))
    spec = make_spec(
        name="first", search_id=started.search_id, seeds=1, tracking_uri=shown_uri(store.uri)
    )
    measured = tuple(FreezeDepth.of(n) for n in range(3))
    save_specification(dataclasses.replace(spec, candidates=measured, explored=measured), paths)
    return paths


def test_a_finished_search_answers_beside_a_server_that_hangs_or_refuses(
    postgres: Postgres, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = finished(postgres, tmp_path, "finished")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", postgres.uri("finished"))
    with postgres.stopped():
        found = run("resume", "first")
    assert "minilm, task rte" in found.out, found.err
    assert "does not answer (nothing came within 5 s)" in found.err
    assert "this answer is the journal's" in found.err
    monkeypatch.setenv("MLFLOW_TRACKING_URI", postgres.uri("finished", "wr0ng-one"))
    monkeypatch.setenv("PGPASSWORD", "wr0ng-too")
    found = run("resume", "first")
    assert "minilm, task rte" in found.out and "refuses access" in found.err, found.err
    assert "MLFLOW_TRACKING_URI, as postgresql://USER:PASSWORD@HOST/DATABASE" in found.err
    assert "wr0ng" not in found.err + found.out + paths.forwarded.read_text()


@pytest.mark.parametrize(
    ("scheme", "package"),
    [("postgresql+psycopg", r"'psycopg\[binary\]'"), ("postgresql+psycopg2", "psycopg2-binary")],
)
def test_a_driver_that_is_missing_is_named(
    scheme: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, scheme.partition("+")[2], None)
    store = MlflowStore(f"{scheme}://me:s3cret@127.0.0.1:9/x")
    with pytest.raises(TrackingError, match=f"needs the package .*: pip install {package}$") as no:
        store.check()
    assert "s3cret" not in str(no.value)
