"""GLUE through the hub's code path.

Its client asks a loopback stand-in, then works offline, then finds nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.conftest import connections

pytestmark = pytest.mark.thorough

SHA = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "nyu-mll/glue"

CARD = """---
configs:
- config_name: rte
  data_files:
  - {split: train, path: rte/train-*}
  - {split: validation, path: rte/validation-*}
  - {split: test, path: rte/test-*}
- config_name: mnli
  data_files:
  - {split: train, path: mnli/train-*}
  - {split: validation_matched, path: mnli/validation_matched-*}
  - {split: validation_mismatched, path: mnli/validation_mismatched-*}
- config_name: cola
  data_files:
  - {split: train, path: cola/train-*}
  - {split: validation, path: cola/validation-*}
---
"""


def parquet(folder: Path, name: str, rows: list[dict[str, object]]) -> None:
    path = folder / f"{name}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def fill(folder: Path) -> Path:
    """Write the repository's files, in small: labels are ids, the test split's are -1."""
    (folder / "README.md").parent.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(CARD)

    def rte(n: int, label: int) -> dict[str, object]:
        return {"sentence1": f"null {n}", "sentence2": "NA", "label": label, "idx": n}

    parquet(folder, "rte/train", [rte(n, n % 2) for n in range(6)])
    parquet(folder, "rte/validation", [rte(n, n % 2) for n in range(4)])
    parquet(folder, "rte/test", [rte(n, -1) for n in range(4)])
    for split, count in (("train", 6), ("validation_matched", 3), ("validation_mismatched", 5)):
        rows = [
            {"premise": f"p {n}", "hypothesis": "h" if n else None, "label": n % 3, "idx": n}
            for n in range(count)
        ]
        parquet(folder, f"mnli/{split}", rows)
    for split, label in (("train", 1), ("validation", -1)):
        rows = [
            {"sentence": f"s {n}", "label": label * (n % 2 or label), "idx": n} for n in range(4)
        ]
        parquet(folder, f"cola/{split}", rows)
    return folder


@dataclass
class StandIn:
    """A hub on a loopback port that knows one data set."""

    files: dict[str, bytes]
    asked: list[str] = field(default_factory=list)
    server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> StandIn:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.answer(with_body=True)

            def answer(self, with_body: bool) -> None:
                stand_in.asked.append(f"{self.command} {self.path}")
                status, headers, body = stand_in.reply(unquote(urlsplit(self.path).path))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.server is not None
        self.server.shutdown()
        self.server.server_close()

    def reply(self, path: str) -> tuple[int, dict[str, str], bytes]:
        resolve = f"/datasets/{REPOSITORY}/resolve/"
        api = f"/api/datasets/{REPOSITORY}"
        if path == "/":
            return 200, {}, b""
        if path.startswith(resolve):
            name = path.removeprefix(resolve).split("/", 1)[1]
            if name in self.files:
                tag = hashlib.sha256(self.files[name]).hexdigest()
                return 200, {"X-Repo-Commit": SHA, "ETag": f'"{tag}"'}, self.files[name]
        elif path in (api, f"{api}/revision/main", f"{api}/revision/{SHA}"):
            siblings = [{"rfilename": name} for name in self.files]
            return self.json({"id": REPOSITORY, "sha": SHA, "siblings": siblings, "tags": []})
        elif path.startswith(f"{api}/tree/"):
            return self.json(self.tree())
        elif path.startswith(f"{api}/paths-info/"):
            return self.json([])
        return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": SHA}, b"{}"

    @staticmethod
    def json(value: object) -> tuple[int, dict[str, str], bytes]:
        return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()

    def tree(self) -> list[dict[str, object]]:
        """All files, as the client asks for them."""
        return [
            {
                "type": "file",
                "path": name,
                "size": len(content),
                "oid": hashlib.sha1(content).hexdigest(),
            }
            for name, content in self.files.items()
        ]


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    folder = fill(tmp_path_factory.mktemp("repository"))
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    with StandIn(files) as server:
        yield server


READ = """
import json, sys
from elsa_tune.errors import ElsaTuneError
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training.data.texts import read_texts
def read(task):
    try:
        splits = read_texts(resolve_task(task))
    except ElsaTuneError as error:
        return f"{type(error).__name__}: {error}"
    return {
        name: [list(map(list, zip(*split.texts))), split.labels.tolist(), list(split.notes)]
        for name, split in splits.items()
    }
print(json.dumps({task: read(task) for task in sys.argv[1:]}))
"""


class Read(NamedTuple):
    """By task: its splits, or the error's class and sentence; and what went to stderr."""

    found: dict[str, Any]
    err: str


def read(root: Path, home: Path, *tasks: str, **environment: str) -> Read:
    """In a process of its own: the hub's address is read once, when its client is imported."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGINGFACE")) and "proxy" not in name.lower()
    }
    done = subprocess.run(
        [sys.executable, "-c", READ, *tasks],
        cwd=root,
        env={**inherited, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return Read(json.loads(done.stdout), done.stderr)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the client's cache."""
    return tmp_path_factory.mktemp("home") / "hf"


@pytest.fixture(scope="module")
def online(root: Path, home: Path, stand_in: StandIn) -> dict[str, Any]:
    """Return what the hub answers, all asked by one process: starting it takes longer."""
    return read(root, home, "rte", "mnli", "cola", "wnli", HF_ENDPOINT=stand_in.url).found


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_from_the_hub_then_from_its_cache_without_network(
    root: Path, home: Path, online: dict[str, Any], stand_in: StandIn
) -> None:
    texts, labels, notes = online["rte"]["evaluation"]
    assert texts == [[f"null {n}", "NA"] for n in range(4)]
    assert (labels, notes) == ([0, 1, 0, 1], [])
    assert online["rte"]["train"][1] == [0, 1] * 3
    # Again: the cache answers, the hub is not asked at all.
    asked = len(stand_in.asked)
    assert asked > 0
    again = read(root, home, "rte", HF_ENDPOINT=stand_in.url)
    assert again == Read({"rte": online["rte"]}, "")
    assert len(stand_in.asked) == asked
    offline = read(root, home, "rte", HF_HUB_OFFLINE="1")
    assert offline.found == again.found


def test_mnli_from_the_hub(online: dict[str, Any]) -> None:
    # One empty text of two is an empty text.
    texts, labels, notes = online["mnli"]["mnli_mismatched"]
    assert (texts[0], labels, notes) == (["p 0", ""], [0, 1, 2, 0, 1], [])


def test_unlabelled_rows_of_the_hub_are_refused(online: dict[str, Any]) -> None:
    assert online["cola"].startswith("DataError: ")
    assert "label -1 marks the unlabelled rows of a test split" in online["cola"]


def test_a_configuration_the_hub_has_not(online: dict[str, Any]) -> None:
    assert "task 'wnli' is not in the hub's local cache" in online["wnli"]
    assert "nyu-mll/glue could not be loaded" in online["wnli"]
    assert "it has no complete wnli/train" in online["wnli"]
    assert "`data_dir`" in online["wnli"]


@pytest.mark.parametrize("how", ["refused", "silent", "offline"])
def test_no_hub_and_no_cache_fails_with_the_ways_out(root: Path, tmp_path: Path, how: str) -> None:
    with socket.socket() as silent:  # accepts and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        port = silent.getsockname()[1] if how == "silent" else unused_port()
        environment = {"HF_ENDPOINT": f"http://127.0.0.1:{port}"}
        if how == "offline":
            environment["HF_HUB_OFFLINE"] = "1"
        answer = read(root, tmp_path / "hf", "rte", **environment)
        # Each is waited for some seconds; the client alone asks for minutes.
        assert connections(silent) <= 2
    assert answer.err == ""
    sentence = answer.found["rte"]
    assert "\n" not in sentence
    assert sentence.startswith("DataError: task 'rte' is not in the hub's local cache")
    reason = {"refused": "Connection refused", "silent": "timed out", "offline": "HF_HUB_OFFLINE"}
    assert reason[how] in sentence
    for way_out in ("`data_dir`", "`task` stdlib", "once with network"):
        assert way_out in sentence
