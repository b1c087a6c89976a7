"""A hub of data sets on a loopback port, whose repositories a test writes and moves."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

Reply = tuple[int, dict[str, str], bytes]


@dataclass
class Repository:
    """Its commits, the newest last: of each the files by name."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: bool = False
    private: bool = False

    def commit(self, files: dict[str, bytes]) -> str:
        sha = hashlib.sha1(str(sorted(files.items())).encode()).hexdigest()
        self.commits[sha] = files
        return sha


class DataHub:
    """Answers as the hub does. asked: what came, a method and a path each."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                sent = self.rfile.read(length).decode()
                hub.asked.append(f"{self.command} {self.path}")
                status, headers, body = hub.reply(unquote(urlsplit(self.path).path), sent)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, name: str, files: dict[str, bytes], **kind: bool) -> str:
        """Add a repository, or one more commit of it; return the commit."""
        return self.repositories.setdefault(name, Repository(**kind)).commit(files)

    def reply(self, path: str, sent: str) -> Reply:
        is_api = path.startswith("/api/datasets/")
        owner, name, *rest = path.removeprefix("/api").removeprefix("/datasets/").split("/")
        repository = self.repositories.get(f"{owner}/{name}")
        if repository is None or repository.private:
            return _refused(401, "RepoNotFound")
        if repository.gated and not is_api:
            return _refused(403, "GatedRepo")
        what, revision, *inner = (*rest, "", "")[: max(2, len(rest))]
        sha = revision if revision not in ("", "main") else list(repository.commits)[-1]
        if sha not in repository.commits:
            return _refused(404, "RevisionNotFound")
        files, place = repository.commits[sha], "/".join(filter(None, inner))
        if not is_api:
            if place not in files:
                return _refused(404, "EntryNotFound", sha)
            tag = hashlib.sha256(files[place]).hexdigest()
            return 200, {"X-Repo-Commit": sha, "ETag": f'"{tag}"'}, files[place]
        if what == "tree":
            return _json(_below(files, place))
        if what == "paths-info":
            wanted = parse_qs(sent).get("paths") or json.loads(sent or "{}").get("paths", [])
            return _json([entry for one in wanted for entry in _entries(files, one)])
        siblings = [{"rfilename": one} for one in files]
        return _json({"id": f"{owner}/{name}", "sha": sha, "siblings": siblings, "tags": []})


def _refused(status: int, code: str, sha: str = "") -> Reply:
    return status, {"X-Error-Code": code, "X-Repo-Commit": sha}, b"{}"


def _json(value: object) -> Reply:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _entries(files: dict[str, bytes], path: str) -> list[dict[str, Any]]:
    if path in files:
        oid = hashlib.sha1(files[path]).hexdigest()
        return [{"type": "file", "path": path, "size": len(files[path]), "oid": oid}]
    if any(name.startswith(f"{path}/") for name in files):
        return [{"type": "directory", "path": path, "oid": hashlib.sha1(path.encode()).hexdigest()}]
    return []


def _below(files: dict[str, bytes], place: str) -> list[dict[str, Any]]:
    """Files and folders below one, as the client asks for them."""
    begin = f"{place}/" if place else ""
    names = [name for name in files if name.startswith(begin)]
    folders = {str(parent) for name in names for parent in Path(name).parents} - {".", place}
    return [entry for one in sorted({*names, *folders}) for entry in _entries(files, one)]


def outside(
    home: Path, url: str, *command: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a process of its own with this hub and this cache.

    Its client reads both when imported.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGINGFACE")) and "proxy" not in name.lower()
    }
    ours = {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_UPDATE_DOWNLOAD_COUNTS": "0"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**inherited, **ours, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
