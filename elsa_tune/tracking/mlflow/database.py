"""A database server as MLflow's store, before MLflow opens it: driver, answer, tables."""

import contextlib
import shlex
from collections.abc import Iterator
from typing import Any

from elsa_tune.errors import TrackingError
from elsa_tune.tracking.database_drivers import dialect_of, package_of_driver
from elsa_tune.tracking.uris import shown_uri

PATIENCE_S = 120.0
_LOCK_KEY = 0x656C7361  # "elsa": one key for all searches on one database


def check_driver(uri: str) -> None:
    """Raise TrackingError, with the package to install, where the database's driver is missing."""
    dialect = dialect_of(uri)
    try:
        dialect.import_dbapi()
    except ImportError as error:
        module = error.name or dialect.driver
        raise TrackingError(
            f"the MLflow store {shown_uri(uri)} needs the package of its database: "
            f"pip install {shlex.quote(package_of_driver(module))}"
        ) from error


def ask(uri: str) -> None:
    """Ask the server anything at all. Raises whatever the driver raises; may hang."""
    from sqlalchemy import text

    with _connected(uri) as connection:
        connection.execute(text("SELECT 1"))


def is_empty(uri: str) -> bool:
    """Whether MLflow has made no tables there, or not all of them. Raises as `ask` does."""
    with _connected(uri) as connection:
        return _is_empty(connection)


def make_tables(uri: str) -> None:
    """Have MLflow make its tables, once, however many ask at this moment. Raises as `ask` does."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import text

    with _connected(uri) as connection:
        # Two that make the tables at once race in MLflow. The lock ends with this connection,
        # whatever becomes of this process.
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK_KEY})
        elif connection.dialect.name == "mysql":
            values = {"name": "elsa-tune", "seconds": PATIENCE_S}
            connection.execute(text("SELECT GET_LOCK(:name, :seconds)"), values)
        if _is_empty(connection):
            store_at: Any = SqlAlchemyStore  # untyped in MLflow
            # The folder is that of MLflow's own experiment "Default"; ours have their places.
            store_at(uri, "./mlruns").engine.dispose()


def _is_empty(connection: Any) -> bool:
    from sqlalchemy import inspect

    return not inspect(connection).has_table("alembic_version")


@contextlib.contextmanager
def _connected(uri: str) -> Iterator[Any]:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    # Without a transaction: MLflow's own connection must not wait for this one.
    engine = create_engine(uri, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
