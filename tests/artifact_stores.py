"""Stores of files for tests: what every one must do, and an S3 of its own on loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.tracking.artifacts.store import ArtifactStore, read
from tests.integration.conftest import free_port
from tests.searching import wait_for

LACKING = [name for name in ("s3fs", "moto", "flask") if importlib.util.find_spec(name) is None]
needs_s3 = pytest.mark.skipif(
    bool(LACKING), reason=f"needs {', '.join(LACKING)}: pip install s3fs 'moto[server]'"
)
SECRET = "very-secret-key-of-s3"


def keeps_files(store: ArtifactStore, folder: Path) -> None:
    """Check that a store, which is empty, does what the protocol says. folder: for a file here."""
    assert store.sizes("moods") == {}
    assert read(store, "moods/search.json") is None
    with pytest.raises(FileNotFoundError):
        store.open_reader("moods/search.json")
    store.write("moods/search.json", b"{}")
    store.write("moods/journal/000000000000.jsonl", b"line\n")
    store.write("moods-2/search.json", b"another")  # whose name begins in the same way
    assert store.sizes("moods") == {"moods/search.json": 2, "moods/journal/000000000000.jsonl": 5}
    store.write("moods/search.json", b"longer")
    assert read(store, "moods/search.json") == b"longer"
    assert store.sizes("moods")["moods/search.json"] == 6
    large = folder / "large.safetensors"
    large.write_bytes(os.urandom(7_000_000))
    store.write("moods/checkpoints/a.safetensors", large)
    with store.open_reader("moods/checkpoints/a.safetensors") as file:
        assert file.read(10) == large.read_bytes()[:10]
        assert file.read() == large.read_bytes()[10:]
    with pytest.raises(FileNotFoundError):
        store.write("moods/b", folder / "not there")
    store.remove("moods/checkpoints/a.safetensors")
    store.remove("moods/checkpoints/a.safetensors")  # once more changes nothing
    assert sorted(store.sizes("moods")) == ["moods/journal/000000000000.jsonl", "moods/search.json"]
    assert read(store, "moods-2/search.json") == b"another"


class S3:
    """A moto server as a process, on a port of its own; what it holds is gone with it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "AKIA0123456789",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to serve, with nothing."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 200
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert time.monotonic() < deadline and self.process.poll() is None
            time.sleep(0.1)

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """Let it answer no more, with its port open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @property
    def client(self) -> Any:
        """Return boto's client of it."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.address,
            aws_access_key_id="AKIA0123456789",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )

    def delete_bucket(self, name: str) -> None:
        """Delete a bucket with all that is in it."""
        from botocore.exceptions import ClientError

        def is_deleted() -> bool:
            for key in self.names(name):
                self.client.delete_object(Bucket=name, Key=key)
            try:
                self.client.delete_bucket(Bucket=name)
            except ClientError:  # somebody has written there meanwhile
                return False
            return True

        wait_for(is_deleted)

    def names(self, bucket: str) -> list[str]:
        """Return the names of all objects in a bucket."""
        names = []
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            names += [about["Key"] for about in page.get("Contents", ())]
        return names


@contextlib.contextmanager
def serving() -> Iterator[S3]:
    """Serve while inside."""
    server = S3()
    server.start()
    try:
        yield server
    finally:
        server.stop()
