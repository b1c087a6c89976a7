"""Models through the hub's own code path: a loopback stand-in, then its cache, then nothing."""

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
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.integration.conftest import connections
from tests.unit.tiny_models import make_tiny

pytestmark = pytest.mark.thorough

SHA = "0123456789abcdef0123456789abcdef01234567"
# Seconds for which a hub that does not answer may be left alone until it is asked again, all
# together. (How long it takes until it is given up is the machine's, too.)
PATIENCE = 12

# Does one thing per line of the plan and says what came of it, and how long it slept in all.
SCRIPT = """
import json, os, sys, time
from elsa_tune.errors import ModelError
from elsa_tune.specs.model import resolve_model
from elsa_tune.training.model import encoder, model_files
pauses, sleep = [], time.sleep

def pause(seconds):
    pauses.append(seconds)
    sleep(seconds)

time.sleep = pause

def load(spec):
    model = encoder.load_classifier(spec, 2, seed=1)
    return {name: float(value.double().sum()) for name, value in model.state_dict().items()}

actions = {
    "load": load,
    "facts": lambda spec: encoder.facts(spec).total,
    "tokenizer": lambda spec: encoder.load_tokenizer(spec)("it is good")["input_ids"],
    "fingerprint": model_files.weights_fingerprint,
    "offline": lambda spec: os.environ.update(HF_HUB_OFFLINE="1"),
    "pinned": lambda spec: model_files.pinned(spec).revision,
}
for action, name, revision in json.loads(sys.argv[1]):
    pauses.clear()
    try:
        result = {"value": actions[action](resolve_model(name, revision))}
    except ModelError as error:
        result = {"error": str(error)}
    print(json.dumps({**result, "paused": sum(pauses)}))
"""


@dataclass
class StandIn:
    """A hub on a loopback port, with a folder for each model it knows."""

    folders: dict[str, Path]
    gated: frozenset[str] = frozenset()
    requests: list[str] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, headers, body = stand_in.answer(self.command, self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, target: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body, as the hub gives them."""
        path = unquote(urlsplit(target).path)
        self.requests.append(f"{method} {path}")
        parts = path.strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        parts = parts[2:] if is_api else parts
        name, rest = "/".join(parts[:2]), parts[2:]
        folder = self.folders.get(name)
        if folder is None:
            return self._refuse(401, "RepoNotFound", "Repository Not Found")
        if len(rest) > 1 and rest[1] not in ("main", SHA):
            return self._refuse(404, "RevisionNotFound", "Revision Not Found")
        if is_api:
            return 200, {"Content-Type": "application/json"}, self._listing(name, folder, rest)
        if name in self.gated:
            return self._refuse(403, "GatedRepo", f"Access to model {name} is restricted")
        return self._file(folder / "/".join(rest[2:]))

    def _refuse(self, status: int, code: str, text: str) -> tuple[int, dict[str, str], bytes]:
        return status, {"X-Error-Code": code, "X-Error-Message": text}, b""

    def _listing(self, name: str, folder: Path, rest: list[str]) -> bytes:
        files = sorted(path for path in folder.iterdir() if path.is_file())
        if rest[:1] == ["tree"]:
            return json.dumps(
                [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": etag(f)[:40]}
                    for f in files
                ]
            ).encode()
        siblings = [{"rfilename": file.name} for file in files]
        about = {"id": name, "modelId": name, "sha": SHA, "private": False, "siblings": siblings}
        return json.dumps({**about, "tags": [], "downloads": 0, "likes": 0}).encode()

    def _file(self, path: Path) -> tuple[int, dict[str, str], bytes]:
        if not path.is_file():
            return self._refuse(404, "EntryNotFound", "Entry Not Found")
        headers = {"ETag": f'"{etag(path)}"', "X-Repo-Commit": SHA, "Accept-Ranges": "none"}
        return 200, headers, path.read_bytes()


def etag(path: Path) -> str:
    """Large files are named by their sha256, small ones by their git hash, as on the hub."""
    content = path.read_bytes()
    if path.suffix == ".safetensors":
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[StandIn]:
    tiny = make_tiny("bert", tmp_path / "hub" / "tiny")
    (tiny / "tf_model.h5").write_bytes(b"for another framework")
    (tiny / "README.md").write_text("a card")
    bare = make_tiny("bert", tmp_path / "hub" / "bare")
    (bare / "model.safetensors").unlink()
    empty = tmp_path / "hub" / "empty"
    empty.mkdir()
    (empty / "README.md").write_text("a data set, perhaps")
    adapter = tmp_path / "hub" / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    stand_in = StandIn(
        {
            "owner/adapter": adapter,
            "owner/tiny": tiny,
            "owner/bare": bare,
            "owner/empty": empty,
            "owner/gated": tiny,
            "owner/albert": make_tiny("albert", tmp_path / "hub" / "albert"),
        },
        gated=frozenset({"owner/gated"}),
    )
    yield stand_in
    stand_in.stop()


def ask(
    home: Path, port: int, *plan: tuple[str, str] | tuple[str, str, str]
) -> list[dict[str, Any]]:
    """Carry the plan out in a fresh process whose hub is that port and whose cache is `home`."""
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}
    kept = {name: value for name, value in os.environ.items() if name.upper() not in proxies}
    kept.pop("HF_HUB_OFFLINE", None)
    kept |= {"HF_HOME": str(home), "HF_ENDPOINT": f"http://127.0.0.1:{port}"}
    lines = [[action, name, revision[0] if revision else None] for action, name, *revision in plan]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(lines)],
        capture_output=True,
        text=True,
        timeout=200,
        env=kept,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


REFUSED = {
    ("load", "owner/unknown"): "neither a local folder nor a model on the hub is called",
    ("load", "owner/gated"): "accept them on http://127.0.0.1",
    ("load", "owner/tiny", "v9"): "'owner/tiny' has no revision 'v9'",
    ("load", "owner/bare"): "holds no weights that transformers can load",
    ("facts", "owner/empty"): "holds no config.json, so it is no transformers model",
    ("facts", "owner/adapter"): "model 'owner/adapter' is a PEFT adapter",
    ("load", "owner/albert"): "'albert' shares one set of weights among all its layers",
}


@pytest.mark.timeout(600)
def test_a_model_from_the_hub_or_its_refusal_and_then_from_its_cache(
    hub: StandIn, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    plan = [(action, "owner/tiny") for action in ("load", "tokenizer", "fingerprint", "pinned")]
    local = ("load", str(hub.folders["owner/tiny"]))
    fresh = ask(home, hub.port, *plan, local, ("facts", "owner/bare"), *REFUSED)
    loaded, tokens, fingerprint, pinned, from_folder, counted = (one["value"] for one in fresh[:6])
    assert loaded == from_folder  # the very weights, and the same head from the same seed
    assert tokens[0] == 2
    digest = etag(hub.folders["owner/tiny"] / "model.safetensors")
    assert fingerprint.startswith(f"sha256:{digest}+")
    assert fingerprint.endswith(f"@{SHA[:12]}")
    assert pinned == SHA
    assert counted > 10_000  # from a repository without weights
    assert not any("tf_model" in request or "README" in request for request in hub.requests)
    hub_weights = [r for r in hub.requests if r.startswith("GET") and "model.safetensors" in r]
    assert sum("tiny" in request for request in hub_weights) == 1
    for answer, part in zip(fresh[6:], REFUSED.values(), strict=True):
        assert part in answer.get("error", "nothing was refused")
        assert "\n" not in answer["error"]
    # A refused model must not have cost a download of its weights.
    assert not any("bare" in request or "gated" in request for request in hub_weights)

    # Another program wanted the configuration and the weights of that commit alone.
    for file in home.glob("**/snapshots/*/tokenizer*"):
        file.unlink()
    [of_commit] = ask(home, hub.port, ("tokenizer", "owner/tiny", SHA))
    assert of_commit["value"] == tokens

    hub.stop()
    again, same_tokens, same_print, exact, part, missing, other, _, offline, unknown = ask(
        home,
        hub.port,
        ("load", "owner/tiny"),
        ("tokenizer", "owner/tiny"),
        ("fingerprint", "owner/tiny"),
        ("load", "owner/tiny", SHA),
        ("load", "owner/bare"),
        ("load", "owner/unknown"),
        ("load", "owner/tiny", "v2"),
        ("offline", "owner/tiny"),
        ("load", "owner/tiny"),
        ("load", "owner/unknown"),
    )
    assert again["value"] == exact["value"] == offline["value"] == loaded
    assert (same_tokens["value"], same_print["value"]) == (tokens, fingerprint)
    assert "model 'owner/bare' is cached here in part, without its weights" in part["error"]
    for answer, what in ((missing, "'owner/unknown'"), (other, "'owner/tiny' at revision v2")):
        assert f"http://127.0.0.1:{hub.port} cannot be reached" in answer["error"]
        assert f"model {what} is neither a local folder nor cached here" in answer["error"]
        name = what.split("'")[1]
        folder = name.removeprefix("owner/")
        assert f"`hf download {name} --local-dir {folder}`" in answer["error"]
        assert f"by `model` ./{folder} (or copy" in answer["error"] and "HF_HOME" in answer["error"]
        assert "`model` minilm" in answer["error"]
        assert "\n" not in answer["error"]
    assert "cannot be reached (HF_HUB_OFFLINE forbids to ask it)" in unknown["error"]
    assert all(one["paused"] < PATIENCE for one in (again, exact, part, missing, other, unknown))


def test_a_hub_that_accepts_and_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(16)
        port = deaf.getsockname()[1]
        [answer] = ask(tmp_path / "home", port, ("load", "owner/tiny"))
        asked = connections(deaf)
    assert "cannot be reached" in answer["error"]
    # Each is waited for some seconds.
    assert asked <= 2 and answer["paused"] < PATIENCE
