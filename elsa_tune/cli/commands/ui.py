"""`elsa-tune ui`: MLflow's pages of the recorded searches."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elsa_tune.cli.options import TrackingUri
from elsa_tune.errors import RunError, TrackingError, UsageError
from elsa_tune.searching.output import say
from elsa_tune.searching.process.signals import handling_signals
from elsa_tune.tracking.paths import artifact_root_for
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.uris import shown_uri, without_credentials

if TYPE_CHECKING:
    from elsa_tune.tracking.mlflow.store import MlflowStore


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    tracking_uri: TrackingUri = None,
) -> None:
    """Open MLflow's pages for the recorded searches."""
    from elsa_tune.tracking.mlflow.store import MlflowStore
    from elsa_tune.tracking.stores import store_at

    uri = StorePaths(Path.cwd()).tracking_uri(tracking_uri)
    store = store_at(uri)
    if not isinstance(store, MlflowStore):
        raise UsageError(
            f"{shown_uri(uri)} has no pages: only MLflow has; `elsa-tune searches` lists what is "
            "recorded there"
        )
    if uri.startswith("http"):
        say(f"the record is on a server; open {without_credentials(uri)}")
        with contextlib.suppress(TrackingError):  # its address is all that was asked for
            store.check()
            _say_page(store, without_credentials(uri))
        return
    _check_port(host, port)
    store.check()
    store.initialise(say)
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", host, "--port", str(port)]
    # Not an argument: every user of the machine sees those.
    os.environ["MLFLOW_BACKEND_STORE_URI"] = uri
    # Jobs are for MLflow's evaluation of language models: thirty processes that nothing here needs.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    artifact_root = artifact_root_for(uri, Path.cwd())
    if artifact_root is not None:
        command += ["--default-artifact-root", artifact_root.as_uri()]
    say(f"MLflow is starting on http://{host}:{port} (Ctrl-C ends it)")
    _say_page(store, f"http://{host}:{port}")
    if status := _serve(command):
        raise RunError(f"the MLflow server ended with status {status}; see its output above")


def _say_page(store: "MlflowStore", address: str) -> None:
    """Print the page of the latest search, which takes many clicks from MLflow's first one."""
    latest = store.latest_page(address)
    if latest is not None:
        name, page = latest
        say(f"the runs of search '{name}': {page}")


def _check_port(host: str, port: int) -> None:
    """Raise UsageError where nothing can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise UsageError(
            f"cannot listen on {host}:{port}: {why}; choose another port with --port"
        ) from error


def _serve(command: list[str]) -> int:
    """Run the server until it or the user ends it; return its exit status, 0 when the user did."""
    signals = 0
    # A group of its own: the server's workers end with it, and Ctrl-C reaches them once, through
    # us. What it prints goes to stderr: nothing on stdout was asked for.
    server = subprocess.Popen(command, stdout=sys.stderr.fileno(), start_new_session=True)

    def pass_on(_number: int, _frame: object) -> None:
        nonlocal signals
        signals += 1
        if server.poll() is None:
            # To the second Ctrl-C nobody wants a graceful end.
            os.killpg(server.pid, signal.SIGTERM if signals == 1 else signal.SIGKILL)

    with handling_signals(pass_on):
        status = server.wait()
    return 0 if signals else status
