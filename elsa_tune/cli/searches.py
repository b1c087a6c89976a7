"""The commands about what is recorded: `searches` lists and deletes, `ui` opens MLflow on it.

It must not read journals or speak MLflow itself; `tracking` does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsa_tune.errors import RunError, UsageError

if TYPE_CHECKING:
    from elsa_tune.tracking.searches import SearchSummary

StorageOption = Annotated[
    Path | None,
    typer.Option("--storage-path", help="Where searches are kept [default: ./mlruns/searches]."),
]
TrackingOption = Annotated[
    str | None,
    typer.Option(
        "--tracking-uri",
        help="The MLflow store [default: $MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db].",
    ),
]
_STARTUP_S = 120.0


class OutputFormat(StrEnum):
    """How the list is printed."""

    TABLE = "table"
    JSON = "json"


def searches(
    delete: Annotated[
        str | None,
        typer.Option("--delete", metavar="NAME", help="Delete this search and its MLflow runs."),
    ] = None,
    storage_path: StorageOption = None,
    tracking_uri: TrackingOption = None,
    output: Annotated[
        OutputFormat, typer.Option("--format", help="How to print the list.")
    ] = OutputFormat.TABLE,
) -> None:
    """What is recorded: every search, its state and its answer."""
    from elsa_tune.tracking.paths import StorePaths
    from elsa_tune.tracking.searches import delete_search, list_searches

    places = StorePaths(Path.cwd())
    storage = storage_path or places.storage
    uri = places.tracking_uri(tracking_uri)
    if delete is not None:
        runs = delete_search(storage, delete, uri)
        print(f"deleted search '{delete}' and {runs} MLflow runs", file=sys.stderr)
        return
    found, warnings = list_searches(storage, uri)
    for warning in warnings:
        print(f"elsa-tune: {warning}", file=sys.stderr)
    if output is OutputFormat.JSON:
        print(json.dumps([_as_json(summary) for summary in found], indent=2, ensure_ascii=False))
    elif found:
        _print_table(found)
    else:
        print(f"no search is recorded in {storage}; `elsa-tune search` starts one", file=sys.stderr)


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    tracking_uri: TrackingOption = None,
) -> None:
    """Open the MLflow user interface on the recorded searches; Ctrl-C ends it."""
    from elsa_tune.tracking.mlflow_store import MlflowStore
    from elsa_tune.tracking.paths import StorePaths, shown_uri

    places = StorePaths(Path.cwd())
    uri = places.tracking_uri(tracking_uri)
    if uri.startswith("http"):
        print(f"the record is on a server; open {shown_uri(uri)}", file=sys.stderr)
        return
    _check_port(host, port)
    artifacts = places.artifact_root_for(uri)
    store = MlflowStore(uri, artifacts)
    store.check()
    store.initialise()
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--backend-store-uri", uri, "--host", host, "--port", str(port)]
    if artifacts is not None:
        command += ["--default-artifact-root", artifacts.as_uri()]
    status = _serve(command, f"http://{host}:{port}")
    if status != 0:
        raise RunError(f"the MLflow server ended with status {status}; its last words stand above")


def _as_json(summary: SearchSummary) -> dict[str, Any]:
    return {
        "name": summary.name,
        "model": summary.model,
        "task": summary.task,
        "status": summary.status.value,
        "trials_done": summary.done,
        "trials_planned": summary.planned,
        "started": _when(summary.started),
        "answer": summary.answer,
        "folder": None if summary.folder is None else str(summary.folder),
    }


def _print_table(found: list[SearchSummary]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("search", "model", "task", "state"):
        table.add_column(heading, overflow="fold")
    table.add_column("trials", justify="right")
    table.add_column("started", no_wrap=True)
    table.add_column("answer", overflow="fold")
    for summary in found:
        planned = "?" if summary.planned is None else str(summary.planned)
        state = summary.status.value.replace("_", " ")
        if summary.folder is None:
            state += " (elsewhere)"
        table.add_row(
            summary.name,
            summary.model,
            summary.task,
            state,
            f"{summary.done} / {planned}",
            (_when(summary.started) or "")[:16].replace("T", " "),
            _answer_text(summary.answer),
        )
    # A pipe has no width: lines must not be folded at 80 columns there.
    Console(width=None if sys.stdout.isatty() else 400, highlight=False).print(table)


def _answer_text(answer: Any) -> str:
    """A recorded answer in a few words; of several answers one after the other."""
    if isinstance(answer, list) and answer:
        return "; ".join(_answer_text(one) for one in answer)
    if isinstance(answer, dict) and "operating_point" in answer:
        point = answer["operating_point"]
        if point is not None:
            return f"{point['fine_tuned_layers']} of {answer['layers']} layers fine-tuned"
        return f"none: {str(answer['reason']).replace('_', ' ')}"
    return answer if isinstance(answer, str) and answer else "-"


def _when(seconds: float) -> str | None:
    """Local time in ISO form, None where nothing was recorded."""
    return (
        datetime.fromtimestamp(seconds).astimezone().isoformat("T", "seconds") if seconds else None
    )


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port"
            ) from error


def _serve(command: list[str], address: str) -> int:
    """Run the server until it or the user ends it; its exit status, 0 when the user did."""
    signals = 0
    # Jobs are for MLflow's evaluation of language models: thirty processes that nothing here needs.
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **os.environ}
    # A group of its own: the server's workers end with it, and Ctrl-C reaches them once, through
    # us. What it prints goes to stderr: nothing on stdout was asked for.
    server = subprocess.Popen(
        command, stdout=sys.stderr.fileno(), start_new_session=True, env=environment
    )

    def pass_on(_number: int, _frame: object) -> None:
        nonlocal signals
        signals += 1
        if server.poll() is None:
            # To the second Ctrl-C nobody wants a graceful end.
            os.killpg(server.pid, signal.SIGTERM if signals == 1 else signal.SIGKILL)

    before = {
        number: signal.signal(number, pass_on)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        print(f"MLflow is starting on {address}", file=sys.stderr)
        if _answers(address, server):
            print(f"MLflow is ready on {address}; Ctrl-C ends it", file=sys.stderr)
        status = server.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0 if signals else status


def _answers(address: str, server: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _STARTUP_S
    # No proxy stands between this machine and itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with opener.open(f"{address}/health", timeout=2):
                return True
        except OSError:
            time.sleep(0.2)
    return False
