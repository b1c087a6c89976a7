"""An MLflow server that is busy, or away for a moment: nothing is lost by it, nor called lost."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import requests
from mlflow.entities import Metric, RunData, RunTag
from mlflow.exceptions import MlflowException, RestException

from elsa_tune.errors import ResultsError, TrackingError
from elsa_tune.tracking.mlflow import files, names, sink, store
from elsa_tune.tracking.mlflow.connection import may_pass
from elsa_tune.tracking.mlflow.reader import _latest
from elsa_tune.tracking.mlflow.sink import MlflowSink
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.rows import KeptPredictions
from tests.unit.result_rows import row


def answered(status: int) -> requests.HTTPError:
    """Return requests' error for an answer of this status."""
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status} Error", response=response)


def named(name: str, said: str) -> Exception:
    """Return an error of a library that need not be installed, as that calls it."""
    kind: type[Exception] = type(name, (Exception,), {})
    return kind(said)


# boto3's words for an upload that S3 itself refused.
UPLOAD = "Failed to upload a.npz to b/404/a.npz: An error occurred ({}) when calling PutObject: {}"

BUSY = [
    named("EndpointConnectionError", 'Could not connect to the endpoint URL: "http://h/b/403/a"'),
    named("ReadTimeoutError", "Read timeout on endpoint URL"),
    named("ServiceRequestError", "Failed to establish a new connection"),
    named("S3UploadFailedError", UPLOAD.format("SlowDown", "Please reduce your request rate.")),
    answered(429),
    answered(503),
    requests.ConnectionError("refused"),
    requests.ReadTimeout("timed out"),
    MlflowException("API request to http://h failed with exception Max retries exceeded"),
    RestException({"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "slowly"}),
]
FIRM = [
    named("NoCredentialsError", "Unable to locate credentials"),
    named("CredentialUnavailableError", "no managed identity endpoint found"),
    named("S3UploadFailedError", UPLOAD.format("AccessDenied", "Access Denied")),
    ModuleNotFoundError("No module named 'boto3'"),
    MlflowException("The following failures occurred: Unable to locate credentials"),
    answered(404),
    answered(403),
    FileNotFoundError("No such file"),
    MlflowException("The following failures occurred: 404 Client Error: Not Found"),
    RestException({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run"}),
    KeyError("run"),
]


@pytest.mark.parametrize("error", BUSY, ids=str)
def test_what_may_pass(error: Exception) -> None:
    assert may_pass(error)


@pytest.mark.parametrize("error", FIRM, ids=str)
def test_what_stays(error: Exception) -> None:
    assert not may_pass(error)


def giving(errors: list[Exception], monkeypatch: pytest.MonkeyPatch) -> MlflowStore:
    """Return a store whose files come after these errors, in turn."""
    monkeypatch.setattr(store, "_PAUSES_S", (0.0, 0.0, 0.0))
    run = SimpleNamespace(info=SimpleNamespace(artifact_uri="s3://bucket/1/r/artifacts"))
    client = SimpleNamespace(get_run=lambda run_id: run)
    found = MlflowStore("http://127.0.0.1:1")
    monkeypatch.setattr(found, "client", lambda: client)

    def download(artifact: str, folder: str) -> str:
        if errors:
            raise errors.pop(0)
        file = Path(folder) / "kept.npz"
        np.savez(file, predictions=[0, 1], labels=[0, 1], classes=2)
        return str(file)

    files = SimpleNamespace(download_artifacts=download)
    monkeypatch.setattr(store, "files_at", lambda *place: files)
    return found


def test_predictions_come_once_the_server_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptPredictions(giving([answered(429), answered(503)], monkeypatch))
    found = kept(row(3, 0.5, predictions="runs:/r/predictions/t.npz"))
    assert found is not None and found.classes == 2


def test_predictions_that_do_not_come_now_are_not_called_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[Exception] = [answered(503) for _ in range(3)]
    kept = KeptPredictions(giving(errors, monkeypatch))
    for place in ("runs:/r/predictions/t.npz", "runs:/s/predictions/u.npz"):
        with pytest.raises(ResultsError, match=r"does not give them now \(.*503.*; ask again"):
            kept(row(3, 0.5, predictions=place))
    assert not errors  # the second was not asked for


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ModuleNotFoundError("No module named 'boto3'"),
            r"s3://bucket needs .*: pip install boto3",
        ),
        (
            named("NoCredentialsError", "Unable to locate credentials"),
            r"s3://bucket finds no credentials \(.*AWS_ACCESS_KEY_ID",
        ),
        (answered(403), r"s3://bucket refuses what the environment's credentials ask for"),
        (
            RestException(
                {
                    "error_code": "RESOURCE_DOES_NOT_EXIST",
                    "message": "Failed to list artifacts: The specified bucket does not exist",
                }
            ),
            r"s3://bucket has no bucket or folder 'bucket'",
        ),
    ],
)
def test_predictions_that_cannot_be_had_here_are_not_called_lost(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [error, error]
    kept = KeptPredictions(giving(errors, monkeypatch))
    with pytest.raises(ResultsError, match=rf"^MLflow does not .* now \({said}.*; ask again"):
        kept(row(3, 0.5, predictions="runs:/r/predictions/t.npz"))
    assert len(errors) == 1  # a second try would end as the first


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory"),
        # MLflow's own, around what S3 says of a key.
        MlflowException("The following failures occurred: An error occurred (404) when calling"),
        named("ResourceNotFoundError", "The specified blob does not exist."),
    ],
)
def test_a_file_that_a_store_does_not_have(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptPredictions(giving([error], monkeypatch))
    assert kept(row(3, 0.5, predictions="runs:/r/predictions/t.npz")) is None


def test_predictions_that_are_not_there_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = [answered(404), answered(500)]
    kept = KeptPredictions(giving(errors, monkeypatch))
    assert kept(row(3, 0.5, predictions="runs:/r/predictions/t.npz")) is None
    assert len(errors) == 1


def sending(folder: Path, add_artifact: Callable[..., None]) -> MlflowSink:
    """Return a sink of a search with one file of predictions."""
    (folder / "predictions").mkdir()
    (folder / "predictions" / "t.npz").write_bytes(b"x")
    writer: Any = SimpleNamespace(
        uri="http://h", files_uri="s3://bucket/1", forget=lambda: None, add_artifact=add_artifact
    )
    return MlflowSink(folder / "journal.jsonl", writer)


@pytest.mark.parametrize(("minutes", "is_lost"), [(4, False), (6, True)])
def test_a_file_waits_for_a_server_that_is_away(
    minutes: int,
    is_lost: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    monkeypatch.setattr(sink.time, "monotonic", lambda: now[0])
    sent: list[Path] = []

    def add_artifact(search: Any, trial: str, file: Path) -> None:
        if now[0] < 100.0 + 60 * minutes:
            raise answered(503)
        sent.append(file)

    own = sending(tmp_path, add_artifact)
    while True:
        try:
            own._add_artifact("t", "predictions/t.npz")
            break
        except requests.HTTPError:
            now[0] += 15
    assert bool(sent) is not is_lost
    assert ("did not reach MLflow" in caplog.text) is is_lost


def test_a_file_that_is_refused_is_sent_three_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[Path] = []

    def add_artifact(search: Any, trial: str, file: Path) -> None:
        tries.append(file)
        raise answered(403)

    own = sending(tmp_path, add_artifact)
    for _ in range(2):
        with pytest.raises(requests.HTTPError):
            own._add_artifact("t", "predictions/t.npz")
    with caplog.at_level(logging.WARNING):
        own._add_artifact("t", "predictions/t.npz")
    assert len(tries) == 3 and "the predictions of t did not reach MLflow" in caplog.text


def test_a_reason_is_said_once_and_the_next_file_is_tried_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[str] = []

    def add_artifact(search: Any, trial: str, file: Path) -> None:
        tries.append(trial)
        raise ModuleNotFoundError("No module named 'boto3'")

    own = sending(tmp_path, add_artifact)
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            own._add_artifact("t", "predictions/t.npz")
    for trial in ("t", "u"):
        assert not own._add_artifact(trial, "predictions/t.npz")
    assert tries == ["t", "t", "t", "u"]
    [line] = caplog.messages
    assert line.startswith("the predictions of t did not reach MLflow: s3://bucket needs")
    assert line.endswith("pip install boto3; the search's folder has all, and `resume` sends it")


def standing_in(error: Exception | None, tries: list[str]) -> SimpleNamespace:
    """Return what stands for MLflow's access to files, which raises this when it is written."""

    def log_artifact(file: str) -> None:
        tries.append("written")
        if error is not None:
            raise error

    def delete_artifacts(name: str) -> None:
        tries.append("deleted")
        raise PermissionError("may not delete")

    return SimpleNamespace(log_artifact=log_artifact, delete_artifacts=delete_artifacts)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, ""),
        (ModuleNotFoundError("No module named 'boto3'"), "s3://bucket needs .* pip install boto3"),
        (named("NoCredentialsError", "none"), "s3://bucket finds no credentials .*AWS_ACCESS"),
        (named("EndpointConnectionError", "closed"), "s3://bucket does not answer .* address"),
        (
            named("S3UploadFailedError", UPLOAD.format("AccessDenied", "Access Denied")),
            "s3://bucket refuses what the environment's credentials ask for",
        ),
        (
            named("S3UploadFailedError", UPLOAD.format("NoSuchBucket", "no bucket")),
            "s3://bucket has no bucket or folder 'bucket' .*; make it",
        ),
    ],
)
def test_whether_files_can_be_written_is_tried(
    error: Exception | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    monkeypatch.setattr(files, "files_at", lambda *place: standing_in(error, tries))
    found = files.why_not_written("s3://bucket/mlflow/1", "http://h")
    assert re.match(said, found) and bool(found) is bool(said)
    assert tries == (["written"] if error else ["written", "deleted"])
    for uri in ("file:///here", "mlflow-artifacts:/1", "http://h/1", "/here", "dbfs:/1", ""):
        assert not files.why_not_written(uri, "http://h")
    assert len(tries) < 3


def test_a_doctor_finds_files_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ModuleNotFoundError("No module named 'boto3'")
    monkeypatch.setattr(files, "files_at", lambda *place: standing_in(error, []))
    experiment = SimpleNamespace(name="elsa-tune/rte", artifact_location="s3://bucket/mlflow/1")

    def create(name: str) -> None:
        raise RestException({"error_code": "RESOURCE_ALREADY_EXISTS", "message": name})

    client = SimpleNamespace(
        search_experiments=lambda *which, **how: [experiment], create_experiment=create
    )
    asked = MlflowStore("http://h:5000")
    monkeypatch.setattr(asked, "client", lambda: client)
    with pytest.raises(TrackingError, match=r"http://h:5000 answers, but .* pip install boto3$"):
        asked.look()
    experiment.artifact_location = "mlflow-artifacts:/1"
    assert asked.look() == "http://h:5000 answers and can be written"


def test_of_a_trial_that_was_begun_again_only_what_is_older_is_asked_for() -> None:
    metrics = [
        Metric("quality", 0.8, timestamp=20, step=3),
        Metric("loss", 0.3, timestamp=5, step=4),  # the earlier attempt had come further
        Metric("left", 1.0, timestamp=5, step=1),
    ]
    tags = [RunTag(names.ATTEMPT_TAG, "2"), RunTag(names.ATTEMPT_STARTED_TAG, "10")]
    run = SimpleNamespace(data=RunData(metrics, [], tags), info=SimpleNamespace(run_id="r"))
    histories = {"loss": [metrics[1], Metric("loss", 0.5, timestamp=20, step=3)], "left": []}
    asked: list[str] = []

    def history(run_id: str, name: str) -> list[Metric]:
        asked.append(name)
        return histories[name]

    found = _latest(SimpleNamespace(get_metric_history=history), run)
    assert found == {"quality": 0.8, "loss": 0.5}
    assert asked == ["loss", "left"]
