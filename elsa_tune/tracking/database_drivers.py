"""URIs of database servers as SQLAlchemy reads them, and what pip calls their drivers."""

from typing import TYPE_CHECKING

from elsa_tune.errors import TrackingError
from elsa_tune.tracking.uris import scheme_of, shown_uri

if TYPE_CHECKING:
    from sqlalchemy.engine import URL, Dialect

# Where it is not the name of the module.
_PACKAGES = {
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
}


def package_of_driver(module: str) -> str:
    """Return what pip calls the package that has this driver's module."""
    return _PACKAGES.get(module, module)


def driver_package(uri: str) -> str | None:
    """Return what pip calls the driver of a PostgreSQL server's URI; None for another store."""
    if scheme_of(uri) not in ("postgresql", "postgres"):
        return None
    return package_of_driver(dialect_of(uri).driver)


def database_url(uri: str) -> "URL":
    """Return the parts of a database's URI. Raises TrackingError where they cannot be told."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(uri)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise TrackingError(
            f"tracking URI '{shown_uri(uri)}' cannot be read; write "
            f"{scheme_of(uri)}://USER@HOST:PORT/DATABASE, with a number for PORT or without it"
        ) from error


def dialect_of(uri: str) -> "type[Dialect]":
    """Return SQLAlchemy's dialect of a database's URI. Raises TrackingError where it has none."""
    from sqlalchemy.exc import SQLAlchemyError

    url = database_url(uri)
    try:
        return url.get_dialect()
    except SQLAlchemyError as error:
        raise TrackingError(
            f"the tracking URI {shown_uri(uri)} names a database or driver that SQLAlchemy does "
            "not know; write postgresql://..., or postgresql+DRIVER://..."
        ) from error
