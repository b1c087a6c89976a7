"""A connection to an MLflow store. MLflow is imported on first use, for that takes seconds."""

import functools
import logging
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from elsa_tune.errors import TrackingError
from elsa_tune.files import write_aside
from elsa_tune.locks import open_locked
from elsa_tune.tracking import waiting
from elsa_tune.tracking.mlflow import database
from elsa_tune.tracking.paths import sqlite_file
from elsa_tune.tracking.remote_errors import (
    is_refused,
    is_unanswered,
    lacks_bucket,
    lacks_credentials,
    lacks_file,
)
from elsa_tune.tracking.uris import DATABASE_SCHEMES, reason, scheme_of, shown_uri

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

T = TypeVar("T")
PATIENCE_S = 5.0  # with a store that is asked, not written
# PostgreSQL's and MySQL's words.
_NO_DATABASE_ACCESS = re.compile(
    r"password authentication failed|no password supplied|Access denied for user", re.IGNORECASE
)


# Of HTTP and of MLflow, which calls whatever it could not send or read an internal error.
_PASSING_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_PASSING_CODES = frozenset(
    {"TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "DEADLINE_EXCEEDED", "INTERNAL_ERROR"}
)


class MlflowConnection:
    """One store by its absolute URI; nothing is opened before the first call."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._client: MlflowClient | None = None

    def check(self, timeout_s: float = PATIENCE_S) -> None:
        """Raise TrackingError unless a server answers in time; of a file `initialise` tells."""
        if sqlite_file(self.uri) is not None:
            return
        self.import_mlflow()
        if self._is_database:
            database.check_driver(self.uri)
        self.within(timeout_s, self._ask)

    def within(self, timeout_s: float, call: Callable[[], T]) -> T:
        """Return what a call of the store returns; TrackingError where it fails or takes longer.

        A call that hangs is left behind.
        """
        try:
            return waiting.answer(call, timeout_s, "mlflow-check")
        except Exception as error:  # whatever it was, it is judged by its text
            raise unanswered(self.uri, error) from error

    def is_empty(self) -> bool:
        """Whether it is a store that MLflow has not made yet: a question must not make it."""
        if (file := sqlite_file(self.uri)) is not None:
            return not (file.is_file() and file.stat().st_size)
        return self._is_database and database.is_empty(self.uri)

    def initialise(self, say: Callable[[str], None] = lambda line: None) -> None:
        """Make the store ready, its tables once, however many ask. Raises TrackingError."""
        try:
            if (file := sqlite_file(self.uri)) is not None:
                self._prepare(file)
            elif self._is_database:
                self._make_tables(say)
            self.client().search_experiments(max_results=1)
        except TrackingError:
            raise
        except Exception as error:  # SQLAlchemy, alembic, requests and MLflow have no common base
            raise unusable(self.uri, error) from error

    @property
    def _is_database(self) -> bool:
        return scheme_of(self.uri) in DATABASE_SCHEMES

    def _ask(self) -> None:
        if self._is_database:
            database.ask(self.uri)
        else:
            self.client().search_experiments(max_results=1)

    def _make_tables(self, say: Callable[[str], None]) -> None:
        """Make the tables of an empty database; MLflow's 60 migrations take seconds to minutes."""
        self.import_mlflow()
        database.check_driver(self.uri)
        if not database.is_empty(self.uri):
            return
        say(f"setting up MLflow's tables in {shown_uri(self.uri)}; this takes up to a minute")
        self.within(database.PATIENCE_S, functools.partial(database.make_tables, self.uri))

    def _prepare(self, file: Path) -> None:
        remedy = "name another with `tracking_uri`"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(file.parent, os.W_OK):
                raise PermissionError(13, "permission denied")
            # Two processes that create the schema at once race in MLflow: one sees half the tables.
            with open_locked(file.with_name(f".{file.name}.lock"), "ab", seconds=120):
                if self.is_empty():
                    self._create_database(file)
            with file.open("r+b") as opened:
                is_sqlite = opened.read(16) == b"SQLite format 3\0"
        except OSError as error:
            why = error.strerror or reason(error)
            raise TrackingError(
                f"the MLflow store {file} cannot be written: {why}; {remedy}"
            ) from error
        if not is_sqlite:
            raise TrackingError(f"the MLflow store {file} is not an SQLite file; {remedy}")

    def _create_database(self, file: Path) -> None:
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
            store = store_at(f"sqlite:///{made}", (file.parent / "artifacts").as_uri())
            # An experiment that nobody made, which MLflow's list would begin with.
            store.delete_experiment(store_at.DEFAULT_EXPERIMENT_ID)
            store.engine.dispose()
            write_aside(file, made.read_bytes())

    def client(self) -> "MlflowClient":
        if self._client is None:
            self.import_mlflow()
            from mlflow.tracking import MlflowClient

            self._client = MlflowClient(self.uri, registry_uri=self.uri)
        return self._client

    def import_mlflow(self) -> None:
        """Import what takes seconds, so that no time limit counts it. Raises TrackingError."""
        set_environment()
        try:
            import mlflow.tracking

            if not self.uri.startswith("http"):
                import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
        except Exception as error:  # a broken package raises anything; no store is to blame
            raise TrackingError(
                f"MLflow cannot be imported: {reason(error)}; start the program again, and if that "
                "does not help, install MLflow again"
            ) from error
        # MLflow prints every failed statement with its trace; its caller says it in one line.
        for name in ("mlflow.store.db.utils", "alembic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def unanswered(uri: str, error: BaseException) -> TrackingError:
    """Return what a store's silence or refusal means to whoever wants to record there."""
    place = shown_uri(uri)
    if sqlite_file(uri) is not None:
        return unusable(uri, error)
    refusal = refused_access(uri, error)
    if refusal is not None:
        return TrackingError(f"the MLflow store {place} {refusal}")
    return TrackingError(
        f"the MLflow store {place} does not answer ({reason(error, uri)}); start it, check the "
        "address, or name another store with `tracking_uri`"
    )


def unusable(uri: str, error: BaseException) -> TrackingError:
    """Return what MLflow's error at a store's opening or reading means."""
    place = shown_uri(uri)
    why = reason(error, uri)
    refusal = refused_access(uri, error)
    if refusal is not None:
        return TrackingError(f"the MLflow store {place} {refusal}")
    if "out-of-date database schema" in why:
        return TrackingError(
            f"the MLflow store {place} was made by another version of MLflow; copy it and run "
            f"`mlflow db upgrade {place}`, or name another with `tracking_uri`"
        )
    return TrackingError(f"the MLflow store {place} cannot be read: {why}")


def refused_access(uri: str, error: BaseException) -> str | None:
    """Return that a store refuses our credentials, and how to give others; else None."""
    code = str(getattr(error, "error_code", ""))
    said = str(error)
    if scheme_of(uri) in DATABASE_SCHEMES:
        if not _NO_DATABASE_ACCESS.search(said):
            return None
        return (
            f"refuses access ({reason(error, uri)}); give its user and password in "
            "MLFLOW_TRACKING_URI, as postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    variables = (
        "by MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, in "
        "the environment"
    )
    if code == "UNAUTHENTICATED" or "error code 401" in said:
        return f"refuses access (401: not logged in); give a user's name and password {variables}"
    if code in ("PERMISSION_DENIED", "CUSTOMER_UNAUTHORIZED") or "error code 403" in said:
        return (
            "refuses access (403: this user may not do that); ask its administrator for the "
            f"right to write, or give another user's name and password {variables}"
        )
    return None


def may_pass(error: BaseException) -> bool:
    """Whether an error is likely gone in a while: no answer, a busy server, too many questions."""
    if is_unanswered(error):
        return True
    if lacks_credentials(error) or is_refused(error) or lacks_file(error):
        return False
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return status in _PASSING_STATUSES
    # Errors of requests, by which MLflow asks, are an OSError that no system call has numbered.
    if isinstance(error, OSError) and error.errno is None:
        return True
    return getattr(error, "error_code", "") in _PASSING_CODES


def is_missing(error: BaseException) -> bool:
    """Whether a store says that there is no such file, or no such run."""
    if lacks_bucket(error):
        return False
    if getattr(getattr(error, "response", None), "status_code", None) == 404:
        return True
    return getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST" or lacks_file(error)


def set_environment() -> None:
    """Set MLflow's environment variables, before it is imported."""
    # MLflow's own: 120 s a request and seven retries with growing pauses, i.e. minutes. They can be
    # set by the environment alone; what the user set stays.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    # At the end of each run it would print the run's address to stdout, which is for results.
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    # Importing MLflow would start a thread that calls its makers' server.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
