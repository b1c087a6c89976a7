"""A connection to an MLflow store. MLflow is imported on first use, for that takes seconds."""

import logging
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from elsa_tune.errors import TrackingError, first_line
from elsa_tune.files import write_aside
from elsa_tune.tracking.paths import shown_uri, sqlite_file

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient


class Connection:
    """One store by its absolute URI; nothing is opened before the first call."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._client: MlflowClient | None = None

    def check(self, timeout_s: float = 5.0) -> None:
        """Raise TrackingError unless a server answers in time; of a file `initialise` tells."""
        if sqlite_file(self.uri) is not None:
            return
        self.import_mlflow()
        problem = _within(timeout_s, lambda: self.client().search_experiments(max_results=1))
        if problem is not None:
            raise TrackingError(
                f"the MLflow store {shown_uri(self.uri)} does not answer ({problem}); start it, "
                "check the address, or leave `tracking_uri` and MLFLOW_TRACKING_URI out "
                "to record in ./mlruns"
            )

    def initialise(self) -> None:
        """Make the store ready, its SQLite schema once, however many ask. Raises TrackingError."""
        try:
            if (database := sqlite_file(self.uri)) is not None:
                self._prepare(database)
            self.client().search_experiments(max_results=1)
        except TrackingError:
            raise
        except Exception as error:  # SQLAlchemy, alembic, requests and MLflow have no common base
            raise unusable(self.uri, error) from error

    def _prepare(self, database: Path) -> None:
        remedy = "name another with `tracking_uri`"
        try:
            database.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(database.parent, os.W_OK):
                raise PermissionError(13, "permission denied")
            # Two processes that create the schema at once race in MLflow: one sees half the tables.
            with FileLock(database.with_name(f".{database.name}.lock"), timeout=120):
                if not database.exists() or database.stat().st_size == 0:
                    self._create_database(database)
            with database.open("r+b") as file:
                is_sqlite = file.read(16) == b"SQLite format 3\0"
        except OSError as error:
            why = error.strerror or reason(error)
            raise TrackingError(
                f"the MLflow store {database} cannot be written: {why}; {remedy}"
            ) from error
        if not is_sqlite:
            raise TrackingError(f"the MLflow store {database} is not an SQLite file; {remedy}")

    def _create_database(self, database: Path) -> None:
        """Make the schema aside, then rename: a kill leaves no half of it, which MLflow refuses.

        In memory MLflow's some 60 migrations take 1.7 s, on a busy disk 10 s.
        """
        self.import_mlflow()
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            made = Path(folder) / "mlflow.db"
            store_at: Any = SqlAlchemyStore  # untyped in MLflow
            # As a URI, because MLflow writes the place into its SQL without quoting an apostrophe.
            store = store_at(f"sqlite:///{made}", (database.parent / "artifacts").as_uri())
            store.engine.dispose()
            write_aside(database, made.read_bytes())

    def client(self) -> "MlflowClient":
        if self._client is None:
            self.import_mlflow()
            from mlflow.tracking import MlflowClient

            self._client = MlflowClient(self.uri, registry_uri=self.uri)
        return self._client

    def import_mlflow(self) -> None:
        """Import what takes seconds, so that no time limit counts it."""
        set_environment()
        import mlflow.tracking

        if not self.uri.startswith("http"):
            import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
        # MLflow prints every failed statement with its trace; its caller says it in one line.
        for name in ("mlflow.store.db.utils", "alembic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def reason(error: BaseException) -> str:
    """An error in one line of at most 200 characters; the store's URI, without its secrets."""
    return shown_uri(first_line(error))[:200]


def unusable(uri: str, error: BaseException) -> TrackingError:
    """What MLflow's error at a store's opening or reading means."""
    place, why = shown_uri(uri), reason(error)
    if "out-of-date database schema" in why:
        return TrackingError(
            f"the MLflow store {place} was made by another version of MLflow; copy it and run "
            f"`mlflow db upgrade {place}`, or name another with `tracking_uri`"
        )
    return TrackingError(f"the MLflow store {place} cannot be read: {why}")


def set_environment() -> None:
    """Of MLflow, before it is imported."""
    # MLflow's own: 120 s a request and seven retries with growing pauses, i.e. minutes. They can be
    # set by the environment alone; what the user set stays.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    # At the end of each run it would print the run's address to stdout, which is for results.
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    # Importing MLflow would start a thread that calls its makers' server.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def _within(timeout_s: float, call: Callable[[], object]) -> str | None:
    """None if the call returned in time, else what went wrong. A call that hangs is left behind."""
    answers: list[str | None] = []

    def attempt() -> None:
        try:
            call()
            answers.append(None)
        except Exception as error:  # whatever it was, the caller judges it by its text
            answers.append(reason(error))

    thread = threading.Thread(target=attempt, name="mlflow-check", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return answers[0] if answers else f"nothing came within {timeout_s:g} s"
