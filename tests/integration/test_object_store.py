"""The protocol of stores, and what goes wrong with one, against an S3 on loopback."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from elsa_tune.errors import StorageError
from elsa_tune.tracking.artifacts import copier, places
from elsa_tune.tracking.artifacts.contents import stored_journal, stored_sizes
from elsa_tune.tracking.artifacts.copier import Copier
from elsa_tune.tracking.artifacts.fetching import fetch
from elsa_tune.tracking.artifacts.places import artifacts_at
from elsa_tune.tracking.journal_records import SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from tests.artifact_stores import S3, SECRET, keeps_files, needs_s3, serving
from tests.searching import wait_for

pytestmark = [
    needs_s3,
    pytest.mark.thorough,
    # Sockets of the library's own thread.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

URL = "s3://bucket/some/prefix"
ENDED = SearchEnded(status=SearchStatus.COMPLETED, message="")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    with serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.client.create_bucket(Bucket="bucket")
        yield server


@pytest.mark.usefixtures("s3")
def test_s3_keeps_files(tmp_path: Path) -> None:
    keeps_files(artifacts_at(URL), tmp_path)


def refusal(url: str = URL) -> str:
    """Return the sentence with which a search would not start."""
    with pytest.raises(StorageError) as refused:
        places.check(artifacts_at(url))
    sentence = str(refused.value)
    assert SECRET not in sentence and "\n" not in sentence
    return sentence


def test_what_can_be_wrong_is_one_sentence_each(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    places.check(artifacts_at(URL))
    assert s3.names("bucket") == []  # nothing is left of the trial
    assert "has no bucket or folder 'bukcet'" in refusal("s3://bukcet/some/prefix")
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        without.delenv("AWS_SECRET_ACCESS_KEY")
        assert "finds no credentials (Unable to locate credentials" in refusal()
    # From the next request on, moto asks for rights, which this key never had.
    rights = f"{s3.address}/moto-api/reset-auth"
    plain = {"Content-Type": "text/plain"}
    urllib.request.urlopen(urllib.request.Request(rights, b"0", plain)).close()
    assert "refuses what the environment's credentials ask for" in refusal()
    monkeypatch.setattr(places, "PATIENCE_S", 2.0)
    s3.pause()
    assert "does not answer" in refusal()
    s3.go_on()
    s3.stop()
    monkeypatch.setattr(places, "PATIENCE_S", 30.0)
    assert "does not answer (Could not connect to the endpoint" in refusal()


@pytest.mark.timeout(600)
def test_a_bucket_deleted_in_the_middle_and_a_store_that_answers_late(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, it is said once each time, and the copy is complete in the end."""
    monkeypatch.setattr(copier, "_SHORTEST_S", 0.1)
    paths = SearchPaths(tmp_path / "searches", "s")
    paths.predictions.mkdir(parents=True)
    paths.specification.write_text(json.dumps({"search_id": "id of s"}))
    said: list[str] = []
    assert not fetch(URL, paths, said.append)
    store = artifacts_at(URL)
    copies = Copier(store, paths, said.append).start()

    def append(count: int) -> None:
        with paths.journal.open("ab") as file:
            for number in range(count):
                file.write(json.dumps({"number": number}).ljust(499).encode() + b"\n")
        copies.offer(ENDED)

    other = artifacts_at(URL)

    def is_complete() -> bool:
        try:
            sizes = stored_sizes(other, "s")
            return stored_journal(other, "s", sizes) == paths.journal.read_bytes()
        except (OSError, StorageError):
            return False

    append(1000)
    (paths.predictions / "a.npz").write_bytes(b"predictions")
    wait_for(is_complete)
    s3.delete_bucket("bucket")
    append(10)
    wait_for(lambda: len(said) == 1)
    assert "has no bucket or folder 'bucket'" in said[0] and "the search goes on" in said[0]
    append(10)
    s3.client.create_bucket(Bucket="bucket")
    append(10)
    wait_for(is_complete)
    wait_for(lambda: len(said) == 2)
    assert "some/prefix/s/predictions/a.npz" in s3.names("bucket")
    assert "some/prefix/s/search.json" in s3.names("bucket")
    s3.pause()
    append(10)
    time.sleep(3)
    append(10)
    s3.go_on()
    wait_for(is_complete)
    assert copies.close() == "" and "some/prefix/s/lease.json" not in s3.names("bucket")
    assert SECRET not in "".join(said)
