"""An MLflow store's files: with its server, or where each client reaches them by itself."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from elsa_tune.tracking import waiting
from elsa_tune.tracking.remote_errors import trouble
from elsa_tune.tracking.uris import reason, scheme_of, shown_uri

# Of places that need nothing here: this machine's disk, and what the store's server keeps.
_WITH_THE_STORE = frozenset({"", "file", "mlflow-artifacts", "http", "https", "dbfs"})
# What pip calls the packages by which MLflow reaches the others.
_PACKAGES = {
    "s3": "boto3",
    "r2": "boto3",
    "b2": "boto3",
    "gs": "google-cloud-storage",
    "wasbs": "azure-storage-blob azure-identity",
    "abfss": "azure-storage-file-datalake azure-identity",
    "sftp": "pysftp",
}
# How long such a place has to take a small file: a busy machine takes seconds to import its client.
PATIENCE_S = 30.0
# Always the same: where nothing may be deleted, one file stays.
_PROBE: Final = "elsa-tune-may-write"


def files_at(uri: str, tracking_uri: str) -> Any:
    """Return MLflow's own access to the files below a URI of an experiment or a run.

    The client that downloads by a run has one error, whatever the reason (MLflow 3.17). Raises
    whatever MLflow does, ImportError without the package of such a place; or its methods do.
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    from mlflow.utils.uri import add_databricks_profile_info_to_artifact_uri

    with_profile: Any = add_databricks_profile_info_to_artifact_uri  # untyped in MLflow
    return get_artifact_repository(with_profile(uri, tracking_uri), tracking_uri=tracking_uri)


def are_apart(uri: str) -> bool:
    """Whether each client reaches the files below a URI by itself, past the store's server."""
    return scheme_of(uri) not in _WITH_THE_STORE


def why_not_at(uri: str, error: BaseException, tracking_uri: str) -> str:
    """Return why files below a URI could not be had or written, and what to do."""
    if not are_apart(uri):
        return reason(error, tracking_uri)
    parts = urlsplit(uri)
    place = shown_uri(f"{parts.scheme}://{parts.netloc}")
    if isinstance(error, ImportError):
        package = _PACKAGES.get(scheme_of(uri))
        remedy = f": pip install {package}" if package else "; install it"
        return f"{place} needs a package that is not installed here ({reason(error)}){remedy}"
    return f"{place} {trouble(place, error)}"


def why_not_written(uri: str, tracking_uri: str) -> str:
    """Try whether a small file can be written below a URI; return why not, "" if it can.

    Of what lies with the store, its server's answers tell.
    """
    if not are_apart(uri):
        return ""

    def write() -> None:
        files = files_at(uri, tracking_uri)
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, _PROBE)
            probe.write_bytes(b"x")
            files.log_artifact(str(probe))
        with contextlib.suppress(Exception):  # who may write may not be allowed to delete
            files.delete_artifacts(_PROBE)

    try:
        waiting.answer(write, PATIENCE_S, "mlflow-files")
    except Exception as error:  # of any library
        return why_not_at(uri, error, tracking_uri)
    return ""
