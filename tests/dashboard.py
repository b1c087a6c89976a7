"""A stand-in for a Ray cluster's dashboard, of which jobs are asked: an HTTP server on loopback."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import ray

OTHERS = [{"type": "DRIVER", "job_id": "01", "status": "RUNNING", "entrypoint": "python x.py"}]


class Dashboard:
    """What a dashboard answers, and what it was sent."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.version: Any = {"ray_version": ray.__version__}
        self.jobs: list[dict[str, Any]] = [*OTHERS]
        self.nodes: Any = [{"state": "ALIVE", "resources_total": {"CPU": 8.0}}]
        self.logs: list[str] = []  # one for each time that it is asked; the last one stays
        self.packages: dict[str, bytes] = {}
        self.stopped: list[str] = []
        # How a job stands that is told to stop: its status, and its driver's exit status.
        self.stops_as: tuple[str, int | None] = ("STOPPED", None)
        self.refuses: tuple[int, str] | None = None  # a new job
        self.status = 200  # of every answer; of another one the text is
        self.text = "no"
        self.patience = threading.Event()  # where it is cleared nothing is answered
        self.patience.set()

    def job(self, id: str, status: str, exit_status: int | None = None, **more: Any) -> None:
        """Have a job of this id."""
        details = {"type": "SUBMISSION", "submission_id": id, "status": status, **more}
        details |= {"entrypoint": "sh", "driver_exit_code": exit_status}
        self.jobs = [job for job in self.jobs if job.get("submission_id") != id] + [details]

    def submitted(self) -> dict[str, Any]:
        """Return the one job that was sent."""
        [job] = [job for job in self.jobs if "runtime_env" in job]
        return job

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return the status and the value for a request."""
        self.patience.wait(60)
        if self.status != 200:
            return self.status, self.text
        if path == "/api/version":
            return 200, self.version
        if path.startswith("/api/v0/nodes"):
            return 200, {"data": {"result": {"result": self.nodes}}}
        if path.startswith("/api/packages/"):
            return self._package(method, path, body)
        if path == "/api/jobs/" and method == "POST":
            return self._submit(json.loads(body))
        if path == "/api/jobs/":
            return 200, self.jobs
        return self._about_job(path.removeprefix("/api/jobs/"))

    def _package(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if method == "PUT":
            self.packages[path] = body
        return (200, {}) if path in self.packages else (404, "none")

    def _submit(self, job: dict[str, Any]) -> tuple[int, Any]:
        if self.refuses is not None:
            return self.refuses
        self.jobs.append(job | {"type": "SUBMISSION", "status": "PENDING"})
        return 200, {"job_id": job["submission_id"], "submission_id": job["submission_id"]}

    def _about_job(self, path: str) -> tuple[int, Any]:
        id, _, what = path.partition("/")
        if not any(job.get("submission_id") == id for job in self.jobs):
            return 404, f"Job {id} does not exist"
        if what == "logs":
            log = self.logs.pop(0) if len(self.logs) > 1 else self.logs[0]
            return 200, {"logs": log}
        if what == "stop":
            self.stopped.append(id)
            self.job(id, *self.stops_as)
            return 200, {"stopped": True}
        [job] = [job for job in self.jobs if job.get("submission_id") == id]
        return 200, job


@contextlib.contextmanager
def dashboard() -> Iterator[Dashboard]:
    """Run one."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            status, value = told.answer(self.command, self.path, body)
            content = value if isinstance(value, str) else json.dumps(value)
            with contextlib.suppress(OSError):  # who asked may be gone
                self.send_response(status)
                self.end_headers()
                self.wfile.write(content.encode())

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, *what: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        told = Dashboard(f"http://127.0.0.1:{server.server_address[1]}")
        # It looks this often, in seconds, whether it is to end; by default twice in a second.
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield told
        finally:
            told.patience.set()
            server.shutdown()
            thread.join()
