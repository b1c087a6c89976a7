"""What pip calls the drivers of database servers."""

from elsa_tune.tracking.uris import scheme_of

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
    from sqlalchemy.engine import make_url

    if scheme_of(uri) not in ("postgresql", "postgres"):
        return None
    return package_of_driver(make_url(uri).get_dialect().driver)
